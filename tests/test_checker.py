"""The independent checker: it passes what the simulator does, and sees what is changed in it."""

import ast
import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import SMALL
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import instances, make_instance

from agents.policy import REGISTRY, make_policy
from bace_env import checker
from bace_env.checker import check_trace, violations
from bace_env.config import load_scenario, parse_scenario
from bace_env.errors import DeadlockError, TraceError
from bace_env.instance import Instance
from bace_env.scenario import build_instance
from bace_env.simulator import WAIT, Placement, Simulator
from bace_env.trace import EpisodeTrace
from eval.rollout import run_episode

Data = dict[str, Any]

A, B, C, D = range(4)
SCENARIO: Data = {
    "name": "scripted",
    "regions": [
        {"name": "A", "gpus": 4, "price_usd_per_kwh": 0.1},
        {"name": "B", "gpus": 3, "price_usd_per_kwh": 0.3},
        {"name": "C", "gpus": 2, "price_usd_per_kwh": 0.2},
        {"name": "D", "gpus": 2, "price_usd_per_kwh": {"values": [0.2, -0.4], "step_h": 0.002}},
    ],
    "network": {
        "rule": "listed",
        "links": [{"source": "A", "target": "B", "gbps": 2.0, "both_ways": False}],
    },
    "models": [
        {
            "name": "wide",
            "activation_mb": 100.0,  # needs 1.6 Gbit/s on three GPUs: the link holds one such job
            "k_min": 2,
            "measured": {"gpus": [1, 2, 3, 4], "t_comp_ms": [1500, 750, 500, 400]},
        }
    ],
    "jobs": [
        {"name": name, "model": "wide", "batch_size": 4, "iterations": 10, "arrival_h": hours}
        for name, hours in (("u", 0.0), ("v", 0.0), ("x", 0.0), ("y", 0.001), ("z", 0.001))
    ],
    "workload": {"arrivals": "listed"},
}
U, V, X, Y, Z = range(5)
PLAN = (
    Placement(U, (A, B), (2, 1)),
    Placement(V, (A, B), (2, 1)),  # after u: both need the link
    Placement(X, (D,), (2,)),
    Placement(Y, (C,), (2,)),
    Placement(Z, (C,), (2,)),  # after y: both need the GPUs
)


def scripted() -> tuple[Data, Data]:
    """A schedule in which every resource is contended for, as its two exports."""
    simulator = Simulator(build_instance(parse_scenario(SCENARIO), 0))
    while not simulator.done:
        pending = set(simulator.view.pending.tolist())
        can = [p for p in PLAN if p.job in pending and simulator.view.why_invalid(p) is None]
        simulator.step(can[0] if can else WAIT)
    trace = simulator.trace("scripted")
    return simulator.instance.to_dict(), trace.to_dict()


def decision(trace: Data, job: int) -> Data:
    return next(d for d in trace["decisions"] if d["job"] == job)


def move(trace: Data, job: int, start_s: float) -> None:
    """Move a job in time, its decision with it, everything else as it was."""
    row = trace["jobs"][job]
    row["finish_s"] += start_s - row["start_s"]
    row["start_s"] = decision(trace, job)["time_s"] = start_s
    trace["decisions"].sort(key=lambda d: d["time_s"])


def change(job: int, field: str, by: Callable[[Any], Any]) -> Callable[[Data, Data], None]:
    def apply(_: Data, trace: Data) -> None:
        trace["jobs"][job][field] = by(trace["jobs"][job][field])

    return apply


def put(job: int, **fields: object) -> Callable[[Data, Data], None]:
    return lambda _, trace: trace["jobs"][job].update(fields)


def scaled(factor: float) -> Callable[[float], float]:
    return lambda value: value * factor


def never_started(_: Data, trace: Data) -> None:
    trace["jobs"][V].update(start_s=None, finish_s=None)


