"""The network as a policy of stable-baselines3; the mask is a key of the observation."""

from typing import Any

import torch
from stable_baselines3.common.distributions import CategoricalDistribution
from stable_baselines3.common.policies import MultiInputActorCriticPolicy
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import Tensor

from train.network import Network


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
        scores, values = self.network(obs)
        actions = _choose(scores, deterministic)
        chosen = scores.log_softmax(1).gather(1, actions[:, None]).squeeze(1)
        return actions, values[:, None], chosen

    def evaluate_actions(
        self, obs: PyTorchObs, actions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values `(B, 1)`, log-probabilities and entropies `(B,)`."""
        scores, values = self.network(obs)
        log_p = scores.log_softmax(1)
        chosen = log_p.gather(1, actions.long()[:, None]).squeeze(1)
        return values[:, None], chosen, -(log_p.exp() * log_p).sum(1)

    def predict_values(self, obs: PyTorchObs) -> Tensor:
        """Values `(B, 1)`."""
        values: Tensor = self.network(obs)[1]
        return values[:, None]

    def get_distribution(self, obs: PyTorchObs) -> CategoricalDistribution:
        """The distribution of the actions."""
        scores = self.network(obs)[0]
        return CategoricalDistribution(scores.shape[1]).proba_distribution(scores)

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> Tensor:
        return _choose(self.network(observation)[0], deterministic)


def _choose(scores: Tensor, deterministic: bool) -> Tensor:
    """The best action, or one drawn: the largest of the scores with Gumbel noise."""
    if deterministic:
        return scores.argmax(1)
    return (scores - torch.empty_like(scores).exponential_().log()).argmax(1)
