"""Many episodes stepped together by the kernels of the simulator: the environments' engine.

Every array has the batch in front. A row of it is an ordinary `Arrays` or `State`, so single
simulator, environment and batch share every kernel.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bace_env.candidates import (
    DEFAULT_BUDGETS,
    Candidates,
    Idle,
    Orders,
    allocate_candidates,
    allocate_orders,
    budget_shares,
    candidate_capacity,
    copy_candidates,
    copy_orders,
    explore_idle,
    fill_candidates,
    fill_orders,
    placement_of,
)
from bace_env.instance import Instance, reference_cost, references
from bace_env.jit import inlined_kernel, inner_kernel, kernel
from bace_env.kernels import (
    DEADLOCK,
    DECISION,
    advance,
    allocate_state,
    current_rates,
    may_wait,
    next_event,
    reset,
    start_job,
)
from bace_env.observation import (
    ALL_GPUS,
    COST_REF_USD,
    COST_WEIGHT,
    JCT_REF_S,
    N_SCALES,
    WIDEST_LINK,
    Observation,
    allocate_observations,
    cluster_scales,
    observation_sizes,
    write_globals,
    write_jobs,
    write_links,
    write_mask,
    write_regions,
)
from bace_env.slots import Slots, allocate_slots, choose_slots, clear_slots
from bace_env.types import (
    CHARGED_USD,
    JOB_SECONDS,
    N_PENDING,
    N_RUNNING,
    Arrays,
    BoolArray,
    ByteArray,
    FloatArray,
    IntArray,
    Scratch,
    State,
    allocate_scratch,
)

_OF_JOBS = ("iterations", "arrival_s")  # fields of Arrays that differ between workloads


class World(NamedTuple):
    """All arrays of a batch of B episodes, B in front of each.

    Clusters are kept once each: their tables would else fill the processor's caches B times over.
    """

    arrays: Arrays  # by cluster, but iterations and arrival_s by episode
    cluster: IntArray  # (B,) which cluster
    state: State
    orders: Orders
    slots: Slots
    candidates: Candidates  # (B, Q, K): tables that slots share
    prices: FloatArray  # (B, R) a GPU's electricity for an hour, USD
    idle: Idle  # by cluster
    scales: FloatArray  # (B, N_SCALES) see `observation`
    horizon_s: FloatArray  # (B,) absolute
    mask: ByteArray  # (B, Q * K + 1) which actions are valid
    budgets: FloatArray  # (budgets,) shares of K*, the same for all
    scratch: Scratch
    heap: FloatArray  # (3, N) room for `references`


@inner_kernel
def arrays_row(a: Any, c: int, b: int) -> Arrays:  # Any: the scalars of an Arrays are arrays here
    """The arrays of episode b on cluster c, as views."""
    return Arrays(
        a.gpus[c], a.kw_per_gpu[c], a.link_bytes_per_s[c], a.link_latency_s[c],
        a.egress_usd_per_byte[c], a.price_count[c], a.price_time_s[c], a.price_usd_per_kwh[c],
        a.price_cumulative[c], a.price_period_s[c],
        a.price_cycle_s[c], a.ref_usd_per_gpu_s[c], a.t_comm_form[c], a.comp_s[c], a.iteration_s[c],
        a.least_gpu_s[c], a.intra_s[c], a.act_bytes[c], a.micro_batches[c], a.k_min[c], a.k_max[c],
        a.k_star[c], a.job_profile[c], a.iterations[b], a.arrival_s[b],
    )  # fmt: skip


@inner_kernel
def state_row(s: State, b: int) -> State:
    """Episode b's state, as views."""
    return State(
        s.now_s[b], s.idle_since_s[b], s.counts[b], s.totals[b], s.free_gpus[b], s.link_used[b],
        s.link_jobs[b], s.status[b], s.pending[b], s.running[b], s.start_s[b], s.finish_s[b],
        s.path_length[b], s.path[b], s.alloc[b], s.job_iteration_s[b], s.job_bytes_per_s[b],
        s.energy_kwh[b], s.cost_usd[b],
    )  # fmt: skip


@inner_kernel
def _row(world: World, b: int) -> tuple[Arrays, State]:
    return arrays_row(world.arrays, world.cluster[b], b), state_row(world.state, b)


