"""The event-driven simulator: decisions in, an `EpisodeTrace` out."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from bace_env import kernels, placement
from bace_env.errors import DeadlockError, InvalidPlacementError, PriceEndError
from bace_env.instance import Instance
from bace_env.pipeline import bandwidth_need
from bace_env.trace import Decision, EpisodeTrace
from bace_env.types import N_PENDING, N_RUNNING, Arrays, FloatArray, IntArray, State

_Array = TypeVar("_Array", bound=np.ndarray[Any, Any])


class Placement(NamedTuple):
    """Start `job` now: `gpus[i]` GPUs in region `path[i]`, stages in path order."""

    job: int
    path: tuple[int, ...]
    gpus: tuple[int, ...]


class Wait(Enum):
    """The type of `WAIT`."""

    WAIT = "wait"


#: Start nothing; time moves to the next event.
WAIT: Final = Wait.WAIT


class Pause(NamedTuple):
    """Start nothing; the policy is asked again at `until_s`, or after the next event before it.

    For policies that wait for something which is no event of the simulator, such as news of an
    earlier one. They must end: a pause is also granted while nothing lies ahead.
    """

    until_s: float
    refused: int | None = None  # for the trace: the job whose placement proved impossible


Action = Placement | Wait | Pause


def _read_only(array: _Array) -> _Array:
    view = array.view()
    view.flags.writeable = False
    return view


class View:
    """What a policy sees at a decision: read-only, live, in physical units, ids as indices.

    `arrays` and `state` are the kernels' inputs; a policy that calls kernels reads them and never
    writes. The properties give the same facts as read-only arrays for policies in plain Python.
    """

    def __init__(self, instance: Instance, state: State) -> None:
        self.instance = instance
        self.arrays: Arrays = instance.arrays
        self.state = state
        self._prices = np.empty(instance.n_regions)

    @property
    def now_s(self) -> float:
        """Time since the start of the episode, seconds."""
        return float(self.state.now_s[0])

    @property
    def pending(self) -> IntArray:
        """Ids of the pending jobs in order of arrival."""
        return _read_only(self.state.pending[: self.state.counts[N_PENDING]])

    @property
    def running(self) -> IntArray:
        """Ids of the running jobs, ascending."""
        return np.sort(self.state.running[: self.state.counts[N_RUNNING]])

    @property
    def free_gpus(self) -> IntArray:
        """Free GPUs of each region, `(R,)`."""
        return _read_only(self.state.free_gpus)

    @property
    def free_bytes_per_s(self) -> FloatArray:
        """Bandwidth that no job has reserved, `(R, R)`, row = source; 0 where there is no link."""
        return np.asarray(self.arrays.link_bytes_per_s - self.state.link_used)

    @property
    def price_usd_per_kwh(self) -> FloatArray:
        """Price in force in each region, `(R,)`."""
        kernels.current_prices(self.arrays, self.state.now_s[0], self._prices)
        return _read_only(self._prices)

    @property
    def usd_per_gpu_h(self) -> FloatArray:
        """P_r of the built-in policies: a GPU's electricity for an hour, with power and PUE."""
        return np.asarray(self.price_usd_per_kwh * self.arrays.kw_per_gpu)

    @property
    def congestion(self) -> float:
        """Alpha of Eq. 11: reserved share of all inter-region bandwidth."""
        return float(placement.congestion(self.arrays, self.state.link_used))

    def k_min(self, job: int) -> int:
        """Fewest GPUs the job can use."""
        return int(self.arrays.k_min[self.arrays.job_profile[job]])

    def k_max(self, job: int) -> int:
        """Most GPUs the job can use."""
        return int(self.arrays.k_max[self.arrays.job_profile[job]])

    def k_star(self, job: int) -> int:
        """K* (Eq. 13), the number of GPUs of the least iteration time inside one region."""
        return int(self.arrays.k_star[self.arrays.job_profile[job]])

    def bandwidth_need(self, job: int, k: int) -> float:
        """b_j at k GPUs, bytes/s that every hop between regions must have free."""
        p = self.arrays.job_profile[job]
        return float(bandwidth_need(self.arrays.act_bytes[p], self.arrays.comp_s[p, k]))

    def execution_s(self, job: int, path: Sequence[int], gpus: Sequence[int]) -> float:
        """E_j (Eq. 1 and 2) on a placement, at the present reservations."""
        seconds = kernels.placed_iteration_time(
            self.arrays,
            self.state.link_used,
            self.arrays.job_profile[job],
            int(sum(gpus)),
            np.array(path, dtype=np.int64),
            len(path),
        )
        return float(self.arrays.iterations[job] * seconds)

    def why_invalid(self, placement: Placement) -> str | None:
        """The rule that the placement breaks, with the numbers; None if it may start now."""
        job, path, gpus = _checked(placement)
        code, at = kernels.check_placement(self.arrays, self.state, job, path, gpus)
        return None if code == kernels.VALID else self._explain(code, at, placement)

    def _explain(self, code: int, at: int, placement: Placement) -> str:
        job, path, gpus = placement
        if code == kernels.NOT_PENDING:
            return f"the job must be pending, got job {job} (pending: {self.pending.tolist()})"
        job_name = self.instance.job_names[job]
        if code == kernels.EMPTY_PATH:
            return f"job {job_name}: the path must name a region, got an empty one"
        where = f"job {job_name}: region {path[at]}"
        if code == kernels.UNKNOWN_REGION:
            return f"{where}: must be from 0 to {self.instance.n_regions - 1}"
        region = self.instance.region_names[path[at]]
        if code == kernels.REPEATED_REGION:
            return f"job {job_name}: regions on the path must differ, got {region} twice"
        if code == kernels.NO_GPU:
            return (
                f"job {job_name}: a region on the path gives >= 1 GPU, got {gpus[at]} in {region}"
            )
        if code == kernels.TOO_FEW_FREE:
            free = self.state.free_gpus[path[at]]
            return f"job {job_name}: {region} has {free} GPUs free (Eq. 5), got {gpus[at]}"
        k = sum(gpus)
        if code == kernels.BELOW_K_MIN:
            return f"job {job_name}: needs at least k_min = {self.k_min(job)} GPUs, got {k}"
        if code == kernels.ABOVE_K_MAX:
            return f"job {job_name}: takes at most k_max = {self.k_max(job)} GPUs, got {k}"
        target = self.instance.region_names[path[at + 1]]
        if code == kernels.NO_LINK:
            return f"job {job_name}: there is no link {region} -> {target}"
        free = self.free_bytes_per_s[path[at], path[at + 1]]
        need = self.bandwidth_need(job, k)
        return (
            f"job {job_name}: link {region} -> {target} has {free:.6g} bytes/s free (Eq. 6), "
            f"b_j({k}) = {need:.6g}"
        )


