"""Decide how a kickoff resumes a recorded run: its branch, inputs and stored result. Nothing here writes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from crewlite import kinds
from crewlite.concurrency.background import in_thread
from crewlite.encoding.codec import decode, digest, encode, laid_over
from crewlite.encoding.comparable import copied_apart
from crewlite.encoding.instances import copied
from crewlite.errors import (
    CheckpointIsBehind,
    ConfigError,
    InputsChanged,
    JournalCorrupt,
    NotCodable,
    QuestionsChanged,
    RefError,
    RunMismatch,
    TaskDrifted,
)
from crewlite.ids import new_id, short
from crewlite.lazy import lazy
from crewlite.refs import STUDIES
from crewlite.runtime.kickoffs.advice import to_run_again
from crewlite.runtime.kickoffs.request import Request
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.kickoffs.secret_inputs import learn, names_of_masked, refuse_masked, with_secrets
from crewlite.runtime.steps.questions import Drifted, OnDrift, decide_result, is_another
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.record import Record
from crewlite.state.journal.journal import Journal
from crewlite.state.journal.lineage import each_readable, recorded
from crewlite.state.providers import exists, known_ends, opened, provider_for
from crewlite.state.reading.located import Located
from crewlite.state.reading.missing import no_step
from crewlite.state.reading.steps import calls_without_outcome
from crewlite.state.verbs.accepted_inputs import check_accepted, inputs_of_definition
from crewlite.texts.resuming import branch_ref, in_shell, nth_attempt
from crewlite.texts.secrets import Secrets

if TYPE_CHECKING:
    from crewlite.state.reading import locate
    from crewlite.state.verbs import fork
else:  # only for `restore_from`, and for errors of refused resumes
    locate, fork = lazy("crewlite.state.reading.locate"), lazy("crewlite.state.verbs.fork")


def branch_for(root: Root[Any], request: Request, config: CheckpointConfig) -> Located:
    """Return the branch to resume: the one a ref names, else main of the run `run_id` or of a new run. Reads the store.

    Raises RefError, and ConfigError if the ref belongs to another run than `run_id`.
    """
    if config.restore_from is None:
        provider = provider_for(config.location, config.provider)
        return Located(provider, config.location, str(request.run_id or new_id()), "main")
    found = locate.locate(config.restore_from, config.location, config.provider, root.identity)
    if request.run_id not in (None, found.run_id):
        raise ConfigError(f"{config.restore_from} belongs to run {found.run_id!r}, not to run_id={request.run_id!r}")
    locate.check_not_abandoned(found)
    return found


def newest_unfinished(
    root: Root[Any], inputs: Mapping[str, Any], config: CheckpointConfig, secrets: Secrets, passed: Collection[str]
) -> Located | None:
    """Return the newest run of this definition with these inputs that has no result yet; None if there is none.

    Forks and the run ids in `passed` are skipped. Reads the journals of this definition's runs without a result, newest
    first, up to the one found. A damaged run is skipped with a warning. Raises StoreError for one that cannot be read
    at the moment.
    """
    provider = provider_for(config.location, config.provider)
    if not exists(config.location, provider):
        return None
    wanted = secrets.mask_data(encode(dict(inputs), "inputs"))
    with opened(provider, config.location) as store:
        mains = {(one.run_id, one.branch): one for one in store.branches() if one.base is None}
        mine = {key: one for key, one in mains.items() if one.identity == root.identity and one.run_id not in passed}
        over = known_ends(store, mine)
        others = (one for key, one in mine.items() if over.get(key) != "finished")
        read = each_readable(others, lambda info: recorded(store, info.run_id, info.branch), JournalCorrupt)
        for record in read:  # StoreError for one ends this: a new run would pay again for what that one holds
            if not record.finished and not root.changed_inputs(record.run, wanted):
                return Located(provider, config.location, record.run["run_id"], record.run["branch"])
    return None


def secrets_of(root: Root[Any], config: CheckpointConfig | None) -> Secrets:
    """Return the secrets that a run of this definition must not store or show."""
    return root.secrets.knowing(extra=(config and config.redact) or ())


def masked(journal: Journal, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the inputs for the run, and the inputs to record, both with configured secrets masked.

    A run without a store accepts inputs that cannot be encoded, and leaves all inputs out of its record. With a store
    they raise NotCodable.
    """
    learn(journal, inputs)
    try:
        coded = encode(dict(inputs), "inputs")
    except NotCodable as error:
        if journal.queue:
            raise
        journal.warn(f"a manual checkpoint will not hold the inputs: {error}")
        return {name: copied_apart(value) for name, value in inputs.items()}, {}
    known = journal.secrets.mask_data(coded)
    if known == coded:
        return {name: copied(value) for name, value in inputs.items()}, coded  # the caller may change its own
    journal.warn("The inputs held a configured secret, which was masked")
    return with_secrets(inputs, known), known


