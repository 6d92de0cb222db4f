"""What code of a flow or a step is told of the failure before this attempt, and what it tells the next one."""

from __future__ import annotations

from typing import Any

from crewlite import codec, durable
from crewlite.errors import ConfigError
from crewlite.recovery.context import RecoveryContext
from crewlite.state.runtime import RuntimeState


def recovery() -> RecoveryContext | None:
    """Return what the running attempt is told of the failure before it; None in a first attempt.

    In a step that has not failed itself, it is what the attempt around it is told.
    """
    return durable.scope().recovery(around=True)


def recovery_hint() -> str:
    """Return the hint for the running attempt; "" without one."""
    told = recovery()
    return told.hint if told else ""


def record_step(
    action: str = "",
    *,
    tool: str = "",
    input: Any = None,  # noqa: A002 - the name that RecordedStep has
    output: Any = None,
    error: str = "",
    said: str = "",
) -> None:
    """Record a piece of the work as evidence, in the body of a recoverable function.

    A classifier sees it if this attempt fails, and the next attempt gets it back as `recovery().trajectory`.

    Args:
        action: What was done. It has to be given.
        tool: The tool that did it.
        input: What the tool was given.
        output: What came of it.
        error: What went wrong.
        said: What a model said about it.

    Raises:
        ConfigError: `action` is missing, or one of the texts is no text.
        NotCodable: `input` or `output` cannot be recorded.
    """
    sayings = _here("record_step")
    given = {"action": action, "tool": tool, "input": input, "output": output, "error": error, "said": said}
    texts = ("action", "tool", "error", "said")
    for name in texts:
        if not isinstance(given[name], str):
            raise ConfigError(f"record_step: {name} is {given[name]!r}; wanted a text")
    if not action:
        raise ConfigError(
            "record_step: action is missing; wanted a text that says what was done, such as record_step('fetch')"
        )
    found = {name: value for name, value in given.items() if (value if name in texts else value is not None)}
    sayings.say({"steps": [_encoded("record_step", found)]})


def update_state(**values: Any) -> None:
    """Set values of the state of the run, in the body of a recoverable function.

    They become part of the state when the function succeeds. If this attempt fails, the next one gets them back as
    `recovery().state`. Raises NotCodable for a value that cannot be recorded.
    """
    sayings, encoded = _here("update_state"), _encoded("update_state", values)
    RuntimeState.current().update(values)
    sayings.say({"state": encoded})


def _here(verb: str) -> Any:
    if (sayings := durable.scope().sayings) is None:
        raise ConfigError(f"{verb}(...) was called outside a recoverable function: decorate its caller @recoverable()")
    return sayings


def _encoded(verb: str, values: dict[str, Any]) -> dict[str, Any]:
    """Encode each value by itself, because that is how it is decoded."""
    return {name: codec.encode_to_keep(value, f"{verb}: {name}") for name, value in values.items()}
