"""A commit and its parts: the data of one entry of a journal, as types, and the reader that checks them.

The types are typed mappings, not classes: the parsed JSON is the commit itself, so nothing is copied in either
direction, and keys that a later release of the same schema writes are kept.

A checksum proves that a commit was not changed after it was sealed, not that crewlite sealed it. So `read_commit`
checks every commit once when it is read, and all other code relies on its type.

Data of users (`value`, `inputs`, `metadata`) may have any type: the codec decodes them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, NotRequired, cast

from pydantic import AfterValidator, ConfigDict, Field, GetPydanticSchema, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from crewlite import kinds
from crewlite.encoding.codec import JsonObject
from crewlite.state.format.failed import ErrorRecord, SaidRecord
from crewlite.state.format.fields import (
    BranchName,
    Coded,
    Drop,
    Event,
    Hex,
    Inputs,
    Intent,
    Number,
    Operations,
    Recorded,
    RunName,
    Text,
    Time,
)
from crewlite.state.format.forms import check_outcome, check_recorded_inputs
from crewlite.usage import UsageRecord

STRICT = ConfigDict(strict=True, hide_input_in_errors=True)


def read_commit(data: JsonObject) -> CommitData:
    """Check that `data` is a commit, and return it. Raises ValueError with the first problem if it is not."""
    try:
        _reader()(data)
    except ValidationError as error:
        raise ValueError(first_problem(error, "the commit")) from None
    return cast(CommitData, data)


def invalidated(address: str, kind: str) -> StepRecord:
    """Build the tombstone of a finished step: from this commit on, its outcome is void, and the step runs again."""
    return {"address": address, "kind": kind, "again": True, "ms": 0.0}


def is_numbered(compacted: Compacted | None) -> bool:
    """Return whether everything in a commit has the number of the commit that recorded it.

    Compactions by early releases gave everything the number of the last commit that they merged.
    """
    return compacted is None or "claims" in compacted


def check_checkpoint(checkpoint: CheckpointRecord, seq: int) -> None:
    """Raise ValueError unless commit `seq` can hold this checkpoint: its own, or an earlier commit's with checksum."""
    if checkpoint["seq"] > seq or ("sum" not in checkpoint and checkpoint["seq"] < seq):
        raise ValueError(
            f"it is commit {seq} and holds a checkpoint of commit {checkpoint['seq']} without its checksum"
        )


