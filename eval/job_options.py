"""What a job's options take at least: the execution time and the cost of k GPUs somewhere.

The first half of `eval.bounds`, which sums over the jobs.
"""

from typing import NamedTuple

import numpy as np

from bace_env.errors import BaceError
from bace_env.pipeline import LINK_TOLERANCE, T_COMM_HIDDEN, T_COMM_RESIDUAL
from bace_env.types import Arrays, BoolArray, FloatArray, IntArray

_MOST_GRAPHS = 64  # sets of links that are told apart
_MOST_WINDOWS = 100_000  # windows of a price series looked at for one region and arrival
_MOST_ROUNDS = 20  # of looking at windows left out before


class Options(NamedTuple):
    """All M ways to run a job that are told apart, those of a job in a row."""

    job: IntArray  # (M,)
    gpus: IntArray  # (M,) k
    least_s: FloatArray  # (M,) e, no execution time is shorter
    usd: FloatArray  # (M,) no execution costs less
    spread: IntArray  # (M, R) GPUs per region of the least cost of electricity
    arrival_s: FloatArray  # (M,) of the job
    first: IntArray  # (N,) where each job's options begin

    def take(self, which: IntArray) -> "Options":
        """Some of the options, at least one of each job, in the same order."""
        job = self.job[which]
        return Options(
            job,
            self.gpus[which],
            self.least_s[which],
            self.usd[which],
            self.spread[which],
            self.arrival_s[which],
            _starts(job),
        )


def _starts(job: IntArray) -> IntArray:
    return np.flatnonzero(np.diff(job, prepend=-1))


def job_options(arrays: Arrays) -> Options:
    """Every job's options: k GPUs inside one region, and k GPUs on several.

    Options on several regions differ in their number of hops. Where no price is negative the least
    execution time over all hop counts stands for them: every bound grows with it. Under negative
    prices a longer run may be the cheaper one, so there each hop count is an option of its own.
    """
    least_s, most_s = execution_range(arrays)
    if arrays.price_usd_per_kwh.min() >= 0.0 and least_s.shape[2] > 1:
        several = least_s[:, :, 1:].min(axis=2)
        least_s = np.stack([least_s[:, :, 0], several], axis=2)
        most_s = least_s
    of_job = least_s[arrays.job_profile]
    job, k, hops = np.nonzero(np.isfinite(of_job))
    first = _starts(job)
    if first.size < arrays.iterations.size:
        missing = sorted(set(range(arrays.iterations.size)) - set(job.tolist()))
        raise BaceError(f"jobs: each must fit into the empty cluster, got {missing} that do not")
    at = arrays.job_profile[job], k, hops
    low_s, high_s = (arrays.iterations[job] * table[at] for table in (least_s, most_s))
    arrival_s = arrays.arrival_s[job]
    usd, spread = _option_costs(arrays, first, arrival_s, low_s, high_s, k, hops > 0)
    usd = usd + hops * arrays.iterations[job] * _least_egress(arrays)[arrays.job_profile[job]]
    return Options(job, k, low_s, usd, spread, arrival_s, first)


def execution_range(arrays: Arrays) -> tuple[FloatArray, FloatArray]:
    """Shortest and longest iteration of each profile on k GPUs with h hops between regions.

    Eq. 1 (`pipeline.path_iteration_time`) depends on the path by the number h of its hops, the sum
    of their latencies, and in the form `residual` by the bandwidth that is free on them, which is
    at most the links' capacity and never counts for less than b_j. So the extremes over all paths
    lie between those over all walks of h hops along links that carry b_j(k) at all (`_walks`). A
    path visits h + 1 different regions that can be reached from its first one; so k is at most the
    sum of the h + 1 largest of these (`_most_gpus`), and at least h + 1. More hops are not always
    slower: in the form `reserved` one takes t_comp(k), and one inside a region may take longer.

    Returns:
        Two arrays `(P, K + 1, H)` in seconds, entry `[p, k, h]`; inf where there is no such path.
        K is the cluster's GPUs at most, H (hop counts from 0) its regions at most.
    """
    graphs = _graphs(arrays)
    k_limit = int(min(arrays.comp_s.shape[1] - 1, arrays.gpus.sum()))
    k, hops = np.arange(k_limit + 1)[:, None], np.arange(graphs.most_gpus.shape[1])
    profile = (slice(None), None, None)
    table = arrays.comp_s[:, : k_limit + 1, None]
    comp_s = np.where(np.isfinite(table), table, 1.0)
    intra_s, act_bytes = arrays.intra_s[profile], arrays.act_bytes[profile]
    graph = graphs.find((act_bytes / comp_s)[:, :, 0])  # b_j(k)
    allowed = np.isfinite(table) & (k >= arrays.k_min[profile]) & (k <= arrays.k_max[profile])
    allowed = allowed & (k > hops) & (k <= graphs.most_gpus[graph])
    allowed &= np.isfinite(graphs.latency_s[graph])

    hidden = arrays.t_comm_form == T_COMM_HIDDEN
    inside = k - 1 - hops
    # A hop between regions occupies for t_comp at most, except in the form `hidden`.
    with_intra = (inside > 0) | (hidden & (hops > 0))
    slowest_s = np.where(with_intra, np.maximum(comp_s, intra_s), comp_s)
    rest_s = inside * intra_s + k * comp_s + (arrays.micro_batches[profile] - 1) * slowest_s
    longest_s = hops * (intra_s if hidden else comp_s)
    shortest_s = longest_s
    if arrays.t_comm_form == T_COMM_RESIDUAL:
        inverse = np.where(allowed, graphs.inverse[graph], 0.0)
        shortest_s = np.minimum(act_bytes * inverse, longest_s)
    least, most = (
        np.where(allowed, 2.0 * (rest_s + messages_s + latency_s[graph]), np.inf)
        for messages_s, latency_s in (
            (shortest_s, graphs.latency_s),
            (longest_s, graphs.longest_s),
        )
    )
    return least, most


