"""Knowledge that agents and crews share, and how much of it an agent is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import Field, field_validator

from crewlite.definitions.definition import Described
from crewlite.definitions.field_list import FieldList
from crewlite.definitions.takes import Takes
from crewlite.errors import ConfigError
from crewlite.knowledge.sources import KnowledgeSource, as_sources
from crewlite.lazy import lazy

passages = lazy("crewlite.knowledge.passages")

USUAL = 5
"""Passages of an agent's own knowledge that it is shown, and of its crew's, if no setting says how many."""


class KnowledgeConfig(Described):
    """How much an agent is shown of what it could know."""

    results_limit: int = Field(default=USUAL, ge=1)
    """Passages at most."""


class Knowledge(Described):
    """Sources to be searched together: `Knowledge(sources=["handbook.md"]).query("opening hours")`."""

    sources: Takes[Sequence[KnowledgeSource | str], FieldList[KnowledgeSource]]
    """Sources, or paths of files."""

    _sources = field_validator("sources", mode="before")(as_sources)

    def query(
        self, query: str | Sequence[str], results_limit: int = USUAL, score_threshold: float | None = None
    ) -> list[dict[str, Any]]:
        """Return the passages that an agent would be shown for this text: each with `content`, `source` and `score`.

        `score_threshold` has no effect: scores by words have no fixed scale.
        """
        text = query if isinstance(query, str) else "\n".join(query)
        found = passages.search([source.index for source in self.sources], text, results_limit)
        return [{"content": one.text, "source": one.source, "score": score} for one, score in found]


class Knowing(Protocol):
    """An agent or a crew, each of which may have knowledge."""

    @property
    def knowledge(self) -> Knowledge | None:
        """Sources as one object."""

    @property
    def knowledge_sources(self) -> Sequence[KnowledgeSource]:
        """Further sources."""

    @property
    def knowledge_config(self) -> Mapping[str, Any] | None:
        """The fields that are set of a KnowledgeConfig."""


def sources_of(who: Knowing) -> tuple[KnowledgeSource, ...]:
    """Return all sources that an agent or a crew is given."""
    return (*who.knowledge_sources, *(who.knowledge.sources if who.knowledge else ()))


def as_config(value: object) -> object:
    """What was given as `knowledge_config=`, as a mapping that can be recorded. Raises ConfigError."""
    if not value:
        return None
    if not isinstance(value, KnowledgeConfig | Mapping):
        raise ConfigError(f"knowledge_config is {value!r}; wanted KnowledgeConfig(results_limit=...)")
    made = value if isinstance(value, KnowledgeConfig) else KnowledgeConfig(**value)
    return made.model_dump(exclude_unset=True)
