"""Runs the commands of `eval` in this process; a scenario small enough for any machine."""

import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from eval import compare

#: Three regions, changing and negative prices, one missing link, datasets drawn, Poisson arrivals.
SMALL = """
name = "small"

[pipeline]
intra_gbps = 8.0

[[regions]]
name = "north"
gpus = 4
price_usd_per_kwh = 0.1
carbon_g_per_kwh = 400.0

[[regions]]
name = "south"
gpus = 2
price_usd_per_kwh = { values = [0.3, -0.1, 0.2], step_h = 0.01 }
carbon_g_per_kwh = 400.0

[[regions]]
name = "island"
gpus = 3
price_usd_per_kwh = { values = [0.25, 0.05], step_h = 0.02, beyond = "hold" }
carbon_g_per_kwh = 400.0

[network]
rule = "listed"
links = [
  { source = "north", target = "south", gbps = 4.0, latency_ms = 2.0 },
  { source = "south", target = "island", gbps = 3.0, both_ways = false },
]

[[datasets]]
name = "few"
samples = 100

[[datasets]]
name = "many"
samples = 1000

[[models]]
name = "wide"
activation_mb = 100.0
measured = { gpus = [1, 2, 4, 6], t_comp_ms = [2000, 1000, 600, 450] }

[[models]]
name = "narrow"
activation_mb = 10.0
k_min = 2
measured = { gpus = [1, 2], t_comp_ms = [400, 250] }

[[jobs]]
name = "first"
model = "wide"
batch_size = 16

[[jobs]]
name = "second"
model = "narrow"
batch_size = 8

[[jobs]]
name = "third"
model = "wide"
batch_size = 8
iterations = 30

[workload]
n_jobs = 6
arrivals = "poisson"
mean_interarrival_h = 0.01
"""


class Outcome(NamedTuple):
    """What a user gets back."""

    code: int
    out: str
    err: str


class CommandLine:
    """The command, run in a fresh folder that holds `small.toml`."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        module: ModuleType = compare,
    ) -> None:
        self.folder = folder
        self._module = module
        self._monkeypatch, self._capsys = monkeypatch, capsys
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of a policy's file
        (folder / "small.toml").write_text(SMALL)

    def run(self, *args: str, module: ModuleType | None = None) -> Outcome:
        """Run it, or another command, with these arguments."""
        module = module or self._module
        self._monkeypatch.setattr(sys, "argv", [module.__name__, *args])
        with pytest.raises(SystemExit) as stopped:
            module.main()
        code = stopped.value.code
        assert code is None or isinstance(code, int)
        return Outcome(code or 0, *self._capsys.readouterr())

    def files(self) -> dict[str, bytes]:
        """All files below the folder with their content; folders are there with none."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes() if path.is_file() else b""
            for path in sorted(self.folder.rglob("*"))
        }
