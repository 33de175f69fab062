"""Candidate placements of the pending jobs, shared between the jobs of a profile.

The order in which a path grows from a start region depends on free bandwidth and prices alone, so
it is worked out once per decision; a job's path for a GPU budget is then a prefix of it. Jobs of
one profile share their candidates.

A candidate is (start region, how the path grows, length of the prefix, GPUs, how they are spread).
For each start, growth and budget there is the one that Alg. 1 would grow, with GPUs by Alg. 2;
beside them what CR-LDF and the ablation without Alg. 2 propose where that differs. So the grid
holds the next placement of every built-in policy (but `random`).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bace_env.jit import inlined_kernel, inner_kernel, kernel
from bace_env.pipeline import egress_cost, link_room, path_iteration_time
from bace_env.placement import (
    FILL_CHEAPEST,
    FILL_IN_ORDER,
    FILL_UNIFORM,
    GROW_BANDWIDTH,
    GROW_NONE,
    GROW_PRICE,
    allocate,
    append_region,
    begin_path,
    freest_region,
    is_cheaper,
    joined_gpus,
    mean_price,
    next_region,
)
from bace_env.types import Arrays, FloatArray, IntArray, Scratch, allocate_scratch

#: Shares of K* that a candidate aims at (at k_min at least).
DEFAULT_BUDGETS = (1.0, 0.5, 0.25)

GROWTHS = 2  # ways in which a path grows: by bandwidth, by price


class Orders(NamedTuple):
    """In which order paths grow from each start, at the present free GPUs, bandwidth and prices."""

    region: IntArray  # (2, R, R) [growth - 1, start, position]
    number: IntArray  # (2, R) regions in the order; 0 where the start has no free GPU
    gpus: IntArray  # (2, R, R) free GPUs of the regions up to the position
    room: FloatArray  # (2, R, R) least bandwidth still to be had on the hops up to the position
    latency_s: FloatArray  # (2, R, R) sum of the latencies of those hops
    least_free: FloatArray  # (2, R, R) their least free bandwidth
    inverse_free: FloatArray  # (2, R, R) sum of 1 / free bandwidth
    alike: IntArray  # (R,) how far both orders of a start are the same


class Candidates(NamedTuple):
    """Up to K candidates of one profile; with one more axis in front, of several."""

    number: IntArray  # (1,)
    start: IntArray  # (K,)
    grow: IntArray  # (K,)
    length: IntArray  # (K,)
    gpus: IntArray  # (K,)
    fill: IntArray  # (K,)
    iteration_s: FloatArray  # (K,) Eq. 1 on the path
    usd_per_s: FloatArray  # (K,) electricity at present prices, and egress


def candidate_capacity(n_regions: int, n_budgets: int) -> int:
    """K: the most candidates that one profile can have."""
    return n_regions * (GROWTHS + 1) * n_budgets + 2


def allocate_orders(n_regions: int) -> Orders:
    """Orders of the right shapes."""
    shape = (GROWTHS, n_regions, n_regions)
    return Orders(
        region=np.zeros(shape, np.int64),
        number=np.zeros(shape[:2], np.int64),
        gpus=np.zeros(shape, np.int64),
        room=np.zeros(shape),
        latency_s=np.zeros(shape),
        least_free=np.zeros(shape),
        inverse_free=np.zeros(shape),
        alike=np.zeros(n_regions, np.int64),
    )


def allocate_candidates(n_profiles: int, capacity: int) -> Candidates:
    """Tables for that many profiles."""
    shape = (n_profiles, capacity)
    return Candidates(
        np.zeros((n_profiles, 1), np.int64),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
        np.zeros(shape),
        np.zeros(shape),
    )


@inlined_kernel
def fill_orders(
    arrays: Arrays,
    free_gpus: IntArray,
    link_used: FloatArray,
    prices: FloatArray,
    orders: Orders,
) -> None:
    """Work out all orders for the present free GPUs, reservations and prices."""
    n = free_gpus.size
    links, latencies = arrays.link_bytes_per_s, arrays.link_latency_s
    for g in range(GROWTHS):
        grow = GROW_BANDWIDTH if g == 0 else GROW_PRICE
        for start in range(n):
            orders.number[g, start] = 0
            if free_gpus[start] < 1:
                continue
            path = orders.region[g, start]
            begin_path(start, n, path)
            length, gpus = 0, 0
            room, latency_s, least_free, inverse_free = np.inf, 0.0, np.inf, 0.0
            while True:
                gpus += free_gpus[path[length]]
                orders.gpus[g, start, length] = gpus
                orders.room[g, start, length] = room
                orders.latency_s[g, start, length] = latency_s
                orders.least_free[g, start, length] = least_free
                orders.inverse_free[g, start, length] = inverse_free
                length += 1
                at = next_region(links, free_gpus, link_used, prices, path, length, grow)
                if at < 0:
                    break
                tail, u = path[length - 1], path[at]
                if links[tail, u] <= 0.0:
                    break  # nothing crosses: no path goes on from here
                append_region(path, length, at)
                free = links[tail, u] - link_used[tail, u]
                room = min(room, link_room(link_used[tail, u], links[tail, u]))
                latency_s += latencies[tail, u]
                least_free = min(least_free, free)
                inverse_free += 1.0 / free if free > 0.0 else np.inf
            orders.number[g, start] = length
    for start in range(n):
        number = min(orders.number[0, start], orders.number[1, start])
        alike = 0
        while alike < number and orders.region[0, start, alike] == orders.region[1, start, alike]:
            alike += 1
        orders.alike[start] = alike


@inner_kernel
def copy_orders(source: Orders, target: Orders) -> None:
    """Copy all orders."""
    for start in range(source.alike.size):
        target.alike[start] = source.alike[start]
        for g in range(GROWTHS):
            number = source.number[g, start]
            target.number[g, start] = number
            for i in range(number):
                target.region[g, start, i] = source.region[g, start, i]
                target.gpus[g, start, i] = source.gpus[g, start, i]
                target.room[g, start, i] = source.room[g, start, i]
                target.latency_s[g, start, i] = source.latency_s[g, start, i]
                target.least_free[g, start, i] = source.least_free[g, start, i]
                target.inverse_free[g, start, i] = source.inverse_free[g, start, i]


@inner_kernel
def copy_candidates(source: Candidates, target: Candidates) -> None:
    """Copy one table."""
    target.number[0] = source.number[0]
    for c in range(source.number[0]):
        target.start[c], target.grow[c] = source.start[c], source.grow[c]
        target.length[c], target.gpus[c] = source.length[c], source.gpus[c]
        target.fill[c] = source.fill[c]
        target.iteration_s[c], target.usd_per_s[c] = source.iteration_s[c], source.usd_per_s[c]


@kernel
def walk(
    act_bytes: float, comp_s: FloatArray, orders: Orders, g: int, start: int, target: int
) -> tuple[int, int]:
    """Length and GPUs of the path that `placement.grow_path` grows, read off one start's order."""
    number = orders.number[g, start]
    if number == 0:
        return 0, 0
    length, gpus = 1, min(orders.gpus[g, start, 0], target)
    while length < number and gpus < target:
        wanted = min(orders.gpus[g, start, length], target)
        room = orders.room[g, start, length]
        reached = joined_gpus(act_bytes, comp_s, gpus, wanted, room, False)
        if reached == gpus:
            break
        gpus = reached
        length += 1
    return length, gpus


