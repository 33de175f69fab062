"""One training run: stable-baselines3 PPO from a warm start, with a directory that survives."""

import json
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import HParam, Image, Logger, TensorBoardOutputFormat
from torch.utils.tensorboard import SummaryWriter

from agents.ppo import MODEL
from bace_env.errors import BaceError, ConfigError
from bace_env.files import write_atomically
from bace_env.observation import FEATURES, features_fingerprint
from bace_env.render import draw_trace
from eval.report import git_revision, versions
from train.buffer import PackedRolloutBuffer
from train.checkpoint import (
    CHECKPOINT,
    load_checkpoint,
    restore_checkpoint,
    restore_random,
    save_checkpoint,
)
from train.cloning import Lesson, clone, collect
from train.config import TrainConfig
from train.export import export
from train.mixture import MixedVecEnv
from train.network import Network
from train.policy import PointerPolicy
from train.validation import (
    Score,
    Validation,
    mean_objective_ratio,
    mean_rule_ratio,
    reserved_seeds,
)

RUN = "run.json"  # settings and origin of a run, in its directory
CURVE = "curve.csv"  # its evaluations, one row each
_COLUMNS = ("steps", "seconds", "objective / bace", "objective / best rule", "gap closed")
_VALIDATION_SIMULATIONS = 600  # per job, for the plans that the gap is measured by
Say = Callable[[str], None]
Advance = Callable[[str, int, int], None]  # what, done, of how many


def bytes_needed(config: TrainConfig, env: MixedVecEnv) -> int:
    """A rough estimate of the memory that a run takes."""
    spaces: dict[str, Any] = dict(env.observation_space.spaces)  # type: ignore[attr-defined]
    row = sum(4 * int(np.prod(space.shape)) for space in spaces.values())
    rollout = config.rollout_steps * config.envs * row // 3  # packed; measured, as the rest
    episodes = 10 * config.envs * row
    jobs = 20  # decisions of a demonstration
    lessons = 2 * config.demonstrations * len(config.settings) * jobs * row
    return 620_000_000 + max(rollout + episodes, lessons)


def make_env(config: TrainConfig) -> MixedVecEnv:
    """The environments; no episode of theirs is one that is kept for measurement."""
    env = MixedVecEnv(
        config.envs_per_setting,
        config.settings,
        slots=config.slots,
        cost_weight=config.cost_weight,
        excluded=reserved_seeds(),
    )
    env.seed(training_seed(config.seed))
    return env


def training_seed(seed: int) -> int:
    """Seed of the first environment; those of the others follow."""
    word = np.random.SeedSequence(seed, spawn_key=(7,)).generate_state(1, np.uint64)[0]
    return int(word) % 2**52


