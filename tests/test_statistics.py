"""Means, bootstrap intervals and paired ratios, and what they say where data are degenerate."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bace_env.types import FloatArray
from eval.statistics import Estimate, estimate_geometric_means, estimate_means, paired_ratios

DRAWS: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], FloatArray], float]] = {
    "normal": (lambda rng, size: rng.normal(5.0, 2.0, size), 5.0),
    "uniform": (lambda rng, size: rng.uniform(0.0, 1.0, size), 0.5),
    "exponential": (lambda rng, size: rng.exponential(3.0, size), 3.0),
    "three sizes": (lambda rng, size: rng.choice([1.0, 35.0, 154.0], size), 190.0 / 3),
}
NONE = Estimate(None, None, None)
VALUES = st.floats(1e-9, 1e9) | st.floats(-1e9, -1e-9) | st.sampled_from([0.0, 1.0, 2.0])


def ordered(estimate: Estimate) -> bool:
    """There is a mean, inside its finite interval."""
    mean, low, high = estimate.mean, estimate.low, estimate.high
    assert mean is not None and low is not None and high is not None
    assert np.isfinite([mean, low, high]).all()
    slack = 1e-12 * max(abs(low), abs(high))
    return low - slack <= mean <= high + slack


@pytest.mark.parametrize("name", DRAWS)
def test_intervals_hold_the_true_mean_in_about_95_of_100_cases(name: str) -> None:
    draw, truth = DRAWS[name]
    estimates = estimate_means(draw(np.random.default_rng(1), (600, 40)))
    held = [e.low <= truth <= e.high for e in estimates if e.low is not None and e.high is not None]
    assert len(held) == 600
    assert 0.90 <= np.mean(held) <= 0.98


@pytest.mark.parametrize("n", [1000, 1001, 3000])
def test_intervals_of_many_seeds_are_those_of_the_normal_distribution(n: int) -> None:
    row = np.random.default_rng(9).exponential(2.0, (1, n))
    (estimate,) = estimate_means(row)
    half = 1.96 * row.std() / np.sqrt(n)
    assert estimate.low == pytest.approx(row.mean() - half, abs=0.12 * half)
    assert estimate.high == pytest.approx(row.mean() + half, abs=0.12 * half)


def test_more_data_make_intervals_shorter() -> None:
    rng = np.random.default_rng(2)
    widths = []
    for n in (10, 40, 160):
        estimates = estimate_means(rng.normal(0.0, 1.0, (50, n)))
        widths.append(np.mean([(e.high or 0.0) - (e.low or 0.0) for e in estimates]))
    assert widths[0] > 1.6 * widths[1] > 2.5 * widths[2]


def test_lopsided_data_have_lopsided_intervals() -> None:
    (estimate,) = estimate_means(np.random.default_rng(3).exponential(1.0, (1, 30)))
    assert estimate.mean is not None and estimate.low is not None and estimate.high is not None
    assert estimate.high - estimate.mean > estimate.mean - estimate.low > 0


@pytest.mark.parametrize("value", [0.0, 0.1, -3.0, 1e-300, 1e300])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_equal_values_have_no_width(value: float, n: int) -> None:
    (estimate,) = estimate_means(np.full((1, n), value))
    assert estimate.low == estimate.mean == estimate.high == pytest.approx(value, rel=1e-15)


def test_rounding_is_no_spread() -> None:
    (estimate,) = estimate_means(np.array([[1.0, 1.0 + 1e-15, 1.0 - 1e-15, 1.0]]))
    assert estimate.low == estimate.mean == estimate.high


def test_one_value_is_its_own_interval_and_two_are_the_ends() -> None:
    assert estimate_means(np.array([[7.0]])) == [Estimate(7.0, 7.0, 7.0)]
    assert estimate_means(np.array([[4.0, 1.0]])) == [Estimate(2.5, 1.0, 4.0)]


@pytest.mark.parametrize(
    "row", [[0, 0, 0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1e9], [-1, 1], [0, 1, 1, 1], [1, 1 + 1e-9]]
)
def test_lopsided_rows_have_finite_intervals(row: list[float]) -> None:
    (estimate,) = estimate_means(np.array([row], dtype=float))
    assert ordered(estimate)
    assert estimate.low != estimate.high


def test_a_row_with_a_missing_value_has_no_estimate_and_spoils_no_other() -> None:
    rows = np.random.default_rng(4).normal(size=(5, 12))
    clean = estimate_means(rows)
    rows[1, 3] = np.nan
    rows[3, :] = np.nan
    assert estimate_means(rows) == [clean[0], NONE, clean[2], NONE, clean[4]]
    assert NONE.to_dict() == {"mean": None, "ci95": None}
    assert Estimate(1.0, 0.5, 2.0).to_dict() == {"mean": 1.0, "ci95": [0.5, 2.0]}


@pytest.mark.parametrize("exponent", [-1000, -400, -40, 40, 400, 990])
def test_the_unit_of_measurement_changes_nothing(exponent: int) -> None:
    rows = np.random.default_rng(5).lognormal(size=(4, 15))
    unit = 2.0**exponent
    for one, other in zip(estimate_means(rows), estimate_means(rows * unit), strict=True):
        assert one.mean is not None and one.low is not None and one.high is not None
        assert other == Estimate(one.mean * unit, one.low * unit, one.high * unit)


def test_neither_order_nor_company_of_rows_matters() -> None:
    rows = np.random.default_rng(6).normal(size=(9, 10)) ** 3
    rows[4] = 2.0
    together = estimate_means(rows)
    order = np.random.default_rng(7).permutation(9)
    assert estimate_means(rows[order]) == [together[i] for i in order]
    for row, estimate in zip(rows, together, strict=True):
        (alone,) = estimate_means(row[None])
        assert alone.mean == estimate.mean
        assert [alone.low, alone.high] == pytest.approx([estimate.low, estimate.high], rel=1e-12)


def test_the_same_data_give_the_same_interval() -> None:
    rows = np.random.default_rng(8).normal(size=(3, 20))
    assert estimate_means(rows) == estimate_means(rows)
    assert estimate_means(rows, seed=1) != estimate_means(rows, seed=2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(VALUES, min_size=5, max_size=5), min_size=1, max_size=4))
def test_whatever_the_data_the_mean_lies_in_a_finite_interval(rows: list[list[float]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(map(ordered, estimate_means(np.array(rows))))


def test_ratios_are_taken_pair_by_pair() -> None:
    ratios = paired_ratios(np.array([1.0, 6.0, -2.0, 0.0]), np.array([2.0, 3.0, 4.0, 5.0]))
    assert ratios.tolist() == [0.5, 2.0, -0.5, 0.0]


@pytest.mark.parametrize(
    ("value", "reference", "ratio"),
    [
        (1.0, 0.0, None),
        (-1.0, 0.0, None),
        (1.0, -2.0, None),
        (-4.0, -2.0, None),
        (0.0, -2.0, None),
        (0.0, 0.0, 1.0),
        (-2.0, -2.0, 1.0),
        (3.0, 3.0, 1.0),
    ],
)
def test_a_ratio_to_what_is_not_positive_exists_between_equals_alone(
    value: float, reference: float, ratio: float | None
) -> None:
    (found,) = paired_ratios(np.array([value]), np.array([reference]))
    assert np.isnan(found) if ratio is None else found == ratio


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=20))
def test_ratios_never_warn_and_are_never_infinite(pairs: list[tuple[float, float]]) -> None:
    values, reference = np.array(pairs).T
    ratios: FloatArray = paired_ratios(values, reference)
    assert not np.isinf(ratios).any()
    exists = (reference > 0) | (values == reference)
    assert (np.isnan(ratios) == ~exists).all()


def test_geometric_means_do_not_depend_on_the_reference() -> None:
    rng = np.random.default_rng(0)
    ratios = rng.lognormal(0.3, 1.0, (3, 50))
    forward, backward = estimate_geometric_means(ratios), estimate_geometric_means(1 / ratios)
    for one, other, row in zip(forward, backward, ratios, strict=True):
        assert one.mean is not None and other.mean is not None
        assert one.mean == pytest.approx(1 / other.mean)
        assert one.mean == pytest.approx(float(np.prod(row) ** (1 / row.size)))
        assert one.low is not None and one.high is not None
        assert one.low < one.mean < one.high


def test_a_ratio_that_is_not_positive_has_no_geometric_mean() -> None:
    found = estimate_geometric_means(np.array([[1.0, 0.0], [1.0, -1.0], [1.0, np.nan], [1.0, 1.0]]))
    assert [estimate.mean for estimate in found] == [None, None, None, 1.0]
