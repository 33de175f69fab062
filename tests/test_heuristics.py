"""Algorithms 1 and 2, Eq. 9-12 and the baselines on examples small enough to follow by hand.

Unless a test says otherwise a job on k GPUs has t_comp(k) = 1/k s, needs b_j(k) = k Gbit/s between
regions, and has K* = the `k` of its model: hops inside a region cost nothing.
"""

import math
from typing import Any

import numpy as np
import pytest

from agents.policy import make_policy
from bace_env import placement
from bace_env.config import load_scenario, parse_scenario
from bace_env.errors import DeadlockError
from bace_env.instance import Instance
from bace_env.scenario import build_instance
from bace_env.simulator import WAIT, Action, Placement, Simulator, View

Model = dict[str, Any]
HEAD_OF_LINE = ("lcf", "ldf", "cr-lcf", "cr-ldf")
ORDERED_BY_PRIORITY = ("bace", "bace-no-pathfinder", "bace-no-cost-min")
EVERY = (*HEAD_OF_LINE, *ORDERED_BY_PRIORITY, "bace-no-priority", "bace-patient", "sjf")


def model(k: int, need: float = 1.0, **more: object) -> Model:
    """t_comp(i) = 1/i s and b_j(i) = need * i Gbit/s for i = 1..k."""
    stages = range(1, k + 1)
    measured = {"gpus": list(stages), "t_comp_ms": [1000 / i for i in stages]}
    return {"activation_mb": 125.0 * need, "measured": measured, **more}


def instance(
    regions: dict[str, tuple[int, Any]],
    links: dict[str, float],
    jobs: list[tuple[Model, int]],
    **more: Any,
) -> Instance:
    """Regions as (GPUs, price); links "a-b" both ways or "a>b" in Gbit/s; jobs as (model, I)."""
    listed = []
    for ends, gbps in links.items():
        source, target = ends.replace(">", "-").split("-")
        listed.append({"source": source, "target": target, "gbps": gbps, "both_ways": "-" in ends})
    arrivals = more.pop("arrival_h", [None] * len(jobs))
    made = []
    for i, (_, iterations) in enumerate(jobs):
        job = {"name": f"j{i}", "model": f"m{i}", "batch_size": 5, "iterations": iterations}
        made.append(job if arrivals[i] is None else {**job, "arrival_h": arrivals[i]})
    data = {
        "name": "by hand",
        "pipeline": {"intra_gbps": math.inf},
        "regions": [
            {"name": name, "gpus": gpus, "price_usd_per_kwh": price}
            for name, (gpus, price) in regions.items()
        ],
        "network": {"rule": "listed", "links": listed},
        "models": [{"name": f"m{i}", **m} for i, (m, _) in enumerate(jobs)],
        "jobs": made,
        **more,
    }
    return build_instance(parse_scenario(data), 0)


def act(policy_name: str, view: View) -> Action:
    policy = make_policy(policy_name)
    policy.reset(0)
    return policy.act(view)


def place(
    policy_name: str, regions: dict[str, tuple[int, Any]], links: dict[str, float], m: Model
) -> tuple[str, tuple[int, ...]]:
    """Where the policy puts a single job in the empty cluster: region letters, GPUs."""
    made = instance(regions, links, [(m, 100)])
    action = act(policy_name, Simulator(made).view)
    assert isinstance(action, Placement)
    return "".join(made.region_names[r] for r in action.path), action.gpus


def started(policy_name: str, made: Instance) -> list[tuple[float, int]]:
    """The whole episode: time and job of each start."""
    simulator, policy = Simulator(made), make_policy(policy_name)
    policy.reset(0)
    while not simulator.done:
        simulator.step(policy.act(simulator.view))
    return [(round(d.time_s, 6), d.job) for d in simulator.decisions if d.job is not None]


# --- Algorithm 1, lines 1-4: one region ----------------------------------------------------------


def test_one_region_with_k_star_gpus_is_taken_at_the_lowest_price() -> None:
    # c is cheaper, but its two GPUs are less than K* = 4.
    regions = {"a": (4, 0.3), "b": (5, 0.2), "c": (2, 0.1)}
    links = {"a-b": 99.0, "b-c": 99.0}
    assert place("bace", regions, links, model(4)) == ("b", (4,))


