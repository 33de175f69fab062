"""Reading files as they come: text tables, JSON, times with and without zones."""

import csv
import json
import re
import warnings
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pandas as pd

from bace_env.errors import ConfigError
from bace_env.io.report import Report
from bace_env.schema import nearest
from bace_env.types import BoolArray

Ambiguous = Literal["error", "infer", "earlier", "later", "drop"]
Nonexistent = Literal["error", "shift", "drop"]

#: Cells that stand for no value.
BLANK = ("", "None", "null", "NULL", "NaN", "nan", "N/A", "n/a", "NA", "n/e", "-", "\\N")

_OFFSET = r"(?:[Zz]|[+-]\d{1,2}(?::?\d{1,2}){0,2})$"


def begin(
    name: str, known: Collection[str], files: Sequence[str | Path], options: object
) -> Report:
    """The report of an import, once its format and options are known to be such.

    Raises:
        ConfigError: No such format, or a choice that an option does not have.
    """
    check_choices(options)
    if name not in known:
        raise ConfigError(f"format: unknown name {name!r}; {nearest(name, list(known))}")
    return Report(name, files=[Path(file).name for file in files])


def check_choices(options: object) -> None:
    """Refuse a value of an options class that its `Literal` types do not list.

    Raises:
        ConfigError: Naming the option as on the command line.
    """
    for name, hint in get_type_hints(type(options)).items():
        parts = [part for part in (hint, *get_args(hint)) if get_origin(part) is Literal]
        known = [choice for part in parts for choice in get_args(part)]
        value = getattr(options, name)
        if known and value is not None and value not in known:
            option = name.replace("_", "-")
            raise ConfigError(f"--{option}: must be one of {', '.join(known)}, got {value!r}")


def read_bytes(path: str | Path) -> bytes:
    """A file's bytes, if they can be data at all.

    Raises:
        ConfigError: Unreadable, empty, a Git LFS pointer, or not text.
    """
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot read: {reason}") from None
    head = content[:4096]
    if head.startswith(b"version https://git-lfs"):
        raise ConfigError(f"{path}: is a Git LFS pointer, not the data: fetch it with git lfs pull")
    if head[:2] in (b"\x1f\x8b", b"PK") or b"\0" in head:
        raise ConfigError(
            f"{path}: is not text (compressed? unpack it first; UTF-16? save as UTF-8)"
        )
    if not content.strip(b"\xef\xbb\xbf \t\r\n"):
        raise ConfigError(f"{path}: is empty")
    return content


