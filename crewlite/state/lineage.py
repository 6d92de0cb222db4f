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
    own = store.read(run_id, branch)
    parts, seen = [own], {branch}
    while own and (base := own[0].facts["run"].get("base")):
        own = [entry for entry in store.read(run_id, base["branch"]) if entry.seq <= base["seq"]]
        if base["branch"] in seen or not own or (own[-1].seq, own[-1].sum) != (base["seq"], base["sum"]):
            where = f"{store.location}, run {run_id}, branch {branch}"
            raise JournalCorrupt(
                where, f"what it was forked from ({base['branch']}, commit {base['seq']}) is gone", None
            )
        seen.add(base["branch"])
        parts.append(own)
    return [entry for part in reversed(parts) for entry in part]
