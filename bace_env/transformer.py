"""FLOPs, activation size and memory of decoder-only transformers, per layer.

Formulas: Megatron-LM `num_floating_point_operations` (causal attention) and EleutherAI cookbook
`calc_transformer_flops.py` for FLOPs; Megatron-LM `get_tensor_shapes` for messages; Table 2 of
arXiv 2205.05198 in spirit for activations.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """Dimensions of a model; `experts = 0` is a dense one.

    `window` > 0: all but one layer in `window_every` see at most that many tokens (Gemma-3: 1024,
    6). `ffn` is the width of the MLP, or of one expert. `matrices` is 3 with a gate, 2 without.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    matrices: int = 3
    experts: int = 0
    active_experts: int = 0  # routed and shared, per token
    window: int = 0
    window_every: int = 1
    tied_embedding: bool = False


def layer_forward_flops(arch: Architecture, sequence: int) -> float:
    """Forward FLOPs of one layer per token at this sequence length, mean over the layers."""
    width, kv_width = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    projections = 2 * (2 * arch.hidden * width + 2 * arch.hidden * kv_width)
    mlps = max(arch.active_experts, 1)
    mlp = 2 * arch.matrices * arch.hidden * arch.ffn * mlps + 2 * arch.hidden * arch.experts
    # A causal token sees sequence/2 others on average, within a window w: w - w^2 / (2 s).
    seen = sequence / 2
    if 0 < arch.window < sequence:
        windowed = arch.window - arch.window**2 / (2 * sequence)
        share = 1 - 1 / arch.window_every
        seen = share * windowed + (1 - share) * seen
    return projections + mlp + 4 * seen * width


def head_forward_flops(arch: Architecture) -> float:
    """Forward FLOPs of the language-model head per token."""
    return 2.0 * arch.hidden * arch.vocab


def forward_flops(arch: Architecture, sequence: int) -> float:
    """Forward FLOPs of the whole model per token (the embedding look-up is free)."""
    return arch.layers * layer_forward_flops(arch, sequence) + head_forward_flops(arch)


def layer_parameters(arch: Architecture) -> int:
    """Parameters of one layer that take memory (all experts), norms left out."""
    width, kv_width = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    attention = 2 * arch.hidden * width + 2 * arch.hidden * kv_width
    mlps = 1
    if arch.experts:
        mlps = arch.experts + 1  # the shared expert
    return attention + arch.matrices * arch.hidden * arch.ffn * mlps + arch.hidden * arch.experts


def parameters(arch: Architecture) -> int:
    """Parameters of the whole model that take memory."""
    embeddings = 1 if arch.tied_embedding else 2
    return arch.layers * layer_parameters(arch) + embeddings * arch.hidden * arch.vocab


def activation_bytes(micro_batch: float, sequence: int, hidden: int, bytes_per_value: int) -> float:
    """A: bytes of one activation (or gradient) message between stages."""
    return micro_batch * sequence * hidden * bytes_per_value


def minimum_gpus(
    arch: Architecture,
    *,
    usable_bytes: float,
    bytes_per_parameter: float,
    micro_batches: int,
    micro_batch: float,
    sequence: int,
) -> int | None:
    """Fewest GPUs that hold the model under GPipe with rematerialisation per stage.

    A stage holds its parameters, one input per micro-batch in flight (all of them, in GPipe) and
    the activations of one micro-batch in its layers while it recomputes. Embedding, layers and head
    are packed contiguously; None where a single unit does not fit.
    """
    tokens = micro_batch * sequence
    width, kv_width = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    mlps = max(arch.active_experts, 1)
    message = activation_bytes(micro_batch, sequence, arch.hidden, 2)
    inputs = micro_batches * message
    layer_activations = (
        2 * tokens * (4 * arch.hidden + 2 * width + 2 * kv_width + arch.matrices * arch.ffn * mlps)
    )
    embedding = arch.hidden * arch.vocab * bytes_per_parameter
    layer = layer_parameters(arch) * bytes_per_parameter + layer_activations
    head = (0 if arch.tied_embedding else embedding) + 10 * tokens * arch.vocab
    units = [embedding] + [layer] * arch.layers + [head]
    stages, room = 1, usable_bytes - inputs
    if max(units) > room:
        return None
    left = room
    for unit in units:
        if unit > left:
            stages, left = stages + 1, room
        left -= unit
    return stages