@inner_kernel
def orders_row(o: Orders, b: int) -> Orders:
    """Episode b's orders, as views."""
    return Orders(
        o.region[b], o.number[b], o.gpus[b], o.room[b], o.latency_s[b], o.least_free[b],
        o.inverse_free[b], o.alike[b],
    )  # fmt: skip


@inner_kernel
def slots_row(s: Slots, b: int) -> Slots:
    """Episode b's slots, as views."""
    return Slots(s.job[b], s.table[b], s.priority[b], s.hidden[b])


@inner_kernel
def candidates_row(c: Candidates, b: int) -> Candidates:
    """Episode b's tables (or one table of an episode's), as views."""
    return Candidates(
        c.number[b], c.start[b], c.grow[b], c.length[b], c.gpus[b], c.fill[b], c.iteration_s[b],
        c.usd_per_s[b],
    )  # fmt: skip


@inlined_kernel
def _fill_choices(world: World, b: int, arrays: Arrays, state: State) -> None:
    """Slots and candidates of episode b."""
    slots, tables = slots_row(world.slots, b), candidates_row(world.candidates, b)
    orders, prices = orders_row(world.orders, b), world.prices[b]
    c, idle = world.cluster[b], world.idle
    if state.counts[N_PENDING] == 0:
        clear_slots(slots)
        return
    known = state.counts[N_RUNNING] == 0 and arrays.price_cycle_s <= 0.0
    if known:
        copy_orders(orders_row(idle.orders, c), orders)
    else:
        fill_orders(arrays, state.free_gpus, state.link_used, prices, orders)
    choose_slots(arrays, state, orders, idle.reach[c], world.scratch, slots)
    filled = -1
    for q in range(slots.job.size):
        if slots.table[q] > filled:
            filled = slots.table[q]
            profile, table = arrays.job_profile[slots.job[q]], candidates_row(tables, filled)
            if known:
                copy_candidates(candidates_row(candidates_row(idle.candidates, c), profile), table)
            else:
                fill_candidates(
                    arrays, state.free_gpus, prices, orders, profile, world.budgets, world.scratch,
                    table,
                )  # fmt: skip


class Sheet(NamedTuple):
    """Arrays that observations are written into, and how much of them may differ from zero."""

    observation: Observation  # (B, size) each
    filled: IntArray  # (B, Q) candidates of each slot: most of what is observed stays zero


@inner_kernel
def observe(world: World, sheet: Sheet, b: int) -> None:
    """Work out slots, candidates, mask and features of episode b, into row b of the sheet."""
    arrays, state = _row(world, b)
    out = sheet.observation
    scales, prices, slots = world.scales, world.prices, slots_row(world.slots, b)
    current_rates(arrays, state.now_s[0], prices[b])
    _fill_choices(world, b, arrays, state)
    first = next_event(arrays, state)
    waits = state.counts[N_PENDING] == 0 or may_wait(arrays, state, first)
    tables, reach = candidates_row(world.candidates, b), world.idle.reach[world.cluster[b]]
    write_mask(slots, tables.number, waits, b, world.mask)
    for i in range(world.mask.shape[1]):
        out.action_mask[b, i] = world.mask[b, i]
    write_globals(arrays, state, slots.job.size, slots.hidden[0], first, scales, b, out.globals)
    write_regions(arrays, state, prices, scales, world.scratch.rate, b, out.regions)
    write_links(
        arrays.link_bytes_per_s, arrays.link_latency_s, state.link_used, scales[b, WIDEST_LINK], b,
        out.links,
    )  # fmt: skip
    write_jobs(
        arrays, slots, tables, state.now_s[0], reach, scales, b, sheet.filled, out.jobs,
        out.candidates,
    )  # fmt: skip


@kernel
def restart_rows(world: World, sheet: Sheet, rows: IntArray) -> None:
    """Begin these episodes anew and observe their first decisions."""
    for i in range(rows.size):
        b = rows[i]
        arrays, state = _row(world, b)
        jct_ref_s, work_gpu_s = references(
            arrays.iterations, arrays.job_profile, arrays.arrival_s, arrays.iteration_s,
            arrays.k_star, arrays.least_gpu_s, arrays.gpus, world.heap,
        )  # fmt: skip
        world.scales[b, JCT_REF_S] = jct_ref_s
        world.scales[b, COST_REF_USD] = reference_cost(work_gpu_s, arrays.ref_usd_per_gpu_s)
        reset(arrays, state, np.inf)
        observe(world, sheet, b)


