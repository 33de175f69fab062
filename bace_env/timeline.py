"""An episode over time: every quantity as a step function, from the trace and its instance alone.

Integrals of these functions are the numbers that the simulator reports (GPU-seconds, cost, energy,
the sum of the JCTs), which the tests hold them to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bace_env.trace import EpisodeTrace
from bace_env.types import FloatArray, IntArray

Link = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Steps:
    """A step function of time: `value[i]` holds on `[time_s[i], time_s[i + 1])`, to `end_s`.

    Attributes:
        time_s: `(T,)`, ascending, first 0.
        value: `(T,)`.
        end_s: Where the last step ends.
    """

    time_s: FloatArray
    value: FloatArray
    end_s: float

    def integral(self) -> float:
        """Of the value from 0 to the end: value * s."""
        return float(self.cumulative(np.array([self.end_s]))[0])

    def at(self, time_s: FloatArray) -> FloatArray:
        """The values in force at these times."""
        step = np.searchsorted(self.time_s, time_s, side="right") - 1
        return np.asarray(self.value[np.maximum(step, 0)])

    def means(self, edges_s: FloatArray) -> FloatArray:
        """Exact mean between each two of the ascending edges, shape `(len(edges_s) - 1,)`."""
        widths = np.diff(edges_s)
        areas = np.diff(self.cumulative(edges_s))
        empty = widths <= 0.0
        return np.where(empty, self.at(edges_s[:-1]), areas / np.where(empty, 1.0, widths))

    def cumulative(self, time_s: FloatArray) -> FloatArray:
        """Integral from 0 to each of these times: value * s."""
        widths = np.diff(np.append(self.time_s, self.end_s))
        before = np.concatenate([[0.0], np.cumsum(self.value * widths)])
        step = np.maximum(np.searchsorted(self.time_s, time_s, side="right") - 1, 0)
        inside = np.minimum(time_s, self.end_s) - self.time_s[step]
        return np.asarray(before[step] + self.value[step] * inside)

    def __mul__(self, other: "Steps | float") -> "Steps":
        if not isinstance(other, Steps):
            return Steps(self.time_s, self.value * other, self.end_s)
        times = np.union1d(self.time_s, other.time_s)
        return Steps(times, self.at(times) * other.at(times), self.end_s)


def add_up(parts: Sequence[Steps]) -> Steps:
    """Sum of at least one step function with a common end."""
    times = parts[0].time_s
    for part in parts[1:]:
        times = np.union1d(times, part.time_s)
    total = np.zeros(times.size)
    for part in parts:
        total += part.at(times)
    return Steps(times, total, parts[0].end_s)


class Lanes(NamedTuple):
    """Which GPUs of its regions each job holds: one row per run of neighbouring GPUs."""

    job: IntArray  # (bars,)
    region: IntArray  # (bars,)
    first: IntArray  # (bars,) number of the lowest GPU in the region
    gpus: IntArray  # (bars,)


class _Shares(NamedTuple):
    """The started jobs' shares of regions, or their hops, flattened."""

    job: IntArray
    at: IntArray  # region, or index of the hop's start * R + end
    amount: FloatArray  # GPUs, or bytes/s


