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
from train.pooling import pool_packed

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

    def forward(self, observation: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Of a batch of padded observations; only what is present is computed.

        Args:
            observation: The keys of `bace_env.observation.Observation`, `(B, size)` each.

        Returns:
            Scores `(B, Q * K + 1)`, `MASKED` where the mask forbids, and values `(B,)`.
        """
        mask = observation["action_mask"].ne(0)
        batch = mask.shape[0]
        jobs = observation["jobs"].view(batch, -1, len(FEATURES["jobs"]))
        capacity = (mask.shape[1] - 1) // jobs.shape[1]
        row, action = mask[:, :-1].nonzero(as_tuple=True)
        features = observation["candidates"].view(-1, len(FEATURES["candidates"]))
        candidates = features[row * (mask.shape[1] - 1) + action]
        h_jobs = self.read["jobs"](jobs).relu() * jobs[:, :, :1]
        weight = observation["globals"][row, _COST_WEIGHT]
        h_candidates = self.read["candidates"](_weighed(candidates, weight)).relu()
        pools = [observation["globals"]]
        for key in ("regions", "links"):
            x = observation[key].view(batch, -1, len(FEATURES[key]))
            present = x[:, :, :1].ne(0).to(x.dtype)
            pools += _pool_padded(self.read[key](x).relu() * present, present)
        pools += _pool_padded(h_jobs, jobs[:, :, :1])
        first = torch.zeros(batch + 1, dtype=torch.int64)
        first[1:] = mask[:, :-1].sum(1).cumsum(0)
        pools += pool_packed(h_candidates, first)
        context = self.context(torch.cat(pools, dim=1))
        beside = self.of_job(h_jobs) + self.of_context(context)[:, None]
        slot = row * jobs.shape[1] + action // capacity
        hidden = self._beside(h_candidates, beside.view(-1, self.width // 2)[slot])
        scores = torch.full(mask.shape, MASKED, dtype=context.dtype)
        scores[row, action] = self.score(hidden.relu()).squeeze(1)
        scores[:, -1] = torch.where(mask[:, -1], self.wait(context).squeeze(1), MASKED)
        return scores, self.value(context).squeeze(1)

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
        h = self._beside(hidden["candidates"], beside[decision.job_of])
        scores = torch.cat([self.score(h.relu()).squeeze(1), self.wait(context)])
        return scores, self.value(context).squeeze(0)

    def _beside(self, h_candidates: Tensor, beside: Tensor) -> Tensor:
        # One pass over all candidates, not two: they are what takes the time.
        return torch.addmm(beside, h_candidates, self.of_candidate.weight.t())


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


def _pool_padded(hidden: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and maximum of `(B, n, H)`, absent rows being 0."""
    return hidden.sum(1) / present.sum(1).clamp(min=1.0), hidden.amax(1)
