"""The format of a commit's facts, and whether some facts have it.

A checksum tells that a commit is what was sealed, not that a crewlite sealed it: whoever can write to a store can seal
anything. So what is read is checked here, once, and all who read on may rely on it. Keys that are not listed are let
through and kept, as a later release may write more of the same schema.

What a run recorded as data (`value`, `inputs`, `metadata`) may be of any kind: the codec reads that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, InstanceOf, Strict, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from crewlite.errors import ConfigError
from crewlite.refs import check_name

_HEX = re.compile("[0-9a-f]{32}")
STRICT = ConfigDict(strict=True, extra="allow", hide_input_in_errors=True)


def check(facts: object) -> None:
    """Raises ValueError, naming the first thing that is wrong, unless these are the facts of a commit."""
    try:
        _whole().validate_python(facts)
    except ValidationError as error:
        raise ValueError(first_problem(error, "the commit")) from None


def check_place(place: Mapping[str, Any], seq: int) -> None:
    """Raises ValueError unless commit `seq` can name this place: its own, or an earlier one whose sum it knows."""
    if place["seq"] > seq or ("sum" not in place and place["seq"] < seq):
        raise ValueError(f"it is commit {seq} and names a place at commit {place['seq']}, which is not here")


def first_problem(error: ValidationError, whole: str) -> str:
    """Where, in what, data first has not its format, and how; nothing of the data itself. `whole`: all of it."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg'].removeprefix('Value error, ')}"


class Commit(TypedDict):
    """What one commit says: see entry.py for what it means."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    schema: Number
    seq: Number
    at: Time
    run: NotRequired[WholeRun]
    claim: NotRequired[Claim]
    released: NotRequired[bool]
    cancelled: NotRequired[bool]
    definition: NotRequired[WholeDefinition]
    inputs: NotRequired[Named]
    steps: NotRequired[list[WholeStep]]
    intents: NotRequired[list[Pair]]
    asked: NotRequired[list[Asked]]
    answers: NotRequired[list[Answered]]
    events: NotRequired[list[Event]]
    place: NotRequired[Place]
    drops: NotRequired[list[Drop]]
    keep: NotRequired[Number]
    folded: NotRequired[Folded]
    usage: NotRequired[Paid]
    usage_inside: NotRequired[dict[Text, Paid]]
    values: NotRequired[Values]


class Run(TypedDict):
    """The beginning of a run, or of a fork, which has a `base` instead of inputs."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    run_id: RunName
    branch: BranchName
    uid: Text
    identity: Text
    definition: Definition
    inputs: NotRequired[Named]
    base: NotRequired[Base | None]


class Definition(TypedDict):
    """What ran. A fork says only its kind and name."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    kind: Text
    name: Text
    tasks: NotRequired[list[Task]]


class Task(TypedDict):
    """A task of a crew."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    address: Text
    description: Text
    name: NotRequired[Text | None]


class Base(TypedDict):
    """The entry that a fork stands on, and the place there."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    branch: BranchName
    seq: Number
    sum: Hex
    place: Place | None
    operation: NotRequired[Text]


class Claim(TypedDict):
    """Who writes from here on."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    id: Text
    host: Text
    boot: Text
    pid: Annotated[int, Field(ge=1, lt=2**31)]
    started: int | None


class Step(TypedDict):
    """An outcome; with `error`, an attempt that failed; with `again`, the beginning of doing a finished step again.

    `at` is when it was recorded, where that is not when the commit was: in one that stands for several.
    """

    __pydantic_config__ = STRICT  # type: ignore[misc]
    address: Text
    kind: Text
    attempt: NotRequired[Number]
    again: NotRequired[bool]
    edited: NotRequired[bool]
    at: NotRequired[Time]
    ms: float
    error: NotRequired[Error]
    fingerprint: NotRequired[Text]
    value: NotRequired[Any]
    digest: NotRequired[Text]
    usage: NotRequired[Paid | None]
    means: NotRequired[dict[Text, Text]]
    label: NotRequired[Text]
    reused: NotRequired[Text]
    question: NotRequired[dict[Text, Text]]
    drifted: NotRequired[list[Text]]


class Asked(TypedDict):
    """A question that waits for a person."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    address: Text
    question: Text
    at: Time
    schema: NotRequired[Any]
    name: NotRequired[Text | None]
    until: NotRequired[Time | None]
    digest: NotRequired[Text]


class Answered(TypedDict):
    """What a person said, and not in the run itself: to the question with this digest, or ahead of any."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    address: Text
    value: Any
    at: Time
    digest: NotRequired[Text]
    ahead: NotRequired[bool]
    typed: NotRequired[bool]
    refused: NotRequired[Text]


