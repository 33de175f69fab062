"""The single environment: Gymnasium's contract, the reward, seeds, errors, pictures."""

import copy
import importlib
import pickle
import re
import subprocess
import sys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from environment_steps import BUILT_IN, Observation, play, random_valid, same_observations
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.passive_env_checker import env_step_passive_checker
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

import bace_env
from agents.policy import make_policy
from bace_env import ENV_ID
from bace_env.checker import check_trace
from bace_env.config import load_scenario, parse_scenario, preset_names
from bace_env.env import GeoPipelineEnv
from bace_env.errors import ConfigError, InvalidPlacementError
from bace_env.observation import FEATURES
from bace_env.scenario import Sampler, episode_seed
from bace_env.simulator import WAIT, Action, Pause, Placement, Simulator
from bace_env.trace import EpisodeTrace

#: Presets; the large ones are too slow without compiled kernels.
PRESETS = [
    pytest.param(name, marks=[] if name in ("tiny", "fig1") else [pytest.mark.jit])
    for name in preset_names()
]
STEP_KEYS = {"time_s": float, "jct_term": float, "cost_term": float, "invalid_action": bool}
END_KEYS = {
    "avg_jct_s": float,
    "total_cost_usd": float,
    "objective": float,
    "makespan_s": float,
    "gpu_utilization": float,
    "unfinished_jobs": float,
    "invalid_actions": int,
}


def unwrapped(env: gym.Env[Any, Any]) -> GeoPipelineEnv:
    assert isinstance(env.unwrapped, GeoPipelineEnv)
    return env.unwrapped


# --- Gymnasium's contract ------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("more", [{}, {"slots": 2, "strict": False, "render_mode": "ansi"}])
def test_gymnasium_has_nothing_to_complain_about(preset: str, more: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(ENV_ID, scenario=preset, **more).unwrapped)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_step_passes_the_passive_checker_through_all_wrappers(preset: str) -> None:
    made = gym.make(ENV_ID, scenario=preset, max_episode_steps=1000)
    env = RecordEpisodeStatistics(made)
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        observation, _ = env.reset(seed=5)
        total, steps, ended = 0.0, 0, False
        while not ended:
            assert env.observation_space.contains(observation)
            mask = env.get_wrapper_attr("action_masks")()
            step = env_step_passive_checker(env, random_valid(rng, mask))
            observation, reward, terminated, truncated, info = step
            ended, total, steps = terminated or truncated, total + float(reward), steps + 1
    assert terminated
    assert (info["episode"]["r"], info["episode"]["l"]) == (pytest.approx(total), steps)


def test_a_limit_of_steps_truncates_and_is_no_end_of_the_episode() -> None:
    env = gym.make(ENV_ID, scenario="tiny", max_episode_steps=2)
    assert isinstance(env, TimeLimit)
    env.reset(seed=0)
    assert env.step(0)[2:4] == (False, False)
    _, _, terminated, truncated, info = env.step(0)
    assert (terminated, truncated) == (False, True)
    assert set(info) == set(STEP_KEYS)


def test_the_environment_is_known_under_its_module_and_after_the_import() -> None:
    code = (
        "import gymnasium as gym\n"
        f"assert {ENV_ID!r} not in gym.registry\n"
        f"env = gym.make('bace_env:{ENV_ID}', scenario='tiny')\n"
        f"assert env.spec.id == {ENV_ID!r} in gym.registry, env.spec\n"
        "import sys\n"
        "print('torch' in sys.modules, 'matplotlib' in sys.modules)\n"
    )
    run = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "False"]


def test_a_second_import_registers_nothing_twice() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.reload(bace_env)
    assert gym.spec(ENV_ID).entry_point == "bace_env.env:GeoPipelineEnv"


def test_a_specification_survives_json() -> None:
    env = gym.make(ENV_ID, scenario="tiny", slots=3, cost_weight=0.5, overrides=["gpu.pue=1.2"])
    assert env.spec is not None
    again = gym.make(type(env.spec).from_json(env.spec.to_json()))
    assert same_observations(env.reset(seed=1)[0], again.reset(seed=1)[0])


