"""Folding a journal: the inner detail that no checkpoint needs is left out.

A finished step answers without a look inside, so what its children said is needed only by checkpoints that lie in the
middle of it. Every outcome that counts, all usage and every event stay. The commits between two kept checkpoints become
one, which keeps the sum that the next one, and every fork, is chained to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from crewlite.errors import JournalCorrupt
from crewlite.state.addresses import around
from crewlite.state.entry import SCHEMA, Entry, Facts, given_up, seal
from crewlite.state.outcome import Outcome
from crewlite.state.paid import Paid
from crewlite.state.record import Record
from crewlite.state.references import resolved
from crewlite.state.values.current import merged_changes

_LISTS = ("steps", "intents", "asked", "answers", "events", "drops")


def fold(before: Sequence[Entry], own: Sequence[Entry], stands: Iterable[int]) -> list[Entry]:
    """A branch's own entries without the inner detail that neither places, nor `stands`, nor its head need.

    `before` is what the branch stands on. `stands` are the numbers of entries that must stay where they are. The first
    stays too, as it tells when the branch was begun. Raises JournalCorrupt if one is missing between two others.
    """
    _check_contiguous([*before, *own])
    record, live, folded = Record.of([*before, *own]), Record.of(before), list[Entry]()
    ends = {place["seq"] for place in record.places.values()} | {own[0].seq, own[-1].seq, *stands}
    ends |= {entry.seq for entry in own if entry.facts.get("place", {}).get("id") in record.places}
    after = own[0].facts["run"]["base"]["sum"] if "base" in own[0].facts["run"] else ""
    for part in _parts(own, ends):
        held, restored = _held(part, live), live.restored
        for entry in part:
            live.apply(entry)
        facts = _merged(part, held, live, record)
        facts |= {"values": changed} if (changed := merged_changes(part, restored, live)) else {}
        merged = seal(facts, after=after)
        folded += [merged] if len(merged.line) < size(part) else part
        after = part[-1].sum
    return folded


def _check_contiguous(entries: Sequence[Entry]) -> None:
    """A fold over a hole looks whole, and nobody could tell any more what was lost."""
    seq = 0
    for entry in entries:
        first = entry.facts["folded"]["first"] if "folded" in entry.facts else entry.seq
        if first != seq + 1:
            raise JournalCorrupt(f"folding before commit {entry.seq}", f"commit {seq + 1} is missing", None)
        seq = entry.seq


def _parts(entries: Sequence[Entry], ends: set[int]) -> Iterator[list[Entry]]:
    """The entries in parts, each up to one whose number is among `ends`."""
    part: list[Entry] = []
    for entry in entries:
        part.append(entry)
        if entry.seq in ends:
            yield part
            part = []


def _held(part: Sequence[Entry], live: Record) -> dict[str, Outcome]:
    """The outcomes before these entries of the steps that they are about, or are inside of."""
    about = {step["address"] for entry in part for step in entry.facts.get("steps", ())}
    about |= {address for entry in part for address, _ in entry.facts.get("intents", ())}
    return {at: live.outcomes[at] for at in about | around(about) if at in live.outcomes}


def _merged(part: Sequence[Entry], held: dict[str, Outcome], live: Record, record: Record) -> Facts:
    """What these entries say, but for the inside of steps that have finished by their end, which is `live`."""
    last, lists, paid = part[-1], {name: list[Any]() for name in _LISTS}, Paid()
    facts: Facts = {"schema": SCHEMA, "seq": last.seq, "at": last.facts["at"]}
    for entry in part:
        facts |= {name: entry.facts[name] for name in ("run", "definition", "inputs") if name in entry.facts}
        paid.take(entry.facts | {"steps": ()})
        for name in _LISTS:
            lists[name] += _dated(entry, last) if name == "steps" else entry.facts.get(name, ())
    first = part[0].facts["folded"]["first"] if "folded" in part[0].facts else part[0].seq
    facts["folded"] = {"first": first, "sum": last.sum}
    gone = {step["address"] for step in lists["steps"] if live.is_inside(step["address"])}
    paid.take({"steps": [step for step in lists["steps"] if step["address"] in gone]})
    again = [
        given_up(address, outcome.kind)
        for address, outcome in held.items()
        if live.is_inside(address) and live.outcomes.get(address) is not outcome
    ]  # what was done again, and is left out now, must not answer as it did before
    kept = [_whole(step, gone, live) for step in lists["steps"] if step["address"] not in gone]
    lists["steps"] = [*again, *kept]
    # an intent left standing would take away the outcome of its call again
    lists["intents"] = [intent for intent in lists["intents"] if not live.settled(intent[0])]
    answered = dict.fromkeys(item["address"] for item in lists["answers"])  # as the questions in here have bound them
    lists["answers"] = [live.answers[address] for address in answered if address in live.answers]
    for name in ("asked", "answers"):
        lists[name] = [item for item in lists[name] if not live.settled(item["address"])]
    facts |= {name: found for name, found in lists.items() if found}
    facts |= paid.facts(left_out=live.is_inside)
    facts |= {"claim": live.claim} if live.claim else {"released": True}
    facts |= {"cancelled": True} if live.cancelled else {}
    if last.facts.get("place", {}).get("id") in record.places:
        facts["place"] = last.facts["place"]
    return facts


def _dated(entry: Entry, last: Entry) -> list[Facts]:
    """The steps of an entry, with their time where it is not that of the commit they go into."""
    steps = entry.facts.get("steps", [])
    at = entry.facts["at"]
    return steps if at == last.facts["at"] else [{"at": at, **step} for step in steps]


def _whole(step: Facts, gone: set[str], live: Record) -> Facts:
    """A step with the texts in it that it shared with steps that are gone."""
    if "value" not in step:
        return step
    return {**step, "value": resolved(step["value"], lambda at: live.outcomes[at].value["text"], gone)}


def size(entries: Iterable[Entry]) -> int:
    """Bytes of these entries, without their newlines."""
    return sum(len(entry.line) for entry in entries)
