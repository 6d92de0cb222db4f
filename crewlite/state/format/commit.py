"""A commit and its parts: what one entry of a journal says, as types, and the reader that checks it.

These are typed mappings, not classes: the JSON that is read is the commit itself, so nothing is copied in either
direction, and keys that a later release of the same schema writes are kept.

A checksum proves that a commit is what was sealed, not that crewlite sealed it: whoever can write to a store can seal
anything. So `read_commit` checks every commit that is read, once, and all other code relies on its type.

What a run recorded as data (`value`, `inputs`, `metadata`) may be of any kind: the codec reads that.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, NotRequired, cast

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    TypeAdapter,
    ValidationError,
    with_config,
)
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from crewlite import kinds
from crewlite.codec import JsonObject
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
    RunName,
    Text,
    Time,
)
from crewlite.usage import UsageRecord

STRICT = ConfigDict(strict=True, extra="allow", hide_input_in_errors=True)


def read_commit(data: JsonObject) -> Commit:
    """`data` itself, once it is checked to be a commit. Raises ValueError that names the first problem."""
    try:
        _reader().validate_python(data)
    except ValidationError as error:
        raise ValueError(first_problem(error, "the commit")) from None
    return cast(Commit, data)


def invalidated(address: str, kind: str) -> StepRecord:
    """The tombstone of a finished step: its outcome is void from here on, and the step runs again."""
    return {"address": address, "kind": kind, "again": True, "ms": 0.0}


def check_checkpoint(checkpoint: CheckpointRecord, seq: int) -> None:
    """Raises ValueError unless commit `seq` can name this checkpoint: at itself, or at an earlier commit by its sum."""
    if checkpoint["seq"] > seq or ("sum" not in checkpoint and checkpoint["seq"] < seq):
        raise ValueError(f"it is commit {seq} and names a checkpoint at commit {checkpoint['seq']}, which is not here")


def first_problem(error: ValidationError, whole: str) -> str:
    """Where, in what, data first has not its format, and how; nothing of the data itself. `whole`: all of it."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg'].removeprefix('Value error, ')}"


class CommitParts(TypedDict, total=False):
    """What a commit may say. Whoever makes a commit gives its parts; `next_entry` numbers, dates and seals it."""

    run: CheckedRunStart
    """Begins a branch."""
    rewind: Rewind
    """This entry stands on an earlier one of its own branch. Those between stay readable and no longer count."""
    claim: Claim
    """Who writes from here on."""
    released: bool
    """Nobody writes any more."""
    cancelled: bool
    """The run was stopped on purpose: until the next claim."""
    definition: CheckedDefinition
    """As it stands from here on, where it changed."""
    inputs: Inputs
    """As they stand from here on, where they changed."""
    steps: list[CheckedStep]
    """Outcomes, failed attempts and tombstones of finished steps."""
    intents: list[Intent]
    """Calls about to be made."""
    asked: list[AskedQuestion]
    answers: list[GivenAnswer]
    events: list[Event]
    """What was emitted, light."""
    place: CheckpointRecord
    """Names a checkpoint."""
    drops: list[Drop]
    """Checkpoints taken away, each with its parent."""
    keep: Number
    """How many checkpoints the drops left, by the setting of the run."""
    folded: Compacted
    """This commit stands for several."""
    usage: UsageRecord
    """What was paid by work that this commit does not show."""
    usage_inside: dict[Text, UsageRecord]
    """Of that, what was paid inside steps that it does show."""
    values: ValueChanges
    late: list[LateChanges]
    """What handlers have changed of the state of steps that had ended."""


@with_config(STRICT)
class Commit(CommitParts):
    """What one entry says."""

    schema: Number
    seq: Number
    """Its place in the order, from 1."""
    at: Time


class RunStart(TypedDict):
    """The beginning of a run, or of a fork, which has a `base` instead of inputs."""

    run_id: RunName
    branch: BranchName
    uid: Text
    identity: Text
    definition: RecordedDefinition
    inputs: NotRequired[Inputs]
    base: NotRequired[ForkBase | None]


class Definition(TypedDict):
    """What ran. A fork says only its kind and name."""

    kind: Text
    name: Text
    tasks: NotRequired[list[Task]]


class Task(TypedDict):
    """A task of a crew."""

    address: Text
    description: Text
    name: NotRequired[Text | None]


class ForkBase(TypedDict):
    """The entry that a fork stands on, and the checkpoint there."""

    branch: BranchName
    seq: Number
    sum: Hex
    place: CheckpointRecord | None
    operation: NotRequired[Text]


class Rewind(TypedDict):
    """The entry of the same branch whose state holds again. The seal is still chained to the entry before."""

    seq: Number
    sum: Hex


class Claim(TypedDict):
    """Who writes from here on."""

    id: Text
    host: Text
    boot: Text
    pid: Annotated[int, Field(ge=1, lt=2**31)]
    started: int | None


