"""Stepping environments and batches, for the tests of them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from strategies import make_instance

from agents.policy import REGISTRY, Policy, make_policy
from bace_env.batch import Batch
from bace_env.candidates import DEFAULT_BUDGETS
from bace_env.env import GeoPipelineEnv
from bace_env.instance import Instance
from bace_env.kernels import DECISION
from bace_env.simulator import WAIT, Action, Placement, View
from bace_env.trace import Decision, EpisodeTrace
from bace_env.types import BoolArray, IntArray

#: Policies whose every decision is in the action set: the others draw, search, weigh prices that
#: the candidates do not know, or see other slots.
_OTHERS = ("random", "search", "bace-forecast", "bace-defer", "ppo")
BUILT_IN = tuple(name for name in REGISTRY if name not in _OTHERS)

Observation = dict[str, np.ndarray[Any, Any]]
Step = tuple[Observation, float, bool, bool, dict[str, Any]]


def random_valid(rng: np.random.Generator, masks: BoolArray) -> IntArray:
    """A random valid action of each row of `(B, actions)`."""
    return np.asarray((masks * (rng.random(masks.shape) + 0.5)).argmax(axis=-1))


class Solo:
    """A batch of one episode of a given instance."""

    def __init__(
        self, instance: Instance, slots: int = 8, budgets: tuple[float, ...] = DEFAULT_BUDGETS
    ) -> None:
        self.instance = instance
        self.batch = Batch(instance, 1, slots, budgets)
        self.batch.load(0, instance.arrays, instance.cost_weight)
        self.batch.restart(np.zeros(1, np.int64))
        self.view = View(instance, self.batch.state(0))
        self.wait = self.batch.sizes["action_mask"] - 1
        self.code = DECISION
        self.decisions: list[Decision] = []

    @property
    def mask(self) -> BoolArray:
        return np.asarray(self.batch.peek(0).action_mask == 1)

    def placements(self) -> dict[int, Placement]:
        """All valid actions but WAIT."""
        found = {}
        for index in np.flatnonzero(self.mask[:-1]).tolist():
            placed = self.batch.placement(0, index)
            assert placed is not None
            found[index] = Placement(*placed)
        return found

    def find(self, action: Action) -> int | None:
        """The valid action that stands for a placement or WAIT."""
        if not isinstance(action, Placement):
            return self.wait if self.mask[-1] else None
        for index in self.batch.actions_of(0, action.job):
            if self.batch.placement(0, index) == action:
                return index
        return None

    def step(self, index: int) -> int:
        assert self.mask[index]
        placed = self.batch.placement(0, index)
        self.decisions.append(Decision(self.view.now_s, placed and placed[0], 0))
        _, codes, invalid = self.batch.step(np.array([index]))
        assert not invalid[0]
        self.code = int(codes[0])
        return self.code

    def states(self, rng: np.random.Generator, waits: float = 0.1) -> Iterator[None]:
        """Random steps to the end of the episode; yields at each decision."""
        while self.code == DECISION:
            yield
            mask = self.mask
            if mask[-1] and mask[:-1].any() and rng.random() > waits:
                mask[-1] = False
            self.step(int(random_valid(rng, mask)))

    def trace(self, policy: str) -> EpisodeTrace:
        state = self.batch.state(0)
        return EpisodeTrace.of_state(self.instance, state, policy, tuple(self.decisions))


def replay(solo: Solo, policy: Policy) -> EpisodeTrace | None:
    """Play a policy through the action set; None if it waits though nothing lies ahead."""
    policy.reset(solo.instance.seed)
    while solo.code == DECISION:
        action = policy.act(solo.view)
        index = solo.find(action)
        if index is None and action is WAIT:
            return None
        assert index is not None, f"{policy.name} at {solo.view.now_s} s: {action} is no action"
        solo.step(index)
    return solo.trace(policy.name)


def play(env: GeoPipelineEnv, who: str, seed: int = 0) -> Iterator[Step]:
    """One episode of an environment that was reset: every step.

    Args:
        env: The environment.
        who: A built-in policy; `valid`: random valid actions; `any`: random ones of any kind.
        seed: Of the random actions.
    """
    rng = np.random.default_rng(seed)
    policy = make_policy(who) if who in BUILT_IN else None
    done = False
    while not done:
        if policy is not None:
            found = env.find_action(policy.act(env.view))
            assert found is not None
            action = found
        elif who == "any" and rng.random() < 0.5:
            action = int(rng.integers(-2, env.action_masks().size + 2))
        else:
            action = int(random_valid(rng, env.action_masks()))
        step = env.step(action)
        done = step[2] or step[3]
        yield step


def same_observations(one: Observation, other: Observation) -> bool:
    """Whether two observations are equal to the bit, type included."""
    return one.keys() == other.keys() and all(
        one[key].dtype == other[key].dtype and np.array_equal(one[key], other[key]) for key in one
    )


def different_clusters() -> list[Instance]:
    """Three clusters of one shape: two regions, two profiles, three jobs."""

    def cluster(gpus: list[int], bytes_per_s: float, price: float) -> Instance:
        links = np.array([[0.0, bytes_per_s], [bytes_per_s, 0.0]])
        comp_s = [4.0 / np.arange(1, 6), np.array([3.0, 2.0, 1.0, 1.0, 0.5])]
        prices = [([0.0], [price], np.inf), ([0.0], [0.2], np.inf)]
        jobs = [(0.0, 0, 3.0), (0.0, 1, 5.0), (7.0, 0, 8.0)]
        return make_instance(gpus, comp_s, jobs, links=links, prices=prices)

    return [cluster([2, 3], 1.0, 0.1), cluster([4, 1], 0.1, 0.3), cluster([1, 1], 9.0, 0.2)]
