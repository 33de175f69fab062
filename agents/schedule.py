"""Whole schedules in the compiled simulator: played, recorded, and improved by annealing.

A schedule is a `Sequence`: jobs in the order in which they start, each with its placement. Played,
a job starts at the first event at which its placement is valid and its time has come, and none
starts before the one ahead of it. Any schedule, recorded, is played back as it was, or better where
prices are constant: then no job waits without need.
"""

from typing import NamedTuple

import numpy as np

from agents.heuristic import Options, decide
from bace_env.instance import Instance
from bace_env.jit import inner_kernel, kernel
from bace_env.kernels import (
    DECISION,
    PENDING,
    VALID,
    advance,
    check_placement,
    current_rates,
    start_job,
    time_tolerance,
)
from bace_env.placement import FILL_CHEAPEST, allocate, grow_path, pathfinder
from bace_env.types import (
    N_PENDING,
    N_RUNNING,
    Arrays,
    FloatArray,
    IntArray,
    Scratch,
    State,
)


class Sequence(NamedTuple):
    """Jobs in the order of their starts, with their placements. N jobs, R regions."""

    job: IntArray  # (N,)
    length: IntArray  # (N,) regions on the path; 0: placed by `rule` when its turn comes
    path: IntArray  # (N, R)
    alloc: IntArray  # (N, R) GPUs in path order
    rule: IntArray  # (N, 4) start region (-1: as Alg. 1 chooses), growth, GPUs wanted, at least
    not_before_s: FloatArray  # (N,) 0 where prices are constant


def allocate_sequence(n_jobs: int, n_regions: int) -> Sequence:
    """A sequence of the right shapes."""
    return Sequence(
        job=np.zeros(n_jobs, np.int64),
        length=np.zeros(n_jobs, np.int64),
        path=np.zeros((n_jobs, n_regions), np.int64),
        alloc=np.zeros((n_jobs, n_regions), np.int64),
        rule=np.zeros((n_jobs, 4), np.int64),
        not_before_s=np.zeros(n_jobs),
    )


def objective_scales(instance: Instance) -> FloatArray:
    """What a second of a job's time and what a dollar add to the objective, and when prices end.

    Shape `(3,)`; a job that finishes after the last adds inf.
    """
    per_second = 1.0 / (instance.n_jobs * instance.jct_ref_s)
    per_usd = instance.cost_weight / instance.cost_ref_usd
    return np.array([per_second, per_usd, instance.price_end_s])


@kernel
def copy_state(source: State, target: State) -> None:
    """Copy what matters of an episode's state; `path` and `alloc` up to each path's length."""
    for i in range(3):
        target.counts[i] = source.counts[i]
    target.now_s[0], target.idle_since_s[0] = source.now_s[0], source.idle_since_s[0]
    for i in range(2):
        target.totals[i] = source.totals[i]
    n_regions = source.free_gpus.size
    for r in range(n_regions):
        target.free_gpus[r] = source.free_gpus[r]
        for v in range(n_regions):
            target.link_used[r, v] = source.link_used[r, v]
            target.link_jobs[r, v] = source.link_jobs[r, v]
    for i in range(source.counts[N_PENDING]):
        target.pending[i] = source.pending[i]
    for i in range(source.counts[N_RUNNING]):
        target.running[i] = source.running[i]
    for j in range(source.status.size):
        target.status[j] = source.status[j]
        target.start_s[j] = source.start_s[j]
        target.finish_s[j] = source.finish_s[j]
        target.job_iteration_s[j] = source.job_iteration_s[j]
        target.job_bytes_per_s[j] = source.job_bytes_per_s[j]
        target.energy_kwh[j] = source.energy_kwh[j]
        target.cost_usd[j] = source.cost_usd[j]
        length = source.path_length[j]
        target.path_length[j] = length
        for i in range(length):
            target.path[j, i] = source.path[j, i]
            target.alloc[j, i] = source.alloc[j, i]


@inner_kernel
def copy_entry(source: Sequence, i: int, target: Sequence, at: int) -> None:
    """Copy entry i of one sequence to place `at` of another."""
    target.job[at] = source.job[i]
    length = source.length[i]
    target.length[at] = length
    for h in range(length):
        target.path[at, h] = source.path[i, h]
        target.alloc[at, h] = source.alloc[i, h]
    target.not_before_s[at] = source.not_before_s[i]
    if length == 0:
        for h in range(4):
            target.rule[at, h] = source.rule[i, h]


@inner_kernel
def _start(
    arrays: Arrays, state: State, job: int, path: IntArray, alloc: IntArray, n: int, out: Sequence
) -> None:
    """Start a job and append it, as entry n, to the schedule that is being recorded."""
    start_job(arrays, state, job, path, alloc)
    out.job[n], out.length[n] = job, path.size
    for h in range(path.size):
        out.path[n, h], out.alloc[n, h] = path[h], alloc[h]
    out.not_before_s[n] = state.now_s[0] if arrays.price_cycle_s > 0.0 else 0.0


