"""The best schedule of a small instance, proven: branch and bound over all decisions.

At every decision each pending job may start on every valid placement, or the policy waits. What the
jobs that have not started must at least add to the objective bounds a branch from below.
"""

from itertools import permutations, product
from typing import Any, NamedTuple

import numpy as np

from agents.schedule import contribution, copy_state, objective_scales
from bace_env.batch import state_row
from bace_env.errors import BaceError, ConfigError
from bace_env.instance import Instance
from bace_env.jit import inner_kernel, kernel
from bace_env.kernels import (
    DECISION,
    DONE,
    VALID,
    advance,
    allocate_state,
    check_placement,
    placed_iteration_time,
    reset,
    start_job,
)
from bace_env.pipeline import T_COMM_RESIDUAL
from bace_env.simulator import Placement
from bace_env.types import N_PENDING, Arrays, FloatArray, IntArray, State

_MOST_PLACEMENTS = 20_000
_TOO_DEEP = -1  # instead of nodes: a branch is longer than there is room for
_SLACK = 1e-12  # a schedule must be better by this share to count as better


class _Placements(NamedTuple):
    """All placements of each profile, in ascending order of what they add to the objective.

    L placements at most, P profiles, R regions.
    """

    number: IntArray  # (P,)
    length: IntArray  # (P, L)
    path: IntArray  # (P, L, R)
    alloc: IntArray  # (P, L, R)
    least: FloatArray  # (P, L) objective per iteration, at least


class _Tree(NamedTuple):
    """The branch being explored, one row per depth."""

    state: State  # (D, ...)
    choice: IntArray  # (D,) the next branch to try
    value: FloatArray  # (D,) what the started jobs add
    after: IntArray  # (D,) jobs up to this id have had their chance to start at this time
    entry: IntArray  # (D, 2) job started on the way to this depth (-1: WAIT), its placement
    best: IntArray  # (N, 2) the same of the best schedule, starts only


class Optimum(NamedTuple):
    """The best schedule: its objective, its placements in the order of their starts."""

    objective: float
    placements: tuple[Placement, ...]
    nodes: int


def find_optimum(
    instance: Instance, *, upper: float = np.inf, node_limit: int = 50_000_000
) -> Optimum:
    """The least objective that any sequence of decisions reaches.

    Args:
        instance: About four jobs on three regions of a few GPUs; `residual` links are not taken.
        upper: The objective of a schedule that is known; branches that cannot beat it are cut. The
            result is inf, without placements, if there is nothing better.
        node_limit: Give up after so many decisions.

    Raises:
        ConfigError: The instance is too large, or its links are `residual`.
        BaceError: The limit was reached, or a schedule takes too many decisions: nothing is proven.
    """
    arrays = instance.arrays
    if arrays.t_comm_form == T_COMM_RESIDUAL:
        raise ConfigError("optimum: needs a t_comm form other than 'residual'")
    scales = objective_scales(instance)
    placements = _all_placements(arrays, scales)
    n, n_regions = instance.n_jobs, instance.n_regions
    depth = 4 * n + 64
    rows: list[Any] = [
        np.repeat(field[None], depth, axis=0) for field in allocate_state(n_regions, n)
    ]
    tree = _Tree(
        state=State(*rows),
        choice=np.zeros(depth, np.int64),
        value=np.zeros(depth),
        after=np.full(depth, -1),
        entry=np.zeros((depth, 2), np.int64),
        best=np.zeros((n, 2), np.int64),
    )
    reset(arrays, State(*(field[0] for field in tree.state)), np.inf)
    value, nodes = _explore(arrays, scales, placements, tree, upper, node_limit)
    if nodes == _TOO_DEEP:
        raise BaceError(
            f"optimum: a schedule takes more than {depth - 2} decisions, as prices change often: "
            "too large"
        )
    if nodes > node_limit:
        raise BaceError(f"optimum: not found within node_limit = {node_limit} decisions")
    found = []
    if value < np.inf:
        for job, c in tree.best.tolist():
            p = int(arrays.job_profile[job])
            length = int(placements.length[p, c])
            path, gpus = (field[p, c, :length].tolist() for field in placements[2:4])
            found.append(Placement(job, tuple(path), tuple(gpus)))
    return Optimum(value, tuple(found), nodes)


def _all_placements(arrays: Arrays, scales: FloatArray) -> _Placements:
    """Every path over distinct regions with every number of GPUs in each."""
    n_regions, n_profiles = arrays.gpus.size, arrays.k_star.size
    every = []
    for length in range(1, n_regions + 1):
        for path in permutations(range(n_regions), length):
            every += [
                (path, gpus) for gpus in product(*(range(1, arrays.gpus[r] + 1) for r in path))
            ]
            if len(every) > _MOST_PLACEMENTS:
                raise ConfigError(
                    f"optimum: more than {_MOST_PLACEMENTS} placements of a job: too large"
                )
    rate = arrays.kw_per_gpu * arrays.price_usd_per_kwh.min(
        axis=1, initial=np.inf, where=np.isfinite(arrays.price_time_s)
    )
    idle = np.zeros((n_regions, n_regions))
    by_profile = []
    for p in range(n_profiles):
        ranked = []
        for path, gpus in every:
            k = sum(gpus)
            if not arrays.k_min[p] <= k <= arrays.k_max[p]:
                continue
            seconds = placed_iteration_time(arrays, idle, p, k, np.array(path), len(path))
            usd = seconds / 3600.0 * sum(g * rate[r] for r, g in zip(path, gpus, strict=True))
            ranked.append((seconds * scales[0] + usd * scales[1], path, gpus))
        by_profile.append(sorted(ranked))
    most = max(len(ranked) for ranked in by_profile)
    found = _Placements(
        number=np.array([len(ranked) for ranked in by_profile], dtype=np.int64),
        length=np.zeros((n_profiles, most), np.int64),
        path=np.zeros((n_profiles, most, n_regions), np.int64),
        alloc=np.zeros((n_profiles, most, n_regions), np.int64),
        least=np.full((n_profiles, most), np.inf),
    )
    for p, ranked in enumerate(by_profile):
        for c, (least, path, gpus) in enumerate(ranked):
            found.length[p, c], found.least[p, c] = len(path), least
            found.path[p, c, : len(path)], found.alloc[p, c, : len(path)] = path, gpus
    return found


