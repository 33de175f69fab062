import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecCheckNan,
    VecMonitor,
    VecNormalize,
)

import bace_env
from bace_env.env import GeoPipelineEnv
from bace_env.errors import ConfigError
from bace_env.wrappers import FlatObservation, RewardWeights
from train.vec_env import BatchVecEnv

ROOT = Path(__file__).parents[1]
PRESETS = ("paper", "paper-fitted", "physical", "fig1", "tiny", "week-in-the-cloud")

pytestmark = pytest.mark.jit
torch.set_num_threads(1)


def valid_actions(masks: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])


@pytest.mark.parametrize("scenario", PRESETS)
def test_sb3_finds_nothing_to_warn_about(scenario: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(GeoPipelineEnv(scenario), warn=True)


def test_the_batch_is_the_single_environments_step_by_step() -> None:
    n, rng = 5, np.random.default_rng(0)
    batch = BatchVecEnv(n, "paper", horizon_s=4e6)
    single = DummyVecEnv([lambda: GeoPipelineEnv("paper", horizon_s=4e6)] * n)
    batch.seed(7)
    single.seed(7)
    one, other = batch.reset(), single.reset()
    ended = 0
    for _ in range(120):
        for key, value in one.items():
            np.testing.assert_array_equal(value, other[key])
        actions = valid_actions(batch.action_masks(), rng)
        one, rewards, dones, infos = batch.step(actions)
        other, their_rewards, their_dones, their_infos = single.step(actions)
        np.testing.assert_array_equal(rewards, their_rewards)
        np.testing.assert_array_equal(dones, their_dones)
        for i in np.flatnonzero(dones):
            ended += 1
            for key, value in infos[i]["terminal_observation"].items():
                np.testing.assert_array_equal(value, their_infos[i]["terminal_observation"][key])
            for key in ("TimeLimit.truncated", "avg_jct_s", "total_cost_usd", "objective"):
                assert infos[i][key] == their_infos[i][key]
    assert ended > n


def test_a_horizon_is_told_from_an_end() -> None:
    env, rng = BatchVecEnv(4, "paper", horizon_s=3600.0), np.random.default_rng(0)
    env.seed(0)
    env.reset()
    told = []
    for _ in range(100):
        _, _, dones, infos = env.step(valid_actions(env.action_masks(), rng))
        told += [infos[i]["TimeLimit.truncated"] for i in np.flatnonzero(dones)]
        for i in np.flatnonzero(dones):
            assert infos[i]["TimeLimit.truncated"] == (infos[i]["unfinished_jobs"] > 0)
    assert any(told)


def test_seeds_repeat_and_unseeded_environments_differ() -> None:
    def first(seed: int | None) -> np.ndarray[Any, Any]:
        env = BatchVecEnv(2, "paper")
        if seed is not None:
            env.seed(seed)
        return np.asarray(env.reset()["jobs"])

    np.testing.assert_array_equal(first(3), first(3))
    assert not np.array_equal(first(3), first(4))
    assert not np.array_equal(first(None), first(None))
    np.testing.assert_array_equal(first(3)[1], first(4)[0])  # episode i has seed s + i


def test_saved_observations_stay_as_they_were() -> None:
    env, rng = BatchVecEnv(3, "paper"), np.random.default_rng(0)
    env.seed(0)
    kept = env.reset()
    copies = {key: value.copy() for key, value in kept.items()}
    masks = env.action_masks()
    masks_copy = masks.copy()
    rewards = env.step(valid_actions(masks, rng))[1]
    rewards_copy = rewards.copy()
    for _ in range(30):
        env.step(valid_actions(env.action_masks(), rng))
    for key, value in kept.items():
        np.testing.assert_array_equal(value, copies[key])
    np.testing.assert_array_equal(masks, masks_copy)
    np.testing.assert_array_equal(rewards, rewards_copy)


def test_masks_reach_sb3_contrib_through_its_wrappers() -> None:
    env = VecMonitor(BatchVecEnv(3, "paper"))
    env.seed(0)
    observation = env.reset()
    masks = get_action_masks(env)
    np.testing.assert_array_equal(masks, observation["action_mask"] == 1)
    assert env.env_method("action_masks", indices=[1])[0].tolist() == masks[1].tolist()
    assert env.get_attr("num_envs", indices=0) == [3]
    with pytest.raises(ConfigError, match="set_attr"):
        env.set_attr("horizon_s", 1.0)


def test_an_invalid_action_is_counted_and_is_a_wait() -> None:
    env = BatchVecEnv(1, "paper")
    env.seed(0)
    env.reset()
    forbidden = int(np.flatnonzero(~env.action_masks()[0])[0])
    infos = env.step(np.array([forbidden]))[3]
    assert infos[0]["invalid_action"]


def test_the_monitor_reports_the_return_of_the_episode() -> None:
    env, rng = VecMonitor(BatchVecEnv(4, "paper")), np.random.default_rng(0)
    env.seed(0)
    env.reset()
    seen = 0
    for _ in range(80):
        masks = np.stack(env.env_method("action_masks"))
        _, _, dones, infos = env.step(valid_actions(masks, rng))
        for i in np.flatnonzero(dones):
            seen += 1
            assert infos[i]["episode"]["r"] == pytest.approx(-infos[i]["objective"], rel=1e-5)
    assert seen > 4


def test_nan_checks_and_normalisation_work_on_top() -> None:
    keys = ["globals", "regions", "links", "jobs", "candidates"]
    env = VecNormalize(
        VecCheckNan(BatchVecEnv(2, "paper"), raise_exception=True), norm_obs_keys=keys
    )
    env.seed(0)
    observation = env.reset()
    assert set(np.unique(observation["action_mask"])) == {0, 1}  # not normalised
    rng = np.random.default_rng(0)
    for _ in range(40):
        masks = np.stack(env.env_method("action_masks"))
        env.step(valid_actions(masks, rng))


def test_maskable_ppo_never_takes_a_forbidden_action() -> None:
    env = VecMonitor(BatchVecEnv(4, "paper"), info_keywords=("invalid_actions",))
    model = MaskablePPO("MultiInputPolicy", env, n_steps=64, batch_size=64, seed=0, device="cpu")
    model.learn(512)
    invalid = [episode["invalid_actions"] for episode in model.ep_info_buffer or ()]
    assert len(invalid) > 5
    assert not any(invalid)


def test_ppo_learns_on_one_flat_vector() -> None:
    env = FlatObservation(gym.make(bace_env.ENV_ID, scenario="tiny"), with_mask=True)
    check_env(env, warn=True)
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=64, seed=0, device="cpu")
    model.learn(128)
    assert env.observation_space.contains(env.reset(seed=0)[0])


