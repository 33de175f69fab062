"""The paper's claim under disturbances: conditions, gains with intervals, verdicts.

The claim, and the disturbances under which it is to be seen again, are those of the public review:
monitoring late by 5 to 20 ms, noise of 10 to 30 % on the bandwidths and prices that are seen; and
beyond it state that is stale by seconds to minutes, and prices that change over time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from agents.policy import make_policy
from bace_env.config import parse_scenario
from bace_env.generators import relative_series
from bace_env.schema import Scenario
from bace_env.types import FloatArray
from eval.experiment import Request, run_comparison
from eval.statistics import Estimate, estimate_geometric_means, paired_ratios
from eval.verdict import FEWEST_FOR_INTERVAL

SCHEDULER = "bace"
BASELINES = ("ldf", "lcf", "cr-ldf", "cr-lcf")
POLICIES = (SCHEDULER, *BASELINES)

#: Quantity -> the share by which the scheduler is to have less of it than every baseline.
CLAIM = {"jct": 0.20, "cost": 0.10}
_METRIC = {"jct": "avg_jct_s", "cost": "total_cost_usd"}


@dataclass(frozen=True)
class Condition:
    """One way in which the world, or what is seen of it, differs from the plain scenario."""

    name: str
    monitoring: str = ""  # options of eval.monitoring.Monitored; empty: the truth is seen
    prices_change: bool = False

    def spec(self, policy: str) -> str:
        """The policy under this monitoring, as `make_policy` takes it."""
        if not self.monitoring:
            return policy
        return f"eval.monitoring:Monitored:{self.monitoring}:{policy}"


UNDISTURBED = Condition("undisturbed")
CONDITIONS = (
    UNDISTURBED,
    Condition("late 5 ms", "delay=0.005"),
    Condition("late 20 ms", "delay=0.02"),
    Condition("noise 10 %", "noise=0.1"),
    Condition("noise 20 %", "noise=0.2"),
    Condition("noise 30 %", "noise=0.3"),
    Condition("noise 30 %, late 20 ms", "noise=0.3,delay=0.02"),
    Condition("stale 1 s", "delay=1"),
    Condition("stale 1 min", "delay=60"),
    Condition("stale 10 min", "delay=600"),
    Condition("stale 10 min, own known", "delay=600,own_starts"),
    Condition("prices change", prices_change=True),
    Condition("all at once", "noise=0.3,delay=600", prices_change=True),
)

# Hourly prices of a week: a daily wave whose peak hour is the region's own, and a disturbance that
# fades over some ten hours. Size as day-ahead prices of the German zone in spring 2021: a daily
# profile from 0.67 to 1.38 of the mean, and residuals within a day of 0.27 of it.
_HOURS = 7 * 24
_WAVE, _RESIDUAL, _PERSISTENCE = 0.35, 0.27, 0.9
_LEAST = 0.05  # of the mean price: ratios of costs need positive ones


class Verdict(StrEnum):
    """Whether a gain reaches its threshold; the worst of several is the last in this order."""

    HOLDS = "holds"  # the whole interval does
    UNCERTAIN = "not certain"  # its mean does
    UNDEFINED = "undefined"  # there is no ratio, as some cost is not positive
    FAILS = "fails"

    @classmethod
    def worst(cls, verdicts: "list[Verdict]") -> "Verdict":
        """That of a claim that has all these parts."""
        return max(verdicts, key=list(cls).index)


def judge(gain: Estimate, threshold: float, episodes: int) -> Verdict:
    """The verdict on one gain; with too few workloads for an interval it is never `holds`."""
    if gain.mean is None or gain.low is None:
        return Verdict.UNDEFINED
    least = threshold - 1e-9  # 1 - 1 / 1.25 is not quite 0.2
    if gain.low >= least and episodes >= FEWEST_FOR_INTERVAL:
        return Verdict.HOLDS
    return Verdict.UNCERTAIN if gain.mean >= least else Verdict.FAILS


def survival(undisturbed: Verdict, disturbed: Verdict) -> str:
    """What became of a verdict; what does not hold without a disturbance cannot survive one."""
    if undisturbed is not Verdict.HOLDS:
        return f"{disturbed} (undisturbed: {undisturbed})"
    return "survives" if disturbed is Verdict.HOLDS else f"lost: {disturbed}"


@dataclass(frozen=True)
class Part:
    """One of the eight parts of the claim under one condition."""

    quantity: str  # a key of CLAIM
    baseline: str
    gain: Estimate  # 1 - scheduler / baseline, on a typical workload
    verdict: Verdict


@dataclass(frozen=True)
class PolicyOutcome:
    """One policy under one condition; means per workload."""

    policy: str
    jct_s: float
    cost_usd: float
    jct_change: Estimate  # ratio to the same policy undisturbed, on a typical workload
    cost_change: Estimate
    refused: float
    idle_waits: float


@dataclass(frozen=True)
class Outcome:
    """All that was found under one condition."""

    condition: Condition
    parts: tuple[Part, ...]  # by quantity, then by baseline
    policies: tuple[PolicyOutcome, ...]  # in the order of POLICIES

    def of(self, quantity: str) -> list[Part]:
        """The parts that are about a quantity."""
        return [part for part in self.parts if part.quantity == quantity]

    @property
    def verdict(self) -> Verdict:
        """That of the whole claim."""
        return Verdict.worst([part.verdict for part in self.parts])


@dataclass(frozen=True)
class World:
    """A scenario, undisturbed, and the overrides that made it."""

    scenario: Scenario
    overrides: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Name of the scenario and what was changed in it."""
        return ", ".join([self.scenario.name, *self.overrides])


