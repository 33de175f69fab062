"""What a learned scheduler sees: fixed shapes, float32, bounded by construction.

Times are in units of the instance's `jct_ref_s`, costs in units of `cost_ref_usd / N`: the units of
the reward, and are squashed by x / (1 + |x|). `FEATURES` names every number.
"""

import hashlib
import json
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bace_env.candidates import Candidates
from bace_env.jit import inlined_kernel, inner_kernel
from bace_env.kernels import next_change_of_price
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


def features_fingerprint() -> str:
    """Identifies `FEATURES`: a learned scheduler works with the numbers that it was trained on."""
    return hashlib.sha256(json.dumps(FEATURES).encode()).hexdigest()[:12]


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
    """Uninitialised arrays of the right shapes, `(B, size)`."""
    return Observation(
        *(
            np.empty((batch, size), np.int8 if key == "action_mask" else np.float32)
            for key, size in sizes.items()
        )
    )


# Columns of the scales of an episode: what its numbers are measured by.
JCT_REF_S, COST_REF_USD, COST_WEIGHT = 0, 1, 2
ALL_GPUS, LARGEST_REGION, ALL_BANDWIDTH, WIDEST_LINK = 3, 4, 5, 6
N_SCALES = 7


def cluster_scales(arrays: Arrays) -> tuple[float, float, float, float]:
    """The last four of the scales: GPUs and bandwidth of all and of the largest."""
    gpus, links = arrays.gpus, arrays.link_bytes_per_s
    return float(gpus.sum()), float(gpus.max()), float(links.sum()), float(links.max())


@inner_kernel
def _squash(x: float) -> float:
    return x / (1.0 + abs(x)) if abs(x) < np.inf else np.sign(x)


@inner_kernel
def _share(part: float, whole: float) -> float:
    return min(max(1.0 - part / whole, 0.0), 1.0) if whole > 0.0 else 0.0


@inlined_kernel
def write_globals(
    arrays: Arrays,
    state: State,
    n_slots: int,
    hidden: int,
    next_event_s: float,
    scales: FloatArray,
    b: int,
    out: NDArray[np.float32],
) -> None:
    """The `globals` of `FEATURES`, into row b of `out`."""
    now, n_jobs, jct_ref_s = state.now_s[0], arrays.arrival_s.size, scales[b, JCT_REF_S]
    pending, running = state.counts[N_PENDING], state.counts[N_RUNNING]
    free = 0
    for r in range(state.free_gpus.size):
        free += state.free_gpus[r]
    out[b, 0] = _squash(scales[b, COST_WEIGHT])
    out[b, 1] = congestion(arrays, state.link_used)
    out[b, 2] = (pending - hidden) / n_slots
    out[b, 3] = hidden / (hidden + n_slots)
    out[b, 4] = running / (running + 8.0)
    out[b, 5] = free / scales[b, ALL_GPUS]
    out[b, 6] = _squash((next_event_s - now) / jct_ref_s)
    out[b, 7] = _squash((next_change_of_price(arrays, now) - now) / jct_ref_s)
    out[b, 8] = n_jobs / (n_jobs + 32.0)
    out[b, 9] = (state.counts[ARRIVED] - pending - running) / n_jobs


@inlined_kernel
def write_regions(
    arrays: Arrays,
    state: State,
    prices: FloatArray,
    scales: FloatArray,
    release: FloatArray,
    b: int,
    out: NDArray[np.float32],
) -> None:
    """The `regions` of `FEATURES`, into row b of `out`; `release` is scratch, `(R,)`."""
    n, width = arrays.gpus.size, 7
    links, used = arrays.link_bytes_per_s, state.link_used
    for r in range(n):
        release[r] = np.inf
    for i in range(state.counts[N_RUNNING]):
        job = state.running[i]
        for hop in range(state.path_length[job]):
            r = state.path[job, hop]
            release[r] = min(release[r], state.finish_s[job])
    for r in range(n):
        at = r * width
        if arrays.gpus[r] < 1:
            for i in range(at, at + width):
                out[b, i] = 0.0
            continue
        usd_per_gpu_s = prices[b, r] / 3600.0
        scale = arrays.ref_usd_per_gpu_s
        all_out, used_out, all_in, used_in = 0.0, 0.0, 0.0, 0.0
        for v in range(n):
            all_out += links[r, v]
            used_out += used[r, v]
            all_in += links[v, r]
            used_in += used[v, r]
        out[b, at] = 1.0
        out[b, at + 1] = arrays.gpus[r] / scales[b, LARGEST_REGION]
        out[b, at + 2] = state.free_gpus[r] / arrays.gpus[r]
        out[b, at + 3] = _squash(usd_per_gpu_s / scale) if scale > 0 else np.sign(usd_per_gpu_s)
        out[b, at + 4] = _squash(max(release[r] - state.now_s[0], 0.0) / scales[b, JCT_REF_S])
        out[b, at + 5] = _share(used_out, all_out)
        out[b, at + 6] = _share(used_in, all_in)