@pytest.mark.parametrize("preset", PRESETS)
def test_observations_are_as_the_docstring_says(preset: str) -> None:
    env = GeoPipelineEnv(preset, slots=3)
    observation, _ = env.reset(seed=0)
    r = unwrapped(env).view.instance.n_regions
    rows = re.findall(r"\| `(\w+)` \| `\((.+),\)`.*? \| (.+) \|", GeoPipelineEnv.__doc__ or "")
    assert isinstance(env.action_space, gym.spaces.Discrete)
    sizes = {"R": r, "Q": 3, "K": (int(env.action_space.n) - 1) // 3}
    assert isinstance(env.observation_space, gym.spaces.Dict)
    assert {key for key, _, _ in rows} == set(observation) == set(env.observation_space.spaces)
    for key, size, bounds in rows:
        space = env.observation_space[key]
        factors = re.split(r" ([*+]) ", size)
        expected = int(sizes.get(factors[0], 0) or factors[0])
        for sign, factor in zip(factors[1::2], factors[2::2], strict=True):
            value = int(sizes.get(factor, 0) or factor)
            expected = expected * value if sign == "*" else expected + value
        assert observation[key].shape == space.shape == (expected,)
        if key == "action_mask":
            assert isinstance(space, gym.spaces.MultiBinary)
            assert observation[key].dtype == np.int8
            continue
        assert isinstance(space, gym.spaces.Box)
        assert observation[key].dtype == np.float32
        assert bounds == ("[-1, 1]" if space.low.min() < 0 else "[0, 1]")
        assert space.high.max() == space.high.min() == 1
    entities = {"globals": 1, "regions": r, "links": r * r, "jobs": 3, "candidates": 3 * sizes["K"]}
    for key, number in entities.items():
        assert observation[key].size == number * len(FEATURES[key])


@pytest.mark.parametrize("preset", PRESETS)
def test_the_mask_is_pure_boolean_and_part_of_the_observation(preset: str) -> None:
    env = GeoPipelineEnv(preset)
    env.action_space.seed(0)
    observation, _ = env.reset(seed=2)
    for _ in range(2):
        mask = env.action_masks()
        assert mask.dtype == np.bool_
        assert mask.shape == (env.action_space.n,)  # type: ignore[attr-defined]
        assert np.array_equal(mask, observation["action_mask"])
        mask[:] = False  # the caller's own
        assert np.array_equal(env.action_masks(), observation["action_mask"])
        action = env.action_space.sample(mask=observation["action_mask"])
        assert env.action_masks()[action]
        observation = env.step(action)[0]


def test_info_holds_plain_scalars_of_fixed_types() -> None:
    env = GeoPipelineEnv("tiny")
    _, info = env.reset(seed=0)
    assert {key: type(value) for key, value in info.items()} == {"time_s": float}
    steps = list(play(env, "any"))
    for *_, info in steps[:-1]:
        assert {key: type(value) for key, value in info.items()} == STEP_KEYS
    last = steps[-1]
    assert {key: type(value) for key, value in last[4].items()} == STEP_KEYS | END_KEYS
    assert [type(value) for value in last[1:4]] == [float, bool, bool]


def test_saved_observations_stay_as_they_were() -> None:
    env = GeoPipelineEnv("tiny")
    first, _ = env.reset(seed=0)
    saved, copies = [first], [copy.deepcopy(first)]
    for observation, *_ in play(env, "valid"):
        saved.append(observation)
        copies.append(copy.deepcopy(observation))
    env.reset(seed=1)
    assert all(same_observations(a, b) for a, b in zip(saved, copies, strict=True))
    for array in first.values():
        array[:] = 0  # nor do they write through
    assert env.action_masks().any()


# --- The reward ----------------------------------------------------------------------------------

#: Scales of each preset: hours between arrivals, seconds to a horizon within the episode.
SCALES = {
    "tiny": (0.2, 1500.0),
    "fig1": (0.5, 2000.0),
    "paper": (60.0, 4e5),
    "paper-fitted": (6.0, 4e4),
    "physical": (60, 2e5),
    "week-in-the-cloud": (2.0, 2e5),  # has arrivals of its own
}
SERIES = "{ values = [0.3, -0.1, 0.2, 0.05], step_h = %s }"


def variants(preset: str) -> dict[str, dict[str, Any]]:
    """Arguments of the environment, by what is special about them."""
    hours, horizon_s = SCALES[preset]
    regions = [region.name for region in load_scenario(preset).regions]
    arrivals = ["workload.arrivals=poisson", f"workload.mean_interarrival_h={hours}"]
    if preset == "week-in-the-cloud":
        arrivals = []
    negative = [f"regions.{name}.price_usd_per_kwh=-0.05" for name in regions[:2]]
    series = [f"regions.{regions[1]}.price_usd_per_kwh={SERIES % (hours / 2)}"]
    return {
        "plain": {},
        "arrivals over time": {"overrides": arrivals},
        "cost is free": {"cost_weight": 0.0},
        "cost is all": {"cost_weight": 25.0, "overrides": ["objective.cost_weight=7"]},
        "horizon": {"horizon_s": horizon_s},
        "horizon and arrivals": {"horizon_s": 0.7 * horizon_s, "overrides": arrivals},
        "negative prices": {"overrides": negative},
        "price series": {"overrides": [*series, *arrivals], "cost_weight": 3.0},
        "few slots": {"slots": 6, "overrides": ["workload.n_jobs=14"]},
    }


def objective_of(trace: EpisodeTrace) -> float:
    """Mean time in the system / jct_ref + lambda * cost / cost_ref, job by job."""
    instance = trace.instance
    spent, usd = [], []
    for job, arrival_s in enumerate(instance.arrays.arrival_s.tolist()):
        left_s = float(trace.finish_s[job])
        if np.isnan(left_s) or left_s > trace.end_s:
            left_s = trace.end_s
        spent.append(max(left_s - arrival_s, 0.0))
        usd.append(float(trace.cost_usd[job]))
    mean_s = sum(spent) / len(spent)
    cost = sum(usd) / instance.cost_ref_usd
    return float(mean_s / instance.jct_ref_s + instance.cost_weight * cost)


@pytest.mark.jit
@pytest.mark.parametrize("preset", preset_names())
@pytest.mark.parametrize("variant", variants("tiny"))
def test_the_return_is_the_negative_objective(preset: str, variant: str) -> None:
    arguments = variants(preset)[variant]
    env = GeoPipelineEnv(preset, **arguments)
    ends = set()
    for who in (*BUILT_IN, "valid", "any"):
        env.reset(seed=11)
        terms, total = np.zeros(2), 0.0
        for _, reward, terminated, truncated, info in play(env, who):  # noqa: B007
            assert reward == pytest.approx(info["jct_term"] + info["cost_term"], abs=1e-15)
            terms += info["jct_term"], info["cost_term"]
            total += reward
        trace = env.trace(who)
        check_trace(trace)
        assert -total == pytest.approx(objective_of(trace), rel=1e-9, abs=1e-9)
        assert -total == pytest.approx(info["objective"], rel=1e-9, abs=1e-9)
        assert terms.sum() == pytest.approx(total, rel=1e-9, abs=1e-9)
        assert terminated != truncated
        assert terminated == bool(trace.finished.all())
        ends.add(truncated)
        if "cost_weight" in arguments:
            assert trace.instance.cost_weight == arguments["cost_weight"]
    assert ends == ({True} if "horizon" in variant else {False})


@pytest.mark.parametrize("preset", PRESETS)
def test_the_last_info_tells_the_episode_in_numbers(preset: str) -> None:
    arrivals = variants(preset)["arrivals over time"]
    for horizon_s in (None, SCALES[preset][1]):
        env = GeoPipelineEnv(preset, horizon_s=horizon_s, **arrivals)
        env.reset(seed=3)
        *_, info = list(play(env, "any", seed=1))[-1]
        trace, arrays = env.trace(), env.view.arrays
        done = trace.finish_s <= trace.end_s
        flow_s = (trace.finish_s - arrays.arrival_s)[done]
        span_s = trace.finish_s[done].max(initial=0.0) - arrays.arrival_s[0] if done.any() else 0.0
        held = (trace.alloc.sum(axis=1) * (trace.finish_s - trace.start_s))[done].sum()
        assert info["avg_jct_s"] == pytest.approx(flow_s.mean() if done.any() else 0.0)
        assert info["total_cost_usd"] == pytest.approx(trace.cost_usd.sum())
        assert info["makespan_s"] == pytest.approx(span_s)
        assert info["unfinished_jobs"] == (~done).sum()
        used = held / span_s / arrays.gpus.sum() if span_s else 0.0
        assert info["gpu_utilization"] == pytest.approx(used)
        assert 0 <= info["gpu_utilization"] <= 1
        if horizon_s is not None:
            assert info["time_s"] == arrays.arrival_s[0] + horizon_s == trace.end_s
            assert info["unfinished_jobs"] > 0


def test_the_horizon_counts_from_the_first_arrival_and_includes_its_own_moment() -> None:
    env = GeoPipelineEnv("tiny")
    env.reset(seed=0)
    short = Placement(1, (0,), (2,))
    end_s = env.view.execution_s(*short)  # about 452 s
    env = GeoPipelineEnv("tiny", horizon_s=end_s)
    env.reset(seed=0)
    env.step(find(env, short))
    _, _, terminated, truncated, info = env.step(find(env, WAIT))
    assert (terminated, truncated, info["time_s"]) == (False, False, end_s)
    env.step(find(env, Placement(0, (0,), (2,))))
    _, reward, terminated, truncated, info = env.step(find(env, WAIT))
    assert (terminated, truncated, info["time_s"]) == (False, True, end_s)
    assert reward == 0.0
    assert info["unfinished_jobs"] == 2.0


def find(env: GeoPipelineEnv, action: Action) -> int:
    index = env.find_action(action)
    assert index is not None
    return index


# --- Seeds ---------------------------------------------------------------------------------------

Episode = list[tuple[Observation, float]]


def episode(env: GeoPipelineEnv, seed: int | None, actions: int = 0) -> Episode:
    """Everything that comes out of an episode with random valid actions."""
    observation, _ = env.reset(seed=seed)
    steps = [(step[0], step[1]) for step in play(env, "valid", seed=actions)]
    return [(observation, 0.0), *steps]


def same_episodes(one: Episode, other: Episode) -> bool:
    return len(one) == len(other) and all(
        same_observations(a[0], b[0]) and a[1] == b[1] for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_a_seed_repeats_the_episode(preset: str) -> None:
    env = GeoPipelineEnv(preset)
    first, _, again = episode(env, 4), episode(env, 5, actions=1), episode(env, 4)
    assert same_episodes(first, again)
    assert same_episodes(first, episode(GeoPipelineEnv(preset), 4))


@pytest.mark.jit
def test_resets_without_a_seed_differ() -> None:
    seeds = []
    for _ in range(3):
        env = GeoPipelineEnv("paper")
        for _ in range(3):
            env.reset()
            seeds.append(env.view.instance.seed)
    assert len(set(seeds)) == len(seeds)
    env.reset(seed=1)
    one = env.view.instance.arrays.iterations.copy()
    env.reset()
    assert not np.array_equal(one, env.view.instance.arrays.iterations)


@pytest.mark.parametrize("overrides", [(), ("workload.arrivals=poisson",)])
def test_workload_k_of_a_seed_is_the_same_whatever_happened_before(
    overrides: tuple[str, ...],
) -> None:
    if overrides:
        overrides = (*overrides, "workload.mean_interarrival_h=0.2")
    drawn = [Sampler(load_scenario("tiny", overrides)).draw(episode_seed(9, k)) for k in range(4)]
    env = GeoPipelineEnv("tiny", overrides=overrides)
    for before in range(3):
        env.reset(seed=100 + before)
        list(play(env, "any", seed=before))
        for k in range(4):
            env.reset(seed=9 if k == 0 else None)
            instance = env.view.instance
            assert instance.seed == drawn[k].seed
            assert np.array_equal(instance.arrays.iterations, drawn[k].arrays.iterations)
            assert np.array_equal(instance.arrays.arrival_s, drawn[k].arrays.arrival_s)
            for _ in range(before):  # part of an episode, or none
                env.step(int(np.flatnonzero(env.action_masks())[0]))
            with pytest.raises(ConfigError):
                env.reset(options={"seed": 3})  # a refused reset counts for nothing
    assert drawn[0].seed == 9


def test_options_of_reset_are_refused_by_name() -> None:
    env = GeoPipelineEnv("tiny")
    with pytest.raises(ConfigError, match="horizon"):
        env.reset(options={"horizon": 3})
    env.reset(options={})


@pytest.mark.parametrize("seed", [-1, 2**53, 1.5])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    with pytest.raises((ConfigError, gym.error.Error)):
        GeoPipelineEnv("tiny").reset(seed=seed)


# --- Actions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_explaining_and_finding_an_action_are_inverse(preset: str) -> None:
    env = GeoPipelineEnv(preset)
    env.reset(seed=6)
    rng, done = np.random.default_rng(6), False
    while not done:
        mask = env.action_masks()
        meanings = {}
        for index in np.flatnonzero(mask).tolist():
            action = env.explain_action(index)
            assert env.find_action(action) == index
            meanings[index] = action
        assert len(set(meanings.values())) == len(meanings)
        assert (meanings.get(mask.size - 1) is WAIT) == bool(mask[-1])
        for index in (-1, mask.size, *np.flatnonzero(~mask)[:3].tolist()):
            with pytest.raises(InvalidPlacementError, match="forbids"):
                env.explain_action(index)
        _, _, terminated, truncated, _ = env.step(int(random_valid(rng, mask)))
        done = terminated or truncated


def test_what_is_no_action_is_not_found() -> None:
    env = GeoPipelineEnv("tiny")
    env.reset(seed=0)
    assert not env.action_masks()[-1]  # all jobs are here and nothing runs
    assert env.find_action(WAIT) is None
    for placement in (
        Placement(0, (0,), (7,)),
        Placement(3, (0,), (1,)),
        Placement(-1, (0,), (1,)),
        Placement(0, (), ()),
    ):
        assert env.find_action(placement) is None
    explained = env.explain_action(0)
    assert isinstance(explained, Placement)
    env.step(0)
    assert env.find_action(explained) is None
    assert env.find_action(WAIT) == env.action_masks().size - 1
    assert env.find_action(Pause(1e9)) is None  # the environment has no pauses


def test_waiting_moves_time_to_the_next_event() -> None:
    overrides = ["workload.arrivals=poisson", "workload.mean_interarrival_h=0.1"]
    env = GeoPipelineEnv("tiny", overrides=overrides)
    env.reset(seed=0)
    simulator, policy = Simulator(env.view.instance), make_policy("random")
    policy.reset(0)
    rng, done = np.random.default_rng(0), False
    while not done:
        assert env.view.now_s == simulator.view.now_s
        assert np.array_equal(env.view.free_gpus, simulator.view.free_gpus)
        action = env.explain_action(int(random_valid(rng, env.action_masks())))
        simulator.step(action)
        done = env.step(find(env, action))[2]
    assert simulator.done
    assert np.array_equal(env.trace().finish_s, simulator.trace("").finish_s)


def forbidden(env: GeoPipelineEnv) -> list[int]:
    mask = env.action_masks()
    return [-1, -(2**70), 2**70, mask.size, *np.flatnonzero(~mask).tolist()]


def test_a_strict_environment_raises_and_stays_as_it_was() -> None:
    env = GeoPipelineEnv("tiny", strict=True)
    env.reset(seed=0)
    env.step(0)
    before, time_s = env.action_masks(), env.view.now_s
    for action in forbidden(env):
        with pytest.raises(InvalidPlacementError, match=f"action {action}: the mask forbids it"):
            env.step(action)
    assert env.view.now_s == time_s
    assert np.array_equal(env.action_masks(), before)
    steps = list(play(env, "valid"))
    assert steps[-1][2]
    assert steps[-1][4]["invalid_actions"] == 0


def test_a_forbidden_action_counts_as_waiting() -> None:
    one, other = GeoPipelineEnv("tiny"), GeoPipelineEnv("tiny")
    wait = int(one.action_space.n) - 1  # type: ignore[attr-defined]
    for action in (-1, wait + 1, 2**70, wait - 1):
        for env in (one, other):
            env.reset(seed=0)
            env.step(find(env, Placement(1, (0,), (2,))))
        bad, good = one.step(action), other.step(wait)
        assert same_observations(bad[0], good[0])
        assert bad[1:4] == good[1:4]
        assert bad[4] == good[4] | {"invalid_action": True}
        assert one.trace().decisions == other.trace().decisions  # a WAIT that really was one
        assert list(play(one, "valid"))[-1][4]["invalid_actions"] == 1


def test_a_forbidden_action_changes_nothing_where_waiting_is_forbidden_too() -> None:
    env = GeoPipelineEnv("tiny")
    observation, info = env.reset(seed=0)
    actions = forbidden(env)
    for action in actions:
        after, reward, terminated, truncated, found = env.step(action)
        assert same_observations(observation, after)
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert (found["time_s"], found["invalid_action"]) == (info["time_s"], True)
    assert env.trace().decisions == ()
    assert list(play(env, "valid"))[-1][4]["invalid_actions"] == len(actions)


@pytest.mark.parametrize("action", [0.0, 0.7, float("nan"), None, "0", [0, 1], np.array([0])])
def test_what_is_no_whole_number_is_refused(action: Any) -> None:
    env = GeoPipelineEnv("tiny")
    env.reset(seed=0)
    with pytest.raises(TypeError):
        env.step(action)
    assert list(play(env, "valid"))[-1][2]


@pytest.mark.parametrize("action", [0, np.int64(0), np.int32(0), np.array(0)])
def test_whole_numbers_of_any_kind_are_actions(action: Any) -> None:
    env = GeoPipelineEnv("tiny")
    env.reset(seed=0)
    assert not env.step(action)[4]["invalid_action"]


def test_nothing_goes_before_a_reset_or_after_the_end() -> None:
    env = GeoPipelineEnv("tiny", render_mode="ansi")
    for early in (env.action_masks, env.render, env.trace, lambda: env.view):
        with pytest.raises(gym.error.ResetNeeded):
            early()
    for call in (env.step, env.explain_action):
        with pytest.raises(gym.error.ResetNeeded):
            call(0)
    for _ in range(2):
        env.reset(seed=0)
        assert list(play(env, "valid"))[-1][2]
        with pytest.raises(gym.error.ResetNeeded):
            env.step(0)
        assert env.trace().finished.all()
        assert env.action_masks().any()


def test_jobs_beyond_the_slots_are_counted() -> None:
    env = GeoPipelineEnv("tiny", slots=4, overrides=["workload.n_jobs=10"])
    observation, _ = env.reset(seed=0)
    names = FEATURES["globals"]
    hidden = names.index("pending jobs that are not visible, n / (n + Q)")
    assert observation["globals"][hidden] == np.float32(6 / (6 + 4))
    assert observation["globals"][names.index("slots in use, share")] == 1.0


# --- Several environments, and wrong arguments ---------------------------------------------------


def test_environments_share_nothing() -> None:
    one, other = GeoPipelineEnv("tiny"), GeoPipelineEnv("tiny")
    alone = episode(GeoPipelineEnv("tiny"), 3)
    one.reset(seed=3)
    other.reset(seed=3)
    rest = play(other, "any", seed=8)
    next(rest)
    mixed = []
    for step in play(one, "valid", seed=0):
        mixed.append((step[0], step[1]))
        next(rest, None)
    assert same_episodes(alone[1:], mixed)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_in_the_midst_of_an_episode_goes_on_alone(clone: Any) -> None:
    env = GeoPipelineEnv("tiny")
    env.reset(seed=0)
    env.step(0)
    twin = clone(env)
    one = list(play(env, "valid", seed=1))
    assert twin.view.now_s == 0.0
    two = list(play(twin, "bace", seed=1))
    assert twin.view.now_s == twin.trace().end_s == two[-1][4]["time_s"] > 0
    assert one[-1][4]["time_s"] == env.view.now_s
    check_trace(twin.trace())
    env.reset()
    twin.reset()
    assert env.view.instance.seed == twin.view.instance.seed == episode_seed(0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scenario": "papre"}, "did you mean 'paper'"),
        ({"overrides": ["regions.cheap.gpu=3"]}, "unknown key"),
        ({"slots": 0}, "slots"),
        ({"budgets": ()}, "budgets"),
        ({"budgets": (0.0,)}, "budgets"),
        ({"budgets": (1.5,)}, "budgets"),
        ({"budgets": (float("nan"),)}, "budgets"),
        ({"cost_weight": -1.0}, "cost_weight"),
        ({"cost_weight": float("nan")}, "cost_weight"),
        ({"cost_weight": float("inf")}, "cost_weight"),
        ({"horizon_s": 0.0}, "horizon_s"),
        ({"horizon_s": float("nan")}, "horizon_s"),
        ({"render_mode": "human"}, "render_mode"),
        ({"scenario": load_scenario("tiny"), "overrides": ["gpu.pue=2"]}, "overrides"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GeoPipelineEnv(**{"scenario": "tiny", **arguments})


def test_a_job_that_only_the_first_prices_let_in_is_refused() -> None:
    """Along the highest bandwidth no path reaches three regions; by price one does for an hour."""
    one_way = [("A", "B", 8.0), ("A", "C", 16.0), ("B", "C", 8.0)]
    changing = {"values": [0.2, 0.4], "beyond": "hold"}
    prices = {"A": 0.1, "B": changing, "C": 0.3}
    measured = {"gpus": [1, 2, 3], "t_comp_ms": [300, 150, 100]}
    data = {
        "name": "only at first",
        "regions": [
            {"name": name, "gpus": 1, "price_usd_per_kwh": price} for name, price in prices.items()
        ],
        "network": {
            "rule": "listed",
            "links": [
                {"source": u, "target": v, "gbps": gbps, "both_ways": False}
                for u, v, gbps in one_way
            ],
        },
        "models": [{"name": "m", "activation_mb": 10.0, "k_min": 3, "measured": measured}],
        "jobs": [{"name": "j", "model": "m", "batch_size": 4, "iterations": 100}],
    }
    with pytest.raises(ConfigError, match=r"could host j \(k_min 3\)"):
        GeoPipelineEnv(parse_scenario(data))


def test_an_episode_without_any_work_costs_nothing() -> None:
    jobs = [job.name for job in load_scenario("tiny").jobs]
    env = GeoPipelineEnv("tiny", overrides=[f"jobs.{name}.iterations=0" for name in jobs])
    env.reset(seed=0)
    steps = list(play(env, "valid"))
    assert {step[1] for step in steps} == {0.0}
    assert steps[-1][2]


# --- Pictures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_text_names_every_job_and_where_it_ran(preset: str) -> None:
    env = gym.make(ENV_ID, scenario=preset, render_mode="ansi")
    env.reset(seed=0)
    start: Any = env.render()
    jobs = unwrapped(env).view.instance.job_names
    assert [line.split()[0] for line in start.splitlines()[1:]] == list(jobs)
    assert all(line.endswith(("pending", "not arrived")) for line in start.splitlines()[1:])
    list(play(unwrapped(env), "valid"))
    end: Any = env.render()
    assert end.splitlines()[0].endswith(f"{len(jobs)} of {len(jobs)} done")
    assert all(" x" in line for line in end.splitlines()[1:])


@pytest.mark.parametrize("preset", PRESETS)
def test_the_image_is_of_one_size_not_blank_and_the_same_again(preset: str) -> None:
    frames = []
    for _ in range(2):
        env = gym.make(ENV_ID, scenario=preset, render_mode="rgb_array")
        env.reset(seed=0)
        empty: Any = env.render()
        list(play(unwrapped(env), "bace"))
        full: Any = env.render()
        assert empty.dtype == full.dtype == np.uint8
        assert empty.shape == full.shape
        assert full.shape[2] == 3
        assert not np.array_equal(empty, full)
        assert full.reshape(-1, 3).std(axis=0).min() > 10
        frames += [empty, full]
    assert np.array_equal(frames[0], frames[2])
    assert np.array_equal(frames[1], frames[3])


@pytest.mark.parametrize(
    "names", [("_a", "_b"), ("$\\foo$", "a$b$c"), ("%s", "{}"), ("x" * 99, "y")]
)
def test_regions_may_have_any_printable_name_in_the_image(names: tuple[str, str]) -> None:
    overrides = [f"regions.{i}.name='{name}'" for i, name in enumerate(names)]
    overrides += [
        f"network.links.0.{end}='{name}'"
        for end, name in zip(("source", "target"), names, strict=True)
    ]
    env = GeoPipelineEnv("tiny", overrides=overrides, render_mode="rgb_array")
    env.reset(seed=0)
    env.step(find(env, Placement(0, (0, 1), (2, 2))))  # uses the link, which gets a legend
    image = env.render()
    assert image.std() > 10


def test_without_a_render_mode_there_is_no_picture() -> None:
    env = GeoPipelineEnv("tiny")
    env.reset(seed=0)
    assert env.render() is None
