"""What importers make of files: excerpts of real sources with the counts of their README, and
small files whose instants and numbers are worked out by hand."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any, Literal

import networkx as nx
import numpy as np
import pytest
from command_line import CommandLine
from import_command import ImportCommand

from bace_env.config import load_scenario
from bace_env.errors import ConfigError
from bace_env.io import __main__ as command
from bace_env.io.jobs import JOB_FORMATS, JobOptions, Trace, read_jobs
from bace_env.io.match import LADDER, MatchOptions, match_durations
from bace_env.io.network import NETWORK_FORMATS, NetworkOptions, read_network
from bace_env.io.scenario_files import Draft, put_jobs, put_network, put_prices
from bace_env.io.series import SERIES_FORMATS, SeriesOptions, read_series
from bace_env.scenario import build_instance

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"


def excerpt(name: str) -> Path:
    if not (DATA / name).exists():
        pytest.skip(f"excerpt ../shared/data/{name} is not there")
    return DATA / name


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> ImportCommand:
    return ImportCommand(tmp_path, monkeypatch, capsys)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def put(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return put


# Excerpts of the real sources.


def test_philly_flat() -> None:
    trace = read_jobs(
        "philly-csv", [excerpt("jobs/philly_flat_head3000.csv")], JobOptions(tz="UTC")
    )
    report, jobs = trace.report, trace.jobs
    assert (report.rows_read, report.rows_kept, len(jobs)) == (3000, 3000, 3000)
    assert report.found["arrivals out of order"] == 1621
    assert report.found["duplicate arrival times"] == 100
    assert report.found["virtual clusters"] == 11
    assert report.found["GPU-hours kept"] == pytest.approx(41529.4, abs=0.05)
    assert set(jobs["gpus"]) == {1, 2, 4, 8, 32}
    assert report.span["from"] == "2017-09-07T09:57:50Z"
    assert report.span["to"] == "2017-10-09T07:01:55Z"
    assert not report.rejected
    assert jobs["arrival_s"].is_monotonic_increasing
    # Equal arrivals stay in the order of the file.
    assert not (jobs.groupby("arrival_s")["line"].diff() < 0).any()


@pytest.mark.parametrize(("service", "seconds"), [("wall", 193263), ("attempts", 193256)])
def test_philly_json(service: Any, seconds: float) -> None:
    path = excerpt("jobs/philly_cluster_job_log_readme_example.json")
    trace = read_jobs("philly", [path], JobOptions(tz="UTC", service=service))
    (job,) = trace.jobs.itertuples()
    assert (job.gpus, job.duration_s) == (8, seconds)  # a gap of 7 s between the attempts
    assert trace.report.found["attempts"] == 2
    assert trace.report.span["from"] == "2017-10-07T01:11:39Z"


def test_helios() -> None:
    path = excerpt("jobs/helios_cluster_log_readme_example.csv")
    trace = read_jobs("helios", [path], JobOptions(tz="Asia/Shanghai"))
    assert trace.jobs["duration_s"].tolist() == [36848, 249, 675233]
    assert trace.jobs["arrival_s"].tolist() == [0, 26, 27]
    assert trace.jobs["gpus"].tolist() == [1, 4, 1]
    assert not trace.report.warnings


def test_openb() -> None:
    trace = read_jobs("openb", [excerpt("jobs/alibaba_openb_pod_list_default_head2000.csv")])
    found = trace.report.found
    assert trace.report.rows_read == 2000
    assert found["zero-GPU"] == 275
    assert found["fractional GPUs"] == 702
    assert found["multi-GPU"] == 7
    assert found["never started"] == 158
    assert found["duplicate arrival times"] == 30
    rejected = trace.report.rejected
    assert rejected["zero-GPU job"] == 275
    assert sum(rejected.values()) + trace.report.rows_kept == 2000


def test_gavel_and_tiresias() -> None:
    path = excerpt("jobs/gavel_msr_seed0_51b7ef_7col.trace")
    trace = read_jobs("gavel", [path], JobOptions(steps_per_s=2.0))
    assert len(trace.jobs) == 18
    assert trace.jobs["duration_s"].iloc[0] == 246378 / 2
    assert trace.jobs["gpus"].tolist()[:5] == [1, 1, 8, 8, 8]
    trace = read_jobs("tiresias", [excerpt("jobs/tiresias_60_job.csv")])
    assert len(trace.jobs) == 60
    assert trace.jobs["arrival_s"].iloc[-1] == 1779


@pytest.mark.parametrize(
    ("file", "column", "negative", "start"),
    [
        ("DE-LU", "Price (USD/MWh)", 33, "2024-03-01T00:00:00Z"),
        ("US-TEX-ERCO", "Price (USD/MWh)", 11, "2024-03-01T00:00:00Z"),
        ("SG", "Price (USD/MWh)", 0, "2024-03-01T00:00:00Z"),
        ("IN-WE", "Price (USD/MWh)", 0, "2024-03-01T00:30:00Z"),
    ],
)
def test_standardized_prices(file: str, column: str, negative: int, start: str) -> None:
    path = excerpt(f"prices/standardized/{file}_electricity_prices_2024.csv")
    found = read_series("sustain-cluster", [path])
    (entry,) = found.report.coverage
    assert found.report.rows_read == found.report.rows_kept == 1008
    assert (entry["values"], entry["filled"], entry["negative"]) == (1008, 0, negative)
    assert (entry["from"], entry["step"]) == (start, "60 min")
    assert found.series[0][0] == column
    assert not found.report.rejected and not found.report.warnings


def test_processed_prices_of_germany() -> None:
    path = excerpt("prices/processed/DE-LU_electricity_prices_2021.csv")
    options: dict[str, Any] = {
        "tz": "Europe/Berlin", "usd_rate": 1.0, "nonexistent": "drop", "ambiguous": "infer",
    }  # fmt: skip
    # Three windows of days with months between them that the excerpt leaves out.
    windows = [
        ("2021-03-01T00:00:00+01:00", "2021-04-01T00:00:00+02:00", 743, 27),
        ("2021-10-01T00:00:00+02:00", "2021-11-01T00:00:00+01:00", 745, 7),
        ("2021-12-01T00:00:00+01:00", "2022-01-01T00:00:00+01:00", 744, 5),
    ]
    negatives = 0
    for since, until, values, negative in windows:
        part = SeriesOptions(since=since, until=until, **options)
        report = read_series("sustain-cluster", [path], part).report
        (entry,) = report.coverage
        assert (entry["values"], entry["filled"], entry["negative"]) == (values, 0, negative)
        assert report.rejected["time missing, unreadable or dropped"] == 1  # 02:00 on 28 March
        assert report.found["ambiguous local times"] == 2  # the duplicate
        assert report.rows_read == 2233
        negatives += negative
        assert report.found.get("times out of order", 0) == (1 if values == 745 else 0)
    assert negatives == 39
    with pytest.raises(ConfigError, match="steps without a value: 5112 in 2 gaps"):
        read_series("sustain-cluster", [path], SeriesOptions(**options))


def test_processed_prices_of_texas_mix_two_offsets() -> None:
    path = excerpt("prices/processed/US-TEX-ERCO_electricity_prices_2024.csv")
    autumn = SeriesOptions(since="2024-10-01T00:00:00Z")
    series = read_series("sustain-cluster", [path], autumn).series[0][1]
    at = int((datetime(2024, 11, 3, 6, tzinfo=UTC) - series.start) / timedelta(hours=1))
    # 01:00-05:00, 01:00-06:00 and 02:00-06:00 of 3 November are 06:00, 07:00 and 08:00 UTC.
    assert series.values[at : at + 3] == pytest.approx([0.01057, 0.01352, 0.00708], rel=1e-12)
    spring = SeriesOptions(until="2024-10-01T00:00:00Z")
    series = read_series("sustain-cluster", [path], spring).series[0][1]
    at = int((datetime(2024, 3, 10, 7, tzinfo=UTC) - series.start) / timedelta(hours=1))
    assert series.values[at : at + 2] == pytest.approx([0.03368, 0.03668], rel=1e-12)


def test_citylearn_and_carbon() -> None:
    options = SeriesOptions(unit="USD/kWh", start="2022-01-01T00:00:00Z", step_min=60)
    found = read_series(
        "citylearn", [excerpt("prices/citylearn_2022_pricing_head200.csv")], options
    )
    assert len(found.series[0][1].values) == 200
    assert set(found.series[0][1].values) == {0.22, 0.4, 0.54}
    path = excerpt("carbon/DE-LU_2024_hourly_head336.csv")
    cases: list[tuple[Literal["direct", "lca"], float]] = [("direct", 133.1), ("lca", 177.74)]
    for basis, first in cases:
        found = read_series("carbon", [path], SeriesOptions(basis=basis))
        assert len(found.series[0][1].values) == 336
        assert found.series[0][1].values[0] == first


def test_skyplane() -> None:
    files = [f"network/skyplane_{what}_18regions.csv" for what in ("throughput", "latency", "cost")]
    found = read_network("skyplane", [excerpt(name) for name in files])
    assert len(found.names) == 18
    assert len(found.gbps) == len(found.latency_ms) == len(found.usd_per_gb) == 306
    assert found.report.found["worst asymmetry (times)"] == pytest.approx(21.7, abs=0.05)
    there = found.gbps["gcp:asia-northeast1-a", "aws:ap-southeast-2"]
    back = found.gbps["aws:ap-southeast-2", "gcp:asia-northeast1-a"]
    assert (there, back) == (pytest.approx(5.52, abs=0.005), pytest.approx(0.255, abs=0.0005))
    assert 2 * max(found.latency_ms.values()) == pytest.approx(360, abs=0.5)
    assert max(found.usd_per_gb.values()) == 0.19
    throughput = read_network("skyplane", [excerpt(files[0])], NetworkOptions(tier="any"))
    assert throughput.report.rows_read == 525
    only_cost = read_network("skyplane", [excerpt(files[2])]).report
    assert (only_cost.rows_read, only_cost.rejected["from a region to itself"]) == (324, 18)
    assert read_network("skyplane", [excerpt(files[1])]).report.rows_read == 506


def test_skyplane_with_blank_round_trips() -> None:
    path = excerpt("network/skyplane_latency_old_head200_blank_rtt.csv")
    report = read_network("skyplane", [path], NetworkOptions(tier="any")).report
    assert (report.rows_read, report.rejected["no avg_rtt"]) == (200, 62)


def test_matrix_of_traffic_prices() -> None:
    path = excerpt("network/hpe_aws_transmission_cost_matrix.csv")
    found = read_network("matrix", [path], NetworkOptions(unit="USD/GB"))
    assert len(found.names) == 20 and len(found.usd_per_gb) == 380
    assert found.usd_per_gb["us-east-1", "us-east-2"] == 0.01


@pytest.mark.parametrize(
    ("name", "nodes", "links", "labelled"),
    [
        ("Abilene", 11, 14, 0),
        ("Kreonet", 13, 12, 12),
        ("Geant2012", 40, 61, 39),
        ("Internetmci", 19, 45, 18),
    ],
)
def test_topologies(name: str, nodes: int, links: int, labelled: int) -> None:
    path = excerpt(f"topology/{name}.graphml")
    if labelled < links:
        with pytest.raises(ConfigError, match=f"{links - labelled} of {links} links state no"):
            read_network("topology", [path])
    found = read_network("topology", [path], NetworkOptions(capacity_gbps=1.0))
    counts = found.report.found
    assert (counts["nodes"], counts["links"], counts["links with a speed"]) == (
        nodes, links, labelled,
    )  # fmt: skip
    assert len(found.gbps) == nodes * (nodes - 1)


# Small files, by hand.


def test_own_columns(write: Callable[[str, str], Path]) -> None:
    path = write(
        "own.csv",
        "who,at,from,to,n,took\nx,2024-03-31 01:59,2024-03-31 03:00,2024-03-31 04:00,4,5\n"
        "y,2024-03-31 03:01,2024-03-31 03:01,2024-03-31 03:02,2,6\n",
    )
    columns = {"arrival": "at", "gpu_count": "n", "job_id": "who", "tz": "Europe/Berlin"}
    jobs = read_jobs("jobs", [path], JobOptions(started="from", ended="to", **columns)).jobs
    assert jobs["id"].tolist() == ["x", "y"]
    assert jobs["arrival_s"].tolist() == [0, 120]  # the clock skips an hour between them
    assert jobs["duration_s"].tolist() == [3600, 60]
    jobs = read_jobs("jobs", [path], JobOptions(duration="took", **columns)).jobs
    assert jobs["duration_s"].tolist() == [5, 6]


def test_acme_recomputes_durations_and_says_so(write: Callable[[str, str], Path]) -> None:
    path = write(
        "kalos.csv",
        "job_id,gpu_num,state,submit_time,start_time,end_time,duration\n"
        "a,64,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,"
        "2023-05-17 11:01:16+00:00,18\n"  # end - submit, against its description
        "b,8,COMPLETED,2023-05-17 19:23:58+08:00,2023-05-17 19:24:11+08:00,"
        "2023-05-17 20:09:04+08:00,2693\n",
    )
    trace = read_jobs("acme", [path])
    assert trace.jobs["duration_s"].tolist() == [8, 2693]
    assert trace.jobs["arrival_s"].tolist() == [0, 22 * 60 + 60]
    (warning,) = trace.report.warnings
    assert warning.startswith("1 rows: duration differs from end - start")


def test_pai_joins_tasks_to_jobs(write: Callable[[str, str], Path]) -> None:
    files = [
        write("pai_job_table.header", "job_name,inst_id,user,status,start_time,end_time\n"),
        write(
            "pai_task_table.header",
            "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,"
            "gpu_type\n",
        ),
        write(
            "pai_job_table.csv",
            "j1,i,u,Terminated,100.0,1000.0\nj2,i,u,Failed,50.0,80.0\nj3,i,u,Terminated,70.0,90.0\n"
            ",i,u,Terminated,70.0,90.0\nj1,i,u,Terminated,100.0,1000.0\n",
        ),
        write(
            "pai_task_table.csv",
            # The example of the trace's own README: 0 % and twice 50 %; here 8 workers as well.
            "j1,ps,1.0,Terminated,110.0,1000.0,600.0,1.0,,MISC\n"
            "j1,worker,2.0,Terminated,120.0,1000.0,400.0,1.0,50.0,MISC\n"
            "j1,evaluator,8.0,Terminated,130.0,1000.0,400.0,1.0,100.0,V100\n"
            "j2,worker,1.0,Failed,50.0,80.0,400.0,1.0,25.0,V100\n"
            "jx,worker,1.0,Failed,50.0,80.0,400.0,1.0,25.0,V100\n",
        ),
    ]
    trace = read_jobs("pai", files)
    assert trace.jobs["id"].tolist() == ["j2", "j1"]
    assert trace.jobs["gpus"].tolist() == [1, 9]  # a quarter rounded up; 2 * 50 % + 8
    assert trace.jobs["arrival_s"].tolist() == [0, 50]
    assert trace.jobs["duration_s"].tolist() == [30, 890]  # from the first task's start on
    assert trace.report.rejected == {
        "no task of the job in the task table": 1,
        "no job name": 1,
        "job name for the second time": 1,
    }
    assert trace.report.found["tasks of no job"] == 1
    assert read_jobs("pai", files[2:]).jobs.equals(trace.jobs)  # headers beside the tables


def test_gavel_reads_both_layouts_and_a_table_of_throughputs(
    write: Callable[[str, str], Path],
) -> None:
    rates = {
        "v100": {
            "('LM (batch size 5)', 1)": {"null": 50.0, "('LM (batch size 5)', 1)": [20.0, 20.0]},
            "('LM (batch size 5)', 4)": {"null": 160.0},
        }
    }
    table = write("throughputs.json", json.dumps(rates))
    seven = write(
        "seven.trace",
        "LM (batch size 5)\tcmd\t--steps\t1\t1000\t30.5\t1\n"
        "LM (batch size 5)\tcmd\t--steps\t1\t1600\t40.5\t4\nCycleGAN\tcmd\t-n\t1\t9\t50\t1\n",
    )
    options = JobOptions(throughputs=str(table), worker_type="v100")
    trace = read_jobs("gavel", [seven], options)
    assert trace.jobs["duration_s"].tolist() == [20, 10]
    assert trace.jobs["arrival_s"].tolist() == [0, 10]
    assert trace.report.rejected == {"no throughput for the job type and GPUs": 1}
    ten = write(
        "ten.trace",
        "LM (batch size 5)\tcmd\tdir\t--steps\t1\t1600\t4\t1.0\t-1.0\t7\n",
    )
    trace = read_jobs("gavel", [ten], options)
    assert trace.jobs["duration_s"].tolist() == [10]
    assert trace.jobs["gpus"].tolist() == [4]


HOURS = {"2024-03-31": 23, "2024-10-27": 25, "2024-06-01": 24}


@pytest.mark.parametrize(("day", "hours"), HOURS.items())
def test_local_days_have_23_24_or_25_hours(
    write: Callable[[str, str], Path], day: str, hours: int
) -> None:
    names = [f"{h:02d}:00" for h in range(24)]
    if hours == 23:
        names.remove("02:00")
    if hours == 25:
        names.insert(3, "02:00")
    rows = "".join(f"{day} {name},{i}\n" for i, name in enumerate(names))
    options = SeriesOptions(
        time="t", columns=("p",), tz="Europe/Berlin", unit="USD/kWh", ambiguous="infer"
    )
    series = read_series("prices", [write("day.csv", "t,p\n" + rows)], options).series[0][1]
    offset = 2 if day == "2024-06-01" or hours == 25 else 1  # that of 00:00
    midnight = datetime.fromisoformat(f"{day}T00:00+00:00") - timedelta(hours=offset)
    assert series.start == midnight
    assert series.values == list(range(hours))
    assert series.step_s == 3600


def test_a_zone_whose_summer_time_is_its_standard_time(write: Callable[[str, str], Path]) -> None:
    # Dublin in winter is "daylight saving" of -1 h in the tz database.
    rows = "".join(f"2024-10-27 0{h}:00,{v}\n" for v, h in enumerate([0, 1, 1, 2]))
    options = SeriesOptions(
        time="t", columns=("p",), tz="Europe/Dublin", unit="USD/kWh", ambiguous="infer"
    )
    series = read_series("prices", [write("d.csv", "t,p\n" + rows)], options).series[0][1]
    assert series.start == datetime(2024, 10, 26, 23, tzinfo=UTC)
    assert series.values == [0, 1, 2, 3]


def entsoe(rows: list[tuple[str, str]], zone: str = "CET/CEST") -> str:
    head = (
        f'"MTU ({zone})","Area","Sequence","Day-ahead Price (EUR/MWh)","Intraday Period ({zone})"'
    )
    lines = [f'"{mtu}","BZN|DE-LU","Without Sequence","{price}",""' for mtu, price in rows]
    return "\n".join([head, *lines, ""])


def test_entsoe_marks_tell_the_hour_that_comes_twice(write: Callable[[str, str], Path]) -> None:
    day = "27/10/2024"
    rows = [
        (f"{day} 01:00:00 - {day} 02:00:00", "10"),
        (f"{day} 02:00:00 (CEST) - {day} 02:00:00 (CET)", "20"),
        (f"{day} 02:00:00 (CET) - {day} 03:00:00", "30"),
        (f"{day} 03:00:00 - {day} 04:00:00", "40"),
    ]
    path = write("e.csv", entsoe(rows))
    found = read_series("entsoe", [path], SeriesOptions(usd_rate=1.5))
    series = found.series[0][1]
    assert series.start == datetime(2024, 10, 26, 23, tzinfo=UTC)  # 01:00 CEST
    assert series.step_s == 3600
    assert series.values == pytest.approx([0.015, 0.03, 0.045, 0.06])
    plain = entsoe([(mtu.replace(" (CEST)", "").replace(" (CET)", ""), p) for mtu, p in rows])
    again = read_series("entsoe", [write("p.csv", plain)], SeriesOptions(usd_rate=1.5))
    assert again.series[0][1] == series  # by their order


def test_entsoe_skipped_hour_has_a_row_without_a_price(write: Callable[[str, str], Path]) -> None:
    day = "31/03/2024"
    rows = [
        (f"{day} 01:00 - {day} 02:00", "1"),
        (f"{day} 02:00 - {day} 03:00", "N/A"),
        (f"{day} 03:00 - {day} 04:00", "-2"),
    ]
    found = read_series("entsoe", [write("e.csv", entsoe(rows))], SeriesOptions(usd_rate=1.0))
    assert found.series[0][1].start == datetime(2024, 3, 31, 0, tzinfo=UTC)
    assert found.series[0][1].values == [0.001, -0.002]
    assert found.report.rejected == {"no value": 1}


def test_entsoe_from_hours_to_quarter_hours(write: Callable[[str, str], Path]) -> None:
    # The market's change of 1 October 2025, in UTC: 22:00 on 30 September.
    rows = [("30/09/2025 21:00:00 - 30/09/2025 22:00:00", "40")]
    rows += [
        (f"30/09/2025 22:{q:02d}:00 - 30/09/2025 22:{(q + 15) % 60:02d}:00", str(q))
        for q in (0, 15, 30)
    ]
    rows.append(("30/09/2025 22:45:00 - 30/09/2025 23:00:00", "45"))
    path = write("e.csv", entsoe(rows, "UTC"))
    found = read_series("entsoe", [path], SeriesOptions(usd_rate=1000.0))
    series = found.series[0][1]
    assert series.start == datetime(2025, 9, 30, 21, tzinfo=UTC)
    assert series.step_s == 900
    assert series.values == [40, 40, 40, 40, 0, 15, 30, 45]


def test_several_columns_are_several_series(write: Callable[[str, str], Path]) -> None:
    rows = "".join(f"2024-01-01T{h:02d}:30:00+05:30,{h},{-h}\n" for h in range(5))
    options = SeriesOptions(time="t", columns=("a", "b"), unit="USD/kWh")
    found = read_series("prices", [write("w.csv", "t,a,b\n" + rows)], options)
    (_, a), (_, b) = found.series
    assert a.start == b.start == datetime(2023, 12, 31, 19, tzinfo=UTC)
    assert a.values == [-v for v in b.values] == [0, 1, 2, 3, 4]
    assert found.report.rows_read == found.report.rows_kept == 10


def brute_force_width(edges: dict[tuple[int, int], float], a: int, b: int, nodes: range) -> float:
    """Width of the widest simple path, by trying all of them."""
    best = 0.0
    between = [n for n in nodes if n not in (a, b)]
    for length in range(len(between) + 1):
        for middle in permutations(between, length):
            path = (a, *middle, b)
            best = max(best, min(edges.get(hop, 0.0) for hop in pairwise(path)))
    return best


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("suffix", ["graphml", "gml"])
def test_widest_path_against_all_paths(tmp_path: Path, directed: bool, suffix: str) -> None:
    rng = np.random.default_rng(1)
    for case in range(10):
        graph: Any = nx.MultiDiGraph() if directed else nx.MultiGraph()
        nodes = range(5)
        graph.add_nodes_from(f"N{n}" for n in nodes)
        sums: dict[tuple[int, int], float] = {}
        for _ in range(9):
            a, b = rng.choice(5, 2, replace=False).tolist()
            gbps = int(rng.integers(1, 20))
            graph.add_edge(f"N{a}", f"N{b}", LinkSpeedRaw=gbps * 1e9)
            for hop in [(a, b)] if directed else [(a, b), (b, a)]:
                sums[hop] = sums.get(hop, 0.0) + gbps
        path = tmp_path / f"{case}.{suffix}"
        (nx.write_graphml if suffix == "graphml" else nx.write_gml)(graph, path)
        found = read_network("topology", [path], NetworkOptions(disconnected="keep"))
        for a, b in permutations(nodes, 2):
            width = brute_force_width(sums, a, b, nodes)
            assert found.gbps.get((f"N{a}", f"N{b}"), 0.0) == pytest.approx(width, rel=1e-12)


def test_gml_that_forgets_to_say_multigraph(write: Callable[[str, str], Path]) -> None:
    text = 'graph [ node [ id 0 label "A" ] node [ id 1 label "A" ]'
    text += " edge [ source 0 target 1 LinkSpeedRaw 2000000000.0 ]" * 2 + " ]"
    found = read_network("topology", [write("t.gml", text)])
    assert found.gbps == {("A (0)", "A (1)"): 4.0, ("A (1)", "A (0)"): 4.0}


def test_matrix_by_names_not_positions(write: Callable[[str, str], Path]) -> None:
    path = write("m.csv", ",b,a\na,7000,0\nb,0,3000\n")
    found = read_network("matrix", [path], NetworkOptions(unit="Mbit/s"))
    assert found.gbps == {("a", "b"): 7.0, ("b", "a"): 3.0}
    rtt = read_network("matrix", [path], NetworkOptions(unit="ms RTT"))
    assert rtt.latency_ms == {("a", "b"): 3500.0, ("b", "a"): 1500.0}


# The rule that gives jobs models.


def trace_of(write: Callable[[str, str], Path], rows: int, seed: int = 0) -> Trace:
    rng = np.random.default_rng(seed)
    lines = ["job_id,num_gpu,submit_time,iterations,model_name,duration,interval"]
    lines += [
        f"{i},{rng.choice([1, 2, 3, 8, 16, 64])},{rng.integers(10**6)},1,m,"
        f"{int(np.ceil(rng.lognormal(6, 3)))},1"
        for i in range(rows)
    ]
    return read_jobs("tiresias", [write(f"t{seed}.csv", "\n".join(lines) + "\n")])


@pytest.mark.parametrize("base", ["paper", "physical"])
@pytest.mark.parametrize("gpus", ["free", "rigid"])
@pytest.mark.parametrize("models", ["ladder", "base"])
def test_execution_time_at_the_recorded_gpus_is_the_recorded_duration(
    write: Callable[[str, str], Path], tmp_path: Path, base: str, gpus: Any, models: Any
) -> None:
    trace = trace_of(write, 300)
    draft = Draft.of_base(base)
    if models == "base":  # models of 14 billion parameters and more need longer jobs
        trace = Trace(trace.jobs.assign(duration_s=trace.jobs["duration_s"] * 1000), trace.report)
    put_jobs(draft, trace, MatchOptions(gpus=gpus, models=models))
    out = tmp_path / "out.toml"
    draft.write(out)
    instance = build_instance(load_scenario(out), 0)
    arrays = instance.arrays
    rows = [line.split(",") for line in (tmp_path / "out.jobs.csv").read_text().splitlines()]
    assert rows[0][-2:] == ["trace_gpus", "trace_duration_s"]
    assert len(rows) - 1 == instance.n_jobs == trace.report.rows_kept
    for j, row in enumerate(rows[1:]):
        k, duration = int(row[-2]), float(row[-1])
        profile = arrays.job_profile[j]
        iteration_s = arrays.iteration_s[profile, k]
        error = abs(arrays.iterations[j] * iteration_s - duration)
        if arrays.iterations[j] > 1:
            assert error <= iteration_s / 2 * (1 + 1e-9)  # whole iterations
        if iteration_s <= 2 * 0.01 * duration:
            assert error <= 0.01 * duration * (1 + 1e-9)
        if gpus == "rigid":
            assert arrays.k_min[profile] == arrays.k_max[profile] == k
    coarse = [w for w in trace.report.warnings if "too short for the rule" in w]
    assert len(coarse) <= 1
    limit = 128 if gpus == "rigid" else 336
    assert max(int(row[-2]) for row in rows[1:]) <= limit


def test_error_bound_of_the_flat_trace() -> None:
    path = excerpt("jobs/philly_flat_head3000.csv")
    trace = read_jobs("philly-csv", [path], JobOptions(tz="UTC"))
    put_jobs(Draft.of_base("paper"), trace)
    assert trace.report.found["largest error of E_j(k) (%)"] <= 1.0
    assert not trace.report.warnings


def test_choices_depend_on_seed_and_line_alone(write: Callable[[str, str], Path]) -> None:
    trace = trace_of(write, 200)
    base = load_scenario("paper").model_dump(mode="json", exclude_none=True)

    def jobs(part: Any, seed: int = 0) -> Any:
        return match_durations(part, base, trace.report, MatchOptions(seed=seed)).jobs

    whole = jobs(trace.jobs).set_index("name")
    assert whole.equals(jobs(trace.jobs).set_index("name"))
    part = jobs(trace.jobs.iloc[::3]).set_index("name")
    assert part.equals(whole.loc[part.index])
    assert (jobs(trace.jobs, 1)["model"].to_numpy() != whole["model"].to_numpy()).any()
    assert whole["model"].nunique() >= 4


def test_capped_jobs_keep_their_gpu_seconds(write: Callable[[str, str], Path]) -> None:
    path = write("t.csv", "job_id,num_gpu,submit_time,duration\n0,672,0,1000\n1,1,5,1000\n")
    base = load_scenario("paper").model_dump(mode="json", exclude_none=True)
    trace = read_jobs("tiresias", [path])
    jobs = match_durations(trace.jobs, base, trace.report, MatchOptions(too_large="cap")).jobs
    assert jobs["trace_gpus"].tolist() == [336, 1]
    assert jobs["trace_duration_s"].tolist() == [2000, 1000]


def test_ladder_agrees_with_its_dimensions() -> None:
    from bace_env.schema import LanguageModel

    for entry in LADDER:
        model = LanguageModel.model_validate(entry)
        arch = model.architecture()
        assert arch is not None
        attention = arch.hidden * arch.head_dim * (2 * arch.heads + 2 * arch.kv_heads)
        layers = arch.layers * (attention + arch.matrices * arch.hidden * arch.ffn)
        embedding = arch.vocab * arch.hidden * (1 if arch.tied_embedding else 2)
        assert model.params_b == pytest.approx((layers + embedding) / 1e9, rel=0.03), model.name


# From files to a comparison.


@pytest.mark.jit
def test_imports_compose_and_run(
    run: ImportCommand,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs = "".join(f"{i},{1 + i % 4},{600 * i},1,m,{900 + i},1\n" for i in range(8))
    header = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
    hours = "".join(
        f"2024-03-0{d} {h:02d}:00,{50 - 3 * h},{40 + h}\n" for d in (1, 2) for h in range(24)
    )
    quarters = "".join(f"2024-03-01 {q // 4:02d}:{15 * (q % 4):02d},{q}\n" for q in range(2, 96))
    run.write({"jobs.csv": header + jobs, "hours.csv": "t,a,b\n" + hours})
    run.write({"quarters.csv": "t,p\n" + quarters, "net.csv": ",A,B,C\nA,,5,4\nB,3,,2\nC,1,2,\n"})
    net = ["matrix", "net.csv", "--unit", "Gbit/s", "--gpus", "8", "--price", "0.1"]
    assert run.run(*net, "--out", "net.toml").code == 0
    assert run.run("tiresias", "jobs.csv", "--base", "net.toml", "--out", "jobs.toml").code == 0
    both = ["prices", "hours.csv", "--time", "t", "--price", "a", "--price", "b", "--tz", "UTC"]
    both += ["--unit", "EUR/MWh", "--usd-rate", "1.1", "--region", "A", "--region", "C"]
    assert run.run(*both, "--base", "jobs.toml", "--out", "hours.toml").code == 0
    other = ["prices", "quarters.csv", "--time", "t", "--price", "p", "--tz", "UTC"]
    other += ["--unit", "USD/MWh", "--region", "B", "--beyond", "hold"]
    late = run.run(*other, "--base", "hours.toml", "--out", "late.toml")
    assert late.code == 2
    assert "time 0 is 2024-03-01T00:00:00Z (the base's), but the series of B covers" in late.err
    result = run.run(*other, "--base", "hours.toml", "--out", "all.toml",
                     "--start", "2024-03-01T00:45:00Z", "--json", "report.json")  # fmt: skip
    assert result.code == 0, result.err
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["rows_read"] == report["rows_kept"] == 94

    scenario = load_scenario("all.toml")
    assert [entry.format for entry in scenario.imports] == [
        "matrix", "tiresias", "prices", "prices",
    ]  # fmt: skip
    assert scenario.imports[1].options["rule"] == "match-duration"
    assert scenario.imports[1].options["rule_seed"] == 0
    instance = build_instance(scenario, 0)
    a = instance.arrays
    # A: 15 minutes of its first hour are left at 00:45, then hour by hour.
    assert a.price_time_s[0, :3].tolist() == [0, 900, 4500]
    assert a.price_usd_per_kwh[0, :2] == pytest.approx([0.055, 0.0517])
    # B: quarters from 00:45 (the fourth) on.
    assert a.price_time_s[1, :3].tolist() == [0, 900, 1800]
    assert a.price_usd_per_kwh[1, :2] == pytest.approx([0.003, 0.004])
    assert a.link_bytes_per_s[0].tolist() == [0, 5e9 / 8, 4e9 / 8]
    assert instance.price_end_s == 47.25 * 3600  # the end of A and C, for they may not be held
    policy = ["--policy", "bace", "--no-baselines", "--episodes", "1", "--check"]
    outcome = CommandLine(tmp_path, monkeypatch, capsys).run("--scenario", "all.toml", *policy)
    assert outcome.code == 0, outcome.err
    assert "Checked: 1 schedules" in outcome.out


def test_a_region_that_is_repriced_keeps_the_others(run: ImportCommand, tmp_path: Path) -> None:
    rows = "".join(f"2024-01-01 {h:02d}:00,{h}\n" for h in range(24))
    run.write({"p.csv": "t,p\n" + rows})
    args = ["prices", "p.csv", "--time", "t", "--price", "p", "--tz", "UTC", "--unit", "USD/MWh"]
    assert run.run(*args, "--region", "EU-West", "--out", "a.toml").code == 0
    # Over itself: the base is read before anything is written.
    again = run.run(*args, "--region", "EA-East", "--base", "a.toml", "--out", "a.toml", "--force")
    assert again.code == 0, again.err
    prices = {r.name: r.price_usd_per_kwh for r in load_scenario(tmp_path / "a.toml").regions}
    assert prices["EU-West"] == prices["EA-East"] != prices["OC-East"] == 0.295


def test_latencies_go_on_the_links_that_the_base_has(write: Callable[[str, str], Path]) -> None:
    draft = Draft.of_base("tiny")
    path = write("rtt.csv", ",cheap,dear\ncheap,,30\ndear,50,\n")
    put_network(draft, read_network("matrix", [path], NetworkOptions(unit="ms RTT")))
    draft.check()
    assert draft.data["network"]["links"] == [
        {"source": a, "target": b, "gbps": 4.0, "both_ways": False, "latency_ms": ms}
        for a, b, ms in (("cheap", "dear", 15.0), ("dear", "cheap", 25.0))
    ]


def test_carbon_and_traffic_prices_become_tables(run: ImportCommand, tmp_path: Path) -> None:
    from bace_env.tables import parse_series

    kinds = ("direct", "Life cycle")
    head = ",".join(["Datetime (UTC)", *(f"Carbon intensity gCO₂eq/kWh ({k})" for k in kinds)])
    head += "\n"
    run.write({"c.csv": head + "".join(f"2024-01-01 0{h}:00:00,{h},{h + 50}\n" for h in range(4))})
    args = ["carbon", "c.csv", "--basis", "lca", "--region", "Oslo"]
    assert run.run(*args, "--out", "x.toml").code == 2
    assert run.run(*args, "--out", "carbon.csv").code == 0
    series = parse_series((tmp_path / "carbon.csv").read_text(), "carbon.csv")["Oslo"]
    assert series.values == [50, 51, 52, 53]
    run.write({"usd.csv": ",a,b\na,,0.02\nb,0.09,\n"})
    assert run.run("matrix", "usd.csv", "--unit", "USD/GB", "--out", "egress.csv").code == 0
    text = (tmp_path / "egress.csv").read_text()
    assert text == "source,target,usd_per_gb\na,b,0.02\nb,a,0.09\n"


def test_carbon_becomes_part_of_a_scenario(run: ImportCommand, tmp_path: Path) -> None:
    head = "Datetime (UTC),Carbon intensity gCO₂eq/kWh (direct)\n"
    run.write(
        {
            "c.csv": head + "".join(f"2024-01-01 0{h}:00:00,{h}\n" for h in range(4)),
            "base.toml": """
