"""The Gymnasium environments: thin shells around `bace_env.episodes`."""

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from bace_env.candidates import DEFAULT_BUDGETS
from bace_env.episodes import Episodes, refuse_options
from bace_env.errors import ConfigError, InvalidPlacementError
from bace_env.render import draw_text, draw_trace
from bace_env.schema import Scenario
from bace_env.simulator import WAIT, Action, Pause, Placement, View
from bace_env.trace import Decision, EpisodeTrace

_Observation = dict[str, np.ndarray[Any, Any]]
_MAX_SEED = 2**53


class GeoPipelineEnv(gym.Env[_Observation, np.int64]):
    """Schedule LLM training jobs over geo-distributed GPU regions.

    ## Description
    Jobs are pipelines whose stages may lie in several regions; regions differ in GPUs, electricity
    price and bandwidth. An episode is one workload on an empty cluster, in continuous time. A step
    is one decision: start a visible job on one of its candidate placements now, or wait for the
    next event (completion, arrival, price change). Placements last to the end of a job.

    ## Action space
    `Discrete(Q * K + 1)`: index `q * K + c` starts the job of slot q on its candidate c; the last
    index is WAIT. Candidates of a job: every start region x growth of the path (none, along the
    highest bandwidth, by price) x GPU budget (shares of K*, and k_min), GPUs by Alg. 2, and what
    the built-in rules propose beside; duplicates removed. `explain_action` tells what an index
    means, `find_action` the index of a placement. Slots: the oldest pending job, then (where not
    all are visible) those that built-in policies would start, then by priority (Eq. 12) those that
    can start, then the rest.

    An index that the mask forbids counts as WAIT and sets `info["invalid_action"]`, or raises
    `InvalidPlacementError` with `strict=True`. WAIT is forbidden only while nothing lies ahead.

    ## Observation space
    `Dict` of flat `float32` boxes, bounded by construction; `bace_env.observation.FEATURES` names
    every number. R regions, Q slots, K candidates per slot:

    | key | shape | bounds |
    |---|---|---|
    | `globals` | `(10,)` | [0, 1] |
    | `regions` | `(R * 7,)` | [-1, 1] |
    | `links` | `(R * R * 3,)`, row = source | [0, 1] |
    | `jobs` | `(Q * 10,)` | [0, 1] |
    | `candidates` | `(Q * K * 8,)` | [-1, 1] |
    | `action_mask` | `(Q * K + 1,)`, int8 | {0, 1} |

    ## Reward
    `-(dt * jobs in the system) / (N * jct_ref) - lambda * (USD charged) / cost_ref`. A job's cost
    is charged when it starts, to its end. The undiscounted return is
    `-(avg JCT / jct_ref + lambda * cost / cost_ref)` exactly (for an episode cut short: with the
    time that its unfinished jobs have spent so far). `info` has both as `jct_term` and `cost_term`,
    beside `time_s` and `invalid_action`.

    ## Starting state
    Workload k of a seed is a function of (seed, k) alone: `reset(seed=s)` begins workload 0 of s,
    each further `reset()` the next one.

    ## Episode end
    Terminated when every job is finished; truncated at the horizon. `info` then has `avg_jct_s`,
    `total_cost_usd`, `objective`, `makespan_s`, `gpu_utilization`, `unfinished_jobs`,
    `invalid_actions`.

    Args:
        scenario: A preset (`paper`, `physical`, `fig1`, `tiny`), a TOML file, or a loaded one.
        overrides: `a.b=value`, as `--set` on the command line.
        slots: Q.
        budgets: Shares of K*, the most GPUs a candidate aims at.
        cost_weight: Lambda; default: the scenario's (0.3).
        horizon_s: Seconds from the first arrival to truncation; default: none.
        strict: Raise at a forbidden action.
        render_mode: `ansi` or `rgb_array` (Gantt by region and link use).
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 2}  # noqa: RUF012

    def __init__(
        self,
        scenario: str | Path | Scenario = "paper",
        *,
        overrides: Sequence[str] = (),
        slots: int = 8,
        budgets: Sequence[float] = DEFAULT_BUDGETS,
        cost_weight: float | None = None,
        horizon_s: float | None = None,
        strict: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ConfigError(f"render_mode: must be ansi or rgb_array, got {render_mode!r}")
        self._episodes = Episodes(
            scenario,
            overrides=overrides,
            slots=slots,
            budgets=budgets,
            cost_weight=cost_weight,
            horizon_s=horizon_s,
        )
        self.observation_space, self.action_space = self._episodes.spaces()
        self.strict = strict
        self.render_mode = render_mode
        self._decisions: list[Decision] = []
        self._invalid = 0
        self._seeded = False
        self._open = False

    @property
    def view(self) -> View:
        """What policies see of the present episode, live."""
        self._require_reset()
        return View(self._episodes.instance(0), self._episodes.state(0))

    def _require_reset(self) -> None:
        if not self._seeded:
            raise gym.error.ResetNeeded("call reset() first: there is no episode yet")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Observation, dict[str, Any]]:
        """Begin the next workload, or workload 0 of a new seed."""
        super().reset(seed=seed)
        refuse_options(options)
        if seed is not None or not self._seeded:
            chosen = int(self.np_random.integers(_MAX_SEED)) if seed is None else seed
            self._episodes.seed(0, chosen)
            self._seeded = True
        self._episodes.begin([0])
        self._decisions, self._invalid, self._open = [], 0, True
        return self._episodes.observation(0), {"time_s": float(self._episodes.now_s[0])}

    def step(
        self, action: np.int64 | int
    ) -> tuple[_Observation, float, bool, bool, dict[str, Any]]:
        """Carry out one decision."""
        if not self._open:
            raise gym.error.ResetNeeded("call reset() before step()")
        index, mask = operator.index(action), self.action_masks()
        valid = 0 <= index < mask.size and bool(mask[index])
        if self.strict and not valid:
            raise InvalidPlacementError(
                f"action {index}: the mask forbids it; {mask.sum()} of {mask.size} are valid"
            )
        placed = self._episodes.placement(0, index) if valid else None
        now_s = float(self._episodes.now_s[0])
        result = self._episodes.step(np.array([index if valid else -1]))
        if valid or mask[-1]:  # else nothing happened
            self._decisions.append(Decision(now_s, None if placed is None else placed[0], 0))
        self._invalid += not valid
        terminated, truncated = bool(result.terminated[0]), bool(result.truncated[0])
        info: dict[str, Any] = {
            "time_s": float(self._episodes.now_s[0]),
            "jct_term": float(result.terms[0, 0]),
            "cost_term": float(result.terms[0, 1]),
            "invalid_action": not valid,
        }
        if terminated or truncated:
            info |= self._episodes.final_info(0) | {"invalid_actions": self._invalid}
            self._open = False
        observation = self._episodes.observation(0)
        return observation, float(result.reward[0]), terminated, truncated, info

    def action_masks(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which actions are valid now, `(Q * K + 1,)`; the name is sb3-contrib's."""
        self._require_reset()
        return np.asarray(self._episodes.masks()[0])

    def explain_action(self, action: int) -> Action:
        """The placement (or WAIT) that an index stands for now.

        Raises:
            InvalidPlacementError: The mask forbids it.
        """
        if not (0 <= action <= self._episodes.wait and self.action_masks()[action]):
            raise InvalidPlacementError(f"action {action}: the mask forbids it")
        placed = self._episodes.placement(0, int(action))
        return WAIT if placed is None else Placement(*placed)

    def find_action(self, action: Action) -> int | None:
        """The index that stands for a placement (or WAIT) now; None if there is none."""
        if isinstance(action, Pause):
            return None
        if not isinstance(action, Placement):
            return self._episodes.wait if self.action_masks()[-1] else None
        wanted = (action.job, tuple(action.path), tuple(action.gpus))
        for index in self._episodes.actions_of(0, action.job):
            if self._episodes.placement(0, index) == wanted:
                return index
        return None

    def trace(self, policy: str = "env") -> EpisodeTrace:
        """The episode so far, for metrics, checks and export."""
        self._require_reset()
        return self._episodes.trace(0, policy, self._decisions)

    def render(self) -> Any:
        """Text, or an image `(height, width, 3)` uint8, of the episode so far."""
        if self.render_mode is None:
            return None
        trace = self.trace()
        return draw_text(trace) if self.render_mode == "ansi" else draw_trace(trace)


