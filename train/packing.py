"""Mean and maximum of packed rows: one pass forwards and one backwards.

torch's own scatter and gather take a dozen passes over all candidates for it, which is a third of
the time of an update.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bace_env.jit import kernel

_Floats = NDArray[np.float32]
_Ints = NDArray[np.int64]


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
        for i in range(begin, end):
            for h in range(grad.shape[1]):
                grad[i, h] = grad_mean[b, h] / (end - begin)
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


def pool_packed(hidden: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and maximum of consecutive rows.

    Args:
        hidden: `(n, H)` float32, none below 0.
        first: `(B + 1,)` int64: group b has the rows from `first[b]` to `first[b + 1]`.

    Returns:
        Both `(B, H)`; 0 where a group is empty.
    """
    pooled: tuple[Tensor, Tensor] = _Pool.apply(  # type: ignore[no-untyped-call]
        hidden.contiguous(), first
    )
    return pooled
