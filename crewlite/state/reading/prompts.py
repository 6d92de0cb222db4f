"""The prompt of a model call, put together from the record: texts of the task, outputs it builds on, replies, results.

No prompt is stored. Texts with their placeholders filled in are in the outcome of the task, all else is the outcome of
another step. The words of the templates around the parts are left out, as they are those of the release that asked.
What was live, such as the schema of an answer, is recorded by its name alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from crewlite import kinds
from crewlite.errors import RefError
from crewlite.llm.base import OVERFLOW
from crewlite.state.format.addresses import outer, prefix_beside, try_of
from crewlite.state.format.record import Record
from crewlite.state.reading.conversation import Turn, turns_of
from crewlite.state.reading.opening import Parts, PromptPart, opening
from crewlite.state.reading.shown import as_text, plain, said

_THOUGHTS = (kinds.REASONING, kinds.OBSERVATION)


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

    def whole(self, address: str) -> Prompt:
        """Return the whole prompt of the call at an address. Raises RefError if no model call has a reply there."""
        outcome = self._record.outcomes.get(address)
        if outcome is None or not kinds.of(outcome.kind).asks_model:
            calls = [at for at, one in self._record.outcomes.items() if kinds.of(one.kind).asks_model]
            raise RefError(address, "names no model call with a recorded reply", calls)
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
                text = said(kinds.LLM, self._record.value(talk[n].reply.address))
                found.parts.append(PromptPart("assistant", "reply", text, talk[n].reply.address))
            if isinstance(turn := talk[n].reply.value, dict) and turn.get("finish") == OVERFLOW:
                del found.parts[opened:]
                found.missing.append("the summary that has replaced the conversation before")
            else:
                self._add_answers(found, talk, n)
        return Prompt(address, tuple(found.parts), tuple(dict.fromkeys(found.missing)))

    def _opening(self, around: str, first: Turn) -> Parts:
        """Return the opening of a conversation, and the hint about the failed attempt before this one, if any."""
        found, record = opening(self._record, around), self._record
        prefix, number = prefix_beside(first.reply.address), try_of(first.reply.address)
        for attempt in record.attempts.get(around, ()):
            if attempt.number == number - 1 and attempt.remedy and attempt.remedy.hint:
                found.parts.append(PromptPart("user", "hint", attempt.remedy.hint))
        if prefix in self._planned:
            found.missing.append("the plan of the agent, and how it went")
        return found

    @cached_property
    def _planned(self) -> set[str]:
        """The prefixes of the addresses of conversations in which the agent has made a plan."""
        return {prefix_beside(at) for at, one in self._record.outcomes.items() if kinds.of(one.kind) in _THOUGHTS}

    def _talk(self, prefix: str) -> tuple[list[Turn], dict[str, int]]:
        if prefix not in self._talks:
            talk = turns_of(self._record.outcomes, prefix)
            self._talks[prefix] = talk, {turn.reply.address: number for number, turn in enumerate(talk)}
        return self._talks[prefix]

    def _add_answers(self, found: Parts, talk: list[Turn], n: int) -> None:
        """Add what answers the model's reply `n`, counted from 0: results of tools, and refusals of guardrails."""
        record, turn, before = self._record, talk[n], len(found.parts)
        for call in turn.calls:
            if call in record.outcomes:
                found.parts.append(PromptPart("tool", "result", said(kinds.TOOL, record.value(call)), call))
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
