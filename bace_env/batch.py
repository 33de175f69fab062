"""Many episodes stepped together by the kernels of the simulator: the environments' engine.

Every array has the batch in front. A row of it is an ordinary `Arrays` or `State`, so single
simulator, environment and batch share every kernel.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bace_env.candidates import (
    DEFAULT_BUDGETS,
    Candidates,
    Orders,
    allocate_candidates,
    allocate_orders,
    budget_shares,
    candidate_capacity,
    empty_cluster_reach,
    fill_candidates,
    fill_orders,
    placement_of,
)
from bace_env.instance import Instance
from bace_env.jit import inner_kernel, kernel
from bace_env.kernels import (
    DEADLOCK,
    DECISION,
    advance,
    allocate_state,
    current_rates,
    reset,
    start_job,
)
from bace_env.observation import (
    Observation,
    allocate_observations,
    observation_sizes,
    write_globals,
    write_jobs,
    write_links,
    write_mask,
    write_regions,
)
from bace_env.slots import Slots, allocate_slots, choose_slots
from bace_env.types import (
    CHARGED_USD,
    JOB_SECONDS,
    N_PENDING,
    Arrays,
    BoolArray,
    FloatArray,
    IntArray,
    State,
)


class World(NamedTuple):
    """All arrays of a batch of B episodes, B in front of each."""

    arrays: Arrays
    state: State
    orders: Orders
    slots: Slots
    candidates: Candidates  # (B, Q, K): tables that slots share
    observation: Observation
    prices: FloatArray  # (B, R) a GPU's electricity for an hour, USD
    reach: IntArray  # (B, P) GPUs that Alg. 1 finds in the empty cluster
    scales: FloatArray  # (B, 3) jct_ref_s, cost_ref_usd, cost weight
    horizon_s: FloatArray  # (B,)
    budgets: FloatArray  # (budgets,) shares of K*, the same for all


@inner_kernel
def arrays_row(a: Any, b: int) -> Arrays:  # Any: the scalars of an Arrays are arrays here
    """Episode b's arrays, as views."""
    return Arrays(
        a.gpus[b], a.kw_per_gpu[b], a.link_bytes_per_s[b], a.link_latency_s[b], a.price_count[b],
        a.price_time_s[b], a.price_usd_per_kwh[b], a.price_cumulative[b], a.price_period_s[b],
        a.price_cycle_s[b], a.ref_usd_per_gpu_s[b], a.t_comm_form[b], a.comp_s[b], a.iteration_s[b],
        a.least_gpu_s[b], a.intra_s[b], a.act_bytes[b], a.micro_batches[b], a.k_min[b], a.k_max[b],
        a.k_star[b], a.job_profile[b], a.iterations[b], a.arrival_s[b],
    )  # fmt: skip


@kernel
def state_row(s: State, b: int) -> State:
    """Episode b's state, as views."""
    return State(
        s.now_s[b], s.idle_since_s[b], s.counts[b], s.totals[b], s.free_gpus[b], s.link_used[b],
        s.link_jobs[b], s.status[b], s.pending[b], s.running[b], s.start_s[b], s.finish_s[b],
        s.path_length[b], s.path[b], s.alloc[b], s.job_iteration_s[b], s.job_bytes_per_s[b],
        s.energy_kwh[b], s.cost_usd[b],
    )  # fmt: skip


@kernel
def orders_row(o: Orders, b: int) -> Orders:
    """Episode b's orders, as views."""
    return Orders(
        o.region[b], o.number[b], o.gpus[b], o.room[b], o.latency_s[b], o.least_free[b],
        o.inverse_free[b],
    )  # fmt: skip


@inner_kernel
def slots_row(s: Slots, b: int) -> Slots:
    """Episode b's slots, as views."""
    return Slots(s.job[b], s.table[b], s.priority[b], s.hidden[b])


