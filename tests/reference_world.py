"""A second, slow implementation of the simulator.

Plain Python over the dict of `Instance.to_dict()`; it shares no code with the project.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Self


def price_cycle_s(regions: list[dict[str, Any]]) -> float:
    """How long an idle cluster may wait for prices: until all combinations have been seen."""
    series = [r for r in regions if len(r["price_time_s"]) > 1]
    held = [r["price_time_s"][-1] for r in series if r["price_period_s"] is None]
    periods = [max(round(1e3 * r["price_period_s"]), 1) for r in series if r["price_period_s"]]
    return max(held, default=0.0) + min(math.lcm(*periods), 10 * max(periods, default=1)) / 1e3


def price_steps(region: dict[str, Any], since_s: float) -> Iterator[tuple[float, float, float]]:
    """(start, end, price) of the step in force at `since_s` and of all later ones."""
    times, prices = region["price_time_s"], region["price_usd_per_kwh"]
    period = region["price_period_s"] if len(times) > 1 else None
    n = max(0, int(since_s // period) - 1) if period else 0
    while True:
        base = n * period if period else 0.0
        ends = [base + t for t in times[1:]] + [base + period if period else math.inf]
        for time, end, price in zip(times, ends, prices, strict=True):
            if end > since_s:
                yield base + time, end, price
        if not period:
            return
        n += 1


def after(t: float) -> float:
    """What happens until then is simultaneous with t."""
    return t + 1e-9 + 1e-12 * abs(t)


class ReferenceWorld(ABC):
    """One episode on one instance: a subclass decides; `run`, then read the attributes."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.regions, self.jobs, self.t_comm = data["regions"], data["jobs"], data["t_comm"]
        self.profiles = [data["profiles"][job["profile"]] for job in self.jobs]
        self.links, self.latency = data["link_bytes_per_s"], data["link_latency_s"]
        self.k_star = [
            min(range(p["k_min"], p["k_max"] + 1), key=lambda k, p=p: self.iteration_s(p, k, []))
            for p in self.profiles
        ]
        self.now, self.deadlock = 0.0, False
        self.pending, self.running = list[int](), list[int]()
        self.future = list(range(len(self.jobs)))
        self.decisions: list[tuple[float, int | None]] = []
        self.results: dict[int, dict[str, Any]] = {}  # of each started job

    @abstractmethod
    def decide(self) -> tuple[int, list[int], list[int]] | None:
        """Job, path and GPUs of what starts now; None: wait."""

    @staticmethod
    def iteration_s(p: dict[str, Any], k: int, hops: list[tuple[float, float]]) -> float:
        """Eq. 1; `hops` between regions as (t_comm, latency), the others are inside a region."""
        comp, inside = p["t_comp_s"][k - 1], k - 1 - len(hops)
        fill = inside * p["intra_s"] + sum(t + latency for t, latency in hops) + k * comp
        slowest = max([comp, *[p["intra_s"]][:inside], *[t for t, _ in hops]])
        return float(2.0 * (fill + (p["micro_batches"] - 1) * slowest))

    def run(self) -> Self:
        """Until every job is finished, or the policy waits for nothing."""
        idle_since = math.inf
        while True:
            choice = self.decide() if self.pending else None
            if choice is not None:
                self.start(*choice)
                continue
            events = [self.results[j]["finish"] for j in self.running]
            events += [self.jobs[j]["arrival_s"] for j in self.future]
            idle_since = math.inf if events else min(idle_since, self.now)
            changes = [
                next(price_steps(r, after(self.now)))[1] for r in self.regions if self.pending
            ]
            first = min([*events, *changes], default=math.inf)
            if first == math.inf or first - idle_since > price_cycle_s(self.regions):
                self.deadlock = bool(self.pending)
                return self
            if self.pending:
                self.decisions.append((self.now, None))
            until = after(first)
            self.now = max([t for t in events if t <= until], default=first)
            self.running = [j for j in self.running if self.results[j]["finish"] > until]
            self.pending += [j for j in self.future if self.jobs[j]["arrival_s"] <= until]
            self.future = [j for j in self.future if self.jobs[j]["arrival_s"] > until]

    def used(self, u: int, v: int) -> float:
        """Bandwidth that the running jobs reserve on a link."""
        jobs = [self.results[j] for j in self.running]
        return float(sum(job["need"] for job in jobs if (u, v) in job["hops"]))

    def need(self, j: int, k: int) -> float:
        """b_j(k)."""
        return float(self.profiles[j]["act_bytes"] / self.profiles[j]["t_comp_s"][k - 1])

    def start(self, j: int, path: list[int], gpus: list[int]) -> None:
        """Eq. 1, 2 and 4 of a job that starts now."""
        p, k, links, hops = self.profiles[j], sum(gpus), list(pairwise(path)), []
        for u, v in links:
            t_comm = {"reserved": p["t_comp_s"][k - 1], "hidden": p["intra_s"]}.get(self.t_comm)
            if t_comm is None:
                t_comm = p["act_bytes"] / (self.links[u][v] - self.used(u, v))
            hops.append((t_comm, self.latency[u][v]))
        iteration = self.iteration_s(p, k, hops)
        finish = self.now + self.jobs[j]["iterations"] * iteration
        energy = cost = 0.0
        for r, n in zip(path, gpus, strict=True):
            kw = n * self.regions[r]["kw_per_gpu"]
            energy += kw * (finish - self.now) / 3600.0
            for begin, end, price in price_steps(self.regions[r], self.now):
                if begin >= finish:
                    break
                cost += kw * price * (min(end, finish) - max(begin, self.now)) / 3600.0
        for u, v in links:
            volume = p["act_bytes"] * p["micro_batches"] * self.jobs[j]["iterations"] / 1e9
            cost += volume * self.regions[u]["egress_usd_per_gb"]  # activations
            cost += volume * self.regions[v]["egress_usd_per_gb"]  # gradients
        self.results[j] = dict(start=self.now, finish=finish, path=path, gpus=gpus, hops=links)
        self.results[j].update(need=self.need(j, k), iteration=iteration, energy=energy, cost=cost)
        self.decisions.append((self.now, j))
        self.pending.remove(j)
        self.running.append(j)
