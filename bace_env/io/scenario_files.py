"""Imports put into a scenario: a base scenario's tables with a part of them replaced."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import tomli_w

from bace_env.config import parse_scenario, read_scenario, with_files
from bace_env.errors import ConfigError, ResultExistsError
from bace_env.files import require_parent, write_atomically
from bace_env.io.jobs import Trace
from bace_env.io.match import RULE, VERSION, MatchOptions, match_durations
from bace_env.io.network import NetworkImport, Pair
from bace_env.io.report import Report
from bace_env.io.series import SeriesImport, parse_start
from bace_env.scenario import Sampler
from bace_env.schema import nearest, parse_instant
from bace_env.tables import UTC_FORMAT, TimedSeries, format_series, format_table, parse_series

_JOBS, _PRICES, _CARBON = "jobs.csv", "prices.csv", "carbon.csv"
#: Field of a region -> the part that holds its series.
_SERIES_PARTS = {"price_usd_per_kwh": _PRICES, "carbon_g_per_kwh": _CARBON}


@dataclass
class Draft:
    """A scenario in the making.

    Attributes:
        data: The tables, as they will stand in the TOML file; files under their last part
            (`jobs.csv`, `prices.csv`, `carbon.csv`).
        files: Text of the files beside it by that part.
    """

    data: dict[str, Any]
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_base(cls, base: str | Path) -> "Draft":
        """A preset or file to start from, with the files that it names.

        Raises:
            ConfigError: It is no valid scenario.
        """
        label, data, read = read_scenario(base)
        expanded = with_files(data, label, read)
        parse_scenario(expanded, label)
        draft = cls(_without_none(data))
        data = draft.data
        if "jobs_file" in data:
            draft.files[_JOBS] = read(data["jobs_file"])
            data["jobs_file"] = _JOBS
        for name, part in _SERIES_PARTS.items():
            series = {}
            for region in data["regions"]:
                value = region.get(name)
                if isinstance(value, dict) and "file" in value:
                    columns = parse_series(read(value["file"]), value["file"])
                    series[region["name"]] = columns[value.pop("series", region["name"])]
                    value["file"] = part
            if series:
                draft.files[part] = format_series(series)
                data.setdefault("start", expanded["start"])
        return draft

    @property
    def region_names(self) -> list[str]:
        """Names of the regions."""
        return [region["name"] for region in self.data["regions"]]

    def record(
        self, report: Report, files: Sequence[str | Path], options: Mapping[str, Any]
    ) -> None:
        """Keep what was imported, from which bytes and with which options."""
        kept = {k: v for k, v in options.items() if isinstance(v, str | int | float | bool)}
        kept |= {k: ",".join(map(str, v)) for k, v in options.items() if isinstance(v, tuple) and v}
        entry = {
            "format": report.format,
            "files": [Path(file).name for file in files],
            "sha256": [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files],
            "options": kept,
        }
        self.data.setdefault("imports", []).append(entry)

    def check(self) -> None:
        """Refuse a draft that would not load or run.

        Raises:
            ConfigError: As the loader has it.
        """
        files = dict(self.files)
        if _JOBS in files:  # a job of each model and batch size stands for the others
            files[_JOBS] = _sample(files[_JOBS])
        label = "(imported)"
        Sampler(parse_scenario(with_files(self.data, label, files.__getitem__), label))

    def write(self, out: str | Path, *, force: bool = False) -> list[Path]:
        """Write the scenario, `OUT`, and beside it what it names, `STEM.jobs.csv` and so on.

        Raises:
            ResultExistsError: One of them exists, unless `force`.
        """
        out = Path(out)
        require_fresh(out, self.files, force=force)
        names = {part: f"{out.stem}.{part}" for part in self.files}
        content = {out.with_name(names[part]): text for part, text in self.files.items()}
        content[out] = tomli_w.dumps(self._named(names))  # last: it makes the others a scenario
        fresh = [path for path in content if not path.exists()]
        try:
            for path, text in content.items():
                write_atomically(path, text.encode())
        except BaseException:
            for path in fresh:  # a part of a scenario is none
                path.unlink(missing_ok=True)
            raise
        return list(content)

    def _named(self, names: Mapping[str, str]) -> dict[str, Any]:
        data = dict(self.data)
        if "jobs_file" in data:
            data["jobs_file"] = names[_JOBS]
        data["regions"] = [_region_named(region, names) for region in data["regions"]]
        # Plain values before tables, as TOML has it; the lists that are long come last.
        order = ["name", "description", "start", "jobs_file", "imports"]
        last = ["regions", "network", "models", "datasets", "jobs"]
        rest = [key for key in data if key not in order and key not in last]
        return {key: data[key] for key in [*order, *rest, *last] if key in data}


def _without_none(data: Any) -> Any:
    """TOML has no null; a field that is null is one that is left out."""
    if isinstance(data, dict):
        return {key: _without_none(value) for key, value in data.items() if value is not None}
    return [_without_none(value) for value in data] if isinstance(data, list) else data


def require_fresh(
    out: str | Path, parts: Sequence[str] | Mapping[str, str], *, force: bool
) -> None:
    """Refuse an output that cannot be written or would overwrite a file."""
    out = Path(out)
    require_parent("--out", out)
    if out.is_dir():
        raise ConfigError(f"--out {out}: is a folder, must be a file")
    for path in [out, *(out.with_name(f"{out.stem}.{part}") for part in parts)]:
        if path.exists() and not force:
            raise ResultExistsError(f"--out {path}: exists; another name, or --force")


def _region_named(region: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    named = dict(region)
    for name, part in _SERIES_PARTS.items():
        value = region.get(name)
        if isinstance(value, dict) and "file" in value:
            named[name] = value | {"file": names[part]}
    return named


def _sample(text: str) -> str:
    frame = pd.read_csv(io.StringIO(text), dtype=str, na_filter=False)
    return frame.drop_duplicates(["model", "batch_size"]).to_csv(index=False)


def put_jobs(draft: Draft, trace: Trace, options: MatchOptions | None = None) -> None:
    """Replace models, data sets, jobs and arrivals by those of a trace.

    Raises:
        ConfigError: See `match_durations`.
    """
    options = options or MatchOptions()
    files = draft.files.__getitem__
    base = with_files(draft.data, "(base)", files)
    matched = match_durations(trace.jobs, base, trace.report, options)
    for key in ("jobs", "datasets", "workload"):
        draft.data.pop(key, None)
    draft.data |= {
        "models": matched.models,
        "jobs_file": _JOBS,
        "workload": {"arrivals": "listed"},
    }
    rows = zip(*(matched.jobs[column].tolist() for column in matched.jobs), strict=True)
    draft.files[_JOBS] = format_table(list(matched.jobs.columns), rows)
    _place_jobs(draft, trace)
    trace.report.notes.append(
        f"models by the rule {RULE} {VERSION}, seed {options.seed}: a trace names none"
    )


def _place_jobs(draft: Draft, trace: Trace) -> None:
    """Time 0 of a trace with a calendar and that of its base are one: nothing moves unasked."""
    given = draft.data.get("start")
    if given is None:
        if trace.start is not None:
            draft.data["start"] = trace.start
        return
    at = parse_instant(given).astimezone(UTC)
    if trace.start is not None and trace.start != at and not trace.placed:
        raise ConfigError(
            f"--t0: time 0 of the base is {at:{UTC_FORMAT}}, but the first job arrives at "
            f"{trace.start:{UTC_FORMAT}}: say --t0 {at:{UTC_FORMAT}} (jobs stay where they are "
            f"in time) or --t0 {trace.start:{UTC_FORMAT}} (the trace moves to the base's time 0)"
        )
    if trace.start != at:
        trace.report.change(
            f"jobs moved in time: their time 0 becomes {at:{UTC_FORMAT}}, that of the base",
            len(trace.jobs), asked=True,
        )  # fmt: skip


def put_prices(
    draft: Draft,
    prices: SeriesImport,
    regions: Sequence[str],
    *,
    beyond: Literal["error", "hold", "repeat", "wrap"] = "error",
    start: str | None = None,
) -> None:
    """Set the prices of regions of the base to imported series.

    Args:
        draft: The scenario.
        prices: The series, USD/kWh.
        regions: The region of each series; where empty, the series' own names.
        beyond: What comes after the end of a series.
        start: Instant of time 0; default: the base's, else the first that all series cover.

    Raises:
        ConfigError: A region that the base does not have, or a time 0 outside the series.
    """
    _put_series(draft, prices, regions, "price_usd_per_kwh", beyond, start)


def put_carbon(
    draft: Draft,
    carbon: SeriesImport,
    regions: Sequence[str],
    *,
    beyond: Literal["error", "hold", "repeat", "wrap"] = "error",
    start: str | None = None,
) -> None:
    """Set the carbon intensities of regions to imported series, g/kWh; else as `put_prices`.

    A scenario gives them for all regions or for none.
    """
    _put_series(draft, carbon, regions, "carbon_g_per_kwh", beyond, start)


def _put_series(
    draft: Draft,
    prices: SeriesImport,
    regions: Sequence[str],
    field: str,
    beyond: str,
    start: str | None,
) -> None:
    part = _SERIES_PARTS[field]
    if beyond not in _BEYOND:
        raise ConfigError(f"--beyond: must be one of {', '.join(_BEYOND)}, got {beyond!r}")
    names = list(regions) or [column for column, _ in prices.series]
    if len(names) != len(prices.series):
        raise ConfigError(
            f"--region: {len(prices.series)} series need as many regions, got {len(names)}: "
            f"{', '.join(column for column, _ in prices.series)}"
        )
    for name in names:
        if name not in draft.region_names:
            raise ConfigError(
                f"--region: the base has no region {name!r}; {nearest(name, draft.region_names)}"
            )
    if len(set(names)) < len(names):
        raise ConfigError(f"--region: each region takes one series, got {names}")
    imported = {name: series for name, (_, series) in zip(names, prices.series, strict=True)}
    _set_start(draft, imported, start, prices.report)
    present = parse_series(draft.files[part], part) if part in draft.files else {}
    draft.files[part] = format_series(present | imported)
    for region in draft.data["regions"]:
        if region["name"] in imported:
            region[field] = {"file": part, "beyond": beyond}
    prices.report.notes.append(
        f"after its end a series {_BEYOND[beyond]} (beyond = {beyond}); regions: {', '.join(names)}"
    )


_BEYOND = {
    "error": "makes the run fail",
    "hold": "holds its last value",
    "repeat": "begins again",
    "wrap": "begins again",
}


def _set_start(
    draft: Draft, imported: Mapping[str, TimedSeries], start: str | None, report: Report
) -> None:
    given = draft.data.get("start")
    first = max(series.start for series in imported.values())
    if start is not None:
        at, how = parse_start(start), "as given"
    elif given is not None:
        at, how = parse_instant(given).astimezone(UTC), "the base's"
    else:
        at, how = first, "the first instant at which all series have begun"
    for name, series in imported.items():
        end = series.start.timestamp() + series.step_s * len(series.values)
        if not series.start <= at < datetime.fromtimestamp(end, UTC):
            raise ConfigError(
                f"--start: time 0 is {at:{UTC_FORMAT}} ({how}), but the series of {name} covers "
                f"{series.start:{UTC_FORMAT}} to {datetime.fromtimestamp(end, UTC):{UTC_FORMAT}}"
            )
    before = None if given is None else parse_instant(given).astimezone(UTC)
    if before is not None and before != at:
        report.notes.append(f"time 0 was {before:{UTC_FORMAT}} in the base: its jobs move along")
    draft.data["start"] = at
    report.notes.append(f"time 0 is {at:{UTC_FORMAT}} ({how})")


def put_network(
    draft: Draft,
    network: NetworkImport,
    *,
    rename: Mapping[str, str] | None = None,
    regions: Sequence[str] = (),
    gpus: int | None = None,
    price: float | None = None,
) -> None:
    """Set the links between regions.

    With `gpus` the file's regions replace those of the base, each with as many GPUs and at one
    price. Else the base's regions stay, and the file has to know all of them.

    Args:
        draft: The scenario.
        network: What the files say.
        rename: Name in the file -> name of the region.
        regions: Names in the file that become regions; default: all (with `gpus`).
        gpus: Of each new region.
        price: Of each new region, USD/kWh.

    Raises:
        ConfigError: Names that do not fit, or neither bandwidth nor links to put latencies on.
    """
    new_name = dict(rename or {})
    for name in new_name:
        if name not in network.names:
            raise ConfigError(f"--map: the file has no {name!r}; {nearest(name, network.names)}")
    chosen = list(regions) or [name for name in network.names if not new_name or name in new_name]
    if gpus is not None:
        if price is None:
            raise ConfigError("--price: new regions (--gpus) need one, USD per kWh")
        names = {name: new_name.get(name, name) for name in chosen}
        draft.data["regions"] = [
            {"name": new, "gpus": gpus, "price_usd_per_kwh": price} for new in names.values()
        ]
        for part in _SERIES_PARTS.values():
            draft.files.pop(part, None)
    else:
        names = {name: new_name.get(name, name) for name in network.names}
        names = {old: new for old, new in names.items() if new in draft.region_names}
        missing = [name for name in draft.region_names if name not in names.values()]
        if missing:
            raise ConfigError(
                f"--map: region {missing[0]!r} of the base is not in the file: say --map "
                f"FILE_NAME={missing[0]} for each, or --gpus N for new regions; the file has: "
                f"{', '.join(network.names[:20])}"
            )
    if len(names) < 2:
        raise ConfigError(f"--region: links need at least two regions, got {list(names)}")
    if len(set(names.values())) < len(names):
        raise ConfigError(f"--map: several names become one region: {names}")
    unused = [name for name in network.names if name not in names]
    if unused:
        network.report.notes.append(
            f"{len(unused)} regions of the file are not used, such as {unused[0]}"
        )
    _put_links(draft, network, names)


def _put_links(draft: Draft, network: NetworkImport, names: Mapping[str, str]) -> None:
    def renamed(pairs: Mapping[Pair, float]) -> dict[Pair, float]:
        return {(names[a], names[b]): v for (a, b), v in pairs.items() if a in names and b in names}

    gbps, latency = renamed(network.gbps), renamed(network.latency_ms)
    old = draft.data.get("network", {})
    if not gbps:
        gbps = _old_links(old, "gbps")
        if not gbps:
            raise ConfigError(
                "network: the files give no bandwidth, and the base has no listed links to put "
                "latencies on"
            )
    if latency:
        without = [pair for pair in gbps if pair not in latency]
        if without:
            raise ConfigError(
                f"network: {len(without)} links without a latency, such as "
                f"{without[0][0]} -> {without[0][1]}: give a file that has them, or choose regions"
            )
    else:
        latency = _old_links(old, "latency_ms")
    links = []
    for (a, b), width in gbps.items():
        if width > 0:
            entry: dict[str, Any] = {"source": a, "target": b, "gbps": width, "both_ways": False}
            links.append(entry | ({"latency_ms": latency[a, b]} if (a, b) in latency else {}))
    flows = {} if network.gbps else {k: v for k, v in old.items() if k == "flows"}
    draft.data["network"] = {"rule": "listed", **flows, "links": links}
    report = network.report
    if any(region.pop("bandwidth_gbps", None) for region in draft.data["regions"]):
        report.notes.append("bandwidth_gbps of the base's regions left out: links are listed now")
    n = len(draft.data["regions"])
    report.found |= {"links": len(links), "ordered pairs without a link": n * (n - 1) - len(links)}
    if network.usd_per_gb:
        report.notes.append("traffic prices have no place in a scenario: not written")


def put_gpus(draft: Draft, counts: Sequence[int], regions: Sequence[str], report: Report) -> None:
    """Set the GPUs of regions of the base.

    Raises:
        ConfigError: A region that the base does not have, or not one region per count.
    """
    if len(regions) != len(counts) or len(set(regions)) < len(regions):
        raise ConfigError(
            f"--region: {len(counts)} files need as many different regions, got {list(regions)}"
        )
    for name, gpus in zip(regions, counts, strict=True):
        if name not in draft.region_names:
            raise ConfigError(
                f"--region: the base has no region {name!r}; {nearest(name, draft.region_names)}"
            )
        region = draft.data["regions"][draft.region_names.index(name)]
        report.notes.append(f"{name}: {region['gpus']} GPUs in the base, {gpus} now")
        region["gpus"] = gpus


def _old_links(network: Mapping[str, Any], what: str) -> dict[Pair, float]:
    found: dict[Pair, float] = {}
    for link in network.get("links", []):
        found[link["source"], link["target"]] = link.get(what, 0.0)
        if link.get("both_ways", True):
            found[link["target"], link["source"]] = link.get(what, 0.0)
    return found
