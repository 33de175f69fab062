"""Late and noisy monitoring: what is seen, what is refused, and a world that stays true."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import instances, make_instance

from agents.policy import REGISTRY, make_policy
from bace_env.checker import check_trace
from bace_env.errors import ConfigError, DeadlockError, InvalidPlacementError
from bace_env.instance import Instance
from bace_env.simulator import WAIT, Action, Pause, Placement, Simulator, View
from bace_env.trace import EpisodeTrace
from bace_env.types import FloatArray
from eval.metrics import episode_metrics
from eval.monitoring import FRUITLESS, RETRY_S, Monitored, Monitoring, parse_monitoring
from eval.rollout import run_episode

properties = settings(deadline=None, max_examples=40, derandomize=True)
RETRIES_S = [RETRY_S * (2**n - 1) for n in range(FRUITLESS + 1)]  # times of attempts in a row


class Always:
    """Gives one answer whatever it sees."""

    name = "always"

    def __init__(self, answer: Action) -> None:
        self.answer = answer

    def reset(self, seed: int) -> None:
        """Nothing to forget."""

    def act(self, view: View) -> Action:
        """The one answer."""
        return self.answer


class Spy:
    """Passes an inner policy's answers on and keeps a copy of what it saw."""

    def __init__(self, spec: str) -> None:
        self.inner = make_policy(spec)
        self.name = self.inner.name
        self.seen: list[dict[str, Any]] = []

    def reset(self, seed: int) -> None:
        """A new episode."""
        self.inner.reset(seed)
        self.seen.clear()

    def act(self, view: View) -> Action:
        """Look, then ask."""
        self.seen.append(
            {
                "now_s": view.now_s,
                "pending": view.pending.tolist(),
                "running": view.running.tolist(),
                "free_gpus": view.free_gpus.copy(),
                "link_used": view.state.link_used.copy(),
                "links": view.arrays.link_bytes_per_s.copy(),
                "prices": view.price_usd_per_kwh.copy(),
            }
        )
        return self.inner.act(view)


def around(policy: Any, options: str) -> Monitored:
    monitored = Monitored(f"{options}:bace")
    monitored._inner = policy
    return monitored


def outcome(instance: Instance, policy: Any) -> tuple[Any, ...]:
    """What happened, as plain data; or how it ended."""
    try:
        trace = run_episode(instance, policy)
    except DeadlockError as error:
        return (str(error).split("seed 0: ")[1],)
    data = trace.to_dict(with_times=False)
    return data["jobs"], data["decisions"]


# `search` keeps a plan for as long as it meets the same instance, which monitoring rebuilds.
MEMORYLESS = [name for name in REGISTRY if name != "search"]


def schedule(trace: EpisodeTrace) -> list[Any]:
    return [
        (d.time_s, d.job, d.refused) if d.refused is not None else (d.time_s, d.job)
        for d in trace.decisions
    ]


@pytest.mark.jit
@pytest.mark.parametrize("policy", [*MEMORYLESS, "search:simulations=30"])
@given(instance=instances())
@settings(properties, max_examples=15)
def test_undisturbed_it_decides_as_the_bare_policy(policy: str, instance: Instance) -> None:
    assert outcome(instance, Monitored(f":{policy}")) == outcome(instance, make_policy(policy))


@pytest.mark.jit
@pytest.mark.parametrize("options", ["delay=1e-300", "delay=1e-300,own_starts"])
@pytest.mark.parametrize("policy", MEMORYLESS)
@given(instance=instances())
@settings(properties, max_examples=10)
def test_without_delay_a_rebuilt_state_leads_to_the_same_decisions(
    options: str, policy: str, instance: Instance
) -> None:
    bare = outcome(instance, make_policy(policy))
    assert outcome(instance, Monitored(f"{options}:{policy}")) == bare


