"""Step functions of an episode: their integrals are the numbers that the simulator reports."""

import math

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from strategies import instances, make_instance

from agents.policy import make_policy
from bace_env.errors import DeadlockError
from bace_env.instance import Instance
from bace_env.simulator import WAIT, Placement, Simulator
from bace_env.timeline import Lanes, Steps, Timeline, add_up
from bace_env.trace import EpisodeTrace
from eval.replay import replay
from eval.rollout import run_episode

POLICIES = ("bace", "bace-no-cost-min", "cr-lcf", "sjf", "random")
properties = settings(deadline=None, max_examples=60, derandomize=True)
episodes = st.tuples(instances(), st.sampled_from(POLICIES))


def run(episode: tuple[Instance, str]) -> EpisodeTrace:
    instance, policy = episode
    try:
        return run_episode(instance, make_policy(policy))
    except DeadlockError:  # cr-lcf may never get k_min GPUs onto its one path
        reject()


@pytest.mark.jit
@properties
@given(episodes)
def test_integrals_are_the_totals_of_the_trace(episode: tuple[Instance, str]) -> None:
    trace = run(episode)
    timeline, regions = Timeline(trace), range(trace.instance.n_regions)
    held_s = trace.finish_s - trace.start_s
    for r in regions:
        gpu_s = (np.where(trace.path == r, trace.alloc, 0).sum(axis=1) * held_s).sum()
        assert timeline.busy_gpus(r).integral() == pytest.approx(gpu_s, rel=1e-9, abs=1e-9)
    kwh = sum(timeline.power_kw(r).integral() for r in regions) / 3600
    assert kwh == pytest.approx(trace.energy_kwh.sum(), rel=1e-9, abs=1e-12)
    usd = sum(timeline.spend_usd_per_h(r).integral() for r in regions) / 3600
    a, egress = trace.instance.arrays, 0.0  # is paid at the start, and no part of the spending
    for j, p in enumerate(a.job_profile):
        path = trace.placement(j)[0]
        ends = a.egress_usd_per_byte[list(path[:-1])].sum()
        ends += a.egress_usd_per_byte[list(path[1:])].sum()
        egress += a.act_bytes[p] * a.micro_batches[p] * a.iterations[j] * ends
    scale = np.abs(trace.energy_kwh).sum() + egress  # costs of both signs may cancel out
    assert usd == pytest.approx(trace.cost_usd.sum() - egress, rel=1e-9, abs=1e-9 * scale + 1e-12)
    in_system = add_up([timeline.queue, timeline.running])
    jct_s = trace.finish_s - trace.instance.arrays.arrival_s
    assert in_system.integral() == pytest.approx(jct_s.sum(), rel=1e-9, abs=1e-9)
    carried = sum(use.integral() for use in timeline.link_bytes_per_s.values())
    hops = np.maximum(trace.path_length - 1, 0)
    expected = (trace.bytes_per_s * hops * held_s).sum()
    assert carried == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.jit
@properties
@given(episodes)
def test_capacities_hold_at_all_times_and_all_is_empty_at_the_end(
    episode: tuple[Instance, str],
) -> None:
    trace = run(episode)
    timeline, a = Timeline(trace), trace.instance.arrays
    for r in range(trace.instance.n_regions):
        busy = timeline.busy_gpus(r).value
        assert 0 <= busy.min() <= busy.max() <= a.gpus[r]
        assert busy[-1] == 0
    for link, use in timeline.link_bytes_per_s.items():
        assert 0 <= use.value.min() <= use.value.max() <= a.link_bytes_per_s[link] * (1 + 1e-8)
        assert use.value[-1] == 0  # exactly, whatever was added and taken away before
        assert timeline.link_use(link).value.max() <= 1 + 1e-8
    for count in (timeline.queue, timeline.running):
        assert np.array_equal(count.value, np.rint(count.value))
        assert count.value[-1] == 0


@pytest.mark.jit
@properties
@given(episodes)
def test_what_the_policy_saw_is_what_the_timeline_says(episode: tuple[Instance, str]) -> None:
    trace = run(episode)
    timeline, regions = Timeline(trace), range(trace.instance.n_regions)
    seen = [
        (view.now_s, view.congestion, view.pending.size, view.price_usd_per_kwh.copy())
        for view, _ in replay(trace)
    ]
    last = {now_s: rest for now_s, *rest in seen}  # after all that starts at that time ...
    for now_s, (alpha, pending, prices) in last.items():
        now = np.array([now_s])
        # ... but for what the last decision itself starts there, if it is no WAIT.
        waits = [d.job is None for d in trace.decisions if d.time_s == now_s][-1]
        if waits:
            assert timeline.queue.at(now)[0] == pending
            assert timeline.alpha.at(now)[0] == pytest.approx(alpha, rel=1e-9, abs=1e-12)
        # A change within the tolerance of the present has happened for the policy.
        later = np.array([now_s + 1e-8 + 1e-11 * now_s])
        for r in regions:
            price = timeline.price_usd_per_kwh(r)
            assert prices[r] in (price.at(now)[0], price.at(later)[0])


@pytest.mark.jit
@properties
@given(episodes, st.integers(1, 40))
def test_means_over_bins_keep_the_integral(episode: tuple[Instance, str], bins: int) -> None:
    timeline = Timeline(run(episode))
    edges = np.linspace(0, timeline.end_s, bins + 1)
    for steps in (timeline.queue, timeline.busy_gpus(0), timeline.spend_usd_per_h(0)):
        whole = (steps.means(edges) * np.diff(edges)).sum()
        assert whole == pytest.approx(steps.integral(), rel=1e-9, abs=1e-9)
        assert steps.means(edges).max() <= steps.value.max() + 1e-9
        assert steps.cumulative(edges)[-1] == pytest.approx(steps.integral(), rel=1e-9, abs=1e-9)


