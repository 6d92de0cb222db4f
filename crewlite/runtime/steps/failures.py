"""Errors as plain data, to be raised again by a later resume or in another process.

The error is raised as its own class if that is loaded here and the error's arguments could be encoded; otherwise as
`StepRaised`. Fields that cannot be encoded are left out. Members of a group, causes and contexts are rebuilt in the
same way. For this, nothing is imported, and neither `__init__` nor `__new__` of the class runs. Validation errors of
pydantic are rebuilt by `validation_errors`.

The size of a record is limited, and what exceeds the limit is left out, too. A note on the rebuilt error lists what was
left out.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import MemberDescriptorType
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from crewlite.encoding import codec, homes
from crewlite.errors import NotCodable, StepRaised, add_note, text_of
from crewlite.runtime.steps import validation_errors
from crewlite.state.format.failed import RaisedError
from crewlite.texts.wording import an, number_of

_DEPTH = 4  # how far from an error the errors that led to it are recorded
_MOST = 1_000  # errors in the record of one error
_LARGEST = 1_000_000  # characters of JSON: the arguments and fields of all these errors
_LONGEST = 10_000  # characters of the text of an error that led to another one
_LONGEST_PATH = 100  # characters of the path of what cannot be recorded
E = TypeVar("E", bound=BaseException)
_NAMING = (ImportError, NameError, AttributeError)  # built-in classes with attributes that are not in `args`
_MERELY_MET = AttributeError.__dict__["obj"]  # left out: this object may hold anything


@dataclass(frozen=True, slots=True)
class ReportedFailure:
    """A failure as plain data: sent by a process that ran a step, or kept while a remedy is chosen."""

    error_type: str
    message: str
    traceback: str
    raised: RaisedError | None


class RecordedFailure(Protocol):
    """A failure as plain data: of an attempt in the record, or reported by another process."""

    @property
    def error_type(self) -> str:
        """The name of the error's class."""

    @property
    def message(self) -> str:
        """The error's text."""

    @property
    def traceback(self) -> str:
        """The traceback as text; "" if a child step caused the failure, as the child's record has the traceback."""

    @property
    def raised(self) -> RaisedError | None:
        """The result of `written` for the error; None if it was not recorded."""


def written(error: BaseException) -> RaisedError:
    """Return an error as data, from which `raised` builds it again: its class, what can be encoded, and its causes."""
    return _written(error, _DEPTH, _Room())


def raised(step: str, failure: RecordedFailure) -> Exception:
    """Build the error that a step failed with: an object of its class if that is loaded here, else a StepRaised."""
    error = _built(step, failure.raised) if failure.raised else None
    if isinstance(error, Exception):
        return error
    replaced = StepRaised(step, failure.error_type, failure.message, failure.traceback)
    return _noted(replaced, failure.raised) if failure.raised else replaced


def class_of(raised: RaisedError) -> str:
    """Return the name of an error's class, without its module."""
    return raised["cls"].rpartition(":")[2]


def lost(step: str, raised: RaisedError) -> tuple[list[str], bool]:
    """Return what a rebuilt error lacks, in words, and whether it is rebuilt as an object of its own class."""
    if _built(step, raised) is None:
        return [*raised.get("unrecordable", ()), *(f"{part} (too large)" for part in raised.get("omitted", ()))], False
    inside = [f"{part} in {class_of(one)}" for one in raised.get("members", ()) for part in lost(step, one)[0]]
    return [*raised.get("unrecordable", ()), *inside], True


@dataclass(slots=True)
class _Missing:
    """What is not recorded of an error, in words."""

    omitted: list[str] = field(default_factory=list)
    unrecordable: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Room:
    """The room that is left in the record of an error."""

    characters: int = _LARGEST
    errors: int = _MOST

    def take(self, data: codec.Json) -> bool:
        """Take room for this data. Returns False, and takes none, if there is not enough."""
        if fits := (size := len(codec.dumps(data))) <= self.characters:
            self.characters -= size
        return fits

    def take_errors(self, count: int) -> bool:
        """Take room for so many more errors. Returns False, and takes none, if there is not enough."""
        if fits := count <= self.errors:
            self.errors -= count
        return fits


