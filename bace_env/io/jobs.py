"""Job traces: who came when, on how many GPUs, for how long."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    numbers,
    read_bytes,
    read_json,
    read_table,
    to_utc,
)
from bace_env.io.report import Report
from bace_env.schema import nearest
from bace_env.tables import UTC_FORMAT
from bace_env.types import BoolArray


@dataclass(frozen=True)
class JobOptions:
    """What a trace does not say, and what is to be done with its odd rows.

    None in an option of the second group means its default, which `--strict` then refuses to apply.

    Attributes:
        arrival: Generic CSV: column of the time of submission.
        duration: Generic CSV: column of the seconds that a job ran, or `started` and `ended`.
        started: Generic CSV: column of the time of the start.
        ended: Generic CSV: column of the time of the end.
        gpu_count: Generic CSV: column of the number of GPUs.
        job_id: Generic CSV: column of a name; None: none.
        tz: Time zone of times without an offset.
        time_format: strptime format of the times, where they are not ISO 8601.
        service: Philly: `wall` (last end - first start) or `attempts` (their sum, without gaps).
        steps_per_s: Gavel: steps per second of every job, where no table is given.
        throughputs: Gavel: the JSON of throughputs by worker type, job type and GPUs.
        worker_type: Gavel: which of the JSON's worker types.
        states: Keep only jobs that ended so; empty: all.
        t0: Instant (or second) of time 0; earlier jobs are rejected. None: the first arrival.
        first: Keep only so many jobs, the earliest.
        zero_gpu: `drop`; `keep` as a job of one GPU; `error`.
        fractional: `ceil` to whole GPUs; `drop`; `error`.
        missing_end: Of a job that started: `drop`; `censor` (ends at the trace's last instant).
        zero_duration: `drop`; `keep` as a job without iterations; `error`.
        ambiguous: Local times that a clock shows twice.
        nonexistent: Local times that a clock skips.
        delimiter: Of text tables.
        encoding: Of text tables.
    """

    arrival: str | None = None
    duration: str | None = None
    started: str | None = None
    ended: str | None = None
    gpu_count: str | None = None
    job_id: str | None = None
    tz: str | None = None
    time_format: str | None = None
    service: Literal["wall", "attempts"] = "wall"
    steps_per_s: float | None = None
    throughputs: str | None = None
    worker_type: str | None = None
    states: tuple[str, ...] = ()
    t0: str | None = None
    first: int | None = None
    zero_gpu: Literal["drop", "keep", "error"] | None = None
    fractional: Literal["ceil", "drop", "error"] | None = None
    missing_end: Literal["drop", "censor", "error"] | None = None
    zero_duration: Literal["drop", "keep", "error"] | None = None
    ambiguous: Ambiguous | None = None
    nonexistent: Nonexistent | None = None
    delimiter: str = ","
    encoding: str = "utf-8-sig"


class Trace(NamedTuple):
    """A cleaned trace.

    Attributes:
        jobs: By arrival, then line: `id` (unique), `arrival_s` from time 0, `duration_s`, `gpus`
            (whole, >= 1), `line` in the file.
        report: What was done to get there.
        start: Instant of time 0; None where a trace counts seconds from a start of its own.
        placed: Whether an option chose time 0; else it is the first arrival.
    """

    jobs: pd.DataFrame
    report: Report
    start: datetime | None = None
    placed: bool = False


# What a format's reader makes of a file, before any decision: one row per row of the file with
# `id`, `arrival_s`, `start_s`, `end_s` (epoch or trace seconds, nan if missing), `duration_s`
# (nan if missing), `gpus` (may be fractional, nan if unreadable), `state`, and `reject` ('' or why
# the row is no job at all). The index is the line.
_Reader = Callable[[Sequence[str | Path], JobOptions, Report], pd.DataFrame]

# What a scenario can hold; beyond it a number is taken for unreadable.
_MOST_GPUS, _MOST_SECONDS = 1_000_000, 1e11


def read_jobs(name: str, files: Sequence[str | Path], options: JobOptions | None = None) -> Trace:
    """Read a trace and clean it.

    Args:
        name: A format of `JOB_FORMATS`.
        files: Its file, or files.
        options: See `JobOptions`.

    Raises:
        ConfigError: What is wrong with a file, or an option that the file needs.
    """
    options = options or JobOptions()
    report = begin(name, JOB_FORMATS, files, options)
    _check_options(name, options)
    raw = JOB_FORMATS[name].read(files, options, report)
    jobs, zero_s = _clean(raw, options, report)
    if jobs.empty:
        why = "; ".join(f"{reason}: {n}" for reason, n in report.rejected.items())
        raise ConfigError(f"{report.files[0]}: no job is left of {report.rows_read} rows; {why}")
    start = datetime.fromtimestamp(zero_s, UTC) if JOB_FORMATS[name].calendar else None
    return Trace(jobs, report, start, options.t0 is not None)


def _check_options(name: str, options: JobOptions) -> None:
    gavel_only = {
        "steps-per-s": options.steps_per_s,
        "throughputs": options.throughputs,
        "worker-type": options.worker_type,
    }
    for option, value in gavel_only.items():
        if value is not None and name != "gavel":
            raise ConfigError(f"--{option}: goes with the format gavel, got {value!r} with {name}")
    if name != "jobs":
        generic = ("arrival", "duration", "started", "ended", "gpu_count", "job_id")
        for option in generic:
            if getattr(options, option) is not None:
                raise ConfigError(f"--{option.replace('_', '-')}: goes with the format jobs")
    if options.service != "wall" and name != "philly":
        raise ConfigError(f"--service {options.service}: goes with the format philly, got {name}")
    if options.tz is not None and not JOB_FORMATS[name].calendar:
        raise ConfigError(
            f"--tz {options.tz}: {name} counts seconds from its own start, there is no zone to give"
        )


def _clean(raw: pd.DataFrame, options: JobOptions, report: Report) -> tuple[pd.DataFrame, float]:
    """Count, reject for one reason each, decide, sort, set time 0 (which comes back, too)."""
    _describe(raw, report)
    left = raw
    for reason in [r for r in raw["reject"].unique() if r]:
        left = _drop(left, left["reject"] == reason, reason, report)
    if options.states:
        wanted = left["state"].isin(options.states)
        if not wanted.any():
            seen = ", ".join(sorted(raw["state"].unique())[:10])
            raise ConfigError(f"--state {options.states[0]}: no job has it; known: {seen}")
        left = _drop(left, ~wanted, "state not asked for", report, asked=True)
    bad = ~left["gpus"].between(0, _MOST_GPUS)  # nan is not between
    left = _drop(left, bad, "GPU count unreadable, negative or over a million", report)
    left = _decide_gpus(left, options, report)
    bad = ~(left["arrival_s"].abs() <= _MOST_SECONDS)
    left = _drop(left, bad, "no arrival time", report)
    left = _decide_times(left, options, report)
    left = left.sort_values("arrival_s", kind="stable")  # at equal times as in the file
    left, zero_s = _from_time_zero(left, options, report)
    if options.first is not None and options.first < len(left):
        late = np.arange(len(left)) >= options.first
        left = _drop(left, late, f"after the first {options.first}", report, asked=True)
    report.rows_kept = len(left)
    if left.empty:
        return left, zero_s
    jobs = pd.DataFrame(
        {
            "id": _unique_ids(left, report),
            "arrival_s": left["arrival_s"].to_numpy(),
            "duration_s": left["duration_s"].to_numpy(),
            "gpus": left["gpus"].to_numpy().astype(np.int64),
            "line": left.index.to_numpy(),
        }
    )
    report.found["GPU-hours kept"] = float((jobs["gpus"] * jobs["duration_s"]).sum() / 3600)
    report.span |= {"last arrival (h)": f"{jobs['arrival_s'].iloc[-1] / 3600:.6g}"}
    return jobs, zero_s


def _describe(raw: pd.DataFrame, report: Report) -> None:
    gpus, arrival = raw["gpus"], raw["arrival_s"]
    known = arrival.dropna()
    counts = {
        "zero-GPU": (gpus == 0).sum(),
        "fractional GPUs": (gpus % 1 > 0).sum(),
        "multi-GPU": (gpus > 1).sum(),
        "never started": raw["start_s"].isna().sum(),
        "without an end": (raw["end_s"].isna() & raw["start_s"].notna()).sum(),
        "duration <= 0": (raw["duration_s"] <= 0).sum(),
        "duplicate arrival times": len(known) - known.nunique(),
        "arrivals out of order": (known.diff() < 0).sum(),
        "duplicate ids": int(raw["id"][raw["id"] != ""].duplicated().sum()),
    }
    report.found |= {what: int(count) for what, count in counts.items() if count}


def _drop(
    frame: pd.DataFrame,
    mask: "pd.Series[bool] | BoolArray",
    reason: str,
    report: Report,
    *,
    asked: bool = False,
    policy: str | None = None,
) -> pd.DataFrame:
    """The rows that do not fall under `mask`; under the policy `error` there must be none."""
    n = int(np.count_nonzero(mask))
    if n == 0:
        return frame
    row = frame[np.asarray(mask)].iloc[:1]
    arrival = row["arrival_s"].iloc[0]
    if JOB_FORMATS[report.format].calendar and abs(arrival) <= _MOST_SECONDS:
        arrival = _stamp(arrival)
    first = (
        f"line {row.index[0]}: {row['id'].iloc[0] or 'no id'}, arrival {arrival}, "
        f"{row['duration_s'].iloc[0]:g} s, {row['gpus'].iloc[0]:g} GPUs"
    )
    if policy == "error":
        raise ConfigError(f"{report.files[0]}: {n} rows: {reason} (first: {first})")
    report.reject(reason, n, first, asked=asked)
    return frame[~np.asarray(mask)]


def _decide_gpus(left: pd.DataFrame, options: JobOptions, report: Report) -> pd.DataFrame:
    zero = left["gpus"] == 0
    asked, policy = options.zero_gpu is not None, options.zero_gpu or "drop"
    if policy == "keep":
        what = "zero-GPU jobs kept as jobs of one GPU"
        report.change(what, int(zero.sum()), example(left[["id"]], zero), asked=asked)
        left = left.assign(gpus=left["gpus"].where(~zero, 1.0))
    else:
        left = _drop(left, zero, "zero-GPU job", report, asked=asked, policy=policy)
    part = left["gpus"] % 1 > 0
    asked, rule = options.fractional is not None, options.fractional or "ceil"
    if rule == "ceil":
        what = "fractional GPUs rounded up to whole ones"
        report.change(what, int(part.sum()), example(left[["id", "gpus"]], part), asked=asked)
        return left.assign(gpus=np.ceil(left["gpus"]))
    return _drop(left, part, "fractional GPUs", report, asked=asked, policy=rule)


def _decide_times(left: pd.DataFrame, options: JobOptions, report: Report) -> pd.DataFrame:
    left = _drop(left, left["start_s"].isna(), "never started", report)
    open_end = ~(left["duration_s"].abs() <= _MOST_SECONDS)
    asked, rule = options.missing_end is not None, options.missing_end or "drop"
    if rule == "censor" and open_end.any():
        last = float(np.nanmax(left[["arrival_s", "start_s", "end_s"]].to_numpy()))
        what = "missing ends set to the last instant of the trace"
        report.change(what, int(open_end.sum()), example(left[["id"]], open_end), asked=asked)
        censored = left["duration_s"].where(~open_end, last - left["start_s"])
        left = left.assign(duration_s=censored)
    else:
        left = _drop(left, open_end, "no end or duration", report, asked=asked, policy=rule)
    left = _drop(left, left["duration_s"] < 0, "ends before it starts", report)
    none = left["duration_s"] == 0
    asked, policy = options.zero_duration is not None, options.zero_duration or "drop"
    if policy == "keep":
        return left
    return _drop(left, none, "duration of zero", report, asked=asked, policy=policy)


def _from_time_zero(
    left: pd.DataFrame, options: JobOptions, report: Report
) -> tuple[pd.DataFrame, float]:
    """Arrivals counted from time 0, and time 0 in seconds of the trace."""
    if left.empty:
        return left, 0.0
    calendar = JOB_FORMATS[report.format].calendar
    if options.t0 is None:
        zero, how = float(left["arrival_s"].iloc[0]), "the first kept arrival"
    else:
        zero, how = _seconds_of(options.t0, calendar), "as given"
        early = left["arrival_s"] < zero
        left = _drop(left, early, "arrives before time 0", report, asked=True)
    first, last = left["arrival_s"].min(), left["arrival_s"].max()
    if calendar:
        report.span |= {"from": _stamp(first), "to": _stamp(last)}
    else:
        report.span |= {"from second": f"{first:.12g}", "to second": f"{last:.12g}"}
    report.notes.append(f"time 0 is {_stamp(zero) if calendar else f'second {zero:.12g}'} ({how})")
    return left.assign(arrival_s=left["arrival_s"] - zero), zero


def _stamp(epoch_s: float) -> str:
    return f"{pd.Timestamp(epoch_s, unit='s', tz='UTC'):{UTC_FORMAT}}"


def _seconds_of(text: str, calendar: bool) -> float:
    if not calendar:
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"--t0: must be a number of seconds, got {text!r}") from None
    return instant("--t0", text).timestamp()


def _unique_ids(left: pd.DataFrame, report: Report) -> list[str]:
    """Names for the jobs: the ids where they can be names, else by line."""
    ids = left["id"].where(left["id"].str.len().between(1, 80), "")
    ids = ids.where(ids.map(str.isprintable), "")
    fallback = pd.Series([f"line-{line}" for line in left.index], index=left.index)
    ids = ids.where(ids != "", fallback)
    again = ids.groupby(ids).cumcount()
    report.change(
        "repeated job ids made different by #2, #3, ...", int((again > 0).sum()), asked=True
    )
    named = ids.where(again == 0, ids + "#" + (again + 1).astype(str))
    if named.duplicated().any():  # an id that looks like one of ours
        named = named.where(~named.duplicated(keep=False), fallback)
    return [str(name) for name in named]


def _frame(index: pd.Index, **columns: Any) -> pd.DataFrame:
    """The reader's result; what a format does not have is left out."""
    frame = pd.DataFrame(columns, index=index)
    for name in ("start_s", "end_s"):
        if name not in columns:
            frame[name] = frame["arrival_s"]  # not recorded: nothing is missing
    if "duration_s" not in columns:
        frame["duration_s"] = frame["end_s"] - frame["start_s"]
    for name in ("state", "reject"):
        if name not in columns:
            frame[name] = ""
    if "id" not in columns:
        frame["id"] = ""
    return frame


def _one(files: Sequence[str | Path], name: str) -> str | Path:
    if len(files) != 1:
        raise ConfigError(f"{name}: takes one file, got {len(files)}")
    return files[0]


def _epoch(
    frame: pd.DataFrame, column: str, options: JobOptions, report: Report
) -> "pd.Series[float]":
    stamps = to_utc(
        frame[column],
        report,
        what=f"{report.files[0]} column {column}",
        tz=options.tz,
        time_format=options.time_format,
        ambiguous=options.ambiguous,
        nonexistent=options.nonexistent,
    )
    return _to_epoch(stamps)


def _to_epoch(stamps: "pd.Series[pd.Timestamp]") -> "pd.Series[float]":
    micros = stamps.astype("datetime64[us, UTC]").astype("int64").astype(float)
    return (micros / 1e6).where(stamps.notna())


def _read_generic(files: Sequence[str | Path], options: JobOptions, report: Report) -> pd.DataFrame:
    path = _one(files, "jobs")
    by_times = options.started is not None and options.ended is not None
    spans = [options.duration] if options.duration else [options.started, options.ended]
    named = [options.arrival, options.gpu_count, *spans]
    if None in named or (options.duration is not None) == by_times:
        header = ", ".join(map(str, _table(path, [], options, Report("")).columns))
        raise ConfigError(
            f"{path}: say which columns hold what, --arrival COLUMN --gpu-count COLUMN and "
            f"--duration COLUMN, or --started and --ended; it has: {header}"
        )
    needs = [name for name in [*named, options.job_id] if name is not None]
    frame = _table(path, needs, options, report)
    columns: dict[str, Any] = {
        "arrival_s": _epoch(frame, str(options.arrival), options, report),
        "gpus": numbers(frame[str(options.gpu_count)]),
    }
    if options.job_id is not None:
        columns["id"] = frame[options.job_id]
    if options.duration is not None:
        columns["duration_s"] = numbers(frame[options.duration])
        report.units = {"duration": "s"}
    else:
        columns["start_s"] = _epoch(frame, str(options.started), options, report)
        columns["end_s"] = _epoch(frame, str(options.ended), options, report)
        report.units = {"duration": f"s, {options.ended} - {options.started}"}
    return _frame(frame.index, **columns)


def _read_philly_csv(
    files: Sequence[str | Path], options: JobOptions, report: Report
) -> pd.DataFrame:
    needs = ["timestamp", "duration", "num_gpus", "gpu_time", "cluster"]
    frame = _table(_one(files, "philly-csv"), needs[:3], options, report)
    arrival = _epoch(frame, "timestamp", options, report)
    duration, gpus = numbers(frame["duration"]), numbers(frame["num_gpus"])
    if "cluster" in frame:
        report.found["virtual clusters"] = int(frame["cluster"].nunique())
    if "gpu_time" in frame:
        off = (numbers(frame["gpu_time"]) - duration * gpus).abs() > 1
        _mismatch(report, frame, off, "gpu_time differs from duration * num_gpus by more than 1 s")
    report.units = {"duration": "s, as stated by the format"}
    return _frame(frame.index, arrival_s=arrival, duration_s=duration, gpus=gpus)


def _mismatch(report: Report, frame: pd.DataFrame, mask: "pd.Series[bool]", what: str) -> None:
    if mask.any():
        report.warnings.append(f"{int(mask.sum())} rows: {what} (first: {example(frame, mask)})")


def _table(
    path: str | Path, needs: Sequence[str], options: JobOptions, report: Report
) -> pd.DataFrame:
    return read_table(
        path, report, needs=needs, delimiter=options.delimiter, encoding=options.encoding
    )


def _read_slurm(files: Sequence[str | Path], options: JobOptions, report: Report) -> pd.DataFrame:
    """Helios and ACME: `duration` is checked against the times, which decide."""
    needs = ["job_id", "gpu_num", "state", "submit_time", "start_time", "end_time"]
    frame = _table(_one(files, report.format), needs, options, report)
    arrival, start, end = (
        _epoch(frame, column, options, report)
        for column in ("submit_time", "start_time", "end_time")
    )
    if "duration" in frame:
        off = (numbers(frame["duration"]) - (end - start)).abs() > 1
        what = "duration differs from end - start by more than 1 s; end - start is used"
        _mismatch(report, frame, off, what)
    report.units = {"times": "s, recomputed as end_time - start_time"}
    return _frame(
        frame.index,
        id=frame["job_id"],
        arrival_s=arrival,
        start_s=start,
        end_s=end,
        gpus=numbers(frame["gpu_num"]),
        state=frame["state"],
    )


def _read_openb(files: Sequence[str | Path], options: JobOptions, report: Report) -> pd.DataFrame:
    times = ["creation_time", "scheduled_time", "deletion_time"]
    needs = ["name", "num_gpu", "gpu_milli", "pod_phase", *times]
    frame = _table(_one(files, "openb"), needs, options, report)
    arrival, start, end = (numbers(frame[column]) for column in times)
    whole, milli = numbers(frame["num_gpu"]), numbers(frame["gpu_milli"])
    # A pod without GPUs leaves gpu_milli at 0 or empty.
    gpus = (whole * milli / 1000).where(whole != 0, 0.0)
    report.units = {"times": "s from the start of the trace", "gpu_milli": "1/1000 GPU"}
    return _frame(
        frame.index,
        id=frame["name"],
        arrival_s=arrival,
        start_s=start,
        end_s=end,
        gpus=gpus,
        state=frame["pod_phase"],
    )


def _read_tiresias(
    files: Sequence[str | Path], options: JobOptions, report: Report
) -> pd.DataFrame:
    needs = ["job_id", "num_gpu", "submit_time", "duration"]
    frame = _table(_one(files, "tiresias"), needs, options, report)
    report.units = {"times": "s from the start of the trace"}
    return _frame(
        frame.index,
        id=frame["job_id"],
        arrival_s=numbers(frame["submit_time"]),
        duration_s=numbers(frame["duration"]),
        gpus=numbers(frame["num_gpu"]),
    )


_GAVEL = {
    7: ["job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_s",
        "scale_factor"],
    10: ["job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir",
         "total_steps", "scale_factor", "priority_weight", "SLO", "arrival_s"],
}  # fmt: skip


def _read_gavel(files: Sequence[str | Path], options: JobOptions, report: Report) -> pd.DataFrame:
    path = _one(files, "gavel")
    first = next(
        line for line in read_bytes(path).decode("utf-8", "replace").splitlines() if line.strip()
    )
    names = _GAVEL.get(first.count("\t") + 1)
    if names is None:
        raise ConfigError(
            f"{path}: a line must have 7 or 10 fields, tabs between, got {first.count(chr(9)) + 1}"
        )
    frame = read_table(path, report, names=names, delimiter="\t", encoding=options.encoding)
    gpus, steps = numbers(frame["scale_factor"]), numbers(frame["total_steps"])
    rate, reject = _gavel_rates(frame, gpus, options, report)
    report.found["fields per line"] = len(names)
    return _frame(
        frame.index,
        arrival_s=numbers(frame["arrival_s"]),
        duration_s=steps / rate,
        gpus=gpus,
        reject=reject,
    )


def _gavel_rates(
    frame: pd.DataFrame, gpus: "pd.Series[float]", options: JobOptions, report: Report
) -> "tuple[pd.Series[float], pd.Series[str]]":
    """Steps per second of each job, and why it has none."""
    none = pd.Series("", index=frame.index)
    if (options.steps_per_s is None) == (options.throughputs is None):
        raise ConfigError(
            "gavel: a trace has steps, no durations: give --throughputs FILE --worker-type TYPE, "
            "or --steps-per-s NUMBER for all jobs"
        )
    if options.steps_per_s is not None:
        if not options.steps_per_s > 0:
            raise ConfigError(f"--steps-per-s: must be > 0, got {options.steps_per_s}")
        report.units = {"duration": f"total_steps / {options.steps_per_s:g} steps per s, as given"}
        return pd.Series(options.steps_per_s, index=frame.index), none
    table = read_json(str(options.throughputs))
    types = list(table) if isinstance(table, dict) else []
    if options.worker_type not in types:
        known = ", ".join(types[:10])
        raise ConfigError(
            f"--worker-type: must be one in {options.throughputs}, got {options.worker_type!r}; "
            f"known: {known}"
        )
    rates = table[options.worker_type]
    found = [_gavel_rate(rates, kind, n) for kind, n in zip(frame["job_type"], gpus, strict=True)]
    rate = pd.Series(found, index=frame.index, dtype=float)
    report.units = {"duration": f"total_steps / throughput on {options.worker_type}"}
    return rate, none.where(rate > 0, "no throughput for the job type and GPUs")


def _gavel_rate(rates: Any, job_type: str, gpus: float) -> float:
    """Steps per second of a job type alone on its GPUs; keys are `('TYPE', GPUS)` as text."""
    entry = rates.get(f"('{job_type}', {gpus:g})") if isinstance(rates, dict) else None
    alone = entry.get("null") if isinstance(entry, dict) else None
    if isinstance(alone, list):
        alone = alone[0] if alone else None
    return float(alone) if isinstance(alone, int | float) else np.nan


def _read_pai(files: Sequence[str | Path], options: JobOptions, report: Report) -> pd.DataFrame:
    tables = {kind: _pai_table(files, kind, options, report) for kind in ("job", "task")}
    jobs, tasks = tables["job"], tables["task"]
    report.rows_read = len(jobs)
    plan, count = numbers(tasks["plan_gpu"]), numbers(tasks["inst_num"])
    plan = plan.where(~is_blank(tasks["plan_gpu"]), 0.0)  # a task without GPUs leaves it empty
    share = plan / 100 * count.where(plan != 0, 1.0)
    total = share.groupby(tasks["job_name"]).sum(min_count=1)
    bad = share.isna().groupby(tasks["job_name"]).any()
    name = jobs["job_name"]
    known = name.isin(total.index)
    gpus = name.map(total).where(name.isin(bad.index[~bad]))
    reject = pd.Series("", index=jobs.index)
    reject = reject.where(known, "no task of the job in the task table")
    reject = reject.where(~is_blank(name), "no job name")
    again = name.duplicated() & ~is_blank(name)
    reject = reject.where(~again, "job name for the second time")
    stray = ~tasks["job_name"].isin(name)
    report.found |= {"tasks": len(tasks), "tasks of no job": int(stray.sum())}
    report.units = {
        "plan_gpu": "percent of a GPU, times inst_num, summed over a job's tasks",
        "times": "s; start_time of the job is its submission",
    }
    start, end = numbers(jobs["start_time"]), numbers(jobs["end_time"])
    # The job's start is its submission; it runs from its first task's start on.
    first = numbers(tasks["start_time"]).groupby(tasks["job_name"]).min()
    began = name.map(first)
    return _frame(
        jobs.index,
        id=name,
        arrival_s=start,
        start_s=began,
        end_s=end,
        gpus=gpus.astype(float),
        state=jobs["status"],
        reject=reject,
    )


_PAI_COLUMNS = {
    "job": ["job_name", "inst_id", "user", "status", "start_time", "end_time"],
    "task": ["job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu",
             "plan_mem", "plan_gpu", "gpu_type"],
}  # fmt: skip


def _pai_table(
    files: Sequence[str | Path], kind: str, options: JobOptions, report: Report
) -> pd.DataFrame:
    """One of the tables, which come without a header row, with the columns of its header file."""
    paths = [Path(file) for file in files if f"{kind}_table" in Path(file).name]
    headers = [path for path in paths if path.suffix == ".header"]
    tables = [path for path in paths if path.suffix != ".header"]
    if len(tables) != 1 or len(headers) > 1:
        raise ConfigError(
            f"pai: give one file with {kind}_table in its name (and its .header file), "
            f"got {len(tables)} of {[Path(file).name for file in files]}"
        )
    beside = tables[0].with_suffix(".header")
    header = headers[0] if headers else beside
    if not header.exists():
        raise ConfigError(
            f"{tables[0]}: comes without a header row: give its header file too ({beside.name}: "
            f"{','.join(_PAI_COLUMNS[kind])})"
        )
    names = read_bytes(header).decode("utf-8-sig", "replace").strip().split(",")
    missing = [name for name in _PAI_COLUMNS[kind] if name not in names]
    if missing:
        raise ConfigError(f"{header}: no column {missing[0]!r}; {nearest(missing[0], names)}")
    if header.name not in report.files:
        report.files.append(header.name)
    frame = read_table(
        tables[0], report, names=names, delimiter=options.delimiter, encoding=options.encoding
    )
    repeated = frame["job_name"] == "job_name"
    if repeated.any():
        report.notes.append(f"{tables[0].name}: {int(repeated.sum())} header rows left out")
    return frame[~repeated]


def _read_philly(files: Sequence[str | Path], options: JobOptions, report: Report) -> pd.DataFrame:
    path = _one(files, "philly")
    entries = read_json(path)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{path}: must be a JSON list of jobs")
    if not entries:
        raise ConfigError(f"{path}: holds no job")
    report.rows_read = len(entries)
    attempts = [_attempts(entry) for entry in entries]
    report.found["attempts"] = sum(map(len, attempts))
    flat = pd.DataFrame(
        [(j, start, end) for j, found in enumerate(attempts) for start, end, _ in found],
        columns=["job", "start", "end"],
    )
    jobs = pd.DataFrame(
        {"submitted_time": [_text(entry.get("submitted_time")) for entry in entries]}
    )
    jobs.index = flat_index = pd.RangeIndex(1, len(entries) + 1, name="line")
    arrival = _epoch(jobs, "submitted_time", options, report)
    start, end, spent = _attempt_times(flat, len(entries), options, report)
    gpus = [found[0][2] if found else np.nan for found in attempts]
    reject = ["" if found else "no attempts" for found in attempts]
    changes = sum(len({n for _, _, n in found}) > 1 for found in attempts)
    if changes:
        report.notes.append(f"{changes} jobs change their GPUs between attempts; the first counts")
    how = "last end - first start" if options.service == "wall" else "sum of the attempts"
    report.units = {"duration": f"s, {how}"}
    return _frame(
        flat_index,
        id=[_text(entry.get("jobid")) for entry in entries],
        arrival_s=arrival,
        start_s=start,
        end_s=end,
        duration_s=end - start if options.service == "wall" else spent,
        gpus=np.array(gpus, dtype=float),
        state=[_text(entry.get("status")) for entry in entries],
        reject=reject,
    )


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _attempts(entry: dict[str, Any]) -> list[tuple[str, str, float]]:
    """Start, end and GPUs of each attempt."""
    found = entry.get("attempts")
    rows = []
    for attempt in found if isinstance(found, list) else []:
        if not isinstance(attempt, dict):
            continue
        detail = attempt.get("detail")
        hosts = (
            [host for host in detail if isinstance(host, dict)] if isinstance(detail, list) else []
        )
        gpus = sum(len(host.get("gpus") or []) for host in hosts)
        rows.append((_text(attempt.get("start_time")), _text(attempt.get("end_time")), float(gpus)))
    return rows


def _attempt_times(
    flat: pd.DataFrame, n: int, options: JobOptions, report: Report
) -> tuple[Any, Any, Any]:
    """First start, end of the last attempt, and summed attempts of each job, epoch seconds."""
    if flat.empty:
        nothing = np.full(n, np.nan)
        return nothing, nothing, nothing
    flat = flat.assign(
        start_s=_epoch(flat, "start", options, report), end_s=_epoch(flat, "end", options, report)
    )
    by_job = flat.groupby("job")
    start = by_job["start_s"].min().reindex(range(n)).to_numpy()
    last = flat.groupby("job").tail(1).set_index("job")
    end = last["end_s"].reindex(range(n)).to_numpy()
    spent = (flat["end_s"] - flat["start_s"]).groupby(flat["job"])
    total = spent.sum(min_count=1).reindex(range(n)).to_numpy()
    return start, end, np.where(np.isnan(end), np.nan, total)


class JobFormat(NamedTuple):
    """A kind of trace."""

    read: _Reader
    calendar: bool  # times of a calendar, not seconds from a start


JOB_FORMATS = {
    "jobs": JobFormat(_read_generic, True),
    "philly": JobFormat(_read_philly, True),
    "philly-csv": JobFormat(_read_philly_csv, True),
    "helios": JobFormat(_read_slurm, True),
    "acme": JobFormat(_read_slurm, True),
    "pai": JobFormat(_read_pai, False),
    "openb": JobFormat(_read_openb, False),
    "gavel": JobFormat(_read_gavel, False),
    "tiresias": JobFormat(_read_tiresias, False),
}
