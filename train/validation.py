"""How good a network is on workloads that it never meets in training."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from agents.policy import make_policy
from bace_env.episodes import Episodes
from bace_env.errors import ConfigError
from bace_env.scenario import episode_seed
from bace_env.trace import EpisodeTrace
from bace_env.types import FloatArray
from eval.compare import RULES
from eval.rollout import run_episode
from train.mixture import Setting
from train.network import Network
from train.packed_layers import best_actions
from train.packing import pack
from train.teacher import best_objective

#: Episodes of these runs are kept out of training: the results' (0) and the validation's (1).
RESULTS_SEED, VALIDATION_SEED, RESERVED_EPISODES = 0, 1, 1000


def reserved_seeds() -> frozenset[int]:
    """Seeds of the episodes that no training may play."""
    return frozenset(
        episode_seed(seed, episode)
        for seed in (RESULTS_SEED, VALIDATION_SEED)
        for episode in range(RESERVED_EPISODES)
    )


class Score(NamedTuple):
    """A network on one setting."""

    avg_jct_s: float
    jct_ratio: float  # geometric means of the pairs, to BACE-Pipe
    cost_ratio: float
    objective_ratio: float  # of the sums
    rule_ratio: float  # of the objectives: to the fixed rule with the lowest sum
    gap_closed: float  # of BACE-Pipe's distance to the teacher's plans
    trace: EpisodeTrace  # of the first episode


class Validation:
    """Held-out episodes of one setting, with fixed rules and the teacher to compare with."""

    def __init__(
        self, setting: Setting, episodes: int, slots: int, cost_weight: float, simulations: int
    ) -> None:
        self.title = f"{setting.title}, lambda {cost_weight:g}"
        self._episodes = Episodes(
            setting.scenario,
            overrides=setting.overrides,
            batch=episodes,
            slots=slots,
            cost_weight=cost_weight,
        )
        self._begin()
        rng = np.random.default_rng(VALIDATION_SEED)
        rules = [make_policy(name) for name in RULES]
        bace, best, sums = [], [], np.zeros(len(rules))
        for b in range(episodes):
            traces = [run_episode(self._episodes.instance(b), rule) for rule in rules]
            jct_s, cost_usd = traces[0].summary().avg_jct_s, float(traces[0].cost_usd.sum())
            objectives = [trace.objective() for trace in traces]
            sums += objectives
            bace.append((jct_s, cost_usd, objectives[0]))
            best.append(best_objective(self._episodes, b, simulations, rng))
        self._bace, self._best, self._best_rule = np.array(bace).T, np.array(best), sums.min()
        if not self._best_rule > 0:
            raise ConfigError(
                f"evaluation of {self.title}: objectives of the rules must be > 0 to compare with, "
                f"got {self._best_rule / episodes:.3g} (prices may not be negative in the mean)"
            )

    def _begin(self) -> None:
        rows = range(len(self._episodes.now_s))
        for b in rows:
            self._episodes.seed(b, episode_seed(VALIDATION_SEED, b))
        self._episodes.begin(rows)

    def score(self, network: Network) -> Score:
        """Play all episodes by the best action of each decision; uses no random numbers."""
        self._begin()
        found = play(network, self._episodes)
        jct_s, _, objective = found
        with np.errstate(divide="ignore", invalid="ignore"):  # prices may be 0 or negative
            ratios = np.exp(np.log(found[:2] / self._bace[:2]).mean(axis=1))
        whole = self._bace[2].sum() - self._best.sum()
        closed = (self._bace[2].sum() - objective.sum()) / whole if whole != 0 else 0.0
        return Score(
            avg_jct_s=float(jct_s.mean()),
            jct_ratio=float(ratios[0]),
            cost_ratio=float(ratios[1]),
            objective_ratio=float(objective.sum() / self._bace[2].sum()),
            rule_ratio=float(objective.sum() / self._best_rule),
            gap_closed=float(closed),
            trace=self._episodes.trace(0, "ppo"),
        )


def play(network: Network, episodes: Episodes) -> FloatArray:
    """Average JCT, cost and objective of each begun episode, `(3, B)`, by the best actions."""
    n = len(episodes.now_s)
    live, found = np.ones(n, dtype=bool), np.full((3, n), np.nan)
    while live.any():
        observation = {k: torch.as_tensor(v) for k, v in episodes.observations().items()}
        with torch.no_grad():
            packed = pack(observation)
            scores, wait_scores, _ = network(packed)
            actions = best_actions(scores, wait_scores, packed).numpy()
        result = episodes.step(actions)
        for b in np.flatnonzero(result.terminated & live).tolist():
            info = episodes.final_info(b)
            found[:, b] = info["avg_jct_s"], info["total_cost_usd"], info["objective"]
        live &= ~result.terminated
    return found


def mean_objective_ratio(scores: Sequence[Score]) -> float:
    """What decides which network is the best: the geometric mean over the settings."""
    return _geometric_mean([score.objective_ratio for score in scores])


def mean_rule_ratio(scores: Sequence[Score]) -> float:
    """The same to the best fixed rule of each setting."""
    return _geometric_mean([score.rule_ratio for score in scores])


def _geometric_mean(ratios: Sequence[float]) -> float:
    # Negative prices may make one negative: the better for it.
    return float(np.exp(np.log(np.maximum(ratios, 1e-9)).mean()))
