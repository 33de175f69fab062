"""`python -m eval.compare` from end to end: what it prints, writes and refuses to run."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from command_line import CommandLine
from rich.console import Console

from agents.policy import REGISTRY
from bace_env.checker import violations
from bace_env.config import load_scenario
from bace_env.scenario import episode_seed
from eval import report
from eval.compare import BASELINES
from eval.experiment import Comparison, Request, worker_pool
from eval.metrics import METRICS, RATIOS, TYPICAL
from eval.statistics import estimate_geometric_means, estimate_means, paired_ratios
from eval.verdict import make_sentence

ROOT = Path(__file__).resolve().parents[1]
ALL_METRICS = {*METRICS, *RATIOS}  # of each episode
MEASURED = ("decision_us", "decision_us_p50", "decision_us_p99")  # the clock, not the simulator
SMALL = ("--scenario", "small.toml")

OWN_POLICY = """
from bace_env.simulator import WAIT, Placement


class FewestGpus:
    def __init__(self, extra="0"):
        self.name, self.extra = f"fewest+{extra}", int(extra)

    def reset(self, seed):
        pass

    def act(self, view):
        for job in view.pending:
            need = min(view.k_min(job) + self.extra, view.k_max(job))
            for region, free in enumerate(view.free_gpus):
                if free >= need:
                    return Placement(int(job), (region,), (need,))
        return WAIT
"""

FAILING_POLICIES = """
from bace_env.simulator import WAIT, Placement

class Waits:
    name = "failing"
    def reset(self, seed): pass
    def act(self, view): return WAIT

class Nothing(Waits):
    def act(self, view): return None

class Tuple(Waits):
    def act(self, view): return 0, (0,), (1,)

class TooMany(Waits):
    def act(self, view): return Placement(int(view.pending[0]), (0,), (99,))

class Nowhere(Waits):
    def act(self, view): return Placement(int(view.pending[0]), (7,), (1,))

class NotPending(Waits):
    def act(self, view): return Placement(99, (0,), (1,))

class Fraction(Waits):
    def act(self, view): return Placement(int(view.pending[0]), (0,), (1.5,))

class NoLink(Waits):
    def act(self, view): return Placement(int(view.pending[0]), (0, 2), (1, 1))
