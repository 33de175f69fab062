"""`eval.inspect` and `eval.explain` from end to end; what the page holds, without a browser."""

import csv
import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import SMALL as SMALL_SCENARIO
from command_line import CommandLine
from matplotlib.image import imread

from agents.policy import make_policy
from bace_env.config import load_scenario, parse_scenario
from bace_env.instance import Instance
from bace_env.scenario import build_instance
from bace_env.trace import EpisodeTrace
from eval import episode_page, explain, inspect
from eval.episode_page import Shown, build_page, limit_reasons, page_data
from eval.experiment import Request, run_comparison
from eval.metrics import episode_metrics
from eval.replay import explain_episode
from eval.report import save_run
from eval.rollout import run_episode

SMALL = ("--scenario", "small.toml")


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys)


def small(command: CommandLine, *overrides: str) -> Instance:
    return build_instance(load_scenario(command.folder / "small.toml", overrides), 0)


class Page(HTMLParser):
    """Elements and attributes of a page, and the content of its scripts by id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str | None, str] = {}
        self.title = ""
        self._open: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = (tag, dict(attrs))
        self.elements.append(self._open)

    def handle_endtag(self, tag: str) -> None:
        self._open = ("", {})

    def handle_data(self, data: str) -> None:
        if self._open[0] == "script":
            self.scripts[self._open[1].get("id")] = data
        elif self._open[0] == "title":
            self.title += data

    @property
    def data(self) -> Any:
        return json.loads(self.scripts["data"])


def page(path: Path) -> Page:
    return Page(path.read_text("utf-8"))


def shown(instance: Instance, *specs: str) -> list[Shown]:
    found = []
    for spec in specs:
        policy = make_policy(spec)
        trace = run_episode(instance, policy)
        found.append(Shown(trace, limit_reasons(explain_episode(trace, policy))))
    return found


# --- The page ------------------------------------------------------------------------------------


def test_a_page_of_two_policies_holds_both_and_asks_for_nothing(command: CommandLine) -> None:
    code, out, err = command.run(*SMALL, "--policy", "bace", "--against", "lcf", module=inspect)
    assert (code, err) == (0, "")
    assert re.fullmatch(r"Wrote inspect\.html \(0\.\d MB\): open it in a browser\.\n", out)
    found = page(command.folder / "inspect.html")
    assert found.title == "small, seed 0: bace against lcf"
    assert [episode["policy"] for episode in found.data["episodes"]] == ["bace", "lcf"]
    for tag, attributes in found.elements:
        assert tag not in ("img", "iframe", "object", "embed", "video", "audio", "base")
        for name in ("src", "href", "action", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    policy = next(a["content"] for _, a in found.elements if "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    text = (command.folder / "inspect.html").read_text("utf-8")
    assert not re.search(r"@import|url\((?!#)|fetch\(|XMLHttpRequest|WebSocket|import\(", text)
    links = set(re.findall(r"https?://[^\"' <]+", text))
    assert links <= {"http://www.w3.org/2000/svg"}  # a name, never fetched


def test_the_page_says_what_the_trace_says(command: CommandLine) -> None:
    data = page_data(shown(small(command), "bace", "cr-ldf"))
    for one, spec in zip(data["episodes"], ("bace", "cr-ldf"), strict=True):
        trace = run_episode(small(command), make_policy(spec))
        check_jobs(one, trace)
        metrics = episode_metrics(trace)
        for metric in data["metrics"]:
            if not metric["key"].startswith("decision"):
                assert one["metrics"][metric["key"]] == metrics[metric["key"]]
        spent = one["series"]["spent"]["v"][-1]
        assert spent == pytest.approx(trace.cost_usd.sum(), rel=1e-6)
        assert len(one["decisions"]) == len(trace.decisions)
        for decision, taken in zip(one["decisions"], trace.decisions, strict=True):
            assert (decision["time_s"], decision["job"]) == taken[:2]
            action = decision["reasons"]["action"]
            assert (action["job"] if action else None) == taken.job


def check_jobs(episode: dict[str, Any], trace: EpisodeTrace) -> None:
    jobs, a = episode["jobs"], trace.instance.arrays
    for name in ("start_s", "finish_s", "iteration_s", "energy_kwh", "cost_usd"):
        assert jobs[name] == pytest.approx(getattr(trace, name).tolist(), rel=1e-9)
    for j in range(a.arrival_s.size):
        assert (tuple(jobs["path"][j]), tuple(jobs["alloc"][j])) == trace.placement(j)
        mine = [n for n, job in enumerate(episode["lanes"]["job"]) if job == j]
        assert sum(episode["lanes"]["gpus"][n] for n in mine) == sum(trace.placement(j)[1])
    # Who holds GPUs is the same in the lanes as in the curve, at the middle of every step.
    times = np.array(episode["series"]["busy"]["t"])
    for t, busy in zip((times[1:] + times[:-1]) / 2, episode["series"]["busy"]["v"], strict=False):
        running = (trace.start_s <= t) & (t < trace.finish_s)
        assert trace.alloc[running].sum() == busy


HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--data-->",
    "<img src=x onerror=alert(1)>",
    "'\"&<",
    "名前",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_stays_a_name(name: str, command: CommandLine) -> None:
    instance = small(command)
    instance = Instance(
        scenario=name,
        seed=0,
        region_names=(name, *instance.region_names[1:]),
        job_names=(name, *instance.job_names[1:]),
        profile_names=instance.profile_names,
        arrays=instance.arrays,
        cost_weight=0.3,
    )
    found = Page(build_page(shown(instance, "bace")))
    assert [a.get("id") for tag, a in found.elements if tag == "script"] == ["data", None]
    assert found.title == f"{name}, seed 0: bace"
    assert found.data["jobs"]["name"][0] == name
    assert found.data["regions"][0]["name"] == name


@pytest.mark.parametrize(
    "overrides",
    [
        ("workload.n_jobs=1",),
        ("jobs.third.iterations=0",),
        ("network.links=[]",),
        *(("regions.0.gpus=64", f"regions.0.price_usd_per_kwh={p}") for p in ("0", "-5")),
        ("workload.mean_interarrival_h=1000",),
        (
            "workload.mean_interarrival_h=100",
            "regions.south.price_usd_per_kwh={ values = [0.3, 0.1], step_h = 0.02 }",
        ),
    ],
)
def test_odd_workloads_have_a_page_and_a_picture(
    overrides: tuple[str, ...], command: CommandLine
) -> None:
    changed = [part for item in overrides for part in ("--set", item)]
    code, _, err = command.run(
        *SMALL, *changed, "--html", "a.html", "--png", "a.png", module=inspect
    )
    assert (code, err) == (0, "")
    found = page(command.folder / "a.html").data
    assert found["n_jobs"] == len(found["jobs"]["id"])
    for series in found["episodes"][0]["series"].values():
        assert len(series["t"]) == len(series["v"]) <= 2001
        assert series["low"] <= series["high"]
    assert imread(command.folder / "a.png").std() > 0.05


def test_many_jobs_are_means_with_the_csv_beside(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode_page, "MOST_JOBS", 50)
    monkeypatch.setattr(episode_page, "MOST_ROWS", 20)
    monkeypatch.setattr(episode_page, "MOST_REASONS", 7)
    monkeypatch.setattr(episode_page, "_MOST_STEPS", 30)
    monkeypatch.setattr(episode_page, "_BINS", 25)
    args = (*SMALL, "--set", "workload.n_jobs=60", "--against", "sjf", "--html", "many.html")
    code, out, _ = command.run(*args, module=inspect)
    assert code == 0
    assert "Wrote many.jobs.csv: every job" in out
    instance = small(command, "workload.n_jobs=60")
    traces = [run_episode(instance, make_policy(spec)) for spec in ("bace", "sjf")]
    with (command.folder / "many.jobs.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120
    for row, expected in zip(rows, [(t, j) for t in traces for j in range(60)], strict=True):
        trace, j = expected
        assert (row["policy"], row["job"]) == (trace.policy, str(j))
        assert float(row["finish_s"]) == trace.finish_s[j]
        assert float(row["cost_usd"]) == trace.cost_usd[j]
        assert row["path"] == instance.where(*trace.placement(j))
    data = page(command.folder / "many.html").data
    jct_s = traces[0].finish_s - instance.arrays.arrival_s
    assert data["jobs"]["id"] == np.argsort(-jct_s, kind="stable")[:20].tolist()
    for episode, trace in zip(data["episodes"], traces, strict=True):
        assert episode["lanes"] is None
        assert len(episode["decisions"]) == 7
        left = len(trace.decisions) - 7
        assert episode["reasons_note"].startswith(f"{left} more decisions follow; to see the next:")
        busy = episode["series"]["busy"]
        assert (busy["mean"], len(busy["v"])) == (True, 25)
        held = (trace.alloc.sum(axis=1) * (trace.finish_s - trace.start_s)).sum()
        assert np.mean(busy["v"]) * episode["end_s"] == pytest.approx(held, rel=1e-5)
    # The command that the note gives works.
    note = data["episodes"][0]["reasons_note"]
    again = command.run(*note.split("eval.explain ")[1].split(), module=explain)
    assert again.code == 0
    assert "decision 7 of 0 to" in again.out


# --- Where episodes come from --------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of bace, lcf and random on two workloads."""
    scenario = parse_scenario(tomllib.loads(SMALL_SCENARIO))
    request = Request(scenario, ("bace", "lcf", "random"), keep_traces=True)
    folder = tmp_path_factory.mktemp("saved") / "run"
    save_run(run_comparison(request, seed=0, episodes=2), folder)
    return folder


