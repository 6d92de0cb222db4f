"""What a resume goes on with: what a record says of the kickoff that was asked for. Nothing here waits or writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from crewlite.codec import decode, digest, encode, laid_over
from crewlite.errors import (
    CheckpointIsBehind,
    ConfigError,
    InputsChanged,
    NotCodable,
    QuestionsChanged,
    RefError,
    RunMismatch,
    TaskDrifted,
)
from crewlite.ids import new_id, short
from crewlite.runtime.questions import Drifted, decide_result, is_another
from crewlite.runtime.request import Request
from crewlite.runtime.root import Root
from crewlite.secrets import Secrets
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.addresses import is_question, outers
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.record import Record
from crewlite.state.journal.journal import Journal
from crewlite.state.providers import provider_for
from crewlite.state.reading.locate import Located, locate
from crewlite.state.verbs.answer import given
from crewlite.state.verbs.fork import asked_for, check_taken


def branch_for(root: Root[Any], request: Request, config: CheckpointConfig) -> Located:
    """The branch to go on with: the one a ref names, or that of the run asked for, or a new one. Reads the disk."""
    if config.restore_from is None:
        provider = provider_for(config.location, config.provider)
        return Located(provider, config.location, str(request.run_id or new_id()), "main")
    found = locate(config.restore_from, config.location, config.provider, root.identity)
    if request.run_id not in (None, found.run_id):
        raise ConfigError(f"{config.restore_from} belongs to run {found.run_id!r}, not to run_id={request.run_id!r}")
    return found


def secrets_of(root: Root[Any], config: CheckpointConfig | None) -> Secrets:
    """What a run of this must not tell."""
    return Secrets.of(*root.secret_sources, extra={*root.redact, *((config and config.redact) or ())})


def masked(journal: Journal, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The inputs as the run may know them, and as they are recorded: without configured secrets.

    A run without a store takes any inputs; what cannot be recorded is left out of its record.
    """
    try:
        coded = encode(dict(inputs), "inputs")
    except NotCodable as error:
        if journal.queue:
            raise
        journal.warn(f"a manual checkpoint will not hold the inputs: {error}")
        return dict(inputs), {}
    known = journal.secrets.mask_data(coded)
    if known == coded:
        return dict(inputs), coded
    journal.warn("The inputs held a configured secret, which was masked")
    return decode(known), known


def inputs_of(root: Root[Any], request: Request, journal: Journal) -> tuple[dict[str, Any], CommitParts]:
    """The inputs to go on with, and how they are recorded where that is new: a fork may be given others once.

    Raises RunMismatch if the record is of something else.
    """
    record = journal.record
    recorded = record.run["definition"]
    inputs: dict[str, Any] = decode(record.run["inputs"])
    found, wanted = (recorded["kind"], recorded["name"]), (root.kind, root.name)
    if is_another(found, wanted, root.default_name):
        raise RunMismatch(
            f"Run {journal.run_id!r} is of {recorded['kind']} {recorded['name']!r}, and this is {root.kind} "
            f"{root.name!r}: kick off the definition it was started with, or choose another run_id."
        )
    if not root.shares(record, {**inputs, **(request.inputs or {})}, journal.secrets.mask):
        raise RunMismatch(
            f"Run {journal.run_id!r} is of other tasks: it has no name and no question in common with this "
            f"{root.kind}. Kick off the {root.kind} it was started with, or choose another run_id."
        )
    others: CommitParts = {}
    if request.inputs is not None:
        forked = bool(record.run.get("base"))
        given, coded = masked(journal, root.follow(record, inputs, request.inputs) if forked else request.inputs)
        if forked:
            coded = laid_over(record.run["inputs"], coded)
        if digest(coded) != digest(record.run["inputs"]):
            if not record.fresh:
                names = sorted(k for k in {*inputs, *given} if encode(inputs.get(k)) != encode(given.get(k)))
                raise InputsChanged(journal.run_id, names, kind=root.kind, branch=journal.branch)
            if forked:
                check_taken(record, request.inputs, asked_for(root.facts()) or ())
            others = {"inputs": coded}
        inputs = given
    root.check(inputs)
    return inputs, others


def kept_result(
    root: Root[Any], journal: Journal, inputs: dict[str, Any], config: CheckpointConfig
) -> tuple[Drifted, ...] | None:
    """The answers that the recorded result keeps although something else is asked now; mostly none.

    None if there is no result, or it is not returned: then the run goes on with what has changed. Raises
    QuestionsChanged, TaskDrifted.
    """
    record, mask = journal.record, journal.secrets.mask
    if not record.finished:
        return None
    fingerprint = digest([root.kind, root.question(inputs)])
    verdict, found = decide_result(record, root.compare(record, inputs), fingerprint, config.on_drift)
    drifted = [replace(one, asked={name: mask(text) for name, text in one.asked.items()}) for one in found]
    if verdict == "drifted":
        raise TaskDrifted(journal.run_id, drifted[0].address, str(drifted[0]))
    if verdict == "refused":
        changed = {one.address: str(one) for one in drifted}
        raise QuestionsChanged(journal.run_id, changed, kind=root.kind, branch=journal.branch)
    return tuple(drifted) if verdict == "stored" else None


