"""Runs are read back as they were, and nothing else is taken for one."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import SMALL

from agents.policy import make_policy
from bace_env.config import load_scenario
from bace_env.errors import ConfigError
from bace_env.scenario import build_instance, episode_seed
from eval import compare
from eval.rollout import run_episode
from eval.saved import SavedRun, open_trace

POLICIES = ("bace:patience=0.5", "random", "cr-ldf")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three policies and two workloads."""
    folder = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        (folder / "small.toml").write_text(SMALL)
        patch.chdir(folder)
        options = [part for policy in POLICIES for part in ("--policy", policy)]
        options += ["--scenario", "small.toml", "--episodes", "2", "--seed", "3", "--no-baselines"]
        patch.setattr("sys.argv", ["eval.compare", *options, "--out", "run"])
        with pytest.raises(SystemExit) as stopped:
            compare.main()
        assert not stopped.value.code
    return folder / "run"


def copy_of(made: Path, target: Path) -> Path:
    for file in made.rglob("*.json"):
        place = target / file.relative_to(made)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
    return target


def test_every_episode_is_read_back_as_it_was(made: Path) -> None:
    run = SavedRun(made)
    assert run.names == POLICIES
    assert run.seeds == (episode_seed(3, 0), episode_seed(3, 1))
    scenario = load_scenario(made.parent / "small.toml")
    for spec in POLICIES:
        for seed in run.seeds:
            loaded = run.load(run.policy_name(spec), seed)
            expected = run_episode(build_instance(scenario, seed), make_policy(spec))
            for field in dataclasses.fields(expected):
                if field.name in ("instance", "decisions"):
                    continue
                got, wanted = getattr(loaded, field.name), getattr(expected, field.name)
                np.testing.assert_array_equal(got, wanted, err_msg=field.name)
            assert [d[:2] for d in loaded.decisions] == [d[:2] for d in expected.decisions]
            file = made / "traces" / run.load(spec, seed).policy.replace(":", "_") / f"{seed}.json"
            stored = json.loads(file.read_text())
            taken = [d["decision_us"] for d in stored["decisions"]]
            assert [d.decision_ns / 1000 for d in loaded.decisions] == pytest.approx(taken)


def test_a_trace_knows_its_run(made: Path) -> None:
    seed = episode_seed(3, 1)
    run, policy, number = open_trace(made / "traces" / "random" / f"{seed}.json")
    assert (run.folder.resolve(), policy, number) == (made.resolve(), "random", seed)


Edit = Callable[[dict[str, Any]], None]


def edited(*path: str | int, to: Any) -> Edit:
    """Sets the entry of that path."""

    def edit(data: dict[str, Any]) -> None:
        node: Any = data
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = to

    return edit


def without_gpus(data: dict[str, Any]) -> None:
    del data["jobs"][0]["gpus"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (edited("jobs", 0, "finish_s", to=1.0), r"jobs\.0\.finish_s: must be .* got 1$"),
        (edited("jobs", 1, "cost_usd", to=0.5), r"jobs\.1\.cost_usd: must be .*, got 0\.5"),
        (edited("jobs", 1, "start_s", to=None), r"jobs\.1\.start_s: must be .*, got nan"),
        (edited("jobs", 0, "path", to=["atlantis"]), r"jobs\.0\.path: unknown region 'atlantis'"),
        (edited("jobs", 0, "gpus", to=[99]), r"decision 0 cannot be carried out: .*"),
        (edited("jobs", 0, "gpus", to=[1.5]), r"is not what .*: jobs\.0\.gpus\.0: .*integer.*"),
        (without_gpus, r"is not what .*: jobs\.0\.gpus: Field required"),
        (edited("jobs", 0, "name", to="other"), r"its jobs are not those of scenario\.json .*"),
        (edited("jobs", to=[]), r"its jobs are not those of scenario\.json .*"),
        (edited("decisions", to=[]), r"its decisions end before all jobs are finished"),
        (edited("decisions", 0, "job", to=77), r"decisions: there is no job 77"),
        (edited("policy", to="lcf"), r"must be of policy bace:patience=0\.5, seed 3, got lcf, .*"),
        (edited("seed", to=4), r"must be of policy .*, got .* seed 4"),
    ],
)
def test_an_edited_trace_is_refused(edit: Edit, message: str, made: Path, tmp_path: Path) -> None:
    run = SavedRun(copy_of(made, tmp_path / "run"))
    file = tmp_path / "run" / "traces" / "bace_patience=0.5" / "3.json"
    data = json.loads(file.read_text())
    edit(data)
    file.write_text(json.dumps(data))
    with pytest.raises(ConfigError) as error:
        run.load("bace:patience=0.5", 3)
    assert re.fullmatch(rf"{re.escape(str(file))}: {message}", str(error.value))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"policies": "x", "seeds": 1}'])
@pytest.mark.parametrize("name", ["run.json", "summary.json", "traces/random/3.json"])
def test_a_broken_file_is_named(name: str, content: bytes, made: Path, tmp_path: Path) -> None:
    folder = copy_of(made, tmp_path / "run")
    (folder / name).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"{re.escape(str(folder / name))}: is not what .*"):
        SavedRun(folder).load("random", 3)


def test_a_changed_scenario_is_noticed(made: Path, tmp_path: Path) -> None:
    folder = copy_of(made, tmp_path / "run")
    data = json.loads((folder / "scenario.json").read_text())
    data["gpu"]["power_w"] *= 2
    (folder / "scenario.json").write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=r"jobs\.0\.energy_kwh: must be .* by scenario\.json"):
        SavedRun(folder).load("random", 3)


def test_what_is_not_there_is_said(made: Path, tmp_path: Path) -> None:
    run = SavedRun(made)
    with pytest.raises(ConfigError, match=r"has no policy 'randm'; did you mean 'random'\?"):
        run.policy_name("randm")
    with pytest.raises(ConfigError, match=rf"has no seed 8; it has 3, {run.seeds[1]}"):
        run.load("random", 8)
    with pytest.raises(ConfigError, match=r"is no run of eval\.compare --out \(it has no run"):
        SavedRun(tmp_path)
    alone = tmp_path / "3.json"
    alone.write_bytes((made / "traces" / "random" / "3.json").read_bytes())
    with pytest.raises(ConfigError, match=r"must lie in its run, as RUN/traces/POLICY/SEED\.json"):
        open_trace(alone)
    with pytest.raises(ConfigError, match="cannot read: No such file or directory"):
        open_trace(tmp_path / "none.json")
