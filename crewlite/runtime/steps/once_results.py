"""The results of calls with effect="once": which call, made earlier, answers a call that is requested now.

The result of a call has one recipient: a requested call that asks the same. That is mostly the call at the same
address. It is at another address if a step around the call is tried again, or if changed code requests these steps in
another order or with other arguments. A result is free for a new call once its recipient cannot be requested any more,
such as one in an attempt that has failed.

once_addresses.py finds the result within one attempt, by an address; this file, in other steps and other attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from crewlite.durable import Step
from crewlite.runtime.steps.attempts import is_call_made_once
from crewlite.runtime.steps.doubts import check_none_before, doubt, is_comparable, is_made_again, may_have_taken_effect
from crewlite.runtime.steps.frame import Frame
from crewlite.runtime.steps.run import Run
from crewlite.state.format.addresses import (
    child_around,
    leaf,
    outer,
    outers,
    prefix_beside,
    without_numbers,
    without_tries,
)
from crewlite.state.format.earlier import is_before_change
from crewlite.state.format.outcome import Outcome
from crewlite.state.format.record import Record


class Earlier(NamedTuple):
    """What earlier code has left of a call with effect="once"."""

    made: Outcome | None = None
    """The outcome that answers the call."""
    answered: str = ""
    """The address of the call in doubt that asks the same, if a person gave its result to the kickoff; else ""."""
    released: Sequence[str] = ()
    """Calls in doubt that took no effect, according to `rerun`. The next commit records that they are not in doubt any
    more."""


NOTHING_EARLIER = Earlier()


def calls_before(frame: Frame, step: Step[Any], address: str, fingerprint: str) -> Earlier:
    """Return what earlier code left of a call with effect="once" that the code of `frame` requests, to make it once.

    An earlier call answers this one if it asked the same and its result belongs to no other call. If the record does
    not say what it asked, it answers the call at its own address. Returns NOTHING_EARLIER for a call that the fork has
    edited or set to run again.

    Raises InDoubt if such a call may have taken effect, and the kickoff does not say whether it did; also about a call
    in an earlier attempt at the same address, whatever that call asked, and about one that an earlier kickoff has left
    in doubt anywhere in the run.
    """
    earlier = _earlier_calls(frame, step, address, fingerprint)
    check_none_before(frame.run, address)
    if earlier.made:
        take_result(frame, earlier.made.address, address)
    elif earlier.answered:
        frame.run.once.add_recipient(earlier.answered, address)
    return earlier


def _earlier_calls(frame: Frame, step: Step[Any], address: str, fingerprint: str) -> Earlier:
    run, record = frame.run, frame.run.record
    if address in record.edited or not _may_stand_elsewhere(frame, address):
        return NOTHING_EARLIER
    comparable, place = is_comparable(step), without_tries(address)
    free = [at for at in _made_elsewhere(record, address, fingerprint) if not belongs_to_another(frame, at, address)]
    asked = {at: _asked(record, at) for at in free}
    alike = [
        at for at in free if (asked[at] == fingerprint if comparable and asked[at] else without_tries(at) == place)
    ]
    same_place = without_tries(prefix_beside(address))
    here = [at for at in free if without_tries(prefix_beside(at)) == same_place]
    ended = [at for at in alike if at in record.outcomes and record.outcomes[at].fingerprint == fingerprint]
    if ended:
        made = min(ended, key=lambda at: at not in here)  # the first at the same address, else the first of all
        return Earlier(made=record.outcomes[made])
    if same := next((at for at in alike if may_have_taken_effect(run, at)), ""):
        if is_made_again(run, same):
            return Earlier(released=[same])
        if same in run.answers and step.answer:
            return Earlier(answered=same)
        raise doubt(step, same, run)
    doubts = [at for at in here if may_have_taken_effect(run, at)]
    released = [at for at in doubts if is_made_again(run, at)]
    if undecided := [at for at in doubts if at not in released and not (at in run.answers and step.answer)]:
        raise doubt(step, undecided[0], run, "")
    return Earlier(released=released)


def request_inside(run: Run, address: str) -> None:
    """Note as requested the calls inside a step that the record answers, except those that its code left out."""
    for at in run.once.inside.get(address, ()):
        inside = [one for one in (at, *outers(at)) if len(one) > len(address)]
        if not _was_left_out(run.record, inside):
            run.once.requested.add(at)


def _may_stand_elsewhere(frame: Frame, address: str) -> bool:
    """Return whether an earlier call that this one repeats may be recorded in another step or attempt.

    Not if the code has to request all steps in their order: each then has its own address.
    """
    run, prefix = frame.run, prefix_beside(address)
    if "!" in prefix or (prefix and run.resumed and (run.earlier.left_in_doubt or run.on_drift == "rerun")):
        return True
    if not prefix or not (run.resumed or run.record.attempts):
        return False
    while frame.around:
        mode = frame.inherited.mode
        if not mode.strict_replay or mode.diverged or mode.goes_otherwise:
            return True
        frame = frame.around
    return False


def belongs_to_another(frame: Frame, at: str, address: str) -> bool:
    """Return whether the result of a call that was made belongs to another call than the one requested at `address`.

    `at`: the address of the call that was made, or of one that got its result.
    """
    made = _original(frame.run.record, at)
    return any(_is_held(frame, one, made, address) for one in _other_recipients(frame, made, address))


def _original(record: Record, at: str) -> str:
    """Return the address of the call that was made and whose result the call `at` has: mostly `at` itself."""
    outcome = record.outcomes.get(at)
    return outcome.reused_at or at if outcome else at


def _other_recipients(frame: Frame, made: str, address: str) -> list[str]:
    """Return the other calls that have, or are about to get, the result of the call `made`."""
    record, once = frame.run.record, frame.run.once

    def has_it(at: str) -> bool:
        outcome = record.outcomes.get(at)
        return outcome.reused_at == made if outcome else at in once.requested

    return [at for at in {made, *filter(has_it, once.recipients.get(made, ()))} if at != address]


def _is_held(frame: Frame, at: str, made: str, address: str) -> bool:
    """Return whether the call `at` keeps the result of the call `made`, so that the call at `address` cannot get it.

    The call keeps the result if the code has requested it in this kickoff, or may still request it. It does not in two
    cases: it is in an earlier attempt at a step around both calls; or the code around it requests other steps than were
    recorded, and has left it out or may do so.
    """
    run, record, way = frame.run, frame.run.record, _way_to(at, frame, address)
    if way is None:
        return False
    if at in run.once.requested:
        return True
    if way.is_left_out() or way.is_ahead_in_conversation():
        return False
    own, outcome = record.outcomes.get(address), record.outcomes.get(at)
    if own and outcome and made in (address, own.reused_at) and outcome.order < own.order:
        return False  # the call at `address` has got the result already
    return way.is_kept() or not _asks_otherwise(frame, way, address) or way.may_be_answered()


def _asks_otherwise(frame: Frame, way: _Way, address: str) -> bool:
    """Return whether the code at the beginning of `way` is known to request other steps than were recorded.

    That is so as well if the call at `address` is not the one that was recorded there.
    """
    mode, void = way.frame.inherited.mode, way.frame.run.record.void
    both = way.top, child_around(address, way.frame.children.prefix)
    return mode.diverged or mode.goes_otherwise or not void.keys().isdisjoint(both) or address in frame.children.moved


def take_result(frame: Frame, at: str, address: str) -> None:
    """Note that a call gets the result of the call `at`. Steps around calls that had the result run again."""
    record = frame.run.record
    made = _original(record, at)
    for other in _other_recipients(frame, made, address):
        way = _way_to(other, frame, address)
        for one in way.steps if way and not way.has_ended() else ():
            if end := record.end(one):
                frame.run.journal.invalidate(one, end.kind, at_once=True)
    frame.run.once.add_recipient(made, address)


class _Way(NamedTuple):
    """The way to a call from the innermost frame that encloses both this call and another one."""

    frame: Frame
    call: str
    top: str
    """The child step of that frame that encloses the call, or is the call."""
    steps: Sequence[str]
    """The steps around the call, from the innermost up to `top`; empty if `top` is the call."""

    def has_ended(self) -> bool:
        """Return whether the frame has requested `top` in this attempt, and `top` has its outcome or has failed."""
        children = self.frame.children
        return bool(children.asked.get(self.top)) or self.top in children.failed

    def is_left_out(self) -> bool:
        """Return whether a step on the way has ended without requesting the next one."""
        return bool(self.steps) and _was_left_out(self.frame.run.record, [self.call, *self.steps[:-1]])

    def is_ahead_in_conversation(self) -> bool:
        """Return whether the call is inside a step of an agent's conversation that this kickoff has not reached yet."""
        is_asked, kind = self.top in self.frame.children.asked, self.frame.run.record.kind_at(self.frame.address)
        return bool(self.steps) and not is_asked and kind.worker == "model"

    def is_kept(self) -> bool:
        """Return whether the call keeps its result whatever other steps the code requests."""
        record = self.frame.run.record
        return not self.steps or is_before_change(record, self.call) or any(_is_once(record, one) for one in self.steps)

    def may_be_answered(self) -> bool:
        """Return whether the record may still answer a step around the call, though the code requests other steps."""
        record = self.frame.run.record
        if self.top in self.frame.children.asked:
            return not self.has_ended() and any(map(record.end, self.steps[:-1]))
        return record.end(self.top) is not None and not self.frame.inherited.mode.diverged


