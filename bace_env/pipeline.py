"""The cost model: Eq. 1-4 and 13 of arXiv 2605.25375, one scalar function per formula.

Everything that needs a formula (scenario building, kernels, heuristics, tests) calls the functions
of this module. Units are in the names: `_s`, `_bytes`, `_bytes_per_s`, `_usd_per_kwh`. `k` is the
number of pipeline stages, which is the number of GPUs of the job.
"""

import math

import numpy as np

from bace_env.jit import inner_kernel, kernel
from bace_env.types import FloatArray, IntArray

#: A link may be filled up to `capacity * (1 + LINK_TOLERANCE)`: sums of reservations are floats.
LINK_TOLERANCE = 1e-9

T_COMM_RESERVED = 0  # a hop between regions gets exactly b_j: t_comm = A / b_j = t_comp(k)
T_COMM_RESIDUAL = 1  # it gets all that is free at the start: t_comm = A / free bandwidth
T_COMM_HIDDEN = 2  # it costs what a hop inside a region costs (measured whole run times)
T_COMM_FORMS = ("reserved", "residual", "hidden")


@kernel
def iteration_time(
    comm_sum_s: float, comm_max_s: float, comp_s: float, k: int, micro_batches: int
) -> float:
    """Eq. 1: seconds of one GPipe iteration (forward and backward) of a pipeline of equal stages.

    Args:
        comm_sum_s: Sum over the k-1 hops of the time that one message takes, one way.
        comm_max_s: The largest time for which one message occupies a hop (0 without hops).
        comp_s: t_comp(k), compute time of one micro-batch on one stage, one direction.
        k: Number of stages.
        micro_batches: Micro-batches per iteration (M).
    """
    return 2.0 * (comm_sum_s + k * comp_s + (micro_batches - 1) * max(comp_s, comm_max_s))


@kernel
def bandwidth_need(act_bytes: float, comp_s: float) -> float:
    """b_j = A_j / t_comp(k) in bytes/s: what a hop must carry so as not to stall (Sec. III-A)."""
    return act_bytes / comp_s


@inner_kernel
def link_room(used_bytes_per_s: float, capacity: float) -> float:
    """Eq. 6 for one directed link: the largest b_j that may still be reserved; 0 without a link."""
    return capacity * (1 + LINK_TOLERANCE) - used_bytes_per_s


@kernel
def path_iteration_time(
    form: int,
    act_bytes: float,
    comp_s: float,
    intra_s: float,
    micro_batches: int,
    k: int,
    hops: int,
    latency_sum_s: float,
    least_free: float,
    inverse_free_sum: float,
) -> float:
    """Eq. 1 of k stages with `hops` hops between regions, under one of the `T_COMM_FORMS`.

    Args:
        form: Index of the form of t_comm between regions.
        act_bytes: A.
        comp_s: t_comp(k).
        intra_s: t_comm of a hop inside a region.
        micro_batches: M.
        k: Stages; k - 1 - hops of the hops lie inside regions.
        hops: Hops between regions.
        latency_sum_s: Sum of their one-way latencies: it fills the pipeline, it never occupies.
        least_free: Least free bandwidth of them, bytes/s (used by `residual`).
        inverse_free_sum: Sum of 1 / free bandwidth of them, s/byte (used by `residual`).
    """
    inside = k - 1 - hops
    comm_sum_s = inside * intra_s + latency_sum_s
    comm_max_s = intra_s if inside > 0 else 0.0
    if hops > 0:
        if form == T_COMM_RESERVED:
            comm_sum_s += hops * comp_s
            comm_max_s = max(comm_max_s, comp_s)
        elif form == T_COMM_RESIDUAL:
            # At least b_j is reserved, though a full link may leave less by rounding.
            comm_sum_s += min(act_bytes * inverse_free_sum, hops * comp_s)
            slowest_s = act_bytes / least_free if least_free > 0.0 else np.inf
            comm_max_s = max(comm_max_s, min(slowest_s, comp_s))
        else:
            comm_sum_s += hops * intra_s
            comm_max_s = max(comm_max_s, intra_s)
    return iteration_time(comm_sum_s, comm_max_s, comp_s, k, micro_batches)


