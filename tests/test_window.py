"""Warm-up, drain and the steady-state metrics: which jobs count, by hand."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import instances

from agents.policy import make_policy
from bace_env.config import parse_scenario
from bace_env.errors import BaceError, ConfigError
from bace_env.instance import Instance
from bace_env.scenario import build_instance
from bace_env.trace import EpisodeTrace
from eval.metrics import backlog_over_time, backlog_steps, counted_jobs, episode_metrics
from eval.rollout import run_episode

#: (arrival, hours): one GPU, so they run one after another: 0-4, 4-6, 6-8, 10-11, 12-15.
JOBS = [(0.0, 4), (1.0, 2), (2.0, 2), (10.0, 1), (12.0, 3)]


def queue(window: dict[str, float] | None = None) -> EpisodeTrace:
    data: dict[str, Any] = {
        "name": "queue",
        "regions": [{"name": "r", "gpus": 1, "price_usd_per_kwh": 0.1, "carbon_g_per_kwh": 500.0}],
        "gpu": {"power_w": 1000.0},
        "pipeline": {"intra_gbps": math.inf},
        "models": [
            {"name": "m", "activation_mb": 1.0, "measured": {"gpus": [1], "t_comp_ms": [1.8e6]}}
        ],
        "jobs": [
            {"name": f"j{i}", "model": "m", "batch_size": 1, "iterations": h, "arrival_h": at}
            for i, (at, h) in enumerate(JOBS)
        ],
        "workload": {"arrivals": "listed"},
        "window": window or {},
    }
    return run_episode(build_instance(parse_scenario(data), 0), make_policy("lcf"))


def test_without_a_window_all_count() -> None:
    found = episode_metrics(queue())
    jct = [4, 5, 6, 1, 3]
    assert found["avg_jct_s"] == pytest.approx(3600 * np.mean(jct))
    assert found["p50_jct_s"] == pytest.approx(3600 * 4)
    assert found["p99_jct_s"] == pytest.approx(3600 * (5 + 0.96))  # between ranks 4 and 5
    slowdown = [1, 2.5, 3, 1, 1]
    assert found["avg_slowdown"] == pytest.approx(np.mean(slowdown))
    assert found["p95_slowdown"] == pytest.approx(2.5 + 0.8 * 0.5)
    # Waiting: j1 from 1 to 4, j2 from 2 to 6; over the makespan of 15 h.
    assert found["mean_backlog"] == pytest.approx((3 + 4) / 15)
    assert found["max_backlog"] == 2
    assert found["carbon_kg"] == pytest.approx(12 * 0.5)
    assert found["counted_jobs"] == 5
    assert found["gpu_utilization"] == pytest.approx(12 / 15)


def test_only_jobs_that_arrive_inside_the_window_count() -> None:
    trace = queue({"warmup_h": 1.0, "drain_h": 2.0})  # 1:00 to 10:00, both included
    assert counted_jobs(trace.instance).tolist() == [False, True, True, True, False]
    found = episode_metrics(trace)
    assert found["avg_jct_s"] == pytest.approx(3600 * 4)
    assert found["p50_jct_s"] == pytest.approx(3600 * 5)
    assert found["avg_slowdown"] == pytest.approx((2.5 + 3 + 1) / 3)
    assert found["total_cost_usd"] == pytest.approx(0.5)  # 2 + 2 + 1 kWh
    assert found["energy_kwh"] == pytest.approx(5)
    assert found["carbon_kg"] == pytest.approx(2.5)
    assert found["counted_jobs"] == 3
    # Over the nine hours: busy from 1 to 8, waiting as above.
    assert found["gpu_utilization"] == pytest.approx(7 / 9)
    assert found["mean_backlog"] == pytest.approx(7 / 9)
    # All jobs run, and what is about the whole episode is.
    whole = queue()
    assert trace.finish_s.tolist() == whole.finish_s.tolist()
    assert found["makespan_s"] == 15 * 3600
    assert found["objective"] == episode_metrics(whole)["objective"]


def test_shares_are_of_the_time_to_the_last_arrival() -> None:
    trace = queue({"warmup_share": 0.125, "drain_share": 0.25})
    assert trace.instance.window_s == (1.5 * 3600, 9 * 3600)
    assert counted_jobs(trace.instance).tolist() == [False, False, True, False, False]


def test_a_warm_up_alone_leaves_the_end_open() -> None:
    found = episode_metrics(queue({"warmup_h": 11.0}))
    assert found["counted_jobs"] == 1
    assert found["avg_jct_s"] == pytest.approx(3 * 3600)
    assert found["gpu_utilization"] == pytest.approx(3 / 4)  # 11:00 to the last finish


def test_the_backlog_over_time_has_its_mean_in_every_part() -> None:
    parts = backlog_over_time(queue(), parts=5)  # of three hours: waiting are j1 1-4, j2 2-6
    hours = [(begin / 3600, end / 3600, mean) for begin, end, mean in parts]
    assert hours == [
        pytest.approx(row)
        for row in [(0, 3, 1.0), (3, 6, 4 / 3), (6, 9, 0), (9, 12, 0), (12, 15, 0)]
    ]
    (first, *_, last) = backlog_over_time(queue({"warmup_h": 1.0, "drain_h": 2.0}))
    assert (first[0], last[1]) == (3600, 36000)


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({"warmup_h": 2.5, "drain_h": 3.0}, "no job arrives between 2.5 h and 9 h"),
        ({"warmup_h": 20.0}, "no job arrives between 20 h and inf h"),
        ({"warmup_h": 1.0, "warmup_share": 0.1}, "either warmup_h or warmup_share, got 1.0 and"),
        ({"warmup_share": 0.6, "drain_share": 0.5}, "leave nothing, got 1.1 in all"),
        ({"warmup_share": 1.0}, "window.warmup_share: .* less than 1"),
        ({"drain_h": -1.0}, "window.drain_h: .*"),
    ],
)
def test_windows_without_sense_are_refused(window: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        queue(window)


@settings(max_examples=50, deadline=None)
@given(instances())
def test_the_backlog_integrates_to_the_waiting(instance: Instance) -> None:
    try:
        trace = run_episode(instance, make_policy("bace"))
    except BaceError:
        return  # no rule places a job: nothing to measure
    waiting = float((trace.start_s - instance.arrays.arrival_s).sum())
    steps = backlog_steps(trace)
    assert steps.integral() == pytest.approx(waiting, rel=1e-9, abs=1e-6)
    assert steps.value.min() >= 0
    assert steps.value[-1] == 0
