"""The rule that makes training jobs of recorded GPUs and durations: `match-duration`.

A trace names neither models nor iterations. For a job of k GPUs that ran d seconds the rule chooses
a model and a batch size, and as many iterations as bring E_j(k), Eq. 1 and 2 with all k GPUs in one
region, closest to d:

1. Models that fit: k lies between the fewest GPUs that hold the model (parameters in memory, or the
   cost model's own k_min if larger) and the most that the form of t_comp allows.
2. Pairs of such a model and a batch size whose iteration takes at most `2 * tolerance * d`: then
   the error by whole iterations, half an iteration, is at most `tolerance * d`.
3. Of the models in such pairs the `spread` largest; one of them by chance, then one of its batch
   sizes by chance.
4. Where no pair is fine enough, the pair of the shortest iteration; the report counts these.

The chance of a job depends on the seed and its line in the trace alone, so dropping other rows
changes nothing about it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from bace_env.config import parse_scenario
from bace_env.errors import ConfigError
from bace_env.io.reading import check_choices
from bace_env.io.report import Report
from bace_env.scenario import single_region_s
from bace_env.schema import LanguageModel, Scenario
from bace_env.types import FloatArray, IntArray

RULE = "match-duration"
VERSION = 1


def _arch(heads: int, kv_heads: int, head_dim: int, ffn: int, **more: Any) -> dict[str, Any]:
    dims = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "ffn": ffn}
    return dims | {"vocab": 152064} | more


#: Published dimensions of GPT-2 and the Qwen2.5 family: small enough for jobs of seconds on one
#: GPU, large enough for dozens.
LADDER: list[dict[str, Any]] = [
    {"name": "GPT-2", "params_b": 0.124, "layers": 12, "hidden": 768,
     "arch": _arch(12, 12, 64, 3072, vocab=50257, matrices=2, tied_embedding=True)},
    {"name": "Qwen2.5-0.5B", "params_b": 0.49, "layers": 24, "hidden": 896,
     "arch": _arch(14, 2, 64, 4864, vocab=151936, tied_embedding=True)},
    {"name": "Qwen2.5-1.5B", "params_b": 1.54, "layers": 28, "hidden": 1536,
     "arch": _arch(12, 2, 128, 8960, vocab=151936, tied_embedding=True)},
    {"name": "Qwen2.5-3B", "params_b": 3.09, "layers": 36, "hidden": 2048,
     "arch": _arch(16, 2, 128, 11008, vocab=151936, tied_embedding=True)},
    {"name": "Qwen2.5-7B", "params_b": 7.61, "layers": 28, "hidden": 3584,
     "arch": _arch(28, 4, 128, 18944)},
    {"name": "Qwen2.5-14B", "params_b": 14.77, "layers": 48, "hidden": 5120,
     "arch": _arch(40, 8, 128, 13824)},
    {"name": "Qwen2.5-32B", "params_b": 32.5, "layers": 64, "hidden": 5120,
     "arch": _arch(40, 8, 128, 27648)},
    {"name": "Qwen2.5-72B", "params_b": 72.7, "layers": 80, "hidden": 8192,
     "arch": _arch(64, 8, 128, 29568)},
]  # fmt: skip


@dataclass(frozen=True)
class MatchOptions:
    """Parameters of the rule; all are kept in the scenario that comes out.

    Attributes:
        seed: Of the choices.
        models: `ladder` (GPT-2 and Qwen2.5, see `LADDER`) or `base`: those of the base scenario.
        batches: Batch sizes to choose from.
        spread: How many of the largest models that fit are chosen from.
        tolerance: Error of E_j(k) that is aimed at, as a share of the recorded duration.
        gpus: `free`: schedulers choose the GPUs of a job; `rigid`: always those recorded.
        too_large: Jobs of more GPUs than the cluster has (rigid: than its largest region):
            `reject`, or `cap` to that number, with the duration stretched to the same GPU-seconds.
    """

    seed: int = 0
    models: Literal["ladder", "base"] = "ladder"
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    spread: int = 3
    tolerance: float = 0.01
    gpus: Literal["free", "rigid"] = "free"
    too_large: Literal["reject", "cap"] | None = None


class Matched(NamedTuple):
    """Jobs with models.

    Attributes:
        models: The `[[models]]` that are used.
        jobs: By arrival: `name, model, batch_size, iterations, arrival_h, trace_gpus,
            trace_duration_s` (the last two as recorded, or capped).
    """

    models: list[dict[str, Any]]
    jobs: pd.DataFrame


def match_durations(
    jobs: pd.DataFrame, base: Mapping[str, Any], report: Report, options: MatchOptions | None = None
) -> Matched:
    """Apply the rule to a cleaned trace (`jobs.Trace.jobs`).

    Args:
        jobs: The trace.
        base: The tables of the scenario whose cluster and cost model it is for.
        report: Gets what was rejected, capped, or matched less closely than asked for.
        options: See `MatchOptions`.

    Raises:
        ConfigError: A parameter out of range, or no job left.
    """
    options = options or MatchOptions()
    _check(options)
    models = LADDER if options.models == "ladder" else list(base["models"])
    scenario = _probe(base, models)
    table = _Table.of(scenario, options)
    jobs = _within(jobs, scenario, table, report, options)
    if jobs.empty:
        raise ConfigError(f"{report.files[0]}: no job is left; rejected: {report.rejected}")
    choice, iteration_s = table.choose(jobs, options)
    duration = jobs["duration_s"].to_numpy()
    iterations = np.round(duration / iteration_s)
    iterations[(iterations < 1) & (duration > 0)] = 1
    _report_error(duration, iterations * iteration_s, report, options)
    names = [f"{table.names[m]} x{k}" if options.gpus == "rigid" else table.names[m]
             for m, k in zip(table.model[choice], jobs["gpus"], strict=True)]  # fmt: skip
    matched = pd.DataFrame(
        {
            "name": jobs["id"].to_numpy(),
            "model": names,
            "batch_size": table.batch[choice],
            "iterations": iterations.astype(np.int64),
            "arrival_h": jobs["arrival_s"].to_numpy() / 3600,
            "trace_gpus": jobs["gpus"].to_numpy(),
            "trace_duration_s": duration,
        }
    )
    report.rows_kept = len(matched)
    hours = float((matched["trace_gpus"] * matched["trace_duration_s"]).sum() / 3600)
    report.found["GPU-hours kept"] = hours
    return Matched(_used_models(models, matched, options), matched)


def _check(options: MatchOptions) -> None:
    check_choices(options)
    if not 0 <= options.seed < 2**53:
        raise ConfigError(f"--rule-seed: must be from 0 to 2**53 - 1, got {options.seed}")
    if not options.batches or min(options.batches) < 1:
        raise ConfigError(f"--batches: must be whole numbers >= 1, got {options.batches}")
    if options.spread < 1:
        raise ConfigError(f"--spread: must be >= 1, got {options.spread}")
    if not 0 < options.tolerance <= 0.5:
        raise ConfigError(f"--tolerance: must be in (0, 0.5], got {options.tolerance}")


def _probe(base: Mapping[str, Any], models: Sequence[Mapping[str, Any]]) -> Scenario:
    """The base's cluster and cost model with the rule's models, and one job to be a scenario."""
    data = {k: v for k, v in base.items() if k not in ("datasets", "workload", "jobs")}
    job = {"name": "probe", "model": models[0]["name"], "batch_size": 1, "iterations": 1}
    return parse_scenario(data | {"models": list(models), "jobs": [job]}, "(base)")


def _within(
    jobs: pd.DataFrame, scenario: Scenario, table: "_Table", report: Report, options: MatchOptions
) -> pd.DataFrame:
    """The jobs that the cluster and a model can host, the others rejected or capped."""
    gpus = [math.floor(region.gpus * scenario.scale.gpus + 0.5) for region in scenario.regions]
    most = max(gpus) if options.gpus == "rigid" else sum(gpus)
    what = "largest region" if options.gpus == "rigid" else "cluster"
    limit = min(most, table.iteration_s.shape[1] - 1)
    if limit < most:
        what = "largest model"
    over = jobs["gpus"] > limit
    asked = options.too_large is not None
    first = f"line {jobs['line'][over].iloc[0]}" if over.any() else ""
    if options.too_large == "cap":
        report.change(
            f"jobs capped to the {limit} GPUs of the {what}, with the same GPU-seconds",
            int(over.sum()), first, asked=asked,
        )  # fmt: skip
        stretched = jobs["duration_s"] * jobs["gpus"].clip(lower=limit) / limit
        jobs = jobs.assign(
            duration_s=stretched.where(over, jobs["duration_s"]),
            gpus=jobs["gpus"].clip(upper=limit),
        )
    else:
        reason = f"more GPUs than the {limit} of the {what}"
        report.reject(reason, int(over.sum()), first, asked=asked)
        jobs = jobs[~over]
    hosted = np.asarray(np.isfinite(table.iteration_s).any(axis=0))
    none = np.asarray(~hosted[jobs["gpus"].to_numpy()])
    first = f"line {jobs['line'][none].iloc[0]}" if none.any() else ""
    report.reject("GPUs that no model of the rule can have", int(none.sum()), first)
    return jobs[~none]


class _Table(NamedTuple):
    """Iteration times of every pair of a model and a batch size, largest model first."""

    names: list[str]  # of the models, largest first
    model: IntArray  # (C,) index of the pair's model
    batch: IntArray  # (C,)
    iteration_s: FloatArray  # (C, K + 1); inf where the model does not fit

    @classmethod
    def of(cls, scenario: Scenario, options: MatchOptions) -> "_Table":
        size = {model.name: _gigabytes(scenario, model) for model in scenario.models}
        models = sorted(scenario.models, key=lambda model: -size[model.name])
        rows, index, batch = [], [], []
        for m, model in enumerate(models):
            least = max(1, math.ceil(size[model.name] / _usable_gigabytes(scenario)))
            for b in options.batches:
                try:
                    times = single_region_s(scenario, model, b)
                except ConfigError:  # this cluster cannot run it at all
                    continue
                times[:least] = np.inf
                rows.append(times)
                index.append(m)
                batch.append(b)
        if not rows:
            raise ConfigError("--models: no model of the rule runs on the base's cluster")
        padded = np.full((len(rows), max(row.size for row in rows)), np.inf)
        for i, row in enumerate(rows):
            padded[i, : row.size] = row
        names = [model.name for model in models]
        return cls(names, np.array(index), np.array(batch), padded)

    def choose(self, jobs: pd.DataFrame, options: MatchOptions) -> tuple[IntArray, FloatArray]:
        """Pair of each job, and its iteration time at the recorded GPUs."""
        line = jobs["line"].to_numpy()
        chance = np.random.Generator(np.random.Philox(key=[options.seed, 0]))
        draws = chance.random((int(line.max()) + 1, 2))[line]
        gpus, limit = jobs["gpus"].to_numpy(), 2 * options.tolerance * jobs["duration_s"].to_numpy()
        choice = np.empty(len(jobs), dtype=np.int64)
        for k in np.unique(gpus):
            rows = np.flatnonzero(gpus == k)
            for part in np.array_split(rows, max(1, rows.size // 100_000)):
                choice[part] = self._choose(
                    self.iteration_s[:, k], limit[part], draws[part], options
                )
        return choice, self.iteration_s[choice, gpus]

    def _choose(
        self, times: FloatArray, limit: FloatArray, draws: FloatArray, options: MatchOptions
    ) -> IntArray:
        fine = times[None, :] <= limit[:, None]  # (jobs, pairs)
        n_models = len(self.names)
        of_model = np.zeros((len(self.model), n_models), dtype=np.int64)
        of_model[np.arange(len(self.model)), self.model] = 1
        per_model = fine.astype(np.int64) @ of_model  # fine pairs of each model
        usable = np.cumsum(per_model > 0, axis=1)
        among = np.minimum(usable[:, -1], options.spread)
        nth = np.floor(draws[:, 0] * among).astype(np.int64)
        model = (usable <= nth[:, None]).sum(axis=1).clip(max=n_models - 1)
        own = fine & (self.model[None, :] == model[:, None])
        count = np.cumsum(own, axis=1)
        nth = np.floor(draws[:, 1] * count[:, -1]).astype(np.int64)
        pair = (count <= nth[:, None]).sum(axis=1).clip(max=len(self.model) - 1)
        return np.where(among > 0, pair, int(np.argmin(times)))


def _gigabytes(scenario: Scenario, model: LanguageModel) -> float:
    """Memory of a model's parameters; 0 where the scenario does not say."""
    return (model.params_b or 0.0) * scenario.pipeline.bytes_per_parameter


