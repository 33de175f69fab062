"""The policy network: scores every (slot, candidate) pair with the same weights.

Jobs, regions, links and candidates are each read by one small layer and pooled by mean and maximum
into a context; a candidate's score comes from its own features, its job's and the context. So the
network is equivariant to the order of jobs and candidates, invariant to that of regions and links,
and serves any number of them. WAIT and the value are read off the context.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bace_env.observation import FEATURES
from train.packed_layers import pool, score
from train.packing import Packed, pack

_COST_WEIGHT = FEATURES["globals"].index("cost weight, squashed")
_RUN_S = FEATURES["candidates"].index("execution time, squashed")
_COST = FEATURES["candidates"].index("cost at present prices, squashed, signed")
#: Score of a masked action: its probability is exactly 0 in float32, and 0 * log 0 stays finite.
MASKED = -1e9


class Decision(NamedTuple):
    """One decision without padding: what the exported model takes, in this order."""

    globals: Tensor  # (F,)
    regions: Tensor  # (regions, F)
    links: Tensor  # (links, F)
    jobs: Tensor  # (jobs, F)
    candidates: Tensor  # (n, F) the valid ones
    job_of: Tensor  # (n,) index into jobs


class Network(nn.Module):
    """Scores of actions, and the value of the state.

    Args:
        width: Units of the hidden layers of jobs and context; half as many of candidates.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.width = width
        half = width // 2  # candidates are many, all else is few
        sizes = {"regions": half, "links": width // 4, "jobs": width, "candidates": half}
        inputs = {key: len(FEATURES[key]) for key in sizes}
        inputs["candidates"] += 2  # see _weighed
        self.read = nn.ModuleDict(
            {key: nn.Linear(inputs[key], size) for key, size in sizes.items()}
        )
        pooled = len(FEATURES["globals"]) + 2 * sum(sizes.values())
        self.context = nn.Sequential(
            nn.Linear(pooled, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        first = self.context[0]
        assert isinstance(first, nn.Linear)
        with torch.no_grad():  # one number among hundreds, but much hangs on it
            first.weight[:, _COST_WEIGHT] *= 5.0
        self.of_candidate = nn.Linear(half, half, bias=False)
        self.of_job = nn.Linear(width, half, bias=False)
        self.of_context = nn.Linear(width, half)
        self.score = nn.Linear(half, 1)
        self.wait = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.value = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        for head in (self.score, self.wait[-1]):  # begin with nearly equal probabilities
            assert isinstance(head, nn.Linear)
            nn.init.normal_(head.weight, std=0.01)
            nn.init.zeros_(head.bias)

    def forward(self, packed: Packed) -> tuple[Tensor, Tensor, Tensor]:
        """Of a batch: scores of the candidates `(n,)`, of WAIT `(B,)`, and values `(B,)`."""
        first = packed.first_candidate
        weight = packed.globals[:, _COST_WEIGHT].repeat_interleave(first.diff())
        h_candidates = self.read["candidates"](_weighed(packed.candidates, weight)).relu()
        h_jobs = self.read["jobs"](packed.jobs).relu()
        pools = [packed.globals]
        pools += pool(self.read["regions"](packed.regions).relu(), packed.first_region)
        pools += pool(self.read["links"](packed.links).relu(), packed.first_link)
        pools += pool(h_jobs, packed.first_job)
        pools += pool(h_candidates, first)
        context = self.context(torch.cat(pools, dim=1))
        scores = score(
            h_candidates, self.of_candidate.weight, self.of_job(h_jobs), self.of_context(context),
            self.score.weight[0], packed,
        )  # fmt: skip
        scores = scores + self.score.bias
        return scores, self.wait(context).squeeze(1), self.value(context).squeeze(1)

    def padded(self, observation: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Of a batch of padded observations.

        Args:
            observation: The keys of `bace_env.observation.Observation`, `(B, size)` each.

        Returns:
            Scores `(B, Q * K + 1)`, `MASKED` where the mask forbids, and values `(B,)`.
        """
        packed = pack(observation)
        scores, wait_scores, values = self(packed)
        padded = torch.full(observation["action_mask"].shape, MASKED)
        rows = torch.arange(len(values)).repeat_interleave(packed.first_candidate.diff())
        padded[rows, packed.action] = scores
        padded[:, -1] = torch.where(packed.wait.ne(0), wait_scores, MASKED)
        return padded, values

    def decide(self, decision: Decision) -> tuple[Tensor, Tensor]:
        """The same of one decision: scores `(n + 1,)`, that of WAIT last, and the value `()`."""
        weight = decision.globals[_COST_WEIGHT].expand(decision.candidates.shape[0])
        inputs = decision._replace(candidates=_weighed(decision.candidates, weight))
        hidden = {
            key: self.read[key](getattr(inputs, key)).relu()
            for key in ("regions", "links", "jobs", "candidates")
        }
        pools = [decision.globals]
        for h in hidden.values():
            # A row of zeros: nothing may be present, and no unit is below 0.
            padded = torch.cat([torch.zeros(1, h.shape[1]), h])
            pools += [padded.sum(0) / (torch.ones_like(h[:, 0]).sum()).clamp(min=1.0)]
            pools += [padded.amax(0)]
        context = self.context(torch.cat(pools))
        beside = self.of_job(hidden["jobs"]) + self.of_context(context)
        h = self.of_candidate(hidden["candidates"]) + beside[decision.job_of]
        scores = torch.cat([self.score(h.relu()).squeeze(1), self.wait(context)])
        return scores, self.value(context).squeeze(0)


def _weighed(candidates: Tensor, weight: Tensor) -> Tensor:
    """Candidates `(n, F)` with the cost weight, and what each alone adds to the objective.

    So what the weight means need not be learnt. `weight` is `(n,)`; it is squashed as the features
    are, and so is the sum.
    """
    run, cost, scale = (
        x / (1.0 - x.abs()).clamp(min=1e-6)
        for x in (candidates[:, _RUN_S], candidates[:, _COST], weight)
    )
    added = run + scale * cost
    return torch.cat([candidates, weight[:, None], (added / (1.0 + added.abs()))[:, None]], dim=1)
