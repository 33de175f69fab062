"""`python -m train.curves`: what training runs came to and how fast, as docs/learning-curves.md."""

import json
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer

from bace_env.command import run_command
from bace_env.errors import ConfigError
from bace_env.files import require_parent, write_atomically
from eval.report import plot_beside, write_figure
from train.config import TrainConfig, make_config
from train.learner import CURVE, RUN

_MINUTES, _STEPS = "minutes", "steps"
_BACE, _RULE, _GAP = "objective / bace", "objective / best rule", "gap closed"
_EVALUATION = ("evaluation_settings", "evaluation_cost_weights", "evaluation_episodes")
_COLOURS = ("#0072B2", "#D55E00")  # reinforcement alone, warm start

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """Put training runs side by side: learning curves, and when each passed the fixed rules.

\b
Examples:
  python -m train.curves runs/seed0 runs/seed1 runs/warm
  python -m train.curves runs/mine --out mine.md
"""


class Run(NamedTuple):
    """A run directory's record."""

    name: str
    config: TrainConfig
    curve: pd.DataFrame


@app.command(help=_HELP)
def curves(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories.")],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Markdown; the plot goes beside it.")
    ] = Path("docs/learning-curves.md"),
) -> None:
    """Read, write."""
    require_parent("--out", out)
    plot = plot_beside("--out", out)
    found = [read_run(folder) for folder in runs]
    for run in found[1:]:
        for field in _EVALUATION:
            first, other = (getattr(each.config, field) for each in (found[0], run))
            if first != other:
                raise ConfigError(
                    f"{run.name}: {field}: must be as in {found[0].name} to be put beside it"
                )
    write_figure(_figure(found), plot)
    write_atomically(out, document(found, plot.name).encode())
    print(f"Wrote {out} and {plot}")


def read_run(folder: Path) -> Run:
    """What a run has recorded up to its last save.

    Raises:
        ConfigError: It is no run, or has not been evaluated yet.
    """
    try:
        config = json.loads((folder / RUN).read_text(encoding="utf-8"))["config"]
        curve = pd.read_csv(folder / CURVE)
    except OSError as error:
        raise ConfigError(f"{folder}: no run with evaluations: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{folder}: {RUN} or {CURVE} is not what a run writes") from None
    columns = ["seconds", _STEPS, _BACE, _RULE, _GAP]
    if not set(columns) <= set(curve):
        raise ConfigError(f"{folder}: {RUN} or {CURVE} is not what a run writes")
    if curve.empty:
        raise ConfigError(f"{folder}: no run with evaluations: {CURVE} has no row")
    numbers = curve[columns].apply(pd.to_numeric, errors="coerce").to_numpy(float)
    if not np.isfinite(numbers).all():
        raise ConfigError(f"{folder}: {CURVE}: must have finite numbers in {', '.join(columns)}")
    curve[_MINUTES] = curve["seconds"] / 60.0
    return Run(folder.resolve().name, make_config(config), curve)


def document(runs: list[Run], plot: str) -> str:
    """Markdown."""
    first = runs[0].config
    settings = ", ".join(f"`{setting.title}`" for setting in first.evaluation_settings)
    weights = ", ".join(f"{weight:g}" for weight in first.evaluation_cost_weights)
    lines = [
        "# Learning curves\n",
        "Written by `python -m train.curves` from directories of `python -m train.ppo`. A score is "
        f"the geometric mean over {settings} at lambda {weights}, of "
        f"{first.evaluation_episodes} workloads each that no training plays: objective of the "
        "greedy network to that of `bace`, and to that of the best fixed rule in each. The gap is "
        "that from `bace` to the teacher's annealed plans. Minutes are wall time with "
        "demonstrations and evaluations.\n",
        f"![Objective to the best fixed rule over minutes and steps]({plot})\n",
        "| run | seed | warm start | steps | minutes | objective / bace | objective / best rule "
        "| gap closed | passes the best rule after |",
        "|---|--:|---|--:|--:|--:|--:|--:|---|",
    ]
    for run in runs:
        curve = run.curve
        best = curve.iloc[int(curve[_BACE].to_numpy().argmin())]
        below = curve[curve[_RULE] < 1.0]
        passed = "never"
        if len(below):
            row = below.iloc[0]
            passed = f"{row[_MINUTES]:.1f} min, {int(row[_STEPS]):,} steps"
        n = run.config.demonstrations * len(run.config.settings)
        warm = f"{n} schedules" if n else "none"
        last = curve.iloc[-1]
        cells = (
            run.name, run.config.seed, warm, f"{int(last[_STEPS]):,}", f"{last[_MINUTES]:.0f}",
            f"{best[_BACE]:.4f}", f"{best[_RULE]:.4f}", f"{100 * best[_GAP]:.0f} %", passed,
        )  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def _figure(runs: list[Run]) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    least = min(float(run.curve[_RULE].min()) for run in runs)
    most = max(float(run.curve[_RULE].max()) for run in runs)
    for axes, over in zip(figure.subplots(1, 2, sharey=True), (_MINUTES, _STEPS), strict=True):
        unit = 1e6 if over == _STEPS else 1.0
        labels = {}
        for run in runs:
            warm = run.config.demonstrations > 0
            (line,) = axes.plot(
                run.curve[over] / unit,
                run.curve[_RULE],
                color=_COLOURS[warm],
                linewidth=1.2,
                alpha=0.8,
            )
            labels["warm start" if warm else "reinforcement alone"] = line
        labels["best fixed rule"] = axes.axhline(1.0, color="#555555", linestyle="--", linewidth=1)
        axes.set_xlabel("minutes of wall time" if over == _MINUTES else "million steps")
        axes.set_ylim(min(least, 1.0) - 0.03, min(max(most, 1.0) + 0.03, 1.5))
    figure.axes[0].set_ylabel("objective / best fixed rule")
    figure.axes[1].legend(labels.values(), labels.keys(), fontsize=9)
    return figure


def main() -> None:
    """Entry point; see `bace_env.command.run_command`."""
    run_command(app, "python -m train.curves")


if __name__ == "__main__":
    main()
