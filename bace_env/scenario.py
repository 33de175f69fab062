"""From a scenario to the arrays of one episode; the only randomness of the world is here."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bace_env import pipeline, transformer
from bace_env.arrivals import bursty_times, diurnal_times
from bace_env.candidates import hostable
from bace_env.errors import ConfigError
from bace_env.instance import Instance
from bace_env.schema import (
    Dataset,
    Job,
    LanguageModel,
    Measured,
    Scenario,
    Window,
)
from bace_env.series import SeriesSteps, series_steps
from bace_env.streams import choices
from bace_env.types import Arrays, FloatArray, IntArray, StepSeries

_BYTES_PER_GBIT = 1e9 / 8
_GIB = 2**30
_MAX_SEED = 2**53  # larger integers do not survive JSON


def episode_seed(seed: int, episode: int) -> int:
    """The seed of episode `episode` of a run with `seed`; episode 0 has the run's own seed.

    So `--seed S --episodes 1` replays the workload of any row of results whose seed is S.

    Raises:
        ConfigError: Unless 0 <= seed < 2**53.
    """
    if not 0 <= seed < _MAX_SEED:
        raise ConfigError(f"seed: must be an integer from 0 to 2**53 - 1, got {seed}")
    if episode == 0:
        return seed
    word = np.random.SeedSequence(seed, spawn_key=(episode,)).generate_state(1, np.uint64)[0]
    return int(word) % _MAX_SEED


@dataclass(frozen=True)
class _Profile:
    name: str
    comp_s: FloatArray  # (k_max + 1,)
    intra_s: float
    act_bytes: float
    micro_batches: int
    k_min: int
    k_max: int


class Sampler:
    """The cluster of a scenario, built once, and the workloads drawn on it.

    `draw` is a function of the scenario and the seed alone, and cheap: all that does not depend on
    the seed is made here.

    Attributes:
        scenario: The scenario.
        arrays: The numbers, with the first workload that may be drawn.

    Raises:
        ConfigError: Naming each job that not even the empty cluster could host.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        jobs, self._job_names = _listed_jobs(scenario)
        gpus = _scaled_gpus(scenario)
        link_bytes_per_s, link_latency_s = _links(scenario)
        models = {model.name: model for model in scenario.models}
        prices = [series_steps(region.price_usd_per_kwh) for region in scenario.regions]
        carbon = [
            series_steps(region.carbon_g_per_kwh)
            for region in scenario.regions
            if region.carbon_g_per_kwh is not None
        ]
        self._price_end_s = min(series.end_s for series in (*prices, *carbon))
        self._carbon = tuple(
            StepSeries(steps.times_s, steps.values, steps.cumulative(), steps.period_s)
            for steps in carbon
        )
        profiles: dict[tuple[str, int], int] = {}
        for job in jobs:
            profiles.setdefault((job.model, job.batch_size), len(profiles))
        made = [
            _profile(scenario, models[model], batch, int(gpus.sum())) for model, batch in profiles
        ]
        job_profile = [profiles[job.model, job.batch_size] for job in jobs]
        self._profile_names = tuple(profile.name for profile in made)
        self._region_names = tuple(region.name for region in scenario.regions)
        self._iterations = _iteration_table(scenario, jobs)
        self._job_index = np.arange(len(jobs))
        self._generator = np.random.Generator(np.random.Philox(key=[0, 0]))
        self._fresh: dict[str, Any] = dict(self._generator.bit_generator.state)
        self.arrays = Arrays(
            gpus=gpus,
            link_bytes_per_s=link_bytes_per_s,
            link_latency_s=link_latency_s,
            egress_usd_per_byte=np.array([r.egress_usd_per_gb / 1e9 for r in scenario.regions]),
            t_comm_form=pipeline.T_COMM_FORMS.index(scenario.pipeline.t_comm),
            job_profile=np.array(job_profile, dtype=np.int64),
            iterations=self._iterations[:, 0].copy(),
            arrival_s=np.array([3600.0 * (job.arrival_h or 0.0) for job in jobs]),
            **_price_arrays(scenario, prices),
            **_profile_arrays(made),
        )
        self._refuse_unhostable()
        self._gap_s = self._mean_gap_s()

    def draw(self, seed: int) -> Instance:
        """The workload of one episode; `seed` is that of the episode, see `episode_seed`."""
        return self.instance_of(seed, *self.draw_jobs(seed))

    def instance_of(self, seed: int, iterations: FloatArray, arrival_s: FloatArray) -> Instance:
        """The workload of an episode whose jobs are drawn already."""
        return Instance(
            scenario=self.scenario.name,
            seed=seed,
            region_names=self._region_names,
            job_names=self._job_names,
            profile_names=self._profile_names,
            arrays=self.arrays._replace(iterations=iterations, arrival_s=arrival_s),
            cost_weight=self.scenario.objective.cost_weight,
            price_end_s=self._price_end_s,
            carbon=self._carbon,
            window_s=_window_s(self.scenario.window, arrival_s),
        )

    def draw_jobs(self, seed: int) -> tuple[FloatArray, FloatArray]:
        """What `draw` draws: iterations and arrivals of the jobs, `(N,)` each."""
        n_jobs, n_datasets = self._iterations.shape
        iterations, arrival_s = self.arrays.iterations, self.arrays.arrival_s
        if n_datasets > 1:
            # One stream per source: a source added later leaves the others' draws as they are.
            # Every job consumes one draw, so fixing one job's data set changes no other's.
            drawn = self._stream(seed, _DATASETS).integers(n_datasets, size=n_jobs)
            iterations = self._iterations[self._job_index, drawn]
        if self._gap_s is not None:
            arrival_s = self._draw_arrivals(seed, self._gap_s, n_jobs)
        return iterations, arrival_s

    def draw_rows(self, seeds: IntArray) -> tuple[FloatArray, FloatArray]:
        """What `draw_jobs` draws for each of many seeds, `(B, N)` each."""
        n_jobs, n_datasets = self._iterations.shape
        iterations, arrival_s = np.empty((2, seeds.size, n_jobs))
        iterations[:], arrival_s[:] = self.arrays.iterations, self.arrays.arrival_s
        if n_datasets > 1:
            drawn = choices(seeds, _DATASETS, n_datasets, n_jobs)
            iterations[:] = self._iterations[self._job_index, drawn]
        if self._gap_s is not None:
            for b, seed in enumerate(seeds.tolist()):
                arrival_s[b] = self._draw_arrivals(seed, self._gap_s, n_jobs)
        return iterations, arrival_s

    def _draw_arrivals(self, seed: int, gap_s: float, n: int) -> FloatArray:
        """Arrivals of n jobs at a mean gap: Poisson, or with a rate that changes around it."""
        workload = self.scenario.workload
        if workload.arrivals == "bursty":
            passed = np.cumsum(self._stream(seed, _ARRIVALS).exponential(size=n))
            factor, share, burst_h = workload.bursts
            return bursty_times(
                self._stream(seed, _STATES), gap_s * passed, factor, share, 3600.0 * burst_h
            )
        if workload.arrivals == "diurnal":
            amplitude, peak_h = workload.wave
            return diurnal_times(self._stream(seed, _THINNED), gap_s, n, amplitude, 3600.0 * peak_h)
        return np.cumsum(self._stream(seed, _ARRIVALS).exponential(gap_s, size=n))

    def _mean_gap_s(self) -> float | None:
        """Mean time between arrivals; None where they are not drawn.

        For a load: the mean over the jobs of their expected least work w_j, in GPU-seconds, over
        load * all GPUs. A job that draws its data set draws each equally likely.
        """
        workload = self.scenario.workload
        if workload.mean_interarrival_h is not None:
            return 3600.0 * workload.mean_interarrival_h
        if workload.load is None:
            return None
        arrays = self.arrays
        work = self._iterations.mean(axis=1) * arrays.least_gpu_s[arrays.job_profile]
        gap_s = float(work.mean()) / (workload.load * float(arrays.gpus.sum()))
        if gap_s <= 0.0:
            raise ConfigError("workload.load: the jobs have no work, so no gap gives a load")
        return gap_s

    def draw_cost_weight(self, seed: int, low: float, high: float) -> float:
        """A weight of the cost between `low` and `high` for an episode.

        The cube of a uniform number decides where in between: half of the weights lie in the lowest
        eighth. Uniformly, cost would outweigh JCT in most episodes.
        """
        return low + (high - low) * float(self._stream(seed, _COST_WEIGHT).random()) ** 3

    def _stream(self, seed: int, source: int) -> np.random.Generator:
        """The numbers of `Generator(Philox(key=[seed, source]))`, from one generator set anew."""
        key: Any = self._fresh["state"]["key"]
        key[:] = seed, source
        self._generator.bit_generator.state = self._fresh
        return self._generator

    def _refuse_unhostable(self) -> None:
        arrays = self.arrays
        refused = [p for p in range(arrays.k_star.size) if not hostable(arrays, p)]
        if not refused:
            return
        jobs = [
            f"{name} (k_min {arrays.k_min[p]})"
            for name, p in zip(self._job_names, arrays.job_profile, strict=True)
            if p in refused
        ]
        raise ConfigError(
            f"jobs: not even the empty cluster of {arrays.gpus.sum()} GPUs (largest region "
            f"{arrays.gpus.max()}) and its links could host {', '.join(jobs)}"
        )