@inner_kernel
def _add(found: Candidates, start: int, grow: int, length: int, gpus: int, fill: int) -> None:
    c = found.number[0]
    found.start[c], found.grow[c], found.length[c] = start, grow, length
    found.gpus[c], found.fill[c] = gpus, fill
    found.number[0] = c + 1


@kernel
def placement_of(
    candidates: Candidates,
    c: int,
    orders: Orders,
    free_gpus: IntArray,
    prices: FloatArray,
    path: IntArray,
    alloc: IntArray,
) -> int:
    """Write out candidate c; returns the length of its path."""
    length = candidates.length[c]
    g = max(candidates.grow[c], 1) - 1  # a path of one region is the head of either order
    for i in range(length):
        path[i] = orders.region[g, candidates.start[c], i]
    allocate(candidates.fill[c], path, length, candidates.gpus[c], free_gpus, prices, alloc)
    return int(length)


@inlined_kernel
def fill_candidates(
    arrays: Arrays,
    free_gpus: IntArray,
    prices: FloatArray,
    orders: Orders,
    profile: int,
    budgets: FloatArray,
    scratch: Scratch,
    found: Candidates,
) -> None:
    """All distinct candidates of a profile; each may start now."""
    act_bytes, comp_s = arrays.act_bytes[profile], arrays.comp_s[profile]
    k_star, k_min = arrays.k_star[profile], arrays.k_min[profile]
    found.number[0] = 0
    most, longest = 0, 0  # of the paths for K* by bandwidth
    for start in range(free_gpus.size):
        scratch.star[0, start] = 0
        if free_gpus[start] < 1:
            continue
        length, gpus = walk(act_bytes, comp_s, orders, 0, start, k_star)
        scratch.star[0, start], scratch.star[1, start] = length, gpus
        most, longest = max(most, gpus), max(longest, length)
        _add_paths(act_bytes, comp_s, k_min, k_star, budgets, orders, start, scratch.star, found)
    if longest > 1:
        _add_other_fills(free_gpus, prices, orders, k_min, most, scratch, found)
    _price_candidates(arrays, free_gpus, prices, orders, profile, scratch.alloc[0], found)


