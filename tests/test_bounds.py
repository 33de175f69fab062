"""Lower bounds against exhaustive search, reached where they must be, and by hand."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from every_schedule import TooManyError, every_outcome, small_instance, spreads
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from strategies import instances, make_instance, random_instance

import eval.bounds
import eval.job_options
from agents.policy import REGISTRY, make_policy
from bace_env.config import load_scenario
from bace_env.errors import BaceError, DeadlockError
from bace_env.instance import Instance
from bace_env.kernels import VALID, check_placement, placed_iteration_time
from bace_env.pipeline import T_COMM_FORMS, path_iteration_time, price_integral
from bace_env.scenario import build_instance, episode_seed
from bace_env.simulator import Simulator
from bace_env.types import FloatArray
from eval.bounds import Bounds, lower_bounds, mean_busy_times
from eval.job_options import cheapest_spread, execution_range
from eval.rollout import run_episode

properties = settings(deadline=None, max_examples=100, derandomize=True)
NEAR = 1e-8  # the bounds give away 1e-9 for rounding


def as_array(bounds: Bounds) -> FloatArray:
    return np.array(dataclasses.astuple(bounds))


def values_of(instance: Instance, policy: str) -> FloatArray:
    trace = run_episode(instance, make_policy(policy))
    return np.array([trace.summary().avg_jct_s, trace.cost_usd.sum(), trace.objective()])


# --- Against every schedule ----------------------------------------------------------------------


def gaps_to_every_schedule(seed: int, wanted: int, most: int) -> FloatArray:
    """Least value minus bound, relative to the value, of each instance and criterion."""
    rng, gaps, kinds = np.random.default_rng(seed), [], set()
    while len(gaps) < wanted:
        instance = small_instance(rng)
        try:
            found = every_outcome(instance, most)
        except TooManyError:
            continue
        a = instance.arrays
        kinds.add((a.t_comm_form, bool((a.price_count > 1).any()), instance.n_jobs))
        bound, least = as_array(lower_bounds(instance)), found.min(axis=0)
        # Strictly: what is given away for rounding must suffice.
        assert (bound <= least).all(), (bound, least, instance.to_json())
        gaps.append((least - bound) / np.maximum(np.abs(least), 1e-12))
    assert len(kinds) >= min(17, wanted // 3)  # of 18: forms, prices that change, jobs
    return np.array(gaps)


@pytest.mark.jit
def test_no_schedule_is_better() -> None:
    gaps = gaps_to_every_schedule(0, 180, 2000)
    # And many are as good: the bounds are no mere formality.
    reached = (gaps < NEAR).mean(axis=0)
    assert (reached > [0.7, 0.7, 0.4]).all(), reached


def test_no_schedule_is_better_without_compiling() -> None:
    gaps_to_every_schedule(1, 15, 100)


#: With few simulations, and without the learned one, which is slow to load.
POLICIES = [name for name in REGISTRY if name not in ("search", "ppo")]
POLICIES.append("search:simulations=10")


@pytest.mark.jit
def test_no_policy_is_better() -> None:
    rng = np.random.default_rng(7)
    for _ in range(60):
        instance = random_instance(rng)
        bound = as_array(lower_bounds(instance))
        for policy in POLICIES:
            try:
                values = values_of(instance, policy)
            except DeadlockError:
                continue  # a single-region rule and a job that needs several
            assert (bound <= values).all(), (policy, instance.to_json())


@pytest.mark.jit
@pytest.mark.parametrize("preset", ["fig1", "paper", "physical", "tiny"])
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["workload.arrivals=poisson", "workload.mean_interarrival_h=5"],
        ["pipeline.t_comm=residual", "objective.cost_weight=2.0"],
    ],
    ids=["as it is", "arrivals", "residual"],
)
def test_no_policy_is_better_on_presets(preset: str, overrides: list[str]) -> None:
    scenario = load_scenario(preset, overrides)
    for episode in range(2):
        instance = build_instance(scenario, episode_seed(0, episode))
        bound = as_array(lower_bounds(instance))
        assert bound[0] >= instance.jct_ref_s * (1 - NEAR)
        for policy in POLICIES:
            try:
                values = values_of(instance, policy)
            except DeadlockError:
                continue
            assert (bound <= values).all(), policy


@properties
@given(instances())
def test_never_below_the_reference(instance: Instance) -> None:
    a = instance.arrays
    # `jct_ref_s` takes every hop to lie inside a region: a bound where that is the fastest hop.
    comp_s = a.comp_s[a.job_profile]
    if a.t_comm_form == T_COMM_FORMS.index("residual"):
        fastest = a.act_bytes / max(float(a.link_bytes_per_s.max()), 1e-9)
    else:
        fastest = np.full(a.intra_s.shape, np.inf)
    fastest = np.minimum(fastest[a.job_profile], comp_s.min(axis=1))
    hidden = a.t_comm_form == T_COMM_FORMS.index("hidden")
    bounds = lower_bounds(instance)
    if a.iterations.any() and (hidden or (a.intra_s[a.job_profile] <= fastest).all()):
        assert bounds.avg_jct_s >= instance.jct_ref_s * (1 - NEAR)
    parts = bounds.avg_jct_s / instance.jct_ref_s
    parts += instance.cost_weight * bounds.total_cost_usd / instance.cost_ref_usd
    assert bounds.objective >= parts - NEAR * max(abs(parts), 1.0)


# --- Reached -------------------------------------------------------------------------------------


def test_one_job_alone_reaches_the_bound() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        k_max = int(rng.integers(1, 6))
        instance = make_instance(
            [2, 3],
            [rng.uniform(1, 9, k_max)],
            [(float(rng.uniform(0, 9)), 0, 7.0)],
            links=np.array([[0.0, 9.0], [9.0, 0.0]]),
            latency_s=np.array([[0.0, 0.4], [0.4, 0.0]]),
            t_comm=str(rng.choice(T_COMM_FORMS)),
            intra_s=[float(rng.choice([0.0, 6.0]))],
        )
        least = every_outcome(dataclasses.replace(instance, cost_weight=3e4), 10**6).min(axis=0)
        bound = as_array(lower_bounds(dataclasses.replace(instance, cost_weight=3e4)))
        assert bound == pytest.approx(least, rel=NEAR)


def test_jobs_that_fit_beside_one_another_reach_the_bound() -> None:
    # Two GPUs each are best (2 * (2 * 1 + 1 * 1) = 6 s an iteration), and there are four.
    instance = make_instance([2, 2], [np.array([4.0, 1.0])], [(0, 0, 10), (5, 0, 20)])
    assert lower_bounds(instance).avg_jct_s == pytest.approx((60 + 120) / 2, rel=NEAR)
    assert every_outcome(instance, 10**5)[:, 0].min() == pytest.approx(90)


def test_one_gpu_is_the_shortest_first_queue() -> None:
    # Iterations of 2 * (1 + 1) s, jobs of 4, 12 and 20 s at 0.1 USD/kWh and 1 kW.
    instance = make_instance([1], [np.array([1.0])], [(0, 0, 5), (0, 0, 1), (0, 0, 3)])
    instance = dataclasses.replace(instance, cost_weight=1e4)
    bounds = lower_bounds(instance)
    jct_s, cost = (4 + 16 + 36) / 3, 0.1 * 36 / 3600
    assert bounds.avg_jct_s == pytest.approx(jct_s, rel=NEAR)
    assert bounds.total_cost_usd == pytest.approx(cost, rel=NEAR)
    expected = jct_s / instance.jct_ref_s + 1e4 * cost / instance.cost_ref_usd
    assert bounds.objective == pytest.approx(expected, rel=NEAR)
    assert every_outcome(instance, 10**5).min(axis=0) == pytest.approx(
        [jct_s, cost, expected], rel=NEAR
    )


def test_prices_that_change_are_waited_for() -> None:
    # 40 s of work. Waiting for 60 s meets 0.1, then 0.2 USD/kWh; starting at once 0.5 and 0.1.
    prices = [([0.0, 60.0, 90.0], [0.5, 0.1, 0.2], math.inf)]
    instance = make_instance([1], [np.array([10.0])], [(0, 0, 1)], prices=prices)
    expected = (30 * 0.1 + 10 * 0.2) / 3600
    assert lower_bounds(instance).total_cost_usd == pytest.approx(expected, rel=NEAR)
    assert every_outcome(instance, 100)[:, 1].min() == pytest.approx(expected)
    # After 75 s the 0.1 is half over: then 15 * 0.1 + 25 * 0.2, if the job does not come sooner.
    late = make_instance([1], [np.array([10.0])], [(75, 0, 1)], prices=prices)
    expected = (15 * 0.1 + 25 * 0.2) / 3600
    assert lower_bounds(late).total_cost_usd == pytest.approx(expected, rel=NEAR)


def test_negative_prices_pay_for_the_longest_run() -> None:
    # k = 2 by t_comp = 3: inside a region 2 * (0 + 2 * 3 + 3) = 18 s, between regions
    # 2 * (3 + 0.5 + 9) = 25 s with the fast link and 2 * (3 + 2 + 9) = 28 s with the slow one.
    instance = make_instance(
        [1, 1],
        [np.array([5.0, 3.0])],
        [(0, 0, 1)],
        links=np.full((2, 2), 9.0) - 9 * np.eye(2),
        latency_s=np.array([[0.0, 0.5], [2.0, 0.0]]),
        prices=[([0.0], [-0.1], math.inf), ([0.0], [-0.3], math.inf)],
        k_min=[2],
    )
    bounds = lower_bounds(instance)
    assert bounds.total_cost_usd == pytest.approx(-0.4 * 28 / 3600, rel=NEAR)
    assert bounds.avg_jct_s == pytest.approx(25, rel=NEAR)
    assert every_outcome(instance, 100)[:, :2].min(axis=0) == pytest.approx([25, -0.4 * 28 / 3600])


def test_capacity_sends_gpus_to_dearer_regions() -> None:
    # Three GPUs: two at 0.1, one at 0.2 USD/kWh, for 2 * (1 + 3 * 1 + 1) = 10 s with one hop.
    links = np.full((2, 2), 9.0) - 9 * np.eye(2)
    prices = [([0.0], [0.2], math.inf), ([0.0], [0.1], math.inf)]
    table = [np.array([9.0, 9.0, 1.0])]
    instance = make_instance([3, 2], table, [(0, 0, 1)], links=links, prices=prices, k_min=[3])
    # But inside the dearer region it takes 8 s only: 3 * 0.2 * 8 = 4.8 against 0.4 * 10 = 4.
    assert lower_bounds(instance).total_cost_usd == pytest.approx(4 / 3600, rel=NEAR)
    apart = make_instance([3, 2], table, [(0, 0, 1)], prices=prices, k_min=[3])
    assert lower_bounds(apart).total_cost_usd == pytest.approx(4.8 / 3600, rel=NEAR)


def test_tiny_by_hand() -> None:
    # Own best and all optima are those of tests/test_tiny.py.
    instance = build_instance(load_scenario("tiny"), 0)
    bounds = lower_bounds(instance)
    assert 1232 <= bounds.avg_jct_s <= 1566.667
    assert bounds.total_cost_usd == pytest.approx(0.2311111, rel=1e-6)  # the known optimum
    assert bounds.objective <= 1.889310


def test_a_job_that_fits_nowhere_is_named() -> None:
    instance = make_instance([2], [np.array([1.0, 1.0])], [(0, 0, 1)])
    arrays = instance.arrays._replace(k_min=np.array([3]))
    with pytest.raises(BaceError, match=r"fit into the empty cluster, got \[0\]"):
        lower_bounds(dataclasses.replace(instance, arrays=arrays))


# --- The parts -----------------------------------------------------------------------------------


@pytest.mark.jit
def test_execution_times_of_all_paths_lie_in_the_range() -> None:
    rng, reached = np.random.default_rng(5), []
    for _ in range(80):
        instance = random_instance(rng, max_regions=4)
        a = instance.arrays
        a.gpus[:] = np.minimum(a.gpus, 3)
        least, most = execution_range(a)
        seen = np.full(least.shape, np.inf)
        simulator = Simulator(instance)
        state = simulator.view.state
        for used in (0.0, 0.4):
            state.link_used[:] = used * a.link_bytes_per_s
            state.free_gpus[:] = a.gpus
            state.status[:] = 1
            for path, alloc in spreads(a.gpus.tolist()):
                where, gpus = np.array(path), np.array(alloc)
                k, hops = int(gpus.sum()), len(path) - 1
                for job, p in enumerate(a.job_profile):
                    if check_placement(a, state, job, where, gpus) != (VALID, 0):
                        continue
                    time_s = placed_iteration_time(a, state.link_used, p, k, where, len(path))
                    assert least[p, k, hops] * (1 - 1e-12) <= time_s
                    assert time_s <= most[p, k, hops] * (1 + 1e-12)
                    seen[p, k, hops] = min(seen[p, k, hops], time_s)
        possible = np.isfinite(least)
        possible[[p for p in range(len(least)) if p not in a.job_profile]] = False
        reached += (np.abs(seen[possible] / least[possible] - 1) < 1e-9).tolist()
    assert np.mean(reached) > 0.8


@pytest.mark.parametrize("form", range(len(T_COMM_FORMS)))
def test_range_is_equation_1(form: int) -> None:
    # Equal links and latencies everywhere: all paths of as many hops take the same time.
    links = np.full((4, 4), 3.0) - 3 * np.eye(4)
    latency_s = np.full((4, 4), 0.25) - 0.25 * np.eye(4)
    table = 5 / np.arange(1, 9) + 0.5
    instance = make_instance(
        [2, 2, 2, 2],
        [table, table],
        [(0, 0, 1), (0, 1, 1)],
        links=links,
        latency_s=latency_s,
        t_comm=T_COMM_FORMS[form],
        act_bytes=[1.0, 2.0],
        intra_s=[0.1, 2.0],
        micro_batches=[3, 5],
    )
    a = instance.arrays
    least, most = execution_range(a)
    assert least.shape == (2, 9, 4)
    for p, k, h in itertools.product(range(2), range(9), range(4)):
        if not (h < k <= 2 * (h + 1)) or (h > 0 and a.act_bytes[p] / a.comp_s[p, k] > 3.0):
            assert least[p, k, h] == most[p, k, h] == np.inf
            continue
        rest = a.act_bytes[p], a.comp_s[p, k], a.intra_s[p], a.micro_batches[p], k, h, 0.25 * h
        assert least[p, k, h] == pytest.approx(path_iteration_time(form, *rest, 3.0, h / 3.0))
        # At worst only b_j is free.
        assert most[p, k, h] == pytest.approx(path_iteration_time(form, *rest, 1e-9, 1e9))


def test_unusable_regions_and_links_do_not_count() -> None:
    # 0 -> 1 carries a need of 1, 1 -> 0 is missing, 2 is alone with its GPU, 3 is far larger.
    links = np.zeros((4, 4))
    links[0, 1], links[2, 3] = 1.0, 0.5
    a = make_instance([1, 2, 1, 4], [np.ones(8)], [(0, 0, 1)], links=links).arrays
    least, _ = execution_range(a)
    inside, across = np.isfinite(least[0, :, 0]), np.isfinite(least[0, :, 1])
    assert inside.tolist() == [False, True, True, True, True, False, False, False, False]
    assert across.tolist() == [False, False, True, True, False, False, False, False, False]
    just = a._replace(act_bytes=np.array([1.0 + 5e-10]))
    assert np.isfinite(execution_range(just)[0][0, 3, 1])  # a link may be filled to 1 + 1e-9
    over = a._replace(act_bytes=np.array([1.0 + 2e-9]))
    assert execution_range(over)[0].shape[2] == 1 or np.isinf(execution_range(over)[0][0, 3, 1])


@properties
@given(st.integers(0, 2**32 - 1))
def test_greedy_spread_is_the_linear_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    r = int(rng.integers(1, 7))
    room, unit = rng.integers(1, 6, r), rng.choice([-0.2, 0.0, 0.1, 0.3, 0.7], (3, r))
    k = rng.integers(1, room.sum() + 1, 3)
    cost, spread = cheapest_spread(unit, room, k, np.ones(3, dtype=bool))
    assert (spread.sum(axis=1) == k).all() and ((spread >= 0) & (spread <= room)).all()
    for i in range(3):
        program = linprog(
            unit[i],
            A_eq=np.ones((1, r)),
            b_eq=[k[i]],
            bounds=[(0, g) for g in room],
            method="highs",
        )
        assert cost[i] == pytest.approx(program.fun, abs=1e-9)
    few = np.minimum(k, room.max())
    cost, spread = cheapest_spread(unit, room, few, np.zeros(3, dtype=bool))
    for i in range(3):
        assert cost[i] == pytest.approx(
            min(few[i] * u for u, g in zip(unit[i], room, strict=True) if g >= few[i])
        )
        assert np.count_nonzero(spread[i]) == 1


def one_gpu_with_prices(rng: np.random.Generator, steps: int, jobs: int) -> Instance:
    starts = np.concatenate([[0.0], np.cumsum(rng.uniform(1, 30, steps))])
    period = float(starts[-1]) if rng.random() < 0.5 else math.inf
    return make_instance(
        [1],
        [rng.uniform(0.5, 3, 1)],
        [(float(rng.uniform(0, 60)), 0, float(rng.integers(1, 60))) for _ in range(jobs)],
        prices=[(starts[:-1].tolist(), rng.uniform(-0.3, 1, steps).tolist(), period)],
    )


@pytest.mark.jit
def test_cheapest_window_is_that_of_all_starts() -> None:
    rng = np.random.default_rng(9)
    for _ in range(60):
        instance = one_gpu_with_prices(rng, int(rng.integers(2, 6)), 1)
        a = instance.arrays
        series = (
            a.price_time_s[0],
            a.price_usd_per_kwh[0],
            a.price_cumulative[0],
            a.price_period_s[0],
        )
        run_s, since_s = float(instance.single_gpu_s[0]), float(a.arrival_s[0])
        period_s = min(series[3], 1e6)
        rounds = np.arange(int((since_s + run_s) / period_s) + 3)
        changes = (a.price_time_s[0] + rounds[:, None] * period_s).ravel()
        starts = np.concatenate([since_s + np.linspace(0, 300, 500), changes, changes - run_s])
        integrals = [
            price_integral(*series, s + run_s) - price_integral(*series, s)
            for s in starts[starts >= since_s]
        ]
        expected = min(integrals) / 3600
        assert lower_bounds(instance).total_cost_usd == pytest.approx(expected, rel=NEAR, abs=1e-12)


@pytest.mark.jit
def test_thinned_tables_only_relax(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, looser = np.random.default_rng(11), 0
    drawn = [random_instance(rng, max_regions=5, max_jobs=8) for _ in range(60)]
    exact = np.array([as_array(lower_bounds(instance)) for instance in drawn])
    monkeypatch.setattr(eval.job_options, "_MOST_GRAPHS", 2)
    monkeypatch.setattr(eval.job_options, "_MOST_WINDOWS", 1)
    for instance, bound in zip(drawn, exact, strict=True):
        thinned = as_array(lower_bounds(instance))
        # The objective's GPU prices are searched anew, and may come out a little better.
        tolerance = np.array([1e-3, NEAR, 1e-3]) * np.abs(bound)
        assert (thinned <= bound + tolerance).all()
        looser += bool((thinned < bound - tolerance).any())
    assert looser > 0


def test_mean_busy_times_by_hand() -> None:
    # 10 s of work from 0; at 2 comes one of 4 s, at 3 one of 1 s; at 20 one of 2 s, and nothing.
    arrivals, durations = np.array([0.0, 2, 3, 20, 30]), np.array([10.0, 4, 1, 2, 0])
    #   0-2 job 0, 2-3 job 1, 3-4 job 2, 4-7 job 1, 7-15 job 0, 20-22 job 3
    expected = [(2 * 1 + 8 * 11) / 10, (1 * 2.5 + 3 * 5.5) / 4, 3.5, 21, 30]
    assert mean_busy_times(arrivals, durations) == pytest.approx(expected)


@properties
@given(st.integers(0, 2**32 - 1))
def test_mean_busy_times_are_the_least_of_a_transportation_problem(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    arrivals = np.sort(rng.integers(0, 8, n)).astype(float)
    durations = rng.integers(1, 5, n).astype(float)
    slots = np.arange(int(arrivals.max() + durations.sum()))  # of one second; service is in slots
    cost = (slots + 0.5) / durations[:, None] + np.where(slots < arrivals[:, None], 1e6, 0)
    jobs, times = np.eye(n), np.eye(slots.size)
    program = linprog(
        cost.ravel(),
        A_ub=np.kron(np.ones((1, n)), times),
        b_ub=np.ones(slots.size),
        A_eq=np.kron(jobs, np.ones((1, slots.size))),
        b_eq=durations,
        method="highs",
    )
    assert mean_busy_times(arrivals, durations).sum() == pytest.approx(program.fun)


@properties
@given(instances(max_jobs=4), st.integers(0, 2**32 - 1))
def test_priced_jobs_start_at_the_best_time(instance: Instance, seed: int) -> None:
    """The closed form against all starts on a grid and all regions' prices, spelled out."""
    rng = np.random.default_rng(seed)
    a = instance.arrays
    options = eval.job_options.job_options(a)
    per_usd = 1e4 * float(rng.random())
    rates = per_usd * eval.job_options.constant_rates(a)
    weight, end = float(rng.uniform(0.1, 2)), float(rng.uniform(1, 300))
    c = float(rng.uniform(0.0, 3.0)) + abs(float(rates.max()))
    flat, phi = float(rng.choice([0.0, 0.4])) * end, float(rng.choice([0.0, 0.6, 1.0]))
    few = options.take(np.unique(np.append(options.first, rng.integers(0, options.job.size, 5))))
    priced = eval.bounds._Priced(a, few, weight, per_usd * few.usd, rates)
    value = float(priced._values(np.array([[c, end, flat / end, phi]]), few, per_usd * few.usd)[0])
    price = np.maximum(c - phi * rates, 0.0)

    def area(t: FloatArray) -> FloatArray:
        """Integral of s up to t: 1 until `flat`, then falling to 0 at `end`."""
        within = np.clip(t, flat, end)
        return np.minimum(t, flat) + (within - flat) * (1 - (within - flat) / (2 * (end - flat)))

    expected = -float(price @ a.gpus) * (flat + end) / 2
    since = a.arrival_s[0]
    for job in range(instance.n_jobs):
        best = np.inf
        for i in np.flatnonzero(few.job == job):
            released, e = a.arrival_s[job] - since, few.least_s[i]
            starts = released + np.append(np.linspace(0, end * 1.5, 3000), [max(end - released, 0)])
            held = area(starts + e) - area(starts)
            paid = held * float(few.spread[i] @ price)
            best = min(
                best, float((weight * (starts + e - released) + paid).min()) + per_usd * few.usd[i]
            )
        expected += best
    scale = abs(expected) + weight * end + float(price @ a.gpus) * end
    assert value <= expected + 1e-9 * scale
    assert value >= expected - 1e-3 * scale


def test_a_long_price_series_is_quick_and_safe() -> None:
    rng = np.random.default_rng(13)
    hours = 3600.0 * np.arange(400)
    prices = [(hours.tolist(), rng.uniform(-0.1, 0.4, 400).tolist(), math.inf) for _ in range(2)]
    links = np.full((2, 2), 9.0) - 9 * np.eye(2)
    jobs = [(float(3600 * j), 0, 900.0) for j in range(6)]
    tables = [60 / np.arange(1, 41) + 1]
    instance = make_instance([24, 16], tables, jobs, links=links, prices=prices)
    bound = as_array(lower_bounds(instance))
    for policy in ("bace", "lcf", "sjf"):
        assert (bound <= values_of(instance, policy)).all()
