"""Why a policy decides as it does, in a form that a terminal and a page can show unread.

A policy explains itself by an `explain(view)` method beside `act(view)`; what it puts into facts
and tables is its own affair.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from bace_env.simulator import Action, Placement, View

Cell = str | int | float | None


class Fact(NamedTuple):
    """One number that the whole decision rests on."""

    label: str
    value: Cell
    unit: str = ""


class Column(NamedTuple):
    """Heading of a table's column."""

    name: str
    unit: str = ""


@dataclass(frozen=True)
class Table:
    """Rows in the order in which the policy looks at them."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "title": self.title,
            "columns": [column._asdict() for column in self.columns],
            "rows": [list(row) for row in self.rows],
        }


@dataclass(frozen=True)
class Explanation:
    """One decision and what led to it."""

    action: Action
    sentence: str
    facts: tuple[Fact, ...] = ()
    tables: tuple[Table, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data; the action is None for WAIT."""
        action: dict[str, Any] | None = None
        if isinstance(self.action, Placement):
            job, path, gpus = self.action
            action = {"job": job, "path": list(path), "gpus": list(gpus)}
        return {
            "action": action,
            "sentence": self.sentence,
            "facts": [fact._asdict() for fact in self.facts],
            "tables": [table.to_dict() for table in self.tables],
        }


@runtime_checkable
class Explains(Protocol):
    """A policy that gives reasons."""

    def explain(self, view: View) -> Explanation:
        """Why `act(view)` would answer what it would answer; changes nothing, not even itself."""
