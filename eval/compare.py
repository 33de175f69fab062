"""`python -m eval.compare`: policies side by side on the same workloads."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agents.policy import REGISTRY, make_policy
from bace_env.command import NONE, run_command
from bace_env.config import load_scenario, preset_names
from bace_env.errors import ConfigError
from eval import board, report
from eval.command import (
    Check,
    Episodes,
    JsonFile,
    Overrides,
    ScenarioName,
    Workers,
    check_outputs,
    parse_path,
    parse_seed,
    run_with_bar,
    write_json,
)
from eval.experiment import Request

#: What a policy is put beside: the paper's scheduler and baselines, then reference points.
RULES = ("bace", "ldf", "lcf", "cr-lcf", "cr-ldf", "bace-patient", "sjf")
BASELINES = (*RULES, "random")
_POLICIES = ["bace"]

_HELP = f"""Compare schedulers: average job completion time and electricity cost, side by side.

Every policy meets the same workloads; ratios are against the first --policy.

Policies: {", ".join(REGISTRY)}; or your own as file.py:Class or module:Class.

Scenarios: {", ".join(preset_names())}; or your own as file.toml.

\b
Examples:
  python -m eval.compare --policy bace
  python -m eval.compare --policy bace:patience=0.25,partial_fill
  python -m eval.compare --set scale.bandwidth=0.3 --plot bars.png
  python -m eval.compare --policy search --policy bace --no-baselines --gap
  python -m eval.compare --policy my.py:Mine --scenario my.toml --out runs/mine
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(help=_HELP)
def compare(
    policy: Annotated[
        list[str], typer.Option(metavar="NAME", help="Policy NAME or NAME:ARG; repeat for several.")
    ] = _POLICIES,
    scenario: ScenarioName = "paper",
    episodes: Episodes = 100,
    seed: Annotated[
        int,
        typer.Option(
            parser=parse_seed,
            metavar="S",
            help="Seed of the workloads and of random policies.",
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
            help="Write config, CSV, traces and report to a new folder.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path, metavar="FILE", help="Bar chart as in Fig. 4: .png, .pdf or .svg."
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="DIR",
            help="Write a new folder for TensorBoard, one run per policy.",
        ),
    ] = None,
    check: Check = False,
    gap: Annotated[
        bool,
        typer.Option(
            "--gap", help="Distance to a lower bound and to the best schedule known, too."
        ),
    ] = False,
    no_baselines: Annotated[
        bool, typer.Option("--no-baselines", help="Run the named policies alone.")
    ] = False,
) -> None:
    """Parse, check everything that can be checked, run, report."""
    specs = list(dict.fromkeys([*policy, *(() if no_baselines else BASELINES)]))
    _check_names(specs)
    loaded = load_scenario(scenario, set_)
    check_outputs(json_, out, plot, tensorboard)
    keep_traces = out is not None or tensorboard is not None
    request = Request(loaded, tuple(specs), tuple(set_), check, keep_traces, gap)
    comparison = run_with_bar(request, seed, episodes, workers)
    if json_ is not None:
        write_json(json_, report.to_json(comparison))
    if out is not None:
        report.save_run(comparison, out)
    if plot is not None:
        report.save_plot(comparison, plot)
    if tensorboard is not None:
        with Console(stderr=True).status("writing for TensorBoard"):
            board.save_board(comparison, tensorboard)
    console = Console(stderr=json_ == "-", markup=False, emoji=False)
    report.print_report(comparison, console)
    if check:
        n = len(comparison.names) * len(comparison.seeds)
        console.print(f"Checked: {n} schedules re-derived, no contradiction.", highlight=False)
    if tensorboard is not None:
        console.print(
            f"To look at it: tensorboard --logdir {shlex.quote(str(tensorboard))}",
            highlight=False,
            soft_wrap=True,
        )


def _check_names(specs: Sequence[str]) -> None:
    """Every policy can be made, and its name stands for it alone in reports and as a folder."""
    taken: dict[str, str] = {}
    for spec in specs:
        name = make_policy(spec).name
        if not (isinstance(name, str) and name.isprintable() and 1 <= len(name) <= 100):
            raise ConfigError(
                f"policy {spec!r}: its name must be 1 to 100 printable characters, got {name!r}"
            )
        other = taken.setdefault(report.folder_name(name), spec)
        if other != spec:
            raise ConfigError(
                f"policy {spec!r}: its name must differ from that of {other!r}, got {name!r}"
            )


def main() -> None:
    """Entry point; see `bace_env.command.run_command`."""
    run_command(app, "python -m eval.compare")


if __name__ == "__main__":
    main()
