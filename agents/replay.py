"""A policy that carries out a given schedule."""

from typing import NamedTuple

import numpy as np

from bace_env.kernels import VALID, check_placement, time_tolerance
from bace_env.simulator import WAIT, Action, Placement, View


class Schedule(NamedTuple):
    """Placements in the order of their starts."""

    placements: tuple[Placement, ...]
    not_before_s: tuple[float, ...] = ()  # of each; empty: none is held back


class Replay:
    """Starts each placement at the first event at which it is valid, in the schedule's order."""

    def __init__(self, schedule: Schedule, name: str = "replay") -> None:
        self.name = name
        self._schedule = schedule
        self._next = 0

    def reset(self, seed: int) -> None:
        """Begin with the first placement."""
        self._next = 0

    def act(self, view: View) -> Action:
        """The next placement if it may start now, else WAIT."""
        placements, times_s = self._schedule
        if self._next == len(placements):
            return WAIT
        now, placement = view.now_s, placements[self._next]
        if times_s and now + time_tolerance(now) < times_s[self._next]:
            return WAIT
        path, gpus = (np.array(ids, dtype=np.int64) for ids in placement[1:])
        if check_placement(view.arrays, view.state, placement.job, path, gpus)[0] != VALID:
            return WAIT
        self._next += 1
        return placement