def uncapped_comp_s(
    single_gpu_s: float, k_max: int, overhead_s: float, exponent: float = 1.0
) -> FloatArray:
    """`uncapped` t_comp(k) = C / k**exponent + o for k = 1..k_max; entry 0 is inf.

    Above 1 the exponent makes many GPUs more than proportionally fast. Shape `(k_max + 1,)`.
    """
    table = np.full(k_max + 1, np.inf)
    table[1:] = single_gpu_s / np.arange(1, k_max + 1) ** exponent + overhead_s
    return table


def layered_comp_s(
    n_layers: int, layer_s: float, head_s: float, stage_overhead_s: float
) -> FloatArray:
    """`layered` t_comp(k): whole layers per stage, best split with the LM head on the last stage.

    `min over a of max(ceil((n_layers - a)/(k-1)) * layer_s, a * layer_s + head_s) + overhead`,
    for k = 1..n_layers + 1 (a = layers of the last stage). Shape `(n_layers + 2,)`; entry 0 is inf.
    """
    table = np.full(n_layers + 2, np.inf)
    table[1] = n_layers * layer_s + head_s + stage_overhead_s
    on_last = np.arange(n_layers + 1)
    for k in range(2, n_layers + 2):
        body = np.ceil((n_layers - on_last) / (k - 1)) * layer_s
        table[k] = np.maximum(body, on_last * layer_s + head_s).min() + stage_overhead_s
    return table


def measured_comp_s(gpus: IntArray, values_s: FloatArray) -> FloatArray:
    """`table` form: values measured at some k, made a table for k = 1..max(gpus).

    Between two measured k the value follows the straight line in log-log; below the smallest one
    it scales ideally (value * k constant). Nothing is extrapolated beyond the largest.
    Shape `(max(gpus) + 1,)`; entry 0 is inf. `gpus` ascend strictly, values are positive.
    """
    k = np.arange(1, int(gpus[-1]) + 1)
    table = np.full(k.size + 1, np.inf)
    table[1:] = np.exp(np.interp(np.log(k), np.log(gpus), np.log(values_s)))
    below = k < gpus[0]
    table[1:][below] = values_s[0] * gpus[0] / k[below]
    table[gpus] = values_s  # exactly as given
    return table