"""


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys)


def results(command: CommandLine, *args: str) -> dict[str, Any]:
    code, out, _ = command.run("--json", "-", *args)
    assert code == 0
    return dict(json.loads(out))


def without_measured(data: Any) -> Any:
    if isinstance(data, dict):
        return {k: without_measured(v) for k, v in data.items() if k not in MEASURED}
    return [without_measured(item) for item in data] if isinstance(data, list) else data


def comparable(name: str, content: bytes) -> object:
    """A file of a run directory without what the clock says."""
    if name.endswith(".json"):
        return without_measured(json.loads(content))
    if name.endswith(".csv"):
        return without_measured(list(csv.DictReader(io.StringIO(content.decode()))))
    return content


def test_json_has_the_documented_form(command: CommandLine) -> None:
    data = results(command, *SMALL, "--policy", "sjf", "--episodes", "4", "--seed", "5")
    assert list(data) == ["scenario", "fingerprint", "seeds", "reference", "policies", "episodes"]
    assert data["scenario"] == "small"
    assert data["fingerprint"] == load_scenario("small.toml").fingerprint()
    assert data["seeds"] == [episode_seed(5, episode) for episode in range(4)]
    assert data["seeds"][0] == 5
    assert data["reference"] == "sjf"
    names = ["sjf", *(name for name in BASELINES if name != "sjf")]
    assert list(data["policies"]) == names
    for metrics in data["policies"].values():
        assert metrics.keys() == ALL_METRICS | TYPICAL.keys()
        for metric in metrics.values():
            assert metric.keys() == {"mean", "ci95"}
            low, high = metric["ci95"]
            assert low <= metric["mean"] <= high
    pairs = [(row["policy"], row["seed"]) for row in data["episodes"]]
    assert pairs == [(name, seed) for name in names for seed in data["seeds"]]
    for row in data["episodes"]:
        assert row.keys() == {"policy", "seed", *ALL_METRICS}


def test_means_are_those_of_the_episodes_and_ratios_are_paired(command: CommandLine) -> None:
    data = results(command, *SMALL, "--policy", "cr-lcf", "--episodes", "5")
    reference = {row["seed"]: row for row in data["episodes"] if row["policy"] == "cr-lcf"}
    for name, metrics in data["policies"].items():
        rows = [row for row in data["episodes"] if row["policy"] == name]
        for metric in ALL_METRICS:
            values = [row[metric] for row in rows]
            assert metrics[metric]["mean"] == pytest.approx(np.mean(values), rel=1e-12)
        for typical, ratio in TYPICAL.items():
            expected = np.exp(np.mean([np.log(row[ratio]) for row in rows]))
            assert metrics[typical]["mean"] == pytest.approx(expected, rel=1e-12)
        for row in rows:
            for ratio, metric in RATIOS.items():
                expected = row[metric] / reference[row["seed"]][metric]
                assert row[ratio] == pytest.approx(expected, rel=1e-12)
            assert row["unfinished_jobs"] == 0
    for ratio in RATIOS:
        assert data["policies"]["cr-lcf"][ratio] == {"mean": 1.0, "ci95": [1.0, 1.0]}
        assert {row[ratio] for row in reference.values()} == {1.0}


def test_json_to_standard_output_is_alone_there(command: CommandLine) -> None:
    code, out, err = command.run(*SMALL, "--episodes", "2", "--json", "-", "--check")
    assert code == 0
    assert json.loads(out)["reference"] == "bace"
    assert "JCT ratio" in err
    assert "no contradiction" in err


def test_json_to_a_file_is_the_same_and_leaves_nothing_else(command: CommandLine) -> None:
    before = command.files()
    code, out, err = command.run(*SMALL, "--episodes", "2", "--json", "x.json")
    assert (code, err) == (0, "")
    assert "JCT ratio" in out
    written = command.files()
    assert written.keys() == {*before, "x.json"}
    piped = results(command, *SMALL, "--episodes", "2")
    assert without_measured(json.loads(written["x.json"])) == without_measured(piped)


def test_a_ratio_that_does_not_exist_is_null_and_said(command: CommandLine) -> None:
    negative = [f"regions.{i}.price_usd_per_kwh={price}" for i, price in enumerate((-1, -2))]
    sets = [arg for text in negative for arg in ("--set", text)]
    args = ("--scenario", "tiny", "--episodes", "2", *sets)
    data = results(command, *args)
    assert data["policies"]["ldf"]["cost_ratio"] == {"mean": None, "ci95": None}
    assert data["policies"]["bace"]["cost_ratio"]["mean"] == 1.0
    assert data["policies"]["ldf"]["total_cost_usd"]["mean"] < 0
    out = command.run(*args).out
    assert "none" in out
    assert "There are no ratios of electricity cost" in " ".join(out.split())


def test_the_same_seed_gives_the_same_run_directory(command: CommandLine) -> None:
    for name in ("one", "two"):
        code, _, _ = command.run(*SMALL, "--episodes", "3", "--seed", "9", "--out", name)
        assert code == 0
    one, two = (
        {file.removeprefix(f"{name}/"): content for file, content in command.files().items()
         if file.startswith(f"{name}/")}
        for name in ("one", "two")
    )  # fmt: skip
    assert one.keys() == two.keys()
    for file in one:
        assert comparable(file, one[file]) == comparable(file, two[file]), file


def test_another_seed_gives_other_workloads(command: CommandLine) -> None:
    one = results(command, *SMALL, "--episodes", "3", "--seed", "1")
    two = results(command, *SMALL, "--episodes", "3", "--seed", "2")
    assert not {*one["seeds"]} & {*two["seeds"]}
    for a, b in zip(one["episodes"], two["episodes"], strict=True):
        assert a["avg_jct_s"] != b["avg_jct_s"]


def test_a_row_is_replayed_from_its_seed(command: CommandLine) -> None:
    many = results(command, *SMALL, "--episodes", "3", "--seed", "4")
    for seed in many["seeds"]:
        rows = [row for row in many["episodes"] if row["seed"] == seed]
        alone = results(command, *SMALL, "--episodes", "1", "--seed", str(seed))
        assert without_measured(alone["episodes"]) == without_measured(rows)


def test_two_processes_give_what_one_gives(command: CommandLine) -> None:
    (command.folder / "own.py").write_text(OWN_POLICY)
    args = (*SMALL, "--policy", "own.py:FewestGpus", "--episodes", "5")
    done = subprocess.run(
        [sys.executable, "-m", "eval.compare", *args, "--workers", "2", "--json", "-"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    two = without_measured(json.loads(done.stdout))
    assert two == without_measured(results(command, *args))


@pytest.fixture
def run_directory(command: CommandLine) -> Path:
    args = ("--policy", "bace:patience=0.5,partial_fill", "--policy", "random", "--no-baselines")
    code, out, err = command.run(*SMALL, *args, "--episodes", "3", "--out", "run")
    assert (code, err) == (0, "")
    assert "JCT ratio" in out
    return command.folder / "run"


def test_the_run_directory_holds_everything(run_directory: Path, command: CommandLine) -> None:
    run = json.loads((run_directory / "run.json").read_text())
    policies = ("bace_patience=0.5,partial_fill", "random")
    files = {
        "run.json",
        "scenario.json",
        "summary.json",
        "episodes.csv",
        "backlog.csv",
        "report.md",
        "comparison.png",
    }
    files |= {f"instances/{seed}.json" for seed in run["seeds"]}
    files |= {f"traces/{name}/{seed}.json" for name in policies for seed in run["seeds"]}
    found = {str(f.relative_to(run_directory)) for f in run_directory.rglob("*") if f.is_file()}
    assert found == files
    assert {path.name for path in command.folder.iterdir()} == {"run", "small.toml"}
    assert len(run["seeds"]) == 3
    assert run["policies"] == ["bace:patience=0.5,partial_fill", "random"]
    assert run.keys() >= {"versions", "git_revision", "fingerprint"}
    assert run["versions"].keys() >= {"bace-env", "python", "numpy", "numba"}
    saved = load_scenario(run_directory / "scenario.json")
    assert saved.fingerprint() == run["fingerprint"]


def test_the_csv_says_what_the_json_says(run_directory: Path) -> None:
    summary = json.loads((run_directory / "summary.json").read_text())
    with (run_directory / "episodes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [{k: str(v) for k, v in row.items()} for row in summary["episodes"]]


def test_the_report_holds_the_sentence_and_the_chart(run_directory: Path) -> None:
    text = (run_directory / "report.md").read_text()
    assert "Lowest average JCT" in text
    assert "| bace:patience=0.5,partial_fill | 1.00 | 1.00 |" in text
    assert "![comparison](comparison.png)" in text
    assert "nan" not in text
    assert (run_directory / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_an_outsider_can_check_the_exported_schedules(run_directory: Path) -> None:
    checked = 0
    for file in run_directory.glob("traces/*/*.json"):
        trace = json.loads(file.read_text())
        instance = json.loads((run_directory / "instances" / file.name).read_text())
        assert violations(instance, trace) == []
        assert trace["seed"] == instance["seed"] == int(file.stem)
        assert all(decision["decision_us"] >= 0 for decision in trace["decisions"])
        checked += 1
    assert checked == 6


def test_names_that_are_no_file_names_stay_in_the_run_directory(command: CommandLine) -> None:
    (command.folder / "own.py").write_text(OWN_POLICY.replace("fewest+", "../[/b]|$x$ ü:smile:"))
    args = ("--policy", "own.py:FewestGpus", "--set", "name=[red]$\\frac$[/]", "--no-baselines")
    code, out, err = command.run(*SMALL, *args, "--episodes", "1", "--out", "run")
    assert (code, err) == (0, "")
    assert "[red]$\\frac$[/]: 1 workload; ../[/b]|$x$ ü:smile:0 = 1" in " ".join(out.split())
    assert {path.name for path in command.folder.iterdir()} == {"run", "small.toml", "own.py"}
    assert len(list((command.folder / "run" / "traces").iterdir())) == 1


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_the_chart_is_the_same_every_time(suffix: str, start: bytes, command: CommandLine) -> None:
    charts = []
    for i in range(2):
        code, _, err = command.run(*SMALL, "--episodes", "2", "--plot", f"{i}.{suffix}")
        assert (code, err) == (0, "")
        charts.append((command.folder / f"{i}.{suffix}").read_bytes())
    assert charts[0].startswith(start)
    assert len(charts[0]) > 3000
    assert charts[0] == charts[1]


def test_without_baselines_the_named_policies_run_alone(command: CommandLine) -> None:
    args = ("--no-baselines", "--episodes", "2")
    data = results(command, *SMALL, "--policy", "ldf", "--policy", "sjf", "--policy", "ldf", *args)
    assert list(data["policies"]) == ["ldf", "sjf"]
    assert "Only ldf was run" in command.run(*SMALL, "--policy", "ldf", *args).out


def test_the_check_says_how_many_schedules_it_derived(command: CommandLine) -> None:
    out = command.run(*SMALL, "--episodes", "3", "--check").out
    assert f"Checked: {3 * len(BASELINES)} schedules re-derived, no contradiction." in out
    assert "Checked" not in command.run(*SMALL, "--episodes", "3").out


def test_a_contradiction_found_by_the_check_fails_the_run(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def three_found(*_: object) -> list[str]:
        return ["first: wrong", "second: wrong", "third: wrong"]

    monkeypatch.setattr("bace_env.checker.violations", three_found)
    before = command.files()
    code, out, err = command.run(*SMALL, "--episodes", "3", "--check", "--out", "run")
    assert (code, out) == (1, "")
    assert err == "error: policy bace, seed 0: first: wrong; second: wrong; third: wrong\n"
    assert command.files() == before


def test_every_registered_policy_runs(command: CommandLine) -> None:
    named = [arg for name in REGISTRY for arg in ("--policy", name)]
    data = results(command, *SMALL, *named, "--episodes", "2", "--check")
    assert list(data["policies"]) == list(REGISTRY)


@pytest.mark.jit
@pytest.mark.parametrize(
    "preset", ["fig1", "paper", "paper-fitted", "physical", "tiny", "week-in-the-cloud"]
)
def test_every_preset_runs_and_passes_the_check(preset: str, command: CommandLine) -> None:
    data = results(command, "--scenario", preset, "--episodes", "2", "--check")
    assert data["scenario"] == preset
    assert list(data["policies"]) == list(BASELINES)


def test_a_policy_of_ones_own_runs_from_its_file(command: CommandLine) -> None:
    (command.folder / "own.py").write_text(OWN_POLICY)
    policies = ("--policy", "own.py:FewestGpus", "--policy", "own.py:FewestGpus:1")
    data = results(command, *SMALL, *policies, "--episodes", "2", "--check", "--no-baselines")
    assert list(data["policies"]) == ["fewest+0", "fewest+1"]
    jct = [data["policies"][name]["avg_jct_s"]["mean"] for name in data["policies"]]
    assert jct[0] > jct[1]


@pytest.mark.parametrize(
    ("failing", "rule"),
    [
        ("Waits", r"the policy waits at t = [\d.]+ s with nothing running .*; first: .*"),
        ("Nothing", "a decision must be a Placement or WAIT, got None"),
        ("Tuple", r"a decision must be a Placement or WAIT, got \(0, \(0,\), \(1,\)\)"),
        ("TooMany", r"job \w+: north has 4 GPUs free \(Eq. 5\), got 99"),
        ("Nowhere", r"job \w+: region 7: must be from 0 to 2"),
        ("NotPending", r"the job must be pending, got job 99 \(pending: \[0\]\)"),
        ("Fraction", r"a placement needs .* whole .*, got Placement\(.*gpus=\(1\.5,\)\)"),
        ("NoLink", r"job \w+: there is no link north -> island"),
    ],
)
def test_a_policy_that_breaks_a_rule_ends_the_run_with_one_line(
    failing: str, rule: str, command: CommandLine
) -> None:
    (command.folder / "failing.py").write_text(FAILING_POLICIES)
    before = command.files()
    args = ("--policy", f"failing.py:{failing}", "--episodes", "2", "--seed", "3", "--out", "run")
    code, out, err = command.run(*SMALL, *args)
    assert re.fullmatch(f"error: policy failing on scenario small, seed 3: {rule}\n", err)
    assert (code, out) == (1, "")
    assert command.files() == before


def test_an_interrupted_run_leaves_nothing_behind(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("eval.command.run_comparison", interrupted)
    before = command.files()
    code, out, err = command.run(*SMALL, "--out", "run", "--json", "x.json", "--plot", "x.png")
    assert (code, out, err) == (130, "", "interrupted\n")
    assert command.files() == before


def test_workers_are_deaf_to_an_interrupt_from_their_first_moment_on() -> None:
    with worker_pool(2) as pool:
        assert pool is not None
        masked = pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ())
        assert signal.SIGINT in masked.result()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_failed_write_is_one_line_and_leaves_no_half_file(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    before = command.files()
    for target in ("os.replace", "pathlib.Path.rename"):
        with monkeypatch.context() as patch:
            patch.setattr(target, full)
            option = ("--json", "x.json") if target == "os.replace" else ("--out", "run")
            code, _, err = command.run(*SMALL, "--episodes", "1", *option)
        assert (code, err) == (1, "error: [Errno 28] No space left on device\n")
        assert command.files() == before


def test_a_closed_pipe_is_no_error_to_talk_about(command: CommandLine) -> None:
    line = f"{sys.executable} -m eval.compare {' '.join(SMALL)} --episodes 2 --json - | head -c 1"
    done = subprocess.run(
        ["sh", "-c", line],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("width", [40, 60, 80, 100, 130, 200])
def test_the_table_fits_the_terminal(
    width: int, command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    policies = ("--policy", "bace-no-pathfinder", "--policy", "bace:patience=0.25,partial_fill")
    out = command.run(*SMALL, *policies, "--episodes", "4").out
    table, _, _ = out.partition("Ratios to")
    lines = [line.rstrip() for line in table.splitlines()]
    assert max(map(len, lines)) <= width
    assert "…" not in table
    for shown, least in {
        "JCT ratio": 40,
        "cost ratio": 60,
        "JCT (": 80,
        "cost ($)": 80,
        "GPUs": 80,
        "objective": 130,
        "p95 JCT": 130,
        "links": 130,
        "energy (kWh)": 130,
        "decision (us)": 200,
    }.items():
        assert shown in table or width < least
    assert re.search(r"^ldf +\d\.\d\d ", table, re.MULTILINE)


def comparison(jct: dict[str, list[float]], cost: dict[str, list[float]]) -> Comparison:
    """A comparison made by hand from each policy's values per workload."""
    names = tuple(jct)
    n = len(jct[names[0]])
    values = {metric: np.zeros((len(names), n)) for metric in METRICS}
    values["avg_jct_s"] = np.array([jct[name] for name in names], dtype=float)
    values["total_cost_usd"] = np.array([cost[name] for name in names], dtype=float)
    for ratio, metric in RATIOS.items():
        values[ratio] = np.stack([paired_ratios(row, values[metric][0]) for row in values[metric]])
    return Comparison(
        request=Request(load_scenario("tiny"), names),
        names=names,
        seeds=tuple(range(n)),
        values=values,
        estimates={metric: estimate_means(rows) for metric, rows in values.items()}
        | {new: estimate_geometric_means(values[ratio]) for new, ratio in TYPICAL.items()},
        traces=(),
    )


