"""The reproduction in the terminal and as CSV; `eval.paper_markdown` writes the report."""

import csv
import io
from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from eval.claims import POLICIES
from eval.reproduction import Fig1Row, Judged, Reproduction
from eval.statistics import Estimate


def claims_csv(found: Sequence[Reproduction]) -> str:
    """One row per scenario and claim, with all that the verdict was made from."""
    columns = ["scenario", "figure", "setting", "kind", "metric", "pairs", "paper", "where"]
    columns += ["words", "ours", "low", "high", "verdict"]
    columns += ["of_means", "of_means_low", "of_means_high", "verdict_of_means"]
    rows = []
    for reproduction in found:
        for judged in reproduction.judged:
            claim = judged.claim
            fields: list[object] = [
                reproduction.scenario.name,
                claim.figure,
                claim.setting,
                claim.kind,
            ]
            fields += [claim.metric, " ".join("/".join(pair) for pair in claim.pairs)]
            fields += ["" if claim.value is None else claim.value, claim.where, claim.words]
            fields += [*_numbers(judged.ours), judged.verdict]
            fields += [*_numbers(judged.of_means), judged.verdict_of_means]
            rows.append(fields)
    return _csv(columns, rows)


def values_csv(found: Sequence[Reproduction]) -> str:
    """Average JCT and total cost of every policy on every workload: what the ratios are made of."""
    columns = ["scenario", "setting", "policy", "seed", "avg_jct_s", "total_cost_usd"]
    rows: list[list[object]] = []
    for reproduction in found:
        for setting, run in reproduction.runs.items():
            for i, policy in enumerate(POLICIES):
                pairs = zip(
                    run.values["jct"][i].tolist(), run.values["cost"][i].tolist(), strict=True
                )
                for seed, (jct, cost) in zip(run.seeds, pairs, strict=True):
                    rows.append([reproduction.scenario.name, setting, policy, seed, jct, cost])
    return _csv(columns, rows)


def _csv(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return buffer.getvalue()


def _numbers(estimate: Estimate) -> list[object]:
    return ["" if v is None else v for v in (estimate.mean, estimate.low, estimate.high)]


def print_tables(found: Sequence[Reproduction], fig1: Sequence[Fig1Row], console: Console) -> None:
    """A table of claims per figure, and how many of them reproduce."""
    if fig1:
        table = _table("Fig. 1 (nothing in it is random)", ["strategy", "paper", "ours", "verdict"])
        for row in fig1:
            printed = row.printed
            table.add_row(
                printed.label,
                f"{printed.jct_h:.2f} h, ${printed.cost_usd:.2f}",
                f"{row.jct_h:.2f} h, ${row.cost_usd:.2f}",
                row.verdict,
            )
        console.print(table, "")
    for reproduction in found:
        for place in dict.fromkeys(judged.claim.place for judged in reproduction.judged):
            title = f"{place}, scenario {reproduction.scenario.name}"
            if place == "abstract":
                title += " (not counted: Fig. 4 has the same percentages)"
            table = _table(title, ["claim", "paper", "ours", "verdict"])
            for judged in reproduction.judged:
                if judged.claim.place == place:
                    ours = with_interval(judged.ours)
                    table.add_row(label(judged), judged.claim.stated, ours, judged.verdict)
            console.print(table, "")
    for reproduction in found:
        if reproduction.judged:
            console.print(f"{reproduction.scenario.name}: {tally(reproduction)}", highlight=False)


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i in (1, 2) else "left", no_wrap=i > 0)
    return table


def tally(reproduction: Reproduction) -> str:
    """How many claims of Sec. IV reproduce, JCT and cost apart."""
    ours = [judged for judged in reproduction.judged if judged.claim.figure != "abstract"]
    counts = Counter(judged.verdict for judged in ours)
    parts = []
    for metric, name in (("jct", "JCT"), ("cost", "cost")):
        of = [judged for judged in ours if judged.claim.metric == metric]
        met = sum(judged.verdict == "reproduced" for judged in of)
        parts.append(f"{name} {met} of {len(of)}")
    return (
        f"{counts['reproduced']} of {len(ours)} claims reproduced ({', '.join(parts)}), "
        f"{counts['direction only']} in direction only, {counts['not reproduced']} not"
    )


def _setting(judged: Judged) -> str:
    return "8 jobs" if judged.claim.setting == "default" else judged.claim.setting


def label(judged: Judged) -> str:
    """Setting, metric and words of a claim."""
    end = {"least": " (least)", "most": " (most)"}.get(judged.claim.kind, "")
    metric = "JCT" if judged.claim.metric == "jct" else "cost"
    return f"{_setting(judged)}, {metric}: {judged.claim.words}{end}"


def with_interval(estimate: Estimate) -> str:
    """Ours, with its interval where there is one."""
    if estimate.mean is None or estimate.low is None or estimate.high is None:
        return "none"
    if estimate.low == estimate.high:
        return f"{estimate.mean:.3f}"
    return f"{estimate.mean:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