def decided_twice(_: Data, trace: Data) -> None:
    trace["decisions"].append(decision(trace, V))


def never_decided(_: Data, trace: Data) -> None:
    trace["decisions"].remove(decision(trace, Z))


def decided_backwards(_: Data, trace: Data) -> None:
    trace["decisions"].reverse()


def decided_at_another_time(_: Data, trace: Data) -> None:
    decision(trace, U)["time_s"] -= 1


def before_its_arrival(_: Data, trace: Data) -> None:
    move(trace, Y, 1.0)


def both_on_the_gpus(_: Data, trace: Data) -> None:
    move(trace, Z, trace["jobs"][Y]["finish_s"] - 0.01)


def both_on_the_link(_: Data, trace: Data) -> None:
    move(trace, V, trace["jobs"][U]["finish_s"] - 0.01)


def shared_in_the_cost(instance: Data, _: Data) -> None:
    instance["regions"][B]["price_usd_per_kwh"][0] *= 1.001


def fewer_gpus_than_used(instance: Data, _: Data) -> None:
    instance["regions"][A]["gpus"] = 1


def slower_link(instance: Data, _: Data) -> None:
    instance["link_bytes_per_s"][A][B] *= 0.5


def without_link(instance: Data, _: Data) -> None:
    instance["link_bytes_per_s"][A][B] = 0.0


def later_arrival(instance: Data, trace: Data) -> None:
    instance["jobs"][U]["arrival_s"] = trace["jobs"][U]["arrival_s"] = 5.0


def more_iterations(instance: Data, _: Data) -> None:
    instance["jobs"][X]["iterations"] += 1


MUTATIONS: dict[str, tuple[Callable[[Data, Data], None], str]] = {
    "start earlier": (change(V, "start_s", lambda t: t - 1), "v: must start when decided"),
    "start later": (change(U, "start_s", lambda t: t + 1), "u: must start when decided"),
    "decision earlier": (decided_at_another_time, "u: must start when decided"),
    "before its arrival": (before_its_arrival, r"y: must .*not before its arrival \(3\.6\)"),
    "arrival later": (later_arrival, r"u: must .*not before its arrival \(5\.0\)"),
    "finish later": (change(U, "finish_s", lambda t: t + 1e-3), "u: finish_s must be"),
    "finish a little earlier": (change(Z, "finish_s", scaled(1 - 1e-8)), "z: finish_s must be"),
    "more iterations": (more_iterations, "x: finish_s must be"),
    "iteration time": (change(U, "iteration_s", scaled(1 + 1e-8)), "u: iteration_s must be"),
    "energy": (change(X, "energy_kwh", scaled(1 + 1e-8)), "x: energy_kwh must be"),
    "no energy": (put(X, energy_kwh=0.0), "x: energy_kwh must be"),
    "cost": (change(U, "cost_usd", scaled(1 + 1e-8)), "u: cost_usd must be"),
    "cost under changing prices": (change(X, "cost_usd", lambda c: c + 1e-7), "x: cost_usd must"),
    "sign of a cost": (change(Y, "cost_usd", lambda cost: -cost), "y: cost_usd must be"),
    "price": (shared_in_the_cost, "u: cost_usd must be"),
    "reservation": (change(V, "bytes_per_s", scaled(0.5)), "v: bytes_per_s must be"),
    "reservation without hop": (put(Y, bytes_per_s=1.0), r"y: bytes_per_s must be 0\.0, got 1\.0"),
    "not a number": (put(Y, cost_usd=float("nan")), "y: cost_usd must be .*, got nan"),
    "other shares": (put(U, gpus=[1, 2]), "u: cost_usd must be"),
    "one GPU more": (put(U, gpus=[3, 1]), "u: iteration_s must be"),
    "more than the region has": (put(Z, gpus=[3]), r"z: C has 2 GPUs \(Eq\. 5\), 3 used"),
    "a region with fewer GPUs": (fewer_gpus_than_used, r"u: A has 1 GPUs \(Eq\. 5\), 2 used"),
    "below k_min": (put(Y, gpus=[1]), r"y: k = 1 outside \[2, 4\]"),
    "above k_max": (put(U, gpus=[3, 2]), r"u: k = 5 outside \[2, 4\]"),
    "no GPU in a region": (
        put(U, gpus=[3, 0]),
        r"u: each region gives at least one GPU, .*\[3, 0\]",
    ),
    "path the other way": (put(U, path=["B", "A"], gpus=[1, 2]), r"u: link B -> A .*\(Eq\. 6\)"),
    "path without link": (put(U, path=["A", "C"]), r"u: link A -> C has 0 bytes/s \(Eq\. 6\)"),
    "a region twice": (put(U, path=["A", "A"]), "u: a path needs distinct regions"),
    "GPUs used twice": (both_on_the_gpus, r"z: C has 2 GPUs \(Eq\. 5\), 4 used"),
    "link used twice": (
        both_on_the_link,
        r"v: link A -> B has 2\.5e\+08 bytes/s \(Eq\. 6\), 4e\+08",
    ),
    "a slower link": (
        slower_link,
        r"u: link A -> B has 1\.25e\+08 bytes/s \(Eq\. 6\), 2e\+08 used",
    ),
    "no link": (without_link, r"u: link A -> B has 0 bytes/s \(Eq\. 6\)"),
    "dropped job": (never_started, "each started job must be decided exactly once|v: never start"),
    "decision twice": (decided_twice, "each started job must be decided exactly once"),
    "decision missing": (never_decided, "each started job must be decided exactly once"),
    "decisions out of order": (decided_backwards, "decision times must not descend"),
}