@inner_kernel
def budget_gpus(share: float, k_min: int, k_star: int) -> int:
    """GPUs that a budget aims at: that share of K*, k_min at least."""
    return max(k_min, math.ceil(share * k_star))


@inner_kernel
def _add_paths(
    act_bytes: float,
    comp_s: FloatArray,
    k_min: int,
    k_star: int,
    budgets: FloatArray,
    orders: Orders,
    start: int,
    star: IntArray,
    found: Candidates,
) -> None:
    """The distinct paths from one start, for every number of GPUs aimed at and every growth.

    `star`, `(2, R)`, has length and GPUs of each start's path for K* by bandwidth.
    """
    first, alike = found.number[0], orders.alike[start]
    by_bandwidth, by_price = orders.number[0, start], orders.number[1, start]
    for i in range(budgets.size):
        target = budget_gpus(budgets[i], k_min, k_star)
        own = min(orders.gpus[0, start, 0], target)
        _add_new(start, GROW_NONE, 1, own, k_min, first, alike, found)
        if own == target or by_bandwidth == 1:
            continue  # no need, or nowhere to go
        length, gpus = star[0, start], star[1, start]
        if target != k_star:
            length, gpus = walk(act_bytes, comp_s, orders, 0, start, target)
        _add_new(start, GROW_BANDWIDTH, length, gpus, k_min, first, alike, found)
        same_way = length < alike or (length == alike and gpus == target)
        if not same_way and not alike == by_bandwidth == by_price:
            length, gpus = walk(act_bytes, comp_s, orders, 1, start, target)
            _add_new(start, GROW_PRICE, length, gpus, k_min, first, alike, found)


@inner_kernel
def _add_new(
    start: int, grow: int, length: int, gpus: int, k_min: int, first: int, alike: int,
    found: Candidates,
) -> None:  # fmt: skip
    """Add a path with enough GPUs unless it is among those from `first` on."""
    if gpus < k_min:
        return
    for c in range(first, found.number[0]):
        same = found.length[c] == length and found.gpus[c] == gpus
        if same and (found.grow[c] == grow or length <= alike):
            return
    _add(found, start, grow, length, gpus, FILL_CHEAPEST)


