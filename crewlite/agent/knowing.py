"""What agents know: the passages of it that fit the text of a task, or a message, become part of the prompt.

The passages are also part of what the step is asked, so nothing more is recorded: a resume finds the same ones, and a
source that has changed is noticed like any other change of what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crewlite import durable
from crewlite.agent.agent import Agent
from crewlite.agent.shape import PROMPTS
from crewlite.encoding import codec
from crewlite.knowledge.knowledge import USUAL, Knowing, sources_of
from crewlite.lazy import lazy, load
from crewlite.llm import parts
from crewlite.llm.base import Message
from crewlite.runtime.steps.questions import KNOWLEDGE
from crewlite.texts import templates

if TYPE_CHECKING:
    from crewlite.events.types import knowledge_events
    from crewlite.knowledge import passages as shelves
    from crewlite.knowledge.passages import Passage
else:  # only for agents that know something
    knowledge_events, shelves = lazy("crewlite.events.types.knowledge_events"), lazy("crewlite.knowledge.passages")


class Known:
    """What one agent can know: its own sources, and those of its crew."""

    def __init__(self, *knowing: Knowing) -> None:
        """`knowing`: the agent, and its crew if it has one. The first setting says how much the agent is shown."""
        settings = next((who.knowledge_config for who in knowing if who.knowledge_config), {})
        self._limit: int = settings.get("results_limit", USUAL)
        own = map(sources_of, knowing)
        self._shelves = [[source.index for source in sources] for sources in own if sources]
        if self._shelves:
            load(knowledge_events, shelves)

    def __bool__(self) -> bool:
        return bool(self._shelves)

    def passages(self, text: str) -> tuple[Passage, ...]:
        """Return the passages that fit a text, each once: those of the agent's sources, then those of the crew's."""
        found = (shelves.search(indexes, text, self._limit) for indexes in self._shelves if text)
        return tuple(dict.fromkeys(passage for shelf in found for passage, _ in shelf))


NOTHING = Known()


async def announce(agent: Agent, role: str, query: str, passages: Sequence[Passage], task_name: str | None) -> None:
    """Announce which passages an agent is given for a text. `role`: the agent's, filled in."""
    scope, about = durable.scope(), {"agent_role": role, "task_name": task_name}
    found = {"query": query, "retrieved_knowledge": "\n\n".join(one.text for one in passages)}
    await scope.announce(agent, knowledge_events.KnowledgeRetrievalStartedEvent, about)
    await scope.announce(agent, knowledge_events.KnowledgeRetrievalCompletedEvent, about | found)


def asked_about(passages: Sequence[Passage]) -> list[list[str]]:
    """Return what stands for passages in the question of a step."""
    return [[one.source, codec.digest(one.text)] for one in passages]


def digests(passages: Sequence[Passage]) -> dict[str, str]:
    """Return a digest of the passages of each source, to be recorded with the texts that a step is asked."""
    texts: dict[str, list[str]] = {}
    for one in passages:
        texts.setdefault(one.source, []).append(one.text)
    return {f"{KNOWLEDGE} {name!r}" if name else KNOWLEDGE: codec.digest(found) for name, found in texts.items()}


def shown(passages: Sequence[Passage]) -> str:
    """Return the text about passages in a prompt; "" without any."""
    named = ({"source": one.source} if one.source else {} for one in passages)
    texts = [templates.marked("passage", one.text, **about) for one, about in zip(passages, named, strict=True)]
    return templates.render(PROMPTS, "knowledge.j2", passages=texts) if texts else ""


def asked_last(messages: Sequence[Message]) -> str:
    """Return the text of the user's last message; "" if there is none."""
    return next((parts.text_of(one) for one in reversed(messages) if one.get("role") == "user"), "")


def showing(messages: Sequence[Message], passages: Sequence[Passage]) -> list[Message]:
    """Return the messages with the passages added to the user's last one."""
    if not passages:
        return list(messages)
    last = max(number for number, one in enumerate(messages) if one.get("role") == "user")
    said, text = messages[last]["content"], shown(passages)
    content = f"{said}\n\n{text}" if isinstance(said, str) else [*said, {"type": "text", "text": text}]
    return [*messages[:last], messages[last] | {"content": content}, *messages[last + 1 :]]