def _usable_gigabytes(scenario: Scenario) -> float:
    return scenario.gpu.usable_memory_gib * 2**30 / 1e9


def _report_error(
    duration: FloatArray, matched: FloatArray, report: Report, options: MatchOptions
) -> None:
    positive = duration > 0
    relative = np.abs(matched - duration)[positive] / duration[positive]
    if not relative.size:
        return
    report.found["largest error of E_j(k) (%)"] = round(100 * float(relative.max()), 4)
    report.found["mean error of E_j(k) (%)"] = round(100 * float(relative.mean()), 4)
    coarse = int((relative > options.tolerance * (1 + 1e-9)).sum())
    if coarse:
        report.warnings.append(
            f"{coarse} jobs are too short for the rule: E_j(k) is off by more than "
            f"{100 * options.tolerance:g} % of the recorded duration"
        )


def _used_models(
    models: Sequence[dict[str, Any]], jobs: pd.DataFrame, options: MatchOptions
) -> list[dict[str, Any]]:
    used = jobs[["model", "trace_gpus"]].drop_duplicates("model").sort_values(["model"])
    plain = {model["name"]: model for model in models}
    if options.gpus == "free":
        names = set(used["model"])
        return [model for model in models if model["name"] in names]
    result = []
    for name, gpus in zip(used["model"], used["trace_gpus"], strict=True):
        k = int(gpus)
        result.append(plain[name.removesuffix(f" x{k}")] | {"name": name, "k_min": k, "k_max": k})
    return result