@pytest.mark.jit
@given(
    instance=instances(),
    noise=st.sampled_from(["0", "0.1", "0.5", "0.99"]),
    delay=st.sampled_from(["0", "0.02", "7", "60", "1e4"]),
    own=st.sampled_from(["", ",own_starts"]),
    policy=st.sampled_from(MEMORYLESS),
)
@settings(properties, max_examples=150)
def test_the_world_stays_true_and_every_job_runs_once(
    instance: Instance, noise: str, delay: str, own: str, policy: str
) -> None:
    before = [np.copy(array) for array in instance.arrays]
    monitored = Monitored(f"noise={noise},delay={delay}{own}:{policy}")
    monitored.reset(instance.seed)
    simulator = Simulator(instance)
    while not simulator.done:
        try:
            simulator.step(monitored.act(simulator.view))
        except DeadlockError:
            # The inner policy would wait for ever on true figures, too.
            assert policy == "random" or make_policy(policy).act(simulator.view) is WAIT
            return
    trace = simulator.trace(policy)
    check_trace(trace)  # among others: each job is decided exactly once
    assert trace.finished.all()
    for array, copy in zip(instance.arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    if noise == delay == "0" or (noise == "0" and own):
        # What ends late only makes the scheduler careful.
        assert not any(d.refused is not None for d in trace.decisions)


@pytest.mark.jit
@given(instance=instances(), delay=st.sampled_from([0.5, 7.0, 60.0]), own=st.booleans())
@properties
def test_what_is_seen_is_what_was_so_long_ago(instance: Instance, delay: float, own: bool) -> None:
    spy = Spy("bace")
    policy = around(spy, f"delay={delay}{',own_starts' if own else ''}")
    simulator, asked = Simulator(instance), []
    while not simulator.done:
        asked.append((simulator.view.now_s, len(simulator.decisions)))
        try:
            simulator.step(policy.act(simulator.view))
        except DeadlockError:
            break
    trace = simulator.trace("spy")
    order = {d.job: i for i, d in enumerate(trace.decisions) if d.job is not None}
    for (now, decided), seen in zip(asked, spy.seen, strict=True):
        then = now - delay
        free, used = instance.arrays.gpus.copy(), np.zeros_like(seen["link_used"])
        holding = []
        for job in range(instance.n_jobs):
            start, finish = trace.start_s[job], trace.finish_s[job]
            known = order.get(job, math.inf) < decided if own else start <= then + 1e-9
            if not known or finish <= then + 1e-9:
                continue
            holding.append(job)
            path, gpus = trace.placement(job)
            free[list(path)] -= gpus
            for hop in pairwise(path):
                used[hop] += trace.bytes_per_s[job]
        assert seen["now_s"] == max(then, 0.0)
        assert seen["running"] == holding
        assert seen["free_gpus"].tolist() == free.tolist()
        np.testing.assert_allclose(seen["link_used"], used, rtol=1e-12)
        started = {job for job, at in order.items() if at < decided}
        arrived = set(np.flatnonzero(instance.arrays.arrival_s <= now + 1e-9).tolist())
        assert set(seen["pending"]) == arrived - started


def two_regions(capacity: float, k_min: int) -> Instance:
    """Two regions of one GPU, one job of 10 iterations that likes two; b_j(2) = 1 byte/s."""
    links = capacity * (1 - np.eye(2))
    comp_s = [np.array([4.0, 1.0])]
    return make_instance([1, 1], comp_s, [(0.0, 0, 10)], links=links, k_min=[k_min])


def measurements(spec: str, options: str, instance: Instance) -> list[FloatArray]:
    """Factors of links and prices of each measurement, `(R * (R - 1) + R,)`."""
    spy = Spy(spec)
    run_episode(instance, around(spy, options))
    found, last = [], None
    for seen in spy.seen:
        if seen["now_s"] != last:
            links = seen["links"] / np.where(np.eye(len(seen["links"])), 1.0, 100.0)
            found.append(np.append(links[~np.eye(len(links), dtype=bool)], seen["prices"] / 0.1))
            last = seen["now_s"]
    return found


def busy(n_jobs: int = 6, seed: int = 0) -> Instance:
    """Three regions of two GPUs with ample links, jobs that wait for each other."""
    jobs = [(float(3 * i), 0, 10) for i in range(n_jobs)]
    links = 100.0 * (1 - np.eye(3))
    instance = make_instance([2, 2, 2], [np.array([4.0, 2.0, 1.5])], jobs, links=links)
    object.__setattr__(instance, "seed", seed)
    return instance


def test_noise_is_bounded_seeded_and_the_same_for_all_policies() -> None:
    of = {spec: measurements(spec, "noise=0.3", busy()) for spec in ("bace", "ldf", "cr-lcf")}
    for found in of.values():
        assert len(found) > 3
        for factors in found:
            assert (np.abs(factors - 1) <= 0.3).all()
        assert len({factors.tobytes() for factors in found}) == len(found)
        for factors, same in zip(found, of["bace"], strict=False):
            np.testing.assert_array_equal(factors, same)
    again = measurements("bace", "noise=0.3", busy())
    np.testing.assert_array_equal(again, of["bace"])
    other = measurements("bace", "noise=0.3", busy(seed=1))
    assert not np.isclose(other[0], of["bace"][0]).any()


def test_all_decisions_of_one_moment_rest_on_one_measurement() -> None:
    jobs = [(0.0, 0, 10)] * 5
    links = 100.0 * (1 - np.eye(3))
    instance = make_instance([2, 2, 2], [np.array([4.0, 2.0])], jobs, links=links)
    spy = Spy("lcf")
    run_episode(instance, around(spy, "noise=0.3"))
    first, *others = [seen for seen in spy.seen if seen["now_s"] == 0.0]
    assert len(others) == 3
    for seen in others:
        np.testing.assert_array_equal(seen["links"], first["links"])
        np.testing.assert_array_equal(seen["prices"], first["prices"])


def test_levels_of_noise_scale_the_same_draw() -> None:
    small, large = (measurements("lcf", f"noise={n}", busy())[0] for n in ("0.1", "0.3"))
    np.testing.assert_allclose(3 * (small - 1), large - 1, rtol=1e-9)


def test_the_draws_fill_the_range_evenly() -> None:
    draws = np.concatenate(
        [measurements("ldf", "noise=0.2", busy(seed=seed))[0] for seed in range(100)]
    )
    assert draws.mean() == pytest.approx(1.0, abs=0.02)  # 900 draws: sd of the mean 0.004
    assert draws.std() == pytest.approx(0.2 / math.sqrt(3), rel=0.1)


def one_gpu() -> Instance:
    """One GPU and two jobs of 40 s: t_iter = 2 * (1 + 1) = 4 s, 10 iterations."""
    return make_instance([1], [np.array([1.0])], [(0.0, 0, 10), (0.0, 0, 10)])


def test_a_small_case_by_hand() -> None:
    bare = run_episode(one_gpu(), make_policy("ldf"))
    assert schedule(bare) == [(0.0, 0), (0.0, None), (40.0, 1)]
    # At 0 the start of job 0 is not seen, so job 1 is tried and refused; at 15 it is seen. The
    # end at 40 is seen at 55; from 40 to 55 nothing runs.
    late = run_episode(one_gpu(), Monitored("delay=15:ldf"))
    expected = [(0.0, 0), (0.0, None, 1), (15.0, None), (40.0, None), (55.0, 1)]
    assert schedule(late) == expected
    assert late.finish_s.tolist() == [40.0, 95.0]
    metrics = episode_metrics(late)
    assert (metrics["refused_placements"], metrics["idle_waits"]) == (1.0, 1.0)
    assert metrics["avg_jct_s"] == pytest.approx(67.5)
    own = run_episode(one_gpu(), Monitored("delay=15,own_starts:ldf"))
    assert schedule(own) == [(0.0, 0), (0.0, None), (40.0, None), (55.0, 1)]
    assert episode_metrics(own)["refused_placements"] == 0.0


def test_each_end_is_seen_in_its_turn() -> None:
    # Jobs of 40 and 44 s on two GPUs; their ends are seen at 55 and 59.
    jobs = [(0.0, 0, 10), (0.0, 0, 11), (0.0, 0, 10), (0.0, 0, 10)]
    instance = make_instance([2], [np.array([1.0])], jobs)
    trace = run_episode(instance, Monitored("delay=15,own_starts:ldf"))
    assert trace.start_s.tolist() == [0.0, 0.0, 55.0, 59.0]


def test_prices_are_seen_late() -> None:
    changing = ([0.0, 10.0], [0.1, 0.9], math.inf)
    constant = ([0.0], [0.5], math.inf)
    instance = make_instance(
        [1, 1], [np.array([1.0])], [(12.0, 0, 10)], prices=[changing, constant]
    )
    assert run_episode(instance, make_policy("lcf")).placement(0) == ((1,), (1,))
    assert run_episode(instance, Monitored("delay=5:lcf")).placement(0) == ((0,), (1,))
    assert run_episode(instance, Monitored("delay=2:lcf")).placement(0) == ((1,), (1,))


def test_too_low_a_measurement_delays_and_never_deadlocks() -> None:
    starts = []
    for seed in range(40):
        instance = two_regions(1.0, k_min=2)  # the links carry just what the job needs
        object.__setattr__(instance, "seed", seed)
        trace = run_episode(instance, Monitored("noise=0.5:bace"))
        check_trace(trace)
        start, metrics = float(trace.start_s[0]), episode_metrics(trace)
        assert metrics["refused_placements"] == 0.0
        assert metrics["idle_waits"] == RETRIES_S.index(start)
        starts.append(start)
    # Each direction is seen too narrow with probability 1/2, so a quarter waits at first.
    assert 0 < sum(start > 0.0 for start in starts) < 20


def test_too_high_a_measurement_is_refused_and_tried_again() -> None:
    refused = []
    for seed in range(40):
        instance = two_regions(0.9, k_min=1)  # not enough for two GPUs
        object.__setattr__(instance, "seed", seed)
        trace = run_episode(instance, Monitored("noise=0.5:bace"))
        check_trace(trace)
        assert trace.placement(0)[1] == (1,)
        n = sum(d.refused == 0 for d in trace.decisions)
        assert trace.start_s[0] == RETRIES_S[n]
        refused.append(n)
    # Seen wide enough with probability (1.5 - 1 / 0.9) = 0.39 in either direction: 0.63.
    assert 12 < sum(n > 0 for n in refused) < 38
    assert max(refused) > 1


def test_an_idle_cluster_is_looked_at_exactly_in_the_end() -> None:
    class Suspicious(Always):
        """Starts nothing on figures that are not the true ones."""

        def act(self, view: View) -> Action:
            exact = view.arrays.link_bytes_per_s[0, 1] == 1.0
            return self.answer if exact else WAIT

    policy = around(Suspicious(Placement(0, (0,), (1,))), "noise=0.1")
    trace = run_episode(two_regions(1.0, k_min=1), policy)
    assert trace.start_s[0] == RETRIES_S[-1] == 63 * 60
    assert episode_metrics(trace)["idle_waits"] == FRUITLESS


@pytest.mark.parametrize("options", ["noise=0.3", "delay=600", "noise=0.3,delay=600"])
def test_a_policy_that_never_starts_anything_still_deadlocks(options: str) -> None:
    with pytest.raises(DeadlockError, match="nothing running and nothing to come"):
        run_episode(one_gpu(), around(Always(WAIT), options))


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (Placement(0, (0,), (2,)), "has 1 GPUs free"),
        (Placement(5, (0,), (1,)), "must be pending"),
        (Placement(0, (0,), (1.5,)), "whole region ids"),  # type: ignore[arg-type]
        (None, "must be a Placement or WAIT"),
    ],
)
@pytest.mark.parametrize("options", ["noise=0.3", "delay=600"])
def test_a_fault_of_the_policy_is_no_fault_of_monitoring(
    options: str, answer: Any, rule: str
) -> None:
    with pytest.raises(InvalidPlacementError, match=rule):
        run_episode(one_gpu(), around(Always(answer), options))


