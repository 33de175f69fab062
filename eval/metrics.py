"""What an episode is worth: one number per metric, from the trace alone."""

import numpy as np

from bace_env.instance import Instance
from bace_env.timeline import Steps
from bace_env.trace import EpisodeTrace
from bace_env.types import BoolArray, FloatArray

#: Metrics of `episode_metrics`, in the order of reports.
METRICS = (
    "avg_jct_s",
    "total_cost_usd",
    "objective",
    "p95_jct_s",
    "makespan_s",
    "energy_kwh",
    "gpu_utilization",
    "link_utilization",
    "unfinished_jobs",
    "refused_placements",
    "idle_waits",
    "decision_us_p50",
    "decision_us_p99",
    "p50_jct_s",
    "p99_jct_s",
    "avg_slowdown",
    "p95_slowdown",
    "mean_backlog",
    "max_backlog",
    "carbon_kg",
    "counted_jobs",
)

#: Ratio metric -> the metric whose per-seed ratio to the reference policy it is.
RATIOS = {"jct_ratio": "avg_jct_s", "cost_ratio": "total_cost_usd"}

#: Estimated from a ratio metric as a geometric mean: what the report shows.
TYPICAL = {"typical_jct_ratio": "jct_ratio", "typical_cost_ratio": "cost_ratio"}


def episode_metrics(trace: EpisodeTrace) -> dict[str, float]:
    """The `METRICS` of one episode.

    JCT is finish - arrival (Eq. 3); averages are over the finished jobs, and `unfinished_jobs`
    counts the rest. Slowdown is JCT over the execution time on K* GPUs of one region, of jobs that
    have one. Makespan runs from the first arrival to the last finish; utilisations are shares of
    all GPUs (all link bandwidth) over the makespan. Backlog is the number of jobs that have arrived
    and not started. Idle waits are decisions to start nothing though no job runs and none is to
    arrive. Decision times are wall time of `Policy.act` in microseconds. Carbon is nan where the
    scenario has no carbon intensities.

    Where the scenario has a window (`Instance.window_s`), JCT, slowdown, cost, energy and carbon
    are of the jobs that arrive in it, and utilisations and backlog are means over it. Makespan,
    objective and the counts are of the whole episode.
    """
    instance, summary = trace.instance, trace.summary()
    arrays = instance.arrays
    counted = counted_jobs(instance)
    done = trace.finished & counted
    jct_s = (trace.finish_s - arrays.arrival_s)[done]
    profile = arrays.job_profile
    alone_s = arrays.iterations * arrays.iteration_s[profile, arrays.k_star[profile]]
    best_s = alone_s[done]
    slowdown = jct_s[best_s > 0.0] / best_s[best_s > 0.0]
    makespan_s = summary.makespan_s
    from_s, until_s = _measured_span(trace)
    gpu_share, link_share = _utilizations(trace, from_s, until_s)
    backlog = backlog_steps(trace)
    times_us = np.array([d.decision_ns for d in trace.decisions] or [0]) / 1000.0
    return {
        "avg_jct_s": summary.avg_jct_s if counted.all() else _mean(jct_s),
        "total_cost_usd": float(trace.cost_usd[counted].sum()),
        "objective": trace.objective(),
        "p95_jct_s": _percentile(jct_s, 95),
        "makespan_s": makespan_s,
        "energy_kwh": float(trace.energy_kwh[counted].sum()),
        "gpu_utilization": gpu_share,
        "link_utilization": link_share,
        "unfinished_jobs": float(summary.unfinished_jobs),
        "refused_placements": float(sum(d.refused is not None for d in trace.decisions)),
        "idle_waits": float(_idle_waits(trace)),
        "decision_us_p50": float(np.percentile(times_us, 50)),
        "decision_us_p99": float(np.percentile(times_us, 99)),
        "p50_jct_s": _percentile(jct_s, 50),
        "p99_jct_s": _percentile(jct_s, 99),
        "avg_slowdown": _mean(slowdown),
        "p95_slowdown": _percentile(slowdown, 95),
        "mean_backlog": float(backlog.means(np.array([from_s, until_s]))[0]),
        "max_backlog": _highest(backlog, from_s, until_s),
        "carbon_kg": np.nan if trace.carbon_kg is None else float(trace.carbon_kg[counted].sum()),
        "counted_jobs": float(counted.sum()),
    }