def inputs_of(root: Root[Any], request: Request, journal: Journal) -> tuple[dict[str, Any], CommitParts]:
    """Return (inputs, commit parts) for a resume. The parts record the inputs if a fork was given new ones.

    The first kickoff of a fork may change its inputs. Raises RunMismatch if the record belongs to another definition,
    InputsChanged if the inputs differ from recorded ones that cannot change any more, and what `root.check` raises.
    """
    record = journal.record
    inputs: dict[str, Any] = decode(record.run["inputs"], root.classes)
    check_definition(root, record, {**inputs, **(request.inputs or {})}, journal.secrets.mask)
    operation = request.operation_id and digest(request.operation_id)
    if operation and record.run.get("turns", {}).get(operation) != journal.run_id:
        raise _inputs_changed(root, request, journal, ["operation_id"])
    forked = bool(record.run.get("base"))
    asked = request.inputs_of_caller if forked else request.inputs  # a fork has its own preset inputs
    if asked is None:
        root.find_turn(record, None)
        root.check_recorded(inputs, journal.run_id)
        return inputs, {}
    given, coded = masked(journal, root.fork_inputs(record, inputs, asked) if forked else asked)
    if forked:
        coded = laid_over(record.run["inputs"], coded)
    if (further := root.find_turn(record, coded)) is not None:
        root.check(given)
        return inputs, further
    if digest(coded) == digest(record.run["inputs"]):
        root.check(given)
        return given, {}
    if not (names := root.changed_inputs(record.run, coded)):
        root.check_recorded(inputs, journal.run_id)
        return inputs, {}
    if not record.fresh:
        refuse_masked(journal, given)
        preset, hidden = [name for name in names if name in request.preset], names_of_masked(record.run["inputs"])
        raise _inputs_changed(root, request, journal, names, set_before=preset, masked=hidden)
    check_accepted(record, asked, inputs_of_definition(root.facts()) or ())
    root.check(given)
    return given, {"inputs": coded}


def _inputs_changed(
    root: Root[Any], request: Request, journal: Journal, names: Sequence[str], **more: Any
) -> InputsChanged:
    turn = ("finished" if journal.record.finished else "unfinished") if request.state_turn else ""
    return InputsChanged(journal.run_id, names, kind=root.kind, branch=journal.branch, turn=turn, **more)


def check_of_run_at_work(root: Root[Any], request: Request, secrets: Secrets, found: Located, record: Record) -> None:
    """Raise the error that `inputs_of` would raise once a running run has ended: mostly InputsChanged.

    Does nothing in two cases: for a conversation, which takes further messages once it has answered the present ones;
    and for a kickoff that asks for another turn of a state than the running one, which begins the next turn then.
    """
    if request.inputs is not None and not kinds.of(root.kind).takes_messages:
        is_same_turn(root, request, Journal(found.run_id, found.branch, record, secrets))


def is_same_turn(root: Root[Any], request: Request, journal: Journal) -> bool:
    """Return whether the run is the one that a kickoff asks for, and not another turn of its state.

    Raises what `inputs_of` does.
    """
    if journal.record.seq:
        try:
            inputs_of(root, request, journal)
        except InputsChanged:
            if not request.state_turn:
                raise
            return False
    return True


async def kept_result(
    root: Root[Any], journal: Journal, inputs: dict[str, Any], config: CheckpointConfig, found: Located
) -> tuple[Drifted, ...] | None:
    """Return the drifted steps whose answers the stored result keeps (mostly none), if that result is to be returned.

    Returns None if the run has no result yet, or is to run the steps whose questions have changed. Raises
    QuestionsChanged, TaskDrifted.
    """
    try:
        if root.address:
            return _drift_of_answer(root, journal, inputs, config)
        return drift_of_result(root, journal.record, inputs, config.on_drift, journal.secrets.mask)
    except QuestionsChanged as error:
        raise await in_thread(fork.with_fork_advice, error, found) from None


