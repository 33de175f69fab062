"""`search`: look ahead in the compiled simulator before every decision."""

from copy import deepcopy
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import numpy as np

from agents.explanation import Cell, Column, Explanation, Fact, Table
from agents.heuristic import Options, heuristic_options
from agents.replay import Schedule
from agents.schedule import (
    Sequence,
    allocate_sequence,
    anneal,
    contribution,
    copy_state,
    objective_scales,
    play_policy,
    play_sequence,
    try_entry,
)
from agents.settings import read_number
from bace_env.candidates import (
    DEFAULT_BUDGETS,
    allocate_candidates,
    allocate_orders,
    budget_shares,
    candidate_capacity,
    fill_candidates,
    fill_orders,
    placement_of,
)
from bace_env.instance import Instance
from bace_env.kernels import allocate_state, start_job
from bace_env.simulator import WAIT, Action, Placement, View
from bace_env.types import ARRIVED, N_PENDING, Arrays, FloatArray, State, allocate_scratch

#: The heuristics that every search starts from, beside its base policy.
PORTFOLIO = (
    "bace",
    "bace:partial_fill",
    "bace:partial_fill,patience=0.25",
    "bace:partial_fill,patience=0.5",
    "bace-patient",
    "sjf",
    "sjf:partial_fill",
    "ldf:skip_blocked",
    "lcf:skip_blocked",
    "cr-ldf:skip_blocked",
)
_PER_JOB = ("job_profile", "iterations", "arrival_s")
_STATE_PER_JOB = (
    "status", "start_s", "finish_s", "path_length", "path", "alloc", "job_iteration_s",
    "job_bytes_per_s", "energy_kwh", "cost_usd",
)  # fmt: skip
_MOST_CANDIDATES = 500  # placements tried per decision
_HOT, _COLD = 0.03, 0.0005  # temperatures, in units of the value to improve


