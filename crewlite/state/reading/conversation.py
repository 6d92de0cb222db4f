"""The conversation of an agent as its record holds it: the replies of the model, and the tool calls that they request.

In a fork, a model that is asked again may request other tools, or none. The later replies and calls of the earlier
conversation then stay in the record, but nothing requests them. If it comes to the same reply, they are used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crewlite import kinds
from crewlite.state.format.addresses import leaf, outer, prefix_beside
from crewlite.state.format.kept import Order
from crewlite.state.format.numbering import Numbering
from crewlite.state.format.outcome import Outcome
from crewlite.state.format.record import Record
from crewlite.state.journal.effects import requested_calls


@dataclass(frozen=True, slots=True)
class Turn:
    """A reply of the model, and the addresses of the tool calls that it requests, in their order."""

    reply: Outcome
    calls: tuple[str, ...]


def turns_of(record: Record, prefix: str) -> list[Turn]:
    """Return the turns of the conversation in one attempt at a step; `prefix` begins the addresses of its steps."""
    turns, last = list[Turn](), Order()
    numbering = Numbering(prefix)
    while reply := record.outcomes.get(f"{prefix}{kinds.LLM.name}#{len(turns) + 1}"):
        if reply.order < last and not _is_used_again(record, reply):
            break  # it answered the conversation before an earlier reply was asked for again
        calls = requested_calls(reply.value, numbering, reply.calls)
        turns.append(Turn(reply, tuple(at for at, _ in calls)))
        last = max(last, reply.order)
    return turns


def _is_used_again(record: Record, reply: Outcome) -> bool:
    """Return whether a fork has inherited or edited this reply, and the enclosing step used it when it ended."""
    first = None if outer(reply.address) else record.outcomes.get(f"{kinds.TURN.name}#1")  # of several turns
    around = first or record.outcomes.get(outer(reply.address))
    if around is None or reply.address in around.unused:
        return False
    return any(reply.seq <= edit.seq < around.seq for edit in record.edited.values())


def superseded(record: Record) -> set[str]:
    """Return the addresses of replies and tool calls that the conversations of agents do not request any more."""
    first = f"{kinds.LLM.name}#1"
    begun = {prefix_beside(at) for at in record.outcomes if leaf(at) == first and _is_led_by_model(record, at)}
    held = {at for prefix in begun for at in _addresses(record, prefix)}
    inside = (at for at in (*record.outcomes, *record.attempts) if prefix_beside(at) in begun)
    return {at for at in inside if at not in held and (kinds.at(at).asks_model or kinds.at(at).is_call)}


def _addresses(record: Record, prefix: str) -> Iterator[str]:
    """Yield the addresses of the replies, of the calls they ask for, and of a failed request for a next reply."""
    turns = turns_of(record, prefix)
    for turn in turns:
        yield turn.reply.address
        yield from turn.calls
    failed = record.last_attempt(following := f"{prefix}{kinds.LLM.name}#{len(turns) + 1}")
    if failed and failed.order > max(turn.reply.order for turn in turns):
        yield following


def _is_led_by_model(record: Record, address: str) -> bool:
    around = outer(address)
    kind = record.kind_at(around)
    return kind.worker == "model" or kind is kinds.TURN
