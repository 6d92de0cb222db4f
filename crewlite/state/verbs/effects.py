"""Which calls with effect="once" a fork or a rewind may repeat, and the error if that was not allowed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from crewlite.errors import EffectsRepeat, RepeatedCall
from crewlite.state.format.addresses import outers
from crewlite.state.format.commit import CommitParts, MadeCall
from crewlite.state.format.effects import once_calls
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record


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
    answered = {step["address"]: step["digest"] for step in steps if "digest" in step}  # nothing inside these runs
    other = {at for at, digest in answered.items() if at not in then.outcomes or then.outcomes[at].digest != digest}
    ends = [ended for at in again | other if (ended := asked_before(then, at)) is not None]
    since = 0 if anew or "inputs" in (first or {}) else min(ends, default=float("inf"))

    def may_repeat(call: MadeCall) -> bool:
        address, is_open = call["address"], not then.settled(call["address"])
        if call["seq"] > seq:
            return is_open
        if is_inside(address, answered):
            return False
        taken_back = call["finished"] and is_open
        return taken_back or call["seq"] >= since or is_inside(address, again)

    if repeated := [call for call in made if may_repeat(call)]:
        raise EffectsRepeat(what, repeated_calls(repeated))


def repeats(record: Record, steps: Collection[str]) -> bool:
    """Return whether a fork at the head that runs these ended steps again may repeat calls with effect="once"."""
    outcomes = record.outcomes
    once = [at for at, effect in record.intents.items() if effect == "once"]
    since = min(asked_before(record, at) or 0 for at in steps)
    return any(at not in outcomes or outcomes[at].seq >= since or is_inside(at, steps) for at in once)


def repeated_calls(made: Iterable[MadeCall]) -> list[RepeatedCall]:
    """Return calls in the form in which an error or a preview lists them: of several at one address, the last."""
    last = {one["address"]: one for one in made}
    return [RepeatedCall(one["address"], one["arguments"], one["at"], one["finished"]) for one in last.values()]


def asked_before(record: Record, address: str) -> int | None:
    """Return the number of the commit that records the outcome or the last failure of a step; None without either."""
    ended = record.outcomes.get(address) or record.last_attempt(address)
    return ended.seq if ended else None


def is_inside(address: str, steps: Collection[str]) -> bool:
    """Return whether an address is among these steps, or inside one of them."""
    return any(at in steps for at in (address, *outers(address)))