def test_equal_prices_go_to_the_first_region() -> None:
    regions = {"a": (3, 0.2), "b": (4, 0.2), "c": (4, 0.2)}
    assert place("bace", regions, {}, model(4)) == ("b", (4,))
    assert place("lcf", regions, {}, model(4)) == ("a", (3,))
    assert place("ldf", regions, {}, model(4)) == ("b", (4,))


def test_capacity_is_what_is_free() -> None:
    made = instance({"a": (4, 0.1), "b": (4, 0.2)}, {}, [(model(1), 100), (model(4), 100)])
    simulator = Simulator(made)
    assert act("bace-no-priority", simulator.view) == Placement(0, (0,), (1,))
    simulator.step(Placement(0, (0,), (1,)))
    # a has 3 free of 4 < K*: b. LCF stays with the three, LDF follows the free GPUs.
    assert act("bace", simulator.view) == Placement(1, (1,), (4,))
    assert act("lcf", simulator.view) == Placement(1, (0,), (3,))
    assert act("ldf", simulator.view) == Placement(1, (1,), (4,))


def test_price_is_the_one_in_force() -> None:
    # a costs 0.1 in the first hour and 0.9 from then on, b always 0.5.
    made = instance(
        {"a": (4, {"values": [0.1, 0.9], "beyond": "hold"}), "b": (4, 0.5)},
        {},
        [(model(4), 100), (model(4), 100)],
        workload={"arrivals": "listed"},
        arrival_h=[0.0, 1.0],
    )
    for policy_name in ("bace", "lcf", "cr-lcf"):
        simulator = Simulator(made)
        assert act(policy_name, simulator.view) == Placement(0, (0,), (4,))
        simulator.step(Placement(0, (0,), (4,)))
        assert simulator.view.now_s == 3600
        assert act(policy_name, simulator.view) == Placement(1, (1,), (4,))


# --- Algorithm 1, lines 5-23: paths --------------------------------------------------------------


def test_a_path_follows_the_highest_bandwidth() -> None:
    # K* = 6. From a: b (10), 5 GPUs; from b: c (6), 6 GPUs, bottleneck 6 >= b_j(6) = 6: abc.
    # From b: a (10), then c (8): bac. From c: a (8), then b (10): cab. Each takes six GPUs at the
    # same average price: the first start wins. Alg. 2: 1 each, then c +1, b +1, a +1.
    regions = {"a": (3, 0.3), "b": (2, 0.2), "c": (2, 0.1)}
    links = {"a-b": 10.0, "a-c": 8.0, "b-c": 6.0}
    assert place("bace", regions, links, model(6)) == ("abc", (2, 2, 2))
    # With 5.9 between b and c the path from a ends with 5 GPUs; from b it still finds 6.
    assert place("bace", regions, {**links, "b-c": 5.9}, model(6)) == ("bac", (2, 2, 2))


def test_bandwidth_is_checked_at_the_tentative_number_of_gpus() -> None:
    # Line 13: g' = min(3 + 3, 6) = 6 needs 6 > 5, though 4 or 5 GPUs would fit. b is cheaper.
    regions = {"a": (3, 0.3), "b": (3, 0.2)}
    assert place("bace", regions, {"a-b": 5.0}, model(6)) == ("b", (3,))
    assert place("bace", regions, {"a-b": 6.0}, model(6)) == ("ab", (3, 3))
    # K* = 5 caps g' at 5, and Alg. 2 gives the cheap b its three.
    assert place("bace", regions, {"a-b": 5.0}, model(5)) == ("ab", (2, 3))


def test_partial_fill_takes_as_many_gpus_as_the_link_carries() -> None:
    regions = {"a": (3, 0.3), "b": (3, 0.2)}
    assert place("bace:partial_fill", regions, {"a-b": 5.0}, model(6)) == ("ab", (2, 3))
    assert place("bace:partial_fill", regions, {"a-b": 4.5}, model(6)) == ("ab", (1, 3))
    # 3.9 carries b_j(3), but a fourth GPU does not come in.
    assert place("bace:partial_fill", regions, {"a-b": 3.9}, model(6)) == ("b", (3,))
    # In path order instead, for the cross-region baseline: LDF starts in a (first of equals).
    assert place("cr-ldf:partial_fill", regions, {"a-b": 5.0}, model(6)) == ("ab", (3, 2))


