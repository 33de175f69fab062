"""The reproduction as one Markdown report, made from results alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.assumptions import SCORED
from eval.claims import TOLERANCE, Verdict
from eval.paper_report import label, tally, with_interval
from eval.reproduction import Fig1Row, Reproduction

FOLDER = "reproduction"  # of plots and CSV, beside the report


def markdown(
    found: Sequence[Reproduction],
    fig1: Sequence[Fig1Row],
    figures: Sequence[str],
    *,
    seed: int,
    episodes: int,
    search: Mapping[str, Any] | None,
) -> str:
    """The whole report; its first ten lines are the answer.

    Args:
        found: Scenarios, in the order of the columns.
        fig1: Rows of Fig. 1, where it was run.
        figures: Figures that were run.
        seed: Seed of the run.
        episodes: Workloads per setting.
        search: Summary of an assumption search (`search.to_dict`), for what it all depends on.
    """
    lines = ["# Does the paper reproduce?", ""]
    lines += _answer(found, fig1, search)
    names = " and ".join(f"`{reproduction.scenario.name}`" for reproduction in found)
    lines += ["", "## How to read this", ""]
    lines += [f"Scenarios {names}; {episodes} workloads per setting, drawn with seed {seed}."]
    lines += [_HOW]
    unsure = [f"{_also_one(r)} (`{r.scenario.name}`)" for r in found if r.judged]
    if unsure:
        lines += [
            "",
            f"Of the reproduced numbers, {' and '.join(unsure)} have an interval that also "
            "contains 1: there the workloads do not tell the paper's effect from none.",
        ]
    if fig1:
        lines += ["", *_fig1_section(fig1)]
    for figure in figures:
        if figure in _TITLES:
            lines += ["", *_figure_section(found, figure)]
    if any(reproduction.judged for reproduction in found):
        lines += ["", *_statistic_section(found), "", *_single_draw_section(found)]
    lines += ["", *_settings_section(found)]
    return "\n".join(lines) + "\n"


_HOW = f"""
Every policy meets the same workloads. A value is relative to BACE-Pipe in the same setting: the
geometric mean over the workloads of the paired ratios, with its 95 % bootstrap interval. The paper
"normalises averages" without saying how; the geometric mean is what `eval.compare` shows, and it
does not depend on which policy is 1. Where the verdict depends on that choice is said below.

**Reproduced**: the paper's value lies in our interval; or ours is within {100 * TOLERANCE:.0f} %
of it and our interval lies on the paper's side of 1 (no effect at all is within 10 % of a small
one, and does not count). **Direction only**: our interval lies on the paper's side of 1, but the
value is elsewhere. An order is reproduced where the interval of its weakest pair lies above 1,
direction only where that pair's mean does. Ten per cent are of the normalised value: a claim of
1.126 is met by 1.02. *Least* and *most* are over the four baselines, whichever policy that is. Only
what the text of the paper states is a claim; the heights of its other bars are not printed. The
abstract's claims say again what Sec. IV says of Fig. 4; they are judged, but not counted.

