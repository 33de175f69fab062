"""BACE-Pipe, its baselines and ablations: an order of the jobs times a placement rule."""

from typing import ClassVar, NamedTuple

import numpy as np

from agents.explanation import Explanation
from agents.policy import make_policy
from bace_env.instance import Instance
from bace_env.jit import inner_kernel, kernel
from bace_env.kernels import current_rates
from bace_env.placement import (
    FILL_CHEAPEST,
    FILL_UNIFORM,
    RULE_CR_LCF,
    RULE_CR_LDF,
    RULE_LCF,
    RULE_LDF,
    RULE_PATHFINDER,
    RULE_PATHFINDER_LAST,
    freest_region,
    priorities,
    propose,
)
from bace_env.simulator import WAIT, Action, Placement, View
from bace_env.types import (
    N_PENDING,
    Arrays,
    FloatArray,
    IntArray,
    Scratch,
    State,
    allocate_scratch,
)

ORDER_FCFS, ORDER_PRIORITY, ORDER_SHORTEST = 0, 1, 2

# What became of a pending job at a decision.
NOT_TRIED, BLOCKED, STARTED = 0, 1, 2


class Options(NamedTuple):
    """What defines a heuristic; the defaults are BACE-Pipe as the paper prints it."""

    order: int = ORDER_PRIORITY
    rule: int = RULE_PATHFINDER
    fill: int = FILL_CHEAPEST
    skip_blocked: bool = True  # a job that cannot start lets the next one try
    partial_fill: bool = False  # a region that breaks the bandwidth check gives fewer GPUs
    patience: float = 0.0  # start only with this share of K*, or of what the empty cluster gives


@inner_kernel
def _scores(arrays: Arrays, state: State, order: int, pending: IntArray, out: FloatArray) -> None:
    """The higher, the earlier; equal scores keep the order of arrival."""
    if order == ORDER_PRIORITY:
        priorities(arrays, state.link_used, pending, out)
        return
    for i in range(pending.size):
        if order == ORDER_SHORTEST:
            p = arrays.job_profile[pending[i]]
            out[i] = -arrays.iterations[pending[i]] * arrays.iteration_s[p, 1]
        else:
            out[i] = -i


@inner_kernel
def propose_for(
    arrays: Arrays,
    free_gpus: IntArray,
    link_used: FloatArray,
    options: Options,
    prices: FloatArray,
    profile: int,
    scratch: Scratch,
    path: IntArray,
    alloc: IntArray,
) -> tuple[int, int]:
    """Path length and GPUs of the placement that the rule makes for a job of the profile."""
    return propose(
        arrays,
        free_gpus,
        link_used,
        prices,
        profile,
        arrays.k_star[profile],
        options.rule,
        options.fill,
        options.partial_fill,
        scratch,
        path,
        alloc,
    )


@inner_kernel
def least_gpus(
    arrays: Arrays,
    options: Options,
    prices: FloatArray,
    profile: int,
    gpus: int,
    scratch: Scratch,
) -> int:
    """The GPUs that patience asks for before a job of the profile starts, offered `gpus`."""
    wanted = int(np.ceil(options.patience * arrays.k_star[profile]))
    if gpus >= wanted:
        return wanted
    # Waiting for more than the empty cluster gives would be waiting for ever.
    path, alloc = scratch.path[1], scratch.alloc[1]
    _, most = propose_for(
        arrays, arrays.gpus, scratch.idle, options, prices, profile, scratch, path, alloc
    )
    return min(wanted, most)


