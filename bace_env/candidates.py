"""Candidate placements of the pending jobs, shared between the jobs of a profile.

The order in which a path grows from a start region depends on free bandwidth and prices alone, so
it is worked out once per decision; a job's path for a GPU budget is then a prefix of it. Jobs of
one profile share their candidates.

A candidate is (start region, how the path grows, length of the prefix, GPUs, how they are spread).
For each start, growth and budget there is the one that Alg. 1 would grow, with GPUs by Alg. 2;
beside them what CR-LDF and the ablation without Alg. 2 propose where that differs. So the grid
holds the next placement of every built-in policy (but `random`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bace_env.jit import inner_kernel, kernel
from bace_env.pipeline import link_room, path_iteration_time
from bace_env.placement import (
    FILL_CHEAPEST,
    FILL_IN_ORDER,
    FILL_UNIFORM,
    GROW_BANDWIDTH,
    GROW_NONE,
    GROW_PRICE,
    allocate,
    freest_region,
    is_cheaper,
    joined_gpus,
    mean_price,
    next_region,
)
from bace_env.types import Arrays, FloatArray, IntArray

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


class Candidates(NamedTuple):
    """Up to K candidates of one profile; with one more axis in front, of several."""

    number: IntArray  # (1,)
    start: IntArray  # (K,)
    grow: IntArray  # (K,)
    length: IntArray  # (K,)
    gpus: IntArray  # (K,)
    fill: IntArray  # (K,)
    iteration_s: FloatArray  # (K,) Eq. 1 on the path
    usd_per_s: FloatArray  # (K,) electricity at present prices


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


@kernel
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
    on_path = np.empty(n, np.int64)
    for g in range(GROWTHS):
        grow = GROW_BANDWIDTH if g == 0 else GROW_PRICE
        for start in range(n):
            orders.number[g, start] = 0
            if free_gpus[start] < 1:
                continue
            on_path[:] = 0
            u, length, gpus = start, 0, 0
            room, latency_s, least_free, inverse_free = np.inf, 0.0, np.inf, 0.0
            while u >= 0:
                gpus += free_gpus[u]
                on_path[u] = 1
                orders.region[g, start, length] = u
                orders.gpus[g, start, length] = gpus
                orders.room[g, start, length] = room
                orders.latency_s[g, start, length] = latency_s
                orders.least_free[g, start, length] = least_free
                orders.inverse_free[g, start, length] = inverse_free
                length += 1
                tail = u
                u = next_region(links, free_gpus, link_used, prices, tail, on_path, grow)
                if u >= 0 and links[tail, u] <= 0.0:
                    u = -1  # nothing crosses: no path goes on from here
                if u >= 0:
                    free = links[tail, u] - link_used[tail, u]
                    room = min(room, link_room(link_used[tail, u], links[tail, u]))
                    latency_s += latencies[tail, u]
                    least_free = min(least_free, free)
                    inverse_free += 1.0 / free if free > 0.0 else np.inf
            orders.number[g, start] = length


@kernel
def walk(
    act_bytes: float,
    comp_s: FloatArray,
    number: int,
    gpus_up_to: IntArray,
    room: FloatArray,
    target: int,
) -> tuple[int, int]:
    """Length and GPUs of the path that `placement.grow_path` grows, read off one start's order."""
    if number == 0:
        return 0, 0
    length, gpus = 1, min(gpus_up_to[0], target)
    while length < number and gpus < target:
        wanted = min(gpus_up_to[length], target)
        reached = joined_gpus(act_bytes, comp_s, gpus, wanted, room[length], False)
        if reached == gpus:
            break
        gpus = reached
        length += 1
    return length, gpus


@inner_kernel
def _shared_head(one: IntArray, other: IntArray, number: int) -> int:
    """How many entries two arrays have in common at their head."""
    for i in range(number):
        if one[i] != other[i]:
            return i
    return number


@inner_kernel
def _is_known(
    grow: int,
    length: int,
    gpus: int,
    shared: int,
    known_grow: IntArray,
    known_length: IntArray,
    known_gpus: IntArray,
    first: int,
    number: int,
) -> bool:
    """Whether the candidate stands among those of its start, `first` to `number`."""
    for c in range(first, number):
        same_path = known_length[c] == length and (known_grow[c] == grow or length <= shared)
        if same_path and known_gpus[c] == gpus:
            return True
    return False


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
    path[:length] = orders.region[g, candidates.start[c], :length]
    allocate(candidates.fill[c], path, length, candidates.gpus[c], free_gpus, prices, alloc)
    return int(length)


