"""Arrivals: processes, load as a share of capacity, and streams of their own."""

import math
from typing import Any

import numpy as np
import pytest

from bace_env.arrivals import bursty_times, diurnal_times
from bace_env.config import load_scenario, parse_scenario
from bace_env.errors import ConfigError
from bace_env.scenario import Sampler, build_instance

#: One region of 4 GPUs, one model whose job of I iterations takes I hours on one GPU and 0.75 I on
#: two: t_iter = 2 * (k t + (M - 1) t), M = 1; w_j = min over k of k E(k) = I GPU-hours.
PLAIN: dict[str, Any] = {
    "name": "plain",
    "regions": [{"name": "north", "gpus": 4, "price_usd_per_kwh": 0.1}],
    "pipeline": {"intra_gbps": math.inf},
    "models": [
        {
            "name": "m",
            "activation_mb": 1.0,
            "measured": {"gpus": [1, 2], "t_comp_ms": [1.8e6, 0.675e6]},
        }
    ],
    "datasets": [{"name": "a", "samples": 2}, {"name": "b", "samples": 6}],
    "jobs": [
        {"name": "fixed", "model": "m", "batch_size": 1, "iterations": 8},
        {"name": "drawn", "model": "m", "batch_size": 1},
    ],
}


def plain(**workload: Any) -> Any:
    return parse_scenario(PLAIN | {"workload": workload})


def mean_gap_h(arrival_s: Any) -> float:
    return float(arrival_s[-1]) / arrival_s.size / 3600


def test_load_is_expected_work_over_all_gpus_by_hand() -> None:
    # E(1) = I h, 2 E(2) = 2 * 2 * (2 * 0.675e3) / 3600 * I = 1.5 I: w = I GPU-hours. The mean of 8
    # and of (2 + 6) / 2 is 6 GPU-hours; at load 0.5 of 4 GPUs one job comes every 6 / 2 = 3 hours.
    by_load = build_instance(plain(arrivals="poisson", load=0.5, n_jobs=50), 3)
    by_gap = build_instance(plain(arrivals="poisson", mean_interarrival_h=3.0, n_jobs=50), 3)
    assert by_load.arrays.arrival_s == pytest.approx(by_gap.arrays.arrival_s, rel=1e-12)


def test_load_counts_the_scaled_gpus() -> None:
    data = PLAIN | {
        "workload": {"arrivals": "poisson", "load": 0.5, "n_jobs": 50},
        "scale": {"gpus": 2.0},
    }
    twice = build_instance(parse_scenario(data), 3).arrays.arrival_s
    once = build_instance(plain(arrivals="poisson", load=0.5, n_jobs=50), 3).arrays.arrival_s
    assert once == pytest.approx(2 * twice, rel=1e-12)


@pytest.mark.parametrize("arrivals", ["poisson", "bursty", "diurnal"])
@pytest.mark.parametrize("load", [0.3, 0.9])
def test_the_long_run_share_of_arriving_work_is_the_load(arrivals: str, load: float) -> None:
    overrides = [f"workload.arrivals={arrivals}", f"workload.load={load}", "workload.n_jobs=20000"]
    if arrivals == "bursty":  # many bursts, so that their number varies little
        overrides.append("workload.burst_h=0.5")
    instance = build_instance(load_scenario("paper", overrides), 1)
    share = instance.least_work_s.sum() / (
        instance.arrays.arrival_s[-1] * instance.arrays.gpus.sum()
    )
    # Works vary by their data sets (a third each of sizes 1 : 35 : 154) and models.
    assert share == pytest.approx(load, rel=0.04)


def test_poisson_draws_are_those_of_its_stream() -> None:
    expected = np.cumsum(
        np.random.Generator(np.random.Philox(key=[7, 1])).exponential(7200.0, size=40)
    )
    found = build_instance(plain(arrivals="poisson", mean_interarrival_h=2.0, n_jobs=40), 7)
    assert found.arrays.arrival_s == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("arrivals", ["at_zero", "poisson", "bursty", "diurnal"])
def test_the_way_of_arriving_changes_no_data_set(arrivals: str) -> None:
    workload: dict[str, Any] = {"arrivals": arrivals, "n_jobs": 60}
    if arrivals != "at_zero":
        workload["load"] = 0.5
    drawn = build_instance(plain(**workload), 5).arrays.iterations
    assert drawn.tolist() == build_instance(plain(n_jobs=60), 5).arrays.iterations.tolist()


