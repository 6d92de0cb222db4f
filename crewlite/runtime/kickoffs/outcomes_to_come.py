"""For a preview: find the steps whose question contains the outcome of a step that will run."""

from __future__ import annotations

from collections.abc import Iterator

from crewlite.durable import Json
from crewlite.encoding import codec
from crewlite.kinds import Kind

_TELLING = 3  # characters; shorter texts are not searched for inside other texts


class OutcomesToCome:
    """The outcomes of steps that will run, and a search in questions for these outcomes or parts of them."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}
        self._texts: dict[str, str] = {}

    def add(self, address: str, kind: Kind, *outcomes: Json) -> None:
        """Add outcomes of a step, with all their parts, to the search."""
        for outcome in outcomes:
            whole = kind.given(outcome)
            self._digests.setdefault(codec.digest(whole), address)
            for part in _parts(whole):
                if part in (None, "", [], {}) or isinstance(part, bool):
                    continue  # values that occur everywhere
                self._digests.setdefault(codec.digest(part), address)
                if isinstance(part, str):
                    self._digests.setdefault(
                        codec.digest(codec.digest(part)), address
                    )  # questions of tasks contain the digest instead
                    if len(part) >= _TELLING:
                        self._texts.setdefault(part, address)

    def source(self, question: Json) -> str | None:
        """Return the address of a step whose outcome is part of this question; None if no outcome is."""
        if not self._digests:
            return None
        for part in _parts(question):
            if found := self._digests.get(codec.digest(part)):
                return found
            if isinstance(part, str):
                for text, address in self._texts.items():
                    if text in part:
                        return address
        return None


def _parts(data: Json) -> Iterator[Json]:
    yield data
    for item in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _parts(item)
