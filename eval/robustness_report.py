"""The outcomes of `eval.robustness` as people and programs read them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from eval.disturbance import (
    BASELINES,
    CLAIM,
    CONDITIONS,
    SCHEDULER,
    Outcome,
    Part,
    PolicyOutcome,
    Robustness,
    Verdict,
    survival,
)
from eval.report import (
    csv_text,
    fresh_folder,
    git_revision,
    json_text,
    scenario_json,
    versions,
    write_figure,
)
from eval.statistics import Estimate
from eval.verdict import FEWEST_FOR_INTERVAL

_WORDS = {"jct": "JCT gain", "cost": "cost saving"}
_MARKS = {
    Verdict.HOLDS: "✓",
    Verdict.UNCERTAIN: "?",
    Verdict.UNDEFINED: "none",
    Verdict.FAILS: "✗",
}
_COLOURS = {"ldf": "#0072B2", "lcf": "#E69F00", "cr-ldf": "#009E73", "cr-lcf": "#CC79A7"}
_SHAPES = {"ldf": "o", "lcf": "s", "cr-ldf": "^", "cr-lcf": "D"}

CLAIM_TEXT = " and ".join(
    f"{_WORDS[quantity]} >= {threshold:.0%}".replace("%", " %")
    for quantity, threshold in CLAIM.items()
)

_MEANING = f"""\
The claim is the one that the public review of arXiv 2605.25375 puts to the test: {CLAIM_TEXT},
against every baseline ({", ".join(BASELINES)}), under late and noisy monitoring. Gain and
saving are 1 - {SCHEDULER} / baseline on a typical workload: paired, geometric mean, 95 % bootstrap
interval, as in `eval.compare`. A part of the claim *holds* (✓) where the whole interval
reaches the threshold, is *not certain* (?) where only its mean does, and else *fails* (✗). All
policies meet the same workloads, and each is disturbed in the same way.

## What is meant

The world is the true one throughout: the simulator grants only what Eq. 5 and 6 allow, and charges
true prices. What differs is what a policy *sees* (`eval/monitoring.py`, a policy around any policy;
also `eval.compare --policy eval.monitoring:Monitored:noise=0.3,delay=0.02:bace`).

- **Late, stale**: free GPUs, reserved bandwidth, prices and the clock are those of so long ago.
  Unseen is also what the scheduler itself has started since, unless *own known*: then it keeps
  account of that, and only the ends of jobs reach it late. The queue is the scheduler's own:
  pending jobs are the true ones, and none starts twice. News of a change wakes the scheduler.
- **Noise**: whenever the scheduler wakes it measures once. The capacity of every directed link and
  the price of every region come with a factor of their own, uniform in 1 ± noise; those of the n-th
  measurement of a workload are the same for all policies. Reservations are known.
- **Refused**: a placement that the true cluster cannot carry is refused and counted. The scheduler
  decides again after the next event or news or, under noise, after another measurement 1 min later
  (2 min, 4 min ... after further refusals in a row).
- **Idle waits**: where nothing runs and nothing is to arrive, waiting may be due to noise alone.
  The cluster is then measured again likewise, and after six attempts in a row looked at exactly, so
  that noise deadlocks no run. Such waits, and those for late news, are counted. A policy that would
  wait for ever on true figures still ends the run with an error.
- **Prices change**: each region's price becomes an hourly series of a week, repeated, of the same
  mean: a daily wave of ± 35 % that peaks at an hour of its own, and a residual of 27 % that fades
  over some ten hours, in size as day-ahead prices of the German zone in spring 2021. A region that
  has a series keeps it.
- **All at once**: prices change, 30 % noise, 10 min stale.

