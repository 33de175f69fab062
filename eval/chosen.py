"""The episodes that a user asks for: of a saved run, or run here and now."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from agents.policy import make_policy
from bace_env.config import load_scenario
from bace_env.errors import ConfigError
from bace_env.scenario import build_instance
from bace_env.simulator import Simulator
from bace_env.trace import EpisodeTrace
from eval.rollout import run_episode
from eval.saved import SavedRun, open_trace


@dataclass(frozen=True)
class Episode:
    """An episode and what `make_policy` makes its policy of."""

    trace: EpisodeTrace
    spec: str


def refuse_with_source(scenario: str | None, overrides: Sequence[str]) -> None:
    """A saved run has its scenario: refuse another one."""
    if scenario is not None or overrides:
        raise ConfigError("--scenario and --set: cannot be given with RUN|TRACE, which has its own")


def run_here(
    scenario: str, overrides: Sequence[str], seed: int, policies: Sequence[str | None]
) -> list[Episode]:
    """Run the policies that are named on the workload of the seed.

    Raises:
        ConfigError: A name, the scenario, or two equal policies.
    """
    specs = [spec for spec in policies if spec is not None]
    made = [make_policy(spec) for spec in specs]
    if len({policy.name for policy in made}) < len(made):
        raise ConfigError(f"--against: must differ from --policy, got {specs[1]!r} twice")
    instance = build_instance(load_scenario(scenario, overrides), seed)
    console = Console(stderr=True)
    episodes = []
    for spec, policy in zip(specs, made, strict=True):
        with console.status(f"running {policy.name} (compiles once)"):
            policy.reset(seed)
            policy.act(Simulator(instance).view)  # compiles here, not in a decision that is timed
            episodes.append(Episode(run_episode(instance, policy), spec))
    return episodes


def load_saved(
    source: Path, policy: str | None, against: str | None, seed: int | None
) -> list[Episode]:
    """The episodes of a run folder or trace that are asked for.

    Raises:
        ConfigError: There are none such, or the files are not what `eval.compare --out` wrote.
    """
    if source.is_dir():
        run = SavedRun(source)
        name = run.policy_name(policy) if policy is not None else run.names[0]
        number = run.seeds[0] if seed is None else seed
    else:
        run, name, number = open_trace(source)
        if policy is not None and run.policy_name(policy) != name:
            raise ConfigError(f"--policy {policy}: {source} is a trace of {name}")
        if seed not in (None, number):
            raise ConfigError(f"--seed {seed}: {source} is a trace of seed {number}")
    names = [name]
    if against is not None:
        names.append(run.policy_name(against))
        if names[1] == name:
            raise ConfigError(f"--against: must differ from --policy, got {name!r} twice")
    with Console(stderr=True).status("reading and checking the run"):
        return [Episode(run.load(one, number), run.specs[one]) for one in names]