@kernel
def candidates_row(c: Candidates, b: int) -> Candidates:
    """Episode b's tables (or one table of an episode's), as views."""
    return Candidates(
        c.number[b], c.start[b], c.grow[b], c.length[b], c.gpus[b], c.fill[b], c.iteration_s[b],
        c.usd_per_s[b],
    )  # fmt: skip


@inner_kernel
def observe(world: World, b: int) -> None:
    """Work out slots, candidates, mask and features of episode b."""
    arrays, state = arrays_row(world.arrays, b), state_row(world.state, b)
    slots, tables = slots_row(world.slots, b), candidates_row(world.candidates, b)
    orders, prices, out = orders_row(world.orders, b), world.prices[b], world.observation
    jct_ref_s, cost_unit = world.scales[b, 0], world.scales[b, 1] / arrays.arrival_s.size
    current_rates(arrays, state.now_s[0], prices)
    fill_orders(arrays, state.free_gpus, state.link_used, prices, orders)
    choose_slots(arrays, state, orders, world.reach[b], slots)
    filled = -1
    for q in range(slots.job.size):
        if slots.table[q] > filled:
            filled = slots.table[q]
            fill_candidates(
                arrays, state.free_gpus, state.link_used, prices, orders,
                arrays.job_profile[slots.job[q]], world.budgets, candidates_row(tables, filled),
            )  # fmt: skip
    write_mask(arrays, state, slots, tables, out.action_mask[b])
    write_globals(arrays, state, slots, world.scales[b, 2], jct_ref_s, out.globals[b])
    write_regions(arrays, state, prices, jct_ref_s, out.regions[b])
    write_links(arrays, state, out.links[b])
    write_jobs(
        arrays, state, slots, tables, world.reach[b], jct_ref_s, cost_unit, out.jobs[b],
        out.candidates[b],
    )  # fmt: skip


@kernel
def restart(world: World, b: int) -> None:
    """Begin episode b anew and observe its first decision. The horizon counts from there."""
    arrays, state = arrays_row(world.arrays, b), state_row(world.state, b)
    reset(arrays, state, np.inf)
    observe(world, b)


@inner_kernel
def _carry_out(world: World, b: int, action: int) -> tuple[int, bool]:
    """Do what an action index says: advance()'s code, and whether the mask forbade it."""
    arrays, state = arrays_row(world.arrays, b), state_row(world.state, b)
    mask = world.observation.action_mask[b]
    horizon_s = world.horizon_s[b]
    valid = 0 <= action < mask.size and mask[action] == 1
    if not valid or action == mask.size - 1:
        return advance(arrays, state, horizon_s), not valid
    n_regions, capacity = arrays.gpus.size, world.candidates.start.shape[2]
    q, c = action // capacity, action % capacity
    path, alloc = np.empty(n_regions, np.int64), np.empty(n_regions, np.int64)
    table = candidates_row(candidates_row(world.candidates, b), world.slots.table[b, q])
    orders, prices = orders_row(world.orders, b), world.prices[b]
    length = placement_of(table, c, orders, state.free_gpus, prices, path, alloc)
    start_job(arrays, state, world.slots.job[b, q], path[:length], alloc[:length])
    if state.counts[N_PENDING] == 0:
        return advance(arrays, state, horizon_s), False
    return DECISION, False


@kernel
def step_all(
    world: World, actions: IntArray, terms: FloatArray, codes: IntArray, invalid: BoolArray
) -> None:
    """One step of every episode.

    Args:
        world: The batch.
        actions: Action index of each episode, `(B,)`. One that the mask forbids counts as WAIT; if
            WAIT is forbidden too (nothing lies ahead), nothing happens.
        terms: Out, `(B, 2)`: the JCT and the cost term of the reward.
        codes: Out, `(B,)`: advance()'s code; DEADLOCK never comes out.
        invalid: Out, `(B,)`: whether the mask forbade the action.
    """
    for b in range(actions.size):
        totals, n_jobs = world.state.totals[b], world.arrays.arrival_s.shape[1]
        job_s, usd = totals[JOB_SECONDS], totals[CHARGED_USD]
        code, invalid[b] = _carry_out(world, b, actions[b])
        codes[b] = DECISION if code == DEADLOCK else code
        terms[b, 0] = -(totals[JOB_SECONDS] - job_s) / (n_jobs * world.scales[b, 0])
        terms[b, 1] = -world.scales[b, 2] * (totals[CHARGED_USD] - usd) / world.scales[b, 1]
        observe(world, b)


