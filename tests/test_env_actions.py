"""The action set: every decision of the built-in policies is in it, and all in it is valid."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from environment_steps import BUILT_IN, Solo, replay
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import instances, make_instance, random_instance

from agents.policy import make_policy
from bace_env.candidates import (
    DEFAULT_BUDGETS,
    allocate_orders,
    budget_shares,
    fill_orders,
    hostable,
    walk,
)
from bace_env.config import load_scenario, preset_names
from bace_env.errors import DeadlockError
from bace_env.instance import Instance
from bace_env.kernels import DECISION
from bace_env.placement import (
    FILL_CHEAPEST,
    GROW_BANDWIDTH,
    GROW_NONE,
    GROW_PRICE,
    allocate,
    grow_path,
)
from bace_env.scenario import Sampler
from bace_env.simulator import Placement, View
from bace_env.trace import EpisodeTrace
from eval.rollout import run_episode

# --- Built-in policies through the action set ----------------------------------------------------


def same_traces(one: EpisodeTrace, other: EpisodeTrace) -> bool:
    """Equal to the bit: decisions, placements, times, costs."""
    arrays = (
        "start_s",
        "finish_s",
        "path_length",
        "path",
        "alloc",
        "iteration_s",
        "bytes_per_s",
        "energy_kwh",
        "cost_usd",
    )
    decided = [[(d.time_s, d.job) for d in trace.decisions] for trace in (one, other)]
    return decided[0] == decided[1] and all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True) for name in arrays
    )


def check_replays(instance: Instance, slots: int) -> int:
    """Hold every built-in policy's replay against `run_episode`; how many got to the end."""
    ended = 0
    for name in BUILT_IN:
        policy = make_policy(name)
        replayed = replay(Solo(instance, slots), policy)
        try:
            expected = run_episode(instance, policy)
        except DeadlockError:
            assert replayed is None, f"{name}: waits although nothing lies ahead"
            continue
        assert replayed is not None, f"{name}: the mask forbids to wait"
        assert same_traces(replayed, expected), name
        ended += 1
    return ended


def drawn(preset: str, overrides: Sequence[str], seeds: Sequence[int]) -> list[Instance]:
    sampler = Sampler(load_scenario(preset, overrides))
    return [sampler.draw(seed) for seed in seeds]


HOURS = {"tiny": 0.1, "fig1": 0.2, "paper": 30, "paper-fitted": 3, "physical": 20}


def series(preset: str) -> list[str]:
    """Prices that change several times within an episode, and are negative at times."""
    names = [region.name for region in load_scenario(preset).regions]
    values = ["[0.3, -0.1, 0.2]", "[0.1, 0.25]"]
    return [
        f"regions.{name}.price_usd_per_kwh={{ values = {value}, step_h = {HOURS[preset]} }}"
        for name, value in zip(names, values, strict=False)
    ]


def arrivals(preset: str) -> list[str]:
    return ["workload.arrivals=poisson", f"workload.mean_interarrival_h={HOURS[preset]}"]


@pytest.mark.parametrize("preset", ["tiny", "fig1"])
def test_policies_replay_in_the_small_presets(preset: str) -> None:
    for overrides in ([], arrivals(preset), [*arrivals(preset), *series(preset)]):
        for instance in drawn(preset, overrides, range(2)):
            assert check_replays(instance, slots=8) == len(BUILT_IN)


@pytest.mark.jit
@pytest.mark.parametrize("preset", ["paper", "physical"])
@pytest.mark.parametrize("slots", [6, 8])
def test_policies_replay_with_more_jobs_than_slots(preset: str, slots: int) -> None:
    many = "workload.n_jobs=24"
    for instance in drawn(preset, [many], range(5)):
        assert check_replays(instance, slots) == len(BUILT_IN)
    for overrides in (arrivals(preset), series(preset), [*arrivals(preset), *series(preset)]):
        for instance in drawn(preset, [many, *overrides], range(2)):
            assert check_replays(instance, slots) == len(BUILT_IN)


@pytest.mark.jit
@pytest.mark.parametrize("preset", preset_names())
def test_policies_replay_in_every_preset_as_it_is(preset: str) -> None:
    for instance in drawn(preset, [], range(6)):
        assert check_replays(instance, slots=8) == len(BUILT_IN)


@pytest.mark.jit
def test_policies_replay_in_random_instances_from_six_slots_on() -> None:
    ended = 0
    for seed in range(130):
        instance = random_instance(np.random.default_rng(seed), max_jobs=16)
        ended += check_replays(instance, slots=6 + seed % 3)
    assert ended > 1150  # not all deadlocked