def _checked(placement: Placement) -> tuple[int, IntArray, IntArray]:
    """Job id, path and GPUs as kernels take them."""
    job, path, gpus = placement
    whole_id = isinstance(job, int | np.integer) and not isinstance(job, bool)
    if not whole_id or abs(job) > np.iinfo(np.int64).max:
        raise InvalidPlacementError(f"a placement's job must be a whole id, got {job!r}")
    try:
        arrays = np.array(path, dtype=np.int64), np.array(gpus, dtype=np.int64)
        whole = np.array_equal(arrays[0], path) and np.array_equal(arrays[1], gpus)
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole or arrays[0].ndim != 1 or arrays[0].shape != arrays[1].shape:
        raise InvalidPlacementError(
            f"a placement needs equally many whole region ids and GPU counts, got {placement!r}"
        )
    return int(job), *arrays


class Simulator:
    """One episode on one instance.

    `view` is asked from, `step` is told to; between two steps a job is always pending until `done`.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._state = kernels.allocate_state(instance.n_regions, instance.n_jobs)
        self.view = View(instance, self._state)
        self.reset()

    def reset(self) -> None:
        """Start the episode anew: empty cluster, and time at the first decision."""
        self.decisions: list[Decision] = []
        self.done: bool = kernels.reset(self.instance.arrays, self._state, np.inf) == kernels.DONE

    def step(self, action: Action, decision_ns: int = 0) -> None:
        """Carry out one decision and move to the next one, or to the end.

        Args:
            action: A placement that starts now, WAIT, or a Pause.
            decision_ns: How long the policy took to decide, kept in the trace.

        Raises:
            InvalidPlacementError: The placement (or pause) breaks a rule; nothing was changed.
            DeadlockError: WAIT although nothing lies ahead; nothing was changed.
            PriceEndError: A price is needed after the end of a series with `beyond = "error"`.
        """
        if self.done:
            raise InvalidPlacementError("the episode is over: every job is finished")
        arrays, state = self.instance.arrays, self._state
        now_s = float(state.now_s[0])
        if action is WAIT:
            code = kernels.advance(arrays, state, np.inf)
            if code == kernels.DEADLOCK:
                raise DeadlockError(self._deadlock_report())
            self.decisions.append(Decision(now_s, None, decision_ns))
        elif isinstance(action, Pause):
            code = self._pause(action)
            self.decisions.append(Decision(now_s, None, decision_ns, action.refused))
        else:
            if not isinstance(action, Placement):
                raise InvalidPlacementError(
                    f"a decision must be a Placement or WAIT, got {action!r}"
                )
            job, path, gpus = _checked(action)
            status, at = kernels.check_placement(arrays, state, job, path, gpus)
            if status != kernels.VALID:
                raise InvalidPlacementError(self.view._explain(status, at, action))
            kernels.start_job(arrays, state, job, path, gpus)
            self._require_prices(float(state.finish_s[job]), job)
            self.decisions.append(Decision(now_s, job, decision_ns))
            code = kernels.DECISION
            if state.counts[N_PENDING] == 0:
                code = kernels.advance(arrays, state, np.inf)
        self.done = code == kernels.DONE
        if not self.done:
            self._require_prices(float(state.now_s[0]))

    def _require_prices(self, until_s: float, job: int | None = None) -> None:
        """Refuse to go on where the cost of a started job, or a price to decide by, is unknown."""
        end_s = self.instance.price_end_s
        if until_s <= end_s + kernels.time_tolerance(end_s):
            return
        what = f"job {self.instance.job_names[job]} runs" if job is not None else "jobs wait"
        raise PriceEndError(
            f"prices: known up to {end_s / 3600:.6g} h, but {what} until {until_s / 3600:.6g} h; "
            'give longer series, or set beyond = "hold" or "repeat" in price_usd_per_kwh'
            f"{' and carbon_g_per_kwh' if self.instance.carbon else ''}"
        )

    def _pause(self, pause: Pause) -> int:
        now_s = float(self._state.now_s[0])
        if not now_s < pause.until_s < np.inf:
            raise InvalidPlacementError(
                f"a pause must end later than now ({now_s:.9g} s) and some time, "
                f"got {pause.until_s!r}"
            )
        return kernels.pause(self.instance.arrays, self._state, float(pause.until_s))

    def trace(self, policy: str) -> EpisodeTrace:
        """What has happened so far, copied."""
        return EpisodeTrace.of_state(self.instance, self._state, policy, tuple(self.decisions))

    def _deadlock_report(self) -> str:
        view = self.view
        lines = []
        for job in view.pending[:10]:
            name, free = self.instance.job_names[job], view.free_gpus
            k_min = view.k_min(job)
            reason = f"the policy does not start it, though one region has {free.max()} GPUs free"
            if free.sum() < k_min:
                reason = f"needs {k_min} GPUs, {free.sum()} are free"
            elif free.max() < k_min:
                reason = (
                    f"needs {k_min} GPUs, the freest region has {free.max()} of {free.sum()} free"
                )
            lines.append(f"{name}: {reason}")
        more = view.pending.size - len(lines)
        if more:
            lines.append(f"and {more} more")
        return (
            f"the policy waits at t = {view.now_s:.6g} s with nothing running and nothing to come; "
            + "; ".join(lines)
        )
