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
from crewlite.errors import ConfigError
from crewlite.resources import Resource

_TOLD_APART = 12  # hexadecimal digits of a digest that an address shows
_DATA = (str, int, float, bool, type(None))


class _Asker(NamedTuple):
    """The code that requests a step."""

    digest: str = ""
    """Identifies its functions and arguments; the same on every resume."""
    held: tuple[object, ...] = ()
    """What it holds that the digest does not tell: arguments that cannot be encoded, and variables of a closure."""
    task: weakref.ref[asyncio.Task[Any]] | None = None
    """The asyncio task that it runs in."""
    call: own_threads.Call | None = None
    """The `bound` call that it runs in, in a thread."""


_NOBODY = _Asker()
_asker: ContextVar[_Asker] = ContextVar("crewlite_asker", default=_NOBODY)
"""The code that last requested a step in this context."""


class Numbering:
    """Gives each step inside one attempt an address of its own."""

    __slots__ = ("_askers", "_counts", "_keys", "prefix")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._counts: dict[str, int] = {}
        self._keys: dict[str, object] = {}
        self._askers: dict[str, tuple[_Asker, object]] | None = None
        """By place: the code that first requested a step there from beside, and the object that was to work."""

    def next(self, kind: str, name: str | None) -> str:
        """Return the next address for this kind and name, numbered in the order of the calls."""
        stem = _stem(kind, name)
        count = self._count(stem)
        return f"{self.prefix}{stem}" if name and count == 1 else f"{self.prefix}{stem}#{count}"

    def beside(self, kind: str, name: str | None, fingerprint: str, source: object) -> str:
        """Return the address of a step requested in parallel with the attempt's own code, where the order is chance.

        `source`: the object that is to work, such as an agent. Raises ConfigError if other code requested the same step
        before, and the two differ in what the address does not tell, so that a resume could swap their answers.
        """
        asker, stem = _who_asks(), _stem(kind, name)
        place = f"{stem}#{codec.digest([fingerprint, asker.digest])[:_TOLD_APART]}"
        self._askers = {} if self._askers is None else self._askers
        first, worker = self._askers.setdefault(place, (asker, source))
        if first.task is not asker.task or first.call is not asker.call:
            pairs = zip((*asker.held, source), (*first.held, worker), strict=False)
            if differing := {type(one).__name__ for one, before in pairs if not _alike(one, before)}:
                raise ConfigError(
                    f"{self.prefix}{stem} is requested twice side by side with the same question, by code that "
                    f"differs only in what cannot be recorded ({', '.join(sorted(differing))}). A resume could swap "
                    f"the two answers: tell them apart by a key, `with keyed(name):`, or by a text or number that the "
                    f"code takes as an argument"
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
    task, asker = asyncio.current_task(), _asker.get()
    call = own_threads.call()
    if task is None:
        return _Asker(codec.digest([asker.digest, call.told]), asker.held + call.held, None, call)
    if asker.task is None or asker.task() is not task:
        own = _call_of(task.get_coro())
        known = codec.digest([asker.digest, call.told, own.told])
        asker = _Asker(known, asker.held + call.held + own.held, weakref.ref(task))
        _asker.set(asker)
    return asker


def _call_of(coroutine: Any) -> own_threads.Call:
    """Return a coroutine's function and its arguments, as they are when it first requests a step."""
    frame = getattr(coroutine, "cr_frame", None)
    if not isinstance(frame, types.FrameType):
        return own_threads.Call(type(coroutine).__qualname__)
    code, values = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = {name: codec.known(values[name]) for name in names if name in values}
    hidden = [name for name, known in given.items() if own_threads.hides(known)]
    held = [values[name] for name in (*hidden, *code.co_freevars) if name in values]
    return own_threads.Call([code.co_qualname, given], tuple(held))


def _alike(one: object, other: object) -> bool:
    """Return whether, as far as one can tell, it makes no difference which of two objects code holds."""
    try:
        return one is other or bool(_told(one) == _told(other))
    except (TypeError, ValueError):  # such as arrays, whose comparison is no verdict
        return False


def _told(value: Any) -> object:
    """Return what tells an object from others. Definitions, models and functions that are made alike are alike."""
    if isinstance(value, types.FunctionType):
        return value.__code__
    if isinstance(value, dict):
        return {name: _told(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_told(one) for one in value]
    if isinstance(value, BaseModel):
        return type(value).__qualname__, _told(vars(value))
    if isinstance(value, Resource) or hasattr(value, "run_name"):  # a model; a flow, which is known by its name
        return type(value).__qualname__, {name: one for name, one in vars(value).items() if type(one) in _DATA}
    return value
