"""Rollouts and schedules per second, and what search makes of them: `python benchmarks/search.py`.

One core, CPU time, 8 jobs on 6 regions (`paper`) unless said otherwise.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import core  # noqa: F401 - first: puts the checkout on the path
import numpy as np

from agents.heuristic import heuristic_options
from agents.policy import make_policy
from agents.schedule import (
    allocate_sequence,
    copy_state,
    objective_scales,
    play_policy,
)
from agents.search import PORTFOLIO, Planner
from bace_env.config import load_scenario
from bace_env.instance import Instance
from bace_env.kernels import allocate_state, reset
from bace_env.scenario import Sampler
from bace_env.types import allocate_scratch
from eval.bounds import lower_bounds
from eval.known_schedules import find_schedule
from eval.rollout import run_episode


def seconds(run: Callable[[], object]) -> float:
    """CPU seconds of one call, compiled before."""
    start = time.process_time()
    run()
    return time.process_time() - start


def rollouts_per_s(instance: Instance, policy: str, number: int = 20_000) -> float:
    """Whole episodes of a heuristic in compiled code, each from a copy of the first state."""
    a, r, n = instance.arrays, instance.n_regions, instance.n_jobs
    first, work = allocate_state(r, n), allocate_state(r, n)
    reset(a, first, np.inf)
    scratch, out = allocate_scratch(r, n, a.k_star.size), allocate_sequence(n, r)
    options, scales = heuristic_options(policy), objective_scales(instance)

    def run(times: int) -> None:
        for _ in range(times):
            copy_state(first, work)
            play_policy(a, work, options, scales, scratch, out, 0)

    run(10)
    # The two calls from Python cost more than the episode: they are measured apart.
    empty = allocate_sequence(n, r)
    run_s = seconds(lambda: run(number))
    done = allocate_state(r, n)
    copy_state(work, done)

    def overhead(times: int) -> None:
        for _ in range(times):
            copy_state(done, work)
            play_policy(a, work, options, scales, scratch, empty, 0)  # all jobs have started

    overhead(10)
    return number / (run_s - seconds(lambda: overhead(number)))


def schedules_per_s(instance: Instance, number: int = 100_000) -> float:
    """Simulations of the annealing: mutate, copy the state, play."""
    planner = Planner(instance, tuple(heuristic_options(spec) for spec in PORTFOLIO))
    state = allocate_state(instance.n_regions, instance.n_jobs)
    reset(instance.arrays, state, np.inf)
    planner.begin(state)
    planner.try_bases()
    rng = np.random.default_rng(0)
    planner.improve(rng.random((10, 9)))
    uniform = rng.random((number, 9))
    return number / seconds(lambda: planner.improve(uniform))


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for n_jobs in (8, 24):
        instance = Sampler(load_scenario("paper", [f"workload.n_jobs={n_jobs}"])).draw(0)
        print(f"{n_jobs} jobs x 6 regions")
        print(f"  rollouts of bace per second       {rollouts_per_s(instance, 'bace'):10,.0f}")
        print(f"  annealed schedules per second     {schedules_per_s(instance):10,.0f}")
        run_episode(instance, make_policy("search"))
        trace = run_episode(instance, make_policy("search"))
        times_ms = sorted(d.decision_ns / 1e6 for d in trace.decisions)
        median, most = statistics.median(times_ms), times_ms[-1]
        print(f"  one decision of search, p50 / max {median:7.1f} / {most:.1f} ms")
        lower_bounds(instance)
        bounds_ms = 1e3 * seconds(partial(lower_bounds, instance))
        print(f"  lower bounds                      {bounds_ms:7.1f} ms")
        find = seconds(partial(find_schedule, instance))
        print(f"  best known schedule               {find:7.2f} s")


if __name__ == "__main__":
    main()
