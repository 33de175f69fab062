"""What the paper leaves open, as a grid, and the search over it.

A *setting* is one level of every assumption. `score` says how far the ratios of a setting are from
the paper's; it was fixed before any search was run. Settings are drawn at random from the grid
(what each assumption does is read from these alone), then the best of them are improved one
assumption at a time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from agents.heuristic import Options, heuristic_options
from agents.schedule import allocate_sequence, objective_scales, play_policy
from bace_env.config import load_scenario
from bace_env.errors import ConfigError, DeadlockError
from bace_env.instance import Instance
from bace_env.kernels import allocate_state, reset
from bace_env.scenario import Sampler, episode_seed
from bace_env.schema import Scenario
from bace_env.types import FloatArray, allocate_scratch
from eval.claims import BASELINES, CLAIMS, POLICIES, SETTINGS, Claim

BASE = "paper"  # the scenario that the first level of every assumption leaves as it is

Setting = tuple[int, ...]  # level of each of ASSUMPTIONS


class Level(NamedTuple):
    """One answer to an open question."""

    name: str
    scenario: tuple[str, ...] = ()  # overrides of the scenario
    options: Mapping[str, str] = {}  # policy -> option of the heuristic


@dataclass(frozen=True)
class Assumption:
    """An open question and its answers; the first is that of the preset `paper`."""

    name: str
    levels: tuple[Level, ...]


_BACE = tuple(policy for policy in POLICIES if policy not in BASELINES)


def _give(policies: Sequence[str], option: str) -> dict[str, str]:
    return dict.fromkeys(policies, option)


def _numbers(name: str, path: str, values: Mapping[str, object]) -> Assumption:
    """An assumption whose levels set one field; the first leaves it."""
    levels = [
        Level(label, () if i == 0 else (f"{path}={value}",))
        for i, (label, value) in enumerate(values.items())
    ]
    return Assumption(name, tuple(levels))


def _layered() -> tuple[str, ...]:
    """The layered form, with the dimensions of the models that the preset `physical` has."""
    overrides = ["pipeline.form=layered"]
    for model in load_scenario("physical").models:
        assert model.arch is not None
        fields = ", ".join(
            f"{key} = {str(value).lower()}"
            for key, value in model.arch.model_dump(exclude_defaults=True).items()
        )
        overrides.append(f"models.{model.name}.arch={{ {fields} }}")
    return tuple(overrides)


def _cap_at_layers() -> tuple[str, ...]:
    models = load_scenario(BASE).models
    return tuple(f"models.{model.name}.k_max={model.layers}" for model in models)


def _patience(name: str, policies: Sequence[str]) -> Assumption:
    shares = ("0.25", "0.5", "1")
    levels = [Level("0 (start on any GPU)")]
    levels += [
        Level(f"{share} of K*", (), _give(policies, f"patience={share}")) for share in shares
    ]
    return Assumption(name, tuple(levels))


#: The grid. Its order and that of the levels are part of a search's identity.
ASSUMPTIONS: tuple[Assumption, ...] = (
    Assumption(
        "t_comp(k)",
        (
            Level("C / k + o"),
            Level("C / k^0.85 + o", ("pipeline.scaling_exponent=0.85",)),  # job P of Fig. 1
            Level("C / k^1.08 + o", ("pipeline.scaling_exponent=1.08",)),  # job Q of Fig. 1
            Level("C / k^1.2 + o", ("pipeline.scaling_exponent=1.2",)),
            Level("whole layers + o", _layered()),
        ),
    ),
    _numbers(
        "overhead o per stage",
        "pipeline.stage_overhead_ms",
        {"0.5 ms": 0.5, "0": 0.0, "5 ms": 5.0, "20 ms": 20.0, "100 ms": 100.0},
    ),
    Assumption(
        "cap on K*",
        (
            Level("none"),
            Level("layers", _cap_at_layers()),
            *(Level(f"{k} GPUs", (f"pipeline.k_max={k}",)) for k in (128, 64, 32, 16)),
        ),
    ),
    Assumption(
        "micro-batches M",
        (
            Level("batch size"),
            Level("batch size / 8", ("pipeline.micro_batch_samples=8",)),
            *(Level(f"{m}", (f"pipeline.micro_batches={m}",)) for m in (8, 32, 4096)),
        ),
    ),
    _numbers(
        "bytes per value",
        "pipeline.bytes_per_value",
        {"2": 2, "1": 1, "4": 4, "8": 8, "16": 16, "32": 32},
    ),
    Assumption(
        "Solar-Open-100B",
        (Level("12 B active"), Level("dense", ("models.Solar-Open-100B.active_params_b=100.0",))),
    ),
    _numbers("size of a data set", "workload.unit", {"samples": "samples", "tokens": "tokens"}),
    _numbers(
        "spread of the data sets",
        "workload.dataset_spread",
        {"as they are": 1.0, "power 0.5": 0.5, "power 0.25": 0.25},
    ),
    Assumption(
        "region that breaks the bandwidth check",
        (
            Level("is left out"),
            Level("gives fewer: BACE", (), _give(_BACE, "partial_fill")),
            Level("gives fewer: all", (), _give(POLICIES, "partial_fill")),
        ),
    ),
    _patience("patience of BACE", _BACE),
    _patience("patience of the baselines", BASELINES),
    Assumption(
        "a blocked job",
        (
            Level("BACE skips it"),
            Level("all skip it", (), _give(BASELINES, "skip_blocked")),
            Level("none skips it", (), _give(_BACE, "skip_blocked=false")),
        ),
    ),
    _numbers(
        "t_comm between regions",
        "pipeline.t_comm",
        {"reserved": "reserved", "residual": "residual", "as inside": "hidden"},
    ),
    _numbers(
        "Gbit/s inside a region",
        "pipeline.intra_gbps",
        {"25": 25.0, "10": 10.0, "100": 100.0, "inf": "inf"},
    ),
    Assumption(
        "equal paths",
        (
            Level("first start wins"),
            Level(
                "last start wins",
                (),
                _give([p for p in _BACE if p != "bace-no-pathfinder"], "ties=last"),
            ),
        ),
    ),
)

PAPER_SETTING: Setting = (0,) * len(ASSUMPTIONS)

#: The claims that the score is about, each number of Figs. 4-8 once.
SCORED = tuple(claim for claim in CLAIMS if claim.value is not None and not claim.repeats)


def overrides_of(setting: Setting) -> list[str]:
    """What the setting changes in the scenario `BASE`."""
    return [
        override
        for assumption, level in zip(ASSUMPTIONS, setting, strict=True)
        for override in assumption.levels[level].scenario
    ]


def options_of(setting: Setting) -> dict[str, str]:
    """Policy -> its options under the setting, as after the colon; none where it has none."""
    found: dict[str, list[str]] = {}
    for assumption, level in zip(ASSUMPTIONS, setting, strict=True):
        for policy, option in assumption.levels[level].options.items():
            found.setdefault(policy, []).append(option)
    return {policy: ",".join(found[policy]) for policy in POLICIES if policy in found}


def describe(setting: Setting) -> dict[str, str]:
    """Assumption -> level, by name."""
    pairs = zip(ASSUMPTIONS, setting, strict=True)
    return {assumption.name: assumption.levels[level].name for assumption, level in pairs}


def random_setting(seed: int, index: int) -> Setting:
    """Setting number `index` of a search: every level of every assumption is equally likely."""
    rng = np.random.default_rng([seed, index])
    return tuple(int(rng.integers(len(assumption.levels))) for assumption in ASSUMPTIONS)


def neighbours(setting: Setting) -> Iterator[Setting]:
    """All settings that differ in one assumption."""
    for i, assumption in enumerate(ASSUMPTIONS):
        for level in range(len(assumption.levels)):
            if level != setting[i]:
                yield (*setting[:i], level, *setting[i + 1 :])


@dataclass(frozen=True)
class Result:
    """Our value of every claim in one setting; empty where it cannot be run."""

    setting: Setting
    values: dict[str, float] = field(default_factory=dict)  # Claim.name -> ours
    problem: str = ""

    @property
    def score(self) -> float:
        """See `score`; infinite where the setting cannot be run."""
        return score(self.values) if self.values else float("inf")


def score(values: Mapping[str, float], claims: Sequence[Claim] = SCORED) -> float:
    """Mean squared log ratio of our values to the paper's: 0.01 is 10 % off on average."""
    logs = [np.log(values[claim.name] / claim.value) for claim in claims if claim.value is not None]
    return float(np.mean(np.square(logs)))


