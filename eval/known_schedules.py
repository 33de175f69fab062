"""The best schedules known: found by search, stored with the package, played back on demand.

`python -m eval.best_known` makes them anew.
"""

import hashlib
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from agents.heuristic import heuristic_options
from agents.replay import Replay, Schedule
from agents.search import PORTFOLIO, Planner, Search
from bace_env.errors import ConfigError
from bace_env.files import write_atomically
from bace_env.instance import Instance
from bace_env.kernels import allocate_state, reset
from bace_env.scenario import Sampler
from bace_env.schema import Scenario
from bace_env.simulator import Placement
from bace_env.trace import EpisodeTrace
from eval.processes import worker_pool
from eval.rollout import run_episode

#: Where the package keeps them, one file per scenario.
FOLDER = Path(__file__).parent / "known"

#: Simulations per job and restart, and restarts, of the search for one workload.
SIMULATIONS_PER_JOB, RESTARTS = 2500, 2
_SEED = 20_000  # of the search's random numbers, beside the workload's


def find_schedule(
    instance: Instance,
    *,
    simulations_per_job: int = SIMULATIONS_PER_JOB,
    restarts: int = RESTARTS,
    start: Schedule | None = None,
) -> Schedule:
    """The best schedule that a search finds, by the objective; the same at every call.

    It begins with what the policy `search` does, so it is never worse than that (nor than the
    heuristics); each restart anneals the best schedule so far, from hot to cold.

    Args:
        instance: The workload.
        simulations_per_job: Simulations per job in each restart.
        restarts: How often annealing begins anew.
        start: A schedule to begin with.
    """
    planner = _planner(instance)
    planner.try_bases()
    if start is not None:
        planner.keep_schedule(start)
    planner.keep_schedule(schedule_of(run_episode(instance, Search())))
    rng = np.random.default_rng([instance.seed, _SEED])
    for _ in range(restarts):
        planner.improve(rng.random((simulations_per_job * instance.n_jobs, 9)))
    return planner.schedule()


def _planner(instance: Instance) -> Planner:
    planner = Planner(instance, tuple(heuristic_options(spec) for spec in PORTFOLIO))
    state = allocate_state(instance.n_regions, instance.n_jobs)
    reset(instance.arrays, state, np.inf)
    planner.begin(state)
    return planner


def schedule_of(trace: EpisodeTrace) -> Schedule:
    """The schedule of a finished episode: its placements in the order of the decisions."""
    started = [d for d in trace.decisions if d.job is not None]
    placements = tuple(
        Placement(job, *trace.placement(job)) for job in (d.job for d in started) if job is not None
    )
    varying = trace.instance.arrays.price_cycle_s > 0
    return Schedule(placements, tuple(d.time_s for d in started) if varying else ())


def play(instance: Instance, schedule: Schedule) -> EpisodeTrace:
    """The episode that a schedule makes.

    Raises:
        DeadlockError: The schedule is not one of this instance.
        InvalidPlacementError: Likewise.
    """
    return run_episode(instance, Replay(schedule, "best-known"))


_DIGESTED = (
    "gpus", "kw_per_gpu", "link_bytes_per_s", "link_latency_s", "price_time_s",
    "price_usd_per_kwh", "price_period_s", "t_comm_form", "comp_s", "intra_s", "act_bytes",
    "micro_batches", "k_min", "k_max", "job_profile", "iterations", "arrival_s",
)  # fmt: skip


def digest(sampler: Sampler) -> str:
    """Sixteen hex digits that name the numbers of a scenario, whatever it is called."""
    instance = sampler.draw(0)
    content = hashlib.sha256(repr(float(instance.cost_weight)).encode())
    for field in _DIGESTED:
        content.update(np.ascontiguousarray(getattr(instance.arrays, field)).tobytes())
    if instance.arrays.egress_usd_per_byte.any():
        content.update(instance.arrays.egress_usd_per_byte.tobytes())
    return content.hexdigest()[:16]


