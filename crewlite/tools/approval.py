"""What a person says to a call that needs approval: yes, no, yes with other arguments, or the result themselves.

As plain JSON: true, false, {"arguments": {...}} with the arguments to change, {"answer": ...} with the result.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from crewlite.tools.base import BaseTool, misfit

Verdict = bool | dict[str, Any]

HOW = 'yes, no, {"arguments": {...}} to change arguments, or {"answer": ...} to answer in its place'
_YES_OR_NO = TypeAdapter(bool)


def schema_of(tool: BaseTool | None) -> dict[str, Any]:
    """Return the JSON schema of a person's verdict on a call of this tool. None: any tool, so any arguments fit."""
    arguments: dict[str, Any] = {"type": "object", "minProperties": 1}
    inner: dict[str, Any] = tool.arguments.model_json_schema() if tool else {}
    if tool:
        arguments["properties"] = inner.get("properties", {})
        if inner.get("additionalProperties") is not True:
            arguments["propertyNames"] = {"enum": list(tool.takes)}
    return {
        "anyOf": [
            {"type": "boolean"},
            {"type": "object", "properties": {"arguments": arguments}, **_only("arguments")},
            {"type": "object", "properties": {"answer": {}}, **_only("answer")},
        ],
        "description": HOW,
        **{name: inner[name] for name in ("$defs", "definitions") if name in inner},
    }


def _only(name: str) -> dict[str, Any]:
    return {"required": [name], "additionalProperties": False}


def verdict_of(said: object) -> Verdict:
    """Return a person's answer as a verdict. Raises ValueError if it is none."""
    if isinstance(said, dict):
        if said.keys() == {"answer"} or (said.keys() == {"arguments"} and isinstance(said["arguments"], dict)):
            return said
        raise ValueError(f"wanted {HOW}")
    try:
        return _YES_OR_NO.validate_python(said, strict=True)
    except ValidationError:
        raise ValueError(f"wanted {HOW}") from None


def changed(arguments: dict[str, Any], verdict: Verdict) -> dict[str, Any]:
    """Return the arguments of a call, with those that a person has changed."""
    return {**arguments, **verdict["arguments"]} if isinstance(verdict, dict) and "arguments" in verdict else arguments


def check(tool: BaseTool, arguments: dict[str, Any], verdict: Verdict) -> None:
    """Raise ValueError if changed arguments do not fit the tool."""
    if isinstance(verdict, dict) and "arguments" in verdict:
        if not verdict["arguments"]:
            raise ValueError(f"wanted {HOW}")
        if problem := misfit(tool, changed(arguments, verdict)):
            raise ValueError(f"the arguments do not fit {tool.safe_name}: {problem}")
