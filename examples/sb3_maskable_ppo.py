"""sb3-contrib's MaskablePPO: `python examples/sb3_maskable_ppo.py [STEPS]`."""

import sys

import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.vec_env import VecMonitor

from train.vec_env import BatchVecEnv

if __name__ == "__main__":
    torch.set_num_threads(1)  # many times faster for networks as small as these
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    env = VecMonitor(BatchVecEnv(16, "paper"))
    env.seed(0)
    model = MaskablePPO(
        "MultiInputPolicy", env, n_steps=128, batch_size=512, verbose=1, device="cpu"
    )
    model.learn(steps)