@kernel
def fill_candidates(
    arrays: Arrays,
    free_gpus: IntArray,
    link_used: FloatArray,
    prices: FloatArray,
    orders: Orders,
    profile: int,
    budgets: FloatArray,
    found: Candidates,
) -> None:
    """All distinct candidates of a profile; each may start now."""
    n = free_gpus.size
    act_bytes, comp_s = arrays.act_bytes[profile], arrays.comp_s[profile]
    k_star, k_min = arrays.k_star[profile], arrays.k_min[profile]
    targets, star = np.empty(budgets.size, np.int64), np.zeros((2, n), np.int64)
    for i in range(budgets.size):
        targets[i] = max(k_min, int(np.ceil(budgets[i] * k_star)))
    found.number[0] = 0
    for start in range(n):
        if free_gpus[start] >= 1:
            star[0, start], star[1, start] = walk(
                act_bytes, comp_s, orders.number[0, start], orders.gpus[0, start],
                orders.room[0, start], k_star,
            )  # fmt: skip
            _add_paths(act_bytes, comp_s, k_min, targets, orders, start, found)
    alloc, other = np.empty(n, np.int64), np.empty(n, np.int64)
    if star[0].max() > 1:
        _add_other_fills(free_gpus, prices, orders.region[0], k_min, star, alloc, other, found)
    _price_candidates(arrays, free_gpus, prices, orders, profile, alloc, found)


@inner_kernel
def _add_paths(
    act_bytes: float,
    comp_s: FloatArray,
    k_min: int,
    targets: IntArray,
    orders: Orders,
    start: int,
    found: Candidates,
) -> None:
    """The distinct paths from one start, for every growth and every number of GPUs aimed at."""
    first = found.number[0]
    number = min(orders.number[0, start], orders.number[1, start])
    shared = _shared_head(orders.region[0, start], orders.region[1, start], number)
    for grow in range(GROWTHS + 1):
        g = max(grow, 1) - 1
        if grow != GROW_NONE and orders.number[g, start] == 1:
            continue  # nowhere to go
        if grow == GROW_PRICE and shared == orders.number[0, start] == orders.number[1, start]:
            continue  # both grow alike
        # Alone, a start is an order of one region.
        number = orders.number[g, start] if grow != GROW_NONE else 1
        gpus_up_to, room = orders.gpus[g, start], orders.room[g, start]
        for i in range(targets.size):
            length, gpus = walk(act_bytes, comp_s, number, gpus_up_to, room, targets[i])
            if gpus >= k_min and not _is_known(
                grow, length, gpus, shared, found.grow, found.length, found.gpus, first,
                found.number[0],
            ):  # fmt: skip
                _add(found, start, grow, length, gpus, FILL_CHEAPEST)


@inner_kernel
def _price_candidates(
    arrays: Arrays,
    free_gpus: IntArray,
    prices: FloatArray,
    orders: Orders,
    profile: int,
    alloc: IntArray,
    found: Candidates,
) -> None:
    """Iteration time and electricity of each candidate; `alloc` is scratch of shape `(R,)`."""
    act_bytes, comp_s = arrays.act_bytes[profile], arrays.comp_s[profile]
    intra_s, micro_batches = arrays.intra_s[profile], arrays.micro_batches[profile]
    form, regions = arrays.t_comm_form, orders.region
    latency_s, least_free = orders.latency_s, orders.least_free
    inverse_free = orders.inverse_free
    for c in range(found.number[0]):
        start, length, k = found.start[c], found.length[c], found.gpus[c]
        g = max(found.grow[c], 1) - 1  # a path of one region is the head of either order
        found.iteration_s[c] = path_iteration_time(
            form,
            act_bytes,
            comp_s[k],
            intra_s,
            micro_batches,
            k,
            length - 1,
            latency_s[g, start, length - 1],
            least_free[g, start, length - 1],
            inverse_free[g, start, length - 1],
        )
        path = regions[g, start]
        if length == 1:
            found.usd_per_s[c] = k * prices[start] / 3600.0
            continue
        allocate(found.fill[c], path, length, k, free_gpus, prices, alloc)
        total = 0.0
        for i in range(length):
            total += alloc[i] * prices[path[i]]
        found.usd_per_s[c] = total / 3600.0


