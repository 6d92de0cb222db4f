"""Arguments of a tool call, read from what a model sent.

A model may send anything. What cannot be read, or could not be recorded, ends no run: the model is told.
"""

from __future__ import annotations

import json
from typing import Any

UNREAD = ("not JSON", "not an object", "too deep")
"""Keys that hold the text of arguments which are not JSON, or not a JSON object, or nested too deeply for a record."""
_DEEPEST = 80  # levels of arguments; a record takes a hundred, and has arguments a few levels deep in a reply


def as_dict(arguments: dict[str, Any] | str | None) -> dict[str, Any]:
    """Return arguments as a dict, reading JSON text.

    What is no JSON object is returned under a key of UNREAD. No tool accepts that key, so the model hears of it.
    """
    if not isinstance(arguments, str):
        return {UNREAD[2]: ""} if _is_deep(arguments) else arguments or {}
    try:
        read = json.loads(arguments.strip() or "{}")
    except (ValueError, RecursionError):
        return {UNREAD[0]: arguments}
    if not isinstance(read, dict):
        return {UNREAD[1]: arguments}
    return {UNREAD[2]: arguments} if _is_deep(read) else read


def _is_deep(arguments: object) -> bool:
    level, levels = [arguments], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        if (levels := levels + 1) > _DEEPEST:
            return True
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else one)]
    return False