def _way_to(at: str, frame: Frame, address: str) -> _Way | None:
    """Return the way to the call `at` from the innermost frame around it and around the call that `frame` requests.

    None if the two are in different attempts: at a step around both, or at the run.
    """
    nearest = frame
    while not at.startswith(nearest.children.prefix):
        nearest = nearest.outer
    top = child_around(at, nearest.children.prefix)
    if nearest is not frame and (nearest.around is None or top == child_around(address, nearest.children.prefix)):
        return None
    return _Way(nearest, at, top, [one for one in outers(at) if len(one) >= len(top)])


def _was_left_out(record: Record, addresses: Sequence[str]) -> bool:
    """Return whether code that has ended did not request one of these recorded steps."""
    outcomes = record.outcomes
    return any(at in outcomes[around].unused for at in addresses if (around := outer(at)) in outcomes)


def _is_once(record: Record, address: str) -> bool:
    """Return whether an ended step is itself a call with effect="once". Such a call includes the steps inside it."""
    end = record.end(address)
    return end is not None and is_call_made_once(record, end)


def _asked(record: Record, at: str) -> str | None:
    """Return the digest of the question that a call was begun with; None if it is not recorded."""
    outcome = record.outcomes.get(at)
    return outcome.fingerprint if outcome else record.intended.get(at)


def _made_elsewhere(record: Record, address: str, fingerprint: str) -> Iterator[str]:
    """Yield the calls of the same function (kind, name and key) in other steps, or in other attempts at the same steps.

    Calls that have the result of another one are left out, and so are ended calls that asked something else.
    """
    here, alike = prefix_beside(address), without_numbers(address)
    key = leaf(address) if "#[" in leaf(address) else ""
    for at, effect in record.intents.items():
        outcome = record.outcomes.get(at)
        if effect != "once" or (outcome and (outcome.fingerprint != fingerprint or outcome.reused)):
            continue
        if prefix_beside(at) != here and without_numbers(at) == alike and (not key or leaf(at) == key):
            yield at
