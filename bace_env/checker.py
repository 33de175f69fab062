"""An independent check of a finished schedule: Eq. 1-6 once more, in plain NumPy.

Works on the exported JSON data alone and shares no code with the kernels, so that it can vouch for
them, and so that an outside program could do the same.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from bace_env.errors import TraceError
from bace_env.trace import EpisodeTrace

_RELATIVE = 1e-9  # sums of floats in another order


def check_trace(trace: EpisodeTrace) -> None:
    """Re-derive every number of the trace from its instance.

    Raises:
        TraceError: With every contradiction found (the first 20 in words).
    """
    problems = violations(trace.instance.to_dict(), trace.to_dict(with_times=False))
    if problems:
        more = f" and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise TraceError(
            f"policy {trace.policy}, seed {trace.instance.seed}: {'; '.join(problems[:20])}{more}"
        )


def violations(instance: dict[str, Any], trace: dict[str, Any]) -> list[str]:
    """Contradictions between the two exports, each in words with its numbers; empty if none."""
    problems = _form_problems(instance, trace)
    if problems:
        return problems  # the rest would not know what it speaks of
    region_index = {region["name"]: r for r, region in enumerate(instance["regions"])}
    starts = [d["job"] for d in trace["decisions"] if d["job"] is not None]
    if sorted(starts) != [j["job"] for j in trace["jobs"] if j["start_s"] is not None]:
        problems.append(f"each started job must be decided exactly once, got {starts}")
        return problems
    times = [d["time_s"] for d in trace["decisions"]]
    if any(b < a for a, b in pairwise(times)):
        problems.append("decision times must not descend")
    jobs = [trace["jobs"][j] for j in starts]  # in the order in which they took their resources
    decided = {d["job"]: d["time_s"] for d in trace["decisions"] if d["job"] is not None}
    used = _Usage(instance)
    for job in jobs:
        spec = instance["jobs"][job["job"]]
        path = [region_index[name] for name in job["path"]]
        problems += _placement_problems(instance, job, spec, path)
        if job["start_s"] != decided[job["job"]] or job["start_s"] < spec["arrival_s"]:
            problems.append(
                f"{job['name']}: must start when decided ({decided[job['job']]}) and not before "
                f"its arrival ({spec['arrival_s']}), got {job['start_s']}"
            )
        end_s = instance["price_end_s"]
        if end_s is not None and job["finish_s"] > end_s * (1 + _RELATIVE):
            problems.append(f"{job['name']}: prices are known to {end_s}, got {job['finish_s']}")
        used.release_until(job["start_s"])
        problems += _number_problems(instance, job, spec, path, used)
        problems += used.take(job, path)
    return problems


def _form_problems(instance: dict[str, Any], trace: dict[str, Any]) -> list[str]:
    """What must agree before numbers can be compared: the jobs, and each placement's shape."""
    for field in ("scenario", "seed"):
        if trace[field] != instance[field]:
            return [f"{field} must be that of the instance, got {trace[field]!r}"]
    expected = [(job["name"], job["arrival_s"]) for job in instance["jobs"]]
    if [(job["name"], job["arrival_s"]) for job in trace["jobs"]] != expected:
        return ["the trace must hold all jobs of the instance, in order, with their arrivals"]
    regions = {region["name"] for region in instance["regions"]}
    problems = []
    for job in trace["jobs"]:
        path, gpus = job["path"], job["gpus"]
        if (job["start_s"] is None) != (job["finish_s"] is None):
            problems.append(f"{job['name']}: start_s and finish_s go together")
        if (
            len(path) != len(gpus)
            or not regions.issuperset(path)
            or not all(isinstance(n, int) for n in gpus)
        ):
            problems.append(
                f"{job['name']}: a path needs regions of the instance and whole GPUs for each, "
                f"got {path} and {gpus}"
            )
        if job["start_s"] is None and (path or job["cost_usd"] or job["energy_kwh"]):
            problems.append(f"{job['name']}: never started, but has a path, energy or cost")
    return problems


def _placement_problems(
    instance: dict[str, Any], job: dict[str, Any], spec: dict[str, Any], path: list[int]
) -> list[str]:
    profile = instance["profiles"][spec["profile"]]
    k = sum(job["gpus"])
    problems = []
    if len(set(path)) != len(path) or not path:
        problems.append(f"{job['name']}: a path needs distinct regions, got {job['path']}")
    if min(job["gpus"], default=0) < 1:
        problems.append(f"{job['name']}: each region gives at least one GPU, got {job['gpus']}")
    if not profile["k_min"] <= k <= profile["k_max"]:
        problems.append(f"{job['name']}: k = {k} outside [{profile['k_min']}, {profile['k_max']}]")
    return problems


