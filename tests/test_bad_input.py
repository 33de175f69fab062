"""What a user gets wrong on the command line is answered by one line that says what and why."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from command_line import SMALL, CommandLine

from bace_env.config import load_scenario
from bace_env.errors import ConfigError
from bace_env.scenario import build_instance


class Case(NamedTuple):
    args: tuple[str, ...]
    error: str  # regular expression of all that follows `error: `


def setting(*overrides: str, scenario: str = "paper") -> tuple[str, ...]:
    return ("--scenario", scenario, *(arg for text in overrides for arg in ("--set", text)))


def listed(*links: str) -> tuple[str, ...]:
    return setting('network.rule="listed"', f"network.links=[{', '.join(links)}]")


def link(source: str, target: str, gbps: str = "1", more: str = "") -> str:
    return f'{{ source = "{source}", target = "{target}", gbps = {gbps}{more} }}'


FILES = {
    "not_toml.toml": b"name = \n",
    "latin1.toml": b'name = "caf\xe9"\n',
    "empty.toml": b"",
    "syntax.py": b"def act(:\n",
    "missing_module.py": b"import no_such_module\n",
    "no_policy.py": b"class Nothing:\n    pass\n",
    "refusing.py": b'class P:\n    def __init__(self):\n        raise ValueError("no\\nway")\n',
    "impostor.py": b"""
class Impostor:
    name = "bace"
    def reset(self, seed): pass
    def act(self, view): return None
class TwoLines(Impostor):
    name = "two\\nlines"