@inner_kernel
def decide_and_note(
    arrays: Arrays,
    state: State,
    options: Options,
    prices: FloatArray,
    score: FloatArray,
    outcome: IntArray,
    scratch: Scratch,
    path: IntArray,
    alloc: IntArray,
) -> tuple[int, int]:
    """`decide`, which also fills `score` and `outcome`, `(pending,)`, for an explanation.

    Whether a job can start depends on its profile alone, so each profile is tried at most once.
    """
    pending, blocked = state.pending[: state.counts[N_PENDING]], scratch.profile
    for i in range(pending.size):
        outcome[i] = NOT_TRIED
    for p in range(blocked.size):
        blocked[p] = 0
    _scores(arrays, state, options.order, pending, score)
    current_rates(arrays, state.now_s[0], prices)
    if freest_region(state.free_gpus, 1) < 0:
        return -1, 0
    while True:
        best = -1
        for i in range(pending.size):
            free = blocked[arrays.job_profile[pending[i]]] == 0
            if free and (best < 0 or score[i] > score[best]):
                best = i
        if best < 0:
            return -1, 0
        p = arrays.job_profile[pending[best]]
        length, gpus = propose_for(
            arrays, state.free_gpus, state.link_used, options, prices, p, scratch, path, alloc
        )
        if length > 0 and gpus >= least_gpus(arrays, options, prices, p, gpus, scratch):
            outcome[best] = STARTED
            return pending[best], length
        outcome[best] = BLOCKED
        if not options.skip_blocked:
            return -1, 0
        blocked[p] = 1


@kernel
def decide(
    arrays: Arrays,
    state: State,
    options: Options,
    scratch: Scratch,
    path: IntArray,
    alloc: IntArray,
) -> tuple[int, int]:
    """The heuristic's decision: job and path length, or (-1, 0) to wait. Fills path and alloc."""
    if freest_region(state.free_gpus, 1) < 0:
        return -1, 0
    n = state.counts[N_PENDING]
    score, outcome, prices = scratch.score[0, :n], scratch.mark[0, :n], scratch.rate
    return decide_and_note(arrays, state, options, prices, score, outcome, scratch, path, alloc)


class Heuristic:
    """A policy made of `Options`; subclasses name the built-in ones.

    The argument after the colon changes options by name, separated by commas:
    `bace:partial_fill,patience=0.25` or `cr-lcf:skip_blocked`.
    """

    name = "heuristic"
    options: ClassVar[Options] = Options()

    def __init__(self, arg: str = "") -> None:
        self.chosen = parse_options(arg, self.options)
        if arg:
            self.name = f"{self.name}:{arg}"
        self._instance: Instance | None = None
        self._scratch = allocate_scratch(0, 0, 0)
        self._path = np.empty(0, dtype=np.int64)
        self._alloc = np.empty(0, dtype=np.int64)

    def reset(self, seed: int) -> None:
        """Nothing is random and nothing is remembered."""

    def act(self, view: View) -> Action:
        """Start the first job in order that the rule can place, else wait."""
        if view.instance is not self._instance:
            self._instance = view.instance
            n_regions, n_profiles = view.instance.n_regions, view.arrays.k_star.size
            self._scratch = allocate_scratch(n_regions, view.instance.n_jobs, n_profiles)
            self._path, self._alloc = np.empty((2, n_regions), dtype=np.int64)
        job, length = decide(
            view.arrays, view.state, self.chosen, self._scratch, self._path, self._alloc
        )
        if job < 0:
            return WAIT
        path, gpus = self._path[:length].tolist(), self._alloc[:length].tolist()
        return Placement(job, tuple(path), tuple(gpus))

    def explain(self, view: View) -> Explanation:
        """Why `act` answers what it answers here."""
        from agents.heuristic_reasons import explain  # compiles kernels that `act` does without

        return explain(view, self.chosen)


