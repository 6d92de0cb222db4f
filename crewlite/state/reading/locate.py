"""Resolve a ref to the run, branch and checkpoint that it names."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from crewlite.errors import ConfigError, RefError, meant, nearest
from crewlite.ids import SHORT
from crewlite.refs import Ref, check_name, parse
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record
from crewlite.state.format.rewinds import ends_of_tails
from crewlite.state.journal.lineage import find_lineage, read_lineage, readable_branches
from crewlite.state.providers import (
    BaseProvider,
    BranchInfo,
    CheckpointInfo,
    JsonProvider,
    Store,
    declares,
    exists,
    opened,
    provider_for,
)
from crewlite.state.providers.database_files import is_database
from crewlite.state.providers.reading import checkpoint_info
from crewlite.state.reading.checkpoints import named_by
from crewlite.state.reading.located import Located
from crewlite.texts.resuming import branch_ref
from crewlite.texts.wording import number_of

_TAIL = re.compile(r"abandoned:([1-9]\d{0,8})")
"""The part of a ref after its @ that names the end of the entries which a rewind abandoned, by the rewind's number."""


def locate(text: str, location: str, provider: BaseProvider | None, identity: str | None) -> Located:
    """Return the run, branch and checkpoint that a ref names. A ref that contains no path is looked up in `location`.

    With an `identity`, `latest` and a ref that is only a location mean the newest run of the definition with that
    identity; otherwise the newest run of any definition. Raises RefError, with candidates, if the ref names nothing or
    several things, and JournalCorrupt for a checkpoint file that contradicts its journal.
    """
    if means_path(text, location, provider):
        return _file(text) if text.endswith(".json") else _newest_at(text, provider, identity)
    path, hash_, part = text.rpartition("#")
    if hash_ and path and ("@" not in path or os.path.exists(path)):  # otherwise # is part of an address: main@task#2
        there = _existing(text, path, provider)
        with opened(there, path) as store:
            return _one_checkpoint(store.places(part) or _fork_bases(store, part), there, path, part)
    if os.sep in text and not os.path.exists(text) and text.startswith((".", os.sep)):
        raise RefError(text, "does not exist")
    try:
        chosen = _existing(text, location, provider)
        return _within(chosen, location, parse(text), text, identity)
    except RefError:
        if not _is_store(text):  # a word without a slash is tried as run, branch and checkpoint before as a directory
            raise
        return _newest_at(text, provider, identity)


def means_path(text: str, location: str | None, provider: BaseProvider | None) -> bool:
    """Return whether a ref names a store or file, and not a run of `location`. Raises RefError if it may be both."""
    return _is_path(text) and not (location and _names_run(text, location, provider))


def _is_path(text: str) -> bool:
    """Return whether a ref looks like the path of a store or a checkpoint file. A run can have such a name, too."""
    branch, at, _ = text.partition("@")
    if at and os.sep not in branch and not os.path.exists(text):
        return False
    return text.endswith(".json") or is_database(text) or (os.sep in text and _is_store(text))


def _names_run(text: str, location: str, provider: BaseProvider | None) -> bool:
    """Return whether a ref that reads as a path names a run or branch. Raises RefError if it names a file too."""
    chosen, path = provider_for(location, provider), re.split("[@~]", text)[0]
    if path.endswith(os.sep) or path.split(os.sep)[0] in ("", ".", "..") or not exists(location, chosen):
        return False
    with opened(chosen, location) as store:
        run = _of_run(store, path)
        if not run and (os.sep in path or not _branch(store.branches(), Ref(path), None)):
            return False
    if os.path.exists(text):
        here = f"{text}/main" if run and text == run.run_id else f"{text}~0"
        problem = f"names a run in {location} and a file: write {here!r} for the run, {f'./{text}'!r} for the file"
        raise RefError(text, problem)
    return True


def _is_store(text: str) -> bool:
    return os.path.isdir(os.path.join(text, "journal"))


def _newest_at(text: str, provider: BaseProvider | None, identity: str | None) -> Located:
    """Return the newest run at the location `text`; with an `identity`, that of the definition with it."""
    by_its_path = is_database(text) or declares(provider, "named_by_location")
    chosen = _existing(text, text, None if by_its_path else provider)
    with opened(chosen, text) as store:
        branches = store.branches()
    mine = [info for info in branches if identity in (None, info.identity)]
    if not mine:
        raise RefError(text, "holds no run of this definition" if identity else "holds no run", _with_names(branches))
    return Located(chosen, text, mine[0].run_id, mine[0].branch)


def _with_names(branches: Iterable[BranchInfo]) -> list[str]:
    return [f"{info.run_id} ({info.kind} {info.name!r})" for info in branches]


def _existing(ref: str, location: str, provider: BaseProvider | None) -> BaseProvider:
    chosen = provider_for(location, provider)
    if not exists(location, chosen):
        raise RefError(ref, f"is looked up in {location}, which does not exist")
    return chosen


