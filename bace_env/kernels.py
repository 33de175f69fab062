"""The simulator's state transitions, compiled: reset, start a job, advance to the next decision.

All changes of `State` are here, and after each of them Eq. 5 and 6 hold. Kernels mutate the state
in place and return status codes; `bace_env.simulator` turns codes into errors.
"""

import numpy as np

from bace_env.jit import inner_kernel, kernel
from bace_env.pipeline import (
    bandwidth_need,
    egress_cost,
    electricity_cost,
    link_room,
    next_price_change,
    path_iteration_time,
    price_at,
)
from bace_env.types import (
    ARRIVED,
    CHARGED_USD,
    JOB_SECONDS,
    N_PENDING,
    N_RUNNING,
    Arrays,
    FloatArray,
    IntArray,
    State,
)

FUTURE, PENDING, RUNNING, FINISHED = 0, 1, 2, 3

# What advance() answers.
DECISION, DONE, DEADLOCK, TRUNCATED = 0, 1, 2, 3

# What check_placement() answers.
(
    VALID,
    NOT_PENDING,
    EMPTY_PATH,
    UNKNOWN_REGION,
    REPEATED_REGION,
    NO_GPU,
    TOO_FEW_FREE,
    BELOW_K_MIN,
    ABOVE_K_MAX,
    NO_LINK,
    LINK_FULL,
) = range(11)


@kernel
def time_tolerance(t: float) -> float:
    """Events this close after t count as simultaneous with it, seconds: the one time tolerance."""
    return 1e-9 + 1e-12 * abs(t)


def allocate_state(n_regions: int, n_jobs: int) -> State:
    """A state of the right shapes; `reset` makes it valid."""
    r, n = n_regions, n_jobs
    return State(
        now_s=np.zeros(1),
        idle_since_s=np.zeros(1),
        counts=np.zeros(3, np.int64),
        totals=np.zeros(2),
        free_gpus=np.zeros(r, np.int64),
        link_used=np.zeros((r, r)),
        link_jobs=np.zeros((r, r), np.int64),
        status=np.zeros(n, np.int8),
        pending=np.zeros(n, np.int64),
        running=np.zeros(n, np.int64),
        start_s=np.zeros(n),
        finish_s=np.zeros(n),
        path_length=np.zeros(n, np.int64),
        path=np.zeros((n, r), np.int64),
        alloc=np.zeros((n, r), np.int64),
        job_iteration_s=np.zeros(n),
        job_bytes_per_s=np.zeros(n),
        energy_kwh=np.zeros(n),
        cost_usd=np.zeros(n),
    )


@kernel
def reset(arrays: Arrays, state: State, horizon_s: float) -> int:
    """Empty cluster, nothing arrived; then move to the first decision. Returns advance()'s code."""
    state.now_s[0] = 0.0
    state.idle_since_s[0] = np.inf
    for i in range(state.counts.size):
        state.counts[i] = 0
    for i in range(state.totals.size):
        state.totals[i] = 0.0
    for r in range(arrays.gpus.size):
        state.free_gpus[r] = arrays.gpus[r]
        for v in range(arrays.gpus.size):
            state.link_used[r, v] = 0.0
            state.link_jobs[r, v] = 0
    for j in range(state.status.size):
        state.status[j] = FUTURE
        state.start_s[j] = np.nan
        state.finish_s[j] = np.nan
        state.path_length[j] = 0
        state.job_iteration_s[j] = 0.0
        state.job_bytes_per_s[j] = 0.0
        state.energy_kwh[j] = 0.0
        state.cost_usd[j] = 0.0
        for r in range(arrays.gpus.size):
            state.path[j, r] = -1
            state.alloc[j, r] = 0
    return advance(arrays, state, horizon_s)


@kernel
def current_prices(arrays: Arrays, now_s: float, out: FloatArray) -> None:
    """The price in force in every region, USD/kWh, into `out` of shape `(R,)`."""
    t = now_s + time_tolerance(now_s)  # a change that happens now has happened
    for r in range(arrays.gpus.size):
        n = arrays.price_count[r]
        out[r] = arrays.price_usd_per_kwh[r, 0]
        if n > 1:
            times_s, prices = arrays.price_time_s[r, :n], arrays.price_usd_per_kwh[r, :n]
            out[r] = price_at(times_s, prices, arrays.price_period_s[r], t)


