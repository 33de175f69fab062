"""Imperfect monitoring: any policy, deciding on late and noisy figures in a world that stays true.

`Monitored` is a policy around a policy. It builds the view that a scheduler would have whose
monitoring is late by `delay` seconds and off by up to `noise`, asks the inner policy, and checks
the answer against the true view by the simulator's own rules. Named like any policy of one's own:

    eval.monitoring:Monitored:noise=0.3,delay=0.02:bace

What is seen:

- Late: free GPUs, reserved bandwidth, prices and the clock are those of `delay` seconds ago. The
  queue is the scheduler's own, so pending jobs are always the true ones and none starts twice.
  With `own_starts` the scheduler also keeps account of what it has started itself, and only the end
  of a job reaches it late.
- Noisy: a measurement multiplies the capacity of every directed link, and the price of every
  region, by a factor of its own from [1 - noise, 1 + noise], uniformly. What is reserved is known.
  Whenever the scheduler wakes it measures once, and decides all that it decides then on that. The
  n-th measurement of an episode has the same factors for every policy (and the same draw, scaled,
  at every level of noise): they come from the episode's seed.

What happens to the answer:

- A placement that the true cluster cannot carry is refused; the decision waits until the view can
  differ: the next event, the next late news, or, with noise, another measurement `RETRY_S` later
  (twice as long after each further refusal in a row).
- WAIT lasts to the next event or the next late news; so does a pause, unless it ends before, by the
  clock that is seen.
- Where nothing runs and nothing is to arrive, a wait may be due to noise alone. Then, too, the
  cluster is measured again; after `FRUITLESS` attempts in a row the decision is made on the true
  figures. So noise alone deadlocks no run; a policy that would wait for ever on true figures still
  raises `DeadlockError`.
- A placement that breaks a rule even in the view it was made on is the inner policy's own fault
  and raises `InvalidPlacementError`, as without monitoring.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agents.policy import make_policy
from bace_env.kernels import FINISHED, RUNNING, time_tolerance
from bace_env.simulator import WAIT, Action, Pause, Placement, View
from bace_env.types import ARRIVED, N_RUNNING, Arrays, FloatArray, State

RETRY_S = 60.0  # until the cluster is measured again after a first refusal
FRUITLESS = 6  # attempts in a row after which an idle cluster is looked at exactly: 63 min in all

_MOST_DOUBLINGS = 20  # to 2 years; a float ends at 1023
_MEASUREMENTS = 0x6D6F6E  # its own stream, whatever else is drawn from the episode's seed


@dataclass(frozen=True)
class Monitoring:
    """How far what is seen differs from what is.

    Attributes:
        delay_s: Age of all that is seen but the queue.
        noise: Largest relative error of a measured bandwidth or price, below 1.
        own_starts: The scheduler knows at once what it has started itself.
    """

    delay_s: float = 0.0
    noise: float = 0.0
    own_starts: bool = False


def parse_monitoring(text: str) -> Monitoring:
    """Read `delay=SECONDS`, `noise=SHARE`, `own_starts`, separated by commas.

    Raises:
        ValueError: Unknown option or value.
    """
    found: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        if key == "delay":
            found["delay_s"] = _number("delay", value, "seconds from 0 to 1e9", 1e9)
        elif key == "noise":
            found["noise"] = _number("noise", value, "a share from 0 to 0.99", 0.99)
        elif key == "own_starts" and not equals:
            found["own_starts"] = True
        else:
            raise ValueError(f"unknown option {item!r}; known: delay=S, noise=SHARE, own_starts")
    return Monitoring(**found)


def _number(key: str, text: str, rule: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= most:
        raise ValueError(f"{key}: must be {rule}, got {text!r}")
    return value


class Monitored:
    """The policy of the module docstring; the argument is `OPTIONS:POLICY`."""

    def __init__(self, arg: str = "") -> None:
        options, colon, spec = arg.partition(":")
        if not colon or not spec:
            raise ValueError(f"must be OPTIONS:POLICY, such as noise=0.3:bace, got {arg!r}")
        self.monitoring = parse_monitoring(options)
        self._inner = make_policy(spec)
        self.name = f"{self._inner.name} ({options})" if options else self._inner.name
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Forget everything; errors of measurement and the inner policy follow from `seed`."""
        self._inner.reset(seed)
        self._rng = np.random.default_rng([seed, _MEASUREMENTS])
        self._measured_s = np.nan  # when the factors below were drawn
        self._factors: FloatArray = np.ones((1, 1))  # (R + 1, R): of links, of prices
        self._fruitless = 0  # attempts since the last start that led to none

    def act(self, view: View) -> Action:
        """The inner policy's decision on what it sees, if the cluster can carry it out."""
        idle = _is_idle(view)
        exact = idle and self._fruitless >= FRUITLESS
        seen = view if exact else self.seen(view)
        action = self._inner.act(seen)
        if isinstance(action, Placement):
            # What is wrong in the view that it was made on is for the simulator to refuse.
            if view.why_invalid(action) is None or seen.why_invalid(action) is not None:
                self._fruitless = 0
                return action
            return self._wait(view, refused=action.job, measure=True)
        if action is WAIT and not exact:
            return self._wait(view, refused=None, measure=idle)
        if isinstance(action, Pause) and seen is not view:
            # Its clock is late; news may come before that.
            until_s = action.until_s + self.monitoring.delay_s
            return Pause(min(until_s, self._next_news(view)), action.refused)
        return action

    def seen(self, view: View) -> View:
        """What the inner policy sees of a true view; the view itself if nothing disturbs it."""
        delay_s, noise = self.monitoring.delay_s, self.monitoring.noise
        if delay_s == 0.0 and noise == 0.0:
            return view
        arrays, state = view.arrays, view.state
        if noise > 0.0:
            arrays = self._measure(view)
        if delay_s > 0.0:
            state = earlier_state(arrays, state, delay_s, own_starts=self.monitoring.own_starts)
        return View(replace(view.instance, arrays=arrays), state)

    def _measure(self, view: View) -> Arrays:
        arrays, noise, r = view.arrays, self.monitoring.noise, view.instance.n_regions
        if view.now_s != self._measured_s:
            self._factors = 1.0 + noise * self._rng.uniform(-1.0, 1.0, (r + 1, r))
            self._measured_s = view.now_s
        of_links, of_prices = self._factors[:r], self._factors[r][:, None]
        return arrays._replace(
            link_bytes_per_s=arrays.link_bytes_per_s * of_links,
            price_usd_per_kwh=arrays.price_usd_per_kwh * of_prices,
            price_cumulative=arrays.price_cumulative * of_prices,
        )

    def _wait(self, view: View, *, refused: int | None, measure: bool) -> Action:
        """Start nothing until the view can differ; `measure`: also because of a measurement."""
        until_s = self._next_news(view)
        if measure and self.monitoring.noise > 0.0:
            doublings = min(self._fruitless, _MOST_DOUBLINGS)
            until_s = min(until_s, view.now_s + RETRY_S * 2.0**doublings)
            self._fruitless += 1
        return Pause(until_s, refused) if until_s < np.inf else WAIT

    def _next_news(self, view: View) -> float:
        """When the next change that has happened but is not seen yet will be seen; else inf."""
        state, delay_s = view.state, self.monitoring.delay_s
        if delay_s == 0.0:
            return np.inf
        now = view.now_s
        changes = [state.finish_s]
        if not self.monitoring.own_starts:
            changes.append(state.start_s)
        times = np.concatenate(changes)
        tolerance = time_tolerance(now)
        unseen = times[(times > now - delay_s + tolerance) & (times <= now + tolerance)]
        return float(unseen.min()) + delay_s if unseen.size else np.inf