def _written(error: BaseException, depth: int, room: _Room) -> RaisedError:
    raised, lost = RaisedError(cls=homes.class_name(type(error))), _Missing()
    streams = [name for name, value in vars(error).items() if isinstance(value, io.IOBase)]
    try:
        args = codec.encode_to_keep(_arguments(error), "args")
    except NotCodable as refused:
        lost.unrecordable.append(_refusal(refused))
    else:
        if room.take(args):
            raised["args"] = args
            plain = {name: value for name, value in vars(error).items() if name not in streams}
            raised["fields"] = codec.encode(_codable(plain, room, lost))
        else:
            lost.omitted.append("the arguments")
    if slots := _codable(_in_slots(error), room, lost):
        raised["slots"] = codec.encode(slots)
    if streams:
        raised["streams"] = streams
    if isinstance(error, ValidationError):
        codable, other = partial(_codable, room=room, lost=lost), partial(_other_written, depth=depth, room=room)
        raised["validation"] = validation_errors.written(error, codable, other)
    _write_others(raised, error, depth, room, lost.omitted)
    if lost.omitted:
        raised["omitted"] = lost.omitted
    if lost.unrecordable:
        raised["unrecordable"] = lost.unrecordable
    return raised


def _other_written(one: BaseException, depth: int, room: _Room) -> RaisedError:
    """Return an error that a group holds, or that led to another one, as data. `depth`: its distance from the first."""
    text = text_of(one) if isinstance(one, Exception) else ""
    if len(text) > _LONGEST:  # not even the beginning: when this is masked later, a cut secret would not be recognised
        text = f"({len(text):,} characters, which are not recorded)"
    return {**_written(one, depth - 1, room), "message": text}


def _write_others(raised: RaisedError, error: BaseException, depth: int, room: _Room, omitted: list[str]) -> None:
    """Add to the data of an error its members and the errors that led to it."""
    other = partial(_other_written, depth=depth, room=room)
    if isinstance(error, BaseExceptionGroup):
        if depth and room.take_errors(len(error.exceptions)):
            raised["members"] = [other(one) for one in error.exceptions]
        else:
            omitted.append(f"the {number_of(len(error.exceptions), 'member')}")
    cause, context = error.__cause__, error.__context__
    before = {id(one): one for one in (cause, context) if one is not None}
    if not depth or not room.take_errors(len(before)):
        omitted += ["the errors before it"] if before else []
        return
    if cause is not None:
        raised["cause"] = other(cause)
    if context is not None and context is not cause:
        raised["context"] = other(context)
    if error.__suppress_context__ and cause is None:
        raised["suppressed"] = True


def _codable(fields: dict[str, Any], room: _Room, lost: _Missing) -> dict[str, Any]:
    """Return the fields that can be encoded and for which there is room. Adds the others to `lost`."""
    found = {}
    for name, value in fields.items():
        try:
            data = codec.encode_to_keep(value, name)
        except NotCodable as refused:
            lost.unrecordable.append(_refusal(refused))
            continue
        if room.take(data):
            found[name] = value
        else:
            lost.omitted.append(name)
    return found


def _refusal(refused: NotCodable) -> str:
    """Return in words what cannot be recorded."""
    path = refused.path
    if len(path) > _LONGEST_PATH:  # only the root: keys may be secrets, and a cut one is not recognised
        path = path.partition(".")[0].partition("[")[0]
    return f"{path} ({an(refused.found)})"


