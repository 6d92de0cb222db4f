"""The messages that open the conversation of an agent, read from the record.

For a task: its texts with their placeholders filled in, and the outputs that it builds on. Without a task: the agent's
own texts and the messages that it answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crewlite import kinds, templates
from crewlite.codec import Json, JsonObject, decode
from crewlite.errors import MissingInput
from crewlite.state.format.addresses import leaf, outer, prefix_beside
from crewlite.state.format.earlier import definition_at, inputs_at
from crewlite.state.format.record import Record
from crewlite.state.reading.conversation import turns_of
from crewlite.state.reading.shown import as_text, plain

_OF_THE_AGENT = ("role", "goal", "backstory")
_OF_THE_TASK = ("description", "expected_output")
_FILE = "input file "  # the names of the digests of files in a question begin so
_LIVE = {
    "output_pydantic": "the schema of its answer",
    "output_json": "the schema of its answer",
    "response_format": "the schema of its answer",
    "tools": "the descriptions of its tools",
}


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A part of the prompt of a model."""

    role: str
    """Who says this part, as chat models name it: system, user, assistant or tool."""
    name: str
    """The kind of part: context, message, reply, result, refusal, or the name of a definition's text like `goal`."""
    text: str
    source: str | None = None
    """The address of the step whose outcome this part is; None for texts of the definition and inputs."""


@dataclass(slots=True)
class Parts:
    """The parts of a prompt found so far, and descriptions of the parts that are not recorded."""

    parts: list[PromptPart] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def opening(record: Record, around: str) -> Parts:
    """Return what opens the conversation in the step at `around` ("" for the run): a task, an agent or a turn."""
    kind = record.kind_at(around)
    if kind.is_task:
        return _of_task(record, around)
    found, definition = Parts(), definition_at(record, around)
    agent: JsonObject = definition.get("agent", {}) if outer(around) == "" and kind is not kinds.TASK else {}
    if around and kind is not kinds.TURN:
        agent = {"role": leaf(around).partition(":")[2].partition("!")[0].partition("#")[0]}
    _texts(found, record, around, agent, _OF_THE_AGENT)
    _messages(found, _recorded_messages(record, around, kind, found))
    _note_live(found, agent)
    return found


def _of_task(record: Record, around: str) -> Parts:
    found, definition = Parts(), definition_at(record, around)
    tasks = {task["address"]: task for task in definition.get("tasks", ())}
    task = tasks.get(around, {})
    agents, number = definition.get("agents", ()), task.get("agent")
    agent = agents[number] if isinstance(number, int) and number < len(agents) else {}
    _texts(found, record, around, {**agent, **task}, (*_OF_THE_AGENT, *_OF_THE_TASK))
    if not task:
        found.missing.append("the outputs that the task builds on, as the definition of its crew is not recorded")
    _plan(found, record, list(tasks).index(around) if task else -1)
    for at in _context(list(tasks), tasks, around):
        if at in record.outcomes and not (value := record.value(at)).get("skipped"):
            found.parts.append(PromptPart("user", "context", as_text(plain(value.get("raw"))), at))
    _note_live(found, agent, task)
    return found


def _plan(found: Parts, record: Record, number: int) -> None:
    """Add the plan that the crew made for its task `number`, counted from 0, if the crew made one."""
    if (at := f"{kinds.PLAN.name}#1") in record.outcomes:
        texts = plain(record.value(at))
        if isinstance(texts, list) and 0 <= number < len(texts):
            found.parts.append(PromptPart("user", "plan", as_text(texts[number]), at))


def _context(order: list[str], tasks: Mapping[str, JsonObject], around: str) -> list[str]:
    """Return the addresses of the tasks whose outputs a task gets: those it names, else those finished before it."""
    if around not in tasks:
        return []
    if (named := tasks[around].get("context")) is not None:
        return list(named)
    before = order[: order.index(around)]
    is_async = tasks[around].get("async_execution")
    return [at for at in before if not is_async or not tasks[at].get("async_execution")]


def _texts(found: Parts, record: Record, around: str, facts: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Add the texts of a step: as recorded if the step has finished, else the definition's, with inputs filled in."""
    outcome = record.outcomes.get(around)
    asked = outcome.question if outcome else {}
    inputs = plain(inputs_at(record, around))
    if files := [name for name in asked if name.startswith(_FILE)]:
        found.missing.append(f"the contents of {', '.join(files)}")
    for name in names:
        text = asked.get(name)
        if text is None and isinstance(facts.get(name), str):
            try:
                text = templates.fill(facts[name], inputs, where=name)
            except MissingInput:  # callbacks of the crew prepare the inputs
                text = facts[name]
        if text:
            found.parts.append(PromptPart("system" if name in _OF_THE_AGENT else "user", name, text))
        elif text is None and name != "backstory":
            found.missing.append(name.replace("_", " "))


def _recorded_messages(record: Record, around: str, kind: kinds.Kind, found: Parts) -> Json:
    """Return the messages that an agent without a task answers; None if they are not recorded."""
    if kind is kinds.TURN:
        number = around.rpartition("#")[2]
        if number != "1":
            found.missing.append("the turns before this one")
            at = f"{kinds.MESSAGE.name}#{number}"
            return record.value(at) if at in record.outcomes else None
    if kind is kinds.TURN or not around:
        return inputs_at(record, around).get("messages")
    return _delegated(record, outer(around))


def _delegated(record: Record, call: str) -> Json:
    """Return the arguments of a call that delegated work, as a list of one message; None if no reply requests it."""
    for turn in turns_of(record.outcomes, prefix_beside(call)):
        if call in turn.calls:
            arguments = turn.reply.value["tool_calls"][turn.calls.index(call)][1]
            return [{"role": "user", "content": as_text(plain(arguments))}]
    return None


def _messages(found: Parts, messages: Json) -> None:
    if messages is None:
        found.missing.append("the messages that the agent was given")
    for message in decode(messages) if messages else ():
        found.parts.append(PromptPart(str(message.get("role")), "message", as_text(plain(message.get("content")))))


def _note_live(found: Parts, *facts: Mapping[str, Any]) -> None:
    """Note as missing what is recorded by its name alone, and what changes the texts on their way to the model."""
    live: dict[str, Any] = {}
    for fact in facts:
        live |= fact.get("live", {})
    found.missing += dict.fromkeys(f"{what} ({_named(live[name])})" for name, what in _LIVE.items() if name in live)
    own = [
        name for fact in facts for name in ("system_template", "prompt_template", "response_template") if fact.get(name)
    ]
    found.missing += ["the date"] if any(fact.get("inject_date") for fact in facts) else []
    found.missing += [f"the words of its own {name}" for name in own]


def _named(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
