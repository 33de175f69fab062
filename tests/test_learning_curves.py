import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra train")
pytest.importorskip("stable_baselines3", reason="needs the extra train")

from train import curves
from train.config import make_config
from train.learner import CURVE, RUN

HEAD = "steps,seconds,objective / bace,objective / best rule,gap closed,objective / bace: tiny"


def write_run(folder: Path, rows: list[str], **fields: object) -> Path:
    folder.mkdir()
    config = make_config(fields).model_dump(mode="json")
    (folder / RUN).write_text(json.dumps({"config": config}))
    (folder / CURVE).write_text("\n".join([HEAD, *rows]) + "\n")
    return folder


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["curves", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        curves.main()
    return int(caught.value.code or 0)


def test_runs_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = ["0,30,1.2,1.4,-0.5,1.2", "1000,90,0.9,0.99,0.4,0.9", "2500,600,0.95,1.01,0.2,0.95"]
    first = write_run(tmp_path / "first", slow, seed=3)
    never = write_run(tmp_path / "never", slow[:1], demonstrations=2, settings=[["tiny", []]])
    out = tmp_path / "curves.md"
    assert run(monkeypatch, first, never, "--out", out) == 0
    rows = [line for line in out.read_text().splitlines() if line.startswith("| ")]
    # The best of a run counts, not its last; it passes the best rule at the first row below 1.
    assert rows[1] == (
        "| first | 3 | none | 2,500 | 10 | 0.9000 | 0.9900 | 40 % | 1.5 min, 1,000 steps |"
    )
    assert rows[2] == "| never | 0 | 2 schedules | 0 | 0 | 1.2000 | 1.4000 | -50 % | never |"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "](curves.png)" in out.read_text()


def test_what_is_no_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "curves.md"
    assert run(monkeypatch, tmp_path / "none", "--out", out) == 2
    assert "none: no run with evaluations: No such file" in capsys.readouterr().err
    broken = write_run(tmp_path / "broken", [])
    (broken / RUN).write_text("{}")
    assert run(monkeypatch, broken, "--out", out) == 2
    assert f"broken: {RUN} or {CURVE} is not what a run writes" in capsys.readouterr().err
    empty = write_run(tmp_path / "empty", [])
    assert run(monkeypatch, empty, "--out", out) == 2
    assert "empty: no run with evaluations" in capsys.readouterr().err
    infinite = write_run(tmp_path / "infinite", ["0,1,inf,1,0,1"])
    text = write_run(tmp_path / "text", ["0,soon,1,1,0,1"])
    for folder in (infinite, text):
        assert run(monkeypatch, folder, "--out", out) == 2
        assert f"{folder.name}: {CURVE}: must have finite numbers" in capsys.readouterr().err
    one = write_run(tmp_path / "one", ["0,1,1,1,0,1"])
    other = write_run(tmp_path / "other", ["0,1,1,1,0,1"], evaluation_episodes=3)
    assert run(monkeypatch, one, other, "--out", out) == 2
    assert "other: evaluation_episodes: must be as in one" in capsys.readouterr().err
    assert run(monkeypatch, one, "--out", tmp_path / "curves.png") == 2
    assert "must not end in .png" in capsys.readouterr().err
    assert not out.exists() and not out.with_suffix(".png").exists()
