"""Letters: answers for a run, left in its store for the process that is at work on it.

A letter is no record. Its sender waits until the run has recorded the answer or refused it, and takes the letter back
if nobody comes for it. So an answer is acknowledged only once it is in the journal, and a letter that is lost loses
nothing. It is for one kickoff alone, as a later one may ask something else at the same address: the run may have been
rewound, or deleted and begun again. All letters of a store lie under one key of its `Exchange`.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cache, partial
from typing import NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from crewlite.concurrency.background import ordinary
from crewlite.errors import text_of
from crewlite.ids import new_id
from crewlite.state.format.commit import GivenAnswer
from crewlite.state.format.entry import InvalidEntry, parse
from crewlite.state.format.record import Record
from crewlite.state.providers import BranchKey, Exchange, Store, change_shared, exchange_of
from crewlite.system.steady_clock import steady
from crewlite.texts.logs import logger

log = logger("crewlite.state")
_KEY = b"letters".hex().ljust(32, "0")
_GLANCE = 0.05  # seconds between two looks of a sender at its letter
_PATIENCE = 5.0  # seconds that a letter waits to be taken: a process at work looks twice a second
_LONGEST = 30.0  # seconds that the sender of a letter that was taken waits, such as for a blocked event loop
_OLD = 600.0  # seconds after which a letter has no sender any more


class Letter(TypedDict):
    """An answer for the kickoff that runs this branch. `ahead`: also if its question is still to be asked."""

    at: float
    run_id: str
    branch: str
    claim: str
    """The id of the claim of that kickoff: a kickoff with another one drops the letter."""
    answer: GivenAnswer
    ahead: bool
    taken: NotRequired[bool]
    """Whether the run is recording the answer, so that the letter cannot be taken back."""


Receive = Callable[[Letter], Future[bool]]
"""Has a run record the answer in a letter. The future is done once the answer is durable, or refused."""
Ask = Callable[[Callable[[Store], object]], object]
_Letters = dict[str, Letter]  # by id


def send(store: Store, record: Record, answer: GivenAnswer, *, ahead: bool, lives: Callable[[], object]) -> bool:
    """Leave an answer for the process that runs a branch, and wait until the run has recorded or refused it.

    `record`: that of the branch, with the claim of the process. Waits 5 s for the letter to be taken, and then up to
    30 s, as long as `lives()` says that the process lives. Only the record tells what came of it. Returns whether the
    process has taken it and has not dealt with it yet. Returns at once if processes cannot exchange data through the
    store. Raises OSError.
    """
    if (exchange := exchange_of(store)) is None:
        return False
    sent, name, run = time.time(), new_id(), record.run
    letter: Letter = {
        "at": sent,
        "run_id": run["run_id"],
        "branch": run["branch"],
        "claim": record.claim["id"] if record.claim else "",
        "answer": answer,
        "ahead": ahead,
    }
    _change(exchange, lambda found: {at: one for at, one in found.items() if sent - one["at"] < _OLD} | {name: letter})
    began = steady()
    try:
        while (mine := _read(exchange.recall(_KEY)).get(name)) and lives():
            if steady() - began > (_LONGEST if mine.get("taken") else _PATIENCE):
                break
            time.sleep(_GLANCE)
    finally:
        was_taken = _remove(exchange, name)
    return was_taken


def deliver(store: Store, runs: Mapping[BranchKey, Receive], ask: Ask, *, loud: bool) -> None:
    """Hand each letter to the run that it is for, if that is one of `runs`, by run id and branch.

    `ask` has a function called on the thread that uses the store. Logs what fails, if `loud`: the senders notice it.
    """
    try:
        if exchange := exchange_of(store):
            for name, letter in _read(exchange.recall(_KEY)).items():
                receive = runs.get((letter["run_id"], letter["branch"]))
                if receive and not letter.get("taken") and _mark_taken(exchange, name):
                    receive(letter).add_done_callback(partial(_remove_when_done, ask, exchange, name))
    except BaseException as error:  # whatever storage raises, its thread goes on
        if loud:
            log.warning("%s: answers from other processes do not arrive: %s", store.location, text_of(ordinary(error)))


def _mark_taken(exchange: Exchange, name: str) -> bool:
    """Mark a letter as taken. Returns whether it was still there."""

    def mark(found: _Letters) -> _Letters:
        return found | {name: {**found[name], "taken": True}} if name in found else found

    return name in _change(exchange, mark)


def _remove(exchange: Exchange, name: str) -> bool:
    """Remove a letter. Returns whether a process has taken it and has not dealt with it yet."""
    was_taken = False

    def without(found: _Letters) -> _Letters:
        nonlocal was_taken
        was_taken = name in found and "taken" in found[name]
        return {at: letter for at, letter in found.items() if at != name}

    _change(exchange, without)
    return was_taken


def _remove_when_done(ask: Ask, exchange: Exchange, name: str, _: Future[bool]) -> None:
    ask(lambda _: _remove(exchange, name))


def _change(exchange: Exchange, change: Callable[[_Letters], _Letters]) -> _Letters:
    return _read(change_shared(exchange, _KEY, lambda data: _bytes(change(_read(data)))))


def _read(data: bytes | None) -> _Letters:
    """Return the letters in the data; none if it is damaged, as their senders notice that they are gone."""
    with contextlib.suppress(ValueError, InvalidEntry):
        return _reader().validate_python(parse(data)) if data else {}
    return {}


@cache
def _reader() -> TypeAdapter[_Letters]:
    return TypeAdapter(_Letters)


def _bytes(letters: _Letters) -> bytes:
    return json.dumps(letters).encode() if letters else b""
