"""The grid of assumptions and the search over it."""

import json
import math
import tomllib
from pathlib import Path

import numpy as np
import pytest

from agents.heuristic import heuristic_options
from bace_env.config import load_scenario
from bace_env.errors import ConfigError, DeadlockError
from bace_env.scenario import build_instance
from bace_env.schema import Scenario
from eval import assumption_search, assumptions, effects
from eval.assumption_report import preset_text, save_search
from eval.assumption_search import Plan, run_search
from eval.assumptions import (
    ASSUMPTIONS,
    PAPER_SETTING,
    SCORED,
    Result,
    Setting,
    evaluate,
    log_metrics,
    neighbours,
    options_of,
    overrides_of,
    random_setting,
    score,
)
from eval.claims import CLAIMS
from eval.reproduction import judge_claims, run_setting, settings_of

ROOT = Path(__file__).parents[1]


def test_a_deadlock_is_an_error_that_names_the_policy() -> None:
    regions = [{"name": name, "gpus": 2, "price_usd_per_kwh": 0.1} for name in "ab"]
    made = build_instance(
        Scenario.model_validate(
            {
                "name": "x",
                "regions": regions,
                "network": {
                    "rule": "listed",
                    "links": [{"source": "a", "target": "b", "gbps": 9.0}],
                },
                "models": [
                    {
                        "name": "m",
                        "activation_mb": 1.0,
                        "k_min": 3,
                        "measured": {"gpus": [1, 4], "t_comp_ms": [400.0, 100.0]},
                    }
                ],
                "jobs": [{"name": "j", "model": "m", "batch_size": 4, "iterations": 5}],
            }
        ),
        0,
    )
    log_metrics([made], {"bace": heuristic_options("bace")})
    with pytest.raises(DeadlockError, match="lcf waits although nothing lies ahead"):
        log_metrics([made], {"bace": heuristic_options("bace"), "lcf": heuristic_options("lcf")})


def test_a_setting_that_cannot_be_run_has_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError("no")

    for raised in (refuse, _deadlock):
        monkeypatch.setattr(assumptions, "log_metrics", raised)
        result = evaluate(PAPER_SETTING, 0, 1)
        assert not result.values and result.problem
        assert result.score == math.inf
        assert not any(hold.share for hold in effects.claim_holds([result]))


def _deadlock(*_: object) -> None:
    raise DeadlockError("bace waits")


# --- The grid ------------------------------------------------------------------------------------


def test_the_first_levels_are_the_preset_paper() -> None:
    assert overrides_of(PAPER_SETTING) == []
    assert options_of(PAPER_SETTING) == {}


def test_every_level_changes_something_and_all_go_together() -> None:
    paper = load_scenario("paper")
    for i, assumption in enumerate(ASSUMPTIONS):
        assert len({level.name for level in assumption.levels}) == len(assumption.levels)
        for level in range(1, len(assumption.levels)):
            setting = (*PAPER_SETTING[:i], level, *PAPER_SETTING[i + 1 :])
            changed = load_scenario("paper", overrides_of(setting)) != paper
            assert changed or options_of(setting), assumption.levels[level].name
    for index in range(40):
        setting = random_setting(1, index)
        load_scenario("paper", overrides_of(setting))
        for policy, options in options_of(setting).items():
            heuristic_options(f"{policy}:{options}")


def test_neighbours_differ_in_one_assumption() -> None:
    setting = random_setting(0, 7)
    found = list(neighbours(setting))
    assert len(set(found)) == len(found) == sum(len(a.levels) - 1 for a in ASSUMPTIONS)
    for other in found:
        assert sum(a != b for a, b in zip(setting, other, strict=True)) == 1


def test_random_settings_are_uniform_and_depend_on_seed_and_index_alone() -> None:
    drawn = np.array([random_setting(3, index) for index in range(3000)])
    assert random_setting(3, 17) == tuple(drawn[17].tolist())
    for i, assumption in enumerate(ASSUMPTIONS):
        n = len(assumption.levels)
        counts = np.bincount(drawn[:, i], minlength=n)
        assert counts.size == n
        assert np.abs(counts - 3000 / n).max() < 5 * math.sqrt(3000 / n)


