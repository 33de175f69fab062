"""Batches of decisions without padding.

Of some 450 actions about 40 are valid, so only those are kept: rows of all decisions one after the
other, and where each begins.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bace_env.jit import kernel
from bace_env.observation import FEATURES

_Floats = NDArray[np.float32]
_Ints = NDArray[np.int64]
_Bytes = NDArray[np.int8]
_JOB_WIDTH = len(FEATURES["jobs"])


class Packed(NamedTuple):
    """B decisions; what is absent or forbidden is left out."""

    globals: Tensor  # (B, F)
    regions: Tensor  # (r, F)
    links: Tensor  # (l, F)
    jobs: Tensor  # (j, F)
    candidates: Tensor  # (n, F) the valid ones
    first_region: Tensor  # (B + 1,) those of decision b are the rows from [b] to [b + 1]
    first_link: Tensor  # (B + 1,)
    first_job: Tensor  # (B + 1,)
    first_of_job: Tensor  # (j + 1,) where the candidates of each job begin
    first_candidate: Tensor  # (B + 1,)
    action: Tensor  # (n,) index of each candidate's action
    wait: Tensor  # (B,) 1 where WAIT is allowed, of int8
    wait_action: int  # its index


class PackedCandidates(NamedTuple):
    """The valid candidates of B observations."""

    features: _Floats  # (n, F)
    action: _Ints  # (n,)
    first: _Ints  # (B + 1,)
    wait: _Bytes  # (B,)


def pack_candidates(mask: _Bytes, candidates: _Floats) -> PackedCandidates:
    """Those that the mask allows.

    Args:
        mask: `(B, A + 1)`, WAIT last.
        candidates: `(B, A * F)`.
    """
    first = np.zeros(len(mask) + 1, np.int64)
    np.cumsum(np.count_nonzero(mask[:, :-1], axis=1), out=first[1:])
    features = np.empty((first[-1], len(FEATURES["candidates"])), np.float32)
    action = np.empty(first[-1], np.int64)
    _pack_candidates(mask, candidates, features, action)
    return PackedCandidates(features, action, first, mask[:, -1].copy())


def concatenate(parts: Sequence[PackedCandidates]) -> PackedCandidates:
    """The observations of all parts, one part after the other."""
    counts = np.concatenate([np.diff(part.first) for part in parts])
    return PackedCandidates(
        features=np.concatenate([part.features for part in parts]),
        action=np.concatenate([part.action for part in parts]),
        first=np.concatenate([[0], np.cumsum(counts)]),
        wait=np.concatenate([part.wait for part in parts]),
    )


def choose_rows(packed: PackedCandidates, rows: _Ints) -> PackedCandidates:
    """The same of these observations, in this order."""
    first = np.zeros(rows.size + 1, np.int64)
    np.cumsum(packed.first[rows + 1] - packed.first[rows], out=first[1:])
    features = np.empty((first[-1], packed.features.shape[1]), np.float32)
    action = np.empty(first[-1], np.int64)
    _choose_rows(packed.features, packed.action, packed.first, rows, first, features, action)
    return PackedCandidates(features, action, first, packed.wait[rows])


def pack(observation: Mapping[str, Tensor]) -> Packed:
    """Padded observations, `(B, size)` each, without the padding."""
    mask, candidates = (observation[key].numpy() for key in ("action_mask", "candidates"))
    packed = pack_candidates(mask.astype(np.int8, copy=False), candidates)
    return join(observation, packed, mask.shape[1] - 1)


def join(observation: Mapping[str, Tensor], candidates: PackedCandidates, wait: int) -> Packed:
    """Packed candidates with the rest of their observations, which is still padded.

    Args:
        observation: `globals`, `regions`, `links` and `jobs`, `(B, size)` each.
        candidates: Of the same observations.
        wait: Index of WAIT.
    """
    (regions, first_region), (links, first_link), (jobs, first_job) = (
        _present(observation[key].numpy(), len(FEATURES[key]))
        for key in ("regions", "links", "jobs")
    )
    padded_jobs = observation["jobs"].numpy()
    capacity = wait * _JOB_WIDTH // padded_jobs.shape[1]
    first_of_job = np.empty(len(jobs) + 1, np.int64)
    _split_by_job(padded_jobs, candidates.action, candidates.first, capacity, first_of_job)
    return Packed(
        globals=observation["globals"],
        regions=torch.from_numpy(regions),
        links=torch.from_numpy(links),
        jobs=torch.from_numpy(jobs),
        candidates=torch.from_numpy(candidates.features),
        first_region=torch.from_numpy(first_region),
        first_link=torch.from_numpy(first_link),
        first_job=torch.from_numpy(first_job),
        first_of_job=torch.from_numpy(first_of_job),
        first_candidate=torch.from_numpy(candidates.first),
        action=torch.from_numpy(candidates.action),
        wait=torch.from_numpy(candidates.wait),
        wait_action=wait,
    )


def _present(padded: _Floats, width: int) -> tuple[_Floats, _Ints]:
    """Rows of entities that are there, and where those of each decision begin."""
    first = np.zeros(len(padded) + 1, np.int64)
    there = padded.reshape(len(padded), -1, width)[:, :, 0] != 0.0
    np.cumsum(there.sum(axis=1), out=first[1:])
    return padded.reshape(-1, width)[there.ravel()], first


@kernel
def _pack_candidates(mask: _Bytes, candidates: _Floats, features: _Floats, action: _Ints) -> None:
    i, width = 0, features.shape[1]
    for b in range(mask.shape[0]):
        for a in range(mask.shape[1] - 1):
            if mask[b, a] != 0:
                for f in range(width):
                    features[i, f] = candidates[b, a * width + f]
                action[i] = a
                i += 1


@kernel
def _choose_rows(
    features: _Floats, action: _Ints, source: _Ints, rows: _Ints, first: _Ints,
    out_features: _Floats, out_action: _Ints,
) -> None:  # fmt: skip
    for b in range(rows.size):
        shift = source[rows[b]] - first[b]
        for i in range(first[b], first[b + 1]):
            for f in range(features.shape[1]):
                out_features[i, f] = features[i + shift, f]
            out_action[i] = action[i + shift]


@kernel
def _split_by_job(
    jobs: _Floats, action: _Ints, first: _Ints, capacity: int, first_of_job: _Ints
) -> None:
    """Where the candidates of each present job begin; actions ascend within a decision."""
    job = 0
    for b in range(first.size - 1):
        i = first[b]
        for slot in range(jobs.shape[1] // _JOB_WIDTH):
            if jobs[b, slot * _JOB_WIDTH] != 0.0:
                first_of_job[job] = i
                job += 1
            while i < first[b + 1] and action[i] < (slot + 1) * capacity:
                i += 1
    first_of_job[job] = first[-1]
