"""What `@human_feedback` asks a person, and which outcome an answer means without asking a model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from crewlite.encoding import codec
from crewlite.errors import ConfigError, NotCodable, meant
from crewlite.flow.classes.labels import listed
from crewlite.ids import now
from crewlite.llm.base import BaseLLM
from crewlite.llm.models import as_model
from crewlite.runtime.people.question import Question, QuestionEvents
from crewlite.state.reading.fitting import begins_with


@dataclass
class HumanFeedbackResult:
    """What a person has said about the result of a method."""

    output: Any
    """What the method has returned."""
    feedback: str
    outcome: str | None = None
    """The outcome in `emit` that the answer means; None without `emit`."""
    timestamp: datetime = field(default_factory=now)
    """When the answer was recorded, with its time zone."""
    method_name: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


codec.declare(HumanFeedbackResult)


@dataclass(frozen=True, slots=True)
class Feedback:
    """The settings of `@human_feedback`. Raises ConfigError for those that cannot work."""

    message: str
    emit: tuple[str, ...]
    """The outcomes to choose from, if there are any."""
    llm: BaseLLM | str | None
    default_outcome: str | None
    metadata: dict[str, Any]

    @classmethod
    def of(cls, message: Any, emit: Any, llm: Any, default_outcome: Any, metadata: Any) -> Feedback:
        """Return the settings, checked."""
        if not isinstance(message, str) or not message.strip():
            hint = "; write @human_feedback(message=...)" if callable(message) else ""
            raise _wrong("message", message, f"the text that a person is shown{hint}")
        outcomes = _outcomes(emit)
        if default_outcome is not None and default_outcome not in outcomes:
            wanted = f"one of its emit, {', '.join(outcomes)}" if outcomes else "no default outcome without emit=[...]"
            hint = meant(default_outcome, outcomes) if isinstance(default_outcome, str) else ""
            raise _wrong("default_outcome", default_outcome, f"{wanted}{f'; {hint}' if hint else ''}")
        model = as_model(llm)
        if not isinstance(model, BaseLLM | str | None):
            raise _wrong("llm", llm, "a model, its name, or None")
        return cls(message, outcomes, model, default_outcome, _plain(metadata))

    def question(self, flow: object, flow_name: str, method_name: str, output: Any) -> Question:
        """Build the question about what a method has returned."""
        about = {"flow_name": flow_name, "method_name": method_name, "metadata": self.metadata}
        shown = {"message": self.message, "output": output, "emit": self.emit}
        question_events = QuestionEvents(flow, about=about, shown=shown)
        return Question(
            self._text(output), wider=(self._schema, self._checked) if self.emit else None, events=question_events
        )

    def outcome(self, answer: str) -> str | None:
        """Return the outcome that an answer names, as `Approved: well done` does; for no answer `default_outcome`."""
        if not answer.strip():
            return self.default_outcome
        return next((one for one in self.emit if re.search(begins_with([one]), answer)), None)

    @property
    def _schema(self) -> dict[str, Any]:
        """The JSON schema of an answer: it names an outcome, or is any text if a model can choose the outcome."""
        pattern = r"\S" if self.llm else begins_with(self.emit)
        pattern += r"|^\s*$" if self.default_outcome else ""
        return {"type": "string", "pattern": pattern, "description": self._wanted}

    @property
    def _wanted(self) -> str:
        words = ", or your own words" if self.llm else ", alone or with words: 'OUTCOME: words'"
        return f"one of {', '.join(map(repr, self.emit))}{words}{self._if_empty}"

    @property
    def _if_empty(self) -> str:
        return f"; nothing: {self.default_outcome}" if self.default_outcome else ""

    def _checked(self, answer: Any) -> str:
        """Return an answer unchanged. Raises ValueError if it names no outcome and there is no model to choose one."""
        if isinstance(answer, str) and (self.outcome(answer) or (self.llm and answer.strip())):
            return answer
        raise ValueError(f"wanted {self._wanted}")

    def _text(self, output: Any) -> str:
        parts = [] if output is None else [_shown(output)]
        parts.append(self.message)
        if self.emit:
            words = ", or your own words" if self.llm else ""
            parts.append(f"({', '.join(self.emit)}{words}{self._if_empty})")
        return "\n\n".join(parts)


def _outcomes(emit: Any) -> tuple[str, ...]:
    if emit is None:
        return ()
    found = None if isinstance(emit, str) else listed(emit)
    if found is None or not all(map(str.strip, found)):
        raise _wrong("emit", emit, "a list of outcomes, which are texts or members of an Enum")
    if len({one.casefold() for one in found}) < len(found):
        raise _wrong("emit", emit, "outcomes that differ, in more than their case")
    return found


def _plain(metadata: Any) -> dict[str, Any]:
    if not isinstance(metadata, Mapping | None):
        raise _wrong("metadata", metadata, "a dict of plain data, which is recorded")
    try:
        codec.encode_to_keep(dict(metadata or {}))
    except NotCodable as error:
        raise ConfigError(f"@human_feedback(metadata=...): {error}") from None
    return dict(metadata or {})


def _shown(output: Any) -> str:
    """Return a method's result as text for the person who is asked about it."""
    if isinstance(output, BaseModel) and type(output).__str__ is BaseModel.__str__:
        return output.model_dump_json(indent=2)
    if isinstance(output, dict | list):
        return json.dumps(output, ensure_ascii=False, indent=2, default=str)
    return str(output)


def _wrong(setting: str, value: object, wanted: str) -> ConfigError:
    return ConfigError(f"@human_feedback({setting}=...) is {value!r}; wanted {wanted}")
