"""BACE-Pipe where prices move: ranking regions by what a run will pay, and waiting for a low price.

Two reference points, each `bace` but for one thing; both know the price series.
"""

from typing import NamedTuple

import numpy as np

from agents.heuristic import Options, decide, least_gpus, parse_options, propose_for
from bace_env.instance import Instance
from bace_env.jit import kernel
from bace_env.kernels import current_rates, time_tolerance
from bace_env.pipeline import electricity_cost, next_price_change, price_at
from bace_env.placement import freest_region, priorities
from bace_env.simulator import WAIT, Action, Pause, Placement, View
from bace_env.types import (
    Arrays,
    BoolArray,
    FloatArray,
    IntArray,
    Scratch,
    State,
    allocate_scratch,
)

_DAY_S = 86400.0


@kernel
def forecast_rates(arrays: Arrays, now_s: float, seconds: float, out: FloatArray) -> None:
    """A GPU's mean cost for an hour over the next `seconds`, USD, into `out` of shape `(R,)`.

    The rates now where there is no time.
    """
    current_rates(arrays, now_s, out)
    for r in range(out.size):
        n = arrays.price_count[r]
        if n > 1 and seconds > 0.0:
            usd = electricity_cost(
                arrays.price_time_s[r, :n],
                arrays.price_usd_per_kwh[r, :n],
                arrays.price_cumulative[r, :n],
                arrays.price_period_s[r],
                arrays.kw_per_gpu[r],
                now_s,
                now_s + seconds,
            )
            out[r] = usd * 3600.0 / seconds


@kernel
def place_at(
    arrays: Arrays,
    state: State,
    options: Options,
    rates: FloatArray,
    profile: int,
    scratch: Scratch,
    path: IntArray,
    alloc: IntArray,
) -> tuple[int, int]:
    """Path length and GPUs of what the rule would start now for a profile if GPUs cost `rates`."""
    if freest_region(state.free_gpus, 1) < 0:
        return 0, 0
    length, gpus = propose_for(
        arrays, state.free_gpus, state.link_used, options, rates, profile, scratch, path, alloc
    )
    if length > 0 and gpus < least_gpus(arrays, options, rates, profile, gpus, scratch):
        return 0, 0
    return length, gpus


def run_times_s(arrays: Arrays, jobs: IntArray) -> FloatArray:
    """E_j(K*) with all hops inside a region, of some jobs."""
    profile = arrays.job_profile[jobs]
    return np.asarray(arrays.iterations[jobs] * arrays.iteration_s[profile, arrays.k_star[profile]])


def median_of_day(
    times_s: FloatArray, prices: FloatArray, period_s: float, begin_s: float, end_s: float
) -> float:
    """The lowest price that holds for at least half of [begin, end) together with all lower ones.

    Args:
        times_s: Starts of the steps, `(T,)`.
        prices: `(T,)`.
        period_s: The series repeats after this time; inf: the last price holds.
        begin_s: Begin of the span.
        end_s: Its end.
    """
    found: list[tuple[float, float]] = []  # price, how long
    now_s = begin_s
    while now_s < end_s:
        # A change at this very time has happened, whatever the sums of floats say.
        t = now_s + time_tolerance(now_s)
        until_s = min(next_price_change(times_s, period_s, t), end_s)
        found.append((price_at(times_s, prices, period_s, t), until_s - now_s))
        now_s = until_s
    found.sort()
    passed = np.cumsum([seconds for _, seconds in found])
    return found[int(np.searchsorted(passed, passed[-1] / 2 * (1 - 1e-9)))][0]


class _Proposals(NamedTuple):
    """What became of each profile, `(P,)` each."""

    fits: BoolArray  # it can start now
    cheap: BoolArray  # and at a low price


class _PriceAware:
    """What both policies need: options of `bace`, and room for kernels."""

    name = "price-aware"

    def __init__(self, arg: str, own: str = "") -> None:
        self.chosen = parse_options(arg, Options())
        if not self.chosen.skip_blocked:
            raise ValueError(f"skip_blocked: must be true in {self.name}, got false")
        given = ",".join(filter(None, (own, arg)))
        if given:
            self.name = f"{self.name}:{given}"
        self._instance: Instance | None = None

    def reset(self, seed: int) -> None:
        """Nothing is random, and nothing is remembered of an episode."""

    def _prepare(self, view: View) -> None:
        if view.instance is self._instance:
            return
        self._instance = view.instance
        n_regions, n_profiles = view.instance.n_regions, view.arrays.k_star.size
        self._scratch = allocate_scratch(n_regions, view.instance.n_jobs, n_profiles)
        self._path, self._alloc = np.empty((2, n_regions), dtype=np.int64)
        self._rates = np.empty(n_regions)
        self._forget()

    def _forget(self) -> None:
        """A new instance begins."""

    def _placement(self, job: int, length: int) -> Placement:
        path, gpus = self._path[:length].tolist(), self._alloc[:length].tolist()
        return Placement(job, tuple(path), tuple(gpus))

    def _place(self, view: View, profile: int, rates: FloatArray) -> tuple[int, int]:
        return place_at(
            view.arrays,
            view.state,
            self.chosen,
            rates,
            profile,
            self._scratch,
            self._path,
            self._alloc,
        )


