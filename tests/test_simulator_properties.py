"""What holds in every state of every episode, recomputed from the trace with plain NumPy."""

import dataclasses
import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import instances, make_instance

from agents.policy import Policy, make_policy
from bace_env.errors import DeadlockError, InvalidPlacementError
from bace_env.instance import Instance
from bace_env.kernels import FINISHED, FUTURE, PENDING, RUNNING
from bace_env.simulator import WAIT, Action, Placement, Simulator, View
from bace_env.trace import EpisodeTrace
from bace_env.types import FloatArray

properties = settings(deadline=None, max_examples=100, derandomize=True)


class Hesitant:
    """The random policy, which also waits now and then without need."""

    name = "hesitant"

    def __init__(self) -> None:
        self._policy, self._rng = make_policy("random"), np.random.default_rng(0)

    def reset(self, seed: int) -> None:
        """Seed both sources."""
        self._policy.reset(seed)
        self._rng = np.random.default_rng(seed)

    def act(self, view: View) -> Action:
        """Waits in one of four cases, if something runs."""
        if len(view.running) and self._rng.random() < 0.25:
            return WAIT
        return self._policy.act(view)


def policy_of(name: str) -> Policy:
    return Hesitant() if name == "hesitant" else make_policy(name)


def steps(simulator: Simulator, policy: Policy, seed: int = 0) -> Iterator[Action]:
    """Run the policy, yielding after every step; the end may be a deadlock."""
    policy.reset(seed)
    for _ in range(10_000):
        if simulator.done:
            return
        action = policy.act(simulator.view)
        try:
            simulator.step(action)
        except DeadlockError:
            return
        yield action
    pytest.fail("the episode does not end")


def run(instance: Instance, name: str, seed: int = 0) -> EpisodeTrace:
    simulator = Simulator(instance)
    for _ in steps(simulator, policy_of(name), seed):
        pass
    return simulator.trace(name)


def use_of(trace: EpisodeTrace, jobs: list[int]) -> tuple[np.ndarray, FloatArray]:
    """GPUs `(R,)` and bandwidth `(R, R)` that these jobs hold."""
    n = trace.instance.n_regions
    gpus, links = np.zeros(n, dtype=np.int64), np.zeros((n, n))
    profile = trace.instance.arrays.job_profile
    for j in jobs:
        path, alloc = trace.placement(j)
        comp_s = trace.instance.arrays.comp_s[profile[j], sum(alloc)]
        gpus[list(path)] += alloc
        for hop in pairwise(path):
            links[hop] += trace.instance.arrays.act_bytes[profile[j]] / comp_s
    return gpus, links


def assert_consistent(simulator: Simulator) -> None:
    """Eq. 5, Eq. 6 and the state against the trace, now."""
    trace, view, state = simulator.trace("x"), simulator.view, simulator.view.state
    arrays = simulator.instance.arrays
    running = view.running.tolist()
    for j in range(simulator.instance.n_jobs):
        if j in running:
            assert trace.start_s[j] <= view.now_s <= trace.finish_s[j]
        elif state.status[j] == FINISHED:
            assert trace.start_s[j] <= trace.finish_s[j] <= view.now_s
        else:
            assert np.isnan([trace.start_s[j], trace.finish_s[j]]).all()
            assert (state.status[j] == PENDING) == (j in view.pending)
            assert (arrays.arrival_s[j] <= view.now_s) == (j in view.pending)
    gpus, links = use_of(trace, running)
    assert (gpus <= arrays.gpus).all()  # Eq. 5
    assert (links <= arrays.link_bytes_per_s * (1 + 1e-9)).all()  # Eq. 6
    assert (view.free_gpus == arrays.gpus - gpus).all()
    assert (state.link_used >= 0).all()
    assert state.link_used == pytest.approx(links, rel=1e-9, abs=1e-9 * links.max())
    assert (state.link_used[links == 0] == 0).all()
    total = arrays.link_bytes_per_s.sum()
    assert view.congestion == pytest.approx(links.sum() / total if total > 0 else 0.0)
    assert simulator.done or view.pending.size > 0
    assert sorted(view.pending) == view.pending.tolist()


