"""The pydantic models of a scenario file: fields, units in their names, and what must agree.

`bace_env.config` loads them; `bace_env.scenario` (and `series`) convert the units once.
"""

import difflib
import hashlib
import json
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from bace_env.transformer import Architecture


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be finite")
    # So that no product or quotient of fields overflows.
    if value and not 1e-15 <= abs(value) <= 1e15:
        raise ValueError("must be 0 or of a magnitude from 1e-15 to 1e15")
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be printable, on one line")
    return value


Finite = Annotated[float, AfterValidator(_finite)]
Positive = Annotated[Finite, Field(gt=0)]
NonNegative = Annotated[Finite, Field(ge=0)]
Count = Annotated[int, Field(ge=1, le=10**15)]
CountOrZero = Annotated[int, Field(ge=0, le=10**15)]
GpuCount = Annotated[int, Field(ge=1, le=1_000_000)]  # t_comp is tabulated for every k up to it
Name = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_printable)]


def _infinity(value: object) -> object:
    return math.inf if value == "inf" else value


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _no_duplicates(names: Sequence[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} must differ, got {name!r} twice")
        seen.add(name)


def _beyond(value: object) -> object:
    return "repeat" if value == "wrap" else value


#: After the last value of a series: from the first again, the last for ever, or the run fails.
Beyond = Annotated[Literal["repeat", "hold", "error"], BeforeValidator(_beyond)]
PriceUnit = Literal["USD/kWh", "USD/MWh"]
CarbonUnit = Literal["g/kWh"]  # of CO2 equivalents


class Series(_Model):
    """A value that changes in time: `values[i]` holds for `step_h` from `i * step_h - offset_h`."""

    values: Annotated[list[Finite], Field(min_length=1)]
    step_h: Annotated[Finite, Field(ge=1 / 3600)] = 1.0  # every step is an event
    offset_h: NonNegative = 0.0  # this much of the series lies before time 0
    beyond: Beyond = "repeat"

    @model_validator(mode="after")
    def _check(self) -> Self:
        length_h = self.step_h * len(self.values)
        if self.beyond != "repeat" and self.offset_h >= length_h:
            raise ValueError(
                f"offset_h: the series is {length_h:.12g} h long, so it must be less than that "
                f'unless beyond = "repeat", got {self.offset_h}'
            )
        return self

    def per_kwh(self) -> list[float]:
        """The values in the unit of the region's field: USD/kWh or g/kWh."""
        return self.values


class PriceSeries(Series):
    """An electricity price that changes in time."""

    unit: PriceUnit = "USD/kWh"

    def per_kwh(self) -> list[float]:
        """The values in USD/kWh."""
        divisor = 1000.0 if self.unit == "USD/MWh" else 1.0
        return [value / divisor for value in self.values]


class CarbonSeries(Series):
    """A carbon intensity that changes in time."""

    values: Annotated[list[NonNegative], Field(min_length=1)]
    unit: CarbonUnit = "g/kWh"


class Generator(_Model):
    """A synthetic series of our own making, by the hour; `bace_env.generators` has the formulas.

    Sizes are relative to `mean`, which the values have exactly. Hour 0 is time 0, a Monday 00:00.
    """

    generator: Literal["diurnal", "weekly", "spiky"]
    mean: Positive
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0
    hours: Annotated[int, Field(ge=1, le=100_000)] = 168
    wave: NonNegative = 0.35  # of the day: half the difference between its peak and its trough
    peak_hour: Annotated[Finite, Field(ge=0, lt=24)] | None = None  # default: drawn
    residual: NonNegative = 0.27  # standard deviation of what is left, which fades over hours
    persistence: Annotated[Finite, Field(ge=0, lt=1)] = 0.9  # of the residual from hour to hour
    least: Finite = 0.05  # no value is lower, before all are scaled to the mean
    weekend: Annotated[Finite, Field(gt=0)] | None = None  # weekly: factor of days 6 and 7 (0.75)
    spike_share: Annotated[Finite, Field(ge=0, le=1)] | None = None  # spiky: of the hours (0.02)
    spike_size: NonNegative | None = None  # spiky: mean height of a spike (4)
    beyond: Beyond = "repeat"

    @model_validator(mode="after")
    def _check(self) -> Self:
        of = {"weekend": "weekly", "spike_share": "spiky", "spike_size": "spiky"}
        for field, generator in of.items():
            value = getattr(self, field)
            if value is not None and self.generator != generator:
                raise ValueError(
                    f'{field}: goes with generator = "{generator}", '
                    f"got {value} with {self.generator!r}"
                )
        if self.least >= 1:
            raise ValueError(f"least: must be less than 1, the mean, got {self.least}")
        return self


class SeriesFile(_Model):
    """Where a series stands that is too long for the scenario file: a column of a CSV beside it.

    `bace_env.config` reads it and puts a `PriceSeries` or `CarbonSeries` in its place.
    """

    file: Annotated[str, Field(min_length=1)]
    series: Annotated[str, Field(min_length=1)] | None = None  # default: the region's name
    beyond: Beyond = "error"


class PriceFile(SeriesFile):
    """Prices in a CSV file."""

    unit: PriceUnit = "USD/kWh"


class CarbonFile(SeriesFile):
    """Carbon intensities in a CSV file."""

    unit: CarbonUnit = "g/kWh"


#: Field of a region that may be a series -> what describes a file of it.
SERIES_FILES: dict[str, type[SeriesFile]] = {
    "price_usd_per_kwh": PriceFile,
    "carbon_g_per_kwh": CarbonFile,
}


def _kind(value: object) -> str:
    if isinstance(value, Generator) or (isinstance(value, dict) and "generator" in value):
        return "synthetic"
    return "series" if isinstance(value, dict | Series) else "number"


#: Told apart by kind, so that an error speaks of the one that the user meant.
Price = Annotated[
    Annotated[Finite, Tag("number")]
    | Annotated[PriceSeries, Tag("series")]
    | Annotated[Generator, Tag("synthetic")],
    Discriminator(_kind),
]
Carbon = Annotated[
    Annotated[NonNegative, Tag("number")]
    | Annotated[CarbonSeries, Tag("series")]
    | Annotated[Generator, Tag("synthetic")],
    Discriminator(_kind),
]


class Region(_Model):
    """A region: GPUs, electricity price, and its own bandwidth where links follow from it."""

    name: Name
    gpus: GpuCount
    price_usd_per_kwh: Price
    carbon_g_per_kwh: Carbon | None = None  # gCO2 per kWh; of all regions or of none
    egress_usd_per_gb: NonNegative = 0.0  # for each 10^9 bytes that leave for another region
    bandwidth_gbps: Positive | None = None
    power_w: NonNegative | None = None  # per GPU; default: that of [gpu]
    pue: Annotated[Finite, Field(ge=1)] | None = None  # default: that of [gpu]


class Link(_Model):
    """A link between two regions, both ways unless `both_ways = false`."""

    source: Name
    target: Name
    gbps: NonNegative
    latency_ms: NonNegative = 0.0
    both_ways: bool = True


class Network(_Model):
    """Links between regions: `mean` of the two regions' bandwidth, or those `listed`."""

    rule: Literal["mean", "listed"] = "mean"
    latency_ms: NonNegative = 0.0  # one way, of every link under `mean`
    flows: Count = 1  # parallel flows: multiplies the listed Gbit/s
    links: list[Link] = []


class Gpu(_Model):
    """The GPU of every region."""

    name: str = "RTX A6000"
    peak_tflops: Positive = 154.8
    efficiency: Annotated[Finite, Field(gt=0, le=1)] = 0.47
    power_w: NonNegative = 300.0
    pue: Annotated[Finite, Field(ge=1)] = 1.0
    usable_memory_gib: Positive = 44.0


class Pipeline(_Model):
    """What the cost model assumes; `docs/model.md` discusses each entry."""

    form: Literal["uncapped", "layered"] = "uncapped"
    t_comm: Literal["reserved", "residual", "hidden"] = "reserved"
    # inf (in JSON "inf"): a hop inside a region costs nothing.
    intra_gbps: Annotated[float, BeforeValidator(_infinity), Field(ge=1e-15)] = 25.0
    sequence_tokens: Count = 2048
    micro_batch_samples: Count = 1
    micro_batches: Count | None = None  # M of every job, of batch_size / M samples each
    bytes_per_value: Count = 2
    pass_flops: Positive = 1.0  # mean of forward and backward work, in forwards: 1 LoRA, 1.5 full
    stage_overhead_ms: NonNegative = 0.5
    scaling_exponent: Annotated[Finite, Field(ge=0.5, le=2)] = 1.0  # uncapped: C / k**exponent + o
    layer_overhead_ms: NonNegative = 0.05
    k_max: Count | None = None  # most GPUs of any job, besides what `form` allows
    memory_minimum: bool = False  # k_min from the model's memory; else 1
    bytes_per_parameter: Positive = 2.0  # with memory_minimum: 2 LoRA in bf16, 18 full Adam

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.micro_batches is not None and self.micro_batch_samples != 1:
            raise ValueError(
                "give either micro_batches or micro_batch_samples, "
                f"got {self.micro_batches} and {self.micro_batch_samples}"
            )
        if self.scaling_exponent != 1.0 and self.form != "uncapped":
            raise ValueError(
                f'scaling_exponent goes with form = "uncapped", got {self.scaling_exponent}'
            )
        return self


class Measured(_Model):
    """A profiled model: times at some numbers of GPUs, of one micro-batch or of a whole run."""

    gpus: Annotated[list[GpuCount], Field(min_length=1)]
    t_comp_ms: list[Positive] | None = None
    run_time_h: list[Positive] | None = None
    iterations: Count | None = None  # of the run that took run_time_h

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.t_comp_ms is None) == (self.run_time_h is None):
            raise ValueError("give either t_comp_ms or run_time_h")
        values = self.t_comp_ms if self.run_time_h is None else self.run_time_h
        if values is not None and len(values) != len(self.gpus):
            raise ValueError(f"needs one time per entry of gpus, got {len(values)} for {self.gpus}")
        if sorted(set(self.gpus)) != self.gpus:
            raise ValueError(f"gpus must ascend, got {self.gpus}")
        if (self.run_time_h is None) != (self.iterations is None):
            raise ValueError("iterations goes with run_time_h, and run_time_h needs it")
        return self


