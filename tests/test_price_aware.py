"""Policies that know the price series: by hand, and against what they share with `bace`."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import instances

from agents.explanation import Explains
from agents.policy import make_policy
from agents.price_aware import forecast_rates, median_of_day
from bace_env.checker import check_trace
from bace_env.config import load_scenario, parse_scenario
from bace_env.errors import BaceError, ConfigError
from bace_env.instance import Instance
from bace_env.scenario import build_instance
from bace_env.simulator import Pause, Placement, Simulator
from eval.chosen import load_saved
from eval.experiment import Request, run_comparison
from eval.replay import explain_episode, replay
from eval.report import save_run
from eval.rollout import run_episode

NAMES = ("bace-forecast", "bace-defer")


def world(regions: list[Any], jobs: list[tuple[float, int]], gpus: int = 1) -> Instance:
    """Jobs of (arrival in h, hours on one GPU) on regions of equal size with these prices."""
    return build_instance(
        parse_scenario(
            {
                "name": "by hand",
                "regions": [
                    {"name": f"r{i}", "gpus": gpus, "price_usd_per_kwh": price}
                    for i, price in enumerate(regions)
                ],
                "network": {"rule": "listed"},
                "gpu": {"power_w": 1000.0},
                "pipeline": {"intra_gbps": math.inf},
                "models": [
                    {
                        "name": "m",
                        "activation_mb": 1.0,
                        "measured": {"gpus": [1], "t_comp_ms": [1.8e6]},
                    }
                ],
                "jobs": [
                    {
                        "name": f"j{i}",
                        "model": "m",
                        "batch_size": 1,
                        "iterations": hours,
                        "arrival_h": arrival,
                    }
                    for i, (arrival, hours) in enumerate(jobs)
                ],
                "workload": {"arrivals": "listed"},
            }
        ),
        0,
    )


def series(*values: float, **more: Any) -> dict[str, Any]:
    return {"values": list(values), **more}


def started(name: str, instance: Instance) -> list[tuple[float, int]]:
    """Start in hours and region of each job."""
    trace = run_episode(instance, make_policy(name))
    check_trace(trace)
    return [
        (float(start / 3600), int(path[0]))
        for start, path in zip(trace.start_s, trace.path, strict=True)
    ]


def test_the_forecast_prefers_what_the_run_will_pay() -> None:
    # Now r0 is the cheaper one; over two hours r1 is (0.3 to 0.4 on the mean), over one r0.
    regions = [series(0.1, 0.7, 0.7, 0.7), 0.3]
    assert started("bace", world(regions, [(0, 2)])) == [(0, 0)]
    assert started("bace-forecast", world(regions, [(0, 2)])) == [(0, 1)]
    assert started("bace-forecast", world(regions, [(0, 1)])) == [(0, 0)]
    # In a quarter of an hour the price rises: 0.25 * 0.1 + 0.75 * 0.7 = 0.55 > 0.3.
    assert started("bace-forecast", world(regions, [(0.75, 1)])) == [(0.75, 1)]


def test_forecast_rates_by_hand() -> None:
    arrays = world([series(0.1, -0.5, 0.3, step_h=0.5), 0.2], [(0, 1)]).arrays
    out = np.empty(2)
    forecast_rates(arrays, 900.0, 3600.0, out)  # 0:15 to 1:15
    assert out == pytest.approx([0.25 * 0.1 - 0.5 * 0.5 + 0.25 * 0.3, 0.2])
    forecast_rates(arrays, 1800.0, 0.0, out)  # no time: the price now
    assert out == pytest.approx([-0.5, 0.2])


@settings(max_examples=60, deadline=None)
@given(instances(), st.integers(0, 30))
def test_the_forecast_starts_the_job_that_bace_starts(instance: Instance, steps: int) -> None:
    # So does a forecast on as many GPUs: prices decide neither.
    simulator, bace, forecast = Simulator(instance), make_policy("bace"), make_policy(NAMES[0])
    for _ in range(steps):
        if simulator.done:
            return
        one, other = bace.act(simulator.view), forecast.act(simulator.view)
        assert isinstance(one, Placement) == isinstance(other, Placement)
        if isinstance(one, Placement) and isinstance(other, Placement):
            assert one.job == other.job
            assert sum(one.gpus) == sum(other.gpus)
            assert simulator.view.why_invalid(other) is None
        elif not simulator.view.running.size:
            return
        simulator.step(other)


def test_with_constant_prices_both_decide_as_bace() -> None:
    jobs = [(0.0, 5), (0.0, 1), (1.0, 2), (1.5, 4)]
    instance = world([0.2, 0.1], jobs)
    assert len({tuple(started(name, instance)) for name in ("bace", *NAMES)}) == 1


DAY = [0.4] * 8 + [0.2] * 8 + [0.3] * 8  # median 0.3, paid from 8:00 on


def test_a_job_waits_for_the_median_of_the_day() -> None:
    assert started("bace-defer:deadline=100", world([series(*DAY)], [(0, 2)])) == [(8, 0)]
    assert started("bace-defer:deadline=100", world([series(*DAY)], [(17, 2)])) == [(17, 0)]
    # A day later the series repeats: 26:00 is 2:00.
    assert started("bace-defer:deadline=100", world([series(*DAY)], [(26, 2)])) == [(32, 0)]


@pytest.mark.parametrize(("deadline", "start"), [(0.0, 0.0), (0.5, 1.0), (1.3, 2.6), (4.1, 8.0)])
def test_the_deadline_is_a_multiple_of_the_run_time(deadline: float, start: float) -> None:
    found = started(f"bace-defer:deadline={deadline}", world([series(*DAY)], [(0, 2)]))
    assert found == [(pytest.approx(start, abs=1e-9), 0)]
    default = started("bace-defer", world([series(*DAY)], [(0, 2)]))
    assert default == [(pytest.approx(2.0), 0)]


def test_a_job_that_is_due_passes_one_that_may_still_wait() -> None:
    # j1 (1 h) is first by priority at all times and due at 1:00, j0 (4 h) at 4:00: by then j1 has
    # left, and neither waits for 8:00.
    instance = world([series(*DAY)], [(0, 4), (0, 1)])
    assert started("bace-defer", instance) == [(4, 0), (1, 0)]
    # j0 came earlier and is due while j1, shorter but just arrived, is not.
    instance = world([series(*DAY)], [(0, 3), (2.5, 2)])
    assert started("bace-defer", instance) == [(3, 0), (6, 0)]


def test_it_pauses_to_the_deadline_even_where_nothing_lies_ahead() -> None:
    # After its last step the price holds at 0.9; on the second day that is its median.
    simulator = Simulator(world([series(0.1, 0.9, step_h=18.0, beyond="hold")], [(20, 30)]))
    action = make_policy("bace-defer").act(simulator.view)
    assert action == Pause(50 * 3600.0)
    assert started("bace-defer", simulator.view.instance) == [(50, 0)]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1, 1), st.integers(1, 30_000)), min_size=1, max_size=8),
    st.booleans(),
    st.integers(0, 3),
)
def test_half_of_the_day_costs_no_more_than_its_median(
    steps: list[tuple[float, int]], repeats: bool, day: int
) -> None:
    times = np.concatenate([[0], np.cumsum([s for _, s in steps])[:-1]]).astype(float)
    prices = np.array([p for p, _ in steps])
    period = float(sum(s for _, s in steps)) if repeats else np.inf
    median = median_of_day(times, prices, period, day * 86400.0, (day + 1) * 86400.0)
    seconds = np.arange(86400) + day * 86400 + 0.5
    at = np.searchsorted(times, seconds % period if repeats else seconds, side="right") - 1
    assert (prices[at] <= median).mean() >= 0.5
    assert (prices[at] >= median).mean() >= 0.5


@settings(max_examples=40, deadline=None)
@given(instances(max_jobs=6), st.sampled_from([*NAMES, "bace-defer:deadline=0.3", NAMES[0]]))
def test_schedules_of_random_instances_pass_the_check(instance: Instance, name: str) -> None:
    simulator, policy = Simulator(instance), make_policy(name)
    for _ in range(2000):
        if simulator.done:
            break
        action = policy.act(simulator.view)
        if not isinstance(action, Placement | Pause) and not simulator.view.running.size:
            return  # a job that no rule places now: as for bace, nothing may lie ahead
        simulator.step(action)
    check_trace(simulator.trace(name))


def test_no_deferral_is_bace() -> None:
    jobs = [(0.0, 5), (0.0, 1), (1.0, 2), (1.5, 4), (3.0, 1)]
    instance = world([series(*DAY), 0.25, series(*DAY[::-1])], jobs)
    assert started("bace-defer:deadline=0", instance) == started("bace", instance)


@pytest.mark.parametrize("name", NAMES)
def test_they_give_no_reasons_rather_than_wrong_ones(name: str) -> None:
    assert not isinstance(make_policy(name), Explains)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("bace-defer:deadline=-1", "deadline: must be a multiple from 0 .* got '-1'"),
        ("bace-defer:deadline=soon", "deadline: .* got 'soon'"),
        ("bace-defer:patience=2", "patience: must be a share"),
        ("bace-forecast:deadline=1", "unknown option 'deadline'"),
        ("bace-forecast:skip_blocked=false", "skip_blocked: must be true in bace-forecast"),
    ],
)
def test_options_that_do_not_exist_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_policy(spec)


def test_options_show_in_the_name() -> None:
    assert make_policy("bace-defer:deadline=2,patience=0.5").name == (
        "bace-defer:deadline=2,patience=0.5"
    )


def test_a_saved_schedule_with_pauses_is_read_back(tmp_path: Path) -> None:
    scenario = load_scenario("week-in-the-cloud", ["workload.n_jobs=12"])
    request = Request(scenario, ("bace-defer:deadline=0.3",), keep_traces=True)
    comparison = run_comparison(request, seed=0, episodes=1)
    save_run(comparison, tmp_path / "run")
    (episode,) = load_saved(tmp_path / "run", None, None, None)
    (original,) = comparison.traces[0]
    assert episode.trace.start_s.tolist() == original.start_s.tolist()
    assert [d.time_s for d in episode.trace.decisions] == [d.time_s for d in original.decisions]
    with pytest.raises(BaceError, match="gives no reasons"):
        next(explain_episode(episode.trace, make_policy(episode.spec)))
    views = [(view.now_s, action) for view, action in replay(original)]
    assert [now_s for now_s, _ in views] == [d.time_s for d in original.decisions]
