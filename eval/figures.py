"""Plots in the shape of the paper's Figs. 4-8, ours with intervals, the paper's values marked.

One picture per figure, with a panel (Figs. 4 and 8) or a row of panels (Figs. 5-7) per scenario.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from eval.claims import ABLATIONS, BASELINES, CLAIMS, FIGURES, REFERENCE, Metric
from eval.effects import Effect
from eval.report import write_figure
from eval.reproduction import Reproduction
from eval.statistics import Estimate

_LABELS: dict[str, str] = {
    "bace": "BACE-Pipe",
    "ldf": "LDF",
    "lcf": "LCF",
    "cr-lcf": "CR-LCF",
    "cr-ldf": "CR-LDF",
    "bace-no-priority": "w/o Priority",
    "bace-no-pathfinder": "w/o Pathfinder",
    "bace-no-cost-min": "w/o Cost-Min",
}
# Okabe and Ito's colours, told apart by people with any colour vision.
_POLICY_COLOURS = {
    "bace": "#444444",
    "ldf": "#0072B2",
    "lcf": "#56B4E9",
    "cr-lcf": "#E69F00",
    "cr-ldf": "#D55E00",
}
_METRIC_COLOURS: dict[Metric, str] = {"jct": "#0072B2", "cost": "#E69F00"}
_RANGE_COLOURS: dict[Metric, str] = {"jct": "#003A5C", "cost": "#7A5200"}  # darker, over bars
_METRIC_LABELS: dict[Metric, str] = {"jct": "average JCT", "cost": "total cost"}
_AXIS = {
    "5": ("bandwidth", "bandwidth scale"),
    "6": ("gpus", "GPU capacity scale"),
    "7": ("jobs", "number of jobs"),
}
_DPI = 110


def save_figures(found: Sequence[Reproduction], figures: Sequence[str], folder: Path) -> list[Path]:
    """Draw every figure of 4-8 that is asked for; the files are `figN.png`."""
    paths = []
    for figure in figures:
        if figure not in FIGURES:
            continue
        path = folder / f"fig{figure}.png"
        drawing = _by_policy(found, figure) if figure in ("4", "8") else _by_setting(found, figure)
        write_figure(drawing, path, dpi=_DPI)
        paths.append(path)
    return paths


def _by_policy(found: Sequence[Reproduction], figure: str) -> Figure:
    """Figs. 4 and 8: one group of bars per policy, average JCT beside total cost."""
    policies = (REFERENCE, *(BASELINES if figure == "4" else ABLATIONS))
    drawing, panels = _grid(1, len(found), (4.1 * len(found) + 0.4, 3.9), by_column=False)
    for axes, reproduction in zip(panels[0], found, strict=True):
        run = reproduction.runs["default"]
        for side, metric in enumerate(_METRIC_COLOURS):
            bars = run.bars(metric)
            position = np.arange(len(policies)) + (side - 0.5) * 0.38
            _bars(axes, position, 0.38, [bars[p] for p in policies], _METRIC_COLOURS[metric])
            for at, policy in zip(position.tolist(), policies, strict=True):
                _mark(axes, at, figure, "default", metric, policy)
            middle, dark = len(policies) / 2, _RANGE_COLOURS[metric]
            _mark_range(axes, middle, len(policies) - 1.1, figure, "default", metric, dark)
        names = [_LABELS[policy].replace(" ", "\n") for policy in policies]
        axes.set_xticks(range(len(policies)), names)
        axes.set_title(f"scenario {reproduction.scenario.name}", parse_math=False)
    panels[0][0].set_ylabel("relative to BACE-Pipe")
    handles: list[Patch | Line2D] = [
        Patch(color=colour, label=_METRIC_LABELS[metric])
        for metric, colour in _METRIC_COLOURS.items()
    ]
    _legend(drawing, handles, with_range=figure == "4")
    return drawing


def _by_setting(found: Sequence[Reproduction], figure: str) -> Figure:
    """Figs. 5-7: one group of bars per setting; (a) average JCT and (b) total cost."""
    what, label = _AXIS[figure]
    policies = (REFERENCE, *BASELINES)
    settings = FIGURES[figure]
    drawing, panels = _grid(len(found), 2, (8.6, 3.1 * len(found) + 0.5), by_column=True)
    width = 0.8 / len(policies)
    for row, reproduction in zip(panels, found, strict=True):
        for axes, metric in zip(row, _METRIC_COLOURS, strict=True):
            for s, setting in enumerate(settings):
                bars = reproduction.runs[setting].bars(metric)
                for i, policy in enumerate(policies):
                    at = s + (i - (len(policies) - 1) / 2) * width
                    colour = _POLICY_COLOURS[policy]
                    _bars(axes, np.array([at]), width, [bars[policy]], colour)
                    _mark(axes, at, figure, setting, metric, policy)
                _mark_range(axes, s, 0.8, figure, setting, metric, "black")
            ticks = ["8" if name == "default" else name.split()[1] for name in settings]
            if what != "jobs":
                ticks = [f"{tick}\N{MULTIPLICATION SIGN}" for tick in ticks]
            axes.set_xticks(range(len(settings)), ticks)
            title = f"{_METRIC_LABELS[metric]}, scenario {reproduction.scenario.name}"
            axes.set_title(title, parse_math=False)
        row[0].set_ylabel("relative to BACE-Pipe")
    for axes in panels[-1]:
        axes.set_xlabel(label)
    _legend(drawing, [Patch(color=_POLICY_COLOURS[p], label=_LABELS[p]) for p in policies])
    return drawing


def _grid(
    rows: int, columns: int, size: tuple[float, float], *, by_column: bool
) -> tuple[Figure, list[list[Axes]]]:
    drawing = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(drawing)
    # Panels of one metric have one scale, so that scenarios compare.
    share: Literal["row", "col"] = "col" if by_column else "row"
    panels = drawing.subplots(rows, columns, squeeze=False, sharey=share).tolist()
    for axes in (axes for row in panels for axes in row):
        axes.axhline(1.0, color="#444444", linewidth=0.8, linestyle="--", zorder=1)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(y=0.08)
    return drawing, panels


def _bars(
    axes: Axes, position: np.ndarray, width: float, values: Sequence[Estimate], colour: str
) -> None:
    mean = np.array([np.nan if v.mean is None else v.mean for v in values])
    low = np.array([np.nan if v.low is None else v.low for v in values])
    high = np.array([np.nan if v.high is None else v.high for v in values])
    axes.bar(
        position,
        mean,
        width * 0.92,
        color=colour,
        yerr=np.maximum([mean - low, high - mean], 0.0),  # rounding may make them negative
        error_kw={"elinewidth": 1, "capsize": 1.5, "ecolor": "#000000"},
    )


def _mark(axes: Axes, at: float, figure: str, setting: str, metric: Metric, policy: str) -> None:
    """The paper's value of this bar, where its text states one."""
    for claim in CLAIMS:
        place = (claim.figure, claim.setting, claim.metric, claim.kind)
        if claim.value is None or claim.pairs != ((policy, REFERENCE),):
            continue
        if place == (figure, setting, metric, "ratio"):
            axes.plot(
                [at],
                [claim.value],
                marker="D",
                markersize=5.5,
                color="white",
                markeredgecolor="black",
                zorder=5,
            )


