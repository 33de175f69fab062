"""From scenario files to arrays: the paper's tables, units, draws and overrides."""

import math
import tomllib
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from bace_env.config import load_scenario, parse_scenario
from bace_env.errors import ConfigError
from bace_env.instance import Instance
from bace_env.scenario import build_instance, episode_seed

# Table II: GPUs, USD/kWh, Gbit/s.
TABLE_2 = {
    "EU-West": (64, 0.251, 50),
    "US-East-2": (64, 0.156, 90),
    "EU-Central": (16, 0.288, 30),
    "EA-East": (128, 0.191, 70),
    "SEA-South": (32, 0.222, 50),
    "OC-East": (32, 0.295, 70),
}
# Table III: layers, hidden size, batch size.
TABLE_3 = {
    "FLM-101B": (80, 10240, 128),
    "Solar-Open-100B": (48, 4096, 128),
    "Llama-3.1-70B": (80, 8192, 128),
    "Falcon-40B": (60, 8192, 256),
    "Qwen2.5-32B": (64, 5120, 256),
    "Gemma-3-27B": (62, 5376, 256),
    "Ministral-3-14B": (40, 5120, 512),
    "Qwen2.5-14B": (48, 5120, 512),
}
PARAMS_B = (101, 100, 70, 40, 32, 27, 14, 14)
# Sec. IV-A: samples, and with batches of 128, 256, 512: ceil(samples / batch).
ITERATIONS = {
    52_002: {128: 407, 256: 204, 512: 102},
    1_810_000: {128: 14141, 256: 7071, 512: 3536},
    8_010_000: {128: 62579, 256: 31290, 512: 15645},
}
BATCHES = [batch for _, _, batch in TABLE_3.values()]


def paper(*overrides: str, seed: int = 0) -> Instance:
    return build_instance(load_scenario("paper", overrides), seed)


def samples_drawn(instance: Instance) -> list[int]:
    """The size of the data set that each job drew, told by its iterations."""
    found = []
    for i, iterations in enumerate(instance.arrays.iterations):
        batch = BATCHES[i % 8]
        found += [size for size, by_batch in ITERATIONS.items() if by_batch[batch] == iterations]
    assert len(found) == instance.n_jobs
    return found


def same(first: Instance, second: Instance, *but: str) -> bool:
    """Whether all arrays are equal, those named in `but` aside."""
    a: dict[str, Any] = first.arrays._asdict()
    b: dict[str, Any] = second.arrays._asdict()
    return all(name in but or np.array_equal(a[name], b[name], equal_nan=True) for name in a)


# --- The paper's tables --------------------------------------------------------------------------


def test_table_2_arrives_in_si_units() -> None:
    instance = paper()
    a = instance.arrays
    assert instance.region_names == tuple(TABLE_2)
    gpus, prices, gbps = zip(*TABLE_2.values(), strict=True)
    assert a.gpus.tolist() == list(gpus)
    assert a.gpus.sum() == 336
    assert a.price_usd_per_kwh.tolist() == [[price] for price in prices]
    assert a.kw_per_gpu == pytest.approx([0.3] * 6)  # A6000, PUE 1
    for u, own in enumerate(gbps):
        for v, other in enumerate(gbps):
            expected = 0.0 if u == v else (own + other) / 2 * 1e9 / 8  # B_ij = (B_i + B_j) / 2
            assert a.link_bytes_per_s[u, v] == pytest.approx(expected)
    assert not a.link_latency_s.any()
    # Two entries in plain numbers: Ireland - New York 70, Frankfurt - Tokyo 50 Gbit/s.
    assert a.link_bytes_per_s[0, 1] == pytest.approx(8.75e9)
    assert a.link_bytes_per_s[3, 2] == pytest.approx(6.25e9)


