"""Providers around others that tell of what is asked of their stores."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter

_numbers = itertools.count()
_SILENT = {"ref", "location", "close", "check_file"}


class Wrapped:
    """A provider around another: `_before` hears of each verb, with the number of the store and what it is given."""

    def __init__(self, provider):
        self.name, self.inner = provider.name, provider

    def open(self, location):
        return _Store(self, self.inner.open(location))

    def _before(self, store, verb, args):
        raise NotImplementedError


class _Store:
    def __init__(self, wrapped, inner):
        self._wrapped, self._inner, self._number = wrapped, inner, next(_numbers)

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name in _SILENT or name.startswith("_"):
            return found

        def verb(*args, **more):
            self._wrapped._before(self._number, name, args)
            return found(*args, **more)

        return verb


class ReadOnce(Wrapped):
    """Fails where a store reads one branch twice between two `one_verb`: what is looked at twice may differ."""

    def __init__(self, provider):
        super().__init__(provider)
        self.read = Counter()

    def _before(self, store, verb, args):
        if verb == "read":
            self.read[store, *args] += 1

    @contextlib.contextmanager
    def one_verb(self, name="a verb"):
        self.read.clear()
        yield
        twice = [branch for (_, *branch), times in self.read.items() if times > 1]
        assert not twice, f"{name} read twice: {twice}"
