"""Remedies: the decision that follows a failed attempt, as plain data.

A step asks its policy for a remedy, applies it, and records it with the attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

from crewlite.definitions.keywords import constructor_with_known_keywords
from crewlite.errors import ConfigError
from crewlite.recovery.checks import seconds
from crewlite.recovery.failure import Failure, hint_of
from crewlite.recovery.types import FailureType


@dataclass(frozen=True, slots=True, repr=False)
class _Remedy:
    type: FailureType | None = field(default=None, kw_only=True)
    """The type of the failure, because strategies count the remedies of each type. None: no strategy chose it."""

    @property
    def name(self) -> str:
        """The name under which the remedy is recorded."""
        return type(self).__name__.lower()

    @property
    def after(self) -> float:
        """The delay in seconds before the next attempt."""
        return 0.0

    @property
    def hint(self) -> str:
        """What the next attempt is told; "" for nothing."""
        return ""

    @property
    def subgoal(self) -> str:
        """Where the next attempt goes on; "" if no subgoal is named."""
        return ""

    @property
    def tools(self) -> tuple[str, ...] | None:
        """The names of the tools that the next attempt may call; None for all that it has."""
        return None

    @property
    def said(self) -> str:
        """What the author of the policy says about giving up; the step's error contains it. "" for nothing."""
        return ""

    def __post_init__(self) -> None:
        for name, (wanted, may_be) in _WANTED.items():
            value = getattr(self, name, None)
            if value is not None and not isinstance(value, may_be):
                raise ConfigError(f"{type(self).__name__}: {name} is {value!r}; wanted {wanted}")

    def __repr__(self) -> str:
        given = [f"{one.name}={_shown(getattr(self, one.name))}" for one in _given(self) if one.repr]
        return f"{type(self).__name__}({', '.join(given)})"


# Defined before the remedies: under python -OO, `@dataclass` calls repr() of defaults such as Escalate().
def _given(remedy: Any) -> list[Any]:
    """Return the fields of a remedy that do not have their default."""
    return [one for one in fields(remedy) if getattr(remedy, one.name) != one.default]


def _shown(value: object) -> str:
    return str.__repr__(value) if isinstance(value, str) else repr(value)


_WANTED: dict[str, tuple[str, Any]] = {
    **dict.fromkeys(("hint", "reason", "to", "subgoal", "question", "message"), ("a text", str)),
    "tools": ("the names of tools", tuple),
    "then": ("a remedy, such as Escalate()", _Remedy),
}


@constructor_with_known_keywords
@dataclass(frozen=True, slots=True, repr=False)
class Retry(_Remedy):
    """Try again after `after` seconds. Raises ConfigError if that is not a number of seconds, 0 or more."""

    after: float = 0.0
    kind: str | None = None
    """The kind of the failure, because rules count the retries of each kind. The step sets it."""
    anew: bool = field(default=True, repr=False)
    """False: go on where a step inside failed, as a resume would. Finished steps inside answer from the record."""
    hint: str = ""
    """What went wrong, told to the next attempt alone."""
    tools: tuple[str, ...] | None = None
    """The names of the tools that the next attempt may call; None for all that it has."""

    def __post_init__(self) -> None:
        seconds("Retry", after=self.after)
        if isinstance(self.tools, list):
            object.__setattr__(self, "tools", tuple(self.tools))
        _Remedy.__post_init__(self)


@dataclass(frozen=True, slots=True, repr=False)
class Fallback(_Remedy):
    """Try the next fallback of the step at once, such as another model. Without one, this is the same as `Abort`."""


@constructor_with_known_keywords
@dataclass(frozen=True, slots=True, repr=False)
class Abort(_Remedy):
    """Give up: the step fails, and its caller gets the error, as RecoveryAborted if there is a `reason`."""

    reason: str = ""

    @property
    def said(self) -> str:
        """The reason."""
        return self.reason


@constructor_with_known_keywords
@dataclass(frozen=True, slots=True, repr=False)
class Replan(_Remedy):
    """Do the work in which the failure occurred again from its beginning, told `hint`."""

    hint: str = ""


