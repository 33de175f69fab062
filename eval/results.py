"""`python -m eval.results`: what the learned scheduler reaches, as docs/results.md."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from agents.policy import make_policy
from bace_env.command import NONE, integer, run_command
from bace_env.config import load_scenario
from bace_env.errors import ConfigError
from bace_env.files import require_parent, write_atomically
from bace_env.schema import Scenario
from bace_env.types import FloatArray
from eval.claims import SETTINGS
from eval.command import progress_bar
from eval.compare import RULES
from eval.experiment import Comparison, Request, run_comparison
from eval.report import plot_beside, write_figure
from eval.statistics import Estimate, estimate_ratios_of_means
from eval.tradeoff import hypervolume, typical_points

#: The weights of the cost of which the trade-off is drawn.
LAMBDAS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.6, 1.0, 2.0)
_FRONTS = ("paper", "physical")
LOWER_LAMBDA = 0.2  # the model is shown at this, too
_PLANNER = "search"  # shown beside the rules

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """Measure the learned scheduler beside every fixed rule: docs/results.md and its plot.

\b
Examples:
  python -m eval.results
  python -m eval.results --policy ppo:runs/mine --episodes 50 --out mine.md
"""


@dataclass(frozen=True)
class Case:
    """One setting that is measured."""

    title: str
    scenario: Scenario


def paper_cases() -> list[Case]:
    """The paper's eleven settings, and the physical one."""
    cases = [
        Case(", ".join(("paper", *overrides)), load_scenario("paper", overrides))
        for overrides in SETTINGS.values()
    ]
    return [*cases, Case("physical", load_scenario("physical"))]


def zero_shot_cases() -> list[Case]:
    """Numbers of jobs and regions that training never saw."""
    cases = []
    for name in ("paper", "physical"):
        changed = load_scenario(name, ["workload.n_jobs=100"])
        cases.append(Case(f"{name}, 100 jobs", changed))
    for n in (3, 12):
        data = load_scenario("paper").model_dump()
        own = data["regions"]
        data["regions"] = [{**own[r % len(own)], "name": f"region-{r}"} for r in range(n)]
        cases.append(Case(f"paper, {n} regions", Scenario.model_validate(data)))
    return cases


@app.command(help=_HELP)
def results(
    policy: Annotated[str, typer.Option(metavar="NAME", help="The learned policy.")] = "ppo",
    beside: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="A model of another training seed; repeatable."),
    ] = NONE,
    episodes: Annotated[
        int, typer.Option(parser=integer(10, 10**5), metavar="N", help="Workloads per setting.")
    ] = 200,
    zero_shot_episodes: Annotated[
        int, typer.Option(parser=integer(0, 10**5), metavar="N", help="Of other sizes; 0: none.")
    ] = 200,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Markdown; the plot goes beside it.")
    ] = Path("docs/results.md"),
) -> None:
    """Check, measure, write."""
    if "," in policy or "lambda" in policy:
        raise ConfigError(f"--policy: without lambda, which is swept here, got {policy!r}")
    for spec in (policy, _at(policy, LAMBDAS[0]), *beside):
        make_policy(spec)
    require_parent("--out", out)
    plot = plot_beside("--out", out)
    cases, other = paper_cases(), zero_shot_cases() if zero_shot_episodes else []
    total = len(cases) + len(other) + len(_FRONTS)
    with progress_bar() as progress:
        task = progress.add_task("settings", total=total)

        def run(scenario: Scenario, specs: Sequence[str], n: int, gap: bool = False) -> Comparison:
            made = run_comparison(Request(scenario, tuple(specs), gap=gap), seed=0, episodes=n)
            progress.update(task, advance=1)
            return made

        text = _document(policy, beside, episodes, zero_shot_episodes, cases, other, run, plot)
    write_atomically(out, text.encode())
    print(f"Wrote {out} and {plot}")


_Run = Callable[..., Comparison]


