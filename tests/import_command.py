"""Runs `python -m bace_env.io` in this process."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from bace_env.io import __main__ as command


class Imported(NamedTuple):
    """What a user gets back."""

    code: int
    out: str
    err: str


class ImportCommand:
    """The command, run in a fresh folder."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.folder = folder
        self._monkeypatch, self._capsys = monkeypatch, capsys
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "80")

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Put files into the folder."""
        for name, content in files.items():
            raw = content if isinstance(content, bytes) else content.encode()
            (self.folder / name).write_bytes(raw)

    def run(self, *args: str) -> Imported:
        """Run it with these arguments."""
        self._monkeypatch.setattr(sys, "argv", ["bace_env.io", *args])
        with pytest.raises(SystemExit) as stopped:
            command.main()
        code = stopped.value.code
        assert code is None or isinstance(code, int)
        return Imported(code or 0, *self._capsys.readouterr())
