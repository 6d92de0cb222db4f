"""The form of the outcome of each kind of step, which a commit is checked for when it is read.

Readers of a record rely on it: only the code of a step decodes its outcome completely, and a history, a page or a fork
reads parts of it without that code. Outcomes of kinds that are not listed here may have any form.
"""

from __future__ import annotations

from collections.abc import Callable

from crewlite import kinds
from crewlite.encoding.codec import Json, JsonObject
from crewlite.texts.wording import an


def check_outcome(address: str, kind: str, value: Json) -> None:
    """Raise ValueError if no step of this kind can have been recorded with this value."""
    if (fits := _FORMS.get(kind)) and not fits(value):
        raise ValueError(f"the outcome of {address!r} is not that of {an(kinds.of(kind).title)}")


def check_recorded_inputs(kind: str, inputs: Json) -> None:
    """Raise ValueError if no definition of this kind can have been given these recorded inputs."""
    if kinds.of(kind).takes_messages and not are_messages(inputs.get("messages")):
        raise ValueError(f"the inputs of {an(kinds.of(kind).title)} have no messages")


def checked_result(definition: JsonObject, value: Json) -> Json:
    """Return the outcome of a run. Raises ValueError if no run of this definition can have ended with it."""
    if kinds.has_methods(definition) and not (
        isinstance(value, dict) and "result" in value and isinstance(value.get("state"), dict)
    ):
        raise ValueError("it is not that of a flow with methods")
    return value


def are_messages(value: Json) -> bool:
    """Return whether these are the recorded messages of one turn of a conversation."""
    return bool(value) and _are(value, _is_message)


def _is_text(value: Json) -> bool:
    """Return whether a value is a recorded text: plain, in parts, or a reference to the text of another outcome."""
    if not isinstance(value, dict):
        return isinstance(value, str)
    parts = value.get("v")
    return value.get("$") == "of" or (value.get("$") == "str" and _are(parts, lambda part: isinstance(part, str)))


def _are(items: Json, fit: Callable[[Json], bool]) -> bool:
    return isinstance(items, list) and all(map(fit, items))


def _has_text(name: str) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, dict) and _is_text(value.get(name))


def _is_reply(value: Json) -> bool:
    return (
        isinstance(value, dict)
        and _is_text(value.get("text"))
        and (len(value) == 1 or _are_parts_of_reply(value))  # most replies are a text alone
    )


def _are_parts_of_reply(value: JsonObject) -> bool:
    return (
        _are(value.get("tool_calls", []), _is_tool_call)
        and all(name not in value or _is_text(value[name]) for name in ("finish", "id", "model"))
        and _is_mapping(value.get("carried", {}))
    )


def _is_tool_call(call: Json) -> bool:
    match call:
        case [str(), arguments, *rest] if len(rest) < 2:
            return _is_mapping(arguments) and all(one is None or _is_text(one) for one in rest)
    return False


def _is_mapping(value: Json) -> bool:
    return isinstance(value, dict) and value.get("$", "dict") == "dict"


def _is_message(message: Json) -> bool:
    if not isinstance(message, dict) or "$" in message:
        return _is_mapping(message)
    content = message.get("content", False)  # None is no text, and without any content it is no message
    is_tuple = isinstance(content, dict) and content.get("$") == "tuple"
    return content is None or isinstance(content, list) or is_tuple or _is_text(content)


def _is_verdict(value: Json) -> bool:
    match value:
        case [bool(), text]:
            return text is None or _is_text(text)
    return False


def _is_result_of_crew(value: Json) -> bool:
    return _is_mapping(value) and all(_are(value.get(name, []), _is_text) for name in ("tasks", "outputs"))


_FORMS: dict[str, Callable[[Json], bool]] = {
    kinds.AGENT.name: _has_text("raw"),
    kinds.CREW.name: _is_result_of_crew,
    kinds.GUARDRAIL.name: _is_verdict,
    kinds.HUMAN.name: lambda value: isinstance(value, dict) and ("answer" in value or "late" in value),
    kinds.LLM.name: _is_reply,
    kinds.MESSAGE.name: are_messages,
    kinds.OBSERVATION.name: _is_mapping,
    kinds.PLAN.name: lambda value: _are(value, _is_text),
    kinds.REASONING.name: _is_mapping,
    kinds.SUMMARY.name: _is_text,
    kinds.TASK.name: _has_text("raw"),
    kinds.TOOL.name: _has_text("text"),
    kinds.TURN.name: _has_text("raw"),
}
