"""The simulator and the heuristics against a second implementation of both."""

import numpy as np
import pytest
from reference_simulator import ReferenceSimulator
from strategies import random_instance

from agents.policy import make_policy
from bace_env.config import load_scenario
from bace_env.errors import DeadlockError
from bace_env.instance import Instance
from bace_env.scenario import build_instance
from bace_env.simulator import Simulator

SPECS = (
    "bace", "ldf", "lcf", "cr-lcf", "cr-ldf", "bace-no-priority", "bace-no-pathfinder",
    "bace-no-cost-min", "bace-patient", "sjf", "bace:partial_fill", "bace:patience=0.5",
    "bace:partial_fill,patience=0.25", "bace-no-cost-min:partial_fill", "cr-lcf:skip_blocked",
    "cr-ldf:partial_fill", "lcf:patience=0.7", "sjf:patience=1.0",
    "cr-lcf:partial_fill,patience=0.3",
)  # fmt: skip
INSTANCES_PER_CHUNK = 40


def assert_same_episode(instance: Instance, spec: str) -> None:
    """Run both implementations and compare all they did."""
    data = instance.to_dict()
    expected = ReferenceSimulator(data, spec).run()
    exported = [data["profiles"][job["profile"]]["k_star"] for job in data["jobs"]]
    assert expected.k_star == exported

    simulator, policy, deadlock = Simulator(instance), make_policy(spec), False
    policy.reset(0)
    while not (simulator.done or deadlock):
        try:
            simulator.step(policy.act(simulator.view))
        except DeadlockError:
            deadlock = True
    trace = simulator.trace(spec)
    assert deadlock == expected.deadlock
    # With an idle cluster the two may wait for another number of price changes before they give up.
    n = len(trace.decisions) if deadlock else max(len(trace.decisions), len(expected.decisions))
    assert [d.job for d in trace.decisions] == [job for _, job in expected.decisions[:n]]
    assert not any(job is not None for _, job in expected.decisions[n:])
    times = [d.time_s for d in trace.decisions]
    assert times == pytest.approx([t for t, _ in expected.decisions[:n]], rel=1e-9)
    assert sorted(expected.results) == np.flatnonzero(trace.finished).tolist()
    for j, job in expected.results.items():
        assert trace.placement(j) == (tuple(job["path"]), tuple(job["gpus"]))
        assert trace.start_s[j] == pytest.approx(job["start"], rel=1e-9)
        assert trace.finish_s[j] == pytest.approx(job["finish"], rel=1e-9)
        assert trace.iteration_s[j] == pytest.approx(job["iteration"], rel=1e-9)
        if len(job["path"]) > 1:
            assert trace.bytes_per_s[j] == pytest.approx(job["need"], rel=1e-9)
        assert trace.energy_kwh[j] == pytest.approx(job["energy"], rel=1e-9)
        dearest = np.abs(instance.arrays.price_usd_per_kwh).max()
        assert trace.cost_usd[j] == pytest.approx(
            job["cost"], rel=1e-9, abs=1e-9 * dearest * job["energy"]
        )


@pytest.mark.parametrize("chunk", range(8))
def test_random_instances_give_the_same_episode(chunk: int) -> None:
    for seed in range(chunk * INSTANCES_PER_CHUNK, (chunk + 1) * INSTANCES_PER_CHUNK):
        instance = random_instance(np.random.default_rng(seed))
        for spec in SPECS[seed % 2 :: 2]:
            try:
                assert_same_episode(instance, spec)
            except AssertionError as error:
                error.add_note(f"random_instance(np.random.default_rng({seed})), policy {spec}")
                raise


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    "preset", ["fig1", "paper", "paper-fitted", "physical", "tiny", "week-in-the-cloud"]
)
def test_presets_give_the_same_episode(preset: str, spec: str) -> None:
    fewer = ["workload.n_jobs=20"] if preset == "week-in-the-cloud" else []
    for seed in range(3):
        assert_same_episode(build_instance(load_scenario(preset, fewer), seed), spec)
