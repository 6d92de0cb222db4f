"""A question to a person: its text, the form of its answer, and how an answer is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import PlainValidator, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from crewlite import events
from crewlite.encoding import codec
from crewlite.errors import AnswerRefused, AnswerTimeout, ConfigError
from crewlite.runtime.people.answer_forms import adapter_of, choices_shown, listed
from crewlite.runtime.people.terminal import Over, answer, piped, terminal
from crewlite.runtime.steps.mode import Basis
from crewlite.state.format.commit import AskedQuestion, GivenAnswer
from crewlite.state.format.record import Record
from crewlite.state.reading.fitting import misfit, typed


@dataclass(frozen=True, slots=True)
class Late:
    """The value instead of an answer that did not come in time."""

    address: str
    """Of the question."""


@dataclass(frozen=True, slots=True)
class QuestionEvents:
    """What the events of a question contain besides its text, the options and the answer."""

    source: object
    requested: type[Any] = events.HumanFeedbackRequestedEvent
    received: type[Any] = events.HumanFeedbackReceivedEvent
    about: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of both events."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the event `requested`."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person. Raises ConfigError for a schema or a timeout that cannot be used."""

    text: str
    schema: Any = None
    timeout: float | None = None
    wider: tuple[Any, Callable[[Any], Any]] | None = None
    """For answers that `schema` does not accept: (their JSON schema, function that reads one or raises ValueError)."""
    check: Callable[[Any], object] | None = None
    """Raises ValueError for an answer that fits the schema and cannot be used. A recorded answer is checked only if it
    was edited."""
    is_approval: bool = False
    """Whether `auto_approve` answers the question with yes."""
    events: QuestionEvents | None = None
    """The events of the question; None for the usual ones."""
    adapter: TypeAdapter[Any] = field(init=False, repr=False)
    """Validates the answer."""
    asked_as: Any = field(init=False, repr=False)
    """The JSON schema of `schema` alone, which is part of the step's question; None for any text."""

    def __post_init__(self) -> None:
        seconds = self.timeout
        if not (isinstance(self.text, str) and self.text.strip()):
            raise ConfigError(f"ask({self.text!r}): wanted the text of a question that is not blank")
        if seconds is not None and (type(seconds) not in (int, float) or not 0 < seconds < math.inf):
            raise ConfigError(f"ask({self.text!r}): timeout is {seconds!r}; wanted a number of seconds, more than 0")
        codec.declare(self.schema)
        try:
            adapter = adapter_of(self.schema)
            shown = None if self.schema is None else adapter.json_schema()
        except (PydanticUserError, NameError, TypeError, ValueError) as error:
            raise ConfigError(
                f"ask({self.text!r}): schema is {self.schema!r}; wanted a type, or a list of choices, such as bool or "
                f"['yes', 'no'] ({str(error).splitlines()[0]})"
            ) from error
        if self.wider:
            adapter = TypeAdapter(Annotated[Any, PlainValidator(self.wider[1])])
        object.__setattr__(self, "adapter", adapter)
        object.__setattr__(self, "asked_as", shown)

    @property
    def json_schema(self) -> Any:
        """The JSON schema of the answer; None for any text."""
        return self.wider[0] if self.wider else self.asked_as

    @property
    def digest(self) -> str:
        """The digest of text and schema, which identifies the question at an address."""
        return codec.digest([self.text, self.asked_as])

    def read(self, answer: Any, address: str, *, recorded: bool = False) -> Any:
        """Validate an answer and return it as `schema` converts it. Raises AnswerRefused if it does not fit."""
        if not (recorded or self.wider) and (problem := misfit(answer, self.asked_as)):
            raise AnswerRefused(address, problem)  # Python's types alone would accept 1 or "off" for yes or no
        try:
            value = self.adapter.validate_python(answer)
            if self.check and not recorded:
                self.check(value)
        except ValidationError as error:
            problems = "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors(include_url=False))
            raise AnswerRefused(address, f"{answer!r}: {problems}") from None
        except ValueError as error:
            raise AnswerRefused(address, f"{answer!r}: {error}") from None
        return value

    def chosen(self, answer: Any, mask: Callable[[str], str]) -> Any:
        """Return the choice that a recorded answer stands for, as a record masks secrets; any other answer as it is."""
        return next((one for one in listed(self.asked_as) if isinstance(one, str) and mask(one) == answer), answer)

    def in_time(self, answer: Any) -> Any:
        """Return the answer. Raises AnswerTimeout if none came in time."""
        if isinstance(answer, Late):
            raise AnswerTimeout(answer.address, self.timeout or 0.0, self.text)
        return answer

    def can_be_read(self) -> bool:
        """Return whether stdin can give an answer now: from a person, or from a pipe if the answer allows no call."""
        return terminal() or (piped() and not self.is_approval)

    def at_terminal(self, over: Over = lambda: None) -> Any:
        """Ask at the terminal until an answer fits the schema, and return that answer. Blocks.

        Raises ConfigError if there is no terminal, EOFError if the terminal's input has ended or `over` says that the
        answer is no longer wanted. Without a terminal, answers are read from a pipe or a file as stdin, except those
        that allow a call.
        """
        if not self.can_be_read():
            raise ConfigError(
                f"ask({self.text!r}): nobody can answer, as there is no terminal and no run that could wait for an "
                f"answer. Ask inside a flow or crew that has checkpoint=True, but in no step with runtime='isolated'"
            )
        shown, wanted = f"{self.text} {choices_shown(self.json_schema)}", self.json_schema
        return answer(shown, lambda said: self.read(typed(said, wanted), self.text), over)


def recorded_question(record: Record, address: str, digest: str, basis: Basis) -> AskedQuestion | None:
    """Return the question to a person recorded at an address, if it has this digest and this basis; else None."""
    asked = record.asked.get(address)
    if asked is None or asked.get("digest") != digest:
        return None
    return asked if basis.holds(asked["seq"], asked.get("rests_on")) else None


def recorded_answer(record: Record, address: str, digest: str, basis: Basis) -> GivenAnswer | None:
    """Return the answer that a person has given to this question; None if nobody has.

    An answer given before its question was asked counts on any basis; a later one only on the basis of its question.
    """
    given = record.answers.get(address)
    if given and given.get("ahead"):
        return given
    asked = recorded_question(record, address, digest, basis)
    return record.answer_to(asked) if asked else None
