"""BACE-Pipe where prices move: ranking regions by what a run will pay, and waiting for a low price.

Two reference points, each `bace` but for one thing; both know the price series.
"""

import numpy as np

from agents.heuristic import Options, decide, least_gpus, parse_options, propose_for
from bace_env.instance import Instance
from bace_env.jit import inner_kernel, kernel
from bace_env.kernels import current_rates, time_tolerance
from bace_env.pipeline import electricity_cost, next_price_change, price_at
from bace_env.placement import PRICE_TOLERANCE, freest_region, mean_price, priorities
from bace_env.simulator import WAIT, Action, Pause, Placement, View
from bace_env.types import (
    N_PENDING,
    Arrays,
    FloatArray,
    IntArray,
    Scratch,
    State,
    allocate_scratch,
)

_DAY_S = 86400.0

# What is known of a profile at a decision.
_UNKNOWN, _BLOCKED, _DEAR, _CHEAP = 0, 1, 2, 3


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


@inner_kernel
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


@inner_kernel
def _run_s(arrays: Arrays, job: int) -> float:
    """E_j(K*) with all hops inside a region."""
    p = arrays.job_profile[job]
    return float(arrays.iterations[job] * arrays.iteration_s[p, arrays.k_star[p]])


@kernel
def place_by_forecast(
    arrays: Arrays,
    state: State,
    options: Options,
    job: int,
    rates: FloatArray,
    scratch: Scratch,
    path: IntArray,
    alloc: IntArray,
) -> int:
    """Path length of the job's placement at its forecast rates, which go into `rates`, `(R,)`."""
    forecast_rates(arrays, state.now_s[0], _run_s(arrays, job), rates)
    profile = arrays.job_profile[job]
    length, _ = place_at(arrays, state, options, rates, profile, scratch, path, alloc)
    return length


@kernel
def decide_or_defer(
    arrays: Arrays,
    state: State,
    options: Options,
    deadline: float,
    limits: FloatArray,
    scratch: Scratch,
    path: IntArray,
    alloc: IntArray,
) -> tuple[int, int, float]:
    """The decision of `BaceDefer`: job, path length, and until when none may start.

    Args:
        arrays: Of the instance.
        state: Of the simulator.
        options: Of the placement.
        deadline: A job waits so many times E_j(K*) at most.
        limits: Up to what a GPU's hour is cheap, USD, `(R,)`.
        scratch: Room.
        path: Filled, `(R,)`.
        alloc: Filled, `(R,)`.

    Returns:
        (-1, 0, t) to wait, to t at most: the first deadline of a job that could start, else inf.
    """
    now_s, rates = state.now_s[0], scratch.rate
    pending = state.pending[: state.counts[N_PENDING]]
    score, known = scratch.score[0, : pending.size], scratch.profile
    current_rates(arrays, now_s, rates)
    priorities(arrays, state.link_used, pending, score)
    for p in range(known.size):
        known[p] = _UNKNOWN
    best, until_s = -1, np.inf
    for i in range(pending.size):
        p = arrays.job_profile[pending[i]]
        if known[p] == _UNKNOWN:
            length, gpus = place_at(arrays, state, options, rates, p, scratch, path, alloc)
            known[p] = _BLOCKED
            if length > 0:
                cost = mean_price(path, alloc, length, gpus, rates)
                limit = mean_price(path, alloc, length, gpus, limits)
                # Sums in two orders.
                cheap = cost <= limit + PRICE_TOLERANCE * abs(limit)
                known[p] = _CHEAP if cheap else _DEAR
        if known[p] == _BLOCKED:
            continue
        last_s = arrays.arrival_s[pending[i]] + deadline * _run_s(arrays, pending[i])
        if known[p] == _DEAR and last_s > now_s:
            until_s = min(until_s, last_s)
        elif best < 0 or score[i] > score[best]:
            best = i
    if best < 0:
        return -1, 0, until_s
    p = arrays.job_profile[pending[best]]
    length, _ = place_at(arrays, state, options, rates, p, scratch, path, alloc)
    return pending[best], length, until_s


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
        length = place_by_forecast(
            arrays,
            view.state,
            self.chosen,
            job,
            self._rates,
            self._scratch,
            self._path,
            self._alloc,
        )
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
        job, length, until_s = decide_or_defer(
            view.arrays,
            view.state,
            self.chosen,
            self.deadline,
            self._median_rates(view),
            self._scratch,
            self._path,
            self._alloc,
        )
        if job < 0:
            return Pause(until_s) if until_s < np.inf else WAIT
        return self._placement(int(job), length)

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
