"""Extreme scenarios: what comes out stays finite and in bounds, and every episode ends."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from environment_steps import Observation, play, random_valid

from bace_env.checker import check_trace
from bace_env.config import load_scenario, parse_scenario
from bace_env.env import GeoPipelineEnv, GeoPipelineVectorEnv
from bace_env.schema import Scenario

STEPS = 5500  # of each scenario


def changed(preset: str, **sections: Any) -> Scenario:
    """A preset with some sections replaced."""
    data = load_scenario(preset).model_dump(exclude_unset=True)
    return parse_scenario(data | sections)


def with_overrides(preset: str, *overrides: str) -> Scenario:
    return load_scenario(preset, overrides)


def regions(gpus: list[int], prices: list[Any]) -> list[dict[str, Any]]:
    return [
        {"name": f"r{i}", "gpus": n, "price_usd_per_kwh": price}
        for i, (n, price) in enumerate(zip(gpus, prices, strict=True))
    ]


def one_region() -> Scenario:
    return changed("paper", regions=regions([64], [0.2]), network={})


def forty_regions() -> Scenario:
    """Directed random links, a third of them missing, latencies, prices of either sign."""
    rng = np.random.default_rng(0)
    made = regions(rng.integers(1, 30, 40).tolist(), rng.uniform(-0.1, 0.4, 40).tolist())
    links = [
        {
            "source": f"r{u}",
            "target": f"r{v}",
            "gbps": float(rng.choice([0.0, 0.5, 5.0, 50.0])),
            "latency_ms": float(rng.uniform(0, 300)),
            "both_ways": False,
        }
        for u in range(40)
        for v in range(40)
        if u != v and rng.random() < 0.66
    ]
    network = {"rule": "listed", "links": links}
    return changed("paper", regions=made, network=network, workload={"n_jobs": 30})


def islands() -> Scenario:
    """Three regions without any link and two joined by one of one way."""
    link = {"source": "r0", "target": "r1", "gbps": 50.0, "both_ways": False}
    made = regions([8, 8, 4, 2, 1], [0.1, 0.2, 0.3, 0.1, 0.1])
    return changed("paper", regions=made, network={"rule": "listed", "links": [link]})


def all_prices(preset: str, price: Callable[[int], Any], *overrides: str) -> Scenario:
    """A preset with the price of region i from `price(i)`."""
    scenario = load_scenario(preset, overrides)
    data = scenario.model_dump(exclude_unset=True)
    for i, region in enumerate(data["regions"]):
        region["price_usd_per_kwh"] = price(i)
    return parse_scenario(data)


def series(i: int) -> Any:
    """Periods without a common multiple in reach; one series ends in a price that holds."""
    values = [0.3, -0.2, 0.1, 0.0, 0.25][: 2 + i % 4]
    return {"values": values, "step_h": 31.0 + 7.3 * i, "beyond": ("repeat", "hold")[i == 3]}


POISSON = ("workload.arrivals=poisson", "workload.mean_interarrival_h=20")
SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "one region": one_region,
    "40 regions": forty_regions,
    "islands": islands,
    "bandwidth 0.01": lambda: with_overrides("paper", "scale.bandwidth=0.01"),
    "bandwidth 100": lambda: with_overrides("paper", "scale.bandwidth=100"),
    "physical, bandwidth 0.01": lambda: with_overrides("physical", "scale.bandwidth=0.01"),
    "physical, bandwidth 100": lambda: with_overrides("physical", "scale.bandwidth=100"),
    "hardly any bandwidth": lambda: with_overrides("paper", "scale.bandwidth=1e-12"),
    "one job": lambda: with_overrides("paper", "workload.n_jobs=1"),
    "500 jobs at once": lambda: with_overrides("paper", "workload.n_jobs=500"),
    "500 jobs in time": lambda: with_overrides("physical", "workload.n_jobs=500", *POISSON),
    "jobs of no length": lambda: with_overrides(
        "tiny", "jobs.long.iterations=0", "jobs.late.iterations=0", "workload.n_jobs=7"
    ),
    "negative prices": lambda: all_prices("paper", lambda i: -0.1 - 0.01 * i),
    "free electricity": lambda: all_prices("paper", lambda i: 0.0),
    "GPUs without power": lambda: with_overrides("physical", "gpu.power_w=0"),
    "huge prices": lambda: all_prices("tiny", lambda i: (1e15, -1e15)[i], "workload.n_jobs=9"),
    "price series": lambda: all_prices("paper", series),
    "price series and arrivals": lambda: all_prices("physical", series, *POISSON),
    "residual bandwidth": lambda: with_overrides(
        "paper", "pipeline.t_comm=residual", "network.latency_ms=2000", "scale.bandwidth=0.2"
    ),
    "endless jobs": lambda: with_overrides("tiny", "jobs.long.iterations=1000000000000000"),
    "many GPUs": lambda: with_overrides("paper", "scale.gpus=50", "workload.n_jobs=20"),
    "few GPUs": lambda: with_overrides("paper", "scale.gpus=0.04", "workload.n_jobs=20"),
}
SMALL = ("jobs of no length", "huge prices", "endless jobs")
ALL = [pytest.param(name, marks=[] if name in SMALL else [pytest.mark.jit]) for name in SCENARIOS]


def check_bounds(env: GeoPipelineVectorEnv, observations: Observation) -> None:
    space = env.single_observation_space
    assert isinstance(space, gym.spaces.Dict)
    for key, value in observations.items():
        box = space[key]
        low, high = (0, 1) if not isinstance(box, gym.spaces.Box) else (box.low[0], box.high[0])
        least, most = value.min(), value.max()  # nan compares false
        assert low <= least <= most <= high, f"{key}: from {least} to {most}"
    assert observations["action_mask"].any(axis=1).all()


@pytest.mark.parametrize("name", ALL)
def test_observations_stay_in_bounds_and_returns_exact(name: str) -> None:
    rows = 4 if "500" in name else 20
    env = GeoPipelineVectorEnv(rows, SCENARIOS[name]())
    observations, _ = env.reset(seed=0)
    rng, returns, done = np.random.default_rng(0), np.zeros(rows), 0
    for i in range((STEPS if name not in SMALL else STEPS // 10) // rows):
        check_bounds(env, observations)
        masks = observations["action_mask"].astype(np.bool_)
        actions = random_valid(rng, masks)
        if i % 10 == 9:  # any numbers, most of them forbidden
            actions = rng.integers(-5, masks.shape[1] + 5, rows)
        observations, rewards, terminated, truncated, infos = env.step(actions)
        assert np.isfinite(rewards).all()
        assert not truncated.any()
        assert i % 10 == 9 or not infos["invalid_action"].any()
        returns += rewards
        for row in np.flatnonzero(terminated):
            expected = -infos["final_info"]["objective"][row]
            assert returns[row] == pytest.approx(expected, rel=1e-9, abs=1e-9)
            returns[row], done = 0.0, done + 1
    assert done > 0


def test_the_random_steps_are_a_hundred_thousand_in_all() -> None:
    assert STEPS * (len(SCENARIOS) - len(SMALL)) >= 100_000


@pytest.mark.parametrize("name", ALL)
def test_waiting_whenever_it_is_allowed_ends_every_episode(name: str) -> None:
    rows = 3
    env = GeoPipelineVectorEnv(rows, SCENARIOS[name]())
    env.reset(seed=1)
    left = np.ones(rows, bool)
    for _ in range(5000):
        masks = env.action_masks()
        assert masks.any(axis=1).all()
        actions = np.where(masks[:, -1], masks.shape[1] - 1, masks.argmax(axis=1))
        _, _, terminated, _, infos = env.step(actions)
        assert not infos["invalid_action"].any()
        left &= ~terminated
        if not left.any():
            return
    pytest.fail("the episodes do not end")


@pytest.mark.parametrize("name", ALL)
def test_extreme_episodes_pass_the_checker(name: str) -> None:
    env = GeoPipelineEnv(SCENARIOS[name]())
    env.reset(seed=2)
    for _ in play(env, "valid"):
        pass
    check_trace(env.trace())