@properties
@given(instances(), st.sampled_from(["hesitant", "bace", "bace:partial_fill"]), st.integers(0, 99))
def test_every_state_is_consistent(instance: Instance, name: str, seed: int) -> None:
    simulator = Simulator(instance)
    status, now_s = simulator.view.state.status.copy(), 0.0
    assert_consistent(simulator)
    for action in steps(simulator, policy_of(name), seed):
        assert_consistent(simulator)
        after = simulator.view.state.status
        assert (after >= status).all()  # FUTURE, PENDING, RUNNING, FINISHED: never back
        assert simulator.view.now_s >= now_s
        status, now_s = after.copy(), simulator.view.now_s
        assert simulator.decisions[-1].job == (None if action is WAIT else action.job)
    if simulator.done:
        assert (status == FINISHED).all()
        assert (simulator.view.free_gpus == instance.arrays.gpus).all()
        started = [d.job for d in simulator.decisions if d.job is not None]
        assert sorted(started) == list(range(instance.n_jobs))
    else:  # deadlock
        assert not np.isin([FUTURE, RUNNING], status).any()


def price_of(instance: Instance, region: int, t: float) -> float:
    a = instance.arrays
    starts = a.price_time_s[region, : a.price_count[region]]
    if math.isfinite(a.price_period_s[region]):
        t %= a.price_period_s[region]
    return float(a.price_usd_per_kwh[region, np.flatnonzero(starts <= t)[-1]])


