"""Observations that are given away, for good, and those that are lent until the next step."""

from typing import Any

import numpy as np
import pytest
from environment_steps import Observation, different_clusters, random_valid, same_observations

from bace_env.batch import Batch
from bace_env.config import load_scenario
from bace_env.env import GeoPipelineVectorEnv
from bace_env.episodes import Episodes
from bace_env.schema import Scenario
from bace_env.types import BoolArray

ARRIVALS = ("workload.arrivals=poisson", "workload.mean_interarrival_h=0.1", "workload.n_jobs=5")


def one_region() -> Scenario:
    data = load_scenario("paper").model_dump()
    return Scenario.model_validate({**data, "regions": data["regions"][:1]})


def cases() -> list[Any]:
    small = {
        "tiny": (60, {"scenario": "tiny", "slots": 2}),
        "tiny, arrivals": (
            60,
            {"scenario": "tiny", "overrides": ARRIVALS, "slots": 3, "horizon_s": 2500.0},
        ),
    }
    large: dict[str, tuple[int, dict[str, Any]]] = {
        "paper": (400, {"scenario": "paper"}),
        "horizon": (300, {"scenario": "paper", "horizon_s": 2e6, "cost_weight": (0.1, 2.0)}),
        "24 jobs": (400, {"scenario": "paper", "overrides": ["workload.n_jobs=24"]}),
        "one region": (300, {"scenario": one_region()}),
        "slots 4": (300, {"scenario": "paper", "slots": 4, "budgets": (1.0, 0.3)}),
        "prices change": (
            300,
            {"scenario": "week-in-the-cloud", "overrides": ["workload.n_jobs=12"]},
        ),
    }
    return [
        *(pytest.param(*case, id=name) for name, case in small.items()),
        *(pytest.param(*case, id=name, marks=pytest.mark.jit) for name, case in large.items()),
    ]