def comp_from_iteration_time(
    iteration_s: FloatArray, intra_s: float, micro_batches: int
) -> FloatArray:
    """Solve Eq. 1, all hops inside a region, for t_comp(k): shape `(K + 1,)`, inf stays inf.

    An entry is not positive where the messages alone take longer than `iteration_s`.
    """
    k = np.arange(iteration_s.size)
    half = iteration_s / 2.0
    hops = np.maximum(k - 1, 0)
    slow_compute = (half - hops * intra_s) / (k + micro_batches - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        slow_links = (half - (hops + micro_batches - 1) * intra_s) / k
    no_hop = k <= 1
    table = np.where(no_hop | (slow_compute >= intra_s), slow_compute, slow_links)
    table[0] = np.inf
    return table


def intra_iteration_s(comp_s: FloatArray, intra_s: float, micro_batches: int) -> FloatArray:
    """Eq. 1 for every k with all hops inside one region, shape `(K + 1,)`; entry 0 is inf."""
    table = np.full(comp_s.size, np.inf)
    _fill_intra_iteration_s(comp_s, intra_s, micro_batches, table)
    return table


@kernel
def _fill_intra_iteration_s(
    comp_s: FloatArray, intra_s: float, micro_batches: int, table: FloatArray
) -> None:
    for k in range(1, comp_s.size):
        comm_max_s = intra_s if k > 1 else 0.0
        table[k] = iteration_time((k - 1) * intra_s, comm_max_s, comp_s[k], k, micro_batches)


def optimal_gpus(iteration_s: FloatArray, k_min: int) -> int:
    """K* (Eq. 13): the k >= k_min of the least iteration time; ties go to the smaller k."""
    return k_min + int(np.argmin(iteration_s[k_min:]))


def uncapped_optimum(
    single_gpu_s: float, overhead_s: float, intra_s: float, micro_batches: int
) -> float:
    """K* of the `uncapped` form in closed form, as a real number.

    sqrt((M-1) C / (c + o)) while compute is the bottleneck there, else the k where t_comp(k) = c.
    """
    k = math.sqrt((micro_batches - 1) * single_gpu_s / (intra_s + overhead_s))
    if intra_s > overhead_s and single_gpu_s / k + overhead_s < intra_s:
        return single_gpu_s / (intra_s - overhead_s)
    return k


@inner_kernel
def _step_at(times_s: FloatArray, period_s: float, t: float) -> tuple[float, int]:
    """Start of the period that t lies in, and index of the step in force (`[start, next)`)."""
    base = 0.0
    if period_s < np.inf:
        base = math.floor(t / period_s) * period_s
        if base + period_s <= t:
            base += period_s
    i, after = 0, times_s.size  # the last start not after t, by bisection
    while after - i > 1:
        middle = (i + after) // 2
        if times_s[middle] <= t - base:
            i = middle
        else:
            after = middle
    # t - base is rounded: the sums decide, as they are the times at which steps begin.
    if i + 1 < times_s.size and base + times_s[i + 1] <= t:
        i += 1
    return base, i


@kernel
def price_integral(
    times_s: FloatArray, prices: FloatArray, cumulative: FloatArray, period_s: float, t: float
) -> float:
    """Integral of a stepwise price from 0 to t, in USD/kWh * s.

    Args:
        times_s: Starts of the steps, ascending, first 0, shape `(T,)`.
        prices: Price from each start to the next, shape `(T,)`.
        cumulative: Integral from 0 to each start, shape `(T,)`.
        period_s: The series repeats after this time; inf: the last price holds for ever.
        t: Upper limit in seconds, >= 0.
    """
    base, i = _step_at(times_s, period_s, t)
    whole = 0.0
    if base > 0.0:
        last = times_s.size - 1
        one = cumulative[last] + prices[last] * (period_s - times_s[last])
        whole = round(base / period_s) * one
    return float(whole + cumulative[i] + prices[i] * (t - base - times_s[i]))


@kernel
def price_at(times_s: FloatArray, prices: FloatArray, period_s: float, t: float) -> float:
    """The price in force at time t (a step holds on `[start, next start)`)."""
    return float(prices[_step_at(times_s, period_s, t)[1]])


@kernel
def next_price_change(times_s: FloatArray, period_s: float, t: float) -> float:
    """The first start of a step strictly after t; inf when there is none."""
    base, i = _step_at(times_s, period_s, t)
    if i + 1 < times_s.size:
        return float(base + times_s[i + 1])
    return base + period_s if times_s.size > 1 else np.inf


def price_cycle_s(times_s: FloatArray, counts: IntArray, periods_s: FloatArray) -> float:
    """After this long, every combination of the regions' prices has been in force at least once.

    The last change of the series that hold, and the least common multiple (to the millisecond) of
    the periods of those that repeat, but at most 10 times the longest of them.
    """
    last, whole_ms, longest_ms = 0.0, 1, 0
    for starts, count, period_s in zip(times_s, counts, periods_s, strict=True):
        if count == 1:
            continue
        if math.isfinite(period_s):
            period_ms = max(round(period_s * 1000), 1)
            whole_ms = math.lcm(whole_ms, period_ms)
            longest_ms = max(longest_ms, period_ms)
        else:
            last = max(last, float(starts[count - 1]))
    return last + min(whole_ms, 10 * longest_ms) / 1000


@inner_kernel
def egress_cost(
    act_bytes: float,
    micro_batches: int,
    iterations: float,
    source_usd_per_byte: float,
    target_usd_per_byte: float,
) -> float:
    """USD for what a hop between regions moves: 2 * A * M * I bytes, each paid where it leaves.

    Forward, A * M * I bytes of activations leave the source; backward, as many of gradients leave
    the target.
    """
    one_way = act_bytes * micro_batches * iterations
    return one_way * (source_usd_per_byte + target_usd_per_byte)


@kernel
def electricity_cost(
    times_s: FloatArray,
    prices: FloatArray,
    cumulative: FloatArray,
    period_s: float,
    kw: float,
    start_s: float,
    finish_s: float,
) -> float:
    """Eq. 4 for one region: USD for `kw` drawn from start to finish, exact over price changes."""
    if times_s.size == 1:
        integral = prices[0] * (finish_s - start_s)
    else:
        integral = price_integral(times_s, prices, cumulative, period_s, finish_s)
        integral -= price_integral(times_s, prices, cumulative, period_s, start_s)
    return float(kw * integral / 3600.0)