def warn_kept(journal: Journal, drifted: Iterable[Drifted]) -> None:
    """Warn of answers that a stored result keeps though something else is asked now."""
    for one in drifted:
        what = one.address or "The result"
        journal.warn(f"{what} is finished and kept, though what it asks has changed (on_drift='keep'): it {one}")


def warn_stored(root: Root[Any], record: Record, located: Located, journal: Journal) -> None:
    """Warn where the result of a finished run answers though a checkpoint was named that more came after."""
    if after := _after(record, located):
        checkpoint = short(located.checkpoint or "")
        journal.warn(
            f"The run has finished, so its stored result answers, though checkpoint {checkpoint} was named, which "
            f"{', '.join(after)} came after. To start again there: {root.kind}.fork({checkpoint!r}).kickoff()"
        )


def check_newest(root: Root[Any], record: Record, located: Located) -> None:
    """Raises CheckpointIsBehind if the branch went on beyond the checkpoint asked for."""
    newest = record.newest_checkpoint
    if newest and (after := _after(record, located)):
        where = {"run_id": located.run_id, "branch": located.branch, "head": short(newest["id"])}
        raise CheckpointIsBehind(short(located.checkpoint or ""), **where, after=after, kind=root.kind)


def _after(record: Record, located: Located) -> list[str]:
    """What checkpoints came after the one that was named, if one was."""
    named = record.checkpoints.get(located.checkpoint or "")
    later = (p for p in record.checkpoints.values() if named and p["seq"] > named["seq"] and record.counts(p["seq"]))
    return [p["address"] or p["trigger"] for p in later]


def definition_now(root: Root[Any], journal: Journal) -> CommitParts:
    """What the commit that takes a run up says of the definition: how it stands now, where that has changed."""
    record = journal.record
    now = journal.secrets.mask_data(root.facts_now(record.run, frozenset(record.outcomes)))
    return {} if now == record.run["definition"] else {"definition": now}


def in_doubt(record: Record, settled: Iterable[str]) -> frozenset[str]:
    """The calls in doubt. Raises RefError if one is to be settled that is not."""
    doubts = frozenset(address for address in record.intents if address not in record.outcomes)
    for address in settled:
        known = doubts | record.failures.keys()
        if address not in known and address not in record.outcomes and not is_question(address):
            raise RefError(
                address,
                "is no call in doubt, no failure and no question: nothing to answer or to rerun",
                sorted(known | record.asked.keys()),
            )
    return doubts


def warn_done(journal: Journal, rerun: Iterable[str]) -> None:
    """Warn of steps that are to run again, and have finished without ever being in doubt: they answer as before."""
    record = journal.record
    if done := sorted(set(rerun) & record.outcomes.keys() - record.intents.keys()):
        journal.warn(
            f"rerun: {', '.join(done)} finished before, and is not done again in this run. Have a fork do it: "
            f"fork({journal.run_id!r}, rerun={done!r})"
        )


def answers_given(journal: Journal, request: Request, *, changed: bool) -> CommitParts:
    """The answers passed to a kickoff, as commit parts. `changed`: its inputs differ from the recorded ones."""
    answers = given(journal.record, request.answers or {}, journal.secrets, changed=changed)
    return {"answers": answers} if answers else {}


def lived(root: Root[Any], record: Record) -> dict[str, Any]:
    """What a Run knows of its earlier lives, and of the fork it is."""
    started = (event.address for event in record.events if event.type.endswith("_started"))
    begun = frozenset({"", *started, *(one["address"] for one in record.checkpoints.values())})
    return {"begun": begun, "inside": _inside(record) if root.exact else {}, "unused": _changed(record)}


def _inside(record: Record) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for address in filter(None, record.outcomes):
        found.setdefault(address[: address.rfind("/") + 1], set()).add(address)
    return {prefix: frozenset(addresses) for prefix, addresses in found.items()}


def _changed(record: Record) -> set[str]:
    """The outcomes this fork began with, or took back and has not come to since.

    But for those inside steps that have finished since and answer as a whole.
    """
    found = record.outcomes
    own = {at for at in record.edited if at not in found or found[at].seq == record.base + 1}
    return {at for at in own if found.keys().isdisjoint(outers(at))}
