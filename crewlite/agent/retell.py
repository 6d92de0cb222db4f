"""Rebuilds the conversation of a lone agent from its record, for a fork with a further instruction.

Replies and results are recorded, conversations are not. A fork may begin in the middle of a turn: a turn that is not
complete is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from crewlite import codec, kinds
from crewlite.agent.guarding import amend, refusal
from crewlite.agent.loop import mending, told
from crewlite.agent.shape import Misshapen, Shape
from crewlite.kinds import Kind
from crewlite.llm.base import OVERFLOW, LLMReply, Message
from crewlite.llm.call import read_back
from crewlite.runtime.numbering import Numbering
from crewlite.state.format.addresses import leaf, outer
from crewlite.state.format.record import Record
from crewlite.tools.naming import address_name
from crewlite.tools.result import ToolResult


def further(
    record: Record, asked: Sequence[Message], so_far: Sequence[Message], instruction: Sequence[Message]
) -> list[Message]:
    """The messages of a fork that is given an instruction: the conversation so far, and that.

    `asked`: the recorded messages. They are not repeated for an instruction that begins with them, and an instruction
    that the fork was given before is not added again.
    """
    before, said = list(asked), list(instruction)
    if said[: len(before)] == before:
        return said
    if not record.fresh:
        return before if record.earlier_inputs and before[-len(said) :] == said else said
    return [*so_far, *said]


def retold(record: Record, shape: Shape | None, limit: int | None, inside: str = "") -> list[Message]:
    """What was said by the model and the tools inside a step, of itself after the recorded messages."""
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
    """The turns whose reply and results are all recorded, and were made for the inputs that hold now.

    Each comes with what guardrails said of its answer, if it brought one.
    """
    prefix = _last_attempt(record, inside)
    numbering, replies = Numbering(prefix), _counted(record, prefix, kinds.LLM)
    verdicts = _counted(record, prefix, kinds.GUARDRAIL)
    for address, following in zip(replies, [*replies[1:], None], strict=False):
        if record.inputs_of(address) != record.run["inputs"]:
            return
        reply, results = read_back(record.value(address)), list[Message]()
        if reply.finish_reason == OVERFLOW:
            continue
        for number, call in enumerate(reply.tool_calls, 1):
            made = numbering.next("tool", address_name(call.name))
            if made not in record.outcomes:
                return
            text = ToolResult.decode(record.value(made)).told
            results.append(told(call.id or f"call_{number}", call.name, text, made, limit))
        end = record.outcomes[following].seq if following else math.inf
        said = [at for at in verdicts if record.outcomes[address].seq < record.outcomes[at].seq < end]
        yield reply, results, [codec.decode(record.value(at)) for at in said]


def _counted(record: Record, prefix: str, kind: Kind) -> list[str]:
    """The recorded steps of a kind that has no names, in order, up to the first that is missing."""
    numbering, found = Numbering(prefix), list[str]()
    while (address := numbering.next(kind.name, None)) in record.outcomes:
        found.append(address)
    return found


def _last_attempt(record: Record, inside: str) -> str:
    """What the addresses of the steps of the last attempt at a step begin with."""
    if inside and (finished := record.outcomes.get(inside)):  # without a look at all steps, as there may be many turns
        return f"{inside}!{finished.attempt}/" if finished.attempt > 1 else f"{inside}/"
    asked = [at for at, outcome in record.outcomes.items() if kinds.of(outcome.kind) is kinds.LLM]
    replies = [at for at in asked if outer(at) == inside]  # not those of the models that guardrails and tools ask
    last = max(replies, key=lambda at: record.outcomes[at].seq, default="")
    return last.removesuffix(leaf(last)) if last else ""
