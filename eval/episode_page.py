"""One or two episodes as a page: HTML that holds its data, style and script and asks for nothing.

The page draws what this module puts into its JSON. Of large episodes it gets means over time and
the jobs of longest JCT, and a CSV file beside the page holds every job.
"""

import csv
import html
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import networkx
import numpy as np

from agents.explanation import Explanation
from bace_env.render import JOB_COLOURS
from bace_env.timeline import Steps, Timeline, add_up
from bace_env.trace import EpisodeTrace
from bace_env.types import FloatArray
from eval.metrics import episode_metrics
from eval.replay import describe
from eval.verdict import time_unit

#: Episodes of more jobs are shown as means over time.
MOST_JOBS = 5000
#: So many of them still get a row of the table, those of longest JCT.
MOST_ROWS = 1000
#: Decisions with their reasons; `eval.explain` gives those of any other.
MOST_REASONS = 200
_MOST_REASON_CHARACTERS = 4_000_000  # of all reasons of an episode
_MOST_REASON_ROWS = 30
_MOST_STEPS = 2000
_BINS = 1000
_MOST_LINKS = 40
_MOST_PRICES = 9
_GBPS = 1.25e8  # bytes/s

#: Metric, label, unit, and whether less is better (None: neither).
_METRICS = (
    ("avg_jct_s", "average JCT", "time", True),
    ("p95_jct_s", "95th percentile of the JCT", "time", True),
    ("makespan_s", "makespan", "time", True),
    ("total_cost_usd", "electricity cost", "$", True),
    ("energy_kwh", "energy", "kWh", True),
    ("objective", "objective", "", True),
    ("gpu_utilization", "GPU use", "%", None),
    ("link_utilization", "link use", "%", None),
    ("decision_us_p50", "decision time, median", "µs", None),
)


@dataclass(frozen=True)
class Shown:
    """An episode and the reasons of its first decisions; a note says why there are no more."""

    trace: EpisodeTrace
    reasons: tuple[Explanation, ...] = ()
    note: str = ""


def limit_reasons(reasons: Iterator[Explanation]) -> tuple[Explanation, ...]:
    """As many as a page holds."""
    kept: list[Explanation] = []
    size = 0
    for reason in reasons:
        size += len(json.dumps(_reason(reason)))
        if len(kept) == MOST_REASONS or size > _MOST_REASON_CHARACTERS:
            break
        kept.append(reason)
    return tuple(kept)


def is_aggregated(shown: Sequence[Shown]) -> bool:
    """Whether the page shows means instead of every job, so that the CSV is to lie beside it."""
    return shown[0].trace.start_s.size > MOST_JOBS


def build_page(shown: Sequence[Shown], csv_name: str = "") -> str:
    """The page as text.

    Args:
        shown: One or two episodes of the same instance.
        csv_name: Name of the CSV file beside the page, if there is one.
    """
    data = page_data(shown, csv_name)
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    folder = resources.files("eval") / "page"
    page = (folder / "page.html").read_text("utf-8")
    parts = {
        "style": (folder / "page.css").read_text("utf-8"),
        "script": (folder / "page.js").read_text("utf-8"),
        "title": html.escape(data["title"]),
        "data": text.replace("<", "\\u003c"),  # no name can end the script element
    }
    for part, content in parts.items():
        before, _, after = page.partition(f"<!--{part}-->")
        page = f"{before}{content}{after}"
    return page


