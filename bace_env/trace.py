"""What happened in an episode, and its JSON form."""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bace_env.instance import Instance
from bace_env.types import FloatArray, IntArray


class Decision(NamedTuple):
    """One answer of the policy."""

    time_s: float
    job: int | None  # None: WAIT
    decision_ns: int  # how long the policy took


@dataclass(frozen=True, eq=False)
class EpisodeTrace:
    """Per-job arrays of shape `(N,)`, paths `(N, R)`; a job that never started has nan times."""

    instance: Instance
    policy: str
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

    @property
    def finished(self) -> np.ndarray:
        """Which jobs finished, `(N,)` bool."""
        return ~np.isnan(self.finish_s)

    def placement(self, job: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Path and GPUs of a job; empty if it never started."""
        n = int(self.path_length[job])
        return tuple(self.path[job, :n].tolist()), tuple(self.alloc[job, :n].tolist())

    def to_dict(self, *, with_times: bool = True) -> dict[str, Any]:
        """Plain data; `with_times=False` leaves out the measured decision times."""
        jobs = []
        for j, name in enumerate(self.instance.job_names):
            path, gpus = self.placement(j)
            done = bool(self.finished[j])
            jobs.append(
                {
                    "job": j,
                    "name": name,
                    "arrival_s": float(self.instance.arrays.arrival_s[j]),
                    "start_s": float(self.start_s[j]) if done else None,
                    "finish_s": float(self.finish_s[j]) if done else None,
                    "path": [self.instance.region_names[r] for r in path],
                    "gpus": list(gpus),
                    "iteration_s": float(self.iteration_s[j]),
                    "bytes_per_s": float(self.bytes_per_s[j]),
                    "energy_kwh": float(self.energy_kwh[j]),
                    "cost_usd": float(self.cost_usd[j]),
                }
            )
        decisions: list[dict[str, Any]] = []
        for decision in self.decisions:
            row: dict[str, Any] = {"time_s": decision.time_s, "job": decision.job}
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
