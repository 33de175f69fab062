"""`python -m eval.robustness`: verdicts, conditions, reports, and what the command refuses."""

import csv
import importlib
import io
import json
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from command_line import SMALL as SCENARIO
from command_line import CommandLine, Outcome
from rich.console import Console

from bace_env.config import load_scenario
from bace_env.scenario import Sampler, build_instance
from bace_env.schema import PriceSeries
from bace_env.simulator import Simulator
from eval import disturbance, robustness, robustness_report
from eval.disturbance import (
    BASELINES,
    CLAIM,
    CONDITIONS,
    POLICIES,
    UNDISTURBED,
    Robustness,
    Verdict,
    World,
    judge,
    judge_all,
    measure,
    survival,
    vary_prices,
)
from eval.experiment import Request, run_comparison
from eval.statistics import Estimate

ROOT = Path(__file__).resolve().parents[1]
SMALL = ("--scenario", "small.toml")
HOLDS, UNCERTAIN, FAILS = Verdict.HOLDS, Verdict.UNCERTAIN, Verdict.FAILS


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys, module=robustness)


@pytest.mark.parametrize(
    ("interval", "threshold", "episodes", "verdict"),
    [
        ((0.25, 0.2, 0.3), 0.2, 100, HOLDS),
        ((1 - 1 / 1.25,) * 3, 0.2, 100, HOLDS),  # 0.2 but for rounding
        ((0.25, 0.19, 0.3), 0.2, 100, UNCERTAIN),
        ((0.2, 0.1, 0.3), 0.2, 100, UNCERTAIN),
        ((0.19, 0.1, 0.3), 0.2, 100, FAILS),  # only its upper end is above
        ((-0.3, -0.4, -0.2), 0.1, 100, FAILS),
        ((0.9, 0.8, 0.95), 0.2, 9, UNCERTAIN),  # too few for an interval
        ((0.1, 0.1, 0.1), 0.2, 1, FAILS),
        ((None, None, None), 0.1, 100, Verdict.UNDEFINED),
    ],
)
def test_a_gain_is_judged_by_its_interval(
    interval: tuple[Any, Any, Any], threshold: float, episodes: int, verdict: Verdict
) -> None:
    assert judge(Estimate(*interval), threshold, episodes) is verdict


def test_a_claim_is_as_good_as_its_worst_part() -> None:
    assert Verdict.worst([HOLDS, HOLDS]) is HOLDS
    assert Verdict.worst([HOLDS, UNCERTAIN, HOLDS]) is UNCERTAIN
    assert Verdict.worst([UNCERTAIN, Verdict.UNDEFINED]) is Verdict.UNDEFINED
    assert Verdict.worst([FAILS, Verdict.UNDEFINED, HOLDS]) is FAILS


def test_what_fails_undisturbed_cannot_survive() -> None:
    assert survival(HOLDS, HOLDS) == "survives"
    assert survival(HOLDS, UNCERTAIN) == "lost: not certain"
    assert survival(HOLDS, FAILS) == "lost: fails"
    assert survival(FAILS, HOLDS) == "holds (undisturbed: fails)"
    assert "survives" not in survival(UNCERTAIN, HOLDS)


def constructed(episodes: int = 40) -> dict[str, Any]:
    """Baselines with twice the JCT and 1.25 times the cost of the scheduler, but for one."""
    shape = len(CONDITIONS), len(POLICIES), episodes
    jct, cost = np.full(shape, 200.0), np.full(shape, 1.25)
    jct[:, 0], cost[:, 0] = 100.0, 1.0
    jct[5, 0] = 170.0  # one disturbance
    cost[:, 2] = 1.05
    workload = np.random.default_rng(0).uniform(0.1, 10, episodes)  # pairing takes it out
    zeros = np.zeros(shape)
    return {
        "avg_jct_s": jct * workload,
        "total_cost_usd": cost * workload,
        "refused_placements": zeros + np.arange(len(CONDITIONS))[:, None, None],
        "idle_waits": zeros,
    }


def test_outcomes_of_constructed_episodes() -> None:
    outcomes = judge_all(constructed())
    assert [outcome.condition for outcome in outcomes] == list(CONDITIONS)
    first, disturbed = outcomes[0], outcomes[5]
    assert [part.gain.mean for part in first.of("jct")] == pytest.approx([0.5] * 4)
    expected = [1 - 1 / 1.25, 1 - 1 / 1.05, 0.2, 0.2]
    assert [part.gain.mean for part in first.of("cost")] == pytest.approx(expected)
    assert [part.verdict for part in first.parts] == [HOLDS] * 5 + [FAILS] + [HOLDS] * 2
    assert first.verdict is FAILS
    assert [part.gain.mean for part in disturbed.of("jct")] == pytest.approx([0.15] * 4)
    assert {part.verdict for part in disturbed.of("jct")} == {FAILS}
    assert disturbed.policies[0].jct_change.mean == pytest.approx(1.7)
    assert disturbed.policies[1].jct_change.mean == pytest.approx(1.0)
    assert disturbed.policies[0].refused == 5.0


