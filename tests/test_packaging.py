"""What holds the four top-level packages together, in the checkout and in the wheel."""

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT = {
    "bace_env": {"bace_env"},
    "agents": {"agents", "bace_env"},
    "eval": {"eval", "agents", "bace_env"},
    "train": {"train", "eval", "agents", "bace_env"},
}
NEVER_IMPORTED = {"tests", "benchmarks"}
PRESETS = {"fig1", "paper", "paper-fitted", "physical", "tiny", "week-in-the-cloud"}


def absolute_imports(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module


def test_compare_imports_neither_learning_nor_plotting_libraries() -> None:
    heavy = ["torch", "stable_baselines3", "tensorboard", "matplotlib", "pandas", "networkx"]
    program = f"import sys, eval.compare; print(*(m for m in {heavy} if m in sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


def test_tests_shadow_no_package() -> None:
    # With tests/agents/__init__.py, `import agents` would find the tests instead of ours.
    assert not list((ROOT / "tests").rglob("__init__.py"))
    assert not [name for name in MAY_IMPORT if (ROOT / "tests" / name).exists()]


@pytest.mark.parametrize("package", ["agents", "eval", "train"])
def test_generic_package_has_an_empty_init(package: str) -> None:
    # Only submodules are imported, so another distribution's `agents` fails at once, by name.
    assert (ROOT / package / "__init__.py").read_bytes() == b""


def test_presets_are_found_as_package_data() -> None:
    folder = resources.files("bace_env") / "presets"
    found = {file.name.removesuffix(".toml"): file for file in folder.iterdir()}
    assert found.keys() == PRESETS
    for file in found.values():
        assert tomllib.loads(file.read_text(encoding="utf-8"))


def test_every_data_file_goes_into_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = {
        file
        for package, globs in settings["tool"]["setuptools"]["package-data"].items()
        for pattern in globs
        for file in (ROOT / package).glob(pattern)
    }
    present = {
        file
        for package in MAY_IMPORT
        for file in (ROOT / package).rglob("*")
        if file.is_file() and file.suffix != ".py" and "__pycache__" not in file.parts
    }
    assert present == shipped


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_one_way(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"no module in {package}/"
    forbidden = (MAY_IMPORT.keys() | NEVER_IMPORTED) - MAY_IMPORT[package]
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {package} must not import {module}"
        for file in files
        for line, module in absolute_imports(file.read_text(encoding="utf-8"))
        if module.partition(".")[0] in forbidden
    ]
    assert not wrong, "\n".join(wrong)
