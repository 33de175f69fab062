"""Several scenario settings in one `VecEnv`: what one model is to serve.

Settings may differ in how many candidates a job can have: the actions of all are those of the
setting with most, and what the others lack is forbidden.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from bace_env.errors import ConfigError
from bace_env.observation import FEATURES
from train.vec_env import BatchVecEnv, RowsVecEnv

_Array = np.ndarray[Any, Any]


class Setting(NamedTuple):
    """A scenario and what is changed in it."""

    scenario: str
    overrides: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """For people."""
        return ", ".join([self.scenario, *self.overrides])


class MixedVecEnv(RowsVecEnv):
    """The episodes of several settings side by side, `num_envs` of each, in their order.

    Args:
        num_envs: Episodes of each setting.
        settings: All must have as many regions; jobs may differ in number.
        slots: Visible jobs.
        cost_weight: As of `BatchVecEnv`.
        excluded: Seeds of episodes that are never played.

    Raises:
        ConfigError: A setting is wrong, or its observations have another shape.
    """

    def __init__(
        self,
        num_envs: int,
        settings: Sequence[Setting],
        *,
        slots: int = 8,
        cost_weight: float | tuple[float, float] | None = None,
        excluded: Collection[int] = (),
    ) -> None:
        self.parts = [
            BatchVecEnv(
                num_envs,
                setting.scenario,
                overrides=setting.overrides,
                slots=slots,
                cost_weight=cost_weight,
                excluded=excluded,
                copy=False,  # joining copies
            )
            for setting in settings
        ]
        self._each, self._slots = num_envs, slots
        shown = [part.episodes.state(0).free_gpus.size for part in self.parts]
        for setting, n_regions in zip(settings, shown, strict=True):
            if n_regions != shown[0]:
                raise ConfigError(
                    f"settings: must have as many regions each, got {setting.title!r} beside "
                    f"{settings[0].title!r}"
                )
        largest = max(self.parts, key=lambda part: part.episodes.wait)
        self._capacities = [part.episodes.wait // slots for part in self.parts]
        super().__init__(
            num_envs * len(self.parts), largest.observation_space, largest.action_space
        )
        assert isinstance(self.action_space, spaces.Discrete)
        self._capacity = int(self.action_space.n - 1) // slots

    def reset(self) -> dict[str, _Array]:
        """Begin a new episode everywhere."""
        for i, part in enumerate(self.parts):
            part._seeds = self._seeds[i * self._each : (i + 1) * self._each]
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [{} for _ in range(self.num_envs)]
        return self._joined([part.reset() for part in self.parts])

    def step_async(self, actions: _Array) -> None:
        """Keep the actions for `step_wait`."""
        split = np.split(np.asarray(actions), len(self.parts))
        for part, capacity, own in zip(self.parts, self._capacities, split, strict=True):
            part.step_async(change_capacity(own, self._capacity, capacity))

    def step_wait(self) -> VecEnvStepReturn:
        """Carry out the actions."""
        observations, rewards, dones, infos = zip(
            *(part.step_wait() for part in self.parts), strict=True
        )
        ended = [info for of_part in infos for info in of_part if "terminal_observation" in info]
        for info in ended:
            last = {key: array[None] for key, array in info["terminal_observation"].items()}
            padded = pad_candidates(last, self._slots, self._capacity)
            info["terminal_observation"] = {key: array[0] for key, array in padded.items()}
        return (
            self._joined(observations),
            np.concatenate(rewards),
            np.concatenate(dones),
            [info for of_part in infos for info in of_part],
        )

    def _joined(self, parts: Sequence[dict[str, _Array]]) -> dict[str, _Array]:
        padded = [pad_candidates(part, self._slots, self._capacity) for part in parts]
        return {key: np.concatenate([part[key] for part in padded]) for key in padded[0]}

    def snapshot(self) -> list[dict[str, _Array]]:
        """Where all episodes stand, as arrays to be stored."""
        return [part.snapshot() for part in self.parts]

    def restore(self, snapshot: Sequence[Mapping[str, _Array]]) -> dict[str, _Array]:
        """Go on from a `snapshot` of an environment with the same arguments."""
        return self._joined(
            [part.restore(own) for part, own in zip(self.parts, snapshot, strict=True)]
        )

    def action_masks(self) -> _Array:
        """Which actions are valid, `(num_envs, actions)`."""
        masks = [part.action_masks() for part in self.parts]
        return np.concatenate([_pad_mask(mask, self._slots, self._capacity) for mask in masks])


def pad_candidates(
    observation: Mapping[str, _Array], slots: int, capacity: int
) -> dict[str, _Array]:
    """The same observations where every slot has room for more candidates.

    Args:
        observation: `(B, size)` each.
        slots: Q.
        capacity: The new K, not below the present one.
    """
    mask, candidates = observation["action_mask"], observation["candidates"]
    if (mask.shape[1] - 1) // slots == capacity:
        return dict(observation)
    return {
        **observation,
        "candidates": _pad_slots(candidates, slots, capacity * len(FEATURES["candidates"])),
        "action_mask": _pad_mask(mask, slots, capacity),
    }


def _pad_mask(mask: _Array, slots: int, capacity: int) -> _Array:
    return np.hstack([_pad_slots(mask[:, :-1], slots, capacity), mask[:, -1:]])


def _pad_slots(array: _Array, slots: int, size: int) -> _Array:
    """Of `(B, Q * present)`: zeros behind what each slot has, up to `size` numbers."""
    own = array.reshape(len(array), slots, -1)
    room = np.zeros((len(array), slots, size), array.dtype)
    room[:, :, : own.shape[2]] = own
    return room.reshape(len(array), -1)


def change_capacity(actions: _Array, present: int, capacity: int) -> _Array:
    """Action indices where a slot has room for `capacity` candidates, not for `present`.

    One that has no place there becomes -1, which no mask allows.
    """
    slot, candidate = np.divmod(actions, present)
    fits = (slot >= 0) & (candidate < capacity)
    return np.where(fits, slot * capacity + candidate, -1)