def test_the_scripted_schedule_is_contended_and_valid() -> None:
    instance, trace = scripted()
    jobs = trace["jobs"]
    assert violations(instance, trace) == []
    assert jobs[V]["start_s"] == jobs[U]["finish_s"]
    assert jobs[Z]["start_s"] == jobs[Y]["finish_s"]
    assert jobs[X]["finish_s"] > 3600 * 0.002  # its price has changed meanwhile


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_found_and_named(name: str) -> None:
    mutate, text = MUTATIONS[name]
    instance, trace = scripted()
    mutate(instance, trace)
    found = violations(instance, trace)
    assert any(re.match(text, problem) for problem in found), found


def test_rounding_is_no_violation() -> None:
    instance, trace = scripted()
    for job in trace["jobs"]:
        for field in ("iteration_s", "bytes_per_s", "energy_kwh", "cost_usd"):
            job[field] *= 1 + 1e-13
    assert violations(instance, trace) == []


def test_many_violations_are_reported_in_one_bounded_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = run_episode(build_instance(parse_scenario(SCENARIO), 7), make_policy("sjf"))
    monkeypatch.setattr(checker, "violations", lambda *_: [f"job {i}: wrong" for i in range(25)])
    with pytest.raises(TraceError) as error:
        check_trace(trace)
    assert str(error.value).startswith("policy sjf, seed 7: job 0: wrong; ")
    assert str(error.value).endswith("job 19: wrong and 5 more")


