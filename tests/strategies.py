"""Random small instances, built straight as arrays."""

import math

import numpy as np
from hypothesis import strategies as st
from reference_simulator import ReferenceSimulator

from bace_env.candidates import hostable
from bace_env.instance import Instance
from bace_env.pipeline import (
    T_COMM_FORMS,
    intra_iteration_s,
    layered_comp_s,
    optimal_gpus,
    price_cycle_s,
    uncapped_comp_s,
)
from bace_env.types import Arrays, FloatArray


def make_instance(
    gpus: list[int],
    comp_s: list[FloatArray],
    jobs: list[tuple[float, int, float]],
    *,
    links: FloatArray | None = None,
    latency_s: FloatArray | None = None,
    egress_usd_per_gb: list[float] | None = None,
    kw_per_gpu: list[float] | None = None,
    prices: list[tuple[list[float], list[float], float]] | None = None,
    t_comm: str = "reserved",
    intra_s: list[float] | None = None,
    act_bytes: list[float] | None = None,
    micro_batches: list[int] | None = None,
    k_min: list[int] | None = None,
) -> Instance:
    """An instance from plain numbers; what is left out is the simplest possible.

    Args:
        gpus: GPUs of each of the R regions.
        comp_s: t_comp(1..k_max) of each of the P profiles.
        jobs: (arrival, profile, iterations) of each of the N jobs, in any order.
        links: `(R, R)` capacities in bytes/s; none by default.
        latency_s: `(R, R)` one-way latencies.
        egress_usd_per_gb: Of each region, 0 by default.
        kw_per_gpu: Power of a GPU of each region, 1 kW by default.
        prices: (starts of the steps, prices, period) of each region, 0.1 for ever by default.
        t_comm: One of `T_COMM_FORMS`.
        intra_s: t_comm inside a region of each profile.
        act_bytes: A of each profile, 1 by default.
        micro_batches: M of each profile, 2 by default.
        k_min: Least GPUs of each profile; an unhostable one becomes 1.
    """
    r, p = len(gpus), len(comp_s)
    prices = prices or [([0.0], [0.1], math.inf)] * r
    width = max(len(times) for times, _, _ in prices)
    time_s, price, cumulative = (
        np.full((r, width), np.inf),
        np.zeros((r, width)),
        np.zeros((r, width)),
    )
    for i, (times, values, _) in enumerate(prices):
        time_s[i, : len(times)], price[i, : len(times)] = times, values
        cumulative[i, 1 : len(times)] = np.cumsum(np.diff(times) * values[:-1])
    k_max = [len(table) for table in comp_s]
    intra, micro = intra_s or [0.0] * p, micro_batches or [2] * p
    comp = np.full((p, max(k_max) + 1), np.inf)
    iteration = comp.copy()
    for i, table in enumerate(comp_s):
        comp[i, 1 : k_max[i] + 1] = table
        iteration[i, : k_max[i] + 1] = intra_iteration_s(
            comp[i, : k_max[i] + 1], intra[i], micro[i]
        )
    least = k_min or [1] * p
    jobs = sorted(jobs, key=lambda job: job[0])
    integers, floats = np.int64, np.float64

    def arrays(least: list[int]) -> Arrays:
        star = [optimal_gpus(iteration[i, : k_max[i] + 1], least[i]) for i in range(p)]
        return Arrays(
            gpus=np.array(gpus, integers),
            kw_per_gpu=np.array(kw_per_gpu or [1.0] * r, floats),
            link_bytes_per_s=np.zeros((r, r)) if links is None else np.array(links, floats),
            link_latency_s=np.zeros((r, r)) if latency_s is None else np.array(latency_s, floats),
            egress_usd_per_byte=np.array(egress_usd_per_gb or [0.0] * r, floats) / 1e9,
            price_count=np.array([len(times) for times, _, _ in prices], integers),
            price_time_s=time_s,
            price_usd_per_kwh=price,
            price_cumulative=cumulative,
            price_period_s=np.array([period for _, _, period in prices], floats),
            price_cycle_s=price_cycle_s(
                time_s,
                np.array([len(times) for times, _, _ in prices], integers),
                np.array([period for _, _, period in prices], floats),
            ),
            ref_usd_per_gpu_s=1.0,
            t_comm_form=T_COMM_FORMS.index(t_comm),
            comp_s=comp,
            iteration_s=iteration,
            least_gpu_s=np.array(
                [min(k * iteration[i, k] for k in range(least[i], k_max[i] + 1)) for i in range(p)],
                floats,
            ),
            intra_s=np.array(intra, floats),
            act_bytes=np.array(act_bytes or [1.0] * p, floats),
            micro_batches=np.array(micro, integers),
            k_min=np.array(least, integers),
            k_max=np.array(k_max, integers),
            k_star=np.array(star, integers),
            job_profile=np.array([job[1] for job in jobs], integers),
            iterations=np.array([job[2] for job in jobs], floats),
            arrival_s=np.array([job[0] for job in jobs], floats),
        )

    wished = arrays(least)
    least = [n if hostable(wished, i) else 1 for i, n in enumerate(least)]
    return Instance(
        scenario="random",
        seed=0,
        region_names=tuple(f"region{i}" for i in range(r)),
        job_names=tuple(f"job{j}" for j in range(len(jobs))),
        profile_names=tuple(f"model{i}" for i in range(p)),
        arrays=arrays(least),
        cost_weight=0.3,
    )


