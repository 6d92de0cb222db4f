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

    __slots__ = ("_askers", "_counts", "_keys", "prefix")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._counts: dict[str, int] = {}
        self._keys: dict[str, object] = {}
        self._askers: dict[str, tuple[object, object]] | None = None
        """By place: the code that first requested a step there from beside, and the object that does the work."""

    def next(self, kind: str, name: str | None) -> str:
        """Return the next address for this kind and name, numbered in the order of the calls."""
        stem = _stem(kind, name)
        count = self._count(stem)
        return f"{self.prefix}{stem}" if name and count == 1 else f"{self.prefix}{stem}#{count}"

    def beside(self, step: Step[Any], fingerprint: str, *, recorded: bool) -> str:
        """Return the address of a step requested in parallel with the attempt's own code, where the order is chance.

        Raises ConfigError in a `recorded` run if other code has requested the same step of another agent, crew or
        model, or with a secret, so that a resume could swap the two answers.
        """
        asker, stem = _who_asks(), _stem(step.kind.name, step.name)
        place = f"{stem}#{codec.digest([fingerprint, asker.digest])[:_TOLD_APART]}"
        self._askers = {} if self._askers is None else self._askers
        code, worker = self._askers.setdefault(place, (asker.code, step.voice.source))
        if recorded and code is not asker.code:
            secret = codec.holds_secret(step.question)
            if secret or not _alike(worker, step.voice.source):
                differing = "a secret" if secret else type(worker).__name__
                raise ConfigError(
                    f"{self.prefix}{stem} is requested twice side by side with the same question, and what differs "
                    f"cannot be recorded ({differing}). A resume could swap the two answers: tell them apart by a "
                    f"key, `with keyed(name):`, or by a text or number that the code takes as an argument"
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


def _alike(one: object, other: object) -> bool:
    """Return whether, as far as one can tell, it makes no difference which of two objects does the work."""
    try:
        return one is other or bool(_told(one) == _told(other))
    except Exception:  # noqa: BLE001 - what comparing raises is up to the classes of users; it is no verdict
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
