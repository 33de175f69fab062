"""`python -m train.ppo`: train a scheduler."""

import importlib.util
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from agents.ppo import MODEL
from bace_env.command import NONE, integer, run_command
from bace_env.config import load_scenario
from bace_env.errors import BaceError, ConfigError
from bace_env.files import require_writable
from eval.command import progress_bar
from eval.report import require_fresh

if TYPE_CHECKING:
    from train.config import TrainConfig

_HELP = """Train a scheduler: PPO, after a warm start from searched schedules if you want one.

Without options it trains on the paper's settings and the physical ones together, with the weight of
the cost drawn anew per episode: one model for all. Ctrl-C saves; --resume goes on, also after a
crash, exactly as if nothing had happened. Look at it: tensorboard --logdir runs

--config takes a TOML file with fields of train.config; demonstrations = 24 is a warm start.

\b
Examples:
  python -m train.ppo
  python -m train.ppo --total-steps 200000 --seed 3 --out runs/short
  python -m train.ppo --scenario physical --set scale.gpus=0.5
  python -m train.ppo --config mine.toml
  python -m train.ppo --resume runs/short
  python -m eval.compare --policy ppo:runs/short --policy bace
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(help=_HELP)
def ppo(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML with fields of train.config.")
    ] = None,
    scenario: Annotated[
        list[str],
        typer.Option(metavar="NAME|FILE", help="Train on this one; repeat for several."),
    ] = NONE,
    set_: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="Override a field of each --scenario."),
    ] = NONE,
    total_steps: Annotated[
        int | None,
        typer.Option(parser=integer(1, 10**12), metavar="N", help="Decisions to train on."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(parser=integer(0, 2**31 - 1), metavar="S", help="Of everything.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A new folder (default: under runs/).")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Go on with the run in this folder.")
    ] = None,
) -> None:
    """Parse, check, train."""
    if importlib.util.find_spec("stable_baselines3") is None:
        raise ConfigError("needs the extra train: pip install 'bace-env[train]' -c constraints.txt")
    if resume is not None:
        if any((config, scenario, set_, total_steps is not None, seed is not None, out)):
            raise ConfigError("--resume: takes everything from the run, so no other option")
        _train(_read_run(resume), resume, resume=True)
        return
    if set_ and not scenario:
        raise ConfigError("--set: changes what --scenario names, so give that, too")
    for name in scenario:
        load_scenario(name, set_)
    fields: dict[str, Any] = {}
    if config is not None:
        from train.config import read_config

        fields = read_config(config)
    if scenario:
        settings = [(name, tuple(set_)) for name in scenario]
        fields |= {"settings": settings, "evaluation_settings": settings}
    fields |= {} if total_steps is None else {"total_steps": total_steps}
    fields |= {} if seed is None else {"seed": seed}
    from train.config import make_config
    from train.learner import write_run

    made = make_config(fields)
    for setting in (*made.settings, *made.evaluation_settings):
        load_scenario(setting.scenario, setting.overrides)
    if out is None:
        Path("runs").mkdir(exist_ok=True)
        out = Path("runs") / f"ppo-{made.seed}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    require_fresh("--out", out)
    require_writable("--out", out)
    out.mkdir()
    write_run(made, out)
    _train(made, out, resume=False)


def _read_run(folder: Path) -> "TrainConfig":
    from bace_env.observation import features_fingerprint
    from train.config import make_config
    from train.learner import RUN

    path = folder / RUN
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        config, features = about["config"], about["features"]
    except OSError as error:
        raise ConfigError(f"--resume {folder}: no run: {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"--resume {folder}: {path} is not the record of a run") from None
    if features != features_fingerprint():
        raise ConfigError(
            f"--resume {folder}: the run has other features ({features}) than this version "
            f"({features_fingerprint()})"
        )
    return make_config(config)


def _train(config: "TrainConfig", folder: Path, *, resume: bool) -> None:
    from train import learner
    from train.checkpoint import CHECKPOINT

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    with progress_bar() as progress:
        task = progress.add_task("compiling", total=None)

        def advance(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        def say(text: str) -> None:
            progress.console.print(text, markup=False, highlight=False)

        try:
            learner.train(config, folder, resume=resume, say=say, advance=advance)
        except (KeyboardInterrupt, BaceError) as error:
            if not (folder / CHECKPOINT).is_file():
                if not resume:
                    shutil.rmtree(folder)  # nothing to go on from
            elif isinstance(error, KeyboardInterrupt):
                say(f"to go on from the last save: python -m train.ppo --resume {folder}")
            raise
        learner.export_best(config, folder)
    console.print(f"Wrote {folder / MODEL}: python -m eval.compare --policy ppo:{folder}")


def main() -> None:
    """Entry point; see `bace_env.command.run_command`."""
    run_command(app, "python -m train.ppo")


if __name__ == "__main__":
    main()
