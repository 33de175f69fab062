"""`python -m eval.paper`: the paper's figures, ours beside its own, and a verdict per claim."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bace_env.command import NONE, integer, run_command
from bace_env.errors import ConfigError
from bace_env.schema import nearest
from eval.assumption_search import Plan, run_search
from eval.claims import FIGURES
from eval.command import Workers, parse_path, progress_bar
from eval.report import fresh_folder, require_fresh
from eval.reproduction import Fig1Row, Reproduction, run_fig1, run_scenarios, settings_of

SCENARIOS = ("paper", "paper-fitted")
_FIGURES = ("1", *FIGURES)
_STATE = "search.json"
_STARTS = 6

_HELP = """Reproduce the paper's evaluation, claim by claim, or search over what it leaves open.

Runs the settings of Figs. 4-8 for BACE-Pipe, its baselines and ablations on the same workloads, and
Fig. 1, and puts ours beside the paper's. Two scenarios: paper (assumptions that were chosen first)
and paper-fitted (those that come nearest to the paper's numbers).

\b
Examples:
  python -m eval.paper
  python -m eval.paper --figure 4 --figure 8 --episodes 20
  python -m eval.paper --out runs/paper --workers 2
  python -m eval.paper --assumptions --out runs/assumptions --workers 2
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(help=_HELP)
def paper(
    figure: Annotated[
        list[str],
        typer.Option(metavar="1|4|5|6|7|8|all", help="Figure; repeat for several.  [default: all]"),
    ] = NONE,
    scenario: Annotated[
        list[str],
        typer.Option(
            metavar="NAME|FILE", help="Scenario; repeatable.  [default: paper, paper-fitted]"
        ),
    ] = NONE,
    episodes: Annotated[
        int | None,
        typer.Option(
            parser=integer(1, 10**6), metavar="N", help="Workloads per setting.  [default: 100]"
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(parser=integer(0, 2**53 - 3), metavar="S", help="Seed of the run.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="DIR",
            help="Write report, plots and CSV to a new folder; with --assumptions the folder of "
            "the search, which goes on where it was interrupted.",
        ),
    ] = None,
    workers: Workers = 1,
    search: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="FILE",
            help="summary.json of a search, for what the report depends on.",
        ),
    ] = None,
    assumptions: Annotated[
        bool, typer.Option("--assumptions", help="Search over what the paper leaves open.")
    ] = False,
    settings: Annotated[
        int | None,
        typer.Option(
            parser=integer(2, 10**6),
            metavar="N",
            help="Random settings of the search.  [default: 2000]",
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            parser=integer(1, 10**4),
            metavar="N",
            help="Workloads per setting of the search.  [default: 12]",
        ),
    ] = None,
) -> None:
    """Parse, check everything that can be checked, run, report."""
    if assumptions:
        _refuse(
            "goes without --assumptions",
            {
                "--figure": figure,
                "--scenario": scenario,
                "--episodes": episodes,
                "--search": search,
            },
        )
        plan = Plan(seed, settings or 2000, draws or 12, _STARTS)
        _search(plan, out or Path("runs/assumptions"), workers)
        return
    _refuse("goes with --assumptions", {"--settings": settings, "--draws": draws})
    figures = _chosen_figures(figure)
    _reproduce(
        figures, scenario or list(SCENARIOS), episodes or 100, seed, out, workers, _summary(search)
    )


def _refuse(rule: str, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value:
            raise ConfigError(f"{name}: {rule}")


def _chosen_figures(given: Sequence[str]) -> list[str]:
    known = (*_FIGURES, "all")
    for figure in given:
        if figure not in known:
            raise ConfigError(f"--figure: unknown figure {figure!r}; {nearest(figure, known)}")
    if not given or "all" in given:
        return list(_FIGURES)
    return [figure for figure in _FIGURES if figure in given]


def _summary(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        data = json.loads(path.read_text("utf-8"))
        if (
            isinstance(data, dict)
            and {"effects", "random", "changes", "paper_score", "best_score"} <= data.keys()
        ):
            return data
    except OSError as error:
        raise ConfigError(f"--search {path}: cannot read: {error.strerror}") from None
    except ValueError:
        pass
    raise ConfigError(f"--search {path}: is not the summary.json of a search")


def _reproduce(
    figures: list[str],
    scenarios: list[str],
    episodes: int,
    seed: int,
    out: Path | None,
    workers: int,
    search: dict[str, Any] | None,
) -> None:
    from eval.paper_report import print_tables

    if out is not None:
        require_fresh("--out", out)
    names = list(dict.fromkeys(scenarios))
    with progress_bar() as progress:
        total = len(names) * len(settings_of(figures))
        task = progress.add_task("settings (compiles once)", total=total)
        found = run_scenarios(
            names,
            figures,
            seed=seed,
            episodes=episodes,
            workers=workers,
            on_setting=lambda: progress.update(task, advance=1, description="settings"),
        )
        fig1 = run_fig1() if "1" in figures else []
    if out is not None:
        with fresh_folder("--out", out) as folder:
            _write(found, fig1, figures, seed, episodes, search, folder)
    print_tables(found, fig1, Console(markup=False, emoji=False))


def _write(
    found: list[Reproduction],
    fig1: list[Fig1Row],
    figures: list[str],
    seed: int,
    episodes: int,
    search: dict[str, Any] | None,
    folder: Path,
) -> None:
    from eval.figures import save_figures
    from eval.paper_markdown import FOLDER, markdown
    from eval.paper_report import claims_csv, values_csv

    beside = folder / FOLDER
    beside.mkdir()
    save_figures(found, figures, beside)
    (beside / "claims.csv").write_text(claims_csv(found), "utf-8")
    (folder / "values.csv").write_text(values_csv(found), "utf-8")
    text = markdown(found, fig1, figures, seed=seed, episodes=episodes, search=search)
    (folder / "reproduction.md").write_text(text, "utf-8")


def _search(plan: Plan, folder: Path, workers: int) -> None:
    from eval.assumption_report import save_search

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot make it: {error.strerror}") from None
    foreign = sorted(path.name for path in folder.iterdir() if not (folder / _STATE).exists())
    if foreign:
        raise ConfigError(f"--out {folder}: holds {foreign[0]}, but no search to go on with")
    with progress_bar() as progress:
        task = progress.add_task("settings (compiles once)", total=plan.settings)

        def on_progress(stage: str, done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, description=stage)

        outcome = run_search(plan, folder / _STATE, workers=workers, on_progress=on_progress)
    save_search(outcome, folder)
    Console(markup=False, emoji=False).print(
        f"Best of {outcome.met} settings: score "
        f"{outcome.best.score:.4f}; that of paper: {outcome.paper.score:.4f}. "
        f"Report: {folder / 'assumptions.md'}",
        highlight=False,
    )


def main() -> None:
    """Entry point."""
    run_command(app, "python -m eval.paper")


if __name__ == "__main__":
    main()
