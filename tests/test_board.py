"""TensorBoard, started for real on what `eval.compare --tensorboard` writes."""

import io
import json
import re
import subprocess
import sys
import time
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import SMALL, CommandLine
from matplotlib.image import imread

from agents.policy import make_policy
from bace_env.config import parse_scenario
from bace_env.scenario import build_instance, episode_seed
from bace_env.timeline import Timeline
from eval import board, compare
from eval.metrics import METRICS, RATIOS, episode_metrics
from eval.rollout import run_episode

ROOT = Path(__file__).resolve().parents[1]
POLICIES = ("bace", "lcf", "random")
EPISODES, SEED = 3, 5
REGIONS = ("north", "south", "island")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board")
    with pytest.MonkeyPatch.context() as patch:
        (folder / "small.toml").write_text(SMALL)
        patch.chdir(folder)
        policies = [part for name in POLICIES for part in ("--policy", name)]
        numbers = ["--episodes", str(EPISODES), "--seed", str(SEED), "--no-baselines"]
        where = ["--scenario", "small.toml", "--tensorboard", "runs/tb"]
        patch.setattr(sys, "argv", ["eval.compare", *policies, *numbers, *where])
        with pytest.raises(SystemExit) as stopped:
            compare.main()
        assert not stopped.value.code
    return folder / "runs" / "tb"