# --- Candidates ----------------------------------------------------------------------------------


def brute_force(view: View, job: int, shares: Sequence[float]) -> set[Placement]:
    """Start x growth x budget by the placement rules themselves, one after the other."""
    a, free = view.arrays, view.state.free_gpus
    p, n = a.job_profile[job], free.size
    prices = view.usd_per_gpu_h
    path, alloc = np.empty(n, np.int64), np.empty(n, np.int64)
    found = set()
    for start, grow, share in product(range(n), (GROW_NONE, GROW_BANDWIDTH, GROW_PRICE), shares):
        target = max(view.k_min(job), math.ceil(share * view.k_star(job)))
        length, gpus = grow_path(
            a, free, view.state.link_used, prices, p, target, start, grow, False, path
        )
        if length > 0 and gpus >= view.k_min(job):
            allocate(FILL_CHEAPEST, path, length, gpus, free, prices, alloc)
            found.add(Placement(job, tuple(path[:length].tolist()), tuple(alloc[:length].tolist())))
    return found


def check_action_set(solo: Solo, budgets: Sequence[float]) -> None:
    """All that has to hold of the action set in one state."""
    view, slots = solo.view, solo.batch.world.slots
    shares = [*budgets, *([0.0] if view.arrays.k_min.max() > 1 else [])]
    placements = solo.placements()
    assert solo.mask.any()
    assert all(view.why_invalid(placement) is None for placement in placements.values())
    assert len(set(placements.values())) == len(placements)
    jobs = [int(job) for job in slots.job[0] if job >= 0]
    pending = view.pending.tolist()
    assert len(jobs) == len(set(jobs)) == min(len(pending), slots.job.shape[1])
    assert set(jobs) <= set(pending)
    assert jobs[0] == pending[0]
    assert slots.hidden[0, 0] == len(pending) - len(jobs)
    for slot, job in enumerate(jobs):
        indices = solo.batch.actions_of(0, job)
        assert indices.start == slot * solo.batch.capacity
        assert len(indices) <= solo.batch.capacity
        assert {placements[index].job for index in indices} <= {job}
        offered, expected = {placements[index] for index in indices}, brute_force(view, job, shares)
        assert expected <= offered
        assert len(offered - expected) <= 2  # CR-LDF's, and Alg. 1's with an even spread
    assert sum(len(solo.batch.actions_of(0, job)) for job in jobs) == len(placements)


def check_states(instances: Sequence[Instance], *, slots: int = 4) -> int:
    """`check_action_set` in random states of every instance; how many states."""
    number = 0
    for seed, instance in enumerate(instances):
        rng = np.random.default_rng(seed)
        budgets = (DEFAULT_BUDGETS, (1.0,), (0.3,), (0.9, 0.6, 0.1))[seed % 4]
        solo = Solo(instance, slots, budgets)
        for _ in solo.states(rng):
            check_action_set(solo, budgets)
            number += 1
    return number


def test_the_action_set_is_valid_distinct_and_complete_in_the_smallest_preset() -> None:
    overrides = ["workload.n_jobs=9", *arrivals("tiny"), *series("tiny")]
    assert check_states(drawn("tiny", overrides, range(2))) > 20


@pytest.mark.jit
def test_the_action_set_is_valid_distinct_and_complete_in_random_instances() -> None:
    made = [random_instance(np.random.default_rng(seed)) for seed in range(300)]
    assert check_states(made) > 2500


@pytest.mark.jit
@pytest.mark.parametrize("preset", ["paper", "physical"])
def test_the_action_set_is_valid_distinct_and_complete_in_the_presets(preset: str) -> None:
    overrides = ["workload.n_jobs=24", *arrivals(preset), *series(preset)]
    assert check_states(drawn(preset, overrides, range(3))) > 60


