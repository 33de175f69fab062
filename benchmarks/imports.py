"""How long and how much memory large imports take, each in a process of its own.

Generates a job trace (as the flat Philly CSV, and as Helios) and price series of a million rows,
imports them by command line, and loads what comes out. `--rows` for another size.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SECONDS, MEGABYTES = 60.0, 2000.0  # what a million rows may take


def write_philly(path: Path, rows: int) -> None:
    """A trace of the flat Philly layout: unsorted, mostly one GPU, long tail of durations."""
    rng = np.random.default_rng(0)
    at = np.datetime64("2017-09-04T00:00:00") + rng.integers(0, 110 * 86400, rows)
    stamps = np.char.replace(at.astype(str), "T", " ")
    duration = np.ceil(rng.lognormal(7.0, 2.0, rows)).astype(int)
    gpus = rng.choice([1, 2, 4, 8, 16, 32], rows, p=[0.93, 0.02, 0.02, 0.02, 0.005, 0.005])
    with path.open("w") as file:
        file.write("timestamp,duration,num_gpus,gpu_time,cluster\n")
        for a, d, g in zip(stamps.tolist(), duration.tolist(), gpus.tolist(), strict=True):
            file.write(f"{a},{d}.0,{g},{d * g}.0,6214e9\n")


def write_helios(path: Path, rows: int) -> None:
    """A trace of the Helios layout: three times in each row, some of them missing."""
    rng = np.random.default_rng(1)
    submit = np.datetime64("2020-04-01T00:00:00") + rng.integers(0, 150 * 86400, rows)
    start = submit + rng.integers(0, 5000, rows)
    end = start + np.ceil(rng.lognormal(6.0, 2.0, rows)).astype(int)
    times = [np.char.replace(t.astype(str), "T", " ").tolist() for t in (submit, start, end)]
    gpus = rng.choice([0, 1, 8], rows, p=[0.5, 0.4, 0.1]).tolist()
    with path.open("w") as file:
        file.write("job_id,gpu_num,state,submit_time,start_time,end_time\n")
        for i, (a, b, c, g) in enumerate(zip(*times, gpus, strict=True)):
            file.write(f"{i},{g},COMPLETED,{a},{b if i % 50 else ''},{c if i % 50 else ''}\n")


def write_prices(path: Path, rows: int) -> None:
    """A series at every minute."""
    rng = np.random.default_rng(2)
    at = np.datetime64("2020-01-01T00:00") + np.arange(rows)
    with path.open("w") as file:
        file.write("time,price\n")
        for a, p in zip(at.astype(str).tolist(), rng.normal(50, 30, rows).tolist(), strict=True):
            file.write(f"{a},{p:.2f}\n")


CASES = {
    "philly-csv": (write_philly, ["--tz", "UTC"]),
    "helios": (write_helios, ["--tz", "Asia/Shanghai"]),
    "prices": (
        write_prices,
        [
            "--time",
            "time",
            "--price",
            "price",
            "--tz",
            "UTC",
            "--unit",
            "USD/MWh",
            "--region",
            "EU-West",
        ],
    ),
}


def measured(command: list[str]) -> tuple[float, float]:
    """Seconds and peak megabytes of a command."""
    before = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - before
    if status != 0:
        sys.exit(f"failed: {' '.join(command)}")
    scale = 2**20 if sys.platform == "darwin" else 2**10
    return seconds, usage.ru_maxrss / scale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--case", choices=list(CASES), action="append")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if importlib.util.find_spec("pandas") is None:
        print("left out: imports need pip install -e '.[io]' -c constraints.txt")
        return
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in args.case or CASES:
            write, options = CASES[name]
            file, out = Path(folder) / f"{name}.csv", Path(folder) / f"{name}.toml"
            write(file, args.rows)
            command = [sys.executable, "-m", "bace_env.io", name, str(file), *options]
            seconds, megabytes = measured([*command, "--out", str(out)])
            load = f"from bace_env.config import load_scenario; load_scenario({str(out)!r})"
            load_s, load_mb = measured([sys.executable, "-c", load])
            results[name] = {"seconds": seconds, "mb": megabytes, "load_s": load_s}
            print(
                f"{name:<11} {args.rows} rows: import {seconds:.1f} s, {megabytes:.0f} MB; "
                f"loading the scenario {load_s:.1f} s, {load_mb:.0f} MB"
            )
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    for name, result in results.items():
        if args.rows <= 1_000_000 and (result["seconds"] > SECONDS or result["mb"] > MEGABYTES):
            sys.exit(f"{name}: more than {SECONDS:g} s or {MEGABYTES:g} MB for {args.rows} rows")


if __name__ == "__main__":
    main()
