"""Pictures of episodes: who held which GPUs when, and how full the links were."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bace_env.timeline import Timeline
from bace_env.trace import EpisodeTrace

#: Colours of the jobs, in turn, told apart by the colour-blind too (after Paul Tol).
JOB_COLOURS = (
    "#4477AA",
    "#EE8866",
    "#228833",
    "#CCBB44",
    "#66CCEE",
    "#AA3377",
    "#EE6677",
    "#44BB99",
    "#999933",
)
_MOST_JOBS = 2000  # beyond that a bar is thinner than a pixel
_BINS = 1000
_LEAST_SHARE = 0.02  # of the width, for a bar to be labelled
_MOST_LINKS = 8


def draw_text(trace: EpisodeTrace) -> str:
    """A table of the jobs in text, one line each."""
    lines = [f"t = {trace.end_s:.0f} s, {int(trace.finished.sum())} of {trace.start_s.size} done"]
    for j, job in enumerate(trace.instance.job_names):
        if not trace.started[j]:
            arrived = trace.instance.arrays.arrival_s[j] <= trace.end_s
            lines.append(f"{job:24s} {'pending' if arrived else 'not arrived'}")
            continue
        where = trace.instance.where(*trace.placement(j))
        state = "done" if trace.finished[j] else "runs"
        lines.append(f"{job:24s} {state} {trace.start_s[j]:.0f}-{trace.finish_s[j]:.0f} s  {where}")
    return "\n".join(lines)


def draw_trace(trace: EpisodeTrace) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """`draw_figure` of one episode as an image of shape `(height, width, 3)`, uint8."""
    figure = draw_figure([trace])
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[:, :, :3].copy()


def draw_figure(traces: Sequence[EpisodeTrace]) -> Any:
    """Per episode a Gantt chart by region, bar height = GPUs, and the use of its links below.

    Episodes share the axis of time. Of more than 2,000 jobs the busy GPUs of each region are drawn.

    Returns:
        A matplotlib figure on an Agg canvas.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    n = len(traces)
    figure = Figure(figsize=(10, 6.4 if n == 1 else 5.2 * n), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(2 * n, 1, sharex=True, height_ratios=[4, 1.6] * n)
    timelines = [Timeline(trace) for trace in traces]
    last_s = max(timeline.end_s for timeline in timelines)
    unit, label = (3600.0, "h") if last_s >= 7200 else (1.0, "s")
    for timeline, regions, links in zip(timelines, rows[::2], rows[1::2], strict=True):
        trace = timeline.trace
        if trace.start_s.size <= _MOST_JOBS:
            _draw_jobs(timeline, regions, unit)
        else:
            _draw_busy(timeline, regions, unit)
        _draw_links(timeline, links, unit)
        _name_regions(trace, regions)
        who = f", {trace.policy}" if trace.policy else ""
        title = f"{trace.instance.scenario}{who}: t = {trace.end_s / unit:.1f} {label}"
        regions.set_title(title, parse_math=False)
        for axes in (regions, links):
            axes.axvline(trace.end_s / unit, color="#333333", linewidth=0.8)
    rows[0].set_xlim(0, last_s / unit if last_s > 0 else 1.0)
    rows[0].margins(x=0)
    rows[-1].set_xlabel(f"time ({label})")
    return figure


def _name_regions(trace: EpisodeTrace, axes: Any) -> None:
    gpus = trace.instance.arrays.gpus
    axes.set_ylim(len(gpus), -0.05)
    axes.set_yticks(np.arange(len(gpus)) + 0.45)
    names = trace.instance.region_names
    labels = [f"{name} ({n})" for name, n in zip(names, gpus, strict=True)]
    axes.set_yticklabels(labels, parse_math=False)


def _draw_jobs(timeline: Timeline, axes: Any, unit: float) -> None:
    from matplotlib.collections import PolyCollection

    trace, gpus = timeline.trace, timeline.trace.instance.arrays.gpus
    corners, shades = [], []
    for j, r, first, count in zip(*timeline.lanes(), strict=True):
        left, right = trace.start_s[j] / unit, trace.finish_s[j] / unit
        bottom, top = r + 0.9 * first / gpus[r], r + 0.9 * (first + count) / gpus[r]
        corners.append([(left, bottom), (left, top), (right, top), (right, bottom)])
        shades.append(JOB_COLOURS[j % len(JOB_COLOURS)])
    axes.add_collection(
        PolyCollection(corners, facecolors=shades, edgecolors="white", linewidths=0.3)
    )
    wide = np.flatnonzero(trace.finish_s - trace.start_s > _LEAST_SHARE * timeline.end_s)
    for j in wide.tolist():
        path, counts = trace.placement(j)
        middle = path[int(np.argmax(counts))]
        centre = (trace.start_s[j] + trace.finish_s[j]) / 2 / unit
        axes.text(centre, middle + 0.45, str(j), ha="center", va="center", fontsize=7)


def _draw_busy(timeline: Timeline, axes: Any, unit: float) -> None:
    edges = np.linspace(0.0, timeline.end_s, _BINS + 1)
    for r, n in enumerate(timeline.trace.instance.arrays.gpus):
        share = timeline.busy_gpus(r).means(edges) / n
        axes.stairs(r + 0.9 * share, edges / unit, baseline=r, fill=True, color=JOB_COLOURS[0])


def _draw_links(timeline: Timeline, axes: Any, unit: float) -> None:
    uses = {link: timeline.link_use(link) for link in timeline.link_bytes_per_s}
    busiest = sorted(uses, key=lambda link: -uses[link].value.max())[:_MOST_LINKS]
    names = timeline.trace.instance.region_names
    for i, (u, v) in enumerate(busiest):
        use = uses[u, v]
        if use.time_s.size > 2 * _BINS:
            edges = np.linspace(0.0, timeline.end_s, _BINS + 1)
            times, values = edges, np.append(use.means(edges), 0.0)
        else:
            times, values = np.append(use.time_s, use.end_s), np.append(use.value, use.value[-1])
        label = f"from {names[u]} to {names[v]}"  # a legend leaves out what begins with "_"
        colour = JOB_COLOURS[i % len(JOB_COLOURS)]
        axes.step(times / unit, values, where="post", linewidth=1, label=label, color=colour)
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("link use")
    if busiest:
        legend = axes.legend(fontsize=6, ncols=2, loc="upper right", edgecolor="none")
        for text in legend.get_texts():
            text.set_parse_math(False)
    else:
        axes.text(0.5, 0.5, "no link is used", ha="center", va="center", transform=axes.transAxes)