That a disturbance can shorten JCTs is no error: who is refused waits, and waiting for more GPUs can
beat starting on the few that are free (as `bace-patient` does).
"""


def summary_line(found: Robustness) -> str:
    """The answer for one scenario, in one paragraph."""
    parts, disturbed = found.undisturbed.parts, found.outcomes[1:]
    held = [part for part in parts if part.verdict is Verdict.HOLDS]
    if len(held) == len(parts):
        kept = sum(outcome.verdict is Verdict.HOLDS for outcome in disturbed)
        text = f"the claim holds undisturbed, and under {kept} of {len(disturbed)} disturbances."
    else:
        text = "the claim does not hold even undisturbed, so it cannot survive a disturbance: "
        text += "; ".join(filter(None, (_shortfall(found, quantity) for quantity in CLAIM)))
        text += f". Of its {len(parts)} parts {len(held) or 'none'} hold undisturbed."
    by_losses: dict[tuple[str, ...], list[Part]] = {}
    for part in held:
        by_losses.setdefault(_losses(found, part), []).append(part)
    fates = [
        f"{_listed(alike)} ({'all but ' + ' / '.join(lost) if lost else 'every one'})"
        for lost, alike in sorted(by_losses.items())
    ]
    if fates:
        text += f" Disturbances under which these parts hold, too: {'; '.join(fates)}."
    return f"{found.world.title}: {text} {_own_changes(found)}"


def _shortfall(found: Robustness, quantity: str) -> str:
    """What is missing undisturbed, such as `cost saving fails against lcf (-5 %)`; or empty."""
    texts = []
    for verdict in (Verdict.FAILS, Verdict.UNDEFINED, Verdict.UNCERTAIN):
        against = [
            f"{part.baseline} ({_percent(part.gain, len(found.seeds))})"
            for part in found.undisturbed.of(quantity)
            if part.verdict is verdict
        ]
        if against:
            verb = "" if verdict is Verdict.FAILS else "is "
            texts.append(f"{verb}{verdict} against {', '.join(against)}")
    return f"{_WORDS[quantity]} {' and '.join(texts)}" if texts else ""


def _listed(parts: Sequence[Part]) -> str:
    """Such as `JCT gain over lcf, cr-ldf and cost saving over cr-ldf`."""
    texts = []
    for quantity, word in _WORDS.items():
        baselines = [part.baseline for part in parts if part.quantity == quantity]
        if baselines:
            texts.append(f"{word} over {', '.join(baselines)}")
    return " and ".join(texts)


def _losses(found: Robustness, part: Part) -> tuple[str, ...]:
    """Conditions under which a part that holds undisturbed does not hold."""
    at = found.undisturbed.parts.index(part)
    return tuple(
        outcome.condition.name
        for outcome in found.outcomes
        if outcome.parts[at].verdict is not Verdict.HOLDS
    )


def _own_changes(found: Robustness) -> str:
    texts = []
    for word, field in (("JCT", "jct_change"), ("cost", "cost_change")):
        changes = [
            (abs(ratio.mean - 1), ratio.mean - 1, outcome.condition.name)
            for outcome in found.outcomes[1:]
            if (ratio := getattr(outcome.policies[0], field)).mean is not None
        ]
        if changes:
            _, change, name = max(changes)
            texts.append(f"{word} {_signed(1 + change)} % ({name})")
    return f"Largest changes of what {SCHEDULER} itself reaches: {', '.join(texts)}."


def _percent(gain: Estimate, episodes: int, unit: str = " %") -> str:
    if gain.mean is None or gain.low is None or gain.high is None:
        return "no ratio"
    mean, low, high = (str(round(100 * v)) for v in (gain.mean, gain.low, gain.high))
    if episodes < FEWEST_FOR_INTERVAL or gain.low == gain.high:
        return f"{mean}{unit}"
    return f"{mean}{unit} [{low}, {high}]"


def make_table(found: Robustness, width: int = 80) -> Table:
    """One row per condition: the least gain and saving over a baseline, and what became of it."""
    episodes = len(found.seeds)
    table = Table(
        title=f"{found.world.title}: {CLAIM_TEXT}?",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("what is seen", min_width=min(23, width // 4))
    table.add_column("least JCT gain (%)", justify="right")
    table.add_column("least cost saving (%)", justify="right")
    table.add_column("the claim")
    wide = width >= 100
    if wide:
        for heading in ("JCT of bace", "cost of bace", "refused"):
            table.add_column(heading, justify="right", no_wrap=True)
    for outcome in found.outcomes:
        cells = [outcome.condition.name]
        cells += [_least(outcome.of(quantity), episodes) for quantity in CLAIM]
        cells.append(str(outcome.verdict))
        if wide:
            own = outcome.policies[0]
            cells += [_change(own.jct_change), _change(own.cost_change), f"{own.refused:.1f}"]
        table.add_row(*cells, style="bold" if outcome is found.undisturbed else "")
    return table


def _least(parts: Sequence[Part], episodes: int) -> str:
    defined = [part for part in parts if part.gain.mean is not None]
    if len(defined) < len(parts):
        return "no ratio"
    least = min(defined, key=lambda part: part.gain.mean or 0.0)
    return f"{_percent(least.gain, episodes, unit='')} {least.baseline}"


def _change(ratio: Estimate) -> str:
    return "none" if ratio.mean is None else f"{_signed(ratio.mean)} %"


def _signed(ratio: float) -> str:
    """The change in percent; never -0.0."""
    return f"{round(100 * (ratio - 1), 1) + 0.0:+.1f}"


def print_report(results: Sequence[Robustness], console: Console) -> None:
    """A table per scenario, then the answers."""
    for found in results:
        console.print(make_table(found, console.width))
        console.print()
    n = len(results[0].seeds)
    few = n < FEWEST_FOR_INTERVAL
    text = f"{n} workload{'' if n == 1 else 's'}; least over the baselines"
    console.print(f"{text}{'' if few else ', with 95 % interval'}.", highlight=False)
    for found in results:
        console.print(summary_line(found), highlight=False)
    if few:
        console.print(
            f"Fewer than {FEWEST_FOR_INTERVAL} workloads: no intervals, so nothing can hold."
        )


def to_json(results: Sequence[Robustness]) -> dict[str, Any]:
    """Everything that was found, for programs."""
    return {
        "claim": dict(CLAIM),
        "scheduler": SCHEDULER,
        "seeds": list(results[0].seeds),
        "scenarios": {
            found.world.title: {
                "fingerprint": found.world.scenario.fingerprint(),
                "overrides": list(found.world.overrides),
                "conditions": {
                    outcome.condition.name: _outcome_json(found, outcome)
                    for outcome in found.outcomes
                },
            }
            for found in results
        },
    }


def _outcome_json(found: Robustness, outcome: Outcome) -> dict[str, Any]:
    gains: dict[str, dict[str, Any]] = {quantity: {} for quantity in CLAIM}
    for part, plain in zip(outcome.parts, found.undisturbed.parts, strict=True):
        gains[part.quantity][part.baseline] = {
            **part.gain.to_dict(),
            "verdict": str(part.verdict),
            "undisturbed": {**plain.gain.to_dict(), "verdict": str(plain.verdict)},
        }
    return {
        "monitoring": outcome.condition.monitoring,
        "prices_change": outcome.condition.prices_change,
        "verdict": str(outcome.verdict),
        "survival": survival(found.undisturbed.verdict, outcome.verdict),
        "gains": gains,
        "policies": {
            p.policy: {
                "avg_jct_s": p.jct_s,
                "total_cost_usd": p.cost_usd,
                "jct_change": p.jct_change.to_dict(),
                "cost_change": p.cost_change.to_dict(),
                "refused_placements": p.refused,
                "idle_waits": p.idle_waits,
            }
            for p in outcome.policies
        },
    }


def gain_rows(results: Sequence[Robustness]) -> list[dict[str, object]]:
    """One row per scenario, condition, quantity and baseline, with the undisturbed gain."""
    rows: list[dict[str, object]] = []
    for found in results:
        for outcome in found.outcomes:
            for part, plain in zip(outcome.parts, found.undisturbed.parts, strict=True):
                row: dict[str, object] = {
                    "scenario": found.world.title,
                    "condition": outcome.condition.name,
                    "quantity": part.quantity,
                    "baseline": part.baseline,
                    "threshold": CLAIM[part.quantity],
                }
                for prefix, of in (("", part), ("undisturbed_", plain)):
                    row[f"{prefix}gain"] = of.gain.mean
                    row[f"{prefix}low"], row[f"{prefix}high"] = of.gain.low, of.gain.high
                    row[f"{prefix}verdict"] = str(of.verdict)
                rows.append(row)
    return rows


def policy_rows(results: Sequence[Robustness]) -> list[dict[str, object]]:
    """One row per scenario, condition and policy."""
    return [
        {"scenario": found.world.title, "condition": outcome.condition.name, **_policy_row(policy)}
        for found in results
        for outcome in found.outcomes
        for policy in outcome.policies
    ]


def _policy_row(p: PolicyOutcome) -> dict[str, object]:
    return {
        "policy": p.policy,
        "avg_jct_s": p.jct_s,
        "total_cost_usd": p.cost_usd,
        "jct_change": p.jct_change.mean,
        "jct_change_low": p.jct_change.low,
        "jct_change_high": p.jct_change.high,
        "cost_change": p.cost_change.mean,
        "cost_change_low": p.cost_change.low,
        "cost_change_high": p.cost_change.high,
        "refused_placements": p.refused,
        "idle_waits": p.idle_waits,
    }


def make_markdown(results: Sequence[Robustness]) -> str:
    """The report; it holds no measured times."""
    lines = ["# Does the paper's claim survive imperfect monitoring?", "", _answer(results), ""]
    lines += [f"- {summary_line(found)}" for found in results]
    lines += ["", _MEANING, "## Every part under every condition", ""]
    lines += [f"![gains](robustness.png) {len(results[0].seeds)} workloads per scenario.", ""]
    for found in results:
        lines += _markdown_tables(found)
    return "\n".join(lines)


def _answer(results: Sequence[Robustness]) -> str:
    n = len(results)
    plain = sum(found.undisturbed.verdict is Verdict.HOLDS for found in results)
    always = sum(all(o.verdict is Verdict.HOLDS for o in found.outcomes) for found in results)
    answer = "Yes" if always == n else "In part" if always else "No"
    return (
        f"**{answer}**: {CLAIM_TEXT} against every baseline holds undisturbed in {plain} of {n} "
        f"scenarios, and under every disturbance in {always}."
    )


def _markdown_tables(found: Robustness) -> list[str]:
    episodes = len(found.seeds)
    heads = [f"{_WORDS[part.quantity]}, {part.baseline}" for part in found.undisturbed.parts]
    lines = [f"### {found.world.title}", "", found.world.scenario.description, ""]
    lines += [f"| what is seen | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for outcome in found.outcomes:
        cells = [f"{_percent(p.gain, episodes)} {_MARKS[p.verdict]}" for p in outcome.parts]
        lines.append(f"| {outcome.condition.name} | {' | '.join(cells)} |")
    lines += [
        "",
        f"What it does to {SCHEDULER} itself, against the same workloads undisturbed; refused "
        "placements and idle waits per workload:",
        "",
        "| what is seen | JCT | cost | refused | refused, baselines | idle waits, any policy |",
        "|---" * 6 + "|",
    ]
    for outcome in found.outcomes[1:]:
        own, *others = outcome.policies
        refused = [policy.refused for policy in others]
        cells = [
            _change_with_interval(own.jct_change),
            _change_with_interval(own.cost_change),
            f"{own.refused:.1f}",
            f"{min(refused):.1f} to {max(refused):.1f}",
            f"{max(policy.idle_waits for policy in outcome.policies):.2f}",
        ]
        lines.append(f"| {outcome.condition.name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _change_with_interval(ratio: Estimate) -> str:
    if ratio.mean is None or ratio.low is None or ratio.high is None:
        return "none"
    return f"{_signed(ratio.mean)} % [{_signed(ratio.low)}, {_signed(ratio.high)}]"


def save_run(results: Sequence[Robustness], directory: Path) -> None:
    """Write the run directory: report, CSV, JSON, plot, and what it was made with.

    Raises:
        ResultExistsError: The directory exists.
    """
    with fresh_folder("--out", directory) as folder:
        _write_run(results, folder)


def _write_run(results: Sequence[Robustness], folder: Path) -> None:
    run = {
        "overrides": {found.world.title: list(found.world.overrides) for found in results},
        "seeds": list(results[0].seeds),
        "versions": versions(),
        "git_revision": git_revision(),
        "scenarios": {found.world.title: scenario_json(found.world.scenario) for found in results},
    }
    for name, data in (("run", run), ("summary", to_json(results))):
        (folder / f"{name}.json").write_text(json_text(data), "utf-8")
    for name, rows in (("gains", gain_rows(results)), ("policies", policy_rows(results))):
        (folder / f"{name}.csv").write_text(csv_text(rows), "utf-8")
    (folder / "report.md").write_text(make_markdown(results), "utf-8")
    save_plot(results, folder / "robustness.png")


def save_plot(results: Sequence[Robustness], path: Path) -> None:
    """Gains over each baseline with intervals, a row of panels per scenario."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 0.6 + 4.8 * len(results)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(results), len(CLAIM), sharey=True, squeeze=False)
    for row, found in zip(panels, results, strict=True):
        for axes, quantity in zip(row, CLAIM, strict=True):
            _draw_panel(axes, found, quantity)
        row[0].set_yticks(range(len(CONDITIONS)), [c.name for c in CONDITIONS])
        row[0].set_ylim(len(CONDITIONS) - 0.45, -0.55)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=len(labels),
        frameon=False,
    )
    write_figure(figure, path)


