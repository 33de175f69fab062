"""`python -m eval.tradeoff`: average JCT against cost, and who is on the Pareto front."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from agents.policy import make_policy
from bace_env.command import NONE, run_command
from bace_env.config import load_scenario
from bace_env.errors import ConfigError
from bace_env.types import BoolArray, FloatArray
from eval import report
from eval.command import (
    Episodes,
    Overrides,
    ScenarioName,
    Seed,
    Workers,
    check_outputs,
    parse_path,
    run_with_bar,
)
from eval.compare import BASELINES
from eval.experiment import Comparison, Request

#: Weights of the cost that are swept, from time alone to money above all.
_LAMBDAS = [0.0, 0.1, 0.3, 1.0, 3.0]
_SWEEP = ["search"]

_HELP = """Average JCT against electricity cost: every policy a point, the Pareto front drawn.

A policy that takes `lambda` (the weight of the cost) becomes a curve: name it in --sweep.

\b
Examples:
  python -m eval.tradeoff --plot front.png
  python -m eval.tradeoff --scenario physical --sweep search --lambda 0 --lambda 0.3 --lambda 3
  python -m eval.tradeoff --policy my.py:Mine --episodes 30
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def pareto_front(points: FloatArray) -> BoolArray:
    """Which points no other one beats in one coordinate without losing in the other, `(n,)`.

    Args:
        points: `(n, 2)`, both to be small. Of equal points all are on the front, or none.
    """
    no_worse = (points[:, None, :] <= points[None, :, :]).all(axis=2)
    better = (points[:, None, :] < points[None, :, :]).any(axis=2)
    return np.asarray(~(no_worse & better).any(axis=0))


def hypervolume(points: FloatArray, corner: tuple[float, float]) -> float:
    """Area between the front of the points `(n, 2)` and a corner that is worse in both."""
    area, above = 0.0, corner[1]
    for x, y in sorted(map(tuple, points[pareto_front(points)].tolist())):
        if x < corner[0] and y < above:
            area += (corner[0] - x) * (above - y)
            above = y
    return area


@app.command(help=_HELP)
def tradeoff(
    policy: Annotated[
        list[str], typer.Option(metavar="NAME", help="Policy beside the built-in ones; repeatable.")
    ] = NONE,
    sweep: Annotated[
        list[str], typer.Option(metavar="NAME", help="Policy with a lambda; repeatable.")
    ] = _SWEEP,
    lambda_: Annotated[
        list[float],
        typer.Option("--lambda", metavar="X", min=0.0, help="Weight of the cost; repeatable."),
    ] = _LAMBDAS,
    scenario: ScenarioName = "paper",
    episodes: Episodes = 50,
    seed: Seed = 0,
    set_: Overrides = NONE,
    workers: Workers = 1,
    plot: Annotated[
        Path | None,
        typer.Option(parser=parse_path, metavar="FILE", help="The picture: .png, .pdf or .svg."),
    ] = None,
) -> None:
    """Parse, run, report."""
    check_outputs(None, None, plot)
    curves = {
        name: [f"{name}{',' if ':' in name else ':'}lambda={weight:g}" for weight in lambda_]
        for name in dict.fromkeys(sweep)
    }
    swept = [spec for specs in curves.values() for spec in specs]
    specs = tuple(dict.fromkeys([*BASELINES, *policy, *swept]))
    names = {spec: make_policy(spec).name for spec in specs}
    loaded = load_scenario(scenario, set_)
    request = Request(loaded, specs, tuple(set_))
    comparison = run_with_bar(request, seed, episodes, workers)
    points = typical_points(comparison)
    console = Console(markup=False, emoji=False)
    console.print(_table(comparison, points))
    corner = (float(points[:, 0].max()), float(points[:, 1].max()))
    fixed = [i for i, spec in enumerate(specs) if spec not in swept]
    area = hypervolume(points[fixed], corner)
    text = f"Hypervolume below {corner[0]:.2f} x {corner[1]:.2f}: fixed policies {area:.3f}"
    for name, of_curve in curves.items():
        chosen = [i for i, spec in enumerate(specs) if spec in of_curve]
        text += f"; {name} {hypervolume(points[chosen], corner):.3f}"
    console.print(f"{text}.", highlight=False)
    if plot is not None:
        shown = {name: [names[spec] for spec in of_curve] for name, of_curve in curves.items()}
        save_tradeoff(comparison, points, shown, plot)


