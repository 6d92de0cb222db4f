"""The calls declared `effect="once"` that a branch has made, and which of them a fork, rewind or kickoff may repeat.

Three functions answer that, each from what its caller knows: `check_effects` from all entries, for a fork or a rewind;
`may_make_again` from the record alone, for the advice at the end of a kickoff; `calls_made_again` from the steps that
would run, for a preview.

The calls are read from the intents, which are recorded before them. A compaction leaves out the intents of finished
calls, and moves the other intents to a later commit; it lists the calls themselves as `made`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from crewlite import kinds
from crewlite.encoding.codec import Json
from crewlite.errors import EffectsRepeat, RepeatedCall
from crewlite.state.format.addresses import leaf, outers, prefix_beside
from crewlite.state.format.commit import CommitParts, MadeCall, StepRecord, is_numbered
from crewlite.state.format.entry import Entry
from crewlite.state.format.kept import is_outermost
from crewlite.state.format.numbering import Numbering
from crewlite.state.format.record import Record
from crewlite.state.journal.lineage import Journals, base_of, with_inherited
from crewlite.tools.naming import address_name
from crewlite.tools.result import shown_arguments

MARKS = (b'"once"', b'"made"')
"""Each entry with a call that `once_calls` returns contains one of these bytes. Few others do."""


def once_calls(entries: Sequence[Entry]) -> list[MadeCall]:
    """Return the calls with effect="once" that these entries record, in order, whether finished or in doubt.

    A call that was intended, and then got the result of an earlier one, was not made.
    """
    if not any(map(_has_any, entries)):  # most runs: what their models request need not be looked at
        return []
    found: list[MadeCall | None] = []
    unfinished: dict[str, list[int]] = {}
    arguments: dict[str, str] = {}
    counts: dict[str, Numbering] = {}
    for entry in entries:
        commit = entry.commit
        for step in commit.get("steps", ()):
            arguments.update(_arguments(step, counts))
            if "fingerprint" in step and "error" not in step:
                for number in unfinished.pop(step["address"], ()):
                    call = found[number]
                    found[number] = {**call, "finished": True} if call and "reused" not in step else None
        seq, time, approved = commit["seq"], commit["at"], commit.get("arguments", {})
        numbered = is_numbered(commit.get("folded"))  # else the outcomes merged with them have this number too
        made = [MadeCall(**{**call, "seq": call["seq"] if numbered else seq}) for call in commit.get("made", ())]
        listed = {call["address"] for call in made}
        for at, effect, *_ in commit.get("intents", ()):
            if effect == "once" and at not in listed:
                shown = approved.get(at) or arguments.get(at, "")
                made.append(MadeCall(address=at, seq=seq, at=time, arguments=shown, finished=False))
        for call in made:
            if not call["finished"]:
                unfinished.setdefault(call["address"], []).append(len(found))
            found.append(call)
    return [call for call in found if call]


def arguments_of(entries: Sequence[Entry]) -> dict[str, str]:
    """Return the beginning of the arguments, as JSON, of the last call with effect="once" at each address."""
    return {call["address"]: call["arguments"] for call in once_calls(entries)}


def requested_calls(reply: Json, numbering: Numbering, recorded: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield (address, call) for the tool calls that a recorded reply requests.

    `numbering`: that of its conversation, after earlier replies. `recorded`: the addresses, if they do not follow from
    the order of the calls.
    """
    for number, call in enumerate(reply.get("tool_calls", ()) if isinstance(reply, dict) else ()):
        address = numbering.next(kinds.TOOL.name, address_name(call[0]))
        if number < len(recorded) and recorded[number] != address:
            address = recorded[number]
            numbering.moved = {*numbering.moved, address}
        yield address, call


def check_effects(
    entries: Sequence[Entry], seq: int, what: str, first: CommitParts | None = None, *, anew: bool = False
) -> None:
    """Raise EffectsRepeat if a run that continues from commit `seq` may make calls with effect="once" again.

    Of the calls made after that commit, the run may repeat those that were not settled at it (after a rewind, a call
    may be recorded both before and after it). Of the earlier calls, it may repeat those that the changes in the `first`
    commit of the fork lead to. `anew`: whether any step may have another question, as with another definition. `what`
    names the place in the message.
    """
    if not (made := once_calls(entries)):
        return
    then = Record.of(entry for entry in entries if entry.seq <= seq)
    steps = [step for step in (first or {}).get("steps", ()) if step["address"]]
    again = {step["address"] for step in steps if step.get("again")}
    edited = {step["address"]: step["digest"] for step in steps if "digest" in step}  # nothing inside these runs
    changed = again.union(at for at, digest in edited.items() if _may_change_what_follows(then, at, digest))
    ends = [ended for at in changed if (ended := _asked_before(then, at)) is not None]
    latest = {call["address"]: call for call in made if call["seq"] <= seq}
    since = 0 if anew or "inputs" in (first or {}) else min(ends, default=float("inf"))

    def may_repeat(call: MadeCall) -> bool:
        address, is_open = call["address"], not then.settled(call["address"])
        if call["seq"] > seq:
            return is_open
        if _is_inside(address, edited):
            return False
        taken_back = call["finished"] and is_open and call is latest[address]  # the kickoff asks about one that was cut
        return taken_back or call["seq"] >= since or _is_inside(address, again)

    if repeated := [call for call in made if may_repeat(call)]:
        raise EffectsRepeat(what, _repeated_calls(repeated))