class Planner:
    """Searches schedules of one workload, from any of its states on.

    Args:
        instance: The workload.
        bases: Heuristics whose schedules the search starts from; see `agents.policy.make_policy`.
        cost_weight: Lambda of the objective; default: the instance's.
        known_jobs: Plan for the first so many jobs alone: those that have arrived.
    """

    def __init__(
        self,
        instance: Instance,
        bases: tuple[Options, ...],
        *,
        cost_weight: float | None = None,
        known_jobs: int | None = None,
    ) -> None:
        n_regions = instance.n_regions
        n_jobs = instance.n_jobs if known_jobs is None else known_jobs
        known = {name: getattr(instance.arrays, name)[:n_jobs] for name in _PER_JOB}
        self.arrays: Arrays = instance.arrays._replace(**known)
        self.n_jobs = n_jobs
        self._bases = bases
        # The references, too, are those of the known jobs.
        known_part = replace(instance, arrays=self.arrays, job_names=instance.job_names[:n_jobs])
        if cost_weight is not None:
            known_part = replace(known_part, cost_weight=cost_weight)
        self.scales = objective_scales(known_part)
        self._start, self._work = (allocate_state(n_regions, n_jobs) for _ in range(2))
        self._scratch = allocate_scratch(n_regions, n_jobs, instance.arrays.k_star.size)
        self.best, self._current, self._trial, self._out, self._played = (
            allocate_sequence(n_jobs, n_regions) for _ in range(5)
        )
        self.left = 0  # entries of `best`: jobs that have not started
        self.value = np.inf  # what they add to the objective
        budgets = budget_shares(instance.arrays, DEFAULT_BUDGETS)
        self._budgets = budgets
        self._orders = allocate_orders(n_regions)
        tables = allocate_candidates(1, candidate_capacity(n_regions, budgets.size))
        self._table = type(tables)(*(field[0] for field in tables))

    def begin(self, state: State) -> None:
        """Plan from this state on, without a plan yet."""
        known = {name: getattr(state, name)[: self.n_jobs] for name in _STATE_PER_JOB}
        copy_state(state._replace(**known), self._start)
        self.left = int((self._start.path_length == 0).sum())
        self.value = np.inf

    def _keep_if_better(self, value: float, sequence: Sequence) -> None:
        if value < self.value:
            self.value = value
            for target, source in zip(self.best, sequence, strict=True):
                target[:] = source

    def try_bases(self) -> int:
        """Let every base heuristic play to the end; returns the simulations made."""
        for options in self._bases:
            copy_state(self._start, self._work)
            value, _ = play_policy(
                self.arrays, self._work, options, self.scales, self._scratch, self._out, 0
            )
            self._keep_if_better(value, self._out)
        return len(self._bases)

    def keep_plan(self, plan: Sequence, n: int) -> bool:
        """Go on with the first n entries of a plan; False if it does not lead to the end."""
        if n != self.left:
            return False
        copy_state(self._start, self._work)
        value = play_sequence(
            self.arrays, self._work, plan, n, self.scales, np.inf, self._scratch, self._out
        )
        self._keep_if_better(value, self._out)
        return value < np.inf

    def keep_schedule(self, schedule: Schedule) -> bool:
        """`keep_plan` of a schedule."""
        plan = allocate_sequence(self.n_jobs, self.arrays.gpus.size)
        for i, (job, path, gpus) in enumerate(schedule.placements):
            plan.job[i], plan.length[i] = job, len(path)
            plan.path[i, : len(path)], plan.alloc[i, : len(path)] = path, gpus
            plan.not_before_s[i] = schedule.not_before_s[i] if schedule.not_before_s else 0.0
        return self.keep_plan(plan, len(schedule.placements))

    def schedule(self) -> Schedule:
        """The best plan; empty if none leads to the end."""
        placements = []
        for i in range(self.left if np.isfinite(self.value) else 0):
            n = int(self.best.length[i])
            path, gpus = self.best.path[i, :n].tolist(), self.best.alloc[i, :n].tolist()
            placements.append(Placement(int(self.best.job[i]), tuple(path), tuple(gpus)))
        times_s = self.best.not_before_s[: self.left].tolist()
        return Schedule(tuple(placements), tuple(times_s) if any(times_s) else ())

    def try_candidates(self, view: View, base: Options, budget: int) -> int:
        """Make each candidate placement of the pending jobs, then let the base go on.

        The candidates are those of the environment's action set, the oldest jobs first; at most
        `budget` simulations are made.

        Returns:
            The simulations made.
        """
        a, state = self.arrays, self._start
        prices = view.usd_per_gpu_h
        fill_orders(a, state.free_gpus, state.link_used, prices, self._orders)
        path, alloc = np.empty((2, a.gpus.size), dtype=np.int64)
        made = 0
        for job in state.pending[: state.counts[N_PENDING]].tolist():
            fill_candidates(
                a, state.free_gpus, prices, self._orders, a.job_profile[job], self._budgets,
                self._scratch, self._table,
            )  # fmt: skip
            for c in range(int(self._table.number[0])):
                if made >= budget:
                    return made
                made += 1
                length = placement_of(
                    self._table, c, self._orders, state.free_gpus, prices, path, alloc
                )
                self._try_first(job, path[:length], alloc[:length], base)
        return made

    def _try_first(self, job: int, path: np.ndarray, alloc: np.ndarray, base: Options) -> None:
        copy_state(self._start, self._work)
        start_job(self.arrays, self._work, job, path, alloc)
        out, n = self._out, path.size
        out.job[0], out.length[0] = job, n
        out.path[0, :n], out.alloc[0, :n] = path, alloc
        out.not_before_s[0] = self._work.now_s[0] if self.arrays.price_cycle_s > 0 else 0.0
        value = contribution(self.arrays, self._work, job, self.scales)
        rest, _ = play_policy(self.arrays, self._work, base, self.scales, self._scratch, out, 1)
        self._keep_if_better(float(value + rest), out)

    def improve(self, uniform: FloatArray, hot: float = _HOT, cold: float = _COLD) -> None:
        """Anneal the best plan: one simulation for each row of `uniform`, `(simulations, 9)`."""
        if self.left == 0 or not np.isfinite(self.value):
            return
        for target, source in zip(self._current, self.best, strict=True):
            target[:] = source
        # A value may be small or negative where electricity is paid for.
        unit = max(abs(self.value), 1e-9)
        _, self.value = anneal(
            self.arrays, self._start, self._work, self.scales, self.left, self._current, self.value,
            self.best, self.value, self._trial, self._played, uniform, hot * unit, cold * unit,
            self._scratch,
        )  # fmt: skip

    def value_of(self, base: Options) -> float:
        """What the jobs that have not started would add if a heuristic went on; inf: no end."""
        copy_state(self._start, self._work)
        value, _ = play_policy(
            self.arrays, self._work, base, self.scales, self._scratch, self._out, 0
        )
        return float(value)

    def planned(self) -> State:
        """The state at the end of the best plan, until the next call of a method."""
        copy_state(self._start, self._work)
        play_sequence(
            self.arrays, self._work, self.best, self.left, self.scales, np.inf, self._scratch,
            self._out,
        )  # fmt: skip
        return self._work

    def next_action(self) -> Action:
        """What the best plan does now."""
        if self.left == 0 or not np.isfinite(self.value):
            return WAIT
        copy_state(self._start, self._work)
        if not try_entry(self.arrays, self._work, self.best, 0, self._scratch, self._out):
            return WAIT
        job = int(self.best.job[0])
        n = int(self._out.length[0])
        path, gpus = self._out.path[0, :n].tolist(), self._out.alloc[0, :n].tolist()
        return Placement(job, tuple(path), tuple(gpus))


