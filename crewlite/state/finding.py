"""What a doctor finds, and the reading it does: one that stops at the first fault, and keeps what comes before it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from crewlite.state.commit import Claim
from crewlite.state.entry import Entry, Unsound, without_place
from crewlite.state.holder import holder_at
from crewlite.state.providers.reading import check_follows, ends_claim

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something at a location that is not as it was written."""

    what: str
    """A short code that never changes: `torn_tail`, `damaged_journal`, `dangling_fork`, `missing_file`, ..."""
    where: str
    """The file and line, or the run and branch."""
    problem: str
    remedy: str
    """What to do, or what the repair did."""
    sound: str | None = None
    """The ref of the newest sound checkpoint there."""
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class SoundPart:
    """The entries of a branch before the first fault, and the fault."""

    entries: list[Entry]
    problem: str | None = None
    without: dict[int, str] = field(default_factory=dict)
    """The id of the checkpoint that was removed from an entry, which is sound without it, by its index in `entries`."""


def sound_part(
    records: Iterable[R],
    unseal: Callable[[R, str | None], tuple[Entry, int]],
    parts: Callable[[R], tuple[object, object]],
    run_id: str,
    branch: str,
) -> SoundPart:
    """Read what can be read.

    `unseal` reads a record that is chained to a sum, and gives the number it is stored under; `parts` are its bytes and
    its seal. Raises SchemaTooNew.
    """
    found, without = list[Entry](), dict[int, str]()
    for record in records:
        after = found[-1].sum if found else None
        try:
            try:
                entry, number = unseal(record, after)
            except Unsound:
                mended = without_place(*parts(record), after=after)
                if mended is None:
                    raise
                entry, number = mended, mended.seq
                without[len(found)] = mended.facts["drops"][-1][0]
            check_follows(entry, found, run_id, branch, number)
        except Unsound as problem:
            return SoundPart(found, str(problem), {at: gone for at, gone in without.items() if at < len(found)})
        found.append(entry)
    return SoundPart(found, None, without)


def adrift(journals: Mapping[str, Sequence[Entry]], unknown: Collection[str]) -> dict[str, str]:
    """The forks of a run that stand on what is gone, each with what that was.

    `unknown` are branches of which more may be there than `journals` say; forks of those are left out.
    """
    lost: dict[str, str] = {}
    bases = {name: entries[0].facts["run"].get("base") for name, entries in journals.items() if entries}
    for name, base in sorted(bases.items(), key=lambda item: item[1]["seq"] if item[1] else 0):
        if base and base["branch"] not in unknown:
            heads = [(entry.seq, entry.sum) for entry in journals.get(base["branch"], ())]
            if base["branch"] in lost or (base["seq"], base["sum"]) not in heads:
                lost[name] = f"what it was forked from ({base['branch']}, commit {base['seq']}) is gone"
    return lost


def writer_of(location: str, run_id: str, branch: str, said: Iterable[object], touched: float) -> str | None:
    """Who, alive, is at work on a branch; `said` are the facts of its entries, as far as they can be read at all."""
    claim: Claim | None = None
    for facts in said:
        if isinstance(facts, dict):
            claim = facts.get("claim", None if ends_claim(facts) else claim)
    try:
        return holder_at(location, run_id, branch, claim, touched)
    except (LookupError, TypeError, ValueError):
        return None  # a claim among what is damaged


def loosely(text: object) -> Any:
    """What bytes say, sealed or not; None if they are not JSON."""
    try:
        return json.loads(text) if isinstance(text, bytes) else None
    except (ValueError, RecursionError):
        return None
