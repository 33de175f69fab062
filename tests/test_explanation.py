"""Reasons: of the decision really taken, with numbers that follow from the paper's equations."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import instances

from agents.explanation import Explains, Explanation, Table
from agents.policy import REGISTRY, make_policy
from bace_env.config import load_scenario
from bace_env.errors import BaceError, ConfigError, DeadlockError
from bace_env.instance import Instance
from bace_env.scenario import build_instance
from bace_env.simulator import WAIT, Action, Placement, Simulator, View
from eval.replay import describe, explain_episode
from eval.rollout import run_episode

#: No heuristics of `Options`: they explain themselves in another way, or not at all.
SILENT = ("random", "search", "bace-forecast", "bace-defer", "ppo")
HEURISTICS = [name for name in REGISTRY if name not in SILENT]
VARIANTS = [
    *HEURISTICS,
    "bace:partial_fill",
    "bace:patience=0.5,partial_fill",
    "bace:skip_blocked=false",
    "cr-lcf:partial_fill,skip_blocked",
    "cr-ldf:patience=0.7,partial_fill",
    "lcf:patience=0.3",
]
properties = settings(deadline=None, max_examples=50, derandomize=True)


def explained(instance: Instance, spec: str) -> Iterator[tuple[View, Action, Explanation]]:
    """Every decision of an episode: what was seen, what was done, and why."""
    simulator, policy = Simulator(instance), make_policy(spec)
    policy.reset(0)
    while not simulator.done:
        assert isinstance(policy, Explains)
        reasons = policy.explain(simulator.view)
        action = policy.act(simulator.view)
        yield simulator.view, action, reasons
        try:
            simulator.step(action)
        except DeadlockError:  # a rule that needs more GPUs than it can get in one region
            return


def column(table: Table, name: str) -> list[Any]:
    names = [heading.name for heading in table.columns]
    return [row[names.index(name)] for row in table.rows]


@pytest.mark.jit
@pytest.mark.parametrize("spec", VARIANTS)
def test_the_explained_decision_is_the_one_taken(spec: str) -> None:
    @properties
    @given(instances())
    def holds(instance: Instance) -> None:
        for view, action, reasons in explained(instance, spec):
            assert reasons.action == action
            json.dumps(reasons.to_dict(), allow_nan=False)
            outcomes = column(reasons.tables[0], "outcome")
            assert len(outcomes) == view.pending.size
            assert outcomes.count("starts") == (action is not WAIT)
            verdicts = [v for table in reasons.tables[1:] for v in column(table, "verdict")]
            assert ("chosen" in verdicts) == (action is not WAIT)
            if not isinstance(action, Placement):
                continue
            name = view.instance.job_names[action.job]
            started = column(reasons.tables[0], "job")[outcomes.index("starts")]
            assert started == name
            assert reasons.sentence.startswith(f"{name} starts on ")
            assert view.instance.where(action.path, action.gpus) in reasons.sentence

    holds()


@pytest.mark.jit
@settings(deadline=None, max_examples=60, derandomize=True)
@given(instances())
def test_priority_terms_follow_eq_9_to_12(instance: Instance) -> None:
    for view, _, reasons in explained(instance, "bace"):
        table, names = reasons.tables[0], list(view.instance.job_names)
        jobs = [names.index(name) for name in column(table, "job")]
        a = view.arrays
        total = a.link_bytes_per_s.sum()
        alpha = view.state.link_used.sum() / total if total else 0.0
        # Eq. 9 and 10 by hand: E_j(1) and b_j(K*) over the largest of the pending jobs.
        single_s = np.array([a.iterations[j] * a.iteration_s[a.job_profile[j], 1] for j in jobs])
        need = np.array([view.bandwidth_need(j, view.k_star(j)) for j in jobs])
        intensity = single_s / single_s.max() if single_s.max() > 0 else 0 * single_s
        sensitivity = need / need.max()
        priority = (1 - alpha) * (1 - intensity) + alpha * (1 - sensitivity)
        assert column(table, "I (Eq. 9)") == pytest.approx(intensity.tolist())
        assert column(table, "D (Eq. 10)") == pytest.approx(sensitivity.tolist())
        assert column(table, "b at K*") == pytest.approx((need / 1.25e8).tolist())
        shown = column(table, "priority (Eq. 12)")
        assert shown == pytest.approx(priority.tolist(), abs=1e-12)
        assert shown == sorted(shown, reverse=True)
        assert dict((f.label, f.value) for f in reasons.facts)[
            "alpha (Eq. 11): reserved share of all bandwidth"
        ] == pytest.approx(alpha, abs=1e-12)


@pytest.mark.jit
@pytest.mark.parametrize("spec", ["bace", "bace:partial_fill", "bace-no-cost-min"])
def test_of_the_paths_none_refused_is_better_than_the_chosen(spec: str) -> None:
    """Alg. 1, lines 18-21: most GPUs, then the lowest average price."""
    seen = set()

    @properties
    @given(instances())
    def holds(instance: Instance) -> None:
        for view, _, reasons in explained(instance, spec):
            for table in reasons.tables[1:]:
                verdicts = column(table, "verdict")
                if "paths" not in table.title or "chosen" not in verdicts:
                    continue
                offers, prices = column(table, "offers"), column(table, "mean price")
                best = verdicts.index("chosen")
                assert offers[best] == max(offers)
                assert all(
                    price >= prices[best] - 1e-9 * max(abs(price), abs(prices[best]))
                    for gpus, price in zip(offers, prices, strict=True)
                    if gpus == offers[best]
                )
                assert len(verdicts) == view.instance.n_regions
                for verdict, gpus in zip(verdicts, offers, strict=True):
                    if verdict == "refused: no free GPU":
                        assert gpus == 0
                    elif match := re.match(r"refused: offers (\d+), another (\d+)", verdict):
                        assert (int(match[1]), int(match[2])) == (gpus, offers[best])
                        assert gpus < offers[best]
                    seen.add(re.sub(r"\d+", "N", verdict))

    holds()
    assert {"chosen", "refused: no free GPU", "refused: offers N, another N"} <= seen


@pytest.mark.jit
@settings(deadline=None, max_examples=100, derandomize=True)
@given(instances(), st.sampled_from(["bace", "cr-ldf", "cr-lcf", "bace:partial_fill"]))
def test_why_a_path_ends_is_true(instance: Instance, spec: str) -> None:
    """Re-derived from the path that is shown: K*, free regions, links and Eq. 6."""
    regions = {name: r for r, name in enumerate(instance.region_names)}
    for view, _, reasons in explained(instance, spec):
        for table in reasons.tables[1:]:
            if "paths" not in table.title:
                continue
            job = list(instance.job_names).index(table.title.partition(":")[0])
            for path, gpus, end in zip(
                *(column(table, name) for name in ("path", "offers", "ends because")), strict=True
            ):
                if path is None:
                    continue
                on_path = [regions[part.split(" x")[0]] for part in path.split(" -> ")]
                assert sum(int(part.split(" x")[1]) for part in path.split(" -> ")) == gpus
                check_end(view, job, on_path, gpus, end)


def check_end(view: View, job: int, on_path: list[int], gpus: int, end: str) -> None:
    names, free = view.instance.region_names, view.free_gpus
    others = [r for r in range(len(names)) if r not in on_path and free[r] > 0]
    if end == "has all K* GPUs":
        assert gpus == view.k_star(job)
    elif end == "no other region has a free GPU":
        assert not others
    elif match := re.fullmatch(r"the links to (\S+) carry no more than (\d+) GPUs?", end):
        assert (names.index(match[1]), int(match[2])) == (on_path[-1], gpus)
        room = min(view.free_bytes_per_s[hop] for hop in pairwise(on_path))
        assert gpus < min(free[on_path].sum(), view.k_star(job))
        assert view.bandwidth_need(job, gpus) <= room * (1 + 1e-8)
        assert view.bandwidth_need(job, gpus + 1) > room
    elif match := re.fullmatch(r"no link (\S+) -> (\S+)", end):
        assert view.arrays.link_bytes_per_s[names.index(match[1]), names.index(match[2])] == 0
    else:
        pattern = r"(\S+) would make (\d+) GPUs, b = (\S+) Gbit/s; (\S+) -> (\S+) has (\S+)"
        match = re.fullmatch(pattern, end)
        assert match, end
        wanted = int(match[2])
        joins = names.index(match[1])
        assert joins in others
        assert wanted == min(gpus + free[joins], view.k_star(job))
        need = view.bandwidth_need(job, wanted)
        assert float(match[3]) == pytest.approx(need / 1.25e8, rel=5e-3)
        hop = names.index(match[4]), names.index(match[5])
        assert hop in pairwise([*on_path, joins])
        assert view.free_bytes_per_s[hop] < need
        assert float(match[6]) == pytest.approx(view.free_bytes_per_s[hop] / 1.25e8, rel=5e-3)


def test_fig1_reasons_are_those_that_the_model_document_gives() -> None:
    """`on B and D, the check at 5 fails, so D is left out`: docs/model.md, section 5."""
    instance = build_instance(load_scenario("fig1"), 0)
    (_, first, _), (_, second, reasons) = list(explained(instance, "cr-ldf"))
    assert isinstance(first, Placement)
    assert instance.where(first.path, first.gpus) == "A x4 -> C x2"
    assert isinstance(second, Placement)
    assert instance.where(second.path, second.gpus) == "B x3"
    (end,) = column(reasons.tables[2], "ends because")
    assert end.startswith("D would make 5 GPUs, ")
    assert end.endswith("B -> D has 0.2")


def test_a_policy_without_reasons_says_so() -> None:
    instance = build_instance(load_scenario("tiny"), 0)
    policy = make_policy("random")
    trace = run_episode(instance, policy)
    with pytest.raises(ConfigError, match=r"policy random: gives no reasons"):
        next(explain_episode(trace, policy))


def test_reasons_of_another_policy_are_refused() -> None:
    instance = build_instance(load_scenario("tiny"), 0)
    trace = run_episode(instance, make_policy("lcf"))
    with pytest.raises(BaceError, match=r"policy bace: decides otherwise now .* at decision \d+"):
        list(explain_episode(trace, make_policy("bace")))


class Counting:
    """Starts the pending jobs in one region, waits between; says how often it has acted."""

    name = "counting"

    def __init__(self) -> None:
        self.acted = 0

    def reset(self, seed: int) -> None:
        """Forget."""
        self.acted = 0

    def act(self, view: View) -> Action:
        """The first job that fits, into the first region that holds it."""
        self.acted += 1
        for job in view.pending.tolist():
            for r, free in enumerate(view.free_gpus):
                if free >= view.k_min(job):
                    return Placement(job, (r,), (view.k_min(job),))
        return WAIT

    def explain(self, view: View) -> Explanation:
        """The answer, without having acted."""
        before = self.acted
        action = self.act(view)
        self.acted = before
        return Explanation(action, f"acted {before} times")


def test_a_policy_with_a_memory_explains_itself_in_the_state_that_it_was_in() -> None:
    instance = build_instance(load_scenario("tiny"), 0)
    policy = Counting()
    trace = run_episode(instance, policy)
    sentences = [reasons.sentence for reasons in explain_episode(trace, policy)]
    assert sentences == [f"acted {k} times" for k in range(len(trace.decisions))]
    assert describe(trace, 0) == "starts long on cheap x1"
