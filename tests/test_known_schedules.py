"""Best known schedules: never worse than what they start from, the same again, kept in files."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import make_instance, random_instance

from agents.policy import make_policy
from agents.replay import Schedule
from agents.search import PORTFOLIO
from bace_env.checker import check_trace
from bace_env.config import load_scenario
from bace_env.errors import ConfigError, DeadlockError
from bace_env.instance import Instance
from bace_env.scenario import Sampler, build_instance, episode_seed
from bace_env.schema import Scenario
from bace_env.simulator import WAIT, Placement, Simulator
from eval.known_schedules import Known, digest, find_many, find_schedule, play, schedule_of
from eval.rollout import run_episode

BRIEFLY = {"simulations_per_job": 20, "restarts": 1}
CHANGING = "regions.dear.price_usd_per_kwh={values=[0.3,-0.1,0.2],step_h=0.1}"


def objective(instance: Instance, policy: str) -> float:
    try:
        return run_episode(instance, make_policy(policy)).objective()
    except DeadlockError:
        return np.inf


def workloads(overrides: list[str], number: int = 2) -> tuple[Scenario, list[Instance]]:
    scenario = load_scenario("tiny", overrides)
    return scenario, [build_instance(scenario, episode_seed(0, i)) for i in range(number)]


# --- The search ----------------------------------------------------------------------------------


@pytest.mark.jit
def test_never_worse_than_searching_or_any_heuristic_and_the_same_again() -> None:
    rng, seen, better = np.random.default_rng(0), 0, 0
    while seen < 14:
        instance = random_instance(rng, max_regions=4, max_jobs=6)
        bace = objective(instance, "bace")
        schedule = find_schedule(instance, **BRIEFLY)
        assert find_schedule(instance, **BRIEFLY) == schedule
        trace = play(instance, schedule)
        check_trace(trace)
        search = objective(instance, "search")
        known, near = trace.objective(), 1e-9 * max(1.0, abs(search))
        assert known <= min(search, *(objective(instance, p) for p in PORTFOLIO)) + near
        seen, better = seen + 1, better + (known < bace - near)
    assert better >= 5


@pytest.mark.jit
def test_it_goes_on_from_a_schedule_that_is_known() -> None:
    instance = build_instance(load_scenario("paper", ["scale.bandwidth=0.3"]), 2)
    long = find_schedule(instance, simulations_per_job=300, restarts=2)
    found = find_schedule(instance, simulations_per_job=0, restarts=0, start=long)
    least = play(instance, long).objective()
    assert least < play(instance, find_schedule(instance, **BRIEFLY)).objective()
    assert play(instance, found).objective() == pytest.approx(least, rel=1e-12)


@pytest.mark.jit
def test_many_are_found_as_each_alone() -> None:
    scenario, instances = workloads([CHANGING])
    told: list[None] = []
    seeds = [instance.seed for instance in instances]
    found = find_many(scenario, seeds, on_seed=lambda: told.append(None), **BRIEFLY)
    assert found == {i.seed: find_schedule(i, **BRIEFLY) for i in instances}
    assert len(told) == len(seeds)


def test_a_schedule_of_another_workload_deadlocks() -> None:
    instance = make_instance([2], [np.array([4.0, 2.0])], [(0, 0, 1)])
    for placement in (
        Placement(5, (0,), (1,)),
        Placement(0, (3,), (1,)),
        Placement(0, (0,), (7,)),
        Placement(0, (), ()),
    ):
        with pytest.raises(DeadlockError):
            play(instance, Schedule((placement,)))


# --- Files ---------------------------------------------------------------------------------------


@pytest.mark.jit
@pytest.mark.parametrize("overrides", [[], [CHANGING]], ids=["constant", "changing"])
def test_what_is_stored_replays_to_its_value(tmp_path: Path, overrides: list[str]) -> None:
    scenario, instances = workloads(overrides, 3)
    schedules = {i.seed: find_schedule(i, **BRIEFLY) for i in instances}
    values = [play(i, schedules[i.seed]).objective() for i in instances]
    path = Known(scenario.name, digest(Sampler(scenario)), schedules).save(tmp_path / "new")
    assert path.name == f"{digest(Sampler(scenario))}.npz"
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    loaded = Known.load(scenario, path.parent)
    assert (loaded.title, loaded.schedules) == (scenario.name, schedules)
    for instance, value in zip(instances, values, strict=True):
        placements, times_s = loaded.schedules[instance.seed]
        simulator = Simulator(instance)
        for i, placement in enumerate(placements):
            early = bool(times_s) and simulator.view.now_s < times_s[i] - 1e-6
            while early or simulator.view.why_invalid(placement) is not None:
                simulator.step(WAIT)
                early = bool(times_s) and simulator.view.now_s < times_s[i] - 1e-6
            simulator.step(placement)
        assert simulator.done
        trace = simulator.trace("stored")
        assert trace.objective() == pytest.approx(value, rel=1e-12)
        check_trace(trace)


def test_schedules_held_back_and_not_share_a_file(tmp_path: Path) -> None:
    # With changing prices a schedule that starts all at once needs no times, another one does.
    scenario = load_scenario("tiny")
    at_once = Schedule((Placement(0, (0,), (1,)), Placement(1, (1, 0), (1, 2))))
    later = Schedule((Placement(1, (0,), (2,)), Placement(0, (1,), (1,))), (0.0, 7.5))
    schedules = {3: at_once, 1: later, 2**53: at_once, 4: Schedule(())}
    Known("title", digest(Sampler(scenario)), schedules).save(tmp_path)
    loaded = Known.load(scenario, tmp_path)
    assert loaded.title == "title"
    assert list(loaded.schedules.items()) == list(schedules.items())


def test_nothing_is_stored_of_other_scenarios(tmp_path: Path) -> None:
    scenario, other = load_scenario("tiny"), load_scenario("tiny", ["scale.gpus=2"])
    Known("title", digest(Sampler(scenario)), {0: Schedule(())}).save(tmp_path)
    assert Known.load(other, tmp_path) == Known(other.name, digest(Sampler(other)), {})
    assert Known.load(scenario, tmp_path / "missing").schedules == {}


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = load_scenario("tiny")
    old = Known("old", digest(Sampler(scenario)), {0: Schedule((Placement(0, (0,), (1,)),))})
    path = old.save(tmp_path)
    before = path.read_bytes()

    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for broken in ("os.replace", "numpy.savez_compressed"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(broken, fail)
            dataclasses.replace(old, title="new").save(tmp_path)
        assert list(tmp_path.iterdir()) == [path]
        assert path.read_bytes() == before


def stored(folder: Path) -> tuple[Scenario, Known, Path]:
    scenario = load_scenario("tiny")
    schedule = Schedule((Placement(0, (0, 1), (1, 2)), Placement(1, (1,), (3,))), (0.0, 9.0))
    known = Known("title", digest(Sampler(scenario)), {0: schedule, 7: schedule})
    return scenario, known, known.save(folder)


def refused(scenario: Scenario, path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Known.load(scenario, path.parent)
    assert re.fullmatch(
        re.escape(str(path)) + ": not a file of best known schedules: .*", str(caught.value)
    )


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    scenario, _, path = stored(tmp_path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        refused(scenario, path)


def test_a_damaged_file_is_refused_or_reads_the_same(tmp_path: Path) -> None:
    scenario, known, path = stored(tmp_path)
    whole, harmless = path.read_bytes(), 0
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            assert Known.load(scenario, tmp_path) == known, at
            harmless += 1
        except ConfigError:
            pass
    assert harmless < len(whole) / 6  # dates and the like


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    scenario, _, path = stored(tmp_path)
    path.write_bytes(content)
    refused(scenario, path)


def test_an_array_is_no_archive(tmp_path: Path) -> None:
    scenario, _, path = stored(tmp_path)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    refused(scenario, path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("title", None),
        ("job", None),
        ("job", np.zeros(3, np.int32)),
        ("number", np.array([3, 2])),
        ("number", np.array([5, -1])),
        ("number", np.array([4])),
        ("length", np.array([3, 0, 2, 1])),
        ("path", np.zeros(5, np.int16)),
        ("gpus", np.array(["1"])),
        ("not_before_s", np.zeros(3)),
        ("seed", np.array([object()])),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(
    tmp_path: Path, key: str, value: np.ndarray[Any, Any] | None
) -> None:
    scenario, _, path = stored(tmp_path)
    with np.load(path) as file:
        content = {name: file[name] for name in file.files}
    if value is None:
        del content[key]
    else:
        content[key] = value
    np.savez_compressed(path, allow_pickle=True, **content)
    refused(scenario, path)


def test_the_schedule_of_an_episode_is_that_episode() -> None:
    instance = make_instance(
        [2, 1],
        [np.array([4.0, 2.0])],
        [(0, 0, 3), (0, 0, 2), (5, 0, 1)],
        prices=[([0.0, 30.0], [0.5, 0.1], 60.0), ([0.0], [0.2], np.inf)],
    )
    for policy in ("bace", "ldf", "bace-patient", "random"):
        trace = run_episode(instance, make_policy(policy))
        again = play(instance, schedule_of(trace))
        np.testing.assert_array_equal(again.start_s, trace.start_s)
        np.testing.assert_array_equal(again.finish_s, trace.finish_s)
        assert again.objective() == trace.objective()
