"""The differences between two runs as lines of text, each with the mark by which a terminal may colour it.

Control characters of recorded texts are shown as escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from crewlite.pages.rendering import cost, duration
from crewlite.state.comparing.fields import FieldDiff
from crewlite.state.comparing.steps import Side, StepDiff, StepSide
from crewlite.state.format.addresses import outers
from crewlite.texts.wording import escaped, number_of
from crewlite.usage import Usage

Line = tuple[str, str]
"""(mark, line). The mark is that of a text diff (`-`, `+`, `@`, `\\`), `~` for a changed step, `?` for one that cannot
be compared, or ""."""

_MARKS = {"changed": "~", "only_a": "-", "only_b": "+", "unknown": "?"}


def as_lines(
    a: Side, b: Side, common: int, fields: Mapping[str, Sequence[FieldDiff]], steps: Sequence[StepDiff]
) -> Iterator[Line]:
    """Yield the lines. `fields`: the fields that differ, by section; the section `state` comes after the steps."""
    width = max(len(a.ref), len(b.ref))
    for name, side in (("a", a), ("b", b)):
        yield _line(f"{name}  {side.ref:<{width}}  {side.status_text}, {spent(side.usage)}, {duration(side.seconds)}")
    if common:
        yield _line(f"   both begin with the same {number_of(common, 'commit')}")
    for name, found in fields.items():
        if name != "state":
            yield from _section(name, found)
    yield from (_line(), _line(f"steps: {counts(steps)}"))
    seen: dict[tuple[str, ...], str] = {}
    listed = [step for step in steps if step.status != "same"]
    addresses = {step.address for step in listed}
    for step in listed:
        yield from _step(step, seen, "  " * sum(at in addresses for at in outers(step.address)))
    yield from _section("state", fields.get("state", ()))


def counts(steps: Sequence[StepDiff]) -> str:
    """Return as text how many steps are the same, changed, or only in one run."""
    found = [step.status for step in steps]
    shared = sum(step.shared for step in steps)
    same = f"{found.count('same'):,} same" + (f" ({shared:,} of them shared)" if shared else "")
    only = [f"{found.count('only_a'):,} only in a", f"{found.count('only_b'):,} only in b"]
    only += [f"{found.count('unknown'):,} dropped in a or b by a prune"] if "unknown" in found else []
    return ", ".join((same, f"{found.count('changed'):,} changed", *only))


def why_unknown(step: StepDiff) -> str:
    """Return as text why a step cannot be compared; "" if it can be."""
    if not step.dropped:
        return ""
    where = f"a prune has dropped its details in {' and '.join(step.dropped)}"
    return f"was asked something else, which cannot be compared: {where}" if step.status == "changed" else where


def spent(usage: Usage) -> str:
    """Return tokens and cost as text."""
    tokens, paid = number_of(usage.total_tokens, "token"), cost(usage.cost) or "unknown"
    return f"{tokens}, cost {paid}" if usage.requests else "no model was asked"


def _section(name: str, fields: Iterable[FieldDiff]) -> Iterator[Line]:
    for number, field in enumerate(fields):
        if not number:
            yield from (_line(), _line(name))
        versions = field.version_a, field.version_b
        about = "" if versions == (None, None) else f"  (version {versions[0] or 0} -> {versions[1] or 0})"
        yield _line(f"  {field.name}{about}")
        yield from _lines(field.lines, "    ")


def _step(step: StepDiff, seen: dict[tuple[str, ...], str], indent: str) -> Iterator[Line]:
    both = step.status == "changed"
    skipped = any(side and side.status == "skipped" for side in (step.a, step.b))
    about = [field.name for field in step.changes] if both else [step.kind, *(["skipped"] if skipped else [])]
    names = ", ".join([*about, *filter(None, [why_unknown(step)])])
    more = "".join(f", {part}" for part in _more(step.a, step.b)) if both else ""
    mark = _MARKS[step.status]
    yield _line(f"{indent}  {mark} {step.address or 'the run itself'}  {names}{more}", mark)
    for field in step.changes:
        if both and len(step.changes) > 1:
            yield _line(f"{indent}      {field.name}")
        if earlier := seen.get(lines := field.lines):
            yield _line(f"{indent}      (as {earlier})")
            continue
        seen[lines] = step.address or "the run itself"
        yield from _lines(lines, f"{indent}      ")


def _more(a: StepSide | None, b: StepSide | None) -> Iterator[str]:
    """Yield how tokens and time of a step differ, if they do. Ignores less than a second, which may be chance."""
    if a and b:
        if tokens := b.usage.total_tokens - a.usage.total_tokens:
            yield f"{tokens:+,} tokens"
        if abs(time := b.milliseconds - a.milliseconds) >= 1_000:
            yield f"{'+' if time > 0 else '-'}{duration(abs(time) / 1000)}"


def _lines(lines: Iterable[str], indent: str) -> Iterator[Line]:
    for line in lines:
        yield _line(f"{indent}{line}".rstrip(), line[0].strip())


def _line(text: str = "", mark: str = "") -> Line:
    return mark, escaped(text)