def random_instance(
    rng: np.random.Generator,
    *,
    max_regions: int = 6,
    max_jobs: int = 12,
    whole_numbers: bool | None = None,
) -> Instance:
    """A small instance with many ties and corner cases.

    Args:
        rng: Source of all randomness.
        max_regions: Most regions, at least one.
        max_jobs: Most jobs, at least one.
        whole_numbers: All times are whole numbers of seconds, so that events collide; None draws.
    """
    whole = rng.random() < 0.5 if whole_numbers is None else whole_numbers
    r, p = int(rng.integers(1, max_regions + 1)), int(rng.integers(1, 4))
    n = int(rng.integers(1, max_jobs + 1))

    def times(low: float, high: float, size: int) -> FloatArray:
        """Whole or real numbers from low to high."""
        values = rng.uniform(low, high, size)
        return np.round(values) if whole else values

    gpus = rng.integers(1, rng.choice([2, 5, 9]), r).tolist()
    comp_s = [_comp_table(rng, whole) for _ in range(p)]
    act_bytes = times(1, 40, p).tolist()
    arrival_s = times(0, rng.choice([0.0, 20.0, 200.0]), n)
    iterations = rng.integers(0, rng.choice([2, 8, 60]), n)
    profile = rng.integers(0, p, n)
    if rng.random() < 0.2:  # equal jobs
        iterations[:], profile[:] = iterations[0], profile[0]
    jobs = list(zip(arrival_s.tolist(), profile.tolist(), iterations.tolist(), strict=True))
    others = {
        "links": _links(rng, r, comp_s, act_bytes),
        "latency_s": rng.choice([0, 0, 1, 3], (r, r)) * (1.0 if whole else 0.37),
        "kw_per_gpu": rng.choice([0.3, 1.0, 1.3], r).tolist(),
        "prices": _prices(rng, r, whole),
        "t_comm": str(rng.choice(T_COMM_FORMS)),
        "intra_s": (times(0, 3, p) * rng.integers(0, 2, p)).tolist(),
        "act_bytes": act_bytes,
        "micro_batches": rng.integers(1, 6, p).tolist(),
        "k_min": [int(rng.integers(1, len(table) + 1)) ** (rng.random() < 0.4) for table in comp_s],
    }
    if rng.random() < 0.3:  # messages are of some bytes
        others["egress_usd_per_gb"] = (rng.choice([0.0, 1.0, 4.0], r) * 1e5).tolist()
    instance = make_instance(gpus, comp_s, jobs, **others)
    if rng.random() < 0.4:  # one more job, which arrives exactly when another one finishes
        results = ReferenceSimulator(instance.to_dict(), "bace").run().results.values()
        late = [job["finish"] for job in results if job["finish"] >= arrival_s.max()]
        if late:
            jobs.append((float(rng.choice(late)), *jobs[0][1:]))
            instance = make_instance(gpus, comp_s, jobs, **others)
    return instance