def build_csv(shown: Sequence[Shown]) -> str:
    """Every job of every episode, one row each."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    head = "policy,job,name,model,arrival_s,start_s,finish_s,jct_s,gpus,path,iteration_s"
    writer.writerow([*head.split(","), "bytes_per_s", "energy_kwh", "cost_usd"])
    for one in shown:
        trace, instance = one.trace, one.trace.instance
        a, has_started = instance.arrays, one.trace.started
        for j, name in enumerate(instance.job_names):
            times = [trace.start_s[j], trace.finish_s[j], trace.finish_s[j] - a.arrival_s[j]]
            writer.writerow(
                [
                    trace.policy,
                    j,
                    name,
                    instance.profile_names[a.job_profile[j]],
                    a.arrival_s[j],
                    *(times if has_started[j] else ["", "", ""]),
                    int(trace.alloc[j].sum()),
                    instance.where(*trace.placement(j)),
                    trace.iteration_s[j],
                    trace.bytes_per_s[j],
                    trace.energy_kwh[j],
                    trace.cost_usd[j],
                ]
            )
    return buffer.getvalue()


def page_data(shown: Sequence[Shown], csv_name: str = "") -> dict[str, Any]:
    """What the page draws, as plain data."""
    trace = shown[0].trace
    instance = trace.instance
    timelines = [Timeline(one.trace) for one in shown]
    longest = max(timelines, key=lambda timeline: timeline.end_s)
    aggregated = is_aggregated(shown)
    jobs = _jobs_shown(trace) if aggregated else np.arange(instance.n_jobs)
    unit, seconds = time_unit(longest.end_s / 2)
    policies = " against ".join(one.trace.policy for one in shown)
    return {
        "title": f"{instance.scenario}, seed {instance.seed}: {policies}",
        "seed": str(instance.seed),
        "csv": csv_name,
        "n_jobs": instance.n_jobs,
        "aggregated": aggregated,
        "unit": {"name": unit, "seconds": seconds},
        "colours": list(JOB_COLOURS),
        "regions": _regions(longest),
        "links": np.argwhere(instance.arrays.link_bytes_per_s > 0).tolist(),
        "prices": [_steps(longest.price_usd_per_kwh(r)) for r in range(instance.n_regions)],
        "priced": _regions_of_interest(timelines),
        "metrics": [
            {
                "key": key,
                "label": label,
                "unit": unit if name == "time" else name,
                "scale": {"time": seconds, "%": 0.01}.get(name, 1.0),
                "lower": lower,
            }
            for key, label, name, lower in _METRICS
        ],
        "jobs": _jobs(trace, jobs),
        "episodes": [
            _episode(one, timeline, jobs, aggregated=aggregated)
            for one, timeline in zip(shown, timelines, strict=True)
        ],
    }


def _jobs_shown(trace: EpisodeTrace) -> Any:
    """Ids of the jobs of longest JCT, the longest first, which is what did not finish."""
    jct_s = np.nan_to_num(trace.finish_s - trace.instance.arrays.arrival_s, nan=np.inf)
    return np.argsort(-jct_s, kind="stable")[:MOST_ROWS]


def _regions_of_interest(timelines: Sequence[Timeline]) -> list[int]:
    """The regions whose prices are drawn: those that held most GPU-seconds."""
    regions = range(timelines[0].trace.instance.n_regions)
    held = [sum(timeline.busy_gpus(r).integral() for timeline in timelines) for r in regions]
    return sorted(sorted(regions, key=lambda r: -held[r])[:_MOST_PRICES])


def _regions(timeline: Timeline) -> list[dict[str, Any]]:
    instance = timeline.trace.instance
    a = instance.arrays
    place = _layout(a.link_bytes_per_s)
    found = []
    for r, name in enumerate(instance.region_names):
        price = timeline.price_usd_per_kwh(r)
        whole = np.array([0.0, timeline.end_s])
        found.append(
            {
                "name": name,
                "gpus": int(a.gpus[r]),
                "kw_per_gpu": float(a.kw_per_gpu[r]),
                "price_mean": float(price.means(whole)[0]),
                "x": round(float(place[r, 0]), 4),
                "y": round(float(place[r, 1]), 4),
            }
        )
    return found


def _layout(link_bytes_per_s: FloatArray) -> FloatArray:
    """Places of the regions in the unit square, `(R, 2)`: the more bandwidth, the nearer."""
    n = link_bytes_per_s.shape[0]
    graph: Any = networkx.Graph()
    graph.add_nodes_from(range(n))
    both = link_bytes_per_s + link_bytes_per_s.T
    most = float(both.max(initial=0.0)) or 1.0
    for u, v in np.argwhere(np.triu(both) > 0).tolist():
        graph.add_edge(u, v, weight=0.3 + float(both[u, v]) / most)
    found = networkx.spring_layout(graph, seed=4, iterations=200, k=2.5 / np.sqrt(n))
    place = np.array([found[r] for r in range(n)])
    place -= place.min(axis=0)
    spread = place.max(axis=0)
    return np.where(spread > 1e-9, place / np.where(spread > 1e-9, spread, 1.0), 0.5)


def _jobs(trace: EpisodeTrace, jobs: Any) -> dict[str, Any]:
    instance = trace.instance
    a, profiles = instance.arrays, instance.arrays.job_profile[jobs]
    return {
        "id": jobs.tolist(),
        "name": [instance.job_names[j] for j in jobs],
        "model": [instance.profile_names[p] for p in profiles],
        "arrival_s": _rounded(a.arrival_s[jobs]),
        "single_gpu_s": _rounded(instance.single_gpu_s[jobs]),
        "k_star": a.k_star[profiles].tolist(),
    }


def _episode(shown: Shown, timeline: Timeline, jobs: Any, *, aggregated: bool) -> dict[str, Any]:
    trace, regions = shown.trace, range(shown.trace.instance.n_regions)
    metrics = episode_metrics(trace)
    busy = [timeline.busy_gpus(r) for r in regions]
    spend = add_up([timeline.spend_usd_per_h(r) for r in regions])
    span = timeline.end_s or 1.0
    paths = trace.path[trace.started]
    lanes = None if aggregated else timeline.lanes()
    return {
        "policy": trace.policy,
        "end_s": timeline.end_s,
        "metrics": {key: metrics[key] for key, *_ in _METRICS},
        "jobs": _job_results(trace, jobs),
        "lanes": lanes and {key: value.tolist() for key, value in lanes._asdict().items()},
        "busy": [_steps(steps) for steps in busy],
        "busy_mean": [
            steps.integral() / span / int(n)
            for steps, n in zip(busy, trace.instance.arrays.gpus, strict=True)
        ],
        "region_jobs": [int((paths == r).any(axis=1).sum()) for r in regions],
        **_links(timeline),
        "series": {
            "queue": _steps(timeline.queue),
            "running": _steps(timeline.running),
            "busy": _steps(add_up(busy)),
            "alpha": _steps(timeline.alpha),
            "spend": _steps(spend),
            "spent": _slope(spend),
            "power": _steps(add_up([timeline.power_kw(r) for r in regions])),
        },
        "decisions": _decisions(shown),
        "reasons_note": shown.note,
    }


def _job_results(trace: EpisodeTrace, jobs: Any) -> dict[str, Any]:
    placements = [trace.placement(int(j)) for j in jobs]
    return {
        "start_s": _rounded(trace.start_s[jobs]),
        "finish_s": _rounded(trace.finish_s[jobs]),
        "path": [list(path) for path, _ in placements],
        "alloc": [list(gpus) for _, gpus in placements],
        "gpus": [sum(gpus) for _, gpus in placements],
        "iteration_s": _rounded(trace.iteration_s[jobs]),
        "gbps": _rounded(trace.bytes_per_s[jobs] / _GBPS),
        "energy_kwh": _rounded(trace.energy_kwh[jobs]),
        "cost_usd": _rounded(trace.cost_usd[jobs]),
    }


def _links(timeline: Timeline) -> dict[str, Any]:
    """The links that were used, the busiest of them if there are many, by region."""
    a, path = timeline.trace.instance.arrays, timeline.trace.path
    means = {
        link: timeline.link_use(link).integral() / (timeline.end_s or 1.0)
        for link in timeline.link_bytes_per_s
    }
    busiest = sorted(means, key=lambda link: -means[link])[:_MOST_LINKS]
    rows = []
    for u, v in sorted(busiest):
        over = (path[:, :-1] == u) & (path[:, 1:] == v)
        rows.append(
            {
                "from": u,
                "to": v,
                "gbps": float(a.link_bytes_per_s[u, v]) / _GBPS,
                "latency_ms": float(a.link_latency_s[u, v]) * 1000.0,
                "mean": means[u, v],
                "jobs": int(over.any(axis=1).sum()),
                "use": _steps(timeline.link_use((u, v))),
            }
        )
    return {"links": rows, "links_left_out": len(means) - len(rows)}


def _decisions(shown: Shown) -> list[dict[str, Any]]:
    """Those that have reasons; where none has, the first ones."""
    trace, rows = shown.trace, []
    number = len(shown.reasons) or MOST_REASONS
    for k, decision in enumerate(trace.decisions[:number]):
        rows.append(
            {
                "time_s": decision.time_s,
                "job": decision.job,
                "decision_us": decision.decision_ns / 1000.0,
                "text": describe(trace, k),
                "reasons": _reason(shown.reasons[k]) if shown.reasons else None,
            }
        )
    return rows


def _reason(explanation: Explanation) -> dict[str, Any]:
    data = explanation.to_dict()
    for table in data["tables"]:
        rows = [[_short(value) for value in row] for row in table["rows"]]
        table["rows"] = rows[:_MOST_REASON_ROWS]
        table["left_out"] = max(0, len(rows) - _MOST_REASON_ROWS)
    for fact in data["facts"]:
        fact["value"] = _short(fact["value"])
    return data


def _short(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.7g}") if np.isfinite(value) else None


def _rounded(values: FloatArray) -> list[float | None]:
    """Ten digits: a microsecond in an hour, and exact to the eye; None for nan."""
    return [None if np.isnan(value) else float(f"{value:.10g}") for value in values.tolist()]


def _steps(steps: Steps) -> dict[str, Any]:
    """Every step, or means over bins where there are too many to see."""
    times, values = steps.time_s, steps.value
    mean = times.size > _MOST_STEPS
    if mean:
        edges = np.linspace(0.0, steps.end_s, _BINS + 1)
        times, values = edges[:-1], steps.means(edges)
    return {
        "t": _rounded(times),
        "v": [float(f"{value:.7g}") for value in values.tolist()],
        "mean": mean,
        "low": float(values.min()),
        "high": float(values.max()),
    }


def _slope(spend: Steps) -> dict[str, Any]:
    """USD so far, from USD per hour: points with straight lines between them."""
    times = np.append(spend.time_s, spend.end_s)
    if times.size > _MOST_STEPS:
        times = np.linspace(0.0, spend.end_s, _BINS + 1)
    usd = spend.cumulative(times) / 3600.0
    return {
        "t": _rounded(times),
        "v": [float(f"{value:.7g}") for value in usd.tolist()],
        "slope": True,
        "low": float(usd.min()),
        "high": float(usd.max()),
    }