class StepRecord(TypedDict):
    """An outcome; with `error`, an attempt that failed; with `again`, the beginning of doing a finished step again.

    `at` is when it was recorded, where that is not when the commit was: in one that stands for several.
    """

    address: Text
    kind: Text
    attempt: NotRequired[Number]
    again: NotRequired[bool]
    edited: NotRequired[bool]
    at: NotRequired[Time]
    ms: float
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
    state: NotRequired[Operations]
    """What it changed of the state around it."""
    order: NotRequired[list[int]]
    """Where that stands among the changes of other steps, if not at this commit and this place in it."""


class LateChanges(TypedDict):
    """What handlers have changed of the state of a step after its end."""

    address: Text
    ops: Operations
    order: NotRequired[list[int]]


class AskedQuestion(TypedDict):
    """A question that waits for a person."""

    address: Text
    question: Text
    at: Time
    schema: NotRequired[Any]
    name: NotRequired[Text | None]
    until: NotRequired[Time | None]
    digest: NotRequired[Text]


class GivenAnswer(TypedDict):
    """What a person said, and not in the run itself: to the question with this digest, or ahead of any."""

    address: Text
    value: Any
    at: Time
    digest: NotRequired[Text]
    ahead: NotRequired[bool]
    typed: NotRequired[bool]
    refused: NotRequired[Text]


class ErrorRecord(TypedDict):
    """How an attempt failed."""

    type: Text
    message: Text
    traceback: Text
    cause: NotRequired[Text | None]
    causes: NotRequired[list[Text]]
    failure: Text
    final: bool
    remedy: NotRequired[RemedyRecord]
    for_author: NotRequired[bool]
    raised: NotRequired[RaisedError]


class RemedyRecord(TypedDict):
    """What followed a failed attempt."""

    do: Text
    after: NotRequired[Annotated[float, Field(ge=0, allow_inf_nan=False)]]


class RaisedError(TypedDict):
    """What it takes to raise an error again."""

    cls: Text
    args: NotRequired[Any]
    fields: NotRequired[Any]


class CheckpointRecord(TypedDict):
    """A recorded checkpoint. `sum` is that of its commit, if a later commit named it."""

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
    """What has changed of the values beside the run, but by its steps; how often, since ever; what was restored."""

    ops: Operations
    """Of the run's own."""
    seen: Operations
    """What the run's code sees else than follows from that, before the steps of this commit have changed it."""
    seen_after: Operations
    """The same behind the steps, in a commit that stands for several."""
    set: dict[Text, Any]
    """As earlier releases tell what has changed of the run's own: coded, or gone."""
    gone: list[Text]
    versions: dict[Text, Number]
    restored: Hex | None


class Compacted(TypedDict):
    """The first of the commits that this one stands for, and the sum of the last."""

    first: Number
    sum: Hex


def _check_definition(definition: JsonObject) -> JsonObject:
    if kinds.of(definition["kind"]) is kinds.CREW and "tasks" not in definition:
        raise ValueError("a crew without tasks")
    return definition


def _check_run(run: RunStart) -> RunStart:
    if not run.get("base"):
        if "inputs" not in run:
            raise ValueError("neither inputs nor a base")
        _check_definition(run["definition"])
    return run


def _check_step(step: StepRecord) -> StepRecord:
    outcome = "value" in step and "fingerprint" in step and "digest" in step
    if not outcome and "error" not in step and not step.get("again"):
        raise ValueError("neither an outcome nor an error")
    return step


def _check_commit(commit: Commit) -> Commit:
    seq, checkpoint, run = commit["seq"], commit.get("place"), commit.get("run")
    base = run.get("base") if run else None
    if "folded" in commit and commit["folded"]["first"] > seq:
        raise ValueError("it ends before it begins")
    if checkpoint:
        check_checkpoint(checkpoint, seq)
    if base and (base["seq"] >= seq or (base["place"] and base["place"]["seq"] > base["seq"])):
        raise ValueError("it stands on what comes later")
    if (back := commit.get("rewind")) and (run or back["seq"] >= commit.get("folded", {}).get("first", seq)):
        raise ValueError("it goes back to what does not come before it")
    return commit


RecordedDefinition = Annotated[JsonObject, GetPydanticSchema(lambda _, schema_of: schema_of(Definition))]
"""Settings of a definition, read by name; `Definition` has those that every reader may rely on."""
CheckedDefinition = Annotated[RecordedDefinition, AfterValidator(_check_definition)]
CheckedRunStart = Annotated[RunStart, AfterValidator(_check_run)]
CheckedStep = Annotated[StepRecord, AfterValidator(_check_step)]


@cache
def _reader() -> TypeAdapter[Commit]:
    """Made when first needed, so that importing this costs nothing."""
    return TypeAdapter(Annotated[Commit, AfterValidator(_check_commit)])
