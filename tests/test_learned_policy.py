"""The policy `ppo`: model files, and that it does in the simulator what it does in training."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.explanation import Explains
from agents.policy import make_policy
from bace_env.config import load_scenario
from bace_env.episodes import Episodes
from bace_env.errors import ConfigError
from bace_env.scenario import Sampler
from bace_env.simulator import WAIT, Simulator
from eval.rollout import run_episode

pytest.importorskip("onnxruntime", reason="needs the extra ppo")
onnx: Any = pytest.importorskip("onnx", reason="needs the extra train")

from agents.ppo import METADATA, Model, Ppo, parse_settings  # noqa: E402

DEFAULT = Path(__file__).parents[1] / "agents" / "models" / "default.onnx"


@pytest.fixture
def model() -> Any:
    return onnx.load(DEFAULT)


def changed(model: Any, path: Path, **fields: Any) -> Path:
    header = json.loads(model.metadata_props[0].value) | fields
    onnx.helper.set_model_props(model, {METADATA: json.dumps(header)})
    path.write_bytes(model.SerializeToString())
    return path


def test_the_packages_model_is_small_and_says_what_it_is() -> None:
    assert DEFAULT.stat().st_size < 3_000_000
    header = Model().header
    assert header.slots == 8
    assert header.about["config"]["cost_weight"] == [0.0, 2.0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"features": "0" * 12}, "trained on other features: must be [0-9a-f]{12}, got 0{12}"),
        ({"format": 99}, "made by another version: its format must be 1, got 99"),
        ({"slots": 0}, "slots or budgets out of range"),
        ({"slots": "many"}, "lacks our header"),
        ({"surprise": 1}, "lacks our header"),
    ],
)
def test_a_model_that_does_not_match_is_refused(
    model: Any, tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    path = changed(model, tmp_path / "m.onnx", **fields)
    with pytest.raises(ConfigError, match=said):
        make_policy(f"ppo:{path}")


def test_what_is_no_model_is_refused(model: Any, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("not a model")
    del model.metadata_props[:]
    (tmp_path / "foreign.onnx").write_bytes(model.SerializeToString())
    for name, said in (
        ("none.onnx", "cannot read the model: No such file"),
        ("text.onnx", "not a model file"),
        ("foreign.onnx", "lacks our header"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            make_policy(f"ppo:{tmp_path / name}")
        assert "\n" not in str(caught.value)


def test_settings_are_a_path_and_lambda() -> None:
    assert parse_settings("runs/a,lambda=0.5") == (Path("runs/a"), 0.5)
    assert parse_settings("lambda=0") == (None, 0.0)
    for wrong in ("lambda=-1", "lambda=x", "lambda=inf", "a,b"):
        with pytest.raises(ValueError, match="lambda"):
            parse_settings(wrong)


def test_neither_torch_nor_pickle_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "onnx", "stable_baselines3"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    policy = make_policy("ppo")
    trace = run_episode(Sampler(load_scenario("tiny")).draw(0), policy)
    assert trace.finished.all()


@pytest.mark.jit
@pytest.mark.parametrize("scenario", ["paper", "physical", "fig1"])
def test_it_does_in_the_simulator_what_the_network_does_in_the_environment(scenario: str) -> None:
    policy, sampler = Ppo("lambda=0.7"), Sampler(load_scenario(scenario))
    episodes = Episodes(scenario, cost_weight=0.7)
    for seed in range(3):
        trace = run_episode(sampler.draw(seed), policy)
        episodes.seed(0, seed)
        episodes.begin([0])
        over = False
        while not over:
            found = episodes.observation(0)
            choice = policy._model.choose(type(episodes._batch.peek(0))(**found))
            over = bool(episodes.step(np.array([choice.action])).terminated[0])
        np.testing.assert_array_equal(trace.start_s, episodes.trace(0, "env").start_s)
        np.testing.assert_array_equal(trace.alloc, episodes.trace(0, "env").alloc)


def test_lambda_reaches_the_network() -> None:
    view = Simulator(Sampler(load_scenario("tiny")).draw(0)).view
    scores = [Ppo(f"lambda={weight}")._choose(view)[1].scores for weight in (0.0, 0.3, 2.0)]
    assert not np.allclose(scores[0], scores[1])
    assert not np.allclose(scores[1], scores[2])
    # Without lambda, that of the scenario.
    np.testing.assert_array_equal(Ppo()._choose(view)[1].scores, scores[1])


@pytest.mark.jit
@pytest.mark.parametrize(("jobs", "regions"), [(100, 6), (8, 3)])
def test_it_serves_other_numbers_of_jobs_and_regions(jobs: int, regions: int) -> None:
    scenario = load_scenario("paper", [f"workload.n_jobs={jobs}"])
    fewer = scenario.model_copy(update={"regions": scenario.regions[:regions]})
    trace = run_episode(Sampler(fewer).draw(0), Ppo())
    assert trace.finished.all()


def test_one_policy_serves_one_instance_after_another() -> None:
    policy = Ppo()
    for name, seed in (("tiny", 0), ("fig1", 0), ("tiny", 0)):
        instance = Sampler(load_scenario(name)).draw(seed)
        one, other = run_episode(instance, policy), run_episode(instance, Ppo())
        np.testing.assert_array_equal(one.start_s, other.start_s)


def test_it_explains_itself_and_stays_as_it_is() -> None:
    policy = Ppo()
    simulator = Simulator(Sampler(load_scenario("tiny")).draw(0))
    assert isinstance(policy, Explains)
    while not simulator.done:
        explanation = policy.explain(simulator.view)
        action = policy.act(simulator.view)
        assert explanation.action == action
        table = explanation.tables[0]
        shares = [row[-1] for row in table.rows]
        assert shares == sorted(shares, reverse=True)
        assert 0 < sum(shares) <= 100.0 + 1e-3
        assert table.rows[0][0] == (
            "wait" if action is WAIT else simulator.view.instance.job_names[action.job]
        )
        assert all(fact.value is not None for fact in explanation.facts)
        simulator.step(action)
