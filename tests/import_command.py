"""Runs `python -m bace_env.io` in this process."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from command_line import CommandLine

from bace_env.io import __main__ as command


class ImportCommand(CommandLine):
    """The command, run in a fresh folder that files are put into."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        super().__init__(folder, monkeypatch, capsys, command)

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Put files into the folder."""
        for name, content in files.items():
            raw = content if isinstance(content, bytes) else content.encode()
            (self.folder / name).write_bytes(raw)
