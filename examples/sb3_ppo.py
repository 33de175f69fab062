"""stable-baselines3's PPO, without masking: `python examples/sb3_ppo.py [STEPS]`.

PPO does not know the mask: a forbidden action counts as WAIT, and the policy has to learn that.
"""

import sys

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

from train.vec_env import BatchVecEnv

if __name__ == "__main__":
    torch.set_num_threads(1)  # many times faster for networks as small as these
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    env = VecMonitor(BatchVecEnv(16, "paper"))
    env.seed(0)
    model = PPO("MultiInputPolicy", env, n_steps=128, batch_size=512, verbose=1, device="cpu")
    model.learn(steps)
