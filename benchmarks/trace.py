"""How the replay of a long trace grows: `python benchmarks/trace.py`.

82,000 generated jobs, as many as the flat Philly trace has, arrive over months at six regions at
70 % load and are replayed by each policy. Each measurement runs in a process of its own, and counts
its CPU time, as the machine may be shared. Prints a table, `--plot FILE` draws the growth with the
number of jobs; exit code 1 if a replay of all takes longer than `--most` seconds.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PRESET = "week-in-the-cloud"
JOBS = 82_000
GROWTH = (1_000, 3_000, 10_000, 30_000, JOBS)
POLICIES = (
    "bace", "ldf", "lcf", "cr-lcf", "cr-ldf", "bace-patient", "sjf", "random", "bace-forecast",
    "bace-defer",
)  # fmt: skip
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")


def measure(policy: str, n_jobs: int, load: float) -> dict[str, float]:
    """Replay one workload after a warm-up; seconds of building and of the replay alone."""
    import numpy as np

    from agents.policy import make_policy
    from bace_env.config import load_scenario
    from bace_env.instance import Instance
    from bace_env.scenario import build_instance
    from eval.metrics import episode_metrics
    from eval.rollout import run_episode

    def workload(n: int) -> Instance:
        fields = [f"workload.n_jobs={n}", f"workload.load={load}"]
        return build_instance(load_scenario(PRESET, fields), 0)

    run_episode(workload(20), make_policy(policy))
    before = time.perf_counter()
    instance = workload(n_jobs)
    built, cpu = time.perf_counter(), time.process_time()
    trace = run_episode(instance, make_policy(policy))
    replayed, cpu = time.perf_counter(), time.process_time() - cpu
    metrics = episode_metrics(trace)
    running = np.searchsorted(np.sort(trace.start_s), trace.start_s, side="right")
    running -= np.searchsorted(np.sort(trace.finish_s), trace.start_s, side="right")
    return {
        "build_s": built - before,
        "replay_s": cpu,
        "wall_s": replayed - built,
        "metrics_s": time.perf_counter() - replayed,
        "decisions": float(len(trace.decisions)),
        "pending": metrics["mean_backlog"],
        "most_pending": metrics["max_backlog"],
        "running": float(running.mean()),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
    }


def in_fresh_process(policy: str, n_jobs: int, load: float) -> dict[str, float]:
    """`measure` in a process of its own."""
    text = json.dumps({"policy": policy, "n_jobs": n_jobs, "load": load})
    command = [sys.executable, __file__, "--measure", text]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def draw(found: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Seconds and microseconds per decision over the number of jobs, a line per policy."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    whole, each = figure.subplots(1, 2)
    for i, (policy, rows) in enumerate(found.items()):
        style = {"color": _COLOURS[i % 7], "marker": "osD^v"[i % 5], "markersize": 4.0}
        style["linestyle"] = "-" if i < 7 else "--"
        seconds = [row["replay_s"] for row in rows]
        per_decision = [1e6 * row["replay_s"] / row["decisions"] for row in rows]
        whole.plot(GROWTH, seconds, label=policy, **style)
        each.plot(GROWTH, per_decision, **style)
    whole.axhline(60.0, color="#888888", linewidth=0.8, linestyle=":")
    whole.annotate("60 s", (GROWTH[0], 60.0), fontsize=8, color="#555555", va="bottom")
    whole.plot(GROWTH, [2e-5 * n for n in GROWTH], color="#BBBBBB", linewidth=3,
               zorder=0, label="proportional")  # fmt: skip
    whole.set(yscale="log", ylabel="whole replay (CPU s)", title="The whole replay")
    each.set(
        ylabel="per decision (CPU us)", title="One decision, with all that follows", ylim=(0, None)
    )
    for axes in (whole, each):
        axes.set(xscale="log", xlabel="jobs in the trace")
        axes.set_xticks(GROWTH, [f"{n:,}" for n in GROWTH])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
    figure.savefig(path, dpi=130, metadata={"Software": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", type=Path, help="draw the growth with the number of jobs")
    parser.add_argument("--load", type=float, default=0.7, help="share of all GPUs (0.7)")
    parser.add_argument("--policy", action="append", help="repeatable; default: all but search")
    parser.add_argument("--most", type=float, default=60.0, help="CPU seconds of a replay (60)")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(**json.loads(options.measure))))
        return 0
    sizes = GROWTH if options.plot else (JOBS,)
    found: dict[str, list[dict[str, float]]] = {}
    print(f"{JOBS:,} jobs, 6 regions, load {options.load:g}")
    print(
        f"{'policy':15s} replay (s)  wall (s)  decisions  us each  running  pending (most)  "
        "build (s)     MB"
    )
    for policy in options.policy or POLICIES:
        found[policy] = [in_fresh_process(policy, n, options.load) for n in sizes]
        row = found[policy][-1]
        print(
            f"{policy:15s} {row['replay_s']:10.1f} {row['wall_s']:9.1f} {row['decisions']:10.0f} "
            f"{1e6 * row['replay_s'] / row['decisions']:8.0f} {row['running']:8.1f} "
            f"{row['pending']:7.1f} ({row['most_pending']:.0f}) {row['build_s']:11.1f} "
            f"{row['peak_mb']:6.0f}",
            flush=True,
        )
    if options.plot:
        draw(found, options.plot)
    slow = [policy for policy, rows in found.items() if rows[-1]["replay_s"] > options.most]
    if slow:
        print(f"slower than {options.most:g} s: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
