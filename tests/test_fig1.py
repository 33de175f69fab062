"""The paper's motivating example, Fig. 1: its figures, and what Algorithm 1 makes of it."""

import pytest

from agents.policy import make_policy
from bace_env.config import load_scenario
from bace_env.instance import Instance
from bace_env.scenario import build_instance
from bace_env.simulator import Placement, Simulator
from bace_env.trace import EpisodeTrace

A, B, C, D = range(4)
P, Q = range(2)
Where = tuple[tuple[int, ...], tuple[int, ...]]  # path, GPUs

LCF: tuple[Where, Where] = (((C,), (2,)), ((B,), (3,)))
LDF: tuple[Where, Where] = (((A,), (4,)), ((B,), (3,)))
OURS_FCFS: tuple[Where, Where] = (((A, C), (4, 2)), ((B,), (3,)))
OURS_REORDERED: tuple[Where, Where] = (((B, D), (3, 1)), ((A, C), (4, 2)))
PRINTED = {
    LCF: (1.50, 0.53),
    LDF: (1.32, 0.56),
    OURS_FCFS: (1.27, 0.55),
    OURS_REORDERED: (0.75, 0.52),
}

# Hand computation below uses these: run times in hours by GPUs, measured or along the straight line
# in log-log between (P at 3: 0.796 * (2/3)^0.8442; Q at 5: 2.209 * (3/5)^1.0813), and in Mbit/s
# b_j(k) = 8 A * 2 (k + M - 1) I / (3600 * run time), as no hop inside a region takes time.
#        k     1      2      3      4      5      6          A         M     I
# P   hours  1.592  0.796  0.5653 0.4434 0.3695 0.3184    0.35 MB   512   102
#     b_P      51    102    144    184    222    258
# Q   hours  6.627  3.3135 2.209  1.6185 1.2715 1.044     2.08 MB   128   407
#     b_Q      73    146    221    305    391    479
RUN_H = {
    P: (1.592, 0.796, 0.5653, 0.4434, 0.3695, 0.3184),
    Q: (6.627, 3.3135, 2.209, 1.6185, 1.2715, 1.044),
}
NEED_MBPS = {P: (51, 102, 144, 184, 222, 258), Q: (73, 146, 221, 305, 391, 479)}
PRICES = {A: 0.230, B: 0.222, C: 0.191, D: 0.291}


def instance(*overrides: str, q_first: bool = False) -> Instance:
    scenario = load_scenario("fig1", overrides)
    if q_first:
        scenario = scenario.model_copy(update={"jobs": scenario.jobs[::-1]})
    return build_instance(scenario, 0)


def run(policy_name: str, on: Instance) -> EpisodeTrace:
    simulator, policy = Simulator(on), make_policy(policy_name)
    policy.reset(0)
    while not simulator.done:
        simulator.step(policy.act(simulator.view))
    return simulator.trace(policy_name)


def placements(trace: EpisodeTrace) -> tuple[Where, Where]:
    """Those of P and Q, whichever is first in the queue; both must have started at once."""
    assert trace.start_s.tolist() == [0.0, 0.0]
    p, q = (trace.instance.job_names.index(name) for name in "PQ")
    return trace.placement(p), trace.placement(q)


def by_hand(where: tuple[Where, Where]) -> tuple[float, float]:
    """Average JCT in hours and cost in USD at 0.295 kW per GPU."""
    hours = [RUN_H[job][sum(where[job][1]) - 1] for job in (P, Q)]
    rates = [sum(n * PRICES[r] for r, n in zip(*where[job], strict=True)) for job in (P, Q)]
    cost = 0.295 * sum(h * rate for h, rate in zip(hours, rates, strict=True))
    return sum(hours) / 2, cost


def test_run_times_and_bandwidth_needs_are_those_of_the_table_above() -> None:
    simulator = Simulator(instance())
    arrays = simulator.instance.arrays
    for job in (P, Q):
        hours = arrays.iterations[job] * arrays.iteration_s[job, 1:] / 3600
        assert hours == pytest.approx(RUN_H[job], abs=5e-5)
        mbps = [8e-6 * simulator.view.bandwidth_need(job, k) for k in range(1, 7)]
        assert mbps == pytest.approx(NEED_MBPS[job], abs=0.5)
        assert simulator.view.k_star(job) == 6  # so lines 12 and 13 of Alg. 1 aim at six GPUs


@pytest.mark.parametrize("where", PRINTED)
def test_the_papers_placements_give_its_printed_figures(where: tuple[Where, Where]) -> None:
    simulator = Simulator(instance())
    for job, (path, gpus) in enumerate(where):
        simulator.step(Placement(job, path, gpus))
    assert simulator.done
    trace = simulator.trace("paper")
    jct_h, cost_usd = trace.finish_s.mean() / 3600, trace.cost_usd.sum()
    # No run times and power meet all eight figures; these miss none by more than 0.0063.
    assert (jct_h, cost_usd) == pytest.approx(PRINTED[where], abs=0.0063 + 1e-9)
    assert (jct_h, cost_usd) == pytest.approx(by_hand(where), abs=1e-4)


@pytest.mark.parametrize(("policy", "where"), [("lcf", LCF), ("ldf", LDF)])
def test_single_region_baselines_choose_the_papers_placements(
    policy: str, where: tuple[Where, Where]
) -> None:
    # LCF: P to C (0.191), then Q to B (0.222 < 0.230). LDF: P to A (4 GPUs), then Q to B (3).
    assert placements(run(policy, instance())) == where