def first_problem(error: ValidationError, whole: str) -> str:
    """Return the path and text of pydantic's first problem, without the data. `whole` names the data as a whole."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg'].removeprefix('Value error, ')}"


class CommitParts(TypedDict, total=False):
    """The possible parts of a commit. Callers give the parts; `next_entry` adds number and time, and seals it."""

    run: CheckedRunStart
    """The start of the branch, in its first entry."""
    rewind: RewindTarget
    """A rewind to an earlier entry of the branch. The entries between can be read, and are no longer valid."""
    claim: Claim
    """The process that writes the branch from here on."""
    released: bool
    """Ends the claim: no process writes the branch any more."""
    died: bool
    """Says of a release by another process: the holder of the claim had died."""
    cancelled: bool
    """Marks the run as stopped by a user, until the next claim."""
    stopped: Text
    """Names the budget that has stopped the run, until the next claim."""
    definition: CheckedDefinition
    """The definition from here on, if it has changed."""
    inputs: Inputs
    """The inputs from here on, if they have changed."""
    auto_approve: bool
    """Whether calls of tools that require approval are approved from here on."""
    steps: list[CheckedStep]
    """Outcomes, failed attempts, and tombstones of finished steps."""
    intents: list[Intent]
    """Calls about to be made: (address, effect), with "once" the digest of its question; "none" later ends a doubt."""
    arguments: dict[Text, Text]
    """The beginning of the arguments, as JSON, of intended calls that a person has approved and may have changed."""
    made: list[MadeCall]
    """The calls with effect="once" in the commits that a compaction has merged."""
    asked: list[AskedQuestion]
    answers: list[GivenAnswer]
    events: list[Event]
    place: CheckpointRecord
    """A checkpoint that this commit creates."""
    drops: list[Drop]
    """Checkpoints that this commit removes: (id, id of the parent)."""
    keep: Number
    """The setting `max_checkpoints` that led to the drops."""
    folded: Compacted
    """The commits that this one replaces, after a compaction."""
    copied: list[Hex]
    """The checksums of commits up to which the branch was copied from elsewhere: a compaction may merge those."""
    usage: UsageRecord
    """Usage that belongs to no step in this commit."""
    usage_inside: dict[Text, UsageRecord]
    """The part of `usage` that was used inside steps, by address."""
    worked: list[TimeAtWork]
    values: ValueChanges
    late: list[LateChanges]
    """Changes that handlers made to the state of steps after their end."""


@with_config(STRICT)
class CommitData(CommitParts):
    """The data of one entry."""

    schema: Number
    seq: Number
    """The number of the entry in its branch, from 1. A fork continues the numbers of its base."""
    at: Time


class RunStart(TypedDict):
    """The start of a run or of a fork. A fork has a `base`, the entry that it starts from, and no inputs."""

    run_id: RunName
    branch: BranchName
    uid: Text
    identity: Text
    definition: RecordedDefinition
    inputs: NotRequired[Inputs]
    turns: NotRequired[dict[Hex, RunName]]  # the latest ones of its state, by digests of their operations
    base: NotRequired[ForkBase | None]


class DefinitionFacts(TypedDict):
    """The recorded definition of a run. A fork records only kind and name."""

    kind: Text
    name: Text
    tasks: NotRequired[list[TaskFacts]]


class TaskFacts(TypedDict):
    """A task of a crew."""

    address: Text
    description: Text
    name: NotRequired[Text | None]


class ForkBase(TypedDict):
    """The entry that a fork starts from, and the checkpoint there."""

    branch: BranchName
    seq: Number
    sum: Hex
    place: CheckpointRecord | None
    operation: NotRequired[Text]


class RewindTarget(TypedDict):
    """A rewind: the run continues from the state after this earlier entry. Its seal follows the entry before."""

    seq: Number
    sum: Hex
    reason: NotRequired[Text]


class Claim(TypedDict):
    """The process that has acquired a branch: from this commit on, only that process may write to the branch."""

    id: Text
    host: Text
    boot: Text
    pid: Annotated[int, Field(ge=1, lt=2**31)]
    started: int | None


class StepRecord(TypedDict):
    """The outcome of a step; with `error`, a failed attempt; with `again`, a tombstone, by which its outcome is void.

    `at` is its time, if that differs from the time of the commit, as it may after a compaction.
    """

    address: Text
    kind: Text
    attempt: NotRequired[Number]
    again: NotRequired[bool]
    edited: NotRequired[bool]
    at: NotRequired[Time]
    recorded: NotRequired[Recorded]
    """The commit that recorded it, and its index there, after a compaction."""
    ms: Annotated[float, Field(gt=-1e13, lt=1e13)]  # so that the time at which the step began is a date
    error: NotRequired[ErrorRecord]
    fingerprint: NotRequired[Text]
    value: NotRequired[Any]
    digest: NotRequired[Text]
    usage: NotRequired[UsageRecord | None]
    means: NotRequired[dict[Text, Text]]
    label: NotRequired[Text]
    reused: NotRequired[Text]
    question: NotRequired[dict[Text, Text]]
    drifted: NotRequired[list[Text]]
    said: NotRequired[SaidRecord]
    worked: NotRequired[Annotated[float, Field(ge=0, allow_inf_nan=False)]]
    """For how many milliseconds all attempts worked, after a compaction that has left out the steps inside."""
    unused: NotRequired[list[Text]]
    """Steps inside this one that a fork has inherited, and that the code of this step has not requested there."""
    calls: NotRequired[list[Text]]
    """The addresses of the calls that this reply requests, if they do not follow from the order of the calls."""
    state: NotRequired[Operations]
    """The changes that the step made to the state of the enclosing step."""
    order: NotRequired[list[int]]
    """Of an edit: the position of the outcome before it among all steps."""


class Compacted(TypedDict):
    """The commits that one commit replaces after a compaction: the number of the first, the checksum of the last."""

    first: Number
    sum: Hex
    claims: NotRequired[list[Number]]
    """The numbers of the commits with which claims began or ended. See `is_numbered`."""
    events: NotRequired[list[Number]]
    """The number of the commit of each event; left out if there are no events."""


class LateChanges(TypedDict):
    """Changes that handlers made to the state of a step after its end."""

    address: Text
    ops: Operations
    order: NotRequired[list[int]]


class TimeAtWork(TypedDict):
    """How long a step had worked, in all kickoffs, when a budget stopped the run."""

    address: Text
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    at: Time


class MadeCall(TypedDict):
    """A call with effect="once" that was made; `seq` is the number of the commit that recorded its intent."""

    address: Text
    seq: Number
    at: Time
    arguments: Text
    finished: bool


class AskedQuestion(TypedDict):
    """A question that the run asked a person."""

    address: Text
    question: Text
    at: Time
    seq: NotRequired[Number]
    """The number of the commit that recorded it, after a compaction."""
    schema: NotRequired[Any]
    name: NotRequired[Text | None]
    until: NotRequired[Time | None]
    digest: NotRequired[Text]
    rests_on: NotRequired[Text]
    """The digest of what the question depends on besides its text: the questions of the enclosing steps."""


class GivenAnswer(TypedDict):
    """A person's answer to the question with this digest, or `ahead` of it. `refused` withdraws it, and says why."""

    address: Text
    value: Any
    at: Time
    digest: NotRequired[Text]
    ahead: NotRequired[bool]
    typed: NotRequired[bool]
    refused: NotRequired[Text]
    inherited: NotRequired[bool]
    """Never written: a fork has the answer from its base."""