def typical_points(comparison: Comparison) -> FloatArray:
    """JCT and cost ratio of each policy on a typical workload, `(policies, 2)`.

    Raises:
        ConfigError: A ratio does not exist, as where a cost is not positive.
    """
    columns = []
    for ratio in ("typical_jct_ratio", "typical_cost_ratio"):
        means = [estimate.mean for estimate in comparison.estimates[ratio]]
        if any(mean is None for mean in means):
            raise ConfigError(
                f"{comparison.request.title}: has no {ratio}: a value is not positive"
            )
        columns.append(means)
    return np.array(columns, dtype=np.float64).T


def _table(comparison: Comparison, points: FloatArray) -> Table:
    n, front = len(comparison.seeds), pareto_front(points)
    table = Table(
        title=f"{comparison.request.title}: {n} workloads; {comparison.names[0]} = 1",
        title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False,
    )  # fmt: skip
    for heading in ("policy", "JCT ratio", "cost ratio", "on the front"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    estimates = comparison.estimates
    for i in np.argsort(points[:, 0], kind="stable").tolist():
        cells = [
            report.with_interval(estimates[ratio][i], few=n < 10)
            for ratio in ("typical_jct_ratio", "typical_cost_ratio")
        ]
        table.add_row(comparison.names[i], *cells, "yes" if front[i] else "")
    return table


def save_tradeoff(
    comparison: Comparison, points: FloatArray, curves: dict[str, list[str]], path: Path
) -> None:
    """Draw the points, the curves of swept policies and the front."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names, front = list(comparison.names), pareto_front(points)
    x, y = points[front][np.argsort(points[front][:, 0])].T
    axes.step(x, y, where="post", color="#999999", linewidth=1.0, label="Pareto front", zorder=1)
    on_curve: set[int] = set()
    for colour, (name, of_curve) in zip(_COLOURS, curves.items(), strict=False):
        at = [names.index(one) for one in of_curve]
        on_curve |= set(at)
        axes.plot(*points[at].T, "o-", color=colour, label=f"{name}, lambda swept", zorder=3)
        for i in at:
            _annotate(axes, names[i].rpartition("lambda=")[2], points[i], colour)
    rest = [i for i in range(len(names)) if i not in on_curve]
    axes.plot(*points[rest].T, "s", color="#444444", markersize=5, linestyle="none", zorder=2)
    for group in _groups(points, rest):
        _annotate(axes, ", ".join(names[i] for i in group), points[group[0]], "#222222")
    axes.set_xlabel(f"average JCT relative to {names[0]}", parse_math=False)
    axes.set_ylabel(f"electricity cost relative to {names[0]}", parse_math=False)
    title = f"{comparison.request.title}: {len(comparison.seeds)} workloads"
    axes.set_title(title, parse_math=False)
    axes.margins(0.12)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    report.write_figure(figure, path)


_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


def _annotate(axes: Any, text: str, point: FloatArray, colour: str) -> None:
    axes.annotate(
        text, point, xytext=(5, 4), textcoords="offset points", fontsize=8, color=colour,
        parse_math=False,
    )  # fmt: skip


def _groups(points: FloatArray, chosen: Sequence[int]) -> list[list[int]]:
    """Points so near one another that they share a label; the first of each bears it."""
    span = np.maximum(np.ptp(points, axis=0), 1e-9)
    groups: list[list[int]] = []
    for i in chosen:
        for group in groups:
            distance = np.abs(points[group[0]] - points[i]) / span
            if distance[0] < 0.12 and distance[1] < 0.035:
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def main() -> None:
    """Entry point; see `bace_env.command.run_command`."""
    run_command(app, "python -m eval.tradeoff")


if __name__ == "__main__":
    main()