@inner_kernel
def _add_other_fills(
    free_gpus: IntArray,
    prices: FloatArray,
    regions: IntArray,
    k_min: int,
    star: IntArray,
    alloc: IntArray,
    other: IntArray,
    found: Candidates,
) -> None:
    """CR-LDF's placement, and Alg. 1's with an even spread, where Alg. 2 spreads otherwise.

    Args:
        free_gpus: Free GPUs, `(R,)`.
        prices: What a GPU costs, `(R,)`.
        regions: Orders by bandwidth, `(R, R)`.
        k_min: The profile's.
        star: Length and GPUs of each start's path for K*, `(2, R)`; 0 where it has none.
        alloc: Scratch, `(R,)`.
        other: Scratch, `(R,)`.
        found: Candidates to add to.
    """
    most = star[1].max()
    freest = freest_region(free_gpus, 1)
    best, best_price = -1, np.inf
    for start in range(free_gpus.size):
        length, gpus, order = star[0, start], star[1, start], regions[start]
        if length > 1 and start == freest and gpus >= k_min:
            allocate(FILL_IN_ORDER, order, length, gpus, free_gpus, prices, alloc)
            if not _is_alg2(order, length, gpus, free_gpus, prices, alloc, other):
                _add(found, start, GROW_BANDWIDTH, length, gpus, FILL_IN_ORDER)
        if length > 0 and gpus == most and most >= k_min:
            allocate(FILL_UNIFORM, order, length, gpus, free_gpus, prices, alloc)
            price = mean_price(order, alloc, length, gpus, prices)
            if best < 0 or is_cheaper(price, best_price):
                best, best_price = start, price
    if best >= 0 and star[0, best] > 1:
        length, order = star[0, best], regions[best]
        allocate(FILL_UNIFORM, order, length, most, free_gpus, prices, alloc)
        known = _is_alg2(order, length, most, free_gpus, prices, alloc, other)
        if not known and best == freest:
            allocate(FILL_IN_ORDER, order, length, most, free_gpus, prices, other)
            known = _shared_head(alloc, other, length) == length
        if not known:
            _add(found, best, GROW_BANDWIDTH, length, most, FILL_UNIFORM)


@inner_kernel
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
    return _shared_head(alloc, scratch, length) == length


@kernel
def most_gpus(act_bytes: float, comp_s: FloatArray, k_min: int, k_star: int, orders: Orders) -> int:
    """What Alg. 1 finds for a profile: the most GPUs of any path, up to K*; 0 below k_min."""
    most = 0
    for start in range(orders.number.shape[1]):
        number = orders.number[0, start]
        gpus_up_to, room = orders.gpus[0, start], orders.room[0, start]
        most = max(most, walk(act_bytes, comp_s, number, gpus_up_to, room, k_star)[1])
    return most if most >= k_min else 0


def empty_cluster_reach(arrays: Arrays) -> IntArray:
    """GPUs that Alg. 1 finds for each profile when everything is free, `(P,)`."""
    orders = _orders_when_empty(arrays)
    a = arrays
    found = [
        most_gpus(a.act_bytes[p], a.comp_s[p], a.k_min[p], a.k_star[p], orders)
        for p in range(a.k_star.size)
    ]
    return np.array(found, dtype=np.int64)


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
        walk(act_bytes, comp_s, number, gpus_up_to, room, k_min)[1] >= k_min
        for number, gpus_up_to, room in zip(
            orders.number[0], orders.gpus[0], orders.room[0], strict=True
        )
    )


def _orders_when_empty(arrays: Arrays) -> Orders:
    n = arrays.gpus.size
    orders = allocate_orders(n)
    prices = np.asarray(arrays.price_usd_per_kwh[:, 0] * arrays.kw_per_gpu)
    fill_orders(arrays, arrays.gpus, np.zeros((n, n)), prices, orders)
    return orders