def _mark_range(
    axes: Axes, at: float, width: float, figure: str, setting: str, metric: Metric, colour: str
) -> None:
    """The least and the most of the paper's baselines, whichever they are."""
    for claim in CLAIMS:
        if (claim.figure, claim.setting, claim.metric) != (figure, setting, metric):
            continue
        if claim.kind in ("least", "most") and claim.value is not None:
            axes.hlines(
                claim.value,
                at - width / 2,
                at + width / 2,
                color=colour,
                linewidth=1.3,
                linestyle=(0, (3, 1.5)),
                zorder=4,
            )


def _legend(drawing: Figure, handles: Sequence[Patch | Line2D], *, with_range: bool = True) -> None:
    marks = [
        Line2D(
            [],
            [],
            marker="D",
            linestyle="",
            markersize=5.5,
            color="white",
            markeredgecolor="black",
            label="the paper's value",
        ),
        Line2D(
            [],
            [],
            color="black",
            linewidth=1.3,
            linestyle=(0, (3, 1.5)),
            label="its range of baselines",
        ),
    ]
    drawing.legend(
        handles=[*handles, *(marks if with_range else marks[:1])],
        loc="outside upper center",
        ncols=4 if drawing.get_figwidth() > 6 else 2,
        frameon=False,
        columnspacing=1.2,
        handletextpad=0.5,
    )


def save_effects(effects: Sequence[Effect], overall: Mapping[Metric, float], path: Path) -> None:
    """Mean score of the random settings at each level of each assumption, JCT and cost apart."""
    rows = sum(len(effect.levels) + 1 for effect in effects)
    drawing = Figure(figsize=(8.2, 0.185 * rows + 1.0), layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.add_subplot()
    ticks, names = [], []
    y = 0.0
    for effect in effects:
        axes.axhspan(y - 0.5, y + 0.5, color="#eeeeee", zorder=0)
        ticks.append(y)
        names.append(f"{effect.assumption} ({100 * effect.share:.0f} %)")
        for level, jct, cost in zip(effect.levels, effect.jct, effect.cost, strict=True):
            y += 1.0
            ticks.append(y)
            names.append(level)
            axes.plot([jct], [y], "o", color=_METRIC_COLOURS["jct"], markersize=5.5)
            axes.plot([cost], [y], "s", color=_METRIC_COLOURS["cost"], markersize=5.5)
        y += 1.0
    for metric, mean in overall.items():
        axes.axvline(mean, color=_METRIC_COLOURS[metric], linewidth=0.9, linestyle="--", zorder=1)
    axes.set_yticks(ticks, names, fontsize=9, parse_math=False)
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        if name.endswith(" %)"):
            label.set_fontweight("bold")
    axes.set_ylim(y - 0.2, -0.8)
    axes.set_xlim(left=0.0)
    axes.set_xlabel("mean squared log ratio to the paper's numbers (0: as printed)")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    handles = [
        Line2D([], [], marker=marker, linestyle="", color=colour, label=_METRIC_LABELS[metric])
        for (metric, colour), marker in zip(_METRIC_COLOURS.items(), "os", strict=True)
    ]
    handles.append(Line2D([], [], color="#777777", linestyle="--", label="all random settings"))
    drawing.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
    write_figure(drawing, path, dpi=_DPI)
