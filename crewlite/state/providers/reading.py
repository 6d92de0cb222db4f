"""What any store can work out from entries alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from crewlite.state.entry import Entry
from crewlite.state.providers.base import BranchInfo, PlaceInfo


def branch_info(first: Entry) -> BranchInfo:
    """The listing line of a branch, from its first entry."""
    run = first.facts["run"]
    return BranchInfo(
        run_id=run["run_id"],
        branch=run["branch"],
        uid=run["uid"],
        identity=run["identity"],
        kind=run["definition"]["kind"],
        name=run["definition"]["name"],
        started_at=first.facts["at"],
    )


def live_places(entries: Sequence[Entry]) -> list[PlaceInfo]:
    """The places that a journal names and has not dropped, in order."""
    found: dict[str, PlaceInfo] = {}
    for entry in entries:
        for gone in entry.facts.get("drops", ()):
            found.pop(gone, None)
        if place := entry.facts.get("place"):
            run = entries[0].facts["run"]
            found[place["id"]] = PlaceInfo(
                place["id"], run["run_id"], run["branch"], place["seq"], place["trigger"], place["at"]
            )
    return list(found.values())


def newest_sound_place(entries: Sequence[Entry], ref: Callable[[dict[str, Any]], str]) -> str | None:
    """The ref of the newest place among entries that were read without a fault."""
    for entry in reversed(entries):
        if place := entry.facts.get("place"):
            return ref(place)
    return None
