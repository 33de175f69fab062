"""Whole schedules: the compiled rollout against the simulator, recording and playing back."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import instances

from agents.heuristic import heuristic_options
from agents.policy import make_policy
from agents.replay import Replay, Schedule
from agents.schedule import allocate_sequence, copy_state, objective_scales, play_policy
from agents.search import PORTFOLIO, Planner
from bace_env.checker import check_trace
from bace_env.errors import DeadlockError
from bace_env.instance import Instance
from bace_env.kernels import allocate_state, reset
from bace_env.simulator import Simulator
from bace_env.trace import EpisodeTrace
from bace_env.types import State, allocate_scratch
from eval.known_schedules import schedule_of
from eval.rollout import run_episode

properties = settings(deadline=None, max_examples=60, derandomize=True)
HEURISTICS = st.sampled_from(
    [*PORTFOLIO, "lcf", "cr-lcf", "bace-no-cost-min", "bace:partial_fill,patience=0.5,ties=last"]
)


def first_state(instance: Instance) -> State:
    state = allocate_state(instance.n_regions, instance.n_jobs)
    reset(instance.arrays, state, np.inf)
    return state


def planner_of(instance: Instance) -> Planner:
    planner = Planner(instance, tuple(heuristic_options(spec) for spec in PORTFOLIO))
    planner.begin(first_state(instance))
    return planner


def outcome(instance: Instance, policy: str) -> EpisodeTrace | None:
    try:
        return run_episode(instance, make_policy(policy))
    except DeadlockError:
        return None


@pytest.mark.jit
@given(instances(), HEURISTICS)
@properties
def test_a_compiled_rollout_is_the_simulators_episode(instance: Instance, policy: str) -> None:
    trace = outcome(instance, policy)
    n, r = instance.n_jobs, instance.n_regions
    state, out = first_state(instance), allocate_sequence(n, r)
    scratch = allocate_scratch(r, n, instance.arrays.k_star.size)
    value, number = play_policy(
        instance.arrays, state, heuristic_options(policy), objective_scales(instance), scratch,
        out, 0,
    )  # fmt: skip
    if trace is None:
        assert value == np.inf
        return
    assert value == pytest.approx(trace.objective(), rel=1e-12, abs=1e-12)
    assert number == n
    assert np.array_equal(state.start_s, trace.start_s)
    assert np.array_equal(state.finish_s, trace.finish_s)
    started = [d.job for d in trace.decisions if d.job is not None]
    assert out.job.tolist() == started
    for i, job in enumerate(started):
        length = int(out.length[i])
        found = (tuple(out.path[i, :length].tolist()), tuple(out.alloc[i, :length].tolist()))
        assert found == trace.placement(job)


@pytest.mark.jit
@given(instances(), HEURISTICS, st.integers(0, 30))
@properties
def test_a_rollout_from_the_middle_ends_as_the_episode_does(
    instance: Instance, policy: str, steps: int
) -> None:
    trace = outcome(instance, policy)
    if trace is None:
        return
    simulator, chosen = Simulator(instance), make_policy(policy)
    chosen.reset(instance.seed)
    for _ in range(min(steps, len(trace.decisions) - 1)):
        simulator.step(chosen.act(simulator.view))
    n, r = instance.n_jobs, instance.n_regions
    state = allocate_state(r, n)
    copy_state(simulator.view.state, state)
    play_policy(
        instance.arrays, state, heuristic_options(policy), objective_scales(instance),
        allocate_scratch(r, n, instance.arrays.k_star.size), allocate_sequence(n, r), 0,
    )  # fmt: skip
    assert np.array_equal(state.finish_s, trace.finish_s)
    assert np.array_equal(state.cost_usd, trace.cost_usd)


@pytest.mark.jit
@given(instances(), HEURISTICS)
@properties
def test_a_recorded_schedule_plays_back_no_worse(instance: Instance, policy: str) -> None:
    """As it was where prices change or links are shared; else a job may start earlier."""
    trace = outcome(instance, policy)
    if trace is None:
        return
    schedule = schedule_of(trace)
    again = run_episode(instance, Replay(schedule))
    check_trace(again)
    if schedule.not_before_s:
        assert np.array_equal(again.start_s, trace.start_s)
    if instance.arrays.t_comm_form != 1:  # under `residual` an early start may find less bandwidth
        assert (again.finish_s <= trace.finish_s + 1e-6).all()
    planner = planner_of(instance)
    assert planner.keep_schedule(schedule)
    assert planner.value == pytest.approx(again.objective(), rel=1e-12, abs=1e-12)


@pytest.mark.jit
@given(instances(max_jobs=6), st.integers(0, 2**32 - 1))
@settings(properties, max_examples=40)
def test_annealed_plans_are_worth_what_they_claim_and_never_get_worse(
    instance: Instance, seed: int
) -> None:
    planner, rng = planner_of(instance), np.random.default_rng(seed)
    planner.try_bases()
    if not np.isfinite(planner.value):
        return
    values = [planner.value]
    for _ in range(3):
        planner.improve(rng.random((200, 9)))
        values.append(planner.value)
    assert values == sorted(values, reverse=True)
    trace = run_episode(instance, Replay(planner.schedule()))
    check_trace(trace)
    assert trace.finished.all()
    assert trace.objective() == pytest.approx(planner.value, rel=1e-9, abs=1e-9)


def test_a_schedule_of_other_jobs_is_no_plan() -> None:
    instance = replace_jobs(2)
    planner = planner_of(instance)
    assert not planner.keep_schedule(Schedule(()))
    assert planner.schedule() == Schedule(())


def replace_jobs(n: int) -> Instance:
    from strategies import make_instance

    made = make_instance([1], [np.array([1.0])], [(0.0, 0, 3.0)] * n)
    return replace(made, scenario="two equal jobs")
