"""`ppo`: the learned scheduler, run by onnxruntime.

A model file holds weights and the names of what it was trained on; nothing in it is executed but
the operators of ONNX.
"""

import json
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agents.explanation import Column, Explanation, Fact, Table
from agents.settings import read_number
from bace_env.batch import Batch
from bace_env.errors import ConfigError
from bace_env.instance import Instance
from bace_env.observation import FEATURES, Observation, features_fingerprint
from bace_env.simulator import WAIT, Action, Placement, View

FORMAT = 1  # of model files
METADATA = "bace"  # key of the `Header` among a file's properties
MODEL = "model.onnx"  # its name in a run directory
_LARGEST_BYTES = 50_000_000
_TOP = 10  # candidates that an explanation shows
_Array = np.ndarray[Any, Any]


class Header(NamedTuple):
    """What a model file says of itself."""

    format: int
    features: str  # `features_fingerprint` of its training
    slots: int
    budgets: tuple[float, ...]
    about: dict[str, Any]


class Choice(NamedTuple):
    """One decision of the network."""

    action: int
    actions: _Array  # (n + 1,) the valid action indices, WAIT last
    scores: _Array  # (n + 1,) -inf where WAIT is forbidden
    value: float


class Settings(NamedTuple):
    """What follows `ppo:`."""

    path: Path | None = None  # None: the model of the package
    cost_weight: float | None = None  # lambda; None: the scenario's


def parse_settings(arg: str) -> Settings:
    """Read `PATH` and `lambda=X`, separated by commas; both may be left out.

    Raises:
        ValueError: Unknown setting or value.
    """
    found = Settings()
    for item in filter(None, arg.split(",")):
        key, equals, text = item.partition("=")
        if key == "lambda" and equals:
            found = found._replace(cost_weight=read_number(key, text))
        elif found.path is None:
            found = found._replace(path=Path(item))
        else:
            raise ValueError(f"unknown setting {item!r}; known: a model file or run, lambda=X")
    return found