@inner_kernel
def current_rates(arrays: Arrays, now_s: float, out: FloatArray) -> None:
    """P_r of the policies: electricity of one GPU for an hour, USD, into `out` of shape `(R,)`."""
    current_prices(arrays, now_s, out)
    for r in range(out.size):
        out[r] *= arrays.kw_per_gpu[r]


@inner_kernel
def next_change_of_price(arrays: Arrays, now_s: float) -> float:
    """When the next price changes anywhere; inf if none does."""
    t = now_s + time_tolerance(now_s)
    soonest = np.inf
    if arrays.price_cycle_s <= 0.0:
        return soonest
    for r in range(arrays.gpus.size):
        n = arrays.price_count[r]
        if n > 1:
            times_s = arrays.price_time_s[r, :n]
            soonest = min(soonest, next_price_change(times_s, arrays.price_period_s[r], t))
    return soonest


@kernel
def placed_iteration_time(
    arrays: Arrays, link_used: FloatArray, profile: int, k: int, path: IntArray, length: int
) -> float:
    """Eq. 1 of a profile on a path, at the present reservations."""
    latency_s, least_free, inverse_free = 0.0, np.inf, 0.0
    for i in range(length - 1):
        u, v = path[i], path[i + 1]
        free = arrays.link_bytes_per_s[u, v] - link_used[u, v]
        latency_s += arrays.link_latency_s[u, v]
        least_free = min(least_free, free)
        inverse_free += 1.0 / free if free > 0.0 else np.inf
    return path_iteration_time(
        arrays.t_comm_form,
        arrays.act_bytes[profile],
        arrays.comp_s[profile, k],
        arrays.intra_s[profile],
        arrays.micro_batches[profile],
        k,
        length - 1,
        latency_s,
        least_free,
        inverse_free,
    )


@inner_kernel
def _total(alloc: IntArray) -> int:
    total = 0
    for gpus in alloc:
        total += gpus
    return total


@inner_kernel
def _check_regions(state: State, path: IntArray, alloc: IntArray) -> tuple[int, int]:
    for i in range(path.size):
        if path[i] < 0 or path[i] >= state.free_gpus.size:
            return UNKNOWN_REGION, i
        for earlier in range(i):
            if path[earlier] == path[i]:
                return REPEATED_REGION, i
        if alloc[i] < 1:
            return NO_GPU, i
        if alloc[i] > state.free_gpus[path[i]]:
            return TOO_FEW_FREE, i
    return VALID, 0


@kernel
def check_placement(
    arrays: Arrays, state: State, job: int, path: IntArray, alloc: IntArray
) -> tuple[int, int]:
    """Whether the placement may start now: a code, and the index on the path that it is about."""
    if job < 0 or job >= state.status.size or state.status[job] != PENDING:
        return NOT_PENDING, 0
    if path.size == 0:
        return EMPTY_PATH, 0
    code, at = _check_regions(state, path, alloc)
    if code != VALID:
        return code, at
    p, k = arrays.job_profile[job], _total(alloc)
    if k < arrays.k_min[p]:
        return BELOW_K_MIN, 0
    if k > arrays.k_max[p]:
        return ABOVE_K_MAX, 0
    need = bandwidth_need(arrays.act_bytes[p], arrays.comp_s[p, k])
    for i in range(path.size - 1):
        capacity = arrays.link_bytes_per_s[path[i], path[i + 1]]
        if capacity <= 0.0:
            return NO_LINK, i
        if need > link_room(state.link_used[path[i], path[i + 1]], capacity):
            return LINK_FULL, i
    return VALID, 0


