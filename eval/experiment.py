"""Many episodes: every policy on the same instances, in this process or in several."""

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from agents.policy import make_policy
from bace_env.checker import check_trace
from bace_env.errors import BaceError
from bace_env.scenario import Sampler, episode_seed
from bace_env.schema import Scenario
from bace_env.trace import EpisodeTrace
from bace_env.types import FloatArray
from eval.gap import CLOSED, Yardsticks, estimate_gap_closed, gap_values
from eval.metrics import METRICS, RATIOS, TYPICAL, episode_metrics
from eval.rollout import run_episode
from eval.statistics import (
    Estimate,
    estimate_geometric_means,
    estimate_means,
    paired_ratios,
)


@dataclass(frozen=True)
class Request:
    """What every seed is run with."""

    scenario: Scenario
    policies: tuple[str, ...]  # specs; the first is the reference
    overrides: tuple[str, ...] = ()  # those that made the scenario, for titles and records
    check: bool = False
    keep_traces: bool = False
    gap: bool = False  # measure the distance to the best, too

    @property
    def title(self) -> str:
        """Name of the scenario and what was changed in it."""
        return ", ".join([self.scenario.name, *self.overrides])


@dataclass(frozen=True)
class SeedResult:
    """Metrics of every policy on one seed, `(policies, METRICS)`, and traces if asked for."""

    seed: int
    values: FloatArray
    traces: tuple[EpisodeTrace, ...]
    yardsticks: FloatArray  # (3,) see `eval.gap`; nan if not asked for


@dataclass(frozen=True)
class Comparison:
    """All results: `values[metric]` has shape `(policies, seeds)`; nan where a ratio is none."""

    request: Request
    names: tuple[str, ...]
    seeds: tuple[int, ...]
    values: dict[str, FloatArray]
    estimates: dict[str, list[Estimate]]  # metric, ratio, TYPICAL, GAPS ... -> one per policy
    traces: tuple[tuple[EpisodeTrace, ...], ...]  # per seed, per policy; empty if not kept


def run_seeds(request: Request, seeds: Sequence[int]) -> Iterator[SeedResult]:
    """Run every policy on the instance of each seed."""
    sampler, yardsticks = Sampler(request.scenario), Yardsticks(request.scenario)
    for seed in seeds:
        instance = sampler.draw(seed)
        rows, traces = [], []
        for spec in request.policies:
            trace = run_episode(instance, make_policy(spec))
            if request.check:
                check_trace(trace)
            metrics = episode_metrics(trace)
            rows.append([metrics[name] for name in METRICS])
            if request.keep_traces:
                traces.append(trace)
        measured = yardsticks.of(instance) if request.gap else np.full(3, np.nan)
        yield SeedResult(seed, np.array(rows), tuple(traces), measured)


def _run_chunk(request: Request, seeds: Sequence[int]) -> list[SeedResult]:
    return list(run_seeds(request, seeds))


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor | None]:
    """Processes that leave Ctrl-C to this one; none for one worker, whose work is done here.

    Raises:
        BaceError: A process died.
    """
    if workers == 1:
        yield None
        return
    try:
        with ProcessPoolExecutor(
            workers,
            mp_context=get_context("spawn"),
            initializer=signal.signal,
            initargs=(signal.SIGINT, signal.SIG_IGN),
        ) as pool:
            # Started at once, and deaf to Ctrl-C while they still import, too: a mask is inherited.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                for _ in range(workers):
                    pool.submit(int)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield pool
    except BrokenProcessPool:
        raise BaceError("a worker process died; was there enough memory?") from None


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
    results = []
    # The first seed runs here: errors come before any process starts, and compiled kernels are in
    # the cache when the others look for them.
    alone = seeds[:1] if workers > 1 else seeds
    for result in run_seeds(request, alone):
        results.append(result)
        on_seed()
    rest = seeds[len(alone) :]
    if rest:
        # Several chunks per worker keep them busy to the end and the progress bar moving.
        size = max(1, len(rest) // (8 * workers))
        chunks = [rest[i : i + size] for i in range(0, len(rest), size)]
        with worker_pool(min(workers, len(chunks))) as pool:
            run = map if pool is None else pool.map
            for done in run(_run_chunk, [request] * len(chunks), chunks):
                for result in done:
                    results.append(result)
                    on_seed()
    return _collect(request, names, results)


def _collect(request: Request, names: tuple[str, ...], results: Sequence[SeedResult]) -> Comparison:
    stacked = np.stack([result.values for result in results], axis=2)  # policies, metrics, seeds
    values = {name: stacked[:, i] for i, name in enumerate(METRICS)}
    for ratio, metric in RATIOS.items():
        of = values[metric]
        values[ratio] = np.stack([paired_ratios(row, of[0]) for row in of])
    yardsticks = np.stack([result.yardsticks for result in results], axis=1)
    if request.gap:
        values |= gap_values(values["objective"], yardsticks)
    table = np.concatenate(list(values.values()))  # metric-major rows of policies
    flat = estimate_means(table)
    n = len(names)
    estimates = {name: flat[i * n : (i + 1) * n] for i, name in enumerate(values)}
    for typical, ratio in TYPICAL.items():
        estimates[typical] = estimate_geometric_means(values[ratio])
    if request.gap:
        estimates[CLOSED] = estimate_gap_closed(values["objective"], yardsticks)
    return Comparison(
        request=request,
        names=names,
        seeds=tuple(result.seed for result in results),
        values=values,
        estimates=estimates,
        traces=tuple(result.traces for result in results),
    )
