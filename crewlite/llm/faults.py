"""What a model's service did wrong, as typed errors: by class and status, never by words found in a text.

No error keeps the request, the response or a key: the text is masked, and the chain to the original is cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from crewlite.errors import (
    ContentRefused,
    ContextOverflow,
    LLMAuthError,
    LLMError,
    LLMRejected,
    LLMTimeout,
    LLMUnavailable,
    text_of,
)

_LATER = {408, 409, 425, 429}  # and everything from 500 on
_KEY = {401, 402, 403}
_UNPAID = {"insufficient_quota", "billing_hard_limit_reached"}  # a 429 that no waiting mends
_PREFIX = re.compile(r"^(?:litellm\.)?(?:\w+(?:Error|Timeout|Exception)\w*: |Timeout Error: |\w+Exception - )+")
_LONGEST = 500  # characters of what the other side said


def typed(error: Exception, model: str, exceptions: Any, mask: Callable[[str], str], limit: float | None) -> LLMError:
    """The error to raise for one of litellm's. `exceptions` is its module of them; `mask` takes secrets out."""
    said, status = _said(error, mask), _status(error)
    if isinstance(error, exceptions.Timeout) and status == 408 and limit is not None:
        return LLMTimeout(model, limit)
    if isinstance(error, exceptions.ContextWindowExceededError):
        return ContextOverflow(model, status, said)
    if isinstance(error, exceptions.ContentPolicyViolationError) or _code(error) in {
        "content_filter",
        "content_policy_violation",
    }:
        return ContentRefused(model, said)
    if status in _KEY or _code(error) in _UNPAID:
        return LLMAuthError(model, status, said)
    if status is None or status in _LATER or status >= 500:
        wait = retry_after(getattr(error, "litellm_response_headers", None) or {})
        return LLMUnavailable(_unavailable(model, status, said, wait), retry_after=wait)
    return LLMRejected(model, status, said)


def retry_after(headers: Any) -> float | None:
    """Seconds that the other side asks to wait: `retry-after-ms`, or `retry-after` as seconds or as a date.

    Source: RFC 9110, section 10.2.3; the milliseconds are OpenAI's and Azure's.
    """
    found = {str(name).lower(): str(value) for name, value in dict(headers).items()}
    try:
        if "retry-after-ms" in found:
            return max(0.0, float(found["retry-after-ms"]) / 1000)
        text = found["retry-after"]
    except (KeyError, ValueError):
        return None
    try:
        return max(0.0, float(text)) if float(text) < float("inf") else None
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _said(error: Exception, mask: Callable[[str], str]) -> str:
    text = " ".join(_PREFIX.sub("", mask(text_of(error))).split()).rstrip(".")
    return (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...") or type(error).__name__


def _status(error: Exception) -> int | None:
    """HTTP's; None if nothing was heard, where litellm says 500."""
    status, heard = getattr(error, "status_code", None), getattr(error, "litellm_response_headers", None) is not None
    return status if isinstance(status, int) and (heard or status < 500) else None


def _code(error: Exception) -> str | None:
    body = getattr(error, "body", None)
    code = body.get("code") if isinstance(body, dict) else None
    return code if isinstance(code, str) else None


def _unavailable(model: str, status: int | None, said: str, wait: float | None) -> str:
    asked = f" It asks to wait {wait:g} s." if wait is not None else ""
    return (
        f"{model} could not answer{f' (status {status})' if status else ''}: {said}.{asked} "
        f"Kick off the run again to go on."
    )
