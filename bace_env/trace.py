"""What happened in an episode, and its JSON form."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bace_env.instance import Instance
from bace_env.jit import kernel
from bace_env.pipeline import electricity_cost
from bace_env.types import BoolArray, FloatArray, IntArray, State


class Decision(NamedTuple):
    """One answer of the policy."""

    time_s: float
    job: int | None  # None: WAIT or a pause
    decision_ns: int  # how long the policy took
    refused: int | None = None  # with job None: the job whose placement proved impossible


class Summary(NamedTuple):
    """What `summarise` computes."""

    mean_system_s: float  # over all jobs: until the finish, or the end of the episode
    avg_jct_s: float  # over the finished jobs; 0 without any
    makespan_s: float  # first arrival to the last finish of a finished job; 0 without any
    gpu_s: float  # GPU-seconds held by the finished jobs
    unfinished_jobs: int


@kernel
def summarise(
    arrival_s: FloatArray, start_s: FloatArray, finish_s: FloatArray, alloc: IntArray, end_s: float
) -> tuple[float, float, float, float, int]:
    """The fields of `Summary` from per-job arrays; nan is the time of what did not start."""
    system_s, jct_s, last_s, gpu_s, done = 0.0, 0.0, -np.inf, 0.0, 0
    for j in range(arrival_s.size):
        if finish_s[j] <= end_s:
            done += 1
            jct_s += finish_s[j] - arrival_s[j]
            last_s = max(last_s, finish_s[j])
            for r in range(alloc.shape[1]):
                gpu_s += alloc[j, r] * (finish_s[j] - start_s[j])
        else:
            system_s += max(end_s - arrival_s[j], 0.0)
    n = arrival_s.size
    makespan_s = last_s - arrival_s[0] if done > 0 else 0.0
    return (system_s + jct_s) / n, jct_s / max(done, 1), makespan_s, gpu_s, n - done


@kernel
def carbon_of_region(
    times_s: FloatArray,
    grams_per_kwh: FloatArray,
    cumulative: FloatArray,
    period_s: float,
    kw: FloatArray,
    start_s: FloatArray,
    finish_s: FloatArray,
    out: FloatArray,
) -> None:
    """Add what one region emits for each job to `out`, kg: Eq. 4 with another series.

    `kw` is what each job draws there; all job arrays are `(N,)`.
    """
    for j in range(kw.size):
        if kw[j] > 0.0:
            grams = electricity_cost(
                times_s, grams_per_kwh, cumulative, period_s, kw[j], start_s[j], finish_s[j]
            )
            out[j] += grams / 1000.0


@dataclass(frozen=True, eq=False)
class EpisodeTrace:
    """Per-job arrays of shape `(N,)`, paths `(N, R)`; a job that never started has nan times."""

    instance: Instance
    policy: str
    end_s: float  # time of the last event; later where jobs still ran at a horizon
    decisions: tuple[Decision, ...]
    start_s: FloatArray
    finish_s: FloatArray
    path_length: IntArray
    path: IntArray  # region ids in pipeline order, -1 where padded
    alloc: IntArray  # GPUs in path order
    iteration_s: FloatArray
    bytes_per_s: FloatArray  # reserved on each hop between regions
    energy_kwh: FloatArray
    cost_usd: FloatArray

    @classmethod
    def of_state(
        cls, instance: Instance, state: State, policy: str, decisions: tuple[Decision, ...]
    ) -> "EpisodeTrace":
        """Copy what has happened so far out of a simulator's state."""
        return cls(
            instance=instance,
            policy=policy,
            end_s=float(state.now_s[0]),
            decisions=decisions,
            start_s=state.start_s.copy(),
            finish_s=state.finish_s.copy(),
            path_length=state.path_length.copy(),
            path=state.path.copy(),
            alloc=state.alloc.copy(),
            iteration_s=state.job_iteration_s.copy(),
            bytes_per_s=state.job_bytes_per_s.copy(),
            energy_kwh=state.energy_kwh.copy(),
            cost_usd=state.cost_usd.copy(),
        )

    @property
    def started(self) -> BoolArray:
        """Which jobs started, `(N,)`."""
        return np.asarray(~np.isnan(self.start_s))

    @property
    def finished(self) -> BoolArray:
        """Which jobs finished, `(N,)`; one that still runs at the end has its finish planned."""
        return np.asarray(self.finish_s <= self.end_s)

    def summary(self) -> Summary:
        """The episode in five numbers."""
        a = self.instance.arrays
        return Summary(*summarise(a.arrival_s, self.start_s, self.finish_s, self.alloc, self.end_s))

    def objective(self) -> float:
        """Mean time in the system / jct_ref + cost_weight * cost / cost_ref.

        The negative of the environment's undiscounted return. Where all jobs finished, the mean
        time in the system is the average JCT.
        """
        instance = self.instance
        cost = instance.cost_weight * float(self.cost_usd.sum()) / instance.cost_ref_usd
        return self.summary().mean_system_s / instance.jct_ref_s + cost

    @cached_property
    def carbon_kg(self) -> FloatArray | None:
        """CO2 equivalents of each job's electricity, `(N,)`; None without carbon intensities."""
        instance = self.instance
        if not instance.carbon:
            return None
        out = np.zeros(instance.n_jobs)
        for r, series in enumerate(instance.carbon):
            there = np.where(self.path == r, self.alloc, 0).sum(axis=1)
            kw = np.where(self.started, there * instance.arrays.kw_per_gpu[r], 0.0)
            carbon_of_region(*series, kw, self.start_s, self.finish_s, out)
        return out

    def gpu_utilization(self) -> float:
        """Share of all GPUs that the finished jobs held over the makespan; 0 without any time."""
        summary = self.summary()
        whole = summary.makespan_s * float(self.instance.arrays.gpus.sum())
        return summary.gpu_s / whole if whole > 0 else 0.0

    def placement(self, job: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Path and GPUs of a job; empty if it never started."""
        n = int(self.path_length[job])
        return tuple(self.path[job, :n].tolist()), tuple(self.alloc[job, :n].tolist())

    def to_dict(self, *, with_times: bool = True) -> dict[str, Any]:
        """Plain data; `with_times=False` leaves out the measured decision times."""
        jobs, has_started, carbon_kg = list[dict[str, Any]](), self.started.tolist(), self.carbon_kg
        for j, name in enumerate(self.instance.job_names):
            path, gpus = self.placement(j)
            started = has_started[j]
            jobs.append(
                {
                    "job": j,
                    "name": name,
                    "arrival_s": float(self.instance.arrays.arrival_s[j]),
                    "start_s": float(self.start_s[j]) if started else None,
                    "finish_s": float(self.finish_s[j]) if started else None,
                    "path": [self.instance.region_names[r] for r in path],
                    "gpus": list(gpus),
                    "iteration_s": float(self.iteration_s[j]),
                    "bytes_per_s": float(self.bytes_per_s[j]),
                    "energy_kwh": float(self.energy_kwh[j]),
                    "cost_usd": float(self.cost_usd[j]),
                }
            )
            if carbon_kg is not None:
                jobs[-1]["carbon_kg"] = float(carbon_kg[j])
        decisions: list[dict[str, Any]] = []
        for decision in self.decisions:
            row: dict[str, Any] = {"time_s": decision.time_s, "job": decision.job}
            if decision.refused is not None:
                row["refused"] = decision.refused
            if with_times:
                row["decision_us"] = decision.decision_ns / 1000.0
            decisions.append(row)
        return {
            "scenario": self.instance.scenario,
            "seed": self.instance.seed,
            "policy": self.policy,
            "jobs": jobs,
            "decisions": decisions,
        }

    def to_json(self, *, with_times: bool = True) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(with_times=with_times), allow_nan=False)
