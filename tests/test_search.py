"""`search`: never worse than its base, the same for a seed, blind to what it must not know."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import instances, make_instance

from agents.explanation import Explains
from agents.policy import make_policy
from bace_env.checker import check_trace
from bace_env.config import load_scenario
from bace_env.errors import ConfigError, DeadlockError
from bace_env.instance import Instance
from bace_env.scenario import Sampler
from bace_env.simulator import Placement, Simulator
from bace_env.trace import EpisodeTrace
from eval.rollout import run_episode

properties = settings(deadline=None, derandomize=True)


def outcome(instance: Instance, policy: str) -> EpisodeTrace | None:
    try:
        return run_episode(instance, make_policy(policy))
    except DeadlockError:
        return None


def schedule(trace: EpisodeTrace) -> list[object]:
    return [
        (d.time_s, d.job, d.job is not None and trace.placement(d.job)) for d in trace.decisions
    ]


@pytest.mark.jit
@given(
    instances(),
    st.sampled_from(["bace", "sjf", "ldf", "cr-ldf", "bace-patient"]),
    st.sampled_from([0, 5, 40, 200]),
)
@settings(properties, max_examples=220)
def test_it_is_never_worse_than_its_base(instance: Instance, base: str, simulations: int) -> None:
    plain = outcome(instance, base)
    found = outcome(instance, f"search:base={base},simulations={simulations}")
    if plain is None:
        return
    assert found is not None
    check_trace(found)
    assert found.objective() <= plain.objective() + 1e-9 * max(1.0, abs(plain.objective()))


@pytest.mark.jit
@pytest.mark.parametrize("preset", ["paper", "physical", "fig1", "tiny"])
def test_it_is_never_worse_than_any_heuristic_in_the_presets(preset: str) -> None:
    sampler = Sampler(load_scenario(preset))
    for seed in range(3):
        instance = sampler.draw(seed)
        found = outcome(instance, "search:simulations=300")
        assert found is not None
        for name in ("bace", "sjf", "bace-patient", "bace:partial_fill,patience=0.25"):
            plain = outcome(instance, name)
            assert plain is not None
            assert found.objective() <= plain.objective() * (1 + 1e-9)


@pytest.mark.jit
@given(instances(max_jobs=8))
@settings(properties, max_examples=15)
def test_a_seed_gives_the_same_schedule_whatever_was_run_before(instance: Instance) -> None:
    policy = make_policy("search:simulations=60")
    first = run_episode(instance, policy)
    run_episode(replace(instance, seed=5), policy)
    assert schedule(run_episode(instance, policy)) == schedule(first)
    assert schedule(run_episode(instance, make_policy("search:simulations=60"))) == schedule(first)


@pytest.mark.jit
def test_more_simulations_find_better_schedules() -> None:
    sampler = Sampler(load_scenario("paper"))
    totals = []
    for simulations in (0, 100, 2000):
        traces = [outcome(sampler.draw(k), f"search:simulations={simulations}") for k in range(5)]
        totals.append(sum(trace.objective() for trace in traces if trace is not None))
    assert totals[0] > totals[1] > totals[2]


@pytest.mark.jit
@given(instances(max_jobs=7), st.data())
@settings(properties, max_examples=40)
def test_blind_it_does_not_know_what_is_to_arrive(instance: Instance, data: st.DataObject) -> None:
    a = instance.arrays
    first_unknown = data.draw(st.integers(1, instance.n_jobs))
    if first_unknown == instance.n_jobs:
        return
    changed_s = float(a.arrival_s[first_unknown])
    iterations, arrival_s = a.iterations.copy(), a.arrival_s.copy()
    iterations[first_unknown:] = iterations[first_unknown:] * 3 + 1
    arrival_s[first_unknown:] += 5.0
    other = replace(instance, arrays=a._replace(iterations=iterations, arrival_s=arrival_s))
    before = []
    for one in (instance, other):
        trace = outcome(one, "search:blind,simulations=40")
        if trace is None:
            return
        # A wait ends with an arrival, which the other has not: starts alone are compared.
        before.append(
            [
                (d.time_s, d.job, trace.placement(d.job))
                for d in trace.decisions
                if d.job is not None and d.time_s < changed_s - 1e-6
            ]
        )
    assert before[0] == before[1]


@pytest.mark.jit
@pytest.mark.parametrize("spec", ["search:simulations=30", "search:simulations=30,blind"])
@given(instance=instances(max_jobs=6))
@settings(properties, max_examples=15)
def test_its_reasons_are_the_plan_that_it_follows(spec: str, instance: Instance) -> None:
    simulator, policy, alone = Simulator(instance), make_policy(spec), make_policy(spec)
    policy.reset(0)
    alone.reset(0)
    assert isinstance(policy, Explains)
    while not simulator.done:
        reasons = policy.explain(simulator.view)
        action = policy.act(simulator.view)
        assert reasons.action == action == alone.act(simulator.view)  # explaining changes nothing
        if isinstance(action, Placement):
            row = reasons.tables[0].rows[0]
            assert row[0] == instance.job_names[action.job]
            assert row[2] == pytest.approx(simulator.view.now_s / 3600.0)
        try:
            simulator.step(action)
        except DeadlockError:
            return


@pytest.mark.jit
def test_lambda_trades_time_for_money() -> None:
    sampler = Sampler(load_scenario("paper"))
    points = []
    for weight in (0, 0.3, 3):
        traces = [outcome(sampler.draw(k), f"search:lambda={weight}") for k in range(4)]
        found = [trace for trace in traces if trace is not None]
        jct_s = sum(trace.summary().avg_jct_s for trace in found)
        points.append((jct_s, float(sum(trace.cost_usd.sum() for trace in found))))
    assert points[0][0] < points[1][0] < points[2][0]
    assert points[0][1] > points[1][1] > points[2][1]


def test_it_holds_a_region_free_for_the_job_that_needs_it() -> None:
    """Two regions; the short job fits both, the wide one only the large one: by hand.

    Built-in orders start the job that came first in the large region, and the wide one waits.
    """
    instance = make_instance(
        [2, 1],
        [np.array([1.0, 1.0]), np.array([8.0, 4.0])],
        [(0.0, 0, 10.0), (0.0, 1, 1.0)],
        k_min=[1, 2],
        micro_batches=[1, 1],
    )
    found = outcome(instance, "search")
    assert found is not None
    # t_iter = 2 * k * t_comp: 20 s for the first on one GPU, 2 * 2 * 4 = 16 s for the second.
    assert found.placement(0) == ((1,), (1,))
    assert found.placement(1) == ((0,), (2,))
    assert found.summary().avg_jct_s == pytest.approx((20 + 16) / 2)


@pytest.mark.parametrize(
    ("arg", "message"),
    [
        ("simulations=-1", "simulations: must be a whole number >= 0, got '-1'"),
        ("simulations=1.5", "simulations: must be a whole number >= 0, got '1.5'"),
        ("ms=x", "ms: must be a number >= 0, got 'x'"),
        ("ms=nan", "ms: must be a number >= 0, got 'nan'"),
        ("lambda=inf", "lambda: must be a number >= 0, got 'inf'"),
        ("base=random", "base: must be a built-in heuristic, got 'random'"),
        ("base=bcae", "unknown name 'bcae'; did you mean 'bace'?"),
        ("depth=3", "unknown setting 'depth=3'; known: simulations=N, ms=T, base=NAME"),
        ("blind=1", "unknown setting 'blind=1'"),
    ],
)
def test_wrong_settings_are_named(arg: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_policy(f"search:{arg}")
    assert message in str(error.value)


@pytest.mark.jit
def test_a_time_limit_is_kept() -> None:
    instance = Sampler(load_scenario("paper")).draw(0)
    outcome(instance, "search:ms=5")  # compiled by now
    trace = outcome(instance, "search:ms=30")
    assert trace is not None
    times_ms = sorted(d.decision_ns / 1e6 for d in trace.decisions)
    assert times_ms[0] >= 29
    assert times_ms[len(times_ms) // 2] < 60
    assert list(itertools.accumulate(times_ms))[-1] < 60_000
