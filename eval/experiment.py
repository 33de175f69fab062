"""Many episodes: every policy on the same instances, in this process or in several."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from agents.policy import make_policy
from bace_env.checker import check_trace
from bace_env.scenario import build_instance, episode_seed
from bace_env.schema import Scenario
from bace_env.trace import EpisodeTrace
from bace_env.types import FloatArray
from eval.metrics import METRICS, RATIOS, episode_metrics
from eval.rollout import run_episode
from eval.statistics import Estimate, estimate_means, paired_ratios


@dataclass(frozen=True)
class Request:
    """What every seed is run with."""

    scenario: Scenario
    policies: tuple[str, ...]  # specs; the first is the reference
    check: bool = False
    keep_traces: bool = False


@dataclass(frozen=True)
class SeedResult:
    """Metrics of every policy on one seed, `(policies, METRICS)`, and traces if asked for."""

    seed: int
    values: FloatArray
    traces: tuple[EpisodeTrace, ...]


@dataclass(frozen=True)
class Comparison:
    """All results: `values[metric]` has shape `(policies, seeds)`; nan where a ratio is none."""

    request: Request
    names: tuple[str, ...]
    seeds: tuple[int, ...]
    values: dict[str, FloatArray]
    estimates: dict[str, list[Estimate]]  # metric -> one per policy
    traces: tuple[tuple[EpisodeTrace, ...], ...]  # per seed, per policy; empty if not kept


def run_seed(request: Request, seed: int) -> SeedResult:
    """Run every policy on the instance of one seed."""
    instance = build_instance(request.scenario, seed)
    rows, traces = [], []
    for spec in request.policies:
        trace = run_episode(instance, make_policy(spec))
        if request.check:
            check_trace(trace)
        metrics = episode_metrics(trace)
        rows.append([metrics[name] for name in METRICS])
        if request.keep_traces:
            traces.append(trace)
    return SeedResult(seed, np.array(rows), tuple(traces))


def run_comparison(
    request: Request,
    *,
    seed: int,
    episodes: int,
    workers: int = 1,
    on_seed: Callable[[], None] = lambda: None,
) -> Comparison:
    """Run `episodes` seeds of a run; the result does not depend on `workers`.

    Args:
        request: Scenario and policies.
        seed: Seed of the run; see `bace_env.scenario.episode_seed`.
        episodes: Number of workloads, each met by every policy.
        workers: Processes.
        on_seed: Called after each finished seed.
    """
    seeds = tuple(episode_seed(seed, episode) for episode in range(episodes))
    names = tuple(make_policy(spec).name for spec in request.policies)
    # The first seed runs here: errors come before any process starts, and compiled kernels are in
    # the cache when the others look for them.
    results = [run_seed(request, seeds[0])]
    on_seed()
    rest = seeds[1:]
    if workers > 1 and rest:
        with ProcessPoolExecutor(min(workers, len(rest)), mp_context=get_context("spawn")) as pool:
            for result in pool.map(run_seed, [request] * len(rest), rest):
                results.append(result)
                on_seed()
    else:
        for one in rest:
            results.append(run_seed(request, one))
            on_seed()
    return _collect(request, names, results)


def _collect(request: Request, names: tuple[str, ...], results: Sequence[SeedResult]) -> Comparison:
    stacked = np.stack([result.values for result in results], axis=2)  # policies, metrics, seeds
    values = {name: stacked[:, i] for i, name in enumerate(METRICS)}
    for ratio, metric in RATIOS.items():
        of = values[metric]
        values[ratio] = np.stack([paired_ratios(row, of[0]) for row in of])
    table = np.concatenate(list(values.values()))  # metric-major rows of policies
    flat = estimate_means(table)
    n = len(names)
    estimates = {name: flat[i * n : (i + 1) * n] for i, name in enumerate(values)}
    return Comparison(
        request=request,
        names=names,
        seeds=tuple(result.seed for result in results),
        values=values,
        estimates=estimates,
        traces=tuple(result.traces for result in results),
    )