@kernel
def start_job(arrays: Arrays, state: State, job: int, path: IntArray, alloc: IntArray) -> None:
    """Start a job on a placement that `check_placement` found valid."""
    length, k = path.size, _total(alloc)
    p = arrays.job_profile[job]
    now = state.now_s[0]
    iteration_s = placed_iteration_time(arrays, state.link_used, p, k, path, length)
    execution_s = arrays.iterations[job] * iteration_s
    finish = now + execution_s
    need = bandwidth_need(arrays.act_bytes[p], arrays.comp_s[p, k])
    for i in range(length):
        r = path[i]
        n = arrays.price_count[r]
        kw = alloc[i] * arrays.kw_per_gpu[r]
        state.free_gpus[r] -= alloc[i]
        state.path[job, i] = r
        state.alloc[job, i] = alloc[i]
        state.energy_kwh[job] += kw * execution_s / 3600.0
        state.cost_usd[job] += electricity_cost(
            arrays.price_time_s[r, :n],
            arrays.price_usd_per_kwh[r, :n],
            arrays.price_cumulative[r, :n],
            arrays.price_period_s[r],
            kw,
            now,
            finish,
        )
        if i + 1 < length:
            v = path[i + 1]
            state.link_used[r, v] += need
            state.link_jobs[r, v] += 1
            state.cost_usd[job] += egress_cost(
                arrays.act_bytes[p],
                arrays.micro_batches[p],
                arrays.iterations[job],
                arrays.egress_usd_per_byte[r],
                arrays.egress_usd_per_byte[v],
            )
    state.totals[CHARGED_USD] += state.cost_usd[job]
    state.path_length[job] = length
    state.job_iteration_s[job] = iteration_s
    state.job_bytes_per_s[job] = need if length > 1 else 0.0
    state.start_s[job] = now
    state.finish_s[job] = finish
    state.status[job] = RUNNING
    state.running[state.counts[N_RUNNING]] = job
    state.counts[N_RUNNING] += 1
    _drop_pending(state, job)


@inner_kernel
def _drop_pending(state: State, job: int) -> None:
    n = state.counts[N_PENDING]
    shift = 0
    for i in range(n - 1):
        if state.pending[i] == job:
            shift = 1
        state.pending[i] = state.pending[i + shift]
    state.counts[N_PENDING] = n - 1


@inner_kernel
def _release(state: State, job: int) -> None:
    for i in range(state.path_length[job]):
        r = state.path[job, i]
        state.free_gpus[r] += state.alloc[job, i]
        if i + 1 < state.path_length[job]:
            v = state.path[job, i + 1]
            state.link_jobs[r, v] -= 1
            left = state.link_used[r, v] - state.job_bytes_per_s[job]
            # An unused link is exactly empty, so rounding never adds up over an episode.
            state.link_used[r, v] = max(left, 0.0) if state.link_jobs[r, v] > 0 else 0.0
    state.status[job] = FINISHED


@inner_kernel
def _complete_until(state: State, until_s: float) -> None:
    counts, running, finish_s = state.counts, state.running, state.finish_s
    i = 0
    while i < counts[N_RUNNING]:
        job = running[i]
        if finish_s[job] <= until_s:
            _release(state, job)
            counts[N_RUNNING] -= 1
            running[i] = running[counts[N_RUNNING]]
        else:
            i += 1


@inner_kernel
def _arrive_until(arrays: Arrays, state: State, until_s: float) -> None:
    n = arrays.arrival_s.size
    while state.counts[ARRIVED] < n and arrays.arrival_s[state.counts[ARRIVED]] <= until_s:
        job = state.counts[ARRIVED]
        state.status[job] = PENDING
        state.pending[state.counts[N_PENDING]] = job
        state.counts[N_PENDING] += 1
        state.counts[ARRIVED] += 1


@inner_kernel
def _next_finish(counts: IntArray, running: IntArray, finish_s: FloatArray) -> float:
    soonest = np.inf
    for i in range(counts[N_RUNNING]):
        soonest = min(soonest, finish_s[running[i]])
    return soonest