@kernel
def observe_rows(world: World, sheet: Sheet, rows: IntArray) -> None:
    """Observe these episodes as they are."""
    for i in range(rows.size):
        observe(world, sheet, rows[i])


@inlined_kernel
def _carry_out(world: World, b: int, action: int) -> tuple[int, bool]:
    """Do what an action index says: advance()'s code, and whether the mask forbade it."""
    arrays, state = _row(world, b)
    wait, horizon_s = world.mask.shape[1] - 1, world.horizon_s[b]
    valid = 0 <= action <= wait and world.mask[b, action] == 1
    if not valid or action == wait:
        return advance(arrays, state, horizon_s), not valid
    capacity = world.candidates.start.shape[2]
    q, c = action // capacity, action % capacity
    path, alloc = world.scratch.path[0], world.scratch.alloc[0]
    table = candidates_row(candidates_row(world.candidates, b), world.slots.table[b, q])
    orders, prices = orders_row(world.orders, b), world.prices[b]
    length = placement_of(table, c, orders, state.free_gpus, prices, path, alloc)
    start_job(arrays, state, world.slots.job[b, q], path[:length], alloc[:length])
    if state.counts[N_PENDING] == 0:
        return advance(arrays, state, horizon_s), False
    return DECISION, False


@kernel
def step_all(
    world: World,
    sheet: Sheet,
    actions: IntArray,
    terms: FloatArray,
    codes: IntArray,
    invalid: BoolArray,
) -> None:
    """One step of every episode.

    Args:
        world: The batch.
        sheet: Out, the observations.
        actions: Action index of each episode, `(B,)`. One that the mask forbids counts as WAIT; if
            WAIT is forbidden too (nothing lies ahead), nothing happens.
        terms: Out, `(B, 2)`: the JCT and the cost term of the reward.
        codes: Out, `(B,)`: advance()'s code; DEADLOCK never comes out.
        invalid: Out, `(B,)`: whether the mask forbade the action.
    """
    totals, scales = world.state.totals, world.scales
    n_jobs = world.arrays.arrival_s.shape[1]
    for b in range(actions.size):
        job_s, usd = totals[b, JOB_SECONDS], totals[b, CHARGED_USD]
        code, invalid[b] = _carry_out(world, b, actions[b])
        codes[b] = DECISION if code == DEADLOCK else code
        terms[b, 0] = -(totals[b, JOB_SECONDS] - job_s) / (n_jobs * scales[b, JCT_REF_S])
        spent = totals[b, CHARGED_USD] - usd
        terms[b, 1] = -scales[b, COST_WEIGHT] * spent / scales[b, COST_REF_USD]
        observe(world, sheet, b)


def _is_same_cluster(one: Arrays, other: Arrays) -> bool:
    """Whether all but the workload is the very same: a scenario's instances share their arrays."""
    return all(
        mine is theirs
        for name, mine, theirs in zip(Arrays._fields, one, other, strict=True)
        if name not in _OF_JOBS
    )


def _copied(observation: Observation) -> Observation:
    copies: tuple[Any, ...] = tuple(array.copy() for array in observation)
    return Observation(*copies)


