"""Summarise the middle of a conversation that does not fit its model any more, in one recorded step.

The outcome of the model call that did not fit says so, so a resume does not call again and reuses the summary.
"""

from __future__ import annotations

from collections.abc import Sequence

from crewlite import durable, events, kinds
from crewlite.agent.persona import Persona
from crewlite.agent.shape import PROMPTS
from crewlite.durable import Step
from crewlite.errors import ContextOverflow
from crewlite.events.family import FamilyEvents
from crewlite.llm.base import OVERFLOW, REMINDER, Message
from crewlite.llm.call import call_step
from crewlite.llm.parts import text_of
from crewlite.llm.protocol import without_calls
from crewlite.step_parts import INHERITED
from crewlite.texts import templates

_EVENTS = (
    events.ContextWindowSummarizationStartedEvent,
    events.ContextWindowSummarizationCompletedEvent,
    events.ContextWindowSummarizationFailedEvent,
)

_TRIES = 4  # each with half of the text of the one before


async def summarised(persona: Persona, messages: Sequence[Message], opening: int, said: str) -> list[Message]:
    """Return the conversation with a summary in place of all messages after its opening.

    Of a conversation that is only an opening, the user's messages in it are summarised. `opening`: the number of its
    messages; `said`: the error of the model's service. Raises ContextOverflow if nothing is left to summarise.
    """
    kept = opening if len(messages) > opening else sum(message.get("role") == "system" for message in messages[:1])
    old = list(messages[kept:])
    if not old or (len(old) == 1 and old[0].get("name") == REMINDER):
        raise ContextOverflow(persona.llm.model, None, said)
    text: str = await durable.scope().step(_step(persona, old))
    prompt = templates.render(PROMPTS, "summary.j2", summary=text)
    return [*messages[:kept], {"role": "user", "content": prompt, "name": REMINDER}]


def _step(persona: Persona, old: list[Message]) -> Step[str]:
    async def act() -> str:
        length = sum(len(text_of(message)) for message in old)
        shorter = dict.fromkeys(_transcript(old, length // 2**attempt) for attempt in range(1, _TRIES + 1))
        prompt = {"role": "system", "content": templates.render(PROMPTS, "summarise.j2", role=persona.role)}
        *more, last = [[prompt, {"role": "user", "content": text}] for text in shorter]
        for asked in more:
            reply = await durable.scope().step(call_step(persona.llm, asked, agent=persona.role, may_overflow=True))
            if reply.finish_reason != OVERFLOW:
                return reply.text
        reply = await durable.scope().step(call_step(persona.llm, last, agent=persona.role))
        return reply.text  # a resume repeats only a call that failed

    return Step(
        kind=kinds.SUMMARY,
        name=None,
        work=act,
        question=None,
        chained=True,
        events=FamilyEvents(
            persona.agent,
            _EVENTS,
            {"agent_role": persona.role},
            of_start=lambda: {"messages": len(old)},
            of_outcome=lambda text: {"summary": text},
        ),
        policies=INHERITED,
    )


def _transcript(messages: Sequence[Message], length: int) -> str:
    """Return the messages as a text of about `length` characters: long messages are cut in the middle."""
    plain = without_calls(messages)
    share = max(length // len(plain), 200)
    return "\n\n".join(f"{message['role']}: {_cut(text_of(message), share)}" for message in plain)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length // 2]}\n[...]\n{text[-length // 2 :]}"