class ArchitectureSpec(_Model):
    """Dimensions of a model beside `hidden` and `layers`; see `transformer.Architecture`."""

    heads: Count
    kv_heads: Count
    head_dim: Count
    ffn: Count
    vocab: Count
    matrices: Literal[2, 3] = 3
    experts: CountOrZero = 0
    active_experts: CountOrZero = 0
    window: CountOrZero = 0
    window_every: Count = 1
    tied_embedding: bool = False


class LanguageModel(_Model):
    """A model: parameters (`active_params_b` per token), layers, hidden size, or measured times."""

    name: Name
    params_b: Positive | None = None
    active_params_b: Positive | None = None  # default: params_b
    layers: Annotated[int, Field(ge=1, le=10_000)] | None = None
    hidden: Count | None = None
    arch: ArchitectureSpec | None = None
    measured: Measured | None = None
    activation_mb: Positive | None = None  # default: micro-batch * sequence * hidden * bytes
    k_min: Count | None = None
    k_max: Count | None = None

    def architecture(self) -> Architecture | None:
        """The full dimensions, where the file gives them."""
        if self.arch is None or self.hidden is None or self.layers is None:
            return None
        return Architecture(hidden=self.hidden, layers=self.layers, **self.arch.model_dump())


class Dataset(_Model):
    """A data set; `tokens` counts where the workload is measured in tokens."""

    name: Name
    samples: Count
    tokens: Count | None = None


