"""litellm, loaded when a model of a provider is first asked: it costs seconds, which nobody else should pay.

It is fenced in: no look-up of prices on the network, no banners, no log lines of its own, no retries (they belong to
`recovery/`). What a user has set before is left alone.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from typing import Any

from crewlite import background

log = logging.getLogger("crewlite.llm")
_lock = threading.Lock()
_loaded = False


async def litellm() -> Any:
    """The module. The first call loads it, in a thread, so that the loop goes on meanwhile."""
    return sys.modules.get("litellm") if _loaded else await background.in_thread(_load)


def api_error() -> type[Exception]:
    """The root of what litellm raises: the OpenAI client's own."""
    error: type[Exception] = importlib.import_module("openai").OpenAIError
    return error


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
            _loaded = True
        return sys.modules["litellm"]


def _quieten(module: Any) -> None:
    """What goes wrong is told as typed errors; litellm's own lines would tell it twice, and may hold requests."""
    module.suppress_debug_info = True
    if "LITELLM_LOG" not in os.environ:
        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
