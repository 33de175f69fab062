"""Wrappers around `GeoPipelineEnv` that people need."""

from typing import Any

import gymnasium as gym
import numpy as np

from bace_env.errors import ConfigError

_Observation = dict[str, np.ndarray[Any, Any]]
_Vector = np.ndarray[Any, np.dtype[np.float32]]


class FlatObservation(gym.ObservationWrapper[_Vector, np.int64, _Observation]):
    """One float32 vector, the keys in the order of the environment's docstring, for MLP users.

    The mask stays with `action_masks()`; with `with_mask=True` it is the vector's tail as well.
    """

    def __init__(self, env: gym.Env[_Observation, np.int64], *, with_mask: bool = False) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Dict):
            raise ConfigError(f"FlatObservation: needs the Dict observation, got {space}")
        self._keys: list[str] = [key for key in space if with_mask or key != "action_mask"]
        sizes = [int(np.prod(space[key].shape or ())) for key in self._keys]
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (sum(sizes),), np.float32)

    def observation(self, observation: _Observation) -> _Vector:
        """Join the keys."""
        return np.concatenate([observation[key].astype(np.float32) for key in self._keys])

    def action_masks(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """The environment's; wrappers do not hand methods on by themselves."""
        return np.asarray(self.env.get_wrapper_attr("action_masks")())


class RewardWeights(gym.Wrapper[Any, Any, Any, Any]):
    """Another weighting of the two reward terms, `jct * jct_term + cost * cost_term`.

    `cost_term` already has the scenario's cost weight in it.
    """

    def __init__(self, env: gym.Env[Any, Any], *, jct: float = 1.0, cost: float = 1.0) -> None:
        super().__init__(env)
        if not (np.isfinite(jct) and np.isfinite(cost)):
            raise ConfigError(f"RewardWeights: must be finite, got jct={jct}, cost={cost}")
        self._jct, self._cost = jct, cost

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step with the weighted reward."""
        observation, _, terminated, truncated, info = self.env.step(action)
        reward = self._jct * info["jct_term"] + self._cost * info["cost_term"]
        return observation, float(reward), terminated, truncated, info

    def action_masks(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """The environment's; wrappers do not hand methods on by themselves."""
        return np.asarray(self.env.get_wrapper_attr("action_masks")())