def breakpoints(instance: Instance, region: int, start_s: float, finish_s: float) -> FloatArray:
    """The interval's ends and all price changes between them."""
    a = instance.arrays
    times = a.price_time_s[region, : a.price_count[region]]
    if math.isfinite(a.price_period_s[region]):
        periods = np.arange(finish_s // a.price_period_s[region] + 1) * a.price_period_s[region]
        times = (periods[:, None] + times).ravel()
    inside = times[(times > start_s) & (times < finish_s)]
    return np.concatenate([[start_s], np.sort(inside), [finish_s]])


def integrate(instance: Instance, region: int, start_s: float, finish_s: float) -> float:
    """Price integral by the midpoint of each step, USD/kWh * s."""
    points = breakpoints(instance, region, start_s, finish_s)
    middle = (points[1:] + points[:-1]) / 2
    return float(np.dot(np.diff(points), [price_of(instance, region, t) for t in middle]))


@properties
@given(instances(), st.sampled_from(["hesitant", "bace", "cr-lcf"]))
def test_energy_and_cost_are_the_integrals_over_the_trace(instance: Instance, name: str) -> None:
    trace, a = run(instance, name), instance.arrays
    scale = max(1e-12, float(np.abs(a.price_usd_per_kwh).max()))
    traffic_usd = 0.0
    for j in np.flatnonzero(trace.finished).tolist():
        p = a.job_profile[j]
        gb = a.act_bytes[p] * a.micro_batches[p] * a.iterations[j] / 1e9
        path = trace.placement(j)[0]
        egress = sum(
            gb * 1e9 * (a.egress_usd_per_byte[u] + a.egress_usd_per_byte[v])
            for u, v in pairwise(path)
        )
        energy, cost = 0.0, egress
        traffic_usd += egress
        for r, n in zip(*trace.placement(j), strict=True):
            kw = n * a.kw_per_gpu[r]
            energy += kw * (trace.finish_s[j] - trace.start_s[j]) / 3600
            cost += kw * integrate(instance, r, trace.start_s[j], trace.finish_s[j]) / 3600
        assert trace.energy_kwh[j] == pytest.approx(energy, rel=1e-9)
        near = 1e-9 * (scale * energy + egress)
        assert trace.cost_usd[j] == pytest.approx(cost, rel=1e-9, abs=near)

    # The cluster's own meter: power of each region between any two starts and finishes.
    done = trace.finished
    moments = np.unique(np.concatenate([trace.start_s[done], trace.finish_s[done]]))
    total = traffic_usd
    for begin, end in pairwise(moments):
        busy = np.flatnonzero(done & (trace.start_s <= begin) & (trace.finish_s >= end)).tolist()
        gpus, _ = use_of(trace, busy)
        for r in np.flatnonzero(gpus).tolist():
            total += gpus[r] * a.kw_per_gpu[r] * integrate(instance, r, begin, end) / 3600
    near = 1e-9 * (scale * float(trace.energy_kwh.sum()) + traffic_usd)
    assert trace.cost_usd.sum() == pytest.approx(total, rel=1e-9, abs=near)


@properties
@given(instances(), st.sampled_from(["hesitant", "bace", "ldf"]))
def test_completion_time_is_waiting_plus_execution(instance: Instance, name: str) -> None:
    trace, a = run(instance, name), instance.arrays
    done = trace.finished
    execution = (a.iterations * trace.iteration_s)[done]
    finish, arrival = trace.finish_s[done], a.arrival_s[done]
    assert (trace.start_s[done] >= arrival).all()
    assert finish == pytest.approx(trace.start_s[done] + execution, rel=1e-12)
    assert (finish - arrival >= execution - 1e-12 * finish).all()
    for j in np.flatnonzero(done).tolist():
        p, k = a.job_profile[j], sum(trace.placement(j)[1])
        assert a.k_min[p] <= k <= a.k_max[p]
        assert trace.iteration_s[j] >= 2 * (k + a.micro_batches[p] - 1) * a.comp_s[p, k] * (
            1 - 1e-12
        )


@properties
@given(instances(), st.sampled_from(["bace", "random", "cr-ldf"]))
def test_names_change_nothing_but_names(instance: Instance, name: str) -> None:
    renamed = dataclasses.replace(
        instance,
        region_names=tuple(reversed([f"z{r}" for r in range(instance.n_regions)])),
        job_names=tuple(f"another {j}" for j in reversed(range(instance.n_jobs))),
    )
    one, other = run(instance, name), run(renamed, name)
    for field in dataclasses.fields(EpisodeTrace):
        if field.name not in ("instance", "policy", "decisions"):
            mine, theirs = getattr(one, field.name), getattr(other, field.name)
            assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()
    assert one.decisions == other.decisions


@properties
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_regions_does_not_matter_to_bace(seed: int) -> None:
    """Without ties and with bandwidth to spare, so that equal paths differ in direction only."""
    rng = np.random.default_rng(seed)
    r, n = int(rng.integers(2, 7)), int(rng.integers(1, 9))
    gpus, prices = 1 + rng.permutation(8)[:r], rng.uniform(0.05, 1, r)
    links = 1e6 * (1.0 + rng.permutation(r * r).reshape(r, r))
    np.fill_diagonal(links, 0.0)
    tables = [rng.uniform(5, 30) / np.arange(1, 17) + rng.uniform(0, 1) for _ in range(3)]
    jobs = list(
        zip(
            rng.uniform(0, 100, n).tolist(),
            rng.integers(0, 3, n).tolist(),
            rng.integers(1, 40, n).tolist(),
            strict=True,
        )
    )

    def outcome(order: np.ndarray) -> tuple[float, float]:
        instance = make_instance(
            gpus[order].tolist(),
            tables,
            jobs,
            links=links[np.ix_(order, order)],
            prices=[([0.0], [price], math.inf) for price in prices[order].tolist()],
            micro_batches=[4, 9, 16],
        )
        trace = run(instance, "bace")
        return float(np.mean(trace.finish_s - instance.arrays.arrival_s)), trace.cost_usd.sum()

    expected = outcome(np.arange(r))
    assert outcome(rng.permutation(r)) == pytest.approx(expected, rel=1e-9)


def breaks_a_rule(simulator: Simulator, p: Placement) -> bool:
    """Whether the placement is invalid now, from the trace alone."""
    instance, trace = simulator.instance, simulator.trace("x")
    a, pending = instance.arrays, simulator.view.pending.tolist()
    if p.job not in pending or not p.path or len(set(p.path)) < len(p.path):
        return True
    if not all(0 <= r < instance.n_regions for r in p.path):
        return True
    gpus, links = use_of(trace, simulator.view.running.tolist())
    if not all(1 <= n <= a.gpus[r] - gpus[r] for r, n in zip(p.path, p.gpus, strict=True)):
        return True
    profile, k = a.job_profile[p.job], sum(p.gpus)
    if not a.k_min[profile] <= k <= a.k_max[profile]:
        return True
    need = a.act_bytes[profile] / a.comp_s[profile, k]
    capacity = a.link_bytes_per_s
    return any(
        capacity[hop] <= 0 or links[hop] + need > capacity[hop] * (1 + 1e-9)
        for hop in pairwise(p.path)
    )


def snapshot(simulator: Simulator) -> list[bytes]:
    state = [array.tobytes() for array in simulator.view.state]
    return [*state, repr((simulator.decisions, simulator.done)).encode()]


@properties
@given(instances(), st.integers(0, 2**32 - 1))
def test_a_placement_starts_if_and_only_if_it_is_valid(instance: Instance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    simulator = Simulator(instance)
    for _ in steps(simulator, policy_of("hesitant"), seed % 100):
        for _ in range(5):
            if simulator.done:
                break
            length = int(rng.integers(0, min(4, instance.n_regions) + 1))
            placement = Placement(
                int(rng.integers(-1, instance.n_jobs + 1)),
                tuple(rng.integers(-(rng.random() < 0.1), instance.n_regions, length).tolist()),
                tuple(rng.integers(-(rng.random() < 0.1), 4, length).tolist()),
            )
            broken = breaks_a_rule(simulator, placement)
            assert (simulator.view.why_invalid(placement) is not None) == broken
            if broken:
                before = snapshot(simulator)
                with pytest.raises(InvalidPlacementError):
                    simulator.step(placement)
                assert snapshot(simulator) == before
            else:
                simulator.step(placement)


@pytest.fixture
def busy() -> Simulator:
    """Job 0 runs on a -> b with 3 of 4 GPUs in each; it uses 8 of the 10 bytes/s between them."""
    table = np.array([4.0, 2.0, 1.5, 1.2, 1.1, 1.0])
    links = np.array([[0, 10.0, 0], [10.0, 0, 0], [0, 0, 0]])
    instance = make_instance(
        [4, 4, 2],
        [table, table[:5]],
        [(0.0, 0, 5), (0.0, 1, 5), (0.0, 1, 5), (1e6, 1, 1)],
        links=links,
        act_bytes=[8.0, 8.0],
        k_min=[1, 2],
    )
    simulator = Simulator(instance)
    simulator.step(Placement(0, (0, 1), (3, 3)))
    return simulator


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (Placement(0, (0,), (1,)), ["pending", "job 0", "[1, 2]"]),
        (Placement(3, (0,), (1,)), ["pending", "job 3"]),
        (Placement(-1, (0,), (1,)), ["pending", "job -1"]),
        (Placement(4, (0,), (1,)), ["pending", "job 4"]),
        (Placement(1, (), ()), ["job1", "path", "empty"]),
        (Placement(1, (3,), (2,)), ["job1", "region 3", "0 to 2"]),
        (Placement(1, (-1,), (2,)), ["job1", "region -1", "0 to 2"]),
        (Placement(1, (2, 2), (1, 1)), ["job1", "region2", "differ", "twice"]),
        (Placement(1, (2, 0), (2, 0)), ["job1", ">= 1 GPU", "got 0", "region0"]),
        (Placement(1, (2,), (-1,)), ["job1", ">= 1 GPU", "got -1", "region2"]),
        (Placement(1, (0,), (2,)), ["job1", "region0", "1 GPUs free", "Eq. 5", "got 2"]),
        (Placement(1, (2,), (2**40,)), ["job1", "region2", "2 GPUs free", f"got {2**40}"]),
        (Placement(1, (2,), (1,)), ["job1", "k_min = 2", "got 1"]),
        (Placement(1, (0, 2), (1, 1)), ["job1", "no link", "region0 -> region2"]),
        (Placement(1, (0, 1), (1, 1)), ["job1", "region0 -> region1", "2 bytes", "Eq. 6", "= 4"]),
        (Placement(1, (2, 0), (1,)), ["equally many", "(2, 0)"]),
        (Placement(1, (0.5,), (2,)), ["whole", "0.5"]),  # type: ignore[arg-type]
        (Placement(1, (2,), (1.5,)), ["whole", "1.5"]),  # type: ignore[arg-type]
        (Placement(1, (math.nan,), (2,)), ["whole", "nan"]),  # type: ignore[arg-type]
        (Placement(1.5, (2,), (2,)), ["job", "1.5"]),  # type: ignore[arg-type]
        (Placement(1.0, (2,), (2,)), ["job", "1.0"]),  # type: ignore[arg-type]
        (Placement(True, (2,), (2,)), ["job", "True"]),
        (Placement(2**63, (2,), (2,)), ["job", str(2**63)]),
        (Placement(None, (2,), (2,)), ["job", "None"]),  # type: ignore[arg-type]
        (Placement(1, None, (2,)), ["None"]),  # type: ignore[arg-type]
        (Placement(1, ("a",), (2,)), ["'a'"]),  # type: ignore[arg-type]
        ((1, (2,), (2,)), ["Placement", "WAIT", "(1, (2,), (2,))"]),
        (None, ["Placement", "WAIT", "None"]),
    ],
)
def test_an_invalid_decision_names_the_rule_and_changes_nothing(
    busy: Simulator, action: Action, words: list[str]
) -> None:
    before = snapshot(busy)
    with pytest.raises(InvalidPlacementError) as error:
        busy.step(action)
    assert [word for word in words if word not in str(error.value)] == []
    assert snapshot(busy) == before
    busy.step(Placement(1, (2,), (2,)))  # and the episode goes on


