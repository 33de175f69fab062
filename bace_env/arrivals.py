"""Arrivals whose rate changes over time."""

import numpy as np

from bace_env.types import FloatArray

_DAY_S = 86400.0


def bursty_times(
    rng: np.random.Generator, passed_s: FloatArray, factor: float, share: float, burst_s: float
) -> FloatArray:
    """Arrivals of a Markov-modulated Poisson process of two states, `(n,)`.

    In bursts jobs come `factor` times as often as on the mean, else (1 - share * factor) /
    (1 - share) times. Bursts last exponentially long, `burst_s` on the mean, and take `share` of
    the time; so do the calms between them, and time 0 lies anywhere. A Poisson process of the mean
    rate is stretched accordingly.

    Args:
        rng: Draws when bursts begin and end.
        passed_s: Arrivals of a Poisson process of the mean rate, ascending, `(n,)`.
        factor: Rate in a burst over the mean rate; factor * share <= 1.
        share: Of the time that bursts take.
        burst_s: Mean length of a burst.
    """
    speeds = np.array([(1 - share * factor) / (1 - share), factor])
    means = np.array([burst_s * (1 - share) / share, burst_s])
    state = int(rng.random() < share)
    ends, reached = [np.zeros(1)], [np.zeros(1)]  # time, and the Poisson process's, at each change
    while reached[-1][-1] < passed_s[-1]:
        states = (state + np.arange(256)) % 2
        lengths = rng.exponential(size=256) * means[states]
        ends.append(ends[-1][-1] + np.cumsum(lengths))
        reached.append(reached[-1][-1] + np.cumsum(lengths * speeds[states]))
    return np.interp(passed_s, np.concatenate(reached), np.concatenate(ends))


def diurnal_times(
    rng: np.random.Generator, gap_s: float, n: int, amplitude: float, peak_s: float
) -> FloatArray:
    """Arrivals of a Poisson process whose rate swings over the day, by thinning, `(n,)`.

    The rate is (1 + amplitude * cos(2 pi (t - peak) / 24 h)) / gap. Candidates come at the highest
    rate, and each stays with the probability rate / highest rate (Lewis and Shedler 1979).

    Args:
        rng: Draws candidates and who stays.
        gap_s: Mean time between arrivals over whole days.
        n: Number of arrivals.
        amplitude: From 0 to 1.
        peak_s: When in the day they are most frequent.
    """
    found: list[FloatArray] = []
    now_s, count = 0.0, 0
    while count < n:
        draws = rng.random((n, 2))
        times = now_s - np.cumsum(np.log1p(-draws[:, 0])) * (gap_s / (1 + amplitude))
        rate = 1 + amplitude * np.cos(2 * np.pi * (times - peak_s) / _DAY_S)
        found.append(times[draws[:, 1] * (1 + amplitude) < rate])
        now_s, count = float(times[-1]), count + found[-1].size
    return np.concatenate(found)[:n]