@inlined_kernel
def _price_candidates(
    arrays: Arrays,
    free_gpus: IntArray,
    prices: FloatArray,
    orders: Orders,
    profile: int,
    alloc: IntArray,
    found: Candidates,
) -> None:
    """Iteration time and cost per second of each candidate; `alloc` is scratch of shape `(R,)`."""
    act_bytes, comp_s = arrays.act_bytes[profile], arrays.comp_s[profile]
    intra_s, micro_batches = arrays.intra_s[profile], arrays.micro_batches[profile]
    form = arrays.t_comm_form
    for c in range(found.number[0]):
        start, length, k = found.start[c], found.length[c], found.gpus[c]
        if length == 1:
            found.iteration_s[c] = arrays.iteration_s[profile, k]
            found.usd_per_s[c] = k * prices[start] / 3600.0
            continue
        g = found.grow[c] - 1
        found.iteration_s[c] = path_iteration_time(
            form,
            act_bytes,
            comp_s[k],
            intra_s,
            micro_batches,
            k,
            length - 1,
            orders.latency_s[g, start, length - 1],
            orders.least_free[g, start, length - 1],
            orders.inverse_free[g, start, length - 1],
        )
        path = orders.region[g, start]
        allocate(found.fill[c], path, length, k, free_gpus, prices, alloc)
        total, egress = 0.0, 0.0
        for i in range(length):
            total += alloc[i] * prices[path[i]]
            if i + 1 < length:
                here, there = arrays.egress_usd_per_byte[path[i]], path[i + 1]
                egress += egress_cost(
                    act_bytes, micro_batches, 1.0, here, arrays.egress_usd_per_byte[there]
                )
        found.usd_per_s[c] = total / 3600.0 + egress / found.iteration_s[c]


@inner_kernel
def _add_other_fills(
    free_gpus: IntArray,
    prices: FloatArray,
    orders: Orders,
    k_min: int,
    most: int,
    scratch: Scratch,
    found: Candidates,
) -> None:
    """CR-LDF's placement, and Alg. 1's with an even spread, where Alg. 2 spreads otherwise.

    Args:
        free_gpus: Free GPUs, `(R,)`.
        prices: What a GPU costs, `(R,)`.
        orders: In which order paths grow.
        k_min: The profile's.
        most: The most GPUs of any path for K* by bandwidth.
        scratch: `star` holds length and GPUs of each start's path for K*.
        found: Candidates to add to.
    """
    alloc, other = scratch.alloc[0], scratch.alloc[1]
    freest = freest_region(free_gpus, 1)
    best, best_price = -1, np.inf
    if most < k_min or not _fills_differ(orders, freest, most, scratch.star):
        return
    for start in range(free_gpus.size):
        length, gpus = scratch.star[0, start], scratch.star[1, start]
        order = orders.region[0, start]
        if length > 1 and start == freest and gpus >= k_min:
            allocate(FILL_IN_ORDER, order, length, gpus, free_gpus, prices, alloc)
            if not _is_alg2(order, length, gpus, free_gpus, prices, alloc, other):
                _add(found, start, GROW_BANDWIDTH, length, gpus, FILL_IN_ORDER)
        if length > 0 and gpus == most:
            allocate(FILL_UNIFORM, order, length, gpus, free_gpus, prices, alloc)
            price = mean_price(order, alloc, length, gpus, prices)
            if best < 0 or is_cheaper(price, best_price):
                best, best_price = start, price
    if best >= 0 and scratch.star[0, best] > 1:
        length, order = scratch.star[0, best], orders.region[0, best]
        allocate(FILL_UNIFORM, order, length, most, free_gpus, prices, alloc)
        known = _is_alg2(order, length, most, free_gpus, prices, alloc, other)
        if not known and best == freest:
            allocate(FILL_IN_ORDER, order, length, most, free_gpus, prices, other)
            known = _same_head(alloc, other, length)
        if not known:
            _add(found, best, GROW_BANDWIDTH, length, most, FILL_UNIFORM)


