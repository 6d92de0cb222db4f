"""The effects that a fork or a rewind would make happen again, and the refusal of one that was not told so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crewlite.errors import EffectsRepeat, RepeatedCall
from crewlite.state.format.addresses import outers
from crewlite.state.format.commit import MadeCall
from crewlite.state.format.effects import once_calls
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record


def check_effects(entries: Sequence[Entry], seq: int, what: str, rerun: Iterable[str] = ()) -> None:
    """Raise EffectsRepeat if calls with effect="once" were made after commit `seq`, or inside the steps to run again.

    Calls that are finished at that commit too, as after an earlier rewind, are not made again. `entries` are those of
    the branch, `what` names the place for the message.
    """
    made, again = once_calls(entries), set(rerun)
    if not made:
        return
    then = Record.of([entry for entry in entries if entry.seq <= seq])
    later = [one for one in made if one["seq"] > seq and not then.settled(one["address"])]
    repeated = [*(one for one in made if one["seq"] <= seq and _is_inside(one, again)), *later]
    if repeated:
        raise EffectsRepeat(
            what, [RepeatedCall(one["address"], one["arguments"], one["at"], one["finished"]) for one in repeated]
        )


def _is_inside(call: MadeCall, rerun: set[str]) -> bool:
    return not rerun.isdisjoint((call["address"], *outers(call["address"])))
