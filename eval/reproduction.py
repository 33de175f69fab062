"""Runs the settings of the paper's evaluation and judges its claims."""

from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass

import numpy as np

from agents.policy import make_policy
from bace_env.config import load_scenario
from bace_env.errors import ConfigError
from bace_env.scenario import build_instance, episode_seed
from bace_env.schema import Scenario
from bace_env.simulator import Placement, Simulator
from bace_env.trace import EpisodeTrace
from bace_env.types import FloatArray
from eval.claims import (
    CLAIMS,
    FIG1,
    FIGURES,
    POLICIES,
    REFERENCE,
    SETTINGS,
    Claim,
    Metric,
    Pair,
    Placed,
    Verdict,
    is_near,
    judge,
)
from eval.experiment import Request, run_seeds
from eval.metrics import METRICS
from eval.processes import worker_pool
from eval.rollout import run_episode
from eval.statistics import Estimate, estimate_geometric_means, estimate_ratios_of_means
from eval.verdict import FEWEST_FOR_INTERVAL

_COLUMNS: dict[Metric, str] = {"jct": "avg_jct_s", "cost": "total_cost_usd"}
METRICS_SHOWN: tuple[Metric, ...] = ("jct", "cost")


@dataclass(frozen=True)
class Cell:
    """A ratio of two policies in a setting, by both statistics."""

    typical: Estimate  # geometric mean of the ratios per workload
    of_means: Estimate  # ratio of the means over workloads


@dataclass(frozen=True)
class Judged:
    """A claim, our value of it, and the verdict."""

    claim: Claim
    ours: Estimate
    verdict: Verdict
    of_means: Estimate
    verdict_of_means: Verdict


@dataclass(frozen=True)
class SettingRun:
    """All policies in one setting: `values[metric]` has shape `(POLICIES, workloads)`."""

    setting: str
    seeds: tuple[int, ...]
    values: dict[Metric, FloatArray]

    def cells(self, metric: Metric, pairs: Sequence[Pair]) -> list[Cell]:
        """The ratio of each pair."""
        above = self.values[metric][[POLICIES.index(pair.above) for pair in pairs]]
        below = self.values[metric][[POLICIES.index(pair.below) for pair in pairs]]
        typical = estimate_geometric_means(above / below)
        of_means = estimate_ratios_of_means(above, below)
        if len(self.seeds) < FEWEST_FOR_INTERVAL:  # a bootstrap interval of so few says little
            typical = [Estimate(e.mean, e.mean, e.mean) for e in typical]
            of_means = [Estimate(e.mean, e.mean, e.mean) for e in of_means]
        return [Cell(*both) for both in zip(typical, of_means, strict=True)]

    def bars(self, metric: Metric) -> dict[str, Estimate]:
        """Policy -> its ratio to BACE-Pipe, as the figures show it."""
        cells = self.cells(metric, [Pair(policy, REFERENCE) for policy in POLICIES])
        return {policy: cell.typical for policy, cell in zip(POLICIES, cells, strict=True)}

    def score_of_draw(self, draw: int, claims: Sequence[Claim]) -> list[float]:
        """Squared log ratios of ours to the paper's on one workload alone."""
        logs = {metric: np.log(values[:, draw]) for metric, values in self.values.items()}
        squares = []
        for claim in claims:
            assert claim.value is not None
            of = [
                logs[claim.metric][POLICIES.index(a)] - logs[claim.metric][POLICIES.index(b)]
                for a, b in claim.pairs
            ]
            ours = max(of) if claim.kind == "most" else min(of)
            squares.append(float((ours - np.log(claim.value)) ** 2))
        return squares


@dataclass(frozen=True)
class Reproduction:
    """Everything that one scenario gives."""

    scenario: Scenario
    runs: dict[str, SettingRun]  # by setting
    judged: tuple[Judged, ...]


def policy_specs(scenario_name: str) -> tuple[str, ...]:
    """What POLICIES are run as: with the options that the scenario gives them.

    Raises:
        ConfigError: It names another policy, or an option that there is not.
    """
    options = load_scenario(scenario_name).policies
    unknown = sorted(set(options) - set(POLICIES))
    if unknown:
        raise ConfigError(
            f"policies.{unknown[0]}: must be one of the paper's, {', '.join(POLICIES)}"
        )
    specs = tuple(f"{p}:{options[p]}" if p in options else p for p in POLICIES)
    for spec in specs:
        make_policy(spec)
    return specs


def settings_of(figures: Sequence[str]) -> list[str]:
    """The settings that the figures need, each once, in the order of `SETTINGS`."""
    needed = {setting for figure in figures for setting in FIGURES.get(figure, ())}
    return [setting for setting in SETTINGS if setting in needed]


def run_setting(scenario: str, setting: str, seed: int, episodes: int) -> SettingRun:
    """Run every policy on the workloads of one setting.

    Raises:
        BaceError: A policy deadlocks in it.
    """
    loaded = load_scenario(scenario, SETTINGS[setting])
    request = Request(loaded, policy_specs(scenario), SETTINGS[setting])
    seeds = tuple(episode_seed(seed, episode) for episode in range(episodes))
    table = np.stack([result.values for result in run_seeds(request, seeds)], axis=2)
    values = {metric: table[:, METRICS.index(name)] for metric, name in _COLUMNS.items()}
    return SettingRun(setting, seeds, values)


