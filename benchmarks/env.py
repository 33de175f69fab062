"""Environment steps per second with full observation, on one core: `python benchmarks/env.py`.

Random valid actions, episodes restarted as they end. The time in the kernels and in restarting
episodes is measured apart from the time that drawing random actions takes.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SETTINGS = (
    {"batch": 1},
    {"batch": 16},
    {"batch": 256},
    {"batch": 256, "copy": False},
    {"batch": 1024},
    {"batch": 256, "slots": 4},
    {"batch": 256, "slots": 16},
    {"batch": 256, "n_jobs": 24},
    {"batch": 256, "n_jobs": 100},
    {"batch": 256, "regions": 3},
    {"batch": 64, "regions": 20},
)


def measure(
    batch: int,
    slots: int = 8,
    n_jobs: int = 8,
    regions: int = 6,
    copy: bool = True,
    seconds: float = 4.0,
) -> dict[str, float]:
    """Steps per CPU second as a trainer meets them: step, restart, take the observation."""
    from bace_env.config import load_scenario
    from bace_env.episodes import Episodes
    from bace_env.schema import Scenario

    data = load_scenario("paper", [f"workload.n_jobs={n_jobs}"]).model_dump()
    base = data["regions"]
    data["regions"] = [{**base[r % len(base)], "name": f"region-{r}"} for r in range(regions)]
    episodes = Episodes(Scenario.model_validate(data), batch=batch, slots=slots, copy=copy)
    rng = np.random.default_rng(0)
    for i in range(batch):
        episodes.seed(i, i)
    episodes.begin(range(batch))
    steps, ended, stepping, restarting, copying = 0, 0, 0.0, 0.0, 0.0
    warm = 20
    while stepping + restarting + copying < seconds or warm > 0:
        noise = rng.random((batch, episodes.wait + 1), dtype=np.float32)
        actions = (noise * episodes.masks()).argmax(axis=1)
        start = time.process_time()
        result = episodes.step(actions)
        stepped = time.process_time()
        done = np.flatnonzero(result.terminated).tolist()
        if done:
            episodes.begin(done)
        restarted = time.process_time()
        episodes.observations()
        copied = time.process_time()
        warm -= 1
        if warm < 0:
            steps += batch
            ended += len(done)
            stepping += stepped - start
            restarting += restarted - stepped
            copying += copied - restarted
    total = stepping + restarting + copying
    return {
        "steps_per_s": steps / total,
        "step_us": 1e6 * stepping / steps,
        "restart_us": 1e6 * restarting / steps,
        "copy_us": 1e6 * copying / steps,
        "steps_per_episode": steps / max(ended, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(**json.loads(options.measure))))
        return
    print(f"{'setting':38s} {'steps/s':>9s}  us per step: kernels, restarts, copies")
    for setting in SETTINGS:
        found = in_fresh_process(setting)
        label = ", ".join(f"{key} {value}" for key, value in setting.items())
        parts = ", ".join(f"{found[f'{part}_us']:.1f}" for part in ("step", "restart", "copy"))
        print(f"{label:38s} {found['steps_per_s']:9,.0f}  {parts}")


def in_fresh_process(setting: dict[str, Any]) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", json.dumps(setting)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