def in_words(values: dict[str, Any]) -> tuple[str, str]:
    """The sentence on one scenario, and the answer that begins the document."""
    world = World(load_scenario("tiny"))
    seeds = tuple(range(values["avg_jct_s"].shape[2]))
    found = Robustness(world, seeds, judge_all(values))
    answer = robustness_report.make_markdown([found]).splitlines()[2]
    return robustness_report.summary_line(found), answer


def test_the_answer_in_words() -> None:
    values = constructed()
    text, answer = in_words(values)
    assert text.startswith(
        "tiny: the claim does not hold even undisturbed, so it cannot survive a disturbance: cost "
        "saving fails against lcf (5 %). Of its 8 parts 7 hold undisturbed. Disturbances under "
        "which these parts hold, too: cost saving over ldf, cr-ldf, cr-lcf (every one); JCT gain "
        "over ldf, lcf, cr-ldf, cr-lcf (all but noise 30 %)."
    )
    assert "JCT +70.0 % (noise 30 %)" in text
    assert answer.startswith("**No**: ")
    assert answer.endswith("in 0 of 1 scenarios, and under every disturbance in 0.")
    values["total_cost_usd"][:, 2] *= 1.3 / 1.05
    text, answer = in_words(values)
    assert text.startswith("tiny: the claim holds undisturbed, and under 11 of 12 disturbances.")
    assert answer.endswith("in 1 of 1 scenarios, and under every disturbance in 0.")
    values["avg_jct_s"][5] = values["avg_jct_s"][4]
    text, answer = in_words(values)
    assert text.startswith("tiny: the claim holds undisturbed, and under 12 of 12 disturbances.")
    assert answer.startswith("**Yes**: ")


def test_a_gain_without_a_ratio_is_undefined() -> None:
    values = constructed()
    values["total_cost_usd"][3, 0, 7] = -1.0
    values["total_cost_usd"][3, 1, 7] = -2.0
    outcome = judge_all(values)[3]
    assert outcome.of("cost")[0].verdict is Verdict.UNDEFINED
    assert outcome.policies[1].cost_change.mean is None


def test_conditions_are_those_of_the_review_and_more() -> None:
    assert CONDITIONS[0] is UNDISTURBED
    monitoring = {condition.monitoring for condition in CONDITIONS}
    review = {"delay=0.005", "delay=0.02", "noise=0.1", "noise=0.3", "noise=0.3,delay=0.02"}
    assert review | {"delay=1", "delay=600"} <= monitoring
    assert len({condition.name for condition in CONDITIONS}) == len(CONDITIONS)
    changing = [condition.prices_change for condition in CONDITIONS]
    assert changing == sorted(changing)  # in the order in which the worlds are run
    assert any(changing)
    assert CLAIM == {"jct": 0.2, "cost": 0.1}


def test_changing_prices_keep_their_mean_and_everything_else() -> None:
    scenario = load_scenario("paper")
    varied = vary_prices(scenario, 5)
    assert varied == vary_prices(scenario, 5)
    assert varied != vary_prices(scenario, 6)
    shapes = []
    for plain, region in zip(scenario.regions, varied.regions, strict=True):
        series = region.price_usd_per_kwh
        assert isinstance(series, PriceSeries)
        values = np.array(series.values)
        assert (values.size, series.step_h, series.beyond) == (168, 1.0, "repeat")
        assert values.min() > 0
        assert values.mean() == pytest.approx(plain.price_usd_per_kwh, rel=1e-12)
        shapes.append(values / values.mean())
        # The daily wave: amplitude 0.35 at one cycle per day, plus residuals.
        wave = 2 * abs(np.fft.rfft(shapes[-1])[7]) / values.size
        assert wave == pytest.approx(0.35, abs=0.15)
    assert np.abs(np.corrcoef(shapes) - np.eye(len(shapes))).max() < 0.95
    plain_arrays, arrays = (build_instance(s, 3).arrays for s in (scenario, varied))
    for field in plain_arrays._fields:
        if "price" not in field and field != "ref_usd_per_gpu_s":
            np.testing.assert_array_equal(getattr(plain_arrays, field), getattr(arrays, field))


