"""Which pending jobs a learned scheduler sees: a fixed number of slots, in a fixed order."""

from typing import NamedTuple

import numpy as np

from bace_env.candidates import GROWTHS, Orders, most_gpus, walk
from bace_env.jit import inlined_kernel, inner_kernel
from bace_env.placement import freest_region, priorities
from bace_env.types import N_PENDING, Arrays, FloatArray, IntArray, Scratch, State


class Slots(NamedTuple):
    """The Q visible jobs of a decision."""

    job: IntArray  # (Q,) job id; -1 where empty
    table: IntArray  # (Q,) index of the job's profile among the candidate tables
    priority: FloatArray  # (Q,) Eq. 12
    hidden: IntArray  # (1,) pending jobs that are not visible


def allocate_slots(n_slots: int) -> Slots:
    """Slots of the right shapes."""
    return Slots(
        job=np.zeros(n_slots, np.int64),
        table=np.zeros(n_slots, np.int64),
        priority=np.zeros(n_slots),
        hidden=np.zeros(1, np.int64),
    )


@inner_kernel
def clear_slots(slots: Slots) -> None:
    """No job is visible."""
    for q in range(slots.job.size):
        slots.job[q] = -1
        slots.table[q] = -1
    slots.hidden[0] = 0


_ANY, _STARTS, _PATHFINDER, _CR_LDF, _PATIENT = 0, 1, 2, 4, 8  # what can start a job, as bits


@inner_kernel
def _who_starts(
    act_bytes: float,
    comp_s: FloatArray,
    k_min: int,
    k_star: int,
    reach: int,
    free_gpus: IntArray,
    orders: Orders,
) -> int:
    """Which rules can start a job of a profile now, as bits; `reach`: GPUs when all is free."""
    who = _ANY
    most = most_gpus(act_bytes, comp_s, k_min, k_star, orders)
    if most > 0:
        who |= _STARTS | _PATHFINDER
        if most >= min(k_star, reach):
            who |= _PATIENT
    for start in range(free_gpus.size):
        for g in range(GROWTHS):
            if walk(act_bytes, comp_s, orders, g, start, k_min)[1] >= k_min:
                who |= _STARTS
    start = freest_region(free_gpus, 1)
    if start >= 0 and walk(act_bytes, comp_s, orders, 0, start, k_star)[1] >= k_min:
        who |= _STARTS | _CR_LDF
    return who


@inlined_kernel
def choose_slots(
    arrays: Arrays, state: State, orders: Orders, reach: IntArray, scratch: Scratch, slots: Slots
) -> None:
    """Which pending jobs are visible, and in which order.

    The oldest; while not all fit, those that the built-in policies would start next (the oldest,
    the shortest and the one of highest priority that Alg. 1 can place, the one of highest priority
    for CR-LDF and for `bace-patient`); then by priority those that can start now; then the rest.
    """
    n, n_slots = state.counts[N_PENDING], slots.job.size
    pending = state.pending[:n]
    score, who, shown = scratch.score[0, :n], scratch.mark[0, :n], scratch.mark[1, :n]
    priorities(arrays, state.link_used, pending, score)
    _fill_who(arrays, state.free_gpus, pending, orders, reach, n > n_slots, scratch.profile, who)
    clear_slots(slots)
    for i in range(n):
        shown[i] = 0
    shown[0] = 1
    slots.job[0], slots.priority[0] = pending[0], score[0]  # the oldest
    used = 1
    if n > n_slots:
        age, work = scratch.score[1, :n], scratch.score[2, :n]
        for i in range(n):
            age[i] = -i
            profile = arrays.job_profile[pending[i]]
            work[i] = -arrays.iterations[pending[i]] * arrays.iteration_s[profile, 1]
        used = _show(age, who, _PATHFINDER, False, shown, pending, score, slots, used)
        used = _show(work, who, _PATHFINDER, False, shown, pending, score, slots, used)
        for needed in (_PATHFINDER, _CR_LDF, _PATIENT):
            used = _show(score, who, needed, False, shown, pending, score, slots, used)
    for needed in (_STARTS, _ANY):
        before = -1
        while used != before:
            before = used
            used = _show(score, who, needed, True, shown, pending, score, slots, used)
    slots.hidden[0] = n - used
    _number_tables(arrays.job_profile, slots, used)


@inlined_kernel
def _fill_who(
    arrays: Arrays,
    free_gpus: IntArray,
    pending: IntArray,
    orders: Orders,
    reach: IntArray,
    exactly: bool,
    of_profile: IntArray,
    who: IntArray,
) -> None:
    """`_who_starts` of every pending job; unless `exactly`, _STARTS suffices where it is easy."""
    most_free = 0
    for r in range(free_gpus.size):
        most_free = max(most_free, free_gpus[r])
    for p in range(of_profile.size):
        of_profile[p] = -1
    for i in range(pending.size):
        p = arrays.job_profile[pending[i]]
        if of_profile[p] < 0:
            if not exactly and most_free >= arrays.k_min[p]:
                of_profile[p] = _STARTS
            else:
                of_profile[p] = _who_starts(
                    arrays.act_bytes[p], arrays.comp_s[p], arrays.k_min[p], arrays.k_star[p],
                    reach[p], free_gpus, orders,
                )  # fmt: skip
        who[i] = of_profile[p]


@inner_kernel
def _number_tables(job_profile: IntArray, slots: Slots, used: int) -> None:
    """Jobs of one profile share a table of candidates."""
    tables = 0
    for q in range(used):
        for earlier in range(q):
            if job_profile[slots.job[earlier]] == job_profile[slots.job[q]]:
                slots.table[q] = slots.table[earlier]
                break
        if slots.table[q] < 0:
            slots.table[q] = tables
            tables += 1


@inner_kernel
def _show(
    by: FloatArray,
    who: IntArray,
    needed: int,
    again: bool,
    shown: IntArray,
    pending: IntArray,
    score: FloatArray,
    slots: Slots,
    used: int,
) -> int:
    """Make the best pending job that `needed` can start visible; returns the slots now in use.

    The best of all, which may be visible already; with `again` the best that is not visible yet.
    """
    best = -1
    for i in range(by.size):
        eligible = (who[i] & needed) == needed and not (again and shown[i] == 1)
        if eligible and (best < 0 or by[i] > by[best]):
            best = i
    if best < 0 or shown[best] == 1 or used == slots.job.size:
        return used
    shown[best] = 1
    slots.job[used] = pending[best]
    slots.priority[used] = score[best]
    return used + 1
