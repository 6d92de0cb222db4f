"""A field that differs between two runs: an input, a setting, a value of the state, or a part of a step.

Its text diff stays small and fast for any texts: megabytes in one line, or a hundred thousand lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from crewlite.encoding.codec import Json, digest
from crewlite.lazy import difflib
from crewlite.state.format.addresses import BEGINNING
from crewlite.state.format.operations import items_in, without_items
from crewlite.state.format.record import Record
from crewlite.state.format.turns import ID
from crewlite.state.reading.shown import as_text, plain
from crewlite.texts.wording import common_start

_CONTEXT = 2  # unchanged lines that are shown around a change
_MATCHED = 40_000  # pairs of lines that are compared with each other; beyond that the lines count as replaced
_LINES = 200  # lines of one diff
_WIDTH = 600  # characters of one line
_OWN = "(made by the run)"
Difference = Literal["same", "changed", "only_a", "only_b", "unknown"]
"""`unknown`: of a step that one run has and the other had, before a prune left it out."""


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """A field that differs: its two values as plain JSON data, None on the side that lacks the field."""

    name: str
    status: Difference
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


def state_diffs(a: Record, b: Record) -> tuple[FieldDiff, ...]:
    """Compare the named values and the collections of two runs. A collection is compared as the list of its items.

    An id that each run has made for its state counts as no difference.
    """
    before, after = without_items(a.values), without_items(b.values)
    if has_own_id(a, "", before) and has_own_id(b, "", after):
        before = {**before, ID: after[ID]}
    values = field_diffs(before, after, a.kept.versions, b.kept.versions)
    return values + field_diffs(_collections(a), _collections(b))


def has_own_id(record: Record, address: str, state: Mapping[str, Json]) -> bool:
    """Return whether the state of the flow at an address has the id that the run made for it.

    It has another one if inputs gave it to the run, or a method has changed it.
    """
    if ID not in state or (not address and ID in record.run["inputs"]):
        return False
    begun = record.outcomes.get(f"{address}/{BEGINNING}" if address else BEGINNING)
    return begun is not None and ["set", [ID], state[ID]] in begun.changes


def without_own_id(record: Record, address: str, value: Json) -> Json:
    """Return the outcome of a flow as it is compared: with the same words in place of an id that the run made."""
    state = value.get("state") if isinstance(value, dict) else None
    if isinstance(state, dict) and has_own_id(record, address, state):
        return {**value, "state": {**state, ID: _OWN}}
    return value


def _collections(record: Record) -> dict[str, Json]:
    return {name: list(items.values()) for name, items in items_in(record.values).items()}


def field_diffs(
    before: Mapping[str, Json],
    after: Mapping[str, Json],
    versions_a: Mapping[str, int] | None = None,
    versions_b: Mapping[str, int] | None = None,
) -> tuple[FieldDiff, ...]:
    """Compare encoded values by name, and return those that differ. `1` and `1.0` differ; orders of keys do not."""
    found = []
    for name in {**before, **after}:
        status: Difference = "changed" if name in before and name in after else "only_a" if name in before else "only_b"
        if status == "changed" and (before[name] is after[name] or digest(before[name]) == digest(after[name])):
            continue
        versions = (versions_a or {}).get(name), (versions_b or {}).get(name)
        found.append(FieldDiff(name, status, plain(before.get(name)), plain(after.get(name)), *versions))
    return tuple(found)


def changed_lines(before: str | None, after: str | None) -> tuple[str, ...]:
    """Return the unified diff of two texts as lines; () if they are equal. One text may be missing.

    Each line has a mark in front: `-` of the first text, `+` of the second, a space for both. `@@ -3,2 +3,4 @@` stands
    before each part, unless both texts are one line. A line that begins with a backslash says how many characters or
    lines are left out there.
    """
    if before == after:
        return ()
    if before is not None and after is not None and "\n" not in before and "\n" not in after:  # most are like this
        at = _first_difference(before, after)
        return f"-{_cut(before, at)}", f"+{_cut(after, at)}"
    old, new = ([] if text is None else text.split("\n") for text in (before, after))
    found = list(_marked(old, new))
    if len(found) > _LINES:
        found[_LINES:] = [f"\\ {len(found) - _LINES:,} more lines"]
    return tuple(found)


def _marked(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    hunks = _hunks(old, new)
    for hunk in hunks:
        (_, a, _, b, _), (_, _, a_end, _, b_end) = hunk[0], hunk[-1]
        if len(old) > 1 or len(new) > 1:
            yield f"@@ -{_span(a, a_end)} +{_span(b, b_end)} @@"
        for tag, i, i_end, j, j_end in hunk:
            if tag == "equal":
                yield from (f" {_cut(line)}" for line in old[i:i_end])
                continue
            gone, come = old[i:i_end], new[j:j_end]
            starts = [_first_difference(*pair) for pair in zip(gone, come, strict=False)]
            for mark, lines in (("-", gone), ("+", come)):
                for number, line in enumerate(lines[: _LINES + 1]):
                    yield mark + _cut(line, starts[number] if number < len(starts) else 0)
                yield from (mark for _ in lines[_LINES + 1 :])  # cut off anyway, but counted


def _hunks(old: Sequence[str], new: Sequence[str]) -> list[list[tuple[str, int, int, int, int]]]:
    """Return the changes in groups of difflib opcodes: (tag, start and end in `old`, start and end in `new`)."""
    head = common_start(old, new)
    tail = common_start(old[head:][::-1], new[head:][::-1])
    a, b, start, after = len(old) - tail, len(new) - tail, max(0, head - _CONTEXT), min(tail, _CONTEXT)
    pairs = (a - head) * (b - head)
    if pairs <= 1 or pairs > _MATCHED:
        codes = [
            ("equal", start, head, start, head),
            ("replace", head, a, head, b),
            ("equal", a, a + after, b, b + after),
        ]
        return [[code for code in codes if code[1] < code[2] or code[3] < code[4]]]
    found = difflib.SequenceMatcher(None, old[start : a + after], new[start : b + after], autojunk=False)
    return [
        [(tag, i + start, i_end + start, j + start, j_end + start) for tag, i, i_end, j, j_end in group]
        for group in found.get_grouped_opcodes(_CONTEXT)
    ]


def _span(start: int, end: int) -> str:
    """Return a range of lines as a unified diff writes it, such as `3,2`."""
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + 1 if length else start},{length}"


def _first_difference(one: str, other: str) -> int:
    """Return the index of the first character that differs; 0 if both lines are short enough to be shown completely."""
    if max(len(one), len(other)) <= _WIDTH:
        return 0
    low, high = 0, min(len(one), len(other))
    while low < high:  # the length of the common beginning
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _cut(line: str, at: int = 0) -> str:
    """Return a line; of a line that is too long, return the part around `at` and the length of the line."""
    if len(line) <= _WIDTH:
        return line
    start = max(0, min(at - _WIDTH // 4, len(line) - _WIDTH))
    before, after = ("..." if start else ""), ("..." if start + _WIDTH < len(line) else "")
    return f"{before}{line[start : start + _WIDTH]}{after} ({len(line):,} characters)"