def test_partial_fill_ends_the_path() -> None:
    # From a: b gives 2 of its 4 GPUs (5 <= 5 < 6), and c behind it is not asked.
    regions = {"a": (3, 0.1), "b": (4, 0.2), "c": (9, 0.3)}
    links = {"a-b": 5.0, "b-c": 4.0}
    # From c: 9 of K* = 12; b would make 12 > 4, 11 > 4, 10 > 4: c alone has most.
    assert place("bace:partial_fill", regions, links, model(12)) == ("c", (9,))
    # LCF's path begins in a.
    assert place("cr-lcf:partial_fill", regions, links, model(12)) == ("ab", (3, 2))


def test_earlier_hops_must_carry_what_later_regions_add() -> None:
    # From a: b over 3 with 2 GPUs; c would make 6, and the bottleneck stays 3: ab, 2 GPUs.
    # From b: c over 10, 5 GPUs; there is no link from c to a: bc, 5 GPUs.
    # From c: b over 10, 5 GPUs; then a over 3 for 6: no. cb, 5 GPUs at the same price as bc.
    regions = {"a": (1, 0.1), "b": (1, 0.2), "c": (4, 0.3)}
    assert place("bace", regions, {"a-b": 3.0, "b-c": 10.0}, model(6)) == ("bc", (1, 4))


def test_the_first_region_that_fails_ends_the_path() -> None:
    # From a (2): b has the best link, g' = 6 > 5: the end, though c (3 GPUs in all) would do.
    # From c: a, 3 <= 4; then b, 6 > 4: ca, 3 GPUs. From b: a, 6 > 5: b, 4 GPUs, the most.
    regions = {"a": (2, 0.1), "b": (4, 0.9), "c": (1, 0.1)}
    assert place("bace", regions, {"a-b": 5.0, "a-c": 4.0}, model(6)) == ("b", (4,))


def test_more_gpus_beat_a_lower_price_and_a_lower_price_beats_the_order() -> None:
    # ab has 4 GPUs at 0.9, cd has 3 at 0.1.
    regions = {"a": (2, 0.9), "b": (2, 0.9), "c": (2, 0.1), "d": (1, 0.1)}
    links = {"a-b": 9.0, "c-d": 9.0}
    assert place("bace", regions, links, model(8)) == ("ab", (2, 2))
    assert place("bace", {**regions, "d": (2, 0.1)}, links, model(8)) == ("cd", (2, 2))
    # cd at 0.1 and 1.7 is as dear as ab: the first start keeps it.
    assert place("bace", {**regions, "d": (2, 1.7)}, links, model(8)) == ("ab", (2, 2))


def test_equal_paths_go_to_the_first_or_the_last_start() -> None:
    # From a along 9 Gbit/s to b and from b to a: four GPUs at the same price; c is not linked.
    regions = {"a": (2, 0.2), "b": (2, 0.2), "c": (1, 0.1)}
    for options, where in (("", "ab"), (":ties=first", "ab"), (":ties=last", "ba")):
        assert place(f"bace{options}", regions, {"a-b": 9.0}, model(4)) == (where, (2, 2))
    # A cheaper path wins whichever comes last: c and d, from either end.
    regions = {"c": (2, 0.1), "d": (2, 0.1), "a": (2, 0.2), "b": (2, 0.2)}
    links = {"a-b": 9.0, "c-d": 9.0}
    for options, where in (("", "cd"), (":ties=last", "dc")):
        assert place(f"bace{options}", regions, links, model(4)) == (where, (2, 2))
    # And more GPUs win over a later start.
    regions = {"a": (3, 0.2), "b": (2, 0.1)}
    assert place("bace:ties=last", regions, {}, model(4)) == ("a", (3,))


