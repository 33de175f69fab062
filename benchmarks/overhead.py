"""What scheduling costs besides the schedule: time per decision, and state that must be collected.

Against the number of regions and of pending jobs, for BACE-Pipe and two baselines, on clusters of
random regions with all jobs queued at time 0. A decision's time is the CPU time of `Policy.act`
while at least 90 % of the jobs still wait and a GPU is free (else there is nothing to decide).
"Scattered" is BACE-Pipe's decision on one hard state, repeated: all regions free, but a quarter as
large, so that none holds a whole pipeline and paths are walked from every region. The volume is
that of one full refresh of everything that a decision reads and that changes: free GPUs, reserved
bandwidth of every directed link, prices, and the queue (id, profile, iterations and arrival of each
pending job), packed as 8-byte numbers. Tables of t_comp are sent once, with the job's model, and
not counted.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import core  # first: puts the checkout on the path
import numpy as np

from agents.policy import make_policy
from bace_env.scenario import Sampler
from bace_env.schema import Scenario
from bace_env.simulator import Simulator, View

POLICIES = ("bace", "ldf", "cr-ldf")
JOBS, REGIONS = (10, 30, 100, 300, 1000, 3000), (2, 4, 6, 12, 25, 50)
FEW_JOBS, FEW_REGIONS = 100, 6  # of the other sweep
FIELDS = ("free GPUs", "reserved bandwidth", "prices", "queue")
DECISIONS = 3000
_TICKS_US = (10, 20, 50, 100, 200, 500, 1000)
LATENCY_US = 5000.0  # the shortest monitoring latency that the public review asks about


def queued_scenario(n_jobs: int, n_regions: int, gpus: float = 1.0) -> Any:
    """The regions of `core.large_scenario` with all jobs there from the start."""
    data = core.large_scenario(n_jobs, n_regions).model_dump()
    data["workload"] = {"n_jobs": n_jobs}
    data["scale"]["gpus"] = gpus
    return Scenario.model_validate(data)


def collect(view: View) -> dict[str, bytes]:
    """What a scheduler must receive before it decides, packed; one entry for each of `FIELDS`."""
    arrays, pending = view.arrays, view.pending
    others = ~np.eye(view.instance.n_regions, dtype=bool)
    queue = (
        pending,
        arrays.job_profile[pending],
        arrays.iterations[pending],
        arrays.arrival_s[pending],
    )
    packed = (
        view.free_gpus.tobytes(),
        view.state.link_used[others].tobytes(),
        view.price_usd_per_kwh.tobytes(),
        b"".join(column.tobytes() for column in queue),
    )
    return dict(zip(FIELDS, packed, strict=True))


def measure(n_jobs: int, n_regions: int) -> dict[str, float]:
    """Decision times of each policy, us; bytes of each field and us to pack them all, at a start.

    Keys: `POLICY p50`, `POLICY p99`, `scattered`, the `FIELDS`, `collect`.
    """
    sampler = Sampler(queued_scenario(n_jobs, n_regions))
    found: dict[str, float] = {}
    for policy in POLICIES:
        times_us = np.array(decision_times(sampler, policy)) / 1000.0
        found[f"{policy} p50"], found[f"{policy} p99"] = np.percentile(times_us, [50, 99])
    view = Simulator(sampler.draw(0)).view
    found |= {field: len(data) for field, data in collect(view).items()}
    bace = make_policy("bace")
    scattered = Simulator(Sampler(queued_scenario(n_jobs, n_regions, 0.25)).draw(0)).view
    found["scattered"] = median_us(lambda: bace.act(scattered))
    found["collect"] = median_us(lambda: collect(view))
    return found


def median_us(call: Callable[[], object]) -> float:
    laps = []
    for _ in range(200):
        before = time.thread_time_ns()
        call()
        laps.append(time.thread_time_ns() - before)
    return float(np.median(laps)) / 1000.0


def decision_times(sampler: Sampler, name: str) -> list[int]:
    """Nanoseconds of decisions on as many workloads as it takes; warmed up."""
    policy = make_policy(name)
    policy.act(Simulator(sampler.draw(0)).view)
    times: list[int] = []
    seed = 0
    while len(times) < DECISIONS:
        simulator = Simulator(sampler.draw(seed))
        policy.reset(seed)
        seed += 1
        while not simulator.done and simulator.view.pending.size >= 0.9 * simulator.instance.n_jobs:
            before = time.thread_time_ns()
            action = policy.act(simulator.view)
            took = time.thread_time_ns() - before
            if simulator.view.free_gpus.any():
                times.append(took)
            simulator.step(action)
    return times


def table(found: dict[tuple[int, int], dict[str, float]]) -> list[list[str]]:
    """Heading and rows."""
    sizes = ["state (B)", "of it links (B)", "packing (us)"]
    times = [f"{policy} (us)" for policy in POLICIES]
    rows = [["regions", "jobs", times[0], "scattered (us)", *times[1:], *sizes]]
    for (jobs, regions), values in found.items():
        times = [f"{values[f'{p} p50']:.0f} / {values[f'{p} p99']:.0f}" for p in POLICIES]
        sizes = [f"{sum(values[f] for f in FIELDS):,.0f}", f"{values['reserved bandwidth']:,.0f}"]
        sizes.append(f"{values['collect']:.0f}")
        scattered = f"{values['scattered']:.0f}"
        rows.append([str(regions), f"{jobs:,}", times[0], scattered, *times[1:], *sizes])
    return rows


def summary(found: dict[tuple[int, int], dict[str, float]]) -> str:
    """What the numbers of this run say."""
    few = found[FEW_JOBS, FEW_REGIONS]
    by_jobs = [found[n, FEW_REGIONS]["bace p50"] for n in (JOBS[0], JOBS[-1])]
    by_regions = [found[FEW_JOBS, r]["scattered"] for r in (REGIONS[0], REGIONS[-1])]
    largest = max(sum(values[f] for f in FIELDS) for values in found.values())
    return (
        f"At {FEW_REGIONS} regions and {FEW_JOBS} pending jobs a decision of bace takes "
        f"{few['bace p50']:.0f} us, {LATENCY_US / few['bace p50']:,.0f} times less than a "
        f"monitoring latency of 5 ms: where each decision asks the regions first, it takes that "
        f"latency and little more. From {JOBS[0]} to {JOBS[-1]:,} pending jobs its time grows "
        f"{by_jobs[1] / by_jobs[0]:.1f} times; from {REGIONS[0]} to {REGIONS[-1]} scattered "
        f"regions {by_regions[1] / by_regions[0]:.1f} times. The largest refresh measured has "
        f"{largest / 1000:,.0f} kB."
    )


def markdown(found: dict[tuple[int, int], dict[str, float]], plot: str) -> str:
    """The section of docs/robustness.md; its times change from run to run."""
    heading, *rows = table(found)
    lines = ["## Scheduling overhead", ""]
    lines += [" ".join(__doc__.split("\n\n")[1].split()), ""]
    lines += [
        "With R regions and J pending jobs a refresh has 8 (R + R (R - 1) + R + 4 J) bytes: the",
        "queue rules until R is some 2 sqrt(J), then the links do. It serves all decisions of one",
        "moment, so per decision it is less.",
        "",
        f"![overhead]({plot})",
        "",
        "<!-- Measured times: the rest of this section differs from run to run. -->",
        "",
        summary(found),
        "",
        f"| {' | '.join(heading)} |",
        "|---:" * len(heading) + "|",
    ]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    lines += ["", "Times are p50 / p99, CPU time of one core of a slow, shared machine.", ""]
    lines += ["`make robustness` regenerates this document.", ""]
    return "\n".join(lines)


def draw(found: dict[tuple[int, int], dict[str, float]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    sweeps = (
        (JOBS, [found[n, FEW_REGIONS] for n in JOBS], f"pending jobs ({FEW_REGIONS} regions)"),
        (REGIONS, [found[FEW_JOBS, r] for r in REGIONS], f"regions ({FEW_JOBS} pending jobs)"),
    )
    colours = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
    shapes = ("o", "s", "^", "D")
    for (top, bottom), (sizes, values, label) in zip(panels.T, sweeps, strict=True):
        for policy, colour, shape in zip(POLICIES, colours, shapes, strict=False):
            for share, style in (("p50", "-"), ("p99", ":")):
                line = [v[f"{policy} {share}"] for v in values]
                top.plot(sizes, line, style, color=colour, marker=shape, label=f"{policy}, {share}")
        scattered = [v["scattered"] for v in values]
        top.plot(sizes, scattered, "--", color=colours[3], marker="D", label="bace, scattered")
        shown = {
            "free GPUs, prices (each)": "prices", "links": "reserved bandwidth", "queue": "queue",
        }  # fmt: skip
        for (name, field), colour, shape in zip(shown.items(), colours, shapes, strict=False):
            bottom.plot(sizes, [v[field] for v in values], color=colour, marker=shape, label=name)
        total = [sum(v[f] for f in FIELDS) for v in values]
        bottom.plot(sizes, total, color="#333333", linestyle="--", label="all")
        bottom.set(xscale="log", yscale="log", xlabel=label)
        bottom.set_xticks(sizes, [f"{size:,}" for size in sizes])
        bottom.xaxis.minorticks_off()
        for axes in (top, bottom):
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        top.set(yscale="log")
        top.set_yticks(_TICKS_US, [f"{tick}" for tick in _TICKS_US])
        top.yaxis.minorticks_off()
    slowest = max(v for values in found.values() for key, v in values.items() if "p99" in key)
    panels[0][0].set_ylim(8, 1.2 * slowest)  # shared
    panels[0][0].set_ylabel("one decision (us)")
    panels[1][0].set_ylabel("one refresh of the state (bytes)")
    for row in panels:
        row[1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", type=Path, help="draw both against jobs and regions")
    parser.add_argument("--markdown", type=Path, help="write the section of docs/robustness.md")
    options = parser.parse_args()
    sizes = [(n, FEW_REGIONS) for n in JOBS] + [(FEW_JOBS, r) for r in REGIONS]
    found = {}
    for jobs, regions in dict.fromkeys(sizes):
        found[jobs, regions] = measure(jobs, regions)
    rows = table(found)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    print(f"Times: p50 / p99. {summary(found)}")
    if options.plot:
        draw(found, options.plot)
    if options.markdown:
        plot = options.plot.name if options.plot else "overhead.png"
        options.markdown.write_text(markdown(found, plot), "utf-8")


if __name__ == "__main__":
    main()
