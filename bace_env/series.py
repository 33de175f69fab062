"""Prices and carbon intensities as step functions from time 0 on."""

import math
from dataclasses import dataclass

import numpy as np

from bace_env.generators import generate
from bace_env.schema import Generator, Series
from bace_env.types import FloatArray


@dataclass(frozen=True)
class SeriesSteps:
    """A price (USD/kWh) or carbon intensity (g/kWh) from time 0 on, as the kernels take it."""

    times_s: FloatArray  # (T,) start of each step, first 0
    values: FloatArray  # (T,)
    period_s: float  # inf: does not repeat
    end_s: float  # inf: known for ever
    mean: float  # over time
    mean_size: float  # of the absolute value

    def cumulative(self) -> FloatArray:
        """Integral from 0 to the start of each step, `(T,)`."""
        areas = self.values[:-1] * np.diff(self.times_s)
        return np.concatenate([[0.0], np.cumsum(areas)])


def series_steps(value: float | Series | Generator) -> SeriesSteps:
    """The steps of what a scenario may give for a price or a carbon intensity."""
    if isinstance(value, Generator):
        value = Series.model_construct(values=generate(value), beyond=value.beyond)
    elif not isinstance(value, Series):
        value = Series(values=[value], beyond="hold")
    return _steps(value)


def _steps(series: Series) -> SeriesSteps:
    values, step_s = np.array(series.per_kwh()), 3600.0 * series.step_h
    skipped = math.floor(series.offset_h / series.step_h + 1e-9)
    past_s = 3600.0 * series.offset_h - skipped * step_s  # of the step in force at 0
    past_s = past_s if past_s > 1e-6 * step_s else 0.0
    repeats = series.beyond == "repeat" and values.size > 1
    values = np.roll(values, -skipped) if series.beyond == "repeat" else values[skipped:]
    length_s = values.size * step_s
    weights = np.ones(values.size)
    if past_s > 0 and not repeats:
        weights[0] -= past_s / step_s
    times_s: FloatArray = np.arange(values.size) * np.float64(step_s)
    times_s[1:] -= past_s
    if past_s > 0 and repeats:  # what of the first step had passed comes at the end of the period
        times_s, values = np.append(times_s, length_s - past_s), np.append(values, values[0])
        weights = np.append(weights, past_s / step_s)
        weights[0] -= past_s / step_s
    even = past_s == 0
    return SeriesSteps(
        times_s=times_s,
        values=values,
        period_s=length_s if repeats else np.inf,
        end_s=length_s - past_s if series.beyond == "error" else np.inf,
        mean=float(values.mean() if even else np.average(values, weights=weights)),
        mean_size=float(
            np.abs(values).mean() if even else np.average(np.abs(values), weights=weights)
        ),
    )