class Timeline:
    """Step functions of one episode, from its start to the last finish that is planned."""

    def __init__(self, trace: EpisodeTrace) -> None:
        self.trace = trace
        self._a = trace.instance.arrays
        started = trace.started
        planned = trace.finish_s[started]
        self.end_s = float(max(trace.end_s, planned.max(initial=0.0)))
        held = (trace.path >= 0) & started[:, None]
        job, place = np.nonzero(held)
        self._gpus = _Shares(job, trace.path[job, place], trace.alloc[job, place].astype(float))
        job, hop = np.nonzero(held[:, 1:])
        link = trace.path[job, hop] * trace.instance.n_regions + trace.path[job, hop + 1]
        self._hops = _Shares(job, link, trace.bytes_per_s[job])

    def busy_gpus(self, region: int) -> Steps:
        """GPUs that jobs hold in the region."""
        mine = self._gpus.at == region
        return self._held(self._gpus.job[mine], self._gpus.amount[mine])

    @cached_property
    def link_bytes_per_s(self) -> dict[Link, Steps]:
        """Reserved bandwidth of each directed link that any job used."""
        n = self.trace.instance.n_regions
        used = {}
        for link in np.unique(self._hops.at).tolist():
            mine = self._hops.at == link
            used[divmod(link, n)] = self._held(self._hops.job[mine], self._hops.amount[mine])
        return used

    def link_use(self, link: Link) -> Steps:
        """Reserved share of the link's bandwidth."""
        return self.link_bytes_per_s[link] * (1.0 / float(self._a.link_bytes_per_s[link]))

    @cached_property
    def alpha(self) -> Steps:
        """Eq. 11: reserved share of all bandwidth between regions; 0 without links."""
        total = float(self._a.link_bytes_per_s.sum())
        return self._held(self._hops.job, self._hops.amount) * (1.0 / total if total > 0 else 0.0)

    @cached_property
    def queue(self) -> Steps:
        """Jobs that have arrived and not started."""
        started = self.trace.started
        return self._changes(self._a.arrival_s, self.trace.start_s[started])

    @cached_property
    def running(self) -> Steps:
        """Jobs that hold GPUs."""
        started = self.trace.started
        return self._changes(self.trace.start_s[started], self.trace.finish_s[started])

    def price_usd_per_kwh(self, region: int) -> Steps:
        """Price of electricity."""
        n, period_s = int(self._a.price_count[region]), float(self._a.price_period_s[region])
        starts, prices = self._a.price_time_s[region, :n], self._a.price_usd_per_kwh[region, :n]
        if np.isfinite(period_s) and n > 1:
            periods = int(self.end_s // period_s) + 1
            starts = (np.arange(periods)[:, None] * period_s + starts).ravel()
            prices = np.tile(prices, periods)
        inside = (starts < self.end_s) | (starts <= 0.0)
        return Steps(starts[inside], prices[inside], self.end_s)

    def power_kw(self, region: int) -> Steps:
        """Electricity drawn, with PUE."""
        return self.busy_gpus(region) * float(self._a.kw_per_gpu[region])

    def spend_usd_per_h(self, region: int) -> Steps:
        """Electricity bill per hour (Eq. 4)."""
        return self.power_kw(region) * self.price_usd_per_kwh(region)

    def lanes(self) -> Lanes:
        """GPUs numbered within each region; a job takes the lowest that are free.

        Jobs without duration have no lane.
        """
        trace = self.trace
        free = [np.zeros(int(n)) for n in self._a.gpus]  # per GPU, when it becomes free
        rows: list[tuple[int, int, int, int]] = []
        lasting = np.flatnonzero(trace.started & (trace.finish_s > trace.start_s))
        for j in lasting[np.argsort(trace.start_s[lasting], kind="stable")].tolist():
            for r, n in zip(*trace.placement(j), strict=True):
                mine = np.flatnonzero(free[r] <= trace.start_s[j])[:n]
                free[r][mine] = trace.finish_s[j]
                for run in np.split(mine, np.flatnonzero(np.diff(mine) > 1) + 1):
                    rows.append((j, r, int(run[0]), run.size))
        table = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return Lanes(*(np.ascontiguousarray(column) for column in table.T))

    def _held(self, jobs: IntArray, amount: FloatArray) -> Steps:
        """What these jobs hold together while they run."""
        trace = self.trace
        return self._changes(trace.start_s[jobs], trace.finish_s[jobs], amount)

    def _changes(
        self, up_s: FloatArray, down_s: FloatArray, amount: FloatArray | None = None
    ) -> Steps:
        """Rises by `amount` (1 each by default) at the first times and falls at the second."""
        rise = np.ones(up_s.size) if amount is None else amount
        fall = np.ones(down_s.size) if amount is None else amount
        times, index = np.unique(np.concatenate([[0.0], up_s, down_s]), return_inverse=True)
        count = np.ones(up_s.size + down_s.size)
        count[up_s.size :] = -1.0
        change = np.bincount(index[1:], np.concatenate([rise, -fall]), times.size)
        present = np.rint(np.cumsum(np.bincount(index[1:], count, times.size)))
        # What nothing holds is exactly zero, whatever the sum of floats says.
        value = np.where(present > 0, np.maximum(np.cumsum(change), 0.0), 0.0)
        return Steps(times, value, self.end_s)