@inner_kernel
def _last_simultaneous(
    counts: IntArray,
    running: IntArray,
    finish_s: FloatArray,
    arrival_s: FloatArray,
    first_s: float,
) -> float:
    """The latest event that counts as simultaneous with the one at `first_s`."""
    until = first_s + time_tolerance(first_s)
    last = first_s
    for i in range(counts[N_RUNNING]):
        finish = finish_s[running[i]]
        if finish <= until:
            last = max(last, finish)
    i = counts[ARRIVED]
    while i < arrival_s.size and arrival_s[i] <= until:
        last = max(last, arrival_s[i])
        i += 1
    return last


@inner_kernel
def next_event(arrays: Arrays, state: State) -> float:
    """Time of the next completion, arrival or price change; inf if none lies ahead."""
    counts = state.counts
    soonest = _next_finish(counts, state.running, state.finish_s)
    if counts[ARRIVED] < arrays.arrival_s.size:
        soonest = min(soonest, arrays.arrival_s[counts[ARRIVED]])
    # Without a pending job a new price changes no decision.
    if counts[N_PENDING] > 0 and arrays.price_cycle_s > 0.0:
        soonest = min(soonest, next_change_of_price(arrays, state.now_s[0]))
    return soonest


@inner_kernel
def may_wait(arrays: Arrays, state: State, next_event_s: float) -> bool:
    """Whether anything lies ahead that WAIT could wait for.

    With an idle cluster and no arrivals to come, prices are waited for until all have been seen.
    """
    idle_since_s = _idle_since(
        state.counts, state.idle_since_s[0], state.now_s[0], arrays.arrival_s.size
    )
    return next_event_s < np.inf and next_event_s - idle_since_s <= arrays.price_cycle_s


@inner_kernel
def _idle_since(counts: IntArray, idle_since_s: float, now_s: float, n_jobs: int) -> float:
    """Since when only prices change: jobs are pending, none runs, none is to arrive; else inf."""
    if counts[ARRIVED] == n_jobs and counts[N_PENDING] > 0 and counts[N_RUNNING] == 0:
        return min(idle_since_s, now_s)
    return np.inf


@kernel
def advance(arrays: Arrays, state: State, horizon_s: float) -> int:
    """Move time to the next event after which a job is pending: WAIT, or the way to a decision.

    At equal times completions come first, then arrivals by job id, then price changes. Nothing
    after `horizon_s` (inf: none) happens.

    Returns:
        DECISION; DONE when every job is finished; TRUNCATED at the horizon; DEADLOCK, with nothing
        changed, when jobs are pending and nothing lies ahead (see `may_wait`).
    """
    while True:
        in_system = state.counts[N_PENDING] + state.counts[N_RUNNING]
        if in_system == 0 and state.counts[ARRIVED] == arrays.arrival_s.size:
            return DONE
        first = next_event(arrays, state)
        if not may_wait(arrays, state, first):
            return DEADLOCK
        now = state.now_s[0]
        state.idle_since_s[0] = _idle_since(
            state.counts, state.idle_since_s[0], now, arrays.arrival_s.size
        )
        first = max(first, now)
        last = _last_simultaneous(
            state.counts, state.running, state.finish_s, arrays.arrival_s, first
        )
        then = min(last, horizon_s)
        state.totals[JOB_SECONDS] += in_system * (then - now)
        state.now_s[0] = then
        if first > horizon_s:
            return TRUNCATED
        _complete_until(state, then)
        _arrive_until(arrays, state, then)
        if state.counts[N_PENDING] > 0:
            return DECISION


@kernel
def pause(arrays: Arrays, state: State, until_s: float) -> int:
    """Move time to `until_s`, or to the next event if that is earlier; a job must be pending.

    Unlike `advance` it also passes time in which nothing can happen any more.

    Returns:
        DECISION after an event, TRUNCATED at `until_s`.
    """
    if may_wait(arrays, state, next_event(arrays, state)):
        return advance(arrays, state, until_s)
    state.idle_since_s[0] = _idle_since(
        state.counts, state.idle_since_s[0], state.now_s[0], arrays.arrival_s.size
    )
    in_system = state.counts[N_PENDING] + state.counts[N_RUNNING]
    state.totals[JOB_SECONDS] += in_system * (until_s - state.now_s[0])
    state.now_s[0] = until_s
    return TRUNCATED
