"""`python -m eval.compare`: policies side by side on the same workloads."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agents.policy import REGISTRY, make_policy
from bace_env.config import load_scenario, preset_names
from bace_env.errors import BaceError, ConfigError
from bace_env.scenario import build_instance, episode_seed
from eval import report
from eval.experiment import Comparison, Request, run_comparison

#: What a policy is put beside: the paper's scheduler and baselines, then reference points.
BASELINES = ("bace", "ldf", "lcf", "cr-lcf", "cr-ldf", "bace-patient", "sjf", "random")

_HELP = f"""Compare schedulers: average job completion time and electricity cost, side by side.

Every policy meets the same workloads; ratios are against the first --policy.

Policies: {", ".join(REGISTRY)}; or your own as file.py:Class or module:Class.

Scenarios: {", ".join(preset_names())}; or your own as file.toml.

Examples:

  python -m eval.compare --policy bace

  python -m eval.compare --policy bace:patience=0.25,partial_fill --scenario physical

  python -m eval.compare --set scale.bandwidth=0.3 --set regions.EU-West.gpus=32 --plot bars.png

  python -m eval.compare --policy my.py:Mine --scenario my.toml --episodes 100 --out runs/mine
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(help=_HELP)
def compare(
    policy: Annotated[
        list[str], typer.Option(help="Policy NAME or NAME:ARG; repeat for several.")
    ] = ["bace"],  # noqa: B006
    scenario: Annotated[str, typer.Option(help="Preset or TOML file.")] = "paper",
    episodes: Annotated[int, typer.Option(min=1, help="Workloads drawn.")] = 30,
    seed: Annotated[int, typer.Option(help="Seed of the workloads and of random policies.")] = 0,
    set_: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario field; repeatable."),
    ] = [],  # noqa: B006
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    json_: Annotated[
        str | None, typer.Option("--json", metavar="FILE|-", help="Write the results as JSON.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write config, CSV, traces and report to a new folder.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Bar chart as in Fig. 4: .png, .pdf or .svg.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Re-derive every number independently.")
    ] = False,
    no_baselines: Annotated[
        bool, typer.Option("--no-baselines", help="Run the named policies alone.")
    ] = False,
) -> None:
    """Parse, check everything that can be checked, run, report."""
    specs = list(dict.fromkeys([*policy, *(() if no_baselines else BASELINES)]))
    for spec in specs:
        make_policy(spec)
    loaded = load_scenario(scenario, set_)
    _check_outputs(json_, out, plot)
    build_instance(loaded, episode_seed(seed, 0))  # refuses what no cluster could host
    request = Request(loaded, tuple(specs), check=check, keep_traces=out is not None)
    comparison = _run(request, seed, episodes, workers)
    if json_ is not None:
        text = json.dumps(report.to_json(comparison), indent=1, allow_nan=False) + "\n"
        if json_ == "-":
            sys.stdout.write(text)
        else:
            report.write_atomically(Path(json_), text.encode())
    if out is not None:
        report.save_run(comparison, out)
    if plot is not None:
        report.save_plot(comparison, plot)
    console = Console(stderr=json_ == "-")
    report.print_report(comparison, console)
    if check:
        n = len(comparison.names) * len(comparison.seeds)
        console.print(f"Checked: {n} schedules re-derived, no contradiction.", highlight=False)


def _check_outputs(json_: str | None, out: Path | None, plot: Path | None) -> None:
    if json_ is not None and json_ != "-":
        report.require_parent("--json", Path(json_))
    if out is not None:
        report.require_fresh(out)
    if plot is not None:
        if plot.suffix not in report.PLOT_SUFFIXES:
            known = ", ".join(report.PLOT_SUFFIXES)
            raise ConfigError(f"--plot {plot}: must end in one of {known}")
        report.require_parent("--plot", plot)


def _run(request: Request, seed: int, episodes: int, workers: int) -> Comparison:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("first workload (compiles once)", total=episodes)

        def on_seed() -> None:
            progress.update(task, advance=1, description="workloads")

        return run_comparison(
            request, seed=seed, episodes=episodes, workers=workers, on_seed=on_seed
        )


def main() -> None:
    """Entry point: one line and exit code 2 on bad input, 1 where a policy or a check fails."""
    try:
        code = app(prog_name="python -m eval.compare", standalone_mode=False)
    except (typer.TyperException, ConfigError) as error:
        message = error.format_message() if isinstance(error, typer.TyperException) else error
        print(f"error: {message}", file=sys.stderr)
        code = 2
    except BaceError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 1
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted: nothing was written", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
