"""What the network does with packed decisions beside linear layers.

torch's own scatter and gather take a dozen passes over all candidates for what is one pass forwards
and one backwards here.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bace_env.jit import kernel
from train.packing import Packed

_Floats = NDArray[np.float32]
_Ints = NDArray[np.int64]
_Bytes = NDArray[np.int8]


@kernel
def _pool(hidden: _Floats, first: _Ints, mean: _Floats, most: _Floats, at: _Ints) -> None:
    """Pool rows `first[b]` to `first[b + 1]` of `(n, H)`; `at`: whence the maximum, -1 if none."""
    for b in range(first.size - 1):
        begin, end = first[b], first[b + 1]
        for h in range(hidden.shape[1]):
            mean[b, h] = 0.0
            most[b, h] = 0.0
            at[b, h] = -1
        for i in range(begin, end):
            for h in range(hidden.shape[1]):
                x = hidden[i, h]
                mean[b, h] += x
                if x > most[b, h]:
                    most[b, h] = x
                    at[b, h] = i
        for h in range(hidden.shape[1]):
            mean[b, h] /= max(end - begin, 1)


@kernel
def _unpool(grad_mean: _Floats, grad_most: _Floats, at: _Ints, first: _Ints, grad: _Floats) -> None:
    """The gradient of `_pool`, into `grad` of shape `(n, H)`."""
    for b in range(first.size - 1):
        begin, end = first[b], first[b + 1]
        share = np.float32(1.0 / max(end - begin, 1))
        for i in range(begin, end):
            for h in range(grad.shape[1]):
                grad[i, h] = grad_mean[b, h] * share
        for h in range(grad.shape[1]):
            if at[b, h] >= 0:
                grad[at[b, h], h] += grad_most[b, h]


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        shape = (first.shape[0] - 1, hidden.shape[1])
        mean, most = hidden.new_empty(shape), hidden.new_empty(shape)
        at = torch.empty(shape, dtype=torch.int64)
        _pool(hidden.numpy(), first.numpy(), mean.numpy(), most.numpy(), at.numpy())
        ctx.save_for_backward(first, at)
        ctx.shape = hidden.shape
        return mean, most

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        first, at = ctx.saved_tensors
        grad = torch.empty(ctx.shape)
        mean, most = (g.contiguous().numpy() for g in grads)
        _unpool(mean, most, at.numpy(), first.numpy(), grad.numpy())
        return grad, None


def pool(hidden: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and maximum of consecutive rows.

    Args:
        hidden: `(n, H)` float32, none below 0.
        first: `(B + 1,)` int64: group b has the rows from `first[b]` to `first[b + 1]`.

    Returns:
        Both `(B, H)`; 0 where a group is empty.
    """
    pooled: tuple[Tensor, Tensor] = _Pool.apply(hidden, first)  # type: ignore[no-untyped-call]
    return pooled


@kernel
def _add_beside(
    hidden: _Floats, jobs: _Floats, context: _Floats, first_job: _Ints, first_of_job: _Ints
) -> None:
    zero = np.float32(0.0)
    for b in range(first_job.size - 1):
        for j in range(first_job[b], first_job[b + 1]):
            for i in range(first_of_job[j], first_of_job[j + 1]):
                for h in range(hidden.shape[1]):
                    x = hidden[i, h] + (jobs[j, h] + context[b, h])
                    hidden[i, h] = x if x > zero else zero


@kernel
def _sum_beside(
    hidden: _Floats, grad: _Floats, first_job: _Ints, first_of_job: _Ints, grad_jobs: _Floats,
    grad_context: _Floats,
) -> None:  # fmt: skip
    """The gradient of `_add_beside`; `grad` becomes that of what came in."""
    zero = np.float32(0.0)
    for b in range(first_job.size - 1):
        for h in range(hidden.shape[1]):
            grad_context[b, h] = zero
        for j in range(first_job[b], first_job[b + 1]):
            for h in range(hidden.shape[1]):
                grad_jobs[j, h] = zero
            for i in range(first_of_job[j], first_of_job[j + 1]):
                for h in range(hidden.shape[1]):
                    x = grad[i, h] if hidden[i, h] > zero else zero
                    grad[i, h] = x
                    grad_jobs[j, h] += x
            for h in range(hidden.shape[1]):
                grad_context[b, h] += grad_jobs[j, h]


