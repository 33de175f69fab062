"""Descriptions of clusters: how many GPUs a region has."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from bace_env.errors import ConfigError
from bace_env.io.reading import example, numbers, read_table
from bace_env.io.report import Report
from bace_env.schema import nearest


@dataclass(frozen=True)
class ClusterOptions:
    """What is to be counted.

    Attributes:
        date: The row of a table of GPU counts by date.
        model: Only nodes with this GPU.
        delimiter: Of the table.
        encoding: Of the table.
    """

    date: str | None = None
    model: str | None = None
    delimiter: str = ","
    encoding: str = "utf-8-sig"


_SPEC = ["num_switch", "num_node_p_switch", "num_gpu_p_node"]


def read_cluster(
    files: Sequence[str | Path], options: ClusterOptions | None = None
) -> tuple[list[int], Report]:
    """GPUs in each file: an openb node list, Helios GPU counts by date, or a Tiresias spec.

    Raises:
        ConfigError: The file is none of them, or holds no GPU.
    """
    options = options or ClusterOptions()
    report = Report("cluster", files=[Path(file).name for file in files])
    counts = []
    for file in files:
        frame = read_table(file, report, delimiter=options.delimiter, encoding=options.encoding)
        if {"sn", "gpu", "model"} <= set(frame.columns):
            gpus = _nodes(frame, file, options, report)
        elif {"date", "total"} <= set(frame.columns):
            gpus = _dated(frame, file, options, report)
        elif set(_SPEC) <= set(frame.columns):
            each = [numbers(frame[name]) for name in _SPEC]
            gpus = float((each[0] * each[1] * each[2]).sum(skipna=False))
            report.rows_kept += len(frame)
        else:
            raise ConfigError(
                f"{file}: not a node list (sn,gpu,model), GPU counts (date,...,total) or a spec "
                f"({','.join(_SPEC)}); it has: {', '.join(map(str, frame.columns))}"
            )
        if not (gpus >= 1 and gpus == int(gpus)):
            raise ConfigError(f"{file}: must hold a whole number of GPUs >= 1, got {gpus:g}")
        counts.append(int(gpus))
    return counts, report


def _nodes(frame: pd.DataFrame, file: str | Path, options: ClusterOptions, report: Report) -> float:
    for model, rows in frame.groupby("model"):
        report.found[f"{str(model) or 'no'} GPUs"] = int(numbers(rows["gpu"]).sum())
    if options.model is not None:
        known = sorted(frame["model"].unique())
        if options.model not in known:
            raise ConfigError(
                f"--gpu-model: {file} has no {options.model!r}; {nearest(options.model, known)}"
            )
        other = frame["model"] != options.model
        report.reject("nodes with another GPU", int(other.sum()), asked=True)
        frame = frame[~other]
    gpus = numbers(frame["gpu"])
    bad = gpus.isna() | (gpus < 0)
    report.reject("GPUs of a node not a number >= 0", int(bad.sum()), example(frame, bad))
    twice = frame["sn"].duplicated() & ~bad
    report.reject("node for the second time", int(twice.sum()), example(frame, twice))
    left = gpus[~bad & ~twice]
    report.rows_kept += len(left)
    return float(left.sum())


def _dated(frame: pd.DataFrame, file: str | Path, options: ClusterOptions, report: Report) -> float:
    if options.date is None and len(frame) > 1:
        raise ConfigError(
            f"{file}: holds {len(frame)} dates: say --date, such as {frame['date'].iloc[0]}"
        )
    row = frame if options.date is None else frame[frame["date"] == options.date]
    if len(row) != 1:
        raise ConfigError(f"--date: {file} has {len(row)} rows of {options.date!r}")
    report.reject("other dates", len(frame) - 1, asked=True)
    report.rows_kept += 1
    parts = numbers(row.drop(columns=["date", "total"]).iloc[0])
    total = float(numbers(row["total"]).iloc[0])
    if parts.sum() != total:
        report.warnings.append(f"{file}: the columns add up to {parts.sum():g}, total is {total:g}")
    return total
