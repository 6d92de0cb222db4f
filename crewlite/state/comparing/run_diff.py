"""Two runs beside each other, or two places of one: what differs in their inputs, steps, models, state and usage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from crewlite.encoding.codec import Json, JsonObject, decode, dumps
from crewlite.lazy import lazy
from crewlite.state.comparing.fields import Difference, FieldDiff, field_diffs, state_diffs
from crewlite.state.comparing.steps import Side, StepDiff, step_diffs
from crewlite.state.comparing.text import Line, as_lines
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record
from crewlite.state.format.times import Times
from crewlite.state.reading.checkpoint import usage_change
from crewlite.usage import Usage

pages = lazy("crewlite.state.comparing.page")
_INLINE = ("live", "models")
"""Keys whose content counts as settings of the definition itself: names of live objects, and settings of its models."""
ReadBranch = tuple[Sequence[Entry], Record, str | None]
"""(entries, record, the part of the ref behind the @ or None) of a run at the place to compare."""
Settings = tuple[dict[str, Json], dict[str, Json]]
"""(the settings of models, all other settings), each by name."""


@dataclass(frozen=True, slots=True)
class RunDiff:
    """The differences between two runs `a` and `b`; `str` returns them as text.

    Inputs, settings and values are listed only if they differ, steps always.
    """

    a: Side
    b: Side
    common: int
    """The number of the last commit that both have in common; 0 if they are not branches of one run."""
    inputs: tuple[FieldDiff, ...]
    models: tuple[FieldDiff, ...]
    """Settings of models, such as `agents.Writer.llm` or `agents.Writer.llm.temperature`."""
    settings: tuple[FieldDiff, ...]
    """Other settings of the definitions, such as `tasks.text.description`."""
    steps: tuple[StepDiff, ...]
    """All steps of both runs, each before the steps inside it."""
    state: tuple[FieldDiff, ...]
    """Named values of the runs, with the numbers of their changes, and collections."""
    usage: Usage
    """The usage of `b` minus that of `a`."""
    seconds: float
    """The time that `b` has worked minus the time that `a` has worked, in seconds."""

    def __bool__(self) -> bool:
        """Return whether anything but usage and time differs, as far as prunes have left the data that tell it."""
        changed = any(step.status not in ("same", "unknown") for step in self.steps)
        return bool(changed or self.inputs or self.models or self.settings or self.state)

    def steps_with(self, *statuses: Difference) -> tuple[StepDiff, ...]:
        """Return the steps with one of these statuses: `same`, `changed`, `only_a`, `only_b`, `unknown`."""
        return tuple(step for step in self.steps if step.status in statuses)

    def __str__(self) -> str:
        return "\n".join(line for _, line in self.marked_lines())

    def as_html(self) -> str:
        """Return the differences as a page of HTML: one file without scripts that loads nothing."""
        text: str = pages.page(self)
        return text

    def marked_lines(self) -> Iterator[Line]:
        """Yield the lines of the text, each with a mark: `-`, `+`, `@`, `~`, `?`, a backslash, or ""."""
        fields = {name: getattr(self, name) for name in ("inputs", "models", "settings", "state")}
        return as_lines(self.a, self.b, self.common, fields, self.steps)


def compare(first: ReadBranch, second: ReadBranch) -> RunDiff:
    """Compare two runs, or two places of one."""
    (before, a, place_a), (after, b, place_b) = first, second
    common = _last_common(before, after) if a.run["run_id"] == b.run["run_id"] else 0
    times = Times(a), Times(b)
    one, other = Side.of(a, times[0], place_a), Side.of(b, times[1], place_b)
    (models_a, settings_a), (models_b, settings_b) = _settings(a, b)
    return RunDiff(
        one,
        other,
        common,
        inputs=field_diffs(_inputs(a), _inputs(b)),
        models=field_diffs(models_a, models_b),
        settings=field_diffs(settings_a, settings_b),
        steps=step_diffs(a, b, common, times),
        state=state_diffs(a, b),
        usage=usage_change(one.usage, other.usage),
        seconds=other.seconds - one.seconds,
    )


def _last_common(a: Sequence[Entry], b: Sequence[Entry]) -> int:
    """Return the number of the last entry that both journals share; 0 if they begin differently."""
    common = 0
    for one, other in zip(a, b, strict=False):
        if one.sum != other.sum:
            break
        common = one.seq
    return common


def _settings(a: Record, b: Record) -> tuple[Settings, Settings]:
    """Return the settings of both definitions; empty ones if the definitions are equal, to save the work."""
    one, other = a.run["definition"], b.run["definition"]
    return (({}, {}), ({}, {})) if dumps(one) == dumps(other) else (settings_of(one), settings_of(other))


def _inputs(record: Record) -> dict[str, Json]:
    inputs = record.run["inputs"]
    if inputs.get("$") == "dict":  # a name among them needs it
        return {str(decode(name)): value for name, value in inputs["v"]}
    return inputs


def settings_of(definition: JsonObject) -> Settings:
    """Return the settings of a recorded definition, by their paths such as `agents.Editor.llm`."""
    found: dict[str, Json] = {}
    for parts, value in _flat(definition, ()):
        found.setdefault(".".join(parts), value)
    for name in [name for name in found if name.endswith(".model") and name.removesuffix(".model") in found]:
        del found[name]  # the model is named already
    models = [name for name in found if any(part == "model" or part.endswith("llm") for part in name.split("."))]
    return {name: found.pop(name) for name in models}, found


def _flat(value: Json, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Json]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, name if key in _INLINE else (*name, key))
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        names: set[str] = set()
        for number, item in enumerate(value, 1):
            names.add(own := _named(item, number, names))
            yield from _flat(item, (*name, own))
    else:
        yield name, value


def _named(item: Mapping[str, Json], number: int, taken: set[str]) -> str:
    """Return a name for an agent or a task in a list that is not in `taken`: a second Editor is Editor#2."""
    own = str(item.get("address") or item.get("role") or number).removeprefix("task:")
    return own if own not in taken else next(name for n in count(2) if (name := f"{own}#{n}") not in taken)
