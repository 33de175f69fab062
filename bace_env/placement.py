"""Placement rules: growing a path of regions, and giving it GPUs (Alg. 1 and 2, and baselines).

Compiled, without state of their own: a rule sees free GPUs, reserved bandwidth and prices (what a
GPU costs in each region, USD/h: with power and PUE), writes
`path` (region ids in pipeline order) and `alloc` (GPUs in path order), and returns the path's
length and the GPUs in all, or (0, 0). Ties go to the region of lower id.
"""

from typing import cast

import numpy as np

from bace_env.jit import inlined_kernel, inner_kernel, kernel
from bace_env.pipeline import LINK_TOLERANCE, bandwidth_need, link_room
from bace_env.types import Arrays, FloatArray, IntArray, Scratch


def _code(value: int) -> int:
    """An np.int64: a literal int as an argument would compile every callee once more."""
    return cast(int, np.int64(value))


# How a path chooses its next region, and how GPUs are spread along it.
GROW_NONE, GROW_BANDWIDTH, GROW_PRICE = _code(0), _code(1), _code(2)
FILL_IN_ORDER, FILL_CHEAPEST, FILL_UNIFORM = _code(0), _code(1), _code(2)
RULE_PATHFINDER, RULE_LCF, RULE_LDF, RULE_CR_LCF, RULE_CR_LDF = 0, 1, 2, 3, 4
RULE_PATHFINDER_LAST = 5  # Alg. 1 whose line 20 has <=: of equal paths the last one wins

#: A price is lower only if it is so by this share: sums in another order must not decide.
PRICE_TOLERANCE = 1e-12


@inner_kernel
def is_cheaper(price: float, than: float) -> bool:
    """Whether `price` is lower by more than rounding."""
    if than == np.inf:
        return price < np.inf
    return price < than - PRICE_TOLERANCE * max(abs(price), abs(than))


@inner_kernel
def cheapest_region(free_gpus: IntArray, prices: FloatArray, at_least: int) -> int:
    """The cheapest region with that many free GPUs (at least one), or -1."""
    best = -1
    for r in range(free_gpus.size):
        if free_gpus[r] >= max(at_least, 1) and (best < 0 or prices[r] < prices[best]):
            best = r
    return best


@inner_kernel
def freest_region(free_gpus: IntArray, at_least: int) -> int:
    """The region with most free GPUs if it has that many (at least one), else -1."""
    best = 0
    for r in range(1, free_gpus.size):
        if free_gpus[r] > free_gpus[best]:
            best = r
    return best if free_gpus[best] >= max(at_least, 1) else -1


@inner_kernel
def begin_path(start: int, n_regions: int, path: IntArray) -> None:
    """Write the start, and after it all other regions by id: those that are not on the path yet."""
    path[0] = start
    at = 1
    for u in range(n_regions):
        if u != start:
            path[at] = u
            at += 1


@inner_kernel
def append_region(path: IntArray, length: int, at: int) -> None:
    """Append the region at position `at`, behind the path; those behind it stay in order of id."""
    u = path[at]
    for i in range(at, length, -1):
        path[i] = path[i - 1]
    path[length] = u


@inner_kernel
def next_region(
    link_bytes_per_s: FloatArray,
    free_gpus: IntArray,
    link_used: FloatArray,
    prices: FloatArray,
    path: IntArray,
    length: int,
    grow: int,
) -> int:
    """Where behind the path the next region stands: cheapest, or of highest free bandwidth.

    -1 if no region off the path has a free GPU. `path` as `begin_path` and `append_region` leave
    it.
    """
    best, best_bytes_per_s, tail = -1, 0.0, path[length - 1]
    for at in range(length, free_gpus.size):
        u = path[at]
        if free_gpus[u] < 1:
            continue
        if grow == GROW_PRICE:
            if best < 0 or prices[u] < prices[path[best]]:
                best = at
        else:
            free = link_bytes_per_s[tail, u] - link_used[tail, u]
            # More only beyond rounding: what was reserved and released must not decide a tie.
            if best < 0 or free > best_bytes_per_s + LINK_TOLERANCE * link_bytes_per_s[tail, u]:
                best, best_bytes_per_s = at, free
    return best


@kernel
def grow_path(
    arrays: Arrays,
    free_gpus: IntArray,
    link_used: FloatArray,
    prices: FloatArray,
    profile: int,
    target: int,
    start: int,
    grow: int,
    partial_fill: bool,
    path: IntArray,
) -> tuple[int, int]:
    """Alg. 1, lines 7-17: grow a path from `start` until `target` GPUs or the bandwidth check ends.

    `path` is `(R,)`; what stands behind the path's end means nothing.

    A region joins if every hop of the path so far carries b_j at the GPU count it would lead to;
    the first that does not ends the path. With `partial_fill` that region gives the largest number
    of its GPUs that does not break the check, and then the path ends.

    Returns:
        Length of the path and GPUs it offers up to `target`; (0, 0) if `start` has none free.
    """
    act_bytes, comp_s = arrays.act_bytes[profile], arrays.comp_s[profile]
    links = arrays.link_bytes_per_s
    if free_gpus[start] < 1:
        return 0, 0
    begin_path(start, free_gpus.size, path)
    length, gpus, room = 1, min(free_gpus[start], target), np.inf
    while grow != GROW_NONE and length < free_gpus.size and gpus < target:
        at = next_region(links, free_gpus, link_used, prices, path, length, grow)
        if at < 0:
            break
        tail, u = path[length - 1], path[at]
        room = min(room, link_room(link_used[tail, u], links[tail, u]))
        wanted = min(gpus + free_gpus[u], target)
        reached = joined_gpus(act_bytes, comp_s, gpus, wanted, room, partial_fill)
        if reached == gpus:
            break
        append_region(path, length, at)
        length += 1
        gpus = reached
        if reached < wanted:
            break
    return length, gpus