def claim_value(claim: Claim, logs: Mapping[str, FloatArray]) -> float:
    """Our value of a claim: geometric means over workloads of the ratios of its pairs.

    Args:
        claim: The claim.
        logs: Policy -> logarithms of the claim's metric in the claim's setting, `(workloads,)`.
    """
    means = [float(np.mean(logs[pair.above] - logs[pair.below])) for pair in claim.pairs]
    return float(np.exp(max(means) if claim.kind == "most" else min(means)))


def log_metrics(
    instances: Sequence[Instance], options: Mapping[str, Options]
) -> dict[str, dict[str, FloatArray]]:
    """Play the instances, which are of one cluster and size, with every policy.

    Returns:
        Metric -> policy -> logarithms of average JCT (s) or total cost (USD), `(instances,)`.

    Raises:
        DeadlockError: Naming the policy.
    """
    first = instances[0]
    state = allocate_state(first.n_regions, first.n_jobs)
    out = allocate_sequence(first.n_jobs, first.n_regions)
    scratch = allocate_scratch(first.n_regions, first.n_jobs, first.arrays.k_star.size)
    found: dict[str, dict[str, FloatArray]] = {"jct": {}, "cost": {}}
    for policy, chosen in options.items():
        jct_s, cost_usd = np.empty(len(instances)), np.empty(len(instances))
        for i, instance in enumerate(instances):
            arrays, scales = instance.arrays, objective_scales(instance)
            reset(arrays, state, np.inf)
            if play_policy(arrays, state, chosen, scales, scratch, out, 0)[0] == np.inf:
                raise DeadlockError(f"{policy} waits although nothing lies ahead")
            jct_s[i] = np.mean(state.finish_s - instance.arrays.arrival_s)
            cost_usd[i] = state.cost_usd.sum()
        found["jct"][policy], found["cost"][policy] = np.log(jct_s), np.log(cost_usd)
    return found


