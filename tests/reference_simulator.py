"""A second, slow implementation of the simulator and of the built-in heuristics.

Plain Python over the dict of `Instance.to_dict()`; it shares no code with the project.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

Path = tuple[list[int], list[int]]  # region ids in pipeline order, GPUs of each

#: Name -> (order of jobs, placement rule, way to fill the path, a blocked job lets the next try).
POLICIES = {
    "bace": ("priority", "pathfinder", "cheapest", True),
    "bace-no-priority": ("fcfs", "pathfinder", "cheapest", True),
    "bace-no-pathfinder": ("priority", "cr-ldf", "in order", True),
    "bace-no-cost-min": ("priority", "pathfinder", "evenly", True),
    "bace-patient": ("priority", "pathfinder", "cheapest", True),
    "sjf": ("shortest", "pathfinder", "cheapest", True),
    **{name: ("fcfs", name, "in order", False) for name in ("lcf", "ldf", "cr-lcf", "cr-ldf")},
}


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


class ReferenceSimulator:
    """Runs one policy (`name:options`) on one instance: `run`, then read the attributes."""

    def __init__(self, data: dict[str, Any], spec: str) -> None:
        self.regions, self.jobs, self.t_comm = data["regions"], data["jobs"], data["t_comm"]
        self.profiles = [data["profiles"][job["profile"]] for job in self.jobs]
        self.links, self.latency = data["link_bytes_per_s"], data["link_latency_s"]
        name, _, arg = spec.partition(":")
        options = dict(item.partition("=")[::2] for item in arg.split(",") if item)
        self.order, self.rule, self.fill, skip = POLICIES[name]
        self.patience = float(options.get("patience", name == "bace-patient"))
        self.partial, self.skip = "partial_fill" in options, skip or "skip_blocked" in options
        self.k_star = [
            min(range(p["k_min"], p["k_max"] + 1), key=lambda k, p=p: self.iteration_s(p, k, []))
            for p in self.profiles
        ]
        self.now, self.deadlock = 0.0, False
        self.pending, self.running = list[int](), list[int]()
        self.future = list(range(len(self.jobs)))
        self.decisions: list[tuple[float, int | None]] = []
        self.results: dict[int, dict[str, Any]] = {}  # of each started job

    @staticmethod
    def iteration_s(p: dict[str, Any], k: int, hops: list[tuple[float, float]]) -> float:
        """Eq. 1; `hops` between regions as (t_comm, latency), the others are inside a region."""
        comp, inside = p["t_comp_s"][k - 1], k - 1 - len(hops)
        fill = inside * p["intra_s"] + sum(t + latency for t, latency in hops) + k * comp
        slowest = max([comp, *[p["intra_s"]][:inside], *[t for t, _ in hops]])
        return float(2.0 * (fill + (p["micro_batches"] - 1) * slowest))

    def run(self) -> "ReferenceSimulator":
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

    def carries(self, j: int, k: int, path: list[int]) -> bool:
        """Eq. 6 on every hop."""
        for u, v in pairwise(path):
            capacity, reserved = self.links[u][v], self.used_of[u][v]
            if capacity <= 0 or reserved + self.need(j, k) > capacity * (1 + 1e-9):
                return False
        return True

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
        self.results[j] = dict(start=self.now, finish=finish, path=path, gpus=gpus, hops=links)
        self.results[j].update(need=self.need(j, k), iteration=iteration, energy=energy, cost=cost)
        self.decisions.append((self.now, j))
        self.pending.remove(j)
        self.running.append(j)

    def decide(self) -> tuple[int, list[int], list[int]] | None:
        """The first job in order that can start, with its path and GPUs."""
        every = range(len(self.regions))
        self.prices = [  # P_r: what a GPU costs per hour
            r["kw_per_gpu"] * next(price_steps(r, after(self.now)))[2] for r in self.regions
        ]
        all_gpus = [r["gpus"] for r in self.regions]
        free = list(all_gpus)
        for job in [self.results[j] for j in self.running]:
            for r, n in zip(job["path"], job["gpus"], strict=True):
                free[r] -= n
        used = [[self.used(u, v) for v in every] for u in every]
        for j in self.ordered(used):
            path, gpus = self.place(j, free, used)
            wanted = math.ceil(self.patience * self.k_star[j])
            if path and sum(gpus) < wanted:
                empty = [[0.0 for _ in every] for _ in every]
                wanted = min(wanted, sum(self.place(j, all_gpus, empty)[1]))
            if path and sum(gpus) >= wanted:
                return j, path, gpus
            if not self.skip:
                return None
        return None

    def ordered(self, used: list[list[float]]) -> list[int]:
        """The pending jobs in the policy's order (Eq. 9-12)."""
        jobs, total = sorted(self.pending), sum(map(sum, self.links))
        if self.order == "fcfs":
            return jobs
        work = {
            j: self.jobs[j]["iterations"] * self.iteration_s(self.profiles[j], 1, []) for j in jobs
        }
        need = {j: self.need(j, self.k_star[j]) for j in jobs}
        alpha = sum(map(sum, used)) / total if total > 0 and self.order == "priority" else 0.0
        longest, widest = max(work.values()) or 1.0, max(need.values()) or 1.0

        def priority(j: int) -> float:
            return (1 - alpha) * (1 - work[j] / longest) + alpha * (1 - need[j] / widest)

        return sorted(jobs, key=lambda j: work[j] if self.order == "shortest" else -priority(j))

    def place(self, j: int, free: list[int], used: list[list[float]]) -> Path:
        """The placement rule: path and GPUs, ([], []) if there is none."""
        self.free, self.used_of = free, used
        target, k_min = self.k_star[j], self.profiles[j]["k_min"]
        some = [r for r, n in enumerate(free) if n > 0]
        by_price = sorted(some, key=lambda r: self.prices[r])
        order = (
            by_price
            if self.rule in ("pathfinder", "lcf", "cr-lcf")
            else sorted(some, key=lambda r: -free[r])
        )
        if self.rule in ("pathfinder", "lcf", "ldf"):
            fits = [r for r in order if free[r] >= (target if self.rule == "pathfinder" else k_min)]
            if fits or self.rule != "pathfinder":
                return (fits[:1], [min(free[r], target) for r in fits[:1]])
        best: tuple[Path, int, float] = (([], []), 0, math.inf)
        for s in some if self.rule == "pathfinder" else order[:1]:
            path, g = self.grow(j, s)
            gpus = self.spread(path, g)
            price = sum(n * self.prices[r] for r, n in zip(path, gpus, strict=True)) / g
            if g > best[1] or (g == best[1] and price < best[2] - 1e-12 * abs(best[2])):
                best = ((path, gpus), g, price)
        return best[0] if best[1] >= k_min else ([], [])

    def grow(self, j: int, start: int) -> tuple[list[int], int]:
        """Alg. 1, lines 7-17."""
        free, target, path = self.free, self.k_star[j], [start]
        g = min(free[start], target)
        while g < target and (
            others := [u for u in range(len(free)) if free[u] > 0 and u not in path]
        ):
            if self.rule == "cr-lcf":
                u = min(others, key=lambda u: self.prices[u])
            else:
                u = max(others, key=lambda u: self.links[path[-1]][u] - self.used_of[path[-1]][u])
            most = min(free[u], target - g)
            counts = range(most, 0 if self.partial else most - 1, -1)
            n = next((n for n in counts if self.carries(j, g + n, [*path, u])), 0)
            if n:
                path, g = [*path, u], g + n
            if n < most:
                break
        return path, g

    def spread(self, path: list[int], g: int) -> list[int]:
        """GPUs in path order: Alg. 2, in path order, or evenly; at least one each."""
        gpus = [1] * len(path)
        order = sorted(range(len(path)), key=lambda i: (self.prices[path[i]], path[i]))
        while sum(gpus) < g:
            at = order if self.fill == "cheapest" else range(len(path))
            room = [i for i in at if gpus[i] < self.free[path[i]]]
            gpus[min(room, key=lambda i: gpus[i]) if self.fill == "evenly" else room[0]] += 1
        return gpus
