"""Jobs and prices in files beside a scenario; series that begin before time 0, and that end."""

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from command_line import CommandLine
from hypothesis import given
from hypothesis import strategies as st

import bace_env
from agents.policy import make_policy
from bace_env.checker import check_trace, violations
from bace_env.config import load_scenario, parse_scenario
from bace_env.errors import ConfigError, PriceEndError
from bace_env.pipeline import next_price_change, price_at, price_integral
from bace_env.scenario import Sampler, build_instance
from bace_env.simulator import WAIT, Placement, Simulator
from bace_env.tables import TimedSeries, format_series, parse_jobs, parse_series
from eval.rollout import run_episode

MINE = """
name = "mine"
jobs_file = "jobs.csv"

[pipeline]
intra_gbps = 8.0

[gpu]
power_w = 1000.0

[[regions]]
name = "Oslo"
gpus = 2
price_usd_per_kwh = { file = "prices.csv", beyond = "error" }

[[regions]]
name = "Dublin"
gpus = 2
price_usd_per_kwh = { file = "prices.csv", series = "IE", unit = "USD/MWh", beyond = "wrap" }

[network]
rule = "listed"
links = [{ source = "Oslo", target = "Dublin", gbps = 4.0 }]

[[models]]
name = "m"
activation_mb = 1.0
k_max = 1
measured = { gpus = [1], t_comp_ms = [500.0] }

[workload]
arrivals = "listed"
"""
# One iteration of one micro-batch on one GPU takes 2 * 0.5 s = 1 s.
JOBS = "name,model,batch_size,iterations,arrival_h,trace_gpus\na,m,1,5400,0.0,7\nb,m,1,1800,0.5,7\n"
PRICES = (
    "utc,Oslo,IE\n2024-03-31T00:00:00Z,0.1,\n2024-03-31T00:30:00Z,,100\n"
    "2024-03-31T01:00:00Z,-0.2,\n2024-03-31T01:30:00Z,,300\n2024-03-31T02:00:00Z,0.4,\n"
)
START = 'start = 2024-03-31T00:30:00Z\nname = "mine"'


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(MINE.replace('name = "mine"', START))
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "prices.csv").write_text(PRICES)
    return tmp_path / "mine.toml"


def test_jobs_and_prices_come_from_the_files(mine: Path) -> None:
    scenario = load_scenario(mine)
    instance = build_instance(scenario, 0)
    a = instance.arrays
    assert instance.job_names == ("a", "b")
    assert a.arrival_s.tolist() == [0, 1800]
    assert a.iterations.tolist() == [5400, 1800]
    # Oslo: half an hour of its first price has passed at time 0; known to 03:00 UTC.
    assert a.price_time_s[0, :3].tolist() == [0, 1800, 5400]
    assert a.price_usd_per_kwh[0, :3].tolist() == [0.1, -0.2, 0.4]
    assert instance.price_end_s == 9000
    assert a.price_period_s.tolist() == [np.inf, 7200]
    assert a.price_usd_per_kwh[1, :2].tolist() == [0.1, 0.3]


def test_cost_over_price_changes_a_negative_hour_and_a_dst_day_by_hand(mine: Path) -> None:
    # Berlin's clock jumps from 02:00 to 03:00 at 01:00 UTC of this day: nothing happens to prices.
    instance = build_instance(load_scenario(mine), 0)
    simulator = Simulator(instance)
    simulator.step(Placement(0, (0,), (1,)))  # 00:30 to 02:00 UTC
    simulator.step(Placement(1, (1,), (1,)))  # 01:00 to 01:30 UTC
    assert simulator.done
    trace = simulator.trace("by hand")
    check_trace(trace)
    # Oslo: 0.5 h at 0.1 and 1 h at -0.2; Dublin: 0.5 h at 0.1 USD/kWh; 1 kW each.
    assert [job["cost_usd"] for job in trace.to_dict()["jobs"]] == pytest.approx([0.05 - 0.2, 0.05])
    assert [job["energy_kwh"] for job in trace.to_dict()["jobs"]] == pytest.approx([1.5, 0.5])


