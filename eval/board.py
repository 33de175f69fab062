"""A comparison for TensorBoard: one run per policy, written without TensorFlow or torch.

docs/visualisation.md lists the tags. The x axis of `time/...` is simulated time: the step counts
simulated seconds (at least one more per point), and the wall time is the exact one in seconds since
the episode's start, so that "Relative" shows simulated hours.
"""

import importlib.util
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bace_env.errors import ConfigError
from bace_env.render import draw_figure
from bace_env.timeline import Steps, Timeline, add_up
from bace_env.trace import EpisodeTrace
from bace_env.types import FloatArray
from eval.experiment import Comparison
from eval.report import folder_name, fresh_folder

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary

EVENTS = "events.out.tfevents.0.bace"  # the part that TensorBoard looks for, and no clock or host
_MOST_STEPS = 200  # of a step function; beyond that means of so many bins are written
_MOST_LINKS = 30
_MOST_ROWS = 200  # of the schedule's table
#: The metrics by which the hparams view sorts.
SORTED_BY = (
    "avg_jct_s",
    "p95_jct_s",
    "total_cost_usd",
    "objective",
    "makespan_s",
    "energy_kwh",
    "gpu_utilization",
    "link_utilization",
    "unfinished_jobs",
    "typical_jct_ratio",
    "typical_cost_ratio",
)


def require_tensorboard(option: str) -> None:
    """Refuse an option that needs TensorBoard where it is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            f"{option}: needs the package tensorboard: pip install 'bace-env[tensorboard]'"
        )


def save_board(comparison: Comparison, directory: Path) -> None:
    """Write a fresh folder for `tensorboard --logdir`.

    Args:
        comparison: With its traces.
        directory: Must not exist; is written whole or not at all.

    Raises:
        ResultExistsError: It exists.
    """
    with fresh_folder("--tensorboard", directory) as partial:
        _write(partial, [(0, 0.0, _experiment())])
        for i, name in enumerate(comparison.names):
            folder = partial / folder_name(name)
            folder.mkdir()
            _write(folder, _events(comparison, i))


_Event = tuple[int, float, "Summary"]  # step, wall time, content


def _write(folder: Path, events: Sequence[_Event] | Iterator[_Event]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    with (folder / EVENTS).open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(file_version="brain.Event:2").SerializeToString())
        for step, wall_s, summary in events:
            event = Event(step=step, wall_time=wall_s, summary=summary)
            writer.write(event.SerializeToString())


def _events(comparison: Comparison, i: int) -> Iterator[_Event]:
    traces = [of_seed[i] for of_seed in comparison.traces]
    yield from _hparams(comparison, i)
    yield from _texts(comparison, traces[0])
    yield 0, 0.0, _image("schedule/gantt", traces[0])
    yield from _over_time(traces[0])
    yield from _per_episode(comparison, i)
    yield from _histograms(traces)


def _experiment() -> "Summary":
    from tensorboard.plugins.hparams import summary_v2

    names = ("policy", "scenario", "overrides", "seed", "episodes")
    return summary_v2.hparams_config_pb(
        hparams=[summary_v2.HParam(name) for name in names],
        metrics=[summary_v2.Metric(f"mean/{name}") for name in SORTED_BY],
        time_created_secs=0.0,
    )


def _hparams(comparison: Comparison, i: int) -> Iterator[_Event]:
    from tensorboard.plugins.hparams import summary_v2

    request, name = comparison.request, comparison.names[i]
    values = {
        "policy": name,
        "scenario": request.scenario.name,
        "overrides": ", ".join(request.overrides),
        "seed": str(comparison.seeds[0]),  # as text: a float would round it
        "episodes": len(comparison.seeds),
    }
    yield 0, 0.0, summary_v2.hparams_pb(values, trial_id=name, start_time_secs=0.0)
    for metric in SORTED_BY:
        mean = comparison.estimates[metric][i].mean
        if mean is not None:
            about = "Over all workloads: a ratio's geometric mean, else the mean."
            yield 0, 0.0, _scalar(f"mean/{metric}", mean, about)


def _scalar(tag: str, value: float, about: str | None = None) -> "Summary":
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb

    return scalar_pb(tag, value, description=about)


def _texts(comparison: Comparison, trace: EpisodeTrace) -> Iterator[_Event]:
    from tensorboard.plugins.text.summary_v2 import text_pb

    scenario = comparison.request.scenario
    data = scenario.model_dump(mode="json", exclude_none=True)
    text = "\n".join(f"    {line}" for line in json.dumps(data, indent=1).splitlines())
    head = f"{comparison.request.title}\n\n{scenario.description}\n\n"
    yield 0, 0.0, text_pb("scenario/config", f"{head}{text}")
    yield 0, 0.0, text_pb("schedule/jobs", _schedule(trace))


def _schedule(trace: EpisodeTrace) -> str:
    """A Markdown table of the jobs."""
    a, names = trace.instance.arrays, trace.instance.job_names
    lines = [
        "| job | arrival (s) | start (s) | finish (s) | JCT (s) | cost ($) | GPUs by region |",
        "|---|---|---|---|---|---|---|",
    ]
    for j, name in enumerate(names[:_MOST_ROWS]):
        times = (a.arrival_s[j], trace.start_s[j], trace.finish_s[j])
        cells = [f"{t:.1f}" for t in (*times, trace.finish_s[j] - a.arrival_s[j])]
        where = trace.instance.where(*trace.placement(j)) or "not started"
        row = [name, *cells, f"{trace.cost_usd[j]:.4g}", where]
        lines.append("| " + " | ".join(cell.replace("|", "&#124;") for cell in row) + " |")
    if len(names) > _MOST_ROWS:
        lines += ["", f"The first {_MOST_ROWS} of {len(names)} jobs."]
    return "\n".join(lines)


def _image(tag: str, trace: EpisodeTrace) -> "Summary":
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.image.metadata import create_summary_metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    figure, buffer = draw_figure([trace]), io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
    width, height = figure.canvas.get_width_height()
    content = [str(width).encode(), str(height).encode(), buffer.getvalue()]
    value = Summary.Value(
        tag=tag,
        metadata=create_summary_metadata(display_name=None, description="The first workload."),
        tensor=make_tensor_proto(content),
    )
    return Summary(value=[value])


def _over_time(trace: EpisodeTrace) -> Iterator[_Event]:
    """The first workload's step functions over simulated time."""
    for tag, steps, about in timeline_tags(trace):
        description: str | None = f"{about}; first workload, over simulated time."
        step = -1
        for time_s, value in zip(*_points(steps), strict=True):
            step = max(step + 1, int(time_s))  # TensorBoard drops what its step does not exceed
            yield step, float(time_s), _scalar(tag, float(value), description)
            description = None  # the first of a tag says it


