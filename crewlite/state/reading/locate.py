"""From a ref to the run, branch and place it names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crewlite.errors import RefError, nearest
from crewlite.refs import Ref, parse
from crewlite.state.format.commit import CheckpointRecord
from crewlite.state.format.record import Record
from crewlite.state.journal.lineage import recorded
from crewlite.state.providers import (
    BaseProvider,
    BranchInfo,
    JsonProvider,
    PlaceInfo,
    Store,
    exists,
    provider_for,
)
from crewlite.state.providers.json import JsonStore
from crewlite.state.providers.reading import place_info
from crewlite.state.providers.sqlite import is_database
from crewlite.state.reading.choose import meant


@dataclass(frozen=True, slots=True)
class Located:
    """What a ref names. `place` is None for the head of the branch."""

    provider: BaseProvider
    location: str
    run_id: str
    branch: str
    place: str | None = None


def locate(text: str, location: str, provider: BaseProvider | None, identity: str | None) -> Located:
    """Resolve a ref; one without a path of its own is looked up in `location`.

    `identity` narrows a bare location and `latest` to the runs of one definition. Raises RefError with candidates, or
    JournalCorrupt for a file that its journal contradicts.
    """
    if text.endswith(".json"):
        return _file(text)
    if is_database(text) or (os.sep in text and _is_store(text)):
        return _newest_at(text, provider, identity)
    path, hash_, part = text.rpartition("#")
    if hash_ and path and ("@" not in path or os.path.exists(path)):  # else an address: main@task#2
        return _place_in(_existing(text, path, provider), path, part)
    if os.sep in text and not os.path.exists(text) and text.startswith((".", os.sep)):
        raise RefError(text, "does not exist")
    try:
        chosen = _existing(text, location, provider)
        return _within(_open(chosen, location), chosen, location, parse(text), text, identity)
    except RefError:
        if not _is_store(text):  # a bare word names a run, a branch or a place first, and only then a directory
            raise
        return _newest_at(text, provider, identity)


def _is_store(text: str) -> bool:
    return os.path.isdir(os.path.join(text, "journal"))


def _newest_at(text: str, provider: BaseProvider | None, identity: str | None) -> Located:
    chosen = _existing(text, text, provider if not is_database(text) else None)
    return _newest(_open(chosen, text), chosen, text, identity)


def _existing(ref: str, location: str, provider: BaseProvider | None) -> BaseProvider:
    chosen = provider_for(location, provider)
    if not exists(location, chosen):
        raise RefError(ref, f"is looked up in {location}, which does not exist")
    return chosen


def _open(provider: BaseProvider, location: str) -> Store:
    return provider.open(location)


def _file(text: str) -> Located:
    path = Path(text)
    if not path.exists():
        directory, part = str(path.parent), path.stem.rpartition("_")[2]
        if path.parent.is_dir() and (stood := _stood_on(JsonProvider().open(directory), part)):
            return _one_place(stood, JsonProvider(), directory, part)
        others = sorted(str(p) for p in path.parent.glob("*_*.json"))[-6:] if path.parent.is_dir() else []
        raise RefError(text, "does not exist", others)
    place = JsonStore(path.absolute().parent).check_file(path.absolute())
    return Located(JsonProvider(), str(path.parent), place.run_id, place.branch, place.id)


def _place_in(provider: BaseProvider, location: str, part: str) -> Located:
    store = _open(provider, location)
    try:
        return _one_place(store.places(part) or _stood_on(store, part), provider, location, part)
    finally:
        store.close()


def _stood_on(store: Store, part: str) -> list[PlaceInfo]:
    """Places that forks stand on although their own branch has dropped them, each as its first fork has it."""
    found: dict[str, PlaceInfo] = {}
    for info in store.branches():
        if part and info.base and (place := info.base["place"]) and part in place["id"]:
            found.setdefault(place["id"], place_info({"run_id": info.run_id, "branch": info.branch}, place))
    return list(found.values())


def _one_place(places: Sequence[PlaceInfo], provider: BaseProvider, location: str, part: str) -> Located:
    if len(places) != 1:
        problem = f"names {len(places)} places in {location}" if places else f"names nothing in {location}"
        raise RefError(part, problem, [place.id for place in places])
    found = places[0]
    return Located(provider, location, found.run_id, found.branch, found.id)


def _newest(store: Store, provider: BaseProvider, location: str, identity: str | None) -> Located:
    try:
        branches = store.branches()
    finally:
        store.close()
    mine = [info for info in branches if identity in (None, info.identity)]
    if not mine:
        others = [f"{info.run_id} ({info.kind} {info.name!r})" for info in branches]
        raise RefError(location, "holds no run of this definition" if identity else "holds no run", others)
    return Located(provider, location, mine[0].run_id, mine[0].branch)


def _within(store: Store, provider: BaseProvider, location: str, ref: Ref, text: str, identity: str | None) -> Located:
    try:
        branches = store.branches()
        chosen = _branch(branches, ref, identity)
        if chosen is None:
            if ref.at is None:
                places = store.places(ref.path) or _stood_on(store, ref.path)
                return _one_place(places, provider, location, text)
            names = nearest(text, [f"{b.run_id}/{b.branch}" for b in branches])
            raise RefError(text, f"names no run or branch in {location}", names)
        if ref.at is None and not ref.back:
            return Located(provider, location, chosen.run_id, chosen.branch)
        record = recorded(store, chosen.run_id, chosen.branch)
        return Located(provider, location, chosen.run_id, chosen.branch, _walk(record, ref, text))
    finally:
        store.close()


def _branch(branches: Sequence[BranchInfo], ref: Ref, identity: str | None) -> BranchInfo | None:
    mine = [info for info in branches if identity in (None, info.identity)]
    if ref.path == "latest":
        return mine[0] if mine else None
    run, _, branch = ref.path.partition("/")
    for info in branches:
        if info.run_id == run and info.branch == (branch or "main"):
            return info
    newest = mine[0].run_id if mine else None
    return next((info for info in mine if info.run_id == newest and info.branch == ref.path), None)


def _walk(record: Record, ref: Ref, text: str) -> str:
    """The id of the place that `@...` names, `~n` places back."""
    along = sorted(record.places.values(), key=lambda place: (place["seq"], place["id"]))
    places = [place_info(record.run, place) for place in along]
    found = meant(places, ref.at)
    if len(found) != 1 or ref.back >= len(places):
        named = [f"{place.id[-8:]} ({place.address or place.trigger})" for place in places]
        raise RefError(text, _too_far(ref) if ref.back else f"names {len(found)} places", named)
    place: CheckpointRecord | None = record.places[found[0].id]
    for _ in range(ref.back):
        place = record.places.get(record.parent(place) or "") if place else None
    if place is None:
        raise RefError(text, _too_far(ref), [place.id[-8:] for place in places])
    identifier: str = place["id"]
    return identifier


def _too_far(ref: Ref) -> str:
    return f"goes {ref.back} place{'s' if ref.back > 1 else ''} back, beyond the first"
