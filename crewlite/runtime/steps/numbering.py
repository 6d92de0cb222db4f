"""Give addresses to the steps that the code of one attempt requests: in the order of the calls, or by keys.

Requests of code beside the attempt's own come in any order: see beside.py.
"""

from __future__ import annotations

from collections import defaultdict

from crewlite import kinds

TOLD_APART = 12
"""How many hexadecimal digits of a digest an address shows that holds one."""


class Numbering:
    """Gives each step inside one attempt an address of its own, which begins with `prefix`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._counts = defaultdict[str, int](int)

    def next(self, kind: str, name: str | None) -> str:
        """Return the next address for this kind and name, numbered in the order of the calls."""
        stem = stem_of(kind, name)
        self._counts[stem] = count = self._counts[stem] + 1
        return f"{self.prefix}{stem}" if name and count == 1 else f"{self.prefix}{stem}#{count}"

    def keyed(self, kind: str, name: str, key: str) -> str:
        """Return the address of a step requested under a key that the author gave (see `keyed`)."""
        return self.at(f"{stem_of(kind, name)}#[{key}]")

    def at(self, place: str) -> str:
        """Return the next address at a place, which a digest or a key names: the first has no number."""
        self._counts[place] = count = self._counts[place] + 1
        return f"{self.prefix}{place}" if count == 1 else f"{self.prefix}{place}.{count}"


def stem_of(kind: str, name: str | None) -> str:
    """Return how the addresses of steps of a kind and name begin."""
    return f"{kind}:{name}" if name else kind


def is_counted(address: str) -> bool:
    """Return whether an address is numbered in the order of the calls, so that it holds no digest and no key."""
    kind_and_name, _, mark = address.rpartition("/")[2].partition("#")
    if ":" in kind_and_name and kinds.at(address).asks_person:
        return False
    return not mark or (mark.isdecimal() and len(mark) < TOLD_APART)
