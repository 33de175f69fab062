"""Cost over price changes, egress, carbon and generated series: by hand, and checked apart."""

import json
import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from pydantic import ValidationError

from agents.policy import make_policy
from bace_env.checker import check_trace, violations
from bace_env.config import load_scenario, parse_scenario
from bace_env.errors import ConfigError, PriceEndError
from bace_env.generators import generate
from bace_env.instance import Instance
from bace_env.scenario import build_instance
from bace_env.schema import Generator
from bace_env.simulator import Placement, Simulator
from bace_env.trace import EpisodeTrace
from eval.bounds import lower_bounds
from eval.metrics import episode_metrics
from eval.rollout import run_episode

#: An iteration of M = 1 takes 2 * k * t_comp(k) on one region: an hour on one GPU of 1 kW.
HOURLY: dict[str, Any] = {
    "name": "hourly",
    "regions": [{"name": "north", "gpus": 1, "price_usd_per_kwh": 0.1}],
    "gpu": {"power_w": 1000.0},
    "pipeline": {"intra_gbps": math.inf},
    "models": [
        {"name": "m", "activation_mb": 1.0, "measured": {"gpus": [1], "t_comp_ms": [1.8e6]}}
    ],
    "jobs": [{"name": "one", "model": "m", "batch_size": 1, "iterations": 3}],
}


def hourly(iterations: int = 3, arrival_h: float | None = None, **region: Any) -> Instance:
    job = HOURLY["jobs"][0] | {"iterations": iterations}
    data = HOURLY | {"regions": [HOURLY["regions"][0] | region], "jobs": [job]}
    if arrival_h is not None:
        job["arrival_h"] = arrival_h
        data["workload"] = {"arrivals": "listed"}
    return build_instance(parse_scenario(data), 0)


def played(instance: Instance) -> EpisodeTrace:
    trace = run_episode(instance, make_policy("bace"))
    check_trace(trace)
    return trace