class _Score(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, jobs: Tensor, context: Tensor, head: Tensor,
        first_job: Tensor, first_of_job: Tensor,
    ) -> Tensor:  # fmt: skip
        beside = hidden @ weight.t()
        _add_beside(
            beside.numpy(), jobs.contiguous().numpy(), context.contiguous().numpy(),
            first_job.numpy(), first_of_job.numpy(),
        )  # fmt: skip
        ctx.save_for_backward(hidden, weight, beside, head, first_job, first_of_job)
        ctx.shapes = jobs.shape, context.shape
        return beside @ head

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, beside, head, first_job, first_of_job = ctx.saved_tensors
        grad = torch.outer(grads[0], head)
        grad_jobs, grad_context = (torch.empty(shape) for shape in ctx.shapes)
        _sum_beside(
            beside.numpy(), grad.numpy(), first_job.numpy(), first_of_job.numpy(),
            grad_jobs.numpy(), grad_context.numpy(),
        )  # fmt: skip
        of_head = grads[0] @ beside
        return grad @ weight, grad.t() @ hidden, grad_jobs, grad_context, of_head, None, None


def score(
    hidden: Tensor, weight: Tensor, jobs: Tensor, context: Tensor, head: Tensor, packed: Packed
) -> Tensor:
    """`head . relu(weight @ hidden + jobs of its job + context of its decision)`, `(n,)`.

    Args:
        hidden: `(n, H)` of each candidate.
        weight: `(H, H)`.
        jobs: `(j, H)`.
        context: `(B, H)`.
        head: `(H,)`.
        packed: Which candidate belongs where.
    """
    scores: Tensor = _Score.apply(  # type: ignore[no-untyped-call]
        hidden, weight, jobs, context, head, packed.first_job, packed.first_of_job
    )
    return scores


@kernel
def _log_shares(
    scores: _Floats, wait_scores: _Floats, first: _Ints, wait: _Bytes, log_p: _Floats,
    wait_log_p: _Floats, entropy: _Floats,
) -> None:  # fmt: skip
    lowest = np.float32(-np.inf)
    for b in range(wait.size):
        most = wait_scores[b] if wait[b] != 0 else lowest
        for i in range(first[b], first[b + 1]):
            most = max(most, scores[i])
        total = np.float32(0.0)
        if wait[b] != 0:
            total += np.exp(wait_scores[b] - most)
        for i in range(first[b], first[b + 1]):
            total += np.exp(scores[i] - most)
        whole, spread = most + np.log(total), np.float32(0.0)
        wait_log_p[b] = lowest
        if wait[b] != 0:
            wait_log_p[b] = wait_scores[b] - whole
            spread -= np.exp(wait_log_p[b]) * wait_log_p[b]
        for i in range(first[b], first[b + 1]):
            log_p[i] = scores[i] - whole
            spread -= np.exp(log_p[i]) * log_p[i]
        entropy[b] = spread


@kernel
def _pick(
    log_p: _Floats, wait_log_p: _Floats, first: _Ints, action: _Ints, wait_action: int,
    chosen: _Ints, picked: _Floats,
) -> None:  # fmt: skip
    """The log-probability of each chosen action."""
    for b in range(chosen.size):
        picked[b] = wait_log_p[b] if chosen[b] == wait_action else np.float32(-np.inf)
        for i in range(first[b], first[b + 1]):
            if action[i] == chosen[b]:
                picked[b] = log_p[i]