@inner_kernel
def _place_by_rule(
    arrays: Arrays, state: State, sequence: Sequence, i: int, scratch: Scratch
) -> int:
    """Length of the path on which entry i's rule may start its job now; 0: not now."""
    job = sequence.job[i]
    profile = arrays.job_profile[job]
    start, grow, target, least = (
        sequence.rule[i, 0], sequence.rule[i, 1], sequence.rule[i, 2], sequence.rule[i, 3],
    )  # fmt: skip
    path, alloc, prices = scratch.path[2], scratch.alloc[2], scratch.rate
    current_rates(arrays, state.now_s[0], prices)
    if start < 0:
        length, gpus = pathfinder(
            arrays, state.free_gpus, state.link_used, prices, profile, target, FILL_CHEAPEST, True,
            False, scratch.path[0], scratch.alloc[0], path, alloc,
        )  # fmt: skip
    else:
        length, gpus = grow_path(
            arrays, state.free_gpus, state.link_used, prices, profile, target, start, grow, True,
            path,
        )  # fmt: skip
        if length > 0:
            allocate(FILL_CHEAPEST, path, length, gpus, state.free_gpus, prices, alloc)
    return length if gpus >= max(least, arrays.k_min[profile]) else 0


@kernel
def play_sequence(
    arrays: Arrays,
    state: State,
    sequence: Sequence,
    n: int,
    scales: FloatArray,
    limit: float,
    scratch: Scratch,
    out: Sequence,
) -> float:
    """Start the first n entries in their order, each as soon as it may; what they add up to.

    Args:
        arrays: The workload.
        state: Where to begin; overwritten.
        sequence: The jobs that are to start.
        n: How many.
        scales: See `objective_scales`.
        limit: Stop, with inf, once the result must exceed this.
        scratch: Room.
        out: The schedule as it came out, with explicit placements.

    Returns:
        Their share of the objective; inf too if one of them can never start.
    """
    value, rest = 0.0, 0.0
    for i in range(n):
        rest += _least_seconds(arrays, sequence.job[i]) * scales[0]
    for i in range(n):
        job = sequence.job[i]
        while not try_entry(arrays, state, sequence, i, scratch, out):
            if advance(arrays, state, np.inf) != DECISION:
                return np.inf
        value += contribution(arrays, state, job, scales)
        rest -= _least_seconds(arrays, job) * scales[0]
        waited = 0.0  # by those that follow: they start no earlier
        for later in range(i + 1, n):
            waited += max(state.now_s[0] - arrays.arrival_s[sequence.job[later]], 0.0)
        if value + rest + waited * scales[0] > limit:
            return np.inf
    return value


@kernel
def try_entry(
    arrays: Arrays, state: State, sequence: Sequence, i: int, scratch: Scratch, out: Sequence
) -> bool:
    """Start the job of entry i, recorded in `out`, if that is possible now."""
    job, length = sequence.job[i], sequence.length[i]
    now = state.now_s[0]
    if state.status[job] != PENDING or now + time_tolerance(now) < sequence.not_before_s[i]:
        return False
    if length > 0:
        path, alloc = sequence.path[i, :length], sequence.alloc[i, :length]
        if check_placement(arrays, state, job, path, alloc)[0] != VALID:
            return False
    else:
        length = _place_by_rule(arrays, state, sequence, i, scratch)
        if length == 0:
            return False
        path, alloc = scratch.path[2, :length], scratch.alloc[2, :length]
    _start(arrays, state, job, path, alloc, i, out)
    return True


@inner_kernel
def _least_seconds(arrays: Arrays, job: int) -> float:
    p = arrays.job_profile[job]
    return float(arrays.iterations[job] * arrays.iteration_s[p, arrays.k_star[p]])


@kernel
def contribution(arrays: Arrays, state: State, job: int, scales: FloatArray) -> float:
    """What a started job adds to the objective."""
    finish_s = state.finish_s[job]
    if finish_s > scales[2] + time_tolerance(finish_s):
        return np.inf
    seconds = state.finish_s[job] - arrays.arrival_s[job]
    return float(seconds * scales[0] + state.cost_usd[job] * scales[1])


