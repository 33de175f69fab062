"""The one loop that runs a policy through an episode."""

from time import perf_counter_ns

from agents.policy import Policy
from bace_env.errors import BaceError, DeadlockError
from bace_env.instance import Instance
from bace_env.simulator import Simulator
from bace_env.trace import EpisodeTrace


def run_episode(instance: Instance, policy: Policy) -> EpisodeTrace:
    """Run one episode to its end; the policy's seed is the episode's.

    Raises:
        InvalidPlacementError: The policy broke a rule.
        DeadlockError: It waits although nothing lies ahead.
        PriceEndError: The schedule outlasts the prices. All name policy, scenario and seed.
    """
    simulator = Simulator(instance)
    policy.reset(instance.seed)
    try:
        while not simulator.done:
            before = perf_counter_ns()
            action = policy.act(simulator.view)
            simulator.step(action, perf_counter_ns() - before)
    except BaceError as error:
        hint = ""
        if isinstance(error, DeadlockError):
            hint = "; leave the policy out, or see which jobs the scenario's regions can hold"
        raise type(error)(
            f"policy {policy.name} on scenario {instance.scenario}, seed {instance.seed}: "
            f"{error}{hint}"
        ) from None
    return simulator.trace(policy.name)