class Job(_Model):
    """A training job; without `dataset` each episode draws one."""

    name: Name
    model: Name
    batch_size: Count
    dataset: Name | None = None
    epochs: Positive = 1.0
    iterations: CountOrZero | None = None  # instead of a data set
    arrival_h: NonNegative | None = None


#: Arrivals that are drawn, at a mean gap or a load.
RANDOM_ARRIVALS = ("poisson", "bursty", "diurnal")


class Workload(_Model):
    """Which jobs come, and when. More jobs than are listed repeat the list in order."""

    n_jobs: Annotated[int, Field(ge=1, le=1_000_000)] | None = None  # default: those listed
    unit: Literal["samples", "tokens"] = "samples"  # an iteration takes batch_size samples | packed
    # Data sets of s samples count as g * (s / g)**spread, g the geometric mean of all: 0 makes them
    # equal, 1 leaves them as they are.
    dataset_spread: Annotated[Finite, Field(ge=0, le=4)] = 1.0
    arrivals: Literal["at_zero", "listed", "poisson", "bursty", "diurnal"] = "at_zero"
    mean_interarrival_h: Positive | None = None
    load: Positive | None = None  # instead: expected least work per second over all GPUs
    # bursty: a share of the time, in bursts of this mean length, jobs come as many times as often.
    burst_factor: Annotated[Finite, Field(ge=1)] | None = None  # (4)
    burst_share: Annotated[Finite, Field(gt=0, lt=1)] | None = None  # (0.2)
    burst_h: Positive | None = None  # (2)
    # diurnal: the rate is the mean * (1 + amplitude * cos(2 pi (t - peak) / 24 h)).
    amplitude: Annotated[Finite, Field(ge=0, le=1)] | None = None  # (0.5)
    peak_h: Annotated[Finite, Field(ge=0, lt=24)] | None = None  # hours after time 0 (14)

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [f for f in ("mean_interarrival_h", "load") if getattr(self, f) is not None]
        if self.arrivals in RANDOM_ARRIVALS:
            if len(given) != 1:
                raise ValueError(
                    f'arrivals = "{self.arrivals}" needs either mean_interarrival_h or load, '
                    f"got {' and '.join(given) or 'neither'}"
                )
        elif given:
            raise ValueError(
                f'{given[0]} goes with arrivals = "poisson", "bursty" or "diurnal", '
                f"got {self.arrivals!r}"
            )
        of = {"burst_factor": "bursty", "burst_share": "bursty", "burst_h": "bursty"}
        for field, kind in (of | {"amplitude": "diurnal", "peak_h": "diurnal"}).items():
            if getattr(self, field) is not None and self.arrivals != kind:
                raise ValueError(f'{field} goes with arrivals = "{kind}", got {self.arrivals!r}')
        factor, share = self.bursts[:2]
        if factor * share > 1:
            raise ValueError(
                "burst_factor: times burst_share must be at most 1, as no more than all jobs come "
                f"in bursts, got {factor} * {share}"
            )
        return self

    @property
    def bursts(self) -> tuple[float, float, float]:
        """Factor, share of the time, and mean length in hours of the bursts of `bursty`."""
        return (
            4.0 if self.burst_factor is None else self.burst_factor,
            0.2 if self.burst_share is None else self.burst_share,
            2.0 if self.burst_h is None else self.burst_h,
        )

    @property
    def wave(self) -> tuple[float, float]:
        """Amplitude, and hour of the peak, of `diurnal`."""
        return (
            0.5 if self.amplitude is None else self.amplitude,
            14.0 if self.peak_h is None else self.peak_h,
        )