def test_cross_region_ldf_chooses_what_the_paper_calls_ours_fcfs() -> None:
    # From A (4 GPUs) along 1000 Mbit/s to C: six GPUs. Then Q from B (3 left, D has 2): one more
    # GPU in D would make k = 5 of K* = 6, and b_Q(5) = 391 exceeds the 200 of B-D. B alone.
    assert placements(run("cr-ldf", instance())) == OURS_FCFS


@pytest.mark.parametrize("policy", ["bace-no-priority", "bace"])
def test_algorithm_1_puts_the_first_job_on_three_regions(policy: str) -> None:
    # P on the empty cluster; no region has K* = 6. Free bandwidth in Mbit/s:
    #   from A: C (1000), g' = min(4 + 2, 6) = 6, 258 <= 1000. A4 C2: 0.2170 USD/kWh on average.
    #   from B: C (400; A 300, D 200), g' = 5, 222 <= 400; from C: A (1000), g' = 6 and the
    #           bottleneck is 400: 258 <= 400. Alg. 2 gives one GPU each, then C (0.191) a second,
    #           B (0.222) two more: B3 C2 A1, (3 * 0.222 + 2 * 0.191 + 0.230) / 6 = 0.2130.
    #   from C: A (1000), g' = 6: C2 A4, 0.2170.
    #   from D: A (700), g' = 6, 258 <= 700: D2 A4, 0.2503.
    # All reach six GPUs; B -> C -> A is the cheapest, where the paper has A and C. It leaves A3 and
    # D2 to Q: A -> D, g' = 5, 391 <= 700. D -> A gives the same GPUs at the same price; A is first.
    # `bace` agrees: the cluster is idle, alpha = 0, and E_P(1) = 1.592 h < E_Q(1) = 6.627 h, so by
    # Eq. 12 P (1 - 0.24) goes before Q (1 - 1). It never reorders to Q first, as the paper does.
    trace = run(policy, instance())
    where = (((B, C, A), (3, 2, 1)), ((A, D), (3, 2)))
    assert placements(trace) == where
    assert [d.job for d in trace.decisions] == [P, Q]
    jct_h, cost_usd = trace.finish_s.mean() / 3600, trace.cost_usd.sum()
    # Average JCT (0.3184 + 1.2715) / 2; cost 0.295 * (0.3184 * 1.278 + 1.2715 * 1.272).
    assert (jct_h, cost_usd) == pytest.approx((0.7950, 0.5972), abs=1e-4)
    assert (jct_h, cost_usd) == pytest.approx(by_hand(where), abs=1e-4)


def test_priority_does_not_depend_on_the_queue() -> None:
    trace = run("bace", instance(q_first=True))
    assert placements(trace) == (((B, C, A), (3, 2, 1)), ((A, D), (3, 2)))
    assert [d.job for d in trace.decisions] == [1, 0]  # P is the second in the queue


def test_algorithm_1_with_q_first_gives_p_three_gpus_and_never_four() -> None:
    # Q on the empty cluster:
    #   from A: C (1000), g' = 6, 479 <= 1000. A4 C2: 0.2170.
    #   from B: C (400), g' = 5, 391 <= 400; then A, g' = 6, but the bottleneck is 400 < 479. Five.
    #   from C: A: C2 A4, the same price as A4 C2, which came first.
    #   from D: A (700), g' = 6, 479 <= 700: D2 A4, 0.2503.
    # A4 C2, as in the paper. P then finds B3 and D2, 200 Mbit/s apart: line 12 tries
    # g' = min(3 + 2, 6) = 5, and b_P(5) = 222 > 200, from either end. So B alone, with three GPUs.
    # The paper's four, B3 D1, need 184, but no line of Alg. 1 would try them.
    trace = run("bace-no-priority", instance(q_first=True))
    where = (((B,), (3,)), ((A, C), (4, 2)))
    assert placements(trace) == where
    jct_h, cost_usd = trace.finish_s.mean() / 3600, trace.cost_usd.sum()
    # Average JCT (0.5653 + 1.044) / 2; cost 0.295 * (0.5653 * 0.666 + 1.044 * 1.302).
    assert (jct_h, cost_usd) == pytest.approx((0.8046, 0.5121), abs=1e-4)
    assert (jct_h, cost_usd) == pytest.approx(by_hand(where), abs=1e-4)


def test_partial_fill_with_q_first_gives_the_papers_reordered_placement() -> None:
    # D gives as many GPUs as B-D carries: b_P(4) = 184 <= 200 < b_P(5). From D the path D -> B ends
    # with the same D1 B3 at the same price; B is first.
    trace = run("bace-no-priority:partial_fill", instance(q_first=True))
    assert placements(trace) == OURS_REORDERED


def test_the_other_reading_of_the_diagonals_moves_q() -> None:
    # The figure does not tell A-D = 700, B-C = 400 from A-D = 400, B-C = 700. With the latter, Q
    # first on the empty cluster: B -> C -> A has bottleneck 700 >= 479: six GPUs at 0.2130, cheaper
    # than A4 C2. P finds A3 and D2 at 400 Mbit/s: g' = 5, 222 <= 400.
    swapped = instance("network.links.4.gbps=0.4", "network.links.5.gbps=0.7", q_first=True)
    where = placements(run("bace-no-priority", swapped))
    assert where == (((A, D), (3, 2)), ((B, C, A), (3, 2, 1)))