@kernel
def _grad_of_shares(
    log_p: _Floats, wait_log_p: _Floats, entropy: _Floats, first: _Ints, action: _Ints,
    wait_action: int, chosen: _Ints, grad_picked: _Floats, grad_entropy: _Floats,
    grad: _Floats, grad_wait: _Floats,
) -> None:  # fmt: skip
    """D log p_a / d s_i = [i = a] - p_i;  d H / d s_i = -p_i (log p_i + H)."""
    for b in range(chosen.size):
        g, e, spread = grad_picked[b], grad_entropy[b], entropy[b]
        for i in range(first[b], first[b + 1]):
            p = np.exp(log_p[i])
            x = -p * (g + e * (log_p[i] + spread))
            grad[i] = x + g if action[i] == chosen[b] else x
        p = np.exp(wait_log_p[b])
        grad_wait[b] = np.float32(0.0)
        if p > np.float32(0.0):
            grad_wait[b] = -p * (g + e * (wait_log_p[b] + spread))
        if chosen[b] == wait_action:
            grad_wait[b] += g


class _Shares(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, wait_scores: Tensor, first: Tensor, action: Tensor, wait: Tensor,
        chosen: Tensor, wait_action: int,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        log_p, wait_log_p = torch.empty_like(scores), torch.empty_like(wait_scores)
        picked, entropy = torch.empty_like(wait_scores), torch.empty_like(wait_scores)
        _log_shares(
            scores.numpy(), wait_scores.contiguous().numpy(), first.numpy(), wait.numpy(),
            log_p.numpy(), wait_log_p.numpy(), entropy.numpy(),
        )  # fmt: skip
        _pick(
            log_p.numpy(), wait_log_p.numpy(), first.numpy(), action.numpy(), wait_action,
            chosen.numpy(), picked.numpy(),
        )  # fmt: skip
        ctx.save_for_backward(log_p, wait_log_p, entropy, first, action, chosen)
        ctx.wait_action = wait_action
        return picked, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        log_p, wait_log_p, entropy, first, action, chosen = ctx.saved_tensors
        grad, grad_wait = torch.empty_like(log_p), torch.empty_like(wait_log_p)
        of_picked, of_entropy = (g.contiguous().numpy() for g in grads)
        _grad_of_shares(
            log_p.numpy(), wait_log_p.numpy(), entropy.numpy(), first.numpy(), action.numpy(),
            ctx.wait_action, chosen.numpy(), of_picked, of_entropy, grad.numpy(),
            grad_wait.numpy(),
        )  # fmt: skip
        return grad, grad_wait, None, None, None, None, None


def log_probability(
    scores: Tensor, wait_scores: Tensor, packed: Packed, chosen: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-probability of the chosen actions under softmax, and entropy, `(B,)` each.

    Args:
        scores: `(n,)` of the candidates.
        wait_scores: `(B,)`.
        packed: The decisions.
        chosen: `(B,)` int64, allowed actions.
    """
    found: tuple[Tensor, Tensor] = _Shares.apply(  # type: ignore[no-untyped-call]
        scores, wait_scores, packed.first_candidate, packed.action, packed.wait, chosen,
        packed.wait_action,
    )  # fmt: skip
    return found


@kernel
def _best(
    scores: _Floats, wait_scores: _Floats, first: _Ints, action: _Ints, wait: _Bytes,
    wait_action: int, best: _Ints,
) -> None:  # fmt: skip
    for b in range(wait.size):
        most, best[b] = np.float32(-np.inf), wait_action
        for i in range(first[b], first[b + 1]):
            if scores[i] > most:
                most, best[b] = scores[i], action[i]
        if wait[b] != 0 and wait_scores[b] > most:
            best[b] = wait_action


def best_actions(scores: Tensor, wait_scores: Tensor, packed: Packed) -> Tensor:
    """The allowed action with the highest score of each decision, `(B,)`."""
    best = torch.empty(packed.wait.shape[0], dtype=torch.int64)
    _best(
        scores.numpy(), wait_scores.contiguous().numpy(), packed.first_candidate.numpy(),
        packed.action.numpy(), packed.wait.numpy(), packed.wait_action, best.numpy(),
    )  # fmt: skip
    return best