def test_table_3_arrives_in_the_arrays() -> None:
    scenario = load_scenario("paper")
    instance = build_instance(scenario, 0)
    a = instance.arrays
    assert instance.job_names == instance.profile_names == tuple(TABLE_3)
    assert a.job_profile.tolist() == list(range(8))
    assert a.micro_batches.tolist() == BATCHES  # micro-batches of one sample
    assert a.act_bytes.tolist() == [2048 * hidden * 2 for _, hidden, _ in TABLE_3.values()]
    assert [(m.layers, m.hidden) for m in scenario.models] == [row[:2] for row in TABLE_3.values()]
    assert [m.params_b for m in scenario.models] == list(PARAMS_B)
    assert not a.arrival_s.any()
    assert a.k_min.tolist() == [1] * 8
    assert a.k_max.tolist() == [336] * 8


def test_compute_time_of_the_paper_preset_by_hand() -> None:
    # 2 FLOP per active parameter and token at 0.47 * 154.8 TFLOP/s, and 0.5 ms; Solar has 12.05 B
    # active parameters. 70 B on one GPU: 2.867e14 / 7.2756e13 = 3.9409 s.
    comp_s = paper().arrays.comp_s
    assert comp_s[2, 1] == pytest.approx(3.9409 + 0.0005, abs=1e-4)
    for p, params_b in enumerate((101, 12.05, 70, 40, 32, 27, 14, 14)):
        single_s = 2 * params_b * 1e9 * 2048 / (0.47 * 154.8e12)
        for k in (1, 7, 336):
            assert comp_s[p, k] == pytest.approx(single_s / k + 0.0005)
    # A over 25 Gbit/s.
    assert paper().arrays.intra_s[2] == pytest.approx(33_554_432 / 3.125e9)


@pytest.mark.parametrize(
    ("dataset", "samples"),
    [("Alpaca-52k", 52_002), ("WikiText-103", 1_810_000), ("OpenWebText", 8_010_000)],
)
def test_iterations_are_samples_over_batch_rounded_up(dataset: str, samples: int) -> None:
    overrides = [f"jobs.{i}.dataset={dataset}" for i in range(8)]
    found = paper(*overrides).arrays.iterations.tolist()
    assert found == [ITERATIONS[samples][batch] for batch in BATCHES]
    assert found == [math.ceil(samples / batch) for batch in BATCHES]


def test_epochs_multiply_before_rounding() -> None:
    # 2.5 * 52002 / 128 = 1015.66; 0.001 * 52002 / 128 = 0.41.
    found = paper("jobs.0.dataset=Alpaca-52k", "jobs.0.epochs=2.5").arrays.iterations
    assert found[0] == 1016
    found = paper("jobs.0.dataset=Alpaca-52k", "jobs.0.epochs=0.001").arrays.iterations
    assert found[0] == 1


def test_packed_tokens_count_whole_sequences_of_work() -> None:
    # 118.45 M tokens in sequences of 2048 over batches of 128: 451.85.
    found = paper("workload.unit=tokens", "jobs.0.dataset=WikiText-103").arrays.iterations
    assert found[0] == 452


def test_spread_draws_data_sets_towards_their_geometric_mean() -> None:
    # sqrt[3](52002 * 1810000 * 8010000) = 910182; at p = 0.5 Alpaca counts as
    # 910182 * sqrt(52002 / 910182) = 217558 samples: 1699.7 batches of 128.
    g = (52_002 * 1_810_000 * 8_010_000) ** (1 / 3)
    for dataset, samples in (("Alpaca-52k", 52_002), ("OpenWebText", 8_010_000)):
        for p in (0.0, 0.25, 0.5, 2.0):
            found = paper(f"workload.dataset_spread={p}", f"jobs.0.dataset={dataset}").arrays
            assert found.iterations[0] == math.ceil(g * (samples / g) ** p / 128)
    found = paper("workload.dataset_spread=0.5", "jobs.0.dataset=Alpaca-52k").arrays.iterations
    assert found[0] == 1700
    assert same(paper("workload.dataset_spread=1.0"), paper())


