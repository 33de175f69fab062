"""One sampled workload on one cluster: names, kernel arrays and the objective's references."""

import heapq
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bace_env.pipeline import T_COMM_FORMS
from bace_env.types import Arrays, FloatArray


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
    """

    scenario: str
    seed: int
    region_names: tuple[str, ...]
    job_names: tuple[str, ...]
    profile_names: tuple[str, ...]
    arrays: Arrays
    cost_weight: float
    price_end_s: float = np.inf

    @property
    def n_regions(self) -> int:
        """Number of regions."""
        return len(self.region_names)

    @property
    def n_jobs(self) -> int:
        """Number of jobs."""
        return len(self.job_names)

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
        a = self.arrays
        best = a.iterations * a.iteration_s[a.job_profile, a.k_star[a.job_profile]]
        fluid = srpt_mean_flow_time(a.arrival_s, self.least_work_s / a.gpus.sum())
        return max(float(best.mean()), fluid) or 1.0

    @cached_property
    def cost_ref_usd(self) -> float:
        """Reference of the total cost: sum of w_j at the lowest time-mean price, USD.

        The mean absolute price stands in where the lowest mean is not positive; 1 where even that
        is zero (free electricity), so that the objective stays finite.
        """
        cost = float(self.least_work_s.sum()) * self.arrays.ref_usd_per_gpu_s
        return cost if cost > 0 else 1.0

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
                }
            )
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


def srpt_mean_flow_time(arrival_s: FloatArray, duration_s: FloatArray) -> float:
    """Mean flow time of preemptive shortest-remaining-time-first on one machine, seconds.

    SRPT minimises it (Schrage 1968). Both arrays are `(N,)`, arrivals ascending.
    """
    arrivals, durations = arrival_s.tolist(), duration_s.tolist()
    n, i = len(arrivals), 0
    now, total = 0.0, 0.0
    present: list[tuple[float, float]] = []  # a heap of (remaining, arrived)
    while i < n or present:
        if not present:
            now = max(now, arrivals[i])
        while i < n and arrivals[i] <= now:
            heapq.heappush(present, (durations[i], arrivals[i]))
            i += 1
        remaining, arrived = heapq.heappop(present)
        until = arrivals[i] if i < n else np.inf
        if now + remaining <= until:
            now += remaining
            total += now - arrived
        else:
            heapq.heappush(present, (remaining - (until - now), arrived))
            now = until
    return total / n