class BaceForecast(_PriceAware):
    """BACE-Pipe that ranks regions by their mean price over the job's expected run time.

    The mean runs over [now, now + E_j(K*)], all hops inside a region. Which job starts is as in
    `bace`: whether the Pathfinder finds a path, and of how many GPUs, does not depend on prices.
    """

    name = "bace-forecast"

    def __init__(self, arg: str = "") -> None:
        super().__init__(arg)

    def act(self, view: View) -> Action:
        """Start the job that `bace` would start, where it will be cheapest."""
        self._prepare(view)
        arrays = view.arrays
        job, _ = decide(arrays, view.state, self.chosen, self._scratch, self._path, self._alloc)
        if job < 0:
            return WAIT
        run_s = float(run_times_s(arrays, np.array([job]))[0])
        forecast_rates(arrays, view.now_s, run_s, self._rates)
        length, _ = self._place(view, int(arrays.job_profile[job]), self._rates)
        return self._placement(int(job), length)


class BaceDefer(_PriceAware):
    """BACE-Pipe that starts a job only where electricity costs no more than its median of the day.

    The placement of `bace` may start when its GPUs cost at most what they would at the median price
    of each region over the day (24 h from time 0 on, that day's series being known, as day-ahead
    prices are), or when the job has waited `deadline` times E_j(K*) since its arrival. Of the jobs
    that may, the first by priority does.

    The argument takes `deadline=MULTIPLE` beside the options of `bace`.
    """

    name = "bace-defer"

    def __init__(self, arg: str = "") -> None:
        items = arg.split(",")
        own = [item for item in items if item.partition("=")[0] == "deadline"]
        rest = ",".join(item for item in items if item not in own)
        self.deadline = _multiple(own[-1].partition("=")[2]) if own else 1.0
        super().__init__(rest, ",".join(own))

    def _forget(self) -> None:
        self._medians: dict[int, FloatArray] = {}

    def act(self, view: View) -> Action:
        """Start the first job by priority that may, else wait for a price or a deadline."""
        self._prepare(view)
        if view.free_gpus.max() < 1:
            return WAIT
        arrays, now_s, pending = view.arrays, view.now_s, view.pending
        profile = arrays.job_profile[pending]
        proposals = self._proposals(view, np.unique(profile).tolist())
        last_s = arrays.arrival_s[pending] + self.deadline * run_times_s(arrays, pending)
        fits = proposals.fits[profile]
        may = fits & (proposals.cheap[profile] | (last_s <= now_s))
        if not may.any():
            return Pause(float(last_s[fits].min())) if fits.any() else WAIT
        score = np.empty(pending.size)
        # The live array: a read-only view would compile the kernel once more.
        live = view.state.pending[: pending.size]
        priorities(arrays, view.state.link_used, live, score)
        first = int(np.argmax(np.where(may, score, -np.inf)))
        length, _ = self._place(view, int(profile[first]), view.usd_per_gpu_h)
        return self._placement(int(pending[first]), length)

    def _proposals(self, view: View, profiles: list[int]) -> _Proposals:
        rates, limits = view.usd_per_gpu_h, self._median_rates(view)
        fits, cheap = np.zeros((2, view.arrays.k_star.size), dtype=bool)
        for p in profiles:
            length, _ = self._place(view, p, rates)
            fits[p] = length > 0
            path, alloc = self._path[:length], self._alloc[:length]
            cost, limit = float(alloc @ rates[path]), float(alloc @ limits[path])
            cheap[p] = cost <= limit + 1e-12 * abs(limit)  # sums in two orders
        return _Proposals(fits, cheap)

    def _median_rates(self, view: View) -> FloatArray:
        """What a GPU costs for an hour at each region's median price of the day, `(R,)`."""
        arrays = view.arrays
        day = int((view.now_s + time_tolerance(view.now_s)) // _DAY_S)
        if day not in self._medians:
            begin_s = day * _DAY_S
            end_s = min(begin_s + _DAY_S, view.instance.price_end_s)
            if end_s <= begin_s:  # the day begins where the prices end
                end_s = begin_s + _DAY_S
            medians = [
                median_of_day(
                    arrays.price_time_s[r, :n],
                    arrays.price_usd_per_kwh[r, :n],
                    float(arrays.price_period_s[r]),
                    begin_s,
                    end_s,
                )
                for r, n in enumerate(arrays.price_count.tolist())
            ]
            self._medians[day] = arrays.kw_per_gpu * medians
        return self._medians[day]


def _multiple(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1e6:
        raise ValueError(
            f"deadline: must be a multiple from 0 to 1e6 of the run time, got {text!r}"
        )
    return value
