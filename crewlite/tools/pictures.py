"""The tool with which an agent looks at a picture: from then on the picture is part of its conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crewlite.llm.base import Message
from crewlite.step_parts import Effect
from crewlite.tools.base import BaseTool

_ADDRESSES = ("https://", "http://", "data:image/")


class AddImage(BaseTool):
    """Puts a picture into the conversation, by its address on the web. Files of this machine it cannot reach."""

    name: str = "Add image to content"
    description: str = "Look at a picture: give its address (https://...), and what to look for in it."
    effect: Effect = "none"

    def _run(self, image_url: str, action: str = "") -> str:
        if not image_url.startswith(_ADDRESSES):
            raise ValueError(f"{image_url!r} is no address of a picture; wanted one that begins with https://")
        return "The picture follows."


def picture_message(arguments: Mapping[str, Any]) -> Message:
    """The message that shows the picture of a call."""
    asked = str(arguments.get("action") or "") or "This is the picture that you wanted to look at."
    picture = {"type": "image_url", "image_url": {"url": str(arguments["image_url"])}}
    return {"role": "user", "content": [{"type": "text", "text": asked}, picture]}