@inner_kernel
def _least_rest(
    arrays: Arrays, state: State, placements: _Placements, scales: FloatArray, without: int
) -> float:
    """What the jobs that have not started, but `without`, add at least."""
    rest, now = 0.0, state.now_s[0]
    for j in range(state.path_length.size):
        if state.path_length[j] == 0 and j != without:
            rest += arrays.iterations[j] * placements.least[arrays.job_profile[j], 0]
            rest += max(now - arrays.arrival_s[j], 0.0) * scales[0]
    return rest


# What came of trying a branch.
_NOTHING, _NO_BETTER, _DEEPER, _COMPLETE = 0, 1, 2, 3


@inner_kernel
def _descend(tree: _Tree, d: int, value: float, after: int, job: int, c: int) -> None:
    """Set up depth d, reached by starting `job` on placement c, or by WAIT (-1)."""
    tree.choice[d], tree.value[d], tree.after[d] = 0, value, after
    tree.entry[d, 0], tree.entry[d, 1] = job, c


@inner_kernel
def _try_wait(
    arrays: Arrays,
    scales: FloatArray,
    placements: _Placements,
    tree: _Tree,
    d: int,
    limit: float,
) -> int:
    state, child = state_row(tree.state, d), state_row(tree.state, d + 1)
    if tree.value[d] + _least_rest(arrays, state, placements, scales, -1) >= limit:
        return _NO_BETTER
    copy_state(state, child)
    if advance(arrays, child, np.inf) != DECISION:
        return _NOTHING
    _descend(tree, d + 1, tree.value[d], -1, -1, 0)
    return _DEEPER


@inner_kernel
def _try_start(
    arrays: Arrays,
    scales: FloatArray,
    placements: _Placements,
    tree: _Tree,
    d: int,
    job: int,
    c: int,
    limit: float,
) -> int:
    state, child = state_row(tree.state, d), state_row(tree.state, d + 1)
    p = arrays.job_profile[job]
    # Jobs that start together do so in the order of their ids: no schedule is met twice.
    if job <= tree.after[d] or c >= placements.number[p]:
        return _NO_BETTER
    least = arrays.iterations[job] * placements.least[p, c]
    least += (state.now_s[0] - arrays.arrival_s[job]) * scales[0]
    rest = _least_rest(arrays, state, placements, scales, job)
    if tree.value[d] + least + rest >= limit:
        return _NO_BETTER
    length = placements.length[p, c]
    path, alloc = placements.path[p, c, :length], placements.alloc[p, c, :length]
    if check_placement(arrays, state, job, path, alloc)[0] != VALID:
        return _NOTHING
    copy_state(state, child)
    start_job(arrays, child, job, path, alloc)
    value = tree.value[d] + contribution(arrays, child, job, scales)
    code, after = DECISION, job
    if child.counts[N_PENDING] == 0:
        code, after = advance(arrays, child, np.inf), -1
    if code != DECISION and (code != DONE or value >= limit):
        return _NOTHING
    _descend(tree, d + 1, value, after, job, c)
    return _DEEPER if code == DECISION else _COMPLETE


@kernel
def _explore(
    arrays: Arrays,
    scales: FloatArray,
    placements: _Placements,
    tree: _Tree,
    upper: float,
    node_limit: int,
) -> tuple[float, int]:
    """Depth first from row 0 of the tree: the best value, and the branches tried.

    More than `node_limit` of these, or `_TOO_DEEP`: the search was not finished.
    """
    best, found, d, nodes = upper, np.inf, 0, 0
    most = placements.least.shape[1]
    while d >= 0 and nodes <= node_limit:
        if d + 1 == tree.choice.size:
            return found, _TOO_DEEP
        limit = best - _SLACK * abs(best) if best < np.inf else np.inf
        n_pending = tree.state.counts[d, N_PENDING]
        result = _NOTHING
        while tree.choice[d] <= n_pending * most and result < _DEEPER:
            i, c = tree.choice[d] // most, tree.choice[d] % most
            tree.choice[d] += 1
            nodes += 1
            if i == n_pending:
                result = _try_wait(arrays, scales, placements, tree, d, limit)
            else:
                job = tree.state.pending[d, i]
                result = _try_start(arrays, scales, placements, tree, d, job, c, limit)
                if result == _NO_BETTER:  # nor are the job's placements that follow
                    tree.choice[d] = (i + 1) * most
        if result == _DEEPER:
            d += 1
        elif result == _COMPLETE:
            best = found = tree.value[d + 1]
            _record(tree, d + 1)
        else:
            d -= 1
    return found, nodes


@inner_kernel
def _record(tree: _Tree, depth: int) -> None:
    n = 0
    for d in range(1, depth + 1):
        if tree.entry[d, 0] >= 0:
            tree.best[n, 0], tree.best[n, 1] = tree.entry[d, 0], tree.entry[d, 1]
            n += 1