class Batch:
    """B episodes of one shape: as many regions, jobs and profiles each as the example's.

    Args:
        example: Any instance of the scenario: it gives the shapes.
        batch: B.
        slots: Q, visible jobs.
        budgets: Shares of K* that candidates aim at.
        copy: Give away the arrays of observations, for good. Without, they are lent: read-only, and
            overwritten by the next step or restart, which need not write again what stays zero.
    """

    def __init__(
        self,
        example: Instance,
        batch: int,
        slots: int,
        budgets: Sequence[float] = DEFAULT_BUDGETS,
        *,
        copy: bool = True,
    ) -> None:
        n_regions, n_jobs = example.n_regions, example.n_jobs
        shares = budget_shares(example.arrays, budgets)
        self.capacity = candidate_capacity(n_regions, shares.size)
        self.sizes = observation_sizes(n_regions, slots, self.capacity)
        self._clusters: list[Arrays] = []

        def repeated(one: NamedTuple) -> list[Any]:
            """B of each array; what stays zero takes no memory."""
            arrays = map(np.asarray, one)
            return [np.zeros((batch, *array.shape), array.dtype) for array in arrays]

        profile_tables = allocate_candidates(example.arrays.k_star.size, self.capacity)
        self.world = World(
            arrays=Arrays(*repeated(example.arrays)),
            cluster=np.zeros(batch, np.int64),
            state=State(*repeated(allocate_state(n_regions, n_jobs))),
            orders=Orders(*repeated(allocate_orders(n_regions))),
            slots=Slots(*repeated(allocate_slots(slots))),
            candidates=Candidates(*repeated(allocate_candidates(slots, self.capacity))),
            prices=np.zeros((batch, n_regions)),
            idle=Idle(
                reach=np.zeros((batch, example.arrays.k_star.size), np.int64),
                orders=Orders(*repeated(allocate_orders(n_regions))),
                candidates=Candidates(*repeated(profile_tables)),
            ),
            scales=np.ones((batch, N_SCALES)),
            horizon_s=np.full(batch, np.inf),
            mask=np.zeros((batch, self.sizes["action_mask"]), np.int8),
            budgets=shares,
            scratch=allocate_scratch(n_regions, n_jobs, example.arrays.k_star.size),
            heap=np.zeros((3, n_jobs)),
        )
        self._put_cluster(0, example.arrays)
        self.world.scales[:, ALL_GPUS:] = cluster_scales(example.arrays)
        self._copy = copy
        self._sheet = self._fresh()
        self._given_away = False

    def _fresh(self) -> Sheet:
        batch = self.world.mask.shape[0]
        filled = np.full((batch, self.world.slots.job.shape[1]), self.capacity)  # not known yet
        return Sheet(allocate_observations(batch, self.sizes), filled)

    @property
    def observation(self) -> Observation:
        """The present observations; see `copy` for how long."""
        if not self._copy:
            lent: tuple[Any, ...] = tuple(array.view() for array in self._sheet.observation)
            for array in lent:
                array.flags.writeable = False
            return Observation(*lent)
        self._take_back()
        self._given_away = True
        return self._sheet.observation

    def _take_back(self) -> None:
        """Have arrays of our own again, with the same content."""
        if self._given_away:
            own = _copied(self._sheet.observation)
            self._sheet = Sheet(own, np.full_like(self._sheet.filled, self.capacity))
            self._given_away = False

    def state(self, b: int) -> State:
        """The state of row b, as live views."""
        return State(*(field[b] for field in self.world.state))

    def peek(self, b: int) -> Observation:
        """The present observation of row b, copied."""
        return _copied(Observation(*(array[b] for array in self._sheet.observation)))

    def load(
        self,
        b: int,
        arrays: Arrays,
        cost_weight: float,
        horizon_s: float = np.inf,
    ) -> None:
        """Put another workload into row b, to begin with the next `restart`.

        `horizon_s` counts from its first arrival.
        """
        if not _is_same_cluster(arrays, self._clusters[self.world.cluster[b]]):
            self._change_cluster(b, arrays)
        self.load_jobs(b, arrays.iterations, arrays.arrival_s, cost_weight, horizon_s)

    def load_jobs(
        self,
        rows: int | IntArray,
        iterations: FloatArray,
        arrival_s: FloatArray,
        cost_weight: float | FloatArray,
        horizon_s: float = np.inf,
    ) -> None:
        """As `load`, on the clusters that the rows have; jobs are `(N,)`, or `(rows, N)`."""
        world = self.world
        world.arrays.iterations[rows] = iterations
        world.arrays.arrival_s[rows] = arrival_s
        world.scales[rows, COST_WEIGHT] = cost_weight
        world.horizon_s[rows] = arrival_s[..., 0] + horizon_s

    def loaded(self, b: int) -> tuple[FloatArray, FloatArray, float]:
        """Iterations and arrivals of the jobs of row b, copied, and its cost weight."""
        a, scales = self.world.arrays, self.world.scales
        return a.iterations[b].copy(), a.arrival_s[b].copy(), float(scales[b, COST_WEIGHT])

    def _change_cluster(self, b: int, arrays: Arrays) -> None:
        known = [_is_same_cluster(arrays, cluster) for cluster in self._clusters]
        if any(known):
            c = known.index(True)
        else:
            others = set(np.delete(self.world.cluster, b).tolist())
            c = next(c for c in range(len(known) + 1) if c not in others)  # below B
            self._put_cluster(c, arrays)
        self.world.cluster[b] = c
        self.world.scales[b, ALL_GPUS:] = cluster_scales(arrays)

    def _put_cluster(self, c: int, arrays: Arrays) -> None:
        idle, mine = explore_idle(arrays, self.world.budgets), self.world.idle
        every: Any = self.world.arrays
        for name in Arrays._fields:
            if name not in _OF_JOBS:
                getattr(every, name)[c] = getattr(arrays, name)
        mine.reach[c] = idle.reach
        for targets, sources in ((mine.orders, idle.orders), (mine.candidates, idle.candidates)):
            for target, source in zip(targets, sources, strict=True):
                target[c] = source
        self._clusters[c : c + 1] = [arrays]

    def restart(self, rows: IntArray) -> None:
        """Begin the episodes that `load` has put into these rows."""
        self._take_back()
        restart_rows(self.world, self._sheet, rows)

    def show(self, b: int, state: State) -> Observation:
        """Put row b into this state of its workload, and observe: copied, one axis less."""
        mine: tuple[np.ndarray, ...] = self.world.state
        theirs: tuple[np.ndarray, ...] = state
        for target, source in zip(mine, theirs, strict=True):
            target[b] = source
        self._observe(np.array([b]))
        return self.peek(b)

    def _observe(self, rows: IntArray) -> None:
        self._take_back()
        observe_rows(self.world, self._sheet, rows)

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that the episodes are, copied; what is observed follows from it."""
        return {name: array.copy() for name, array in self._variables()}

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        """Go on from a `snapshot` of a batch of the same scenario and size."""
        for name, array in self._variables():
            array[:] = snapshot[name]
        self._observe(np.arange(self.world.mask.shape[0]))

    def _variables(self) -> Iterator[tuple[str, np.ndarray]]:
        world = self.world
        yield "cluster", world.cluster
        yield "iterations", world.arrays.iterations
        yield "arrival_s", world.arrays.arrival_s
        yield "scales", world.scales
        yield "horizon_s", world.horizon_s
        fields: tuple[np.ndarray, ...] = world.state
        for name, array in zip(State._fields, fields, strict=True):
            yield f"state.{name}", array

    def step(self, actions: IntArray) -> tuple[FloatArray, IntArray, BoolArray]:
        """One step of all: reward terms `(B, 2)`, codes `(B,)`, invalid `(B,)`."""
        terms = np.empty((actions.size, 2))
        codes, invalid = np.empty(actions.size, np.int64), np.empty(actions.size, np.bool_)
        if self._given_away:  # all rows are written anew: no need to copy
            self._sheet = self._fresh()
            self._given_away = False
        step_all(self.world, self._sheet, actions, terms, codes, invalid)
        return terms, codes, invalid

    def placement(self, b: int, action: int) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
        """Job, path and GPUs of an action that the mask of row b allows; None for WAIT."""
        q, c = divmod(action, self.capacity)
        if q == self.world.slots.job.shape[1]:
            return None
        world = self.world
        n_regions = world.prices.shape[1]
        path, alloc = np.empty(n_regions, np.int64), np.empty(n_regions, np.int64)
        t = world.slots.table[b, q]
        table = Candidates(*(field[b, t] for field in world.candidates))
        free_gpus, orders = world.state.free_gpus[b], Orders(*(o[b] for o in world.orders))
        n = placement_of(table, c, orders, free_gpus, world.prices[b], path, alloc)
        return int(world.slots.job[b, q]), tuple(path[:n].tolist()), tuple(alloc[:n].tolist())

    def actions_of(self, b: int, job: int) -> range:
        """The actions that start a job, all of which the mask of row b allows."""
        slots, number = self.world.slots, self.world.candidates.number
        visible = (slots.job[b] == job) & (slots.table[b] >= 0)
        for q in np.flatnonzero(visible).tolist():
            first = q * self.capacity
            return range(first, first + int(number[b, slots.table[b, q], 0]))
        return range(0)
