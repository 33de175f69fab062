"""What the commands of `eval` share beside `bace_env.command`: outputs and progress."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bace_env.errors import ConfigError
from bace_env.files import require_parent
from eval import report
from eval.board import require_tensorboard


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