def test_equal_bandwidths_go_to_the_first_region() -> None:
    regions = {"a": (2, 0.1), "b": (2, 0.3), "c": (2, 0.3)}
    links = {"a-b": 9.0, "a-c": 9.0, "b-c": 9.0}
    assert place("bace", regions, links, model(4)) == ("ab", (2, 2))
    assert place("cr-ldf", regions, links, model(4)) == ("ab", (2, 2))


def test_links_have_a_direction() -> None:
    regions = {"a": (2, 0.3), "b": (2, 0.1)}
    assert place("bace", regions, {"a>b": 4.0, "b>a": 3.0}, model(4)) == ("ab", (2, 2))
    assert place("bace", regions, {"a>b": 3.0, "b>a": 4.0}, model(4)) == ("ba", (2, 2))
    assert place("bace", regions, {"a>b": 3.0, "b>a": 3.0}, model(4)) == ("b", (2,))
    assert place("cr-ldf", regions, {"b>a": 4.0}, model(4)) == ("a", (2,))
    assert place("cr-lcf", regions, {"b>a": 4.0}, model(4)) == ("ba", (2, 2))


def test_bandwidth_is_what_is_free() -> None:
    # The first job reserves b_j(2) = 2 * 2 = 4 of the 10 from a to b: 6 are left, 10 back.
    # The second, K* = 4, finds 2, 2 and 3 GPUs. From a: c (7 > 6), 4 GPUs at 0.15. From b: a, at
    # 0.2. From c: a, at 0.15, not cheaper than ac. With the nominal 10 from a to b it would be ca.
    made = instance(
        {"a": (3, 0.1), "b": (3, 0.3), "c": (3, 0.2)},
        {"a-b": 10.0, "a-c": 7.0},
        [(model(2, need=2.0), 100), (model(4), 100)],
    )
    simulator = Simulator(made)
    simulator.step(Placement(0, (0, 1), (1, 1)))
    assert simulator.view.free_bytes_per_s[0].tolist() == pytest.approx([0, 6e9 / 8, 7e9 / 8])
    assert act("bace", simulator.view) == Placement(1, (0, 2), (2, 2))


def test_a_link_that_is_reserved_carries_no_second_job() -> None:
    # 5 Gbit/s, the first job holds 2: b_j(4) = 4 > 3 does not fit until it has finished.
    made = instance(
        {"a": (3, 0.1), "b": (3, 0.2)}, {"a>b": 5.0}, [(model(2), 100), (model(4), 100)]
    )
    simulator = Simulator(made)
    simulator.step(Placement(0, (0, 1), (1, 1)))
    assert act("bace", simulator.view) == Placement(1, (0,), (2,))
    assert act("bace:partial_fill", simulator.view) == Placement(1, (0, 1), (2, 1))
    assert act("bace-patient", simulator.view) is WAIT
    simulator.step(WAIT)
    assert act("bace-patient", simulator.view) == Placement(1, (0, 1), (3, 1))


def test_regions_without_free_gpus_neither_start_nor_join_a_path() -> None:
    # a, best linked to both, is taken whole. b -> c and c -> b remain, both 4 GPUs at one price.
    made = instance(
        {"a": (2, 0.1), "b": (2, 0.2), "c": (2, 0.3)},
        {"a-b": 99.0, "a-c": 99.0, "b-c": 4.0},
        [(model(2), 100), (model(4), 100)],
    )
    simulator = Simulator(made)
    simulator.step(Placement(0, (0,), (2,)))
    assert act("bace", simulator.view) == Placement(1, (1, 2), (2, 2))
    assert act("cr-lcf", simulator.view) == Placement(1, (1, 2), (2, 2))
    assert act("cr-ldf", simulator.view) == Placement(1, (1, 2), (2, 2))
    assert act("lcf", simulator.view) == Placement(1, (1,), (2,))


def test_nobody_starts_in_a_full_cluster() -> None:
    made = instance({"a": (2, 0.1), "b": (1, 0.1)}, {"a-b": 9.0}, [(model(3), 100)] * 2)
    for policy_name in EVERY:
        simulator = Simulator(made)
        simulator.step(Placement(0, (0, 1), (2, 1)))
        assert act(policy_name, simulator.view) is WAIT, policy_name


# --- Algorithm 2 and its ablation ----------------------------------------------------------------