def instances(
    *, max_regions: int = 6, max_jobs: int = 12, whole_numbers: bool | None = None
) -> st.SearchStrategy[Instance]:
    """Instances of `random_instance`, as a Hypothesis strategy that shrinks by seed and size."""

    def build(seed: int, regions: int, jobs: int) -> Instance:
        rng = np.random.default_rng(seed)
        return random_instance(rng, max_regions=regions, max_jobs=jobs, whole_numbers=whole_numbers)

    return st.builds(
        build,
        st.integers(0, 2**32 - 1),
        st.integers(1, max_regions),
        st.integers(1, max_jobs),
    )


def _comp_table(rng: np.random.Generator, whole: bool) -> FloatArray:
    """t_comp(1..k_max): C/k + o, whole layers, constant, or any positive numbers."""
    k_max = int(rng.integers(1, 13))
    form = rng.integers(0, 4)
    if form == 0:
        table = uncapped_comp_s(float(rng.uniform(5, 30)), k_max, float(rng.choice([0.0, 0.5])))[1:]
    elif form == 1:
        table = layered_comp_s(
            k_max, 2.0, float(rng.choice([0.0, 3.0])), float(rng.choice([0, 1]))
        )[1:]
    elif form == 2:
        table = np.full(k_max, 4.0)
    else:
        table = rng.uniform(1, 12, k_max)
    return np.maximum(np.round(table), 1.0) if whole else table


def _links(
    rng: np.random.Generator, r: int, comp_s: list[FloatArray], act_bytes: list[float]
) -> FloatArray:
    """Directed capacities around what jobs need; some links are missing, some exactly fit."""
    needs = np.concatenate([a / table for a, table in zip(act_bytes, comp_s, strict=True)])
    form = rng.integers(0, 4)
    if form == 0:
        links = rng.choice(needs, (r, r)) * rng.integers(1, 4, (r, r))
    elif form == 1:
        links = rng.uniform(0, 4 * needs.max(), (r, r))
    elif form == 2:
        links = np.full((r, r), float(np.round(2 * needs.max()) + 1))  # all equal
    else:
        links = rng.integers(1, 6, (r, r)) * 10.0
    links *= rng.random((r, r)) >= rng.choice([0.0, 0.3, 1.0], p=[0.5, 0.4, 0.1])
    np.fill_diagonal(links, 0.0)
    return links


def _prices(
    rng: np.random.Generator, r: int, whole: bool
) -> list[tuple[list[float], list[float], float]]:
    """Price series per region: constant, changing or repeating; equal or negative prices."""
    form = rng.integers(0, 4)
    series = []
    for _ in range(r):
        steps = int(rng.integers(1, 5)) if form >= 2 else 1
        lengths = rng.integers(1, 40, steps) * (1.0 if whole else float(rng.uniform(0.5, 2)))
        values = (
            rng.choice([-0.1, 0.0, 0.1, 0.2, 0.3], steps)
            if form % 2
            else rng.uniform(-0.2, 1, steps)
        )
        if form == 0 and rng.random() < 0.5:
            values[:] = 0.2
        starts = np.concatenate([[0.0], np.cumsum(lengths)])
        period = float(starts[-1]) if rng.random() < 0.5 else math.inf
        series.append((starts[:-1].tolist(), values.tolist(), period))
    return series
