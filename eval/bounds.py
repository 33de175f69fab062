"""Lower bounds of average JCT, cost and objective: no schedule of an instance does better.

A schedule is any sequence of decisions that `bace_env.simulator` allows. It starts every job j
once, at S_j >= its arrival r_j, on k_j GPUs that it holds for E_j seconds without a break; so it
finishes at C_j = S_j + E_j, and at no time do the jobs hold more than the G GPUs that there are.
Each bound drops some of what a schedule must obey, and solves what is left:

1. Every option of a job (k GPUs, on one region or on several) has an execution time of at least e,
   `execution_range`, and costs at least `_option_costs`, of electricity, and `_least_egress`.
2. Sums over the jobs of weight * (C_j - r_j) + (something that the option decides) are bounded from
   below by `_own_best`, `_fluid_mean_flow_s`, `_assignment` and `_Priced`, each with its proof.

The average JCT is such a sum without the second term, the objective one where it is the cost. The
largest bound counts. `lower_bounds` subtracts 1e-9 of it for rounding.
"""

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from bace_env.errors import BaceError
from bace_env.instance import Instance, srpt_mean_flow_time
from bace_env.pipeline import (
    LINK_TOLERANCE,
    T_COMM_HIDDEN,
    T_COMM_RESIDUAL,
)
from bace_env.types import Arrays, BoolArray, FloatArray, IntArray

_ROUNDING = 1e-9  # share of a bound given away, so that rounding lifts none above the truth
_MOST_GRAPHS = 64  # sets of links that are told apart
_MOST_WINDOWS = 100_000  # windows of a price series looked at for one region and arrival
_MOST_ROUNDS = 20  # of looking at windows left out before
_SEARCH_SIZES = 16  # GPU counts per job with which good GPU prices are searched
_FINEST_STEP = 0.03  # relative step at which that search ends


@dataclass(frozen=True)
class Bounds:
    """Lower bounds over all schedules of an instance, each on its own."""

    avg_jct_s: float
    total_cost_usd: float
    objective: float


def lower_bounds(instance: Instance) -> Bounds:
    """What no schedule of the instance can fall below.

    The objective is avg JCT / jct_ref + cost_weight * cost / cost_ref. Its bound is the larger of
    the one that the two other bounds give, and of those on the sum itself, where one choice of GPUs
    must serve both terms.

    Raises:
        BaceError: A job fits nowhere, not even alone.
    """
    arrays, n = instance.arrays, instance.n_jobs
    options = _options(arrays)
    few = _few_options(options)
    nothing, pooled = np.zeros(options.job.size), np.zeros(arrays.gpus.size)
    priced_jct_s, prices = _Priced(arrays, options, 1 / n, nothing, pooled).best(few)
    jct_s = max(
        priced_jct_s,
        _own_best(options, 1 / n, nothing),
        *_fluid_mean_flow_s(arrays, options),
        _assignment(arrays, options, 1 / n, nothing),
    )
    least_usd = np.minimum.reduceat(options.usd, options.first)
    cost_usd = float(least_usd.sum())

    per_s = 1 / (n * instance.jct_ref_s)
    per_usd = instance.cost_weight / instance.cost_ref_usd
    extra = per_usd * options.usd
    prices = prices * [1 / instance.jct_ref_s, 1, 1, 1]
    priced = _Priced(arrays, options, per_s, extra, per_usd * _constant_rates(arrays))
    objective = max(
        priced.best(few, prices)[0],
        jct_s / instance.jct_ref_s + per_usd * cost_usd,
        _own_best(options, per_s, extra),
        _assignment(arrays, options, per_s, extra),
    )
    # Times late in an episode and their differences are floats, too.
    slack_s = _ROUNDING * jct_s + 1e-15 * float(arrays.arrival_s[-1])
    slack_usd = _ROUNDING * float(np.abs(least_usd).sum())
    slack = _ROUNDING * abs(objective) + slack_s / instance.jct_ref_s + per_usd * slack_usd
    return Bounds(max(jct_s - slack_s, 0.0), cost_usd - slack_usd, objective - slack)