def test_a_price_series_is_kept(tmp_path: Path) -> None:
    override = "regions.EU-West.price_usd_per_kwh={ values = [1.0, 2.0], step_h = 3.0 }"
    scenario = load_scenario("paper", [override])
    assert vary_prices(scenario, 0).regions[0] == scenario.regions[0]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Robustness:
    file = tmp_path_factory.mktemp("scenario") / "small.toml"
    file.write_text(SCENARIO)
    return measure(World(load_scenario(file)), seed=3, episodes=12)


def test_the_undisturbed_gain_is_that_of_the_comparison(small: Robustness) -> None:
    request = Request(small.world.scenario, POLICIES)
    comparison = run_comparison(request, seed=3, episodes=12)
    assert small.seeds == comparison.seeds
    for quantity in CLAIM:
        ratios = comparison.estimates[f"typical_{quantity}_ratio"][1:]
        for part, ratio in zip(small.undisturbed.of(quantity), ratios, strict=True):
            if ratio.mean is None:
                assert part.verdict is Verdict.UNDEFINED
                continue
            for gain, value in zip(
                (part.gain.mean, part.gain.low, part.gain.high),
                (ratio.mean, ratio.low, ratio.high),
                strict=True,
            ):
                assert value is not None
                assert gain == pytest.approx(1 - 1 / value, abs=1e-9)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_table_fits_the_terminal(width: int, small: Robustness) -> None:
    console = Console(width=width, record=True, file=io.StringIO())
    robustness_report.print_report([small], console)
    out = console.export_text()
    assert max(map(len, out.splitlines())) <= width
    assert ("cost of bace" in out) == (width >= 100)
    assert "-0 " not in out
    assert "-0.0" not in out


def run_twice(command: CommandLine, *args: str) -> tuple[Outcome, Outcome]:
    one = command.run(*SMALL, "--episodes", "3", "--out", "one", *args)
    return one, command.run(*SMALL, "--episodes", "3", "--out", "two", *args)


def test_the_same_seed_gives_the_same_bytes(command: CommandLine) -> None:
    one, two = run_twice(command, "--check")
    assert (one.code, one.err) == (0, "")
    assert one == two
    assert f"Checked: {len(CONDITIONS) * len(POLICIES) * 3} schedules re-derived" in one.out
    assert "Fewer than 10 workloads: no intervals, so nothing can hold." in one.out
    files = command.files()
    names = {"gains.csv", "policies.csv", "report.md", "robustness.png", "run.json", "summary.json"}
    assert {name.removeprefix("one/") for name in files if name.startswith("one/")} == names
    for name in names:
        assert files[f"one/{name}"] == files[f"two/{name}"], name
    assert files["one/robustness.png"].startswith(b"\x89PNG")


