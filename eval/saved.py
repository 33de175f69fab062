"""Reading back what `eval.compare --out` has written, with nothing taken on trust.

An episode is rebuilt from the scenario and the seed and played again by the recorded decisions; the
numbers of the file must come out.
"""

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from bace_env.config import load_scenario
from bace_env.errors import BaceError, ConfigError
from bace_env.instance import Instance
from bace_env.scenario import build_instance
from bace_env.schema import Scenario, nearest
from bace_env.simulator import WAIT, Action, Placement, Simulator
from bace_env.trace import EpisodeTrace
from eval.replay import carried_out
from eval.report import folder_name

_RELATIVE = 1e-9  # another machine may sum floats in another order
_NUMBERS = ("start_s", "finish_s", "iteration_s", "bytes_per_s", "energy_kwh", "cost_usd")


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class _Job(_File):
    job: int
    name: str
    start_s: float | None
    finish_s: float | None
    path: list[str]
    gpus: list[int]
    iteration_s: float
    bytes_per_s: float
    energy_kwh: float
    cost_usd: float


class _Decision(_File):
    time_s: float
    job: int | None
    decision_us: float = 0.0


class _Trace(_File):
    scenario: str
    seed: int
    policy: str
    jobs: list[_Job]
    decisions: list[_Decision]


class _Run(_File):
    policies: list[str]
    seeds: list[int]


class _Summary(_File):
    policies: dict[str, Any]


_Model = TypeVar("_Model", bound=_File)


class SavedRun:
    """A folder of `eval.compare --out`.

    Attributes:
        folder: Where it lies.
        names: Names of its policies, the reference first.
        specs: What each of them was called with, for `make_policy`.
        seeds: Seeds of its episodes.
    """

    def __init__(self, folder: Path) -> None:
        """Open it.

        Raises:
            ConfigError: It is no such folder.
        """
        if not (folder / "run.json").is_file():
            raise ConfigError(f"{folder}: is no run of eval.compare --out (it has no run.json)")
        run = _read(folder / "run.json", _Run)
        self.folder = folder
        self.names = tuple(_read(folder / "summary.json", _Summary).policies)
        if len(self.names) != len(run.policies) or not self.names or not run.seeds:
            raise ConfigError(f"{folder}: run.json and summary.json name different policies")
        self.specs = dict(zip(self.names, run.policies, strict=True))
        self.seeds = tuple(run.seeds)

    def policy_name(self, text: str) -> str:
        """Name of the policy that a user names by its name or spec.

        Raises:
            ConfigError: The run has none of that name.
        """
        for name, spec in self.specs.items():
            if text in (name, spec):
                return name
        raise ConfigError(f"{self.folder}: has no policy {text!r}; {nearest(text, self.names)}")

    def scenario(self) -> Scenario:
        """The scenario of the run."""
        return load_scenario(self.folder / "scenario.json")

    def load(self, policy: str, seed: int) -> EpisodeTrace:
        """One episode of a policy of `names`.

        Raises:
            ConfigError: There is no such episode, or its file contradicts the scenario.
        """
        if seed not in self.seeds:
            shown = ", ".join(map(str, self.seeds[:5])) + (" ..." if len(self.seeds) > 5 else "")
            raise ConfigError(f"{self.folder}: has no seed {seed}; it has {shown}")
        file = self.folder / "traces" / folder_name(policy) / f"{seed}.json"
        stored = _read(file, _Trace)
        if (stored.policy, stored.seed) != (policy, seed):
            raise ConfigError(
                f"{file}: must be of policy {policy}, seed {seed}, "
                f"got {stored.policy}, seed {stored.seed}"
            )
        return _play(file, stored, build_instance(self.scenario(), seed))


def open_trace(file: Path) -> tuple[SavedRun, str, int]:
    """The run that a trace file belongs to, with its policy and seed.

    Raises:
        ConfigError: It is no trace, or lies in no run.
    """
    stored = _read(file, _Trace)
    folder = file.absolute().parent.parent.parent
    if file.absolute().parent.parent.name != "traces" or not (folder / "run.json").is_file():
        raise ConfigError(
            f"{file}: must lie in its run, as RUN/traces/POLICY/SEED.json: the scenario is there"
        )
    run = SavedRun(folder)
    return run, run.policy_name(stored.policy), stored.seed


def _read(file: Path, model: type[_Model]) -> _Model:
    try:
        return model.model_validate_json(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file}: cannot read: {error.strerror or error}") from None
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        what = f"{where}: {problem['msg']}" if where else problem["msg"]
        raise ConfigError(f"{file}: is not what eval.compare --out writes: {what[:200]}") from None


def _play(file: Path, stored: _Trace, instance: Instance) -> EpisodeTrace:
    """Carry out the decisions of the file and compare what comes of them."""
    if (stored.scenario, [job.name for job in stored.jobs]) != (
        instance.scenario,
        list(instance.job_names),
    ):
        raise ConfigError(f"{file}: its jobs are not those of scenario.json with this seed")
    regions = {name: r for r, name in enumerate(instance.region_names)}
    simulator = Simulator(instance)
    times_s = [decision.time_s for decision in stored.decisions]
    for k, decision in enumerate(stored.decisions):
        action = _action(file, stored, decision, regions)
        try:
            simulator.step(carried_out(action, times_s, k), round(decision.decision_us * 1000.0))
        except BaceError as error:
            raise ConfigError(f"{file}: decision {k} cannot be carried out: {error}") from None
    if not simulator.done:
        raise ConfigError(f"{file}: its decisions end before all jobs are finished")
    trace = simulator.trace(stored.policy)
    for field in _NUMBERS:
        found = np.array([getattr(job, field) for job in stored.jobs], dtype=float)
        derived = getattr(trace, field)
        wrong = np.flatnonzero(~np.isclose(found, derived, rtol=_RELATIVE, atol=1e-9))
        if wrong.size:
            j = int(wrong[0])
            raise ConfigError(
                f"{file}: jobs.{j}.{field}: must be {derived[j]:.9g} by scenario.json and the "
                f"decisions, got {found[j]:.9g}"
            )
    return trace


def _action(file: Path, stored: _Trace, decision: _Decision, regions: dict[str, int]) -> Action:
    if decision.job is None:
        return WAIT
    if not 0 <= decision.job < len(stored.jobs):
        raise ConfigError(f"{file}: decisions: there is no job {decision.job}")
    job = stored.jobs[decision.job]
    unknown = [name for name in job.path if name not in regions]
    if unknown:
        raise ConfigError(f"{file}: jobs.{decision.job}.path: unknown region {unknown[0]!r}")
    return Placement(decision.job, tuple(regions[name] for name in job.path), tuple(job.gpus))
