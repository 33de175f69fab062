"""`--gap`: distances to the bound and to the best known, from the episodes themselves."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine

from agents.policy import make_policy
from bace_env.config import load_scenario
from bace_env.scenario import Sampler, build_instance
from eval.bounds import lower_bounds
from eval.gap import Yardsticks, estimate_gap_closed, gap_values
from eval.known_schedules import find_schedule, play
from eval.rollout import run_episode

ARGUMENTS = (
    "--gap",
    "--no-baselines",
    "--policy",
    "bace",
    "--policy",
    "ldf",
    "--scenario",
    "small.toml",
)


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys)


@pytest.mark.jit
def test_the_numbers_follow_from_the_episodes(command: CommandLine) -> None:
    code, out, _ = command.run(*ARGUMENTS, "--episodes", "2", "--json", "-")
    assert code == 0
    report = json.loads(out)
    scenario = load_scenario("small.toml")
    instances = [build_instance(scenario, seed) for seed in report["seeds"]]
    bound = np.array([lower_bounds(i).objective for i in instances])
    known = np.array([play(i, find_schedule(i)).objective() for i in instances])

    def objectives(policy: str) -> np.ndarray:
        traces = [run_episode(i, make_policy(policy)) for i in instances]
        return np.array(
            [
                t.summary().avg_jct_s / i.jct_ref_s
                + i.cost_weight * t.cost_usd.sum() / i.cost_ref_usd
                for i, t in zip(instances, traces, strict=True)
            ]
        )

    bace = objectives("bace")
    for policy, found in report["policies"].items():
        mine = objectives(policy)
        assert found["above_bound"]["mean"] == pytest.approx((mine / bound - 1).mean())
        assert found["above_best_known"]["mean"] == pytest.approx((mine / known - 1).mean())
        closed = (bace - mine).mean() / (bace - known).mean()
        assert found["gap_closed"]["mean"] == pytest.approx(closed)


def test_shares_by_hand() -> None:
    # Two policies, two workloads; the second workload's bound is not positive.
    objective = np.array([[2.0, 3.0], [1.5, 4.0]])
    yardsticks = np.array([[1.0, -1.0], [1.25, 2.0], [2.0, 3.0]])
    found = gap_values(objective, yardsticks)
    np.testing.assert_allclose(found["above_bound"], [[1.0, np.nan], [0.5, np.nan]])
    np.testing.assert_allclose(found["above_best_known"], [[0.6, 0.5], [0.2, 1.0]])
    closed = estimate_gap_closed(objective, yardsticks)
    assert closed[0].mean == 0.0
    assert closed[1].mean == pytest.approx((0.5 - 1.0) / (0.75 + 1.0))


def test_without_bace_there_is_no_gap_to_close() -> None:
    yardsticks = np.array([[1.0, 1.0], [1.2, 1.2], [2.0, np.nan]])
    assert [e.mean for e in estimate_gap_closed(np.ones((2, 2)), yardsticks)] == [None, None]


@pytest.mark.jit
@pytest.mark.parametrize("columns", [50, 80, 160])
def test_the_note_explains_the_columns_that_are_shown(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    # The real ones take seconds, and the note does not depend on them.
    numbers = iter(np.random.default_rng(0).uniform(0.1, 0.4, (10, 1)))
    monkeypatch.setattr(Yardsticks, "of", lambda *_: next(numbers) * [1.0, 1.5, 9.0])
    _, out, _ = command.run(*ARGUMENTS, "--episodes", "10")
    head, _, notes = out.partition("───")
    notes = re.sub(r"\s+", " ", notes)
    assert max(map(len, out.splitlines())) <= columns
    for heading, note in {
        "JCT ratio": "Ratios to bace",
        "above bound": "lower bound of it",
        "gap closed": "Gap closed: share",
    }.items():
        assert (heading in head) == (note in notes), (heading, out)
    assert "95 % bootstrap interval" in notes


@pytest.mark.jit
def test_the_yardsticks_are_those_of_the_parts() -> None:
    scenario = load_scenario("tiny", ["workload.n_jobs=2"])
    instance = Sampler(scenario).draw(3)
    bound, best, bace = Yardsticks(scenario).of(instance)
    assert bound == lower_bounds(instance).objective
    assert best == play(instance, find_schedule(instance)).objective()
    assert bace == run_episode(instance, make_policy("bace")).objective()
    assert bound <= best <= bace


def test_without_it_nothing_is_added(command: CommandLine) -> None:
    args = ("--scenario", "small.toml", "--episodes", "2", "--json", "x.json", "--no-baselines")
    code, out, _ = command.run(*args)
    assert code == 0
    assert "best known" not in out
    assert (
        "gap_closed" not in json.loads((command.folder / "x.json").read_text())["policies"]["bace"]
    )
