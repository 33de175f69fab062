"""What a training run is made of."""

import tomllib
from pathlib import Path
from typing import Annotated, Self

import pydantic
from pydantic import BaseModel, ConfigDict, Field, model_validator

from bace_env.errors import ConfigError
from eval.claims import SETTINGS
from train.mixture import Setting

#: What one model is to serve: the paper's settings and the physical one, with what may change.
MIXTURE: tuple[Setting, ...] = (
    *(Setting("paper", overrides) for overrides in SETTINGS.values()),
    Setting(
        "paper",
        ("workload.n_jobs=16", "workload.arrivals=poisson", "workload.mean_interarrival_h=12"),
    ),
    Setting("physical"),
    Setting("physical"),  # twice: the one that differs most
    Setting("physical", ("scale.gpus=0.75",)),
    Setting("physical", ("workload.n_jobs=16",)),
)

_Positive = Annotated[int, Field(ge=1)]
_Share = Annotated[float, Field(gt=0, le=1)]


class TrainConfig(BaseModel):
    """A run's settings; a TOML file with these fields is what `--config` takes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    settings: tuple[Setting, ...] = MIXTURE  # scenario and overrides
    envs_per_setting: _Positive = 6
    slots: _Positive = 8
    cost_weight: tuple[float, float] = (0.0, 2.0)  # lambda is drawn per episode, see `Sampler`
    width: Annotated[int, Field(ge=8, multiple_of=4)] = 64
    total_steps: _Positive = 3_000_000
    rollout_steps: _Positive = 48  # per environment
    batch_size: Annotated[int, Field(ge=2)] = 512  # at most: a rollout is split evenly
    epochs: _Positive = 3
    learning_rate: Annotated[float, Field(gt=0)] = 1.5e-3
    last_learning_rate: Annotated[float, Field(ge=0)] = 5e-5
    entropy: Annotated[float, Field(ge=0)] = 0.01  # weight of the entropy, falling to the last
    last_entropy: Annotated[float, Field(ge=0)] = 0.0005
    discount: _Share = 1.0
    gae_lambda: _Share = 1.0
    clip: _Share = 0.2
    target_kl: Annotated[float, Field(gt=0)] = 0.03
    value_weight: Annotated[float, Field(ge=0)] = 0.5
    demonstrations: Annotated[int, Field(ge=0)] = 0  # episodes per setting for a warm start
    simulations: _Positive = 300  # of the teacher, per job
    cloning_epochs: _Positive = 12
    evaluate_every: _Positive = 100_000  # steps
    checkpoint_every: _Positive = 20_000  # steps
    evaluation_episodes: Annotated[int, Field(ge=1, le=1000)] = 40  # per setting
    evaluation_cost_weights: tuple[Annotated[float, Field(ge=0)], ...] = (0.05, 0.3, 1.0)
    evaluation_settings: tuple[Setting, ...] = (
        Setting("paper"),
        Setting("physical"),
        Setting("paper", ("workload.n_jobs=16",)),
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        low, high = self.cost_weight
        if not 0 <= low <= high < float("inf"):
            raise ValueError(f"cost_weight: must be 0 <= low <= high, got {self.cost_weight}")
        if not (self.settings and self.evaluation_settings and self.evaluation_cost_weights):
            raise ValueError(
                "settings, evaluation_settings and evaluation_cost_weights: at least one each"
            )
        if self.rollout_steps * self.envs < 2:
            raise ValueError("rollout_steps * envs_per_setting * settings: must be >= 2, got 1")
        return self

    @property
    def envs(self) -> int:
        """Episodes side by side."""
        return self.envs_per_setting * len(self.settings)


def make_config(fields: dict[str, object]) -> TrainConfig:
    """Checked settings.

    Raises:
        ConfigError: Naming the field, the rule and the value.
    """
    try:
        return TrainConfig.model_validate(fields)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        got = "" if first["type"] == "value_error" else f", got {first['input']!r}"
        text = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{where}: {text}{got}" if where else text) from None


def read_config(path: Path) -> dict[str, object]:
    """The fields of a TOML file.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {path}: cannot read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--config {path}: not TOML: {error}") from None
