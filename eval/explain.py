"""`python -m eval.explain`: why a policy decided as it did, in the terminal."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from agents import explanation
from agents.explanation import Cell, Explanation
from agents.policy import make_policy
from bace_env.command import NONE, integer, run_command
from bace_env.errors import ConfigError
from bace_env.trace import EpisodeTrace
from eval.chosen import Episode, load_saved, refuse_with_source, run_here
from eval.command import EpisodeSeed, OtherScenario, Overrides, Source, write_json
from eval.replay import describe, explain_episode

_HELP = """Say why a policy decided as it did: what it weighed, and what it refused why.

Decisions are numbered from 0. Without --decision all of them are listed.
RUN is a folder of `eval.compare --out`, TRACE one of its traces; without either the episode of
--scenario and --seed is run.

\b
Examples:
  python -m eval.explain --policy bace
  python -m eval.explain --scenario fig1 --seed 0 --policy bace --decision 1
  python -m eval.explain runs/mine --policy sjf --decision 4 --json
"""

_MOST_ROWS = 30  # of a table in the terminal
_LEAST_TEXT = 10  # characters that a column of text is not made narrower than

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(help=_HELP)
def explain(
    source: Source = None,
    policy: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The policy.  [default: the first, or bace]"),
    ] = None,
    decision: Annotated[
        int | None,
        typer.Option(parser=integer(0, 10**9), metavar="K", help="Which decision, from 0."),
    ] = None,
    scenario: OtherScenario = None,
    seed: EpisodeSeed = None,
    set_: Overrides = NONE,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Load or run the episode, explain one decision or list all."""
    if source is None:
        episode = run_here(scenario or "paper", set_, seed or 0, [policy or "bace"])[0]
    else:
        refuse_with_source(scenario, set_)
        episode = load_saved(source, policy, None, seed)[0]
    console = Console(markup=False, emoji=False, highlight=False)
    if decision is None:
        _list(episode.trace, console, as_json=json_)
        return
    reasons = _reasons(episode, decision)
    if json_:
        row = {**_row(episode.trace, decision), **reasons.to_dict()}
        write_json("-", row)
    else:
        _print(episode.trace, decision, reasons, console)


def _reasons(episode: Episode, decision: int) -> Explanation:
    trace = episode.trace
    number = len(trace.decisions)
    if decision >= number:
        raise ConfigError(
            f"--decision {decision}: must be from 0 to {number - 1}, the decisions of "
            f"{trace.policy} on scenario {trace.instance.scenario}, seed {trace.instance.seed}"
        )
    found = explain_episode(trace, make_policy(episode.spec))
    return next(islice(found, decision, None))


def _row(trace: EpisodeTrace, k: int) -> dict[str, Any]:
    head = {"scenario": trace.instance.scenario, "seed": trace.instance.seed}
    time_s = trace.decisions[k].time_s
    return {**head, "policy": trace.policy, "decision": k, "time_s": time_s}


def _list(trace: EpisodeTrace, console: Console, *, as_json: bool) -> None:
    if as_json:
        rows = [
            {**_row(trace, k), "job": decision.job, "does": describe(trace, k)}
            for k, decision in enumerate(trace.decisions)
        ]
        write_json("-", rows)
        return
    table = _table(f"{_title(trace)}: {len(trace.decisions)} decisions")
    table.add_column("decision", justify="right")
    table.add_column("time (h)", justify="right")
    table.add_column("the policy", overflow="fold")
    for k, decision in enumerate(trace.decisions):
        table.add_row(str(k), f"{decision.time_s / 3600:.4g}", describe(trace, k))
    console.print(table)


def _title(trace: EpisodeTrace) -> str:
    return f"{trace.policy} on {trace.instance.scenario}, seed {trace.instance.seed}"


def _print(trace: EpisodeTrace, k: int, reasons: Explanation, console: Console) -> None:
    last = len(trace.decisions) - 1
    console.print(f"{_title(trace)}: decision {k} of 0 to {last}", style="bold")
    console.print(reasons.sentence)
    for fact in reasons.facts:
        console.print(f"  {fact.label}: {_cell(fact.value)} {fact.unit}".rstrip())
    for table in reasons.tables:
        console.print()
        _print_table(table, console)


def _print_table(source: explanation.Table, console: Console) -> None:
    table = _as_rich(source)
    least = [column.min_width or 0 for column in table.columns]
    if sum(least) + 2 * (len(least) - 1) <= console.width:
        console.print(table)
        return
    console.print(source.title, style="italic")  # too narrow a terminal: a paragraph per row
    for row in source.rows[:_MOST_ROWS]:
        cells = [
            f"{column.name} {_cell(value)} {column.unit}".rstrip()
            for column, value in zip(source.columns[1:], row[1:], strict=True)
        ]
        console.print(f"{_cell(row[0])}: {'; '.join(cells)}")
    if len(source.rows) > _MOST_ROWS:
        console.print(_left_out(source))


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def _as_rich(source: explanation.Table) -> Table:
    table = _table(source.title)
    rows = source.rows[:_MOST_ROWS]
    # A model that is named as its jobs are says nothing more.
    twins = {i for i in range(1, len(source.columns)) if all(row[i] == row[0] for row in rows)}
    kept = [i for i in range(len(source.columns)) if i not in twins]
    for i in kept:
        column = source.columns[i]
        heading = column.name.replace(" (", "\n(")
        heading += f"\n({column.unit})" if column.unit else ""
        is_text = any(isinstance(row[i], str) for row in rows)
        longest = max((len(_cell(row[i])) for row in rows), default=0)
        table.add_column(
            heading,
            justify="left" if is_text else "right",
            overflow="fold",
            min_width=max(
                min(longest, _LEAST_TEXT) if is_text else longest,
                *map(len, heading.splitlines()),
            ),
        )
    for row in rows:
        table.add_row(*(_cell(row[i]) for i in kept), style="bold" if _is_kept(row) else "")
    if len(source.rows) > _MOST_ROWS:
        table.caption = _left_out(source)
    return table


def _left_out(source: explanation.Table) -> str:
    return f"and {len(source.rows) - _MOST_ROWS} more rows: --json has them all"


def _is_kept(row: Sequence[Cell]) -> bool:
    return row[-1] in ("chosen", "starts")


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e7 else f"{value:.3g}"


def main() -> None:
    """Entry point; see `bace_env.command.run_command`."""
    run_command(app, "python -m eval.explain")


if __name__ == "__main__":
    main()
