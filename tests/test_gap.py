"""Distances to the bound and to the best known: by hand, and through `eval.compare --gap`."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import SMALL as SMALL_SCENARIO
from command_line import CommandLine

from agents.policy import make_policy
from bace_env.config import load_scenario
from bace_env.scenario import Sampler
from eval.bounds import lower_bounds
from eval.gap import Yardsticks, estimate_gap_closed, gap_values
from eval.known_schedules import find_schedule, play
from eval.rollout import run_episode

#              bound, best known, bace of two workloads
YARDSTICKS = np.array([[1.0, 2.0], [1.1, 2.5], [1.5, 3.5]])


def test_the_distances_by_hand() -> None:
    objective = np.array([[1.5, 3.5], [1.1, 2.5], [1.3, 4.0]])
    found = gap_values(objective, YARDSTICKS)
    assert found["above_bound"] == pytest.approx(np.array([[0.5, 0.75], [0.1, 0.25], [0.3, 1.0]]))
    best = np.array([[0.4 / 1.1, 0.4], [0.0, 0.0], [0.2 / 1.1, 0.6]])
    assert found["above_best_known"] == pytest.approx(best)
    closed = estimate_gap_closed(objective, YARDSTICKS)
    # Of the 0.4 + 1.0 between bace and the best known: 0, all, and 0.2 - 0.5.
    assert [estimate.mean for estimate in closed] == pytest.approx([0.0, 1.0, -0.3 / 1.4])


def test_shares_that_do_not_exist_are_none() -> None:
    yardsticks = np.array([[-1.0, 2.0], [0.0, 2.5], [np.nan, 3.5]])
    found = gap_values(np.array([[1.0, 4.0]]), yardsticks)
    assert np.isnan(found["above_bound"][0, 0])
    assert np.isnan(found["above_best_known"][0, 0])
    assert found["above_bound"][0, 1] == 1.0
    assert estimate_gap_closed(np.array([[1.0, 4.0]]), yardsticks)[0].mean is None
    same = np.array([[1.0], [2.0], [2.0]])  # BACE-Pipe is the best known
    assert estimate_gap_closed(np.array([[3.0]]), same)[0].mean is None


@pytest.mark.jit
def test_the_yardsticks_are_those_of_the_parts() -> None:
    scenario = load_scenario("tiny", ["workload.n_jobs=2"])
    instance = Sampler(scenario).draw(3)
    bound, best, bace = Yardsticks(scenario).of(instance)
    assert bound == lower_bounds(instance).objective
    assert best == play(instance, find_schedule(instance)).objective()
    assert bace == run_episode(instance, make_policy("bace")).objective()
    assert bound <= best <= bace


@pytest.mark.jit
def test_compare_reports_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = CommandLine(tmp_path, monkeypatch, capsys)
    assert SMALL_SCENARIO
    args = ("--scenario", "small.toml", "--episodes", "4", "--gap", "--no-baselines")
    policies = ("--policy", "search", "--policy", "bace", "--policy", "ldf")
    code, out, _ = command.run(*args, *policies, "--json", "found.json")
    assert code == 0
    assert "above best known" in out
    data = json.loads((tmp_path / "found.json").read_text())
    rows = {name: [r for r in data["episodes"] if r["policy"] == name] for name in data["policies"]}
    for name, episodes in rows.items():
        for k, row in enumerate(episodes):
            assert row["above_bound"] >= row["above_best_known"] >= -1e-9
            # bound and best known are the same for every policy
            for key in ("above_bound", "above_best_known"):
                mine = row["objective"] / (1 + row[key])
                other = rows["bace"][k]["objective"] / (1 + rows["bace"][k][key])
                assert mine == pytest.approx(other, rel=1e-9)
        total = sum(row["objective"] for row in episodes)
        bace = sum(row["objective"] for row in rows["bace"])
        best = sum(row["objective"] / (1 + row["above_best_known"]) for row in episodes)
        closed = data["policies"][name]["gap_closed"]["mean"]
        assert closed == pytest.approx((bace - total) / (bace - best), rel=1e-6, abs=1e-9)


def test_without_it_nothing_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = CommandLine(tmp_path, monkeypatch, capsys)
    args = ("--scenario", "small.toml", "--episodes", "2", "--json", "found.json", "--no-baselines")
    code, out, _ = command.run(*args)
    assert code == 0
    assert "best known" not in out
    assert "gap_closed" not in json.loads((tmp_path / "found.json").read_text())["policies"]["bace"]
