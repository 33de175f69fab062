"""`python -m bace_env.io FORMAT FILE... --out scenario.toml`."""

import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console

from bace_env.command import NONE, integer, run_command
from bace_env.errors import ConfigError
from bace_env.files import require_parent, write_atomically

if TYPE_CHECKING:
    from bace_env.io.report import Report
    from bace_env.io.scenario_files import Draft

_NEEDS = ("pandas", "networkx", "tomli_w")
_HELP = """Turn job traces, prices, bandwidth and topologies into a scenario file.

An import replaces one part of a base scenario (--base: a preset or a file), so that the output of
one is the base of the next. Nothing is dropped, filled or shifted without a line in the report;
with --strict such rows are refused unless an option asked for it.

\b
Examples:
  python -m bace_env.io jobs jobs.csv --arrival submitted --duration seconds \\
      --gpu-count gpus --tz Europe/Berlin --out a.toml
  python -m bace_env.io entsoe DE.csv --usd-rate 1.1 --region EU-Central \\
      --base a.toml --out b.toml
  python -m bace_env.io skyplane throughput.csv latency.csv --gpus 32 --price 0.2 --out c.toml
  python -m eval.compare --scenario b.toml --policy bace --episodes 1
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None, help=_HELP)


class _Formats(NamedTuple):
    """Beside an option that not every format of its command has: those that do, or do not."""

    names: tuple[str, ...]
    have: bool


def _only(*formats: str) -> _Formats:
    return _Formats(formats, True)


def _but(*formats: str) -> _Formats:
    return _Formats(formats, False)


def _option(
    metavar: str, text: str, *names: str, parser: Callable[[str], Any] | None = None
) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, parser=parser)


Text = str | None
Texts = list[str]

# Options that several commands have.
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="What to import.")]
Out = Annotated[Path, _option("FILE", "The scenario to write (.toml); carbon: or .csv.")]
Base = Annotated[str, _option("NAME|FILE", "Scenario that gives all that is not imported.")]
Name = Annotated[Text, _option("NAME", "Name; default: that of --out.")]
Json = Annotated[Text, _option("FILE|-", "Write the report as JSON.", "--json")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse what would be rejected or changed unasked.")
]
Force = Annotated[bool, typer.Option("--force", help="Write over existing files.")]
Delimiter = Annotated[
    str, _option("CHAR", "Between the cells of a row."), _but("philly", "gavel", "topology")
]
Encoding = Annotated[str, _option("NAME", "Of text files."), _but("philly", "topology")]
_LOCAL = _but("pai", "openb", "gavel", "tiresias", "citylearn", "carbon")  # may have local times
Tz = Annotated[Text, _option("ZONE", "Zone of times without an offset from UTC."), _LOCAL]
TimeFormat = Annotated[
    Text, _option("STRPTIME", "Of times that are not ISO 8601."), _LOCAL, _but("entsoe")
]
Ambiguous = Annotated[
    Text,
    _option("RULE", "Local times that the clock shows twice: error, infer, earlier, later, drop."),
    _LOCAL,
]
Nonexistent = Annotated[
    Text, _option("RULE", "Local times that the clock skips: error, shift, drop."), _LOCAL
]


def _given(options: Any) -> dict[str, Any]:
    """The options that differ from their defaults, for the record in the scenario."""
    values = {entry: getattr(options, entry.name) for entry in fields(options)}
    return {entry.name: value for entry, value in values.items() if value != entry.default}


def _require_libraries() -> None:
    for library in _NEEDS:
        try:
            __import__(library)
        except ImportError:
            raise ConfigError(
                f"imports need {library}: pip install 'bace-env[io]' (from a checkout: pip install "
                "-e '.[io]' -c constraints.txt)"
            ) from None


class _Job:
    """What all imports have in common: base, report, output."""

    def __init__(
        self,
        files: Sequence[Path],
        out: Path,
        parts: Sequence[str],
        *,
        base: str | None,
        json_: str | None,
        strict: bool,
        force: bool,
    ) -> None:
        _require_libraries()
        from bace_env.io import scenario_files

        if out.suffix != (".toml" if base is not None else ".csv"):
            wanted = ".toml" if base is not None else ".csv (a scenario has no field for it)"
            raise ConfigError(f"--out {out}: must end in {wanted}")
        scenario_files.require_fresh(out, parts, force=force)
        if json_ is not None and json_ != "-":
            require_parent("--json", Path(json_))
        self._files, self._out, self._json = files, out, json_
        self._strict, self._force, self.base = strict, force, base
        self._console = Console(
            stderr=json_ == "-", markup=False, emoji=False, highlight=False, soft_wrap=True
        )

    def busy(self, what: str) -> Any:
        """A spinner on a terminal."""
        return Console(stderr=True).status(what)

    def draft(self) -> "Draft":
        """The base to put the import into."""
        from bace_env.io.scenario_files import Draft

        assert self.base is not None
        return Draft.of_base(self.base)

    def finish(
        self, draft: "Draft", report: "Report", options: dict[str, Any], name: str | None
    ) -> None:
        """Check, write and report."""
        if self._strict:
            report.require_strict()
        draft.record(report, self._files, options)
        draft.data["name"] = name or self._out.stem
        draft.data["description"] = f"{report.format}: {', '.join(report.files)}; base {self.base}"
        draft.check()
        self._say(report, draft.write(self._out, force=self._force))

    def finish_table(self, text: str, report: "Report") -> None:
        """The same where a CSV is all that comes out."""
        if self._strict:
            report.require_strict()
        write_atomically(self._out, text.encode())
        self._say(report, [self._out])

    def _say(self, report: "Report", written: Sequence[Path]) -> None:
        if self._json is not None:
            text = json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n"
            if self._json == "-":
                sys.stdout.write(text)
            else:
                write_atomically(Path(self._json), text.encode())
        for line in [*report.lines(), f"wrote: {', '.join(map(str, written))}"]:
            if self._console.is_terminal:  # in a pipe a line stays a line
                line = textwrap.fill(line, self._console.width, subsequent_indent="  ")
            self._console.print(line)


def _job_command(format_: str) -> Callable[..., None]:
    def command(
        files: Files,
        out: Out,
        base: Base = "paper",
        arrival: Annotated[Text, _option("COLUMN", "Time of submission."), _only("jobs")] = None,
        gpu_count: Annotated[Text, _option("COLUMN", "Number of GPUs."), _only("jobs")] = None,
        duration: Annotated[
            Text, _option("COLUMN", "Seconds that a job ran; or:"), _only("jobs")
        ] = None,
        started: Annotated[
            Text, _option("COLUMN", "Time of its start, and ..."), _only("jobs")
        ] = None,
        ended: Annotated[Text, _option("COLUMN", "... time of its end."), _only("jobs")] = None,
        job_id: Annotated[
            Text, _option("COLUMN", "Name of a job, if there is one."), _only("jobs")
        ] = None,
        tz: Tz = None,
        zero_gpu: Annotated[Text, _option("RULE", "drop (default), keep (1 GPU), error.")] = None,
        fractional: Annotated[Text, _option("RULE", "ceil (default), drop, error.")] = None,
        missing_end: Annotated[
            Text, _option("RULE", "drop (default), censor (ends with the trace), error.")
        ] = None,
        zero_duration: Annotated[Text, _option("RULE", "drop (default), keep, error.")] = None,
        too_large: Annotated[
            Text, _option("RULE", "More GPUs than the cluster: reject (default), cap.")
        ] = None,
        state: Annotated[
            Texts,
            _option("STATE", "Only jobs that ended so; repeatable."),
            _only("philly", "helios", "acme", "pai", "openb"),
        ] = NONE,
        t0: Annotated[
            Text, _option("TIME", "Instant (second) of time 0; default: first arrival.")
        ] = None,
        first: Annotated[
            int | None, _option("N", "Only the N earliest jobs.", parser=integer(1, 10**9))
        ] = None,
        models: Annotated[str, _option("WHICH", "Of the rule: ladder, or base's own.")] = "ladder",
        gpus: Annotated[
            str, _option("HOW", "free (scheduler chooses) or rigid (as recorded).")
        ] = "free",
        rule_seed: Annotated[int, _option("S", "Seed of the rule.")] = 0,
        batches: Annotated[
            str, _option("N,N,...", "Batch sizes of the rule.")
        ] = "1,2,4,8,16,32,64,128",
        spread: Annotated[int, _option("N", "Largest fitting models to choose from.")] = 3,
        tolerance: Annotated[float, _option("SHARE", "Error of the duration aimed at.")] = 0.01,
        service: Annotated[
            str, _option("HOW", "Duration: wall, or sum of attempts."), _only("philly")
        ] = "wall",
        steps_per_s: Annotated[
            float | None, _option("NUMBER", "Of every job."), _only("gavel")
        ] = None,
        throughputs: Annotated[
            Path | None, _option("JSON", "Table of steps per second."), _only("gavel")
        ] = None,
        worker_type: Annotated[
            Text, _option("TYPE", "Which of the table's GPUs."), _only("gavel")
        ] = None,
        time_format: TimeFormat = None,
        ambiguous: Ambiguous = None,
        nonexistent: Nonexistent = None,
        delimiter: Delimiter = ",",
        encoding: Encoding = "utf-8-sig",
        name: Name = None,
        json_: Json = None,
        strict: Strict = False,
        force: Force = False,
    ) -> None:
        job = _Job(files, out, ["jobs.csv"], base=base, json_=json_, strict=strict, force=force)
        from bace_env.io.jobs import JobOptions, read_jobs
        from bace_env.io.match import RULE, VERSION, MatchOptions
        from bace_env.io.scenario_files import put_jobs

        reading: dict[str, Any] = {
            "arrival": arrival, "gpu_count": gpu_count, "duration": duration,
            "started": started, "ended": ended, "job_id": job_id,
            "tz": tz, "time_format": time_format, "service": service,
            "steps_per_s": steps_per_s, "worker_type": worker_type, "states": tuple(state),
            "throughputs": None if throughputs is None else str(throughputs),
            "t0": t0, "first": first, "zero_gpu": zero_gpu, "fractional": fractional,
            "missing_end": missing_end, "zero_duration": zero_duration,
            "ambiguous": ambiguous, "nonexistent": nonexistent, "delimiter": delimiter,
            "encoding": encoding,
        }  # fmt: skip
        rule: dict[str, Any] = {
            "models": models, "gpus": gpus, "too_large": too_large, "seed": rule_seed,
            "spread": spread, "tolerance": tolerance, "batches": _whole_numbers(batches),
        }  # fmt: skip
        with job.busy("reading the trace"):
            draft = job.draft()
            options = JobOptions(**reading)
            trace = read_jobs(format_, files, options)
            put_jobs(draft, trace, MatchOptions(**rule))
            kept = _given(options) | {"rule": RULE, "rule_version": VERSION}
            kept |= {f"rule_{k}": v for k, v in rule.items() if v is not None}
        job.finish(draft, trace.report, kept, name)

    return command


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--batches: must be whole numbers with commas, got {text!r}") from None


def _series_command(format_: str) -> Callable[..., None]:
    def command(
        files: Files,
        out: Out,
        base: Base = "paper",
        region: Annotated[
            Texts, _option("NAME", "Region of each series, in order; repeatable.")
        ] = NONE,
        time: Annotated[Text, _option("COLUMN", "Column of the times."), _only("prices")] = None,
        price: Annotated[
            Texts,
            _option("COLUMN", "Column of a series of prices; repeatable."),
            _only("prices", "citylearn"),
        ] = NONE,
        unit: Annotated[
            Text,
            _option("UNIT", "CURRENCY/MWh or /kWh, where the file states none."),
            _but("carbon"),
        ] = None,
        usd_rate: Annotated[
            float | None, _option("NUMBER", "USD for one unit of the currency."), _but("carbon")
        ] = None,
        tz: Tz = None,
        start: Annotated[Text, _option("TIME", "Instant of the scenario's time 0.")] = None,
        beyond: Annotated[str, _option("RULE", "After the end: error, hold, wrap.")] = "error",
        since: Annotated[Text, _option("TIME", "Leave out what is earlier.", "--from")] = None,
        until: Annotated[Text, _option("TIME", "Leave out this and later.", "--to")] = None,
        step: Annotated[float | None, _option("MIN", "Minutes from value to value.")] = None,
        duplicates: Annotated[
            Text, _option("RULE", "Values of one instant: error, first, last, mean.")
        ] = None,
        gaps: Annotated[Text, _option("RULE", "error, hold, interpolate.")] = None,
        start_time: Annotated[
            Text, _option("TIME", "Instant of the first row."), _only("citylearn")
        ] = None,
        sequence: Annotated[
            Text, _option("NAME", "Of the column Sequence."), _only("entsoe")
        ] = None,
        area: Annotated[Text, _option("NAME", "Of the column Area."), _only("entsoe")] = None,
        basis: Annotated[Text, _option("WHICH", "direct or lca."), _only("carbon")] = None,
        time_format: TimeFormat = None,
        ambiguous: Ambiguous = None,
        nonexistent: Nonexistent = None,
        decimal: Annotated[str, _option("CHAR", "Decimal mark.")] = ".",
        delimiter: Delimiter = ",",
        encoding: Encoding = "utf-8-sig",
        name: Name = None,
        json_: Json = None,
        strict: Strict = False,
        force: Force = False,
    ) -> None:
        carbon = format_ == "carbon"
        table = carbon and out.suffix == ".csv"
        if table and (start or name):
            option = "--start" if start else "--name"
            raise ConfigError(f"{option}: goes with a scenario (--out FILE.toml), got --out {out}")
        parts = [] if table else ["carbon.csv" if carbon else "prices.csv"]
        used = None if table else base
        job = _Job(files, out, parts, base=used, json_=json_, strict=strict, force=force)
        from bace_env.io.scenario_files import put_carbon, put_prices
        from bace_env.io.series import SeriesOptions, read_series
        from bace_env.tables import format_series

        reading: dict[str, Any] = {
            "time": time, "columns": tuple(price), "tz": tz, "time_format": time_format,
            "unit": unit, "usd_rate": usd_rate, "start": start_time, "step_min": step,
            "since": since, "until": until, "sequence": sequence, "area": area, "basis": basis,
            "ambiguous": ambiguous, "nonexistent": nonexistent, "duplicates": duplicates,
            "gaps": gaps, "decimal": decimal, "delimiter": delimiter, "encoding": encoding,
        }  # fmt: skip
        with job.busy("reading series"):
            options = SeriesOptions(**reading)
            found = read_series(format_, files, options)
            if table:
                names = region or [Path(file).stem for file in files]
                if len(set(names)) != len(found.series):
                    raise ConfigError(
                        f"--region: {len(found.series)} series need as many names, got {names}"
                    )
                series = {n: s for n, (_, s) in zip(names, found.series, strict=True)}
                job.finish_table(format_series(series), found.report)
                return
            draft = job.draft()
            rule: Any = beyond
            put = put_carbon if carbon else put_prices
            put(draft, found, region, beyond=rule, start=start)
        kept = _given(options) | {"beyond": beyond, "regions": tuple(region)}
        job.finish(draft, found.report, kept, name)

    return command


def _network_command(format_: str) -> Callable[..., None]:
    def command(
        files: Files,
        out: Out,
        base: Base = "paper",
        gpus: Annotated[
            int | None,
            _option("N", "New regions of N GPUs instead of base's.", parser=integer(1, 10**6)),
        ] = None,
        price: Annotated[float | None, _option("USD", "Per kWh, of new regions.")] = None,
        region: Annotated[
            Texts, _option("NAME", "Name in the file that is wanted; repeatable.")
        ] = NONE,
        map_: Annotated[
            Texts, _option("FILE=BASE", "File's name = region; repeatable.", "--map")
        ] = NONE,
        unit: Annotated[
            Text, _option("UNIT", "Gbit/s, Mbit/s, bit/s, ms, 'ms RTT', USD/GB."), _only("matrix")
        ] = None,
        capacity: Annotated[
            float | None, _option("GBPS", "Of links without a speed."), _only("topology")
        ] = None,
        disconnected: Annotated[
            Text, _option("RULE", "error (default), keep without a link."), _only("topology")
        ] = None,
        tier: Annotated[
            Text, _option("TIER", "PREMIUM (default), STANDARD or any."), _only("skyplane")
        ] = None,
        rtt: Annotated[str, _option("WHICH", "min, avg or max."), _only("skyplane")] = "avg",
        duplicates: Annotated[
            Text,
            _option("RULE", "Rows of one pair: median (default), first, last, mean, error."),
            _only("skyplane"),
        ] = None,
        delimiter: Delimiter = ",",
        encoding: Encoding = "utf-8-sig",
        name: Name = None,
        json_: Json = None,
        strict: Strict = False,
        force: Force = False,
    ) -> None:
        table = out.suffix == ".csv"
        used = None if table else base
        job = _Job(files, out, [], base=used, json_=json_, strict=strict, force=force)
        from bace_env.io.network import NetworkOptions, read_network
        from bace_env.io.scenario_files import put_network

        reading: dict[str, Any] = {
            "tier": tier, "rtt": rtt, "duplicates": duplicates, "unit": unit,
            "capacity_gbps": capacity, "disconnected": disconnected, "regions": tuple(region),
            "delimiter": delimiter, "encoding": encoding,
        }  # fmt: skip
        rename = _mapping(map_)
        with job.busy("reading the network"):
            if format_ == "topology" and gpus is None and not region:
                reading["regions"] = tuple(rename)
            options = NetworkOptions(**reading)
            found = read_network(format_, files, options)
            if table:
                _finish_pairs(job, found)
                return
            draft = job.draft()
            put_network(draft, found, rename=rename, regions=region, gpus=gpus, price=price)
        kept = _given(options)
        kept |= {k: v for k, v in {"gpus": gpus, "price": price}.items() if v is not None}
        job.finish(draft, found.report, kept | {"map": tuple(map_)}, name)

    return command


def _cluster_command(format_: str) -> Callable[..., None]:
    def command(
        files: Files,
        out: Out,
        region: Annotated[Texts, _option("NAME", "Region of each file, in order; repeatable.")],
        base: Base = "paper",
        date: Annotated[Text, _option("DATE", "Of GPU counts by date.")] = None,
        gpu_model: Annotated[Text, _option("NAME", "Count only these of a node list.")] = None,
        delimiter: Delimiter = ",",
        encoding: Encoding = "utf-8-sig",
        name: Name = None,
        json_: Json = None,
        strict: Strict = False,
        force: Force = False,
    ) -> None:
        job = _Job(files, out, [], base=base, json_=json_, strict=strict, force=force)
        from bace_env.io.cluster import ClusterOptions, read_cluster
        from bace_env.io.scenario_files import put_gpus

        reading: dict[str, Any] = {
            "date": date,
            "model": gpu_model,
            "delimiter": delimiter,
            "encoding": encoding,
        }
        options = ClusterOptions(**reading)
        counts, report = read_cluster(files, options)
        draft = job.draft()
        put_gpus(draft, counts, region, report)
        job.finish(draft, report, _given(options) | {"regions": tuple(region)}, name)

    return command


def _finish_pairs(job: _Job, found: Any) -> None:
    """A CSV of pairs, for what a scenario has no field for."""
    from bace_env.tables import format_table

    given = [q for q in ("gbps", "latency_ms", "usd_per_gb") if getattr(found, q)]
    pairs = sorted({pair for q in given for pair in getattr(found, q)})
    rows = ([a, b, *(getattr(found, q).get((a, b), "") for q in given)] for a, b in pairs)
    job.finish_table(format_table(["source", "target", *given], rows), found.report)


def _mapping(entries: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in entries:
        source, equals, target = entry.partition("=")
        if not (source and equals and target):
            raise ConfigError(f"--map {entry!r}: must be FILE_NAME=REGION")
        found[source] = target
    return found


#: Name -> what it is, short enough for a line of --help; the readers' tables hold the same names.
_ABOUT: dict[str, tuple[Callable[[str], Callable[..., None]], str]] = {
    "jobs": (_job_command, "Jobs: any CSV; options say what is what"),
    "philly": (_job_command, "Jobs: Microsoft Philly cluster_job_log (JSON)"),
    "philly-csv": (_job_command, "Jobs: Philly, flat CSV (timestamp,duration,...)"),
    "helios": (_job_command, "Jobs: SenseTime Helios cluster_log.csv"),
    "acme": (_job_command, "Jobs: ACME trace_seren.csv, trace_kalos.csv"),
    "pai": (_job_command, "Jobs: Alibaba PAI job and task table, .headers"),
    "openb": (_job_command, "Jobs: Alibaba openb pod list"),
    "gavel": (_job_command, "Jobs: Gavel .trace of 7 or 10 fields"),
    "tiresias": (_job_command, "Jobs: Tiresias CSV"),
    "prices": (_series_command, "Prices: any CSV; options say what is what"),
    "sustain-cluster": (_series_command, "Prices: HPE, standardized or processed"),
    "entsoe": (_series_command, "Prices: ENTSO-E day-ahead export"),
    "citylearn": (_series_command, "Prices: CityLearn pricing.csv (no times)"),
    "carbon": (_series_command, "Carbon: Electricity Maps; .toml, or .csv alone"),
    "skyplane": (_network_command, "Links: Skyplane throughput, latency, cost CSVs"),
    "matrix": (_network_command, "Links: square matrix, row = source"),
    "topology": (_network_command, "Links: GraphML or GML, widest path"),
    "cluster": (_cluster_command, "GPUs: node list, GPU counts or cluster spec"),
}


def _leave_own_options(command: Any, format_: str) -> None:
    """Take the options that its format does not have from the command's signature."""
    signature = inspect.signature(command)
    own = [
        parameter
        for parameter in signature.parameters.values()
        if all(
            (format_ in mark.names) == mark.have
            for mark in parameter.annotation.__metadata__
            if isinstance(mark, _Formats)
        )
    ]
    command.__signature__ = signature.replace(parameters=own)


for _name, (_make, _about) in _ABOUT.items():
    _command = _make(_name)
    _leave_own_options(_command, _name)
    app.command(_name, help=f"{_about}.")(_command)


def main() -> None:
    """Entry point: one line and exit code 2 on bad input."""
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    run_command(app, "python -m bace_env.io")


if __name__ == "__main__":
    main()