def parse_options(arg: str, options: Options) -> Options:
    """Apply `skip_blocked[=true|false]`, `partial_fill[=...]`, `patience=SHARE`, `ties=first|last`.

    Raises:
        ValueError: Unknown option or value.
    """
    for item in filter(None, arg.split(",")):
        key, equals, text = item.partition("=")
        if key in ("skip_blocked", "partial_fill"):
            if text not in ("", "true", "false") or (equals and not text):
                raise ValueError(f"{key}: must be true or false, got {text!r}")
            value = text != "false"
            if key == "skip_blocked":
                options = options._replace(skip_blocked=value)
            else:
                options = options._replace(partial_fill=value)
        elif key == "patience":
            options = options._replace(patience=_share(text))
        elif key == "ties":
            options = options._replace(rule=_tie_rule(options.rule, text))
        else:
            known = "skip_blocked, partial_fill, patience, ties"
            raise ValueError(f"unknown option {key!r}; known: {known}")
    return options


def _share(text: str) -> float:
    try:
        patience = float(text)
    except ValueError:
        patience = -1.0
    if not 0.0 <= patience <= 1.0:
        raise ValueError(f"patience: must be a share from 0 to 1, got {text!r}")
    return patience


def _tie_rule(rule: int, text: str) -> int:
    """The rule whose paths of equal GPUs and price go to the first or last starting region."""
    pathfinders = {"first": RULE_PATHFINDER, "last": RULE_PATHFINDER_LAST}
    if rule not in pathfinders.values():
        raise ValueError("ties: goes with the Pathfinder, which this policy does not use")
    if text not in pathfinders:
        raise ValueError(f"ties: must be first or last, got {text!r}")
    return pathfinders[text]


def heuristic_options(spec: str) -> Options:
    """The options of a built-in heuristic, from `NAME` or `NAME:ARG`.

    Raises:
        ValueError: It is not one.
    """
    policy = make_policy(spec)
    if not isinstance(policy, Heuristic):
        raise ValueError(f"base: must be a built-in heuristic, got {spec!r}")
    return policy.chosen


class BacePipe(Heuristic):
    """BACE-Pipe: Eq. 9-12 order, Alg. 1 Pathfinder, Alg. 2 Cost-Min Allocator."""

    name = "bace"


class BaceNoPriority(Heuristic):
    """Fig. 8, w/o Priority: first come, first served."""

    name = "bace-no-priority"
    options = Options(order=ORDER_FCFS)


class BaceNoPathfinder(Heuristic):
    """Fig. 8, w/o Pathfinder: the placement of CR-LDF."""

    name = "bace-no-pathfinder"
    options = Options(rule=RULE_CR_LDF)


class BaceNoCostMin(Heuristic):
    """Fig. 8, w/o Cost-Min: GPUs spread evenly along the path."""

    name = "bace-no-cost-min"
    options = Options(fill=FILL_UNIFORM)


class BacePatient(Heuristic):
    """BACE-Pipe that starts a job only with all the GPUs it can ever get, up to K*."""

    name = "bace-patient"
    options = Options(patience=1.0)


class Sjf(Heuristic):
    """Shortest job first by E_j(1), placed as BACE-Pipe does: Eq. 12 with alpha = 0."""

    name = "sjf"
    options = Options(order=ORDER_SHORTEST)


class Lcf(Heuristic):
    """Lowest cost first: FCFS into the cheapest region with any free GPU."""

    name = "lcf"
    options = Options(order=ORDER_FCFS, rule=RULE_LCF, skip_blocked=False)


class Ldf(Heuristic):
    """Lowest delay first: FCFS into the region with most free GPUs."""

    name = "ldf"
    options = Options(order=ORDER_FCFS, rule=RULE_LDF, skip_blocked=False)


class CrLcf(Heuristic):
    """Cross-region LCF: FCFS, regions by ascending price, filled in that order."""

    name = "cr-lcf"
    options = Options(order=ORDER_FCFS, rule=RULE_CR_LCF, skip_blocked=False)


class CrLdf(Heuristic):
    """Cross-region LDF: FCFS, from the freest region along the highest bandwidth."""

    name = "cr-ldf"
    options = Options(order=ORDER_FCFS, rule=RULE_CR_LDF, skip_blocked=False)
