"""Bandwidth, latency and topologies: what lies between regions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import networkx as nx
import numpy as np
import pandas as pd

from bace_env.errors import ConfigError
from bace_env.io.reading import begin, example, is_blank, numbers, read_bytes, read_table
from bace_env.io.report import Report
from bace_env.schema import nearest

Pair = tuple[str, str]


@dataclass(frozen=True)
class NetworkOptions:
    """What a file does not say, and what is to be done with its odd rows.

    Attributes:
        tier: Skyplane: network tier of both ends, or `any`; None: PREMIUM.
        rtt: Skyplane: which of the round-trip times.
        duplicates: Several rows for one pair: their `median`, or `first`, `last`, `mean`, `error`.
        unit: Matrix: `Gbit/s`, `Mbit/s`, `bit/s`, `ms` (one way), `ms RTT`, or `USD/GB`.
        capacity_gbps: Topology: of a link that states none.
        disconnected: Topology: `error`, or `keep` regions between which there is no path.
        regions: Names in the file that are wanted; empty: all.
        delimiter: Of text tables.
        encoding: Of text tables.
    """

    tier: Literal["PREMIUM", "STANDARD", "any"] | None = None
    rtt: Literal["min", "avg", "max"] = "avg"
    duplicates: Literal["median", "first", "last", "mean", "error"] | None = None
    unit: str | None = None
    capacity_gbps: float | None = None
    disconnected: Literal["error", "keep"] | None = None
    regions: tuple[str, ...] = ()
    delimiter: str = ","
    encoding: str = "utf-8-sig"


class NetworkImport(NamedTuple):
    """What files say of ordered pairs of regions.

    Attributes:
        names: The regions, in the order of the file.
        gbps: Bandwidth, Gbit/s; a pair that is missing has no link.
        latency_ms: One way.
        usd_per_gb: Price of traffic.
        report: What was done to get there.
    """

    names: list[str]
    gbps: dict[Pair, float]
    latency_ms: dict[Pair, float]
    usd_per_gb: dict[Pair, float]
    report: Report


def read_network(
    name: str, files: Sequence[str | Path], options: NetworkOptions | None = None
) -> NetworkImport:
    """Read what files say of pairs of regions.

    Args:
        name: A format of `NETWORK_FORMATS`.
        files: The files.
        options: See `NetworkOptions`.

    Raises:
        ConfigError: What is wrong with a file, or an option that the file needs.
    """
    options = options or NetworkOptions()
    report = begin(name, NETWORK_FORMATS, files, options)
    result = NetworkImport([], {}, {}, {}, report)
    for file in files:
        pairs, quantity, names = _READERS[name](file, options, report)
        target = getattr(result, quantity)
        if target:
            raise ConfigError(f"{file}: {quantity} was given by an earlier file already")
        target.update(pairs)
        result.names.extend(n for n in names if n not in result.names)
    for wanted in options.regions:
        if wanted not in result.names:
            raise ConfigError(f"--region: unknown name {wanted!r}; {nearest(wanted, result.names)}")
    _describe(result)
    return result


def _describe(result: NetworkImport) -> None:
    report = result.report
    report.found["regions"] = len(result.names)
    for quantity in ("gbps", "latency_ms", "usd_per_gb"):
        pairs: dict[Pair, float] = getattr(result, quantity)
        if not pairs:
            continue
        values = np.array(list(pairs.values()))
        report.coverage.append(
            {
                "of": quantity,
                "ordered pairs": len(pairs),
                "of all": len(result.names) * (len(result.names) - 1),
                "lowest": float(values.min()),
                "median": float(np.median(values)),
                "highest": float(values.max()),
            }
        )
    ratios = [
        max(v / result.gbps[b, a], result.gbps[b, a] / v)
        for (a, b), v in result.gbps.items()
        if a < b and v > 0 and result.gbps.get((b, a), 0) > 0
    ]
    if ratios:
        report.found["worst asymmetry (times)"] = round(max(ratios), 3)


# Alias -> quantity, factor to its unit. The misspelling is the source's.
_SKYPLANE = {
    "throughput_received": ("gbps", 1e-9),
    "throughput_recieved": ("gbps", 1e-9),
    "avg_rtt": ("latency_ms", 0.5),
    "cost": ("usd_per_gb", 1.0),
}
_SKYPLANE_UNITS = {
    "gbps": "bit/s as measured (iperf3), written as Gbit/s",
    "latency_ms": "round trip in ms, halved to one way",
    "usd_per_gb": "USD/GB",
}
_ENDS = {
    "src_region": "source", "src": "source", "dst_region": "target", "dest": "target",
    "dst_tier": "target_tier", "dest_tier": "target_tier", "src_tier": "source_tier",
}  # fmt: skip

_Found = tuple[dict[Pair, float], str, list[str]]


def _read_skyplane(file: str | Path, options: NetworkOptions, report: Report) -> _Found:
    frame = read_table(file, report, delimiter=options.delimiter, encoding=options.encoding)
    value = next((name for name in _SKYPLANE if name in frame), None)
    ends = {name: end for name, end in _ENDS.items() if name in frame}
    if value is None or len(set(ends.values())) != 4:
        raise ConfigError(
            f"{file}: not a Skyplane table of throughput, latency or cost; it has: "
            f"{', '.join(map(str, frame.columns))}"
        )
    quantity, factor = _SKYPLANE[value]
    report.units[quantity] = _SKYPLANE_UNITS[quantity]
    if quantity == "latency_ms":
        value = f"{options.rtt}_rtt"
        report.units[quantity] += f" ({value})"
    rows = frame.rename(columns=ends)
    failed = rows["success"].str.lower() != "true" if "success" in rows else _none(rows)
    rows = _reject(rows, failed, "measurement failed", report)
    tier = options.tier or "PREMIUM"
    if tier != "any":
        other = (rows["source_tier"] != tier) | (rows["target_tier"] != tier)
        asked = options.tier is not None
        rows = _reject(rows, other, f"tier other than {tier}", report, asked=asked)
    rows = _reject(rows, is_blank(rows[value]), f"no {value}", report)
    rows = rows.assign(value=numbers(rows[value]) * factor)
    bad = rows["value"].isna() | (rows["value"] < 0)
    rows = _reject(rows, bad, f"{value} is not a number >= 0", report)
    return _pairs(rows, options, report, file), quantity, _names(rows)


def _none(rows: pd.DataFrame) -> "pd.Series[bool]":
    return pd.Series(False, index=rows.index)


def _names(rows: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys([*rows["source"], *rows["target"]]))


def _reject(
    rows: pd.DataFrame,
    mask: "pd.Series[bool]",
    reason: str,
    report: Report,
    *,
    asked: bool = False,
) -> pd.DataFrame:
    ends = rows[["source", "target"]]
    report.reject(reason, int(mask.sum()), example(ends, mask), asked=asked)
    return rows[~mask]


def _pairs(
    rows: pd.DataFrame, options: NetworkOptions, report: Report, file: str | Path
) -> dict[Pair, float]:
    """One value per ordered pair."""
    own = rows["source"] == rows["target"]
    rows = _reject(rows, own, "from a region to itself", report, asked=True)
    if rows.empty:
        raise ConfigError(f"{file}: no pair of regions is left; rejected: {report.rejected}")
    again = rows.duplicated(["source", "target"])
    policy = options.duplicates or "median"
    first = example(rows[["source", "target"]], again)
    if again.any() and policy == "error":
        raise ConfigError(f"{file}: {int(again.sum())} pairs again (first: {first})")
    what = f"more rows of a pair ({policy} taken)"
    asked = options.duplicates is not None
    report.reject(what, int(again.sum()), first, asked=asked)
    report.rows_kept += len(rows) - int(again.sum())
    value = rows.groupby(["source", "target"], sort=False)["value"].agg(policy).reset_index()
    columns = (value[name].tolist() for name in ("source", "target", "value"))
    return {(a, b): v for a, b, v in zip(*columns, strict=True)}


_MATRIX_UNITS = {
    "Gbit/s": ("gbps", 1.0),
    "Mbit/s": ("gbps", 1e-3),
    "bit/s": ("gbps", 1e-9),
    "ms": ("latency_ms", 1.0),
    "ms RTT": ("latency_ms", 0.5),
    "USD/GB": ("usd_per_gb", 1.0),
}


def _read_matrix(file: str | Path, options: NetworkOptions, report: Report) -> _Found:
    if options.unit not in _MATRIX_UNITS:
        raise ConfigError(
            f"--unit: a matrix states none: must be one of {', '.join(_MATRIX_UNITS)}, "
            f"got {options.unit!r}"
        )
    quantity, factor = _MATRIX_UNITS[options.unit]
    frame = read_table(file, report, delimiter=options.delimiter, encoding=options.encoding)
    report.rows_read -= len(frame)
    columns = [str(name) for name in frame.columns[1:]]
    sources = frame.iloc[:, 0].tolist()
    twice = [name for name in sources if sources.count(name) > 1]
    if twice:
        raise ConfigError(f"{file}: two rows are called {twice[0]!r}")
    odd = sorted(set(columns) ^ set(sources))
    if odd:
        raise ConfigError(
            f"{file}: not square: {odd[0]!r} is a {'column' if odd[0] in columns else 'row'} only"
        )
    if columns != sources:
        report.notes.append(f"{Path(file).name}: rows and columns are in another order; by name")
    rows = frame.melt(
        frame.columns[0], var_name="target", value_name="text", ignore_index=False
    )  # keeps the line
    rows = rows.rename(columns={rows.columns[0]: "source"})
    report.rows_read += len(rows)
    report.units[quantity] = options.unit
    own = rows["source"] == rows["target"]
    rows = _reject(rows, own, "from a region to itself", report, asked=True)
    rows = _reject(rows, is_blank(rows["text"]), "no value: no link", report)
    rows = rows.assign(value=numbers(rows["text"]) * factor)
    bad = rows["value"].isna() | (rows["value"] < 0)
    if bad.any():
        raise ConfigError(
            f"{file}: not a number >= 0: {example(rows[['source', 'target', 'text']], bad)}"
        )
    report.rows_kept += len(rows)
    pairs = {
        (str(a), str(b)): float(v)
        for a, b, v in zip(rows["source"], rows["target"], rows["value"], strict=True)
    }
    return pairs, quantity, sources


def _read_topology(file: str | Path, options: NetworkOptions, report: Report) -> _Found:
    graph = _read_graph(file, report)
    labels = _labels(graph, report)
    nodes = {label: node for node, label in labels.items()}
    chosen = list(options.regions) or [labels[node] for node in graph]
    for name in chosen:
        if name not in nodes:
            raise ConfigError(f"--region: unknown name {name!r}; {nearest(name, list(nodes))}")
    if len(chosen) < 2:
        raise ConfigError(f"{file}: needs at least two regions, got {chosen}")
    wide = _capacities(graph, labels, file, options, report)
    _require_joined(wide, nodes, chosen, file, options, report)
    pairs = {}
    for source in chosen:
        width = _widest(wide, nodes[source])
        for target in chosen:
            if target != source and nodes[target] in width:
                pairs[source, target] = width[nodes[target]]
    report.units["gbps"] = "LinkSpeedRaw in bit/s, written as Gbit/s"
    report.notes.append("a pair's bandwidth is that of its widest path; paths may share links")
    report.notes.append("latency: not in the file, 0 unless another import gives it")
    return pairs, "gbps", chosen


def _read_graph(file: str | Path, report: Report) -> Any:
    content = read_bytes(file)
    suffix = Path(file).suffix.lower()
    try:
        if suffix in (".graphml", ".xml"):
            return nx.read_graphml(file)
        if suffix != ".gml":
            raise ConfigError(f"{file}: must end in .graphml or .gml")
        text = content.decode("utf-8-sig")
        try:
            return nx.parse_gml(text, label="id")
        except nx.NetworkXError as error:
            if "duplicated" not in str(error):
                raise
            report.notes.append("parallel links in a GML that does not say multigraph 1")
            return nx.parse_gml(text.replace("[", "[\n multigraph 1", 1), label="id")
    except ConfigError:
        raise
    except Exception as error:  # the parsers raise whatever their parts raise
        raise ConfigError(
            f"{file}: not valid {suffix[1:]}: {' '.join(str(error).split())}"
        ) from None


def _labels(graph: Any, report: Report) -> dict[Any, str]:
    """Names of the nodes: their labels; `LABEL (ID)` where several have it, or its id if none."""
    plain = {node: str(data.get("label", "") or node) for node, data in graph.nodes(data=True)}
    counts = pd.Series(list(plain.values()), dtype=str).value_counts()
    labels = {n: f"{label} ({n})" if counts[label] > 1 else label for n, label in plain.items()}
    twice = sum(label != plain[n] for n, label in labels.items())
    report.change("nodes of one label told apart by their ids", twice, asked=True)
    return labels


def _capacities(
    graph: Any, labels: Mapping[Any, str], file: str | Path, options: NetworkOptions, report: Report
) -> Any:
    """A simple graph whose edges have `gbps`, parallel links summed."""
    simple: Any = nx.DiGraph() if graph.is_directed() else nx.Graph()
    simple.add_nodes_from(graph)
    unknown, own, parallel = [], 0, 0
    for a, b, data in graph.edges(data=True):
        report.rows_read += 1
        if a == b:
            own += 1
            continue
        gbps = _speed(data)
        if gbps is None:
            unknown.append((a, b))
            if options.capacity_gbps is None:
                continue
            gbps = options.capacity_gbps
        if simple.has_edge(a, b):
            parallel += 1
            gbps += simple[a][b]["gbps"]
        simple.add_edge(a, b, gbps=gbps)
    if unknown and options.capacity_gbps is None:
        a, b = unknown[0]
        raise ConfigError(
            f"{file}: {len(unknown)} of {report.rows_read} links state no speed, such as "
            f"{labels[a]} - {labels[b]}: say --capacity (Gbit/s)"
        )
    if options.capacity_gbps is not None and not 0 < options.capacity_gbps < math.inf:
        raise ConfigError(f"--capacity: must be > 0, got {options.capacity_gbps}")
    report.reject("links from a node to itself", own, asked=True)
    report.rows_kept = report.rows_read - own
    report.change(
        f"links without a speed given {options.capacity_gbps} Gbit/s", len(unknown), asked=True
    )
    report.change("parallel links added to the first of their pair", parallel, asked=True)
    report.found |= {"nodes": graph.number_of_nodes(), "links": graph.number_of_edges()}
    report.found["links with a speed"] = graph.number_of_edges() - own - len(unknown)
    return simple


def _speed(data: Mapping[str, Any]) -> float | None:
    try:
        bits = float(data.get("LinkSpeedRaw", "nan"))
    except (TypeError, ValueError):
        return None
    return bits / 1e9 if 0 < bits < math.inf else None


def _require_joined(
    graph: Any,
    nodes: Mapping[str, Any],
    chosen: Sequence[str],
    file: str | Path,
    options: NetworkOptions,
    report: Report,
) -> None:
    """Refuse, or list, regions that lie in different parts."""
    strong = nx.strongly_connected_components if graph.is_directed() else nx.connected_components
    parts = [[name for name in chosen if nodes[name] in part] for part in strong(graph)]
    parts = sorted((part for part in parts if part), key=len, reverse=True)
    if len(parts) < 2:
        return
    shown = " | ".join(", ".join(part[:5]) + (" ..." if part[5:] else "") for part in parts)
    if options.disconnected != "keep":
        raise ConfigError(
            f"{file}: the regions lie in {len(parts)} parts without a path between: {shown}: "
            "choose with --region, or say --disconnected keep"
        )
    report.warnings.append(f"{len(parts)} parts without a path between: {shown}")


def _widest(graph: Any, source: Any) -> dict[Any, float]:
    """Width of the widest path (largest least capacity) from a node to each one it reaches."""
    width = {source: math.inf}
    open_nodes = {source}
    while open_nodes:
        node = max(open_nodes, key=lambda n: width[n])
        open_nodes.remove(node)
        for neighbour, data in graph[node].items():
            through = min(width[node], data["gbps"])
            if through > width.get(neighbour, 0.0):
                width[neighbour] = through
                open_nodes.add(neighbour)
    return width


_READERS = {"skyplane": _read_skyplane, "matrix": _read_matrix, "topology": _read_topology}
NETWORK_FORMATS = tuple(_READERS)