class Model:
    """A model file that has been checked.

    Raises:
        ConfigError: It cannot be read, or was made for other features or by another version.
    """

    def __init__(self, path: Path | None = None) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise ConfigError(
                "needs the package onnxruntime: pip install 'bace-env[ppo]'"
            ) from None
        content, self.name = _read(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what is wrong is raised, and said once
        try:
            self._session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's own classes share no base
            reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise ConfigError(f"{self.name}: not a model file: {reason}") from None
        self.header = _header(self.name, self._session.get_modelmeta().custom_metadata_map)
        inputs = [item.name for item in self._session.get_inputs()]
        if inputs != ["globals", "regions", "links", "jobs", "candidates", "job_of"]:
            raise ConfigError(f"{self.name}: not a model of ours: its inputs are {inputs}")

    def choose(self, observation: Observation) -> Choice:
        """The best action of one observation, without an axis for the batch."""
        mask = observation.action_mask
        actions = np.flatnonzero(mask[:-1])
        jobs = _rows(observation.jobs, "jobs")
        capacity = (mask.size - 1) // len(jobs)
        present = jobs[:, 0] > 0
        regions, links = _rows(observation.regions, "regions"), _rows(observation.links, "links")
        scores, value = self._session.run(
            None,
            {
                "globals": observation.globals,
                "regions": regions[regions[:, 0] > 0],
                "links": links[links[:, 0] > 0],
                "jobs": jobs[present],
                "candidates": _rows(observation.candidates, "candidates")[actions],
                "job_of": (np.cumsum(present) - 1)[actions // capacity],
            },
        )
        if not np.isfinite(scores).all():
            raise ConfigError(f"{self.name}: its scores are not finite")
        if mask[-1] == 0:
            scores[-1] = -np.inf
        actions = np.append(actions, mask.size - 1)
        return Choice(int(actions[scores.argmax()]), actions, scores, float(value))


def _rows(flat: _Array, key: str) -> _Array:
    return flat.reshape(-1, len(FEATURES[key]))


def _read(path: Path | None) -> tuple[bytes, str]:
    if path is None:
        file = resources.files("agents") / "models" / "default.onnx"
        return file.read_bytes(), "the model of the package"
    name = str(path)
    if path.is_dir():
        path = path / MODEL
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise ConfigError(f"{path}: larger than any model file ({_LARGEST_BYTES} bytes)")
        return path.read_bytes(), name
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: cannot read the model: {reason}") from None


def _header(name: str, properties: dict[str, str]) -> Header:
    try:
        header = Header(**json.loads(properties[METADATA]))
        slots, budgets = int(header.slots), tuple(float(share) for share in header.budgets)
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{name}: not a model of ours: it lacks our header") from None
    if header.format != FORMAT:
        raise ConfigError(
            f"{name}: made by another version: its format must be {FORMAT}, got {header.format}"
        )
    if header.features != features_fingerprint():
        raise ConfigError(
            f"{name}: trained on other features: must be {features_fingerprint()}, got "
            f"{header.features}; train it anew"
        )
    if not (1 <= slots <= 10_000 and budgets and all(0 < share <= 1 for share in budgets)):
        raise ConfigError(f"{name}: slots or budgets out of range: {slots}, {budgets}")
    return header._replace(slots=slots, budgets=budgets)


class Ppo:
    """Does at every decision what the network scores highest.

    It sees what the environment shows (`bace_env.observation`), worked out by the same kernels.
    """

    name = "ppo"

    def __init__(self, arg: str = "") -> None:
        settings = parse_settings(arg)
        if arg:
            self.name = f"ppo:{arg}"
        self._cost_weight = settings.cost_weight
        self._model = Model(settings.path)
        self._instance: Instance | None = None
        self._batch: Batch | None = None

    def reset(self, seed: int) -> None:
        """Nothing is random, and nothing is kept but what the instance alone determines."""

    def act(self, view: View) -> Action:
        """The best action by the network."""
        batch, choice = self._choose(view)
        return _action(batch, choice.action)

    def _choose(self, view: View) -> tuple[Batch, Choice]:
        batch = self._batch_of(view)
        return batch, self._model.choose(batch.show(0, view.state))

    def _batch_of(self, view: View) -> Batch:
        instance = view.instance
        if self._batch is not None and instance is self._instance:
            return self._batch
        known, batch = self._instance, self._batch
        if batch is None or known is None or known.arrays.comp_s is not instance.arrays.comp_s:
            header = self._model.header
            batch = Batch(instance, 1, header.slots, header.budgets)
        weight = instance.cost_weight if self._cost_weight is None else self._cost_weight
        batch.load(0, instance.arrays, weight)
        batch.restart(np.array([0]))
        self._instance, self._batch = instance, batch
        return batch

    def explain(self, view: View) -> Explanation:
        """The probabilities of the best actions, and what the network expects."""
        batch, choice = self._choose(view)
        weights = np.exp(choice.scores - choice.scores.max())
        shares = weights / weights.sum()
        rows = []
        for i in np.argsort(-shares, kind="stable")[:_TOP].tolist():
            action = _action(batch, int(choice.actions[i]))
            job, where, run_h = "wait", None, None
            if isinstance(action, Placement):
                job = view.instance.job_names[action.job]
                where = view.instance.where(action.path, action.gpus)
                run_h = view.execution_s(*action) / 3600.0
            rows.append((job, where, run_h, 100.0 * float(shares[i])))
        action, best = _action(batch, choice.action), 100.0 * float(shares.max())
        what = "Wait"
        if isinstance(action, Placement):
            where = view.instance.where(action.path, action.gpus)
            what = f"{view.instance.job_names[action.job]} starts on {where}"
        sentence = f"{what}: the network gives it {best:.0f} %."
        facts = (
            Fact("time", view.now_s / 3600.0, "h"),
            Fact("valid actions", int(np.isfinite(choice.scores).sum())),
            Fact("what is still to come of the objective, by the network", -choice.value),
        )
        columns = (
            Column("job"), Column("where"), Column("runs", "h"), Column("probability", "%"),
        )  # fmt: skip
        table = Table("What the network would do", columns, tuple(rows))
        return Explanation(action, sentence, facts, (table,))


def _action(batch: Batch, index: int) -> Action:
    found = batch.placement(0, index)
    return WAIT if found is None else Placement(*found)