def test_more_than_k_max_gpus_are_refused() -> None:
    simulator = Simulator(make_instance([4], [np.array([2.0, 1.0])], [(0.0, 0, 1)]))
    with pytest.raises(InvalidPlacementError, match=r"k_max = 2 .*got 3"):
        simulator.step(Placement(0, (0,), (3,)))


def test_a_decision_after_the_end_is_refused() -> None:
    simulator = Simulator(make_instance([1], [np.array([1.0])], [(0.0, 0, 1)]))
    simulator.step(Placement(0, (0,), (1,)))
    assert simulator.done
    for action in (WAIT, Placement(0, (0,), (1,))):
        with pytest.raises(InvalidPlacementError, match="over"):
            simulator.step(action)


HOLDING = [([0.0, 50.0], [0.1, 0.2], math.inf)] * 2
REPEATING = [([0.0, 50.0], [0.1, 0.2], 80.0), ([0.0, 7.0], [0.3, -0.1], 9.0)]
THIRDS = [([0.0, 1198.8], [0.1, 0.2], 2397.6)] * 2  # times that are no exact floats


@pytest.mark.parametrize("prices", [None, HOLDING, REPEATING, THIRDS])
def test_waiting_for_nothing_is_a_deadlock_with_a_reason_per_job(
    prices: list[tuple[list[float], list[float], float]] | None,
) -> None:
    tables = [np.full(4, 1.0), np.full(4, 1.0)]
    instance = make_instance(
        [2, 2],
        tables,
        [(0.0, 0, 1), (5.0, 1, 1)],
        links=np.array([[0.0, 100], [0, 0]]),
        k_min=[4, 1],
        prices=prices,
    )
    simulator = Simulator(instance)
    with pytest.raises(DeadlockError) as error:
        for _ in range(1000):
            simulator.step(WAIT)
    text = str(error.value)
    assert "job0: needs 4 GPUs, the freest region has 2 of 4 free" in text
    assert "job1: the policy does not start it" in text
    before = snapshot(simulator)
    with pytest.raises(DeadlockError):
        simulator.step(WAIT)
    assert snapshot(simulator) == before
    simulator.step(Placement(0, (0, 1), (2, 2)))  # the report was not the end
    while simulator.view.running.size:
        simulator.step(WAIT)
    simulator.step(Placement(1, (0,), (1,)))
    assert simulator.done


