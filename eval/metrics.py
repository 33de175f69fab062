"""What an episode is worth: one number per metric, from the trace alone."""

import numpy as np

from bace_env.trace import EpisodeTrace

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
)

#: Ratio metric -> the metric whose per-seed ratio to the reference policy it is.
RATIOS = {"jct_ratio": "avg_jct_s", "cost_ratio": "total_cost_usd"}

#: Estimated from a ratio metric as a geometric mean: what the report shows.
TYPICAL = {"typical_jct_ratio": "jct_ratio", "typical_cost_ratio": "cost_ratio"}


def episode_metrics(trace: EpisodeTrace) -> dict[str, float]:
    """The `METRICS` of one episode.

    JCT is finish - arrival (Eq. 3); averages and the objective are over the finished jobs, and
    `unfinished_jobs` counts the rest. Makespan runs from the first arrival to the last finish;
    utilisations are shares of all GPUs (all link bandwidth) over the makespan. Idle waits are
    decisions to start nothing though no job runs and none is to arrive. Decision times are
    wall time of `Policy.act` in microseconds.
    """
    arrays, summary = trace.instance.arrays, trace.summary()
    done = trace.finished
    jct_s = (trace.finish_s - arrays.arrival_s)[done]
    held_s = (trace.finish_s - trace.start_s)[done]
    hops = np.maximum(trace.path_length - 1, 0)[done]
    link_bytes = float((trace.bytes_per_s[done] * hops * held_s).sum())
    makespan_s = summary.makespan_s
    times_us = np.array([d.decision_ns for d in trace.decisions] or [0]) / 1000.0
    return {
        "avg_jct_s": summary.avg_jct_s,
        "total_cost_usd": float(trace.cost_usd.sum()),
        "objective": trace.objective(),
        "p95_jct_s": float(np.percentile(jct_s, 95)) if done.any() else 0.0,
        "makespan_s": makespan_s,
        "energy_kwh": float(trace.energy_kwh.sum()),
        "gpu_utilization": trace.gpu_utilization(),
        "link_utilization": _share(link_bytes, makespan_s * float(arrays.link_bytes_per_s.sum())),
        "unfinished_jobs": float(summary.unfinished_jobs),
        "refused_placements": float(sum(d.refused is not None for d in trace.decisions)),
        "idle_waits": float(_idle_waits(trace)),
        "decision_us_p50": float(np.percentile(times_us, 50)),
        "decision_us_p99": float(np.percentile(times_us, 99)),
    }


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