ONE = [1.0] * 12
RISING = [float(x) for x in range(1, 13)]
NOISE = [0.5, 1.6, 0.7, 1.2, 0.9, 1.5, 0.8, 1.1, 0.6, 1.7, 1.3, 0.75]  # geometric mean 0.98


def times(factor: float, values: list[float]) -> list[float]:
    return [factor * value for value in values]


@pytest.mark.parametrize(
    ("jct", "sentence"),
    [
        (
            {"a": RISING, "b": times(2, RISING), "c": times(3, RISING)},
            "Lowest average JCT on a typical workload: a; then b with 2 times as much.",
        ),
        (
            {"a": times(4, RISING), "b": times(3, RISING), "c": times(2, RISING)},
            "Lowest average JCT on a typical workload: c; then b with 1.5 times as much; "
            "a has 2 times as much.",
        ),
        (
            {"a": ONE, "b": ONE, "c": ONE},
            "Lowest average JCT on a typical workload: a (not to be told from it: b, c).",
        ),
        (
            {"a": ONE, "b": [1 + 1e-15, *ONE[1:]], "c": times(3, ONE)},
            "Lowest average JCT on a typical workload: a (not to be told from it: b); "
            "then c with 3 times as much.",
        ),
    ],
)
def test_the_sentence_says_who_wins_by_how_much(jct: dict[str, list[float]], sentence: str) -> None:
    made = comparison(jct, {name: ONE for name in jct})
    assert make_sentence(made).startswith(sentence)


