"""One sampled workload on one cluster: names, kernel arrays and the objective's references."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bace_env.jit import inner_kernel, kernel
from bace_env.pipeline import T_COMM_FORMS
from bace_env.types import Arrays, FloatArray, IntArray, StepSeries


@dataclass(frozen=True, eq=False)
class Instance:
    """What a simulator runs on. Job ids are indices by (arrival, order in the scenario).

    Attributes:
        scenario: Name of the scenario.
        seed: Seed of the episode that drew it.
        region_names: R names.
        job_names: N names.
        profile_names: P names of models.
        arrays: The numbers, see `types.Arrays`.
        cost_weight: Weight of the cost in the objective (lambda).
        price_end_s: Time up to which all prices are known; a run that passes it fails.
        carbon: Carbon intensity of each region in g/kWh; empty where the scenario gives none.
        window_s: First and last arrival that counts in per-job metrics.
    """

    scenario: str
    seed: int
    region_names: tuple[str, ...]
    job_names: tuple[str, ...]
    profile_names: tuple[str, ...]
    arrays: Arrays
    cost_weight: float
    price_end_s: float = np.inf
    carbon: tuple[StepSeries, ...] = ()
    window_s: tuple[float, float] = (0.0, np.inf)

    @property
    def n_regions(self) -> int:
        """Number of regions."""
        return len(self.region_names)

    @property
    def n_jobs(self) -> int:
        """Number of jobs."""
        return len(self.job_names)

    def where(self, path: Sequence[int], gpus: Sequence[int]) -> str:
        """A placement in words: `north x3 -> south x2`."""
        parts = (f"{self.region_names[r]} x{n}" for r, n in zip(path, gpus, strict=True))
        return " -> ".join(parts)

    @cached_property
    def single_gpu_s(self) -> FloatArray:
        """E_j(1) of Eq. 9, seconds on one GPU, whatever the job's k_min. Shape `(N,)`."""
        a = self.arrays
        return np.asarray(a.iterations * a.iteration_s[a.job_profile, 1])

    @cached_property
    def least_work_s(self) -> FloatArray:
        """w_j = min over k of k * E_j(k), GPU-seconds, all hops inside a region. Shape `(N,)`."""
        return np.asarray(self.arrays.iterations * self.arrays.least_gpu_s[self.arrays.job_profile])

    @cached_property
    def jct_ref_s(self) -> float:
        """Reference of the average JCT, a lower bound of it, seconds.

        The larger of the mean of each job's best execution time, and the mean flow time of the SRPT
        schedule of the works w_j on one fluid machine as fast as all GPUs together. 1 where there
        is no work at all, so that the objective stays finite.
        """
        return self._references[0]

    @cached_property
    def cost_ref_usd(self) -> float:
        """Reference of the total cost: sum of w_j at the lowest time-mean price, USD.

        The mean absolute price stands in where the lowest mean is not positive; 1 where even that
        is zero (free electricity), so that the objective stays finite.
        """
        return reference_cost(self._references[1], self.arrays.ref_usd_per_gpu_s)

    @cached_property
    def _references(self) -> tuple[float, float]:
        a = self.arrays
        return references(
            a.iterations,
            a.job_profile,
            a.arrival_s,
            a.iteration_s,
            a.k_star,
            a.least_gpu_s,
            a.gpus,
            np.empty((3, a.iterations.size)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data with all that another program needs to re-check a trace of this instance."""
        a = self.arrays
        regions = []
        for r, name in enumerate(self.region_names):
            n = int(a.price_count[r])
            period = float(a.price_period_s[r])
            regions.append(
                {
                    "name": name,
                    "gpus": int(a.gpus[r]),
                    "kw_per_gpu": float(a.kw_per_gpu[r]),
                    "price_time_s": a.price_time_s[r, :n].tolist(),
                    "price_usd_per_kwh": a.price_usd_per_kwh[r, :n].tolist(),
                    "price_period_s": period if np.isfinite(period) else None,
                    "egress_usd_per_gb": float(a.egress_usd_per_byte[r]) * 1e9,
                }
            )
            if self.carbon:
                carbon = self.carbon[r]
                regions[-1] |= {
                    "carbon_time_s": carbon.times_s.tolist(),
                    "carbon_g_per_kwh": carbon.values.tolist(),
                    "carbon_period_s": carbon.period_s if np.isfinite(carbon.period_s) else None,
                }
        profiles = []
        for p, name in enumerate(self.profile_names):
            k_max = int(a.k_max[p])
            profiles.append(
                {
                    "name": name,
                    "act_bytes": float(a.act_bytes[p]),
                    "micro_batches": int(a.micro_batches[p]),
                    "intra_s": float(a.intra_s[p]),
                    "k_min": int(a.k_min[p]),
                    "k_max": k_max,
                    "k_star": int(a.k_star[p]),
                    "t_comp_s": a.comp_s[p, 1 : k_max + 1].tolist(),  # k = 1..k_max
                }
            )
        jobs = [
            {
                "name": name,
                "profile": int(a.job_profile[j]),
                "iterations": int(a.iterations[j]),
                "arrival_s": float(a.arrival_s[j]),
            }
            for j, name in enumerate(self.job_names)
        ]
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "t_comm": T_COMM_FORMS[a.t_comm_form],
            "cost_weight": self.cost_weight,
            "price_end_s": self.price_end_s if np.isfinite(self.price_end_s) else None,
            "jct_ref_s": self.jct_ref_s,
            "cost_ref_usd": self.cost_ref_usd,
            "regions": regions,
            "link_bytes_per_s": a.link_bytes_per_s.tolist(),  # row = source
            "link_latency_s": a.link_latency_s.tolist(),
            "profiles": profiles,
            "jobs": jobs,
        }

    def to_json(self) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), allow_nan=False)


@kernel
def references(
    iterations: FloatArray,
    job_profile: IntArray,
    arrival_s: FloatArray,
    iteration_s: FloatArray,
    k_star: IntArray,
    least_gpu_s: FloatArray,
    gpus: IntArray,
    scratch: FloatArray,
) -> tuple[float, float]:
    """`Instance.jct_ref_s`, and the sum of the works w_j in GPU-s; `scratch` is `(3, N)`."""
    n, all_gpus = iterations.size, 0
    for r in range(gpus.size):
        all_gpus += gpus[r]
    duration_s = scratch[2]
    best_s, work_gpu_s = 0.0, 0.0
    for j in range(n):
        p = job_profile[j]
        best_s += iterations[j] * iteration_s[p, k_star[p]]
        work_gpu_s += iterations[j] * least_gpu_s[p]
        duration_s[j] = iterations[j] * least_gpu_s[p] / all_gpus
    jct_ref_s = max(best_s / n, srpt_mean_flow_time(arrival_s, duration_s, scratch[:2]))
    return (jct_ref_s if jct_ref_s > 0.0 else 1.0), work_gpu_s


@kernel
def reference_cost(work_gpu_s: float, ref_usd_per_gpu_s: float) -> float:
    """`Instance.cost_ref_usd` of a total work."""
    cost = work_gpu_s * ref_usd_per_gpu_s
    return cost if cost > 0.0 else 1.0


@kernel
def srpt_mean_flow_time(
    arrival_s: FloatArray, duration_s: FloatArray, scratch: FloatArray
) -> float:
    """Mean flow time of preemptive shortest-remaining-time-first on one machine, seconds.

    SRPT minimises it (Schrage 1968). Both arrays are `(N,)`, arrivals ascending; `scratch` is
    `(2, N)`.
    """
    n = arrival_s.size
    heap_s, heap_arrived = scratch[0], scratch[1]  # a heap of (remaining, arrived)
    size, i = 0, 0
    now, total = 0.0, 0.0
    while i < n or size > 0:
        if size == 0:
            now = max(now, arrival_s[i])
        while i < n and arrival_s[i] <= now:
            _push(heap_s, heap_arrived, size, duration_s[i], arrival_s[i])
            size += 1
            i += 1
        until = arrival_s[i] if i < n else np.inf
        if now + heap_s[0] <= until:
            now += heap_s[0]
            total += now - heap_arrived[0]
            size -= 1
            _sift_down(heap_s, heap_arrived, size, heap_s[size], heap_arrived[size])
        else:
            heap_s[0] -= until - now  # the least stays the least
            now = until
    return total / n


@inner_kernel
def _push(key: FloatArray, value: FloatArray, size: int, new_key: float, new_value: float) -> None:
    """Add an entry to a binary heap of `size` entries."""
    at = size
    while at > 0 and key[(at - 1) // 2] > new_key:
        key[at], value[at] = key[(at - 1) // 2], value[(at - 1) // 2]
        at = (at - 1) // 2
    key[at], value[at] = new_key, new_value


@inner_kernel
def _sift_down(key: FloatArray, value: FloatArray, size: int, last: float, value_: float) -> None:
    """Take the root out of a binary heap: its last entry, given apart, fills the gap."""
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and key[child + 1] < key[child]:
            child += 1
        if key[child] >= last:
            break
        key[at], value[at] = key[child], value[child]
        at = child
    if size > 0:
        key[at], value[at] = last, value_
