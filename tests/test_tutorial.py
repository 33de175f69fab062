"""The tutorial's and the reference's commands and examples, run as they stand there."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from command_line import CommandLine
from import_command import ImportCommand
from typer.core import TyperGroup
from typer.main import get_command

from bace_env.config import load_scenario
from bace_env.io.__main__ import _ABOUT, app

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "imports.md").read_text(encoding="utf-8")


def commands() -> list[list[str]]:
    """The commands outside the loop, without `python -m`."""
    blocks = re.findall(r"```bash\n(.*?)```", TUTORIAL, flags=re.DOTALL)
    lines = [line for block in blocks if "for seed" not in block for line in block.splitlines()]
    return [shlex.split(line)[2:] for line in lines if line.startswith("python -m")]


@pytest.mark.jit
def test_the_tutorial_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples" / "data", tmp_path / "examples" / "data")
    imports = ImportCommand(tmp_path, monkeypatch, capsys)
    compare = CommandLine(tmp_path, monkeypatch, capsys)
    said = {" ".join(line.split()) for line in TUTORIAL.splitlines()}
    formats = []
    for module, *args in commands():
        outcome = (imports if module == "bace_env.io" else compare).run(*args)
        assert outcome.code == 0, outcome.err
        formats.append(args[0] if module == "bace_env.io" else module)
        if formats[-1] in ("jobs", "eval.compare"):
            missing = {" ".join(line.split()) for line in outcome.out.splitlines()} - said
            assert not missing
    assert formats == ["matrix", "matrix", "jobs", "prices", "eval.compare", "eval.compare"]
    prices = {
        region.name: region.price_usd_per_kwh for region in load_scenario("mine.toml").regions
    }
    assert set(prices) == {"Oslo", "Dublin", "Frankfurt"}


def test_the_python_of_the_reference_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples" / "data", tmp_path / "examples" / "data")
    monkeypatch.chdir(tmp_path)
    found = re.search(r"```python\n(.*?)```", REFERENCE, flags=re.DOTALL)
    assert found is not None
    exec(compile(found[1], "docs/imports.md", "exec"), {})
    assert capsys.readouterr().out == "{'zero-GPU job': 1, 'no end or duration': 1}\n"
    assert len(load_scenario("mine.toml").jobs) == 46


def test_the_reference_has_every_format_and_option() -> None:
    for name in _ABOUT:
        assert f"`{name}`" in REFERENCE, name
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    options = {
        option
        for command in group.commands.values()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    }
    assert "--from" in options
    for option in options - {"--name"}:
        assert option in REFERENCE, option
