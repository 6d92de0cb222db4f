"""Give addresses to the steps inside one attempt of a step.

Steps that the attempt's own code requests are numbered in the order of the calls. Coroutines and threads beside that
code request steps in any order: the address of such a step contains a digest of its question and of the function call,
with its arguments, that requests it. Two such steps are numbered in the order of the calls only if it makes no
difference which of them gets which answer; otherwise a resume could swap their answers, so the second one is refused.
"""

from __future__ import annotations

import asyncio
import types
import weakref
from contextvars import ContextVar
from typing import Any, NamedTuple

from pydantic import BaseModel

from crewlite import codec, kinds, own_threads
from crewlite.codec import Json
from crewlite.durable import Step
from crewlite.errors import ConfigError
from crewlite.resources import Resource

_TOLD_APART = 12  # hexadecimal digits of a digest that an address shows
_DATA = (str, int, float, bool, type(None))


class _Asker(NamedTuple):
    """The code that requests a step."""

    digest: str = ""
    """Identifies its functions and arguments; the same on every resume."""
    code: object = None
    """The asyncio task that it runs in, by a weak reference; in a thread, the `bound` call."""


_NOBODY = _Asker()
_asker: ContextVar[_Asker] = ContextVar("crewlite_asker", default=_NOBODY)
"""The code that last requested a step in this context."""


class Numbering:
    """Gives each step inside one attempt an address of its own."""

    __slots__ = ("_counts", "_first", "_keys", "prefix")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._counts: dict[str, int] = {}
        self._keys: dict[str, object] = {}
        self._first: dict[str, tuple[object, object, object]] | None = None
        """By place: the code that first requested a step there from beside, who does the work, and what is given."""

    def next(self, kind: str, name: str | None) -> str:
        """Return the next address for this kind and name, numbered in the order of the calls."""
        stem = _stem(kind, name)
        count = self._count(stem)
        return f"{self.prefix}{stem}" if name and count == 1 else f"{self.prefix}{stem}#{count}"

    def beside(self, step: Step[Any], fingerprint: str, *, recorded: bool) -> str:
        """Return the address of a step requested in parallel with the attempt's own code, where the order is chance.

        Raises ConfigError in a `recorded` run if other code has requested the same step of another agent, crew or
        model, or with another object or secret that no question holds, so that a resume could swap the two answers.
        """
        asker, stem = _who_asks(), _stem(step.kind.name, step.name)
        place = f"{stem}#{codec.digest([fingerprint, asker.digest])[:_TOLD_APART]}"
        self._first = {} if self._first is None else self._first
        code, worker, given = self._first.setdefault(place, (asker.code, step.voice.source, step.given))
        if recorded and code is not asker.code and (differing := _differing(worker, given, step)):
            raise ConfigError(
                f"{self.prefix}{stem} is requested twice side by side with the same question, and what differs "
                f"cannot be recorded ({differing}). A resume could swap the two answers: tell them apart by a "
                f"key, `with keyed(name):`, or by a text or number that the code takes as an argument, "
                f"and use another run_id"
            )
        return self._at(place)

    def keyed(self, kind: str, name: str, key: str) -> str:
        """Return the address of a step requested under a key that the author gave (see `keyed`)."""
        return self._at(f"{_stem(kind, name)}#[{key}]")

    def takes_key(self, key: str) -> bool:
        """Reserve a key, from any thread. Returns False if it was reserved before."""
        mine = object()
        return self._keys.setdefault(key, mine) is mine

    def _at(self, place: str) -> str:
        count = self._count(place)
        return f"{self.prefix}{place}" if count == 1 else f"{self.prefix}{place}.{count}"

    def _count(self, stem: str) -> int:
        count = self._counts[stem] = self._counts.get(stem, 0) + 1
        return count


def is_counted(address: str) -> bool:
    """Return whether an address is numbered in the order of the calls, so that it holds no digest and no key."""
    kind_and_name, _, mark = address.rpartition("/")[2].partition("#")
    if ":" in kind_and_name and kinds.at(address).asks_person:
        return False
    return not mark or (mark.isdecimal() and len(mark) < _TOLD_APART)


def _stem(kind: str, name: str | None) -> str:
    return f"{kind}:{name}" if name else kind


def _who_asks() -> _Asker:
    """Return the code that requests a step: its coroutine or `bound` function, and the calls around that."""
    task, asker, call = asyncio.current_task(), _asker.get(), own_threads.call_key()
    if task is None:
        return _Asker(codec.digest([asker.digest, call]), call)
    code = weakref.ref(task)  # one object for each task
    if asker.code is not code:
        asker = _Asker(codec.digest([asker.digest, call, _call(task.get_coro())]), code)
        _asker.set(asker)
    return asker


def _call(coroutine: Any) -> Json:
    """Return a coroutine's function and its arguments, as they are when it first requests a step."""
    frame = getattr(coroutine, "cr_frame", None)
    if not isinstance(frame, types.FrameType):
        return type(coroutine).__qualname__
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = {name: frame.f_locals[name] for name in names if name in frame.f_locals}
    return [code.co_qualname, {name: codec.known(value) for name, value in given.items()}]


def _differing(worker: object, given: object, step: Step[Any]) -> str:
    """Return what no question holds and may differ between a step of this worker, given this, and another step."""
    if codec.holds_secret(step.question):
        return "a secret"
    if not _alike(worker, step.voice.source):
        return type(worker).__name__
    return "" if _alike(given, step.given) else "an argument"


def _alike(one: object, other: object) -> bool:
    """Return whether, as far as one can tell, it makes no difference which of two objects does or gets the work."""
    try:
        return _same(one, other)
    except Exception:  # noqa: BLE001 - what comparing raises is up to the classes of users; it is no verdict
        return False


def _same(one: Any, other: Any) -> bool:
    """Compare two objects. Definitions, models and functions that are made alike are alike, and so are equal data."""
    if one is other:
        return True
    if type(one).__qualname__ != type(other).__qualname__:  # a class made anew by the same code is another object
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, types.FunctionType):
        return one.__code__ == other.__code__ and _same(_held(one), _held(other))
    if isinstance(one, BaseModel):
        return _same(vars(one), vars(other))
    if isinstance(one, Resource):
        return _same(_data(one), _data(other))
    if hasattr(one, "__wrapped__"):  # a step or a flow made of a function
        return _same(one.__wrapped__, other.__wrapped__)
    if hasattr(one, "run_name"):
        return _same(_made_of(one), _made_of(other))
    return bool(one == other) or bool(codec.encode(one) == codec.encode(other))


def _held(function: types.FunctionType) -> list[object]:
    """Return the values that a function brings along: of variables around it, and for its parameters."""
    around = [cell.cell_contents for cell in function.__closure__ or ()]
    return [around, function.__defaults__, function.__kwdefaults__]


def _data(resource: object) -> dict[str, object]:
    """Return the settings of a model or tool; what it opens, counts in objects or locks makes no difference."""
    return {name: value for name, value in vars(resource).items() if type(value) in _DATA}


def _made_of(flow: object) -> dict[str, object]:
    """Return the attributes of a flow without its collections, which its methods fill."""
    return {name: value for name, value in vars(flow).items() if not isinstance(value, dict | list | set)}
