"""The trade-off of JCT against cost: front and area by hand, the command."""

from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine
from hypothesis import given
from hypothesis import strategies as st

from eval import tradeoff
from eval.tradeoff import hypervolume, pareto_front


def test_the_front_by_hand() -> None:
    points = np.array([[1.0, 4.0], [2.0, 2.0], [4.0, 1.0], [3.0, 3.0], [2.0, 2.5], [1.0, 4.0]])
    assert pareto_front(points).tolist() == [True, True, True, False, False, True]


@pytest.mark.parametrize(
    ("points", "corner", "area"),
    [
        ([[1.0, 1.0]], (3.0, 2.0), 2.0),
        ([[1.0, 2.0], [2.0, 1.0]], (3.0, 3.0), 3.0),  # 2 x 1 and 1 x 2 share 1 x 1
        ([[1.0, 2.0], [2.0, 1.0], [2.5, 2.5]], (3.0, 3.0), 3.0),
        ([[4.0, 1.0]], (3.0, 3.0), 0.0),  # beyond the corner
        ([[1.0, 1.0], [1.0, 1.0]], (2.0, 2.0), 1.0),
    ],
)
def test_the_area_by_hand(
    points: list[list[float]], corner: tuple[float, float], area: float
) -> None:
    assert hypervolume(np.array(points), corner) == pytest.approx(area)


POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8)


@given(POINTS)
def test_the_area_is_that_of_the_cells_that_a_point_dominates(
    points: list[tuple[int, int]],
) -> None:
    cells = sum(any(x <= i and y <= j for x, y in points) for i in range(10) for j in range(10))
    assert hypervolume(np.array(points, dtype=float), (10.0, 10.0)) == cells
    front = pareto_front(np.array(points, dtype=float))
    for (x, y), kept in zip(points, front.tolist(), strict=True):
        beaten = any(a <= x and b <= y and (a, b) != (x, y) for a, b in points)
        assert kept == (not beaten)


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys, module=tradeoff)


@pytest.mark.jit
def test_a_sweep_trades_time_for_money(command: CommandLine) -> None:
    code, out, err = command.run(
        "--scenario", "small.toml", "--episodes", "3", "--lambda", "0", "--lambda", "5", "--sweep",
        "search:simulations=100", "--plot", "front.png",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "search:simulations=100,lambda=0 " in out
    assert "Hypervolume below" in out
    assert (command.folder / "front.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("--sweep", "sjf"), "error: policy 'sjf:lambda=0': unknown option 'lambda'"),
        (
            ("--lambda", "-1"),
            "error: Invalid value for '--lambda': Input should be greater than or equal",
        ),
        (("--plot", "front.txt"), "error: --plot front.txt: must end in one of .png, .pdf, .svg"),
        (("--scenario", "nothing.toml"), "error: scenario nothing.toml: cannot read: No such file"),
        (("--policy", "bcae"), "error: policy: unknown name 'bcae'; did you mean 'bace'?"),
    ],
)
def test_bad_input_is_one_line(args: tuple[str, ...], error: str, command: CommandLine) -> None:
    before = command.files()
    code, _, err = command.run(*args)
    assert code == 2
    assert err.startswith(error)
    assert err.count("\n") == 1
    assert command.files() == before