def test_cost_and_carbon_over_changes_and_a_negative_hour_by_hand() -> None:
    instance = hourly(
        arrival_h=0.5,
        price_usd_per_kwh={"values": [0.30, -0.05, 0.10, 0.20]},
        carbon_g_per_kwh={"values": [400.0, 100.0], "step_h": 2.0},
    )
    trace = played(instance)
    assert trace.energy_kwh[0] == pytest.approx(3.0)
    # 0:30 to 3:30: half an hour, two whole ones (one negative), half an hour.
    assert trace.cost_usd[0] == pytest.approx(0.5 * 0.30 - 0.05 + 0.10 + 0.5 * 0.20)
    # 1.5 h of 400 g, 1.5 h of 100 g.
    assert trace.carbon_kg is not None
    assert trace.carbon_kg[0] == pytest.approx(0.75)
    assert episode_metrics(trace)["carbon_kg"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("day", "hours"), [("2024-03-31", 23), ("2024-10-27", 25), ("2024-06-01", 24)]
)
def test_a_day_on_which_clocks_change_costs_its_hours(day: str, hours: int, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    from bace_env.io.scenario_files import Draft, put_carbon, put_prices
    from bace_env.io.series import SeriesOptions, read_series

    # Every hour that Berlin has that day, as its clocks show it; the price is 10 EUR/MWh times its
    # place in the day, and the third hour is negative.
    zone = ZoneInfo("Europe/Berlin")
    midnight = datetime.fromisoformat(f"{day}T00:00").replace(tzinfo=zone)
    first = midnight.astimezone(ZoneInfo("UTC"))
    shown = [(first + timedelta(hours=h)).astimezone(zone) for h in range(hours)]
    values = [-50.0 if h == 2 else 10.0 * h for h in range(hours)]
    rows = [f"{t:%Y-%m-%d %H:%M},{v}" for t, v in zip(shown, values, strict=True)]
    source = tmp_path / "prices.csv"
    source.write_text("\n".join(["hour,price", *rows]))
    base = tmp_path / "base.json"
    data = HOURLY | {"pipeline": {"intra_gbps": "inf"}}
    job = HOURLY["jobs"][0] | {"iterations": hours}
    base.write_text(json.dumps(data | {"jobs": [job]}))
    draft = Draft.of_base(base)
    options = SeriesOptions(
        time="hour", columns=("price",), tz="Europe/Berlin", unit="EUR/MWh", usd_rate=1.1,
        ambiguous="infer",
    )  # fmt: skip
    put_prices(draft, read_series("prices", [source], options), ["north"])
    put_carbon(draft, read_series("prices", [source], options), ["north"], beyond="hold")
    draft.write(tmp_path / "out.toml")
    if min(values) < 0:
        with pytest.raises(ConfigError, match=r"carbon_g_per_kwh\.values"):
            load_scenario(tmp_path / "out.toml")
    scenario = load_scenario(tmp_path / "out.toml", ["regions.north.carbon_g_per_kwh=500.0"])
    trace = played(build_instance(scenario, 0))
    assert trace.energy_kwh[0] == pytest.approx(hours)
    whole = 10.0 * (hours * (hours - 1) / 2 - 2) - 50.0
    assert trace.cost_usd[0] == pytest.approx(1.1 * whole / 1000)
    assert trace.carbon_kg is not None
    assert trace.carbon_kg[0] == pytest.approx(0.5 * hours)


def two_regions(**changes: Any) -> Instance:
    """A job that needs a GPU of each of two regions: 10 iterations of 2 * (900 + 2 * 900) s."""
    data = HOURLY | {
        "regions": [
            {"name": "a", "gpus": 1, "price_usd_per_kwh": 0.1, "egress_usd_per_gb": 0.02},
            {"name": "b", "gpus": 1, "price_usd_per_kwh": 0.3, "egress_usd_per_gb": 0.05},
        ],
        "network": {"rule": "listed", "links": [{"source": "a", "target": "b", "gbps": 1.0}]},
        "models": [
            {
                "name": "m",
                "activation_mb": 1000.0,
                "k_min": 2,
                "measured": {"gpus": [2], "t_comp_ms": [9e5]},
            }
        ],
        "jobs": [{"name": "one", "model": "m", "batch_size": 4, "iterations": 10}],
    }
    return build_instance(parse_scenario(data | changes), 0)


def test_egress_by_hand() -> None:
    instance = two_regions()
    simulator = Simulator(instance)
    simulator.step(Placement(0, (1, 0), (1, 1)))
    trace = simulator.trace("by hand")
    check_trace(trace)
    # M = 4: t_iter = 2 * (900 + 2 * 900 + 3 * 900) s = 3 h; 10 of them, 1 kW at each end.
    electricity = 30.0 * (0.1 + 0.3)
    # A = 1 GB. Forward 1 * 4 * 10 GB leave b at 0.05, backward as many leave a at 0.02.
    assert trace.cost_usd[0] == pytest.approx(electricity + 40 * 0.05 + 40 * 0.02)
    assert trace.energy_kwh[0] == pytest.approx(60.0)
    assert trace.objective() == pytest.approx(
        trace.summary().avg_jct_s / instance.jct_ref_s + 0.3 * 14.8 / instance.cost_ref_usd
    )


def test_inside_a_region_nothing_leaves() -> None:
    assert played(hourly(egress_usd_per_gb=100.0)).cost_usd[0] == pytest.approx(0.3)


def test_the_bound_of_the_cost_knows_the_cheapest_link() -> None:
    # The one option needs one hop: its egress is certain, 40 GB * (0.02 + 0.05).
    instance = two_regions()
    assert lower_bounds(instance).total_cost_usd == pytest.approx(12.0 + 2.8, rel=1e-6)
    free = {"regions": [r | {"egress_usd_per_gb": 0.0} for r in HOURLY_REGIONS]}
    assert lower_bounds(two_regions(**free)).total_cost_usd == pytest.approx(12.0, rel=1e-6)


HOURLY_REGIONS = [
    {"name": "a", "gpus": 1, "price_usd_per_kwh": 0.1},
    {"name": "b", "gpus": 1, "price_usd_per_kwh": 0.3},
]


@pytest.mark.jit
def test_bounds_hold_on_the_preset_with_egress() -> None:
    scenario = load_scenario("week-in-the-cloud", ["workload.n_jobs=30"])
    instance = build_instance(scenario, 0)
    bounds = lower_bounds(instance)
    for name in ("bace", "lcf", "cr-lcf", "bace-forecast", "bace-defer"):
        trace = played_by(instance, name)
        assert trace.summary().avg_jct_s >= bounds.avg_jct_s
        assert trace.cost_usd.sum() >= bounds.total_cost_usd
        assert trace.objective() >= bounds.objective


def played_by(instance: Instance, name: str) -> EpisodeTrace:
    trace = run_episode(instance, make_policy(name))
    check_trace(trace)
    return trace


@pytest.mark.parametrize("field", ["cost_usd", "carbon_kg"])
def test_the_checker_finds_a_wrong_number(field: str) -> None:
    regions = [r | {"egress_usd_per_gb": 0.01, "carbon_g_per_kwh": 300.0} for r in HOURLY_REGIONS]
    trace = played(two_regions(regions=regions))
    instance, data = trace.instance.to_dict(), trace.to_dict(with_times=False)
    assert violations(instance, data) == []
    data["jobs"][0][field] *= 1 + 1e-6
    (problem,) = violations(instance, data)
    assert field in problem
    del data["jobs"][0]["carbon_kg"]
    if field == "carbon_kg":
        with pytest.raises(KeyError):
            violations(instance, data)


def test_without_intensities_carbon_is_unknown_not_zero() -> None:
    trace = played(hourly())
    assert trace.carbon_kg is None
    assert math.isnan(episode_metrics(trace)["carbon_kg"])
    assert "carbon_kg" not in trace.to_dict()["jobs"][0]


def test_carbon_of_some_regions_only_is_refused() -> None:
    regions = [HOURLY_REGIONS[0] | {"carbon_g_per_kwh": 1.0}, HOURLY_REGIONS[1]]
    with pytest.raises(ConfigError, match=r"regions\.b\.carbon_g_per_kwh: missing; give it for"):
        two_regions(regions=regions)


def test_a_run_that_outlasts_its_carbon_series_fails() -> None:
    instance = hourly(carbon_g_per_kwh={"values": [1.0, 2.0], "beyond": "error"})
    with pytest.raises(PriceEndError, match=r"known up to 2 h, .* until 3 h; .* and carbon_g_per"):
        run_episode(instance, make_policy("bace"))


def test_carbon_in_a_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(
        "utc,north\n2024-03-01T00:00:00Z,100\n2024-03-01T02:00:00Z,300\n"
    )
    text = """
name = "mine"
[[regions]]
name = "north"
gpus = 1
price_usd_per_kwh = 0.1
carbon_g_per_kwh = { file = "c.csv", beyond = "hold" }
[gpu]
power_w = 1000.0
[[models]]
name = "m"
activation_mb = 1.0
measured = { gpus = [1], t_comp_ms = [1.8e6] }
[[jobs]]
name = "one"
model = "m"
batch_size = 1
iterations = 3
"""
    (tmp_path / "mine.toml").write_text(text)
    carbon = played(build_instance(load_scenario(tmp_path / "mine.toml"), 0)).carbon_kg
    assert carbon is not None
    assert carbon[0] == pytest.approx(0.1 * 2 + 0.3)
    (tmp_path / "mine.toml").write_text(text.replace('"hold"', '"hold", unit = "USD/kWh"'))
    with pytest.raises(ConfigError, match=r"carbon_g_per_kwh: unit: input should be 'g/kWh'"):
        load_scenario(tmp_path / "mine.toml")


# --- Generated series -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["diurnal", "weekly", "spiky"])
def test_a_generator_keeps_its_mean_and_follows_its_seed(kind: str) -> None:
    first = generate(Generator(generator=kind, mean=0.12, seed=1))  # type: ignore[arg-type]
    assert len(first) == 168
    assert np.mean(first) == pytest.approx(0.12, rel=1e-12)
    assert first == generate(Generator(generator=kind, mean=0.12, seed=1))  # type: ignore[arg-type]
    assert first != generate(Generator(generator=kind, mean=0.12, seed=2))  # type: ignore[arg-type]


def test_the_wave_alone_is_a_cosine_and_weekends_are_lower() -> None:
    spec = Generator(
        generator="weekly", mean=1.0, residual=0.0, wave=0.5, peak_hour=18.0, weekend=0.5
    )
    values = np.array(generate(spec))
    hour = np.arange(168)
    shape = 1 + 0.5 * np.cos(2 * np.pi * (hour - 18) / 24)
    shape[120:] *= 0.5  # Saturday and Sunday, as hour 0 is on a Monday
    assert values == pytest.approx(shape / shape.mean(), rel=1e-12)


def test_spikes_come_as_often_and_as_high_as_said() -> None:
    spec = Generator(
        generator="spiky", mean=1.0, residual=0.0, wave=0.0, hours=100_000, spike_share=0.05,
        spike_size=2.0,
    )  # fmt: skip
    values = np.array(generate(spec))
    # Before scaling: 1 + the spikes; each adds 2 * (1 + 1/2 + 1/4 ...) = 4 in all.
    floor = 1 / (1 + 0.05 * 4)
    assert values.min() == pytest.approx(floor, rel=0.02)
    jumps = np.diff(values - values.min() / 1.0) > 1e-9
    # A spike raises the value unless it is smaller than what half the last one loses.
    assert jumps.mean() == pytest.approx(0.05, rel=0.1)


def test_generated_prices_may_be_negative_and_are_part_of_the_scenario() -> None:
    price = {"generator": "diurnal", "mean": 0.1, "residual": 0.8, "least": -1.0, "seed": 3}
    instance = hourly(price_usd_per_kwh=price)
    found = instance.arrays.price_usd_per_kwh[0]
    assert found.min() < 0
    assert found.tolist() == generate(Generator(**price))  # type: ignore[arg-type]
    assert instance.arrays.price_period_s[0] == 168 * 3600


@pytest.mark.parametrize(
    ("price", "message"),
    [
        ({"generator": "daily", "mean": 1.0}, "price_usd_per_kwh.generator: .*'daily'"),
        ({"generator": "diurnal"}, "price_usd_per_kwh.mean: field required"),
        ({"generator": "diurnal", "mean": 1.0, "weekend": 0.5}, 'weekend: goes with .*"weekly"'),
        ({"generator": "weekly", "mean": 1.0, "spike_size": 1.0}, 'spike_size: goes .*"spiky"'),
        ({"generator": "diurnal", "mean": 1.0, "least": 1.0}, "least: must be less than 1"),
        ({"generator": "diurnal", "mean": 1.0, "sead": 1}, "unknown key; did you mean 'seed'"),
        ({"generator": "diurnal", "mean": -1.0}, "price_usd_per_kwh.mean: .*greater than 0"),
        (
            {"generator": "diurnal", "mean": 1.0, "least": -99.0, "residual": 99.0, "hours": 1},
            "must have a positive mean",
        ),
    ],
)
def test_a_generator_that_makes_no_sense_is_refused(price: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        for seed in range(20):
            hourly(price_usd_per_kwh=price | ({"seed": seed} if "hours" in price else {}))


def test_generated_carbon_is_never_negative() -> None:
    carbon = {"generator": "diurnal", "mean": 300.0, "least": -0.5}
    with pytest.raises(ConfigError, match=r"carbon_g_per_kwh\.least: must be >= 0, got -0\.5"):
        hourly(carbon_g_per_kwh=carbon)
    with pytest.raises(ValidationError):
        Generator(generator="diurnal", mean=0.0)