@inner_kernel
def write_links(
    links: FloatArray,
    latency_s: FloatArray,
    used: FloatArray,
    widest: float,
    b: int,
    out: NDArray[np.float32],
) -> None:
    """The `links` of `FEATURES`, into row b of `out`."""
    at = 0
    for u in range(links.shape[0]):
        for v in range(links.shape[0]):
            capacity, latency = links[u, v], latency_s[u, v]
            if capacity > 0.0:
                out[b, at] = capacity / widest
                out[b, at + 1] = _share(used[u, v], capacity)
                out[b, at + 2] = latency / (latency + 0.1)
            else:
                out[b, at] = 0.0
                out[b, at + 1] = 0.0
                out[b, at + 2] = 0.0
            at += 3


@inner_kernel
def write_mask(slots: Slots, number: IntArray, waits: bool, b: int, mask: ByteArray) -> None:
    """1 for every candidate of a visible job, and for WAIT if it `waits`; into row b of `mask`."""
    n_slots = slots.job.size
    capacity = (mask.shape[1] - 1) // n_slots
    at = 0
    for q in range(n_slots):
        valid = number[slots.table[q], 0] if slots.job[q] >= 0 else 0
        for c in range(capacity):
            mask[b, at + c] = 1 if c < valid else 0
        at += capacity
    mask[b, at] = 1 if waits else 0


@inlined_kernel
def write_jobs(
    arrays: Arrays,
    slots: Slots,
    candidates: Candidates,
    now_s: float,
    reach: IntArray,
    scales: FloatArray,
    b: int,
    filled: IntArray,
    out_jobs: NDArray[np.float32],
    out_candidates: NDArray[np.float32],
) -> None:
    """The `jobs` and `candidates` of `FEATURES`, into row b of both.

    `filled`, `(B, Q)`, says how many candidates of each slot may not be zero in `out_candidates`.
    """
    width, capacity = 10, candidates.start.shape[1]
    jct_ref_s, all_gpus, widest = scales[b, JCT_REF_S], scales[b, ALL_GPUS], scales[b, WIDEST_LINK]
    cost_unit_usd = scales[b, COST_REF_USD] / arrays.arrival_s.size
    for q in range(slots.job.size):
        job, at, first = slots.job[q], q * width, q * capacity * 8
        number = candidates.number[slots.table[q], 0] if job >= 0 else 0
        for i in range(first + number * 8, first + filled[b, q] * 8):
            out_candidates[b, i] = 0.0
        filled[b, q] = number
        if job < 0:
            for i in range(at, at + width):
                out_jobs[b, i] = 0.0
            continue
        p, table = arrays.job_profile[job], slots.table[q]
        k_star = arrays.k_star[p]
        best_s = arrays.iterations[job] * arrays.iteration_s[p, k_star]
        work_s = arrays.iterations[job] * arrays.least_gpu_s[p] / all_gpus
        need = bandwidth_need(arrays.act_bytes[p], arrays.comp_s[p, k_star])
        out_jobs[b, at] = 1.0
        out_jobs[b, at + 1] = _squash((now_s - arrays.arrival_s[job]) / jct_ref_s)
        out_jobs[b, at + 2] = _squash(best_s / jct_ref_s)
        out_jobs[b, at + 3] = _squash(work_s / jct_ref_s)
        out_jobs[b, at + 4] = k_star / all_gpus
        out_jobs[b, at + 5] = arrays.k_min[p] / all_gpus
        out_jobs[b, at + 6] = _squash(need / widest) if widest > 0 else 1.0
        out_jobs[b, at + 7] = min(max(slots.priority[q], 0.0), 1.0)
        out_jobs[b, at + 8] = number / capacity
        out_jobs[b, at + 9] = reach[p] / k_star
        _write_candidates(
            arrays.act_bytes[p], arrays.comp_s, p, k_star, arrays.iteration_s[p, k_star],
            arrays.iterations[job] / jct_ref_s, arrays.iterations[job] / cost_unit_usd, candidates,
            table, all_gpus, scales[b, ALL_BANDWIDTH], b, first, out_candidates,
        )  # fmt: skip


@inner_kernel
def _write_candidates(
    act_bytes: float,
    comp_s: FloatArray,
    profile: int,
    k_star: int,
    best_s: float,
    run_scale: float,
    cost_scale: float,
    candidates: Candidates,
    table: int,
    all_gpus: float,
    bandwidth: float,
    b: int,
    first: int,
    out: NDArray[np.float32],
) -> None:
    """`best_s` is of an iteration; the scales turn seconds and USD of one into units of a job."""
    of_star, of_all = 1.0 / k_star, 1.0 / all_gpus  # a division takes as long as all the rest
    for c in range(candidates.number[table, 0]):
        at = first + c * 8
        gpus, hops = candidates.gpus[table, c], candidates.length[table, c] - 1
        iteration_s = candidates.iteration_s[table, c]
        crossing, reserved = 0.0, 0.0
        if hops > 0:
            crossing = hops / (hops + 2.0)
            reserved = _squash(bandwidth_need(act_bytes, comp_s[profile, gpus]) * hops / bandwidth)
        out[b, at] = 1.0
        run = iteration_s * run_scale
        out[b, at + 1] = _squash(run)
        out[b, at + 2] = _squash(iteration_s * candidates.usd_per_s[table, c] * cost_scale)
        out[b, at + 3] = gpus * of_star
        out[b, at + 4] = gpus * of_all
        out[b, at + 5] = crossing
        out[b, at + 6] = reserved
        out[b, at + 7] = min(best_s / iteration_s, 1.0) if run > 0.0 else 1.0