class Error(TypedDict):
    """How an attempt failed."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    type: Text
    message: Text
    traceback: Text
    cause: NotRequired[Text | None]
    causes: NotRequired[list[Text]]
    failure: Text
    final: bool
    for_author: NotRequired[bool]
    raised: NotRequired[Raised]


class Raised(TypedDict):
    """What it takes to raise an error again."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    cls: Text
    args: NotRequired[Any]
    fields: NotRequired[Any]


class Place(TypedDict):
    """A checkpoint. One that was named after its commit has the `sum` of that."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
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


class Values(TypedDict, total=False):
    """What has changed of the values beside the run: coded, or gone; how often, since ever; what was restored."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    set: dict[Text, Any]
    gone: list[Text]
    versions: dict[Text, Number]
    restored: Hex | None


class Folded(TypedDict):
    """The first of the commits that this one stands for, and the sum of the last."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    first: Number
    sum: Hex


class Paid(TypedDict, total=False):
    """The fields of Usage that are not zero."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    requests: int
    cost: float | None


def _hex(text: str) -> str:
    if not _HEX.fullmatch(text):
        raise ValueError("wanted 32 hexadecimal digits")
    return text


def _time(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("wanted a time with its zone")
    return text


def _run_name(text: str) -> str:
    return _name("run_id", text)


def _branch_name(text: str) -> str:
    return _name("branch", text, slashes=True)


def _name(kind: str, text: str, *, slashes: bool = False) -> str:
    try:
        return check_name(kind, text, slashes=slashes)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _coded(data: dict[str, Any]) -> dict[str, Any]:
    """A dict as the codec writes it: as it is, or as pairs where it has unusual keys."""
    if "$" in data and not (data["$"] == "dict" and _are_pairs(data.get("v"))):
        raise ValueError("wanted names and values")
    return data


def _named(data: dict[str, Any]) -> dict[str, Any]:
    """A coded dict whose keys are all text."""
    pairs = _coded(data)["v"] if "$" in data else []
    if not all(isinstance(key, str) or (isinstance(key, dict) and key.get("$") == "str") for key, _ in pairs):
        raise ValueError("wanted names and values")
    return data


def _are_pairs(items: object) -> bool:
    return isinstance(items, list) and all(
        isinstance(item, list) and len(item) == 2 and isinstance(item[0], str | int | float | dict | None)
        for item in items
    )


def _whole_definition(definition: Definition) -> Definition:
    if definition["kind"] == "crew" and "tasks" not in definition:
        raise ValueError("a crew without tasks")
    return definition


def _whole_run(run: Run) -> Run:
    if not run.get("base"):
        if "inputs" not in run:
            raise ValueError("neither inputs nor a base")
        _whole_definition(run["definition"])
    return run


def _whole_step(step: Step) -> Step:
    outcome = "value" in step and "fingerprint" in step and "digest" in step
    if not outcome and "error" not in step and not step.get("again"):
        raise ValueError("neither an outcome nor an error")
    return step


def _whole_commit(facts: Commit) -> Commit:
    seq, place, run = facts["seq"], facts.get("place"), facts.get("run")
    base = run.get("base") if run else None
    if "folded" in facts and facts["folded"]["first"] > seq:
        raise ValueError("it ends before it begins")
    if place:
        check_place(place, seq)
    if base and (base["seq"] >= seq or (base["place"] and base["place"]["seq"] > base["seq"])):
        raise ValueError("it stands on what comes later")
    return facts


Text = InstanceOf[str]
"""`str` itself refuses lone surrogates, and a recorded text may hold any."""
Number = Annotated[int, Field(ge=1, lt=2**63)]
Hex = Annotated[Text, AfterValidator(_hex)]
Time = Annotated[Text, AfterValidator(_time)]
RunName = Annotated[Text, AfterValidator(_run_name)]
BranchName = Annotated[Text, AfterValidator(_branch_name)]
Pair = Annotated[tuple[Text, Text], Strict(strict=False)]
Event = Annotated[tuple[Text, Text, Text, Text], Strict(strict=False)]
Drop = Annotated[tuple[Text, Text | None], Strict(strict=False)]
Coded = Annotated[dict[Text, Any], AfterValidator(_coded)]
Named = Annotated[dict[Text, Any], AfterValidator(_named)]
WholeDefinition = Annotated[Definition, AfterValidator(_whole_definition)]
WholeRun = Annotated[Run, AfterValidator(_whole_run)]
WholeStep = Annotated[Step, AfterValidator(_whole_step)]


@cache
def _whole() -> TypeAdapter[Commit]:
    """Made when first needed, so that importing this costs nothing."""
    return TypeAdapter(Annotated[Commit, AfterValidator(_whole_commit)])
