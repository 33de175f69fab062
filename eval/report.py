"""A comparison as people and programs read it: table, sentence, JSON, bar chart, run directory."""

import csv
import io
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

import bace_env
from bace_env.errors import ConfigError, ResultExistsError
from bace_env.files import require_parent, require_writable, write_atomically
from bace_env.schema import Scenario
from eval.experiment import Comparison
from eval.gap import CLOSED
from eval.metrics import TYPICAL, backlog_over_time
from eval.statistics import Estimate
from eval.verdict import FEWEST_FOR_INTERVAL, make_sentence, time_unit

if TYPE_CHECKING:  # matplotlib is imported only where something is drawn
    from matplotlib.figure import Figure

#: Formats that matplotlib writes and people use.
PLOT_SUFFIXES = (".png", ".pdf", ".svg")


_GAP_CAPTION = (
    "\nAbove: by how much the objective (avg JCT and cost, weighted) lies above a lower bound of "
    "it and the best schedule known."
)
_CLOSED_CAPTION = " Gap closed: share of the way from bace to the best known."


def make_table(comparison: Comparison, width: int = 80) -> Table:
    """The main table: ratios to the reference policy first, as Fig. 4, then absolute numbers.

    Of the columns, those that fit the width in characters are shown.
    """
    reference = comparison.names[0]
    n = len(comparison.seeds)
    few = n < FEWEST_FOR_INTERVAL
    unit, seconds = time_unit(comparison.values["avg_jct_s"][0].mean())
    table = Table(
        title=f"{comparison.request.title}: {_workloads(n)}; {reference} = 1",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    columns = _gap_columns(comparison, few) | {
        "JCT ratio": lambda i: with_interval(comparison.estimates["typical_jct_ratio"][i], few),
        "cost ratio": lambda i: with_interval(comparison.estimates["typical_cost_ratio"][i], few),
        f"JCT ({unit})": lambda i: _number(comparison, "avg_jct_s", i, seconds),
        "cost ($)": lambda i: _number(comparison, "total_cost_usd", i),
        "GPUs": lambda i: _number(comparison, "gpu_utilization", i, 0.01, "{:.0f} %"),
        "objective": lambda i: _number(comparison, "objective", i, form="{:.3f}"),
        f"p95 JCT ({unit})": lambda i: _number(comparison, "p95_jct_s", i, seconds),
        "links": lambda i: _number(comparison, "link_utilization", i, 0.01, "{:.0f} %"),
        "energy (kWh)": lambda i: _number(comparison, "energy_kwh", i),
        "decision (us)": lambda i: _number(comparison, "decision_us_p50", i, form="{:.0f}"),
    }
    name_width = min(
        max(map(cell_len, ["policy", *comparison.names])),
        max(18 if width >= 80 else 13, width // 7),
    )
    table.add_column("policy", overflow="fold", min_width=name_width)
    used = name_width
    shown: list[list[str]] = []
    for heading, cell in columns.items():
        cells = [cell(i) for i in range(len(comparison.names))]
        used += 2 + max(map(len, [heading, *cells]))
        if shown and used > width:
            break
        table.add_column(heading, justify="right", no_wrap=True)
        shown.append(cells)
    for i, name in enumerate(comparison.names):
        unfinished = comparison.estimates["unfinished_jobs"][i].mean
        label = f"{name} ({unfinished:.3g} jobs unfinished)" if unfinished else name
        table.add_row(label, *(cells[i] for cells in shown), style="" if i else "bold")
    table.caption = _caption(reference, [str(column.header) for column in table.columns], few)
    return table


def _caption(reference: str, headings: list[str], few: bool) -> str:
    """What the columns that are shown mean."""
    text = "\n95 % bootstrap intervals. " if not few else "\n"
    if "JCT ratio" in headings:
        text = f"\nRatios to {reference} on a typical workload: geometric mean of the pairs"
        # Two lines of a width that even narrow tables have; a long name wraps as it must.
        line = "\n" if len(text) <= 70 else " "
        text += f".{line}" if few else f",{line}with 95 % bootstrap interval. "
        text += "JCT, cost ...: means. "
    text += "Wider terminal or --json: more."
    if "above bound" in headings:
        text += _GAP_CAPTION + (_CLOSED_CAPTION if "gap closed" in headings else "")
    return text


def _gap_columns(comparison: Comparison, few: bool) -> dict[str, Callable[[int], str]]:
    """What `--gap` adds, in front."""
    if not comparison.request.gap:
        return {}
    estimates = comparison.estimates
    return {
        "above bound": lambda i: percent(estimates["above_bound"][i], few),
        "above best known": lambda i: percent(estimates["above_best_known"][i], few),
        "gap closed": lambda i: percent(estimates[CLOSED][i], few),
    }


def percent(estimate: Estimate, few: bool) -> str:
    """A share and its interval, in percent."""
    if estimate.mean is None or estimate.low is None or estimate.high is None:
        return "none"
    mean, low, high = (f"{100 * v:.1f}" for v in (estimate.mean, estimate.low, estimate.high))
    return f"{mean} %" if few or low == high else f"{mean} % [{low}, {high}]"


def _workloads(n: int) -> str:
    return "1 workload" if n == 1 else f"{n} workloads"


def _number(
    comparison: Comparison, metric: str, policy: int, unit: float = 1.0, form: str = "{:.4g}"
) -> str:
    mean = comparison.estimates[metric][policy].mean
    if mean is None:
        return "none"
    value = mean / unit
    return f"{value:.0f}" if form == "{:.4g}" and 1e3 <= abs(value) < 1e7 else form.format(value)


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The JSON report; see docs/model.md for the meaning of each metric."""
    metrics = list(comparison.estimates)
    return {
        "scenario": comparison.request.scenario.name,
        "fingerprint": comparison.request.scenario.fingerprint(),
        "seeds": list(comparison.seeds),
        "reference": comparison.names[0],
        "policies": {
            name: {metric: comparison.estimates[metric][i].to_dict() for metric in metrics}
            for i, name in enumerate(comparison.names)
        },
        "episodes": _episode_rows(comparison),
    }


def _episode_rows(comparison: Comparison) -> list[dict[str, Any]]:
    rows = []
    for i, name in enumerate(comparison.names):
        for k, seed in enumerate(comparison.seeds):
            row: dict[str, Any] = {"policy": name, "seed": seed}
            for metric, values in comparison.values.items():
                value = float(values[i, k])
                row[metric] = None if np.isnan(value) else value
            row["unfinished_jobs"] = int(row["unfinished_jobs"])
            rows.append(row)
    return rows


def save_plot(comparison: Comparison, path: Path) -> None:
    """A bar chart in the shape of Fig. 4: JCT and cost of each policy, reference = 1."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = comparison.names
    figure = Figure(figsize=(max(5.0, 1.05 * len(names) + 1.5), 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    width, position = 0.38, np.arange(len(names))
    bars = (
        ("typical_jct_ratio", "average JCT", "#3b6ea5"),
        ("typical_cost_ratio", "total cost", "#e0a243"),
    )
    for side, (ratio, label, colour) in enumerate(bars):
        estimates = comparison.estimates[ratio]
        mean = np.array([np.nan if e.mean is None else e.mean for e in estimates])
        low = np.array([np.nan if e.low is None else e.low for e in estimates])
        high = np.array([np.nan if e.high is None else e.high for e in estimates])
        axes.bar(
            position + (side - 0.5) * width,
            mean,
            width,
            label=label,
            color=colour,
            yerr=np.maximum([mean - low, high - mean], 0.0),  # rounding may make them negative
            error_kw={"elinewidth": 1, "capsize": 2, "ecolor": "#333333"},
        )
    axes.axhline(1.0, color="#333333", linewidth=0.8, linestyle="--")
    axes.set_xticks(position, names, rotation=20, ha="right", parse_math=False)
    axes.set_ylabel(f"relative to {names[0]}", parse_math=False)
    title = f"{comparison.request.title}: {_workloads(len(comparison.seeds))}"
    axes.set_title(title, parse_math=False)
    axes.margins(y=0.15)
    axes.legend(frameon=False, ncols=2, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    write_figure(figure, path)


def write_figure(figure: "Figure", path: Path, dpi: int = 150) -> None:
    """Write a figure whole or not at all; the same figure gives the same bytes.

    Args:
        figure: With an Agg canvas.
        path: Ends in one of `PLOT_SUFFIXES`.
        dpi: Pixels per inch of a picture.
    """
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "bace"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script that the font lacks
        figure.savefig(buffer, format=path.suffix[1:], dpi=dpi, metadata=_METADATA[path.suffix])
    write_atomically(path, buffer.getvalue())


def plot_beside(option: str, path: Path) -> Path:
    """The picture that belongs to a document, by another ending.

    Raises:
        ConfigError: The document itself has this name, or nothing can be written there.
    """
    plot = path.with_suffix(".png")
    if plot == path:
        raise ConfigError(f"{option} {path}: must not end in .png: that is the plot beside it")
    require_parent(option, plot)
    return plot


_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None},
    ".svg": {"Date": None},
}


def save_run(comparison: Comparison, directory: Path) -> None:
    """Write the run directory: config, versions, seeds, episodes, traces, report, plot.

    Raises:
        ResultExistsError: The directory exists.
    """
    with fresh_folder("--out", directory) as partial:
        _write_run(comparison, partial)


@contextmanager
def fresh_folder(option: str, directory: Path) -> Iterator[Path]:
    """A folder to write into, beside `directory`; it becomes it as a whole or not at all.

    Raises:
        ResultExistsError: The directory exists.
    """
    require_fresh(option, directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}."))
    try:
        yield partial
        os.chmod(partial, 0o755)
        partial.rename(directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def require_fresh(option: str, directory: Path) -> None:
    """Refuse a folder that exists or cannot be made; folders above it are made later."""
    if os.path.lexists(directory):
        raise ResultExistsError(
            f"{option} {directory}: exists; results are never written over old ones"
        )
    above = next(folder for folder in directory.absolute().parents if os.path.lexists(folder))
    require_writable(option, above / directory.name)


def _write_run(comparison: Comparison, folder: Path) -> None:
    request = comparison.request
    run = {
        "scenario": request.scenario.name,
        "fingerprint": request.scenario.fingerprint(),
        "overrides": list(request.overrides),
        "policies": list(request.policies),
        "seeds": list(comparison.seeds),
        "versions": versions(),
        "git_revision": git_revision(),
    }
    for name, data in (
        ("run", run),
        ("scenario", scenario_json(request.scenario)),
        ("summary", to_json(comparison)),
    ):
        (folder / f"{name}.json").write_text(json_text(data), "utf-8")
    (folder / "episodes.csv").write_text(csv_text(_episode_rows(comparison)), "utf-8")
    with (folder / "backlog.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["policy", "seed", "from_h", "to_h", "mean_backlog"])
        for traces in comparison.traces:
            for name, trace in zip(comparison.names, traces, strict=True):
                for begin, end, mean in backlog_over_time(trace):
                    hours = (f"{begin / 3600:.9g}", f"{end / 3600:.9g}")
                    table.writerow([name, trace.instance.seed, *hours, f"{mean:.9g}"])
    (folder / "report.md").write_text(_markdown(comparison), "utf-8")
    save_plot(comparison, folder / "comparison.png")
    (folder / "instances").mkdir()
    for traces in comparison.traces:
        instance = traces[0].instance
        (folder / "instances" / f"{instance.seed}.json").write_text(instance.to_json(), "utf-8")
        for trace in traces:
            place = folder / "traces" / folder_name(trace.policy)
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{instance.seed}.json").write_text(trace.to_json(), "utf-8")


def folder_name(policy: str) -> str:
    """The folder of a policy's traces: its name, made a plain file name."""
    return re.sub(r"[^\w.=,-]+|^\.+", "_", policy)


def json_text(data: Any) -> str:
    """The content of a JSON file."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """The content of a CSV file: one row at least, all with the same keys."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def scenario_json(scenario: Scenario) -> Any:
    """A scenario as `load_scenario` reads it back: infinity as text, as JSON has none."""
    return _finite(scenario.model_dump(mode="json", exclude_none=True))


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return str(data) if isinstance(data, float) and not np.isfinite(data) else data


def _markdown(comparison: Comparison) -> str:
    scenario, n = comparison.request.scenario, len(comparison.seeds)
    few = n < FEWEST_FOR_INTERVAL
    lines = [
        f"# {comparison.request.title}",
        "",
        scenario.description,
        "",
        make_sentence(comparison),
        "",
        "| policy | JCT ratio | cost ratio | avg JCT (s) | cost ($) | objective |",
        "|---|---|---|---|---|---|",
    ]
    estimates = comparison.estimates
    for i, name in enumerate(comparison.names):
        cells = [with_interval(estimates[ratio][i], few) for ratio in TYPICAL]
        for metric in ("avg_jct_s", "total_cost_usd", "objective"):
            cells.append(with_interval(estimates[metric][i], few, digits=6))
        lines.append(f"| {name.replace('|', '&#124;')} | {' | '.join(cells)} |")
    note = "Ratios: geometric mean over workloads; brackets: 95 % bootstrap interval."
    lines += ["", f"{_workloads(n)}. {note}", ""]
    return "\n".join([*lines, "![comparison](comparison.png)", ""])


def versions() -> dict[str, str]:
    """Versions of what decides the numbers of a run."""
    found = {"bace-env": bace_env.__version__, "python": platform.python_version()}
    for package in ("numpy", "numba", "scipy", "pydantic"):
        found[package] = metadata.version(package)
    return found


def git_revision() -> str | None:
    """Revision of the checkout that this code runs from; None where it is installed."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        folder = Path(__file__).parent
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def with_interval(estimate: Estimate, few: bool, digits: int | None = None) -> str:
    """`1.29 [1.16, 1.40]`; without the interval where there is none or workloads are `few`."""
    if estimate.mean is None or estimate.low is None or estimate.high is None:
        return "none"
    form = f".{digits}g"
    if digits is None:
        form = ".2f" if 0.1 <= abs(estimate.mean) < 1000 else ".3g"
    mean, low, high = (f"{v:{form}}" for v in (estimate.mean, estimate.low, estimate.high))
    return mean if few or estimate.low == estimate.high else f"{mean} [{low}, {high}]"


def print_report(comparison: Comparison, console: Console) -> None:
    """Table and sentence."""
    console.print(make_table(comparison, console.width))
    console.print(make_sentence(comparison), highlight=False)