@pytest.mark.parametrize("arrivals", ["bursty", "diurnal"])
def test_drawn_arrivals_follow_from_the_seed_and_ascend(arrivals: str) -> None:
    sampler = Sampler(plain(arrivals=arrivals, load=0.5, n_jobs=300))
    first, other = sampler.draw(1).arrays.arrival_s, sampler.draw(2).arrays.arrival_s
    assert (np.diff(first) >= 0).all() and first[0] > 0
    assert sampler.draw(1).arrays.arrival_s.tolist() == first.tolist()
    assert not np.isclose(first, other).any()


def test_bursts_have_the_dispersion_of_a_markov_modulated_process() -> None:
    # Rates 4 and 0.25 per hour, bursts of 2 h on the mean, a fifth of the time: so calms of 8 h.
    factor, share, burst_h, n = 4.0, 0.2, 2.0, 200_000
    rng = np.random.default_rng(0)
    hours = bursty_times(rng, np.cumsum(rng.exponential(size=n)), factor, share, burst_h)
    assert hours[-1] / n == pytest.approx(1.0, rel=0.03)
    # Limit of variance / mean of the count in a long span (Fischer and Meier-Hellstern 1993):
    # 1 + 2 pi_1 pi_2 (l_1 - l_2)^2 / ((s_1 + s_2) * mean rate), s the rates of leaving the states.
    fast, slow, leave = factor, (1 - share * factor) / (1 - share), 1 / burst_h + 1 / 8
    limit = 1 + 2 * share * (1 - share) * (fast - slow) ** 2 / leave
    counts = np.bincount((hours // 200).astype(int))[:-1]
    # In a span of 200 h the limit is reached up to (1 - exp) / (200 * 0.625): 1 %.
    assert counts.var() / counts.mean() == pytest.approx(limit, rel=0.15)


def test_all_jobs_may_come_in_bursts() -> None:
    rng = np.random.default_rng(0)
    passed = np.cumsum(rng.exponential(size=1000))
    hours = bursty_times(rng, passed, 5.0, 0.2, 1.0)
    gaps = np.diff(hours)
    # Within a burst the next of arrival (5 per hour) and end (1 per hour) is an arrival with 5 / 6,
    # after an Exp(6) time; so half of the gaps are below m with 5 / 6 * (1 - exp(-6 m)) = 1 / 2.
    assert np.median(gaps) == pytest.approx(math.log(2.5) / 6, rel=0.1)
    assert gaps.max() > 3.0  # a calm


def test_diurnal_arrivals_follow_the_rate_of_the_hour() -> None:
    amplitude, peak_h, n = 0.8, 15.0, 100_000
    times = diurnal_times(np.random.default_rng(0), 60.0, n, amplitude, peak_h * 3600)
    days = math.floor(times[-1] / 86400)
    whole = times[times < days * 86400]
    counts = np.bincount((whole % 86400 // 3600).astype(int), minlength=24) / days
    # The integral of the rate over each hour, by the antiderivative.
    edges = 2 * np.pi * (np.arange(25) - peak_h) / 24
    expected = 60 * (1 + amplitude * np.diff(np.sin(edges)) * 24 / (2 * np.pi))
    assert counts == pytest.approx(expected, rel=0.1)
    assert whole.size / days == pytest.approx(1440, rel=0.02)


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"load": 0.5}, "load goes with arrivals"),
        ({"arrivals": "listed", "mean_interarrival_h": 1.0}, "mean_interarrival_h goes with"),
        ({"arrivals": "bursty"}, "needs either mean_interarrival_h or load, got neither"),
        ({"arrivals": "poisson", "load": 0.5, "mean_interarrival_h": 1.0}, "got mean_.* and load"),
        ({"arrivals": "poisson", "load": 0.0}, "workload.load: input should be greater than 0"),
        ({"arrivals": "poisson", "load": 0.5, "burst_h": 1.0}, "burst_h goes with .*bursty"),
        ({"arrivals": "bursty", "load": 0.5, "peak_h": 1.0}, "peak_h goes with .*diurnal"),
        ({"arrivals": "bursty", "load": 0.5, "burst_factor": 6.0}, r"at most 1, .*6\.0 \* 0\.2"),
        ({"arrivals": "diurnal", "load": 0.5, "amplitude": 1.5}, "workload.amplitude: .*1.5"),
        ({"arrivals": "diurnal", "load": 0.5, "peak_h": 24.0}, "workload.peak_h: .*24.0"),
    ],
)
def test_what_does_not_fit_together_is_refused(workload: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plain(**workload)


def test_a_load_of_jobs_without_work_is_refused() -> None:
    data = PLAIN | {"workload": {"arrivals": "poisson", "load": 0.5}}
    data["jobs"] = [{"name": "none", "model": "m", "batch_size": 1, "iterations": 0}]
    with pytest.raises(ConfigError, match="the jobs have no work"):
        build_instance(parse_scenario(data), 0)
