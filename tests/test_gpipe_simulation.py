"""Eq. 1 against an event simulation of the pipeline: where it is exact, and how far off else.

The expected errors are those of `facts/cost-model.md`, section 7.
"""

from collections.abc import Callable

import numpy as np
import pytest
from gpipe_simulation import Pipeline, gpipe_s, one_f_one_b_s

from bace_env.pipeline import iteration_time
from bace_env.types import FloatArray

Case = Callable[[np.random.Generator, FloatArray, int], float]


def pipeline(
    link_s: FloatArray,
    micro_batches: int,
    *,
    forward_s: float | FloatArray = 1.0,
    backward_s: float | FloatArray = 1.0,
    link_backward_s: FloatArray | None = None,
    latency_s: float | FloatArray = 0.0,
) -> Pipeline:
    """A pipeline of `len(link_s) + 1` stages; a number stands for equal ones."""
    n = len(link_s) + 1
    return Pipeline(
        forward_s=np.broadcast_to(forward_s, n).tolist(),
        backward_s=np.broadcast_to(backward_s, n).tolist(),
        link_forward_s=link_s.tolist(),
        link_backward_s=(link_s if link_backward_s is None else link_backward_s).tolist(),
        latency_s=np.broadcast_to(latency_s, n - 1).tolist(),
        micro_batches=micro_batches,
    )


def eq1(link_s: FloatArray, micro_batches: int, comp_s: float, latency_s: float = 0.0) -> float:
    """Eq. 1, the sum of the latencies in the fill."""
    slowest = float(link_s.max(initial=0.0))
    fill = float(link_s.sum()) + latency_s
    return float(iteration_time(fill, slowest, comp_s, len(link_s) + 1, micro_batches))


def random_links(rng: np.random.Generator, slow: bool, comp_s: float = 1.0) -> FloatArray:
    """Occupancies of 1-15 links, all shorter than compute or one much longer."""
    links = comp_s * rng.uniform(0, 1, int(rng.integers(1, 16))) * rng.uniform(0.3, 1)
    if slow:
        links[rng.integers(links.size)] = comp_s * rng.uniform(2.2, 6)
    return links


@pytest.mark.parametrize("slow", [False, True])
def test_eq1_is_exact_for_gpipe(slow: bool) -> None:
    rng = np.random.default_rng(int(slow))
    for _ in range(60):
        comp_s, micro_batches = float(rng.uniform(0.1, 3)), int(rng.integers(1, 100))
        links = random_links(rng, slow, comp_s)
        latency = rng.uniform(0, 2, links.size) * rng.integers(0, 2)
        made = pipeline(
            links, micro_batches, forward_s=comp_s, backward_s=comp_s, latency_s=latency
        )
        expected = eq1(links, micro_batches, comp_s, float(latency.sum()))
        assert gpipe_s(made) == pytest.approx(expected, rel=1e-9)


def test_eq1_is_exact_without_links_and_with_one_micro_batch() -> None:
    none, two = np.zeros(0), np.array([0.5, 7.0])
    assert gpipe_s(pipeline(none, 9)) == pytest.approx(eq1(none, 9, 1.0)) == pytest.approx(18.0)
    assert gpipe_s(pipeline(two, 1)) == pytest.approx(eq1(two, 1, 1.0)) == pytest.approx(21.0)


def _backward_twice(rng: np.random.Generator, links: FloatArray, m: int) -> float:
    """B: b = 2f while Eq. 1 is given their mean."""
    links = links * 1.5  # relative to t = 1.5
    made = pipeline(links, m, forward_s=1.0, backward_s=2.0)
    return eq1(links, m, 1.5) / gpipe_s(made) - 1


def _uneven(rng: np.random.Generator, links: FloatArray, m: int) -> float:
    """C: stages within 20 %, Eq. 1 is given the mean."""
    stages = rng.uniform(0.8, 1.2, links.size + 1)
    made = pipeline(links, m, forward_s=stages, backward_s=stages)
    return eq1(links, m, float(stages.mean())) / gpipe_s(made) - 1


def _latency_occupies(rng: np.random.Generator, links: FloatArray, m: int) -> float:
    """D: latency counted as part of t_comm, in the bottleneck term too."""
    latency = rng.uniform(0, 2, links.size)
    return eq1(links + latency, m, 1.0) / gpipe_s(pipeline(links, m, latency_s=latency)) - 1


def _blocking(rng: np.random.Generator, links: FloatArray, m: int) -> float:
    """E: a stage does not compute while it sends."""
    return eq1(links, m, 1.0) / gpipe_s(pipeline(links, m), blocking=True) - 1


