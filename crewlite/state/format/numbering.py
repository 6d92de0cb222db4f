"""The numbers in addresses: those of the steps inside one attempt, in the order in which its code requests them."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator

from crewlite import kinds

TOLD_APART = 12
"""How many hexadecimal digits of a digest an address shows."""


class Numbering:
    """Gives each step inside one attempt an address of its own, which begins with `prefix`."""

    moved: set[str] | frozenset[str] = frozenset()
    """Addresses of calls with effect="once" that were requested in another order than before: see `once_addresses`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._counts = defaultdict[str, int](int)

    def next(self, kind: str, name: str | None) -> str:
        """Return the next address for this kind and name, numbered in the order of the calls."""
        stem = stem_of(kind, name)
        return self._next(stem, "#", stem if name else f"{stem}#1")

    def keyed(self, kind: str, name: str, key: str) -> str:
        """Return the address of a step requested under a key that the author gave (see `keyed`)."""
        return self.at(f"{stem_of(kind, name)}#[{key}]")

    def at(self, place: str) -> str:
        """Return the next address at a place, which a digest or a key names: the first has no number."""
        return self._next(place, ".", place)

    def _next(self, place: str, mark: str, first: str) -> str:
        while True:
            self._counts[place] = count = self._counts[place] + 1
            address = f"{self.prefix}{place}{mark}{count}" if count > 1 else f"{self.prefix}{first}"
            if address not in self.moved:
                return address

    def beyond(self, address: str) -> Iterator[str]:
        """Yield the addresses that follow all that were given at the place of this one."""
        mark = "#" if is_counted(address) else "."
        place = re.sub(rf"\{mark}\d+$", "", address)
        return (f"{place}{mark}{number}" for number in itertools.count(self._counts[place[len(self.prefix) :]] + 1))


def stem_of(kind: str, name: str | None) -> str:
    """Return the last part of the address of a step, without its number."""
    return f"{kind}:{name}" if name else kind


def is_counted(address: str) -> bool:
    """Return whether an address is numbered in the order of the calls, so that it holds no digest and no key."""
    kind_and_name, _, mark = address.rpartition("/")[2].partition("#")
    if ":" in kind_and_name and kinds.at(address).asks_person:
        return False
    return not mark or (mark.isdecimal() and len(mark) < TOLD_APART)