@pytest.mark.jit
@given(instances(max_jobs=1), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=300, derandomize=True)
def test_a_path_read_off_its_order_is_the_path_that_is_grown(instance: Instance, seed: int) -> None:
    """In any state, reachable or not."""
    rng, a = np.random.default_rng(seed), instance.arrays
    n = instance.n_regions
    free = rng.integers(0, a.gpus + 1)
    link_used = a.link_bytes_per_s * rng.choice([0.0, 0.5, 1.0, 1.0 + 1e-9], (n, n))
    prices = rng.choice([-0.1, 0.1, 0.1, 0.3], n)
    orders = allocate_orders(n)
    fill_orders(a, free, link_used, prices, orders)
    path = np.empty(n, np.int64)
    for p, start, g in product(range(a.k_star.size), range(n), range(2)):
        grow = (GROW_BANDWIDTH, GROW_PRICE)[g]
        for target in range(int(a.k_min[p]), int(a.k_max[p]) + 1):
            grown = grow_path(a, free, link_used, prices, p, target, start, grow, False, path)
            order = orders.region[g, start]
            read = walk(
                a.act_bytes[p],
                a.comp_s[p],
                orders,
                g,
                start,
                target,
            )
            assert read == grown
            assert order[: grown[0]].tolist() == path[: grown[0]].tolist()


# --- There is always something to do -------------------------------------------------------------


def play_out(instance: Instance, how: str, budgets: tuple[float, ...]) -> None:
    """One episode to its end: waits as long as it may, or never, or at random."""
    solo = Solo(instance, 2, budgets)
    rng = np.random.default_rng(0)
    for _ in range(20_000):
        if solo.code != DECISION:
            assert solo.view.pending.size == solo.view.running.size == 0
            return
        mask = solo.mask
        assert mask.any()
        first = int(np.flatnonzero(mask)[0])
        wait = mask[-1] and (how == "late" or (how == "random" and rng.random() < 0.5))
        solo.step(solo.wait if wait else first)
    pytest.fail("the episode does not end")


@pytest.mark.jit
@pytest.mark.parametrize("how", ["late", "early", "random"])
def test_every_episode_ends_and_the_mask_is_never_empty(how: str) -> None:
    for seed in range(150):
        instance = random_instance(np.random.default_rng(1000 + seed), max_jobs=8)
        play_out(instance, how, [DEFAULT_BUDGETS, (1.0,), (0.1,)][seed % 3])


@pytest.mark.parametrize("how", ["late", "early"])
def test_every_episode_of_the_smallest_preset_ends(how: str) -> None:
    for instance in drawn("tiny", [*arrivals("tiny"), *series("tiny")], range(2)):
        play_out(instance, how, DEFAULT_BUDGETS)


@pytest.mark.jit
def test_a_hostable_job_has_a_candidate_in_the_empty_cluster_at_all_prices() -> None:
    rng, number = np.random.default_rng(0), 0
    for i in range(300):
        instance = random_instance(rng, max_jobs=6)
        a = instance.arrays
        assert all(hostable(a, p) for p in range(a.k_star.size))  # strategies sees to it
        solo = Solo(instance, instance.n_jobs, ((1.0,), (0.05,), DEFAULT_BUDGETS)[i % 3])
        while solo.code == DECISION:  # wait, so that all stays empty while prices change
            for job in solo.view.pending.tolist():
                assert len(solo.batch.actions_of(0, job)) > 0
                number += 1
            if not solo.mask[-1]:
                break
            solo.step(solo.wait)
    assert number > 1500


def test_no_job_is_hostable_by_a_larger_budget_alone() -> None:
    """t_comp(2) is so short that no link carries two stages, while three would do."""
    fast_at_two = np.array([3.0, 0.1, 1.0])
    links = np.array([[0.0, 2.0, 0.0], [2.0, 0.0, 2.0], [0.0, 2.0, 0.0]])
    made = make_instance([1, 2, 1], [fast_at_two], [(0.0, 0, 5.0)], links=links)
    least_three = made.arrays._replace(k_min=np.array([3]), k_star=np.array([3]))
    assert hostable(made.arrays, 0)
    assert hostable(least_three, 0)
    apart = make_instance([1, 1, 1], [fast_at_two], [(0.0, 0, 5.0)], links=links)
    assert hostable(apart.arrays, 0)
    assert not hostable(apart.arrays._replace(k_min=np.array([2]), k_star=np.array([3])), 0)


def test_k_min_is_a_budget_of_its_own_where_a_job_needs_it() -> None:
    one = make_instance([4], [np.ones(4)], [(0.0, 0, 1.0)])
    two = make_instance([4], [np.ones(4)], [(0.0, 0, 1.0)], k_min=[2])
    assert budget_shares(one.arrays, (0.5,)).tolist() == [0.5]
    assert budget_shares(two.arrays, (0.5,)).tolist() == [0.5, 0.0]
    solo = Solo(two, 1, (1.0,))
    assert {placement.gpus for placement in solo.placements().values()} == {(2,)}
