"""Moving a run: all of it as one JSON file, which can be read, compared, kept, and taken up anywhere.

The file holds the very entries of all branches, one line each, under their own seals. So what is imported is the run
itself: the same digest on every provider, and it goes on, forks and lists as the original.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crewlite import codec, disk
from crewlite.codec import JsonObject
from crewlite.errors import ConfigError, JournalCorrupt, RefError, RunExists, SchemaTooNew
from crewlite.refs import check_name
from crewlite.state.format.entry import Entry, Unsound, unseal
from crewlite.state.journal.lineage import Journals, gone, journals_of_branch, journals_of_run
from crewlite.state.providers import Commit, Store
from crewlite.state.providers.base import Head
from crewlite.state.providers.reading import check_follows

SCHEMA = 1


def digest(store: Store, run_id: str) -> str:
    """Names a run as it stands: the same text wherever it is kept, another as soon as a branch moves.

    Raises RefError if there is no such run any more, JournalCorrupt.
    """
    return _digest(_journals(store, run_id))


def document(store: Store, run_id: str) -> bytes:
    """A run as a file holds it. Raises RefError if there is no such run any more, JournalCorrupt if it is not sound."""
    journals = _journals(store, run_id)
    head = codec.dumps({"crewlite": "run", "schema": SCHEMA, "run_id": run_id, "digest": _digest(journals)})
    branches = [
        b'{"branch":%b,"entries":[\n%b\n]}' % (codec.dumps(name), b",\n".join(entry.line for entry in entries))
        for name, entries in journals.items()
    ]
    data = b'%b,"branches":[\n%b\n]}\n' % (head[:-1], b",\n".join(branches))
    _verified(data, f"the export of run {run_id}")  # nothing leaves that could not come back
    return data


def export_run(store: Store, run_id: str, path: Path) -> str:
    """Write a run to a file, whole or not at all. Its digest. Raises RefError, JournalCorrupt, OSError."""
    data = document(store, run_id)
    disk.make_directory(path.absolute().parent)
    disk.replace(path, data)
    found: str = json.loads(data)["digest"]
    return found


def import_run(store: Store, path: Path) -> str:
    """Bring the run that a file holds to a store, whole or not at all. Its run_id.

    Raises RefError, JournalCorrupt, SchemaTooNew, RunExists, OSError.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise RefError(str(path), "does not exist") from None
    run_id, journals = _verified(data, str(path))
    there = journals_of_run(store, run_id)
    if there and _digest(there) != _digest(journals):
        raise RunExists(run_id, store.location, str(path), found=_digest(there), wanted=_digest(journals))
    for branch in journals.keys() - there.keys():
        store.read(run_id, branch)  # of one too damaged to be listed, this is how to know
    # What is there already is not stored again; yet to append it makes the store look after its checkpoints.
    store.append([_commit(run_id, name, entries) for name, entries in journals.items()])
    return run_id


def commits(store: Store, run_id: str, branch: str) -> list[Commit]:
    """A branch with all it stands on, as it is copied to a store that has nothing of it."""
    return [_commit(run_id, name, own) for name, own in journals_of_branch(store, run_id, branch).items()]


def _journals(store: Store, run_id: str) -> Journals:
    if journals := journals_of_run(store, run_id):
        return journals
    raise gone(store, run_id, "run")


def _digest(journals: Mapping[str, Sequence[Entry]]) -> str:
    return codec.digest({name: _head(entries) for name, entries in journals.items()})


def _head(entries: Sequence[Entry]) -> Head:
    return entries[-1].seq, entries[-1].sum


def _commit(run_id: str, branch: str, entries: Sequence[Entry]) -> Commit:
    """A branch from its beginning, so that it never adds to another run than it is of."""
    base = entries[0].commit["run"].get("base")
    after: Head = (base["seq"], base["sum"]) if base else (0, "")
    return Commit(run_id, branch, *after, tuple(entries))


def _verified(data: bytes, where: str) -> tuple[str, Journals]:
    """The run_id and the journals of an exported run, every seal and every link checked."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise JournalCorrupt(where, f"this is not JSON ({error})", None) from None
    if not isinstance(parsed, dict) or parsed.get("crewlite") != "run" or type(parsed.get("schema")) is not int:
        raise JournalCorrupt(where, "this is not an exported run", None)
    if parsed["schema"] > SCHEMA:
        raise SchemaTooNew(where, parsed["schema"], SCHEMA)
    run_id = _name(parsed, "run_id", where)
    branches = parsed.get("branches")
    if not isinstance(branches, list) or not branches:
        raise JournalCorrupt(where, "it holds no branches", None)
    journals: dict[str, list[Entry]] = {}
    for branch in branches:
        name = _name(branch, "branch", where)
        if name in journals:
            raise JournalCorrupt(where, f"it holds branch {name!r} twice", None)
        journals[name] = _entries(branch.get("entries"), run_id, name, f"{where}, branch {name}")
        _check_base(journals, name, f"{where}, branch {name}, entry 1")
    if _digest(journals) != parsed.get("digest"):
        raise JournalCorrupt(where, "its digest does not fit: entries or branches at an end are missing", None)
    return run_id, journals


def _name(parsed: Any, kind: str, where: str) -> str:
    try:
        return check_name(kind, parsed[kind], slashes=kind == "branch")
    except (LookupError, TypeError):
        raise JournalCorrupt(where, f"a {kind!r} is missing", None) from None
    except ConfigError as problem:
        raise JournalCorrupt(where, str(problem).rstrip("."), None) from None


def _entries(parsed: Any, run_id: str, branch: str, where: str) -> list[Entry]:
    if not isinstance(parsed, list) or not parsed:
        raise JournalCorrupt(where, "it has no entries", None)
    found: list[Entry] = []
    for number, line in enumerate(parsed, 1):
        try:
            entry = _unseal(line, found[-1].sum if found else None, f"{where}, entry {number}")
            check_follows(entry, found, run_id, branch, entry.seq)
        except Unsound as problem:
            raise JournalCorrupt(f"{where}, entry {number}", str(problem), None) from None
        found.append(entry)
    return found


def _unseal(line: Any, after: str | None, where: str) -> Entry:
    """An entry from its JSON object: the canonical bytes of its commit are those that were sealed."""
    if not isinstance(line, dict) or not isinstance(line.get("sum"), str):
        raise Unsound("this is not an entry")
    unchecked: JsonObject = {name: value for name, value in line.items() if name != "sum"}
    try:
        body = codec.dumps(unchecked)
    except (ValueError, RecursionError) as error:
        raise Unsound(f"this is not an entry ({error})") from None
    return unseal(body, line["sum"], after=after, where=where)


def _check_base(journals: Journals, name: str, where: str) -> None:
    """A fork must stand on an entry that the file holds, of a branch before it."""
    base = journals[name][0].commit["run"].get("base")
    if base and (base["seq"], base["sum"]) not in [(e.seq, e.sum) for e in journals.get(base["branch"], ())]:
        raise JournalCorrupt(where, f"what it was forked from ({base['branch']}, commit {base['seq']}) is gone", None)