@inlined_kernel
def _fills_differ(orders: Orders, freest: int, most: int, star: IntArray) -> bool:
    """Whether a path that other fills may come on leaves GPUs free: else all fills are alike."""
    differ = False
    for start in range(orders.alike.size):
        length, gpus = star[0, start], star[1, start]
        if length > 1 and (start == freest or gpus == most):
            differ = differ or gpus < orders.gpus[0, start, length - 1]
    return differ


@inlined_kernel
def _is_alg2(
    path: IntArray,
    length: int,
    gpus: int,
    free_gpus: IntArray,
    prices: FloatArray,
    alloc: IntArray,
    scratch: IntArray,
) -> bool:
    allocate(FILL_CHEAPEST, path, length, gpus, free_gpus, prices, scratch)
    return _same_head(alloc, scratch, length)


@inner_kernel
def _same_head(one: IntArray, other: IntArray, number: int) -> bool:
    same = True
    for i in range(number):
        same = same and one[i] == other[i]
    return same


@kernel
def most_gpus(act_bytes: float, comp_s: FloatArray, k_min: int, k_star: int, orders: Orders) -> int:
    """What Alg. 1 finds for a profile: the most GPUs of any path, up to K*; 0 below k_min."""
    most = 0
    for start in range(orders.alike.size):
        most = max(most, walk(act_bytes, comp_s, orders, 0, start, k_star)[1])
    return most if most >= k_min else 0


class Idle(NamedTuple):
    """What is known of a cluster with everything free."""

    reach: IntArray  # (P,) GPUs that Alg. 1 finds for each profile
    orders: Orders  # at the first prices
    candidates: Candidates  # (P, K) of each profile, at the first prices


def explore_idle(arrays: Arrays, budgets: FloatArray) -> Idle:
    """Work out what an empty cluster offers; `budgets` as from `budget_shares`."""
    a, orders = arrays, _orders_when_empty(arrays)
    n_regions, n_profiles = a.gpus.size, a.k_star.size
    scratch = allocate_scratch(n_regions, 0, n_profiles)
    tables = allocate_candidates(n_profiles, candidate_capacity(n_regions, budgets.size))
    reach = np.zeros(n_profiles, np.int64)
    for p in range(n_profiles):
        reach[p] = most_gpus(a.act_bytes[p], a.comp_s[p], a.k_min[p], a.k_star[p], orders)
        table = Candidates(*(field[p] for field in tables))
        fill_candidates(a, a.gpus, _first_rates(a), orders, p, budgets, scratch, table)
    return Idle(reach, orders, tables)


def budget_shares(arrays: Arrays, shares: Sequence[float] = DEFAULT_BUDGETS) -> FloatArray:
    """The shares of K*, and 0 (which is k_min) where a job needs more than one GPU.

    So a job that can be hosted at all has a candidate in the empty cluster.
    """
    least = [0.0] if arrays.k_min.max() > 1 else []
    return np.array([*shares, *least])


def hostable(arrays: Arrays, profile: int) -> bool:
    """Whether the empty cluster has a candidate for the profile, whatever prices and budgets are.

    So along the highest bandwidth, with k_min GPUs: paths by price come and go with prices.
    """
    act_bytes, comp_s = arrays.act_bytes[profile], arrays.comp_s[profile]
    k_min = arrays.k_min[profile]
    if arrays.gpus.max() >= k_min:
        return True
    orders = _orders_when_empty(arrays)
    return any(
        walk(act_bytes, comp_s, orders, 0, start, k_min)[1] >= k_min
        for start in range(arrays.gpus.size)
    )


def _orders_when_empty(arrays: Arrays) -> Orders:
    n = arrays.gpus.size
    orders = allocate_orders(n)
    fill_orders(arrays, arrays.gpus, np.zeros((n, n)), _first_rates(arrays), orders)
    return orders


def _first_rates(arrays: Arrays) -> FloatArray:
    return np.asarray(arrays.price_usd_per_kwh[:, 0] * arrays.kw_per_gpu)
