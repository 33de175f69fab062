"""Demonstrations for the warm start: annealed schedules, played in the environment.

A teacher's placement need not be in the action set. It then becomes the candidate of the same job
that is nearest in execution time and cost; where none is near, the job waits for what it was
promised. Of several jobs that are due, the one whose placement is met best goes first. The rest is
planned anew at every decision, so each is a good one wherever the last has led.
"""

from typing import Any, NamedTuple

import numpy as np

from agents.heuristic import heuristic_options
from agents.search import PORTFOLIO, Planner, remaining
from bace_env.episodes import Episodes
from bace_env.instance import Instance
from bace_env.kernels import time_tolerance
from bace_env.observation import FEATURES
from bace_env.types import N_PENDING, FloatArray, State

_Array = np.ndarray[Any, Any]
_RUN_S = FEATURES["candidates"].index("execution time, squashed")
_COST = FEATURES["candidates"].index("cost at present prices, squashed, signed")
_NEAR = 0.3  # sum of the relative differences in execution time and cost
_LATER = 4  # a plan is made anew with so many times fewer simulations than at first
_MOST_STEPS = 50  # per job of an episode; a schedule needs about two


class Demonstrations(NamedTuple):
    """Decisions of the teacher."""

    observations: dict[str, _Array]  # (n, size) each
    actions: _Array  # (n,)
    returns: _Array  # (n,) what was still to come, undiscounted
    objective: FloatArray  # (episodes,) as played
    planned: FloatArray  # (episodes,) as planned


class _Plan(NamedTuple):
    start_s: FloatArray  # (N,)
    run: FloatArray  # (N,) in units of jct_ref_s
    cost: FloatArray  # (N,) in units of cost_ref_usd / N


class _Teacher:
    """Plans one episode, and plans the rest anew at every decision: it may have been left."""

    def __init__(
        self, instance: Instance, state: State, simulations: int, rng: np.random.Generator
    ) -> None:
        self._planner = Planner(instance, tuple(heuristic_options(spec) for spec in PORTFOLIO))
        self._instance, self._simulations, self._rng = instance, simulations, rng
        self._planner.begin(state)
        self._planner.try_bases()
        self._planner.improve(rng.random((simulations * instance.n_jobs, 9)))
        self.objective = float(self._planner.value)

    def plan(self, state: State) -> _Plan:
        planner, instance = self._planner, self._instance
        rest = remaining(planner, state, planner)
        planner.begin(state)
        if rest is not None:
            planner.keep_plan(*rest)
        planner.try_bases()
        simulations = self._simulations * planner.left // _LATER
        planner.improve(self._rng.random((simulations, 9)))
        planned = planner.planned()
        run_s = planned.finish_s - planned.start_s
        cost_unit_usd = instance.cost_ref_usd / instance.n_jobs
        return _Plan(
            start_s=planned.start_s.copy(),
            run=run_s / instance.jct_ref_s,
            cost=planned.cost_usd / cost_unit_usd,
        )


def best_objective(episodes: Episodes, b: int, simulations: int, rng: np.random.Generator) -> float:
    """Of the plan for an episode that has just begun, with so many simulations per job."""
    return _Teacher(episodes.instance(b), episodes.state(b), simulations, rng).objective


def demonstrate(
    episodes: Episodes, n: int, simulations: int, rng: np.random.Generator
) -> Demonstrations:
    """Play the next episode of each of the n rows by a plan.

    Args:
        episodes: Seeded.
        n: Its rows.
        simulations: Of annealing, per job.
        rng: For the annealing.
    """
    episodes.begin(range(n))
    teachers = [
        _Teacher(episodes.instance(b), episodes.state(b), simulations, rng) for b in range(n)
    ]
    live, n_jobs = np.ones(n, dtype=bool), episodes.state(0).start_s.size
    seen, rows, actions, rewards = [], [], [], []
    objective = np.full(n, np.nan)
    for _ in range(_MOST_STEPS * n_jobs):
        observation = episodes.observations()
        chosen = np.full(n, episodes.wait)
        at = np.flatnonzero(live)
        for b in at.tolist():
            chosen[b] = _action(episodes, b, observation, teachers[b].plan(episodes.state(b)))
        result = episodes.step(chosen)
        seen.append({key: array[at] for key, array in observation.items()})
        rows.append(at)
        actions.append(chosen[at])
        rewards.append(result.reward[at])
        for b in np.flatnonzero(result.terminated & live).tolist():
            objective[b] = episodes.final_info(b)["objective"]
        live &= ~result.terminated
        if not live.any():
            break
    row, reward = np.concatenate(rows), np.concatenate(rewards)
    keep = np.isfinite(objective)[row]
    joined = {key: np.concatenate([part[key] for part in seen])[keep] for key in seen[0]}
    returns = _to_come(row, reward, n)
    return Demonstrations(
        joined,
        np.concatenate(actions)[keep],
        returns[keep],
        objective,
        np.array([teacher.objective for teacher in teachers]),
    )


def _to_come(row: _Array, reward: _Array, n: int) -> _Array:
    returns, total = np.empty(reward.size, dtype=np.float32), np.zeros(n)
    for i in range(reward.size - 1, -1, -1):
        total[row[i]] += reward[i]
        returns[i] = total[row[i]]
    return returns


def _action(episodes: Episodes, b: int, observation: dict[str, _Array], plan: _Plan) -> int:
    """What the plan does now, as an action."""
    state = episodes.state(b)
    now_s = float(state.now_s[0])
    pending = state.pending[: state.counts[N_PENDING]]
    features = observation["candidates"][b].reshape(-1, len(FEATURES["candidates"]))
    due = pending[plan.start_s[pending] <= now_s + time_tolerance(now_s)]
    action, distance = _nearest(episodes, b, due, features, plan)
    if distance <= _NEAR:
        return action
    if observation["action_mask"][b, episodes.wait]:
        return episodes.wait
    # Nothing else will ever happen: the plan has been left, and somebody has to go on.
    return action if distance < np.inf else _nearest(episodes, b, pending, features, plan)[0]


def _nearest(
    episodes: Episodes, b: int, jobs: _Array, features: _Array, plan: _Plan
) -> tuple[int, float]:
    best, least = episodes.wait, np.inf
    for job in jobs.tolist():
        actions = episodes.actions_of(b, job)
        if len(actions) == 0:
            continue
        own = features[actions.start : actions.stop].astype(np.float64)
        run, cost = (own[:, i] / (1.0 - np.abs(own[:, i])) for i in (_RUN_S, _COST))
        distance = np.abs(run - plan.run[job]) / max(plan.run[job], 1e-9)
        distance += np.abs(cost - plan.cost[job]) / max(abs(plan.cost[job]), 1e-9)
        distance = distance.round(4)  # those that are met exactly are equals
        i = int(distance.argmin())
        if distance[i] < least:
            best, least = actions.start + i, float(distance[i])
    return best, least
