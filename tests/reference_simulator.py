"""A second, slow implementation of the built-in heuristics, on the second simulator."""

import math
from itertools import pairwise
from typing import Any

from reference_world import ReferenceWorld, after, price_steps

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


class ReferenceSimulator(ReferenceWorld):
    """Runs one policy (`name:options`) on one instance."""

    def __init__(self, data: dict[str, Any], spec: str) -> None:
        super().__init__(data)
        name, _, arg = spec.partition(":")
        options = dict(item.partition("=")[::2] for item in arg.split(",") if item)
        self.order, self.rule, self.fill, skip = POLICIES[name]
        self.patience = float(options.get("patience", name == "bace-patient"))
        self.partial, self.skip = "partial_fill" in options, skip or "skip_blocked" in options

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

    def carries(self, j: int, k: int, path: list[int]) -> bool:
        """Eq. 6 on every hop."""
        for u, v in pairwise(path):
            capacity, reserved = self.links[u][v], self.used_of[u][v]
            if capacity <= 0 or reserved + self.need(j, k) > capacity * (1 + 1e-9):
                return False
        return True
