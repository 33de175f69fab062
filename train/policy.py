"""The network as a policy of stable-baselines3; the mask is a key of the observation."""

from typing import Any

import torch
from stable_baselines3.common.distributions import CategoricalDistribution
from stable_baselines3.common.policies import MultiInputActorCriticPolicy
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import Tensor

from train.network import Network
from train.packed_layers import best_actions, log_probability
from train.packing import Packed, pack


class PointerPolicy(MultiInputActorCriticPolicy):
    """Actor and critic over `train.network.Network`; forbidden actions are never drawn.

    As the mask comes with the observation, `predict` and SB3's `evaluate_policy` obey it unasked.
    """

    def __init__(self, *args: Any, width: int = 64, **kwargs: Any) -> None:
        self._width = width
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Schedule) -> None:
        self.network = Network(self._width)
        self.optimizer = self.optimizer_class(
            self.network.parameters(),
            lr=lr_schedule(1),  # type: ignore[call-arg]
            **self.optimizer_kwargs,
        )

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "width": self._width}

    def forward(
        self, obs: PyTorchObs, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Actions `(B,)`, values `(B, 1)` and log-probabilities `(B,)`."""
        packed = _packed(obs)
        scores, wait_scores, values = self.network(packed)
        actions = _choose(scores, wait_scores, packed, deterministic)
        chosen, _ = log_probability(scores, wait_scores, packed, actions)
        return actions, values[:, None], chosen

    def evaluate_actions(
        self, obs: PyTorchObs, actions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values `(B, 1)`, log-probabilities and entropies `(B,)`."""
        packed = _packed(obs)
        scores, wait_scores, values = self.network(packed)
        chosen, entropy = log_probability(scores, wait_scores, packed, actions.long())
        return values[:, None], chosen, entropy

    def predict_values(self, obs: PyTorchObs) -> Tensor:
        """Values `(B, 1)`."""
        values: Tensor = self.network(_packed(obs))[2]
        return values[:, None]

    def get_distribution(self, obs: PyTorchObs) -> CategoricalDistribution:
        """The distribution of the actions."""
        assert isinstance(obs, dict)
        scores = self.network.padded(obs)[0]
        return CategoricalDistribution(scores.shape[1]).proba_distribution(scores)

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> Tensor:
        packed = _packed(observation)
        scores, wait_scores, _ = self.network(packed)
        return _choose(scores, wait_scores, packed, deterministic)


def _packed(observation: PyTorchObs) -> Packed:
    """From padded arrays, or as the minibatches of `train.buffer` have it."""
    assert isinstance(observation, dict)
    fields: dict[str, Any] = observation
    if "first_job" in fields:
        return Packed(**fields)
    # As SB3's own policies take float64, too.
    return pack({k: v.float() if v.is_floating_point() else v for k, v in fields.items()})


def _choose(scores: Tensor, wait_scores: Tensor, packed: Packed, deterministic: bool) -> Tensor:
    """The best action, or one drawn: the largest of the scores with Gumbel noise."""
    if not deterministic:
        scores, wait_scores = (
            each - torch.empty_like(each).exponential_().log() for each in (scores, wait_scores)
        )
    return best_actions(scores, wait_scores, packed)