def test_policies_that_cannot_be_told_from_the_best_are_named() -> None:
    noisy = [x * y for x, y in zip(RISING, NOISE, strict=True)]
    made = comparison(
        {"a": RISING, "b": noisy, "c": times(5, RISING)}, {"a": ONE, "b": ONE, "c": ONE}
    )
    assert re.match(
        r"Lowest average JCT on a typical workload: b \(not to be told from it: a\); "
        r"then c with 5\.\d+ times as much \(95 % interval [\d.]+ to [\d.]+\)\.",
        make_sentence(made),
    )


@pytest.mark.parametrize("order", ["abc", "bca", "cab", "cba"])
def test_who_wins_does_not_depend_on_the_reference(order: str) -> None:
    rng = np.random.default_rng(5)
    jct = {name: rng.lognormal(0.0, 1.5, 40).tolist() for name in "abc"}
    cost = {name: rng.lognormal(0.0, 1.5, 40).tolist() for name in "abc"}
    made = comparison({n: jct[n] for n in order}, {n: cost[n] for n in order})
    first = re.findall(r"on a typical workload: (\w)", make_sentence(made))
    least = [min("abc", key=lambda n, v=v: np.log(v[n]).mean()) for v in (jct, cost)]
    assert first == least


def test_a_lower_mean_of_another_policy_is_no_secret() -> None:
    made = comparison(
        {"a": [*ONE, 4e6], "b": [*times(2, ONE), 2e6]}, {"a": [1.0] * 13} | {"b": [1.0] * 13}
    )
    assert (
        "In the mean of all workloads, which those with most work decide, b is lowest: "
        "1.781 d against 3.561." in make_sentence(made)
    )