def evaluate(setting: Setting, seed: int, draws: int) -> Result:
    """Our value of every claim in a setting, over `draws` workloads of a run with `seed`.

    A setting in which a scenario cannot be built or a policy deadlocks has no values: no claim
    holds in it, and its score is infinite.
    """
    given = options_of(setting)
    options = {p: heuristic_options(f"{p}:{given[p]}" if p in given else p) for p in POLICIES}
    values: dict[str, float] = {}
    try:
        base = load_scenario(BASE, overrides_of(setting))
        for name, claims in _claims_by_setting().items():
            sampler = Sampler(_scaled(base, name))
            instances = [sampler.draw(episode_seed(seed, i)) for i in range(draws)]
            about = {policy for claim in claims for pair in claim.pairs for policy in pair}
            logs = log_metrics(instances, {p: options[p] for p in POLICIES if p in about})
            for claim in claims:
                values[claim.name] = claim_value(claim, logs[claim.metric])
    except (ConfigError, DeadlockError) as error:
        return Result(setting, problem=str(error))
    return Result(setting, values)


def _claims_by_setting() -> dict[str, list[Claim]]:
    found: dict[str, list[Claim]] = {}
    for claim in CLAIMS:
        found.setdefault(claim.setting, []).append(claim)
    return found


def _scaled(base: Scenario, name: str) -> Scenario:
    """The scenario of one of the paper's settings, without parsing a file again."""
    data = base
    for override in SETTINGS[name]:
        path, _, text = override.partition("=")
        table, field_name = path.split(".")
        part = getattr(data, table)
        value = type(part)(**{**part.model_dump(), field_name: json.loads(text)})
        data = data.model_copy(update={table: value})
    return data