THREE = {"a": (4, 0.3), "b": (2, 0.1), "c": (4, 0.2)}
THREE_LINKS = {"a-b": 20.0, "b-c": 15.0, "a-c": 10.0}


def test_surplus_gpus_go_to_the_cheapest_regions() -> None:
    # K* = 7: one each, then b +1 (full), then c +3 (full): a1 b2 c4, whatever the start.
    assert place("bace", THREE, THREE_LINKS, model(7)) == ("abc", (1, 2, 4))


def test_surplus_at_equal_prices_goes_to_the_first_region() -> None:
    regions = {"a": (3, 0.2), "b": (3, 0.2)}
    # From a and from b alike; b -> a is as cheap as a -> b, which came first.
    assert place("bace", regions, {"a-b": 9.0}, model(4)) == ("ab", (3, 1))
    assert place("bace", regions, {"b>a": 9.0}, model(4)) == ("ba", (1, 3))


def test_without_cost_min_gpus_are_spread_evenly() -> None:
    # 7 GPUs one by one to the region of the path that has fewest, the first of equals:
    # abc: 3, 2 (full), 2 at 1.5 / 7 USD/kWh. bac: b2 a3 c2, the same.
    # cba: c3 b2 a2 at 1.4 / 7, the cheapest.
    assert place("bace-no-cost-min", THREE, THREE_LINKS, model(7)) == ("cba", (3, 2, 2))


def test_uniform_allocation_fills_up_small_regions() -> None:
    regions = {"a": (1, 0.2), "b": (9, 0.2)}
    assert place("bace-no-cost-min", regions, {"a-b": 99.0}, model(10)) == ("ab", (1, 9))
    assert place("bace-no-cost-min", {**regions, "a": (5, 0.2)}, {"a-b": 99.0}, model(10)) == (
        "ab",
        (5, 5),
    )


# --- Baselines -----------------------------------------------------------------------------------


def test_lcf_and_ldf_keep_to_one_region() -> None:
    regions = {"a": (3, 0.3), "b": (1, 0.1), "c": (2, 0.2)}
    links = {"a-b": 99.0, "a-c": 99.0, "b-c": 99.0}
    assert place("lcf", regions, links, model(5)) == ("b", (1,))
    assert place("ldf", regions, links, model(5)) == ("a", (3,))


def test_cross_region_lcf_goes_by_ascending_price() -> None:
    # b (0.1), c (0.2), a (0.3), filled in that order; the highest bandwidth does not matter.
    regions = {"a": (2, 0.3), "b": (2, 0.1), "c": (2, 0.2)}
    links = {"a-b": 99.0, "b-c": 9.0, "a-c": 9.0}
    assert place("cr-lcf", regions, links, model(6)) == ("bca", (2, 2, 2))
    assert place("cr-lcf", regions, links, model(5)) == ("bca", (2, 2, 1))
    assert place("cr-lcf", regions, links, model(3)) == ("bc", (2, 1))
    # c -> a carries 4.9 < b_j(5): the path ends there.
    assert place("cr-lcf", regions, {**links, "a-c": 4.9}, model(5)) == ("bc", (2, 2))
    # Without a link b -> c it ends at once, though a would be in reach.
    assert place("cr-lcf", regions, {"a-b": 99.0, "a-c": 9.0}, model(5)) == ("b", (2,))


def test_cross_region_ldf_starts_with_most_gpus_along_the_highest_bandwidth() -> None:
    # b (4 GPUs); a over 10: 6 <= 10; from a: c over 9: 8 <= 9. Filled in that order: the last
    # gets the rest.
    regions = {"a": (2, 0.1), "b": (4, 0.9), "c": (3, 0.1)}
    links = {"a-b": 10.0, "b-c": 8.0, "a-c": 9.0}
    for policy_name in ("cr-ldf", "bace-no-pathfinder"):
        assert place(policy_name, regions, links, model(8)) == ("bac", (4, 2, 2))
        assert place(policy_name, regions, links, model(9)) == ("bac", (4, 2, 3))
        # 9 > 8.9: the third region does not join.
        assert place(policy_name, regions, {**links, "a-c": 8.9}, model(9)) == ("ba", (4, 2))


