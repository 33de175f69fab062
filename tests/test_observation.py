"""Every number of the observation, worked out once more in plain Python from the view."""

import math
from itertools import pairwise

import numpy as np
import pytest
from environment_steps import Solo
from strategies import random_instance

from bace_env.config import load_scenario
from bace_env.instance import Instance
from bace_env.observation import FEATURES
from bace_env.placement import GROW_BANDWIDTH, grow_path
from bace_env.scenario import Sampler
from bace_env.simulator import Placement, View

Rows = list[list[float]]


def squash(x: float) -> float:
    return math.copysign(1.0, x) if math.isinf(x) else x / (1 + abs(x))


def next_price_change(view: View) -> float:
    """The first start of a price step after now, in any region."""
    a = view.arrays
    found = math.inf
    now_s = view.now_s + 1e-9 + 1e-12 * view.now_s  # what happens now has happened
    for r in range(a.gpus.size):
        starts = a.price_time_s[r, : a.price_count[r]].tolist()
        period_s = float(a.price_period_s[r])
        if len(starts) > 1 and math.isfinite(period_s):
            cycle = int(now_s // period_s)
            starts = [n * period_s + start for n in (cycle, cycle + 1) for start in starts]
        elif len(starts) == 1:
            starts = []
        found = min([found, *(float(start) for start in starts if start > now_s)])
    return found


def next_event(view: View) -> float:
    a, started = view.arrays, view.running
    times: list[float] = [math.inf, *view.state.finish_s[started].tolist()]
    arrived = len(view.pending) + len(started) + int((view.state.status == 3).sum())
    times += a.arrival_s[arrived:].tolist()
    return min(times) if len(view.pending) == 0 else min([*times, next_price_change(view)])


def globals_of(view: View, slots: int) -> Rows:
    a, instance, pending = view.arrays, view.instance, len(view.pending)
    visible = min(pending, slots)
    capacity = a.link_bytes_per_s.sum()
    used = capacity - view.free_bytes_per_s.sum()
    finished = int((view.state.status == 3).sum())
    return [
        [
            squash(instance.cost_weight),
            used / capacity if capacity else 0.0,
            visible / slots,
            (pending - visible) / (pending - visible + slots),
            len(view.running) / (len(view.running) + 8),
            view.free_gpus.sum() / a.gpus.sum(),
            squash((next_event(view) - view.now_s) / instance.jct_ref_s),
            squash((next_price_change(view) - view.now_s) / instance.jct_ref_s),
            instance.n_jobs / (instance.n_jobs + 32),
            finished / instance.n_jobs,
        ]
    ]


def regions_of(view: View) -> Rows:
    a, links, free = view.arrays, view.arrays.link_bytes_per_s, view.free_bytes_per_s
    rows = []
    for r in range(a.gpus.size):
        holders = [
            float(view.state.finish_s[job])
            for job in view.running
            if r in view.state.path[job, : view.state.path_length[job]]
        ]
        rate = float(view.usd_per_gpu_h[r]) / 3600
        rows.append(
            [
                1.0,
                a.gpus[r] / a.gpus.max(),
                view.free_gpus[r] / a.gpus[r],
                squash(rate / a.ref_usd_per_gpu_s),
                squash((min([math.inf, *holders]) - view.now_s) / view.instance.jct_ref_s),
                free[r].sum() / links[r].sum() if links[r].sum() else 0.0,
                free[:, r].sum() / links[:, r].sum() if links[:, r].sum() else 0.0,
            ]
        )
    return rows


def links_of(view: View) -> Rows:
    a, free, rows = view.arrays, view.free_bytes_per_s, []
    for (u, v), capacity in np.ndenumerate(a.link_bytes_per_s):
        latency_s = float(a.link_latency_s[u, v])
        if capacity == 0:
            rows.append([0.0, 0.0, 0.0])
            continue
        share = float(capacity / a.link_bytes_per_s.max())
        rows.append([share, float(free[u, v] / capacity), latency_s / (latency_s + 0.1)])
    return rows


def priorities_of(view: View) -> dict[int, float]:
    """Eq. 9-12."""
    single = {j: float(view.instance.single_gpu_s[j]) for j in view.pending.tolist()}
    need = {j: view.bandwidth_need(j, view.k_star(j)) for j in single}
    longest, widest, alpha = max(single.values()), max(need.values()), view.congestion
    return {
        j: (1 - alpha) * (1 - (single[j] / longest if longest else 0.0))
        + alpha * (1 - need[j] / widest)
        for j in single
    }


def reach_of(view: View, job: int) -> int:
    """Most GPUs that a path along the highest bandwidth finds in the empty cluster, up to K*."""
    a, n, p = view.arrays, view.arrays.gpus.size, view.arrays.job_profile[job]
    idle, path, target = np.zeros((n, n)), np.empty(n, np.int64), view.k_star(job)
    most = max(
        grow_path(a, a.gpus, idle, np.zeros(n), p, target, u, GROW_BANDWIDTH, False, path)[1]
        for u in range(n)
    )
    return most if most >= view.k_min(job) else 0


def jobs_of(view: View, jobs: list[int], number: dict[int, int], capacity: int) -> Rows:
    a, instance = view.arrays, view.instance
    all_gpus, widest, rows = a.gpus.sum(), a.link_bytes_per_s.max(), []
    for job in jobs:
        p, star = a.job_profile[job], view.k_star(job)
        best_s = float(a.iterations[job] * a.iteration_s[p, star])
        need = view.bandwidth_need(job, star)
        rows.append(
            [
                1.0,
                squash((view.now_s - a.arrival_s[job]) / instance.jct_ref_s),
                squash(best_s / instance.jct_ref_s),
                squash(instance.least_work_s[job] / all_gpus / instance.jct_ref_s),
                star / all_gpus,
                view.k_min(job) / all_gpus,
                squash(need / widest) if widest else 1.0,
                priorities_of(view)[job],
                number[job] / capacity,
                reach_of(view, job) / star,
            ]
        )
    return rows


def candidate_of(view: View, placement: Placement) -> list[float]:
    a, instance = view.arrays, view.instance
    job, path, gpus = placement
    k, hops, star = sum(gpus), len(list(pairwise(path))), view.k_star(job)
    run_s = view.execution_s(*placement)
    usd_per_h = sum(n * view.usd_per_gpu_h[r] for r, n in zip(path, gpus, strict=True))
    p = a.job_profile[job]
    sent = a.act_bytes[p] * a.micro_batches[p] * a.iterations[job]
    egress_usd = sum(sent * a.egress_usd_per_byte[list(hop)].sum() for hop in pairwise(path))
    best_s = float(a.iterations[job] * a.iteration_s[p, star])
    unit_usd = instance.cost_ref_usd / instance.n_jobs
    need = view.bandwidth_need(job, k) * hops
    return [
        1.0,
        squash(run_s / instance.jct_ref_s),
        squash((run_s * usd_per_h / 3600 + egress_usd) / unit_usd),
        k / star,
        k / a.gpus.sum(),
        hops / (hops + 2),
        squash(need / a.link_bytes_per_s.sum()) if hops else 0.0,
        min(best_s / run_s, 1.0) if run_s else 1.0,
    ]


def check_observation(solo: Solo) -> None:
    view, found = solo.view, solo.batch.observation
    capacity, n_slots = solo.batch.capacity, solo.batch.world.slots.job.shape[1]
    jobs = [int(job) for job in solo.batch.world.slots.job[0] if job >= 0]
    number = {job: len(solo.batch.actions_of(0, job)) for job in jobs}
    expected = {
        "globals": globals_of(view, n_slots),
        "regions": regions_of(view),
        "links": links_of(view),
        "jobs": jobs_of(view, jobs, number, capacity),
        "candidates": [[0.0] * len(FEATURES["candidates"])] * (n_slots * capacity),
    }
    expected["jobs"] += [[0.0] * len(FEATURES["jobs"])] * (n_slots - len(jobs))
    for index, placement in solo.placements().items():
        expected["candidates"][index] = candidate_of(view, placement)
    for key, rows in expected.items():
        values = getattr(found, key)[0].reshape(len(rows), -1)
        close = np.isclose(values, np.array(rows), rtol=1e-5, atol=1e-6)
        wrong = [name for i, name in enumerate(FEATURES[key]) if not close[:, i].all()]
        assert not wrong, f"{key}: {wrong}"


def check_states(instance: Instance, slots: int, seed: int) -> int:
    solo, number = Solo(instance, slots), 0
    for _ in solo.states(np.random.default_rng(seed), waits=0.2):
        check_observation(solo)
        number += 1
    return number


@pytest.mark.parametrize("preset", ["tiny", "fig1"])
def test_every_feature_is_what_its_name_says_in_the_small_presets(preset: str) -> None:
    name = load_scenario(preset).regions[0].name
    series = f"regions.{name}.price_usd_per_kwh={{ values = [0.1, -0.2, 0.4], step_h = 0.1 }}"
    more = [series, "workload.arrivals=poisson", "workload.mean_interarrival_h=0.2"]
    sampler = Sampler(load_scenario(preset, ["workload.n_jobs=7", *more]))
    assert check_states(sampler.draw(0), slots=3, seed=0) >= 7


@pytest.mark.jit
@pytest.mark.parametrize("preset", ["paper", "physical"])
def test_every_feature_is_what_its_name_says_in_the_presets(preset: str) -> None:
    sampler = Sampler(load_scenario(preset, ["workload.n_jobs=14"]))
    assert sum(check_states(sampler.draw(seed), 8, seed) for seed in range(2)) > 28


@pytest.mark.jit
def test_every_feature_is_what_its_name_says_in_random_instances() -> None:
    number = 0
    for seed in range(120):
        instance = random_instance(np.random.default_rng(seed))
        number += check_states(instance, 1 + seed % 9, seed)
    assert number > 900
