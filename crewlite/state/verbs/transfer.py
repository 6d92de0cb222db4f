"""Moving a run: export all its branches to one JSON file, import that file at any location, or copy one branch there.

The file holds the entries of all branches as they are stored, one line each, with their seals. So an imported run has
the same digest on every provider, and can be resumed, forked and listed like the original.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from crewlite.encoding import codec
from crewlite.encoding.codec import JsonObject
from crewlite.errors import BranchConflictError, ConfigError, JournalCorrupt, RefError, RunExists, SchemaTooNew
from crewlite.refs import check_name
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.entry import Entry, InvalidEntry
from crewlite.state.journal import lineage
from crewlite.state.providers import Commit, Store, opened, provider_for
from crewlite.state.providers.locations import not_read, real_path
from crewlite.state.providers.reading import sound_part
from crewlite.state.providers.sqlite_database import is_database_file
from crewlite.state.reading.located import Located
from crewlite.state.verbs.from_outside import saving
from crewlite.system import disk

SCHEMA = 1


def digest(store: Store, run_id: str) -> str:
    """Return a digest of the heads of a run's branches: equal at every location. Raises RefError, JournalCorrupt."""
    return _digest(_journals(store, run_id))


def document(store: Store, run_id: str) -> tuple[str, bytes]:
    """Return (digest of a run, content of its export file). Raises RefError if the run was deleted, JournalCorrupt."""
    journals = _journals(store, run_id)
    total = _digest(journals)
    head = codec.dumps({"crewlite": "run", "schema": SCHEMA, "run_id": run_id, "digest": total})
    branches = [
        b'{"branch":%b,"entries":[\n%b\n]}' % (codec.dumps(name), b",\n".join(entry.line for entry in entries))
        for name, entries in journals.items()
    ]
    data = b'%b,"branches":[\n%b\n]}\n' % (head[:-1], b",\n".join(branches))
    _verified(data, f"the export of run {run_id}")  # an export that could not be imported is an error now
    return total, data


def export_run(store: Store, run_id: str, path: Path) -> str:
    """Write a run to a file, all or nothing, and return its digest. Raises RefError, JournalCorrupt, OSError.

    If the file cannot be written, the StoreError names the file and no location.
    """
    total, data = document(store, run_id)
    with saving(str(path), "the run was not exported"):
        disk.make_directory(path.absolute().parent)
        disk.replace(path, data)
    return total


def import_run(store: Store, path: Path) -> str:
    """Store the run that a file holds, as History.import_run describes, and return its run_id. Raises OSError, too."""
    if is_database_file(path):
        raise RefError(str(path), "is a database, and not a run that was exported: open it with History")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise RefError(str(path), "does not exist") from None
    except OSError as error:
        raise not_read(path, error) from error
    run_id, journals = _verified(data, str(path))
    there = lineage.journals_of_run(store, run_id)
    if there and _digest(there) != _digest(journals):
        raise RunExists(run_id, store.location, str(path), found=_digest(there), wanted=_digest(journals))
    for branch in journals.keys() - there.keys():
        store.read(run_id, branch)  # raises if the branch exists and is too damaged to be listed
    # Branches that exist are appended too: that stores no entry twice, but completes their checkpoint files.
    store.append([lineage.commit_of(own) for own in journals.values()])
    return run_id


def commits(store: Store, run_id: str, branch: str) -> list[Commit]:
    """Build the commits that copy a branch, and the branches it is forked from, to a store that has none of them."""
    return [lineage.commit_of(own) for own in lineage.journals_of_branch(store, run_id, branch).values()]


def is_elsewhere(found: Located, given: object) -> bool:
    """Return whether `given` sets a location explicitly, other than the location at which the run was found."""
    if not isinstance(given, CheckpointConfig) or "location" not in given.model_fields_set:
        return False
    return real_path(found.location) != real_path(given.location)


def copy_if_elsewhere(found: Located, given: object) -> Located:
    """Copy a branch, with the branches it is forked from, to the location that `given` sets, if the run is not there.

    Returns the branch at that location, or `found` if nothing is to be copied. A copy that was made earlier and resumed
    there is left as it is. Raises RunExists if a run of that name there is a different one, StoreError, OSError.
    """
    if not isinstance(given, CheckpointConfig) or not is_elsewhere(found, given):
        return found
    with found.opened() as kept:
        copied = commits(kept, found.run_id, found.branch)
    provider = provider_for(given.location, given.provider)
    with opened(provider, given.location) as store:
        _copy(store, copied, found)
    return replace(found, provider=provider, location=given.location, copied=copied[-1].head[1])