def test_spread_counts_sequences_where_the_workload_is_in_tokens() -> None:
    # All equal: the geometric mean of 6.6, 118.45 and 9039 million tokens over 2048.
    g = (6.6e6 * 118.45e6 * 9039e6) ** (1 / 3) / 2048
    found = paper("workload.dataset_spread=0", "workload.unit=tokens").arrays.iterations
    assert found.tolist() == [math.ceil(g / batch) for batch in BATCHES]


def test_a_fixed_number_of_micro_batches_divides_the_batch() -> None:
    # Batches of 128, 256 and 512 in 32 micro-batches of 4, 8 and 16 samples; in 1024 of an eighth.
    plain = paper().arrays
    for m in (32, 1024):
        a = paper(f"pipeline.micro_batches={m}").arrays
        samples = np.array(BATCHES) / m
        assert a.micro_batches.tolist() == [m] * 8
        assert a.act_bytes == pytest.approx(plain.act_bytes * samples)
        assert a.comp_s[:, 5] - 0.0005 == pytest.approx((plain.comp_s[:, 5] - 0.0005) * samples)
        assert a.iterations.tolist() == plain.iterations.tolist()
    assert same(
        paper("jobs.0.batch_size=64", "pipeline.micro_batches=8"),
        paper("jobs.0.batch_size=64", "pipeline.micro_batch_samples=8"),
        *(name for name in plain._fields if name not in ("iterations", "job_profile")),
    )


# --- Draws ---------------------------------------------------------------------------------------


def test_data_sets_are_drawn_uniformly_and_independently() -> None:
    scenario = load_scenario("paper")
    drawn = [samples_drawn(build_instance(scenario, seed)) for seed in range(600)]
    counts = Counter(size for episode in drawn for size in episode)
    assert counts.keys() == ITERATIONS.keys()
    assert chisquare(list(counts.values())).pvalue > 1e-3
    for job in range(8):
        assert chisquare(list(Counter(episode[job] for episode in drawn).values())).pvalue > 1e-4
    pairs = Counter((episode[0], episode[1]) for episode in drawn)
    assert len(pairs) == 9
    assert chisquare(list(pairs.values())).pvalue > 1e-4


def test_a_workload_depends_on_seed_and_episode_alone() -> None:
    scenario = load_scenario(
        "paper", ["workload.arrivals=poisson", "workload.mean_interarrival_h=1"]
    )
    forwards = [build_instance(scenario, episode_seed(7, k)) for k in range(5)]
    again = load_scenario("paper", ["workload.arrivals=poisson", "workload.mean_interarrival_h=1"])
    backwards = [build_instance(again, episode_seed(7, k)) for k in reversed(range(5))][::-1]
    assert all(same(a, b) for a, b in zip(forwards, backwards, strict=True))
    assert not any(same(forwards[0], other) for other in forwards[1:])
    assert [instance.seed for instance in forwards] == [episode_seed(7, k) for k in range(5)]


def test_the_first_episode_has_the_seed_of_the_run() -> None:
    for seed in (0, 1, 7, 2**31, 2**53 - 1):
        assert episode_seed(seed, 0) == seed


def test_episode_seeds_collide_neither_within_nor_between_runs() -> None:
    seeds = [episode_seed(seed, k) for seed in range(50) for k in range(1, 50)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**53 for seed in seeds)
    # Seeds of neighbouring runs are themselves episodes: 0 and 1, but never each other's.
    assert not set(seeds) & set(range(50))


@pytest.mark.parametrize("seed", [-1, 2**53])
def test_seeds_that_json_cannot_hold_are_refused(seed: int) -> None:
    with pytest.raises(ConfigError, match="seed: must be"):
        episode_seed(seed, 0)


@pytest.mark.parametrize("fixed", range(8))
def test_fixing_one_data_set_leaves_the_other_draws(fixed: int) -> None:
    override = f"jobs.{fixed}.dataset=Alpaca-52k"
    for seed in range(5):
        before, after = samples_drawn(paper(seed=seed)), samples_drawn(paper(override, seed=seed))
        assert after == [52_002 if i == fixed else size for i, size in enumerate(before)]


