"""Preset `tiny`: every schedule enumerated in a model of its own, and its references by hand."""

import itertools
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.policy import REGISTRY, make_policy
from bace_env.config import load_scenario
from bace_env.instance import srpt_mean_flow_time
from bace_env.scenario import build_instance
from bace_env.schema import Network
from bace_env.simulator import WAIT, Placement, Simulator

LONG, SHORT, LATE = range(3)
CHEAP, DEAR = range(2)
PRICE = (0.1, 0.3)  # USD/kWh, 1 kW per GPU
LINK_GB_PER_S = 0.5
#        t_comp(k), A in GB (so in s inside a region), M, I
JOBS = {
    LONG: ({1: 2.0, 2: 1.0, 3: 0.7, 4: 0.6}, 0.1, 16, 100),
    SHORT: ({1: 0.4, 2: 0.25}, 0.01, 8, 100),
    LATE: ({1: 0.4, 2: 0.25}, 0.01, 8, 200),
}
# Every path with GPUs of the two regions.
WHERE = [((r,), (n,)) for r in (CHEAP, DEAR) for n in (1, 2)] + [
    (path, gpus)
    for path in ((CHEAP, DEAR), (DEAR, CHEAP))
    for gpus in itertools.product((1, 2), repeat=2)
]


class Run(NamedTuple):
    job: int
    path: tuple[int, ...]
    gpus: tuple[int, ...]
    finish: float
    gb_per_s: float


def execution_s(job: int, path: tuple[int, ...], gpus: tuple[int, ...]) -> float:
    """Eq. 1 and 2; a hop between regions takes t_comp, one inside A / (1 GB/s)."""
    table, message_s, micro_batches, iterations = JOBS[job]
    k = sum(gpus)
    hops = [message_s] * (k - len(path)) + [table[k]] * (len(path) - 1)
    slowest = max([table[k], *hops])
    return iterations * 2 * (sum(hops) + k * table[k] + (micro_batches - 1) * slowest)


def fits(job: int, path: tuple[int, ...], gpus: tuple[int, ...], running: tuple[Run, ...]) -> bool:
    table, size, _, _ = JOBS[job]
    k = sum(gpus)
    if k not in table:
        return False
    for r, n in zip(path, gpus, strict=True):
        held = sum(
            g for run in running for at, g in zip(run.path, run.gpus, strict=True) if at == r
        )
        if held + n > 2:
            return False
    reserved = sum(run.gb_per_s for run in running if run.path == path)
    return len(path) == 1 or reserved + size / table[k] <= LINK_GB_PER_S


Start = tuple[int, tuple[int, ...], tuple[int, ...]]
Schedule = tuple[float, float, tuple[Start | None, ...]]


def schedules(now: float, pending: tuple[int, ...], running: tuple[Run, ...]) -> Iterator[Schedule]:
    """(sum of completion times, cost, decisions) of every way to go on; None is WAIT."""
    if not pending:
        yield sum(run.finish for run in running), 0.0, ()
        return
    for job in pending:
        left = tuple(j for j in pending if j != job)
        table, size, _, _ = JOBS[job]
        for path, gpus in WHERE:
            if fits(job, path, gpus, running):
                seconds = execution_s(job, path, gpus)
                rate = sum(PRICE[r] * n for r, n in zip(path, gpus, strict=True))
                run = Run(job, path, gpus, now + seconds, size / table[sum(gpus)])
                for total, cost, then in schedules(now, left, (*running, run)):
                    yield total, cost + rate * seconds / 3600, ((job, path, gpus), *then)
    if running:  # WAIT for the next completion; simultaneous ones together
        until = min(run.finish for run in running) + 1e-6
        ended = [run.finish for run in running if run.finish <= until]
        still = tuple(run for run in running if run.finish > until)
        for total, cost, then in schedules(max(ended), pending, still):
            yield total + sum(ended), cost, (None, *then)


@cache
def every_schedule() -> list[Schedule]:
    return list(schedules(0.0, (LONG, SHORT, LATE), ()))


INSTANCE = build_instance(load_scenario("tiny"), 0)


def play(decisions: tuple[Start | None, ...]) -> tuple[float, float]:
    """Average JCT and cost that the simulator finds."""
    simulator = Simulator(INSTANCE)
    for start in decisions:
        simulator.step(WAIT if start is None else Placement(*start))
    assert simulator.done
    trace = simulator.trace("by hand")
    return float(trace.finish_s.mean()), float(trace.cost_usd.sum())