name = "base"
start = 2024-01-01T01:00:00Z
regions = [{ name = "Oslo", gpus = 2, price_usd_per_kwh = 0.1 }]
models = [{ name = "m", activation_mb = 1.0, measured = { gpus = [1], t_comp_ms = [9.0] } }]
jobs = [{ name = "j", model = "m", batch_size = 1, iterations = 1 }]
""",
        }
    )
    args = ["carbon", "c.csv", "--basis", "direct", "--region", "Oslo", "--base", "base.toml"]
    result = run.run(*args, "--beyond", "hold", "--out", "x.toml")
    assert result.code == 0, result.err
    assert {path.name for path in tmp_path.glob("x.*")} == {"x.toml", "x.carbon.csv"}
    instance = build_instance(load_scenario(tmp_path / "x.toml"), 0)
    (carbon,) = instance.carbon
    assert carbon.values.tolist() == [1, 2, 3]  # from the base's start on
    assert carbon.cumulative.tolist() == [0, 3600, 3 * 3600]
    # It stays where something else is imported on top.
    again = ["matrix", "bw.csv", "--unit", "Gbit/s", "--base", "x.toml", "--out", "y.toml"]
    run.write({"bw.csv": ",Oslo,Bergen\nOslo,,1\nBergen,1,\n"})
    assert run.run(*again).code == 2  # links need two regions
    price = ["citylearn", "p.csv", "--start-time", "2024-01-01T00:00:00Z", "--unit", "USD/kWh"]
    run.write({"p.csv": "electricity_pricing\n0.1\n0.2\n0.3\n"})
    result = run.run(*price, "--step", "60", "--region", "Oslo", "--base", "x.toml",
                     "--beyond", "hold", "--out", "z.toml")  # fmt: skip
    assert result.code == 0, result.err
    kept = build_instance(load_scenario(tmp_path / "z.toml"), 0)
    assert kept.carbon[0].values.tolist() == [1, 2, 3]
    assert run.run(*args, "--name", "n", "--out", "t.csv").err == (
        "error: --name: goes with a scenario (--out FILE.toml), got --out t.csv\n"
    )


def test_cluster_descriptions_set_gpus(run: ImportCommand, tmp_path: Path) -> None:
    run.write(
        {
            "nodes.csv": "sn,gpu,model\na,8,T4\nb,2,P100\nb,2,P100\n",
            "spec.csv": "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node\n1,16,4,128\n",
            "gpus.csv": "date,va,vb,total\n2020-09-01,64,96,160\n2020-09-02,64,96,999\n",
        }
    )
    regions = ["--region", "EU-West", "--region", "EA-East", "--region", "OC-East"]
    files = ["nodes.csv", "spec.csv", "gpus.csv"]
    result = run.run("cluster", *files, *regions, "--date", "2020-09-01", "--out", "c.toml")
    assert result.code == 0, result.err
    assert "rejected: 1 node for the second time" in result.out
    gpus = {r.name: r.gpus for r in load_scenario(tmp_path / "c.toml").regions}
    assert (gpus["EU-West"], gpus["EA-East"], gpus["OC-East"]) == (10, 64, 160)


def test_every_row_is_kept_or_rejected_once() -> None:
    for read in every_excerpt():
        report = read()
        assert report.rows_read == report.rows_kept + sum(report.rejected.values()), report.format
        json.dumps(report.to_dict(), allow_nan=False)


def every_excerpt() -> Iterator[Callable[[], Any]]:
    jobs = [
        ("philly-csv", "philly_flat_head3000.csv", JobOptions(tz="UTC", first=100)),
        ("openb", "alibaba_openb_pod_list_default_head2000.csv", JobOptions()),
    ]
    for name, file, options in jobs:
        yield lambda n=name, f=file, o=options: read_jobs(n, [excerpt(f"jobs/{f}")], o).report
    for file in ("throughput", "latency", "cost"):
        path = f"network/skyplane_{file}_18regions.csv"
        yield lambda p=path: read_network("skyplane", [excerpt(p)]).report
    path = "prices/standardized/SG_electricity_prices_2024.csv"
    yield lambda p=path: read_series("sustain-cluster", [excerpt(p)]).report


def test_put_prices_wants_one_region_per_series(write: Callable[[str, str], Path]) -> None:
    rows = "2024-01-01 00:00,1,2\n2024-01-01 01:00,1,2\n"
    options = SeriesOptions(time="t", columns=("a", "b"), tz="UTC", unit="USD/kWh")
    found = read_series("prices", [write("w.csv", "t,a,b\n" + rows)], options)
    with pytest.raises(ConfigError, match="2 series need as many regions, got 1: a, b"):
        put_prices(Draft.of_base("paper"), found, ["EU-West"])
    with pytest.raises(ConfigError, match="the base has no region 'a'"):
        put_prices(Draft.of_base("paper"), found, [])


def test_commands_and_readers_know_the_same_formats() -> None:
    known = {*JOB_FORMATS, *SERIES_FORMATS, *NETWORK_FORMATS, "cluster"}
    assert set(command._ABOUT) == known


def test_without_the_libraries_one_line_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pandas'] = None; "
        "sys.argv = ['io', 'openb', 'x', '--out', 'y.toml']; "
        "from bace_env.io.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: imports need pandas: pip install 'bace-env[io]'")
    assert done.stderr.count("\n") == 1


def test_loading_what_was_imported_needs_no_library(run: ImportCommand, tmp_path: Path) -> None:
    run.write({"t.csv": "job_id,num_gpu,submit_time,duration\n0,1,0,1000\n"})
    assert run.run("tiresias", "t.csv", "--out", "t.toml").code == 0
    program = (
        "import sys; from bace_env.config import load_scenario; import eval.compare; "
        "load_scenario('t.toml'); assert not {'pandas', 'networkx', 'tomli_w'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_large_files_stay_cheap(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "imports.py"), "--rows", "20000"]
    out = tmp_path / "times.json"
    command += ["--case", "philly-csv", "--json", str(out)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    result = json.loads(out.read_text())["philly-csv"]
    assert result["seconds"] < 30 and result["mb"] < 700


def test_nothing_moves_in_time_unasked(run: ImportCommand, tmp_path: Path) -> None:
    rows = "".join(f"2024-01-0{d} {h:02d}:00,{h}\n" for d in (1, 2) for h in range(24))
    run.write({"p.csv": "t,p\n" + rows})
    run.write({"new.csv": "at,n,s\n2024-01-01 06:00,1,900\n2024-01-01 07:30,2,900\n"})
    run.write({"old.csv": "at,n,s\n2017-05-01 06:00,1,900\n"})
    prices = [
        "prices",
        "p.csv",
        "--time",
        "t",
        "--price",
        "p",
        "--tz",
        "UTC",
        "--unit",
        "USD/MWh",
        "--region",
        "EU-West",
    ]
    jobs = ["--arrival", "at", "--gpu-count", "n", "--duration", "s", "--tz", "UTC"]

    def arrivals(name: str) -> list[float]:
        return [job.arrival_h or 0.0 for job in load_scenario(tmp_path / name).jobs]

    def first_price(name: str) -> float:
        return float(
            build_instance(load_scenario(tmp_path / name), 0).arrays.price_usd_per_kwh[0, 0]
        )

    # Jobs first: time 0 is their first arrival, and prices are read from there on.
    assert run.run("jobs", "new.csv", *jobs, "--out", "a.toml").code == 0
    assert run.run(*prices, "--base", "a.toml", "--out", "b.toml").code == 0
    assert (arrivals("b.toml"), first_price("b.toml")) == ([0, 1.5], 0.006)
    # Prices first: jobs need to be told whether they move.
    assert run.run(*prices, "--out", "c.toml").code == 0
    refused = run.run("jobs", "new.csv", *jobs, "--base", "c.toml", "--out", "d.toml")
    assert refused.code == 2
    assert "--t0: time 0 of the base is 2024-01-01T00:00:00Z, but the first job" in refused.err
    stay = ["--base", "c.toml", "--out", "d.toml", "--t0", "2024-01-01T00:00:00Z"]
    assert run.run("jobs", "new.csv", *jobs, *stay).code == 0
    assert (arrivals("d.toml"), first_price("d.toml")) == ([6, 7.5], 0.0)
    move = ["--base", "c.toml", "--out", "e.toml", "--t0", "2017-05-01T06:00:00Z"]
    moved = run.run("jobs", "old.csv", *jobs, *move)
    assert "changed: 1 jobs moved in time: their time 0 becomes 2024-01-01T00:00:00Z" in moved.out
    assert arrivals("e.toml") == [0]
    # Old jobs, new prices: the option that moves them is named.
    assert run.run("jobs", "old.csv", *jobs, "--out", "f.toml").code == 0
    refused = run.run(*prices, "--base", "f.toml", "--out", "g.toml")
    assert "--start: time 0 is 2017-05-01T06:00:00Z (the base's), but the series" in refused.err
    start = ["--start", "2024-01-01T12:00:00Z", "--base", "f.toml", "--out", "g.toml"]
    assert "time 0 was 2017-05-01T06:00:00Z in the base" in run.run(*prices, *start).out
    assert first_price("g.toml") == 0.012