def test_other_settings_leave_the_draws() -> None:
    before = samples_drawn(paper(seed=5))
    changed = (
        ("workload.n_jobs=24",),
        ("workload.arrivals=poisson", "workload.mean_interarrival_h=2"),
        ("scale.gpus=0.5", "scale.bandwidth=0.3"),
    )
    for overrides in changed:
        assert samples_drawn(paper(*overrides, seed=5))[:8] == before


@pytest.mark.parametrize("n_jobs", [1, 8, 11, 24])
def test_more_jobs_repeat_table_3_in_order(n_jobs: int) -> None:
    instance = paper(f"workload.n_jobs={n_jobs}")
    models = [list(TABLE_3)[i % 8] for i in range(n_jobs)]
    assert [instance.profile_names[p] for p in instance.arrays.job_profile] == models
    assert len(set(instance.job_names)) == n_jobs
    rounds = [i // 8 + 1 for i in range(n_jobs)]
    assert instance.job_names == tuple(
        name if n == 1 else f"{name}#{n}" for name, n in zip(models, rounds, strict=True)
    )
    assert len(samples_drawn(instance)) == n_jobs
    assert len(instance.profile_names) == min(n_jobs, 8)


def test_repeated_jobs_draw_their_own_data_sets() -> None:
    drawn = [samples_drawn(paper("workload.n_jobs=24", seed=seed)) for seed in range(4)]
    assert any(episode[:8] != episode[8:16] for episode in drawn)


@pytest.mark.parametrize("mean_h", [0.5, 4.0])
def test_poisson_arrivals_ascend_with_the_mean_asked_for(mean_h: float) -> None:
    overrides = ["workload.arrivals=poisson", f"workload.mean_interarrival_h={mean_h}"]
    scenario = load_scenario("paper", overrides)
    gaps = []
    for seed in range(250):
        arrival_s = build_instance(scenario, seed).arrays.arrival_s
        assert arrival_s[0] > 0
        assert (np.diff(arrival_s) > 0).all()
        gaps += np.diff(arrival_s, prepend=0.0).tolist()
    # 2000 gaps: the mean has a standard error of 2.2 %.
    assert np.mean(gaps) == pytest.approx(3600 * mean_h, rel=0.1)
    assert kstest(np.array(gaps) / (3600 * mean_h), "expon").pvalue > 1e-3


# --- Scaling -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (0.5, [32, 32, 8, 64, 16, 16]),
        (0.75, [48, 48, 12, 96, 24, 24]),
        (1.25, [80, 80, 20, 160, 40, 40]),
        (0.1, [6, 6, 2, 13, 3, 3]),  # 6.4, 1.6, 12.8, 3.2
        (0.03125, [2, 2, 1, 4, 1, 1]),  # 0.5 rounds up
    ],
)
def test_scale_gpus_multiplies_every_region(factor: float, expected: list[int]) -> None:
    scaled = paper(f"scale.gpus={factor}")
    assert scaled.arrays.gpus.tolist() == expected
    assert scaled.arrays.k_max.tolist() == [sum(expected)] * 8  # no job gets more than there are
    assert np.array_equal(scaled.arrays.link_bytes_per_s, paper().arrays.link_bytes_per_s)


def test_scale_gpus_never_empties_a_region() -> None:
    with pytest.raises(ConfigError, match=r"scale\.gpus.*EU-Central"):
        paper("scale.gpus=0.03")  # 0.48 of a GPU


@pytest.mark.parametrize("factor", [0.3, 0.9, 1.5])
def test_scale_bandwidth_multiplies_links_between_regions_alone(factor: float) -> None:
    scaled, plain = paper(f"scale.bandwidth={factor}"), paper()
    links = plain.arrays.link_bytes_per_s
    assert scaled.arrays.link_bytes_per_s == pytest.approx(factor * links)
    assert same(scaled, plain, "link_bytes_per_s")