class Kept:
    """Arrays that were given away, with what they said then."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.copies: list[np.ndarray[Any, Any]] = []

    def keep(self, observation: Observation) -> None:
        self.arrays += observation.values()
        self.copies += (array.copy() for array in observation.values())

    def assert_unchanged(self) -> None:
        assert self.arrays
        for array, copy in zip(self.arrays, self.copies, strict=True):
            assert np.array_equal(array, copy)
        owners = {id(array) for array in self.arrays}
        assert len(owners) == len(self.arrays)


def assert_read_only(observation: Observation) -> None:
    for array in observation.values():
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


# --- Episodes ------------------------------------------------------------------------------------


class Twins:
    """The same episodes three times, and all that the first ones gave away."""

    def __init__(self, number: int, arguments: dict[str, Any], rng: np.random.Generator) -> None:
        self.number, self.arguments, self.rng = number, arguments, rng
        self.given = Episodes(batch=number, **arguments)
        self.seldom = Episodes(batch=number, **arguments)  # looked at now and then
        self.lent = Episodes(batch=number, copy=False, **arguments)
        self.kept = Kept()
        for episodes in self.all():
            for b in range(number):
                episodes.seed(b, b)
        self.begin(list(range(number)))

    def all(self) -> tuple[Episodes, ...]:
        return self.given, self.seldom, self.lent

    def begin(self, rows: list[int]) -> None:
        for episodes in self.all():
            episodes.begin(rows)

    def compare(self) -> None:
        expected, found = self.given.observations(), self.lent.observations()
        self.kept.keep(expected)
        assert same_observations(found, expected)
        assert_read_only(found)
        if self.rng.random() < 0.3:
            assert same_observations(self.seldom.observations(), expected)
        for b in range(self.number):
            one = self.lent.observation(b)
            assert same_observations(one, self.given.observation(b))
            assert all(array.flags.writeable for array in one.values())

    def step(self) -> BoolArray:
        """Mostly valid actions, and now and then any number; which episodes ended."""
        actions = random_valid(self.rng, self.given.masks())
        wild = self.rng.random(self.number) < 0.1
        actions[wild] = self.rng.integers(-3, self.given.wait + 3, wild.sum())
        result, *others = (episodes.step(actions) for episodes in self.all())
        for other in others:
            assert all(map(np.array_equal, result, other))
        return result.terminated | result.truncated

    def restore(self, snapshot: dict[str, np.ndarray[Any, Any]]) -> None:
        if self.rng.random() < 0.5:
            self.lent = Episodes(batch=self.number, copy=False, **self.arguments)
        for episodes in self.all():
            episodes.restore(snapshot)


@pytest.mark.parametrize(("steps", "arguments"), cases())
def test_lent_observations_are_those_given_away(steps: int, arguments: dict[str, Any]) -> None:
    """Beside restarts as episodes end: at any time of any rows, and of all from a snapshot."""
    rng, ended, restored = np.random.default_rng(0), 0, 0
    twins = Twins(4, arguments, rng)
    snapshot = twins.given.snapshot()
    for _ in range(steps):
        twins.compare()
        done = twins.step()
        ended += int(done.sum())
        if rng.random() < 0.3:
            twins.compare()
        twins.begin(np.flatnonzero(done | (rng.random(4) < 0.02)).tolist())
        if rng.random() < 0.1:
            snapshot = twins.lent.snapshot()
        elif rng.random() < 0.1:
            restored += 1
            twins.restore(snapshot)
    assert ended > 3
    assert restored > 0
    for episodes in twins.all():
        np.testing.assert_equal(episodes.snapshot(), twins.given.snapshot())
    twins.kept.assert_unchanged()


def test_lending_copies_nothing_and_the_next_step_overwrites() -> None:
    episodes = Episodes("tiny", batch=2, copy=False)
    episodes.begin([0, 1])
    before = episodes.observations()
    episodes.step(random_valid(np.random.default_rng(0), episodes.masks()))
    after = episodes.observations()
    for key, array in before.items():
        assert np.shares_memory(array, after[key])
    assert same_observations(before, after)


def test_what_is_given_away_may_be_written_to() -> None:
    one, other = Episodes("tiny", batch=2), Episodes("tiny", batch=2)
    rng = np.random.default_rng(0)
    one.begin([0, 1])
    other.begin([0, 1])
    for _ in range(15):
        observation = one.observations()
        assert same_observations(observation, other.observations())
        actions = random_valid(rng, one.masks())
        for array in observation.values():
            array[:] = 1
        result = one.step(actions)
        other.step(actions)
        done = np.flatnonzero(result.terminated).tolist()
        one.begin(done)
        other.begin(done)


# --- The engine, with several clusters -----------------------------------------------------------


def test_a_batch_of_several_clusters_lends_what_it_would_give() -> None:
    instances = different_clusters()
    given, lent = (Batch(instances[0], 3, slots=2, copy=copy) for copy in (True, False))
    rng, kept = np.random.default_rng(0), Kept()
    restart = np.arange(3)
    for _ in range(60):
        for batch in (given, lent):
            for b in restart.tolist():
                instance = instances[(b + int(batch.world.state.counts[b].sum())) % 3]
                batch.load(b, instance.arrays, instance.cost_weight)
            batch.restart(restart)
        expected, found = given.observation._asdict(), lent.observation._asdict()
        kept.keep(expected)
        assert same_observations(found, expected)
        assert_read_only(found)
        actions = random_valid(rng, given.world.mask == 1)
        _, codes, _ = given.step(actions)
        lent.step(actions)
        restart = np.flatnonzero((codes != 0) | (rng.random(3) < 0.1))
        if rng.random() < 0.5:
            kept.keep(given.observation._asdict())
        b = int(rng.integers(3))
        shown = [batch.show(b, batch.state((b + 1) % 3)) for batch in (given, lent)]
        assert same_observations(*(each._asdict() for each in shown))
        restart = np.union1d(restart, [b])
    kept.assert_unchanged()


# --- Gymnasium's and stable-baselines3's vectors -------------------------------------------------


@pytest.mark.parametrize(("steps", "arguments"), [cases()[1], *cases()[2:5]])
def test_a_vector_environment_lends_what_it_would_give(
    steps: int, arguments: dict[str, Any]
) -> None:
    plain = {k: v for k, v in arguments.items() if k != "cost_weight"}
    given, lent = GeoPipelineVectorEnv(3, **plain), GeoPipelineVectorEnv(3, copy=False, **plain)
    rng, kept, ended = np.random.default_rng(1), Kept(), 0
    expected, found = given.reset(seed=5)[0], lent.reset(seed=5)[0]
    for _ in range(steps):
        kept.keep(expected)
        assert same_observations(found, expected)
        assert lent.observation_space.contains(found)
        assert_read_only(found)
        actions = random_valid(rng, given.action_masks())
        expected, *outcome, infos = given.step(actions)
        found, *their_outcome, their_infos = lent.step(actions)
        for a, b in zip(outcome, their_outcome, strict=True):
            assert np.array_equal(a, b)
        done = np.flatnonzero(outcome[1] | outcome[2])
        ended += done.size
        for i in done:
            last = their_infos["final_obs"][i]
            assert same_observations(last, infos["final_obs"][i])
            kept.keep(last)  # the caller's, even if the others are lent
        for info in (infos, their_infos):
            info.pop("final_obs", None)
        np.testing.assert_equal(their_infos, infos)
        if rng.random() < 0.03:
            expected, found = given.reset()[0], lent.reset()[0]
    assert ended > 3
    kept.assert_unchanged()


@pytest.mark.jit
@pytest.mark.parametrize(("steps", "arguments"), cases()[1:5])
def test_sb3s_vector_lends_what_it_would_give(steps: int, arguments: dict[str, Any]) -> None:
    from train.vec_env import BatchVecEnv

    given, lent = BatchVecEnv(3, **arguments), BatchVecEnv(3, copy=False, **arguments)
    rng, kept, ended = np.random.default_rng(2), Kept(), 0
    given.seed(5)
    lent.seed(5)
    expected, found = given.reset(), lent.reset()
    snapshot = given.snapshot()
    for _ in range(steps):
        kept.keep(expected)
        assert same_observations(found, expected)
        assert_read_only(found)
        actions = random_valid(rng, given.action_masks())
        expected, rewards, dones, infos = given.step(actions)
        found, *their_outcome, their_infos = lent.step(actions)
        assert all(map(np.array_equal, (rewards, dones), their_outcome))
        np.testing.assert_equal(their_infos, infos)
        for i in np.flatnonzero(dones):
            ended += 1
            kept.keep(their_infos[i]["terminal_observation"])
        if rng.random() < 0.03:
            snapshot = lent.snapshot()
        elif rng.random() < 0.03:
            expected, found = given.restore(snapshot), lent.restore(snapshot)
    assert ended > 3
    kept.assert_unchanged()
