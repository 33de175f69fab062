"""What an import did: every row that was read is kept or rejected for a reason that is named."""

from dataclasses import asdict, dataclass, field
from typing import Any

from bace_env.errors import ConfigError


@dataclass
class Report:
    """Filled by an importer as it goes.

    Attributes:
        format: Name of the format.
        files: What was read.
        rows_read: Rows of data, without headers and blank lines.
        rows_kept: Rows that went on into the result; `rows_read - rows_kept` were rejected.
        blank_lines: Lines without anything in them.
        found: What the rows hold, counted before any decision (zero-GPU jobs, duplicates, ...).
        rejected: Reason -> rows; each rejected row has one reason, the first that applied.
        changed: What was done to kept rows or added beside them (rounded, filled, capped, ...).
        examples: Reason -> the first row that it applied to.
        units: Quantity -> unit in the file and, if converted, how.
        span: First and last instant (or second) of what was kept.
        coverage: One entry per series: from, to, step, values, filled, mean, ...
        notes: What a reader should know; nothing that was done to the data.
        warnings: What is likely wrong.
        unasked: Reasons and changes that no option asked for: `--strict` refuses them.
    """

    format: str
    files: list[str] = field(default_factory=list)
    rows_read: int = 0
    rows_kept: int = 0
    blank_lines: int = 0
    found: dict[str, int | float] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    span: dict[str, str] = field(default_factory=dict)
    coverage: list[dict[str, str | int | float | None]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)

    def reject(self, reason: str, rows: int, example: str = "", *, asked: bool = False) -> None:
        """Count rows that are left out."""
        self._count(self.rejected, reason, rows, example, asked)

    def change(self, what: str, rows: int, example: str = "", *, asked: bool = False) -> None:
        """Count rows that are kept otherwise than they stand in the file, or added."""
        self._count(self.changed, what, rows, example, asked)

    def _count(
        self, counts: dict[str, int], what: str, rows: int, example: str, asked: bool
    ) -> None:
        if rows == 0:
            return
        counts[what] = counts.get(what, 0) + int(rows)
        if example:
            self.examples.setdefault(what, example)
        if not asked and what not in self.unasked:
            self.unasked.append(what)

    def require_strict(self) -> None:
        """Refuse the import if anything was rejected or changed that no option asked for.

        Raises:
            ConfigError: Naming each reason with its number of rows.
        """
        counts = self.rejected | self.changed
        if self.unasked:
            what = "; ".join(f"{name}: {counts[name]}" for name in self.unasked)
            raise ConfigError(f"--strict: rows were rejected or changed unasked: {what}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The report for people, without what is empty."""
        lines = [f"{self.format}: {', '.join(self.files)}"]
        blank = f", {self.blank_lines} blank lines" if self.blank_lines else ""
        lines.append(f"rows: {self.rows_read} read, {self.rows_kept} kept{blank}")
        for title, counts in (("rejected", self.rejected), ("changed", self.changed)):
            for what, rows in counts.items():
                example = self.examples.get(what)
                lines.append(
                    f"{title}: {rows} {what}" + (f" (first: {example})" if example else "")
                )
        found = [f"{what} {_number(count)}" for what, count in self.found.items() if count]
        if found:
            lines.append(f"found: {', '.join(found)}")
        lines += [f"unit: {what}: {unit}" for what, unit in self.units.items()]
        if self.span:
            lines.append(" ".join(["span:", *(f"{k} {v}" for k, v in self.span.items())]))
        for entry in self.coverage:
            parts = [f"{k} {_number(v)}" for k, v in entry.items() if v not in (None, 0, "")]
            lines.append(f"series {', '.join(parts)}")
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"warning: {warning}" for warning in self.warnings]
        return lines


def _number(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