@kernel
def play_policy(
    arrays: Arrays,
    state: State,
    options: Options,
    scales: FloatArray,
    scratch: Scratch,
    out: Sequence,
    first: int,
) -> tuple[float, int]:
    """Let a heuristic go on from a state to the end.

    Args:
        arrays: The workload.
        state: Where to begin; overwritten.
        options: The heuristic.
        scales: See `objective_scales`.
        scratch: Room.
        out: The schedule that comes out, from entry `first` on.
        first: Entries that are there already.

    Returns:
        What the jobs that it started add to the objective (inf if some never start), and the number
        of entries now in `out`.
    """
    value, n, to_start = 0.0, first, 0
    path, alloc = scratch.path[2], scratch.alloc[2]
    for j in range(state.status.size):
        if state.path_length[j] == 0:
            to_start += 1
    while to_start > 0:
        job, length = -1, 0
        if state.counts[N_PENDING] > 0:
            job, length = decide(arrays, state, options, scratch, path, alloc)
        if job >= 0:
            _start(arrays, state, job, path[:length], alloc[:length], n, out)
            value += contribution(arrays, state, job, scales)
            n += 1
            to_start -= 1
        elif advance(arrays, state, np.inf) != DECISION:
            return np.inf, n
    return value, n


@inner_kernel
def _mutate(arrays: Arrays, sequence: Sequence, n: int, u: FloatArray, most_gpus: int) -> None:
    """Change a sequence at random; `u` are uniform numbers from 0 to 1."""
    a, b = int(u[1] * n), int(u[2] * n)
    if arrays.price_cycle_s > 0.0:
        _vary_times(arrays, sequence, n, a, u)
    if u[0] < 0.15:
        _swap(sequence, a, b)
    elif u[0] < 0.35:
        _move(sequence, n, a, b)
    elif u[0] < 0.55:
        _set_rule(arrays, sequence, a, u, most_gpus)
    elif u[0] < 0.85:
        _vary_placement(arrays, sequence, a, u, most_gpus)
    elif u[0] < 0.92:
        for i in range(a, n):
            _set_rule(arrays, sequence, i, u, most_gpus)
            sequence.rule[i, 0] = -1
    else:
        _move(sequence, n, a, b)
        _set_rule(arrays, sequence, b, u, most_gpus)


@inner_kernel
def _vary_times(arrays: Arrays, sequence: Sequence, n: int, a: int, u: FloatArray) -> None:
    """Let jobs start earlier, or one later: when another one does, or when a price changes."""
    if u[7] < 0.3:
        for i in range(a, n):
            sequence.not_before_s[i] = 0.0
    elif u[7] < 0.4:
        other = int(u[6] * n)
        sequence.not_before_s[a] = sequence.not_before_s[other]
    elif u[7] < 0.6:  # until a price changes somewhere
        region = int(u[6] * arrays.gpus.size)
        step = int(u[8] * arrays.price_count[region])
        time_s, period_s = arrays.price_time_s[region, step], arrays.price_period_s[region]
        now = sequence.not_before_s[a]
        if period_s < np.inf and now > time_s:
            time_s += np.ceil((now - time_s) / period_s) * period_s
        sequence.not_before_s[a] = time_s


@inner_kernel
def _swap(sequence: Sequence, a: int, b: int) -> None:
    sequence.job[a], sequence.job[b] = sequence.job[b], sequence.job[a]
    sequence.length[a], sequence.length[b] = sequence.length[b], sequence.length[a]
    times = sequence.not_before_s
    times[a], times[b] = times[b], times[a]
    for h in range(4):
        keep = sequence.rule[a, h]
        sequence.rule[a, h] = sequence.rule[b, h]
        sequence.rule[b, h] = keep
    for h in range(sequence.path.shape[1]):
        keep = sequence.path[a, h]
        sequence.path[a, h] = sequence.path[b, h]
        sequence.path[b, h] = keep
        keep = sequence.alloc[a, h]
        sequence.alloc[a, h] = sequence.alloc[b, h]
        sequence.alloc[b, h] = keep


@inner_kernel
def _move(sequence: Sequence, n: int, a: int, b: int) -> None:
    """Move entry a to place b; those between shift."""
    while a < b:
        _swap(sequence, a, a + 1)
        a += 1
    while a > b:
        _swap(sequence, a, a - 1)
        a -= 1


@inner_kernel
def _set_rule(arrays: Arrays, sequence: Sequence, i: int, u: FloatArray, most_gpus: int) -> None:
    """Let a rule place entry i: from a random region or as Alg. 1, with random numbers of GPUs."""
    p, n_regions = arrays.job_profile[sequence.job[i]], arrays.gpus.size
    k_min, top = arrays.k_min[p], min(arrays.k_max[p], most_gpus)
    target = min(arrays.k_star[p], top)
    if u[5] > 0.2:  # any number, small and large ones alike
        share = (u[5] - 0.2) / 0.8
        target = round(k_min * (top / k_min) ** share)
    least = k_min if u[6] < 0.4 else target
    sequence.length[i] = 0
    sequence.rule[i, 0] = int(u[3] * (n_regions + 1)) - 1
    sequence.rule[i, 1] = int(u[4] * 3)
    sequence.rule[i, 2] = max(k_min, min(target, top))
    sequence.rule[i, 3] = least


