"""`python -m eval.robustness`: does the paper's claim survive late and noisy monitoring?"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bace_env.command import NONE, run_command
from bace_env.config import load_scenario, preset_names
from bace_env.errors import ConfigError
from bace_env.scenario import build_instance, episode_seed
from eval import robustness_report
from eval.command import (
    Check,
    Episodes,
    JsonFile,
    Overrides,
    Workers,
    check_outputs,
    parse_path,
    parse_seed,
    progress_bar,
    write_json,
)
from eval.disturbance import CONDITIONS, POLICIES, Robustness, World, measure

#: What is run unless scenarios are named, as preset and override: the paper's setting as printed,
#: as physics allows it, and with as little bandwidth as in Fig. 5, where bandwidth does bind.
SETTINGS = (("paper", ()), ("physical", ()), ("paper", ("scale.bandwidth=0.3",)))

_HELP = f"""Does the paper's claim survive monitoring that is late and noisy?

The claim: {robustness_report.CLAIM_TEXT} against every baseline.

What is seen: {"; ".join(condition.name for condition in CONDITIONS)}.

Scenarios: {", ".join(preset_names())}; or your own as file.toml. Without any: paper, physical, and
paper with 0.3 times the bandwidth.

\b
Examples:
  python -m eval.robustness
  python -m eval.robustness --scenario paper --set scale.bandwidth=0.3
  python -m eval.robustness --scenario my.toml --episodes 300 --workers 2
  python -m eval.robustness --out runs/robustness --check

One disturbed policy alone: eval.compare --policy
eval.monitoring:Monitored:noise=0.3,delay=0.02:bace
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(help=_HELP)
def robustness(
    scenario: Annotated[
        list[str],
        typer.Option(metavar="NAME|FILE", help="Preset or TOML file; repeat for several."),
    ] = NONE,
    episodes: Episodes = 100,
    seed: Annotated[
        int,
        typer.Option(
            parser=parse_seed,
            metavar="S",
            help="Seed of workloads, errors of measurement and price series.",
        ),
    ] = 0,
    set_: Overrides = NONE,
    workers: Workers = 1,
    json_: JsonFile = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="DIR",
            help="Write report, CSV, JSON and plot to a new folder.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path, metavar="FILE", help="Gains with intervals: .png, .pdf or .svg."
        ),
    ] = None,
    check: Check = False,
) -> None:
    """Parse, check everything that can be checked, run, report."""
    settings = [(source, ()) for source in dict.fromkeys(scenario)] or SETTINGS
    worlds = [_load(source, (*set_, *overrides)) for source, overrides in settings]
    _check_names(worlds)
    check_outputs(json_, out, plot)
    for world in worlds:
        build_instance(world.scenario, episode_seed(seed, 0))  # refuses what no cluster could host
    results = _run(worlds, seed, episodes, workers, check)
    if json_ is not None:
        write_json(json_, robustness_report.to_json(results))
    if out is not None:
        robustness_report.save_run(results, out)
    if plot is not None:
        robustness_report.save_plot(results, plot)
    console = Console(stderr=json_ == "-", markup=False, emoji=False)
    robustness_report.print_report(results, console)
    if check:
        n = len(results) * len(CONDITIONS) * len(POLICIES) * episodes
        console.print(f"Checked: {n} schedules re-derived, no contradiction.", highlight=False)


def _load(source: str, overrides: tuple[str, ...]) -> World:
    return World(load_scenario(source, overrides), overrides)


def _check_names(worlds: Sequence[World]) -> None:
    titles = [world.title for world in worlds]
    for title in titles:
        if titles.count(title) > 1:
            raise ConfigError(f"--scenario: names must differ in reports, got {title!r} twice")


def _run(
    worlds: Sequence[World], seed: int, episodes: int, workers: int, check: bool
) -> list[Robustness]:
    results = []
    with progress_bar() as progress:
        tasks = [progress.add_task(world.title, total=2 * episodes) for world in worlds]
        for world, task in zip(worlds, tasks, strict=True):
            on_seed = partial(progress.advance, task)
            results.append(
                measure(
                    world,
                    seed=seed,
                    episodes=episodes,
                    workers=workers,
                    check=check,
                    on_seed=on_seed,
                )
            )
    return results


def main() -> None:
    """Entry point; see `bace_env.command.run_command`."""
    run_command(app, "python -m eval.robustness")


if __name__ == "__main__":
    main()
