"""What the commands of the project share: how they end, and how they read numbers."""

import io
import sys
from collections.abc import Callable

import typer

from bace_env.errors import BaceError, ConfigError

_INTERRUPTED = 130  # as a shell says it

#: Default of an option that may be repeated. `typer` gives each call a list of its own.
NONE: list[str] = []


def run_command(app: typer.Typer, name: str) -> None:
    """Run a command line and exit: 2 on bad input, 1 where a run fails, 130 on Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not Unicode
    try:
        code = app(prog_name=name, standalone_mode=False)
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


def integer(least: int, most: int) -> Callable[[str], int]:
    """A parser of option values whose error gives the rule and the value."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise typer.BadParameter(f"must be an integer from {least} to {most}, got {text!r}")
        return value

    return parse