@pytest.mark.parametrize("beyond", ["error", "hold", "repeat"])
def test_what_comes_after_the_end(mine: Path, beyond: str) -> None:
    text = mine.read_text().replace('beyond = "error"', f'beyond = "{beyond}"')
    mine.write_text(text)
    (mine.parent / "jobs.csv").write_text(JOBS.replace("5400", "12600"))  # to 04:00 UTC
    simulator = Simulator(build_instance(load_scenario(mine), 0))
    if beyond == "error":
        with pytest.raises(PriceEndError, match=r"known up to 2\.5 h, but job a runs until 3\.5 h"):
            simulator.step(Placement(0, (0,), (1,)))
        return
    simulator.step(Placement(0, (0,), (1,)))
    simulator.step(Placement(1, (1,), (1,)))
    trace = simulator.trace("by hand")
    check_trace(trace)
    last = 0.4 if beyond == "hold" else 0.1  # 03:00 to 04:00
    assert trace.to_dict()["jobs"][0]["cost_usd"] == pytest.approx(0.05 - 0.2 + 0.4 + last)


def test_waiting_past_the_end_fails_too(mine: Path) -> None:
    (mine.parent / "jobs.csv").write_text(JOBS.replace("b,m,1,1800,0.5", "b,m,1,1800,4.0"))
    simulator = Simulator(build_instance(load_scenario(mine), 0))
    with pytest.raises(PriceEndError, match=r"known up to 2\.5 h, but jobs wait until 4 h"):
        simulator.step(Placement(0, (0,), (1,)))
    (mine.parent / "jobs.csv").write_text(JOBS)
    simulator = Simulator(build_instance(load_scenario(mine), 0))
    with pytest.raises(PriceEndError, match="jobs wait until"):
        for _ in range(100):
            simulator.step(WAIT)