def _file(text: str) -> Located:
    path, provider = Path(text), JsonProvider()
    directory = str(path.parent)
    if not path.exists():
        part = path.stem.rpartition("_")[2]
        if path.parent.is_dir() and (stood := _fork_bases(provider.open(directory), part)):
            return _one_checkpoint(stood, provider, directory, part)
        others = sorted(str(p) for p in path.parent.glob("*_*.json"))[-6:] if path.parent.is_dir() else []
        raise RefError(text, "does not exist", others)
    found = provider.open(directory).check_file(path.absolute())
    return Located(provider, directory, found.run_id, found.branch, found.id)


def _fork_bases(store: Store, part: str) -> list[CheckpointInfo]:
    """Return the checkpoints whose id contains `part` and that forks start from, as the forks recorded them.

    A fork keeps the checkpoint that it starts from even after that checkpoint's own branch has dropped it.
    """
    found: dict[str, CheckpointInfo] = {}
    for info in store.branches():
        checkpoint = info.base["place"] if part and info.base else None
        if checkpoint and part in checkpoint["id"] and checkpoint["id"] not in found:
            run = {"run_id": info.run_id, "branch": _holding_branch(store, info, checkpoint["id"])}
            found[checkpoint["id"]] = checkpoint_info(run, checkpoint)
    return list(found.values())


def _holding_branch(store: Store, fork: BranchInfo, identifier: str) -> str:
    """Return the branch that holds the checkpoint from which `fork` starts: the fork itself if its base has dropped it.

    Reads the base, because the store's index of checkpoints may be damaged. Raises JournalCorrupt.
    """
    assert fork.base
    base = fork.base["branch"]
    return base if identifier in find_lineage(store, fork.run_id, base).record().checkpoints else fork.branch


def _one_checkpoint(checkpoints: Sequence[CheckpointInfo], provider: BaseProvider, location: str, part: str) -> Located:
    if len(checkpoints) != 1:
        many = f"matches {len(checkpoints)} checkpoints in {location}: give more of the id"
        raise RefError(part, many if checkpoints else f"names nothing in {location}", [one.id for one in checkpoints])
    found = checkpoints[0]
    return Located(provider, location, found.run_id, found.branch, found.id)


def _within(provider: BaseProvider, location: str, ref: Ref, text: str, identity: str | None) -> Located:
    with opened(provider, location) as store:
        chosen = _of_run(store, ref.path)
        branches = [] if chosen else store.branches()
        chosen = chosen or _branch(branches, ref, identity)
        if chosen is None:
            long = ref.at is None and len(ref.path) >= SHORT  # a shorter text is the name of a run that is not here
            if checkpoints := (store.places(ref.path) or _fork_bases(store, ref.path)) if long else []:
                return _one_checkpoint(checkpoints, provider, location, text)
            if ref.path == "latest" and identity and branches:
                problem = f"means the newest run of this definition, and {location} holds none"
                raise RefError(text, problem, _with_names(branches))
            names = "nothing" if ref.at is None else "no run or branch"
            raise no_run(text, ref.path, f"names {names} in {location}", branches)
        if ref.at is None and not ref.back:
            return Located(provider, location, chosen.run_id, chosen.branch)
        entries, lacks = read_lineage(store, chosen.run_id, chosen.branch)
        found = Located(provider, location, chosen.run_id, chosen.branch)
        if tail := _TAIL.fullmatch(ref.at or ""):
            found, entries = replace(found, abandoned=int(tail[1])), abandoned_by(entries, int(tail[1]), text)
            if not ref.back:
                return found
            ref = ref._replace(at=None)
        return replace(found, checkpoint=named_by(ref, Record.of(entries, lacks), text)["id"], abandoned=None)


def no_run(ref: str, name: str, problem: str, branches: Iterable[BranchInfo]) -> RefError:
    """Build the error for a ref whose `name` is that of no run. It says which branch may be meant, and lists them all.

    They are listed by similarity if one may be meant; otherwise in their order.
    `branches`: those of the location, newest run first, as a store lists them.
    """
    known = [branch_ref(one.run_id, one.branch) for one in branches]
    hint = meant(name, known)
    if hint:
        return RefError(ref, f"{problem}; {hint}", nearest(name, known))
    return RefError(ref, problem, known)


def check_not_abandoned(found: Located) -> None:
    """Raise RefError if a ref names the last of the commits that a rewind abandoned: nothing can be added there."""
    if found.abandoned is not None:
        raise RefError(found.ref, "was abandoned by a rewind and cannot change: fork it, or rewind the branch to it")


def abandoned_by(entries: Sequence[Entry], number: int, ref: str) -> list[Entry]:
    """Return the entries up to the last one that the branch's rewind `number`, from 1, abandoned. Raises RefError."""
    ends = ends_of_tails(entries)
    if number > len(ends):
        names = [f"@abandoned:{known}" for known in range(1, len(ends) + 1)]
        raise RefError(ref, f"names nothing: the branch was rewound {number_of(len(ends), 'time')}", names)
    return [entry for entry in entries if entry.seq <= ends[number - 1]]


def _of_run(store: Store, path: str) -> BranchInfo | None:
    """Return the branch that `run` or `run/branch` names; None if it names none. Reads this run's branches only."""
    run, _, branch = path.partition("/")
    with contextlib.suppress(ConfigError):
        found = readable_branches(store, check_name("run_id", run), branch or "main")
        return next((info for info in found if info.branch == (branch or "main")), None)
    return None


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
