"""The prompt of a model call, put together from the record: texts of the task, outputs it builds on, replies, results.

No prompt is stored. Texts with their placeholders filled in are in the outcome of the task, all else is the outcome of
another step. The words of crewlite's templates around these parts are left out, as they change between releases. Live
objects, such as the schema of an answer, are recorded by name alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from crewlite import kinds
from crewlite.encoding.codec import Json, JsonObject, decode
from crewlite.errors import MissingInput
from crewlite.llm.base import OVERFLOW
from crewlite.state.format.addresses import leaf, outer, prefix_beside, try_of
from crewlite.state.format.earlier import definition_at, inputs_at
from crewlite.state.format.record import Record
from crewlite.state.reading.conversation import Turn, turns_of
from crewlite.state.reading.missing import no_step
from crewlite.state.reading.shown import as_text, outcome_as_text, plain
from crewlite.system.forked import cached_property
from crewlite.texts import templates

Tasks = dict[str, tuple[int, JsonObject]]
"""The tasks of a definition by their addresses, each with its place among them, counted from 0."""
_THOUGHTS = (kinds.REASONING, kinds.OBSERVATION)
_OF_THE_AGENT = ("role", "goal", "backstory")
_OF_THE_TASK = ("description", "expected_output")
_DIGESTS = ("input file ", "knowledge")  # the names of the digests of files and passages in a question begin so
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


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of one call of a model, as far as it is recorded."""

    address: str
    parts: tuple[PromptPart, ...]
    missing: tuple[str, ...]
    """Descriptions of what else the prompt contained and the record does not hold."""

    def __str__(self) -> str:
        return "\n".join([*map(_as_text, self.parts), *(f"(not recorded: {what})" for what in self.missing)])


class Prompts:
    """The prompts of one record."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._talks: dict[str, tuple[list[Turn], dict[str, int]]] = {}
        self._tasks: tuple[JsonObject, Tasks] | None = None
        """The definition whose tasks were last needed, and these tasks."""

    def in_full(self, address: str) -> Prompt:
        """Return the whole prompt of the call at an address. Raises RefError if no model call has a reply there."""
        outcome = self._record.outcomes.get(address)
        if outcome is None or not kinds.of(outcome.kind).asks_model:
            calls = [at for at, one in self._record.outcomes.items() if kinds.of(one.kind).asks_model]
            problem = "names no model call with a recorded reply"
            raise no_step(address, problem, self._record, calls)
        return self._prompt(address, whole=True)

    def added(self, address: str) -> Prompt:
        """Return the prompt from the reply before this call on; for the first call, what opens the conversation."""
        return self._prompt(address, whole=False)

    def _prompt(self, address: str, *, whole: bool) -> Prompt:
        around = outer(address)
        kind = self._record.kind_at(around)
        talk, numbers = self._talk(prefix_beside(address))
        if address not in numbers or not (kind.is_task or kind in (kinds.AGENT, kinds.TURN)):
            return Prompt(address, (), (f"what the {kind.title} asks its model",))
        number = numbers[address]
        found = Parts() if number and not whole else self._opening(around, talk[0])
        opened = len(found.parts)
        for n in range(number) if whole else range(max(number - 1, 0), number):
            if whole:
                text = outcome_as_text(kinds.LLM, self._record.value(talk[n].reply.address))
                found.parts.append(PromptPart("assistant", "reply", text, talk[n].reply.address))
            if isinstance(turn := talk[n].reply.value, dict) and turn.get("finish") == OVERFLOW:
                del found.parts[opened:]
                found.missing.append("the summary that has replaced the conversation before")
            else:
                self._add_answers(found, talk, n)
        return Prompt(address, tuple(found.parts), tuple(dict.fromkeys(found.missing)))

    def _opening(self, around: str, first: Turn) -> Parts:
        """Return the opening of a conversation, and the hint about the failed attempt before this one, if any."""
        record = self._record
        found = self._of_task(around) if record.kind_at(around).is_task else _of_agent(record, around)
        prefix, number = prefix_beside(first.reply.address), try_of(first.reply.address)
        for attempt in record.attempts.get(around, ()):
            if attempt.number == number - 1 and attempt.remedy and attempt.remedy.hint:
                found.parts.append(PromptPart("user", "hint", attempt.remedy.hint))
        if prefix in self._planned:
            found.missing.append("the plan of the agent, and how it went")
        return found

    def _of_task(self, around: str) -> Parts:
        record, definition = self._record, definition_at(self._record, around)
        if self._tasks is None or self._tasks[0] is not definition:
            listed = enumerate(definition.get("tasks", ()))
            self._tasks = definition, {task["address"]: (number, task) for number, task in listed}
        tasks = self._tasks[1]
        place, task = tasks.get(around, (-1, {}))
        found, agents, number = Parts(), definition.get("agents", ()), task.get("agent")
        agent = agents[number] if isinstance(number, int) and number < len(agents) else {}
        _texts(found, record, around, {**agent, **task}, (*_OF_THE_AGENT, *_OF_THE_TASK))
        if not task:
            found.missing.append("the outputs that the task builds on, as the definition of its crew is not recorded")
        _plan(found, record, place)
        for at in _context(tasks, around):
            if at in record.outcomes and not (value := record.value(at)).get("skipped"):
                found.parts.append(PromptPart("user", "context", as_text(plain(value.get("raw"))), at))
        _note_live(found, agent, task)
        return found

    @cached_property
    def _planned(self) -> set[str]:
        """The prefixes of the addresses of conversations in which the agent has made a plan."""
        return {prefix_beside(at) for at, one in self._record.outcomes.items() if kinds.of(one.kind) in _THOUGHTS}

    def _talk(self, prefix: str) -> tuple[list[Turn], dict[str, int]]:
        if prefix not in self._talks:
            talk = turns_of(self._record, prefix)
            self._talks[prefix] = talk, {turn.reply.address: number for number, turn in enumerate(talk)}
        return self._talks[prefix]

    def _add_answers(self, found: Parts, talk: list[Turn], n: int) -> None:
        """Add what answers the model's reply `n`, counted from 0: results of tools, and refusals of guardrails."""
        record, turn, before = self._record, talk[n], len(found.parts)
        for call in turn.calls:
            if call in record.outcomes:
                found.parts.append(PromptPart("tool", "result", outcome_as_text(kinds.TOOL, record.value(call)), call))
        prefix, number = prefix_beside(turn.reply.address), 1
        while verdict := record.outcomes.get(at := f"{prefix}{kinds.GUARDRAIL.name}#{number}"):
            number += 1
            if turn.reply.order < verdict.order < talk[n + 1].reply.order:
                passes, text = plain(record.value(at))
                found.parts += [] if passes else [PromptPart("user", "refusal", as_text(text), at)]
        if len(found.parts) == before:
            found.missing.append(f"what was said after the reply {turn.reply.address}")