@pytest.mark.parametrize("policy_name", EVERY)
def test_no_policy_takes_more_than_k_star(policy_name: str) -> None:
    # t_comp = 2, 1, 1, 1 s: with five micro-batches 2 * (k t + 4 t) = 20, 12, 14, 16 s: K* = 2.
    flat = {
        "activation_mb": 1.0,
        "measured": {"gpus": [1, 2, 3, 4], "t_comp_ms": [2000, 1000, 1000, 1000]},
    }
    made = instance({"a": (8, 0.1), "b": (8, 0.1)}, {"a-b": 99.0}, [(flat, 10)])
    view = Simulator(made).view
    assert (view.k_star(0), view.k_max(0)) == (2, 4)
    assert act(policy_name, view) == Placement(0, (0,), (2,))


def test_k_min_is_a_floor_for_every_rule() -> None:
    # Free: a 1, b 3. The second job needs at least 2.
    made = instance({"a": (2, 0.1), "b": (3, 0.2)}, {}, [(model(1), 100), (model(4, k_min=2), 100)])
    simulator = Simulator(made)
    simulator.step(Placement(0, (0,), (1,)))
    for policy_name in ("bace", "lcf", "ldf", "cr-ldf"):
        assert act(policy_name, simulator.view) == Placement(1, (1,), (3,)), policy_name
    # Its path begins in a and gets no further: below k_min it is none.
    assert act("cr-lcf", simulator.view) is WAIT
    # Two of three GPUs are free where three are needed.
    made = instance({"a": (3, 0.2)}, {}, [(model(1), 100), (model(4, k_min=3), 100)])
    for policy_name in EVERY:
        simulator = Simulator(made)
        simulator.step(Placement(0, (0,), (1,)))
        assert act(policy_name, simulator.view) is WAIT, policy_name


# --- Order of the jobs: Eq. 9-12 -----------------------------------------------------------------


def priorities(view: View) -> list[float]:
    out = np.empty(view.pending.size)
    placement.priorities(view.arrays, view.state.link_used, np.array(view.pending), out)
    return out.tolist()


def test_in_an_idle_network_the_shortest_job_goes_first() -> None:
    # alpha = 0. E_j(1) is I * 2 * 5 s: 3000, 1000, 2000, 1000 s, over the longest: 1 - I_j below.
    made = instance({"a": (1, 0.1)}, {}, [(model(1), n) for n in (300, 100, 200, 100)])
    view = Simulator(made).view
    assert view.congestion == 0
    assert priorities(view) == pytest.approx([0, 2 / 3, 1 / 3, 2 / 3])
    # One GPU: one after the other; equal jobs in order of arrival.
    expected = [(0, 1), (1000, 3), (2000, 2), (4000, 0)]
    for policy_name in (*ORDERED_BY_PRIORITY, "bace-patient", "sjf"):
        assert started(policy_name, made) == expected, policy_name
    in_order = [(0, 0), (3000, 1), (4000, 2), (6000, 3)]
    for policy_name in (*HEAD_OF_LINE, "bace-no-priority"):
        assert started(policy_name, made) == in_order, policy_name


def congested(reserved_gbps: float, jobs: list[tuple[Model, int]]) -> Simulator:
    """One link a -> b of 10 Gbit/s of which a running job holds `reserved_gbps`."""
    first = (model(2, need=reserved_gbps / 2), 10**6)
    made = instance({"a": (9, 0.1), "b": (9, 0.2)}, {"a>b": 10.0}, [first, *jobs])
    simulator = Simulator(made)
    if reserved_gbps > 0:
        simulator.step(Placement(0, (0, 1), (1, 1)))
    return simulator