class Window(_Model):
    """Which jobs count in per-job metrics: all run, those that arrive early or late do not count.

    Hours, or shares of the time from 0 to the last arrival.
    """

    warmup_h: NonNegative | None = None
    warmup_share: Annotated[Finite, Field(ge=0, lt=1)] | None = None
    drain_h: NonNegative | None = None
    drain_share: Annotated[Finite, Field(ge=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("warmup", "drain"):
            hours, share = getattr(self, f"{name}_h"), getattr(self, f"{name}_share")
            if hours is not None and share is not None:
                raise ValueError(f"give either {name}_h or {name}_share, got {hours} and {share}")
        shares = (self.warmup_share or 0.0) + (self.drain_share or 0.0)
        if shares >= 1:
            raise ValueError(f"warmup_share and drain_share leave nothing, got {shares} in all")
        return self


class Scale(_Model):
    """Factors on the whole cluster, for sweeps."""

    bandwidth: Positive = 1.0  # of the links between regions
    gpus: Positive = 1.0  # rounded to whole GPUs, half up


class Objective(_Model):
    """The weighted objective: avg JCT / jct_ref + cost_weight * cost / cost_ref."""

    cost_weight: NonNegative = 0.3


class Import(_Model):
    """What `bace_env.io` made a part of the scenario from, and how: a record, used by nothing."""

    format: Name
    files: list[str]
    sha256: list[str]  # of the files
    options: dict[str, str | int | float | bool] = {}


def parse_instant(value: object) -> datetime:
    """A time with its offset, also as text (JSON has no times); ValueError for all else."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, datetime):
        raise ValueError("must be a time such as 2024-03-01T00:00:00Z")
    if value.tzinfo is None:
        raise ValueError("must state its offset from UTC, such as 2024-03-01T00:00:00Z")
    return value


class Scenario(_Model):
    """A whole scenario: cluster, models, data sets, jobs and assumptions."""

    name: Name
    description: str = ""
    # The instant of time 0, which files of series need; set from theirs where left out.
    start: Annotated[datetime, BeforeValidator(parse_instant)] | None = None
    imports: list[Import] = []
    regions: Annotated[list[Region], Field(min_length=1)]
    network: Network = Network()
    gpu: Gpu = Gpu()
    pipeline: Pipeline = Pipeline()
    models: Annotated[list[LanguageModel], Field(min_length=1)]
    datasets: list[Dataset] = []
    jobs: Annotated[list[Job], Field(min_length=1)]
    workload: Workload = Workload()
    window: Window = Window()
    scale: Scale = Scale()
    objective: Objective = Objective()
    # Policy -> its options (what follows the colon); read by `python -m eval.paper` alone.
    policies: dict[Name, str] = {}

    @field_validator("regions", "models", "datasets", "jobs")
    @classmethod
    def _names_differ(cls, items: list[Any]) -> list[Any]:
        _no_duplicates([item.name for item in items], "names")
        return items

    @model_validator(mode="after")
    def _references(self) -> Self:
        _check_size(self.regions, self.scale)
        _check_carbon(self.regions)
        _check_network(self.regions, self.network)
        _check_models(self.models, self.pipeline)
        _check_jobs(self)
        _check_arrivals(self)
        return self

    def fingerprint(self) -> str:
        """Sixteen hex digits that name the content, whatever file it came from."""
        text = json.dumps(self.model_dump(mode="json", exclude={"imports"}), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def nearest(name: str, known: Sequence[str]) -> str:
    """`did you mean 'x'?` where a known name is near, else the list of known names."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def _require_known(name: str, known: Sequence[str], what: str) -> None:
    if name not in known:
        raise ValueError(f"{what}: unknown name {name!r}; {nearest(name, known)}")


def _check_size(regions: list[Region], scale: Scale) -> None:
    gpus = scale.gpus * sum(region.gpus for region in regions)
    if gpus > 1_000_000:
        raise ValueError(
            f"regions.*.gpus: at most 1000000 in all, got {gpus:.12g} (scale.gpus = {scale.gpus})"
        )


def _check_carbon(regions: list[Region]) -> None:
    without = [region.name for region in regions if region.carbon_g_per_kwh is None]
    if 0 < len(without) < len(regions):
        raise ValueError(
            f"regions.{without[0]}.carbon_g_per_kwh: missing; give it for all regions or for none"
        )
    for region in regions:
        carbon = region.carbon_g_per_kwh
        if isinstance(carbon, Generator) and carbon.least < 0:
            raise ValueError(
                f"regions.{region.name}.carbon_g_per_kwh.least: must be >= 0, got {carbon.least}"
            )


def _check_network(regions: list[Region], network: Network) -> None:
    if network.rule == "listed":
        _check_links(regions, network)
        return
    if network.links or network.flows != 1:
        raise ValueError('network.links and network.flows go with rule = "listed"')
    for region in regions:
        if region.bandwidth_gbps is None and len(regions) > 1:
            raise ValueError(
                f'regions.{region.name}.bandwidth_gbps: network.rule = "mean" needs it'
            )


def _check_links(regions: list[Region], network: Network) -> None:
    names = [region.name for region in regions]
    seen: set[tuple[str, str]] = set()
    for link in network.links:
        where = f"network.links {link.source} -> {link.target}"
        for end in (link.source, link.target):
            _require_known(end, names, where)
        if link.source == link.target:
            raise ValueError(f"{where}: a link must join two regions")
        directions = [(link.source, link.target), (link.target, link.source)]
        for direction in directions[: 2 if link.both_ways else 1]:
            if direction in seen:
                raise ValueError(
                    f"{where}: {direction[0]} -> {direction[1]} is given twice "
                    "(both_ways = false where the directions differ)"
                )
            seen.add(direction)
    joined = {name for direction in seen for name in direction}
    for region in regions:
        if region.bandwidth_gbps is not None and region.name not in joined and len(regions) > 1:
            raise ValueError(
                f'regions.{region.name}.bandwidth_gbps: network.rule = "listed" does not use it, '
                f"and no link joins the region, got {region.bandwidth_gbps}"
            )


def _check_models(models: list[LanguageModel], pipeline: Pipeline) -> None:
    for model in models:
        where = f"models.{model.name}"
        needed: dict[str, object] = {}
        if model.activation_mb is None:
            needed["hidden"] = model.hidden
        if model.measured is None:
            if pipeline.form == "uncapped":
                needed["params_b"] = model.params_b
            else:
                needed |= {"layers": model.layers, "hidden": model.hidden, "arch": model.arch}
        if pipeline.memory_minimum and model.k_min is None:
            needed |= {"layers": model.layers, "hidden": model.hidden, "arch": model.arch}
        for field, value in needed.items():
            if value is None:
                raise ValueError(
                    f"{where}.{field}: missing, and needed with pipeline.form = "
                    f"{pipeline.form!r}, memory_minimum = {pipeline.memory_minimum}"
                )
        if model.k_min is not None and model.k_max is not None and model.k_min > model.k_max:
            raise ValueError(f"{where}.k_min: must be <= k_max = {model.k_max}, got {model.k_min}")


def _check_jobs(scenario: Scenario) -> None:
    models = [model.name for model in scenario.models]
    datasets = [dataset.name for dataset in scenario.datasets]
    for job in scenario.jobs:
        where = f"jobs.{job.name}"
        _require_known(job.model, models, f"{where}.model")
        if job.dataset is not None:
            _require_known(job.dataset, datasets, f"{where}.dataset")
        if job.iterations is not None and job.dataset is not None:
            raise ValueError(f"{where}: give iterations or a dataset, not both")
        if job.iterations is not None and job.epochs != 1.0:
            raise ValueError(
                f"{where}.epochs: goes with a dataset, not with iterations, got {job.epochs}"
            )
        if job.iterations is None and not datasets:
            raise ValueError(f"{where}: needs iterations, or [[datasets]] to draw from")
    if scenario.workload.unit == "tokens":
        for dataset in scenario.datasets:
            if dataset.tokens is None:
                raise ValueError(
                    f'datasets.{dataset.name}.tokens: workload.unit = "tokens" needs it'
                )


def _check_arrivals(scenario: Scenario) -> None:
    listed = scenario.workload.arrivals == "listed"
    previous = 0.0
    for job in scenario.jobs:
        where = f"jobs.{job.name}.arrival_h"
        if listed != (job.arrival_h is not None):
            raise ValueError(
                f'{where}: goes with [workload] arrivals = "listed", '
                f"got {job.arrival_h} with {scenario.workload.arrivals!r}"
            )
        if job.arrival_h is not None:
            if job.arrival_h < previous:
                raise ValueError(
                    f"{where}: arrivals must not descend, got {job.arrival_h} after {previous}"
                )
            previous = job.arrival_h
    n_jobs = scenario.workload.n_jobs
    if listed and n_jobs is not None and n_jobs > len(scenario.jobs):
        raise ValueError(
            f"workload.n_jobs: at most the {len(scenario.jobs)} listed jobs with listed arrivals, "
            f"got {n_jobs}"
        )