def _number_problems(
    instance: dict[str, Any],
    job: dict[str, Any],
    spec: dict[str, Any],
    path: list[int],
    used: "_Usage",
) -> list[str]:
    """Eq. 1 and 2, b_j, energy and Eq. 4 against the values in the trace."""
    profile = instance["profiles"][spec["profile"]]
    k = sum(job["gpus"])
    if not 1 <= k <= profile["k_max"]:
        return []  # said already; there is no t_comp to compare with
    comp_s = profile["t_comp_s"][k - 1]
    need = profile["act_bytes"] / comp_s
    latency = np.array(instance["link_latency_s"])
    hops = list(pairwise(path))
    hop_forms: dict[str, Callable[[int, int], float]] = {
        "reserved": lambda u, v: comp_s,
        "hidden": lambda u, v: profile["intra_s"],
        "residual": lambda u, v: profile["act_bytes"] / used.free(u, v),
    }
    hop_s = hop_forms[instance["t_comm"]]
    comm = np.array([profile["intra_s"]] * (k - len(path)) + [hop_s(u, v) for u, v in hops])
    fill = comm.sum() + sum(latency[u, v] for u, v in hops)
    bottleneck = max(comp_s, comm.max(initial=0.0))
    iteration_s = 2 * (fill + k * comp_s + (profile["micro_batches"] - 1) * bottleneck)
    duration = spec["iterations"] * iteration_s
    kw = [n * instance["regions"][r]["kw_per_gpu"] for r, n in zip(path, job["gpus"], strict=True)]
    start, finish = job["start_s"], job["start_s"] + duration
    regions = instance["regions"]
    one_way_gb = profile["act_bytes"] * profile["micro_batches"] * spec["iterations"] / 1e9
    # A hop's activations leave its source, its gradients leave its target.
    egress = sum(
        one_way_gb * (regions[u]["egress_usd_per_gb"] + regions[v]["egress_usd_per_gb"])
        for u, v in hops
    )
    cost = egress + sum(
        p * _integral(regions[r], "price", "price_usd_per_kwh", start, finish) / 3600
        for r, p in zip(path, kw, strict=True)
    )
    highest = sum(
        p * max(map(abs, instance["regions"][r]["price_usd_per_kwh"])) / 3600
        for r, p in zip(path, kw, strict=True)
    )
    # Positive and negative prices may cancel; a short job late in time is a difference of times.
    late = duration + 4 * np.finfo(float).eps / _RELATIVE * finish
    expected = {
        "iteration_s": (iteration_s, iteration_s),
        "finish_s": (finish, finish),
        "bytes_per_s": (need if hops else 0.0, need),
        "energy_kwh": (sum(kw) * duration / 3600, sum(kw) * duration / 3600),
        "cost_usd": (cost, highest * late + egress),
    }
    if "carbon_time_s" in regions[0]:
        grams = sum(
            p * _integral(regions[r], "carbon", "carbon_g_per_kwh", start, finish) / 3600
            for r, p in zip(path, kw, strict=True)
        )
        rate = sum(
            p * max(regions[r]["carbon_g_per_kwh"]) / 3.6e6 for r, p in zip(path, kw, strict=True)
        )
        expected["carbon_kg"] = (grams / 1000, rate * late)
    return [
        f"{job['name']}: {field} must be {value!r}, got {job[field]!r}"
        for field, (value, size) in expected.items()
        if not abs(job[field] - value) <= _RELATIVE * max(abs(size), abs(value))
    ]


def _integral(
    region: dict[str, Any], series: str, values: str, start: float, finish: float
) -> float:
    """Integral of the region's price or carbon, step by step between start and finish."""
    times, prices = np.array(region[f"{series}_time_s"]), np.array(region[values])
    period = region[f"{series}_period_s"]
    if period is not None:
        first, last = int(start // period), int(finish // period) + 1
        offsets = np.arange(first, last + 1) * period
        times = (offsets[:, None] + times[None, :]).ravel()
        prices = np.tile(prices, offsets.size)
    ends = np.append(times[1:], np.inf)
    lengths = np.minimum(ends, finish) - np.maximum(times, start)
    return float((prices * np.maximum(lengths, 0.0)).sum())


class _Usage:
    """GPUs and bandwidth in use, from the jobs that hold them."""

    def __init__(self, instance: dict[str, Any]) -> None:
        self._gpus = [region["gpus"] for region in instance["regions"]]
        self._names = [region["name"] for region in instance["regions"]]
        self._links = np.array(instance["link_bytes_per_s"])
        self._holding: list[tuple[float, list[int], list[int], float]] = []

    def release_until(self, time_s: float) -> None:
        self._holding = [held for held in self._holding if held[0] > time_s]

    def free(self, u: int, v: int) -> float:
        used = sum(need for _, path, _, need in self._holding if (u, v) in pairwise(path))
        return float(self._links[u, v]) - used

    def take(self, job: dict[str, Any], path: list[int]) -> list[str]:
        """Hold the job's resources; what now exceeds a capacity (Eq. 5, Eq. 6) comes back."""
        if job["finish_s"] > job["start_s"]:  # a job of no length holds nothing for any time
            self._holding.append((job["finish_s"], path, job["gpus"], job["bytes_per_s"]))
        problems = []
        for r in path:
            used = sum(gpus[held.index(r)] for _, held, gpus, _ in self._holding if r in held)
            if used > self._gpus[r]:
                problems.append(
                    f"{job['name']}: {self._names[r]} has {self._gpus[r]} GPUs (Eq. 5), {used} used"
                )
        for u, v in pairwise(path):
            capacity = float(self._links[u, v])
            if capacity <= 0 or self.free(u, v) < -_RELATIVE * capacity * 2:
                problems.append(
                    f"{job['name']}: link {self._names[u]} -> {self._names[v]} has {capacity:.6g} "
                    f"bytes/s (Eq. 6), {capacity - self.free(u, v):.6g} used"
                )
        return problems
