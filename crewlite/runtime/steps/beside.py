"""Tell apart the steps that coroutines and threads beside an attempt's own code request, in any order.

The address of such a step contains a digest of its question and of the function call (with arguments) that requests it.
Two such steps with the same digest are numbered in the order of the calls, if it makes no difference which of them gets
which answer; otherwise a resume could swap their answers, so the second one is refused.
"""

from __future__ import annotations

import asyncio
import types
import weakref
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel, SecretStr

from crewlite.concurrency import own_threads
from crewlite.concurrency.resources import Resource
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.encoding.codec import Json
from crewlite.encoding.comparable import Seen, alike_in_data

_DATA = (str, int, float, bool, type(None), tuple, dict, SecretStr, types.FunctionType)


class Asker(NamedTuple):
    """The code that requests a step."""

    digest: str = ""
    """Identifies the functions of the code and their arguments; the same on every resume."""
    code: object = None
    """The asyncio task in which the code runs, by a weak reference; in a thread, the key of its `bound` call."""
    holds: Seen = Seen(None)
    """A snapshot of the arguments and closure of the thread's call, as no digest contains live objects."""
    asks_of: Beside | None = None
    """For code on another event loop: the attempt in which a task of the engine requests steps for it; else None."""


_NOBODY = Asker()
_SEVERAL = object()
_asker: ContextVar[Asker] = ContextVar("crewlite_asker", default=_NOBODY)
"""The code that last requested a step in this context."""


class Beside:
    """The code beside one attempt's own code, and the steps that it has requested."""

    def __init__(self) -> None:
        self._requests: dict[str, list[_Request]] = {}
        """By address without its number: the requests that differ in code, worker or arguments."""
        self._keys: dict[str, object] = {}

    def differing(
        self, place: str, address: str, asker: Asker, step: Step[Any], ended: Callable[[str, str], bool]
    ) -> str:
        """Note a request for a step; see `Children.address_beside`. `place`: the `address` without its number.

        Returns "", or in words how the step differs from one that other code requested with the same place, so that a
        resume could swap their answers.
        """
        others = self._requests.setdefault(place, [])
        code, worker, given, known = asker.code, step.events.source, step.given, False
        for other in others:
            model = "" if _alike(other.worker, worker) else other.model
            if other.code is code and (code is not None or all(ended(at, model) for at in other.addresses)):
                alike = other.worker is worker and other.given is given
            elif differing := other.differs(asker, step):
                return differing
            else:  # now several code paths have made equal requests
                other.code, alike = code if code is other.code else _SEVERAL, True
            if alike:
                other.addresses.append(address)
                known = True
        if not known:
            model = (step.provenance or {}).get("model", "")
            others.append(_Request(code, asker.holds, worker, given, model, [address]))
        return ""

    def note_asker(self, context: Context) -> None:
        """Note in `context` which code requests a step, because another event loop takes the request."""
        context.run(_asker.set, self.who_asks()._replace(asks_of=self))

    def takes_key(self, key: str) -> bool:
        """Reserve a key, from any thread. Returns False if it was reserved before."""
        mine = object()
        return self._keys.setdefault(key, mine) is mine

    def who_asks(self) -> Asker:
        """Return the code that requests a step: its coroutine or the call of its thread, and the calls around that."""
        asker, call = _asker.get(), own_threads.call_here()
        if asker.asks_of is self:
            return asker
        task = asyncio.current_task()
        if task is None:
            return Asker(codec.digest([asker.digest, call.key]), call.key if call.is_bound else None, call.holds)
        code = weakref.ref(task)  # the same object each time for one task
        if asker.code is not code:
            asker = Asker(codec.digest([asker.digest, call.key, _call(task.get_coro())]), code, call.holds)
            _asker.set(asker)
        return asker


def _call(coroutine: Any) -> Json:
    """Return a coroutine's function and its arguments, as they are when it first requests a step."""
    frame = getattr(coroutine, "cr_frame", None)
    return own_threads.call_in(frame) if isinstance(frame, types.FrameType) else type(coroutine).__qualname__


@dataclass(slots=True)
class _Request:
    """A request of code beside the attempt's own, kept to compare it with later requests of the same question."""

    code: object
    """The code that made the request; `_SEVERAL` if several did; None for a thread without `bound`."""
    holds: Seen
    """As `Asker.holds`."""
    worker: object
    given: object
    model: str
    addresses: list[str]
    """The addresses of this request and of equal later ones."""

    def differs(self, asker: Asker, step: Step[Any]) -> str:
        """Return in words how `step` differs from this request in what no question contains; "" if it does not."""
        if codec.holds_secret(step.question):
            return "a secret"
        if not _alike(self.worker, step.events.source):
            return type(self.worker).__name__
        if not _alike(self.given, step.given):
            return "an argument"
        return "" if alike_in_data(self.holds, asker.holds) else "what the functions of two threads hold"


def _alike(one: object, other: object) -> bool:
    """Return whether two objects are interchangeable for a step, as far as this can be told."""
    try:
        return _same(one, other, set())
    except Exception:  # a class of the user may raise anything when it is compared
        return False


def _same(one: Any, other: Any, begun: set[tuple[int, int]]) -> bool:
    """Compare two objects. Definitions, models and functions are the same if their parts are; data if it is equal.

    `begun`: pairs of objects that are being compared, as a function may refer to itself.
    """
    if one is other or (id(one), id(other)) in begun:
        return True
    if type(one).__qualname__ != type(other).__qualname__:  # by name, as the same code may have created the class twice
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[name], begun) for name, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_same(*pair, begun) for pair in zip(one, other, strict=True))
    if (parts := _parts(one)) is None:
        return bool(one == other) or bool(codec.encode(one) == codec.encode(other))
    begun.add((id(one), id(other)))
    return _same(parts, _parts(other), begun)


def _parts(one: Any) -> list[Any] | dict[str, Any] | None:
    """Return the parts that decide whether two functions, definitions, models or tools are the same.

    Returns None for an object of any other kind.
    """
    if isinstance(one, types.FunctionType):
        around = [cell.cell_contents for cell in one.__closure__ or ()]
        return [one.__code__, around, one.__defaults__, one.__kwdefaults__]
    if isinstance(one, BaseModel):
        return vars(one)
    if isinstance(one, Resource):
        return _data(one)
    if hasattr(one, "__wrapped__"):  # a step or a flow made of a function
        return [one.__wrapped__]
    return _made_of(one) if hasattr(one, "run_name") else None


def _data(resource: object) -> dict[str, object]:
    """Return the settings of a model or tool, without connections, counters and locks."""
    return {name: value for name, value in vars(resource).items() if type(value) in _DATA}


def _made_of(flow: object) -> dict[str, object]:
    """Return the attributes of a flow, except collections, which its methods fill."""
    return {name: value for name, value in vars(flow).items() if not isinstance(value, dict | list | set | deque)}
