"""Convert the errors of a model's service to typed errors: by class and status, never by words in a text.

No typed error holds the request, the response or a key: its text is masked, and the original is not its cause.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import os
import re
import ssl
from collections.abc import Callable, Mapping
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
    came_from,
    text_of,
)
from crewlite.llm.library import api_error

_LATER = {408, 409, 425, 429}
_KEY = {401, 402, 403}
_UNPAID = {"insufficient_quota", "billing_hard_limit_reached"}  # a 429 that waiting does not end
_TOO_LONG = {"context_length_exceeded", "3051"}  # the number is Mistral's
_MISWRITTEN = {"tool_use_failed", "json_validate_failed"}  # a 400 of Groq's for what its model wrote, not for a request
_FILTERED = {"content_filter", "content_policy_violation"}
_PREFIX = re.compile(
    r"^(?:(?:litellm\.)?(?:\w+(?:Error|Timeout|Exception)\w*: (?:(?:\w+ ){1,3}Err?ror - )?|Timeout Error: "
    r"|\w+ ?(?:Error|Exception)(?: \w+){0,3} - ))+"
)
_INNARDS = re.compile(r"(?:Traceback \(most recent call last\)|Original exception:|Handle with `litellm).*", re.DOTALL)
_LONGEST = 500  # characters of the service's text in an error


def typed(
    error: Exception,
    model: str,
    exceptions: Any,
    mask: Callable[[str], str],
    limit: float | None,
    *,
    host: str | None = None,
    heard: bool = False,
) -> LLMError:
    """Build the error to raise for an error of litellm's.

    `exceptions` is litellm's module of exceptions, `mask` masks secrets, `limit` is the timeout in seconds, `host` the
    host that was asked. `heard`: the answer had begun.
    """
    told = _told(mask(text_of(error)))
    body = _json(told)
    said, status, code = _said(error, told, body), None if _is_no_json(error) else _status(error), _code(error, body)
    if isinstance(error, exceptions.Timeout) and limit is not None and not _answered(error):
        return LLMTimeout(model, limit)
    if isinstance(error, exceptions.ContextWindowExceededError) or code in _TOO_LONG:
        return ContextOverflow(model, status, said)
    if isinstance(error, exceptions.ContentPolicyViolationError) or code in _FILTERED:
        return ContentRefused(model, said)
    if status in _KEY or code in _UNPAID:
        return LLMAuthError(model, status, said)
    if status is None and not heard:
        if _keyless(error):
            return LLMAuthError(model, None, "no key was found for it", sent=False)
        if _unsent(error):
            return LLMRejected(model, None, said, sent=False)
    if status is None:
        said = mask(_explained(error, said, host or "its service"))
    if status is None or may_work_later(status) or code in _MISWRITTEN:
        wait = retry_after(getattr(error, "litellm_response_headers", None) or {})
        wait = _delay(body) if wait is None else wait
        return LLMUnavailable(_unavailable(model, status, said, wait), retry_after=wait)
    return LLMRejected(model, status, said)


def may_work_later(status: int) -> bool:
    """Return whether a service that answers with this HTTP status may answer a later request."""
    return status in _LATER or status >= 500


def retry_after(headers: Any) -> float | None:
    """Return the seconds that the service asks to wait: `retry-after-ms`, or `retry-after` as seconds or as a date.

    Source: RFC 9110, section 10.2.3; the milliseconds are OpenAI's and Azure's.
    """
    found = {str(name).lower(): str(value) for name, value in dict(headers).items()}
    milliseconds = _number(found.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    text = found.get("retry-after", "")
    seconds = _number(text)
    return _until(text) if seconds is None else seconds


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None


def _until(text: str) -> float | None:
    """Return the seconds from now to a date of HTTP; None if the text is no date."""
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _told(text: str) -> str:
    """Return what the service sent, without what litellm wrote around it, and as text where litellm shows bytes."""
    told = _PREFIX.sub("", _INNARDS.sub("", text)).strip()
    try:
        shown = ast.literal_eval(told) if told.startswith(("b'", 'b"')) else told
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return told
    return shown.decode(errors="replace") if isinstance(shown, bytes) else told


def _json(told: str) -> Mapping[str, Any]:
    """Return the body of an error that some of litellm's adapters pass on as JSON text; {} for other texts."""
    try:
        body = json.loads(told)
    except (ValueError, RecursionError):
        return {}
    inner = body.get("error", body) if isinstance(body, dict) else None
    return {"message": inner} if isinstance(inner, str) else inner if isinstance(inner, dict) else {}