# --- Files ---------------------------------------------------------------------------------------

TOML = """
name = "mine"

[pipeline]
intra_gbps = 10.0

[gpu]
power_w = 500.0
pue = 1.2

[[regions]]
name = "north"
gpus = 4
price_usd_per_kwh = { values = [60.0, -12.5, 250.0], unit = "USD/MWh", step_h = 0.5 }

[[regions]]
name = "south"
gpus = 2
price_usd_per_kwh = 0.08
power_w = 250.0
pue = 1.5

[[regions]]
name = "west"
gpus = 1
price_usd_per_kwh = { values = [0.1, 0.2], beyond = "hold" }

[network]
rule = "listed"
flows = 4
links = [
  { source = "north", target = "south", gbps = 2.0, latency_ms = 30.0 },
  { source = "south", target = "west", gbps = 1.0, both_ways = false },
  { source = "west", target = "south", gbps = 0.5, latency_ms = 5.0, both_ways = false },
]

[[models]]
name = "m"
activation_mb = 20.0
measured = { gpus = [1, 2], t_comp_ms = [100, 60] }

[[jobs]]
name = "first"
model = "m"
batch_size = 8
iterations = 10
arrival_h = 0.25

[[jobs]]
name = "second"
model = "m"
batch_size = 8
iterations = 20
arrival_h = 1.5

[workload]
arrivals = "listed"
"""


def written(folder: Path, text: str) -> Instance:
    file = folder / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return build_instance(load_scenario(file), 0)


def test_a_file_arrives_in_si_units(tmp_path: Path) -> None:
    instance = written(tmp_path, TOML)
    a = instance.arrays
    assert (instance.scenario, instance.region_names) == ("mine", ("north", "south", "west"))
    assert a.kw_per_gpu == pytest.approx([0.6, 0.375, 0.6])
    gigabyte = 1e9
    # Four flows of 2, 1 and 0.5 Gbit/s; north and west are not linked.
    expected = gigabyte * np.array([[0, 1.0, 0], [1.0, 0, 0.5], [0, 0.25, 0]])
    assert a.link_bytes_per_s == pytest.approx(expected)
    assert a.link_latency_s == pytest.approx(np.array([[0, 0.03, 0], [0.03, 0, 0], [0, 0.005, 0]]))
    assert a.arrival_s.tolist() == [900, 5400]
    assert a.iterations.tolist() == [10, 20]
    assert a.act_bytes.tolist() == [20e6]
    assert a.intra_s == pytest.approx([0.016])
    assert a.comp_s[0] == pytest.approx([np.inf, 0.1, 0.06])
    assert a.price_count.tolist() == [3, 1, 2]
    assert a.price_time_s[0].tolist() == [0, 1800, 3600]
    assert a.price_time_s[2, :2].tolist() == [0, 3600]
    assert a.price_usd_per_kwh[0] == pytest.approx([0.06, -0.0125, 0.25])
    assert a.price_usd_per_kwh[1, 0] == 0.08
    assert a.price_cumulative[0] == pytest.approx([0, 108, 85.5])
    assert a.price_period_s.tolist() == [5400, np.inf, np.inf]


def test_prices_per_mwh_and_per_kwh_give_equal_instances(tmp_path: Path) -> None:
    per_mwh = '{ values = [60.0, -12.5, 250.0], unit = "USD/MWh", step_h = 0.5 }'
    per_kwh = '{ values = [0.06, -0.0125, 0.25], unit = "USD/kWh", step_h = 0.5 }'
    default = "{ values = [0.06, -0.0125, 0.25], step_h = 0.5 }"
    first = written(tmp_path, TOML)
    for text in (per_kwh, default):
        assert same(first, written(tmp_path, TOML.replace(per_mwh, text)))