def check_definition(root: Root[Any], record: Record, inputs: dict[str, Any], mask: Callable[[str], str]) -> None:
    """Raise RunMismatch if the record belongs to another definition."""
    run_id, recorded = record.run["run_id"], record.run["definition"]
    found, wanted = (recorded["kind"], recorded["name"]), (root.kind, mask(root.name))
    if is_another(found, wanted, root.default_name):
        field = "role" if root.kind == kinds.AGENT.name else "name"
        renamed = f" If only its {field} has changed since, set {field}={recorded['name']!r}."
        raise RunMismatch(
            f"Run {run_id!r} is of {recorded['kind']} {recorded['name']!r}, and this is {root.kind} {wanted[1]!r}."
            f"{renamed if found[0] == wanted[0] else ''} Kick off the definition that the run was started with, or "
            f"choose another run_id."
        )
    if not root.shares(record, inputs, mask):
        raise RunMismatch(
            f"Run {run_id!r} has other tasks: it has no task name and no task text in common with this "
            f"{root.kind}. Kick off the {root.kind} it was started with, or choose another run_id. Tasks whose texts "
            f"change need names: Task(name=...)."
        )


def drift_of_result(
    root: Root[Any], record: Record, inputs: dict[str, Any], on_drift: OnDrift | None, mask: Callable[[str], str]
) -> tuple[Drifted, ...] | None:
    """Return the drifted steps that the stored result keeps; None if the run is to go on. Not for conversations.

    Raises what `kept_result` raises.
    """
    if not record.finished:
        return None
    run = record.run
    fingerprint = digest([root.kind, root.question(inputs)])
    verdict, found = decide_result(record, root.compare(record, inputs), fingerprint, on_drift)
    drifted = [replace(one, asked={name: mask(text) for name, text in one.asked.items()}) for one in found]
    if verdict == "drifted":
        raise TaskDrifted(run["run_id"], drifted[0].address, str(drifted[0]))
    if verdict == "refused":
        changed = {one.address: str(one) for one in drifted}
        raise QuestionsChanged(run["run_id"], changed, kind=root.kind, branch=run["branch"])
    return tuple(drifted) if verdict == "stored" else None


def _drift_of_answer(
    root: Root[Any], journal: Journal, inputs: dict[str, Any], config: CheckpointConfig
) -> tuple[Drifted, ...]:
    """Return the steps in an earlier answer of a conversation that keep their answers though their questions changed.

    Raises QuestionsChanged if they must not be kept.
    """
    drifted = root.compare(journal.record, inputs).drifted
    if drifted and config.on_drift != "keep":
        changed = {one.address: str(one) for one in drifted}
        raise QuestionsChanged(journal.run_id, changed, kind=root.kind, branch=journal.branch)
    return drifted


def warn_kept(journal: Journal, drifted: Iterable[Drifted]) -> None:
    """Log a warning for each recorded answer that is used although its question has changed since."""
    for one in drifted:
        what = one.address or "The result"
        journal.warn(f"{what} is finished and kept, though it is asked something else now (on_drift='keep'): it {one}")


def warn_stored(root: Root[Any], record: Record, located: Located, journal: Journal) -> None:
    """Warn that a finished run returns its stored result although the kickoff asked for an earlier checkpoint."""
    after, gone = _after(record, located), _is_abandoned(record, located)
    if after or gone:
        checkpoint = short(located.checkpoint or "")
        why = "is abandoned" if gone else f"{', '.join(after)} came after it"
        journal.warn(
            f"The run has finished, so its stored result is returned, although checkpoint {checkpoint} was named and "
            f"{why}. To continue from there: {root.kind}.fork({checkpoint!r}).kickoff(), or "
            f"{in_shell(f'fork {checkpoint}', journal.location or '')}"
        )


def check_newest(root: Root[Any], record: Record, located: Located) -> None:
    """Raise CheckpointIsBehind if the named checkpoint is not the newest, RefError if a rewind abandoned it."""
    newest = record.checkpoints.newest
    if _is_abandoned(record, located):
        name = f"{located.run_id}/{located.branch}"
        problem = f"was abandoned when {name} was rewound: fork it, rewind {name} to it, or resume {name}"
        raise RefError(short(located.checkpoint or ""), problem)
    if newest and (after := _after(record, located)):
        where = {"run_id": located.run_id, "branch": located.branch, "head": short(newest["id"])}
        raise CheckpointIsBehind(short(located.checkpoint or ""), **where, after=after, kind=root.kind)


