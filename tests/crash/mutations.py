"""crewlite with one promise taken out, by name: so the trials prove that they would find it missing.

    python mutations.py "no fsync" powercut.py --disks lazy

runs a program so. Each switch replaces one function, or one method, and fails if that is not there any more.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crewlite.encoding import codec, homes
from crewlite.runtime.steps import replay
from crewlite.state.format import entry
from crewlite.state.journal.journal import Journal
from crewlite.state.providers import sqlite
from crewlite.system import disk
from tests import warm


class Fits(str):
    """A checksum that fits whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], None]:
    """A switch: what `make` makes of an attribute takes its place."""
    return lambda: setattr(owner, name, make(getattr(owner, name)))


def _in_place(path: Path, data: bytes) -> None:
    disk.announce("truncate", path)
    path.write_bytes(b"")
    disk.announce("write", path, data)
    path.write_bytes(data)


def _plain_write(replace: Any) -> Any:
    def written(batch: disk.SyncBatch, path: Any, data: bytes, **options: Any) -> None:
        disk.announce("truncate", path)
        with open(path, "wb", buffering=0) as file:
            for start in range(0, len(data), 100):
                disk.announce("write", path, data[start : start + 100], start)
                file.write(data[start : start + 100])

    return written


def _unawaited(store: Any) -> Any:
    def stored(journal: Journal, parts: Any) -> None:
        store(journal, parts)

    return stored


def _without_intents(save: Any) -> Any:
    def saved(journal: Journal, parts: Any, **options: Any) -> Any:
        if "steps" in parts:
            parts.pop("intents", None)
        return save(journal, parts, **options)

    return saved


def _one_by_one(rename: Any) -> Any:
    def renamed(path: Path, target: Path, *, batch: Any = None) -> None:
        disk.make_directory(target)
        for file in sorted(path.rglob("*.jsonl")):
            disk.make_directory((target / file.relative_to(path)).parent)
            rename(file, target / file.relative_to(path))
        disk.remove_directory(path)

    return renamed


def _unsynced(remove: Any) -> Any:
    return lambda batch, path: disk.remove(path)


def _no_fsync() -> None:
    tell = disk.announce
    disk.announce = lambda verb, *about, **more: None if verb == "fsync" else tell(verb, *about, **more)
    os.fsync = lambda handle: None


def _fits(digest: Any) -> Any:
    return lambda *of: Fits(digest(*of))


SWITCHES: dict[str, Callable[[], None]] = {
    "plain write": replaced(disk.SyncBatch, "replace", _plain_write),
    "rewrite in place": replaced(disk, "replace", lambda _: lambda path, data, **options: _in_place(path, data)),
    "run in place": replaced(disk, "rename", _one_by_one),
    "no fsync": _no_fsync,
    "a removed file comes back": replaced(disk.SyncBatch, "remove", _unsynced),
    "a save is not awaited": replaced(Journal, "store", _unawaited),
    "no intent": replaced(Journal, "save", _without_intents),
    "no record is heeded": replaced(replay, "decide", lambda _: lambda *asked: replay.Execute()),
    "no shape": replaced(entry, "read_commit", lambda _: lambda data: data),
    "no seal": replaced(entry, "_sum", _fits),
    "no checksum of a row": replaced(sqlite, "row_digest", _fits),
    "raw errors of the codec": replaced(
        codec,
        "decode",
        lambda _: lambda data, classes=(): codec._decode(data, {homes.class_name(c): c for c in classes}),
    ),
    "a class is imported": replaced(
        homes, "declared", lambda _: lambda name, known: __import__(name.partition(":")[0])
    ),
}


if __name__ == "__main__":
    name, program, *arguments = sys.argv[1:]
    SWITCHES[name]()
    warm.get_ready()  # once, and not in each of the processes that the program forks
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).parent))
    runpy.run_path(program, run_name="__main__")
