"""Lower bounds of average JCT, cost and objective: no schedule of an instance does better.

A schedule is any sequence of decisions that `bace_env.simulator` allows. It starts every job j
once, at S_j >= its arrival r_j, on k_j GPUs that it holds for E_j seconds without a break; so it
finishes at C_j = S_j + E_j, and at no time do the jobs hold more than the G GPUs that there are.
Each bound drops some of what a schedule must obey, and solves what is left:

1. Every option of a job (k GPUs, on one region or on several) has an execution time of at least e,
   and costs at least so much (`eval.job_options`).
2. Sums over the jobs of weight * (C_j - r_j) + (something that the option decides) are bounded from
   below by `_own_best`, `_fluid_mean_flow_s`, `_assignment` and `_Priced`, each with its proof.

The average JCT is such a sum without the second term, the objective one where it is the cost. The
largest bound counts. `lower_bounds` subtracts 1e-9 of it for rounding.
"""

import heapq
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from bace_env.instance import Instance, srpt_mean_flow_time
from bace_env.types import Arrays, FloatArray, IntArray
from eval.job_options import Options, constant_rates, job_options

_ROUNDING = 1e-9  # share of a bound given away, so that rounding lifts none above the truth
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
    options = job_options(arrays)
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
    priced = _Priced(arrays, options, per_s, extra, per_usd * constant_rates(arrays))
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


def _own_best(options: Options, weight: float, extra: FloatArray) -> float:
    """No job is faster than alone: C_j - r_j >= E_j >= e, so each job's best option counts."""
    return float(np.minimum.reduceat(weight * options.least_s + extra, options.first).sum())


def _fluid_mean_flow_s(arrays: Arrays, options: Options) -> tuple[float, float]:
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


def _assignment(arrays: Arrays, options: Options, weight: float, extra: FloatArray) -> float:
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


def _few_options(options: Options) -> IntArray:
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
    least electricity, `Options.spread`, whatever q and E are.

    *Starts.* For one option with kappa = sum of n_r c_r, f(S) = weight * S + kappa * (integral of s
    from S to S + e) has the continuous derivative weight - kappa (s(S) - s(S + e)). That is made of
    straight pieces, which rise only where S lies on the slope of s and S + e beyond `end`. So f is
    least at the first S allowed, or where weight = kappa s(S) on the slope. All terms grow with E,
    so that e may stand for it.
    """

    def __init__(
        self,
        arrays: Arrays,
        options: Options,
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

    def _values(self, prices: FloatArray, options: Options, extra: FloatArray) -> FloatArray:
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
