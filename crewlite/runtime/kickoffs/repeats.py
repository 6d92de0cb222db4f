"""The calls with effect="once" that a kickoff would repeat, derived from what a preview says about each step."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from crewlite.errors import RepeatedCall
from crewlite.state.format.addresses import outers
from crewlite.state.format.commit import MadeCall
from crewlite.state.format.effects import asked_before, is_inside, once_calls, repeated_calls
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record
from crewlite.state.journal.lineage import Journals, with_inherited


def made_beside(journals: Journals, branch: str) -> list[MadeCall]:
    """Return the calls with effect="once" that a fork's base branch has made since the fork; [] if `branch` is no fork.

    `journals`: those of the branch and of the branches that it is forked from.
    """
    base = journals[branch][0].commit["run"].get("base")
    if not base:
        return []
    return [one for one in once_calls(with_inherited(journals, base["branch"])) if one["seq"] > base["seq"]]


def repeated(
    entries: Sequence[Entry], beside: Sequence[MadeCall], record: Record, before: Record, running: Collection[str]
) -> tuple[RepeatedCall, ...]:
    """Return the calls that the steps in `running` would make again.

    Calls in doubt are left out: the kickoff asks about them.

    Args:
        entries: The entries of the branch.
        beside: The calls that the base branch has made since the fork.
        record: The record of the branch.
        before: The record at the commit that the branch is forked from.
        running: The addresses of the steps that will run or may run.
    """
    own = [one for one in once_calls(entries) if one["finished"] and _is_repeated(one, record, before, running)]
    behind = [one for one in beside if is_inside(one["address"], running) and not record.settled(one["address"])]
    return tuple(repeated_calls([*behind, *own]))


def _is_repeated(call: MadeCall, record: Record, before: Record, running: Collection[str]) -> bool:
    """Return whether a finished call of the branch is made again. An interrupted step continues after such a call."""
    address = call["address"]
    around = next((at for at in (address, *outers(address)) if at in running), None)
    if around is None:
        return False
    changed = any(until > record.base for until, _ in record.earlier_inputs)
    if changed or not record.settled(address) or around in record.outcomes:
        return True
    inside = (asked_before(before, at) for at in record.edited if around in outers(at))
    return any(seq is not None and seq <= call["seq"] for seq in inside)