@constructor_with_known_keywords
@dataclass(frozen=True, slots=True, repr=False)
class Rollback(_Remedy):
    """Go back to the last good step before the failure, or to the step `to`, and go on from there, told `hint`."""

    to: str | None = None
    """The address of the last step that keeps its outcome, such as "task:research"."""
    hint: str = ""


@constructor_with_known_keywords
@dataclass(frozen=True, slots=True, repr=False)
class Resume(_Remedy):
    """Go on at a subgoal: finished steps answer from the record, and the next attempt is told `subgoal` and `hint`."""

    subgoal: str = ""
    hint: str = ""


@constructor_with_known_keywords
@dataclass(frozen=True, slots=True, repr=False)
class Escalate(_Remedy):
    """Give up and hand the failure, in full, to whoever kicked the run off."""

    message: str = ""

    @property
    def said(self) -> str:
        """The message."""
        return self.message


@constructor_with_known_keywords
@dataclass(frozen=True, slots=True, repr=False)
class Compensate(_Remedy):
    """Undo what the finished steps of the work have done, newest first; then apply `then`."""

    then: Remedy = Escalate()


@constructor_with_known_keywords
@dataclass(frozen=True, slots=True, repr=False)
class Suspend(_Remedy):
    """Ask a person which remedy to apply."""

    question: str = ""


Remedy = Retry | Fallback | Abort | Replan | Rollback | Resume | Compensate | Suspend | Escalate
REMEDIES: dict[str, type[Remedy]] = {cls.__name__.lower(): cls for cls in get_args(Remedy)}
"""The remedies by the names under which they are recorded."""
GIVES_UP = (Abort, Escalate)
"""The remedies after which the step fails."""
USUAL = 3
"""The default number of remedies for one step."""


def is_attempt(remedy: Remedy) -> bool:
    """Return whether another attempt follows without anybody being asked."""
    return is_attempt(remedy.then) if isinstance(remedy, Compensate) else not isinstance(remedy, (*GIVES_UP, Suspend))


def hinted(remedy: Remedy, failure: Failure) -> Remedy:
    """Return a remedy for work with a hint made of the failure, unless it has one. Anything else is unchanged."""
    if not isinstance(remedy, Replan | Rollback | Resume) or remedy.hint:
        return remedy
    return replace(remedy, hint=hint_of(failure))


def spent(failure: Failure, why: str) -> Remedy:
    """Return the remedy when a budget is used up: Escalate, or Abort if a model is told of the failure."""
    return Abort(type=failure.type) if failure.is_told else Escalate(why, type=failure.type)


def typed(remedy: Remedy, failure: Failure) -> Remedy:
    """Return a remedy with the type of the failure that it answers, unless it has one. Anything else is unchanged."""
    return replace(remedy, type=failure.type) if isinstance(remedy, _Remedy) and remedy.type is None else remedy


def as_data(remedy: Remedy) -> dict[str, Any]:
    """Return a remedy as plain JSON data: its name, as `do`, and the fields that were given.

    The kind of a Retry is left out: it is recorded with the failure.
    """
    data: dict[str, Any] = {"do": remedy.name}
    if isinstance(remedy, Retry):
        data["after"] = remedy.after
    for one in _given(remedy):
        value = getattr(remedy, one.name)
        if one.name == "then":
            data["then"] = as_data(value)
        elif one.name not in ("after", "kind"):
            data[one.name] = list(value) if isinstance(value, tuple) else str(value) if one.name == "type" else value
    return data


def remedy_of(data: Mapping[str, Any], kind: str) -> Remedy | None:
    """Rebuild a remedy from its data; None if this release does not know the remedy. `kind`: the kind of the failure.

    Unknown fields of the data are left out, and an unknown type of failure becomes UNKNOWN.
    """
    cls = REMEDIES.get(data["do"])
    if cls is None:
        return None
    given = {one.name: data[one.name] for one in fields(cls) if one.name in data}
    if "type" in given:
        given["type"] = FailureType(given["type"]) if given["type"] in list(FailureType) else FailureType.UNKNOWN
    if "then" in given:
        given["then"] = remedy_of(given["then"], kind)
        if given["then"] is None:
            return None
    return cls(**given, kind=kind) if cls is Retry else cls(**given)