def _said(error: Exception, told: str, body: Mapping[str, Any]) -> str:
    message = body.get("message")
    text = " ".join((message if isinstance(message, str) else told).split()).rstrip(".")
    return (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...") or type(error).__name__


def _delay(body: Mapping[str, Any]) -> float | None:
    """Return the seconds that a service of Google asks to wait: its errors say so in their body, not in a header.

    Source: google.rpc.RetryInfo, whose duration is a text such as "3.5s".
    """
    details = body.get("details")
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and delay.endswith("s"):
            return _number(delay[:-1])
    return None


def _status(error: Exception) -> int | None:
    """Return the HTTP status, or the one sent in the middle of a stream; None if there was no answer.

    Without an answer litellm reports 500. The status that was sent is on the original error: litellm turns any error
    that mentions a rate limit into a 429.
    """
    given = (getattr(one, "status_code", None) for one in (error.__context__, error))
    if _answered(error):
        return next((status for status in given if isinstance(status, int) and status >= 400), None)
    codes = (_code_in_body(error), *given)
    return next((code for code in codes if isinstance(code, int) and 400 <= code < 500), None)


def _is_no_json(error: Exception) -> bool:
    """Return whether the service sent a reply that is no JSON. litellm makes up a status for that: with Gemini, 422."""
    foreign = [one for one in came_from(error) if not type(one).__module__.startswith("litellm.")]
    refused = any(hasattr(one, "response") for one in foreign)
    return bool(foreign) and isinstance(foreign[0], json.JSONDecodeError) and not refused


def _code(error: Exception, body: Mapping[str, Any]) -> str | None:
    """Return the service's error code. For an error in a response of status 200, litellm has it as the status."""
    found = (_code_in_body(error), getattr(error, "status_code", None), body.get("code"))
    return next((code for code in found if isinstance(code, str)), None)


def _code_in_body(error: Exception) -> object:
    """Return the code in the body of the error: litellm's error, or, for a stream, the client's error before it."""
    bodies = (getattr(one, "body", None) for one in (error, error.__context__))
    return next((body.get("code") for body in bodies if isinstance(body, dict)), None)


def _answered(error: Exception) -> bool:
    """Return whether the service answered the request with this error."""
    return getattr(error, "litellm_response_headers", None) is not None


def _origin(error: Exception) -> BaseException | None:
    return next((one for one in came_from(error) if not type(one).__module__.startswith("litellm.")), None)


def _keyless(error: Exception) -> bool:
    """Return whether no key was found: the client raises the root class of its errors only for that."""
    return type(_origin(error)) is api_error()


def _unsent(error: Exception) -> bool:
    """Return whether no request could be made: a library or a setting is missing, or a value cannot be encoded.

    Only these classes themselves count: errors in reading an answer, such as incomplete JSON, raise subclasses of them.
    """
    origin = _origin(error)
    return isinstance(origin, ImportError) or type(origin) in (ValueError, TypeError, UnicodeEncodeError)


def _explained(error: Exception, said: str, host: str) -> str:
    """Return why there is no reply: a connection that failed, or a reply in which litellm missed something."""
    if reason := _reason(error):
        return f"the connection to {_asked(error) or host} failed: {reason}"
    origin = _origin(error)
    if isinstance(origin, json.JSONDecodeError):
        said = f"no JSON: {origin}"
    elif isinstance(origin, LookupError | AttributeError):
        said = f"{type(origin).__name__}: {said}"
    elif said != "Invalid response object":
        return said
    return f"{host} sent something else than a chat completion ({said}); check its base_url"


def _asked(error: Exception) -> str | None:
    """Return the host and port of a request that failed, as the HTTP client has it; None if that is not known.

    Not from errors of litellm, which name an address of their own.
    """
    for one in came_from(error):
        with contextlib.suppress(RuntimeError):  # httpx raises it for an error without its request
            netloc = getattr(getattr(getattr(one, "request", None), "url", None), "netloc", None)
            if isinstance(netloc, bytes) and not type(one).__module__.startswith("litellm."):
                return netloc.decode("ascii")
    return None


def _reason(error: Exception) -> str | None:
    """Return why a connection failed, in the words of the operating system; None if that is not known."""
    for one in reversed([*came_from(error)]):
        if isinstance(one, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({one.verify_message})"
        if isinstance(one, OSError) and one.errno:
            return os.strerror(one.errno) if one.errno > 0 and not isinstance(one, ssl.SSLError) else one.strerror
    return None


def _unavailable(model: str, status: int | None, said: str, wait: float | None) -> str:
    asked = f" The service asks to wait {wait:,.10g} s." if wait else ""
    return f"{model} could not answer{f' (status {status})' if status else ''}: {said}.{asked} Start the run again."
