"""What a person says to a call that needs approval: yes, no, yes with other arguments, or the result themselves.

As plain JSON: true, false, {"arguments": {...}} with the arguments to change, {"answer": ...} with the result.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from crewlite.errors import text_of
from crewlite.tools.base import BaseTool, misfits

Verdict = bool | dict[str, Any]

HOW = 'yes, no, {"arguments": {...}} to change arguments, or {"answer": ...} to answer in its place'
_YES_OR_NO = TypeAdapter(bool)


def schema_of(tool: BaseTool | None) -> dict[str, Any]:
    """The JSON schema of what can be said to a call of this tool; None for any. It leaves values to the tool."""
    arguments: dict[str, Any] = {"type": "object", "minProperties": 1}
    if tool:
        arguments["propertyNames"] = {"enum": list(tool.takes)}
    return {
        "anyOf": [
            {"type": "boolean"},
            {"type": "object", "properties": {"arguments": arguments}, **_only("arguments")},
            {"type": "object", "properties": {"answer": {}}, **_only("answer")},
        ],
        "description": HOW,
    }


def _only(name: str) -> dict[str, Any]:
    return {"required": [name], "additionalProperties": False}


def verdict_of(said: object) -> Verdict:
    """What was said, read. Raises ValueError for what says nothing."""
    if isinstance(said, dict):
        if said.keys() == {"answer"} or (said.keys() == {"arguments"} and isinstance(said["arguments"], dict)):
            return said
        raise ValueError(f"wanted {HOW}")
    try:
        return _YES_OR_NO.validate_python(said)
    except ValidationError:
        raise ValueError(f"wanted {HOW}") from None


def changed(arguments: dict[str, Any], verdict: Verdict) -> dict[str, Any]:
    """The arguments of a call, with those that a person has changed."""
    return {**arguments, **verdict["arguments"]} if isinstance(verdict, dict) and "arguments" in verdict else arguments


def check(tool: BaseTool, arguments: dict[str, Any], verdict: Verdict) -> None:
    """Raise ValueError if changed arguments do not fit the tool."""
    if isinstance(verdict, dict) and "arguments" in verdict:
        if not verdict["arguments"]:
            raise ValueError(f"wanted {HOW}")
        try:
            tool.check(changed(arguments, verdict))
        except ValidationError as error:
            raise ValueError(f"the arguments do not fit {tool.safe_name}: {misfits(error)}") from error
        except Exception as error:  # the border: validators are the tool's own, and may raise anything
            raise ValueError(f"the arguments do not fit {tool.safe_name}: {text_of(error)}") from error