In the plots a diamond is the paper's value of that very policy, dashed lines are the least and the
most of its four baselines. All numbers: [claims.csv]({FOLDER}/claims.csv)."""

_TITLES = {
    "4": "Fig. 4: the default setting",
    "5": "Fig. 5: bandwidth",
    "6": "Fig. 6: GPU capacity",
    "7": "Fig. 7: number of jobs",
    "8": "Fig. 8: ablations",
}


def _answer(
    found: Sequence[Reproduction], fig1: Sequence[Fig1Row], search: Mapping[str, Any] | None
) -> list[str]:
    lines = [f"- `{r.scenario.name}`: {tally(r)}." for r in found if r.judged]
    for reproduction in found:
        if reproduction.judged:
            places = _places([reproduction], "not reproduced")
            name = reproduction.scenario.name
            lines.append(f"- What `{name}` does not reproduce, not even in direction: {places}.")
    if len(found) > 1 and found[0].judged:
        lines.append(f"- Reproduced whatever the scenario: {_places(found, 'reproduced')}.")
    if fig1:
        met = [row.printed.label for row in fig1 if row.verdict == "reproduced"]
        missed = [row.printed.label for row in fig1 if row.verdict != "reproduced"]
        lines.append(
            f"- Fig. 1: our {', '.join(met)} choose and cost what is printed; {', '.join(missed)} "
            "do not: Alg. 1 as printed takes other paths."
        )
    if search is not None:
        lines.append(f"- {_dependence(search)}")
    return lines


def _also_one(reproduction: Reproduction) -> int:
    """Numbers of Sec. IV that are reproduced by an interval which contains 1 as well."""
    return sum(
        judged.verdict == "reproduced"
        and judged.claim.value is not None
        and judged.claim.figure != "abstract"
        and judged.ours.low is not None
        and judged.ours.high is not None
        and judged.ours.low <= 1.0 <= judged.ours.high
        for judged in reproduction.judged
    )


def _places(found: Sequence[Reproduction], verdict: Verdict) -> str:
    """What has the verdict in all of these, by figure and metric: `Fig. 4 JCT (3 of 7)`."""
    parts = []
    by_claim = list(zip(*(reproduction.judged for reproduction in found), strict=True))
    groups = dict.fromkeys((judged[0].claim.figure, judged[0].claim.metric) for judged in by_claim)
    for figure, metric in groups:
        of = [j for j in by_claim if (j[0].claim.figure, j[0].claim.metric) == (figure, metric)]
        met = sum(all(judged.verdict == verdict for judged in each) for each in of)
        if met and figure != "abstract":
            name = "JCT" if metric == "jct" else "cost"
            parts.append(f"Fig. {figure} {name} ({met} of {len(of)})")
    return ", ".join(parts) or "nothing"


def _dependence(search: Mapping[str, Any]) -> str:
    top = [f"{name} ({100 * share:.0f} %)" for name, share in search["effects"][:4]]
    levels = [f"{name} {level}" for name, level in search["changes"].items()]
    return (
        f"What it depends on ([assumptions](assumptions.md), {search['random']} random settings of "
        f"what the paper leaves open; share of the score's variance): {', '.join(top)}. "
        f"Score (mean squared log ratio, 0 is perfect): `paper` {search['paper_score']:.3f}, "
        f"`paper-fitted` {search['best_score']:.3f}. That is a fit, which needs at once: "
        f"{'; '.join(levels)}."
    )


def _fig1_section(rows: Sequence[Fig1Row]) -> list[str]:
    lines = [
        "## Fig. 1: the motivating example",
        "",
        "Preset `fig1`; nothing is random. *Replayed*: the paper's placements in our simulator.",
        "",
        "| strategy | policy | paper | ours | replayed | paper's P, Q | our P, Q | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        p = row.printed
        cells = [
            p.label,
            f"`{p.policy}`",
            f"{p.jct_h:.2f} h, ${p.cost_usd:.2f}",
            f"{row.jct_h:.2f} h, ${row.cost_usd:.2f}",
            f"{row.replayed_jct_h:.2f} h, ${row.replayed_cost_usd:.2f}",
            f"{_place(p.p)}; {_place(p.q)}",
            f"{_place(row.p)}; {_place(row.q)}",
            row.verdict,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", "[model.md](model.md), section 5, says why the last two differ."]


def _place(where: Mapping[str, int]) -> str:
    return " ".join(f"{region}{gpus}" for region, gpus in where.items())


def _figure_section(found: Sequence[Reproduction], figure: str) -> list[str]:
    lines = [f"## {_TITLES[figure]}", "", f"![Fig. {figure}]({FOLDER}/fig{figure}.png)", ""]
    heads = [f"`{reproduction.scenario.name}`" for reproduction in found]
    lines.append("| claim | Sec. | paper | " + " | ".join(f"{h} | verdict" for h in heads) + " |")
    lines.append("|---|---|---|" + "---|---|" * len(heads))
    about = {figure, "abstract"} if figure == "4" else {figure}
    for each in zip(*(reproduction.judged for reproduction in found), strict=True):
        claim = each[0].claim
        if claim.figure not in about:
            continue
        cells = [label(each[0]), claim.where, claim.stated]
        for judged in each:
            verdict = judged.verdict
            shown = f"**{verdict}**" if verdict == "reproduced" else verdict
            cells += [with_interval(judged.ours), shown]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _statistic_section(found: Sequence[Reproduction]) -> list[str]:
    lines = [
        "## Does the verdict depend on the statistic?",
        "",
        "With the ratio of the mean JCTs (costs) instead, which the few workloads with much work "
        "decide:",
        "",
    ]
    for reproduction in found:
        changed = [j for j in reproduction.judged if j.verdict != j.verdict_of_means]
        lines.append(
            f"`{reproduction.scenario.name}`: {len(changed)} of {len(reproduction.judged)} "
            f"verdicts change{':' if changed else '.'}"
        )
        if changed:
            lines += ["", "| claim | paper | of ratios | of means |", "|---|---|---|---|"]
            for j in changed:
                ours = f"{with_interval(j.ours)}: {j.verdict}"
                other = f"{with_interval(j.of_means)}: {j.verdict_of_means}"
                lines.append(
                    f"| {j.claim.place}, {label(j)} | {j.claim.stated} | {ours} | {other} |"
                )
        lines.append("")
    return lines[:-1]


def _single_draw_section(found: Sequence[Reproduction]) -> list[str]:
    """Could the paper's numbers be those of one lucky assignment of the data sets?"""
    lines = [
        "## Could one draw of the data sets explain the paper?",
        "",
        "The paper does not say that it averages over draws. The score (mean squared log ratio to "
        "the stated numbers of the figures above) of single workloads, each alone:",
        "",
        "| scenario | all workloads together | best single one | median | its seed |",
        "|---|---|---|---|---|",
    ]
    for reproduction in found:
        claims = [claim for claim in SCORED if claim.setting in reproduction.runs]
        claims = [c for c in claims if any(j.claim == c for j in reproduction.judged)]
        whole = [
            (np.log(j.ours.mean) - np.log(j.claim.value)) ** 2
            for j in reproduction.judged
            if j.claim in claims and j.ours.mean is not None and j.claim.value is not None
        ]
        seeds = next(iter(reproduction.runs.values())).seeds
        single = [
            float(
                np.mean(
                    [
                        square
                        for setting, run in reproduction.runs.items()
                        for square in run.score_of_draw(
                            draw, [claim for claim in claims if claim.setting == setting]
                        )
                    ]
                )
            )
            for draw in range(len(seeds))
        ]
        best = int(np.argmin(single))
        lines.append(
            f"| `{reproduction.scenario.name}` | {np.mean(whole):.3f} | {single[best]:.3f} | "
            f"{np.median(single):.3f} | {seeds[best]} |"
        )
    return lines


def _settings_section(found: Sequence[Reproduction]) -> list[str]:
    lines = ["## How it was run", ""]
    for reproduction in found:
        scenario = reproduction.scenario
        options = [f"`{policy}:{text}`" for policy, text in scenario.policies.items()]
        given = f"; policies {', '.join(options)}" if options else ""
        lines.append(
            f"- `{scenario.name}` ({scenario.fingerprint()}): {scenario.description}{given}."
        )
    lines += [
        "",
        "`make paper` regenerates this file, its plots and the CSV; `make assumptions` searches "
        "for `paper-fitted` again.",
    ]
    return lines
