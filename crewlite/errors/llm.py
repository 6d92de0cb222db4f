"""Errors of model calls."""

from __future__ import annotations

from typing import Any, ClassVar

from crewlite.errors.root import CrewliteError
from crewlite.texts.wording import number_of


class LLMError(CrewliteError, RuntimeError):
    """A model call failed."""

    code = "llm"
    usage: Any = None
    """The `Usage` of a reply that came and was no answer, as its service counted it; None if there was no reply."""


class LLMUnavailable(LLMError, ConnectionError):
    """The model may answer a later try: rate limit, server error, lost connection. `retry_after` is in seconds."""

    code = "llm_unavailable"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LLMTimeout(LLMUnavailable, TimeoutError):
    """A model did not answer in time (seconds). `what` names the setting that gives the limit."""

    code = "llm_timeout"

    def __init__(self, model: str, limit: float, what: str = "timeout") -> None:
        waited = "gave no complete reply within" if what == "timeout" else "sent no piece of its streamed reply for"
        super().__init__(f"{model} {waited} {limit:g} s. Raise {what}=, or start the run again.")
        self.model, self.limit = model, limit


class LLMRejected(LLMError):
    """A model's service refused the request, or it could not be sent. A retry would fail again.

    `status` is the HTTP status, `said` the text of the service.
    """

    code = "llm_rejected"
    advice: ClassVar[str] = "Correct the request or the settings of the model, then start the run again."

    def __init__(self, model: str, status: int | None, said: str, *, sent: bool = True) -> None:
        what = f"refused the request{f' (status {status})' if status else ''}" if sent else "could not be asked"
        super().__init__(f"{model} {what}: {said}. {self.advice}")
        self.model, self.status, self.said = model, status, said


class LLMAuthError(LLMRejected, PermissionError):
    """The service does not accept the API key, or the key lacks a permission, or no key was found."""

    code = "llm_auth"
    advice = "Check the key, its permissions and the balance of the account; then start the run again."


class ContextOverflow(LLMRejected):
    """The conversation is longer than the model can take."""

    code = "context_overflow"
    advice = (
        "Give the task less context, let its tools return less (max_tool_output), or take a model with a larger "
        "context; then start the run again."
    )


class ContentRefused(LLMError):
    """The model, or a filter of its service, refused to answer. It is not retried."""

    code = "content_refused"

    def __init__(self, model: str, said: str) -> None:
        super().__init__(f"{model} refused to answer: {said}. Change the task or the model, then start the run again.")
        self.model, self.said = model, said


class LLMEmptyReply(LLMError):
    """The reply of the model had no text and no tool call.

    `is_cut`: because it reached its token limit before there was any.
    """

    code = "llm_empty_reply"

    def __init__(self, model: str, *, is_cut: bool = False, usage: Any = None) -> None:
        why, then = "no text and no tool call", "Start the run again to retry."
        if is_cut:
            why = "it reached its token limit before any text, as a model does that thinks first"
            then = "Raise max_tokens=, or lower reasoning_effort=; then start the run again."
        super().__init__(f"{model} gave an empty reply: {why}. {then}")
        self.model, self.is_cut, self.usage = model, is_cut, usage


class ScriptExhausted(LLMError):
    """A ScriptedLLM was called more often than it has replies."""

    code = "script_exhausted"
    ends_run = True

    def __init__(self, calls: int) -> None:
        super().__init__(
            f"ScriptedLLM has {number_of(calls, 'reply', 'replies')} and was called once more. Add a reply, "
            f"or pass a function."
        )
        self.calls = calls


class RecordingMissing(LLMError, LookupError):
    """A RecordedLLM has no recorded reply to a request, and no model to ask."""

    code = "recording_missing"
    ends_run = True

    def __init__(self, path: str, asked: str, count: int, *, alike: bool = False) -> None:
        held = f"{number_of(count, 'reply', 'replies')}, but none to {asked!r}" if count else "no replies"
        same_end = "A recorded request ends in the same way, but its earlier messages, its tools or its schema differ."
        why = f" {same_end}" if alike else ""
        super().__init__(
            f"{path} holds {held}, and there is no model to ask.{why} To record a reply, pass the model as well: "
            f"RecordedLLM({path!r}, 'provider/model')."
        )
        self.path, self.asked, self.count = path, asked, count


class RecordingDamaged(LLMError, ValueError):
    """A line in the file of a RecordedLLM is damaged. `where` is the file and the line."""

    code = "recording_damaged"
    ends_run = True

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(
            f"{where} holds no recorded reply ({problem}). Nothing was changed: restore the line, or delete it and "
            f"record the reply again."
        )
        self.where = where
