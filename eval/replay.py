"""Walking through a finished episode again, decision by decision."""

from collections.abc import Iterator, Sequence

from agents.explanation import Explains, Explanation
from agents.policy import Policy
from bace_env.errors import BaceError, ConfigError
from bace_env.simulator import WAIT, Action, Pause, Placement, Simulator, View
from bace_env.trace import EpisodeTrace


def decided(trace: EpisodeTrace, decision: int) -> Action:
    """What the policy answered at this decision."""
    job = trace.decisions[decision].job
    return WAIT if job is None else Placement(job, *trace.placement(job))


def carried_out(action: Action, times_s: Sequence[float], k: int) -> Action:
    """What to step with so that decision k leads to the next one again.

    A trace does not say whether a policy waited for an event or paused until a time of its own. A
    pause until the next decision does the same as either.

    Args:
        action: What was decided.
        times_s: Of all decisions.
        k: Which of them this is.
    """
    if action is WAIT and k + 1 < len(times_s) and times_s[k + 1] > times_s[k]:
        return Pause(times_s[k + 1])
    return action


def replay(trace: EpisodeTrace) -> Iterator[tuple[View, Action]]:
    """Per decision the view that the policy had, and what it answered; the view is live."""
    simulator = Simulator(trace.instance)
    times_s = [decision.time_s for decision in trace.decisions]
    for k in range(len(times_s)):
        action = decided(trace, k)
        yield simulator.view, action
        simulator.step(carried_out(action, times_s, k))


def explain_episode(trace: EpisodeTrace, policy: Policy) -> Iterator[Explanation]:
    """The reasons of each decision of the trace, in order.

    Args:
        trace: An episode of this policy.
        policy: Also acts on each view, so that one with a memory is in the state it was in.

    Raises:
        ConfigError: The policy gives no reasons.
        BaceError: It decides otherwise than in the trace.
    """
    if not isinstance(policy, Explains):
        raise ConfigError(f"policy {policy.name}: gives no reasons (it has no explain method)")
    policy.reset(trace.instance.seed)
    for k, (view, action) in enumerate(replay(trace)):
        explanation = policy.explain(view)
        if explanation.action != action or policy.act(view) != action:
            raise BaceError(
                f"policy {policy.name}: decides otherwise now than in the trace, at decision {k}; "
                "was it changed since?"
            )
        yield explanation


def describe(trace: EpisodeTrace, decision: int) -> str:
    """A decision in a few words."""
    action = decided(trace, decision)
    if not isinstance(action, Placement):
        return "waits"
    where = trace.instance.where(action.path, action.gpus)
    return f"starts {trace.instance.job_names[action.job]} on {where}"
