"""The answers that a kickoff is given: people's answers to questions, and the results of calls in doubt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crewlite import kinds
from crewlite.encoding.codec import encode
from crewlite.errors import AnswerRefused, ConfigError, RefError
from crewlite.runtime.kickoffs.request import Request
from crewlite.runtime.kickoffs.resumption import definition_now, facts_now
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.steps.questions import OnDrift
from crewlite.state.format.addresses import is_question
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.outcome import Outcome
from crewlite.state.format.record import Record
from crewlite.state.journal.journal import Journal
from crewlite.state.reading.fitting import Typed
from crewlite.state.reading.missing import no_step
from crewlite.state.reading.steps import calls_without_outcome
from crewlite.state.verbs.answer import check_task, misspelt, new_answers, refusal
from crewlite.state.verbs.edited_values import as_recorded, read
from crewlite.texts.secrets import Secrets
from crewlite.tools.base import as_text


def answers_given(
    root: Root[Any], journal: Journal, request: Request, *, changed: bool, on_drift: OnDrift | None = None
) -> CommitParts:
    """Check the answers passed to a kickoff, and return people's answers as commit parts.

    Recorded answers that were given before their question, and that this kickoff must not use, are withdrawn.
    `changed`: whether the kickoff's inputs differ from the recorded ones. Raises what `check_results`, `new_answers`
    and `check_task` raise.
    """
    said, record = request.answers or {}, journal.record
    check_results(record, said, journal.secrets)
    answers = new_answers(record, said, journal.secrets, changed=changed)
    for address in [one["address"] for one in answers if one["address"] not in record.asked]:
        check_task(journal.run_id, facts_now(root, journal), address)
        if doubt := misspelt(record, address, said.keys()):
            journal.warn(doubt)
    outdated = [at for at in _outdated(root, journal, changed=changed, on_drift=on_drift) if at not in said]
    if outdated:
        journal.warn(f"answers: {', '.join(outdated)} was answered ahead of a change, and will be asked")
    answers = [*(refusal(at, "it was given ahead of a change") for at in outdated), *answers]
    return {"answers": answers} if answers else {}


def approvals_given(journal: Journal, request: Request) -> CommitParts:
    """Return the commit part for `auto_approve`; {} if the kickoff does not pass it, or the record has the same."""
    wanted = request.auto_approve
    return {} if wanted is None or wanted is journal.record.auto_approve else {"auto_approve": wanted}


def check_results(record: Record, answers: Mapping[str, Any], secrets: Secrets) -> None:
    """Check the answers to a kickoff that are results of calls in doubt, and not people's answers.

    For a call that has finished, its own result is accepted, as when a program is started again. Raises AnswerRefused
    for another result, RefError for a step that takes none.
    """
    doubts = calls_without_outcome(record)
    for address, value in answers.items():
        if is_question(address) or address in doubts:
            continue
        if address in record.failures:
            waits = ", ".join(repr(asked["address"]) for asked in record.waiting)
            instead = f"the run waits for an answer to {waits}" if waits else f"rerun={[address]!r} tries it again"
            raise RefError(address, f"has failed, and takes no answer: {instead}")
        outcome = record.outcomes.get(address) if address else None
        if outcome is None:
            problem = "is no call in doubt and no question to a person, so it takes no answer"
            raise no_step(address, problem, record, sorted(doubts | record.asked.keys()))
        if not _has_result(record, outcome, value, secrets):
            raise AnswerRefused(address, "it has finished with another result, and that is kept", second=True)


def _has_result(record: Record, outcome: Outcome, value: Any, secrets: Secrets) -> bool:
    """Return whether the call with this outcome has finished with this result; False for a step that is no call."""
    kind = kinds.of(outcome.kind)
    if kind.is_call:
        return bool(record.value(outcome.address)["text"] == secrets.mask(as_text(value)))
    if not kind.holds_value:
        return False
    recorded = record.value(outcome.address)
    coded = encode(read(Typed(value), recorded) if isinstance(value, str) else value)
    try:
        return bool(secrets.mask_data(as_recorded(coded, recorded, outcome.address)) == recorded)
    except ConfigError:  # its class has completed the recorded data, so the two cannot be compared
        return True


def _outdated(root: Root[Any], journal: Journal, *, changed: bool, on_drift: OnDrift | None) -> list[str]:
    """Return the addresses of answers given before their questions that this kickoff, which may ask others, drops.

    If the inputs or the definition of a fork have changed, these are the answers that the fork has from its base. If a
    changed definition has steps run again, these are all answers given before their questions.
    """
    ahead = {at: answer for at, answer in journal.record.answers.items() if answer.get("ahead")}
    redefined = bool(ahead) and bool(definition_now(root, journal))
    if redefined and on_drift == "rerun":
        return list(ahead)
    return [at for at, answer in ahead.items() if answer.get("inherited")] if changed or redefined else []
