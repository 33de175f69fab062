"""How far from the best: a policy's distance to a lower bound, and to the best schedule known."""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from agents.policy import make_policy
from bace_env.errors import DeadlockError
from bace_env.instance import Instance
from bace_env.schema import Scenario
from bace_env.types import FloatArray
from eval.rollout import run_episode
from eval.statistics import Estimate, estimate_ratios_of_means

if TYPE_CHECKING:
    from eval.known_schedules import Known

#: Per-episode metrics of `--gap`: by which share the objective lies above.
GAPS = ("above_bound", "above_best_known")

#: The share of BACE-Pipe's distance to the best known that a policy closes, over all workloads.
CLOSED = "gap_closed"

BOUND, BEST_KNOWN, BACE = 0, 1, 2  # of `Yardsticks.of`


class Yardsticks:
    """What objectives are measured by, for the workloads of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    @cached_property
    def _known(self) -> "Known":
        from eval.known_schedules import Known

        return Known.load(self._scenario)

    def of(self, instance: Instance) -> FloatArray:
        """Objectives of a workload: lower bound, best known, BACE-Pipe. Shape `(3,)`.

        The best known is that of the package where it has one, else one searched for now. nan
        stands for BACE-Pipe where it deadlocks.
        """
        # Here, as a comparison without --gap starts faster without them.
        from eval.bounds import lower_bounds
        from eval.known_schedules import find_schedule, play

        schedule = self._known.schedules.get(instance.seed) or find_schedule(instance)
        try:
            bace = run_episode(instance, make_policy("bace")).objective()
        except DeadlockError:
            bace = np.nan
        best = play(instance, schedule).objective()
        return np.array([lower_bounds(instance).objective, best, bace])


def gap_values(objective: FloatArray, yardsticks: FloatArray) -> dict[str, FloatArray]:
    """The `GAPS` of each policy and seed, `(policies, seeds)`; nan where there is no share.

    Args:
        objective: `(policies, seeds)`.
        yardsticks: `(3, seeds)`.
    """
    found = {}
    for name, reference in zip(GAPS, yardsticks[[BOUND, BEST_KNOWN]], strict=True):
        positive = reference > 0  # negative prices may make an objective negative
        shares = np.full(objective.shape, np.nan)
        shares[:, positive] = objective[:, positive] / reference[positive] - 1.0
        found[name] = shares
    return found


def estimate_gap_closed(objective: FloatArray, yardsticks: FloatArray) -> list[Estimate]:
    """`CLOSED` of each policy: 1 for the best known, 0 for BACE-Pipe, negative if worse than it."""
    closed = yardsticks[BACE] - objective
    whole = np.broadcast_to(yardsticks[BACE] - yardsticks[BEST_KNOWN], objective.shape)
    if np.isnan(whole).any():
        return [Estimate(None, None, None)] * len(objective)
    return estimate_ratios_of_means(closed, whole)
