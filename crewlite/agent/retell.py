"""Rebuild the conversation of an agent without a crew from its record, for a fork with a further instruction.

Replies and results are recorded, conversations are not. A reply is left out if the fork begins before all results of
its tool calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from crewlite import kinds
from crewlite.agent.guarding import amend, refusal
from crewlite.agent.loop import mending, tool_message
from crewlite.agent.shape import Misshapen, Shape
from crewlite.encoding import codec
from crewlite.llm.base import OVERFLOW, LLMReply, Message
from crewlite.llm.call import read_back
from crewlite.state.format.addresses import leaf, outer
from crewlite.state.format.earlier import has_other_inputs
from crewlite.state.format.numbering import Numbering
from crewlite.state.format.record import Record
from crewlite.state.reading.conversation import turns_of
from crewlite.tools.result import ToolResult


def further(
    record: Record, asked: Sequence[Message], so_far: Sequence[Message], instruction: Sequence[Message]
) -> list[Message]:
    """Return the messages of a fork with a further instruction: the conversation so far, and the instruction.

    `asked`: the recorded messages. They are not repeated if the instruction begins with them, and an instruction that
    the fork has got before is not added again.
    """
    before, said = list(asked), list(instruction)
    if said[: len(before)] == before:
        return said
    if not record.fresh:
        return before if record.earlier_inputs and before[-len(said) :] == said else said
    return [*so_far, *said]


def retold(record: Record, shape: Shape | None, limit: int | None, inside: str = "") -> list[Message]:
    """Return the messages of the model and the tools inside a step."""
    messages: list[Message] = []
    turns = list(_turns(record, limit, inside))
    for number, (reply, results, verdicts) in enumerate(turns, 1):
        messages += [reply.as_message(), *results]
        for passes, text in verdicts:
            if not passes:
                messages.append(refusal(text))
            elif text is not None:
                amend(messages, text)
        if shape and not reply.tool_calls and number < len(turns):
            try:
                shape.read(reply.text)
            except Misshapen as problem:
                messages.append(mending(problem, shape))
    return messages


def _turns(record: Record, limit: int | None, inside: str) -> Iterator[tuple[LLMReply, list[Message], list[Any]]]:
    """Yield the replies whose results are all recorded, for the current inputs: (reply, results, verdicts).

    The verdicts are those of the guardrails on the reply, if it was an answer.
    """
    prefix = _last_attempt(record, inside)
    talk, verdicts = turns_of(record, prefix), _verdicts(record, prefix)
    for turn, following in zip(talk, [*talk[1:], None], strict=False):
        if has_other_inputs(record, turn.reply.address):
            return
        reply, results = read_back(record.value(turn.reply.address)), list[Message]()
        if reply.finish_reason == OVERFLOW:
            continue
        for number, (call, made) in enumerate(zip(reply.tool_calls, turn.calls, strict=True), 1):
            if made not in record.outcomes:
                return
            text = ToolResult.decode(record.value(made)).told
            results.append(tool_message(call.id or f"call_{number}", call.name, text, made, limit))
        end = following.reply.seq if following else math.inf
        said = [at for at in verdicts if turn.reply.seq < record.outcomes[at].seq < end]
        yield reply, results, [codec.decode(record.value(at)) for at in said]


def _verdicts(record: Record, prefix: str) -> list[str]:
    """Return the addresses of the recorded verdicts of guardrails, in order."""
    numbering, found = Numbering(prefix), list[str]()
    while (address := numbering.next(kinds.GUARDRAIL.name, None)) in record.outcomes:
        found.append(address)
    return found


def _last_attempt(record: Record, inside: str) -> str:
    """Return the prefix of the addresses of the steps inside the last attempt at a step."""
    if inside and (finished := record.outcomes.get(inside)):  # without a look at all steps, as there may be many turns
        return f"{inside}!{finished.attempt}/" if finished.attempt > 1 else f"{inside}/"
    asked = [at for at, outcome in record.outcomes.items() if kinds.of(outcome.kind) is kinds.LLM]
    replies = [at for at in asked if outer(at) == inside]  # not those of the models that guardrails and tools ask
    last = max(replies, key=lambda at: record.outcomes[at].seq, default="")
    return last.removesuffix(leaf(last)) if last else ""
