"""Checkpoint files: a small view of one place each, made from the journal alone, for people to read."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crewlite import disk
from crewlite.errors import CheckpointMismatch, RefError
from crewlite.state.entry import Entry
from crewlite.state.providers.base import PlaceInfo

log = logging.getLogger("crewlite.state")
_NAME = re.compile(r"\d{8}T\d+_([0-9a-f]{32})\.json")


class PlaceFiles:
    """The checkpoint files of one location."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._named: dict[str, Path] = {}
        """Files of places that were followed: which spares a look through the directory when they are dropped."""

    def path(self, place: dict[str, Any]) -> Path:
        """Where the file of a place is."""
        stamp = "".join(c for c in place["at"].partition("+")[0] if c.isalnum())
        return self._root / f"{stamp}_{place['id']}.json"

    def follow(self, first: Entry, entry: Entry) -> None:
        """Make the file of the place that an entry names, and remove those of the places that it drops."""
        if place := entry.facts.get("place"):
            self._named[place["id"]] = self.path(place)
            disk.replace(self.path(place), self.document(first, entry))
        for gone, _ in entry.facts.get("drops", ()):
            if file := self._named.pop(gone, None) or self.files().get(gone):
                disk.remove(file)

    def mend(self, named: Sequence[Entry]) -> int:
        """Make the files that are missing; `named` are a journal's first entry and those that name or drop places."""
        dropped = {gone for entry in named for gone, _ in entry.facts.get("drops", ())}
        kept = {entry.facts["place"]["id"]: entry for entry in named if "place" in entry.facts}
        self._named |= {identifier: self.path(entry.facts["place"]) for identifier, entry in kept.items()}
        missing = [
            e for identifier, e in kept.items() if identifier not in dropped and not self._named[identifier].exists()
        ]
        for entry in missing:
            disk.replace(self.path(entry.facts["place"]), self.document(named[0], entry))
        return len(missing)

    def listed(self, part: str = "", limit: int | None = None, before: str | None = None) -> list[PlaceInfo]:
        """What the files say, newest first. A file that says nothing any more is left out, with a warning."""
        files = self.files()
        found: list[PlaceInfo] = []
        for identifier in sorted(files, reverse=True):
            if len(found) == limit:
                break
            if part not in identifier or (before and identifier >= before):
                continue
            try:
                found.append(load(files[identifier])[0])
            except RefError:
                continue  # dropped while we were looking
            except CheckpointMismatch as problem:
                log.warning("%s Left out of the list.", problem)
        return found

    def files(self) -> dict[str, Path]:
        """The checkpoint files, by the id in their name."""
        try:
            names = os.listdir(self._root)
        except FileNotFoundError:
            return {}
        return {found[1]: self._root / name for name in names if (found := _NAME.fullmatch(name))}

    def document(self, first: Entry, entry: Entry) -> bytes:
        """The file of the place that an entry names, `first` being the first entry of the journal."""
        run, place = first.facts["run"], entry.facts["place"]
        document = {
            "schema": entry.facts["schema"],
            "id": place["id"],
            "run_id": run["run_id"],
            "branch": run["branch"],
            "parent_id": place["parent"],
            "seq": place["seq"],
            "created_at": place["at"],
            "trigger": place["trigger"],
            "address": place["address"],
            "label": place.get("label"),
            "metadata": place.get("metadata", {}),
            "definition": {"kind": run["definition"]["kind"], "name": run["definition"]["name"]},
            "about": place["about"],
            "journal": {
                "file": f"journal/{run['run_id']}/{run['branch']}.jsonl",
                "sum": place.get("sum", entry.sum),
            },
        }
        return json.dumps(document, indent=2, ensure_ascii=True).encode() + b"\n"


def load(path: Path) -> tuple[PlaceInfo, dict[str, Any]]:
    """What a checkpoint file says: for a listing, and all of it. Raises RefError, CheckpointMismatch."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RefError(str(path), "does not exist") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointMismatch(str(path), f"this is not JSON any more ({error})", None) from None
    if not isinstance(document, dict):
        raise CheckpointMismatch(str(path), "this is no checkpoint file", None)
    texts = ("id", "run_id", "branch", "trigger", "address", "created_at")
    wrong = [name for name in texts if not isinstance(document.get(name), str)]
    wrong += [] if type(document.get("seq")) is int else ["seq"]
    options = ("parent_id", "label")
    wrong += [name for name in options if not isinstance(document.get(name), str | None)]
    if wrong:
        raise CheckpointMismatch(str(path), f"this is no checkpoint file (its {wrong[0]!r} is missing or wrong)", None)
    fields: dict[str, Any] = {name: document.get(name) for name in (*texts, *options)}
    return PlaceInfo(seq=document["seq"], **fields), document