@inner_kernel
def joined_gpus(
    act_bytes: float,
    comp_s: FloatArray,
    gpus: int,
    wanted: int,
    room: float,
    partial_fill: bool,
) -> int:
    """Alg. 1, line 13: GPUs of a path whose next region would raise them from `gpus` to `wanted`.

    `comp_s` is t_comp(k) of the job, `(K + 1,)`; `room` is the least bandwidth that any hop of the
    longer path can still carry. Without `partial_fill` the answer is all or nothing.
    """
    while wanted > gpus and bandwidth_need(act_bytes, comp_s[wanted]) > room:
        wanted = wanted - 1 if partial_fill else gpus
    return wanted


@kernel
def allocate(
    fill: int,
    path: IntArray,
    length: int,
    gpus: int,
    free_gpus: IntArray,
    prices: FloatArray,
    alloc: IntArray,
) -> None:
    """Spread `gpus` over the path: in path order, cheapest regions first (Alg. 2), or evenly.

    Every region gets at least one. `gpus` lies between the path's length and its free GPUs.
    """
    if fill == FILL_UNIFORM:
        _allocate_evenly(path, length, gpus, free_gpus, alloc)
        return
    for i in range(length):
        alloc[i] = 1
    left = gpus - length
    last = -1
    for step in range(length):
        if left == 0:
            return
        i = step
        if fill == FILL_CHEAPEST:
            i = _next_cheapest(path, length, prices, last)
            last = i
        extra = min(free_gpus[path[i]] - 1, left)
        alloc[i] += extra
        left -= extra


@inlined_kernel
def _next_cheapest(path: IntArray, length: int, prices: FloatArray, last: int) -> int:
    """Position of the region that follows the one at `last` by (price, id); -1: the first."""
    best = -1
    for i in range(length):
        if last >= 0 and not _precedes(prices, path[last], path[i]):
            continue
        if best < 0 or _precedes(prices, path[i], path[best]):
            best = i
    return best


@inner_kernel
def _precedes(prices: FloatArray, u: int, v: int) -> bool:
    return prices[u] < prices[v] or (prices[u] == prices[v] and u < v)


@inlined_kernel
def _allocate_evenly(
    path: IntArray, length: int, gpus: int, free_gpus: IntArray, alloc: IntArray
) -> None:
    """One GPU at a time to the region with fewest that has room, first on the path at ties."""
    level, left = 0, gpus  # every region has min(its free GPUs, level)
    while True:
        rising, step = 0, left
        for i in range(length):
            if free_gpus[path[i]] > level:
                rising += 1
                step = min(step, free_gpus[path[i]] - level)
        if rising == 0 or rising * step > left:
            break
        level += step
        left -= rising * step
        if left == 0:
            break
    if left > 0:
        level += left // rising
        left %= rising
    for i in range(length):
        alloc[i] = min(free_gpus[path[i]], level)
        if left > 0 and free_gpus[path[i]] > level:
            alloc[i] += 1
            left -= 1


@inner_kernel
def mean_price(
    path: IntArray, alloc: IntArray, length: int, gpus: int, prices: FloatArray
) -> float:
    """Alg. 1, line 19: the GPUs' average price."""
    total = 0.0
    for i in range(length):
        total += alloc[i] * prices[path[i]]
    return float(total / gpus)


@inner_kernel
def pathfinder(
    arrays: Arrays,
    free_gpus: IntArray,
    link_used: FloatArray,
    prices: FloatArray,
    profile: int,
    target: int,
    fill: int,
    partial_fill: bool,
    last_wins: bool,
    trial_path: IntArray,
    trial_alloc: IntArray,
    path: IntArray,
    alloc: IntArray,
) -> tuple[int, int]:
    """Alg. 1: the cheapest region that holds `target` GPUs, else the path that offers most.

    Paths start from every region and follow the highest free bandwidth; of those that offer equally
    many GPUs the one of lowest average price wins, then the one of lower starting region (of
    higher with `last_wins`). `trial_path` and `trial_alloc` are scratch, `(R,)`.
    """
    single = cheapest_region(free_gpus, prices, target)
    if single >= 0:
        path[0], alloc[0] = single, target
        return 1, target
    best_length, best_gpus, best_price = 0, 0, np.inf
    for start in range(free_gpus.size):
        length, gpus = grow_path(
            arrays,
            free_gpus,
            link_used,
            prices,
            profile,
            target,
            start,
            GROW_BANDWIDTH,
            partial_fill,
            trial_path,
        )
        if length == 0 or gpus < best_gpus:
            continue
        allocate(fill, trial_path, length, gpus, free_gpus, prices, trial_alloc)
        price = mean_price(trial_path, trial_alloc, length, gpus, prices)
        cheaper = is_cheaper(price, best_price)
        if last_wins:
            cheaper = not is_cheaper(best_price, price)
        if gpus > best_gpus or cheaper:
            best_length, best_gpus, best_price = length, gpus, price
            for i in range(length):
                path[i], alloc[i] = trial_path[i], trial_alloc[i]
    return best_length, best_gpus


