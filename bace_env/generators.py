"""Synthetic series of prices and carbon intensities, of our own making."""

import numpy as np

from bace_env.errors import ConfigError
from bace_env.schema import Generator
from bace_env.types import FloatArray

_FADE = 0.5  # what is left of a spike an hour later


def generate(spec: Generator) -> list[float]:
    """The hourly values of a generator; a function of its fields alone."""
    values = relative_series(
        np.random.default_rng(spec.seed),
        hours=spec.hours,
        wave=spec.wave,
        peak_hour=spec.peak_hour,
        residual=spec.residual,
        persistence=spec.persistence,
        least=spec.least,
        weekend=_or(spec.weekend, 0.75) if spec.generator == "weekly" else 1.0,
        spike_share=_or(spec.spike_share, 0.02) if spec.generator == "spiky" else 0.0,
        spike_size=_or(spec.spike_size, 4.0),
    )
    return [float(value) for value in spec.mean * values]


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def relative_series(
    rng: np.random.Generator,
    *,
    hours: int,
    wave: float,
    residual: float,
    persistence: float,
    least: float,
    peak_hour: float | None = None,
    weekend: float = 1.0,
    spike_share: float = 0.0,
    spike_size: float = 0.0,
) -> FloatArray:
    """Hourly values of mean 1, `(hours,)`.

    `max(weekend * (1 + wave * cos(2 pi (h - peak) / 24)) + x_h + s_h, least)`, then divided by the
    mean. x is an autoregressive residual, x_h = persistence * x_(h-1) + noise, in its stationary
    state; s_h = s_(h-1) / 2 + a spike, which comes in a share of the hours and is exponentially
    distributed around `spike_size`; the factor `weekend` counts on days 6 and 7 of each week.

    Args:
        rng: Source of all randomness.
        hours: Number of values.
        wave: Amplitude of the day.
        residual: Standard deviation of x.
        persistence: Of x from hour to hour.
        least: No value is lower before the division.
        peak_hour: Of the day; None draws it.
        weekend: Factor on the daily wave.
        spike_share: Probability that a spike begins in an hour.
        spike_size: Mean height of a spike.

    Raises:
        ConfigError: So large a residual, with so low a `least`, that the mean is not positive.
    """
    drawn_peak = rng.uniform(0, 24)  # in any case, so that fixing it changes nothing else
    peak = drawn_peak if peak_hour is None else peak_hour
    hour = np.arange(hours)
    day = np.cos(2 * np.pi * (hour - peak) / 24)
    shocks = rng.normal(0.0, residual * np.sqrt(1 - persistence**2), hours)
    rest = np.empty(hours)
    last = rng.normal(0.0, residual)
    for h in range(hours):
        rest[h] = last = persistence * last + shocks[h]
    shape = 1.0 + wave * day
    shape[hour // 24 % 7 >= 5] *= weekend
    shape = np.maximum(shape + rest + _spikes(rng, hours, spike_share, spike_size), least)
    if shape.mean() <= 0.0:
        raise ConfigError(
            "generator: its values must have a positive mean before they are scaled, got "
            f"{shape.mean():.6g} with residual = {residual}, least = {least}"
        )
    return np.asarray(shape / shape.mean())


def _spikes(rng: np.random.Generator, hours: int, share: float, size: float) -> FloatArray:
    if share == 0.0:
        return np.zeros(hours)
    begins = rng.random(hours) < share
    heights = np.where(begins, rng.exponential(size, hours), 0.0)
    height = 0.0
    for h in range(hours):
        heights[h] = height = _FADE * height + heights[h]
    return np.asarray(heights)