class _Graphs(NamedTuple):
    """Sets of links, each those with room for some need, and their paths of h = 0..H-1 hops.

    The last set is empty. Fields from `most_gpus` on have shape `(L, H)`.
    """

    rooms: FloatArray  # all different rooms of links, ascending
    thinned: int  # only each so manieth is a set
    most_gpus: FloatArray  # 0 where there is no path
    latency_s: FloatArray  # least sum of latencies, inf where there is no path
    longest_s: FloatArray  # largest sum of latencies
    inverse: FloatArray  # least sum of 1 / capacity

    def find(self, need: FloatArray) -> IntArray:
        """Index of a set with all links that have room for the need, and few more."""
        at = np.searchsorted(self.rooms, need)
        last = self.most_gpus.shape[0] - 1
        return np.asarray(np.where(at == self.rooms.size, last, at // self.thinned))


def _graphs(arrays: Arrays) -> _Graphs:
    room = arrays.link_bytes_per_s * (1 + LINK_TOLERANCE)
    np.fill_diagonal(room, 0.0)  # the regions of a path differ
    rooms = np.unique(room[room > 0.0])
    thinned = 1 + rooms.size // _MOST_GRAPHS
    links = room >= np.append(rooms[::thinned], np.inf)[:, None, None]
    most_gpus = _most_gpus(links, arrays.gpus)
    n_hops = int(np.flatnonzero(most_gpus.any(axis=0))[-1]) + 1
    inverse = 1.0 / np.where(room > 0.0, arrays.link_bytes_per_s, 1.0)
    return _Graphs(
        rooms,
        thinned,
        most_gpus[:, :n_hops],
        _walks(links, arrays.link_latency_s, n_hops),
        -_walks(links, -arrays.link_latency_s, n_hops),
        _walks(links, inverse, n_hops),
    )


def _most_gpus(links: BoolArray, gpus: IntArray) -> FloatArray:
    """GPUs of the h + 1 largest regions that one region reaches, the best region counts.

    `(L, R)` from graphs `(L, R, R)`; 0 where no region reaches h others.
    """
    n = gpus.size
    reach = (links | np.eye(n, dtype=bool)).astype(float)
    for _ in range(n.bit_length()):
        reach = np.minimum(reach @ reach, 1.0)
    reached = np.where(reach > 0.0, gpus, 0)
    sums = np.cumsum(-np.sort(-reached, axis=2), axis=2)
    enough = np.arange(n) < (reach > 0.0).sum(axis=2)[:, :, None]
    return np.asarray(np.where(enough, sums, 0).max(axis=1), dtype=np.float64)


def _walks(links: BoolArray, weight: FloatArray, n_hops: int) -> FloatArray:
    """Least sum of weights along a walk of h = 0.. hops in each graph, `(L, n_hops)`; inf: none.

    Paths are walks, so no path has less.
    """
    steps = np.where(links, weight, np.inf)
    ends = np.zeros(links.shape[:2])
    sums = np.zeros((links.shape[0], n_hops))
    for hop in range(1, n_hops):
        ends = (ends[:, :, None] + steps).min(axis=1)
        sums[:, hop] = ends.min(axis=1)
    return sums


# --- Electricity ----------------------------------------------------------------------------------


def _option_costs(
    arrays: Arrays,
    first: IntArray,
    arrival_s: FloatArray,
    low_s: FloatArray,
    high_s: FloatArray,
    gpus: IntArray,
    on_several: BoolArray,
) -> tuple[FloatArray, IntArray]:
    """Least cost of each option, USD `(M,)`, and the GPUs per region that it has there, `(M, R)`.

    A GPU that region r gives to a job costs kw_r / 3600 * the integral of its price, over a window
    that starts at the arrival or later and lasts from `low_s` to `high_s`. With m_r the least such
    cost, a job on k GPUs costs at least the optimum of the linear program

        minimise sum n_r m_r   subject to   sum n_r = k,   0 <= n_r <= G_r,

    whose exact solution is to fill the regions in ascending order of m_r (exchange argument: moving
    a GPU to a region with room and a lower m_r never costs more). On one region it is k m_r of the
    cheapest that is large enough. The windows of different regions may differ, which relaxes.
    """
    region_gpus = arrays.gpus
    unit_usd = np.empty((gpus.size, region_gpus.size))
    exact = np.ones(gpus.size, dtype=bool)
    for r in range(region_gpus.size):
        integral, is_exact = _least_integrals(arrays, r, arrival_s, low_s, high_s, thin_out=True)
        unit_usd[:, r] = arrays.kw_per_gpu[r] / 3600.0 * integral
        exact &= is_exact
    usd, spread = cheapest_spread(unit_usd, region_gpus, gpus, on_several)
    # The options that decide the bound of the cost are worked out exactly, if they are found soon.
    job = np.repeat(np.arange(first.size), np.diff(np.append(first, gpus.size)))
    for _ in range(_MOST_ROUNDS):
        best = np.lexsort((usd, job))[first]
        todo = best[~exact[best]]
        if todo.size == 0:
            break
        for r in range(region_gpus.size):
            integral, _ = _least_integrals(
                arrays, r, arrival_s[todo], low_s[todo], high_s[todo], thin_out=False
            )
            unit_usd[todo, r] = arrays.kw_per_gpu[r] / 3600.0 * integral
        usd[todo], spread[todo] = cheapest_spread(
            unit_usd[todo], region_gpus, gpus[todo], on_several[todo]
        )
        exact[todo] = True
    return usd, spread


def cheapest_spread(
    unit_usd: FloatArray, region_gpus: IntArray, gpus: IntArray, on_several: BoolArray
) -> tuple[FloatArray, IntArray]:
    """Spread k GPUs over the regions at least cost: see `_option_costs`.

    Args:
        unit_usd: Cost of one GPU in each region, `(M, R)`.
        region_gpus: GPUs of the regions, `(R,)`.
        gpus: k of each row, `(M,)`.
        on_several: Whether more than one region may serve; else one must hold all, `(M,)`.
    """
    order = np.argsort(unit_usd, axis=1, kind="stable")
    room = region_gpus[order]
    before = np.cumsum(room, axis=1) - room
    filled = np.clip(gpus[:, None] - before, 0, room)
    fits = room >= gpus[:, None]
    cheapest = fits & (np.cumsum(fits, axis=1) == 1)
    filled = np.where(on_several[:, None], filled, np.where(cheapest, gpus[:, None], 0))
    spread = np.empty_like(filled)
    np.put_along_axis(spread, order, filled, axis=1)
    return np.asarray((spread * unit_usd).sum(axis=1)), spread


def _least_egress(arrays: Arrays) -> FloatArray:
    """USD per iteration and hop between regions that a profile pays at least, `(P,)`.

    A hop along a link from u to v costs A * M * (egress_u + egress_v), which depends on nothing
    else; so a path of h hops costs at least h times that of the cheapest link there is. Added to
    the least cost of electricity it bounds the cost of an option with at least h hops, and as it
    does not depend on the regions' GPUs, the cheapest spread stays the cheapest.
    """
    egress = arrays.egress_usd_per_byte
    of_link = (egress[:, None] + egress[None, :])[arrays.link_bytes_per_s > 0.0]
    least = float(of_link.min(initial=np.inf))
    return arrays.act_bytes * arrays.micro_batches * (least if np.isfinite(least) else 0.0)


def constant_rates(arrays: Arrays) -> FloatArray:
    """USD per second of a GPU in each region where no price changes, else zeros, `(R,)`."""
    if (arrays.price_count > 1).any():
        return np.zeros(arrays.gpus.size)
    return np.asarray(arrays.kw_per_gpu * arrays.price_usd_per_kwh[:, 0] / 3600.0)


def _least_integrals(
    arrays: Arrays,
    region: int,
    arrival_s: FloatArray,
    low_s: FloatArray,
    high_s: FloatArray,
    *,
    thin_out: bool,
) -> tuple[FloatArray, BoolArray]:
    """Least integral of a region's price over windows [S, S + E], S >= arrival, low <= E <= high.

    Over windows of length `low`, exactly (`_windows`); what follows adds at least
    min(0, lowest price) * (high - low).

    Args:
        arrays: Of the instance.
        region: The region.
        arrival_s: Earliest start of each window, `(M,)`.
        low_s: Least lengths, `(M,)`.
        high_s: Largest lengths, `(M,)`.
        thin_out: If there are many windows, look at some lengths only. A window of length L
            contains one of every length g <= L, and lies in one of every g >= L, so its integral is
            at least that of g plus the lowest price * (L - g), or minus the highest * (g - L).

    Returns:
        USD/kWh * s, `(M,)`, and whether they are exact for `low_s`.
    """
    n = int(arrays.price_count[region])
    prices = arrays.price_usd_per_kwh[region, :n]
    lowest, highest = float(prices.min()), float(prices.max())
    exact = np.ones(low_s.size, dtype=bool)
    if n == 1:
        return np.minimum(lowest * low_s, lowest * high_s), exact
    least = np.empty(low_s.size)
    repeats = np.isfinite(arrays.price_period_s[region])
    # A series that repeats offers every window again, however late the job arrives.
    groups = np.zeros(1) if repeats else np.unique(arrival_s)
    for since_s in groups:
        mine = np.flatnonzero((arrival_s == since_s) | repeats)
        lengths, back = np.unique(low_s[mine], return_inverse=True)
        if not thin_out or lengths.size * n <= _MOST_WINDOWS:
            least[mine] = _windows(arrays, region, since_s, lengths)[back]
            continue
        few = np.unique(np.linspace(0, lengths.size - 1, max(_MOST_WINDOWS // n, 16)).astype(int))
        some = lengths[few]
        of_some = _windows(arrays, region, since_s, some)
        below = np.searchsorted(some, lengths, side="right") - 1
        above = np.minimum(below + 1, some.size - 1)
        above[some[below] == lengths] = below[some[below] == lengths]
        bound = np.maximum(
            of_some[below] + lowest * (lengths - some[below]),
            of_some[above] - highest * (some[above] - lengths),
        )
        least[mine], exact[mine] = bound[back], (some[below] == lengths)[back]
    return least + min(lowest, 0.0) * (high_s - low_s), exact


def _windows(arrays: Arrays, region: int, since_s: float, lengths: FloatArray) -> FloatArray:
    """Least integral over a window of each length that starts at `since_s` or later, `(L,)`.

    For one length, the integral as a function of the start is a straight line between starts where
    a step begins at either end of the window. So its minimum lies at one of these or at `since_s`,
    and after the last step of a series that holds it is constant.
    """
    n = int(arrays.price_count[region])
    starts = arrays.price_time_s[region, :n]
    prices, cumulative = arrays.price_usd_per_kwh[region, :n], arrays.price_cumulative[region, :n]
    period_s = float(arrays.price_period_s[region])
    repeats = np.isfinite(period_s)
    whole = cumulative[-1] + prices[-1] * (period_s - starts[-1]) if repeats else 0.0
    knots, sums = np.append(starts, period_s), np.append(cumulative, whole)

    def integral(t: FloatArray) -> FloatArray:
        """From 0 to t, as `pipeline.price_integral`; before 0 the series repeats, too."""
        if repeats:
            rounds = np.floor(t / period_s)
            return np.asarray(rounds * whole + np.interp(t - rounds * period_s, knots, sums))
        beyond = prices[-1] * np.maximum(t - starts[-1], 0.0)
        return np.asarray(np.interp(t, starts, cumulative) + beyond)

    def least_of(step_s: FloatArray, length_s: FloatArray) -> FloatArray:
        """Least of all windows that begin or end at these times, elementwise in the lengths."""
        found = [step_s + 0 * length_s, step_s - length_s]
        if not repeats:
            found = [np.maximum(begin, since_s) for begin in found]
        return np.minimum(*(integral(begin + length_s) - integral(begin) for begin in found))

    # `since_s` itself comes in: the first step begins at 0, and is moved there.
    if lengths.size < n:
        return np.array([least_of(starts, length).min() for length in lengths])
    least = np.full(lengths.size, np.inf)
    for step_s in starts:
        np.minimum(least, least_of(step_s, lengths), out=least)
    return least