@inner_kernel
def propose(
    arrays: Arrays,
    free_gpus: IntArray,
    link_used: FloatArray,
    prices: FloatArray,
    profile: int,
    target: int,
    rule: int,
    fill: int,
    partial_fill: bool,
    scratch: Scratch,
    path: IntArray,
    alloc: IntArray,
) -> tuple[int, int]:
    """The placement that one of the `RULE_*` makes for a job that wants `target` GPUs.

    LCF takes the cheapest region with any free GPU, LDF the one with most; CR-LCF goes through
    regions by ascending price, CR-LDF from the one with most GPUs along the highest bandwidth. All
    but the Pathfinder fill in path order, whatever `fill` says. A result below the job's k_min is
    none: LCF therefore looks among the regions with k_min free GPUs.
    """
    k_min = arrays.k_min[profile]
    if rule in (RULE_PATHFINDER, RULE_PATHFINDER_LAST):
        length, gpus = pathfinder(
            arrays,
            free_gpus,
            link_used,
            prices,
            profile,
            target,
            fill,
            partial_fill,
            rule == RULE_PATHFINDER_LAST,
            scratch.path[0],
            scratch.alloc[0],
            path,
            alloc,
        )
    else:
        grow = GROW_NONE
        at_least = 1
        if rule == RULE_CR_LCF:
            grow = GROW_PRICE
        elif rule == RULE_CR_LDF:
            grow = GROW_BANDWIDTH
        else:
            at_least = k_min
        if rule in (RULE_LCF, RULE_CR_LCF):
            start = cheapest_region(free_gpus, prices, at_least)
        else:
            start = freest_region(free_gpus, at_least)
        if start < 0:
            return 0, 0
        length, gpus = grow_path(
            arrays,
            free_gpus,
            link_used,
            prices,
            profile,
            target,
            start,
            grow,
            partial_fill,
            path,
        )
        allocate(FILL_IN_ORDER, path, length, gpus, free_gpus, prices, alloc)
    if gpus < k_min:
        return 0, 0
    return length, gpus


@kernel
def congestion(arrays: Arrays, link_used: FloatArray) -> float:
    """Alpha of Eq. 11: reserved share of all inter-region bandwidth; 0 without links."""
    total, used = 0.0, 0.0
    for u in range(arrays.gpus.size):
        for v in range(arrays.gpus.size):
            total += arrays.link_bytes_per_s[u, v]
            used += link_used[u, v]
    return min(used / total, 1.0) if total > 0.0 else 0.0


@kernel
def priorities(arrays: Arrays, link_used: FloatArray, pending: IntArray, out: FloatArray) -> None:
    """Eq. 9-12 for the pending jobs, into `out` of the same length; higher goes first.

    Both maxima run over the pending jobs; b_j is taken at K*. All-zero work counts as intensity 0.
    """
    alpha = congestion(arrays, link_used)
    longest, widest = largest_demands(arrays, pending)
    for i in range(pending.size):
        intensity, sensitivity = demands(arrays, pending[i], longest, widest)
        out[i] = (1 - alpha) * (1 - intensity) + alpha * (1 - sensitivity)


@inner_kernel
def largest_demands(arrays: Arrays, pending: IntArray) -> tuple[float, float]:
    """The denominators of Eq. 9 and 10: the longest E_j(1) in s and the largest b_j in bytes/s."""
    longest, widest = 0.0, 0.0
    for j in pending:
        p = arrays.job_profile[j]
        longest = max(longest, arrays.iterations[j] * arrays.iteration_s[p, 1])
        widest = max(widest, bandwidth_need(arrays.act_bytes[p], _comp_at_star(arrays, p)))
    return longest, widest


@inner_kernel
def demands(arrays: Arrays, job: int, longest: float, widest: float) -> tuple[float, float]:
    """I_j of Eq. 9 and D_j of Eq. 10, given their denominators."""
    p = arrays.job_profile[job]
    single_gpu_s = arrays.iterations[job] * arrays.iteration_s[p, 1]
    intensity = single_gpu_s / longest if longest > 0.0 else 0.0
    sensitivity = bandwidth_need(arrays.act_bytes[p], _comp_at_star(arrays, p)) / widest
    return intensity, sensitivity


@inner_kernel
def _comp_at_star(arrays: Arrays, profile: int) -> float:
    return float(arrays.comp_s[profile, arrays.k_star[profile]])
