"""Warm start: the network learns to do what the teacher did, and what came of it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from bace_env.episodes import Episodes
from train.config import TrainConfig
from train.mixture import change_capacity
from train.network import Network
from train.packed_layers import best_actions, log_probability
from train.packing import (
    PackedCandidates,
    choose_rows,
    concatenate,
    join,
    pack_candidates,
)
from train.teacher import Demonstrations, demonstrate
from train.validation import reserved_seeds


class Lesson(NamedTuple):
    """The numbers of one pass over the demonstrations."""

    loss: float
    agreement: float  # share of the decisions that the network would have made, too
    value_loss: float


def collect(
    config: TrainConfig, on_setting: Callable[[], None] = lambda: None
) -> list[Demonstrations]:
    """Demonstrations of every setting, from seeds of the training's own."""
    rng = np.random.default_rng([config.seed, 1])
    found, reserved = [], reserved_seeds()
    for setting in config.settings:
        episodes = Episodes(
            setting.scenario,
            overrides=setting.overrides,
            batch=config.demonstrations,
            slots=config.slots,
            cost_weight=config.cost_weight,
            excluded=reserved,
        )
        for b in range(config.demonstrations):
            episodes.seed(b, int(rng.integers(2**53)))
        found.append(demonstrate(episodes, config.demonstrations, config.simulations, rng))
        on_setting()
    return found


def clone(
    network: Network,
    lessons: Sequence[Demonstrations],
    config: TrainConfig,
    on_epoch: Callable[[Lesson], None] = lambda lesson: None,
) -> None:
    """Fit actions by cross entropy and values by squared error, with Adam."""
    rest, candidates, actions, wait = _joined(lessons, config.slots)
    returns = torch.as_tensor(np.concatenate([each.returns for each in lessons]))
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    n, size = len(actions), 256
    steps = config.cloning_epochs * -(-n // size)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    generator = torch.Generator().manual_seed(config.seed)
    for _ in range(config.cloning_epochs):
        totals = np.zeros(3)
        for rows in torch.chunk(torch.randperm(n, generator=generator), max(n // size, 1)):
            chosen = choose_rows(candidates, rows.numpy())
            packed = join({key: each[rows] for key, each in rest.items()}, chosen, wait)
            scores, wait_scores, values = network(packed)
            log_p, _ = log_probability(scores, wait_scores, packed, actions[rows])
            loss = -log_p.mean()
            value_loss = functional.mse_loss(values, returns[rows])
            optimizer.zero_grad()
            (loss + 0.1 * value_loss).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            best = best_actions(scores.detach(), wait_scores.detach(), packed)
            agree = (best == actions[rows]).sum().item()
            totals += loss.item() * len(rows), agree, value_loss.item() * len(rows)
        on_epoch(Lesson(*(totals / n).tolist()))


def _joined(
    lessons: Sequence[Demonstrations], slots: int
) -> tuple[dict[str, torch.Tensor], PackedCandidates, torch.Tensor, int]:
    """Observations but for the candidates, those, actions, and WAIT: indices as for the most K."""
    masks = [each.observations["action_mask"] for each in lessons]
    capacities = [(mask.shape[1] - 1) // slots for mask in masks]
    most = max(capacities)
    parts, actions = [], []
    for lesson, mask, capacity in zip(lessons, masks, capacities, strict=True):
        part = pack_candidates(mask, lesson.observations["candidates"])
        parts.append(part._replace(action=change_capacity(part.action, capacity, most)))
        actions.append(change_capacity(lesson.actions, capacity, most))
    rest = {
        key: torch.as_tensor(np.concatenate([lesson.observations[key] for lesson in lessons]))
        for key in ("globals", "regions", "links", "jobs")
    }
    joined = torch.as_tensor(np.concatenate(actions))
    return rest, concatenate(parts), joined, slots * most
