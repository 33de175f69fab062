import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import CommandLine

from bace_env.config import load_scenario
from bace_env.episodes import Episodes
from bace_env.errors import BaceError, ConfigError
from bace_env.scenario import Sampler, episode_seed

torch = pytest.importorskip("torch", reason="needs the extra train")
pytest.importorskip("stable_baselines3", reason="needs the extra train")

from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402

from agents.ppo import MODEL  # noqa: E402
from train import learner, ppo  # noqa: E402
from train.checkpoint import CHECKPOINT, load_checkpoint, restore_checkpoint  # noqa: E402
from train.config import TrainConfig, make_config  # noqa: E402
from train.export import export  # noqa: E402
from train.learner import CURVE, make_env, make_model, train, training_seed  # noqa: E402
from train.mixture import MixedVecEnv, Setting, change_capacity  # noqa: E402
from train.teacher import demonstrate  # noqa: E402
from train.validation import RESERVED_EPISODES, Validation, reserved_seeds  # noqa: E402
from train.vec_env import BatchVecEnv  # noqa: E402

ROOT = Path(__file__).parents[1]
TINY: dict[str, Any] = {
    "settings": [["tiny", []], ["tiny", ["regions.cheap.gpus=3"]]],
    "evaluation_settings": [["tiny", []]],
    "envs_per_setting": 2,
    "width": 8,
    "total_steps": 160,
    "rollout_steps": 8,
    "batch_size": 16,
    "demonstrations": 2,
    "simulations": 10,
    "cloning_epochs": 1,
    "evaluate_every": 64,
    "checkpoint_every": 32,
    "evaluation_episodes": 2,
}


def test_no_training_episode_is_one_that_results_are_measured_on() -> None:
    reserved = reserved_seeds()
    assert {episode_seed(0, k) for k in range(200)} <= reserved
    assert len(reserved) == 2 * RESERVED_EPISODES
    # Seeded as the results are: the worst that could happen. Only the others are played.
    episodes = Episodes("tiny", batch=2, excluded=reserved)
    for b in range(2):
        episodes.seed(b, b)
    for _ in range(3):
        episodes.begin(range(2))
        assert all(episodes.instance(b).seed not in reserved for b in range(2))
    assert episodes.instance(0).seed == episode_seed(0, RESERVED_EPISODES + 2)
    for seed in range(50):
        env = make_config(TINY | {"seed": seed})
        first = training_seed(env.seed)
        assert not reserved.intersection(range(first, first + env.envs))


def test_the_environments_of_a_run_exclude_the_reserved_episodes() -> None:
    env = make_env(make_config(TINY))
    assert all(part.episodes._excluded == reserved_seeds() for part in env.parts)


def test_the_cost_weight_is_drawn_per_episode_from_its_seed() -> None:
    episodes = Episodes("tiny", batch=64, cost_weight=(0.5, 1.5))
    for b in range(64):
        episodes.seed(b, 1000 + b)
    episodes.begin(range(64))
    weights = [episodes.instance(b).cost_weight for b in range(64)]
    assert 0.5 <= min(weights) < 0.6 < 1.4 < max(weights) <= 1.5
    np.testing.assert_allclose(
        episodes.observations()["globals"][:, 0], [w / (1 + w) for w in weights], rtol=1e-6
    )
    episodes.seed(3, 1000 + 40)
    episodes.begin([3])
    assert episodes.instance(3).cost_weight == weights[40]
    # The reward is that of the weight: the return is the negative objective.
    total, done = np.zeros(64), np.zeros(64, dtype=bool)
    rng = np.random.default_rng(0)
    while not done.all():
        masks = episodes.masks()
        result = episodes.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in masks]))
        total += np.where(done, 0.0, result.reward)
        done |= result.terminated
    objectives = [episodes.final_info(b)["objective"] for b in range(64)]
    np.testing.assert_allclose(total, -np.array(objectives), rtol=1e-9)


@pytest.mark.parametrize("weight", [(1.0, 0.5), (-0.1, 1.0), (0.0, float("inf")), -1.0])
def test_a_wrong_cost_weight_is_refused(weight: Any) -> None:
    with pytest.raises(ConfigError, match="cost_weight: must be"):
        Episodes("tiny", cost_weight=weight)