def test_masks_come_through_wrappers() -> None:
    env = RewardWeights(FlatObservation(Monitor(gym.make(bace_env.ENV_ID))), jct=1.0, cost=0.0)
    env.reset(seed=0)
    inner = env.unwrapped
    assert isinstance(inner, GeoPipelineEnv)
    np.testing.assert_array_equal(env.action_masks(), inner.action_masks())


def test_other_reward_weights_weigh_the_two_terms() -> None:
    rng = np.random.default_rng(0)
    env = RewardWeights(gym.make(bace_env.ENV_ID), jct=2.0, cost=-0.5)
    env.reset(seed=0)
    ended = False
    while not ended:
        action = rng.choice(np.flatnonzero(env.action_masks()))
        _, reward, ended, _, info = env.step(action)
        expected = 2.0 * info["jct_term"] - 0.5 * info["cost_term"]
        assert reward == pytest.approx(expected, abs=1e-15)
    with pytest.raises(ConfigError, match="must be finite"):
        RewardWeights(gym.make(bace_env.ENV_ID), jct=float("nan"))


@pytest.mark.parametrize(
    ("example", "arguments"),
    [
        ("random_rollout", []),
        ("sb3_ppo", ["2048"]),
        ("sb3_maskable_ppo", ["2048"]),
        ("cleanrl_style", ["2"]),
    ],
)
def test_the_examples_run(
    example: str,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [example, *arguments])
    runpy.run_path(str(ROOT / "examples" / f"{example}.py"), run_name="__main__")
    assert capsys.readouterr().out


def test_the_cleanrl_example_is_short() -> None:
    lines = (ROOT / "examples" / "cleanrl_style.py").read_text().splitlines()
    assert len(lines) <= 80