def test_costs_that_are_not_positive_are_compared_in_dollars() -> None:
    made = comparison({"a": ONE, "b": ONE}, {"a": [*ONE[1:], -2.0], "b": times(-1, ONE)})
    assert make_sentence(made).endswith(
        "There are no ratios of electricity cost, as some are not positive; "
        "in the mean b has the lowest, -1 against 0.75 of a."
    )


def test_a_few_workloads_get_no_interval_and_no_certainty() -> None:
    made = comparison({"a": RISING[:4], "b": NOISE[:4]}, {"a": ONE[:4], "b": ONE[:4]})
    text = make_sentence(made)
    assert text.endswith("Too few workloads (4) to say how sure that is.")
    assert "interval" not in text


def test_one_policy_is_compared_with_nothing() -> None:
    made = comparison({"a": ONE}, {"a": ONE})
    assert make_sentence(made) == "Only a was run: there is nothing to compare it with."


EIGHT = RISING[:8]


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 1e9, 1e30])
def test_numbers_of_any_size_stay_readable(scale: float) -> None:
    values = {"a": [scale * x for x in EIGHT], "b": EIGHT, "c": [x * x for x in EIGHT]}
    console = Console(width=80, file=io.StringIO(), markup=False)
    report.print_report(comparison(values, values), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert not re.search(r"nan|inf|…|\d{9}", text)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80


@pytest.mark.parametrize("preset", ["fig1", "tiny"])
def test_the_saved_scenario_loads_back_as_the_same(
    preset: str, command: CommandLine, tmp_path: Path
) -> None:
    out = tmp_path / "saved"
    command.run("--scenario", preset, "--episodes", "1", "--out", str(out))
    saved = load_scenario(out / "scenario.json")
    assert saved == load_scenario(preset)
    assert saved.fingerprint() == load_scenario(preset).fingerprint()


def test_folders_above_the_run_are_made(command: CommandLine) -> None:
    code, _, err = command.run(*SMALL, "--episodes", "1", "--out", "new/deep/run")
    assert (code, err) == (0, "")
    assert (command.folder / "new" / "deep" / "run" / "run.json").is_file()
    run = json.loads((command.folder / "new" / "deep" / "run" / "run.json").read_text())
    assert run["overrides"] == []


def test_results_say_what_was_overridden(command: CommandLine) -> None:
    changed = ("--set", "scale.bandwidth=0.5")
    out = command.run(*SMALL, *changed, "--episodes", "2", "--out", "run").out
    assert out.startswith("small, scale.bandwidth=0.5: 2 workloads; bace = 1")
    folder = command.folder / "run"
    assert json.loads((folder / "run.json").read_text())["overrides"] == ["scale.bandwidth=0.5"]
    assert (folder / "report.md").read_text().startswith("# small, scale.bandwidth=0.5\n")