_DATASETS, _ARRIVALS, _STATES, _THINNED, _COST_WEIGHT = range(5)  # sources of randomness


def _window_s(window: Window, arrival_s: FloatArray) -> tuple[float, float]:
    """First and last arrival that counts; `(0, inf)` without warm-up and drain.

    Raises:
        ConfigError: No job arrives in between.
    """
    last_s = float(arrival_s[-1])
    first = _hours_or_share(window.warmup_h, window.warmup_share, last_s)
    drain = _hours_or_share(window.drain_h, window.drain_share, last_s)
    until = last_s - drain if drain > 0 else np.inf
    if not ((arrival_s >= first) & (arrival_s <= until)).any():
        raise ConfigError(
            f"window: no job arrives between {first / 3600:.6g} h and {until / 3600:.6g} h, the "
            f"end of the warm-up and the beginning of the drain (last arrival {last_s / 3600:.6g})"
        )
    return first, until


def _hours_or_share(hours: float | None, share: float | None, whole_s: float) -> float:
    return (share or 0.0) * whole_s if hours is None else 3600.0 * hours


def build_instance(scenario: Scenario, seed: int) -> Instance:
    """One workload of the scenario; draw many with one `Sampler`."""
    return Sampler(scenario).draw(seed)


def _listed_jobs(scenario: Scenario) -> tuple[list[Job], tuple[str, ...]]:
    listed = scenario.jobs
    n_jobs = scenario.workload.n_jobs or len(listed)
    jobs = [listed[i % len(listed)] for i in range(n_jobs)]
    rounds = [i // len(listed) + 1 for i in range(n_jobs)]
    names = (f"{j.name}#{n}" if n > 1 else j.name for j, n in zip(jobs, rounds, strict=True))
    return jobs, tuple(names)


def _iteration_table(scenario: Scenario, jobs: list[Job]) -> FloatArray:
    """Iterations of each job with each data set it may draw, `(N, max(D, 1))`."""
    datasets = {dataset.name: dataset for dataset in scenario.datasets}
    table = np.empty((len(jobs), max(len(datasets), 1)))
    for j, job in enumerate(jobs):
        if job.iterations is not None:
            table[j] = job.iterations
        elif job.dataset is not None:
            table[j] = _iterations(scenario, job, datasets[job.dataset])
        else:
            table[j] = [_iterations(scenario, job, dataset) for dataset in datasets.values()]
    return table


def _iterations(scenario: Scenario, job: Job, dataset: Dataset) -> int:
    """I = epochs * samples / batch_size, rounded up; tokens are packed into whole sequences."""
    amount, spread = _amount(scenario, dataset), scenario.workload.dataset_spread
    if spread != 1.0:
        middle = math.exp(
            sum(math.log(_amount(scenario, each)) for each in scenario.datasets)
            / len(scenario.datasets)
        )
        amount = middle * (amount / middle) ** spread
    return math.ceil(job.epochs * amount / job.batch_size)


def _amount(scenario: Scenario, dataset: Dataset) -> float:
    """Samples, or sequences of packed tokens."""
    if scenario.workload.unit == "samples":
        return dataset.samples
    assert dataset.tokens is not None  # _check_jobs
    return dataset.tokens / scenario.pipeline.sequence_tokens


def _scaled_gpus(scenario: Scenario) -> np.ndarray:
    gpus = []
    for region in scenario.regions:
        scaled = math.floor(region.gpus * scenario.scale.gpus + 0.5)
        if scaled < 1:
            raise ConfigError(
                f"scale.gpus: leaves regions.{region.name} without a GPU, "
                f"got {region.gpus} * {scenario.scale.gpus}"
            )
        gpus.append(scaled)
    return np.array(gpus, dtype=np.int64)


def _kw_per_gpu(scenario: Scenario) -> FloatArray:
    gpu = scenario.gpu
    kw = []
    for region in scenario.regions:
        power_w = gpu.power_w if region.power_w is None else region.power_w
        kw.append(power_w / 1000.0 * (gpu.pue if region.pue is None else region.pue))
    return np.array(kw)


def _links(scenario: Scenario) -> tuple[FloatArray, FloatArray]:
    regions, network = scenario.regions, scenario.network
    n = len(regions)
    gbps, latency_ms = np.zeros((n, n)), np.zeros((n, n))
    if network.rule == "mean":
        own = np.array([region.bandwidth_gbps or 0.0 for region in regions])
        gbps = (own[:, None] + own[None, :]) / 2
        latency_ms[:] = network.latency_ms
    index = {region.name: r for r, region in enumerate(regions)}
    for link in network.links:
        ends = [(index[link.source], index[link.target])]
        if link.both_ways:
            ends.append(ends[0][::-1])
        for u, v in ends:
            gbps[u, v] = link.gbps * network.flows
            latency_ms[u, v] = link.latency_ms
    np.fill_diagonal(gbps, 0.0)
    np.fill_diagonal(latency_ms, 0.0)
    return gbps * (scenario.scale.bandwidth * _BYTES_PER_GBIT), latency_ms / 1000.0


def _price_arrays(scenario: Scenario, steps: list[SeriesSteps]) -> dict[str, Any]:
    kw = _kw_per_gpu(scenario)
    n, longest = len(steps), max(price.values.size for price in steps)
    times = np.full((n, longest), np.inf)
    prices, cumulative = np.zeros((n, longest)), np.zeros((n, longest))
    for r, price in enumerate(steps):
        m = price.values.size
        times[r, :m] = price.times_s
        prices[r, :m] = price.values
        cumulative[r, :m] = price.cumulative()
    period = np.array([price.period_s for price in steps])
    counts = np.array([price.values.size for price in steps], dtype=np.int64)
    return {
        "kw_per_gpu": kw,
        "price_count": counts,
        "price_time_s": times,
        "price_usd_per_kwh": prices,
        "price_cumulative": cumulative,
        "price_period_s": period,
        "price_cycle_s": pipeline.price_cycle_s(times, counts, period),
        "ref_usd_per_gpu_s": _reference_price(kw, steps),
    }


def _reference_price(kw: FloatArray, steps: list[SeriesSteps]) -> float:
    """USD per GPU-second at the lowest time-mean price; see `Instance.cost_ref_usd`."""
    lowest = min(k * price.mean for k, price in zip(kw, steps, strict=True))
    if lowest <= 0:
        lowest = np.mean([k * price.mean_size for k, price in zip(kw, steps, strict=True)])
    return float(lowest) / 3600.0


def single_region_s(scenario: Scenario, model: LanguageModel, batch_size: int) -> FloatArray:
    """Eq. 1 with all hops inside a region for every k, seconds; inf where k is not allowed.

    Shape `(k_max + 1,)`; E_j(k) is this times the iterations.

    Raises:
        ConfigError: The model cannot run on as many GPUs as the cluster has.
    """
    profile = _profile(scenario, model, batch_size, int(_scaled_gpus(scenario).sum()))
    times = pipeline.intra_iteration_s(profile.comp_s, profile.intra_s, profile.micro_batches)
    times[: profile.k_min] = np.inf
    return np.asarray(times)


def _profile(
    scenario: Scenario, model: LanguageModel, batch_size: int, cluster_gpus: int
) -> _Profile:
    setting = scenario.pipeline
    samples: float = setting.micro_batch_samples
    micro_batches = math.ceil(batch_size / samples)
    if setting.micro_batches is not None:
        micro_batches = setting.micro_batches
        samples = batch_size / micro_batches
    if model.activation_mb is not None:
        act_bytes = model.activation_mb * 1e6
    else:
        assert model.hidden is not None  # _check_models
        act_bytes = float(
            transformer.activation_bytes(
                samples,
                setting.sequence_tokens,
                model.hidden,
                setting.bytes_per_value,
            )
        )
    intra_s = act_bytes / (setting.intra_gbps * _BYTES_PER_GBIT)
    limit = min(k for k in (cluster_gpus, setting.k_max, model.k_max) if k is not None)
    if model.measured is not None:
        comp_s = _measured_table(scenario, model, model.measured, intra_s, micro_batches)
    else:
        comp_s = _computed_table(scenario, model, samples, limit)
    comp_s = comp_s[: limit + 1]
    k_min = _k_min(scenario, model, micro_batches, samples)
    if k_min >= comp_s.size:
        raise ConfigError(
            f"models.{model.name}: needs at least {k_min} GPUs, but may use at most "
            f"{comp_s.size - 1} (the cluster has {cluster_gpus})"
        )
    return _Profile(
        name=model.name,
        comp_s=comp_s,
        intra_s=intra_s,
        act_bytes=act_bytes,
        micro_batches=micro_batches,
        k_min=k_min,
        k_max=comp_s.size - 1,
    )


def _measured_table(
    scenario: Scenario,
    model: LanguageModel,
    measured: Measured,
    intra_s: float,
    micro_batches: int,
) -> FloatArray:
    """t_comp(k) of a profiled model, shape `(max(gpus) + 1,)`."""
    gpus = np.array(measured.gpus, dtype=np.int64)
    if measured.t_comp_ms is not None:
        return pipeline.measured_comp_s(gpus, np.array(measured.t_comp_ms) / 1000.0)
    assert measured.run_time_h is not None and measured.iterations is not None
    per_iteration = 3600.0 / measured.iterations * np.array(measured.run_time_h)
    iteration_s = pipeline.measured_comp_s(gpus, per_iteration)
    comp_s = pipeline.comp_from_iteration_time(iteration_s, intra_s, micro_batches)
    if comp_s.min() <= 0:
        raise ConfigError(
            f"models.{model.name}.measured.run_time_h: shorter than its messages alone take "
            f"at pipeline.intra_gbps = {scenario.pipeline.intra_gbps}, got {measured.run_time_h}"
        )
    return comp_s


def _computed_table(
    scenario: Scenario, model: LanguageModel, samples: float, limit: int
) -> FloatArray:
    """t_comp(k) of a micro-batch of so many samples, for k up to what the form allows.

    Shape `(k_max + 1,)`; k_max is `limit` in the `uncapped` form.
    """
    setting, gpu = scenario.pipeline, scenario.gpu
    tokens = samples * setting.sequence_tokens
    seconds_per_flop = setting.pass_flops * tokens / (gpu.efficiency * gpu.peak_tflops * 1e12)
    stage_s, layer_s = setting.stage_overhead_ms / 1000.0, setting.layer_overhead_ms / 1000.0
    if setting.form == "uncapped":
        params_b = model.active_params_b or model.params_b
        assert params_b is not None  # _check_models
        single_s = 2e9 * params_b * seconds_per_flop
        return pipeline.uncapped_comp_s(single_s, limit, stage_s, setting.scaling_exponent)
    arch = model.architecture()
    assert arch is not None  # _check_models
    layer = transformer.layer_forward_flops(arch, setting.sequence_tokens) * seconds_per_flop
    head = transformer.head_forward_flops(arch) * seconds_per_flop
    return pipeline.layered_comp_s(arch.layers, layer + layer_s, head, stage_s)


def _k_min(scenario: Scenario, model: LanguageModel, micro_batches: int, samples: float) -> int:
    setting = scenario.pipeline
    if model.k_min is not None:
        return model.k_min
    if not setting.memory_minimum:
        return 1
    arch = model.architecture()
    assert arch is not None  # _check_models
    k_min = transformer.minimum_gpus(
        arch,
        usable_bytes=scenario.gpu.usable_memory_gib * _GIB,
        bytes_per_parameter=setting.bytes_per_parameter,
        micro_batches=micro_batches,
        micro_batch=samples,
        sequence=setting.sequence_tokens,
    )
    if k_min is None:
        raise ConfigError(
            f"models.{model.name}: one layer with its activations does not fit "
            f"gpu.usable_memory_gib = {scenario.gpu.usable_memory_gib}"
        )
    return k_min


def _profile_arrays(profiles: list[_Profile]) -> dict[str, Any]:
    largest = max(profile.k_max for profile in profiles)
    comp_s = np.full((len(profiles), largest + 1), np.inf)
    iteration_s = np.full_like(comp_s, np.inf)
    for p, profile in enumerate(profiles):
        size = profile.comp_s.size
        comp_s[p, :size] = profile.comp_s
        iteration_s[p, :size] = pipeline.intra_iteration_s(
            profile.comp_s, profile.intra_s, profile.micro_batches
        )
    k_min = np.array([profile.k_min for profile in profiles], dtype=np.int64)
    k = np.arange(largest + 1)
    allowed = (k >= k_min[:, None]) & np.isfinite(comp_s)
    gpu_s = np.where(allowed, k * np.where(allowed, iteration_s, 0.0), np.inf)
    stars = [pipeline.optimal_gpus(iteration_s[p], int(k)) for p, k in enumerate(k_min)]
    return {
        "comp_s": comp_s,
        "iteration_s": iteration_s,
        "least_gpu_s": gpu_s.min(axis=1),
        "intra_s": np.array([profile.intra_s for profile in profiles]),
        "act_bytes": np.array([profile.act_bytes for profile in profiles]),
        "micro_batches": np.array([profile.micro_batches for profile in profiles], dtype=np.int64),
        "k_min": k_min,
        "k_max": np.array([profile.k_max for profile in profiles], dtype=np.int64),
        "k_star": np.array(stars, dtype=np.int64),
    }
