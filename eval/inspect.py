"""`python -m eval.inspect`: one episode, or two side by side, as a page and as a picture."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agents.explanation import Explains
from agents.policy import make_policy
from bace_env.command import NONE, run_command
from bace_env.errors import BaceError, ConfigError
from bace_env.files import require_parent, write_atomically
from eval.chosen import Episode, load_saved, refuse_with_source, run_here
from eval.command import EpisodeSeed, OtherScenario, Overrides, Source, parse_path
from eval.episode_page import Shown, build_csv, build_page, is_aggregated, limit_reasons
from eval.replay import explain_episode

_HELP = """Look at an episode: a page that works offline, and a picture.

RUN is a folder of `eval.compare --out`, TRACE one of its traces; without either the episode of
--scenario and --seed is run.

\b
Examples:
  python -m eval.inspect --policy bace --against ldf
  python -m eval.inspect runs/mine --policy bace --against sjf --html compare.html
  python -m eval.inspect runs/mine/traces/bace/0.json --png bace.png
  python -m eval.inspect --scenario physical --seed 7 --against bace-patient
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(help=_HELP)
def inspect(
    source: Source = None,
    policy: Annotated[
        str | None,
        typer.Option(metavar="A", help="The episode's policy.  [default: the first, or bace]"),
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="B", help="A second policy on the same workload.")
    ] = None,
    scenario: OtherScenario = None,
    seed: EpisodeSeed = None,
    set_: Overrides = NONE,
    html: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path, metavar="FILE", help="Write the page.  [default: inspect.html]"
        ),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(parser=parse_path, metavar="FILE", help="Write the picture.")
    ] = None,
) -> None:
    """Parse, check what can be checked, load or run, write."""
    if html is None and png is None:
        html = Path("inspect.html")
    _check_outputs(html, png)
    if source is None:
        scenario = scenario or "paper"
        episodes = run_here(scenario, set_, seed or 0, [policy or "bace", against])
        again = ["--scenario", scenario, *(part for item in set_ for part in ("--set", item))]
    else:
        refuse_with_source(scenario, set_)
        episodes = load_saved(source, policy, against, seed)
        again = [str(source)]
    _write(episodes, html, png, again)


def _check_outputs(html: Path | None, png: Path | None) -> None:
    for option, path, suffix in (("--html", html, ".html"), ("--png", png, ".png")):
        if path is None:
            continue
        if path.suffix.lower() != suffix:
            raise ConfigError(f"{option} {path}: must end in {suffix}")
        require_parent(option, path)


def _write(
    episodes: Sequence[Episode], html: Path | None, png: Path | None, again: Sequence[str]
) -> None:
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    if html is not None:
        with Console(stderr=True).status("collecting reasons"):
            shown = [_with_reasons(episode, again) for episode in episodes]
        beside = html.with_suffix(".jobs.csv")
        aggregated = is_aggregated(shown)
        if aggregated:
            write_atomically(beside, build_csv(shown).encode())
        page = build_page(shown, beside.name if aggregated else "").encode()
        write_atomically(html, page)
        console.print(f"Wrote {html} ({len(page) / 1e6:.1f} MB): open it in a browser.")
        if aggregated:
            console.print(f"Wrote {beside}: every job, as the page shows means over time.")
    if png is not None:
        _write_picture(episodes, png)
        console.print(f"Wrote {png}.")


def _with_reasons(episode: Episode, again: Sequence[str]) -> Shown:
    trace = episode.trace
    try:
        policy = make_policy(episode.spec)
        if not isinstance(policy, Explains):
            return Shown(trace, note=f"The policy {trace.policy} gives no reasons.")
        reasons = limit_reasons(explain_episode(trace, policy))
    except BaceError as error:
        return Shown(trace, note=f"No reasons can be given: {error}.")
    left = len(trace.decisions) - len(reasons)
    if not left:
        return Shown(trace, reasons)
    where = [*again, "--seed", str(trace.instance.seed), "--policy", episode.spec]
    ask = shlex.join(["python", "-m", "eval.explain", *where, "--decision", str(len(reasons))])
    return Shown(trace, reasons, f"{left} more decisions follow; to see the next: {ask}")


def _write_picture(episodes: Sequence[Episode], png: Path) -> None:
    import io

    from bace_env.render import draw_figure

    figure, buffer = draw_figure([episode.trace for episode in episodes]), io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    write_atomically(png, buffer.getvalue())


def main() -> None:
    """Entry point; see `bace_env.command.run_command`."""
    run_command(app, "python -m eval.inspect")


if __name__ == "__main__":
    main()