def test_options_and_name() -> None:
    assert parse_monitoring("") == Monitoring()
    text = "noise=0.3,delay=0.02,own_starts"
    assert parse_monitoring(text) == Monitoring(delay_s=0.02, noise=0.3, own_starts=True)
    policy = make_policy(f"eval.monitoring:Monitored:{text}:bace:patience=0.5,partial_fill")
    assert policy.name == f"bace:patience=0.5,partial_fill ({text})"
    assert make_policy("eval.monitoring:Monitored::ldf").name == "ldf"


@pytest.mark.parametrize(
    ("arg", "reason"),
    [
        ("", "must be OPTIONS:POLICY"),
        ("noise=0.3", "must be OPTIONS:POLICY"),
        ("noise=0.3:", "must be OPTIONS:POLICY"),
        ("noise=1:bace", "noise: must be a share from 0 to 0.99, got '1'"),
        ("noise=-0.1:bace", "noise: must be"),
        ("noise=nan:bace", "noise: must be"),
        ("noise:bace", "noise: must be .*, got ''"),
        ("delay=-1:bace", "delay: must be seconds from 0 to 1e9, got '-1'"),
        ("delay=inf:bace", "delay: must be"),
        ("own_starts=no:bace", "unknown option 'own_starts=no'"),
        ("late=3:bace", "unknown option 'late=3'; known: delay=S, noise=SHARE, own_starts"),
        ("noise=0.3:bice", "unknown name 'bice'; did you mean 'bace'"),
    ],
)
def test_a_wrong_option_is_named(arg: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make_policy(f"eval.monitoring:Monitored:{arg}")


# The simulator's pause, on which all this rests.


class Dawdler:
    """Whenever its inner policy waits, it pauses first, so that it is asked in between."""

    name = "dawdler"

    def __init__(self, seed: int) -> None:
        self._inner, self._rng = make_policy("bace"), np.random.default_rng(seed)

    def reset(self, seed: int) -> None:
        """Nothing to forget."""

    def act(self, view: View) -> Action:
        """Now and then a pause, of any length."""
        action = self._inner.act(view)
        if action is WAIT and self._rng.random() < 0.7:
            return Pause(view.now_s + float(self._rng.choice([1e-3, 1.0, 50.0])))
        return action


@pytest.mark.jit
@given(instance=instances(), seed=st.integers(0, 1000))
@properties
def test_pauses_between_events_change_nothing(instance: Instance, seed: int) -> None:
    if instance.arrays.price_count.max() > 1:
        return  # asked at another time, it sees another price
    simulator, policy = Simulator(instance), Dawdler(seed)
    while not simulator.done:
        simulator.step(policy.act(simulator.view))
    trace = simulator.trace("bace")
    check_trace(trace)
    bare = run_episode(instance, make_policy("bace")).to_dict(with_times=False)
    assert trace.to_dict(with_times=False)["jobs"] == bare["jobs"]
    spent = (trace.finish_s - instance.arrays.arrival_s).sum()
    assert simulator.view.state.totals[0] == pytest.approx(spent, rel=1e-9, abs=1e-9)


def test_a_pause_may_pass_time_in_which_nothing_can_happen() -> None:
    simulator = Simulator(one_gpu())
    simulator.step(Pause(100.0))
    assert simulator.view.now_s == 100.0
    simulator.step(Placement(0, (0,), (1,)))
    simulator.step(Pause(1000.0))  # the completion comes first
    assert simulator.view.now_s == 140.0
    assert simulator.view.pending.tolist() == [1]
    with pytest.raises(DeadlockError):
        simulator.step(WAIT)


@pytest.mark.parametrize("until_s", [0.0, -1.0, math.inf, math.nan])
def test_a_pause_must_end_later(until_s: float) -> None:
    simulator = Simulator(one_gpu())
    with pytest.raises(InvalidPlacementError, match="a pause must end later than now"):
        simulator.step(Pause(until_s))
    assert simulator.decisions == []
