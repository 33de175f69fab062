"""Importers against plain Python: random rows, good and bad, and random stretches of real zones."""

import math
import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from bace_env.errors import ConfigError
from bace_env.io.jobs import JobOptions, read_jobs
from bace_env.io.series import SeriesOptions, read_series

CELLS = st.one_of(
    st.integers(-3, 20).map(str),
    st.floats(-2, 50).map(lambda value: f"{value:.2f}"),
    st.sampled_from(["", "nan", "inf", "-inf", "many", "1e400", "None", "-"]),
)
JOB_ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=12)
ZONES = [
    "Europe/Berlin", "Europe/Dublin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kolkata",
    "America/Sao_Paulo", "Pacific/Chatham", "Africa/Casablanca", "UTC",
]  # fmt: skip


def number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def expected_jobs(
    rows: list[tuple[str, str, str]], options: JobOptions
) -> tuple[list[tuple[float, float, int, int]], Counter[str]]:
    """(arrival, duration, GPUs, line) of the jobs that are left, and why the others are not."""
    kept, rejected = [], Counter[str]()
    for line, cells in enumerate(rows, start=2):
        gpus, arrival, duration = (number(cell) for cell in cells)
        if gpus is None or gpus < 0:
            rejected["GPU count unreadable, negative or over a million"] += 1
            continue
        if gpus == 0:
            if options.zero_gpu != "keep":
                rejected["zero-GPU job"] += 1
                continue
            gpus = 1.0
        if gpus != int(gpus) and options.fractional == "drop":
            rejected["fractional GPUs"] += 1
        elif arrival is None:
            rejected["no arrival time"] += 1
        elif duration is None:
            rejected["no end or duration"] += 1
        elif duration < 0:
            rejected["ends before it starts"] += 1
        elif duration == 0 and options.zero_duration != "keep":
            rejected["duration of zero"] += 1
        else:
            kept.append((arrival, duration, math.ceil(gpus), line))
    kept.sort(key=lambda job: (job[0], job[3]))
    return kept, rejected


@settings(max_examples=60)
@given(
    JOB_ROWS,
    st.builds(
        JobOptions,
        zero_gpu=st.sampled_from([None, "drop", "keep"]),
        fractional=st.sampled_from([None, "ceil", "drop"]),
        zero_duration=st.sampled_from([None, "drop", "keep"]),
    ),
)
def test_jobs_are_those_that_plain_python_keeps(
    rows: list[tuple[str, str, str]], options: JobOptions
) -> None:
    kept, rejected = expected_jobs(rows, options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.csv"
        lines = [f"id,{gpus},{arrival},{duration}" for gpus, arrival, duration in rows]
        path.write_text("\n".join(["job_id,num_gpu,submit_time,duration", *lines, ""]))
        if not kept:
            try:
                read_jobs("tiresias", [path], options)
            except ConfigError as error:
                assert f"no job is left of {len(rows)} rows" in str(error)
                return
            raise AssertionError("a trace without jobs must be refused")
        trace = read_jobs("tiresias", [path], options)
    zero = kept[0][0]
    found = trace.jobs[["arrival_s", "duration_s", "gpus", "line"]].itertuples(index=False)
    assert [tuple(job) for job in found] == [
        (arrival - zero, duration, gpus, line) for arrival, duration, gpus, line in kept
    ]
    assert trace.report.rejected == dict(rejected)
    assert trace.report.rows_read == trace.report.rows_kept + sum(rejected.values()) == len(rows)
    assert trace.jobs["id"].is_unique


@settings(max_examples=60)
@given(
    st.sampled_from(ZONES),
    st.integers(0, 366 * 48),
    st.integers(2, 400),
    st.booleans(),
)
def test_local_times_of_a_zone_come_back_as_the_instants_that_they_were(
    zone: str, first: int, n: int, with_offsets: bool
) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=30 * first)
    local = [(start + timedelta(minutes=30 * i)).astimezone(ZoneInfo(zone)) for i in range(n)]
    form = "%Y-%m-%d %H:%M%z" if with_offsets else "%Y-%m-%d %H:%M"
    shown = [at.strftime(form) for at in local]
    # At the ends of the stretch only one of the two 01:30 may be there: nothing to infer from.
    twice = Counter(shown)
    ambiguous = [
        i
        for i, at in enumerate(local)
        if at.replace(fold=0).utcoffset() != at.replace(fold=1).utcoffset()
    ]
    if not with_offsets and any(twice[shown[i]] != 2 for i in ambiguous):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prices.csv"
        path.write_text("t,p\n" + "".join(f"{at},{i}\n" for i, at in enumerate(shown)))
        options = SeriesOptions(
            time="t",
            columns=("p",),
            unit="USD/kWh",
            tz=None if with_offsets else zone,
            ambiguous=None if with_offsets else "infer",
        )
        series = read_series("prices", [path], options).series[0][1]
    assert (series.start, series.step_s) == (start, 1800)
    assert series.values == list(range(n))