def _is_idle(view: View) -> bool:
    """Whether no job runs and none is to arrive, so that only the policy can move the world."""
    counts = view.state.counts
    return bool(counts[N_RUNNING] == 0 and counts[ARRIVED] == view.instance.n_jobs)


def earlier_state(arrays: Arrays, state: State, delay_s: float, *, own_starts: bool) -> State:
    """The cluster as it was `delay_s` ago, with the queue as it is; a copy.

    Before the first start it was empty. `now_s` is the time that is seen, at least 0, so that the
    prices in force are those of then.

    Args:
        arrays: The instance's.
        state: The true state.
        delay_s: Age of what is seen.
        own_starts: Starts are seen at once, ends of jobs are late.
    """
    now = float(state.now_s[0])
    tolerance = time_tolerance(now)
    then = now - delay_s
    known = state.start_s <= (now if own_starts else then) + tolerance  # nan: never started
    # A job of no length holds its GPUs until the simulator has dealt with its end.
    over = known & (state.finish_s <= then + tolerance) & (state.status == FINISHED)
    holding = np.flatnonzero(known & ~over)
    status = state.status.copy()
    status[over] = FINISHED
    status[holding] = RUNNING
    free_gpus = arrays.gpus.copy()
    link_used, link_jobs = np.zeros_like(state.link_used), np.zeros_like(state.link_jobs)
    for job in holding.tolist():
        n = int(state.path_length[job])
        path = state.path[job, :n]
        free_gpus[path] -= state.alloc[job, :n]
        link_used[path[:-1], path[1:]] += state.job_bytes_per_s[job]
        link_jobs[path[:-1], path[1:]] += 1
    counts, running = state.counts.copy(), np.zeros_like(state.running)
    counts[N_RUNNING] = holding.size
    running[: holding.size] = holding
    blank = {"start_s": np.nan, "finish_s": np.nan, "path": -1}
    of_jobs = (
        *("start_s", "finish_s", "path_length", "path", "alloc"),
        *("job_iteration_s", "job_bytes_per_s", "energy_kwh", "cost_usd"),
    )
    per_job = {}
    for field in of_jobs:
        values = getattr(state, field).copy()
        values[~known] = blank.get(field, 0)
        per_job[field] = values
    return state._replace(
        now_s=np.array([max(then, 0.0)]),
        counts=counts,
        free_gpus=free_gpus,
        link_used=link_used,
        link_jobs=link_jobs,
        status=status,
        pending=state.pending.copy(),
        running=running,
        **per_job,
    )
