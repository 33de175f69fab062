"""How fast the simulator and its policies are, and how they grow: `make bench`.

Prints a table and, with `--plot FILE`, draws the growth of a BACE decision and of a whole replay
with jobs and regions. Every measurement runs in a process of its own, so that peak memory and the
first compilation are its own; ratios compare numbers of this one run.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

COMPARE = [sys.executable, "-m", "eval.compare", "--policy", "bace", "--episodes", "30"]
GROWTH_JOBS = (10, 30, 100, 300, 1000, 3000, 10000)
GROWTH_REGIONS = (2, 4, 6, 12, 25, 50)


def large_scenario(n_jobs: int, n_regions: int, load: float = 0.9) -> Any:
    """The paper's jobs arriving at random at a cluster of many regions, kept busy to `load`."""
    from bace_env.config import load_scenario
    from bace_env.scenario import build_instance
    from bace_env.schema import Scenario

    rng = np.random.default_rng(0)
    data = load_scenario("paper").model_dump()
    data["regions"] = [
        {
            "name": f"region-{r}",
            "gpus": int(rng.choice([16, 32, 64, 128])),
            "price_usd_per_kwh": float(rng.uniform(0.1, 0.35)),
            "bandwidth_gbps": float(rng.uniform(25, 100)),
        }
        for r in range(n_regions)
    ]
    data["workload"] = {"n_jobs": 200}
    instance = build_instance(Scenario.model_validate(data), 0)
    work_s = float(instance.least_work_s.mean()) / float(instance.arrays.gpus.sum())
    data["workload"] = {
        "n_jobs": n_jobs,
        "arrivals": "poisson",
        "mean_interarrival_h": work_s / load / 3600.0,
    }
    return Scenario.model_validate(data)


def measure_replay(n_jobs: int, n_regions: int, policy: str) -> dict[str, float]:
    """Replay one workload after a warm-up; times of the replay alone, memory of the process."""
    from agents.policy import make_policy
    from bace_env.scenario import build_instance
    from eval.rollout import run_episode

    run_episode(build_instance(large_scenario(10, 3), 0), make_policy(policy))
    before = time.perf_counter()
    instance = build_instance(large_scenario(n_jobs, n_regions), 0)
    built = time.perf_counter()
    trace = run_episode(instance, make_policy(policy))
    seconds = time.perf_counter() - built
    decision_us = np.array([d.decision_ns for d in trace.decisions]) / 1000.0
    return {
        "build_s": built - before,
        "replay_s": seconds,
        "decisions": float(decision_us.size),
        "decision_us_p50": float(np.percentile(decision_us, 50)),
        "decision_us_p99": float(np.percentile(decision_us, 99)),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
    }


def measure_paper() -> dict[str, float]:
    """BACE on the paper's scenario, beside the plain-Python reference of the tests."""
    from reference_simulator import ReferenceSimulator

    from agents.policy import make_policy
    from bace_env.config import load_scenario
    from bace_env.scenario import build_instance
    from eval.rollout import run_episode

    scenario = load_scenario("paper")
    instances = [build_instance(scenario, seed) for seed in range(30)]
    run_episode(instances[0], make_policy("bace"))
    start = time.perf_counter()
    traces = [run_episode(instance, make_policy("bace")) for instance in instances]
    ours = time.perf_counter() - start
    plain = [instance.to_dict() for instance in instances]
    start = time.perf_counter()
    for data in plain:
        ReferenceSimulator(data, "bace").run()
    reference = time.perf_counter() - start
    times = np.concatenate([[d.decision_ns for d in t.decisions] for t in traces]) / 1000.0
    return {
        "decision_us_p50": float(np.percentile(times, 50)),
        "decision_us_p99": float(np.percentile(times, 99)),
        "episodes_per_s": len(instances) / ours,
        "times_plain_python": reference / ours,
    }


def in_fresh_process(call: str, **arguments: Any) -> dict[str, float]:
    """Run one of the measurements above in a process of its own."""
    text = json.dumps({"call": call, "arguments": arguments})
    done = subprocess.run(
        [sys.executable, __file__, "--measure", text], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def timed_compare(environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(COMPARE, cwd=ROOT, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


def draw_growth(path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by_jobs = [
        in_fresh_process("replay", n_jobs=n, n_regions=6, policy="bace") for n in GROWTH_JOBS
    ]
    by_regions = [
        in_fresh_process("replay", n_jobs=1000, n_regions=r, policy="bace") for r in GROWTH_REGIONS
    ]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    sweeps = (
        (GROWTH_JOBS, by_jobs, "jobs (6 regions)"),
        (GROWTH_REGIONS, by_regions, "regions (1,000 jobs)"),
    )
    for axes, (sizes, found, label) in zip(figure.subplots(1, 2), sweeps, strict=True):
        for key, name, unit in (
            ("decision_us_p50", "decision, p50 (us)", 1.0),
            ("decision_us_p99", "decision, p99 (us)", 1.0),
            ("replay_s", "whole replay (ms)", 1e3),
        ):
            axes.plot(sizes, [unit * f[key] for f in found], marker="o", label=name)
        axes.set(xscale="log", yscale="log", xlabel=label)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", type=Path, help="draw the growth with jobs and regions")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        asked = json.loads(options.measure)
        measure = {"replay": measure_replay, "paper": measure_paper}[asked["call"]]
        print(json.dumps(measure(**asked["arguments"])))
        return
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        cold = timed_compare(environment)
        warm = min(timed_compare(environment) for _ in range(3))
    paper = in_fresh_process("paper")
    large = in_fresh_process("replay", n_jobs=10000, n_regions=50, policy="bace")
    rows = (
        ("first run ever, compiling: 8 policies x 30 episodes", f"{cold:.1f} s"),
        ("any later run of the same", f"{warm:.1f} s ({cold / warm:.1f} times faster)"),
        ("one BACE decision at 6 regions, p50 / p99", _two(paper, "us")),
        ("episodes of 8 jobs per second, one core", f"{paper['episodes_per_s']:.0f}"),
        ("  times the plain-Python simulator", f"{paper['times_plain_python']:.0f}"),
        ("10,000 jobs x 50 regions, whole replay", f"{large['replay_s']:.1f} s"),
        ("  one decision, p50 / p99", _two(large, "us")),
        ("  peak memory of the process", f"{large['peak_mb']:.0f} MB"),
    )
    for label, value in rows:
        print(f"{label:55s} {value}")
    if options.plot:
        draw_growth(options.plot)


def _two(found: dict[str, float], unit: str) -> str:
    return f"{found['decision_us_p50']:.0f} / {found['decision_us_p99']:.0f} {unit}"


if __name__ == "__main__":
    main()
