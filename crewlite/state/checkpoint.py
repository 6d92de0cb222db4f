"""A checkpoint: a named, immutable place in the journal of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from crewlite.codec import decode
from crewlite.state.entry import Entry, Facts
from crewlite.state.record import LightEvent, Record
from crewlite.usage import Usage


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place. Everything it tells is as of its `seq`: what came later does not show."""

    id: str
    run_id: str
    branch: str
    parent_id: str | None
    seq: int
    trigger: str
    """The type of the event that named it."""
    address: str
    """The step that event is about."""
    created_at: datetime
    label: str | None
    metadata: dict[str, Any]
    inputs: dict[str, Any]
    definition: Facts
    usage: Usage
    ref: str
    """The text that names it from anywhere."""
    _history: tuple[Sequence[str], int, Sequence[LightEvent], int] = field(repr=False)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Addresses of the tasks finished at this place, in the order they finished."""
        tasks, count, _, _ = self._history
        return tuple(tasks[:count])

    def events(self) -> tuple[LightEvent, ...]:
        """The history of the run up to this place, in order."""
        _, _, events, count = self._history
        return tuple(events[:count])


def checkpoints(
    entries: Sequence[Entry], ref: Callable[[Facts], str], lost: Mapping[str, str | None]
) -> list[Checkpoint]:
    """The places that a journal names, first to last, but for those that are lost, given with their parents.

    Raises JournalCorrupt.
    """
    record = Record()
    then: dict[int, tuple[Usage, int, int]] = {}
    runs: dict[int, Facts] = {}
    homes: dict[str, str] = {}
    for entry in entries:
        record.apply(entry)
        then[entry.seq] = record.usage, len(record.tasks), len(record.events)
        runs[entry.seq] = record.run
        if place := entry.facts.get("place"):
            homes[place["id"]] = record.run["branch"]
        base = entry.facts.get("run", {}).get("base")
        if base and base["place"]:
            homes.setdefault(base["place"]["id"], base["branch"])
    record.check_places({entry.seq: entry.sum for entry in entries})
    record.forget(lost)
    tasks = list(record.tasks)
    found = []
    for place in sorted(record.places.values(), key=lambda place: (place["seq"], place["id"])):
        usage, finished, heard = then[place["seq"]]
        run = runs[place["seq"]]
        found.append(
            Checkpoint(
                id=place["id"],
                run_id=run["run_id"],
                branch=homes[place["id"]],
                parent_id=record.parent(place),
                seq=place["seq"],
                trigger=place["trigger"],
                address=place["address"],
                created_at=datetime.fromisoformat(place["at"]),
                label=place.get("label"),
                metadata=decode(place.get("metadata", {})),
                inputs=decode(run["inputs"]),
                definition=run["definition"],
                usage=usage,
                ref=ref(place),
                _history=(tasks, finished, record.events, heard),
            )
        )
    return found