def test_episodes_go_on_from_a_snapshot() -> None:
    def walk(env: BatchVecEnv, steps: int, rng: np.random.Generator) -> list[Any]:
        seen = []
        for _ in range(steps):
            masks = env.action_masks()
            actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
            observation, rewards, dones, _ = env.step(actions)
            seen += [*observation.values(), rewards, dones]
        return seen

    one, other = (BatchVecEnv(3, "tiny", cost_weight=(0.0, 2.0)) for _ in range(2))
    one.seed(5)
    one.reset()
    walk(one, 7, np.random.default_rng(0))
    kept = one.snapshot()
    now = other.restore(kept)
    for key, array in one.episodes.observations().items():
        np.testing.assert_array_equal(now[key], array)
    later = [walk(env, 20, np.random.default_rng(1)) for env in (one, other)]
    for mine, theirs in zip(*later, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.jit
def test_a_mixture_is_its_parts_side_by_side() -> None:
    settings = [Setting("paper"), Setting("physical", ("scale.gpus=0.75",))]
    mixed = MixedVecEnv(2, settings, cost_weight=0.3)
    parts = [
        BatchVecEnv(2, setting.scenario, overrides=setting.overrides, cost_weight=0.3)
        for setting in settings
    ]
    mixed.seed(9)
    parts[0].seed(9)
    parts[1].seed(11)
    observation, alone, rng = mixed.reset(), [p.reset() for p in parts], np.random.default_rng(0)
    ends = 0
    for _ in range(40):
        chosen, actions = [], []
        for i, own in enumerate(alone):
            capacity = (own["action_mask"].shape[1] - 1) // 8
            wide = (observation["action_mask"].shape[1] - 1) // 8
            np.testing.assert_array_equal(observation["jobs"][2 * i : 2 * i + 2], own["jobs"])
            both = observation["action_mask"][2 * i : 2 * i + 2]
            assert (both.sum(1) == own["action_mask"].sum(1)).all()
            np.testing.assert_array_equal(
                mixed.env_method("action_masks", indices=[2 * i, 2 * i + 1]), both == 1
            )
            each = np.array([rng.choice(np.flatnonzero(mask)) for mask in own["action_mask"]])
            chosen.append(each)
            slot, candidate = each // capacity, each % capacity
            actions += (slot * wide + candidate).tolist()
        observation, rewards, dones, infos = mixed.step(np.array(actions))
        results = [part.step(own) for part, own in zip(parts, chosen, strict=True)]
        alone = [result[0] for result in results]
        np.testing.assert_array_equal(rewards, np.concatenate([r[1] for r in results]))
        np.testing.assert_array_equal(dones, np.concatenate([r[2] for r in results]))
        for i in np.flatnonzero(dones):
            ends += 1
            theirs = results[i // 2][3][i % 2]
            assert infos[i]["objective"] == theirs["objective"]
            last = infos[i]["terminal_observation"]
            assert last["candidates"].shape == observation["candidates"][0].shape
    assert ends > 3


def test_half_of_the_drawn_weights_lie_in_the_lowest_eighth() -> None:
    sampler = Sampler(load_scenario("tiny"))
    drawn = np.array([sampler.draw_cost_weight(seed, 1.0, 3.0) for seed in range(4000)])
    assert drawn.min() >= 1.0 and drawn.max() <= 3.0
    for share in (0.2, 0.5, 0.8):  # the cube of a uniform number
        assert np.quantile(drawn, share) == pytest.approx(1.0 + 2.0 * share**3, abs=0.04)


def test_settings_of_other_shapes_are_refused() -> None:
    with pytest.raises(ConfigError, match="must have as many regions each, got 'fig1'"):
        MixedVecEnv(1, [Setting("tiny"), Setting("fig1")])


def test_an_action_without_a_place_in_a_smaller_setting_is_no_other_action() -> None:
    # Two slots, of 5 candidates here and 3 there; WAIT is 10 and 6.
    actions = np.array([0, 2, 3, 4, 5, 7, 8, 10, -1, 11])
    found = change_capacity(actions, 5, 3)
    assert found.tolist() == [0, 2, -1, -1, 3, 5, -1, 6, -1, 7]
    assert change_capacity(np.arange(7), 3, 5).tolist() == [0, 1, 2, 5, 6, 7, 10]


def test_the_learning_rate_stays_at_its_last_value_beyond_the_end() -> None:
    config = make_config(TINY)
    model = make_model(config, make_env(config))
    assert model.lr_schedule(1.0) == pytest.approx(config.learning_rate)
    assert model.lr_schedule(-1.5) == config.last_learning_rate


@pytest.mark.parametrize(("most", "size"), [(512, 32), (20, 16), (15, 11), (2, 2)])
def test_a_rollout_is_split_into_minibatches_evenly(most: int, size: int) -> None:
    config = make_config(TINY | {"batch_size": most})
    assert make_model(config, make_env(config)).batch_size == size  # of 32 rows, and no warning


def test_the_policy_reads_float64_as_float32() -> None:
    config = make_config(TINY)
    model = make_model(config, make_env(config))
    observation = BatchVecEnv(4, "tiny").reset()
    double = {key: array.astype(np.float64) for key, array in observation.items()}
    actions = [
        model.predict(each, deterministic=True)[0]  # type: ignore[arg-type]
        for each in (observation, double)
    ]
    np.testing.assert_array_equal(*actions)


def test_a_scenario_that_pays_for_running_is_no_yardstick() -> None:
    paid = ("regions.cheap.price_usd_per_kwh=-9", "regions.dear.price_usd_per_kwh=-9")
    with pytest.raises(ConfigError, match=r"evaluation of tiny, .*must be > 0.*got -"):
        Validation(Setting("tiny", paid), 1, 8, 1000.0, 5)


def test_the_teacher_plays_what_it_plans_where_the_action_set_has_it() -> None:
    episodes = Episodes("tiny", batch=4, cost_weight=(0.0, 2.0))
    for b in range(4):
        episodes.seed(b, 100 + b)
    found = demonstrate(episodes, 4, 100, np.random.default_rng(0))
    assert (found.objective <= 1.05 * found.planned).all()
    mask = found.observations["action_mask"]
    assert mask[np.arange(len(mask)), found.actions].all()
    # The first decision of an episode has all of it to come.
    first = found.returns[:4]
    np.testing.assert_allclose(-first, found.objective, rtol=1e-5)


def test_sb3_evaluates_the_policy_under_the_mask() -> None:
    config = make_config(TINY)
    model = make_model(config, make_env(config))
    env = BatchVecEnv(4, "tiny", cost_weight=0.3)
    env.seed(3)
    returns, _ = evaluate_policy(
        model, env, n_eval_episodes=8, deterministic=False, return_episode_rewards=True,
        warn=False,
    )  # fmt: skip
    assert len(returns) == 8
    assert int(env._invalid.sum()) == 0
    infos: list[Any] = []
    observation = env.reset()
    for _ in range(30):
        actions, _ = model.predict(observation)  # type: ignore[arg-type]
        observation, _, _, found = env.step(actions)
        infos += found
    assert not any(info["invalid_action"] for info in infos)


_KILLED = """
import json, os, signal, sys
from pathlib import Path
from train.config import make_config
from train.learner import train

def advance(what, done, total):
    if what == "training" and done >= 96:
        os.kill(os.getpid(), signal.SIGKILL)

train(make_config(json.loads(sys.argv[1])), Path(sys.argv[2]), resume=False, advance=advance)
"""


def weights(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = load_checkpoint(folder / CHECKPOINT)["policy"]
    return found


@pytest.mark.jit
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    config = make_config(TINY)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    train(config, whole, resume=False, say=lambda text: None)
    command = [sys.executable, "-c", _KILLED, json.dumps(TINY), str(killed)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert load_checkpoint(killed / CHECKPOINT)["steps"] == 96
    learner = train(config, killed, resume=True, say=lambda text: None)
    assert learner.num_timesteps == 160
    mine, theirs = (load_checkpoint(folder / CHECKPOINT) for folder in (whole, killed))
    for name, tensor in mine["policy"].items():
        assert torch.equal(tensor, theirs["policy"][name]), name
    for part, other in zip(mine["env"], theirs["env"], strict=True):
        for name, tensor in part.items():
            assert torch.equal(tensor.nan_to_num(), other[name].nan_to_num()), name
    assert torch.equal(mine["torch_random"], theirs["torch_random"])
    assert mine["own"]["best_score"] == theirs["own"]["best_score"]
    curves = [pd.read_csv(folder / CURVE).drop(columns="seconds") for folder in (whole, killed)]
    pd.testing.assert_frame_equal(*curves)
    assert curves[0]["steps"].tolist() == [0, 64, 128, 160]


def test_ctrl_c_does_not_break_an_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(TINY | {"demonstrations": 0, "total_steps": 32})
    train(config, tmp_path, resume=False, say=lambda text: None)

    def exporting(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        export(*arguments)

    monkeypatch.setattr(learner, "export", exporting)
    before = signal.getsignal(signal.SIGINT)
    learner.export_best(config, tmp_path)
    assert (tmp_path / MODEL).is_file()
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_before_training_exports_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(TINY | {"demonstrations": 0, "total_steps": 32})
    learner.write_run(config, tmp_path)
    train(config, tmp_path, resume=False, say=lambda text: None)

    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(learner.Learner, "prepare", interrupted)
    monkeypatch.setattr(sys, "argv", ["ppo", "--resume", str(tmp_path)])
    with pytest.raises(SystemExit) as caught:
        ppo.main()
    assert caught.value.code == 130
    assert "to go on from the last save" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / MODEL).exists()
    fresh = tmp_path / "fresh"
    (tmp_path / "fast.toml").write_text('settings = [["tiny", []]]\nenvs_per_setting = 2\n')
    monkeypatch.setattr(
        sys, "argv", ["ppo", "--config", str(tmp_path / "fast.toml"), "--out", str(fresh)]
    )
    with pytest.raises(SystemExit) as caught:
        ppo.main()
    assert caught.value.code == 130
    assert not fresh.exists()


def test_a_finished_run_that_is_resumed_stays_as_it_was(tmp_path: Path) -> None:
    config = make_config(TINY | {"demonstrations": 0, "total_steps": 32})
    train(config, tmp_path, resume=False, say=lambda text: None)
    curve, before = (tmp_path / CURVE).read_bytes(), weights(tmp_path)
    (tmp_path / CURVE).unlink()  # killed between the two files
    train(config, tmp_path, resume=True, say=lambda text: None)
    assert (tmp_path / CURVE).read_bytes() == curve
    for name, tensor in weights(tmp_path).items():
        assert torch.equal(tensor, before[name]), name

    other = make_config(TINY | {"envs_per_setting": 3})
    with pytest.raises(ConfigError, match=r"checkpoint\.pt: of another network or other settings"):
        restore_checkpoint(
            load_checkpoint(tmp_path / CHECKPOINT), make_model(other, make_env(other))
        )
    more = make_config(TINY | {"evaluation_cost_weights": [0.3]})
    with pytest.raises(ConfigError, match=r"checkpoint\.pt: .* other evaluations"):
        train(more, tmp_path, resume=True, say=lambda text: None)


def test_a_run_that_diverges_ends_and_keeps_its_best_network(tmp_path: Path) -> None:
    config = make_config(TINY | {"demonstrations": 0, "learning_rate": 1e30})
    with pytest.raises(BaceError, match="diverged: weights are not finite after 32 steps"):
        train(config, tmp_path, resume=False, say=lambda text: None)
    assert (tmp_path / MODEL).is_file()


def test_a_stop_saves_between_two_rollouts(tmp_path: Path) -> None:
    def advance(what: str, done: int, total: int) -> None:
        if what == "training" and done == 64:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    config: TrainConfig = make_config(TINY | {"demonstrations": 0, "checkpoint_every": 10_000})
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path, resume=False, say=said.append, advance=advance)
    assert load_checkpoint(tmp_path / CHECKPOINT)["steps"] == 96
    assert (tmp_path / MODEL).is_file()
    assert any("stopping" in text for text in said)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--resume", "none"], r"error: --resume none: no run: none/run\.json: No such file.*"),
        (["--resume", "none", "--seed", "3"], r"error: --resume: takes everything from the run.*"),
        (["--set", "scale.gpus=2"], r"error: --set: changes what --scenario names.*"),
        (["--scenario", "papr"], r"error: scenario: unknown preset 'papr'.*"),
        (["--config", "none.toml"], r"error: --config none\.toml: cannot read: No such file.*"),
        (["--total-steps", "0"], r"error: .*must be an integer from 1.*"),
        (["--config", "bad.toml"], r"error: batch_size: .*greater than or equal to 2, got 1"),
        (
            ["--config", "one.toml"],
            r"error: rollout_steps \* envs_per_setting.*must be >= 2, got 1",
        ),
        (["--config", "inf.toml"], r"error: learning_rate: .*finite number, got inf"),
        (
            ["--scenario", "tiny", "--scenario", "paper", "--out", "mine"],
            r"error: settings: must have as many regions each.*",
        ),
        (["--out", "no/such"], r"error: --out no/such: no such folder no"),
        (["--out", "."], r"error: --out \.: .*"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "bad.toml").write_text("batch_size = 1\n")
    (tmp_path / "inf.toml").write_text("learning_rate = inf\n")
    (tmp_path / "one.toml").write_text(
        "settings = [['tiny', []]]\nenvs_per_setting = 1\nrollout_steps = 1\n"
    )
    command = CommandLine(tmp_path, monkeypatch, capsys, ppo)
    before = command.files()
    outcome = command.run(*arguments)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert re.fullmatch(said, outcome.err.strip()), outcome.err
    assert command.files() == before