def _document(
    policy: str, beside: list[str], episodes: int, zero_shot_episodes: int, cases: list[Case],
    other: list[Case], run: _Run, plot: Path,
) -> str:  # fmt: skip
    specs = ("bace", policy, *RULES[1:])
    all_specs = (*specs, _at(policy, LOWER_LAMBDA), *beside)
    compared = [run(case.scenario, all_specs, episodes, gap=True) for case in cases]
    titles = [case.title for case in cases]
    own, lower, *others = (
        [_Measured.of(comparison, model) for comparison in compared]
        for model in (1, *range(len(specs), len(all_specs)))
    )
    front = (*RULES, _PLANNER, *(_at(policy, x) for x in LAMBDAS))
    fronts = {name: run(load_scenario(name), front, episodes) for name in _FRONTS}
    parts = [
        "# What the learned scheduler reaches\n",
        "Written by `python -m eval.results`; run seed 0, whose episodes no training plays (seeds "
        "differ; with eight jobs of three data sets a training episode may still draw the same "
        f"data sets). {episodes} paired workloads per setting, 95 % bootstrap intervals; the model "
        "is the same everywhere, and lambda is that of the scenarios, 0.3.\n",
        "## Against BACE-Pipe and the best fixed rule\n",
        "JCT and cost: geometric mean of the paired ratios to `bace`. Objective: ratio of the "
        f"means to the fixed rule of lowest mean objective, of {', '.join(RULES)}. Gap closed: "
        "share of the way from that rule to the best schedules known (`eval.best_known`), by the "
        "means.\n",
        *_table(titles, own),
        _summary(own),
        f"\nThe same with the model at lambda {LOWER_LAMBDA:g}, for which JCT counts for more; the "
        "objective is still that at 0.3.\n",
        *_table(titles, lower),
        _summary(lower),
        *(_seeds(dict(zip((policy, *beside), (own, *others), strict=True))) if beside else ()),
        "\n## Trade-off\n",
        f"The same model with lambda from {LAMBDAS[0]:g} to {LAMBDAS[-1]:g} at run time. "
        f"`{_PLANNER}` is no rule: it simulates hundreds of schedules to their end per decision, "
        "with the scenario's lambda.\n",
        f"![Average JCT against cost, ratios to bace]({plot.name})\n",
        *(_front_text(name, comparison, policy) for name, comparison in fronts.items()),
    ]
    if other:
        zero = [_Measured.of(run(case.scenario, specs, zero_shot_episodes), 1) for case in other]
        parts += [
            "\n## Other sizes, without training on them\n",
            f"{zero_shot_episodes} workloads each.\n",
            *_table([case.title for case in other], zero),
        ]
    write_figure(_figure(fronts, policy), plot)
    return "\n".join(parts).rstrip() + "\n"


def _at(policy: str, weight: float) -> str:
    return f"{policy}{',' if ':' in policy else ':'}lambda={weight:g}"


def _with_interval(estimate: Estimate) -> str:
    if estimate.mean is None:
        return "-"
    return f"{estimate.mean:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _best_rule(comparison: Comparison) -> tuple[int, FloatArray]:
    """Index and objectives of the fixed rule with the lowest mean objective."""
    objective = comparison.values["objective"]
    rules = [0, *range(2, len(RULES) + 1)]
    best = min(rules, key=lambda i: float(objective[i].mean()))
    return best, objective[best]


class _Measured(NamedTuple):
    """A model in one setting."""

    jct: Estimate
    cost: Estimate
    rule: str
    objective: Estimate  # to that of the rule
    closed: Estimate | None  # of the gap from the rule to the best known

    @classmethod
    def of(cls, comparison: Comparison, model: int) -> "_Measured":
        """Of the model at this index."""
        jct, cost = (comparison.estimates[f"typical_{x}_ratio"][model] for x in ("jct", "cost"))
        rule, start = _best_rule(comparison)
        own = comparison.values["objective"][model]
        objective = estimate_ratios_of_means(own[None], start[None])[0]
        closed = None
        if "above_best_known" in comparison.values:
            best = own / (1.0 + comparison.values["above_best_known"][model])
            closed = estimate_ratios_of_means((start - own)[None], (start - best)[None])[0]
        return cls(jct, cost, comparison.names[rule], objective, closed)


def _table(titles: Sequence[str], measured: Sequence[_Measured]) -> list[str]:
    head = ["setting", "JCT / bace", "cost / bace", "best fixed rule", "objective / its"]
    rows = []
    for title, own in zip(titles, measured, strict=True):
        cells = [title, _with_interval(own.jct), _with_interval(own.cost), own.rule]
        cells += [_with_interval(each) for each in (own.objective, own.closed) if each is not None]
        rows.append(cells)
    head += ["gap closed"] * (len(rows[0]) - len(head))
    return [*_markdown_table([head, *rows]), ""]


def _markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *rest = rows
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rest)]


class _Counts(NamedTuple):
    """In how many settings a claim holds."""

    cheaper: int  # cost below that of bace, with the whole interval
    not_slower: int  # JCT not above that of bace
    slower: int  # above, with the whole interval
    better: int  # objective below that of the best rule, with the whole interval
    closer: int  # three quarters of the gap closed

    @classmethod
    def of(cls, found: Sequence[_Measured]) -> "_Counts":
        """Of a model in all settings; what has no value does not hold."""
        nan = float("nan")

        def value(x: float | None) -> float:
            return nan if x is None else x

        return cls(
            cheaper=sum(value(each.cost.high) < 1 for each in found),
            not_slower=sum(value(each.jct.mean) <= 1 for each in found),
            slower=sum(value(each.jct.low) > 1 for each in found),
            better=sum(value(each.objective.high) < 1 for each in found),
            closer=sum(value(each.closed.mean) >= 0.75 for each in found if each.closed),
        )