def timeline_tags(trace: EpisodeTrace) -> Iterator[tuple[str, Steps, str]]:
    """Tag, step function and meaning of everything that is drawn over simulated time."""
    timeline, names = Timeline(trace), trace.instance.region_names
    regions = range(len(names))
    busy = [timeline.busy_gpus(r) for r in regions]
    for r in regions:
        yield f"time/gpus_busy/{names[r]}", busy[r], "GPUs that jobs hold"
    yield "time/gpus_busy_total", add_up(busy), "GPUs that jobs hold"
    means = {link: use.integral() for link, use in timeline.link_bytes_per_s.items()}
    for u, v in sorted(sorted(means, key=lambda link: -means[link])[:_MOST_LINKS]):
        tag = f"time/link_use/{names[u]} to {names[v]}"
        yield tag, timeline.link_use((u, v)), "Reserved share of the link's bandwidth"
    yield "time/alpha", timeline.alpha, "Reserved share of all bandwidth (Eq. 11)"
    yield "time/queue", timeline.queue, "Jobs that wait"
    yield "time/running", timeline.running, "Jobs that run"
    for r in regions:
        yield f"time/price_usd_per_kwh/{names[r]}", timeline.price_usd_per_kwh(r), "Price, $/kWh"
    spend = add_up([timeline.spend_usd_per_h(r) for r in regions])
    yield "time/spend_usd_per_h", spend, "Electricity bill per hour, $/h (Eq. 4)"
    power = add_up([timeline.power_kw(r) for r in regions])
    yield "time/power_kw", power, "Electricity drawn with PUE, kW"
    yield "time/spent_usd", _spent(spend), "Electricity bill so far, $"


def _spent(spend: Steps) -> Steps:
    times = np.append(spend.time_s, spend.end_s)
    return Steps(times, spend.cumulative(times) / 3600.0, spend.end_s)


def _points(steps: Steps) -> tuple[FloatArray, FloatArray]:
    """Corners of the staircase, or means of bins at their middles where it has too many."""
    if steps.time_s.size <= _MOST_STEPS:
        ends = np.append(steps.time_s[1:], steps.end_s)
        return np.stack([steps.time_s, ends], axis=1).ravel(), np.repeat(steps.value, 2)
    edges = np.linspace(0.0, steps.end_s, _MOST_STEPS + 1)
    return (edges[1:] + edges[:-1]) / 2, steps.means(edges)


def _per_episode(comparison: Comparison, i: int) -> Iterator[_Event]:
    for metric, values in comparison.values.items():
        about: str | None = f"{metric} of each workload, in the order of their seeds."
        for k, value in enumerate(values[i].tolist()):
            if np.isfinite(value):
                yield k, float(k), _scalar(f"episode/{metric}", value, about)
                about = None


def _histograms(traces: Sequence[EpisodeTrace]) -> Iterator[_Event]:
    """Over the jobs of all workloads."""
    from tensorboard.plugins.histogram.summary_v2 import histogram_pb

    jct_s, wait_s = [], []
    for trace in traces:
        done, arrival_s = trace.finished, trace.instance.arrays.arrival_s
        jct_s.append((trace.finish_s - arrival_s)[done])
        wait_s.append((trace.start_s - arrival_s)[done])
    pooled: dict[str, Any] = {"jobs/jct_s": jct_s, "jobs/wait_s": wait_s}
    for tag, parts in pooled.items():
        about = "Seconds, over the jobs of all workloads."
        yield 0, 0.0, histogram_pb(tag, np.concatenate(parts), description=about)
