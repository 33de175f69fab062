"""The CSV files beside a scenario: job lists and time series too long for TOML, read and written.

A job list has a header of `Job` fields; columns whose names start with `trace_` are for readers
alone. A series file has a column `utc` of instants and one column per series; an empty cell means
that the series has no value of its own there, so that series of different steps share a file.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from bace_env.errors import ConfigError
from bace_env.schema import Job, nearest

#: Columns of a job list that the scenario does not use.
FOR_READERS = "trace_"

_KINDS: dict[str, Callable[[str], Any]] = {
    "name": str,
    "model": str,
    "dataset": str,
    "batch_size": int,
    "iterations": int,
    "epochs": float,
    "arrival_h": float,
}
_KIND_NAMES: dict[object, str] = {int: "a whole number", float: "a number"}
_SECOND = timedelta(seconds=1)
#: How an instant in UTC is written, in series files and for people.
UTC_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


class TimedSeries(NamedTuple):
    """Values at equal steps from an instant on; each holds to the next."""

    start: datetime  # aware
    step_s: float
    values: list[float]


def parse_jobs(text: str, label: str) -> list[dict[str, Any]]:
    """The jobs of a job list, as nested tables of a scenario; empty cells are left out.

    Raises:
        ConfigError: Naming file, line and column.
    """
    rows = _rows(text, label)
    _, header = next(rows, (0, [""]))
    known = list(Job.model_fields)
    for name in header:
        if name not in known and not name.startswith(FOR_READERS):
            raise ConfigError(f"{label}: unknown column {name!r}; {nearest(name, known)}")
    kinds = [_KINDS.get(name) for name in header]
    jobs = []
    for line, row in rows:
        if len(row) != len(header):
            raise ConfigError(f"{label} line {line}: {len(header)} columns expected, got {row!r}")
        job = {}
        for name, kind, cell in zip(header, kinds, row, strict=True):
            if kind is None or not cell:
                continue
            try:
                job[name] = kind(cell)
            except ValueError:
                raise ConfigError(
                    f"{label} line {line}: {name} must be {_KIND_NAMES[kind]}, got {cell!r}"
                ) from None
        jobs.append(job)
    if not jobs:
        raise ConfigError(f"{label}: holds no job")
    return jobs


def parse_series(text: str, label: str) -> dict[str, TimedSeries]:
    """All series of a series file, by column.

    Raises:
        ConfigError: Naming file and line: times out of order, a gap, not a number, ...
    """
    rows = _rows(text, label)
    _, header = next(rows, (0, [""]))
    if header[0] != "utc" or len(header) < 2 or len(set(header)) < len(header):
        raise ConfigError(
            f"{label}: the header must be utc and then one name per series, got {','.join(header)}"
        )
    columns: list[list[tuple[int, datetime, float]]] = [[] for _ in header[1:]]
    before: datetime | None = None
    for line, row in rows:
        if len(row) != len(header):
            raise ConfigError(f"{label} line {line}: {len(header)} columns expected, got {row!r}")
        instant = _instant(row[0], f"{label} line {line}")
        if before is not None and instant <= before:
            raise ConfigError(f"{label} line {line}: times must ascend, got {row[0]}")
        before = instant
        for column, cell in zip(columns, row[1:], strict=True):
            if cell:
                try:
                    column.append((line, instant, float(cell)))
                except ValueError:
                    raise ConfigError(f"{label} line {line}: not a number: {cell!r}") from None
    return {
        name: _regular(column, f"{label} column {name}")
        for name, column in zip(header[1:], columns, strict=True)
    }


def _regular(column: list[tuple[int, datetime, float]], where: str) -> TimedSeries:
    if len(column) < 2:
        raise ConfigError(f"{where}: needs at least two values, got {len(column)}")
    step = column[1][1] - column[0][1]
    for (_, a, _), (line, b, _) in pairwise(column):
        if b - a != step:
            raise ConfigError(
                f"{where} line {line}: values must be equally spaced ({step} at first), got {b - a}"
            )
    return TimedSeries(column[0][1], step / _SECOND, [value for _, _, value in column])


def _instant(cell: str, where: str) -> datetime:
    try:
        instant = datetime.fromisoformat(cell)
    except ValueError:
        raise ConfigError(
            f"{where}: not a time such as 2024-03-01T00:00:00Z, got {cell!r}"
        ) from None
    if instant.tzinfo is None:
        raise ConfigError(f"{where}: must state its offset from UTC (Z), got {cell!r}")
    return instant.astimezone(UTC)


def _rows(text: str, label: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and stripped cells of each row that is not blank; the header is the first."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise ConfigError(f"{label} line {reader.line_num}: not valid CSV: {error}") from None


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """CSV text; floats in full precision."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def format_series(series: Mapping[str, TimedSeries]) -> str:
    """The text of a series file, which `parse_series` reads back exactly."""
    names = list(series)
    cells: dict[datetime, list[str]] = {}
    for i, name in enumerate(names):
        start, step_s, values = series[name]
        first = start.astimezone(UTC)
        for j, value in enumerate(values):
            row = cells.setdefault(first + timedelta(seconds=j * step_s), [""] * len(names))
            row[i] = repr(float(value))
    rows = ([f"{at:{UTC_FORMAT}}", *cells[at]] for at in sorted(cells))
    return format_table(["utc", *names], rows)