@dataclass(frozen=True)
class Robustness:
    """The outcomes in one world, in the order of CONDITIONS."""

    world: World
    seeds: tuple[int, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def undisturbed(self) -> Outcome:
        """The first outcome."""
        return self.outcomes[0]


def vary_prices(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with prices that change by the hour, each region's mean as it was.

    A region whose price changes already keeps it.

    Args:
        scenario: Any scenario.
        seed: Of the series, which do not depend on the workloads.
    """
    data = scenario.model_dump()
    streams = np.random.SeedSequence(seed).spawn(len(scenario.regions))
    for region, fields, stream in zip(scenario.regions, data["regions"], streams, strict=True):
        if not isinstance(region.price_usd_per_kwh, float):
            continue
        shape = relative_series(
            np.random.default_rng(stream),
            hours=_HOURS,
            wave=_WAVE,
            residual=_RESIDUAL,
            persistence=_PERSISTENCE,
            least=_LEAST,
        )
        values = (region.price_usd_per_kwh * shape).tolist()
        fields["price_usd_per_kwh"] = {"values": values, "step_h": 1.0}
    return parse_scenario(data, scenario.name)


def measure(
    world: World,
    *,
    seed: int,
    episodes: int,
    workers: int = 1,
    check: bool = False,
    on_seed: Callable[[], None] = lambda: None,
) -> Robustness:
    """Run all policies under all conditions on the same workloads.

    Args:
        world: What is to be disturbed.
        seed: Of workloads, errors of measurement and price series.
        episodes: Number of workloads.
        workers: Processes.
        check: Re-derive every schedule independently.
        on_seed: Called `2 * episodes` times: with the scenario's prices, and with changing ones.
    """
    scenarios = ((world.scenario, False), (vary_prices(world.scenario, seed), True))
    metrics = ("avg_jct_s", "total_cost_usd", "refused_placements", "idle_waits")
    found: dict[str, list[FloatArray]] = {metric: [] for metric in metrics}
    for scenario, prices_change in scenarios:
        conditions = [c for c in CONDITIONS if c.prices_change == prices_change]
        specs = tuple(c.spec(policy) for c in conditions for policy in POLICIES)
        comparison = run_comparison(
            Request(scenario, specs, world.overrides, check=check),
            seed=seed,
            episodes=episodes,
            workers=workers,
            on_seed=on_seed,
        )
        shape = len(conditions), len(POLICIES), episodes
        for metric in metrics:
            found[metric].append(comparison.values[metric].reshape(shape))
    values = {metric: np.concatenate(arrays) for metric, arrays in found.items()}
    return Robustness(
        world=world,
        seeds=comparison.seeds,
        outcomes=judge_all(values),
    )


def judge_all(values: dict[str, FloatArray]) -> tuple[Outcome, ...]:
    """Outcomes from the metrics of all episodes.

    Args:
        values: Metric -> `(CONDITIONS, POLICIES, seeds)`; `avg_jct_s`, `total_cost_usd`,
            `refused_placements` and `idle_waits`.
    """
    episodes = values["avg_jct_s"].shape[2]
    gains = {q: _gains(values[metric]) for q, metric in _METRIC.items()}
    changes = {q: _changes(values[metric]) for q, metric in _METRIC.items()}
    means = {metric: array.mean(axis=2) for metric, array in values.items()}
    outcomes = []
    for c, condition in enumerate(CONDITIONS):
        parts = tuple(
            Part(quantity, baseline, gain, judge(gain, threshold, episodes))
            for quantity, threshold in CLAIM.items()
            for baseline, gain in zip(BASELINES, gains[quantity][c], strict=True)
        )
        policies = tuple(
            PolicyOutcome(
                policy=make_policy(policy).name,
                jct_s=float(means["avg_jct_s"][c, p]),
                cost_usd=float(means["total_cost_usd"][c, p]),
                jct_change=changes["jct"][c][p],
                cost_change=changes["cost"][c][p],
                refused=float(means["refused_placements"][c, p]),
                idle_waits=float(means["idle_waits"][c, p]),
            )
            for p, policy in enumerate(POLICIES)
        )
        outcomes.append(Outcome(condition, parts, policies))
    return tuple(outcomes)


def _gains(values: FloatArray) -> list[list[Estimate]]:
    """1 - scheduler / baseline per condition and baseline, from `(conditions, policies, seeds)`."""
    ratios = [[paired_ratios(row, of[0]) for row in of[1:]] for of in values]
    return [[_as_gain(e) for e in row] for row in _estimates(np.array(ratios))]


def _as_gain(ratio: Estimate) -> Estimate:
    """1 - 1 / ratio, which grows with the ratio: the interval's ends are those of the ratio."""
    if ratio.mean is None or ratio.low is None or ratio.high is None:
        return ratio
    return Estimate(1 - 1 / ratio.mean, 1 - 1 / ratio.low, 1 - 1 / ratio.high)


def _changes(values: FloatArray) -> list[list[Estimate]]:
    """Ratio of each policy to itself undisturbed."""
    ratios = [[paired_ratios(row, values[0, p]) for p, row in enumerate(of)] for of in values]
    return _estimates(np.array(ratios))


def _estimates(ratios: FloatArray) -> list[list[Estimate]]:
    rows, columns, seeds = ratios.shape
    flat = estimate_geometric_means(ratios.reshape(-1, seeds))
    return [flat[row * columns : (row + 1) * columns] for row in range(rows)]