@pytest.fixture
def run(command: CommandLine, saved: Path) -> CommandLine:
    """With that run in `run`."""
    shutil.copytree(saved, command.folder / "run")
    return command


def test_a_saved_episode_gives_the_page_of_the_same_episode_run_anew(run: CommandLine) -> None:
    for args in (
        ("run", "--policy", "bace", "--against", "random", "--html", "saved.html"),
        ("run/traces/bace/0.json", "--against", "random", "--html", "trace.html"),
        (*SMALL, "--policy", "bace", "--against", "random", "--html", "anew.html"),
    ):
        assert run.run(*args, module=inspect).code == 0, args
    pages = [without_times(page(run.folder / f"{n}.html").data) for n in ("saved", "trace", "anew")]
    assert pages[0] == pages[1] == pages[2]
    assert pages[0]["episodes"][1]["reasons_note"] == "The policy random gives no reasons."
    reasons = [decision["reasons"] for decision in pages[0]["episodes"][1]["decisions"]]
    assert set(map(str, reasons)) == {"None"}


def without_times(data: Any) -> Any:
    if isinstance(data, dict):
        return {k: without_times(v) for k, v in data.items() if not k.startswith("decision_us")}
    return [without_times(item) for item in data] if isinstance(data, list) else data


def test_explain_of_a_saved_run_is_that_of_the_episode(run: CommandLine) -> None:
    saved = run.run("run", "--policy", "lcf", "--decision", "2", "--json", module=explain)
    anew = run.run(*SMALL, "--policy", "lcf", "--decision", "2", "--json", module=explain)
    assert saved == anew
    assert saved.code == 0
    data = json.loads(saved.out)
    assert (data["policy"], data["decision"]) == ("lcf", 2)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("no",), r"no: cannot read: No such file or directory"),
        (("small.toml",), r"small\.toml: is not what eval\.compare --out writes: .*"),
        (("folder",), r"folder: is no run of eval\.compare --out \(it has no run\.json\)"),
        (("run", "--scenario", "tiny"), r"--scenario and --set: cannot be given with RUN.*"),
        (("run", "--set", "a=1"), r"--scenario and --set: cannot be given with RUN.*"),
        (("run", "--policy", "sjf"), r"run: has no policy 'sjf'; .*"),
        (("run", "--seed", "5"), r"run: has no seed 5; it has 0, \d+"),
        (("run/traces/lcf/0.json", "--policy", "bace"), r"--policy bace: .* is a trace of lcf"),
        (("run/traces/lcf/0.json", "--seed", "1"), r"--seed 1: .* is a trace of seed 0"),
        (("--scenario", "papr"), r"scenario: unknown preset 'papr'; .*"),
        (("--policy", "bacce"), r"policy: unknown name 'bacce'; did you mean 'bace'\?"),
        (("--seed", "-1"), r"Invalid value for '--seed': must be an integer from 0 to .*"),
    ],
)
@pytest.mark.parametrize("module", [inspect, explain])
def test_bad_input_is_answered_by_one_line(
    module: Any, args: tuple[str, ...], error: str, run: CommandLine
) -> None:
    (run.folder / "folder").mkdir()
    refused(run, module, args, error)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("--html", "a.htm"), r"--html a\.htm: must end in \.html"),
        (("--png", "a.svg"), r"--png a\.svg: must end in \.png"),
        (("--html", ""), r"Invalid value for '--html': must be a path, got ''"),
        (("--html", "no/a.html"), r"--html no/a\.html: no such folder no"),
        (("--against", "bace"), r"--against: must differ from --policy, got 'bace' twice"),
        (("run", "--against", "bace"), r"--against: must differ from --policy, got 'bace' twice"),
        (("run", "--against", "x"), r"run: has no policy 'x'; known: bace, lcf, random"),
    ],
)
def test_bad_outputs_and_pairs_are_answered_by_one_line(
    args: tuple[str, ...], error: str, run: CommandLine
) -> None:
    refused(run, inspect, args, error)