def _may_change_what_follows(record: Record, address: str, digest: str) -> bool:
    """Return whether steps behind an edited one may run again. They do behind a method, also if it comes to the same.

    An edit inside a step has that step run again, which may come to something else.
    """
    outcome = record.outcomes.get(address)
    same = outcome is not None and outcome.digest == digest
    return not same or not is_outermost(address) or kinds.at(address) is kinds.METHOD


def may_make_again(record: Record, steps: Collection[str]) -> bool:
    """Return whether a fork at the head that runs these ended steps again may repeat calls with effect="once"."""
    outcomes = record.outcomes
    since = min(_asked_before(record, at) or 0 for at in steps)
    return any(at not in outcomes or outcomes[at].seq >= since or _is_inside(at, steps) for at in record.once)


def calls_of_base(journals: Journals, branch: str) -> list[MadeCall]:
    """Return the calls with effect="once" that a fork's base branch has made since the fork; [] if `branch` is no fork.

    `journals`: those of the branch and of the branches that it is forked from.
    """
    if not (base := base_of(journals[branch])):
        return []
    return [one for one in once_calls(with_inherited(journals, base["branch"])) if one["seq"] > base["seq"]]


def calls_made_again(
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
    made = (one for one in once_calls(entries) if one["finished"])
    own = [one for one in made if _is_repeated(one["address"], one["seq"], record, before, running)]
    behind = [one for one in beside if _is_inside(one["address"], running) and not record.settled(one["address"])]
    return tuple(_repeated_calls([*behind, *own]))


def _is_repeated(address: str, made: int, record: Record, before: Record, running: Collection[str]) -> bool:
    """Return whether the steps in `running` repeat a finished call of the branch. An interrupted step goes on after it.

    `made`: the number of the commit in which it was made.
    """
    around = next((at for at in (address, *outers(address)) if at in running), None)
    if around is None:
        return False
    changed = any(until > record.base for until, _ in record.earlier_inputs)
    if changed or not record.settled(address) or around in record.outcomes:
        return True
    inside = (_asked_before(before, at) for at in record.edited if around in outers(at))
    return any(seq is not None and seq <= made for seq in inside)


def _repeated_calls(made: Iterable[MadeCall]) -> list[RepeatedCall]:
    """Return calls in the form in which an error or a preview lists them: of several at one address, the last."""
    last = {one["address"]: one for one in made}
    return [RepeatedCall(one["address"], one["arguments"], one["at"], one["finished"]) for one in last.values()]


def _asked_before(record: Record, address: str) -> int | None:
    """Return the number of the commit that records the outcome or the last failure of a step; None without either."""
    ended = record.outcomes.get(address) or record.last_attempt(address)
    return ended.seq if ended else None


def _is_inside(address: str, steps: Collection[str]) -> bool:
    """Return whether an address is among these steps, or inside one of them."""
    return any(at in steps for at in (address, *outers(address)))


def _has_any(entry: Entry) -> bool:
    return "made" in entry.commit or any(effect == "once" for _, effect, *_ in entry.commit.get("intents", ()))


def _arguments(step: StepRecord, counts: dict[str, Numbering]) -> Iterator[tuple[str, str]]:
    """Yield (address, the beginning of its arguments) for each tool call that a recorded reply of a model requests.

    `counts`: the numbering so far, by the prefix of the conversation.
    """
    value, prefix = step.get("value"), prefix_beside(step["address"])
    if not (kinds.of(step["kind"]).asks_model and isinstance(value, dict)):
        return
    if leaf(step["address"]) == f"{kinds.LLM.name}#1":
        counts[prefix] = Numbering(prefix)
    for at, call in requested_calls(value, counts.setdefault(prefix, Numbering(prefix)), step.get("calls", ())):
        yield at, shown_arguments(call[1])