def read_json(path: str | Path) -> Any:
    """A JSON file.

    Raises:
        ConfigError: Unreadable or not JSON.
    """
    try:
        return json.loads(read_bytes(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid JSON: {error}") from None


def read_table(
    path: str | Path,
    report: Report,
    *,
    needs: Sequence[str] = (),
    names: Sequence[str] | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8-sig",
) -> pd.DataFrame:
    """A delimited text file, all cells as stripped text, indexed by line number.

    Args:
        path: The file.
        report: Gets the numbers of rows and blank lines.
        needs: Columns that must be there.
        names: Names of the columns of a file without a header.
        delimiter: One character.
        encoding: Of the file.

    Raises:
        ConfigError: Unreadable, no rows, a column missing or there twice, a row that is too long.
    """
    content = read_bytes(path)
    header = _header(path, content, delimiter, encoding) if names is None else list(names)
    _require_columns(path, header, needs, delimiter)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows that are too long
            frame = pd.read_csv(
                Path(path),
                sep=delimiter,
                encoding=encoding,
                header=None,
                names=header,
                skiprows=0 if names is not None else 1,
                index_col=False,
                dtype=str,
                na_filter=False,
                skip_blank_lines=False,
                quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
            )
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not {encoding} text ({error.reason}); see --encoding") from None
    except pd.errors.EmptyDataError:
        raise ConfigError(f"{path}: holds a header and no rows") from None
    except (ValueError, pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise ConfigError(f"{path}: not a regular table: {_one_line(error)}") from None
    frame.index = frame.index + (1 if names is not None else 2)
    frame.index.name = "line"
    for name in header:
        frame[name] = frame[name].str.strip()
    blank = (frame == "").all(axis=1)
    frame = frame[~blank]
    if frame.empty:
        raise ConfigError(f"{path}: holds a header and no rows")
    report.blank_lines += int(blank.sum())
    report.rows_read += len(frame)
    return frame


def _one_line(error: Exception) -> str:
    return " ".join(str(error).removeprefix("Error tokenizing data. C error: ").split())


def _header(path: str | Path, content: bytes, delimiter: str, encoding: str) -> list[str]:
    first = content.splitlines()[0]
    try:
        line = first.decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise ConfigError(f"{path}: not {encoding} text ({error}); see --encoding") from None
    if len(delimiter) != 1:
        raise ConfigError(f"--delimiter: must be one character, got {delimiter!r}")
    names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
    twice = sorted({name for name in names if names.count(name) > 1 and name})
    if twice:
        raise ConfigError(f"{path}: the header has {twice[0]!r} twice")
    return [name or f"(column {i + 1})" for i, name in enumerate(names)]


def _require_columns(
    path: str | Path, header: list[str], needs: Sequence[str], delimiter: str
) -> None:
    missing = [name for name in needs if name not in header]
    if not missing:
        return
    hint = nearest(missing[0], header)
    if len(header) == 1 and delimiter == ",":
        other = next((c for c in ";\t|" if c in header[0]), None)
        hint = f"the header has no comma; is it --delimiter {other!r}?" if other else hint
    raise ConfigError(f"{path}: no column {missing[0]!r}; {hint}")


def numbers(text: "pd.Series[str]", decimal: str = ".") -> "pd.Series[float]":
    """Text as finite numbers; nan where it is none (`nan`, `inf` and `1,000` are none)."""
    if decimal != ".":
        text = text.where(~text.str.contains(".", regex=False), "")  # a thousands separator?
        text = text.str.replace(decimal, ".", regex=False)
    values = pd.to_numeric(text, errors="coerce").astype(float)
    return values.where(np.isfinite(values))


def is_blank(text: "pd.Series[str]") -> "pd.Series[bool]":
    """Where a cell stands for no value."""
    return text.isin(BLANK)


def example(frame: pd.DataFrame, mask: "pd.Series[bool] | BoolArray") -> str:
    """The first row of a mask, for a report."""
    rows = frame[np.asarray(mask)]
    if rows.empty:
        return ""
    cells = ", ".join(str(cell) for cell in rows.iloc[0].tolist())
    return f"line {rows.index[0]}: {cells[:100]}"


def instant(option: str, text: str) -> pd.Timestamp:
    """The time that an option gives, in UTC.

    Raises:
        ConfigError: Not a time, or one without its offset from UTC.
    """
    try:
        stamp = pd.Timestamp(text)
    except ValueError:
        stamp = pd.Timestamp("NaT")
    if pd.isna(stamp) or stamp.tzinfo is None:
        raise ConfigError(f"{option}: must be a time such as 2024-03-01T00:00:00Z, got {text!r}")
    return stamp.tz_convert("UTC")


def zone(name: str) -> ZoneInfo:
    """A time zone of the tz database.

    Raises:
        ConfigError: Unknown, with the nearest known one.
    """
    known = available_timezones()
    if name not in known:
        close = get_close_matches(name, sorted(known), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "such as Europe/Berlin or UTC"
        raise ConfigError(f"--tz: unknown time zone {name!r}; {hint}")
    return ZoneInfo(name)


def to_utc(
    text: "pd.Series[str]",
    report: Report,
    *,
    what: str,
    tz: str | None = None,
    time_format: str | None = None,
    ambiguous: Ambiguous | None = None,
    nonexistent: Nonexistent | None = None,
) -> "pd.Series[pd.Timestamp]":
    """Times in UTC (microseconds); NaT where blank, unreadable, or dropped.

    Texts carry their offset from UTC all or none. Those without are local times of `tz`; times that
    a clock shows twice (`ambiguous`) or never (`nonexistent`) are refused unless an option says
    what they mean. `infer`: the first in the file is the earlier one.

    Raises:
        ConfigError: No zone stated (or one too many), offsets in some rows only, or local times
            that need one of the options.
    """
    present = text[~is_blank(text)]
    if time_format is None:
        offset = present.str.contains(_OFFSET, regex=True) & present.str.contains(":", regex=False)
        if offset.any() and not offset.all():
            raise ConfigError(
                f"{what}: some times state an offset from UTC and some do not, such as "
                f"{present[offset].iloc[0]!r} and {present[~offset].iloc[0]!r}"
            )
        has_offset = bool(offset.any())
    else:
        has_offset = "%z" in time_format
    if has_offset:
        if tz is not None:
            raise ConfigError(
                f"{what}: the times state their offsets from UTC: leave out --tz {tz}"
            )
        stamps = pd.to_datetime(present, utc=True, errors="coerce", format=time_format or "ISO8601")
        return stamps.reindex(text.index).astype("datetime64[us, UTC]")
    try:
        naive = pd.to_datetime(present, errors="coerce", format=time_format or "ISO8601")
    except ValueError as error:  # an offset in a form of its own
        raise ConfigError(f"{what}: {_one_line(error)}") from None
    if getattr(naive.dtype, "tz", None) is not None:
        raise ConfigError(f"{what}: offsets from UTC must be such as +01:00, got {text.iloc[0]!r}")
    if len(naive) and naive.isna().all() and time_format is None:
        raise ConfigError(
            f"{what}: not times such as 2024-03-01 00:00:00: {present.iloc[0]!r}; see --time-format"
        )
    if tz is None:
        raise ConfigError(
            f"{what}: the times state no offset from UTC, such as {text.iloc[0]!r}: say --tz "
            "(Europe/Berlin, UTC, ...)"
        )
    stamps = localize(naive, report, what=what, tz=tz, ambiguous=ambiguous, nonexistent=nonexistent)
    return stamps.reindex(text.index)


def localize(
    naive: "pd.Series[pd.Timestamp]",
    report: Report,
    *,
    what: str,
    tz: str,
    ambiguous: Ambiguous | None = None,
    nonexistent: Nonexistent | None = None,
) -> "pd.Series[pd.Timestamp]":
    """Local times of a zone in UTC; see `to_utc`."""
    place = zone(tz)
    naive = naive.astype("datetime64[us]")
    earlier = naive.dt.tz_localize(place, ambiguous=_all(naive, True), nonexistent="NaT")
    later = naive.dt.tz_localize(place, ambiguous=_all(naive, False), nonexistent="NaT")
    never = earlier.isna() & naive.notna()
    twice = (earlier != later) & ~never & naive.notna()
    chosen = earlier.dt.tz_convert("UTC")
    if never.any():
        chosen = _nonexistent(naive, chosen, never, report, what, place, nonexistent)
    if twice.any():
        second = later.dt.tz_convert("UTC")
        chosen = _ambiguous(naive, chosen, second, twice, report, what, ambiguous)
    return chosen.astype("datetime64[us, UTC]")


def _all(naive: "pd.Series[pd.Timestamp]", value: bool) -> BoolArray:
    return np.full(len(naive), value)


def _nonexistent(
    naive: "pd.Series[pd.Timestamp]",
    chosen: "pd.Series[pd.Timestamp]",
    never: "pd.Series[bool]",
    report: Report,
    what: str,
    place: ZoneInfo,
    policy: Nonexistent | None,
) -> "pd.Series[pd.Timestamp]":
    first, n = naive[never].iloc[0], int(never.sum())
    if policy in (None, "error"):
        raise ConfigError(
            f"{what}: {n} local times that {place.key} skips, such as {first}: say "
            "--nonexistent drop or shift, or another --tz"
        )
    if policy == "drop":
        return chosen  # NaT; counted as rejected by whoever drops the row
    report.change(
        "local times that do not exist moved on to the next that does", n, str(first), asked=True
    )
    moved = naive.dt.tz_localize(place, ambiguous=_all(naive, True), nonexistent="shift_forward")
    return chosen.where(~never, moved.dt.tz_convert("UTC"))


def _ambiguous(
    naive: "pd.Series[pd.Timestamp]",
    chosen: "pd.Series[pd.Timestamp]",
    second: "pd.Series[pd.Timestamp]",
    twice: "pd.Series[bool]",
    report: Report,
    what: str,
    policy: Ambiguous | None,
) -> "pd.Series[pd.Timestamp]":
    first, n = naive[twice].iloc[0], int(twice.sum())
    if policy in (None, "error"):
        raise ConfigError(
            f"{what}: {n} local times that the clock shows twice, such as {first}: say "
            "--ambiguous infer (first in the file is the earlier), earlier, later or drop"
        )
    report.found["ambiguous local times"] = report.found.get("ambiguous local times", 0) + n
    if policy == "drop":
        return chosen.where(~twice)
    if policy == "later":
        return chosen.where(~twice, second)
    if policy == "infer":
        order = naive[twice].groupby(naive[twice]).cumcount()
        sizes = naive[twice].groupby(naive[twice]).transform("size")
        if (sizes != 2).any():
            odd = naive[twice][sizes != 2].iloc[0]
            raise ConfigError(
                f"{what}: --ambiguous infer needs each such time exactly twice, but {odd} stands "
                f"there {int(sizes[sizes != 2].iloc[0])} times: say earlier, later or drop"
            )
        is_second = (order == 1).reindex(naive.index, fill_value=False)
        return chosen.where(~is_second, second)
    return chosen


def match_header(header: Sequence[str], pattern: str) -> list[tuple[str, "re.Match[str]"]]:
    """Columns whose whole name matches a pattern, with the match."""
    found = ((name, re.fullmatch(pattern, name, flags=re.IGNORECASE)) for name in header)
    return [(name, match) for name, match in found if match]
