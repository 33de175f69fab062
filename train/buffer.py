"""SB3's rollout buffer without the padding of the candidates: nine tenths of an observation."""

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import DictRolloutBuffer
from stable_baselines3.common.type_aliases import DictRolloutBufferSamples
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

from train.packing import PackedCandidates, choose_rows, concatenate, join, pack_candidates

_PACKED = ("candidates", "action_mask")


class PackedRolloutBuffer(DictRolloutBuffer):
    """The observations of its minibatches are `train.packing.Packed`, as mappings."""

    def reset(self) -> None:
        """Forget the last rollout."""
        self.obs_shape = {k: v for k, v in self.obs_shape.items() if k not in _PACKED}
        self._steps: list[PackedCandidates] = []
        self._candidates: PackedCandidates | None = None
        super().reset()

    def add(  # type: ignore[override]
        self, obs: dict[str, np.ndarray[Any, Any]], action: np.ndarray[Any, Any],
        reward: np.ndarray[Any, Any], episode_start: np.ndarray[Any, Any], value: Tensor,
        log_prob: Tensor,
    ) -> None:  # fmt: skip
        """Keep one step of all environments."""
        self._steps.append(pack_candidates(obs["action_mask"], obs["candidates"]))
        super().add(obs, action, reward, episode_start, value, log_prob)

    @property
    def candidates(self) -> PackedCandidates:
        """Of all observations, step by step."""
        if self._candidates is None:
            self._candidates = concatenate(self._steps)
        return self._candidates

    def _get_samples(  # type: ignore[override]
        self, batch_inds: np.ndarray[Any, Any], env: VecNormalize | None = None
    ) -> DictRolloutBufferSamples:
        samples = super()._get_samples(batch_inds, env)
        # SB3 puts the steps of an environment one after the other.
        environment, step = np.divmod(batch_inds, self.buffer_size)
        chosen = choose_rows(self.candidates, step * self.n_envs + environment)
        assert isinstance(self.action_space, spaces.Discrete)
        packed = join(samples.observations, chosen, int(self.action_space.n) - 1)
        return samples._replace(observations=packed._asdict())
