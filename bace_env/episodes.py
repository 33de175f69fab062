"""B episodes with their seeds: what the single, vector and SB3 environments have in common."""

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction

from bace_env.batch import Batch
from bace_env.candidates import DEFAULT_BUDGETS
from bace_env.config import load_scenario
from bace_env.errors import ConfigError
from bace_env.instance import Instance
from bace_env.kernels import DONE, TRUNCATED
from bace_env.observation import Observation
from bace_env.scenario import Sampler, episode_seed
from bace_env.schema import Scenario
from bace_env.streams import episode_seeds
from bace_env.trace import Decision, EpisodeTrace
from bace_env.types import BoolArray, FloatArray, IntArray

#: Keys of the observation whose features may be negative (prices and costs).
_SIGNED = ("regions", "candidates")


class StepResult(NamedTuple):
    """One step of all episodes; the arrays are the caller's."""

    reward: FloatArray  # (B,) the sum of the terms
    terms: FloatArray  # (B, 2) JCT and cost
    terminated: BoolArray  # (B,)
    truncated: BoolArray  # (B,)
    invalid: BoolArray  # (B,) the mask forbade the action: it counted as WAIT


class Episodes:
    """B episodes of a scenario, each with a seed and a count of its own.

    Args:
        scenario: A preset's name, a TOML file, or a loaded scenario.
        overrides: `a.b=value` as on the command line.
        batch: B.
        slots: Q, visible jobs; the next decision of every built-in policy is in the action set
            from 6 on.
        budgets: Shares of K* that candidates aim at; the built-in policies need 1.0 among them.
        cost_weight: Lambda; a pair: drawn between the two anew for each episode, from its seed,
            small ones more often (see `Sampler.draw_cost_weight`); default: the scenario's.
        horizon_s: Truncates an episode this long after its first arrival.
        excluded: Seeds of episodes that are never played: those that are kept for evaluation.
        copy: As of `bace_env.batch.Batch`: False lends observations instead of giving them.

    Raises:
        ConfigError: A wrong scenario or argument.
    """

    def __init__(
        self,
        scenario: str | Path | Scenario,
        *,
        overrides: Sequence[str] = (),
        batch: int = 1,
        slots: int = 8,
        budgets: Sequence[float] = DEFAULT_BUDGETS,
        cost_weight: float | tuple[float, float] | None = None,
        horizon_s: float | None = None,
        excluded: Collection[int] = (),
        copy: bool = True,
    ) -> None:
        if slots < 1 or batch < 1:
            raise ConfigError(f"slots and batch: must be >= 1, got {slots} and {batch}")
        if not budgets or not all(0 < share <= 1 for share in budgets):
            raise ConfigError(f"budgets: must be shares in (0, 1], got {budgets!r}")
        _check_cost_weight(cost_weight)
        if horizon_s is not None and not horizon_s > 0:
            raise ConfigError(f"horizon_s: must be > 0, got {horizon_s}")
        loaded = scenario
        if not isinstance(loaded, Scenario):
            loaded = load_scenario(loaded, overrides)
        elif overrides:
            raise ConfigError("overrides: apply them when loading the scenario")
        self._sampler = Sampler(loaded)
        first = self._sampler.draw(0)
        if np.isfinite(first.price_end_s):
            raise ConfigError(
                'price_usd_per_kwh.beyond: must be "hold" or "repeat" in an environment, where any '
                'schedule may be tried (so must that of carbon_g_per_kwh), got "error"'
            )
        self._cost_weight = first.cost_weight if cost_weight is None else cost_weight
        self._excluded = frozenset(excluded)
        self._horizon_s = np.inf if horizon_s is None else horizon_s
        self._batch = Batch(first, batch, slots, budgets, copy=copy)
        self._seeds, self._drawn, self._next_episode = np.zeros((3, batch), np.int64)
        self._load(np.arange(batch))
        self.wait = self._batch.sizes["action_mask"] - 1

    def spaces(self) -> tuple[spaces.Space[dict[str, Any]], spaces.Discrete[Any]]:
        """Observation and action space of one episode."""
        found: dict[str, spaces.Space[Any]] = {}
        for key, size in self._batch.sizes.items():
            low = -1.0 if key in _SIGNED else 0.0
            found[key] = spaces.Box(low, 1.0, (size,), np.float32)
        found["action_mask"] = spaces.MultiBinary(self.wait + 1)
        return spaces.Dict(found), spaces.Discrete(self.wait + 1)

    def seed(self, b: int, seed: int) -> None:
        """Episode k of row b from now on is workload k of this seed."""
        episode_seed(seed, 0)  # refuses a bad one
        self._seeds[b] = operator.index(seed)
        self._next_episode[b] = 0

    def begin(self, rows: Sequence[int]) -> None:
        """Begin the next episode of each of these rows, no two of which are the same."""
        which = np.array(rows, dtype=np.int64)
        self._draw_seeds(which)
        self._load(which)
        self._batch.restart(which)

    def _draw_seeds(self, rows: IntArray) -> None:
        """Go on to the next episode of each row that is not excluded."""
        while rows.size > 0:
            seeds = episode_seeds(self._seeds[rows], self._next_episode[rows])
            self._drawn[rows] = seeds
            self._next_episode[rows] += 1
            rows = rows[[seed in self._excluded for seed in seeds.tolist()]]

    def _load(self, rows: IntArray) -> None:
        """Put what the rows' seeds draw into the batch."""
        seeds, weight = self._drawn[rows], self._cost_weight
        weights: float | FloatArray
        if isinstance(weight, tuple):
            draw = self._sampler.draw_cost_weight
            weights = np.array([draw(seed, *weight) for seed in seeds.tolist()])
        else:
            weights = weight
        self._batch.load_jobs(rows, *self._sampler.draw_rows(seeds), weights, self._horizon_s)

    def snapshot(self) -> dict[str, np.ndarray[Any, Any]]:
        """Where all episodes stand, as arrays to be stored."""
        rows = (self._seeds, self._drawn, self._next_episode)
        return self._batch.snapshot() | {"rows": np.stack(rows)}

    def restore(self, snapshot: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Go on from a `snapshot` of episodes with the same arguments."""
        self._seeds, self._drawn, self._next_episode = snapshot["rows"].copy()
        self._batch.restore(snapshot)

    def step(self, actions: IntArray) -> StepResult:
        """One step of every episode.

        Raises:
            InvalidAction: Not B whole numbers. One that the mask forbids counts as WAIT.
        """
        actions = np.asarray(actions)
        if actions.shape != self.now_s.shape or actions.dtype.kind not in "iu":
            raise InvalidAction(
                f"actions: needs {self.now_s.size} whole numbers, got {actions.dtype} of shape "
                f"{actions.shape}"
            )
        terms, codes, invalid = self._batch.step(np.ascontiguousarray(actions, dtype=np.int64))
        return StepResult(
            reward=terms.sum(axis=1),
            terms=terms,
            terminated=codes == DONE,
            truncated=codes == TRUNCATED,
            invalid=invalid,
        )

    def observations(self) -> dict[str, np.ndarray[Any, Any]]:
        """All observations, `(B, size)` each; the caller's own unless `copy` is False."""
        return dict(zip(Observation._fields, self._batch.observation, strict=True))

    def observation(self, b: int) -> dict[str, np.ndarray[Any, Any]]:
        """One observation, copied."""
        found = self._batch.peek(b)
        return dict(zip(Observation._fields, found, strict=True))

    def masks(self) -> BoolArray:
        """Which actions are valid, `(B, actions)`."""
        return self._batch.world.mask.astype(np.bool_)

    @property
    def now_s(self) -> FloatArray:
        """Time of every episode, `(B,)`, live."""
        return self._batch.world.state.now_s[:, 0]

    def instance(self, b: int) -> Instance:
        """The workload of row b."""
        *jobs, weight = self._batch.loaded(b)
        drawn = self._sampler.instance_of(int(self._drawn[b]), *jobs)
        return replace(drawn, cost_weight=weight)

    def state(self, b: int) -> Any:
        """The state of row b, as live views."""
        return self._batch.state(b)

    def placement(self, b: int, action: int) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
        """Job, path and GPUs of a valid action; None for WAIT."""
        return self._batch.placement(b, action)

    def actions_of(self, b: int, job: int) -> range:
        """The valid actions of row b that start a job; none if it is not visible."""
        return self._batch.actions_of(b, job)

    def trace(self, b: int, policy: str, decisions: Sequence[Decision] = ()) -> EpisodeTrace:
        """What has happened in row b."""
        instance, state = self.instance(b), self._batch.state(b)
        return EpisodeTrace.of_state(instance, state, policy, tuple(decisions))

    def final_info(self, b: int) -> dict[str, float]:
        """The finished (or truncated) episode of row b in numbers."""
        trace = self.trace(b, "env")
        summary = trace.summary()
        found = {
            "avg_jct_s": summary.avg_jct_s,
            "total_cost_usd": trace.cost_usd.sum(),
            "objective": trace.objective(),
            "makespan_s": summary.makespan_s,
            "gpu_utilization": trace.gpu_utilization(),
            "unfinished_jobs": summary.unfinished_jobs,
        }
        return {key: float(value) for key, value in found.items()}


def _check_cost_weight(weight: float | tuple[float, float] | None) -> None:
    if isinstance(weight, tuple):
        if not 0 <= weight[0] <= weight[1] < np.inf:
            raise ConfigError(f"cost_weight: must be 0 <= low <= high, finite, got {weight}")
    elif weight is not None and not 0 <= weight < np.inf:
        raise ConfigError(f"cost_weight: must be finite and >= 0, got {weight}")


def refuse_options(options: Mapping[str, Any] | None) -> None:
    """Gymnasium's reset options: there are none, so a misspelt one is refused."""
    if options:
        raise ConfigError(f"reset options: there are none, got {sorted(options)}")
