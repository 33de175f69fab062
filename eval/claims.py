"""What the paper (arXiv 2605.25375v1) states about its own results, and what counts as meeting it.

Every figure that its text prints is here, with the place; heights of bars that the text does not
print are no claims. A value of Figs. 4-8 is a ratio: average JCT or total cost of a policy over
BACE-Pipe's in the same setting ("27.9 % longer" is 1.279).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from eval.statistics import Estimate

Metric = Literal["jct", "cost"]
Verdict = Literal["reproduced", "direction only", "not reproduced"]

#: A claim is reproduced where the paper's value lies in our 95 % interval, or ours is this near
#: (see `judge`).
TOLERANCE = 0.10

REFERENCE = "bace"
BASELINES = ("ldf", "lcf", "cr-lcf", "cr-ldf")  # in the order of Figs. 4-7
ABLATIONS = ("bace-no-priority", "bace-no-pathfinder", "bace-no-cost-min")  # of Fig. 8
POLICIES = (REFERENCE, *BASELINES, *ABLATIONS)
_SINGLE, _CROSS = ("ldf", "lcf"), ("cr-lcf", "cr-ldf")

#: Setting of the evaluation -> what it changes in the scenario.
SETTINGS: dict[str, tuple[str, ...]] = {
    "default": (),
    "bandwidth 0.3": ("scale.bandwidth=0.3",),
    "bandwidth 0.9": ("scale.bandwidth=0.9",),
    "bandwidth 1.5": ("scale.bandwidth=1.5",),
    "gpus 0.5": ("scale.gpus=0.5",),
    "gpus 0.75": ("scale.gpus=0.75",),
    "gpus 1.25": ("scale.gpus=1.25",),
    "jobs 12": ("workload.n_jobs=12",),
    "jobs 16": ("workload.n_jobs=16",),
    "jobs 20": ("workload.n_jobs=20",),
    "jobs 24": ("workload.n_jobs=24",),
}

#: Figure -> the settings that it shows, in its order; Fig. 1 is the preset `fig1`.
FIGURES: dict[str, tuple[str, ...]] = {
    "4": ("default",),
    "5": ("bandwidth 0.3", "bandwidth 0.9", "bandwidth 1.5"),
    "6": ("gpus 0.5", "gpus 0.75", "gpus 1.25"),
    "7": ("default", "jobs 12", "jobs 16", "jobs 20", "jobs 24"),
    "8": ("default",),
}


class Pair(NamedTuple):
    """The ratio of one policy's value to another's on the same workloads."""

    above: str
    below: str


@dataclass(frozen=True)
class Claim:
    """One statement of the paper.

    Attributes:
        figure: The figure that it is about; "abstract" for what the abstract alone words so.
        setting: Key of `SETTINGS`.
        kind: `ratio` of one pair; the `least` or the `most` of several pairs; `order`: the least of
            several pairs is above 1.
        metric: Average JCT or total cost.
        pairs: What is divided by what.
        value: The paper's; None for an order.
        where: Section of the paper.
        words: What it says, in short.
        repeats: Says again what another claim says: not scored twice.
    """

    figure: str
    setting: str
    kind: Literal["ratio", "least", "most", "order"]
    metric: Metric
    pairs: tuple[Pair, ...]
    value: float | None
    where: str
    words: str
    repeats: bool = False

    @property
    def place(self) -> str:
        """The figure as readers know it."""
        return self.figure if self.figure == "abstract" else f"Fig. {self.figure}"

    @property
    def stated(self) -> str:
        """The value that the paper states."""
        return "> 1" if self.value is None else f"{self.value:.3f}"

    @property
    def name(self) -> str:
        """Unique, the same in every version: the key in CSV files and of searches."""
        if self.kind == "ratio":
            what = "/".join(self.pairs[0])
        else:
            first = "+".join(dict.fromkeys(pair.above for pair in self.pairs))
            second = "+".join(dict.fromkeys(pair.below for pair in self.pairs))
            what = f"{self.kind} {first}/{second}"
        return f"{self.figure}: {self.setting}: {self.metric} {what}"


def _ratio(
    figure: str,
    setting: str,
    metric: Metric,
    policy: str,
    value: float,
    where: str,
    words: str,
    below: str = REFERENCE,
) -> Claim:
    pairs = (Pair(policy, below),)
    return Claim(figure, setting, "ratio", metric, pairs, value, where, words)


def _range(
    figure: str,
    setting: str,
    metric: Metric,
    ends: tuple[float, float],
    where: str,
    words: str,
    repeats: bool = False,
) -> tuple[Claim, Claim]:
    """Least and most of the four baselines."""
    pairs = tuple(Pair(policy, REFERENCE) for policy in BASELINES)
    least, most = ends
    return (
        Claim(figure, setting, "least", metric, pairs, least, where, words, repeats),
        Claim(figure, setting, "most", metric, pairs, most, where, words, repeats),
    )


def _order(
    figure: str,
    setting: str,
    metric: Metric,
    above: tuple[str, ...],
    below: tuple[str, ...],
    where: str,
    words: str,
) -> Claim:
    pairs = tuple(Pair(a, b) for a in above for b in below)
    return Claim(figure, setting, "order", metric, pairs, None, where, words)


def _lowest(figure: str, setting: str, metric: Metric, where: str) -> Claim:
    words = f"BACE-Pipe has the lowest {'average JCT' if metric == 'jct' else 'total cost'}"
    return _order(figure, setting, metric, BASELINES, (REFERENCE,), where, words)


_IV_B, _IV_C1, _IV_C2, _IV_D, _IV_E = "IV-B", "IV-C 1", "IV-C 2", "IV-D", "IV-E"

CLAIMS: tuple[Claim, ...] = (
    # The abstract says "reduces by": 1 / (1 - 0.279). Sec. IV-B calls the same figures "longer".
    *_range(
        "abstract",
        "default",
        "jct",
        (1 / (1 - 0.279), 1 / (1 - 0.647)),
        "abstract",
        "reduces average JCT by 27.9-64.7 %",
        repeats=True,
    ),
    *_range(
        "abstract",
        "default",
        "cost",
        (1 / (1 - 0.126), 1 / (1 - 0.306)),
        "abstract",
        "reduces total cost by 12.6-30.6 %",
        repeats=True,
    ),
    *_range(
        "4", "default", "jct", (1.279, 1.647), _IV_B, "baselines 27.9-64.7 % longer average JCT"
    ),
    *_range("4", "default", "cost", (1.126, 1.306), _IV_B, "baselines 12.6-30.6 % higher cost"),
    # 1.647 / 1.288: the smallest of the four is LDF's.
    _ratio("4", "default", "jct", "ldf", 1.279, _IV_B, "LDF is the nearest: 27.9 % longer JCT"),
    _ratio("4", "default", "jct", "cr-ldf", 1.288, _IV_B, "CR-LDF 28.8 % above LDF", below="ldf"),
    _ratio("4", "default", "jct", "cr-lcf", 1.131, _IV_B, "CR-LCF 13.1 % above LDF", below="ldf"),
    _order(
        "4",
        "default",
        "jct",
        _CROSS,
        _SINGLE,
        _IV_B,
        "paradox: both cross-region baselines slower than both single-region ones",
    ),
    _ratio("5", "bandwidth 0.3", "jct", "ldf", 1.107, _IV_C1, "LDF 10.7 % overhead"),
    _ratio("5", "bandwidth 0.3", "jct", "cr-ldf", 1.262, _IV_C1, "CR-LDF 26.2 % overhead"),
    *_range("5", "bandwidth 0.3", "cost", (1.292, 1.349), _IV_C1, "29.2-34.9 % advantage over all"),
    _ratio("5", "bandwidth 1.5", "jct", "cr-ldf", 3.403, _IV_C1, "CR-LDF surges to 3.4 times"),
    _ratio("5", "bandwidth 1.5", "cost", "cr-ldf", 1.190, _IV_C1, "CR-LDF 19.0 % higher cost"),
    *_range(
        "5", "bandwidth 1.5", "jct", (1.429, 3.403), _IV_C1, "baselines 42.9-240.3 % longer JCT"
    ),
    *_range(
        "5", "bandwidth 1.5", "cost", (1.143, 1.285), _IV_C1, "baselines 14.3-28.5 % higher cost"
    ),
    *_range("6", "gpus 0.5", "jct", (1.322, 1.699), _IV_C2, "JCT inflations of 32.2-69.9 %"),
    *_range("6", "gpus 0.5", "cost", (1.241, 1.425), _IV_C2, "24.1-42.5 % higher expenditures"),
    _order("6", "gpus 0.5", "cost", ("lcf",), ("ldf",), _IV_C2, "LCF costs more than LDF"),
    *_range("6", "gpus 1.25", "jct", (1.055, 1.207), _IV_C2, "5.5-20.7 % longer JCT"),
    *_range("6", "gpus 1.25", "cost", (1.002, 1.094), _IV_C2, "0.2-9.4 % higher cost"),
    _lowest("6", "gpus 1.25", "jct", _IV_C2),
    _lowest("6", "gpus 1.25", "cost", _IV_C2),
    *(_lowest("7", s, "jct", _IV_D) for s in FIGURES["7"]),
    *(_lowest("7", s, "cost", _IV_D) for s in FIGURES["7"]),
    _ratio("7", "default", "jct", "cr-ldf", 1.647, _IV_D, "CR-LDF's overhead is 64.7 % at 8 jobs"),
    _ratio("7", "jobs 24", "jct", "cr-ldf", 1.217, _IV_D, "CR-LDF's overhead is 21.7 %"),
    *_range("7", "jobs 24", "jct", (1.097, 1.233), _IV_D, "9.7-23.3 % at 24 jobs"),
    _ratio("7", "jobs 20", "cost", "cr-lcf", 1.01, _IV_D, "advantage shrinks to nearly 1 %"),
    _ratio("7", "jobs 24", "cost", "cr-lcf", 1.01, _IV_D, "advantage shrinks to nearly 1 %"),
    _ratio("8", "default", "jct", ABLATIONS[0], 1.419, _IV_E, "w/o Priority: 41.9 % longer JCT"),
    _ratio("8", "default", "cost", ABLATIONS[0], 1.050, _IV_E, "w/o Priority: 5.0 % higher cost"),
    _ratio("8", "default", "jct", ABLATIONS[1], 1.525, _IV_E, "w/o Pathfinder: 52.5 % longer JCT"),
    _ratio(
        "8", "default", "cost", ABLATIONS[1], 1.205, _IV_E, "w/o Pathfinder: 20.5 % higher cost"
    ),
    _ratio("8", "default", "jct", ABLATIONS[2], 1.046, _IV_E, "w/o Cost-Min: 4.6 % longer JCT"),
    _ratio("8", "default", "cost", ABLATIONS[2], 1.139, _IV_E, "w/o Cost-Min: 13.9 % higher cost"),
)


class Placed(NamedTuple):
    """One strategy of Fig. 1: who takes it, the printed figures, and where P and Q lie."""

    label: str
    policy: str
    jct_h: float
    cost_usd: float
    p: dict[str, int]  # region -> GPUs of job P, in pipeline order
    q: dict[str, int]


#: Fig. 1. The paper reorders by priority; so "Ours (FCFS)" is BACE-Pipe without it.
FIG1: tuple[Placed, ...] = (
    Placed("LCF", "lcf", 1.50, 0.53, {"C": 2}, {"B": 3}),
    Placed("LDF", "ldf", 1.32, 0.56, {"A": 4}, {"B": 3}),
    Placed("Ours (FCFS)", "bace-no-priority", 1.27, 0.55, {"A": 4, "C": 2}, {"B": 3}),
    Placed("Ours (Reordered)", "bace", 0.75, 0.52, {"B": 3, "D": 1}, {"A": 4, "C": 2}),
)


def is_near(paper: float, ours: float) -> bool:
    """Within `TOLERANCE` of the paper's value."""
    return abs(ours / paper - 1.0) <= TOLERANCE


