"""REINFORCE with a baseline in one file, as CleanRL writes: `python examples/cleanrl_style.py`."""

import sys

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import bace_env

KEYS = ("globals", "regions", "links", "jobs", "candidates")


class Agent(nn.Module):
    def __init__(self, n_features: int, n_actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_features, 64), nn.Tanh())
        self.actor, self.critic = nn.Linear(64, n_actions), nn.Linear(64, 1)

    def forward(self, features: torch.Tensor, mask: torch.Tensor) -> tuple:
        hidden = self.body(features)
        logits = self.actor(hidden).masked_fill(~mask, -1e9)
        return torch.distributions.Categorical(logits=logits), self.critic(hidden)[:, 0]


def to_tensors(observation: dict) -> tuple[torch.Tensor, torch.Tensor]:
    features = np.concatenate([observation[key] for key in KEYS], axis=1)
    return torch.as_tensor(features), torch.as_tensor(observation["action_mask"] == 1)


def main(updates: int = 100, num_envs: int = 32, num_steps: int = 32, seed: int = 0) -> None:
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    envs = gym.make_vec(bace_env.ENV_ID, num_envs=num_envs, scenario="paper")
    observation, _ = envs.reset(seed=seed)
    n_features = sum(observation[key].shape[1] for key in KEYS)
    agent = Agent(n_features, int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    for update in range(updates):
        log_probs, values, rewards, dones, objectives = [], [], [], [], []
        for _ in range(num_steps):
            policy, value = agent(*to_tensors(observation))
            action = policy.sample()
            observation, reward, terminated, truncated, info = envs.step(action.numpy())
            log_probs.append(policy.log_prob(action))
            values.append(value)
            rewards.append(torch.as_tensor(reward, dtype=torch.float32))
            dones.append(torch.as_tensor(terminated | truncated))
            if "final_info" in info:
                objectives += info["final_info"]["objective"][info["_final_info"]].tolist()
        with torch.no_grad():
            returns = agent(*to_tensors(observation))[1]
        loss = torch.zeros(())
        for t in reversed(range(num_steps)):
            returns = rewards[t] + returns * ~dones[t]
            advantage = returns - values[t]
            loss = loss - (log_probs[t] * advantage.detach()).mean() + advantage.pow(2).mean()
        optimizer.zero_grad()
        (loss / num_steps).backward()
        optimizer.step()
        if update % 10 == 0 and objectives:
            print(f"update {update:4d}  objective {np.mean(objectives):.3f}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