def run_scenarios(
    scenarios: Sequence[str],
    figures: Sequence[str],
    *,
    seed: int,
    episodes: int,
    workers: int = 1,
    on_setting: Callable[[], None] = lambda: None,
) -> list[Reproduction]:
    """Run all that the figures need in every scenario; the result does not depend on `workers`.

    Args:
        scenarios: Names of presets, or files.
        figures: Keys of `FIGURES`; others need no run.
        seed: Seed of the run: workload i is the same in every setting with as many jobs.
        episodes: Workloads per setting.
        workers: Processes.
        on_setting: Called after each finished setting.
    """
    tasks = [(s, setting) for s in scenarios for setting in settings_of(figures)]
    done: dict[tuple[str, str], SettingRun] = {}
    names = [load_scenario(scenario).name for scenario in scenarios]
    if len(set(names)) < len(names):
        raise ConfigError(f"--scenario: their names must differ, got {', '.join(names)}")
    for scenario in scenarios:  # what is wrong comes before anything is run
        policy_specs(scenario)
        for setting in settings_of(figures):
            build_instance(load_scenario(scenario, SETTINGS[setting]), seed)
    with worker_pool(min(workers, max(len(tasks), 1))) as pool:
        if pool is None:
            for task in tasks:
                done[task] = run_setting(*task, seed, episodes)
                on_setting()
        else:
            # One here first: compiled kernels are then in the cache when the others look for them.
            done[tasks[0]] = run_setting(*tasks[0], seed, episodes)
            on_setting()
            futures = {pool.submit(run_setting, *task, seed, episodes): task for task in tasks[1:]}
            for future in as_completed(futures):
                done[futures[future]] = future.result()
                on_setting()
    found = []
    for scenario in scenarios:
        runs = {setting: done[scenario, setting] for setting in settings_of(figures)}
        judged = judge_claims(runs, figures)
        found.append(Reproduction(load_scenario(scenario), runs, judged))
    return found


def judge_claims(runs: dict[str, SettingRun], figures: Sequence[str]) -> tuple[Judged, ...]:
    """The verdicts on all claims about the figures; those of the abstract go with Fig. 4."""
    about = {*figures, "abstract"} if "4" in figures else set(figures)
    found = []
    for claim in CLAIMS:
        if claim.figure not in about:
            continue
        cells = runs[claim.setting].cells(claim.metric, claim.pairs)
        ours = _of_claim(claim, [cell.typical for cell in cells])
        of_means = _of_claim(claim, [cell.of_means for cell in cells])
        found.append(Judged(claim, ours, judge(claim, ours), of_means, judge(claim, of_means)))
    return tuple(found)


def _of_claim(claim: Claim, pairs: Sequence[Estimate]) -> Estimate:
    """The estimate of the pair that decides: the greatest for `most`, else the least."""
    means = [np.nan if pair.mean is None else pair.mean for pair in pairs]
    return pairs[int(np.argmax(means) if claim.kind == "most" else np.argmin(means))]


@dataclass(frozen=True)
class Fig1Row:
    """One strategy of Fig. 1 as the paper prints it, as our policy does it, and replayed."""

    printed: Placed
    jct_h: float  # what the policy achieves by its own choice
    cost_usd: float
    p: dict[str, int]
    q: dict[str, int]
    replayed_jct_h: float  # of the paper's placements in our simulator
    replayed_cost_usd: float

    @property
    def verdict(self) -> Verdict:
        """Both numbers within the tolerance, or not: an absolute number has no direction."""
        near = is_near(self.printed.jct_h, self.jct_h) and is_near(
            self.printed.cost_usd, self.cost_usd
        )
        return "reproduced" if near else "not reproduced"


def run_fig1() -> list[Fig1Row]:
    """The four strategies of Fig. 1; nothing in it is random."""
    instance = build_instance(load_scenario("fig1"), 0)
    index = {name: r for r, name in enumerate(instance.region_names)}
    rows = []
    for printed in FIG1:
        trace = run_episode(instance, make_policy(printed.policy))
        replay = Simulator(instance)
        for job, where in enumerate((printed.p, printed.q)):
            path = tuple(index[region] for region in where)
            replay.step(Placement(job, path, tuple(where.values())))
        replayed = replay.trace("printed")
        rows.append(
            Fig1Row(
                printed=printed,
                jct_h=_jct_h(trace),
                cost_usd=float(trace.cost_usd.sum()),
                p=_where(trace, 0),
                q=_where(trace, 1),
                replayed_jct_h=_jct_h(replayed),
                replayed_cost_usd=float(replayed.cost_usd.sum()),
            )
        )
    return rows


def _jct_h(trace: EpisodeTrace) -> float:
    return trace.summary().avg_jct_s / 3600.0


def _where(trace: EpisodeTrace, job: int) -> dict[str, int]:
    path, gpus = trace.placement(job)
    names = [trace.instance.region_names[r] for r in path]
    return dict(zip(names, gpus, strict=True))
