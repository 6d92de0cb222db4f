"""Find the address of a call with effect="once" whose code may request its calls in another order than before.

While code requests what it requested before, the order of its calls identifies them. Where code may request other
calls, the question identifies a call: a call that was begun is found at whichever address it is recorded, and a new
call gets an unused address. So no such call is lost from the record, and none is made twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from crewlite import kinds
from crewlite.encoding import codec
from crewlite.runtime.steps.attempts import is_call_made_once
from crewlite.runtime.steps.frame import Frame
from crewlite.runtime.steps.mode import DIFFERS
from crewlite.runtime.steps.once_results import belongs_to_another, take_result
from crewlite.runtime.steps.other_forms import other_forms
from crewlite.state.format.addresses import bare_name, leaf, prefix_beside
from crewlite.state.format.earlier import is_before_change
from crewlite.state.format.record import Record


def address_of(frame: Frame, address: str, question: codec.Json) -> str:
    """Return the address of a call that the code of `frame` requests at `address`, with this question.

    It is the address of an unrequested call that was begun with this question in the same attempt. If there is none,
    and another call was begun at `address`, it is an address that no step has. It stays `address` for code that has to
    request the recorded calls in their order, and in a fork whose changes lead to the call, which makes it again there.
    """
    record, children = frame.run.record, frame.children
    if not ((frame.run.resumed or record.attempts) and (begun := _unrequested(frame))):
        return address
    end = record.end(address)
    is_asked = address in begun and end and end.fingerprint == codec.digest([kinds.at(address).name, question])
    if is_asked and not belongs_to_another(frame, address, address):  # for speed: the same as below
        take_result(frame, address, address)
        return note_address(frame, address, address)
    digests = _digests(address, question)
    alike = [at for at in begun if _is_the_same(record, at, address, digests) and not belongs_to_another(frame, at, at)]
    if known := _known(frame, address, alike):
        take_result(frame, known, known)
        return note_address(frame, address, known)
    if address not in begun:
        return note_address(frame, address, address)
    if _may_move(frame, address) or belongs_to_another(frame, address, address):
        return note_address(frame, address, next(at for at in children.beyond(address) if not _is_in_use(frame, at)))
    # if no change of a fork leads to it, the call is refused, and the recorded one may still be requested
    return note_address(frame, address, address) if is_before_change(record, address) else address


def may_keep(frame: Frame, address: str, question: codec.Json) -> bool:
    """Return whether a call with this question may have the address that an earlier kickoff gave it.

    It may not in three cases: another call of this attempt has that address now; the call that was begun there asked
    something else, because calls before it have moved; or the result there belongs to another call. On a fork with
    edits, the call may ask something else: an edited reply requests other calls at the same addresses.
    """
    children, record = frame.children, frame.run.record
    if address in children.asked or address in children.moved:
        return False
    asks = record.edited or _is_the_same(record, address, address, _digests(address, question))
    return bool(asks) and not belongs_to_another(frame, address, address)


def note_address(frame: Frame, address: str, found: str) -> str:
    """Give a call the address `found` where the order of requests would give it `address`. Returns `found`."""
    children = frame.children
    if children.unrequested_calls:
        children.unrequested_calls.pop(found, None)
    if found != address:
        children.moved = {*children.moved, found}
    return found


def _unrequested(frame: Frame) -> dict[str, None]:
    """Return the calls that an earlier kickoff began in this attempt and its code has not requested yet."""
    children = frame.children
    if children.unrequested_calls is None:
        begun = _begun(frame.run.record, children.prefix)
        children.unrequested_calls = dict.fromkeys(at for at in begun if at not in children.asked)
    return children.unrequested_calls


def _known(frame: Frame, address: str, alike: Collection[str]) -> str:
    """Return the one of the calls `alike` (begun with the same question) that is requested at `address`; "" if none is.

    It is the same one after every kill, whether it has ended or not: the one at `address`, or else the first.
    """
    record = frame.run.record
    is_free, may_differ = _may_move(frame, address), _may_differ(frame, address)

    def may_be(at: str) -> bool:
        if is_free or at == address or at in record.edited or _differs(record, at):
            return True
        return may_differ and not is_before_change(record, at)

    return min(filter(may_be, alike), key=lambda at: (at != address, len(at), at), default="")


def _may_move(frame: Frame, address: str) -> bool:
    """Return whether a call requested at this address need not be the one that was begun there.

    Once one call has moved, the calls after it may move too. A call that a fork's changes lead to does not move.
    """
    is_changed = is_before_change(frame.run.record, address)
    return bool(frame.children.moved) or (_may_differ(frame, address) and not is_changed)


def _may_differ(frame: Frame, address: str) -> bool:
    """Return whether the code may request another call at this address than the one that was begun there, if any."""
    mode = frame.inherited.mode
    return not mode.strict_replay or mode.reruns(once=True) or address not in _unrequested(frame)


def _begun(record: Record, prefix: str) -> Iterator[str]:
    """Yield the calls with effect="once" in an attempt that were begun, or have the result of an earlier one.

    Steps that a fork has edited or set to run again are included, whatever their effect.
    """
    answered = (at for at, outcome in record.outcomes.items() if outcome.reused and is_call_made_once(record, outcome))
    return (at for at in chain(record.once, answered, record.edited) if prefix_beside(at) == prefix)


def _is_in_use(frame: Frame, address: str) -> bool:
    """Return whether a step, recorded or only requested, has this address."""
    record, children = frame.run.record, frame.children
    recorded = record.intents, record.outcomes, record.attempts, record.events.starts
    return any(address in addresses for addresses in (*recorded, children.asked, children.moved))


def _is_the_same(record: Record, at: str, address: str, digests: Collection[str]) -> bool:
    """Return whether the call `at` has the kind, name and key of the one at `address`, and one of these `digests`.

    A call whose question is not recorded is identified by its address.
    """
    end = record.end(at)
    asked = end.fingerprint if end else record.intended.get(at)
    if asked is None or asked not in digests:
        return asked is None and at == address
    return kinds.at(at) is kinds.at(address) and bare_name(at) == bare_name(address) and _key(at) == _key(address)


def _digests(address: str, question: codec.Json) -> Collection[str]:
    """Return the digests with which the question of a call may be recorded."""
    kind = kinds.at(address).name
    return {codec.digest([kind, form]) for form in (question, *other_forms(question))}


def _key(address: str) -> str:
    """Return the key under which a step was requested; "" if it has none."""
    _, bracket, key = leaf(address).partition("#[")
    return key.rpartition("]")[0] if bracket else ""


def _differs(record: Record, address: str) -> bool:
    """Return whether code that differed from the record has recorded the end of a step: see `Mode.differs`."""
    end = record.end(address)
    return end is not None and DIFFERS in end.provenance