def test_processes_are_passed_on(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def alone(request: Request, *, workers: int, **options: Any) -> Any:
        asked.append(workers)
        return run_comparison(request, workers=1, **options)

    monkeypatch.setattr(disturbance, "run_comparison", alone)
    assert command.run("--scenario", "tiny", "--episodes", "1", "--workers", "2").code == 0
    assert asked == [2, 2]


def estimate(row: dict[str, str], prefix: str = "") -> Estimate:
    cells = (row[f"{prefix}{key}"] for key in ("gain", "low", "high"))
    return Estimate(*(float(cell) if cell else None for cell in cells))


def test_the_files_agree_and_verdicts_follow_from_the_csv(command: CommandLine) -> None:
    args = ("--scenario", "tiny", *SMALL, "--episodes", "10", "--seed", "1")
    code, out, _ = command.run(*args, "--out", "run", "--json", "-", "--plot", "gains.svg")
    assert code == 0
    data = json.loads(out)
    assert data == json.loads((command.folder / "run" / "summary.json").read_text())
    assert list(data["scenarios"]) == ["tiny", "small"]
    with (command.folder / "run" / "gains.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(CONDITIONS) * len(CLAIM) * len(BASELINES)
    for row in rows:
        threshold = CLAIM[row["quantity"]]
        assert float(row["threshold"]) == threshold
        assert row["verdict"] == judge(estimate(row), threshold, 10)
        plain = estimate(row, "undisturbed_")
        assert row["undisturbed_verdict"] == judge(plain, threshold, 10)
        found = data["scenarios"][row["scenario"]]["conditions"][row["condition"]]
        part = found["gains"][row["quantity"]][row["baseline"]]
        assert part["verdict"] == row["verdict"]
        assert part["mean"] == estimate(row).mean
        assert part["undisturbed"]["mean"] == plain.mean
    with (command.folder / "run" / "policies.csv").open() as file:
        policies = list(csv.DictReader(file))
    assert len(policies) == 2 * len(CONDITIONS) * len(POLICIES)
    late = [row for row in policies if row["condition"] == "stale 10 min"]
    assert any(float(row["refused_placements"]) > 0 for row in late)
    for row in policies:
        if row["condition"] == "undisturbed":
            assert (float(row["jct_change"]), float(row["refused_placements"])) == (1.0, 0.0)
    assert b"<svg" in command.files()["gains.svg"]


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("--scenario", "papre"), r"scenario: unknown preset 'papre'; did you mean 'paper'\?.*"),
        (("--scenario", "no.toml"), r"scenario no\.toml: cannot read: .*"),
        ((*SMALL, "--scenario", "./small.toml"), "--scenario: names must differ.*'small' twice"),
        ((*SMALL, "--set", "colour=1"), r"scenario small\.toml: colour: unknown key"),
        (("--set", "colour=1"), "scenario paper: colour: unknown key"),
        ((*SMALL, "--set", "regions.north.gpus=0"), r".*regions\.north\.gpus: .*, got 0"),
        ((*SMALL, "--episodes", "0"), "Invalid value for .*must be an integer from 1.*got '0'"),
        ((*SMALL, "--seed", "-1"), "Invalid value for .*must be an integer from 0.*got '-1'"),
        ((*SMALL, "--workers", "many"), "Invalid value for .*must be an integer.*got 'many'"),
        ((*SMALL, "--out", "small.toml"), r"--out small\.toml: exists; .*"),
        ((*SMALL, "--plot", "gains.gif"), r"--plot gains\.gif: must end in one of .*"),
        ((*SMALL, "--json", "no/x.json"), r"--json no/x\.json: no such folder no"),
        ((*SMALL, "--plot", "a.png", "--json", "a.png"), ".*different paths, got .*"),
        ((*SMALL, "--policy", "bace"), "No such option: --policy.*"),
        (("paper",), r"Got unexpected extra argument\(s\) \(paper\)"),
    ],
)
def test_bad_input_is_answered_by_one_line_and_nothing_is_written(
    args: tuple[str, ...], error: str, command: CommandLine
) -> None:
    before = command.files()
    code, out, err = command.run(*args)
    assert re.fullmatch(f"error: {error}\n", err)
    assert (code, out) == (2, "")
    assert command.files() == before


def test_an_interrupted_run_leaves_nothing_behind(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(disturbance, "run_comparison", interrupted)
    before = command.files()
    code, out, err = command.run(*SMALL, "--out", "run", "--json", "x.json", "--plot", "x.png")
    assert (code, out, err) == (130, "", "interrupted\n")
    assert command.files() == before


MARKS = {"✓": HOLDS, "?": UNCERTAIN, "✗": FAILS}


def test_the_committed_document_marks_its_numbers_rightly() -> None:
    text = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
    for title in ("paper", "physical", "paper, scale.bandwidth=0.3"):
        assert f"\n### {title}\n" in text
    rows = [line.split("|")[1:-1] for line in text.splitlines() if re.search("[✓✗]", line)]
    rows = [[cell.strip() for cell in row] for row in rows if len(row) == 9]
    assert [row[0] for row in rows] == 3 * [condition.name for condition in CONDITIONS]
    thresholds = [100 * share for share in CLAIM.values() for _ in BASELINES]
    for row in rows:
        for cell, threshold in zip(row[1:], thresholds, strict=True):
            found = re.fullmatch(r"(-?\d+) % \[(-?\d+), (-?\d+)\] (.)", cell)
            assert found is not None, cell
            mean, low, high = (int(found[i]) for i in (1, 2, 3))
            assert low <= mean <= high
            if threshold not in (mean, low):  # rounded: either may be meant
                verdict = judge(Estimate(mean, low, high), threshold, 100)
                assert MARKS[found[4]] is verdict, cell


def test_the_volume_of_a_refresh_is_that_of_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    overhead = importlib.import_module("overhead")
    view = Simulator(Sampler(load_scenario("paper")).draw(0)).view
    packed = overhead.collect(view)
    regions, jobs = 6, 8
    expected = 8 * (regions + regions * (regions - 1) + regions + 4 * jobs)
    assert sum(map(len, packed.values())) == expected
    assert np.frombuffer(packed["free GPUs"], np.int64).tolist() == [64, 64, 16, 128, 32, 32]
    assert np.frombuffer(packed["prices"]).tolist() == [0.251, 0.156, 0.288, 0.191, 0.222, 0.295]
