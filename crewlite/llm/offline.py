"""placeholder until the demo's model stands"""

from __future__ import annotations

from typing import Any

from crewlite.llm.base import BaseLLM, Message, Reply


class OfflineLLM(BaseLLM):
    """A model without a network."""

    model = "offline"

    async def acall(self, messages: list[Message], **context: Any) -> Reply:
        """Answer."""
        return str(messages[-1]["content"])[:200]
