"""Why BACE-Pipe and its kin decide as they do.

The decision is `decide_and_note` itself, and every number beside it comes from the functions that
it calls, on the same state; here they are only put into words.
"""

from typing import NamedTuple

import numpy as np

from agents.explanation import Cell, Column, Explanation, Fact, Table
from agents.heuristic import (
    BLOCKED,
    ORDER_FCFS,
    ORDER_PRIORITY,
    STARTED,
    Options,
    decide_and_note,
)
from agents.placement_reasons import RuleTables, in_words
from bace_env.jit import kernel
from bace_env.placement import demands, largest_demands
from bace_env.simulator import WAIT, Action, Placement, View
from bace_env.types import Arrays, FloatArray, IntArray, Scratch, State, allocate_scratch

_GBPS = 1.25e8  # bytes/s

_ORDERS = {
    ORDER_FCFS: "first come, first served",
    ORDER_PRIORITY: "by priority (Eq. 12)",
}


@kernel
def _decide(
    arrays: Arrays,
    state: State,
    options: Options,
    prices: FloatArray,
    score: FloatArray,
    outcome: IntArray,
    scratch: Scratch,
    path: IntArray,
    alloc: IntArray,
) -> tuple[int, int]:
    return decide_and_note(arrays, state, options, prices, score, outcome, scratch, path, alloc)


@kernel
def _demands(arrays: Arrays, pending: IntArray, out: FloatArray) -> None:
    """I_j and D_j (Eq. 9 and 10) of the pending jobs into `out`, `(pending, 2)`."""
    longest, widest = largest_demands(arrays, pending)
    for i in range(pending.size):
        out[i, 0], out[i, 1] = demands(arrays, pending[i], longest, widest)


class _Noted(NamedTuple):
    """The decision and the kernel's notes on it."""

    action: Action
    prices: FloatArray  # (R,) USD per GPU and hour
    score: FloatArray  # (pending,)
    outcome: IntArray  # (pending,)


def explain(view: View, options: Options) -> Explanation:
    """The decision of `decide` with these options, and what led to it."""
    noted = _note(view, options)
    pending = view.pending
    order = np.argsort(-noted.score, kind="stable")
    tables = [_jobs_table(view, options, noted, order)]
    for i in order[noted.outcome[order] != 0]:
        tables += RuleTables(view, options, noted.prices, int(pending[i])).tables()
    facts = (
        Fact("time", view.now_s / 3600.0, "h"),
        Fact("alpha (Eq. 11): reserved share of all bandwidth", view.congestion),
        Fact(f"free GPUs of {int(view.arrays.gpus.sum())}", int(view.free_gpus.sum())),
        Fact("pending jobs", int(pending.size)),
    )
    return Explanation(noted.action, _sentence(view, options, noted), facts, tuple(tables))


def _note(view: View, options: Options) -> _Noted:
    n, r = view.pending.size, view.instance.n_regions
    prices, score, outcome = np.empty(r), np.empty(n), np.empty(n, dtype=np.int64)
    path, alloc = np.empty(r, dtype=np.int64), np.empty(r, dtype=np.int64)
    scratch = allocate_scratch(r, view.instance.n_jobs, view.arrays.k_star.size)
    job, length = _decide(
        view.arrays, view.state, options, prices, score, outcome, scratch, path, alloc
    )
    action: Action = WAIT
    if job >= 0:
        action = Placement(int(job), tuple(path[:length].tolist()), tuple(alloc[:length].tolist()))
    return _Noted(action, prices, score, outcome)


def _sentence(view: View, options: Options, noted: _Noted) -> str:
    if isinstance(noted.action, Placement):
        job, path, gpus = noted.action
        name, n = view.instance.job_names[job], sum(gpus)
        passed = int(np.count_nonzero(noted.outcome == BLOCKED))
        where = view.instance.where(path, gpus)
        text = f"{name} starts on {where}: {in_words(n)} of K* = {view.k_star(job)}"
        if passed:
            text += f", as {passed} before it cannot start"
        return f"{text}."
    if view.free_gpus.max() < 1:
        return "Wait: no GPU is free."
    if not options.skip_blocked:
        first = int(view.pending[int(np.argmax(noted.score))])
        name = view.instance.job_names[first]
        return f"Wait: {name}, first in order, cannot start, and blocks all behind it."
    return "Wait: no pending job can start."


def _jobs_table(view: View, options: Options, noted: _Noted, order: IntArray) -> Table:
    a, pending = view.arrays, view.pending
    share = np.empty((pending.size, 2))
    _demands(a, np.array(pending), share)
    by_priority = options.order == ORDER_PRIORITY
    terms = (Column("I (Eq. 9)"), Column("b at K*", "Gbit/s"), Column("D (Eq. 10)"))
    columns = [Column("job"), Column("model"), Column("waits", "h"), Column("E(1)", "h")]
    columns += [*terms, Column("priority (Eq. 12)")] if by_priority else []
    with_least = any(view.k_min(int(job)) > 1 for job in pending)
    columns += [Column("K*"), *([Column("k_min")] if with_least else []), Column("outcome")]
    rows = []
    blocked_by: dict[int, str] = {}
    for i in order.tolist():
        job = int(pending[i])
        name, profile = view.instance.job_names[job], int(a.job_profile[job])
        row: list[Cell] = [
            name,
            view.instance.profile_names[profile],
            (view.now_s - float(a.arrival_s[job])) / 3600.0,
            float(view.instance.single_gpu_s[job]) / 3600.0,
        ]
        k_star, k_min = view.k_star(job), view.k_min(job)
        if by_priority:
            need = view.bandwidth_need(job, k_star) / _GBPS
            row += [float(share[i, 0]), need, float(share[i, 1]), float(noted.score[i])]
        outcome = _outcome(noted, i, blocked_by.get(profile))
        if noted.outcome[i] == BLOCKED:
            blocked_by[profile] = name
        rows.append((*row, k_star, *([k_min] if with_least else []), outcome))
    title = f"Pending jobs, {_ORDERS.get(options.order, 'shortest E(1) first')}"
    return Table(title, tuple(columns), tuple(rows))


def _outcome(noted: _Noted, i: int, blocked_twin: str | None) -> str:
    if noted.outcome[i] == STARTED:
        return "starts"
    if noted.outcome[i] == BLOCKED:
        return "cannot start"
    if blocked_twin is not None:
        return f"cannot start: same model and batch as {blocked_twin}"
    return "not reached"
