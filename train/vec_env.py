"""A stable-baselines3 `VecEnv` straight over the batched simulator, without subprocesses."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvStepReturn

from bace_env.candidates import DEFAULT_BUDGETS
from bace_env.episodes import Episodes
from bace_env.errors import ConfigError
from bace_env.schema import Scenario

_Array = np.ndarray[Any, Any]


class RowsVecEnv(VecEnv):
    """What SB3 asks of environments whose episodes are rows of arrays, without an object each."""

    render_mode = None

    @abstractmethod
    def action_masks(self) -> _Array:
        """Which actions are valid, `(num_envs, actions)`."""

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """The attribute of this environment, once per index: all episodes share it."""
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def has_attr(self, attr_name: str) -> bool:
        """Whether this environment has the attribute."""
        return hasattr(self, attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Refused: an episode has no attributes of its own."""
        raise ConfigError(f"set_attr {attr_name!r}: an episode has no attributes of its own")

    def env_method(
        self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any
    ) -> list[Any]:
        """Call a method that has one result per episode, such as `action_masks`."""
        found = getattr(self, method_name)(*args, **kwargs)
        return [found[i] for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        """No episode is wrapped."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[_Array | None]:
        """Batches are not drawn; `GeoPipelineEnv` is."""
        return [None] * self.num_envs


class BatchVecEnv(RowsVecEnv):
    """`num_envs` episodes stepped by one kernel call, with SB3's conventions.

    A finished episode restarts at once; its last observation is in `info["terminal_observation"]`,
    `info["TimeLimit.truncated"]` tells a horizon from an end, and its numbers (`avg_jct_s`,
    `total_cost_usd`, `objective` ...) are in its last `info`. `env_method("action_masks")` serves
    sb3-contrib's MaskablePPO; the mask is also the key `action_mask` of the observation.

    `seed(s)` gives episode i the seed s + i from the next `reset` on; without it seeds are drawn.
    The arguments are those of `bace_env.episodes.Episodes`. SB3's algorithms read an observation
    once more after the step that follows it: what `copy=False` lends is not for them.
    """

    def __init__(
        self,
        num_envs: int,
        scenario: str | Path | Scenario = "paper",
        *,
        overrides: Sequence[str] = (),
        slots: int = 8,
        budgets: Sequence[float] = DEFAULT_BUDGETS,
        cost_weight: float | tuple[float, float] | None = None,
        horizon_s: float | None = None,
        excluded: Collection[int] = (),
        copy: bool = True,
    ) -> None:
        self.episodes = Episodes(
            scenario,
            overrides=overrides,
            batch=num_envs,
            slots=slots,
            budgets=budgets,
            cost_weight=cost_weight,
            horizon_s=horizon_s,
            excluded=excluded,
            copy=copy,
        )
        observation_space, action_space = self.episodes.spaces()
        super().__init__(num_envs, observation_space, action_space)
        self._actions = np.zeros(num_envs, dtype=np.int64)
        self._invalid = np.zeros(num_envs, dtype=np.int64)
        self._seeded = False

    def reset(self) -> dict[str, _Array]:
        """Begin a new episode everywhere."""
        for i, seed in enumerate(self._seeds):
            if seed is not None:
                self.episodes.seed(i, seed)
            elif not self._seeded:
                self.episodes.seed(i, int(np.random.default_rng().integers(2**53)))
        self.episodes.begin(range(self.num_envs))
        self._seeded = True
        self._invalid[:] = 0
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [{} for _ in range(self.num_envs)]
        return self.episodes.observations()

    def step_async(self, actions: _Array) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = np.asarray(actions, dtype=np.int64)

    def step_wait(self) -> VecEnvStepReturn:
        """Carry out the actions."""
        result = self.episodes.step(self._actions)
        self._invalid += result.invalid
        infos: list[dict[str, Any]] = [
            {"TimeLimit.truncated": False, "invalid_action": invalid}
            for invalid in result.invalid.tolist()
        ]
        dones = result.terminated | result.truncated
        ended = np.flatnonzero(dones).tolist()
        for i in ended:
            infos[i] |= self.episodes.final_info(i)
            infos[i]["invalid_actions"] = int(self._invalid[i])
            infos[i]["TimeLimit.truncated"] = bool(result.truncated[i])
            infos[i]["terminal_observation"] = self.episodes.observation(i)
            self._invalid[i] = 0
        if ended:
            self.episodes.begin(ended)
        rewards = result.reward.astype(np.float32)
        return self.episodes.observations(), rewards, dones, infos

    def snapshot(self) -> dict[str, _Array]:
        """Where all episodes stand, as arrays to be stored."""
        return self.episodes.snapshot() | {"invalid": self._invalid.copy()}

    def restore(self, snapshot: Mapping[str, _Array]) -> dict[str, _Array]:
        """Go on from a `snapshot` of an environment with the same arguments."""
        self.episodes.restore(snapshot)
        self._invalid[:] = snapshot["invalid"]
        self._seeded = True
        return self.episodes.observations()

    def action_masks(self) -> _Array:
        """Which actions are valid, `(num_envs, actions)`."""
        return self.episodes.masks()