@pytest.mark.jit
@properties
@given(episodes)
def test_lanes_give_each_job_its_gpus_and_no_gpu_to_two(episode: tuple[Instance, str]) -> None:
    trace = run(episode)
    lanes = Timeline(trace).lanes()
    for j in np.flatnonzero(trace.finish_s > trace.start_s).tolist():
        mine = lanes.job == j
        got = {r: 0 for r in trace.placement(j)[0]}
        for r, n in zip(lanes.region[mine].tolist(), lanes.gpus[mine].tolist(), strict=True):
            got[r] += n
        assert got == dict(zip(*trace.placement(j), strict=True))
    assert (lanes.first + lanes.gpus <= trace.instance.arrays.gpus[lanes.region]).all()
    assert not list(overlaps(trace, lanes))


def overlaps(trace: EpisodeTrace, lanes: Lanes) -> list[tuple[int, int]]:
    """Pairs of bars of one region that share a GPU at some time."""
    start, finish = trace.start_s[lanes.job], trace.finish_s[lanes.job]
    end = lanes.first + lanes.gpus
    pairs = []
    for m in range(lanes.job.size):
        for n in range(m):
            share = lanes.region[m] == lanes.region[n]
            share &= lanes.first[m] < end[n] and lanes.first[n] < end[m]
            if share and start[m] < finish[n] and start[n] < finish[m]:
                pairs.append((m, n))
    return pairs


def two_jobs() -> EpisodeTrace:
    """Worked out by hand: E = 40 s on 1 GPU of r0, then 20 s on 2 GPUs over r0 and r1.

    t_comp = 10 and 5 s, two micro-batches, no time for messages inside a region; the second job's
    hop carries b = 1/5 byte/s and lasts 5 s: Eq. 1 gives 2 * (5 + 2 * 5 + 5) = 40 s per iteration.
    """
    instance = make_instance(
        gpus=[1, 1],
        comp_s=[np.array([10.0, 5.0])],
        jobs=[(0.0, 0, 1), (10.0, 0, 1)],
        links=np.array([[0.0, 0.4], [0.0, 0.0]]),
        kw_per_gpu=[2.0, 1.0],
        prices=[([0.0, 60.0], [0.5, 1.0], math.inf), ([0.0, 10.0], [0.2, 0.4], 20.0)],
    )
    simulator = Simulator(instance)
    simulator.step(Placement(0, (0,), (1,)))
    while simulator.view.now_s < 40:  # price changes while the second job waits
        simulator.step(WAIT)
    simulator.step(Placement(1, (0, 1), (1, 1)))
    return simulator.trace("by hand")


def test_an_episode_worked_out_by_hand() -> None:
    trace = two_jobs()
    assert trace.start_s.tolist() == [0, 40]
    assert trace.finish_s.tolist() == [40, 80]
    timeline = Timeline(trace)
    busy = timeline.busy_gpus(1)
    assert (busy.time_s.tolist(), busy.value.tolist()) == ([0, 40, 80], [0, 1, 0])
    assert timeline.queue.value.tolist() == [0, 1, 0]
    assert timeline.queue.time_s.tolist() == [0, 10, 40]
    assert list(timeline.link_bytes_per_s) == [(0, 1)]
    use = timeline.link_use((0, 1))
    assert use.at(np.array([39.0, 40.0, 79.0, 80.0])) == pytest.approx([0, 0.5, 0.5, 0])
    assert timeline.alpha.at(np.array([50.0]))[0] == pytest.approx(0.5)
    price = timeline.price_usd_per_kwh(1)
    assert price.time_s.tolist() == [0, 10, 20, 30, 40, 50, 60, 70]
    assert price.value.tolist() == [0.2, 0.4] * 4
    # r0: 2 kW * 0.5 to 60 s, then 2 kW * 1; r1: 1 kW at 0.2 and 0.4 in turn, from 40 s on.
    assert timeline.spend_usd_per_h(0).integral() == pytest.approx(60 * 1.0 + 20 * 2.0)
    assert timeline.spend_usd_per_h(1).integral() == pytest.approx(20 * 0.2 + 20 * 0.4)
    lanes = timeline.lanes()
    assert lanes.job.tolist() == [0, 1, 1]
    assert lanes.region.tolist() == [0, 0, 1]


def test_a_started_but_unfinished_episode_is_drawn_to_its_planned_end() -> None:
    simulator = Simulator(two_jobs().instance)
    simulator.step(Placement(0, (0,), (1,)))
    timeline = Timeline(simulator.trace("early"))
    assert timeline.end_s == 40
    assert timeline.queue.value.tolist() == [0, 1]  # the second job waits to the end


def test_step_functions_multiply_and_add() -> None:
    one = Steps(np.array([0.0, 2.0]), np.array([1.0, 3.0]), 4.0)
    other = Steps(np.array([0.0, 1.0, 3.0]), np.array([2.0, 0.0, 5.0]), 4.0)
    assert (one * other).value.tolist() == [2, 0, 0, 15]
    assert add_up([one, other]).value.tolist() == [3, 1, 3, 8]
    assert (one * 2.0).integral() == 16
    assert one.means(np.array([0.0, 4.0, 4.0])).tolist() == [2, 3]  # an empty bin has a value too
    assert one.cumulative(np.array([0.0, 1.0, 3.0, 9.0])).tolist() == [0, 1, 5, 8]
