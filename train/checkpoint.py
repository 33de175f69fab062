"""A training run's state in one file: tensors and plain data, read without unpickling objects."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO

from bace_env.errors import ConfigError
from bace_env.files import write_atomically
from train.mixture import MixedVecEnv

CHECKPOINT = "checkpoint.pt"  # its name in a run directory
_FORMAT = 1


def save_checkpoint(path: Path, model: PPO, own: Mapping[str, Any]) -> None:
    """Write all that the next steps depend on, whole or not at all.

    Args:
        path: Where to.
        model: Between two rollouts.
        own: More tensors and plain data to keep.
    """
    env = model.get_env()
    # SB3 draws from NumPy's global generator.
    numpy_state = np.random.get_state(legacy=True)  # noqa: NPY002
    assert isinstance(env, MixedVecEnv) and isinstance(numpy_state, tuple)
    content = {
        "format": _FORMAT,
        "policy": model.policy.state_dict(),
        "optimizer": model.policy.optimizer.state_dict(),
        "steps": model.num_timesteps,
        "updates": model._n_updates,
        "torch_random": torch.get_rng_state(),
        "numpy_random": [
            torch.from_numpy(numpy_state[1].astype(np.int64)), *map(float, numpy_state[2:]),
        ],
        "episode_starts": torch.from_numpy(np.asarray(model._last_episode_starts)),
        "env": [
            {name: torch.from_numpy(array) for name, array in part.items()}
            for part in env.snapshot()
        ],
        "own": dict(own),
    }  # fmt: skip
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(path, buffer.getvalue())


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What `save_checkpoint` wrote.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        content: dict[str, Any] = torch.load(path, weights_only=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read: {error.strerror}") from None
    except Exception as error:  # torch raises all kinds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"{path}: not a checkpoint: {reason}") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ConfigError(f"{path}: not a checkpoint of this version")
    return content


def restore_checkpoint(content: Mapping[str, Any], model: PPO) -> None:
    """Put a fresh model of the same settings where the checkpoint was.

    Raises:
        ConfigError: It is of another network or of other settings.
    """
    env = model.get_env()
    assert isinstance(env, MixedVecEnv)
    try:
        model.policy.load_state_dict(content["policy"])
        model.policy.optimizer.load_state_dict(content["optimizer"])
        model.num_timesteps = content["steps"]
        model._n_updates = content["updates"]
        model._last_obs = env.restore(
            [{name: tensor.numpy() for name, tensor in part.items()} for part in content["env"]]
        )
        model._last_episode_starts = content["episode_starts"].numpy()
        restore_random(content)
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"{CHECKPOINT}: of another network or other settings than the run's: {reason}"
        ) from None


def restore_random(content: Mapping[str, Any]) -> None:
    """Go on with the random numbers of the checkpoint."""
    torch.set_rng_state(content["torch_random"])
    keys, position, has_gauss, gauss = content["numpy_random"]
    np.random.set_state(  # noqa: NPY002
        ("MT19937", keys.numpy().astype(np.uint32), int(position), int(has_gauss), gauss)
    )
