"""Other forms in which a question may be recorded: by an earlier release, or by the program run in another way."""

from __future__ import annotations

from collections.abc import Iterator

from crewlite.encoding import codec
from crewlite.encoding.codec import Json
from crewlite.encoding.homes import renamed

_LATER_PARTS = ("attributes", "fold", "zone", "extra")
"""Parts of encoded values that earlier releases did not write."""


def other_forms(asked: Json) -> Iterator[Json]:
    """Yield the other recorded forms of a question."""
    yield from renamed(asked)
    if (before := _as_before(asked)) != asked:
        yield before
        yield from renamed(before)


def _as_before(data: Json) -> Json:
    """Return encoded data in the form of releases without `_LATER_PARTS`."""
    if isinstance(data, list):
        return [_as_before(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "$" in data:
        whole = {"v": codec.laid_over(data["v"], data["extra"])} if "extra" in data else {}
        data = {part: item for part, item in data.items() if part not in _LATER_PARTS} | whole
    return {key: _as_before(item) for key, item in data.items()}
