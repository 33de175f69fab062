"""Every schedule of small instances, enumerated through the simulator."""

import dataclasses
import itertools
import math
from collections.abc import Iterator

import numpy as np
from strategies import make_instance

from bace_env.errors import DeadlockError
from bace_env.instance import Instance
from bace_env.kernels import VALID, check_placement
from bace_env.pipeline import T_COMM_FORMS
from bace_env.simulator import WAIT, Placement, Simulator
from bace_env.types import FloatArray


class TooManyError(Exception):
    """More schedules than are worth enumerating."""


def spreads(gpus: list[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every path over different regions with every number of GPUs of each, links or not."""
    with_gpus = [r for r, free in enumerate(gpus) if free > 0]
    for length in range(1, len(with_gpus) + 1):
        for path in itertools.permutations(with_gpus, length):
            for alloc in itertools.product(*(range(1, gpus[r] + 1) for r in path)):
                yield path, alloc


def every_outcome(instance: Instance, most: int) -> FloatArray:
    """Average JCT, cost and objective of every sequence of decisions, `(schedules, 3)`."""
    simulator = Simulator(instance)
    state, found, nodes = simulator.view.state, list[tuple[float, float]](), 0

    def explore() -> None:
        nonlocal nodes
        nodes += 1
        if nodes > most:
            raise TooManyError
        if simulator.done:
            jct_s = float((state.finish_s - instance.arrays.arrival_s).mean())
            found.append((jct_s, float(state.cost_usd.sum())))
            return
        before = [array.copy() for array in state]
        spread = list(spreads(state.free_gpus.tolist()))
        actions = [
            Placement(job, path, alloc)
            for job in simulator.view.pending.tolist()
            for path, alloc in spread
            if simulator.view.k_min(job) <= sum(alloc) <= simulator.view.k_max(job)
        ]
        for action in [*actions, WAIT]:
            if isinstance(action, Placement):
                path, alloc = np.array(action.path), np.array(action.gpus)
                code, _ = check_placement(instance.arrays, state, action.job, path, alloc)
                if code != VALID:
                    continue
            try:
                simulator.step(action)
            except DeadlockError:
                continue
            explore()
            simulator.done = False
            for array, old in zip(state, before, strict=True):
                array[:] = old

    explore()
    jct_s, cost = np.array(found).T
    objective = jct_s / instance.jct_ref_s + instance.cost_weight * cost / instance.cost_ref_usd
    return np.stack([jct_s, cost, objective], axis=1)


def small_instance(rng: np.random.Generator) -> Instance:
    """One to three jobs on one to three regions of one to three GPUs, of every kind."""
    r, n, p = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    comp_s = [rng.uniform(1, 9, int(rng.integers(1, 5))) for _ in range(p)]
    if rng.random() < 0.5:  # more GPUs are faster
        comp_s = [9 / np.arange(1, len(table) + 1) for table in comp_s]
    late = rng.choice([0.0, 20.0])
    jobs = [
        (float(rng.uniform(0, late)), int(rng.integers(p)), float(rng.integers(0, 5)))
        for _ in range(n)
    ]
    prices = None
    if rng.random() < 0.7:
        prices = []
        low = float(rng.choice([-0.5, 0.0]))
        for _ in range(r):
            steps = int(rng.integers(1, 4))
            starts = np.concatenate([[0.0], np.cumsum(rng.uniform(5, 30, steps))])
            period = float(starts[-1]) if rng.random() < 0.5 else math.inf
            prices.append((starts[:-1].tolist(), rng.uniform(low, 1, steps).tolist(), period))
    instance = make_instance(
        rng.integers(1, 4, r).tolist(),
        comp_s,
        jobs,
        links=rng.uniform(0.1, 2.0, (r, r)) * (rng.random((r, r)) < 0.8) * (1 - np.eye(r)),
        latency_s=rng.uniform(0, 2, (r, r)) * (rng.random() < 0.5),
        kw_per_gpu=rng.choice([0.5, 1.0, 2.0], r).tolist(),
        prices=prices,
        t_comm=str(rng.choice(T_COMM_FORMS)),
        intra_s=rng.choice([0.0, 0.3, 5.0], p).tolist(),
        micro_batches=rng.integers(1, 5, p).tolist(),
        k_min=[int(rng.integers(1, len(table) + 1)) for table in comp_s],
    )
    # The reference of `make_instance` is one USD per GPU-second: let either term weigh more.
    return dataclasses.replace(instance, cost_weight=float(rng.choice([0.3, 3e3, 3e4])))
