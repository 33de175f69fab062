"""The one strict loader of scenarios: presets, files and `--set a.b=value` all pass through it."""

import difflib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from bace_env import schema
from bace_env.errors import ConfigError
from bace_env.schema import SERIES_FILES, Scenario, SeriesFile, nearest
from bace_env.tables import TimedSeries, parse_jobs, parse_series

#: Every field that a scenario file may have, wherever it stands.
_FIELDS = sorted(
    {
        name
        for model in vars(schema).values()
        if isinstance(model, type) and issubclass(model, BaseModel)
        for name in model.model_fields
    }
)


def preset_names() -> list[str]:
    """Names of the scenarios that ship with the package."""
    folder = resources.files("bace_env") / "presets"
    return sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name != "__init__.py")


def load_scenario(source: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Load a preset by name, or a TOML (or .json) file, apply `a.b=value` overrides, validate all.

    Args:
        source: A preset's name, or a path (anything with a suffix or a slash).
        overrides: Each `path=value`: path through tables by key and through lists by the entry's
            name or index (`regions.EU-West.gpus=32`); value in TOML syntax, bare words are text.

    Raises:
        ConfigError: With the problems found, each with the full path of its field and the value.
    """
    label, data, read = read_scenario(source)
    data = with_files(data, label, read)
    for override in overrides:
        _apply(data, override)
    if overrides:  # one of them may name a file
        data = with_files(data, label, read, replace=True)
    return parse_scenario(data, label)


def read_scenario(source: str | Path) -> tuple[str, dict[str, Any], Callable[[str], str]]:
    """What to call a scenario in messages, its tables as they stand, and a reader of its files."""
    label, text = _read(source)
    try:
        data = json.loads(text) if label.endswith(".json") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of 5000 digits
        kind = "JSON" if label.endswith(".json") else "TOML"
        raise ConfigError(f"scenario {label}: not valid {kind}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"scenario {label}: must be a table of tables, got {data!r:.80}")
    folder = Path(source).parent if Path(label).suffix else Path()
    return label, data, lambda name: read_text(folder / name, f"scenario {label}: ")


def with_files(
    data: Mapping[str, Any], label: str, read: Callable[[str], str], *, replace: bool = False
) -> dict[str, Any]:
    """The tables of a scenario with the CSV files that they name read into them.

    Args:
        data: Nested tables; not changed.
        label: What messages call the scenario.
        read: Gives the text of a file by the name that stands in the scenario.
        replace: `jobs_file` may replace jobs that are there.
    """
    data = dict(data)
    jobs_file = data.pop("jobs_file", None)
    if jobs_file is not None:
        if "jobs" in data and not replace:
            raise ConfigError(f"scenario {label}: jobs: give [[jobs]] or jobs_file, not both")
        if not isinstance(jobs_file, str):
            raise ConfigError(f"scenario {label}: jobs_file: must be a name, got {jobs_file!r}")
        data["jobs"] = parse_jobs(read(jobs_file), jobs_file)
    regions = data.get("regions")
    if isinstance(regions, list):
        data["regions"] = _with_series(data, regions, label, read)
    return data


def _with_series(
    data: dict[str, Any], regions: list[Any], label: str, read: Callable[[str], str]
) -> list[Any]:
    """The regions with their files of series read; `start` becomes that of these if missing."""
    files: dict[str, dict[str, TimedSeries]] = {}
    found: list[_Found] = []
    for r, field in product(range(len(regions)), SERIES_FILES):
        region = regions[r]
        price = region.get(field) if isinstance(region, dict) else None
        if not isinstance(price, dict) or "file" not in price:
            continue
        where = f"scenario {label}: regions.{region.get('name', r)}.{field}"
        try:
            spec = SERIES_FILES[field].model_validate(price)
        except ValidationError as error:
            text = "; ".join(_describe(problem, price) for problem in error.errors()[:10])
            raise ConfigError(f"{where}: {text}") from None
        if spec.file not in files:
            files[spec.file] = parse_series(read(spec.file), spec.file)
        columns = files[spec.file]
        wanted = str(region.get("name")) if spec.series is None else spec.series
        if wanted not in columns:
            hint = nearest(wanted, list(columns))
            raise ConfigError(f"{where}.series: {spec.file} has no {wanted!r}; {hint}")
        found.append(_Found(r, field, spec, columns[wanted]))
    if not found:
        return regions
    if "start" not in data:
        data["start"] = found[0].series.start
        if any(each.series.start != data["start"] for each in found):
            raise ConfigError(
                f"scenario {label}: start: needed (the instant of time 0), as the series in files "
                f"begin at different times: {_starts(found)}"
            )
    regions = list(regions)
    for r, field, spec, series in found:
        regions[r] = dict(regions[r]) | {field: _inline(data, spec, series, label)}
    return regions


class _Found(NamedTuple):
    """A series in a file, and whose it is."""

    region: int
    field: str
    spec: SeriesFile
    series: TimedSeries


def _starts(found: list[_Found]) -> str:
    return ", ".join(sorted({f"{each.series.start:%Y-%m-%dT%H:%MZ}" for each in found}))


def _inline(
    data: Mapping[str, Any], spec: SeriesFile, series: TimedSeries, label: str
) -> dict[str, Any]:
    try:
        start = schema.parse_instant(data["start"])
    except ValueError as error:
        raise ConfigError(f"scenario {label}: start: {error}, got {data['start']!r}") from None
    offset_s = (start - series.start) / timedelta(seconds=1)
    end = series.start + timedelta(seconds=series.step_s * len(series.values))
    if offset_s < 0 or (start >= end and spec.beyond != "repeat"):
        raise ConfigError(
            f"scenario {label}: start: {spec.file} covers {series.start.isoformat()} to "
            f"{end.isoformat()}, got {start.isoformat()}"
        )
    return {
        "values": series.values,
        "step_h": series.step_s / 3600,
        "offset_h": offset_s / 3600,
        "unit": spec.model_dump()["unit"],
        "beyond": spec.beyond,
    }


def parse_scenario(data: Mapping[str, Any], label: str = "(data)") -> Scenario:
    """Validate a scenario given as nested tables; errors as in `load_scenario`."""
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        problems = error.errors()
        more = f"; and {len(problems) - 10} more" if len(problems) > 10 else ""
        text = "; ".join(_describe(problem, data) for problem in problems[:10])
        raise ConfigError(f"scenario {label}: {text}{more}") from None


def _read(source: str | Path) -> tuple[str, str]:
    name = str(source)
    if isinstance(source, str) and not any(c in name for c in "./\\"):
        if name not in preset_names():
            raise ConfigError(
                f"scenario: unknown preset {name!r}; {nearest(name, preset_names())} "
                "(a file needs its suffix, such as my.toml)"
            )
        file = resources.files("bace_env") / "presets" / f"{name}.toml"
        return name, file.read_text(encoding="utf-8")
    return name, read_text(source, "scenario ")


def read_text(path: str | Path, what: str) -> str:
    """The text of a UTF-8 file; `what` begins the message of the error."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what}{path}: not UTF-8 text: {error.reason}") from None
    except OSError as error:
        raise ConfigError(f"{what}{path}: cannot read: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{what}{str(path)!r}: cannot read: {error}") from None