@pytest.mark.parametrize(
    "preset",
    [
        "fig1",
        "tiny",
        "small",
        pytest.param("paper", marks=pytest.mark.jit),
        pytest.param("physical", marks=pytest.mark.jit),
    ],
)
@pytest.mark.parametrize("policy", [*REGISTRY, "bace:partial_fill,patience=0.25"])
def test_every_policy_makes_valid_schedules(preset: str, policy: str, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    scenario = load_scenario(str(tmp_path / "small.toml") if preset == "small" else preset)
    for seed in range(3):
        check_trace(run_episode(build_instance(scenario, seed), make_policy(policy)))


@pytest.mark.parametrize("t_comm", ["reserved", "residual", "hidden"])
def test_every_form_of_communication_is_checked(t_comm: str, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    scenario = load_scenario(str(tmp_path / "small.toml"), [f"pipeline.t_comm={t_comm}"])
    for seed in range(5):
        for policy in ("cr-ldf", "random", "bace"):
            trace = run_episode(build_instance(scenario, seed), make_policy(policy))
            instance = json.loads(trace.instance.to_json())
            exported = json.loads(trace.to_json())
            assert violations(instance, exported) == []
            hops = [job for job in exported["jobs"] if len(job["path"]) > 1]
            if hops:
                instance["t_comm"] = {"hidden": "reserved"}.get(t_comm, "hidden")
                assert violations(instance, exported)


def episode(instance: Instance, policy: str) -> EpisodeTrace | None:
    try:
        return run_episode(instance, make_policy(policy))
    except DeadlockError:  # a job that the policy's placement rule can never start
        return None


POLICIES = st.sampled_from(["bace", "cr-ldf", "ldf", "bace-no-cost-min", "random", "sjf"])
NUMBERS = ("start_s", "finish_s", "iteration_s", "bytes_per_s", "energy_kwh", "cost_usd")


@pytest.mark.jit
@settings(max_examples=60, deadline=None)
@given(instance=instances(), policy=POLICIES, data=st.data())
def test_any_changed_number_of_any_schedule_is_found(
    instance: Instance, policy: str, data: st.DataObject
) -> None:
    trace = episode(instance, policy)
    if trace is None:
        return
    exports = instance.to_dict(), trace.to_dict()
    assert violations(*exports) == []
    job = data.draw(st.sampled_from(exports[1]["jobs"]))
    field = data.draw(st.sampled_from(NUMBERS))
    size = abs(job[field]) + 1.0
    job[field] += data.draw(st.sampled_from([-1.0, -1e-3, 1e-3, 1.0])) * size
    assert any(problem.startswith(f"{job['name']}: ") for problem in violations(*exports))


@pytest.mark.jit
@settings(max_examples=60, deadline=None)
@given(instance=instances(), policy=POLICIES, data=st.data())
def test_any_changed_share_of_any_schedule_is_found(
    instance: Instance, policy: str, data: st.DataObject
) -> None:
    trace = episode(instance, policy)
    if trace is None:
        return
    exports = instance.to_dict(), trace.to_dict()
    job = data.draw(st.sampled_from(exports[1]["jobs"]))
    i = data.draw(st.sampled_from(range(len(job["gpus"]))))
    more = {region["name"]: region["gpus"] for region in exports[0]["regions"]}[job["path"][i]]
    job["gpus"][i] = data.draw(st.sampled_from([0, -1, more + 1]))
    assert any(problem.startswith(f"{job['name']}: ") for problem in violations(*exports))


def test_exports_are_left_as_they_were() -> None:
    instance, trace = scripted()
    before = copy.deepcopy((instance, trace))
    violations(instance, trace)
    assert (instance, trace) == before


def test_the_checker_shares_no_code_with_what_it_checks() -> None:
    tree = ast.parse(Path(str(checker.__file__)).read_text(encoding="utf-8"))
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            modules.add(node.module or "")
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    ours = {name for name in modules if name.partition(".")[0] in ("bace_env", "agents", "eval")}
    assert ours == {"bace_env.errors", "bace_env.trace"}
    assert modules - ours <= {"collections.abc", "itertools", "typing", "numpy"}


def test_a_very_short_job_late_in_time_is_no_contradiction() -> None:
    instance = make_instance(
        [1],
        [np.array([0.002])],
        [(99990.0, 0, 1.0)],
        micro_batches=[1],
        prices=[([0.0, 900.0], [0.1, 0.3], 1800.0)],
    )
    simulator = Simulator(instance)
    simulator.step(Placement(0, (0,), (1,)))
    check_trace(simulator.trace("test"))
