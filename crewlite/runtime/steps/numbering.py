"""Give addresses to the steps inside one attempt of a step.

Steps that the attempt's own code requests are numbered in the order of the calls. Coroutines and threads beside that
code request steps in any order: the address of such a step contains a digest of its question and of the function call,
with its arguments, that requests it.
"""

from __future__ import annotations

import asyncio
import types
import weakref
from contextvars import ContextVar
from typing import Any

from crewlite import codec, kinds, own_threads
from crewlite.codec import Json

_TOLD_APART = 12  # hexadecimal digits of a digest that an address shows
_asker: ContextVar[tuple[weakref.ref[asyncio.Task[Any]] | None, str]] = ContextVar("crewlite_asker", default=(None, ""))
"""The asyncio task that last requested a step in this context, and the digest that identifies the requesting code."""


class Numbering:
    """Gives each step inside one attempt an address of its own."""

    __slots__ = ("_counts", "_keys", "prefix")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._counts: dict[str, int] = {}
        self._keys: dict[str, object] = {}

    def next(self, kind: str, name: str | None) -> str:
        """Return the next address for this kind and name, numbered in the order of the calls."""
        stem = _stem(kind, name)
        count = self._count(stem)
        return f"{self.prefix}{stem}" if name and count == 1 else f"{self.prefix}{stem}#{count}"

    def beside(self, kind: str, name: str | None, fingerprint: str) -> str:
        """Return the address of a step requested in parallel with the attempt's own code, where the order is chance."""
        return self._at(f"{_stem(kind, name)}#{codec.digest([fingerprint, _who_asks()])[:_TOLD_APART]}")

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


def _who_asks() -> str:
    """Return a digest of the code that requests a step: its coroutine or `bound` function, and the calls around that.

    The digest is the same on every resume.
    """
    task = asyncio.current_task()
    asker, known = _asker.get()
    if task is None:
        return codec.digest([known, own_threads.call_key()])
    if asker is None or asker() is not task:
        known = codec.digest([known, own_threads.call_key(), _call(task.get_coro())])
        _asker.set((weakref.ref(task), known))
    return known


def _call(coroutine: Any) -> Json:
    """Return a coroutine's function and its arguments, as they are when it first requests a step."""
    frame = getattr(coroutine, "cr_frame", None)
    if not isinstance(frame, types.FrameType):
        return type(coroutine).__qualname__
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = {name: frame.f_locals[name] for name in names if name in frame.f_locals}
    return [code.co_qualname, {name: codec.known(value) for name, value in given.items()}]
