"""The protocol of what `History.explore` accepts, so that History need not import the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from crewlite.state.config import CheckpointConfig

E_co = TypeVar("E_co", covariant=True)


class Explorable(Protocol[E_co]):
    """A crew, agent or flow whose recorded runs can be explored."""

    def explore(
        self,
        config: CheckpointConfig,
        variants: Sequence[Mapping[str, Any]],
        judge: Any,
        *,
        max_concurrency: int,
        study: str | None,
        allow_effects: bool,
    ) -> E_co:
        """Run the variants, and return the comparison of their results."""