class GeoPipelineVectorEnv(VectorEnv[_Observation, np.ndarray[Any, Any], np.ndarray[Any, Any]]):
    """`GeoPipelineEnv` in batches of `num_envs`, stepped by one kernel call.

    Sub-environment i of `reset(seed=s)` is the single environment with seed s + i. Autoreset is
    SAME_STEP: a finished episode's last observation and info are in `info["final_obs"]` and
    `info["final_info"]`; beside them `info` has the new episode's `time_s`, and the terms and
    `invalid_action` of the step taken.

    Arguments are those of `GeoPipelineEnv`, less `strict` and `render_mode`. `copy=False` lends the
    observations instead of giving them away, which is faster: the arrays are read-only, and the
    next step overwrites them.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 1,
        scenario: str | Path | Scenario = "paper",
        *,
        overrides: Sequence[str] = (),
        slots: int = 8,
        budgets: Sequence[float] = DEFAULT_BUDGETS,
        cost_weight: float | None = None,
        horizon_s: float | None = None,
        copy: bool = True,
    ) -> None:
        super().__init__()
        self.num_envs = num_envs
        self.episodes = Episodes(
            scenario,
            overrides=overrides,
            batch=num_envs,
            slots=slots,
            budgets=budgets,
            cost_weight=cost_weight,
            horizon_s=horizon_s,
            copy=copy,
        )
        self.single_observation_space, self.single_action_space = self.episodes.spaces()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._invalid = np.zeros(num_envs, dtype=np.int64)
        self._seeded = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Any = None
    ) -> tuple[_Observation, dict[str, Any]]:
        """Begin the next workload of each, or workload 0 of new seeds (`seed + i`, or a list)."""
        refuse_options(options)
        first = None if seed is None or isinstance(seed, Sequence) else int(seed)
        super().reset(seed=first)
        seeds: Sequence[int | None]
        if isinstance(seed, Sequence):
            if len(seed) != self.num_envs:
                raise ConfigError(f"seed: needs {self.num_envs} seeds, got {len(seed)}")
            seeds = seed
        elif first is not None:
            seeds = [first + i for i in range(self.num_envs)]
        else:
            seeds = [None] * self.num_envs
        for i, one in enumerate(seeds):
            if one is not None or not self._seeded:
                self.episodes.seed(
                    i, int(self.np_random.integers(_MAX_SEED)) if one is None else one
                )
        self.episodes.begin(range(self.num_envs))
        self._seeded = True
        self._invalid[:] = 0
        return self.episodes.observations(), {"time_s": self.episodes.now_s.copy()}

    def step(
        self, actions: np.ndarray[Any, Any]
    ) -> tuple[
        _Observation,
        np.ndarray[Any, Any],
        np.ndarray[Any, Any],
        np.ndarray[Any, Any],
        dict[str, Any],
    ]:
        """One decision of every sub-environment."""
        if not self._seeded:
            raise gym.error.ResetNeeded("call reset() before step()")
        result = self.episodes.step(actions)
        self._invalid += result.invalid
        each = {
            "time_s": self.episodes.now_s.copy(),
            "jct_term": result.terms[:, 0],
            "cost_term": result.terms[:, 1],
            "invalid_action": result.invalid,
        }
        info: dict[str, Any] = dict(each)
        ended_rows = np.flatnonzero(result.terminated | result.truncated).tolist()
        for i in ended_rows:
            final = {key: value[i].item() for key, value in each.items()}
            final |= self.episodes.final_info(i) | {"invalid_actions": int(self._invalid[i])}
            ended = {"final_obs": self.episodes.observation(i), "final_info": final}
            info = self._add_info(info, ended, i)
            self._invalid[i] = 0
        if ended_rows:
            self.episodes.begin(ended_rows)
            info["time_s"][ended_rows] = self.episodes.now_s[ended_rows]
        observations = self.episodes.observations()
        return observations, result.reward, result.terminated, result.truncated, info

    def action_masks(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which actions are valid now, `(num_envs, Q * K + 1)`."""
        return self.episodes.masks()
