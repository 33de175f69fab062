"""Who wins by how much, in plain words."""

import numpy as np

from eval.experiment import Comparison
from eval.statistics import Estimate, estimate_geometric_means

#: With fewer workloads a bootstrap interval says little; none is shown.
FEWEST_FOR_INTERVAL = 10


def make_sentence(comparison: Comparison) -> str:
    """The policies of lowest JCT and of lowest cost, those that cannot be told from them, the next.

    Policies are compared by the geometric mean of their per-workload ratios, so that the answer
    does not depend on the reference; two cannot be told apart where the interval of their own
    ratio contains 1.
    """
    if len(comparison.names) == 1:
        return f"Only {comparison.names[0]} was run: there is nothing to compare it with."
    egress = any(region.egress_usd_per_gb for region in comparison.request.scenario.regions)
    cost = "cost (electricity and egress)" if egress else "electricity cost"
    sentences = [
        _verdict(comparison, "avg_jct_s", "average JCT") + _note_on_means(comparison),
        _verdict(comparison, "total_cost_usd", cost),
    ]
    n = len(comparison.seeds)
    if n < FEWEST_FOR_INTERVAL:
        sentences.append(f"Too few workloads ({n}) to say how sure that is.")
    return " ".join(sentences)


def _verdict(comparison: Comparison, metric: str, what: str) -> str:
    names, values = comparison.names, comparison.values[metric]
    if not (values > 0).all():
        return _verdict_of_means(comparison, metric, what)
    best = int(np.argmin(np.log(values).mean(axis=1)))
    against = estimate_geometric_means(values / values[best])
    level = [i for i in range(len(names)) if i != best and _is_level(comparison, against[i])]
    text = f"Lowest {what} on a typical workload: {names[best]}"
    if level:
        text += f" (not to be told from it: {', '.join(names[i] for i in level)})"
    behind = [i for i in range(len(names)) if i != best and i not in level]
    if not behind:
        return f"{text}."
    following = min(behind, key=lambda i: against[i].mean or 0.0)
    text += f"; then {names[following]} with {_times(comparison, against[following])}"
    if best != 0 and 0 in behind and following != 0:
        text += f"; {names[0]} has {_times(comparison, against[0])}"
    return f"{text}."


def _verdict_of_means(comparison: Comparison, metric: str, what: str) -> str:
    """Where a value is not positive there are no ratios; dollars still compare."""
    means = comparison.values[metric].mean(axis=1)
    best = int(np.argmin(means))
    text = f"There are no ratios of {what}, as some are not positive; "
    text += f"in the mean {comparison.names[best]} has the lowest, {means[best]:.4g}"
    if best != 0:
        text += f" against {means[0]:.4g} of {comparison.names[0]}"
    return f"{text}."


def _is_level(comparison: Comparison, ratio: Estimate) -> bool:
    if ratio.low is None or ratio.high is None:
        return False
    if len(comparison.seeds) < FEWEST_FOR_INTERVAL:
        return f"{ratio.mean:.9g}" == "1"
    return ratio.low <= 1.0 + 1e-9 and ratio.high >= 1.0 - 1e-9


def _times(comparison: Comparison, ratio: Estimate) -> str:
    text = f"{ratio.mean:.3g} times as much"
    if len(comparison.seeds) < FEWEST_FOR_INTERVAL or ratio.low == ratio.high:
        return text
    return f"{text} (95 % interval {ratio.low:.3g} to {ratio.high:.3g})"


def _note_on_means(comparison: Comparison) -> str:
    """Where another policy has the lowest mean JCT: few workloads with much work decide that."""
    values = comparison.values["avg_jct_s"]
    if not (values > 0).all():
        return ""
    means, typical = values.mean(axis=1), np.log(values).mean(axis=1)
    first, other = int(np.argmin(typical)), int(np.argmin(means))
    if means[other] >= means[first] * (1 - 1e-3):
        return ""
    unit, seconds = time_unit(float(means[first]))
    low, high = means[other] / seconds, means[first] / seconds
    return (
        f" In the mean of all workloads, which those with most work decide, "
        f"{comparison.names[other]} is lowest: {low:.4g} {unit} against {high:.4g}."
    )


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit in which people read such a time (two or more of it), and its size in seconds."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return unit, size
    return "s", 1.0
