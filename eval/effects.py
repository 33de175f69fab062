"""What each assumption does, read from the random settings of a search."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bace_env.types import BoolArray, FloatArray, IntArray
from eval.assumptions import ASSUMPTIONS, SCORED, Result, score
from eval.claims import CLAIMS, Claim, holds


@dataclass(frozen=True)
class Effect:
    """One assumption's effect on the score.

    Attributes:
        assumption: Its name.
        levels: Names of its levels.
        jct: Mean score of the random settings at each level, over the claims about JCT.
        cost: The same over the claims about cost.
        share: Share of the variance of the log score that its levels account for (eta squared).
    """

    assumption: str
    levels: tuple[str, ...]
    jct: tuple[float, ...]
    cost: tuple[float, ...]
    share: float


@dataclass(frozen=True)
class Hold:
    """In which settings a claim holds.

    Attributes:
        claim: The claim.
        share: Share of the random settings in which it holds.
        assumption: The assumption on which that hangs most, by eta squared.
        most: Its level at which the claim holds most often, and how often.
        least: The same for least often.
    """

    claim: Claim
    share: float
    assumption: str
    most: tuple[str, float]
    least: tuple[str, float]


def main_effects(random: Sequence[Result]) -> list[Effect]:
    """The effect of every assumption; settings that could not be run are left out."""
    run = [result for result in random if result.values]
    levels = np.array([result.setting for result in run])
    total = np.log([result.score for result in run])
    of_metric = {
        metric: np.array([score(r.values, [c for c in SCORED if c.metric == metric]) for r in run])
        for metric in ("jct", "cost")
    }
    found = []
    for i, assumption in enumerate(ASSUMPTIONS):
        n = len(assumption.levels)
        found.append(
            Effect(
                assumption=assumption.name,
                levels=tuple(level.name for level in assumption.levels),
                jct=tuple(_means(of_metric["jct"], levels[:, i], n).tolist()),
                cost=tuple(_means(of_metric["cost"], levels[:, i], n).tolist()),
                share=_eta_squared(total, levels[:, i], n),
            )
        )
    return found


def claim_holds(random: Sequence[Result]) -> list[Hold]:
    """In which share of the settings every claim holds; it does in none that cannot be run."""
    levels = np.array([result.setting for result in random])
    found = []
    for claim in CLAIMS:
        held = np.array([bool(r.values) and holds(claim, r.values[claim.name]) for r in random])
        found.append(_hold(claim, held, levels))
    return found


def _hold(claim: Claim, held: BoolArray, levels: IntArray) -> Hold:
    values = held.astype(np.float64)
    shares = [_eta_squared(values, levels[:, i], len(a.levels)) for i, a in enumerate(ASSUMPTIONS)]
    i = int(np.argmax(shares))
    names = [level.name for level in ASSUMPTIONS[i].levels]
    means = _means(values, levels[:, i], len(names))
    most, least = int(np.nanargmax(means)), int(np.nanargmin(means))
    return Hold(
        claim=claim,
        share=float(values.mean()),
        assumption=ASSUMPTIONS[i].name,
        most=(names[most], float(means[most])),
        least=(names[least], float(means[least])),
    )


def _means(values: FloatArray, level: IntArray, n: int) -> FloatArray:
    """Mean of the values at each of n levels, `(n,)`; nan at a level that was not drawn."""
    counts = np.bincount(level, minlength=n)
    sums = np.bincount(level, weights=values, minlength=n)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _eta_squared(values: FloatArray, level: IntArray, n: int) -> float:
    """Variance of the means of the levels over the whole variance; 0 without variance."""
    whole = float(values.var())
    if whole == 0.0:
        return 0.0
    means = _means(values, level, n)[level]
    return float(np.mean((means - values.mean()) ** 2)) / whole