def _as_text(part: PromptPart) -> str:
    source = f" ({part.source})" if part.source else ""
    between = "\n" if "\n" in part.text else " "
    return f"{part.name}{source}:{between}{part.text}"


def _of_agent(record: Record, around: str) -> Parts:
    """Return what opens the conversation of an agent alone, or a turn of one, in the step at `around`."""
    found, kind, definition = Parts(), record.kind_at(around), definition_at(record, around)
    agent: JsonObject = definition.get("agent", {}) if outer(around) == "" else {}
    if around and kind is not kinds.TURN:
        agent = {"role": leaf(around).partition(":")[2].partition("!")[0].partition("#")[0]}
    _texts(found, record, around, agent, _OF_THE_AGENT)
    _messages(found, _recorded_messages(record, around, kind, found))
    _note_live(found, agent)
    return found


def _plan(found: Parts, record: Record, number: int) -> None:
    """Add the plan that the crew made for its task `number`, counted from 0 (below 0: unknown), if it made one."""
    if (at := f"{kinds.PLAN.name}#1") in record.outcomes:
        texts = plain(record.value(at))
        if isinstance(texts, list) and 0 <= number < len(texts):
            found.parts.append(PromptPart("user", "plan", as_text(texts[number]), at))


def _context(tasks: Tasks, around: str) -> list[str]:
    """Return the addresses of the tasks whose outputs a task gets: those it names, else those finished before it."""
    place, task = tasks.get(around, (0, {}))
    if (named := task.get("context")) is not None:
        return list(named)
    is_async = task.get("async_execution")
    return [at for at in islice(tasks, place) if not is_async or not tasks[at][1].get("async_execution")]


def _texts(found: Parts, record: Record, around: str, facts: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Add the texts of a step: as recorded if the step has finished, else the definition's, with inputs filled in."""
    outcome = record.outcomes.get(around)
    asked = outcome.question if outcome else {}
    inputs = plain(inputs_at(record, around))
    if digests := [name for name in asked if name.startswith(_DIGESTS)]:
        found.missing.append(f"the contents of {', '.join(digests)}")
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
    for turn in turns_of(record, prefix_beside(call)):
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
    """Add to `found.missing` the parts recorded by name alone, and what changes the texts on their way to the model."""
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