def _apply(data: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"--set {override!r}: must be key=value, such as scale.bandwidth=0.3")
    try:
        (value,) = tomllib.loads(f"value = {text}").values()
    except (ValueError, RecursionError):
        value = text.strip()
    node: Any = data
    done, rest = "", path.strip()
    while rest:
        if isinstance(node, list):
            key, slot = _list_entry(node, rest, f"--set {override!r}: {done}")
        elif isinstance(node, dict):
            key = slot = rest.partition(".")[0]
        else:
            raise ConfigError(f"--set {override!r}: {done[:-1]} is not a table, got {node!r}")
        done, rest = f"{done}{key}.", rest[len(key) + 1 :]
        if not rest:
            node[slot] = value
        node = node.setdefault(slot, {}) if isinstance(node, dict) else node[slot]


def _list_entry(items: list[Any], path: str, where: str) -> tuple[str, Any]:
    """The first key of `path`, which is an entry's name or index, and that index."""
    names = [str(item.get("name", "")) if isinstance(item, dict) else "" for item in items]
    # A name may hold dots itself, such as Qwen2.5-32B: the longest that fits.
    fitting = [name for name in names if name and f"{path}.".startswith(f"{name}.")]
    key = max(fitting, key=len, default=path.partition(".")[0])
    if key in names:
        return key, names.index(key)
    if key.isdecimal() and int(key) < len(items):
        return key, int(key)
    raise ConfigError(f"{where}{key}: unknown entry {key!r}; {nearest(key, names)}")


def _describe(problem: Any, data: Mapping[str, Any]) -> str:
    path: list[str] = []
    node: Any = data
    for part in problem["loc"]:
        if isinstance(part, int) and isinstance(node, list) and part < len(node):
            node = node[part]
            name = node.get("name") if isinstance(node, dict) else None
            path.append(name if isinstance(name, str) and name else str(part))
        elif isinstance(node, Mapping) and part in node:
            node = node[part]
            path.append(str(part))
        elif problem["type"] == "missing" and part == problem["loc"][-1]:
            path.append(str(part))
        # else: a branch of a union, which the user never typed
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if problem["type"] == "extra_forbidden":
        message = "unknown key"
        close = difflib.get_close_matches(str(problem["loc"][-1]), _FIELDS, n=1)
        if close:
            message += f"; did you mean {close[0]!r}?"
    elif problem["type"] != "missing" and path and ", got " not in message:
        shown = repr(problem["input"])
        message += f", got {shown if len(shown) <= 80 else shown[:77] + '...'}"
    return f"{'.'.join(path)}: {message}" if path else message
