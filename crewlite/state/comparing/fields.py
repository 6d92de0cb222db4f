"""A field that differs between two runs: an input, a setting, a value of the state, or a part of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from crewlite.codec import Json, digest
from crewlite.state.comparing.lines import changed_lines
from crewlite.state.format.operations import items_in, without_items
from crewlite.state.format.record import Record
from crewlite.state.reading.shown import as_text, plain

Status = Literal["same", "changed", "only_a", "only_b"]


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """A field that differs: its two values as plain JSON data, None on the side that lacks the field."""

    name: str
    status: Status
    a: Json
    b: Json
    version_a: int | None = None
    """The number of changes of a value of the state in the first run; None for any other field."""
    version_b: int | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """The difference as lines of a text diff, as `changed_lines` returns them."""
        before = None if self.status == "only_b" else as_text(self.a)
        return changed_lines(before, None if self.status == "only_a" else as_text(self.b))


def field_diffs(before: Mapping[str, Json], after: Mapping[str, Json]) -> tuple[FieldDiff, ...]:
    """Compare encoded values by name, and return those that differ. `1` and `1.0` differ; orders of keys do not."""
    return tuple(_diffs(before, after))


def state_diffs(a: Record, b: Record) -> tuple[FieldDiff, ...]:
    """Compare the named values and the collections of two runs. A collection is compared as the list of its items."""
    return (
        *_diffs(without_items(a.values), without_items(b.values), a.kept.versions, b.kept.versions),
        *_diffs(_collections(a), _collections(b)),
    )


def _collections(record: Record) -> dict[str, Json]:
    return {name: list(items.values()) for name, items in items_in(record.values).items()}


def _diffs(
    before: Mapping[str, Json],
    after: Mapping[str, Json],
    versions_a: Mapping[str, int] | None = None,
    versions_b: Mapping[str, int] | None = None,
) -> Iterator[FieldDiff]:
    for name in {**before, **after}:
        status: Status = "changed" if name in before and name in after else "only_a" if name in before else "only_b"
        if status == "changed" and (before[name] is after[name] or digest(before[name]) == digest(after[name])):
            continue
        versions = (versions_a or {}).get(name), (versions_b or {}).get(name)
        yield FieldDiff(name, status, plain(before.get(name)), plain(after.get(name)), *versions)
