"""Messages with pictures: their content is a list of parts, texts and pictures, as services of chat models take it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crewlite.errors import ConfigError

if TYPE_CHECKING:
    from crewlite.llm.base import BaseLLM, Message

Part = dict[str, Any]
_BEGINNINGS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


def picture(data: bytes) -> Part | None:
    """Return the part of a PNG, JPEG, GIF or WebP picture; None for other data. What it is follows from its bytes."""
    kind = next((kind for beginning, kind in _BEGINNINGS.items() if data.startswith(beginning)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is None:
        return None
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{base64.b64encode(data).decode()}"}}


def with_pictures(content: str | Sequence[Part], pictures: Sequence[Part]) -> str | list[Part]:
    """Return the content of a message with pictures added; without any, the content as it is."""
    if not pictures:
        return content if isinstance(content, str) else list(content)
    said: Sequence[Part] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*said, *pictures]


def changed(content: Any, change: Callable[[str], str]) -> Any:
    """Return the content of a message with its text changed: of parts, the first text."""
    if isinstance(content, str):
        return change(content)
    texts = [part for part in content if part.get("type") == "text"] if isinstance(content, list) else []
    return (
        [part | {"text": change(part["text"])} if texts[:1] == [part] else part for part in content]
        if texts
        else content
    )


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message: of parts, the text of each, and what a part without text is, such as a picture."""
    content = message.get("content") or ""
    if not isinstance(content, list):
        return str(content)
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)


def check_sees(llm: BaseLLM, messages: Iterable[Message]) -> None:
    """Raise ConfigError if messages hold pictures and the model takes none."""
    for message in messages:
        content = message.get("content")
        if isinstance(content, list) and any(map(_is_picture, content)) and not llm.supports_multimodal():
            raise ConfigError(
                f"{llm.model} is given a picture, and takes texts alone. Choose a model that takes pictures, or give "
                f"the agent a tool that looks at them; a BaseLLM of your own says that it does by supports_multimodal()"
            )


def _is_picture(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "image_url"
