"""Inputs and outputs as texts that a person can edit, and the words of the command line that an edit becomes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crewlite import kinds
from crewlite.cli.checkpoint import document
from crewlite.state.reading.steps import StepView
from crewlite.state.run_history import RunHistory
from crewlite.state.verbs.edit import can_edit
from crewlite.tui.words import shown
from crewlite.wording import an

LONGEST = 100_000
"""Characters of a value that can be edited in the view."""


@dataclass(frozen=True, slots=True)
class Field:
    """A value with its name: of an input, or the address of a step."""

    name: str
    text: str
    """The value as a text, or, if `is_json`, as JSON."""
    option: str
    """The option of `crewlite checkpoint fork` that changes it."""
    is_json: bool = False
    fixed: str = ""
    """Why it cannot be edited here; "" if it can."""

    def word(self, text: str) -> list[str]:
        """Return the words of the command line that set another value. Raises ValueError for text that is no JSON."""
        if self.option == "--message":
            return [f"--message={text}"]
        if self.is_json:
            value = json.loads(text)
        elif not text.startswith("@"):  # which would name a file
            return [f"{self.option}={self.name}={text}"]
        else:
            value = text
        return [f"{self.option}={self.name}:={json.dumps(value)}"]


def inputs_of(run: RunHistory) -> list[Field]:
    """Return the inputs of a run; for an agent, the message to ask next, which is empty."""
    if kinds.of(run.definition["kind"]).takes_messages:
        return [Field("message", "", "--message")]
    return [_field(name, value, "--input") for name, value in run.inputs.items()]


def outputs_of(steps: Sequence[StepView], at: int | None = None) -> list[Field]:
    """Return the outcomes of the outermost steps, such as tasks and methods, as of the commit `at`; None: of all."""
    done = [one for one in steps if one.status == "finished" and one.address and "/" not in one.address]
    return [_output(one) for one in done if at is None or (one.seq or 0) <= at]


def _output(step: StepView) -> Field:
    kind, value = kinds.of(step.kind), step.value
    if not kind.holds_value and isinstance(value, dict):
        value = next((value[name] for name in ("raw", "text", "answer") if name in value), value)
    fixed = "" if can_edit(kind) else f"the outcome of {an(kind.title)} step cannot be edited"
    return _field(step.address, value, "--edit", fixed)


def _field(name: str, value: Any, option: str, fixed: str = "") -> Field:
    text, is_json = as_text(value)
    if len(text) > LONGEST:
        fixed = fixed or f"it has {len(text):,} characters: edit it with crewlite checkpoint fork {option} {name}=@FILE"
        text = shown(text)
    return Field(name, text, option, is_json, fixed)


def as_text(value: Any) -> tuple[str, bool]:
    """Return a value as a text, and whether that is JSON. A text with control characters becomes JSON too."""
    if isinstance(value, str) and all(c.isprintable() or c == "\n" for c in value):
        return value, False
    text = json.dumps(document.plain(value), ensure_ascii=False, indent=None if isinstance(value, str) else 2)
    if not all(c.isprintable() or c == "\n" for c in text):
        text = json.dumps(document.plain(value), indent=None if isinstance(value, str) else 2)
    return text, True