""",
    "taken.json": b"old",
}

PAPER = "scenario paper: "
GPUS = f"{PAPER}regions.EU-West.gpus: "
PRICE = f"{PAPER}regions.EU-West.price_usd_per_kwh"
INVALID, INTEGER = "Invalid value for ", "must be an integer from"
LAYERED = "missing, and needed with pipeline.form = 'layered', memory_minimum = False"

CASES = [
    # unknown keys
    Case(setting("colour=1"), f"{PAPER}colour: unknown key"),
    Case(setting("gpu.colour=1"), rf"{PAPER}gpu\.colour: unknown key"),
    Case(setting("gpu.colour.deep=1"), rf"{PAPER}gpu\.colour: unknown key"),
    Case(
        setting("regions.EU-West.cpus=1"),
        rf"{PAPER}regions\.EU-West\.cpus: unknown key; did you mean 'gpus'\?",
    ),
    Case(setting("models.Qwen2.5-14B.x=1"), rf"{PAPER}models\.Qwen2\.5-14B\.x: unknown key"),
    Case(
        listed(link("EU-West", "EA-East", more=", mtu = 9")),
        rf"{PAPER}network\.links\.0\.mtu: unknown key",
    ),
    # wrong types
    Case(setting('regions.0.gpus="many"'), rf"{GPUS}.*valid integer, got 'many'"),
    Case(setting("regions.0.gpus=1.5"), rf"{GPUS}.*valid integer, got 1\.5"),
    Case(setting("regions.0.gpus=true"), rf"{GPUS}.*valid integer, got True"),
    Case(setting("gpu.power_w=true"), rf"{PAPER}gpu\.power_w: .*valid number, got True"),
    Case(setting("regions=3"), rf"{PAPER}regions: .*valid list, got 3"),
    Case(setting("regions.0=3"), rf"{PAPER}regions\.0: .*valid dictionary.*, got 3"),
    Case(setting("regions.0={}"), rf"{PAPER}regions\.0\.name: field required; .*"),
    Case(setting("jobs.0.model=7"), rf"{PAPER}jobs\.FLM-101B\.model: .*valid string, got 7"),
    Case(
        setting("jobs.0.arrival_h=2024-01-01"),
        rf"{PAPER}jobs\.FLM-101B\.arrival_h: .*valid number, got datetime\.date\(2024, 1, 1\)",
    ),
    # numbers out of range
    Case(setting("regions.0.gpus=nan"), rf"{GPUS}.*valid integer, got nan"),
    Case(setting("regions.0.gpus=inf"), rf"{GPUS}.*valid integer, got inf"),
    Case(setting("regions.0.gpus=-4"), rf"{GPUS}.*greater than or equal to 1, got -4"),
    Case(setting("regions.EU-West.gpus=0"), rf"{GPUS}.*greater than or equal to 1, got 0"),
    Case(setting("regions.0.gpus=1000000000"), rf"{GPUS}.*less than or equal to.*, got 1000000000"),
    Case(setting("regions.0.gpus=" + "9" * 5000), rf"{GPUS}.*valid integer, got '9{{70,}}\.\.\."),
    Case(
        setting("scale.gpus=1e6"),
        rf"{PAPER}regions\.\*\.gpus: at most 1000000 in all, got 336000000 .*1000000\.0\)",
    ),
    Case(setting("scale.gpus=0"), rf"{PAPER}scale\.gpus: .*greater than 0, got 0"),
    Case(
        setting("scale.gpus=0.001"),
        r"scale\.gpus: leaves regions\.EU-West without a GPU, got 64 \* 0\.001",
    ),
    Case(setting("scale.bandwidth=nan"), rf"{PAPER}scale\.bandwidth: must be finite, got nan"),
    Case(setting("regions.0.price_usd_per_kwh=nan"), rf"{PRICE}: must be finite, got nan"),
    Case(setting("regions.0.price_usd_per_kwh=inf"), rf"{PRICE}: must be finite, got inf"),
    Case(setting("regions.0.price_usd_per_kwh=1e99"), rf"{PRICE}: must be .*1e15, got 1e\+99"),
    Case(setting("regions.0.price_usd_per_kwh=cheap"), rf"{PRICE}: .*valid number, got 'cheap'"),
    Case(
        setting("regions.0.price_usd_per_kwh={ values = [] }"),
        rf"{PRICE}\.values: .*at least 1 item.*, got \[\]",
    ),
    Case(
        setting("regions.0.price_usd_per_kwh={ values = [0.1, nan] }"),
        rf"{PRICE}\.values\.1: must be finite, got nan",
    ),
    Case(
        setting('regions.0.price_usd_per_kwh={ values = [0.1], unit = "EUR/kWh" }'),
        rf"{PRICE}\.unit: .*'USD/kWh' or 'USD/MWh', got 'EUR/kWh'",
    ),
    Case(
        setting("regions.0.price_usd_per_kwh={ values = [0.1], step_h = 0 }"),
        rf"{PRICE}\.step_h: .*greater than or equal to 0\.000\d+, got 0",
    ),
    Case(setting("regions.0.price_usd_per_kwh={ value = 1 }"), rf"{PRICE}\.values: field req.*"),
    Case(setting("gpu.power_w=-300"), rf"{PAPER}gpu\.power_w: .*or equal to 0, got -300"),
    Case(setting("gpu.power_w=nan"), rf"{PAPER}gpu\.power_w: must be finite, got nan"),
    Case(setting("regions.0.power_w=inf"), rf"{PAPER}regions\.EU-West\.power_w: .*finite, got inf"),
    Case(setting("gpu.pue=0.9"), rf"{PAPER}gpu\.pue: .*greater than or equal to 1, got 0\.9"),
    Case(setting("regions.0.pue=0"), rf"{PAPER}regions\.EU-West\.pue: .*equal to 1, got 0"),
    Case(setting("gpu.efficiency=1.2"), rf"{PAPER}gpu\.efficiency: .*or equal to 1, got 1\.2"),
    Case(
        setting("regions.0.bandwidth_gbps=0"),
        rf"{PAPER}regions\.EU-West\.bandwidth_gbps: .*greater than 0, got 0",
    ),
    Case(
        setting("regions.0.bandwidth_gbps=nan"),
        rf"{PAPER}regions\.EU-West\.bandwidth_gbps: must be finite, got nan",
    ),
    Case(
        listed(link("EU-West", "EA-East", "-1")),
        rf"{PAPER}network\.links\.0\.gbps: .*greater than or equal to 0, got -1",
    ),
    Case(setting("network.latency_ms=-1"), rf"{PAPER}network\.latency_ms: .*to 0, got -1"),
    Case(setting("network.latency_ms=inf"), rf"{PAPER}network\.latency_ms: .*finite, got inf"),
    Case(setting("pipeline.intra_gbps=nan"), rf"{PAPER}pipeline\.intra_gbps: .*, got nan"),
    # names and lists
    Case(setting("regions=[]"), rf"{PAPER}regions: .*at least 1 item.*, got \[\]"),
    Case(setting("jobs=[]"), rf"{PAPER}jobs: .*at least 1 item.*, got \[\]"),
    Case(setting('regions.1.name="EU-West"'), f"{PAPER}regions: .*differ, got 'EU-West' twice"),
    Case(setting('models.1.name="FLM-101B"'), f"{PAPER}models: .*differ, got 'FLM-101B' twice"),
    Case(setting('jobs.1.name="FLM-101B"'), f"{PAPER}jobs: .*differ, got 'FLM-101B' twice"),
    Case(
        setting('datasets.1.name="Alpaca-52k"'),
        f"{PAPER}datasets: names must differ, got 'Alpaca-52k' twice",
    ),
    Case(setting('name=""'), f"{PAPER}name: .*at least 1 character, got ''"),
    Case(setting('regions.0.name=""'), rf"{PAPER}regions\.0\.name: .*1 character, got ''"),
    Case(setting('jobs.0.name="a\\nb"'), rf"{PAPER}jobs\.a b\.name: .*one line, got 'a\\nb'"),
    Case(
        setting('jobs.0.model="FLM-101"'),
        rf"{PAPER}jobs\.FLM-101B\.model: unknown name 'FLM-101'; did you mean 'FLM-101B'\?",
    ),
    Case(
        setting('jobs.0.dataset="Alpaca"'),
        rf"{PAPER}jobs\.FLM-101B\.dataset: unknown name 'Alpaca'; did you mean 'Alpaca-52k'\?",
    ),
    Case(
        setting('jobs.0.dataset="Alpaca-52k"', "jobs.0.iterations=3"),
        rf"{PAPER}jobs\.FLM-101B: give iterations or a dataset, not both",
    ),
    Case(setting("datasets=[]"), rf"{PAPER}jobs\.FLM-101B: needs iterations, or .*datasets.*"),
    # links
    Case(
        listed(link("EU-West", "EA-Eest")),
        rf"{PAPER}network\.links EU-West -> EA-Eest: unknown name 'EA-Eest'; .*'EA-East'\?",
    ),
    Case(
        listed(link("EU-West", "EU-West")),
        rf"{PAPER}network\.links EU-West -> EU-West: a link must join two regions",
    ),
    Case(
        listed(link("EU-West", "EA-East"), link("EA-East", "EU-West", more=", both_ways = false")),
        rf"{PAPER}network\.links EA-East -> EU-West: .* is given twice \(both_ways.*",
    ),
    Case(
        listed('{ source = "EU-West" }'), rf"{PAPER}network\.links\.0\.target: field required; .*"
    ),
    Case(
        setting("network.rule=mean", "network.links=[]", "network.flows=1", scenario="physical"),
        r"scenario physical: regions\.EU-West\.bandwidth_gbps: network\.rule = \"mean\" needs it",
    ),
    Case(
        setting("network.flows=2"), rf"{PAPER}network\.links and network\.flows go with .*listed.*"
    ),
    # models and jobs against the cluster
    Case(
        setting("pipeline.micro_batches=8", "pipeline.micro_batch_samples=2"),
        rf"{PAPER}pipeline: give either micro_batches or micro_batch_samples, got 8 and 2",
    ),
    Case(
        setting("pipeline.scaling_exponent=1.1", scenario="physical"),
        r"scenario physical: pipeline: scaling_exponent goes with form = \"uncapped\", got 1\.1",
    ),
    Case(
        setting("pipeline.scaling_exponent=0"),
        rf"{PAPER}pipeline\.scaling_exponent: .*equal to 0\.5, got 0",
    ),
    Case(
        setting("workload.dataset_spread=-1"),
        rf"{PAPER}workload\.dataset_spread: .*equal to 0, got -1",
    ),
    Case(setting("policies.bace=1"), rf"{PAPER}policies\.bace: .*valid string, got 1"),
    Case(setting("pipeline.form=layered"), rf"{PAPER}models\.FLM-101B\.arch: {LAYERED}"),
    Case(setting("pipeline.form=Layered"), rf"{PAPER}pipeline\.form: .*, got 'Layered'"),
    Case(
        setting("models.0.k_min=1000"),
        r"models\.FLM-101B: needs at least 1000 GPUs, .*at most 336 \(the cluster has 336\)",
    ),
    Case(
        setting("models.0.k_min=4", "models.0.k_max=3"),
        rf"{PAPER}models\.FLM-101B\.k_min: must be <= k_max = 3, got 4",
    ),
    Case(
        setting("models.0.k_min=3", "network.links=[]", scenario="tiny"),
        r"jobs: not even the empty cluster of 4 GPUs .* could host long \(k_min 3\)",
    ),
    Case(
        setting("gpu.usable_memory_gib=1.5", scenario="physical"),
        r"models\.FLM-101B: one layer .* does not fit gpu\.usable_memory_gib = 1\.5",
    ),
    Case(
        setting("models.0.measured.gpus=[1, 2, 3]", scenario="tiny"),
        r"scenario tiny: models\.wide\.measured: .*one time per entry.*, got 4 for \[1, 2, 3\]",
    ),
    Case(
        setting("models.0.measured.gpus=[1, 2, 4, 3]", scenario="tiny"),
        r"scenario tiny: models\.wide\.measured: gpus must ascend, got \[1, 2, 4, 3\]",
    ),
    Case(
        setting("models.0.measured.t_comp_ms.2=0", scenario="tiny"),
        r"scenario tiny: models\.wide\.measured\.t_comp_ms\.2: .*greater than 0, got 0",
    ),
    Case(
        setting("models.0.measured={ gpus = [1] }", scenario="tiny"),
        r"scenario tiny: models\.wide\.measured: give either t_comp_ms or run_time_h, got .*",
    ),
    Case(setting("jobs.0.batch_size=0"), rf"{PAPER}jobs\.FLM-101B\.batch_size: .*to 1, got 0"),
    Case(setting("jobs.0.epochs=-1"), rf"{PAPER}jobs\.FLM-101B\.epochs: .*than 0, got -1"),
    # arrivals
    Case(setting("workload.n_jobs=0"), rf"{PAPER}workload\.n_jobs: .*equal to 1, got 0"),
    Case(setting("workload.n_jobs=10000000"), rf"{PAPER}workload\.n_jobs: .*, got 10000000"),
    Case(
        setting("workload.arrivals=listed", "jobs.0.arrival_h=-1"),
        rf"{PAPER}jobs\.FLM-101B\.arrival_h: .*greater than or equal to 0, got -1",
    ),
    Case(
        setting("jobs.0.arrival_h=2"),
        rf"{PAPER}jobs\.FLM-101B\.arrival_h: goes with \[workload\] .*got 2\.0 .*'at_zero'",
    ),
    Case(
        setting(
            "workload.arrivals=listed",
            *(f"jobs.{i}.arrival_h={h}" for i, h in enumerate((2, 0.5, 3))),
            scenario="tiny",
        ),
        r"scenario tiny: jobs\.short\.arrival_h: arrivals must not descend, got 0\.5 after 2\.0",
    ),
    Case(
        setting(
            "workload.arrivals=listed",
            "workload.n_jobs=4",
            *(f"jobs.{i}.arrival_h=1" for i in range(3)),
            scenario="tiny",
        ),
        r"scenario tiny: workload\.n_jobs: at most the 3 listed jobs .*, got 4",
    ),
    Case(
        setting("workload.arrivals=poisson"),
        rf'{PAPER}workload: arrivals = "poisson" needs either mean_.*',
    ),
    # --set itself
    Case(setting("scale.gpus"), "--set 'scale.gpus': must be key=value, such as .*"),
    Case(setting(""), "--set '': must be key=value, such as .*"),
    Case(setting("=3"), "--set '=3': must be key=value, such as .*"),
    Case(setting("scale..gpus=3"), r"--set 'scale\.\.gpus=3': must be key=value, such as .*"),
    Case(setting("regions.0.gpus="), rf"{GPUS}.*valid integer, got ''"),
    Case(setting("regions.0.gpus=1\nname=2"), rf"{GPUS}.*valid integer, got '1\\nname=2'"),
    Case(
        setting("regions.EU-Wes.gpus=1"),
        r"--set .*: regions\.EU-Wes: unknown entry 'EU-Wes'; did you mean 'EU-West'\?",
    ),
    Case(
        setting("regions.9.gpus=1"), r"--set .*: regions\.9: unknown entry '9'; known: EU-West, .*"
    ),
    Case(
        setting("regions.0.gpus.x=1"),
        r"--set 'regions\.0\.gpus\.x=1': regions\.0\.gpus is not a table, got 64",
    ),
    # scenarios
    Case(("--scenario", "papr"), r"scenario: unknown preset 'papr'; did you mean 'paper'\? .*"),
    Case(
        ("--scenario", ""),
        "scenario: unknown preset ''; known: fig1, paper, paper-fitted, physical, tiny, week-.*",
    ),
    Case(("--scenario", "no.toml"), r"scenario no\.toml: cannot read: No such file or directory"),
    Case(("--scenario", "./folder"), r"scenario \./folder: cannot read: Is a directory"),
    Case(("--scenario", "not_toml.toml"), r"scenario not_toml\.toml: not valid TOML: .*"),
    Case(("--scenario", "latin1.toml"), r"scenario latin1\.toml: not UTF-8 text: .*"),
    Case(("--scenario", "empty.toml"), r"scenario empty\.toml: name: field required; regions: .*"),
    # policies
    Case(("--policy", "bacce"), r"policy: unknown name 'bacce'; did you mean 'bace'\?"),
    Case(("--policy", ""), "policy: unknown name ''; known: bace, .*"),
    Case(("--policy", "bace:speed=3"), "policy 'bace:speed=3': unknown option 'speed'; known: .*"),
    Case(
        ("--policy", "bace:patience=2"),
        "policy 'bace:patience=2': patience: must be a share from 0 to 1, got '2'",
    ),
    Case(("--policy", "bace:ties=never"), "policy .*: ties: must be first or last, got 'never'"),
    Case(("--policy", "ldf:ties=last"), "policy 'ldf:ties=last': ties: goes with the Pathfinder.*"),
    Case(("--policy", "bace:patience=nan"), "policy .*: patience: .* 0 to 1, got 'nan'"),
    Case(("--policy", "lcf:skip_blocked=x"), "policy .*: skip_blocked: .*true or false, got 'x'"),
    Case(("--policy", "none.py:Mine"), r"policy: no such file 'none\.py'"),
    Case(("--policy", "none.py"), r"policy 'none\.py:': must be module:Class or file\.py:Class"),
    Case(("--policy", "syntax.py:P"), r"policy 'syntax\.py:P': .*invalid syntax.*line 1.*"),
    Case(("--policy", "missing_module.py:P"), "policy .*: No module named 'no_such_module'"),
    Case(("--policy", "no_policy.py:P"), "policy .*: .*'no_policy' has no attribute 'P'"),
    Case(("--policy", "no_policy.py:Nothing"), r"policy .*: needs a name, reset\(seed\) and act.*"),
    Case(("--policy", "refusing.py:P"), r"policy 'refusing\.py:P': no way"),
    Case(
        ("--policy", "impostor.py:Impostor"),
        r"policy 'bace': its name must differ from that of 'impostor\.py:Impostor', got 'bace'",
    ),
    Case(
        ("--policy", "impostor.py:TwoLines"),
        r"policy .*: its name must be 1 to 100 printable characters, got 'two\\nlines'",
    ),
    # options
    Case(("--seed", "-1"), f"{INVALID}'--seed': {INTEGER} 0 to 9007199254740991, got '-1'"),
    Case(("--seed", "one"), f"{INVALID}'--seed': {INTEGER} 0 to 9007199254740991, got 'one'"),
    Case(("--seed", "1.5"), f"{INVALID}'--seed': {INTEGER} 0 to 9007199254740991, got '1[.]5'"),
    Case(("--seed", str(2**53)), f"{INVALID}'--seed': .*0991, got '9007199254740992'"),
    Case(("--episodes", "0"), f"{INVALID}'--episodes': {INTEGER} 1 to 1000000, got '0'"),
    Case(("--episodes", ""), f"{INVALID}'--episodes': {INTEGER} 1 to 1000000, got ''"),
    Case(("--episodes", "1000000000"), f"{INVALID}'--episodes': .*0000, got '1000000000'"),
    Case(("--workers", "0"), f"{INVALID}'--workers': {INTEGER} 1 to 1000, got '0'"),
    Case(("--out", "folder"), "--out folder: exists; results are never written over old ones"),
    Case(("--out", "taken.json"), r"--out taken\.json: exists; results are never .*"),
    *(
        Case((option, ""), f"{INVALID}'{option}': must be a path, got ''")
        for option in ("--out", "--json", "--plot", "--tensorboard")
    ),
    Case(("--out", "folder"), r"--out folder: exists; .*"),
    Case(("--out", "x" * 250), "--out .*x: cannot write: File name too long"),
    Case(
        (*setting("jobs.0.iterations=10"), *setting("jobs.0.epochs=3.0")),
        rf"{PAPER}jobs\.FLM-101B\.epochs: goes with a dataset, not with iterations, got 3\.0",
    ),
    Case(
        (*setting('network.rule="listed"'), *setting("network.links=[]")),
        rf"{PAPER}regions\.EU-West\.bandwidth_gbps: .*no link joins the region, got 50\.0",
    ),
    Case(("--json", "no/x.json"), r"--json no/x\.json: no such folder no"),
    Case(("--json", "folder"), "--json folder: is a folder, must be a file"),
    Case(("--json", "x" * 300), "--json x*: cannot write: File name too long"),
    Case(("--plot", "bars.gif"), r"--plot bars\.gif: must end in one of \.png, \.pdf, \.svg"),
    Case(("--plot", "bars"), r"--plot bars: must end in one of \.png, \.pdf, \.svg"),
    Case(("--plot", "no/bars.png"), r"--plot no/bars\.png: no such folder no"),
    Case(
        ("--plot", "a.png", "--json", "a.png"),
        "--json and --plot: must be different paths, got a.png",
    ),
    Case(
        ("--out", "a", "--tensorboard", "a"),
        "--out and --tensorboard: must be different paths, got a",
    ),
    Case(("--tensorboard", "folder"), "--tensorboard folder: exists; results are never .*"),
    Case(("--tensorboard", "taken.json/a"), r"--tensorboard .*: no such folder .*taken\.json"),
    Case(("--chek",), "No such option: --chek.*"),
    Case(("bace",), r"Got unexpected extra argument\(s\) \(bace\)"),
    Case(("--policy",), "Option '--policy' requires an argument.*"),
]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: " ".join(case.args).encode("unicode_escape").decode()[:70]
)
def test_bad_input_is_answered_by_one_line_and_nothing_is_written(
    case: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = CommandLine(tmp_path, monkeypatch, capsys)
    (tmp_path / "folder").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    before = command.files()
    code, out, err = command.run(*case.args)
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    assert re.fullmatch(case.error, err.removeprefix("error: ").rstrip("\n"))
    assert (code, out) == (2, "")
    assert command.files() == before


@pytest.mark.parametrize("price", ["-0.05", "{ values = [-0.1, 0.2, -3] }", "0", "-100000"])
def test_a_negative_price_is_no_error(
    price: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = CommandLine(tmp_path, monkeypatch, capsys)
    override = f"regions.cheap.price_usd_per_kwh={price}"
    code, out, err = command.run("--episodes", "2", "--check", *setting(override, scenario="tiny"))
    assert (code, err) == (0, "")
    assert "no contradiction" in out
    assert "nan" not in out


def test_several_mistakes_are_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = CommandLine(tmp_path, monkeypatch, capsys)
    both = command.run(*setting("gpu.pue=0.5", "regions.0.gpus=0"))
    assert both.code == 2
    assert "regions.EU-West.gpus: " in both.err
    assert "gpu.pue: " in both.err
    many = command.run(*setting(f"regions.0.price_usd_per_kwh={{ values = {['x'] * 500} }}"))
    assert many.err.endswith("; and 490 more\n")
    assert len(many.err) < 2000


ODD = [
    "nan", "inf", "-inf", "-1", "0", "1", "0.5", "1e15", "1e-15", "1e300", "1e-300", "-0.0",
    "5000", "1" + "0" * 30, '""', '"x"', "true", "[]", "[1]", "{}", "{ a = 1 }", "1979-05-27",
]  # fmt: skip


def leaves(node: Any, path: str = "") -> Iterator[str]:
    """Paths of all fields, as `--set` takes them."""
    items: Any = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield f"{path}{key}"
        if isinstance(value, dict | list):
            yield from leaves(value, f"{path}{key}.")


@pytest.mark.parametrize("value", ODD)
def test_an_odd_value_of_any_field_either_works_or_is_refused_in_one_line(
    value: str, tmp_path: Path
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    paths = list(leaves(load_scenario(file).model_dump()))
    assert len(paths) > 100
    for path in paths:
        try:
            instance = build_instance(load_scenario(file, [f"{path}={value}"]), 0)
        except ConfigError as error:
            assert "\n" not in str(error), path
            assert len(str(error)) < 5000, path
            continue
        numbers = [instance.jct_ref_s, instance.cost_ref_usd, *instance.arrays.iterations]
        assert np.isfinite(numbers).all(), path
        instance.to_json()  # refuses nan