# E_j(k) in one region, 2 * I * ((k - 1) c + k t + (M - 1) t), and k * E_j(k):
#   long   k = 1: 6400   2: 3420 (6840)   3: 2560 (7680)   4: 2340 (9360)
#   short  k = 1:  640   2:  452  (904)
#   late   k = 1: 1280   2:  904 (1808)
# jct_ref: mean of the best, (2340 + 452 + 904) / 3 = 1232, against SRPT of 6400, 640 and 1280
# GPU-seconds on four GPUs, (160 + 480 + 2080) / 3 = 906.67.
# cost_ref: 1 kW * 8320 s / 3600 * 0.1 USD/kWh = 0.23111 USD.
JCT_REF_S = 1232.0
COST_REF_USD = 8320 / 36000

# The optima among all 5636 schedules:
# - average JCT 1566.67 s: short and late at once on two GPUs each (452 and 904 s), then long on all
#   four, 100 * 2 * (2 * 0.1 + 0.6 + 4 * 0.6 + 15 * 0.6) = 2440 s: (452 + 904 + 3344) / 3. It costs
#   at least 0.66778 USD (late in the cheap region).
# - cost 0.23111 USD, the reference itself: each job on one GPU of the cheap region.
# - objective 1.88931, what BACE-Pipe finds: short on the cheap region, late on the dear one, and
#   long on the cheap one from 452 to 3872 s: 5228 / 3 / 1232 + 0.3 * 0.36578 / 0.23111.
BEST_JCT_S = 1566.6667
BEST_COST_USD = 0.2311111
BEST_OBJECTIVE = 1.8893099


def objective(jct_s: float, cost_usd: float) -> float:
    return jct_s / JCT_REF_S + 0.3 * cost_usd / COST_REF_USD


def test_references_are_those_computed_by_hand() -> None:
    assert INSTANCE.job_names == ("long", "short", "late")
    assert INSTANCE.single_gpu_s == pytest.approx([6400, 640, 1280])
    assert INSTANCE.least_work_s == pytest.approx([6400, 640, 1280])
    assert INSTANCE.jct_ref_s == pytest.approx(JCT_REF_S)
    assert INSTANCE.cost_ref_usd == pytest.approx(COST_REF_USD)
    assert INSTANCE.cost_weight == 0.3


def test_fluid_bound_is_the_reference_where_it_is_larger() -> None:
    # One GPU in all: SRPT takes (640 + 1920 + 8320) / 3, more than the mean of the best, 8320 / 3.
    scenario = load_scenario("tiny", ["regions.cheap.gpus=1"])
    one = scenario.model_copy(update={"regions": scenario.regions[:1], "network": Network()})
    assert build_instance(one, 0).jct_ref_s == pytest.approx((640 + 1920 + 8320) / 3)


@pytest.mark.parametrize(
    ("cheap", "usd_per_kwh"),
    [
        ("{ values = [0.5, 0.1, 0.3] }", 0.3),  # as dear as the other
        ("{ values = [0.2, 0.1] }", 0.15),  # the mean in time is the lowest
        ("{ values = [-0.3, 0.1] }", 0.25),  # mean -0.1: mean absolute price, (0.2 + 0.3) / 2
    ],
)
def test_cost_reference_takes_the_lowest_mean_price(cheap: str, usd_per_kwh: float) -> None:
    scenario = load_scenario("tiny", [f"regions.cheap.price_usd_per_kwh={cheap}"])
    assert build_instance(scenario, 0).cost_ref_usd == pytest.approx(8320 / 3600 * usd_per_kwh)


def test_optima_of_all_schedules_are_known() -> None:
    found = np.array([(total / 3, cost) for total, cost, _ in every_schedule()])
    assert len(found) == 5636
    jct, cost = found.T
    assert jct.min() == pytest.approx(BEST_JCT_S)
    assert cost[jct < jct.min() + 1e-6].min() == pytest.approx(0.6677778)
    assert cost.min() == pytest.approx(BEST_COST_USD)
    assert min(map(objective, jct, cost)) == pytest.approx(BEST_OBJECTIVE)