def counted_jobs(instance: Instance) -> BoolArray:
    """Which jobs arrive inside the window, `(N,)`."""
    first_s, last_s = instance.window_s
    arrival_s = instance.arrays.arrival_s
    return np.asarray((arrival_s >= first_s) & (arrival_s <= last_s))


def backlog_steps(trace: EpisodeTrace) -> Steps:
    """Jobs that have arrived and not started, over time, to the end of the episode."""
    arrival_s = trace.instance.arrays.arrival_s
    moments = np.concatenate([[0.0], arrival_s, trace.start_s[trace.started]])
    change = np.concatenate([[0.0], np.ones(arrival_s.size), -np.ones(int(trace.started.sum()))])
    times, which = np.unique(moments, return_inverse=True)
    waiting = np.cumsum(np.bincount(which, weights=change).astype(np.float64))
    return Steps(times, waiting, max(trace.end_s, float(times[-1])))


def backlog_over_time(trace: EpisodeTrace, parts: int = 100) -> list[tuple[float, float, float]]:
    """Begin, end (s) and exact mean backlog of equal parts of the window, or of the makespan."""
    edges = np.linspace(*_measured_span(trace), parts + 1)
    means = backlog_steps(trace).means(edges)
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), means.tolist(), strict=True))


def _measured_span(trace: EpisodeTrace) -> tuple[float, float]:
    """The time over which utilisations and backlog are means: the window, or the makespan."""
    arrival_s, summary = trace.instance.arrays.arrival_s, trace.summary()
    begin_s = float(arrival_s[0])
    whole_s = begin_s + summary.makespan_s
    first_s, last_s = trace.instance.window_s
    return max(first_s, begin_s), min(last_s, max(whole_s, first_s))


def _utilizations(trace: EpisodeTrace, from_s: float, until_s: float) -> tuple[float, float]:
    """Shares of all GPUs and of all link bandwidth that the finished jobs hold in a span."""
    arrays, done = trace.instance.arrays, trace.finished
    begin_s, end_s = trace.start_s[done], trace.finish_s[done]
    span_s, gpu_share = trace.summary().makespan_s, trace.gpu_utilization()
    held_s = end_s - begin_s
    if trace.instance.window_s != (0.0, np.inf):
        span_s = until_s - from_s
        held_s = np.maximum(np.minimum(end_s, until_s) - np.maximum(begin_s, from_s), 0.0)
        gpu_s = float((trace.alloc[done].sum(axis=1) * held_s).sum())
        gpu_share = _share(gpu_s, span_s * float(arrays.gpus.sum()))
    hops = np.maximum(trace.path_length - 1, 0)[done]
    link_bytes = float((trace.bytes_per_s[done] * hops * held_s).sum())
    return gpu_share, _share(link_bytes, span_s * float(arrays.link_bytes_per_s.sum()))


def _highest(steps: Steps, from_s: float, until_s: float) -> float:
    inside = (steps.time_s >= from_s) & (steps.time_s <= until_s)
    return float(max(steps.value[inside].max(initial=0.0), steps.at(np.array([from_s]))[0]))


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if values.size else 0.0


def _percentile(values: FloatArray, percent: float) -> float:
    return float(np.percentile(values, percent)) if values.size else 0.0


def _idle_waits(trace: EpisodeTrace) -> int:
    waits_s = np.array([d.time_s for d in trace.decisions if d.job is None])
    waits_s = waits_s[waits_s >= trace.instance.arrays.arrival_s[-1]]
    started, ended = (
        np.searchsorted(np.sort(times_s), waits_s, side="right")  # nan, never started, sorts last
        for times_s in (trace.start_s, trace.finish_s)
    )
    return int((started == ended).sum())


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
