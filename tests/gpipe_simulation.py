"""Event simulation of one training iteration of a pipeline: GPipe with flush, and plain 1F1B.

A stage computes one task at a time in a fixed order; a link carries one message at a time per
direction (full duplex); a message arrives `latency_s` after it has left the link.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pipeline:
    """Times in seconds of L stages and the L-1 links between them."""

    forward_s: Sequence[float]  # (L,) one micro-batch
    backward_s: Sequence[float]  # (L,)
    link_forward_s: Sequence[float]  # (L-1,) occupancy by one activation
    link_backward_s: Sequence[float]  # (L-1,) occupancy by one gradient
    latency_s: Sequence[float]  # (L-1,) one way, not occupying the link
    micro_batches: int


def gpipe_order(stage: int, n_stages: int, micro_batches: int) -> list[tuple[str, int]]:
    """All forward passes, then all backward passes."""
    return [(kind, m) for kind in "FB" for m in range(micro_batches)]


def one_f_one_b_order(
    stage: int, n_stages: int, micro_batches: int, warm_up_factor: int = 1
) -> list[tuple[str, int]]:
    """`L - stage - 1` (times the factor) forward passes, then one of each in turn, the rest."""
    warm_up = min(warm_up_factor * (n_stages - stage - 1), micro_batches)
    order = [("F", m) for m in range(warm_up)]
    for m in range(micro_batches - warm_up):
        order += [("F", warm_up + m), ("B", m)]
    return order + [("B", m) for m in range(micro_batches - warm_up, micro_batches)]


def simulate(
    pipeline: Pipeline, orders: Sequence[list[tuple[str, int]]], *, blocking: bool = False
) -> float:
    """Seconds from the first task to the end of the last one.

    Args:
        pipeline: The times.
        orders: Tasks of each stage in the order in which it runs them.
        blocking: A stage does not compute while it sends.
    """
    n = len(pipeline.forward_s)
    arrived: dict[tuple[str, int, int], float] = {}  # (kind, stage, micro-batch) -> input is there
    for m in range(pipeline.micro_batches):
        arrived["F", 0, m] = 0.0
    stage_free, done = [0.0] * n, [0] * n
    link_free = {"F": [0.0] * n, "B": [0.0] * n}  # by sending stage
    progress = True
    while progress:
        progress = False
        for s in range(n):
            while done[s] < len(orders[s]):
                kind, m = orders[s][done[s]]
                if (kind, s, m) not in arrived:
                    break
                times = pipeline.forward_s if kind == "F" else pipeline.backward_s
                end = max(stage_free[s], arrived[kind, s, m]) + times[s]
                stage_free[s], done[s], progress = end, done[s] + 1, True
                target = s + 1 if kind == "F" else s - 1
                if not 0 <= target < n:
                    if kind == "F":  # the last stage turns round
                        arrived["B", s, m] = end
                    continue
                link = min(s, target)
                occupancy = pipeline.link_forward_s if kind == "F" else pipeline.link_backward_s
                sent = max(end, link_free[kind][s]) + occupancy[link]
                link_free[kind][s] = sent
                arrived[kind, target, m] = sent + pipeline.latency_s[link]
                if blocking:
                    stage_free[s] = sent
    assert all(done[s] == len(orders[s]) for s in range(n)), "the orders of the stages deadlock"
    return max(stage_free)


def gpipe_s(pipeline: Pipeline, *, blocking: bool = False) -> float:
    """One GPipe iteration, forward and backward with flush, seconds."""
    n = len(pipeline.forward_s)
    orders = [gpipe_order(s, n, pipeline.micro_batches) for s in range(n)]
    return simulate(pipeline, orders, blocking=blocking)


def one_f_one_b_s(pipeline: Pipeline, warm_up_factor: int = 1) -> float:
    """One iteration of 1F1B with overlapped sends, seconds."""
    n = len(pipeline.forward_s)
    orders = [one_f_one_b_order(s, n, pipeline.micro_batches, warm_up_factor) for s in range(n)]
    return simulate(pipeline, orders)