# --- Values and scores ---------------------------------------------------------------------------


def test_score_by_hand() -> None:
    exact = {claim.name: claim.value for claim in SCORED if claim.value is not None}
    assert score(exact) == 0.0
    off = {name: value * 1.1 for name, value in exact.items()}
    assert score(off) == pytest.approx(math.log(1.1) ** 2)
    one = {**exact, SCORED[0].name: exact[SCORED[0].name] / 2}
    assert score(one) == pytest.approx(math.log(2) ** 2 / len(SCORED))


@pytest.mark.jit
@pytest.mark.parametrize("index", [None, 5])
def test_values_of_a_setting_are_those_of_the_reproduction(
    index: int | None, tmp_path: Path
) -> None:
    """The compiled search and the run that reports are two ways to the same numbers."""
    setting = PAPER_SETTING if index is None else random_setting(0, index)
    values = evaluate(setting, seed=4, draws=2).values
    plan = Plan(0, 2, 1, 1)
    result = Result(setting, values)
    file = tmp_path / "setting.toml"
    file.write_text(preset_text(assumption_search.Outcome(plan, (result,), (), (result,), result)))
    runs = {name: run_setting(str(file), name, 4, 2) for name in settings_of(["4", "5", "6", "7"])}
    for judged in judge_claims(runs, ["4", "5", "6", "7", "8"]):
        assert judged.ours.mean == pytest.approx(values[judged.claim.name], rel=1e-9)


def test_a_preset_says_the_same_as_its_setting() -> None:
    for index in (0, 3, 8, 21):
        setting = random_setting(2, index)
        result = Result(setting, {claim.name: 1.0 for claim in CLAIMS})
        outcome = assumption_search.Outcome(Plan(0, 2, 1, 1), (result,), (), (result,), result)
        text = preset_text(outcome)
        made = load_scenario("paper", overrides_of(setting)).model_dump()
        made |= {"name": "paper-fitted", "policies": options_of(setting)}
        found = load_text(text)
        assert {**found.model_dump(), "description": made["description"]} == made


def load_text(text: str) -> Scenario:
    return Scenario.model_validate(tomllib.loads(text))


def test_the_committed_preset_is_the_best_of_the_committed_search() -> None:
    summary = json.loads((ROOT / "docs/assumptions/summary.json").read_text("utf-8"))
    setting: Setting = tuple(
        [level.name for level in assumption.levels].index(summary["best"][assumption.name])
        for assumption in ASSUMPTIONS
    )
    fitted = load_scenario("paper-fitted")
    expected = load_scenario("paper", overrides_of(setting))
    changes = {"name": fitted.name, "description": fitted.description, "policies": fitted.policies}
    assert fitted == expected.model_copy(update=changes)
    assert fitted.policies == options_of(setting)
    # It beats the scenario that it started from, on workloads that the search did not see.
    assert summary["best_score"] < summary["paper_score"]


# --- The search ----------------------------------------------------------------------------------

PLAN = Plan(seed=0, settings=30, draws=1, starts=3, finalists=5, final_draws=2)


class StopError(Exception):
    pass


def separable(setting: Setting, seed: int, draws: int) -> Result:
    """A made-up score: each assumption adds its level, so level 0 everywhere is best."""
    off = math.exp(math.sqrt(sum(setting)))
    return Result(setting, {claim.name: (claim.value or 1.0) * off for claim in CLAIMS})


def test_the_search_finds_the_best_where_assumptions_do_not_interact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assumption_search, "evaluate", separable)
    found = run_search(PLAN, tmp_path / "a.json")
    assert found.best.setting == PAPER_SETTING
    assert found.best.score == 0.0
    assert [result.setting for result in found.random] == [random_setting(0, i) for i in range(30)]
    scores = [result.score for result in found.finalists]
    assert scores == sorted(scores) and len(scores) >= 5


