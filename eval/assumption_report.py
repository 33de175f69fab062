"""What a search over the assumptions found: preset, report, plot, summary for `eval.paper`."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bace_env.config import load_scenario
from bace_env.files import write_atomically
from eval.assumption_search import Outcome
from eval.assumptions import (
    ASSUMPTIONS,
    BASE,
    PAPER_SETTING,
    SCORED,
    Result,
    describe,
    options_of,
    overrides_of,
    score,
)
from eval.claims import FIGURES, Metric
from eval.effects import Effect, Hold, claim_holds, main_effects
from eval.figures import save_effects

PRESET = "paper-fitted"
FOLDER = "assumptions"  # of plot and summary, beside the report


def save_search(outcome: Outcome, folder: Path) -> None:
    """Write `assumptions.md`, `assumptions/` beside it, and the preset `paper-fitted.toml`."""
    effects, found = main_effects(outcome.random), claim_holds(outcome.random)
    beside = folder / FOLDER
    beside.mkdir(exist_ok=True)
    run = [result for result in outcome.random if result.values]
    overall: dict[Metric, float] = {
        "jct": float(np.mean([_part(result, "jct") for result in run])),
        "cost": float(np.mean([_part(result, "cost") for result in run])),
    }
    save_effects(effects, overall, beside / "effects.png")
    texts = {
        folder / "assumptions.md": _markdown(outcome, effects, found),
        beside / "summary.json": json.dumps(_summary(outcome, effects), indent=1) + "\n",
        folder / f"{PRESET}.toml": preset_text(outcome),
    }
    for path, text in texts.items():
        write_atomically(path, text.encode())


def _part(result: Result, metric: Metric) -> float:
    return score(result.values, [claim for claim in SCORED if claim.metric == metric])


def figures_score(result: Result, figures: Sequence[str]) -> float:
    """Sum, not mean, of the squared log ratios over the numbers of some figures."""
    claims = [claim for claim in SCORED if claim.figure in figures]
    return len(claims) * score(result.values, claims)


def _summary(outcome: Outcome, effects: Sequence[Effect]) -> dict[str, Any]:
    ranked = sorted(effects, key=lambda effect: -effect.share)
    best, paper = describe(outcome.best.setting), describe(PAPER_SETTING)
    return {
        "plan": asdict(outcome.plan),
        "random": len(outcome.random),
        "met": outcome.met,
        "paper_score": outcome.paper.score,
        "best_score": outcome.best.score,
        "best": best,
        "changes": {name: level for name, level in best.items() if level != paper[name]},
        "effects": [[effect.assumption, effect.share] for effect in ranked],
    }


def preset_text(outcome: Outcome) -> str:
    """The best setting as a scenario file."""
    setting, plan = outcome.best.setting, outcome.plan
    scenario = load_scenario(BASE, overrides_of(setting))
    data = scenario.model_dump(exclude_defaults=True)
    data["name"] = PRESET
    data["description"] = "The scenario paper with the assumptions that come nearest to its numbers"
    data["policies"] = options_of(setting)
    lines = [
        "# Made by `make assumptions`: the best of "
        f"{outcome.met} settings of what the paper leaves open.",
        f"# Seed {plan.seed}; {plan.settings} random settings, {plan.draws} workloads each; "
        f"{plan.starts} of them improved.",
        "# It is a fit, not physics; docs/assumptions.md has what it misses. Its assumptions:",
        *(f"#   {name}: {level}" for name, level in describe(setting).items()),
        "# [policies] is for `python -m eval.paper`; elsewhere give them yourself: bace:OPTIONS.",
    ]
    return "\n".join([*lines, *_toml(data)]) + "\n"


def _toml(data: dict[str, Any]) -> list[str]:
    """Lines of TOML for tables, and lists of tables, of plain values; empty ones are left out."""
    lines = [f"{key} = {_value(value)}" for key, value in data.items() if not _is_table(value)]
    for key, value in data.items():
        if isinstance(value, dict) and value:
            lines += ["", f"[{key}]", *(f"{k} = {_value(v)}" for k, v in value.items())]
        elif _is_table(value):
            for table in value:
                lines += ["", f"[[{key}]]", *(f"{k} = {_value(v)}" for k, v in table.items())]
    return lines


def _is_table(value: object) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and all(isinstance(entry, dict) for entry in value)
    )


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_value(v)}' for key, v in value.items())} }}"
    if isinstance(value, float) and not np.isfinite(value):
        return "inf"
    return json.dumps(value)


def _markdown(outcome: Outcome, effects: Sequence[Effect], found: Sequence[Hold]) -> str:
    plan, best, paper = outcome.plan, outcome.best, outcome.paper
    ranked = sorted(effects, key=lambda effect: -effect.share)
    never = [hold for hold in found if hold.share < 0.05]
    failed = sum(not result.values for result in outcome.random)
    lines = [
        "# What the reproduction depends on",
        "",
        f"- The paper leaves {len(ASSUMPTIONS)} questions open that its numbers depend on. Of "
        f"{plan.settings} random answers the median scores {_median(outcome):.3f}, `paper` "
        f"{paper.score:.3f}, and the best found, `{PRESET}`, {best.score:.3f} (0 is perfect; "
        f"{best.score:.3f} is {100 * (np.exp(best.score**0.5) - 1):.0f} % off in the root mean "
        f"square). Over the {_count(('4', '8'))} numbers of Figs. 4 and 8 alone, summed: "
        f"{figures_score(best, ('4', '8')):.2f}, `paper` {figures_score(paper, ('4', '8')):.2f}, "
        f"the least of any setting met {_least(outcome, ('4', '8')):.2f}.",
        "- Most of the variance of the score is due to "
        + ", ".join(f"{e.assumption} ({100 * e.share:.0f} %)" for e in ranked[:4])
        + "; alone, each explains no more than that, the rest is in their combinations.",
        f"- {len(never)} of {len(found)} claims hold in fewer than 5 % of the settings.",
        "- What the best setting does not meet: "
        + "; ".join(
            f"Fig. {claim.figure} {claim.setting} {claim.metric}, {claim.words} "
            f"({claim.kind}): {best.values[claim.name]:.2f} for {claim.value:.2f}"
            for claim in _worst(best)
        )
        + ".",
        "",
        "## The search",
        "",
        _how(outcome, failed),
        "",
        "## The best settings",
        "",
        f"Levels of `paper` are left blank. Scores on the {plan.final_draws} final workloads; "
        "[reproduction.md](reproduction.md) has others.",
        "",
        *_best_table(outcome),
        "",
        "## Scores by figure",
        "",
        *_figure_table(outcome),
        "",
        "## What each assumption does",
        "",
        "Mean score of the random settings at each level, over the claims about JCT and those "
        "about cost; in brackets the share of the variance of the log score that the levels "
        "account for.",
        "",
        f"![Main effects]({FOLDER}/effects.png)",
        "",
        *_effects_table(ranked),
        "",
        "## In which share of the settings each claim holds",
        "",
        "A claim holds in a setting where our value is within 10 % of the paper's and shows at "
        "least a tenth of its effect; an order where its weakest pair is above 1. *Hangs on*: the "
        "assumption whose levels account for most of whether it holds, and its levels where it "
        "holds most and least often.",
        "",
        *_holds_table(found, best),
    ]
    return "\n".join(lines) + "\n"


def _median(outcome: Outcome) -> float:
    return float(np.median([result.score for result in outcome.random]))


def _count(figures: Sequence[str]) -> int:
    return sum(claim.figure in figures for claim in SCORED)


def _least(outcome: Outcome, figures: Sequence[str]) -> float:
    met = [result for result in (*outcome.random, *outcome.improved) if result.values]
    return min(figures_score(result, figures) for result in met)


def _how(outcome: Outcome, failed: int) -> str:
    plan = outcome.plan
    return (
        f"`python -m eval.paper --assumptions --seed {plan.seed} --settings {plan.settings} "
        f"--draws {plan.draws}` (`make assumptions`). {plan.settings} settings are drawn uniformly "
        f"from the grid of `eval/assumptions.py` ({_size():.1e} settings), each with {plan.draws} "
        f"workloads per setting of the evaluation; the best {plan.starts} are then improved, one "
        f"assumption at a time, until none helps ({len(outcome.improved)} more settings); the best "
        f"{plan.finalists} of all are judged on {plan.final_draws} other workloads, and the very "
        "best is improved once more on these. The score, "
        "fixed before the search, is the mean squared logarithm of our value over the paper's, of "
        f"the {len(SCORED)} numbers that it states about Figs. 4-8, each once. A setting in which "
        "a policy deadlocks or that no cluster can host has no score and meets no claim: "
        f"{failed} of {plan.settings}."
    )


def _size() -> float:
    return float(np.prod([len(assumption.levels) for assumption in ASSUMPTIONS], dtype=float))


def _worst(best: Result) -> list[Any]:
    def miss(claim: Any) -> float:
        return abs(float(np.log(best.values[claim.name] / claim.value)))

    return sorted(SCORED, key=miss, reverse=True)[:5]


def _best_table(outcome: Outcome) -> list[str]:
    top = [*outcome.finalists[:5], outcome.paper]
    names = [f"#{i + 1}" for i in range(len(top) - 1)] + ["`paper`"]
    lines = ["| assumption | " + " | ".join(names) + " |", "|---|" + "---|" * len(top)]
    for i, assumption in enumerate(ASSUMPTIONS):
        cells = [
            assumption.levels[r.setting[i]].name if r.setting[i] or r is outcome.paper else ""
            for r in top
        ]
        lines.append(f"| {assumption.name} | {' | '.join(cells)} |")
    scores = " | ".join(f"{result.score:.4f}" for result in top)
    return [*lines, f"| **score** | {scores} |"]


def _figure_table(outcome: Outcome) -> list[str]:
    lines = [f"| figure | numbers | `paper` | `{PRESET}` |", "|---|---|---|---|"]
    for figure in FIGURES:
        claims = [claim for claim in SCORED if claim.figure == figure]
        scores = [score(result.values, claims) for result in (outcome.paper, outcome.best)]
        lines.append(f"| {figure} | {len(claims)} | {scores[0]:.3f} | {scores[1]:.3f} |")
    for metric, name in (("jct", "all JCT"), ("cost", "all cost")):
        claims = [claim for claim in SCORED if claim.metric == metric]
        scores = [score(result.values, claims) for result in (outcome.paper, outcome.best)]
        lines.append(f"| {name} | {len(claims)} | {scores[0]:.3f} | {scores[1]:.3f} |")
    return lines


def _effects_table(ranked: Sequence[Effect]) -> list[str]:
    lines = ["| assumption | share | level: JCT, cost |", "|---|---|---|"]
    for effect in ranked:
        levels = "; ".join(
            f"{name}: {jct:.3f}, {cost:.3f}"
            for name, jct, cost in zip(effect.levels, effect.jct, effect.cost, strict=True)
        )
        lines.append(f"| {effect.assumption} | {100 * effect.share:.1f} % | {levels} |")
    return lines


def _holds_table(found: Sequence[Hold], best: Result) -> list[str]:
    lines = [
        f"| claim | paper | `{PRESET}` | holds in | hangs on | most often | least often |",
        "|---|---|---|---|---|---|---|",
    ]
    for hold in found:
        claim = hold.claim
        end = f" ({claim.kind})" if claim.kind in ("least", "most") else ""
        cells = [
            f"{claim.place}, {claim.setting}, {claim.metric}: {claim.words}{end}",
            claim.stated,
            f"{best.values[claim.name]:.2f}",
            f"{100 * hold.share:.0f} %",
            hold.assumption,
            f"{hold.most[0]}: {100 * hold.most[1]:.0f} %",
            f"{hold.least[0]}: {100 * hold.least[1]:.0f} %",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
