"""Means with 95 % bootstrap intervals, and ratios paired by seed."""

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from bace_env.types import FloatArray

CONFIDENCE = 0.95
_RESAMPLES = 2000
_BATCH_VALUES = 2_000_000  # values resampled at once: bounds the memory
_MOST_BCA = 1000  # seeds; BCa's work grows with their square, its correction vanishes


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its interval; None where the value does not exist (0 / 0)."""

    mean: float | None
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, object]:
        """As in the JSON report."""
        interval = None if self.mean is None else [self.low, self.high]
        return {"mean": self.mean, "ci95": interval}


def estimate_means(samples: FloatArray, seed: int = 0) -> list[Estimate]:
    """Mean and bias-corrected bootstrap (BCa) interval of each row of `samples`, `(rows, seeds)`.

    A row without spread, or a single seed, has the mean itself as both ends: the data do not say
    how far it may be off. A row with a value that does not exist (nan) has no estimate. Beyond
    1000 seeds the interval is the percentile one.
    """
    estimates = []
    means = samples.mean(axis=1)
    # Absolutely, too: the logarithm of a ratio of 1 is 0 but for rounding.
    largest = np.abs(samples).max(axis=1, initial=0.0)
    spread = np.ptp(samples, axis=1) > np.maximum(1e-12 * largest, np.finfo(float).tiny)
    low, high = means.copy(), means.copy()
    # BCa does not exist for some lopsided rows (nan); the percentile interval always does.
    methods: tuple[Literal["BCa", "percentile"], ...] = ("BCa", "percentile")
    for method in methods if samples.shape[1] <= _MOST_BCA else methods[1:]:
        missing = ~np.isnan(means) & spread & ((low == high) | ~np.isfinite(low + high))
        if missing.any():
            low[missing], high[missing] = _bootstrap(samples[missing], method, seed)
    for mean, bottom, top in zip(means, low, high, strict=True):
        if np.isnan(mean):
            estimates.append(Estimate(None, None, None))
        else:
            estimates.append(Estimate(float(mean), float(bottom), float(top)))
    return estimates


def estimate_geometric_means(ratios: FloatArray, seed: int = 0) -> list[Estimate]:
    """Geometric mean and interval of each row of ratios, `(rows, seeds)`.

    Unlike the mean of ratios it does not depend on which policy is the reference: that of b / a is
    one over that of a / b. A row with a ratio that is not positive, or none, has no estimate.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.where(ratios > 0, np.log(ratios), np.nan)
    return [
        Estimate(*(None if v is None else float(np.exp(v)) for v in (e.mean, e.low, e.high)))
        for e in estimate_means(logs, seed)
    ]


def estimate_ratios_of_means(
    values: FloatArray, references: FloatArray, seed: int = 0
) -> list[Estimate]:
    """Mean of each row of `values` over that of `references`, both `(rows, seeds)`, paired by seed.

    The interval is the percentile bootstrap one. The few seeds with large values decide this
    ratio; `estimate_geometric_means` of the pairs weighs all alike. A row whose reference has a
    mean that is not positive has no estimate.
    """
    n = values.shape[1]
    drawn = np.random.default_rng(seed).integers(n, size=(_RESAMPLES, n))
    tails = [50.0 * (1 - CONFIDENCE), 50.0 * (1 + CONFIDENCE)]
    estimates = []
    for row, reference in zip(values, references, strict=True):
        if not reference.mean() > 0 or np.isnan(row).any():
            estimates.append(Estimate(None, None, None))
            continue
        mean = float(row.mean() / reference.mean())
        below = reference[drawn].mean(axis=1)
        low, high = np.percentile(row[drawn].mean(axis=1)[below > 0] / below[below > 0], tails)
        # Rounding must not put the mean outside where nothing varies.
        estimates.append(Estimate(mean, min(float(low), mean), max(float(high), mean)))
    return estimates


def _bootstrap(
    rows: FloatArray, method: Literal["BCa", "percentile"], seed: int
) -> tuple[FloatArray, FloatArray]:
    # By powers of two, which round nothing: BCa's third powers neither overflow nor vanish.
    exponent = np.frexp(np.abs(rows).max(axis=1))[1]
    rows = np.ldexp(rows, -exponent[:, None])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)  # answered by the caller
        interval = stats.bootstrap(
            (rows,),
            np.mean,
            axis=1,
            vectorized=True,
            n_resamples=_RESAMPLES,
            confidence_level=CONFIDENCE,
            method=method,
            batch=max(1, _BATCH_VALUES // rows.size),
            rng=np.random.default_rng(seed),
        ).confidence_interval
    return np.ldexp(interval.low, exponent), np.ldexp(interval.high, exponent)


def paired_ratios(values: FloatArray, reference: FloatArray) -> FloatArray:
    """`values / reference` per seed, both `(seeds,)`.

    nan where the reference is not positive and the two differ: there is no such ratio (a total
    cost may be zero or negative under negative prices). Equal values have ratio 1.
    """
    ratios = np.full(values.shape, np.nan)
    positive = reference > 0
    ratios[positive] = values[positive] / reference[positive]
    ratios[values == reference] = 1.0
    return ratios
