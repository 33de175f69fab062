"""`python -m eval.robustness`: does the paper's claim survive late and noisy monitoring?"""

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bace_env.command import integer, run_command
from bace_env.config import load_scenario, preset_names
from bace_env.errors import ConfigError
from bace_env.files import write_atomically
from bace_env.scenario import build_instance, episode_seed
from eval import robustness_report
from eval.command import check_outputs, progress_bar
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
    ] = [],  # noqa: B006
    episodes: Annotated[
        int, typer.Option(parser=integer(1, 10**6), metavar="N", help="Workloads drawn.")
    ] = 100,
    seed: Annotated[
        int,
        typer.Option(
            parser=integer(0, 2**53 - 1),
            metavar="S",
            help="Seed of workloads, errors of measurement and price series.",
        ),
    ] = 0,
    set_: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario field; repeatable."),
    ] = [],  # noqa: B006
    workers: Annotated[
        int, typer.Option(parser=integer(1, 1000), metavar="N", help="Processes.")
    ] = 1,
    json_: Annotated[
        str | None, typer.Option("--json", metavar="FILE|-", help="Write the results as JSON.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write report, CSV, JSON and plot to a new folder."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Gains with intervals: .png, .pdf or .svg."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Re-derive every number independently.")
    ] = False,
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
        text = json.dumps(robustness_report.to_json(results), indent=1, allow_nan=False) + "\n"
        if json_ == "-":
            sys.stdout.write(text)
        else:
            write_atomically(Path(json_), text.encode())
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