def test_waiting_lasts_until_every_combination_of_prices_was_seen() -> None:
    """cr-lcf can start a -> b only while a is cheaper; first so at t = 4, periods are 2 and 3."""
    instance = make_instance(
        [1, 1],
        [np.array([2.0, 1.0])],
        [(0.0, 0, 1)],
        links=np.array([[0.0, 100], [0, 0]]),
        k_min=[2],
        prices=[([0.0, 1.0], [0.1, 0.3], 2.0), ([0.0, 1.0, 2.0], [0.0, 0.2, 0.0], 3.0)],
    )
    assert run(instance, "cr-lcf").start_s.tolist() == [4.0]


def test_prices_that_change_at_inexact_times_are_in_force_when_their_event_comes() -> None:
    """20 minutes given as 0.333 h: sums of such steps are not exact floats."""
    step_s = 3600 * 0.333
    starts = (step_s * np.arange(3)).tolist()
    instance = make_instance(
        [1],
        [np.array([1e6])],
        [(0.0, 0, 1), (0.0, 0, 1)],
        prices=[(starts, [1.0, 2.0, 3.0], 3 * step_s)],
    )
    simulator = Simulator(instance)
    simulator.step(Placement(0, (0,), (1,)))
    for i in range(1, 200):
        simulator.step(WAIT)
        assert simulator.view.now_s == pytest.approx(i * step_s, rel=1e-12)
        assert simulator.view.price_usd_per_kwh.tolist() == [1.0 + i % 3]