@dataclass(frozen=True)
class Known:
    """The best schedules known of one scenario."""

    title: str
    digest: str
    schedules: dict[int, Schedule]  # by the seed of the episode

    def save(self, folder: Path = FOLDER) -> Path:
        """Write them to the folder, as `DIGEST.npz`; whole or not at all."""
        seeds = list(self.schedules)
        placements = [p for seed in seeds for p in self.schedules[seed].placements]
        times_s = [
            time_s
            for placed, held in self.schedules.values()
            for time_s in held or (0.0,) * len(placed)  # one of each, where others are held back
        ]
        content = {
            "title": np.array(self.title),
            "seed": np.array(seeds, dtype=np.int64),
            "number": np.array([len(self.schedules[s].placements) for s in seeds], dtype=np.int32),
            "job": np.array([p.job for p in placements], dtype=np.int32),
            "length": np.array([len(p.path) for p in placements], dtype=np.int16),
            "path": np.array([r for p in placements for r in p.path], dtype=np.int16),
            "gpus": np.array([g for p in placements for g in p.gpus], dtype=np.int32),
            "not_before_s": np.array(times_s, dtype=np.float64),
        }
        folder.mkdir(parents=True, exist_ok=True)
        file = io.BytesIO()
        np.savez_compressed(file, allow_pickle=False, **content)
        target = folder / f"{self.digest}.npz"
        write_atomically(target, file.getvalue())
        return target

    @classmethod
    def load(cls, scenario: Scenario, folder: Path = FOLDER) -> "Known":
        """What is stored of a scenario; without schedules if nothing is.

        Raises:
            ConfigError: The file is not one that `save` wrote.
        """
        name = digest(Sampler(scenario))
        path = folder / f"{name}.npz"
        if not path.is_file():
            return cls(scenario.name, name, {})
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                data = {key: file[key] for key in file.files}
            return cls(str(data["title"]), name, dict(_read(data)))
        except _CORRUPT as error:
            raise ConfigError(f"{path}: not a file of best known schedules: {error}") from None


# What reading a file that is damaged, or no archive of arrays, raises.
_CORRUPT = (
    OSError, ValueError, TypeError, AttributeError, LookupError, EOFError, RuntimeError,
    BadZipFile, zlib.error,
)  # fmt: skip


def _read(data: dict[str, np.ndarray]) -> Iterator[tuple[int, Schedule]]:
    number, length, times_s = data["number"], data["length"], data["not_before_s"]
    sizes = {key: data[key].size for key in ("job", "length", "not_before_s", "path", "gpus")}
    jobs, regions = int(number.sum()), int(length.sum())
    expected = dict.fromkeys(("job", "length", "not_before_s"), jobs) | {
        "path": regions,
        "gpus": regions,
    }
    if sizes != expected or (number < 0).any() or (length < 1).any():
        raise ValueError(f"lengths must be {expected}, got {sizes}")
    ends = np.cumsum(length)
    first = 0
    for seed, n in zip(data["seed"].tolist(), number.tolist(), strict=True):
        placements = []
        for i in range(first, first + n):
            part = slice(int(ends[i]) - int(length[i]), int(ends[i]))
            path, gpus = data["path"][part].tolist(), data["gpus"][part].tolist()
            placements.append(Placement(int(data["job"][i]), tuple(path), tuple(gpus)))
        held = tuple(times_s[first : first + n].tolist())
        yield seed, Schedule(tuple(placements), held if any(held) else ())
        first += n


def find_many(
    scenario: Scenario,
    seeds: Sequence[int],
    *,
    simulations_per_job: int = SIMULATIONS_PER_JOB,
    restarts: int = RESTARTS,
    start: Known | None = None,
    workers: int = 1,
    on_seed: Callable[[], None] = lambda: None,
) -> dict[int, Schedule]:
    """`find_schedule` of many workloads; the result does not depend on `workers`."""
    known = {} if start is None else start.schedules
    starts = [(seed, known.get(seed)) for seed in seeds]
    size = max(1, len(starts) // (8 * workers)) if workers > 1 else 1
    chunks = [starts[i : i + size] for i in range(0, len(starts), size)]
    search = partial(_find_chunk, Sampler(scenario), simulations_per_job, restarts)
    found = {}
    with worker_pool(workers) as pool:
        run = map if pool is None else pool.map
        for done in run(search, chunks):
            for seed, schedule in done:
                found[seed] = schedule
                on_seed()
    return found


def _find_chunk(
    sampler: Sampler,
    simulations_per_job: int,
    restarts: int,
    starts: Sequence[tuple[int, Schedule | None]],
) -> list[tuple[int, Schedule]]:
    return [
        (
            seed,
            find_schedule(
                sampler.draw(seed),
                simulations_per_job=simulations_per_job,
                restarts=restarts,
                start=start,
            ),
        )
        for seed, start in starts
    ]