def make_model(config: TrainConfig, env: MixedVecEnv) -> PPO:
    """SB3's PPO with our policy."""
    first, last = config.learning_rate, config.last_learning_rate
    rollout = config.rollout_steps * config.envs
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You have specified a mini-batch size")  # one row less
        model = PPO(
            PointerPolicy,
            env,
            # The last round may go beyond the end, where what remains is negative.
            learning_rate=lambda remaining: last + max(remaining, 0.0) * (first - last),
            n_steps=config.rollout_steps,
            batch_size=-(-rollout // -(-rollout // config.batch_size)),  # as alike as can be
            n_epochs=config.epochs,
            gamma=config.discount,
            gae_lambda=config.gae_lambda,
            clip_range=config.clip,
            vf_coef=config.value_weight,
            target_kl=config.target_kl,
            policy_kwargs={"width": config.width},
            rollout_buffer_class=PackedRolloutBuffer,
            seed=config.seed,
            device="cpu",
        )
    env.seed(training_seed(config.seed))  # the constructor has set others
    return model


def network_of(model: PPO) -> Network:
    """The network of a model of `make_model`."""
    assert isinstance(model.policy, PointerPolicy)
    return model.policy.network


@dataclass
class Progress:
    """What a run remembers beside the model."""

    best_score: float = float("inf")
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    best_steps: int = 0
    evaluated: int = -1  # steps at the last evaluation
    saved: int = -1
    seconds: float = 0.0  # of training up to the last save, demonstrations and evaluations included
    curve: list[list[float]] = field(default_factory=list)  # rows of `CURVE`


def _progress(content: dict[str, Any], config: TrainConfig) -> Progress:
    evaluations = len(config.evaluation_settings) * len(config.evaluation_cost_weights)
    try:
        progress = Progress(**content["own"])
        same = all(len(row) == len(_COLUMNS) + evaluations for row in progress.curve)
    except (LookupError, TypeError):
        same = False
    if not same:
        raise ConfigError(
            f"{CHECKPOINT}: of another version or of other evaluations than the run's"
        )
    return progress


class Learner(BaseCallback):
    """Schedules, evaluates, keeps the best and saves, always between two rollouts."""

    def __init__(self, config: TrainConfig, folder: Path, say: Say, advance: Advance) -> None:
        super().__init__()
        self.config, self.folder = config, folder
        self.state = Progress()
        self.resumed: dict[str, Any] | None = None
        self.stopping = False
        self._say, self._advance = say, advance
        self._validations: list[Validation] = []
        self._started = self._rollout_began = perf_counter()

    def prepare(self) -> None:
        """Work out what the evaluations compare with."""
        config = self.config
        pairs = list(product(config.evaluation_settings, config.evaluation_cost_weights))
        for i, (setting, weight) in enumerate(pairs):
            self._advance("held-out workloads", i, len(pairs))
            self._validations.append(
                Validation(
                    setting,
                    config.evaluation_episodes,
                    config.slots,
                    weight,
                    _VALIDATION_SIMULATIONS,
                )
            )

    def _on_training_start(self) -> None:
        if self.resumed is not None:
            restore_random(self.resumed)
        settings = self.config.model_dump(exclude={"settings", "evaluation_settings"})
        shown = {
            key: value if isinstance(value, int | float) else str(value)
            for key, value in settings.items()
        }
        metrics = {"eval/objective_ratio": 0.0, "eval/gap_closed": 0.0, "time/fps": 0.0}
        exclude = ("stdout", "log", "json", "csv")
        self.logger.record("hparams", HParam(shown, metrics), exclude=exclude)

    def _on_rollout_start(self) -> None:
        self.require_finite()
        config, steps = self.config, self.num_timesteps
        left = 1.0 - steps / config.total_steps
        entropy = config.last_entropy + max(left, 0.0) * (config.entropy - config.last_entropy)
        self.ppo.ent_coef = entropy
        self.logger.record("train/entropy_weight", entropy)
        due = steps - self.state.evaluated >= config.evaluate_every
        if self.state.evaluated < 0 or due:
            self.evaluate()
        due = steps - self.state.saved >= config.checkpoint_every
        if self.state.saved < 0 or due or self.stopping:
            self.save()
        if self.stopping:
            export_best(config, self.folder)
            raise KeyboardInterrupt
        self._advance("training", steps, config.total_steps)
        self._rollout_began = perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        seconds = perf_counter() - self._rollout_began
        buffer = self.ppo.rollout_buffer
        assert isinstance(buffer, PackedRolloutBuffer)
        n = buffer.buffer_size * buffer.n_envs
        self.logger.record("time/rollout_steps_per_s", n / seconds)
        for name, share in action_shares(buffer).items():
            self.logger.record(f"actions/{name}", share)

    @property
    def ppo(self) -> PPO:
        """The model."""
        assert isinstance(self.model, PPO)
        return self.model

    def require_finite(self) -> None:
        """Go no further with what is no network any more; the best one becomes the model file.

        Raises:
            BaceError: A weight is not finite.
        """
        if not all(weight.isfinite().all() for weight in network_of(self.ppo).parameters()):
            if self.state.saved >= 0:
                export_best(self.config, self.folder)
            raise BaceError(
                f"training has diverged: weights are not finite after {self.num_timesteps} steps, "
                f"with learning_rate {self.config.learning_rate:g}"
            )

    def evaluate(self) -> list[Score]:
        """Measure on held-out workloads; keep the network if none was better."""
        scores = [validation.score(network_of(self.ppo)) for validation in self._validations]
        steps = self.state.evaluated = self.num_timesteps
        mean = mean_objective_ratio(scores)
        closed = float(np.mean([score.gap_closed for score in scores]))
        self.logger.record("eval/objective_ratio", mean)
        self.logger.record("eval/gap_closed", closed)
        exclude = ("stdout", "log", "json", "csv")
        for validation, score in zip(self._validations, scores, strict=True):
            for name, value in score._asdict().items():
                if name != "trace":
                    self.logger.record(f"eval {validation.title}/{name}", value)
        image = Image(draw_trace(scores[0].trace), "HWC")  # drawing takes as long as all episodes
        self.logger.record("eval/schedule", image, exclude=exclude)
        seconds = self.state.seconds + perf_counter() - self._started
        self.state.curve.append(
            [steps, seconds, mean, mean_rule_ratio(scores), closed]
            + [score.objective_ratio for score in scores]
        )
        ratios = " ".join(f"{score.objective_ratio:.3f}" for score in scores)
        better = mean < self.state.best_score
        self._say(
            f"{steps:>9} steps  {seconds:6.0f} s  objective / bace "
            f"{mean:.4f} ({ratios})  gap closed {100 * closed:.0f} %{'  best' if better else ''}"
        )
        if better:
            self.state.best_score, self.state.best_steps = mean, steps
            self.state.best = {k: v.clone() for k, v in network_of(self.ppo).state_dict().items()}
        return scores

    def save(self) -> None:
        """Write the checkpoint, and the evaluations up to it."""
        now = perf_counter()
        self.state.seconds += now - self._started
        self._started, self.state.saved = now, self.num_timesteps
        save_checkpoint(self.folder / CHECKPOINT, self.ppo, vars(self.state))
        titles = [f"objective / bace: {validation.title}" for validation in self._validations]
        table = pd.DataFrame(self.state.curve, columns=[*_COLUMNS, *titles])
        table = table.astype({"steps": int}).round(4)
        write_atomically(self.folder / CURVE, table.to_csv(index=False).encode())


def export_best(config: TrainConfig, folder: Path) -> None:
    """Write the best network of a run's checkpoint as a model file."""
    state = _progress(load_checkpoint(folder / CHECKPOINT), config)
    network = Network(config.width)
    network.load_state_dict(state.best)
    about = {
        "steps": state.best_steps,
        "objective_ratio": state.best_score,
        "config": config.model_dump(mode="json"),
        "versions": versions() | {"torch": torch.__version__},
        "git_revision": git_revision(),
    }
    with _signal(signal.SIG_IGN):  # torch's exporter would turn Ctrl-C into an error of its own
        export(network, folder / MODEL, config.slots, about)


def action_shares(buffer: PackedRolloutBuffer) -> dict[str, float]:
    """Shares of the rollout's actions: WAIT, one region or several, how much of K*."""
    names = FEATURES["candidates"]
    candidates = buffer.candidates
    assert isinstance(buffer.action_space, spaces.Discrete)
    wait = int(buffer.action_space.n) - 1
    # After a rollout SB3 keeps (steps, environments, ...); `train` puts the two into one later.
    actions = buffer.actions.reshape(-1).astype(np.int64)
    started = np.flatnonzero(actions != wait)
    at = np.repeat(np.arange(actions.size), np.diff(candidates.first))
    chosen = candidates.features[candidates.action == actions[at]]
    budget, hops = (
        chosen[:, names.index(name)] for name in ("GPUs / K*", "hops between regions, n / (n + 2)")
    )
    edges = {"quarter of K*": 0.3, "half of K*": 0.6, "most of K*": 0.99, "all of K*": np.inf}
    found, below = {"wait": 1.0 - started.size / actions.size}, 0.0
    whole = max(started.size, 1)
    for name, edge in edges.items():
        up_to = float((budget <= edge).sum()) / whole
        found[name], below = up_to - below, up_to
    return found | {"several regions": float((hops > 0).sum()) / whole}


def write_run(config: TrainConfig, folder: Path) -> None:
    """Write down what a run is, for `--resume` and for people."""
    about = {
        "config": config.model_dump(mode="json"),
        "features": features_fingerprint(),
        "versions": versions() | {"torch": torch.__version__},
        "git_revision": git_revision(),
    }
    write_atomically(folder / RUN, (json.dumps(about, indent=1) + "\n").encode())


def train(
    config: TrainConfig, folder: Path, *, resume: bool, say: Say = print,
    advance: Advance = lambda what, done, total: None,
) -> Learner:  # fmt: skip
    """Train to the end, or until Ctrl-C, which saves first.

    Args:
        config: The settings.
        folder: The run's directory, with its `run.json`.
        resume: Go on from its checkpoint, if it has one.
        say: Told what people want to read.
        advance: Told how far it is.

    Raises:
        KeyboardInterrupt: After everything has been saved, and the best network exported; at
            once, if training has not begun or at a second Ctrl-C.
        BaceError: Settings that do not go together, or training has diverged.
    """
    torch.set_num_threads(1)  # more are slower on networks of this size
    env = make_env(config)
    say(
        f"{folder}: {len(config.settings)} settings, {config.envs} episodes at once, "
        f"{config.total_steps} steps; memory: about {bytes_needed(config, env) / 1e9:.1f} GB"
    )
    model = make_model(config, env)
    learner = Learner(config, folder, say, advance)
    checkpoint = folder / CHECKPOINT
    if resume and checkpoint.is_file():
        content = load_checkpoint(checkpoint)
        restore_checkpoint(content, model)
        learner.resumed, learner.state = content, _progress(content, config)
        say(f"resumed at {model.num_timesteps} steps")
    elif config.demonstrations:
        _warm_start(network_of(model), config, say, advance)
        torch.manual_seed(config.seed)
    learner.prepare()
    model.set_logger(_logger(folder, model.num_timesteps))
    try:
        with _stop_between_rollouts(learner, say):
            model.learn(
                config.total_steps - model.num_timesteps, learner, reset_num_timesteps=False
            )
        learner.require_finite()
        if learner.state.evaluated != model.num_timesteps:  # else resumed after the end
            learner.evaluate()
        learner.save()
    finally:
        model.logger.dump(model.num_timesteps)
        model.logger.close()
    return learner


def _warm_start(network: Network, config: TrainConfig, say: Say, advance: Advance) -> None:
    done = 0

    def on_setting() -> None:
        nonlocal done
        done += 1
        advance("demonstrations", done, len(config.settings))

    lessons = collect(config, on_setting)
    n = sum(each.actions.size for each in lessons)
    say(f"cloning {n} decisions of {config.demonstrations * len(config.settings)} schedules")
    passed = 0

    def on_epoch(lesson: Lesson) -> None:
        nonlocal passed
        passed += 1
        advance(f"cloning ({100 * lesson.agreement:.0f} % alike)", passed, config.cloning_epochs)

    clone(network, lessons, config, on_epoch)


def _logger(folder: Path, steps: int) -> Logger:
    board = TensorBoardOutputFormat(str(folder))
    board.writer.close()
    for empty in folder.glob("events.out.tfevents.*"):
        if empty.stat().st_size < 100:  # the header alone: of the writer that was just closed
            empty.unlink()
    # What a killed run wrote after its last checkpoint will be written again.
    board.writer = SummaryWriter(str(folder), purge_step=steps or None)
    return Logger(str(folder), [board])


@contextmanager
def _stop_between_rollouts(learner: Learner, say: Say) -> Iterator[None]:
    def on_interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        learner.stopping = True
        say("stopping after this round, then saving; Ctrl-C again: at once, from the last save")

    with _signal(on_interrupt):
        yield


@contextmanager
def _signal(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    """Another answer to Ctrl-C."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