def holds(claim: Claim, ours: float) -> bool:
    """Whether a bare number, without an interval, meets the claim.

    It must be near, and show at least a tenth of the paper's effect: no effect at all is within
    `TOLERANCE` of a small one.
    """
    if claim.value is None:
        return ours > 1.0
    return is_near(claim.value, ours) and (ours - 1.0) / (claim.value - 1.0) >= 0.1


def judge(claim: Claim, ours: Estimate) -> Verdict:
    """The verdict on a claim, from our estimate of it and its 95 % interval.

    A number is reproduced where the paper's value lies in the interval, or ours is within
    `TOLERANCE` of it and the interval lies on the paper's side of 1: no effect at all is within
    10 % of a small one, and does not count. Where the interval lies on that side, but ours is not
    near, it is the direction only. An order is reproduced where the interval of its weakest pair
    lies above 1, and direction only where that pair's mean does.
    """
    if ours.mean is None or ours.low is None or ours.high is None:
        return "not reproduced"
    if claim.value is None:
        if ours.low > 1.0:
            return "reproduced"
        return "direction only" if ours.mean > 1.0 else "not reproduced"
    same_side = ours.low > 1.0 if claim.value > 1.0 else ours.high < 1.0
    if ours.low <= claim.value <= ours.high or (same_side and is_near(claim.value, ours.mean)):
        return "reproduced"
    return "direction only" if same_side else "not reproduced"