def test_an_interrupted_search_goes_on_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: list[tuple[Setting, int, int]] = []

    def counted(setting: Setting, seed: int, draws: int) -> Result:
        evaluated.append((setting, seed, draws))
        return separable(setting, seed, draws)

    def stop_at(stage_start: str, at: int) -> None:
        def on_progress(stage: str, done: int, total: int) -> None:
            if stage.startswith(stage_start) and done >= at:
                raise StopError

        with pytest.raises(StopError):
            run_search(PLAN, tmp_path / "a.json", on_progress=on_progress)

    monkeypatch.setattr(assumption_search, "evaluate", counted)
    whole = run_search(PLAN, tmp_path / "b.json")
    alone = len(evaluated)
    evaluated.clear()
    stop_at("random", 16)
    assert len(json.loads((tmp_path / "a.json").read_text())["results"]) == 16
    stop_at("improving", 16)
    stop_at("finalists", 6)
    again = run_search(PLAN, tmp_path / "a.json")
    assert again == whole
    # Nothing was run twice, but for the one evaluation with which each of the runs begins.
    assert len(evaluated) == alone + 3

    # The state of another grid, and what is no state, are refused.
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "d.json").write_text(text.replace(json.loads(text)["identity"], "0"))
    with pytest.raises(ConfigError, match="is of a search over another grid"):
        run_search(PLAN, tmp_path / "d.json")
    (tmp_path / "c.json").write_text("[]")
    with pytest.raises(ConfigError, match="is not the state of a search"):
        run_search(PLAN, tmp_path / "c.json")

    (tmp_path / "report").mkdir()
    save_search(whole, tmp_path / "report")
    files = {str(p.relative_to(tmp_path / "report")) for p in (tmp_path / "report").rglob("*.*")}
    assert files == {
        "assumptions.md",
        "assumptions/effects.png",
        "assumptions/summary.json",
        "paper-fitted.toml",
    }
    first = {file: (tmp_path / "report" / file).read_bytes() for file in files}
    save_search(again, tmp_path / "report")
    assert {file: (tmp_path / "report" / file).read_bytes() for file in files} == first


@pytest.mark.jit
def test_processes_do_not_change_the_outcome(tmp_path: Path) -> None:
    plan = Plan(seed=3, settings=20, draws=1, starts=0, finalists=2, final_draws=1)
    alone = run_search(plan, tmp_path / "a.json")
    assert run_search(plan, tmp_path / "b.json", workers=2) == alone


# --- Effects -------------------------------------------------------------------------------------


def test_effects_of_a_score_that_one_assumption_makes() -> None:
    # The score is the level of assumption 0 plus 1, whatever the others are: it explains all.
    made = []
    for index in range(400):
        setting = random_setting(9, index)
        factor = math.exp(math.sqrt(setting[0] + 1))
        values = {c.name: (c.value or 1.0) * factor for c in CLAIMS}
        made.append(Result(setting, values))
    first, *others = effects.main_effects(made)
    assert first.share == pytest.approx(1.0)
    assert first.jct == pytest.approx(range(1, len(first.levels) + 1))
    assert first.cost == pytest.approx(first.jct)
    assert max(effect.share for effect in others) < 0.05


def test_claims_hang_on_the_assumption_that_decides_them() -> None:
    made = []
    for index in range(300):
        setting = random_setting(4, index)
        exact = setting[2] == 1  # the claims hold at this level alone
        made.append(Result(setting, {c.name: (c.value or 2.0) if exact else 0.5 for c in CLAIMS}))
    share = sum(result.setting[2] == 1 for result in made) / 300
    for hold in effects.claim_holds(made):
        assert hold.share == pytest.approx(share)
        assert hold.assumption == ASSUMPTIONS[2].name
        assert hold.most == (ASSUMPTIONS[2].levels[1].name, 1.0)
        assert hold.least[1] == 0.0
