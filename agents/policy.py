"""The Policy protocol, and the registry of the policies that users name."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from bace_env.errors import BaceError, ConfigError
from bace_env.schema import nearest
from bace_env.simulator import Action, View


@runtime_checkable
class Policy(Protocol):
    """A scheduler. `act` is asked again and again until it answers WAIT or nothing is pending."""

    name: str

    def reset(self, seed: int) -> None:
        """A new episode begins; all randomness of the policy follows from `seed`."""

    def act(self, view: View) -> Action:
        """The next decision: a Placement that starts now, or WAIT."""


#: Name -> "module:Class". A class takes no argument, or the text after the colon in NAME:ARG.
REGISTRY: dict[str, str] = {
    "bace": "agents.heuristic:BacePipe",
    "ldf": "agents.heuristic:Ldf",
    "lcf": "agents.heuristic:Lcf",
    "cr-lcf": "agents.heuristic:CrLcf",
    "cr-ldf": "agents.heuristic:CrLdf",
    "bace-no-priority": "agents.heuristic:BaceNoPriority",
    "bace-no-pathfinder": "agents.heuristic:BaceNoPathfinder",
    "bace-no-cost-min": "agents.heuristic:BaceNoCostMin",
    "bace-patient": "agents.heuristic:BacePatient",
    "sjf": "agents.heuristic:Sjf",
    "bace-forecast": "agents.price_aware:BaceForecast",
    "bace-defer": "agents.price_aware:BaceDefer",
    "search": "agents.search:Search",
    "ppo": "agents.ppo:Ppo",
    "random": "agents.random_policy:RandomPolicy",
}


def make_policy(spec: str) -> Policy:
    """The policy that a user names.

    Args:
        spec: `NAME` or `NAME:ARG` of the registry (`bace:partial_fill,patience=0.25`), or
            `module:Class` / `path/to/file.py:Class`, with `:ARG` if need be, for one's own.

    Raises:
        ConfigError: Unknown name (the nearest known one is offered), a module that cannot be
            imported, or an argument that the policy refuses.
    """
    name, _, arg = spec.partition(":")
    target = REGISTRY.get(name)
    if target is None:
        if not ("." in name or "/" in name or "\\" in name):
            raise ConfigError(f"policy: unknown name {name!r}; {nearest(name, list(REGISTRY))}")
        class_name, _, arg = arg.partition(":")
        target = f"{name}:{class_name}"
    made = _load(target)
    try:
        policy = made(arg) if arg else made()
    except Exception as error:  # whatever a user's class raises: they want to read it
        raise ConfigError(f"policy {spec!r}: {_reason(error)}") from error
    if not isinstance(policy, Policy):
        raise ConfigError(f"policy {spec!r}: needs a name, reset(seed) and act(view)")
    return policy


def _load(target: str) -> type:
    module_name, _, class_name = target.partition(":")
    if not class_name:
        raise ConfigError(f"policy {target!r}: must be module:Class or file.py:Class")
    try:
        if module_name.endswith(".py"):
            module = _import_file(Path(module_name))
        else:
            module = importlib.import_module(module_name)
        return cast(type, getattr(module, class_name))
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # a module of the user's may raise anything
        raise ConfigError(f"policy {target!r}: cannot be imported: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """The message; errors that are not about values are named, for the author of the policy."""
    plain = isinstance(error, BaceError | ValueError | TypeError | ImportError | AttributeError)
    return str(error) if plain else f"{type(error).__name__}: {error}"


def _import_file(path: Path) -> object:
    if not path.is_file():
        raise ConfigError(f"policy: no such file {str(path)!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"policy: not a Python file: {str(path)!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
