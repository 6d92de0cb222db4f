"""Answers of people to the questions of a run, asked already or still to come: checked and recorded.

The check uses the recorded JSON schema. The run itself checks again, with the class that it asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from crewlite import kinds
from crewlite.encoding import codec
from crewlite.errors import AnswerRefused, BranchConflictError, RefError, did_you_mean, meant
from crewlite.ids import now
from crewlite.state.format.addresses import is_question, leaf, outers, subject
from crewlite.state.format.commit import AskedQuestion, CommitParts, GivenAnswer
from crewlite.state.format.earlier import has_other_inputs
from crewlite.state.format.record import Record
from crewlite.state.journal.journal import Journal, journal_of
from crewlite.state.journal.letters import Letter, send
from crewlite.state.journal.lineage import recorded
from crewlite.state.journal.manual import change, outcome_unless_over
from crewlite.state.providers import Commit, Store
from crewlite.state.reading.fitting import Typed, converted, misfit
from crewlite.state.verbs.from_outside import appended, commit_beside, holder
from crewlite.texts.logs import logger
from crewlite.texts.resuming import branch_ref, in_shell, to_settle
from crewlite.texts.secrets import Secrets

log = logger("crewlite.run")
_DIGITS = re.compile(r"\d+")
_MISSED = "did not record the answer: give it again once that run waits"
_TAKEN = (
    "has taken the answer and not recorded it yet, as where code blocks its event loop. It may still record it, or "
    "find that it does not fit"
)


def decode_answer(given_answer: GivenAnswer, schema: Any) -> Any:
    """Decode a recorded answer. One that was given before its question was asked is converted here."""
    value = codec.decode(given_answer["value"])
    return converted(Typed(value) if given_answer.get("typed") else value, schema)


def answer(
    store: Store, run_id: str, branch: str, address: str, value: Any, *, ahead: bool, replace: bool = False
) -> bool:
    """Record a person's answer to the question at `address`, as `History.answer` describes, and return what it returns.

    A run at work receives the answer itself: from this process at once, from another one by a letter. Raises RefError,
    AnswerRefused, BranchConflictError. Logs a warning if the address of a question that was not asked looks like a
    misspelt one.
    """
    sent: GivenAnswer | None = None
    sent_to: str | None = None  # the id of the claim of the kickoff to which it was sent last
    taken = False

    def make() -> tuple[list[Commit], tuple[bool, str]]:
        nonlocal sent, sent_to, taken
        record = recorded(store, run_id, branch)
        doubt = misspelt(record, address)
        if sent:
            if address in record.answers and record.answers[address]["at"] == sent["at"]:
                return [], (True, doubt)
            _check_is_for(sent, record)
        if journal := journal_of(record.claim, store.location):
            answered = partial(_answered, journal.record, journal.secrets, address, value, ahead=ahead)
            asked = change(journal, answered, bool, "the answer was")
            if (is_new := outcome_unless_over(journal, asked)) is not None:
                return [], (is_new, doubt)
        lives = partial(holder, store, run_id, branch, record.claim)
        by = lives()
        unused = by is None and not (record.finished or record.settled(address))
        parts = _answered(record, Secrets.of(), address, value, ahead=ahead, unused=unused, replace=replace)
        claim = record.claim["id"] if record.claim else ""
        if parts and by and claim != sent_to:  # another kickoff than that of the last letter, if there was one
            sent, sent_to = sent or parts["answers"][0], claim
            taken = send(store, record, sent, ahead=ahead, lives=lives)
            return make()
        if parts and by:
            look = in_shell(f"show {branch_ref(run_id, branch)}", store.location)
            problem = f"is being run by {by}, which {f'{_TAKEN}: {look}' if taken else _MISSED}"
            raise BranchConflictError(run_id, branch, holder=by, problem=problem)
        return [commit_beside(record, parts)] if parts else [], (bool(parts), doubt)

    is_new, doubt = appended(store, make)
    if is_new and doubt:
        log.warning("%s", doubt)
    return is_new


def receive(journal: Journal, letter: Letter) -> Future[bool]:
    """Have a run at work record the answer in a letter to this kickoff, on its thread, if it still asks that."""
    sent = letter["answer"]

    def make() -> CommitParts:
        if not journal.claim or journal.claim["id"] != letter["claim"]:
            return {}
        _check_is_for(sent, journal.record)
        value = codec.decode(sent["value"])
        parts = _answered(journal.record, journal.secrets, sent["address"], value, ahead=letter["ahead"])
        for given_answer in parts.get("answers", ()):
            given_answer["at"] = sent["at"]  # by which its sender finds it
        return parts

    return change(journal, make, bool, "the answer was")


def _check_is_for(sent: GivenAnswer, record: Record) -> None:
    """Raise RefError if the question has changed since this answer, which a letter brings, was given."""
    asked = record.asked.get(sent["address"])
    if asked and sent.get("digest", asked.get("digest")) != asked.get("digest"):
        raise RefError(sent["address"], "asks something else by now, so the answer was not recorded")


def misspelt(record: Record, address: str, others: Collection[str] = ()) -> str:
    """Return the warning about an address that was not asked and looks like a misspelt one; "" for any other.

    `others`: addresses that are answered as well, so that none of these was meant.
    """
    if address in record.asked:
        return ""
    known = [at for at in record.asked if at not in others and _DIGITS.sub("", at) != _DIGITS.sub("", address)]
    inside = next((at for at in known if leaf(at) == address), None)  # the name of a question that a step asks
    if not (hint := meant(address, known) or did_you_mean(inside)):
        return ""
    run_id = record.run["run_id"]
    return (
        f"the answer to {address} was recorded ahead: run {run_id!r} has not asked this; {hint} A rewind takes it back"
    )


def _answered(
    record: Record,
    secrets: Secrets,
    address: str,
    value: Any,
    *,
    ahead: bool,
    unused: bool = False,
    replace: bool = False,
) -> CommitParts:
    """Build the part of a commit that records an answer; {} if the question has it already.

    `unused`: whether no run can have used an answer that the question has; only such an answer can be replaced. Raises
    RefError, AnswerRefused.
    """
    asked = record.asked.get(address)
    if asked is None and (record.finished or not (ahead and is_question(address))):
        waiting = [item["address"] for item in record.waiting]
        if address in record.intents and address not in record.outcomes:
            advice = to_settle({address: record.begun_once.get(address, 1)}, kind=record.kind)
            raise RefError(address, f"is not a question but a call in doubt. {advice}")
        none = "" if waiting else ", which waits for no answer"
        raise RefError(address, f"is not an open question of run {record.run['run_id']!r}{none}", waiting)
    if asked is None:
        check_task(record.run["run_id"], record.run["definition"], address)
    else:
        _check_is_last(record, address)
        value = converted(value, asked.get("schema"))
    before = asked and record.answer_to(asked)
    if before or record.settled(address):
        if _has_answer(record, asked, _given_answer(address, value, asked, secrets)):
            return {}
        replaced = replace and unused
        if not replaced and (record.settled(address) or not (asked and before and _misfits(asked, before))):
            raise _second(record, address, unused=unused)
    if asked:
        check(asked, value, secrets.mask)
    return {"answers": [_given_answer(address, value, asked, secrets)]}


def check_task(run_id: str, definition: Mapping[str, Any], address: str) -> None:
    """Raise RefError for a question inside a task that a crew of this definition does not have."""
    outermost = [address, *outers(address)][-1]
    known = [task["address"] for task in definition.get("tasks", ())]
    if kinds.of(definition["kind"]) is kinds.CREW and kinds.at(outermost).is_task and outermost not in known:
        raise RefError(address, f"is inside no task of run {run_id!r}", known)


def _misfits(asked: AskedQuestion, answer: GivenAnswer) -> bool:
    """Return whether a recorded answer does not fit its question, so that another one may replace it."""
    schema = asked.get("schema")
    return bool(misfit(decode_answer(answer, schema), schema))


def answered_but_unused(record: Record) -> frozenset[str]:
    """Return the addresses of answered questions whose steps have not recorded the answer as their outcome yet."""
    return frozenset(asked["address"] for asked in record.current if record.answer_to(asked))


def unused_answers(record: Record) -> list[tuple[AskedQuestion | None, GivenAnswer]]:
    """Return (question, or None if it was not asked yet; answer) for each answer that the run may still use."""
    if record.finished:
        return []
    asked = {one["address"]: one for one in record.current}
    open_ = {at: asked.get(at) for at in record.answers if at in asked or at not in record.asked}
    return [
        (question, record.answers[at])
        for at, question in open_.items()
        if not record.settled(at) and "refused" not in record.answers[at]
        if question is None or record.answer_to(question)
    ]


def _check_is_last(record: Record, address: str) -> None:
    """Raise RefError if a question is about a failed attempt, and a question about a later failure was asked since."""
    last = [one["address"] for one in record.current if subject(one["address"]) == subject(address)]
    if last and address not in last:
        raise RefError(address, "is about an earlier failure than the last one", last)


def new_answers(
    record: Record, answers: Mapping[str, Any], secrets: Secrets, *, changed: bool = False
) -> list[GivenAnswer]:
    """Return the answers given to a kickoff, ready to be recorded. Leaves out answers that are recorded already.

    Answers at addresses that are not questions to people are ignored. `changed`: whether the inputs differ from the
    recorded ones, so that the run may ask other questions at the same addresses. Raises AnswerRefused for an answer
    that does not fit its recorded question, or to a question that is recorded with a different answer, RefError for an
    answer about a failed attempt that is not the last one.
    """
    recorded_answers = []
    for address, value in answers.items():
        if not is_question(address):
            continue
        other = changed or bool(record.edited) or has_other_inputs(record, address)
        asked = None if other else record.asked.get(address)
        if asked:
            _check_is_last(record, address)
        fitted = converted(value, asked.get("schema")) if asked else value
        given_answer = _given_answer(address, fitted, asked, secrets)
        if other or not _is_recorded(record, asked, given_answer):
            if asked:
                check(asked, fitted, secrets.mask)
            recorded_answers.append(given_answer)
    return recorded_answers


def refusal(address: str, problem: str) -> GivenAnswer:
    """Build the record that withdraws an answer that does not fit, so that its question is open again."""
    return {"address": address, "value": None, "at": now().isoformat(), "refused": problem}


def _given_answer(address: str, value: Any, asked: AskedQuestion | None, secrets: Secrets) -> GivenAnswer:
    """Build the record of an answer to the question `asked`; None means a question that is still to be asked."""
    is_typed = isinstance(value, Typed)
    coded = secrets.mask_data(codec.encode_to_keep(str(value) if is_typed else value, f"the answer to {address}"))
    given_answer: GivenAnswer = {"address": address, "value": coded, "at": now().isoformat()}
    if asked:
        return given_answer | ({"digest": asked["digest"]} if "digest" in asked else {})
    return given_answer | {"ahead": True} | ({"typed": True} if is_typed else {})


def _is_recorded(record: Record, asked: AskedQuestion | None, given_answer: GivenAnswer) -> bool:
    """Return whether this answer is recorded already. Raises AnswerRefused if the question has a different answer."""
    address = given_answer["address"]
    before = asked and record.answer_to(asked)
    if not before and address not in record.outcomes:
        return record.settled(address)
    same = _has_answer(record, asked, given_answer)
    if not same and (before or not _may_be_same(given_answer["value"], record.value(address))):
        raise _second(record, address, unused=not record.settled(address))
    return True


def _second(record: Record, address: str, *, unused: bool) -> AnswerRefused:
    """Return the error of an answer to a question that has an answer already, or whose time has passed."""
    timed_out = address in record.outcomes and "late" in record.value(address)
    problem = "nobody answered it in time" if timed_out else "it has an answer already"
    return AnswerRefused(address, f"{problem}, and that is kept", second=True, unused=unused)


def _has_answer(record: Record, asked: AskedQuestion | None, given_answer: GivenAnswer) -> bool:
    """Return whether a question has this very answer: recorded for it, or in the outcome of its step."""
    address = given_answer["address"]
    if before := asked and record.answer_to(asked):
        known = codec.encode(decode_answer(before, asked.get("schema")))
    elif address in record.outcomes and "answer" in record.value(address):
        known = record.value(address)["answer"]
    else:
        return False
    return codec.digest(known) == codec.digest(given_answer["value"])


def _may_be_same(value: Any, recorded: Any) -> bool:
    """Return whether an answer may be the one from which the recorded outcome of its question was made.

    Returns True if the schema has converted the answer to another type, because the two cannot be compared then.
    """
    if "answer" not in recorded:  # the question timed out
        return False
    made = recorded["answer"]
    return type(value) is not type(made) or isinstance(value, dict) or codec.digest(value) == codec.digest(made)


def check(asked: AskedQuestion, value: Any, mask: Callable[[str], str]) -> None:
    """Raise AnswerRefused, with secrets masked, if the value does not fit the recorded schema of the question.

    A choice that holds a secret is masked in that schema, so a text is compared as it would be recorded.
    """
    if problem := misfit(mask(value) if isinstance(value, str) else value, asked.get("schema")):
        raise AnswerRefused(asked["address"], mask(problem))