def refused(command: CommandLine, module: Any, args: tuple[str, ...], error: str) -> None:
    before = command.files()
    code, out, err = command.run(*args, module=module)
    assert err.startswith("error: ")
    assert re.fullmatch(error, err.removeprefix("error: ").rstrip("\n")), err
    assert (code, out) == (2, "")
    assert command.files() == before


def test_reasons_of_a_policy_that_is_gone_are_missed_out_loud(run: CommandLine) -> None:
    stored = json.loads((run.folder / "run" / "run.json").read_text())
    stored["policies"][0] = "gone.py:Mine"
    (run.folder / "run" / "run.json").write_text(json.dumps(stored))
    assert run.run("run", "--html", "a.html", module=inspect).code == 0
    note = page(run.folder / "a.html").data["episodes"][0]["reasons_note"]
    assert note == "No reasons can be given: policy: no such file 'gone.py'."
    code, _, err = run.run("run", "--decision", "0", module=explain)
    assert (code, err) == (2, "error: policy: no such file 'gone.py'\n")


# --- The terminal --------------------------------------------------------------------------------


def lines(text: str) -> Iterator[str]:
    return (line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("width", ["60", "80", "160"])
def test_reasons_in_the_terminal_are_whole_at_any_width(
    width: str, command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    code, out, _ = command.run("--scenario", "physical", "--decision", "1", module=explain)
    assert code == 0
    assert max(map(len, lines(out))) <= int(width)
    squeezed = re.sub(r"\s+", "", out)
    instance = build_instance(load_scenario("physical"), 0)
    pending = instance.job_names[:-1]
    assert all(squeezed.count(name) >= 1 for name in (*instance.region_names, *pending[2:]))
    assert "(Eq.12)" in squeezed
    assert "chosen" in out
    assert "…" not in out


def test_decisions_are_listed_and_numbered(command: CommandLine) -> None:
    code, out, _ = command.run(*SMALL, "--json", module=explain)
    assert code == 0
    rows = json.loads(out)
    trace = run_episode(small(command), make_policy("bace"))
    assert [(row["decision"], row["job"]) for row in rows] == [
        (k, decision.job) for k, decision in enumerate(trace.decisions)
    ]
    text = command.run(*SMALL, module=explain).out
    assert f"bace on small, seed 0: {len(rows)} decisions" in text
    code, _, err = command.run(*SMALL, "--decision", str(len(rows)), module=explain)
    assert code == 2
    assert err.startswith(f"error: --decision {len(rows)}: must be from 0 to {len(rows) - 1}, ")


def test_a_policy_without_reasons_is_an_answer_not_a_traceback(command: CommandLine) -> None:
    code, out, err = command.run("--policy", "random", "--decision", "0", module=explain)
    assert (code, out) == (2, "")
    assert err == "error: policy random: gives no reasons (it has no explain method)\n"
