"""Reading a branch with all it stands on.

Nothing is ever copied. A fork is a branch whose first entry is chained to an entry of another branch.
"""

from __future__ import annotations

from crewlite.errors import JournalCorrupt
from crewlite.state.entry import Entry
from crewlite.state.providers import Store


def whole(store: Store, run_id: str, branch: str) -> list[Entry]:
    """The journal of a branch from the beginning of the run, what it stands on included; [] if there is none.

    Raises JournalCorrupt if the branches do not fit together.
    """
    return trace(store, run_id, branch)[0]


def trace(store: Store, run_id: str, branch: str) -> tuple[list[Entry], dict[str, str | None]]:
    """`whole`, and the places of it that the branches it stands on have dropped since, each with its parent.

    Those that forks stand on are not among them, as forks hold them too.
    """
    own = store.read(run_id, branch)
    parts, seen = [own], {branch}
    lost: dict[str, str | None] = {}
    stood = set()
    while own and (base := own[0].facts["run"].get("base")):
        journal = store.read(run_id, base["branch"])
        own = [entry for entry in journal if entry.seq <= base["seq"]]
        lost |= {gone: parent for entry in journal[len(own) :] for gone, parent in entry.facts.get("drops", ())}
        stood |= {base["place"]["id"]} if base["place"] else set()
        if base["branch"] in seen or not own or (own[-1].seq, own[-1].sum) != (base["seq"], base["sum"]):
            if not store.read(run_id, branch):
                return [], {}  # the run was deleted while it was read
            where = f"{store.location}, run {run_id}, branch {branch}"
            raise JournalCorrupt(
                where, f"what it was forked from ({base['branch']}, commit {base['seq']}) is gone", None
            )
        seen.add(base["branch"])
        parts.append(own)
    entries = [entry for part in reversed(parts) for entry in part]
    return entries, {gone: parent for gone, parent in lost.items() if gone not in stood}
