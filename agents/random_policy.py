"""A policy that draws a job and a valid placement at random; written against the view alone."""

from itertools import pairwise

import numpy as np

from bace_env.simulator import WAIT, Action, Placement, View


class RandomPolicy:
    """Starts a random pending job on a random walk over regions, whenever one can start."""

    name = "random"

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def reset(self, seed: int) -> None:
        """Seed the draws of the episode."""
        self._rng = np.random.default_rng(seed)

    def act(self, view: View) -> Action:
        """A random placement of a random job that has one, else WAIT."""
        if view.free_gpus.max() < 1:
            return WAIT
        for job in self._rng.permutation(view.pending).tolist():
            for start in self._rng.permutation(view.instance.n_regions).tolist():
                placement = self._walk(view, job, start)
                if placement is not None:
                    return placement
        return WAIT

    def _walk(self, view: View, job: int, start: int) -> Placement | None:
        """Add random regions while the bandwidth allows it, up to a random number of GPUs."""
        free = view.free_gpus
        if free[start] < 1:
            return None
        links = view.free_bytes_per_s
        most = max(view.k_star(job), view.k_min(job))
        target = int(self._rng.integers(view.k_min(job), most + 1))
        path, gpus = [start], [min(int(free[start]), target)]
        for region in self._rng.permutation(len(free)).tolist():
            if sum(gpus) == target:
                break
            if region in path or free[region] < 1:
                continue
            extra = min(int(free[region]), target - sum(gpus))
            need = view.bandwidth_need(job, sum(gpus) + extra)
            hops = [*pairwise(path), (path[-1], region)]
            if all(links[u, v] >= need for u, v in hops):
                path.append(region)
                gpus.append(extra)
        if sum(gpus) < view.k_min(job):
            return None
        return Placement(job, tuple(path), tuple(gpus))
