"""What a learned scheduler sees: fixed shapes, float32, bounded by construction.

Times are in units of the instance's `jct_ref_s`, costs in units of `cost_ref_usd / N`: the units of
the reward, and are squashed by x / (1 + |x|). `FEATURES` names every number.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bace_env.candidates import Candidates
from bace_env.jit import inner_kernel
from bace_env.kernels import can_wait, next_change_of_price, next_event
from bace_env.pipeline import bandwidth_need
from bace_env.placement import congestion
from bace_env.slots import Slots
from bace_env.types import (
    ARRIVED,
    N_PENDING,
    N_RUNNING,
    Arrays,
    ByteArray,
    FloatArray,
    IntArray,
    State,
)

#: Names of the features of each key, per entity; all in [-1, 1], those without a sign in [0, 1].
FEATURES: dict[str, tuple[str, ...]] = {
    "globals": (
        "cost weight, squashed",
        "alpha (Eq. 11)",
        "slots in use, share",
        "pending jobs that are not visible, n / (n + Q)",
        "running jobs, n / (n + 8)",
        "free GPUs, share",
        "time to the next event, squashed",
        "time to the next price change, squashed",
        "jobs of the episode, n / (n + 32)",
        "jobs finished, share",
    ),
    "regions": (
        "present",
        "GPUs / those of the largest region",
        "free GPUs, share",
        "price of a GPU-second / the reference price, squashed, signed",
        "time to the next completion in the region, squashed",
        "free bandwidth out, share",
        "free bandwidth in, share",
    ),
    "links": ("capacity / the largest", "free, share", "latency / (latency + 0.1 s)"),
    "jobs": (
        "present",
        "time since arrival, squashed",
        "E(K*) inside one region, squashed",
        "least GPU-seconds / (all GPUs * jct_ref), squashed",
        "K* / all GPUs",
        "k_min / all GPUs",
        "b_j(K*) / the largest link, squashed",
        "priority (Eq. 12)",
        "candidates, share of K",
        "GPUs that Alg. 1 finds in the empty cluster / K*",
    ),
    "candidates": (
        "present",
        "execution time, squashed",
        "cost at present prices, squashed, signed",
        "GPUs / K*",
        "GPUs / all GPUs",
        "hops between regions, n / (n + 2)",
        "bandwidth reserved / all bandwidth, squashed",
        "E(K*) / execution time",
    ),
}


class Observation(NamedTuple):
    """One observation, flat; with one more axis in front, a batch."""

    globals: NDArray[np.float32]
    regions: NDArray[np.float32]  # (R * F,)
    links: NDArray[np.float32]  # (R * R * F,) row = source
    jobs: NDArray[np.float32]  # (Q * F,) one per slot
    candidates: NDArray[np.float32]  # (Q * K * F,)
    action_mask: ByteArray  # (Q * K + 1,) WAIT last


def observation_sizes(n_regions: int, n_slots: int, capacity: int) -> dict[str, int]:
    """Length of each key."""
    entities = {
        "globals": 1,
        "regions": n_regions,
        "links": n_regions * n_regions,
        "jobs": n_slots,
        "candidates": n_slots * capacity,
    }
    sizes = {key: count * len(FEATURES[key]) for key, count in entities.items()}
    return {**sizes, "action_mask": n_slots * capacity + 1}


def allocate_observations(batch: int, sizes: dict[str, int]) -> Observation:
    """Zeros of the right shapes, `(B, size)`."""
    return Observation(
        *(
            np.zeros((batch, size), np.int8 if key == "action_mask" else np.float32)
            for key, size in sizes.items()
        )
    )


@inner_kernel
def _squash(x: float) -> float:
    return x / (1.0 + abs(x)) if abs(x) < np.inf else np.sign(x)


@inner_kernel
def write_mask(
    arrays: Arrays, state: State, slots: Slots, candidates: Candidates, out: ByteArray
) -> None:
    """1 for every candidate of a visible job; WAIT is 0 only while nothing lies ahead."""
    capacity = candidates.start.shape[1]
    out[:] = 0
    for q in range(slots.job.size):
        if slots.job[q] >= 0:
            number = candidates.number[slots.table[q], 0]
            out[q * capacity : q * capacity + number] = 1
    if state.counts[N_PENDING] == 0 or can_wait(arrays, state):
        out[-1] = 1


@inner_kernel
def write_globals(
    arrays: Arrays,
    state: State,
    slots: Slots,
    cost_weight: float,
    jct_ref_s: float,
    out: NDArray[np.float32],
) -> None:
    """The `globals` of `FEATURES`."""
    now, n_jobs, n_slots = state.now_s[0], arrays.arrival_s.size, slots.job.size
    pending, running = state.counts[N_PENDING], state.counts[N_RUNNING]
    hidden = slots.hidden[0]
    out[0] = _squash(cost_weight)
    out[1] = congestion(arrays, state.link_used)
    out[2] = (pending - hidden) / n_slots
    out[3] = hidden / (hidden + n_slots)
    out[4] = running / (running + 8.0)
    out[5] = state.free_gpus.sum() / arrays.gpus.sum()
    out[6] = _squash((next_event(arrays, state) - now) / jct_ref_s)
    out[7] = _squash((next_change_of_price(arrays, now) - now) / jct_ref_s)
    out[8] = n_jobs / (n_jobs + 32.0)
    out[9] = (state.counts[ARRIVED] - pending - running) / n_jobs


@inner_kernel
def write_regions(
    arrays: Arrays, state: State, prices: FloatArray, jct_ref_s: float, out: NDArray[np.float32]
) -> None:
    """The `regions` of `FEATURES`."""
    n, width = arrays.gpus.size, 7
    largest = arrays.gpus.max()
    release = np.full(n, np.inf)
    for i in range(state.counts[N_RUNNING]):
        job = state.running[i]
        for hop in range(state.path_length[job]):
            r = state.path[job, hop]
            release[r] = min(release[r], state.finish_s[job])
    for r in range(n):
        at = r * width
        if arrays.gpus[r] < 1:
            out[at : at + width] = 0.0
            continue
        usd_per_gpu_s = prices[r] / 3600.0
        scale = arrays.ref_usd_per_gpu_s
        out[at] = 1.0
        out[at + 1] = arrays.gpus[r] / largest
        out[at + 2] = state.free_gpus[r] / arrays.gpus[r]
        out[at + 3] = _squash(usd_per_gpu_s / scale) if scale > 0 else np.sign(usd_per_gpu_s)
        out[at + 4] = _squash(max(release[r] - state.now_s[0], 0.0) / jct_ref_s)
        out[at + 5] = _free_share(state.link_used[r], arrays.link_bytes_per_s[r])
        out[at + 6] = _free_share(state.link_used[:, r], arrays.link_bytes_per_s[:, r])


@inner_kernel
def _free_share(used: FloatArray, capacity: FloatArray) -> float:
    total = capacity.sum()
    return min(max(1.0 - used.sum() / total, 0.0), 1.0) if total > 0 else 0.0


@inner_kernel
def write_links(arrays: Arrays, state: State, out: NDArray[np.float32]) -> None:
    """The `links` of `FEATURES`."""
    n = arrays.gpus.size
    largest = arrays.link_bytes_per_s.max()
    at = 0
    for u in range(n):
        for v in range(n):
            capacity, latency = arrays.link_bytes_per_s[u, v], arrays.link_latency_s[u, v]
            if capacity > 0.0:
                out[at] = capacity / largest
                out[at + 1] = min(max(1.0 - state.link_used[u, v] / capacity, 0.0), 1.0)
                out[at + 2] = latency / (latency + 0.1)
            else:
                out[at : at + 3] = 0.0
            at += 3


@inner_kernel
def write_jobs(
    arrays: Arrays,
    state: State,
    slots: Slots,
    candidates: Candidates,
    reach: IntArray,
    jct_ref_s: float,
    cost_unit_usd: float,
    out_jobs: NDArray[np.float32],
    out_candidates: NDArray[np.float32],
) -> None:
    """The `jobs` and `candidates` of `FEATURES`."""
    width, capacity = 10, candidates.start.shape[1]
    all_gpus, widest = arrays.gpus.sum(), arrays.link_bytes_per_s.max()
    out_jobs[:] = 0.0
    out_candidates[:] = 0.0
    for q in range(slots.job.size):
        job = slots.job[q]
        if job < 0:
            continue
        p, table, at = arrays.job_profile[job], slots.table[q], q * width
        k_star = arrays.k_star[p]
        best_s = arrays.iterations[job] * arrays.iteration_s[p, k_star]
        work_s = arrays.iterations[job] * arrays.least_gpu_s[p] / all_gpus
        need = bandwidth_need(arrays.act_bytes[p], arrays.comp_s[p, k_star])
        out_jobs[at] = 1.0
        out_jobs[at + 1] = _squash((state.now_s[0] - arrays.arrival_s[job]) / jct_ref_s)
        out_jobs[at + 2] = _squash(best_s / jct_ref_s)
        out_jobs[at + 3] = _squash(work_s / jct_ref_s)
        out_jobs[at + 4] = k_star / all_gpus
        out_jobs[at + 5] = arrays.k_min[p] / all_gpus
        out_jobs[at + 6] = _squash(need / widest) if widest > 0 else 1.0
        out_jobs[at + 7] = min(max(slots.priority[q], 0.0), 1.0)
        out_jobs[at + 8] = candidates.number[table, 0] / capacity
        out_jobs[at + 9] = reach[p] / k_star
        _write_candidates(
            arrays, p, arrays.iterations[job], candidates, table, best_s, jct_ref_s, cost_unit_usd,
            out_candidates[q * capacity * 8 : (q + 1) * capacity * 8],
        )  # fmt: skip


@inner_kernel
def _write_candidates(
    arrays: Arrays,
    profile: int,
    iterations: float,
    candidates: Candidates,
    table: int,
    best_s: float,
    jct_ref_s: float,
    cost_unit_usd: float,
    out: NDArray[np.float32],
) -> None:
    all_gpus, k_star = arrays.gpus.sum(), arrays.k_star[profile]
    bandwidth = arrays.link_bytes_per_s.sum()
    for c in range(candidates.number[table, 0]):
        at = c * 8
        gpus, hops = candidates.gpus[table, c], candidates.length[table, c] - 1
        run_s = iterations * candidates.iteration_s[table, c]
        out[at] = 1.0
        out[at + 1] = _squash(run_s / jct_ref_s)
        out[at + 2] = _squash(run_s * candidates.usd_per_s[table, c] / cost_unit_usd)
        out[at + 3] = gpus / k_star
        out[at + 4] = gpus / all_gpus
        out[at + 5] = hops / (hops + 2.0)
        if hops > 0:
            need = bandwidth_need(arrays.act_bytes[profile], arrays.comp_s[profile, gpus])
            out[at + 6] = _squash(need * hops / bandwidth)
        out[at + 7] = min(best_s / run_s, 1.0) if run_s > 0 else 1.0