def _in_slots(error: BaseException) -> dict[str, Any]:
    """Return the attributes, by name, that an error keeps in slots: neither in its `__dict__` nor in `args`."""
    found = {}
    for cls in type(error).__mro__:
        for name, kept in vars(cls).items():
            is_own = isinstance(kept, MemberDescriptorType) and (cls.__module__ != "builtins" or cls in _NAMING)
            if is_own and kept is not _MERELY_MET and not name.startswith("_") and name not in found:
                with contextlib.suppress(AttributeError):  # it was never set
                    found[name] = kept.__get__(error)
    return {name: value for name, value in found.items() if value is not None}


def _built(step: str, raised: RaisedError) -> BaseException | None:
    """Build an error, and those that led to it, from its data; None if its class or its arguments are not available."""
    cls = _loaded(raised["cls"]) if "fields" in raised else None
    if cls is None:
        return None
    args, fields, slots = (codec.decode(raised.get(key)) for key in ("args", "fields", "slots"))
    if "members" in raised:
        args = [*args, [_other(step, one) for one in raised["members"]]]
    builtin = _builtin(cls)
    try:
        if "validation" in raised:
            error: BaseException = validation_errors.built(raised["validation"], partial(_other, step))
        else:
            error = builtin.__new__(cls, *args)
            builtin.__init__(error, *args)  # not the class's own __init__, which may take other arguments
        vars(error).update({name: _closed() for name in raised.get("streams", ())}, **fields)
        for name, value in (slots or {}).items():
            BaseException.__setattr__(error, name, value)
        getattr(error, "__notes__", None)  # raises if the class's own __getattr__ needs a field that was not recorded
    except Exception:  # the border: a user's class may raise anything here
        return None
    if "cause" in raised:
        error.__cause__ = error.__context__ = _other(step, raised["cause"])
    if "context" in raised:
        error.__context__ = _other(step, raised["context"])
    error.__suppress_context__ = "cause" in raised or raised.get("suppressed", False)
    return _noted(error, raised)


def _other(step: str, raised: RaisedError) -> BaseException:
    return _built(step, raised) or _noted(StepRaised(step, class_of(raised), raised.get("message", "")), raised)


def _noted(error: E, raised: RaisedError) -> E:
    """Add a note of what is not recorded of an error, and return the error."""
    missing: tuple[tuple[str, list[str]], ...] = (
        ("Too large to be recorded", raised.get("omitted", [])),
        ("Could not be recorded", raised.get("unrecordable", [])),
    )
    for why, parts in missing:
        if parts:
            add_note(error, f"{why}: {', '.join(parts)}")
    return error


def _closed() -> io.IOBase:
    """Return a stream that refuses to be read, for one whose content is not recorded."""
    stream = io.BytesIO()
    stream.close()
    return stream


def _arguments(error: BaseException) -> list[Any]:
    """Return the arguments of the error's built-in base class, without the members of a group.

    For an OSError these are more than `args`.
    """
    if isinstance(error, BaseExceptionGroup):
        return [error.message]
    return list(_builtin(type(error)).__reduce__(error)[1])


def _builtin(cls: type) -> Any:
    """Return the built-in class of which the objects of a class have the fields, such as OSError."""
    base = cls
    while base.__module__ != "builtins":
        base = base.__base__ or object
    return base


def _loaded(name: str) -> type[BaseException] | None:
    """Return the exception class of this name if it is loaded already, else None.

    A script's class is found whether the script was run or imported. Of classes made inside a function, the newest is.
    """
    module, _, path = name.partition(":")
    if "<locals>" in path:
        return next((cls for cls in reversed(list(_below(BaseException))) if homes.class_name(cls) == name), None)
    found = {id(cls): cls for one in (module, *homes.namesakes(module)) if (cls := _named(one, path))}
    return found.popitem()[1] if len(found) == 1 else _named(module, path)


def _named(module: str, path: str) -> type[BaseException] | None:
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    if not isinstance(found, type) or not issubclass(found, BaseException):
        return None
    own = homes.class_name(found).partition(":")[0] == module  # else it was only imported there
    return found if own else None


def _below(cls: type[BaseException]) -> Iterator[type[BaseException]]:
    for one in cls.__subclasses__():
        yield one
        yield from _below(one)