# --- What a job's options take --------------------------------------------------------------------


class _Options(NamedTuple):
    """All M ways to run a job that are told apart, those of a job in a row."""

    job: IntArray  # (M,)
    gpus: IntArray  # (M,) k
    least_s: FloatArray  # (M,) e, no execution time is shorter
    usd: FloatArray  # (M,) no execution costs less
    spread: IntArray  # (M, R) GPUs per region of the least cost of electricity
    arrival_s: FloatArray  # (M,) of the job
    first: IntArray  # (N,) where each job's options begin

    def take(self, which: IntArray) -> "_Options":
        """Some of the options, at least one of each job, in the same order."""
        job = self.job[which]
        return _Options(
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


def _options(arrays: Arrays) -> _Options:
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
    return _Options(job, k, low_s, usd, spread, arrival_s, first)


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


def _constant_rates(arrays: Arrays) -> FloatArray:
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


# --- Bounds of sums over the jobs -----------------------------------------------------------------


def _own_best(options: _Options, weight: float, extra: FloatArray) -> float:
    """No job is faster than alone: C_j - r_j >= E_j >= e, so each job's best option counts."""
    return float(np.minimum.reduceat(weight * options.least_s + extra, options.first).sum())


def _fluid_mean_flow_s(arrays: Arrays, options: _Options) -> tuple[float, float]:
    """Two bounds of the average JCT from one fluid machine as fast as all G GPUs, seconds.

    Job j holds k_j E_j >= w_j = min over its options of k * e GPU-seconds. Give the machine at each
    time to the jobs in proportion to the GPUs that they hold: each job j has received w_j / G of
    its time by C_j at the latest. So

    - the mean of C_j - r_j is at least the least mean flow time of preemptive work w_j / G on one
      machine, which SRPT attains (Schrage 1968);
    - as a job holds equally many GPUs from S_j to C_j, the mean time at which it is served (mean
      busy time) is M_j = S_j + E_j / 2 = C_j - E_j / 2. Scaling each job's service down to w_j
      keeps M_j. The least sum of mean busy times of preemptive work with release dates is that of
      the schedule which always serves the released job of least total work: a transportation
      problem, minimise sum over j of the integral of t y_j(t) / p_j, solved by the greedy rule
      (Goemans 1997; Goemans, Queyranne, Schulz, Skutella, Wang 2002). Hence the mean of C_j is at
      least that sum's mean plus the mean of min e / 2.
    """
    works = np.minimum.reduceat(options.gpus * options.least_s, options.first)
    durations = works / float(arrays.gpus.sum())
    n = durations.size
    srpt_s = float(srpt_mean_flow_time(arrays.arrival_s, durations, np.empty((2, n))))
    best_s = np.minimum.reduceat(options.least_s, options.first)
    busy_s = mean_busy_times(arrays.arrival_s, durations) - arrays.arrival_s
    return srpt_s, float((busy_s + best_s / 2).sum() / n)


def mean_busy_times(arrival_s: FloatArray, duration_s: FloatArray) -> FloatArray:
    """Mean time at which each job is served, serving the present job of least duration first.

    Args:
        arrival_s: Ascending, `(N,)`.
        duration_s: Time that each job needs alone, `(N,)`.
    """
    n = arrival_s.size
    left = duration_s.tolist()
    busy = np.where(duration_s > 0.0, 0.0, arrival_s)
    queue: list[tuple[float, int]] = []
    now, arrived = 0.0, 0
    while queue or arrived < n:
        if not queue:
            now = max(now, float(arrival_s[arrived]))
        while arrived < n and arrival_s[arrived] <= now:
            if duration_s[arrived] > 0.0:
                heapq.heappush(queue, (float(duration_s[arrived]), arrived))
            arrived += 1
        if not queue:
            continue
        duration, job = queue[0]
        until = float(arrival_s[arrived]) if arrived < n else np.inf
        end = min(now + left[job], until)
        busy[job] += (now + end) / 2 * ((end - now) / duration)
        if end < until or now + left[job] <= until:
            heapq.heappop(queue)
        left[job] -= end - now
        now = end
    return busy


def _assignment(arrays: Arrays, options: _Options, weight: float, extra: FloatArray) -> float:
    """Where all jobs arrive at once: position in a queue and GPUs chosen together.

    In the proof of the mean busy times (`_fluid_mean_flow_s`), let W_j = k_j e_j of the options
    that the schedule uses. Without release dates the greedy rule serves the jobs one after another
    by ascending W; the one in position i of n adds W / G to the mean busy time of each later one
    and half of it to its own. So the sum of C_j - r_j is at least the sum of
    (n - i + 1/2) W_j / G + e_j / 2, and no more in the best order than in any other. Choosing for
    every job a position, and for both its best option, can only lower that: an assignment problem.

    Returns:
        The bound of sum(weight * (C_j - r_j) + extra); -inf where arrivals differ.
    """
    if arrays.arrival_s[0] != arrays.arrival_s[-1]:
        return -np.inf
    n = options.first.size
    later = (n - np.arange(n) - 0.5)[:, None] * (weight / float(arrays.gpus.sum()))
    work, rest = options.gpus * options.least_s, weight / 2 * options.least_s + extra
    ends = np.append(options.first[1:], work.size)
    costs = np.array(
        [
            (later * work[a:b] + rest[a:b]).min(axis=1)
            for a, b in zip(options.first, ends, strict=True)
        ]
    )
    return float(costs[linear_sum_assignment(costs)].sum())


def _few_options(options: _Options) -> IntArray:
    """Indices of some options of each job: enough to search prices with.

    Of some numbers of GPUs the fastest option, and the job's fastest of all.
    """
    order = np.lexsort((options.least_s, options.gpus, options.job))
    gpus = options.gpus[order]
    new = np.diff(gpus, prepend=0) != 0
    new[options.first] = True
    sizes = np.geomspace(1, gpus.max(), _SEARCH_SIZES).astype(np.int64)
    fastest = np.lexsort((options.least_s, options.job))[options.first]
    return np.union1d(order[new & np.isin(gpus, sizes)], fastest)


class _Priced:
    """Jobs pay for GPUs what hinders others: the Lagrangian bound.

    Let a GPU in region r cost pi_r(t) >= 0 per second. As the jobs never hold more than the G_r
    GPUs of a region, for any schedule

        sum of (weight * (C_j - r_j) + extra_j)
            >= sum of (weight * (C_j - r_j) + extra_j + sum over r of n_jr * (integral of pi_r from
               S_j to C_j))  -  sum over r of G_r * (integral of pi_r),

    and each job's own part is at least its least value over all options and all S_j >= r_j
    (Lagrangian relaxation of the capacities; Geoffrion 1974; for time-indexed scheduling Dyer and
    Wolsey 1990). That holds for all prices, so they only have to be good, not optimal: here
    pi_r(t) = c_r s(t), where s falls from 1 at time `flat` (time 0 being the first arrival)
    to 0 at time `end` along a straight line, and c_r = max(c - phi * rate_r, 0), rate_r being the
    extra cost of a GPU-second in region r (0 where prices change in time: then all c_r are c). c,
    `end`, `flat` and phi are found by pattern search.

    *Regions.* With q the integral of s over the window, a GPU in region r adds c_r q + rate_r E.
    It ascends with rate_r, as q <= E and phi <= 1: (c - phi rate) q + rate E does, and where c_r
    is 0 it is above that of any region with c_r > 0. So the cheapest spread of k GPUs is that of
    least electricity, `_Options.spread`, whatever q and E are.

    *Starts.* For one option with kappa = sum of n_r c_r, f(S) = weight * S + kappa * (integral of s
    from S to S + e) has the continuous derivative weight - kappa (s(S) - s(S + e)). That is made of
    straight pieces, which rise only where S lies on the slope of s and S + e beyond `end`. So f is
    least at the first S allowed, or where weight = kappa s(S) on the slope. All terms grow with E,
    so that e may stand for it.
    """

    def __init__(
        self,
        arrays: Arrays,
        options: _Options,
        weight: float,
        extra: FloatArray,
        rates: FloatArray,
    ) -> None:
        self._gpus, self._weight, self._rates = arrays.gpus, weight, rates
        self._options, self._extra = options, extra
        self._origin_s = float(arrays.arrival_s[0])
        self._span_s = float(arrays.arrival_s[-1]) - self._origin_s

    def best(self, few: IntArray, start: FloatArray | None = None) -> tuple[float, FloatArray]:
        """The bound at good prices, and these: c, end, flat / end, phi.

        Args:
            few: Options to search with; the bound is then that of all.
            start: Prices to try beside those of a grid.
        """
        options, extra = self._options.take(few), self._extra[few]
        tried = self._grid() if start is None else np.vstack([self._grid(), start])
        values = self._values(tried, options, extra)
        best, value, step = tried[np.argmax(values)], float(values.max()), 1.0
        while step > _FINEST_STEP:
            tried = self._around(best, step)
            values = self._values(tried, options, extra)
            if values.max() > value + 1e-5 * abs(value):
                best, value = tried[np.argmax(values)], float(values.max())
            else:
                step /= 2
        return float(self._values(best[None], self._options, self._extra)[0]), best

    def _grid(self) -> FloatArray:
        """Rows of prices to begin with: as if n jobs waited for G GPUs to work off everything."""
        options = self._options
        all_gpus, n = float(self._gpus.sum()), options.first.size
        work = np.minimum.reduceat(options.gpus * options.least_s, options.first).sum()
        cost = self._weight * n / all_gpus * np.geomspace(0.03, 1.0, 6)
        end = max(work / all_gpus + self._span_s, 1e-9) * np.geomspace(0.5, 8.0, 5)
        flat = np.array([0.0, 0.5] if self._span_s > 0 else [0.0])
        return np.stack(np.meshgrid(cost, end, flat, np.ones(1)), axis=-1).reshape(-1, 4)

    def _around(self, prices: FloatArray, step: float) -> FloatArray:
        """One number changed up or down per row."""
        tried = np.tile(prices, (8, 1))
        factor = 1.0 + step
        tried[0, 0] *= factor
        tried[1, 0] /= factor
        tried[2, 1] *= factor
        tried[3, 1] /= factor
        tried[4, 2] = min(prices[2] + step / 4, 0.95)
        tried[5, 2] = max(prices[2] - step / 4, 0.0)
        tried[6, 3] = min(prices[3] + step / 2, 1.0)
        tried[7, 3] = max(prices[3] - step / 2, 0.0)
        return tried[:6] if not self._rates.any() else tried

    def _values(self, prices: FloatArray, options: _Options, extra: FloatArray) -> FloatArray:
        """The bound at each of B rows of prices, `(B,)`."""
        cost, end, flat_share, phi = (prices[:, i, None] for i in range(4))
        flat = flat_share * end
        region_cost = np.maximum(cost - phi * self._rates, 0.0)  # (B, R)
        kappa = region_cost @ options.spread.T  # (B, M)
        released, e = options.arrival_s - self._origin_s, options.least_s

        def paid(begin: FloatArray) -> FloatArray:
            """Integral of s over the window that begins then."""
            total: FloatArray | float = 0.0
            for t, sign in ((begin + e, 1), (begin, -1)):
                t = np.minimum(t, end)
                on_slope = np.maximum(t - flat, 0.0)
                on_slope *= on_slope
                on_slope /= 2 * (end - flat)
                total = total + sign * (t - on_slope)
            return np.asarray(total)

        root = end - (end - flat) * (self._weight / np.maximum(kappa, 1e-300))
        late = np.maximum(root - released, 0.0)
        least = np.minimum(
            kappa * paid(released), self._weight * late + kappa * paid(released + late)
        )
        least += self._weight * e + extra
        jobs = np.minimum.reduceat(least, options.first, axis=1).sum(axis=1)
        return np.asarray(jobs - (region_cost @ self._gpus) * (end + flat)[:, 0] / 2)
