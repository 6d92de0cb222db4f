"""Outcomes that may become others, as far as they can be seen in what steps are asked."""

from __future__ import annotations

from collections.abc import Iterator

from crewlite import codec
from crewlite.durable import Json
from crewlite.kinds import Kind

_TELLING = 3  # characters of a text that is looked for within others


class Traces:
    """The outcomes of steps that run, and whether a question holds one of them, or a part of one."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}
        self._texts: dict[str, str] = {}

    def add(self, address: str, kind: Kind, *outcomes: Json) -> None:
        """Look for these outcomes of a step, and for parts of them."""
        for outcome in outcomes:
            whole = kind.given(outcome)
            self._digests.setdefault(codec.digest(whole), address)
            for part in _parts(whole):
                if part in (None, "", [], {}) or isinstance(part, bool):
                    continue  # seen everywhere, and telling nothing
                self._digests.setdefault(codec.digest(part), address)
                if isinstance(part, str):
                    self._digests.setdefault(codec.digest(codec.digest(part)), address)  # as tasks are given it
                    if len(part) >= _TELLING:
                        self._texts.setdefault(part, address)

    def source(self, question: Json) -> str | None:
        """The step whose outcome can be seen in a question."""
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
    """Data, and all that is in it."""
    yield data
    for item in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _parts(item)
