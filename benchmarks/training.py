"""Training steps per second, and where the time goes: `python benchmarks/training.py`.

A few rounds of the default configuration without warm start: environments, inference in the
rollout, the rest of the rollout (SB3's buffers), and the update. Then one decision of the model of
the package through onnxruntime.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


class Clock:
    """Seconds of wall and CPU time spent in a function."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.wall_s = self.cpu_s = 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            return self._function(*args, **kwargs)
        finally:
            self.wall_s += time.perf_counter() - wall
            self.cpu_s += time.process_time() - cpu

    def clear(self) -> None:
        self.wall_s = self.cpu_s = 0.0


def measure_training(rounds: int) -> dict[str, float]:
    """Steps per second and the shares of the CPU time."""
    import torch

    from train.config import TrainConfig
    from train.learner import make_env, make_model

    torch.set_num_threads(1)
    config = TrainConfig()
    env = make_env(config)
    model: Any = make_model(config, env)
    env.step_wait = Clock(env.step_wait)  # type: ignore[method-assign]
    model.policy.forward = Clock(model.policy.forward)
    model.train = Clock(model.train)
    model.collect_rollouts = Clock(model.collect_rollouts)
    clocks = (env.step_wait, model.policy.forward, model.collect_rollouts, model.train)
    per_round = config.envs * config.rollout_steps
    model.learn(per_round)  # compiles, and allocates
    for clock in clocks:
        clock.clear()
    wall, cpu = time.perf_counter(), time.process_time()
    model.learn(rounds * per_round, reset_num_timesteps=False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    environment, inference, rollout, update = (clock.cpu_s for clock in clocks)
    steps = rounds * per_round
    return {
        "steps": steps,
        "steps_per_s": steps / wall,
        "steps_per_cpu_s": steps / cpu,
        "environment": environment / cpu,
        "inference": inference / cpu,
        "buffers": (rollout - environment - inference) / cpu,
        "update": update / cpu,
    }


def measure_decisions(episodes: int) -> dict[str, float]:
    """Microseconds of one decision in `paper` at 8 slots."""
    from agents.policy import make_policy
    from bace_env.config import load_scenario
    from bace_env.scenario import Sampler, episode_seed
    from eval.rollout import run_episode

    sampler, policy = Sampler(load_scenario("paper")), make_policy("ppo")
    run_episode(sampler.draw(0), policy)
    times = [
        decision.decision_ns / 1000.0
        for k in range(episodes)
        for decision in run_episode(sampler.draw(episode_seed(0, k)), policy).decisions
    ]
    return {"p50_us": float(np.median(times)), "p99_us": float(np.percentile(times, 99))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4, help="rollouts and updates to measure")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    args = parser.parse_args()
    found = {"training": measure_training(args.rounds), "decision": measure_decisions(50)}
    if args.json:
        print(json.dumps(found, indent=1))
        return
    training, decision = found["training"], found["decision"]
    print(
        f"training: {training['steps_per_s']:.0f} steps per second, "
        f"{training['steps_per_cpu_s']:.0f} per CPU second"
    )
    parts = ("environment", "inference", "buffers", "update")
    print(
        "  of the CPU time: " + ", ".join(f"{part} {100 * training[part]:.0f} %" for part in parts)
    )
    print(f"one decision: {decision['p50_us']:.0f} us p50, {decision['p99_us']:.0f} us p99")


if __name__ == "__main__":
    main()
