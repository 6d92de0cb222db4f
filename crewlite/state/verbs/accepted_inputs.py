"""The inputs that a recorded definition takes, as far as the record tells."""

from __future__ import annotations

from collections.abc import Iterable

from crewlite import kinds
from crewlite.encoding.codec import JsonObject, decode
from crewlite.errors import ConfigError, meant
from crewlite.state.format.record import Record
from crewlite.texts import templates

TEMPLATES = ("description", "expected_output", "output_file", "role", "goal", "backstory")
"""The fields of tasks and agents whose placeholders are replaced by inputs."""


def check_accepted(record: Record, inputs: Iterable[str], takes: Iterable[str]) -> None:
    """Raise ConfigError for an input that is neither recorded, nor used by the recorded definition, nor in `takes`."""
    asked = inputs_of_definition(record.run["definition"])
    if asked is None:
        return
    known = sorted({*decode(record.run["inputs"]), *asked, *takes})
    for name in inputs:
        if name not in known:
            hint = meant(name, known) or f"it takes {', '.join(known) or 'none'}"
            raise ConfigError(f"Run {record.run['run_id']!r} has no input {name!r}; {hint}")


def inputs_of_definition(definition: JsonObject) -> list[str] | None:
    """Return the inputs that a recorded definition uses; None with callbacks, or if an early release recorded it."""
    live = definition.get("live")
    if isinstance(live, dict) and "before_kickoff_callbacks" in live:
        return None
    if "agents" in definition:
        facts = [*definition["tasks"], *definition["agents"]]
        texts = [fact.get(name) for fact in facts for name in TEMPLATES]
        return [name for text in texts if isinstance(text, str) for name in templates.placeholders(text)]
    takes: list[str] | None = ["messages"] if kinds.of(definition["kind"]).takes_messages else definition.get("takes")
    return takes
