"""benchmarks/peers.py where no peer is needed: what it counts and what it says of one missing."""

import importlib
import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "benchmarks" / "peers.py"


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    # A script of benchmarks/ finds its neighbours because Python puts its folder first.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(SCRIPT.parent), *sys.path])
        return importlib.import_module("peers")


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has nothing installed."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


class Rounds:
    """Three instances side by side whose episodes have 5 steps; the first one is slow."""

    def __init__(self) -> None:
        self.steps = self.drawn = 0

    def draw(self) -> int:
        self.drawn += 1
        return self.drawn

    def step(self, actions: int) -> tuple[int, int]:
        self.steps += 1
        assert actions == self.steps
        start = time.process_time()
        while time.process_time() - start < (0.1 if self.steps <= 5 else 0.002):
            pass
        return 3, 3 if self.steps % 5 == 0 else 0


def test_clock_counts_whole_episodes_and_leaves_the_first_out(peers: ModuleType) -> None:
    rounds = Rounds()
    found = peers.clock(rounds, seconds=0.03)
    assert rounds.steps % 5 == 0
    assert found["steps_per_episode"] == 5
    # 3 units in at least 2 ms; with the slow first episode it would be well below 100.
    assert 300 < found["steps_per_s"] <= 1500


def test_any_valid_action_is_drawn_and_no_other(peers: ModuleType) -> None:
    np = peers.np
    rng = np.random.default_rng(0)
    mask = np.array([[True, False, True, True], [False, False, True, False]])
    drawn = np.array([peers.any_valid(mask, rng) for _ in range(600)])
    assert np.all(drawn[:, 1] == 2)
    counts = np.bincount(drawn[:, 0], minlength=4)
    assert counts[1] == 0
    assert np.all(counts[[0, 2, 3]] > 150)  # 200 expected, standard deviation 12
    with pytest.raises(RuntimeError, match="allows no action"):
        peers.any_valid(np.array([[True], [False]]), rng)


@pytest.mark.jit
def test_missing_peers_are_listed_beside_our_own_speed(bare_python: Path) -> None:
    options = ["--batch", "256", "--seconds", "0.2", "--python", str(bare_python)]
    command = [sys.executable, str(SCRIPT), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ours = re.findall(r"^GeoPipeline-v0 \(ours\) +(\d+) .* ([\d,]+) +\d+ *$", done.stdout, re.M)
    assert [int(batch) for batch, _ in ours] == [256]
    assert all(int(speed.replace(",", "")) > 100 for _, speed in ours)
    for name in ("jumanji", "rl4co", "JSSEnv", "job_shop_lib"):
        line = f"{name}: not installed: pip install -c constraints.txt {name}"
        assert line in done.stdout.splitlines()


def test_a_peer_that_does_not_run_gives_its_error(peers: ModuleType, bare_python: Path) -> None:
    assert set(peers.installed_versions(str(bare_python)).values()) == {None}
    found = peers.peer_in_fresh_process(str(bare_python), row=0, batch=1, seconds=0.1)
    assert found == "ModuleNotFoundError: No module named 'numpy'"


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--seconds", "0"], "--seconds: must be positive and finite, got 0"),
        (["--seconds", "nan"], "--seconds: must be positive and finite, got nan"),
        (["--batch", "2"], "argument --batch: invalid choice: 2"),
        (["--python", "/nowhere"], "--python: must be a Python interpreter, got /nowhere"),
        (["--python", os.devnull], "--python: must be a Python interpreter, got /dev/null"),
        (["--python", "/bin/false"], "--python: must be a Python interpreter, got /bin/false"),
    ],
)
def test_wrong_arguments(
    peers: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["peers.py", *arguments])
    monkeypatch.setattr(peers, "one_thread_one_core", lambda: pytest.fail("began to measure"))
    with pytest.raises(SystemExit) as stopped:
        peers.main()
    assert stopped.value.code == 2
    assert complaint in capsys.readouterr().err
