"""`python -m eval.distance`: how far every policy is from the best, in every setting."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agents.policy import make_policy
from bace_env.command import integer, run_command
from bace_env.config import load_scenario
from bace_env.files import require_parent, write_atomically
from bace_env.scenario import Sampler
from eval import report
from eval.best_known import searched_settings
from eval.command import Seed, Workers, parse_path, progress_bar
from eval.compare import BASELINES
from eval.experiment import Comparison, Request, run_comparison

_HELP = """How far every policy is from a lower bound and from the best schedule known.

In every preset of at most 50 jobs and every setting of the paper's figures; a Markdown table each.

\b
Examples:
  python -m eval.distance --workers 2
  python -m eval.distance --policy my.py:Mine --episodes 50 --out mine.md
"""

_POLICIES = ["search"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(help=_HELP)
def distance(
    policy: Annotated[
        list[str], typer.Option(metavar="NAME", help="Policy beside the built-in ones; repeatable.")
    ] = _POLICIES,
    episodes: Annotated[
        int, typer.Option(parser=integer(2, 10**6), metavar="N", help="Workloads of each setting.")
    ] = 200,
    seed: Seed = 0,
    workers: Workers = 1,
    out: Annotated[
        Path | None,
        typer.Option(parser=parse_path, metavar="FILE", help="Write the report there, too."),
    ] = None,
) -> None:
    """Parse, run every setting, report."""
    if out is not None:
        require_parent("--out", out)
    specs = tuple(dict.fromkeys(["bace", *policy, *BASELINES]))
    for spec in specs:
        make_policy(spec)
    chosen = searched_settings()
    found = []
    with progress_bar() as progress:
        task = progress.add_task("workloads", total=episodes * len(chosen))
        for name, overrides in chosen:
            request = Request(load_scenario(name, overrides), specs, overrides, gap=True)
            done = run_comparison(
                request,
                seed=seed,
                episodes=_draws(request, seed, episodes),
                workers=workers,
                on_seed=partial(progress.advance, task),
            )
            found.append(done)
    text = _markdown(found, episodes)
    if out is not None:
        write_atomically(out, text.encode())
    Console(markup=False, emoji=False, soft_wrap=True).print(text, highlight=False)


def _draws(request: Request, seed: int, episodes: int) -> int:
    """One where all workloads are the same."""
    sampler = Sampler(request.scenario)
    one, other = sampler.draw_jobs(seed), sampler.draw_jobs(seed + 1)
    same = all((a == b).all() for a, b in zip(one, other, strict=True))
    return 1 if same else episodes


_INTRODUCTION = """# How far from the best

Made by `make distance`. *Above bound*: by which share the objective (average JCT and cost, weighted
as in the environment's reward, lambda 0.3) lies above a lower bound that no schedule can beat
(`eval/bounds.py`). *Above best known*: above the best schedule that a search found
(`eval/known_schedules.py`); the optimum lies between the bound and that. *Gap closed*: the share
of the way from BACE-Pipe to the best known; negative: worse than BACE-Pipe. Means with 95 %
bootstrap intervals over {episodes} workloads; ratios are geometric means of the pairs, to `bace`.
`search` knows the whole workload, as do the bound and the best known.
"""


def _markdown(found: list[Comparison], episodes: int) -> str:
    lines = [_INTRODUCTION.format(episodes=episodes)]
    for comparison in found:
        n = len(comparison.seeds)
        lines += [
            f"## {comparison.request.title}{'' if n > 1 else ' (one workload)'}",
            "",
            "| policy | above bound, % | above best known, % | gap closed, % | JCT ratio "
            "| cost ratio |",
            "|---|---|---|---|---|---|",
        ]
        estimates, few = comparison.estimates, n == 1
        for i, name in enumerate(comparison.names):
            cells = [
                report.percent(estimates[key][i], few).replace(" %", "")
                for key in ("above_bound", "above_best_known", "gap_closed")
            ]
            cells += [
                report.with_interval(estimates[key][i], few)
                for key in ("typical_jct_ratio", "typical_cost_ratio")
            ]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Entry point; see `bace_env.command.run_command`."""
    run_command(app, "python -m eval.distance")


if __name__ == "__main__":
    main()