def _copy(store: Store, copied: list[Commit], found: Located) -> None:
    try:
        store.append(copied)
    except BranchConflictError:
        there = {info.branch: info.uid for info in store.branches(found.run_id)}
        for commit in copied:
            seq, total = commit.head
            same = commit.run and there.get(commit.branch) == commit.run["uid"]
            ahead = store.sum_at(*commit.key, seq) == total or (same and _was_copied(store, commit))
            named = found.checkpoint and any(one.run_id == found.run_id for one in store.places(found.checkpoint))
            if not same or not (ahead or named):
                known = there.get(commit.branch, "nothing")
                raise RunExists(found.run_id, store.location, found.location, found=known, wanted=total) from None


def _was_copied(store: Store, commit: Commit) -> bool:
    """Return whether a kickoff went on there with a copy of this branch as it is: its commits may be merged since."""
    return any(commit.head[1] in entry.commit.get("copied", ()) for entry in store.read(*commit.key))


def _journals(store: Store, run_id: str) -> lineage.Journals:
    if journals := lineage.journals_of_run(store, run_id):
        return journals
    raise lineage.gone(store, run_id, "run")


def _digest(journals: Mapping[str, Sequence[Entry]]) -> str:
    return codec.digest({name: entries[-1].head for name, entries in journals.items()})


def _verified(data: bytes, where: str) -> tuple[str, lineage.Journals]:
    """Parse an export file: return the run_id and the journals, with every seal and every link between them checked."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _unsound(where, f"this is not JSON ({error})") from None
    if not isinstance(parsed, dict) or parsed.get("crewlite") != "run" or type(parsed.get("schema")) is not int:
        raise _unsound(where, "this is not an exported run")
    if parsed["schema"] > SCHEMA:
        raise SchemaTooNew(where, parsed["schema"], SCHEMA)
    run_id = _name(parsed, "run_id", where)
    branches = parsed.get("branches")
    if not isinstance(branches, list) or not branches:
        raise _unsound(where, "it holds no branches")
    journals: dict[str, list[Entry]] = {}
    for branch in branches:
        name = _name(branch, "branch", where)
        if name in journals:
            raise _unsound(where, f"it holds branch {name!r} twice")
        journals[name] = _entries(branch.get("entries"), run_id, name, f"{where}, branch {name}")
        if problem := lineage.lost_base(journals, name):
            raise _unsound(f"{where}, branch {name}, entry 1", problem)
    if _digest(journals) != parsed.get("digest"):
        raise _unsound(where, "its digest does not fit: branches, or the last entries of one, are missing")
    return run_id, journals


def _name(parsed: Any, kind: str, where: str) -> str:
    try:
        return check_name(kind, parsed[kind], slashes=kind == "branch")
    except (LookupError, TypeError):
        raise _unsound(where, f"a {kind!r} is missing") from None
    except ConfigError as problem:
        raise _unsound(where, str(problem).rstrip(".")) from None


def _entries(parsed: Any, run_id: str, branch: str, where: str) -> list[Entry]:
    if not isinstance(parsed, list) or not parsed:
        raise _unsound(where, "it has no entries")
    found, problem = sound_part(map(_record, parsed), run_id, branch, where)
    if problem:
        raise _unsound(f"{where}, entry {len(found) + 1}", problem)
    return found


def _record(line: Any) -> tuple[bytes, str, None]:
    """Return (body, seal, None) of an entry from its line, which holds the seal beside the sealed fields."""
    if not isinstance(line, dict) or not isinstance(line.get("sum"), str):
        raise InvalidEntry("this is not an entry")
    unchecked: JsonObject = {name: value for name, value in line.items() if name != "sum"}
    try:
        return codec.dumps(unchecked), line["sum"], None
    except (ValueError, RecursionError) as error:
        raise InvalidEntry(f"this is not an entry ({error})") from None


def _unsound(where: str, problem: str) -> JournalCorrupt:
    return JournalCorrupt(where, problem, None, is_export=True)