class Settings(NamedTuple):
    """What follows `search:`, separated by commas."""

    simulations: int = 1000  # per decision
    ms: float = 0.0  # per decision instead, if positive: then runs do not repeat
    base: str = "bace"
    blind: bool = False  # plan without the jobs that have not arrived yet
    cost_weight: float | None = None  # lambda; default: the scenario's


def parse_settings(arg: str) -> Settings:
    """Read `simulations=N`, `ms=T`, `base=NAME`, `blind`, `lambda=X`, separated by commas.

    Raises:
        ValueError: Unknown setting or value.
    """
    found = Settings()
    for item in filter(None, arg.split(",")):
        key, equals, text = item.partition("=")
        if key == "blind" and not equals:
            found = found._replace(blind=True)
        elif key == "base":
            found = found._replace(base=text)
        elif key == "simulations":
            found = found._replace(simulations=read_number(key, text, whole=True))
        elif key == "ms":
            found = found._replace(ms=read_number(key, text))
        elif key == "lambda":
            found = found._replace(cost_weight=read_number(key, text))
        else:
            raise ValueError(
                f"unknown setting {item!r}; known: simulations=N, ms=T, base=NAME, blind, lambda=X"
            )
    return found


class Search:
    """Plans all jobs to the end before each decision, and does what the best plan begins with.

    A plan comes from the schedules of a portfolio of heuristics, from trying every candidate
    placement with the base policy going on, and from annealing the best of them. It is kept until a
    better one is found, so the episode's objective is never above that of the base policy.

    It knows the jobs that are still to arrive: a reference point, and a teacher. With `blind` it
    plans for those that have arrived; then the guarantee holds only where all arrive together.
    """

    name = "search"

    def __init__(self, arg: str = "") -> None:
        self._settings = parse_settings(arg)
        if arg:
            self.name = f"search:{arg}"
        self._base = heuristic_options(self._settings.base)
        portfolio = tuple(heuristic_options(spec) for spec in PORTFOLIO)
        self._bases = tuple(dict.fromkeys((self._base, *portfolio)))
        self._rng = np.random.default_rng(0)
        self._planner: Planner | None = None
        self._instance: Instance | None = None

    def reset(self, seed: int) -> None:
        """Seed the annealing of the episode; plans of other episodes are dropped."""
        self._rng = np.random.default_rng(seed)
        self._planner = None

    def act(self, view: View) -> Action:
        """Improve the plan, then do what it begins with."""
        settings, started = self._settings, perf_counter()
        planner, before = self._planner_of(view), self._planner
        is_new = planner is not before or view.instance is not self._instance
        rest = None if before is None else remaining(before, view.state, planner)
        planner.begin(view.state)
        made = 0
        kept = rest is not None and planner.keep_plan(*rest)
        if is_new or not kept:
            made += planner.try_bases()
        self._planner, self._instance = planner, view.instance
        by_time = settings.ms > 0
        most = _MOST_CANDIDATES if by_time else min(settings.simulations // 2, _MOST_CANDIDATES)
        made += planner.try_candidates(view, self._base, most)
        if not by_time:
            planner.improve(self._rng.random((max(settings.simulations - made, 0), 9)))
        while by_time and (perf_counter() - started) * 1000 < settings.ms:
            planner.improve(self._rng.random((100, 9)))
        return planner.next_action()

    def explain(self, view: View) -> Explanation:
        """The plan that `act` would follow, and where the heuristics would end instead."""
        twin = deepcopy(self)
        action = twin.act(view)
        planner = twin._planner
        assert planner is not None
        facts = [Fact("time", view.now_s / 3600.0, "h"), Fact("jobs to start", planner.left)]
        if not np.isfinite(planner.value):
            return Explanation(action, "Wait: no plan leads to the end.", tuple(facts))
        facts.append(Fact("what they add to the objective by the plan", planner.value))
        names, values = dict.fromkeys((self._settings.base, *PORTFOLIO)), []
        for name in names:
            value = planner.value_of(heuristic_options(name))
            values.append((name, value if np.isfinite(value) else None))
        instead = Table(
            "If a heuristic went on from here",
            (Column("heuristic"), Column("adds to the objective")),
            tuple(values),
        )
        if isinstance(action, Placement):
            name = view.instance.job_names[action.job]
            where = view.instance.where(action.path, action.gpus)
            sentence = f"{name} starts on {where}: the plan begins with it."
        else:
            name = view.instance.job_names[int(planner.best.job[0])]
            sentence = f"Wait: the plan goes on with {name}, which cannot start yet."
        return Explanation(action, sentence, tuple(facts), (_plan_table(view, planner), instead))

    def _planner_of(self, view: View) -> Planner:
        known = int(view.state.counts[ARRIVED]) if self._settings.blind else view.instance.n_jobs
        planner = self._planner
        if planner is None or view.instance is not self._instance or planner.n_jobs != known:
            planner = Planner(
                view.instance,
                self._bases,
                cost_weight=self._settings.cost_weight,
                known_jobs=known,
            )
        return planner


def _plan_table(view: View, planner: Planner) -> Table:
    state, arrays, instance = planner.planned(), planner.arrays, view.instance
    rows: list[tuple[Cell, ...]] = []
    for placement in planner.schedule().placements:
        job = placement.job
        rows.append(
            (
                instance.job_names[job],
                instance.where(placement.path, placement.gpus),
                float(state.start_s[job]) / 3600.0,
                float(state.finish_s[job] - arrays.arrival_s[job]) / 3600.0,
                float(state.cost_usd[job]),
            )
        )
    columns = (
        Column("job"), Column("where"), Column("starts", "h"), Column("JCT", "h"),
        Column("cost", "$"),
    )  # fmt: skip
    return Table("The plan", columns, tuple(rows))


def remaining(before: Planner, state: State, now: Planner) -> tuple[Sequence, int] | None:
    """What is left of the last plan in a state, with jobs that have arrived since at its end."""
    plan = allocate_sequence(now.n_jobs, now.arrays.gpus.size)
    waiting = (state.path_length[: now.n_jobs] == 0).tolist()
    n = 0
    for i in range(before.left):
        job = int(before.best.job[i])
        if job < now.n_jobs and waiting[job]:
            for target, source in zip(plan, before.best, strict=True):
                target[n] = source[i]
            waiting[job] = False
            n += 1
    for job in np.flatnonzero(waiting).tolist():
        profile = now.arrays.job_profile[job]
        plan.job[n], plan.length[n] = job, 0
        plan.rule[n] = -1, 1, now.arrays.k_star[profile], now.arrays.k_min[profile]
        n += 1
    return plan, n
