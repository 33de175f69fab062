"""Pictures of an episode: who held which GPUs when, and how full the links were."""

from itertools import pairwise
from typing import Any

import numpy as np

from bace_env.trace import EpisodeTrace

_MOST_BARS = 2000  # beyond that a bar is thinner than a pixel


def draw_text(trace: EpisodeTrace) -> str:
    """A table of the jobs in text, one line each."""
    names = trace.instance.region_names
    lines = [f"t = {trace.end_s:.0f} s, {int(trace.finished.sum())} of {trace.start_s.size} done"]
    for j, job in enumerate(trace.instance.job_names):
        if not trace.started[j]:
            arrived = trace.instance.arrays.arrival_s[j] <= trace.end_s
            lines.append(f"{job:24s} {'pending' if arrived else 'not arrived'}")
            continue
        path, gpus = trace.placement(j)
        where = " -> ".join(f"{names[r]} x{n}" for r, n in zip(path, gpus, strict=True))
        state = "done" if trace.finished[j] else "runs"
        lines.append(f"{job:24s} {state} {trace.start_s[j]:.0f}-{trace.finish_s[j]:.0f} s  {where}")
    return "\n".join(lines)


def draw_trace(trace: EpisodeTrace) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A Gantt chart by region, bar height = GPUs, and the use of each link below.

    Returns:
        Image of shape `(height, width, 3)`, uint8.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.4), layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    heights = [4, 1.6]
    regions, links = figure.subplots(2, 1, sharex=True, height_ratios=heights)
    unit, label = (3600.0, "h") if trace.end_s >= 7200 else (1.0, "s")
    _draw_regions(trace, regions, unit)
    _draw_links(trace, links, unit)
    links.set_xlabel(f"time ({label})")
    title = f"{trace.instance.scenario}: t = {trace.end_s / unit:.1f} {label}"
    regions.set_title(title, parse_math=False)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _draw_regions(trace: EpisodeTrace, axes: Any, unit: float) -> None:
    from matplotlib import colormaps
    from matplotlib.collections import PolyCollection

    gpus = trace.instance.arrays.gpus
    colours = colormaps["tab20"].colors  # type: ignore[attr-defined]
    corners, shades = [], []
    started = np.flatnonzero(trace.started)[:_MOST_BARS]
    free = [np.zeros(int(n)) for n in gpus]  # per GPU, when it becomes free
    for j in started[np.argsort(trace.start_s[started], kind="stable")]:
        left, right = trace.start_s[j] / unit, trace.finish_s[j] / unit
        path, counts = trace.placement(int(j))
        for r, n in zip(path, counts, strict=True):
            lanes = np.flatnonzero(free[r] <= trace.start_s[j])[:n]
            free[r][lanes] = trace.finish_s[j]
            for low, high in _runs(lanes):
                bottom, top = r + 0.9 * low / gpus[r], r + 0.9 * (high + 1) / gpus[r]
                corners.append([(left, bottom), (left, top), (right, top), (right, bottom)])
                shades.append(colours[j % len(colours)])
        if len(started) <= 40:
            middle = path[int(np.argmax(counts))]
            axes.text((left + right) / 2, middle + 0.45, str(j), ha="center", fontsize=7)
    axes.add_collection(
        PolyCollection(corners, facecolors=shades, edgecolors="white", linewidths=0.3)
    )
    axes.axvline(trace.end_s / unit, color="#333333", linewidth=0.8)
    axes.set_ylim(-0.05, len(gpus))
    axes.set_yticks(np.arange(len(gpus)) + 0.45)
    names = trace.instance.region_names
    labels = [f"{name} ({n})" for name, n in zip(names, gpus, strict=True)]
    axes.set_yticklabels(labels, parse_math=False)
    axes.autoscale_view(scaley=False)


def _runs(lanes: Any) -> list[tuple[int, int]]:
    """Consecutive GPUs as (first, last)."""
    if lanes.size == 0:
        return []
    parts = np.split(lanes, np.flatnonzero(np.diff(lanes) > 1) + 1)
    return [(int(part[0]), int(part[-1])) for part in parts]


def _draw_links(trace: EpisodeTrace, axes: Any, unit: float) -> None:
    a = trace.instance.arrays
    started = np.flatnonzero(trace.started)
    times = np.unique(np.concatenate([trace.start_s[started], trace.finish_s[started], [0.0]]))
    use: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
    for j in started:
        path, _ = trace.placement(int(j))
        running = (times >= trace.start_s[j]) & (times < trace.finish_s[j])
        for u, v in pairwise(path):
            share = trace.bytes_per_s[j] / a.link_bytes_per_s[u, v]
            use[u, v] = use.get((u, v), np.zeros(times.size)) + share * running
    busiest = sorted(use, key=lambda link: -use[link].max())[:8]
    for u, v in busiest:
        names = trace.instance.region_names
        label = f"from {names[u]} to {names[v]}"  # a legend leaves out what begins with "_"
        axes.step(times / unit, use[u, v], where="post", linewidth=1, label=label)
    axes.axvline(trace.end_s / unit, color="#333333", linewidth=0.8)
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("link use")
    if busiest:
        legend = axes.legend(fontsize=6, ncols=2, loc="upper right", frameon=False)
        for text in legend.get_texts():
            text.set_parse_math(False)