def _asymmetric(rng: np.random.Generator, links: FloatArray, m: int) -> float:
    """F: backward messages take 0.5-2 times as long, Eq. 1 knows the forward ones."""
    back = links * rng.uniform(0.5, 2, links.size)
    return eq1(links, m, 1.0) / gpipe_s(pipeline(links, m, link_backward_s=back)) - 1


def _one_f_one_b(rng: np.random.Generator, links: FloatArray, m: int) -> float:
    """G: plain 1F1B."""
    return eq1(links, m, 1.0) / one_f_one_b_s(pipeline(links, m)) - 1


@pytest.mark.parametrize(
    ("case", "slow", "documented", "possible"),
    [  # percent: the range that 10 cases gave, and what the formulas allow
        (_backward_twice, True, (0.0, 0.0), (0.0, 0.0)),
        (_backward_twice, False, (-7.9, -0.8), (-100 / 7, 0.0)),
        (_uneven, True, (0.0, 0.0), (0.0, 0.0)),
        (_uneven, False, (-12.7, -4.5), (-100 / 3, 0.0)),
        (_latency_occupies, True, (0.0, 50.0), (0.0, 200 / 2.2)),
        (_latency_occupies, False, (35.0, 122.0), (0.0, 200.0)),
        (_blocking, True, (-31.0, -12.0), (-100 / 3.2, 0.0)),
        (_blocking, False, (-41.0, -17.0), (-50.0, 0.0)),
        (_asymmetric, True, (-27.0, 18.0), (-100 / 3, 100 / 3)),
        (_asymmetric, False, (-23.0, 1.0), (-100 / 3, 100 / 3)),
        (_one_f_one_b, True, (1.0, 44.0), (0.0, 50.0)),
        (_one_f_one_b, False, (-31.0, -11.0), (-50.0, 0.0)),
    ],
)
def test_error_of_eq1_where_its_assumptions_break(
    case: Case, slow: bool, documented: tuple[float, float], possible: tuple[float, float]
) -> None:
    rng = np.random.default_rng(1)
    errors = [
        100 * case(rng, random_links(rng, slow), int(rng.integers(4, 129))) for _ in range(60)
    ]
    assert possible[0] - 1e-9 <= min(errors) <= max(errors) <= possible[1] + 1e-9
    assert documented[0] - 1e-9 <= np.mean(errors) <= documented[1] + 1e-9


@pytest.mark.parametrize(("ratio", "worst"), [(2.0, -1 / 7), (3.0, -1 / 5)])
def test_worst_error_of_a_longer_backward_pass(ratio: float, worst: float) -> None:
    comp_s = (1 + ratio) / 2
    errors = []
    for link_s in (0.5, 1.0, comp_s, ratio, 2 * ratio):
        links = np.full(3, link_s)
        made = pipeline(links, 5000, forward_s=1.0, backward_s=ratio)
        errors.append(eq1(links, 5000, comp_s) / gpipe_s(made) - 1)
    assert min(errors) == errors[2] == pytest.approx(worst, abs=1e-3)
    assert errors[0] == errors[1] == errors[4] == pytest.approx(0.0, abs=1e-9)


def test_the_slowest_stage_bounds_uneven_ones() -> None:
    stages, links = np.array([0.8, 1.2, 1.0]), np.zeros(2)
    made = pipeline(links, 5000, forward_s=stages, backward_s=stages)
    assert eq1(links, 5000, 1.0) / gpipe_s(made) - 1 == pytest.approx(-1 / 6, abs=1e-3)
    assert eq1(links, 5000, 1.2) / gpipe_s(made) - 1 == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize(
    ("link_s", "gpipe", "one_f_one_b", "twice_warm"),
    [
        (0.0, 1.055, 1.055, 1.055),
        (0.5, 1.058, 1.220, 1.058),
        (1.0, 1.061, 1.384, 1.061),
        (3.0, 2.063, 2.040, 1.407),
        (6.0, 4.063, 3.071, 2.149),
    ],
)
def test_one_slow_link_in_the_middle(
    link_s: float, gpipe: float, one_f_one_b: float, twice_warm: float
) -> None:
    links = np.zeros(7)
    links[3] = link_s
    made = pipeline(links, 128, forward_s=1.0, backward_s=2.0)
    times = np.array([gpipe_s(made), one_f_one_b_s(made), one_f_one_b_s(made, warm_up_factor=2)])
    assert times / (3 * 128) == pytest.approx([gpipe, one_f_one_b, twice_warm], abs=1.5e-3)
    assert eq1(links, 128, 1.5) == pytest.approx(times[0], rel=1e-9)  # not within f < link < b