def test_two_one_way_links_equal_one_both_ways(tmp_path: Path) -> None:
    both = '{ source = "north", target = "south", gbps = 2.0, latency_ms = 30.0 },'
    one = both.replace(" },", ", both_ways = false },")
    back = one.replace('"north", target = "south"', '"south", target = "north"')
    assert same(written(tmp_path, TOML), written(tmp_path, TOML.replace(both, one + back)))
    # One way alone leaves the other without a link.
    alone = written(tmp_path, TOML.replace(both, one)).arrays
    assert (alone.link_bytes_per_s[0, 1], alone.link_bytes_per_s[1, 0]) == (1e9, 0)


def test_listed_links_can_spell_out_the_mean_rule() -> None:
    links = [
        {"source": u, "target": v, "gbps": (TABLE_2[u][2] + TABLE_2[v][2]) / 2}
        for i, u in enumerate(TABLE_2)
        for v in list(TABLE_2)[i + 1 :]
    ]
    text = (resources.files("bace_env") / "presets" / "paper.toml").read_text(encoding="utf-8")
    data: dict[str, Any] = tomllib.loads(text)
    data["network"] = {"rule": "listed", "links": links}
    for region in data["regions"]:
        del region["bandwidth_gbps"]
    assert same(build_instance(parse_scenario(data), 4), paper(seed=4))


def test_a_constant_series_costs_what_its_constant_does(tmp_path: Path) -> None:
    first = written(tmp_path, TOML.replace("= 0.08", "= { values = [0.08] }"))
    assert same(first, written(tmp_path, TOML))


# --- Overrides -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["EU-Central", "2"])
def test_overrides_reach_list_entries_by_name_and_by_index(key: str) -> None:
    scenario = load_scenario("paper", [f"regions.{key}.gpus=48"])
    expected = {name: gpus for name, (gpus, _, _) in TABLE_2.items()} | {"EU-Central": 48}
    assert {region.name: region.gpus for region in scenario.regions} == expected


@pytest.mark.parametrize("name", TABLE_3)
def test_overrides_reach_every_job_and_model_by_name(name: str) -> None:
    # Half of the names of Table III have a dot in them.
    i = list(TABLE_3).index(name)
    scenario = load_scenario("paper", [f"jobs.{name}.epochs=3", f"models.{name}.k_max=9"])
    assert [job.epochs for job in scenario.jobs] == [3 if j == i else 1 for j in range(8)]
    assert [m.k_max for m in scenario.models] == [9 if j == i else None for j in range(8)]


def test_overrides_apply_in_order_and_take_toml_values_or_bare_words() -> None:
    scenario = load_scenario(
        "paper",
        [
            "scale.gpus=2",
            "scale.gpus=0.5",
            "pipeline.intra_gbps=inf",
            "pipeline.t_comm=residual",
            'gpu.name="H100 SXM"',
            "regions.0.price_usd_per_kwh={ values = [1.0, 2.0] }",
            "regions.EU-West.price_usd_per_kwh.step_h=6",
        ],
    )
    assert scenario.scale.gpus == 0.5
    assert math.isinf(scenario.pipeline.intra_gbps)
    assert scenario.pipeline.t_comm == "residual"
    assert scenario.gpu.name == "H100 SXM"
    instance = build_instance(scenario, 0)
    assert instance.arrays.price_time_s[0].tolist() == [0, 6 * 3600]


def test_an_override_equals_the_edited_file() -> None:
    edited = load_scenario("paper").model_dump(exclude_unset=True)
    edited["regions"][1]["gpus"] = 7
    edited["jobs"][3]["dataset"] = "OpenWebText"
    overrides = ["regions.US-East-2.gpus=7", "jobs.Falcon-40B.dataset=OpenWebText"]
    scenario = load_scenario("paper", overrides)
    assert parse_scenario(edited) == scenario
    assert parse_scenario(edited).fingerprint() == scenario.fingerprint()
    assert scenario.fingerprint() != load_scenario("paper").fingerprint()