@pytest.mark.parametrize(
    ("decisions", "expected"),
    [
        (
            (
                (SHORT, (DEAR,), (2,)),
                (LATE, (CHEAP,), (2,)),
                None,
                None,
                (LONG, (CHEAP, DEAR), (2, 2)),
            ),
            (BEST_JCT_S, 0.6677778),
        ),
        (
            ((SHORT, (CHEAP,), (1,)), (LATE, (CHEAP,), (1,)), None, (LONG, (CHEAP,), (1,))),
            ((640 + 1280 + 7040) / 3, BEST_COST_USD),
        ),
        (
            ((SHORT, (CHEAP,), (2,)), (LATE, (DEAR,), (2,)), None, (LONG, (CHEAP,), (2,))),
            ((452 + 904 + 3872) / 3, 0.3657778),
        ),
    ],
    ids=["jct", "cost", "objective"],
)
def test_simulator_agrees_on_the_optima(
    decisions: tuple[Start | None, ...], expected: tuple[float, float]
) -> None:
    assert play(decisions) == pytest.approx(expected)


@pytest.mark.jit
def test_simulator_agrees_on_every_schedule() -> None:
    for total, cost, decisions in every_schedule():
        assert play(decisions) == pytest.approx((total / 3, cost)), decisions


@pytest.mark.parametrize("policy_name", REGISTRY)
def test_no_policy_beats_the_optimum(policy_name: str) -> None:
    simulator, policy = (
        Simulator(INSTANCE),
        make_policy(policy_name),
    )
    policy.reset(0)
    while not simulator.done:
        simulator.step(policy.act(simulator.view))
    trace = simulator.trace(policy_name)
    jct_s, cost_usd = float(trace.finish_s.mean()), float(trace.cost_usd.sum())
    assert jct_s >= BEST_JCT_S - 1e-3
    assert cost_usd >= BEST_COST_USD - 1e-6
    assert objective(jct_s, cost_usd) >= BEST_OBJECTIVE - 1e-6
    if policy_name == "bace":
        assert objective(jct_s, cost_usd) == pytest.approx(BEST_OBJECTIVE)
    if policy_name == "bace-patient":
        assert jct_s == pytest.approx(BEST_JCT_S)


# --- SRPT ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrivals", "durations", "expected"),
    [
        ([0], [3], 3),
        ([0, 0, 0], [3, 1, 2], (1 + 3 + 6) / 3),  # at once: shortest first
        ([0, 1], [5, 1], (1 + 6) / 2),  # the short one interrupts
        ([0, 1], [3, 2], (3 + 4) / 2),  # as much remains of both: no difference
        ([0, 1], [3, 9], (3 + 11) / 2),  # the long one does not
        ([0, 10], [1, 2], (1 + 2) / 2),  # idle in between
        ([5, 5], [2, 1], (1 + 3) / 2),
        ([0, 0, 4], [0, 2, 0], 2 / 3),  # no work takes no time
        ([0, 2, 4], [7, 5, 3], (7 + 13 + 6) / 3),
    ],
)
def test_srpt_on_known_examples(
    arrivals: list[float], durations: list[float], expected: float
) -> None:
    scratch = np.empty((2, len(arrivals)))
    found = srpt_mean_flow_time(np.array(arrivals, float), np.array(durations, float), scratch)
    assert found == pytest.approx(expected)


@cache
def least_flow(now: int, jobs: tuple[tuple[int, int], ...]) -> int:
    """Least sum of flow times of (arrival, remaining) jobs, over all choices per unit of time."""
    jobs = tuple(job for job in jobs if job[1] > 0)
    if not jobs:
        return 0
    present = [i for i, (arrival, _) in enumerate(jobs) if arrival <= now]
    best = least_flow(now + 1, jobs) if len(present) < len(jobs) else 10**9  # idle
    for i in present:
        arrival, left = jobs[i]
        rest = (*jobs[:i], (arrival, left - 1), *jobs[i + 1 :])
        best = min(best, least_flow(now + 1, tuple(sorted(rest))))
    return best + len(present)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=4))
def test_srpt_is_the_best_of_all_preemptive_schedules(jobs: list[tuple[int, int]]) -> None:
    jobs = sorted(jobs)
    arrivals, durations = np.array(jobs, float).T
    scratch = np.empty((2, len(arrivals)))
    found = srpt_mean_flow_time(
        np.ascontiguousarray(arrivals), np.ascontiguousarray(durations), scratch
    )
    assert found * len(jobs) == pytest.approx(least_flow(0, tuple(jobs)))