def test_gpus_and_links_change_hands_at_one_instant() -> None:
    """Jobs 0-2 each need all GPUs and the whole link; job 2 arrives just when job 0 finishes."""
    table = np.array([4.0, 2.0])
    instance = make_instance(
        [1, 1],
        [table],
        [(0.0, 0, 1), (0.0, 0, 2), (16.0, 0, 1)],
        links=np.array([[0.0, 0.5], [0, 0]]),
        k_min=[2],
    )
    trace = run(instance, "bace-no-priority")
    seconds = 2 * (2 + 2 * 2 + 2)  # Eq. 1: one hop of t_comp, two stages, two micro-batches
    assert seconds == 16
    assert trace.start_s.tolist() == [0.0, 16.0, 48.0]
    assert trace.finish_s.tolist() == [16.0, 48.0, 64.0]
    assert [trace.placement(j) for j in range(3)] == [((0, 1), (1, 1))] * 3


def test_jobs_without_iterations_finish_when_they_start() -> None:
    jobs = [(3.0, 0, 0)] * 5
    trace = run(make_instance([1], [np.array([1.0])], jobs), "bace")
    assert trace.start_s.tolist() == trace.finish_s.tolist() == [3.0] * 5
    assert trace.energy_kwh.tolist() == trace.cost_usd.tolist() == [0.0] * 5
    waits = [d for d in trace.decisions if d.job is None]
    assert {d.time_s for d in trace.decisions} == {3.0}
    assert len(waits) == 4


def use_one_link_by_turns(needs: list[float], capacity: float) -> Simulator:
    """Jobs 0 and 1 reserve on 0 -> 1, job 2 as much as job 1 on 0 -> 2; then job 0 finishes."""
    links = np.zeros((3, 3))
    links[0, 1:] = capacity
    tables = [np.array([10.0, 5.0]), np.array([10.0, 5.0]), np.array([8.0, 4.0, 3.0, 2.0])]
    instance = make_instance(
        [5, 4, 4],
        tables,
        [(0.0, 0, 1), (0.0, 1, 9), (0.0, 1, 9), (0.0, 2, 1)],
        links=links,
        act_bytes=[5 * needs[0], 5 * needs[1], 0.2],
        micro_batches=[8, 8, 8],
    )
    simulator = Simulator(instance)
    for job, path in enumerate([(0, 1), (0, 1), (0, 2)]):
        simulator.step(Placement(job, path, (1, 1)))
    simulator.step(WAIT)
    assert simulator.view.running.tolist() == [1, 2]
    return simulator


def test_an_unused_link_is_exactly_empty() -> None:
    simulator = use_one_link_by_turns([0.1, 0.2], 5.0)  # 0.1 + 0.2 - 0.1 - 0.2 is not 0 in floats
    while simulator.view.running.size:
        simulator.step(WAIT)
    assert not simulator.view.state.link_used.any()


def test_equal_reservations_leave_equal_bandwidth_whatever_happened_before() -> None:
    simulator = use_one_link_by_turns([3.9, 0.3], 5.0)
    action = make_policy("cr-ldf").act(simulator.view)
    assert action == Placement(3, (0, 1), (3, 1))  # a tie of 0 -> 1 and 0 -> 2


def test_the_tolerance_of_a_full_link_is_no_bandwidth_to_share() -> None:
    """The link is exactly full; 0.5 bytes/s more are within the tolerance of Eq. 6."""
    instance = make_instance(
        [2, 2],
        [np.array([1.0, 1.0])] * 2,
        [(0.0, 0, 1), (0.0, 1, 1)],
        links=np.array([[0.0, 1e9], [0, 0]]),
        act_bytes=[1e9, 0.5],
        t_comm="residual",
    )
    simulator = Simulator(instance)
    simulator.step(Placement(0, (0, 1), (1, 1)))
    try:
        simulator.step(Placement(1, (0, 1), (1, 1)))
    except InvalidPlacementError:
        return
    assert simulator.trace("x").iteration_s[1] >= 2 * (2 + 1)  # at least the compute time