@inner_kernel
def _vary_placement(
    arrays: Arrays, sequence: Sequence, i: int, u: FloatArray, most_gpus: int
) -> None:
    """Other GPUs on the path of entry i, a region more or less, or two regions in other order."""
    length, n_regions = sequence.length[i], arrays.gpus.size
    if length == 0:
        _set_rule(arrays, sequence, i, u, most_gpus)
        return
    h, other = int(u[3] * length), int(u[4] * length)
    path, alloc = sequence.path, sequence.alloc
    if u[5] < 0.55:
        _vary_gpus(arrays, sequence, i, h, other, u)
    elif u[5] < 0.7 and length > 1:  # without one region
        for at in range(h, length - 1):
            path[i, at], alloc[i, at] = path[i, at + 1], alloc[i, at + 1]
        sequence.length[i] = length - 1
    elif u[5] < 0.8 and length > 1:  # two regions change places
        path[i, h], path[i, other] = path[i, other], path[i, h]
        alloc[i, h], alloc[i, other] = alloc[i, other], alloc[i, h]
    else:
        _vary_region(arrays, sequence, i, h, int(u[4] * n_regions), u)


@inner_kernel
def _vary_gpus(
    arrays: Arrays, sequence: Sequence, i: int, h: int, other: int, u: FloatArray
) -> None:
    """Other GPUs in one region of entry i's path, perhaps at the cost of another."""
    most = arrays.gpus[sequence.path[i, h]]
    old = sequence.alloc[i, h]
    new = 1 + int(u[7] * most)
    if u[6] < 0.5:
        new = old + (1 if u[7] < 0.5 else -1)
    new = max(1, min(new, most))
    sequence.alloc[i, h] = new
    if u[2] < 0.4 and other != h:
        room = arrays.gpus[sequence.path[i, other]]
        sequence.alloc[i, other] = max(1, min(sequence.alloc[i, other] + old - new, room))


@inner_kernel
def _vary_region(
    arrays: Arrays, sequence: Sequence, i: int, h: int, region: int, u: FloatArray
) -> None:
    """Another region on entry i's path: in place of one, or at the end."""
    length = sequence.length[i]
    for at in range(length):
        if sequence.path[i, at] == region:
            return
    at, gpus = h, sequence.alloc[i, h]
    if u[5] >= 0.9:
        at = length
        sequence.length[i] = length + 1
    if u[6] > 0.7 or at == length:
        gpus = 1 + int(u[7] * arrays.gpus[region])
    sequence.path[i, at] = region
    sequence.alloc[i, at] = max(1, min(gpus, arrays.gpus[region]))


@kernel
def anneal(
    arrays: Arrays,
    start: State,
    work: State,
    scales: FloatArray,
    n: int,
    current: Sequence,
    value: float,
    best: Sequence,
    best_value: float,
    trial: Sequence,
    played: Sequence,
    uniform: FloatArray,
    hot: float,
    cold: float,
    scratch: Scratch,
) -> tuple[float, float]:
    """Simulated annealing over sequences; one simulation per row of random numbers.

    Args:
        arrays: The workload.
        start: Where the schedules begin.
        work: A state to play in.
        scales: See `objective_scales`.
        n: Jobs to schedule.
        current: Where the walk stands; explicit placements. Changed.
        value: Its value.
        best: The best schedule met so far. Changed where a better one is met.
        best_value: Its value.
        trial: Room.
        played: Room.
        uniform: Random numbers from 0 to 1, `(simulations, 9)`.
        hot: Temperature at the beginning, in units of the objective.
        cold: Temperature at the end.
        scratch: Room.

    Returns:
        The values of `current` and `best`.
    """
    most_gpus = 0
    for r in range(arrays.gpus.size):
        most_gpus += arrays.gpus[r]
    steps = uniform.shape[0]
    for m in range(steps):
        temperature = hot * (cold / hot) ** (m / steps)
        for i in range(n):
            copy_entry(current, i, trial, i)
        _mutate(arrays, trial, n, uniform[m], most_gpus)
        # Metropolis, turned round: what the new value may be at most.
        limit = value - temperature * np.log(max(uniform[m, 8], 1e-300))
        copy_state(start, work)
        found = play_sequence(arrays, work, trial, n, scales, limit, scratch, played)
        if found <= limit:
            value = found
            for i in range(n):
                copy_entry(played, i, current, i)
            if found < best_value:
                best_value = found
                for i in range(n):
                    copy_entry(played, i, best, i)
    return value, best_value