@pytest.mark.parametrize(
    ("reserved_gbps", "expected", "chosen"),
    [
        # j1: I = 0.2, D = 1 (b_j(4) = 4). j2: I = 1, D = 0.1 (b_j(4) = 0.4).
        (1.0, [0.9 * 0.8 + 0.1 * 0, 0.9 * 0 + 0.1 * 0.9], 1),  # 0.72 > 0.09
        (4.0, [0.6 * 0.8, 0.4 * 0.9], 1),  # 0.48 > 0.36
        (5.0, [0.5 * 0.8, 0.5 * 0.9], 2),  # 0.40 < 0.45
        (9.999, [0.0001 * 0.8, 0.9999 * 0.9], 2),  # alpha near 1: only bandwidth counts
        (10.0, [0.0, 0.9], 2),
    ],
)
def test_congestion_turns_the_order_from_short_to_narrow(
    reserved_gbps: float, expected: list[float], chosen: int
) -> None:
    jobs = [(model(4), 20), (model(4, need=0.1), 100)]
    view = congested(reserved_gbps, jobs).view
    assert view.congestion == pytest.approx(reserved_gbps / 10)
    assert priorities(view) == pytest.approx(expected, abs=1e-9)
    action = act("bace", view)
    assert isinstance(action, Placement)
    assert action.job == chosen
    fixed = act("sjf", view)  # looks at E_j(1) alone
    assert isinstance(fixed, Placement)
    assert fixed.job == 1


def test_alpha_counts_each_hop_over_all_directed_links() -> None:
    # Links of 10 both ways between a, b, c: 60 in all. A path of three regions at b_j(3) = 3
    # occupies two of them: 6 / 60. A job in one region occupies none.
    made = instance(
        {"a": (3, 0.1), "b": (3, 0.1), "c": (3, 0.1)},
        {"a-b": 10.0, "b-c": 10.0, "a-c": 10.0},
        [(model(3), 100), (model(3), 100), (model(3), 100)],
    )
    simulator = Simulator(made)
    simulator.step(Placement(0, (0, 1, 2), (1, 1, 1)))
    assert simulator.view.congestion == pytest.approx(0.1)
    simulator.step(Placement(1, (0,), (2,)))
    assert simulator.view.congestion == pytest.approx(0.1)


def test_sensitivity_is_taken_at_k_star() -> None:
    # Both need 1 Gbit/s per GPU, but K* is 8 and 2: D = 1 and 0.25. alpha = 0.5, equal E_j(1).
    view = congested(5.0, [(model(8), 100), (model(2), 100)]).view
    assert priorities(view) == pytest.approx([0.0, 0.5 * 0.75])


def test_maxima_run_over_the_pending_jobs() -> None:
    # E_j(1) in proportion 4 : 2 : 1. When the longest has started, the next one is the measure.
    made = instance({"a": (9, 0.1)}, {}, [(model(2), 400), (model(2), 200), (model(2), 100)])
    simulator = Simulator(made)
    assert priorities(simulator.view) == pytest.approx([0, 0.5, 0.75])
    simulator.step(Placement(0, (0,), (1,)))
    assert priorities(simulator.view) == pytest.approx([0, 0.5])


def test_a_single_pending_job_has_priority_zero_and_starts() -> None:
    simulator = congested(5.0, [(model(4), 100)])
    assert priorities(simulator.view) == [0.0]
    assert act("bace", simulator.view) == Placement(1, (0,), (4,))


def test_jobs_without_work_have_an_order_and_finish_at_once() -> None:
    made = instance({"a": (2, 0.1)}, {}, [(model(2), 0), (model(2), 0)])
    assert priorities(Simulator(made).view) == [1.0, 1.0]
    for policy_name in EVERY:
        assert started(policy_name, made) == [(0.0, 0), (0.0, 1)], policy_name
    # Beside a real job: I = 0 against I = 1.
    made = instance({"a": (2, 0.1)}, {}, [(model(2), 100), (model(2), 0)])
    assert priorities(Simulator(made).view) == [0.0, 1.0]


# --- Who waits -----------------------------------------------------------------------------------