def test_a_run_names_policy_and_seed_and_fails(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (mine.parent / "jobs.csv").write_text(JOBS.replace("5400", "54000"))
    with pytest.raises(PriceEndError, match="policy bace on scenario mine, seed 0: prices: known"):
        run_episode(build_instance(load_scenario(mine), 0), make_policy("bace"))
    outcome = CommandLine(mine.parent, monkeypatch, capsys).run(
        "--scenario", "mine.toml", "--episodes", "1", "--no-baselines"
    )
    assert outcome.code == 1
    assert outcome.err.startswith("error: policy bace on scenario mine, seed 0: prices: known up")
    assert outcome.err.count("\n") == 1


def test_the_checker_knows_the_end(mine: Path) -> None:
    instance = build_instance(load_scenario(mine), 0)
    trace = run_episode(instance, make_policy("bace"))
    data = instance.to_dict() | {"price_end_s": 3600.0}
    problems = violations(data, trace.to_dict(with_times=False))
    assert any("prices are known to 3600" in problem for problem in problems)


def test_environments_want_prices_that_go_on(mine: Path) -> None:
    with pytest.raises(ConfigError, match=r"beyond: must be \"hold\" or \"repeat\" in an env"):
        gymnasium.make(bace_env.ENV_ID, scenario=str(mine))


def test_a_saved_scenario_is_the_same_without_the_files(mine: Path, tmp_path: Path) -> None:
    scenario = load_scenario(mine)
    copy = tmp_path / "elsewhere.json"
    data = scenario.model_dump(mode="json", exclude_none=True)
    data["pipeline"]["intra_gbps"] = 8.0
    copy.write_text(json.dumps(data))
    assert load_scenario(copy).fingerprint() == scenario.fingerprint()


def test_imports_do_not_change_the_fingerprint(mine: Path) -> None:
    scenario = load_scenario(mine)
    data = scenario.model_dump() | {"imports": [{"format": "x", "files": ["f"], "sha256": ["0"]}]}
    assert parse_scenario(data).fingerprint() == scenario.fingerprint()


def test_overrides_reach_into_what_was_read(mine: Path) -> None:
    other = mine.parent / "other.csv"
    other.write_text(JOBS.replace("a,m", "c,m"))
    overrides = ["jobs.b.iterations=7", "regions.Oslo.price_usd_per_kwh.beyond=hold"]
    scenario = load_scenario(mine, overrides)
    assert scenario.jobs[1].iterations == 7
    assert build_instance(scenario, 0).price_end_s == math.inf
    assert load_scenario(mine, ["jobs_file=other.csv"]).jobs[0].name == "c"
    table = 'regions.Oslo.price_usd_per_kwh={ file = "prices.csv", series = "IE" }'
    assert load_scenario(mine, [table]).regions[0] != scenario.regions[0]


def test_time_zero_is_that_of_the_files_if_they_agree(mine: Path) -> None:
    without = mine.read_text().replace("start = 2024-03-31T00:30:00Z\n", "")
    mine.write_text(without)
    with pytest.raises(ConfigError, match=r"start: needed .* 2024-03-31T00:00Z, 2024-03-31T00:30Z"):
        load_scenario(mine)
    both_of_one = without.replace(', series = "IE"', ', series = "Oslo"')
    mine.write_text(both_of_one)
    assert load_scenario(mine).start == datetime(2024, 3, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("T00:30:00Z", "T00:30:00", r"start: must state its offset from UTC"),
        ("2024-03-31T00:30:00Z", '"soon"', r"start: must be a time such as"),
        ("2024-03-31T00:30:00Z", "2024-03-30T00:30:00Z", r"start: prices\.csv covers 2024-03-31T"),
        ("2024-03-31T00:30:00Z", "2024-03-31T09:30:00Z", r"start: prices\.csv covers 2024-03-31T"),
        ('"prices.csv", beyond', '"no.csv", beyond', r"no\.csv: cannot read: No such file"),
        (
            'series = "IE"',
            'series = "EI"',
            r"Dublin\..*\.series: prices\.csv has no 'EI'; known: Oslo, IE",
        ),
        ('series = "IE"', "values = [1.0]", r"Dublin\.price_usd_per_kwh: values: unknown key"),
        ('"USD/MWh"', '"EUR/MWh"', r"Dublin\.price_usd_per_kwh: unit: .*got 'EUR/MWh'"),
        ('"jobs.csv"', "7", r"jobs_file: must be a name, got 7"),
        ('"jobs.csv"', '"no.csv"', r"scenario .*no\.csv: cannot read"),
        ("[workload]", '[[jobs]]\nname = "x"\n[workload]', r"jobs: give \[\[jobs\]\] or jobs_file"),
    ],
)
def test_bad_references(mine: Path, old: str, new: str, message: str) -> None:
    text = mine.read_text()
    assert old in text
    mine.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message) as error:
        load_scenario(mine)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"jobs\.csv: unknown column ''"),
        ("name,modle\n", r"unknown column 'modle'; did you mean 'model'\?"),
        ("name,model\n", r"jobs\.csv: holds no job"),
        ("name,model\n\na,m,1\n", r"jobs\.csv line 3: 2 columns expected"),
        ("name,iterations\na,1.5\n", r"line 2: iterations must be a whole number, got '1\.5'"),
        ("name,arrival_h\na,soon\n", r"line 2: arrival_h must be a number, got 'soon'"),
        ('name\n"a\n', r"jobs\.csv line 2: not valid CSV"),
    ],
)
def test_bad_job_lists(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_jobs(text, "jobs.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,a\n", r"p\.csv: the header must be utc and then one name per series, got time,a"),
        ("utc,a,a\n", r"the header must be utc"),
        ("utc,a\n", r"column a: needs at least two values, got 0"),
        ("utc,a\n2024-01-01T00:00,1\n", r"line 2: must state its offset from UTC \(Z\)"),
        ("utc,a\nnoon,1\n", r"line 2: not a time such as .*got 'noon'"),
        ("utc,a\n2024-01-01T00:00Z,x\n", r"line 2: not a number: 'x'"),
        ("utc,a\n2024-01-01T00:00Z,1\n2024-01-01T00:00Z,1\n", r"line 3: times must ascend"),
        (
            "utc,a\n2024-01-01T00:00Z,1\n2024-01-01T01:00Z,1\n2024-01-01T03:00Z,1\n",
            r"column a line 4: values must be equally spaced \(1:00:00 at first\), got 2:00:00",
        ),
    ],
)
def test_bad_series_files(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_series(text, "p.csv")


def test_blank_lines_bom_and_crlf_are_fine() -> None:
    text = "\ufeff" + JOBS.replace("\n", "\r\n\r\n")
    assert [job["name"] for job in parse_jobs(text, "jobs.csv")] == ["a", "b"]
    assert parse_jobs(text, "jobs.csv")[0] == {
        "name": "a", "model": "m", "batch_size": 1, "iterations": 5400, "arrival_h": 0.0,
    }  # fmt: skip


@given(
    st.dictionaries(
        st.text('abcxyz," é', min_size=1)
        .map(str.strip)
        .filter(lambda name: name not in ("", "utc")),
        st.tuples(
            st.integers(0, 200),
            st.integers(1, 90),
            st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_series_file_is_read_back_exactly(
    made: dict[str, tuple[int, int, Sequence[float]]],
) -> None:
    epoch = datetime(2024, 3, 31, tzinfo=UTC)
    series = {
        name: TimedSeries(epoch + timedelta(minutes=first), 60.0 * step, list(values))
        for name, (first, step, values) in made.items()
    }
    assert parse_series(format_series(series), "p.csv") == series


@pytest.mark.jit
@given(
    st.lists(st.integers(-50, 50), min_size=2, max_size=12),
    st.integers(0, 40),
    st.sampled_from(["repeat", "hold"]),
    st.lists(st.integers(0, 400), min_size=1, max_size=8),
)
def test_a_series_that_began_before_time_0_is_in_force_as_if_it_had_been_followed(
    values: list[int], offset_quarters: int, beyond: str, at_quarters: list[int]
) -> None:
    # Steps of an hour, times in quarters of an hour (and one second before each).
    if beyond == "hold":
        offset_quarters = min(offset_quarters, 4 * len(values) - 1)
    price = {"values": values, "offset_h": offset_quarters / 4, "beyond": beyond}
    data = load_scenario("tiny").model_dump()
    data["regions"][0]["price_usd_per_kwh"] = price
    a = Sampler(parse_scenario(data)).draw(0).arrays
    n = int(a.price_count[0])
    times, prices = a.price_time_s[0, :n].copy(), a.price_usd_per_kwh[0, :n].copy()
    cumulative, period = a.price_cumulative[0, :n].copy(), float(a.price_period_s[0])

    def expected(t: float) -> float:
        step = math.floor((t + 900 * offset_quarters) / 3600)
        return values[step % len(values) if beyond == "repeat" else min(step, len(values) - 1)]

    for quarter in at_quarters:
        for t in {max(900.0 * quarter - 1, 0.0), 900.0 * quarter}:
            assert price_at(times, prices, period, t) == expected(t)
        whole = sum(900 * expected(900.0 * q) for q in range(quarter))
        got = price_integral(times, prices, cumulative, period, 900.0 * quarter)
        assert got == pytest.approx(whole, rel=1e-9, abs=1e-6)
        following = next_price_change(times, period, 900.0 * quarter)
        assert following == math.inf or following > 900 * quarter
    if beyond == "repeat":
        assert period == 3600 * len(values)
        data["regions"][0]["price_usd_per_kwh"] = price | {"offset_h": 0.0}
        same = Sampler(parse_scenario(data)).draw(0).arrays.ref_usd_per_gpu_s  # a mean over time
        assert a.ref_usd_per_gpu_s == pytest.approx(same, rel=1e-9)


def test_a_long_list_loads_soon(tmp_path: Path) -> None:
    n = 20_000
    header, *_ = JOBS.splitlines()
    rows = "".join(f"j{i},m,1,10,{i / 100},1\n" for i in range(n))
    (tmp_path / "mine.toml").write_text(
        MINE.replace('{ file = "prices.csv", beyond = "error" }', "0.1").replace(
            '{ file = "prices.csv", series = "IE", unit = "USD/MWh", beyond = "wrap" }', "0.2"
        )
    )
    (tmp_path / "jobs.csv").write_text(f"{header}\n{rows}")
    assert len(load_scenario(tmp_path / "mine.toml").jobs) == n
