"""What the README shows, run."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from agents.policy import REGISTRY
from bace_env import schema
from bace_env.config import load_scenario, parse_scenario, preset_names
from bace_env.scenario import build_instance
from eval.compare import compare

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def code_block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    assert found is not None
    return found[1]  # the first of the language


def test_it_is_short_and_shows_both_commands() -> None:
    assert len(README.splitlines()) <= 150
    assert "make run" in README
    assert "make test" in README


def test_the_policy_that_it_shows_is_complete_and_runs(tmp_path: Path) -> None:
    source = code_block("python")
    assert len([line for line in source.splitlines() if line.strip()]) <= 15
    (tmp_path / "cheapest.py").write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "eval.compare", "--policy", "cheapest.py:Cheapest"]
    arguments = ["--no-baselines", "--scenario", "tiny", "--episodes", "1", "--check"]
    done = subprocess.run(
        [*command, *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Checked: 1 schedules" in done.stdout


def test_the_region_and_the_job_that_it_shows_fit_the_paper_preset() -> None:
    added = tomllib.loads(code_block("toml"))
    data = load_scenario("paper").model_dump()
    data["regions"] += added["regions"]
    data["jobs"] += added["jobs"]
    instance = build_instance(parse_scenario(data), 0)
    assert instance.region_names[-1] == "EU-North"
    # 1.81 million samples twice in batches of 256; 31 USD/MWh = 0.031 USD/kWh.
    assert instance.arrays.iterations[-1] == 14141
    assert instance.arrays.price_usd_per_kwh[-1] == pytest.approx([0.031, -0.0045, 0.0602])


def test_it_names_every_policy_scenario_and_option() -> None:
    for name in (*REGISTRY, *preset_names()):
        assert f"`{name}`" in README
    options = set(re.findall(r"--[a-z][a-z-]+", README))
    known = {"--policy", "--scenario", "--episodes", "--seed", "--set", "--workers", "--json"}
    known |= {"--out", "--plot", "--check", "--no-baselines", "--help", "--tensorboard"}
    known |= {"--against", "--decision"}
    assert options <= known
    assert compare.__doc__


def test_the_example_of_the_scenario_docs_loads() -> None:
    text = (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8")
    found = re.search(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    assert found is not None
    instance = build_instance(parse_scenario(tomllib.loads(found[1])), 0)
    assert instance.job_names == ("first", "second")
    assert instance.arrays.link_bytes_per_s[0, 1] == pytest.approx(9.4e9 / 8)
    assert instance.arrays.link_bytes_per_s[1, 0] == pytest.approx(7.1e9 / 8)


def test_the_scenario_docs_name_every_field() -> None:
    text = (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8")
    models = [m for m in vars(schema).values() if isinstance(m, type) and issubclass(m, BaseModel)]
    documented = [m for m in models if m is not schema.ArchitectureSpec]  # see preset physical
    for model in documented:
        for field in model.model_fields:
            assert re.search(rf"\b{field}\b", text), f"{model.__name__}.{field}"
