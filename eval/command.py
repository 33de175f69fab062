"""What the commands of `eval` share beside `bace_env.command`: options, outputs, progress."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bace_env.command import integer
from bace_env.errors import ConfigError
from bace_env.files import require_parent, write_atomically
from bace_env.scenario import build_instance, episode_seed
from eval import report
from eval.board import require_tensorboard
from eval.experiment import Comparison, Request, run_comparison


def parse_path(text: str) -> Path:
    """A parser of option values that are paths: an empty one is not meant as the folder "."."""
    if not text:
        raise typer.BadParameter(f"must be a path, got {text!r}")
    return Path(text)


def _parse_json(text: str) -> str:
    parse_path(text)
    return text


parse_seed = integer(0, 2**53 - 1)

ScenarioName = Annotated[str, typer.Option(metavar="NAME|FILE", help="Preset or TOML file.")]
Overrides = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario field; repeatable."),
]
Episodes = Annotated[
    int, typer.Option(parser=integer(1, 10**6), metavar="N", help="Workloads drawn.")
]
Seed = Annotated[int, typer.Option(parser=parse_seed, metavar="S", help="Seed of the workloads.")]
Workers = Annotated[int, typer.Option(parser=integer(1, 1000), metavar="N", help="Processes.")]
JsonFile = Annotated[
    str | None,
    typer.Option("--json", parser=_parse_json, metavar="FILE|-", help="Write the results as JSON."),
]
Check = Annotated[bool, typer.Option("--check", help="Re-derive every number independently.")]

# Of commands that show an episode of a saved run, or one that they run.
Source = Annotated[
    Path | None, typer.Argument(metavar="RUN|TRACE", help="Folder or trace of a run.")
]
OtherScenario = Annotated[
    str | None, typer.Option(metavar="NAME|FILE", help="Run this scenario.  [default: paper]")
]
EpisodeSeed = Annotated[
    int | None,
    typer.Option(
        parser=parse_seed, metavar="N", help="Seed of the workload.  [default: the first, or 0]"
    ),
]


def check_outputs(
    json_: str | None, out: Path | None, plot: Path | None, tensorboard: Path | None = None
) -> None:
    """Refuse outputs that could not be written, before any work is done.

    Raises:
        ConfigError: Naming the option and the path.
    """
    if json_ is not None and json_ != "-":
        require_parent("--json", Path(json_))
    if out is not None:
        report.require_fresh("--out", out)
    if tensorboard is not None:
        require_tensorboard("--tensorboard")
        report.require_fresh("--tensorboard", tensorboard)
    if plot is not None:
        if plot.suffix not in report.PLOT_SUFFIXES:
            known = ", ".join(report.PLOT_SUFFIXES)
            raise ConfigError(f"--plot {plot}: must end in one of {known}")
        require_parent("--plot", plot)
    paths = {"--json": json_, "--out": out, "--plot": plot, "--tensorboard": tensorboard}
    taken: dict[Path, str] = {}
    for option, path in paths.items():
        if path is None or path == "-":
            continue
        other = taken.setdefault(Path(path).resolve(), option)
        if other != option:
            raise ConfigError(f"{other} and {option}: must be different paths, got {path}")


def write_json(target: str, data: Any) -> None:
    """Write a file of JSON, or to standard output where the target is "-"."""
    if target == "-":
        sys.stdout.write(report.json_text(data))
    else:
        write_atomically(Path(target), report.json_text(data).encode())


def progress_bar() -> Progress:
    """A bar on standard error that leaves nothing behind; none where that is no terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def run_with_bar(request: Request, seed: int, episodes: int, workers: int) -> Comparison:
    """`run_comparison` under a progress bar.

    Raises:
        ConfigError: No cluster of the scenario could host its jobs.
    """
    build_instance(request.scenario, episode_seed(seed, 0))  # before the bar stands there
    with progress_bar() as progress:
        task = progress.add_task("first workload (compiles once)", total=episodes)

        def on_seed() -> None:
            progress.update(task, advance=1, description="workloads")

        return run_comparison(
            request, seed=seed, episodes=episodes, workers=workers, on_seed=on_seed
        )
