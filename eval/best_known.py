"""`python -m eval.best_known`: search for the best schedules known, and store them."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bace_env.command import NONE, integer, run_command
from bace_env.config import load_scenario, preset_names
from bace_env.errors import ConfigError
from bace_env.files import require_writable
from bace_env.scenario import episode_seed
from eval.claims import SETTINGS
from eval.command import Overrides, Seed, Workers, parse_path, progress_bar
from eval.known_schedules import FOLDER, RESTARTS, SIMULATIONS_PER_JOB, Known, find_many

_HELP = """Search for the best schedules known, and store them where `eval.compare --gap` looks.

Without --scenario: every preset of at most 50 jobs, and the settings of the paper's figures. A
schedule is replaced only by a better one, so it pays to run this again with more simulations.

\b
Examples:
  python -m eval.best_known --workers 2
  python -m eval.best_known --scenario my.toml --episodes 100 --out known
  python -m eval.best_known --scenario paper --set workload.n_jobs=12 --restarts 10
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def searched_settings() -> list[tuple[str, tuple[str, ...]]]:
    """Presets and overrides whose best schedules are searched for: those of few jobs."""
    chosen = [("paper", overrides) for overrides in SETTINGS.values()]
    for name in preset_names():
        scenario = load_scenario(name)
        n_jobs = scenario.workload.n_jobs or len(scenario.jobs)
        if name != "paper" and n_jobs <= _MOST_JOBS:
            chosen.append((name, ()))
    return chosen


_MOST_JOBS = 50  # a search takes minutes per workload beyond


@app.command(help=_HELP)
def best_known(
    scenario: Annotated[
        list[str], typer.Option(metavar="NAME|FILE", help="Preset or TOML file; repeatable.")
    ] = NONE,
    set_: Overrides = NONE,
    episodes: Annotated[
        int, typer.Option(parser=integer(1, 10**6), metavar="N", help="Workloads of each.")
    ] = 200,
    seed: Seed = 0,
    simulations_per_job: Annotated[
        int, typer.Option(parser=integer(1, 10**9), metavar="N", help="Per restart.")
    ] = SIMULATIONS_PER_JOB,
    restarts: Annotated[
        int, typer.Option(parser=integer(0, 10**6), metavar="N", help="Of the annealing.")
    ] = RESTARTS,
    workers: Workers = 1,
    out: Annotated[
        Path,
        typer.Option(
            parser=parse_path,
            metavar="DIR",
            show_default=False,
            help="Folder.  [default: the package's own]",
        ),
    ] = FOLDER,
) -> None:
    """Parse, load everything, search."""
    if set_ and not scenario:
        raise ConfigError("--set: needs --scenario")
    chosen = [(name, tuple(set_)) for name in dict.fromkeys(scenario)]
    chosen = chosen or searched_settings()
    loaded = [(", ".join((name, *given)), load_scenario(name, given)) for name, given in chosen]
    require_writable("--out", out / "x" if out.is_dir() else out)
    seeds = [episode_seed(seed, episode) for episode in range(episodes)]
    with progress_bar() as progress:
        for title, one in loaded:
            task = progress.add_task(title, total=episodes)
            before = Known.load(one, out)
            found = find_many(
                one,
                seeds,
                simulations_per_job=simulations_per_job,
                restarts=restarts,
                start=before,
                workers=workers,
                on_seed=partial(progress.advance, task),
            )
            Known(title, before.digest, before.schedules | found).save(out)
            progress.console.print(f"{title}: {len(found)} schedules", highlight=False)


def main() -> None:
    """Entry point; see `bace_env.command.run_command`."""
    run_command(app, "python -m eval.best_known")


if __name__ == "__main__":
    main()