class Batch:
    """B episodes of one shape: as many regions, jobs and profiles each as the example's.

    Args:
        example: Any instance of the scenario: it gives the shapes.
        batch: B.
        slots: Q, visible jobs.
        budgets: Shares of K* that candidates aim at.
    """

    def __init__(
        self,
        example: Instance,
        batch: int,
        slots: int,
        budgets: Sequence[float] = DEFAULT_BUDGETS,
    ) -> None:
        n_regions, n_jobs = example.n_regions, example.n_jobs
        shares = budget_shares(example.arrays, budgets)
        self.capacity = candidate_capacity(n_regions, shares.size)
        self.sizes = observation_sizes(n_regions, slots, self.capacity)
        self.instances: list[Instance] = [example] * batch

        # An Arrays of a batch holds an array where that of an episode holds a scalar: hence the
        # two ignored types below.
        def repeated(one: NamedTuple) -> list[np.ndarray]:
            return [np.repeat(np.asarray(field)[None], batch, axis=0) for field in one]

        self.world = World(
            arrays=Arrays(*repeated(example.arrays)),  # type: ignore[arg-type]
            state=State(*repeated(allocate_state(n_regions, n_jobs))),
            orders=Orders(*repeated(allocate_orders(n_regions))),
            slots=Slots(*repeated(allocate_slots(slots))),
            candidates=Candidates(*repeated(allocate_candidates(slots, self.capacity))),
            observation=allocate_observations(batch, self.sizes),
            prices=np.zeros((batch, n_regions)),
            reach=np.repeat(empty_cluster_reach(example.arrays)[None], batch, axis=0),
            scales=np.ones((batch, 3)),
            horizon_s=np.full(batch, np.inf),
            budgets=shares,
        )
        self._terms = np.zeros((batch, 2))
        self._codes = np.zeros(batch, np.int64)
        self._invalid = np.zeros(batch, np.bool_)

    def load(self, b: int, instance: Instance, horizon_s: float = np.inf) -> None:
        """Begin a new episode in row b; `horizon_s` counts from its first arrival."""
        world, arrays = self.world, instance.arrays
        if arrays.comp_s is not self.instances[b].arrays.comp_s:  # another cluster
            for row, field in zip(world.arrays, arrays, strict=True):
                row[b] = field  # type: ignore[index]
            world.reach[b] = empty_cluster_reach(arrays)
        else:
            world.arrays.iterations[b] = arrays.iterations
            world.arrays.arrival_s[b] = arrays.arrival_s
        self.instances[b] = instance
        world.scales[b] = instance.jct_ref_s, instance.cost_ref_usd, instance.cost_weight
        world.horizon_s[b] = arrays.arrival_s[0] + horizon_s
        restart(world, b)

    def step(self, actions: IntArray) -> tuple[FloatArray, IntArray, BoolArray]:
        """One step of all: reward terms `(B, 2)`, codes `(B,)`, invalid `(B,)`, all overwritten."""
        step_all(self.world, actions, self._terms, self._codes, self._invalid)
        return self._terms, self._codes, self._invalid

    def placement(self, b: int, action: int) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
        """Job, path and GPUs of an action that the mask of row b allows; None for WAIT."""
        q, c = divmod(action, self.capacity)
        if q == self.world.slots.job.shape[1]:
            return None
        world = self.world
        n_regions = world.prices.shape[1]
        path, alloc = np.empty(n_regions, np.int64), np.empty(n_regions, np.int64)
        table = candidates_row(candidates_row(world.candidates, b), world.slots.table[b, q])
        free_gpus, orders = world.state.free_gpus[b], orders_row(world.orders, b)
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
