"""What the commands of `eval` share: options, outputs, progress, and how they end."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bace_env.errors import BaceError, ConfigError
from eval import report
from eval.board import require_tensorboard

_INTERRUPTED = 130  # as a shell says it


def integer(least: int, most: int) -> Callable[[str], int]:
    """A parser of integer options whose error gives the rule and the value."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise typer.BadParameter(f"must be an integer from {least} to {most}, got {text!r}")
        return value

    return parse


def check_outputs(
    json_: str | None, out: Path | None, plot: Path | None, tensorboard: Path | None = None
) -> None:
    """Refuse outputs that could not be written, before any work is done.

    Raises:
        ConfigError: Naming the option and the path.
    """
    if json_ is not None and json_ != "-":
        report.require_parent("--json", Path(json_))
    if out is not None:
        report.require_fresh("--out", out)
    if tensorboard is not None:
        require_tensorboard("--tensorboard")
        report.require_fresh("--tensorboard", tensorboard)
    if plot is not None:
        if plot.suffix not in report.PLOT_SUFFIXES:
            known = ", ".join(report.PLOT_SUFFIXES)
            raise ConfigError(f"--plot {plot}: must end in one of {known}")
        report.require_parent("--plot", plot)
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


def run(app: typer.Typer, module: str) -> None:
    """Run a command and exit: one line and code 2 on bad input, 1 where a policy or check fails."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not Unicode
    try:
        code = app(prog_name=f"python -m {module}", standalone_mode=False)
    except (typer.TyperException, ConfigError) as error:
        message = error.format_message() if isinstance(error, typer.TyperException) else error
        _complain(f"error: {message}")
        code = 2
    except (BaceError, OSError) as error:  # OSError: such as a full disk
        _complain(f"error: {error}")
        code = 1
    except KeyboardInterrupt:
        code = _INTERRUPTED
    if code == _INTERRUPTED:  # typer makes it the code of Ctrl-C, too
        _complain("interrupted")
    sys.exit(code)


def _complain(message: object) -> None:
    """Print on one line, whatever the message holds."""
    line = "".join(char if char.isprintable() else " " for char in str(message))
    print(line, file=sys.stderr)
