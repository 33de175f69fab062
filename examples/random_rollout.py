"""Play random valid actions for one episode: `python examples/random_rollout.py`."""

import gymnasium as gym
import numpy as np

import bace_env

env = gym.make(bace_env.ENV_ID, scenario="paper")
rng = np.random.default_rng(0)
observation, info = env.reset(seed=0)
episode_return, ended = 0.0, False
while not ended:
    action = rng.choice(np.flatnonzero(observation["action_mask"]))
    observation, reward, terminated, truncated, info = env.step(action)
    episode_return += float(reward)
    ended = terminated or truncated
print(f"return {episode_return:.4f} = -objective {-info['objective']:.4f}")
print(f"average JCT {info['avg_jct_s'] / 3600:.1f} h, cost ${info['total_cost_usd']:.0f}")
