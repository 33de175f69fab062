"""The vector environment: B single ones step by step, each row for itself."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from environment_steps import Observation, Solo, different_clusters, random_valid, same_observations
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, create_empty_array, iterate
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics
from strategies import make_instance

from bace_env import ENV_ID
from bace_env.batch import Batch
from bace_env.env import GeoPipelineEnv, GeoPipelineVectorEnv
from bace_env.errors import ConfigError
from bace_env.kernels import DECISION
from bace_env.types import IntArray

ARRIVALS = ("workload.arrivals=poisson", "workload.mean_interarrival_h=0.1", "workload.n_jobs=5")
SCENARIOS: dict[str, dict[str, Any]] = {
    "tiny": {"scenario": "tiny"},
    "tiny, arrivals and horizon": {
        "scenario": "tiny",
        "overrides": ARRIVALS,
        "horizon_s": 2500.0,
        "cost_weight": 2.0,
        "slots": 3,
    },
}
LARGE: dict[str, dict[str, Any]] = {
    "fig1": {"scenario": "fig1"},
    "paper": {"scenario": "paper", "overrides": ["workload.n_jobs=12"], "budgets": (1.0, 0.3)},
    "physical": {"scenario": "physical", "horizon_s": 4e5},
}
ALL = [
    *(pytest.param(value, id=key) for key, value in SCENARIOS.items()),
    *(pytest.param(value, id=key, marks=pytest.mark.jit) for key, value in LARGE.items()),
]


def make(num_envs: int, **arguments: Any) -> GeoPipelineVectorEnv:
    env = gym.make_vec(ENV_ID, num_envs=num_envs, **arguments)
    assert isinstance(env, GeoPipelineVectorEnv)
    return env


def row(observations: Observation, i: int) -> Observation:
    return {key: value[i] for key, value in observations.items()}


def rows(observations: Observation, order: Sequence[int]) -> Observation:
    return {key: value[list(order)] for key, value in observations.items()}


def some_actions(rng: np.random.Generator, env: GeoPipelineVectorEnv) -> IntArray:
    """Mostly valid ones, and now and then any number."""
    actions = random_valid(rng, env.action_masks())
    wild = rng.random(actions.size) < 0.1
    actions[wild] = rng.integers(-3, env.action_masks().shape[1] + 3, wild.sum())
    return actions


# --- As many single environments -----------------------------------------------------------------


@pytest.mark.parametrize("arguments", ALL)
@pytest.mark.parametrize("seed", [7, [3, 3, 40], [5, None, 2**53 - 1], None])
def test_the_batch_is_as_many_single_environments(
    arguments: dict[str, Any], seed: int | list[int | None] | None
) -> None:
    number = 3
    batch = make(number, **arguments)
    singles = [GeoPipelineEnv(**arguments) for _ in range(number)]
    observations, infos = batch.reset(seed=seed)
    if isinstance(seed, int):
        seeds: list[int | None] = [seed + i for i in range(number)]
    else:
        seeds = seed or [None] * number
    for i, single in enumerate(singles):
        # Where no seed is given, the row has drawn one.
        drawn = batch.episodes.instance(i).seed if seeds[i] is None else seeds[i]
        observation, info = single.reset(seed=drawn)
        assert same_observations(observation, row(observations, i))
        assert info == {key: value[i] for key, value in infos.items()}
    rng = np.random.default_rng(0)
    ended = 0
    for _ in range(40):
        assert np.array_equal(batch.action_masks(), [s.action_masks() for s in singles])
        actions = some_actions(rng, batch)
        observations, rewards, terminated, truncated, infos = batch.step(actions)
        for i, single in enumerate(singles):
            observation, *outcome, info = single.step(actions[i])
            assert outcome == [rewards[i], terminated[i], truncated[i]]
            if outcome[1] or outcome[2]:
                ended += 1
                assert same_observations(observation, infos["final_obs"][i])
                assert infos["_final_obs"][i]
                assert infos["_final_info"][i]
                final = infos["final_info"]
                assert info == {k: v[i] for k, v in final.items() if not k.startswith("_")}
                assert all(final[f"_{key}"][i] for key in info)
                observation, first = single.reset()
                info = {**info, **first}
            else:
                assert not infos.get("_final_obs", np.zeros(number))[i]
                assert not infos.get("_final_info", np.zeros(number))[i]
            assert same_observations(observation, row(observations, i))
            for key in ("time_s", "jct_term", "cost_term", "invalid_action"):
                assert infos[key][i] == info[key]
    assert ended >= number


@pytest.mark.parametrize("arguments", ALL)
def test_the_batch_agrees_with_gymnasiums_own_vector(arguments: dict[str, Any]) -> None:
    number = 2
    batch = make(number, **arguments)
    own = gym.make_vec(
        ENV_ID,
        num_envs=number,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        **arguments,
    )
    assert isinstance(own, gym.vector.SyncVectorEnv)
    assert own.observation_space == batch.observation_space
    assert own.action_space == batch.action_space
    assert same_observations(own.reset(seed=1)[0], batch.reset(seed=1)[0])
    rng, ended = np.random.default_rng(2), 0
    for _ in range(20):
        actions = random_valid(rng, batch.action_masks())
        one, other = own.step(actions), batch.step(actions)
        assert same_observations(one[0], other[0])
        for a, b in zip(one[1:4], other[1:4], strict=True):
            assert np.array_equal(a, b)
            assert a.dtype == b.dtype
        assert ("final_info" in one[4]) == ("final_info" in other[4])
        if "final_info" in other[4]:
            ended += 1
            np.testing.assert_equal(one[4]["final_info"], other[4]["final_info"])
            for a, b in zip(one[4]["final_obs"], other[4]["final_obs"], strict=True):
                assert (a is None and b is None) or same_observations(a, b)
            for key in ("_final_info", "_final_obs", "time_s"):
                assert np.array_equal(one[4][key], other[4][key])
    assert ended > 0


@pytest.mark.parametrize("number", [1, 2, 17])
def test_any_number_of_rows_will_do(number: int) -> None:
    batch = make(number, scenario="tiny", overrides=ARRIVALS)
    last = GeoPipelineEnv("tiny", overrides=ARRIVALS)
    observations, _ = batch.reset(seed=10)
    observation, _ = last.reset(seed=10 + number - 1)
    rng = np.random.default_rng(1)
    for _ in range(15):
        assert same_observations(observation, row(observations, number - 1))
        actions = random_valid(rng, batch.action_masks())
        observations = batch.step(actions)[0]
        observation, _, terminated, truncated, _ = last.step(actions[-1])
        if terminated or truncated:
            observation, _ = last.reset()


# --- Rows, and runs ------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ALL)
def test_rows_do_not_see_each_other(arguments: dict[str, Any]) -> None:
    order = [4, 2, 0, 3, 1]
    one, other = make(5, **arguments), make(5, **arguments)
    seeds = [11, 12, 13, 14, 15]
    observations = rows(one.reset(seed=seeds)[0], order)
    assert same_observations(observations, other.reset(seed=[seeds[i] for i in order])[0])
    rng = np.random.default_rng(3)
    for _ in range(25):
        actions = some_actions(rng, one)
        a, b = one.step(actions), other.step(actions[order])
        assert same_observations(rows(a[0], order), b[0])
        for x, y in zip(a[1:4], b[1:4], strict=True):
            assert np.array_equal(x[order], y)


def test_a_row_is_the_same_whatever_the_others_do() -> None:
    one, other = make(3, scenario="tiny"), make(3, scenario="tiny")
    one.reset(seed=[8, 1, 2])
    other.reset(seed=[8, 6, 7])
    rng, wild = np.random.default_rng(4), np.random.default_rng(5)
    for _ in range(25):
        actions = some_actions(rng, one)
        others = some_actions(wild, other)
        others[0] = actions[0]
        a, b = one.step(actions), other.step(others)
        assert same_observations(row(a[0], 0), row(b[0], 0))
        assert [x[0] for x in a[1:4]] == [x[0] for x in b[1:4]]


def test_rows_may_hold_different_clusters_of_one_shape() -> None:
    instances = different_clusters()
    batch = Batch(instances[2], 3, slots=2)
    rng = np.random.default_rng(0)
    for turn in range(3):
        order = [instances[(i + turn) % 3] for i in range(3)]
        solos = [Solo(instance, slots=2) for instance in order]
        for i, instance in enumerate(order):
            batch.load(i, instance.arrays, instance.cost_weight)
        batch.restart(np.array([0, 2, 1]))
        while any(solo.code == DECISION for solo in solos):
            for field, *values in zip(
                batch.observation,
                *(solo.batch.observation for solo in solos),
                strict=True,
            ):
                assert np.array_equal(field, np.concatenate(values))
            actions = random_valid(rng, batch.world.mask == 1)
            batch.step(actions)
            for solo, action in zip(solos, actions.tolist(), strict=True):
                solo.step(action)


def test_a_row_takes_clusters_that_share_their_job_tables() -> None:
    """As a monitored policy meets them: the same jobs, other bandwidths and prices each time."""
    links = np.array([[0.0, 4.0], [4.0, 0.0]])
    jobs = [(0.0, 0, 3.0), (0.0, 1, 5.0), (7.0, 0, 8.0)]
    comp_s = [np.array([3.0, 1.5, 1.0]), np.array([2.0, 1.2])]
    first = make_instance([2, 3], comp_s, jobs, links=links)
    batch, rng = Batch(first, 2, slots=2), np.random.default_rng(0)
    for turn in range(6):
        noisy = [
            first.arrays._replace(
                link_bytes_per_s=links * rng.uniform(0.1, 2.0),
                price_usd_per_kwh=first.arrays.price_usd_per_kwh * rng.uniform(0.5, 2.0),
            )
            for _ in range(2)
        ]
        rows = [turn % 2] if turn < 4 else [0, 1]
        for b, arrays in zip(rows, noisy, strict=False):
            batch.load(b, arrays, first.cost_weight)
        batch.restart(np.array(rows))
        for b, arrays in zip(rows, noisy, strict=False):
            solo = Solo(replace(first, arrays=arrays), slots=2)
            for mine, other in zip(batch.peek(b), solo.batch.peek(0), strict=True):
                assert np.array_equal(mine, other)


@pytest.mark.parametrize("arguments", ALL)
def test_a_seed_repeats_all_rows(arguments: dict[str, Any]) -> None:
    batch = make(3, **arguments)
    runs = []
    for env in (batch, batch, make(3, **arguments)):
        seen = [env.reset(seed=21)[0]]
        rng, totals = np.random.default_rng(6), np.zeros(3)
        for _ in range(20):
            observations, rewards, *_ = env.step(some_actions(rng, env))
            seen.append(observations)
            totals += rewards
        runs.append((seen, totals))
    for seen, totals in runs[1:]:
        assert np.array_equal(totals, runs[0][1])
        assert all(same_observations(a, b) for a, b in zip(seen, runs[0][0], strict=True))


@pytest.mark.jit
def test_without_a_seed_all_rows_and_runs_differ() -> None:
    drawn = []
    for _ in range(2):
        batch = make(4, scenario="paper")
        for _ in range(2):
            batch.reset()
            drawn += [batch.episodes.instance(i).seed for i in range(4)]
    assert len(set(drawn)) == len(drawn)


def test_a_reset_without_a_seed_goes_on_to_the_next_workload() -> None:
    batch, single = make(2, scenario="tiny"), GeoPipelineEnv("tiny")
    batch.reset(seed=5)
    batch.step(np.array([0, 0]))
    batch.reset()
    single.reset(seed=6)
    single.reset()
    assert batch.episodes.instance(1).seed == single.view.instance.seed
    batch.reset(seed=[None, 6])  # one row begins anew, the other goes on
    assert batch.episodes.instance(1).seed == 6
    single.reset(seed=5)
    single.reset()
    single.reset()
    assert batch.episodes.instance(0).seed == single.view.instance.seed


# --- Gymnasium's vectors -------------------------------------------------------------------------


def test_the_way_of_resetting_is_declared() -> None:
    assert GeoPipelineVectorEnv.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    env = make(2, scenario="tiny")
    assert env.spec is not None
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert env.num_envs == 2


@pytest.mark.parametrize("arguments", ALL)
def test_all_that_comes_out_lies_in_the_spaces(arguments: dict[str, Any]) -> None:
    env = make(4, **arguments)
    assert env.observation_space == batch_space(env.single_observation_space, 4)
    assert env.action_space == batch_space(env.single_action_space, 4)
    empty: Any = create_empty_array(env.single_observation_space, n=4)
    observations, _ = env.reset(seed=0)
    env.action_space.seed(0)
    rng = np.random.default_rng(0)
    for i in range(15):
        assert env.observation_space.contains(observations)
        for key, value in observations.items():
            assert (value.shape, value.dtype) == (empty[key].shape, empty[key].dtype)
        each = list(iterate(env.observation_space, observations))
        assert len(each) == 4
        assert all(env.single_observation_space.contains(one) for one in each)
        actions = env.action_space.sample() if i % 2 else random_valid(rng, env.action_masks())
        observations, rewards, terminated, truncated, _ = env.step(actions)
        assert (rewards.shape, rewards.dtype) == ((4,), np.float64)
        for ends in (terminated, truncated):
            assert (ends.shape, ends.dtype) == ((4,), np.bool_)


def test_statistics_of_episodes_are_those_of_the_rows() -> None:
    env = RecordEpisodeStatistics(make(3, scenario="tiny"))
    env.reset(seed=0)
    rng, returns, lengths, ended = np.random.default_rng(0), np.zeros(3), np.zeros(3, int), 0
    older = tuple(map(int, gym.__version__.split(".")[:2])) < (1, 4)
    first = np.ones(3, bool)
    for _ in range(40):
        inner = env.unwrapped
        assert isinstance(inner, GeoPipelineVectorEnv)
        actions = random_valid(rng, inner.action_masks())
        _, rewards, terminated, truncated, infos = env.step(actions)
        returns, lengths, done = returns + rewards, lengths + 1, terminated | truncated
        for i in np.flatnonzero(done):
            ended += 1
            if not older or first[i]:  # before 1.4 all but the first are short by one step
                assert infos["episode"]["r"][i] == pytest.approx(returns[i], rel=1e-6)
                assert infos["episode"]["l"][i] == lengths[i]
                objective = infos["final_info"]["objective"][i]
                assert infos["episode"]["r"][i] == pytest.approx(-objective, rel=1e-6)
        first &= ~done
        returns[done], lengths[done] = 0.0, 0
    assert ended > 9


def test_infos_become_lists_of_plain_ones() -> None:
    env = DictInfoToList(make(3, scenario="tiny", overrides=ARRIVALS))
    _, infos = env.reset(seed=0)
    assert [set(info) for info in infos] == [{"time_s"}] * 3
    rng, ended = np.random.default_rng(0), 0
    for _ in range(20):
        inner = env.unwrapped
        assert isinstance(inner, GeoPipelineVectorEnv)
        actions = random_valid(rng, inner.action_masks())
        _, _, terminated, truncated, infos = env.step(actions)
        for i, info in enumerate(infos):
            done = bool(terminated[i] or truncated[i])
            ended += done
            step = {"time_s", "jct_term", "cost_term", "invalid_action"}
            assert set(info) == step | ({"final_obs", "final_info"} if done else set())
            if done:
                assert step < set(info["final_info"])
    assert ended > 0


def test_saved_results_stay_as_they_were() -> None:
    env = make(2, scenario="tiny")
    observations, _ = env.reset(seed=0)
    saved, copies = [], []
    for _ in range(12):
        results = env.step(random_valid(np.random.default_rng(0), env.action_masks()))
        kept = [*results[0].values(), *results[1:4], results[4]["jct_term"], results[4]["time_s"]]
        kept += [results[4]["invalid_action"], *observations.values()]
        for final in results[4].get("final_obs", ()):
            kept += [] if final is None else list(final.values())
        saved += kept
        copies += [array.copy() for array in kept]
        observations = results[0]
    assert all(np.array_equal(a, b) for a, b in zip(saved, copies, strict=True))
    for array in observations.values():
        array[:] = 0
    assert env.action_masks().any(axis=1).all()


# --- Misuse --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "actions",
    [
        np.zeros(2, int),
        np.zeros(4, int),
        np.zeros((3, 1), int),
        np.zeros(3),
        np.zeros(3, bool),
        np.int64(0),
        [0, 0],
        [None] * 3,
    ],
)
def test_actions_of_another_shape_or_type_are_refused(actions: Any) -> None:
    env = make(3, scenario="tiny")
    env.reset(seed=0)
    before = env.action_masks()
    with pytest.raises(gym.error.InvalidAction, match="needs 3 whole numbers"):
        env.step(actions)
    assert np.array_equal(env.action_masks(), before)
    env.step([0, 0, 0])  # type: ignore[arg-type]
    env.step(np.zeros(3, np.int32))


def test_nothing_goes_before_a_reset() -> None:
    with pytest.raises(gym.error.ResetNeeded):
        make(2, scenario="tiny").step(np.zeros(2, int))


@pytest.mark.parametrize("seed", [[1, 2], [1, -2, 3], [1, 2, 2**53], [1, 2, 3.5], 2**53 - 2])
def test_wrong_seeds_are_refused(seed: Any) -> None:
    env = make(3, scenario="tiny")
    with pytest.raises((ConfigError, TypeError)):
        env.reset(seed=seed)


def test_seeds_of_numpy_are_seeds() -> None:
    env = make(2, scenario="tiny")
    env.reset(seed=[np.int64(4), np.int32(5)])  # type: ignore[list-item]
    assert type(env.episodes.instance(0).seed) is int
    assert '"seed": 5' in env.episodes.instance(1).to_json()


def test_options_and_numbers_of_rows_are_checked() -> None:
    with pytest.raises(ConfigError, match="options"):
        make(2, scenario="tiny").reset(options={"seeds": 1})
    with pytest.raises(ConfigError, match="batch"):
        GeoPipelineVectorEnv(0, "tiny")