def _draw_panel(axes: Any, found: Robustness, quantity: str) -> None:
    threshold = 100 * CLAIM[quantity]
    for i, baseline in enumerate(BASELINES):
        gains = [outcome.of(quantity)[i].gain for outcome in found.outcomes]
        mean, low, high = (
            np.array([np.nan if v is None else 100 * v for v in values])
            for values in (
                [g.mean for g in gains],
                [g.low for g in gains],
                [g.high for g in gains],
            )
        )
        axes.errorbar(
            mean,
            np.arange(len(gains)) + (i - (len(BASELINES) - 1) / 2) * 0.2,
            xerr=np.maximum([mean - low, high - mean], 0.0),
            fmt=_SHAPES[baseline],
            color=_COLOURS[baseline],
            markersize=4,
            linewidth=1,
            label=f"against {baseline}",
        )
    axes.axvline(threshold, color="#333333", linewidth=1, linestyle="--")
    axes.axvline(0.0, color="#bbbbbb", linewidth=0.8, zorder=0)
    for at in range(len(CONDITIONS) - 1):
        axes.axhline(at + 0.5, color="#e5e5e5", linewidth=0.6, zorder=0)
    axes.set_title(f"{found.world.title}: {_WORDS[quantity]}", fontsize=10, parse_math=False)
    axes.set_xlabel(f"{_WORDS[quantity]} of {SCHEDULER} (%); dashed: {threshold:.0f} %")
    axes.spines[["top", "right"]].set_visible(False)
