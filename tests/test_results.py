from pathlib import Path

import pytest
from command_line import CommandLine

from eval import results
from eval.results import paper_cases, zero_shot_cases


def test_the_papers_settings_and_other_sizes() -> None:
    cases = {case.title: case.scenario for case in paper_cases()}
    assert len(cases) == 12
    assert cases["paper, scale.bandwidth=0.3"].scale.bandwidth == 0.3
    assert cases["paper, workload.n_jobs=24"].workload.n_jobs == 24
    assert [len(case.scenario.regions) for case in zero_shot_cases()] == [6, 6, 3, 12]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policy", "ppo:lambda=1"], "error: --policy: without lambda"),
        (["--policy", "pp"], "error: policy: unknown name 'pp'"),
        (["--episodes", "3"], "must be an integer from 10"),
        (["--policy", "sjf"], "error: policy 'sjf:lambda=0': "),
        (["--out", "mine.png"], "error: --out mine.png: must not end in .png"),
        (["--out", "no/such.md"], "error: --out no/such.md: no such folder no"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = CommandLine(tmp_path, monkeypatch, capsys, results)
    before = command.files()
    outcome = command.run(*arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
    assert command.files() == before