@pytest.fixture(scope="module")
def server(written: Path) -> Iterator[str]:
    """Address of a TensorBoard that has read the folder."""
    options = ["--logdir", str(written), "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        address = None
        for line in process.stderr:
            if found := re.search(r"http://\S+?:\d+/", line):
                address = found[0]
                break
        assert address, "TensorBoard did not start"
        until = time.monotonic() + 60
        while set(ask(address, "scalars/tags")) < set(POLICIES) and time.monotonic() < until:
            time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.communicate()


def ask(address: str, what: str, body: Any = None, **query: str) -> Any:
    url = f"{address}data/plugin/{what}?{urllib.parse.urlencode(query)}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        content = answer.read()
    return json.loads(content) if answer.headers["Content-Type"].startswith("app") else content


def documented_tags() -> set[str]:
    """The tags of the table in docs/visualisation.md."""
    text = (ROOT / "docs" / "visualisation.md").read_text("utf-8")
    section = text.partition("## TensorBoard")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)`", section, re.MULTILINE))


def generic(tag: str) -> str:
    """A tag with its region, link or metric replaced as in the documentation."""
    family, _, last = tag.rpartition("/")
    if " to " in last and family == "time/link_use":
        return f"{family}/REGION to REGION"
    if last in REGIONS:
        return f"{family}/REGION"
    return f"{family}/METRIC" if family in ("episode", "mean") else tag


def test_the_tags_are_those_documented(server: str) -> None:
    found: set[str] = set()
    for plugin in ("scalars", "histograms", "images"):
        tags = ask(server, f"{plugin}/tags")
        assert set(tags) >= set(POLICIES), plugin
        for policy in POLICIES:
            found |= {generic(tag) for tag in tags[policy]}
    texts = ask(server, "text/tags")
    for policy in POLICIES:
        found |= set(texts[policy])
    assert found == documented_tags()


def test_curves_are_over_simulated_time_and_right(server: str) -> None:
    instance = build_instance(load_scenario_small(), episode_seed(SEED, 0))
    trace = run_episode(instance, make_policy("bace"))
    timeline = Timeline(trace)
    queue = ask(server, "scalars/scalars", run="bace", tag="time/queue")
    steps = [step for _, step, _ in queue]
    assert all(a < b for a, b in pairwise(steps))  # TensorBoard drops the others
    assert all(0 <= step - int(wall) <= 3 for wall, step, _ in queue)
    assert queue[0][0] == 0
    assert queue[-1][0] == pytest.approx(timeline.end_s)
    assert integral(queue) == pytest.approx(timeline.queue.integral(), rel=1e-5)
    for r, region in enumerate(REGIONS):
        busy = ask(server, "scalars/scalars", run="bace", tag=f"time/gpus_busy/{region}")
        assert integral(busy) == pytest.approx(timeline.busy_gpus(r).integral(), rel=1e-5)
    spent = ask(server, "scalars/scalars", run="bace", tag="time/spent_usd")
    assert spent[-1][2] == pytest.approx(trace.cost_usd.sum(), rel=1e-5)
    power = ask(server, "scalars/scalars", run="bace", tag="time/power_kw")
    assert integral(power) / 3600 == pytest.approx(trace.energy_kwh.sum(), rel=1e-5)


def load_scenario_small() -> Any:
    return parse_scenario(tomllib.loads(SMALL))


def integral(points: list[list[float]]) -> float:
    """Of the line through (wall time, value)."""
    wall, _, value = np.array(points).T
    return float(np.trapezoid(value, wall))


def test_every_metric_of_every_episode_is_there(server: str) -> None:
    for policy in POLICIES:
        traces = [
            run_episode(
                build_instance(load_scenario_small(), episode_seed(SEED, k)), make_policy(policy)
            )
            for k in range(EPISODES)
        ]
        for metric in (*METRICS, *RATIOS):
            rows = ask(server, "scalars/scalars", run=policy, tag=f"episode/{metric}")
            if metric.startswith("decision_us"):
                assert len(rows) == EPISODES
            elif metric in METRICS:
                values = [episode_metrics(trace)[metric] for trace in traces]
                assert [value for *_, value in rows] == pytest.approx(values, rel=1e-5, abs=1e-9)
        shown = ask(server, "histograms/histograms", run=policy, tag="jobs/jct_s")
        (_, _, buckets) = shown[0]
        assert sum(count for *_, count in buckets) == sum(t.start_s.size for t in traces)


def test_policies_can_be_sorted_by_hparams(server: str) -> None:
    body = {
        "experimentName": "",
        "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_RUNNING"],
        "colParams": [
            {"metric": {"tag": "mean/avg_jct_s", "group": ""}, "order": "ORDER_ASC"},
        ],
        "startIndex": 0,
        "sliceSize": 10,
    }
    groups = ask(server, "hparams/session_groups", body)["sessionGroups"]
    assert {group["hparams"]["policy"] for group in groups} == set(POLICIES)
    values = [
        {value["name"]["tag"]: value["value"] for value in group["metricValues"]}
        for group in groups
    ]
    assert all(set(value) == {f"mean/{name}" for name in board.SORTED_BY} for value in values)
    means = [value["mean/avg_jct_s"] for value in values]
    assert means == sorted(means)
    assert len(set(means)) == 3


def test_pictures_and_texts_are_shown(server: str) -> None:
    for policy in POLICIES:
        (image,) = ask(server, "images/images", run=policy, tag="schedule/gantt", sample="0")
        png = ask(server, "images/individualImage", **dict(urllib.parse.parse_qsl(image["query"])))
        picture = imread(io.BytesIO(png), format="png")
        assert picture.shape[:2] == (640, 1000)
        assert picture.std() > 0.05
        (table,) = ask(server, "text/text", run=policy, tag="schedule/jobs")
        assert "<table>" in table["text"]
        assert "first" in table["text"]
        (config,) = ask(server, "text/text", run=policy, tag="scenario/config")
        assert "usable_memory_gib" in config["text"]


def test_files_are_one_per_run_and_do_not_name_the_machine(written: Path) -> None:
    files = sorted(path.relative_to(written) for path in written.rglob("*") if path.is_file())
    assert [str(file) for file in files] == sorted(
        [board.EVENTS, *(f"{policy}/{board.EVENTS}" for policy in POLICIES)]
    )
    for file in files:
        content = (written / file).read_bytes()
        assert str(written).encode() not in content


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys)


def test_the_command_that_opens_it_is_printed(command: CommandLine) -> None:
    args = ("--scenario", "small.toml", "--episodes", "1", "--no-baselines")
    code, out, _ = command.run(*args, "--tensorboard", "new/a b")
    assert code == 0
    assert out.splitlines()[-1] == "To look at it: tensorboard --logdir 'new/a b'"
    before = command.files()
    code, _, err = command.run(*args, "--tensorboard", "new/a b")
    assert (code, command.files()) == (2, before)
    assert err == (
        "error: --tensorboard new/a b: exists; results are never written over old ones\n"
    )


def test_without_the_package_the_extra_is_named(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board.importlib.util, "find_spec", lambda name: None)
    code, out, err = command.run("--episodes", "1", "--tensorboard", "tb")
    assert (code, out) == (2, "")
    assert err == (
        "error: --tensorboard: needs the package tensorboard: pip install 'bace-env[tensorboard]'\n"
    )
    assert not (command.folder / "tb").exists()


def test_what_fails_leaves_nothing(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(board, "_over_time", fail)
    before = command.files()
    code, _, err = command.run("--scenario", "small.toml", "--episodes", "1", "--tensorboard", "tb")
    assert (code, err) == (1, "error: No space left on device\n")
    assert command.files() == before