def _summary(measured: Sequence[_Measured]) -> str:
    """Which of the claims hold, counted."""
    n, counts = len(measured), _Counts.of(measured)
    return (
        f"Total cost is below that of BACE-Pipe, interval and all, in {counts.cheaper} of {n} "
        f"settings. Average JCT is not above BACE-Pipe's in {counts.not_slower} of {n} (point "
        f"estimate), and above it with the whole interval in {counts.slower}. The objective is "
        f"below that of the best fixed rule, interval and all, in {counts.better} "
        f"of {n}; at least 75 % of the gap is closed in {counts.closer} of {n}."
    )


def _seeds(models: Mapping[str, Sequence[_Measured]]) -> list[str]:
    """The same of models of several training seeds, a row each; `physical` is the last setting."""
    rows: list[Sequence[str]] = [
        ("model", "cheaper", "JCT not above", "objective below the best rule's", "gap closed 75 %",
         "mean gap closed", "physical: JCT / bace"),
    ]  # fmt: skip
    for spec, measured in models.items():
        counts = _Counts.of(measured)
        shares = [each.closed.mean for each in measured if each.closed]
        mean = np.mean([share for share in shares if share is not None])
        cells = (counts.cheaper, counts.not_slower, counts.better, counts.closer)
        rows.append(
            (Path(spec.split(":")[-1]).name, *map(str, cells), f"{mean:.3f}",
             _with_interval(measured[-1].jct))
        )  # fmt: skip
    n = len(next(iter(models.values())))
    return [
        f"\nEach training seed: in how many of the {n} settings what is said above holds.\n",
        *_markdown_table(rows),
    ]


def _front_text(name: str, comparison: Comparison, policy: str) -> str:
    points, n = typical_points(comparison), len(RULES) + 1
    rules, own = points[: n - 1], points[n:]
    corner = (float(points[:, 0].max()), float(points[:, 1].max()))
    others = (*RULES, _PLANNER)
    beaten = [
        rule
        for rule, point in zip(others, points[:n], strict=True)
        if any((each <= point).all() and (each < point).any() for each in own)
    ]
    left = [rule for rule in others if rule not in beaten]
    rest = f"; not {', '.join(left)}" if left else ""
    areas = hypervolume(own, corner), hypervolume(rules, corner)
    lines = [
        f"\n`{name}`: some point of the model is at least as good in both as {', '.join(beaten)}"
        f"{rest}. Hypervolume below the worst of each: {areas[0]:.3f} of the model, {areas[1]:.3f} "
        "of all rules together.\n",
        "| lambda | JCT / bace | cost / bace |",
        "|---|---|---|",
    ]
    for i, weight in enumerate(LAMBDAS):
        cells = [
            _with_interval(comparison.estimates[f"typical_{x}_ratio"][n + i])
            for x in ("jct", "cost")
        ]
        lines.append(f"| {weight:g} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _figure(fronts: dict[str, Comparison], policy: str) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, comparison) in zip(figure.subplots(1, 2), fronts.items(), strict=True):
        points, n = typical_points(comparison), len(RULES) + 1
        rules, planner = points[: n - 1], points[n - 1]
        axes.scatter(*rules.T, color="#555555", marker="s", label="fixed rules", zorder=2)
        axes.scatter(*planner, color="#D55E00", marker="D", label=_PLANNER, zorder=2)
        axes.plot(*points[n:].T, color="#0072B2", marker="o", label=f"{policy}, lambda", zorder=3)
        labels: dict[tuple[float, float], list[str]] = {}
        near = 0.05 * np.ptp(points, axis=0)  # closer ones share a label
        for rule, point in zip(RULES, rules, strict=True):
            known = [at for at in labels if (np.abs(point - at) < near).all()]
            labels.setdefault(known[0] if known else tuple(point.tolist()), []).append(rule)
        for at, names in labels.items():
            right = at[0] > points[:, 0].mean()
            axes.annotate(
                ", ".join(names), at, xytext=(-5 if right else 5, 5), textcoords="offset points",
                fontsize=8, ha="right" if right else "left",
            )  # fmt: skip
        # On opposite sides: the points may coincide.
        for i, offset, side in ((0, (-5, 3), "right"), (len(LAMBDAS) - 1, (5, -9), "left")):
            axes.annotate(
                f"{LAMBDAS[i]:g}", points[n + i], xytext=offset, textcoords="offset points",
                fontsize=8, color="#0072B2", ha=side,
            )  # fmt: skip
        axes.margins(0.12)
        axes.set_title(name)
        axes.set_xlabel("average JCT / bace")
        axes.set_ylabel("cost / bace")
        axes.legend(fontsize=8)
    return figure


def main() -> None:
    """Entry point; see `bace_env.command.run_command`."""
    run_command(app, "python -m eval.results")


if __name__ == "__main__":
    main()