def test_a_blocked_head_of_line_stops_the_baselines_but_not_bace() -> None:
    # Two of four GPUs are free. j1 (first by arrival and by priority) needs three; j2 needs one.
    made = instance(
        {"a": (4, 0.1)}, {}, [(model(2), 100), (model(4, k_min=3), 10), (model(1), 1000)]
    )
    for policy_name in EVERY:
        simulator = Simulator(made)
        simulator.step(Placement(0, (0,), (2,)))
        expected = WAIT if policy_name in HEAD_OF_LINE else Placement(2, (0,), (1,))
        assert act(policy_name, simulator.view) == expected, policy_name
    for policy_name in HEAD_OF_LINE:
        simulator = Simulator(made)
        simulator.step(Placement(0, (0,), (2,)))
        action = act(f"{policy_name}:skip_blocked", simulator.view)
        assert action == Placement(2, (0,), (1,)), policy_name
        # j0: 100 * 2 * (1 + 4 / 2) = 600 s. Then j1 takes all four GPUs: 10 * 2 * (1 + 1) = 40 s.
        assert started(policy_name, made) == [(0, 0), (600, 1), (640, 2)]


def test_patience_waits_for_a_share_of_k_star() -> None:
    # K* = 5: a share of 0.5 is 3 GPUs. j0 holds 4 of 6 until 100 * 2 * (1 + 4/4) = 400 s, when j1
    # gets 5. With a share of 0.4 the two free GPUs do.
    made = instance({"a": (6, 0.1)}, {}, [(model(4), 100), (model(5), 100)])
    assert started("bace-no-priority", made) == [(0, 0), (0, 1)]
    assert started("bace-no-priority:patience=0.4", made) == [(0, 0), (0, 1)]
    assert started("bace-no-priority:patience=0.5", made) == [(0, 0), (400, 1)]
    assert started("bace-no-priority:patience=1", made) == [(0, 0), (400, 1)]


def test_patience_asks_for_no_more_than_the_empty_cluster_gives() -> None:
    # K* = 8, but a and b are not linked: at most 5. j0 takes those; j1 finds b with three.
    made = instance({"a": (5, 0.1), "b": (3, 0.2)}, {}, [(model(8), 100), (model(8), 100)])
    # j0 on five GPUs: 100 * 2 * (1 + 4 / 5) = 360 s.
    for policy_name in ("bace-patient", "bace:patience=0.5"):  # 5 of 8, 4 of 8
        assert started(policy_name, made) == [(0, 0), (360, 1)], policy_name
    for policy_name in ("bace", "bace:patience=0.375"):  # 3 of 8
        assert started(policy_name, made) == [(0, 0), (0, 1)], policy_name


@pytest.mark.parametrize("policy_name", [f"{name}:patience=1" for name in EVERY])
@pytest.mark.parametrize(
    "preset", ["fig1", "tiny", "physical", "paper", "paper-fitted", "week-in-the-cloud"]
)
def test_the_most_patient_policy_never_waits_for_ever(policy_name: str, preset: str) -> None:
    made = build_instance(load_scenario(preset), 3)
    assert len(started(policy_name, made)) == made.n_jobs


def test_patience_lets_the_next_job_try() -> None:
    # j1 waits for its four GPUs; j2, last in priority, is content with the two that are free.
    made = instance({"a": (4, 0.1)}, {}, [(model(2), 1000), (model(4), 10), (model(2), 1000)])
    simulator = Simulator(made)
    simulator.step(Placement(0, (0,), (2,)))
    assert act("bace", simulator.view) == Placement(1, (0,), (2,))
    assert act("bace-patient", simulator.view) == Placement(2, (0,), (2,))


def test_a_rule_that_never_reaches_k_min_is_a_deadlock_with_a_report() -> None:
    # Three GPUs in two linked regions: one region alone never gives k_min = 3.
    made = instance({"a": (2, 0.1), "b": (1, 0.2)}, {"a-b": 9.0}, [(model(3, k_min=3), 100)])
    assert started("bace", made) == [(0, 0)]
    with pytest.raises(DeadlockError, match=r"j0: needs 3 GPUs, the freest region has 2 of 3 free"):
        started("lcf", made)
    # Line 13 wants six GPUs, 6 > 5; five would do, but only partial_fill tries them.
    made = instance({"a": (3, 0.1), "b": (3, 0.2)}, {"a-b": 5.0}, [(model(6, k_min=5), 100)])
    assert started("bace:partial_fill", made) == [(0, 0)]
    with pytest.raises(DeadlockError, match=r"j0: needs 5 GPUs, the freest region has 3 of 6 free"):
        started("bace", made)
