"""`@human_feedback`: a person looks at what a method of a flow returns, and says what should follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from crewlite.errors import ConfigError
from crewlite.flow.classes.feedback import Feedback
from crewlite.flow.classes.methods import FlowMethod
from crewlite.keywords import known_keywords


@known_keywords("@human_feedback")
def human_feedback(
    message: str,
    emit: Iterable[Any] | None = None,
    llm: Any = None,
    default_outcome: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Callable[[Any], FlowMethod[Any, Any]]:
    """Ask a person about what a method returns. What follows the method gets a HumanFeedbackResult.

    At a terminal the question is asked at once. Elsewhere the run waits, as with `ask`: its answer is given to
    `kickoff(answers=...)`, `History.answer` or `crewlite checkpoint answer`.

    Args:
        message: What the person is asked, below what the method has returned.
        emit: The outcomes, as labels: the method is then a router, and the outcome starts what listens to it. An answer
            that is one of them, or begins with one and a colon, means that.
        llm: The model, or its name, that says which outcome any other answer means; one recorded step. None: an
            answer that names no outcome is refused.
        default_outcome: The outcome that an empty answer means. Without it an empty answer is refused.
        metadata: Plain data of your own, for the events and the result.

    Raises ConfigError for arguments that cannot work.
    """
    feedback = Feedback.of(message, emit, llm, default_outcome, metadata)

    def decorate(func: Any) -> FlowMethod[Any, Any]:
        method = FlowMethod.of(func, "@human_feedback", {})
        if method.feedback:
            raise ConfigError(f"method {method.name!r} has @human_feedback twice; a method asks one question")
        labels = frozenset(feedback.emit) or method.emit
        return replace(method, feedback=feedback, routes=method.routes or bool(feedback.emit), emit=labels)

    return decorate
