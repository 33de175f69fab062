"""Series over time: electricity prices and carbon intensities, on an even grid of UTC instants."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from bace_env.errors import ConfigError
from bace_env.io.reading import (
    Ambiguous,
    Nonexistent,
    begin,
    example,
    instant,
    is_blank,
    localize,
    match_header,
    numbers,
    read_table,
    to_utc,
    zone,
)
from bace_env.io.report import Report
from bace_env.tables import UTC_FORMAT, TimedSeries


@dataclass(frozen=True)
class SeriesOptions:
    """What a file does not say, and what is to be done with its odd rows.

    Attributes:
        time: Column of the times (start of each step).
        columns: Columns of the values, one series each.
        tz: Time zone of times without an offset.
        time_format: strptime format of the times, where they are not ISO 8601.
        unit: `EUR/MWh`, `USD/kWh`, ...; of a carbon series `g/kWh`.
        usd_rate: USD for one unit of the currency, where that is not USD.
        start: Instant of the first row of a file without times.
        step_min: Minutes from row to row; None: the most frequent difference.
        since: Rows before this instant are left out.
        until: Rows from this instant on are left out.
        sequence: ENTSO-E: which value of the column Sequence.
        area: ENTSO-E: which value of the column Area.
        basis: Carbon: `direct` or `lca`.
        ambiguous: Local times that a clock shows twice.
        nonexistent: Local times that a clock skips.
        duplicates: Different values for one instant: `error`, `first`, `last`, `mean`.
        gaps: Instants without a value: `error`, `hold` the last one, `interpolate` in time.
        decimal: Decimal mark.
        delimiter: Of the table.
        encoding: Of the table.
    """

    time: str | None = None
    columns: tuple[str, ...] = ()
    tz: str | None = None
    time_format: str | None = None
    unit: str | None = None
    usd_rate: float | None = None
    start: str | None = None
    step_min: float | None = None
    since: str | None = None
    until: str | None = None
    sequence: str | None = None
    area: str | None = None
    basis: Literal["direct", "lca"] | None = None
    ambiguous: Ambiguous | None = None
    nonexistent: Nonexistent | None = None
    duplicates: Literal["error", "first", "last", "mean"] | None = None
    gaps: Literal["error", "hold", "interpolate"] | None = None
    decimal: str = "."
    delimiter: str = ","
    encoding: str = "utf-8-sig"


class SeriesImport(NamedTuple):
    """Series as they came, by column (or file): USD/kWh, or g/kWh of a carbon series."""

    series: list[tuple[str, TimedSeries]]
    report: Report


class _Table(NamedTuple):
    """A file made plain: `at` (UTC, NaT if dropped), `hold_min` (nan: unknown), value columns."""

    frame: pd.DataFrame
    values: dict[str, "pd.Series[str]"]
    at: "pd.Series[pd.Timestamp]"
    hold_min: "pd.Series[float]"
    unit: str


def read_series(
    name: str, files: Sequence[str | Path], options: SeriesOptions | None = None
) -> SeriesImport:
    """Read the series of some files: one per value column of each.

    Args:
        name: A format of `SERIES_FORMATS`.
        files: The files.
        options: See `SeriesOptions`.

    Raises:
        ConfigError: What is wrong with a file, or an option that the file needs.
    """
    options = options or SeriesOptions()
    report = begin(name, SERIES_FORMATS, files, options)
    found: list[tuple[str, TimedSeries]] = []
    for file in files:
        table = _READERS[name](file, options, report)
        factor = _factor(table.unit, file, name, options, report)
        for column, text in table.values.items():
            label = f"{Path(file).name} column {column}"
            rows, times = _valued(table, text, options, report, label)
            found.append((column, _even(rows, times, factor, options, report, label)))
    return SeriesImport(found, report)


def _factor(
    unit: str, file: str | Path, name: str, options: SeriesOptions, report: Report
) -> float:
    """What a value is multiplied with to be in USD/kWh (carbon: g/kWh)."""
    if name == "carbon":
        report.units["carbon intensity"] = unit
        return 1.0
    match = re.fullmatch(r"([A-Z]{3}|\$)/([kM]Wh)", unit)
    if match is None:
        raise ConfigError(f"--unit: must be CURRENCY/kWh or CURRENCY/MWh (EUR/MWh), got {unit!r}")
    currency = "USD" if match[1] == "$" else match[1]
    per_kwh = 1.0 if match[2] == "kWh" else 1e-3
    rate = options.usd_rate
    if currency == "USD":
        if rate not in (None, 1.0):
            raise ConfigError(f"--usd-rate {rate}: the prices of {file} are in USD already")
        report.units["price"] = f"{unit}, written as USD/kWh"
        return per_kwh
    if rate is None:
        raise ConfigError(
            f"{file}: prices are in {currency}: say --usd-rate (USD for one {currency})"
        )
    if not 0 < rate < np.inf:
        raise ConfigError(f"--usd-rate: must be > 0, got {rate}")
    report.units["price"] = f"{unit}, written as USD/kWh at {rate:g} USD for one {currency}"
    return per_kwh * rate


def _valued(
    table: _Table, text: "pd.Series[str]", options: SeriesOptions, report: Report, label: str
) -> "tuple[pd.DataFrame, pd.Series[pd.Timestamp]]":
    """Rows with a time and a value: `at`, `value`, `hold_min`; the others are counted.

    Beside them the times of all rows, of those without a value too.
    """
    rows = pd.DataFrame(
        {"at": table.at, "value": numbers(text, options.decimal), "hold_min": table.hold_min}
    )
    report.rows_read += len(rows)
    none, bad = is_blank(text), rows["value"].isna() & ~is_blank(text)
    for mask, reason in ((none, "no value"), (bad, "value is not a number")):
        report.reject(reason, int(mask.sum()), example(table.frame, mask))
    rows = rows[rows["value"].notna()]
    late = rows["at"].isna()
    asked = "drop" in (options.ambiguous, options.nonexistent)
    what = "time missing, unreadable or dropped" if asked else "time missing or unreadable"
    report.reject(what, int(late.sum()), example(table.frame.loc[rows.index], late), asked=asked)
    rows = rows[~late]
    wanted = table.at.notna()
    if options.since is not None:
        wanted &= table.at >= instant("--from", options.since)
    if options.until is not None:
        wanted &= table.at < instant("--to", options.until)
    inside = wanted.loc[rows.index]
    report.reject("outside --from and --to", int((~inside).sum()), asked=True)
    rows = rows[inside]
    if len(rows) < 2:
        raise ConfigError(f"{label}: needs at least two values, {len(rows)} are left")
    return rows, table.at[wanted]


def _even(
    rows: pd.DataFrame,
    times: "pd.Series[pd.Timestamp]",
    factor: float,
    options: SeriesOptions,
    report: Report,
    label: str,
) -> TimedSeries:
    """An even grid without a gap; whatever had to be done for that is in the report."""
    backwards = int((rows["at"].diff() < pd.Timedelta(0)).sum())
    if backwards:
        report.found["times out of order"] = (
            int(report.found.get("times out of order", 0)) + backwards
        )
    rows = rows.sort_values("at", kind="stable")
    rows = _without_duplicates(rows, options, report, label)
    rows, step = _expanded(rows, times, options, report, label)
    kept = len(rows)
    start = rows["at"].iloc[0]
    off = (rows["at"] - start) % step != pd.Timedelta(0)
    if off.any():
        raise ConfigError(
            f"{label}: times must be {_minutes(step)} apart, but {_iso(rows['at'][off].iloc[0])} "
            f"is not so from {_iso(start)} on; see --step"
        )
    grid = pd.date_range(start, rows["at"].iloc[-1], freq=step)
    values = pd.Series(rows["value"].to_numpy(), index=pd.DatetimeIndex(rows["at"])).reindex(grid)
    missing = values.isna()
    filled = int(missing.sum())
    if filled:
        values = _filled(values, missing, options, report, label)
    report.rows_kept += kept
    values = values * factor
    series = TimedSeries(
        start.to_pydatetime(), step / pd.Timedelta(seconds=1), [float(v) for v in values]
    )
    report.coverage.append(_coverage(label, values, step, filled, options))
    if report.format != "carbon":
        _warn_of_size(values, report, label)
    return series


def _without_duplicates(
    rows: pd.DataFrame, options: SeriesOptions, report: Report, label: str
) -> pd.DataFrame:
    same = rows.duplicated(["at", "value"])
    asked = options.duplicates is not None
    what = "the same instant and value again"
    report.reject(what, int(same.sum()), _first(rows["at"], same), asked=asked)
    rows = rows[~same]
    again = rows["at"].duplicated(keep=False)
    if not again.any():
        return rows
    at = rows["at"][again].iloc[0]
    if options.duplicates in (None, "error"):
        both = ", ".join(f"{value:g}" for value in rows["value"][rows["at"] == at])
        raise ConfigError(
            f"{label}: {rows['at'][again].nunique()} instants have several values, such as "
            f"{_iso(at)} with {both}: say --duplicates first, last or mean"
        )
    extra = int(again.sum()) - int(rows["at"][again].nunique())
    report.reject(f"duplicate instants ({options.duplicates} kept)", extra, _iso(at), asked=True)
    if options.duplicates == "mean":
        mean = rows.groupby("at")["value"].transform("mean")
        return rows.assign(value=mean).drop_duplicates("at")
    return rows.drop_duplicates("at", keep="first" if options.duplicates == "first" else "last")


def _first(at: "pd.Series[pd.Timestamp]", mask: "pd.Series[bool]") -> str:
    return _iso(at[mask].iloc[0]) if mask.any() else ""


def _expanded(
    rows: pd.DataFrame,
    times: "pd.Series[pd.Timestamp]",
    options: SeriesOptions,
    report: Report,
    label: str,
) -> tuple[pd.DataFrame, pd.Timedelta]:
    """Rows of one step, and the step; a row that states a longer time stands there repeatedly."""
    if options.step_min is not None:
        if not 1 / 60 <= options.step_min <= 44640:
            raise ConfigError(f"--step: must be from 1/60 to 44640 min, got {options.step_min}")
        return rows, pd.Timedelta(seconds=round(60 * options.step_min))
    times = times.drop_duplicates().sort_values()  # a row without a value has its place in time
    diffs = times.diff().dropna()
    usual = diffs.mode().iloc[0]
    if rows["hold_min"].isna().all():
        least = diffs.min()
        if least < usual and usual % least == pd.Timedelta(0):
            at = times.loc[diffs.index[diffs == least][0]]
            raise ConfigError(
                f"{label}: most times are {_minutes(usual)} apart, but {_iso(at)} comes after "
                f"{_minutes(least)}: say --step {least / pd.Timedelta(minutes=1):g} --gaps hold if "
                "a value holds until the next"
            )
        return rows, usual
    step = pd.Timedelta(minutes=rows["hold_min"].min())
    counts = (rows["hold_min"] * pd.Timedelta(minutes=1) / step).round().astype(int)
    longer = counts > 1
    if longer.any():
        report.notes.append(
            f"{label}: {int(longer.sum())} values hold for more than one step of {_minutes(step)}"
        )
        rows = rows.loc[rows.index.repeat(counts)]
        nth = rows.groupby(level=0).cumcount()
        at = rows["at"] + nth * step
        own = nth == 0
        taken = ~own & at.isin(rows["at"][own])  # a value of its own goes first
        rows = rows.assign(at=at)[~taken].sort_values("at", kind="stable")
    return rows, step


def _filled(
    values: "pd.Series[float]",
    missing: "pd.Series[bool]",
    options: SeriesOptions,
    report: Report,
    label: str,
) -> "pd.Series[float]":
    runs = int((missing & ~missing.shift(fill_value=False)).sum())
    where = f"{int(missing.sum())} in {runs} gaps, the first at {_iso(missing.index[missing][0])}"
    if options.gaps in (None, "error"):
        raise ConfigError(
            f"{label}: steps without a value: {where}: say --gaps hold or interpolate, or choose "
            "a part with --from and --to"
        )
    how = "the last value held" if options.gaps == "hold" else "interpolated in time"
    report.change(f"steps filled ({how})", int(missing.sum()), where, asked=True)
    return values.ffill() if options.gaps == "hold" else values.interpolate(method="time")


def _coverage(
    label: str,
    values: "pd.Series[float]",
    step: pd.Timedelta,
    filled: int,
    options: SeriesOptions,
) -> dict[str, str | int | float | None]:
    grid = pd.DatetimeIndex(values.index)
    local = grid.tz_convert(zone(options.tz)) if options.tz else grid
    by_hour = values.groupby(local.hour).mean()
    return {
        "of": label,
        "from": _iso(grid[0]),
        "to": _iso(grid[-1] + step),
        "step": _minutes(step),
        "values": len(values),
        "filled": filled,
        "lowest": float(values.min()),
        "mean": float(values.mean()),
        "highest": float(values.max()),
        "negative": int((values < 0).sum()),
        "hours": options.tz or "UTC",
        "cheapest hour of day": str(by_hour.idxmin()),
        "dearest hour of day": str(by_hour.idxmax()),
    }


def _warn_of_size(values: "pd.Series[float]", report: Report, label: str) -> None:
    size = float(values.abs().median())
    if not 0.002 <= size <= 3:
        report.warnings.append(
            f"{label}: the median price is {size:.3g} USD/kWh: is the unit right?"
        )


def _iso(at: Any) -> str:
    return f"{at:{UTC_FORMAT}}"


def _minutes(step: pd.Timedelta) -> str:
    return f"{step / pd.Timedelta(minutes=1):g} min"


def _stated(header_unit: str | None, options: SeriesOptions, file: str | Path) -> str:
    """The unit, which file and option must not state differently."""
    if header_unit is None and options.unit is None:
        raise ConfigError(f"{file}: states no unit and currency: say --unit, such as EUR/MWh")
    if header_unit is not None and options.unit not in (None, header_unit):
        raise ConfigError(
            f"--unit {options.unit}: the header of {file} states {header_unit}; leave one out"
        )
    return str(header_unit or options.unit)


def _read(
    file: str | Path, options: SeriesOptions, report: Report, needs: Sequence[str] = ()
) -> pd.DataFrame:
    before = report.rows_read
    frame = read_table(
        file, report, needs=needs, delimiter=options.delimiter, encoding=options.encoding
    )
    report.rows_read = before  # values are counted, when it is known which columns hold them
    return frame


def _times(
    frame: pd.DataFrame, column: str, file: str | Path, options: SeriesOptions, report: Report
) -> "pd.Series[pd.Timestamp]":
    return to_utc(
        frame[column],
        report,
        what=f"{Path(file).name} column {column}",
        tz=options.tz,
        time_format=options.time_format,
        ambiguous=options.ambiguous,
        nonexistent=options.nonexistent,
    )


def _unknown(frame: pd.DataFrame) -> "pd.Series[float]":
    return pd.Series(np.nan, index=frame.index)


def _read_generic(file: str | Path, options: SeriesOptions, report: Report) -> _Table:
    if options.time is None or not options.columns:
        frame = _read(file, options, report)
        raise ConfigError(
            f"{file}: say which columns hold what, --time COLUMN --price COLUMN; it has: "
            f"{', '.join(map(str, frame.columns))}"
        )
    frame = _read(file, options, report, [options.time, *options.columns])
    unit = _stated(None, options, file)
    at = _times(frame, options.time, file, options, report)
    return _Table(frame, {c: frame[c] for c in options.columns}, at, _unknown(frame), unit)


_HEADER_UNIT = r"price \(([A-Z]{3}/[kM]Wh)\)"


def _read_sustain(file: str | Path, options: SeriesOptions, report: Report) -> _Table:
    frame = _read(file, options, report)
    header = [str(name) for name in frame.columns]
    prices = match_header(header, _HEADER_UNIT)
    time = next((name for name in ("Datetime (UTC)", "Datetime") if name in header), None)
    if len(prices) != 1 or time is None:
        raise ConfigError(
            f"{file}: not a sustain-cluster file: needs 'Datetime (UTC)' or 'Datetime', and "
            f"'Price (CUR/MWh)'; it has: {', '.join(header)}"
        )
    name, match = prices[0]
    at = _times(frame, time, file, options, report)
    if "Datetime (Local)" in header:
        local = to_utc(frame["Datetime (Local)"], report, what=f"{file} column Datetime (Local)")
        off = (local != at) & local.notna() & at.notna()
        if off.any():
            report.warnings.append(
                f"{file}: {int(off.sum())} rows whose local time is another instant than their UTC "
                f"time, which is used (first: {example(frame, off)})"
            )
        note = (
            "files of the standardized layout are smoothed (mean of two hours) and converted at "
            "one exchange rate; those of CAISO, PJM and NYISO are shifted by hours"
        )
        report.notes += [note] if note not in report.notes else []
    unit = _stated(match[1], options, file)
    return _Table(frame, {name: frame[name]}, at, _unknown(frame), unit)


#: The zones that ENTSO-E names in headers, and the offsets of the marks in rows, hours.
_ENTSOE_ZONES = {
    "UTC": "UTC",
    "CET/CEST": "Europe/Brussels",
    "WET/WEST": "Europe/Lisbon",
    "EET/EEST": "Europe/Athens",
    "GMT/BST": "Europe/London",
    "TRT": "Europe/Istanbul",
}
_MARKS = {
    "UTC": 0, "WET": 0, "GMT": 0, "WEST": 1, "BST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3,
    "TRT": 3,
}  # fmt: skip
_MOMENT = r"(\d{2}[./]\d{2}[./]\d{4} \d{2}:\d{2})(?::\d{2})?(?: \((\w+)\))?"


def _read_entsoe(file: str | Path, options: SeriesOptions, report: Report) -> _Table:
    frame = _read(file, options, report)
    header = [str(name) for name in frame.columns]
    times = match_header(header, r"(?:MTU|Time) ?\((.+)\)")
    prices = match_header(header, r"day-ahead price ?[\[(]([A-Z]{3}/[kM]Wh)[\])]")
    if len(times) != 1 or len(prices) != 1:
        raise ConfigError(
            f"{file}: not an ENTSO-E export: needs one column 'MTU (ZONE)' and one 'Day-ahead "
            f"Price (CUR/MWh)'; it has: {', '.join(header)}"
        )
    tz = _entsoe_zone(times[0][1][1], file, options)
    frame = _chosen(frame, "Area", options.area, "--area", file, report)
    frame = _chosen(frame, "Sequence", options.sequence, "--sequence", file, report)
    if "Currency" in frame and frame["Currency"].nunique() > 1:
        raise ConfigError(f"{file}: several currencies: {sorted(frame['Currency'].unique())}")
    name, match = prices[0]
    at, hold = _entsoe_times(frame, times[0][0], name, tz, file, options, report)
    unit = _stated(match[1], options, file)
    return _Table(frame, {name: frame[name]}, at, hold, unit)


def _entsoe_zone(stated: str, file: str | Path, options: SeriesOptions) -> str:
    tz = _ENTSOE_ZONES.get(stated.upper())
    if tz is None and options.tz is None:
        raise ConfigError(f"{file}: the time zone {stated!r} of the header is not known: say --tz")
    if tz is not None and options.tz not in (None, tz):
        raise ConfigError(f"--tz {options.tz}: the header of {file} states {stated}; leave it out")
    return str(tz or options.tz)


def _chosen(
    frame: pd.DataFrame,
    column: str,
    wanted: str | None,
    option: str,
    file: str | Path,
    report: Report,
) -> pd.DataFrame:
    """The rows of one sequence or area, where a file holds several."""
    if column not in frame:
        if wanted is not None:
            raise ConfigError(f"{option} {wanted}: {file} has no column {column}")
        return frame
    known = sorted(frame[column].unique())
    if wanted is None:
        if len(known) > 1:
            raise ConfigError(f"{file}: several values of {column}: say {option}, one of {known}")
        return frame
    if wanted not in known:
        raise ConfigError(f"{option} {wanted}: {file} has {known}")
    others = frame[column] != wanted
    report.rows_read += int(others.sum())
    report.reject(f"{column} not asked for", int(others.sum()), asked=True)
    return frame[~others]


def _entsoe_times(
    frame: pd.DataFrame,
    column: str,
    value: str,
    tz: str,
    file: str | Path,
    options: SeriesOptions,
    report: Report,
) -> "tuple[pd.Series[pd.Timestamp], pd.Series[float]]":
    """Start of each interval in UTC, and how many minutes it is long."""
    parts = frame[column].str.extract(rf"^{_MOMENT} - {_MOMENT}$")
    parts.columns = pd.Index(["start", "start_mark", "end", "end_mark"])
    start, end = (
        pd.to_datetime(
            parts[side].str.replace(".", "/", regex=False), format="%d/%m/%Y %H:%M", errors="coerce"
        )
        for side in ("start", "end")
    )
    marks = parts["start_mark"].str.upper()
    strange = marks.notna() & ~marks.isin(list(_MARKS))
    if strange.any():
        raise ConfigError(f"{file}: mark {marks[strange].iloc[0]!r} of a time is not known")
    marked = (start - pd.to_timedelta(marks.map(_MARKS), unit="h")).dt.tz_localize("UTC")
    # The hour that the clock skips has a row without a value: nothing to place in time.
    plain = start[marks.isna() & ~is_blank(frame[value])]
    local = localize(
        plain,
        report,
        what=f"{Path(file).name} column {column}",
        tz=tz,
        ambiguous=options.ambiguous or "infer",
        nonexistent=options.nonexistent,
    ).reindex(frame.index)
    at = local.where(marks.isna(), marked.astype("datetime64[us, UTC]"))
    minutes = (end - start) / pd.Timedelta(minutes=1)
    usual = minutes.mode()
    plausible = minutes.isin([15.0, 30.0, 60.0])
    return at, minutes.where(plausible, usual.iloc[0] if len(usual) else np.nan)


def _read_citylearn(file: str | Path, options: SeriesOptions, report: Report) -> _Table:
    columns = options.columns or ("electricity_pricing",)
    frame = _read(file, options, report, columns)
    if options.start is None:
        raise ConfigError(f"{file}: has no times: say --start-time (of its first row)")
    start = instant("--start-time", options.start)
    if options.step_min is None:
        raise ConfigError(f"{file}: has no times: say --step (minutes from row to row)")
    unit = _stated(None, options, file)
    step = pd.Timedelta(seconds=round(60 * options.step_min))
    at = pd.Series(start, index=frame.index) + np.arange(len(frame)) * step
    at = at.astype("datetime64[us, UTC]")
    return _Table(frame, {c: frame[c] for c in columns}, at, _unknown(frame), unit)


def _read_carbon(file: str | Path, options: SeriesOptions, report: Report) -> _Table:
    frame = _read(file, options, report)
    header = [str(name) for name in frame.columns]
    found = match_header(header, r"carbon intensity gCO.{1,3}eq/kWh \((direct|lca|life cycle)\)")
    kinds = {"lca" if m[1].lower() != "direct" else "direct": name for name, m in found}
    times = match_header(header, r"Datetime \(UTC\)")
    if not kinds or len(times) != 1:
        raise ConfigError(
            f"{file}: not an Electricity Maps export: needs 'Datetime (UTC)' and 'Carbon intensity "
            f"gCO2eq/kWh (direct)' or '(LCA)'; it has: {', '.join(header)}"
        )
    if options.basis not in kinds:
        raise ConfigError(f"{file}: say --basis, one of {sorted(kinds)}, got {options.basis!r}")
    if options.tz is not None:
        raise ConfigError(f"--tz {options.tz}: the header of {file} states UTC; leave it out")
    at = _times(frame, times[0][0], file, replace(options, tz="UTC"), report)
    name = kinds[options.basis]
    estimated = [c for c in header if c.lower() == "data estimated"]
    if estimated:
        report.found["estimated values"] = int((frame[estimated[0]].str.lower() == "true").sum())
    unit = f"gCO2eq/kWh ({options.basis})"
    return _Table(frame, {name: frame[name]}, at, _unknown(frame), unit)


_READERS = {
    "prices": _read_generic,
    "sustain-cluster": _read_sustain,
    "entsoe": _read_entsoe,
    "citylearn": _read_citylearn,
    "carbon": _read_carbon,
}

SERIES_FORMATS = tuple(_READERS)


def parse_start(text: str) -> datetime:
    """`--start`: the instant of time 0."""
    return instant("--start", text).to_pydatetime().astimezone(UTC)
