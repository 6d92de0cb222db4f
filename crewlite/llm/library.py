"""litellm, loaded when a model of a provider is first asked: it costs seconds, which nobody else should pay.

It is fenced in: no look-up of prices on the network, no banners, no log lines of its own, no retries (they belong to
`recovery/`). If the program loaded it first, its prices, its banners and what is set of its log stay the program's.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from crewlite import background
from crewlite.forked import lock

log = logging.getLogger("crewlite.llm")
_ITS_OWN = (
    ".*`ReadOnly` qualifier.*",
    ".*Accessing the.*attribute on the instance is deprecated.*",
    r"coroutine '\w+\.acompletion' was never awaited",  # by a call that is cut while litellm prepares it
)
OWNED = {
    "api_base": "base_url=",
    "context_window_fallback_dict": "fallbacks=",
    "headers": "extra_headers=",
    "request_timeout": "timeout=",
    "stream_options": "stream=",
    "messages": "the agent, or call(messages)",
    "tools": "Agent(tools=...)",
    "functions": "Agent(tools=...)",
} | dict.fromkeys(("max_retries", "num_retries", "retry_policy", "retry_strategy"), "failure_policy=")
"""Arguments of `litellm.acompletion` that are crewlite's, and what to use instead."""
_lock = lock()
_loaded = False
_asking_once: ContextVar[bool] = ContextVar("crewlite_asking_once", default=False)


async def litellm() -> Any:
    """The module. The first call loads it, in a thread, so that the loop goes on meanwhile."""
    module = sys.modules.get("litellm") if _loaded else await background.in_thread(_load)
    _hush()
    return module


def api_error() -> type[Exception]:
    """The root of what litellm raises: the OpenAI client's own."""
    error: type[Exception] = importlib.import_module("openai").OpenAIError
    return error


def cost(library: Any, response: Any, model: str) -> float | None:
    """US dollars; None for a model without a known price, never 0 by default."""
    try:
        return float(library.completion_cost(completion_response=response, model=model))
    except Exception:  # noqa: BLE001 - litellm raises bare exceptions for what it has no price for
        return None


def takes(library: Any, model: str, provider: str, setting: str) -> bool:
    """Whether a model takes a setting, as far as is known."""
    return setting in (library.get_supported_openai_params(model, provider) or (setting,))


def calls_tools(library: Any, model: str, provider: str) -> bool:
    """False if the provider takes no tools, or the model is listed as having none."""
    listed = library.model_cost.get(model) or library.model_cost.get(model.partition("/")[2]) or {}
    return takes(library, model, provider, "tools") and listed.get("supports_function_calling") is not False


def close_names(library: Any, model: str) -> list[str]:
    """Names like this one that are known."""
    provider, slash, name = model.partition("/")
    known = [str(getattr(item, "value", item)) for item in library.provider_list] if slash else ["offline"]
    return [f"{one}{slash}{name}" for one in difflib.get_close_matches(provider, known, n=2, cutoff=0.7)]


def _load() -> Any:
    global _loaded
    with _lock:
        if not _loaded:
            log.info("Loading litellm, which takes a few seconds once")
            os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            first = "litellm" not in sys.modules
            module = importlib.import_module("litellm")
            if first:  # else it is set up as the program wants it
                _quieten(module)
            _keep_secrets()
            _no_second_request()
            _loaded = True
        return sys.modules["litellm"]


def _hush() -> None:
    """Warnings about litellm's own code, which it hushes too, but only once: a test runner puts all filters back.

    The last one is about replies of an odd shape, of which the error tells. A program may have others of its kind, so
    what it says about them comes first.
    """
    first = [getattr(message, "pattern", None) for _, message, *_ in warnings.filters[: len(_ITS_OWN)]]
    if first == [*reversed(_ITS_OWN)]:
        return  # for every change has Python say again what it has said once
    for message in _ITS_OWN:
        warnings.filterwarnings("ignore", message=message)
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings", append=True)


def _no_second_request() -> None:
    """Have a lost connection told. litellm's client for services without one of their own would ask once more.

    No setting turns that off, and nobody would know of the request that may have been paid twice. Only crewlite's own
    calls are concerned: whatever else the program does with litellm is as litellm has it.
    """
    client = importlib.import_module("litellm.llms.custom_httpx.http_handler").AsyncHTTPHandler
    again = client.single_connection_post_request

    @functools.wraps(again)
    async def asked_again(*args: Any, **kwargs: Any) -> Any:
        error = sys.exc_info()[1]
        if _asking_once.get() and error is not None:
            raise error  # the one that is being handled
        return await again(*args, **kwargs)

    client.single_connection_post_request = asked_again


@contextlib.contextmanager
def asking_once() -> Iterator[None]:
    """In the block, litellm sends each request once."""
    token = _asking_once.set(True)
    try:
        yield
    finally:
        _asking_once.reset(token)


def _quieten(module: Any) -> None:
    """What goes wrong is told as typed errors; litellm's own lines would tell it twice, and may hold requests."""
    module.suppress_debug_info = True
    if "LITELLM_LOG" not in os.environ:
        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _keep_secrets() -> None:
    """Below INFO they tell the headers that a user added, which are secrets. A level that was set is left alone."""
    for name in ("openai", "LiteLLM"):
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.INFO)
