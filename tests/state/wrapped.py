"""Providers around others that look at what is asked of their stores."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Mapping

READS = frozenset(["read", "sum_at", "touched", "branches", "places", "ref", "recall"])
WRITES = frozenset(["append", "rewrite", "remove", "remember", "forget"])
_numbers = itertools.count()


class Wrapped:
    """A provider around another; subclasses look at each verb in `_do`."""

    def __init__(self, provider):
        self.name, self.inner = provider.name, provider

    def open(self, location):
        return _Store(self, self.inner.open(location))

    def _do(self, store, verb, call, args):
        """`store` is the wrapping one; `call` does the verb."""
        return call()


class _Store:
    def __init__(self, wrapped, inner):
        self._wrapped, self._inner, self._number = wrapped, inner, next(_numbers)

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name == "results":
            return _Store(self._wrapped, found)
        if name not in READS | WRITES:
            return found
        return lambda *args, **more: self._wrapped._do(self, name, lambda: found(*args, **more), args)


class ReadOnce(Wrapped):
    """Fails where a store reads one branch twice in `one_verb`: what is looked at twice may differ."""

    def __init__(self, provider):
        super().__init__(provider)
        self.read = Counter()

    def _do(self, store, verb, call, args):
        if verb == "read":
            self.read[store._number, *args] += 1
        return call()

    @contextlib.contextmanager
    def one_verb(self, name="a verb"):
        self.read.clear()
        yield
        twice = [branch for (_, *branch), times in self.read.items() if times > 1]
        assert not twice, f"{name} read twice: {twice}"


class Unchanging(Wrapped):
    """Fails where a store is another after a verb that only looks, which any thread may do at any moment."""

    def __init__(self, provider):
        super().__init__(provider)
        self.looked, self._writing, self._writes, self._lock = Counter(), 0, 0, threading.Lock()

    def _do(self, store, verb, call, args):
        if verb in WRITES:
            with self._lock:
                self._writing, self._writes = self._writing + 1, self._writes + 1
            try:
                return call()
            finally:
                with self._lock:
                    self._writing -= 1
        with self._lock:
            quiet = (0, self._writes) if not self._writing else None
        before, found, after = state_of(store._inner), call(), state_of(store._inner)
        if quiet == (self._writing, self._writes):  # else it may be what is written that changes it
            self.looked[verb] += 1
            assert after == before, f"{verb} changed the store"
        return found


def state_of(thing, above=()):
    """All that an object of ours holds, and what that holds, as something that can be compared later."""
    if isinstance(thing, str | bytes | int | float | None):
        return thing
    if any(thing is one for one in above):
        return "itself"
    above = (*above, thing)
    if isinstance(thing, Mapping):
        return [(state_of(key, above), state_of(value, above)) for key, value in list(thing.items())]
    if isinstance(thing, list | tuple | set | frozenset):
        return [state_of(item, above) for item in list(thing)]
    if type(thing).__module__.startswith("crewlite"):
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        held = {name: getattr(thing, name) for name in slots if hasattr(thing, name)} | getattr(thing, "__dict__", {})
        return [type(thing).__name__, state_of(held, above)]
    return type(thing).__name__, id(thing)