class CheckpointRecord(TypedDict):
    """A recorded checkpoint: it shows the run after commit `seq`, whose `sum` it holds if a later commit records it."""

    id: Hex
    seq: Number
    parent: Hex | None
    trigger: Text
    address: Text
    about: dict[Text, Any]
    at: Time
    label: NotRequired[Text | None]
    metadata: NotRequired[Coded]
    sum: NotRequired[Hex]
    version: NotRequired[Number]


class ValueChanges(TypedDict, total=False):
    """Changes of the named values that are not part of a step."""

    ops: Operations
    """Changes of values that were made outside of the steps."""
    seen: Operations
    """Other changes that the run's code sees, to be applied before the changes of the steps in this commit."""
    seen_after: Operations
    """Like `seen`, to be applied after the changes of the steps, in a commit that replaces several."""
    set: dict[Text, Any]
    """New values, encoded. With `gone`, the form in which earlier releases recorded `ops`."""
    gone: list[Text]
    """Names of deleted values."""
    versions: dict[Text, Number]
    """The numbers of changes since the run began, where they do not follow from the changes recorded here."""
    restored: Hex | None
    """The id of the checkpoint whose values were restored; None again after the next snapshot."""


def _check_definition(definition: JsonObject) -> JsonObject:
    if kinds.of(definition["kind"]) is kinds.CREW and "tasks" not in definition:
        raise ValueError("a crew without tasks")
    return definition


def _check_run(run: RunStart) -> RunStart:
    if not run.get("base"):
        if "inputs" not in run:
            raise ValueError("neither inputs nor a base")
        _check_definition(run["definition"])
    if "inputs" in run:
        check_recorded_inputs(run["definition"]["kind"], run["inputs"])
    return run


def _check_step(step: StepRecord) -> StepRecord:
    outcome = "value" in step and "fingerprint" in step and "digest" in step
    if not outcome and "error" not in step and not step.get("again"):
        raise ValueError("neither an outcome nor an error")
    if "value" in step:
        check_outcome(step["address"], step["kind"], step["value"])
    return step


def _check_commit(commit: CommitData) -> CommitData:
    seq, checkpoint, run = commit["seq"], commit.get("place"), commit.get("run")
    base = run.get("base") if run else None
    if folded := commit.get("folded"):
        events = len(commit.get("events", ()))
        if folded["first"] > seq:
            raise ValueError("it ends before it begins")
        if "events" in folded and len(folded["events"]) != events:
            raise ValueError(f"it has {events} events, and lists the commits of {len(folded['events'])}")
    if checkpoint:
        check_checkpoint(checkpoint, seq)
    if base and (base["seq"] >= seq or (base["place"] and base["place"]["seq"] > base["seq"])):
        raise ValueError("the fork starts from a later commit")
    if (back := commit.get("rewind")) and (run or back["seq"] >= commit.get("folded", {}).get("first", seq)):
        raise ValueError("the rewind goes back to no earlier commit")
    return commit


RecordedDefinition = Annotated[JsonObject, GetPydanticSchema(lambda _, schema_of: schema_of(DefinitionFacts))]
"""The recorded settings of a definition, by name. `DefinitionFacts` has those that every reader may rely on."""
CheckedDefinition = Annotated[RecordedDefinition, AfterValidator(_check_definition)]
CheckedRunStart = Annotated[RunStart, AfterValidator(_check_run)]
CheckedStep = Annotated[StepRecord, AfterValidator(_check_step)]


@cache
def _reader() -> Callable[[JsonObject], object]:
    """Build the reader at its first use, as that takes time that an import should not."""
    return TypeAdapter(Annotated[CommitData, AfterValidator(_check_commit)]).validator.validate_python