def _is_abandoned(record: Record, located: Located) -> bool:
    named = record.checkpoints.get(located.checkpoint or "")
    return named is not None and not record.is_valid(named["seq"])


def _after(record: Record, located: Located) -> list[str]:
    """Return the distinct addresses (or triggers) of the checkpoints after the named one; [] if none was named."""
    named = record.checkpoints.get(located.checkpoint or "")
    later = (p for p in record.checkpoints.values() if named and p["seq"] > named["seq"] and record.is_valid(p["seq"]))
    return list(dict.fromkeys(p["address"] or p["trigger"] for p in later))


def check_variant(root: Root[Any], request: Request, journal: Journal) -> None:
    """Raise ConfigError for a kickoff that would change the result of a variant of a study.

    That is a kickoff that continues a finished variant, or an unfinished one with another definition than it began
    with.
    """
    if request.of_study or not journal.branch.startswith(STUDIES):
        return
    ref = f"{journal.run_id}/{journal.branch}"
    fork = f"fork it: {root.kind}.fork({ref!r}).kickoff()"
    if journal.record.finished:
        raise ConfigError(
            f"{ref} is a finished variant of a study, and this kickoff would change its result, which the study uses "
            f"when you explore it again. To continue from the variant, {fork}"
        )
    if definition_now(root, journal):
        raise ConfigError(
            f"{ref} is a variant of a study, and began with another {root.kind} than this one. To finish it, call "
            "explore again with the same arguments, or kick off the variant's own: study[NAME].definition. "
            f"To continue from the variant with this {root.kind}, {fork}"
        )


def definition_now(root: Root[Any], journal: Journal) -> CommitParts:
    """Return the commit part that records the definition as it is now; {} if it has not changed."""
    now = facts_now(root, journal)
    return {} if now == journal.record.run["definition"] else {"definition": now}


def facts_now(root: Root[Any], journal: Journal) -> dict[str, Any]:
    """Return the facts of the definition as it is now, to be recorded, with secrets masked."""
    record = journal.record
    facts = root.facts_now(record.run, frozenset(record.outcomes)) if record.seq else root.facts()
    return cast("dict[str, Any]", journal.secrets.mask_data(facts))


def check_rerun(journal: Journal, rerun: Mapping[str, int], kind: str) -> None:
    """Warn about steps in `rerun` that are not run again: those that have finished, or are inside one that has.

    `kind`: the kind of the run.

    They are no error, as a program that is started again passes the same steps, which have finished since. Raises
    RefError for an address that is neither a call in doubt nor a step that has failed or finished, and for an attempt
    at a call that was not made.
    """
    record = journal.record
    known = calls_without_outcome(record) | (record.attempts.keys() - record.outcomes.keys() - {""})
    for address, attempt in rerun.items():
        if address not in known and (not address or address not in record.outcomes):
            problem = "is no call in doubt, and has neither failed nor finished: it cannot be run again"
            candidates = [*sorted(known), *filter(None, record.outcomes)]
            raise no_step(address, problem, record, candidates)
        of_finished = attempt if record.is_once(address) else 1  # their attempts are not counted
        if (times := record.begun_once.get(address, of_finished)) < attempt:
            raise not_made(address, attempt, times)
    if done := sorted(at for at in rerun if at not in known or record.finished or record.is_inside(at)):
        ref = branch_ref(journal.run_id, journal.branch)
        call, words = to_run_again(kind, ref, record, done)
        how = "has finished" if known.isdisjoint(done) else "is part of what has finished"
        journal.warn(
            f"rerun: {', '.join(done)} {how}, and is not run again in this run. To run it again, fork: "
            f"{call}, or {in_shell(shlex.join(['fork', ref, *words]), journal.location or '')}"
        )


def not_made(address: str, attempt: int, times: int) -> RefError:
    """Return the error of a rerun that names an attempt at a call that was not made. `times`: how many were made."""
    problem = f"names attempt {attempt} at a call that was begun {'once' if times == 1 else f'{times} times'}"
    return RefError(nth_attempt(address, attempt), problem, [nth_attempt(address, times)])
