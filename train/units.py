"""What a reward is worth: the numbers of BACE-Pipe in a setting.

A return is minus the objective, average JCT / jct_ref + lambda * cost / cost_ref. The second term
is many times the first, and both differ between settings: undivided, episodes with a large lambda
and crowded settings would decide alone what is learnt.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agents.policy import make_policy
from bace_env.config import load_scenario
from bace_env.scenario import Sampler, episode_seed
from bace_env.types import FloatArray
from eval.rollout import run_episode

_EPISODES = 32


class Units(NamedTuple):
    """Means over episodes of BACE-Pipe."""

    jct: float  # average JCT / jct_ref
    cost: float  # cost / cost_ref

    def of(self, cost_weight: FloatArray) -> FloatArray:
        """Its objective at these lambdas."""
        return self.jct + cost_weight * self.cost


def units_seed(seed: int) -> int:
    """Of the workloads that a run with this seed measures them by."""
    return int(np.random.SeedSequence(seed, spawn_key=(8,)).generate_state(1)[0])


def measure_units(scenario: str, overrides: Sequence[str], seed: int) -> Units:
    """Of a scenario, from workloads of this seed."""
    sampler, policy = Sampler(load_scenario(scenario, overrides)), make_policy("bace")
    found = np.zeros(2)
    for k in range(_EPISODES):
        trace = run_episode(sampler.draw(episode_seed(seed, k)), policy)
        instance = trace.instance
        found += (
            trace.summary().avg_jct_s / instance.jct_ref_s,
            float(trace.cost_usd.sum()) / instance.cost_ref_usd,
        )
    return Units(*(found / _EPISODES).tolist())
