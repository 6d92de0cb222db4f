"""litellm, imported when a model of a provider is first asked: the import takes seconds.

It is restricted: no look-up of prices or tokenizers on the network, no banners, no log lines of its own, no retries
(they belong to `recovery/`). If the program imported litellm first, its settings of prices, banners and logs are left
alone.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

from crewlite.concurrency import background
from crewlite.errors import ConfigError
from crewlite.lazy import imported, lazy, load
from crewlite.system.forked import in_child, lock
from crewlite.texts.logs import logger

log = logger("crewlite.llm")
_ITS_OWN = (
    ".*`ReadOnly` qualifier.*",
    ".*Accessing the.*attribute on the instance is deprecated.*",
    r"coroutine '\w+\.acompletion' was never awaited",  # from a call that is cancelled while litellm prepares it
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
"""Arguments of `litellm.acompletion` that crewlite sets itself, and the setting to use instead."""
ctypes = lazy("ctypes")  # only a forked child uses it
_lock = lock()
_loaded = False
_loader: int | None = None
"""The thread that is importing litellm now."""
_at_work = set[object]()
"""A key for each call of a model that waits for its answer."""


async def litellm() -> Any:
    """Return the module. The first call imports it in a thread, so that the loop is not blocked.

    Raises ConfigError if that import has come to a file of the program instead of a module that litellm needs.
    """
    if not _loaded:
        _check_name_of_program()
    module = sys.modules.get("litellm") if _loaded else await background.in_thread(_load)
    _hush()
    return module


@contextlib.contextmanager
def call_at_work() -> Iterator[None]:
    """Keep the connections of litellm open while the block, a call of a model, runs: see `_close_clients`."""
    key = object()
    _at_work.add(key)
    try:
        yield
    finally:
        _at_work.discard(key)


def api_error() -> type[Exception]:
    """Return the root class of the errors that litellm raises: it is the OpenAI client's."""
    error: type[Exception] = imported("openai").OpenAIError
    return error


def cost(library: Any, response: Any, model: str) -> float | None:
    """Return the cost of a response in US dollars; None for a model without a known price, never 0 by default.

    litellm says 0 also for some models that it has no price for, and for a response without usage.
    """
    try:
        found = float(library.completion_cost(completion_response=response, model=model))
    except Exception:  # litellm raises bare exceptions for what it has no price for
        return None
    if found > 0:
        return found
    prices = [price for name, price in _listed(library, model).items() if "cost" in name]
    return 0.0 if prices and not any(prices) else None


def takes(library: Any, model: str, provider: str, setting: str) -> bool:
    """Return whether a model takes a setting; True if that is not known."""
    return setting in (library.get_supported_openai_params(model, provider) or (setting,))


def calls_tools(library: Any, model: str, provider: str) -> bool:
    """Return False if the provider takes no tools, or if litellm lists the model as having no tool calls."""
    return (
        takes(library, model, provider, "tools")
        and _listed(library, model).get("supports_function_calling") is not False
    )


def sees(library: Any, model: str) -> bool:
    """Return whether a model takes pictures; True if litellm does not list it."""
    listed = _listed(library, model)
    return not listed or bool(listed.get("supports_vision"))


def _listed(library: Any, model: str) -> Any:
    return library.model_cost.get(model) or library.model_cost.get(model.partition("/")[2]) or {}


def close_names(library: Any, model: str) -> list[str]:
    """Return known names that are similar to this one."""
    provider, slash, name = model.partition("/")
    known = [str(getattr(item, "value", item)) for item in library.provider_list] if slash else ["offline"]
    return [f"{one}{slash}{name}" for one in difflib.get_close_matches(provider, known, n=2, cutoff=0.7)]


def _check_name_of_program() -> None:
    """Raise ConfigError if the import of litellm runs the program, which would wait here for its own import.

    A script `openai.py` is found before the package of that name.
    """
    program, frame = getattr(sys.modules["__main__"], "__file__", None), sys._current_frames().get(_loader or 0)
    while program and frame:
        if frame.f_code.co_name == "<module>" and os.path.realpath(frame.f_code.co_filename) == os.path.realpath(
            program
        ):
            name = frame.f_globals["__name__"]
            raise ConfigError(
                f"litellm imports a module {name!r}, and Python finds this program instead: give {program} another name"
            )
        frame = frame.f_back


def _check_files_of_program(error: ImportError | AttributeError) -> None:
    """Raise ConfigError if the import of litellm has missed something in a module that is a file of the program.

    That is a file beside the program, or in the directory that comes first among those that Python looks in.
    """
    named = error.name if isinstance(error, ImportError) else getattr(error.obj, "__name__", None)
    name = str(named or "").partition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None)
    beside = [os.path.dirname(getattr(sys.modules["__main__"], "__file__", None) or ""), *sys.path[:1]]
    if file and os.path.realpath(os.path.dirname(file)) in map(os.path.realpath, beside):
        raise ConfigError(
            f"litellm imports a module {name!r}, and Python finds {file} instead: give that file another name"
        ) from error


def _load() -> Any:
    global _loaded, _loader
    with _lock:
        if not _loaded:
            log.info("Loading litellm, which takes a few seconds once")
            os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            first, _loader = "litellm" not in sys.modules, threading.get_ident()
            if first:  # else the program has set it up as it wants it
                _quieten()
            try:
                module: Any = imported("litellm")
                if first:
                    module.suppress_debug_info = True  # no banners
                _fetch_no_tokenizers(module)
            except (ImportError, AttributeError) as error:
                _check_files_of_program(error)
                raise
            finally:
                _loader = None
            _keep_secrets()
            _ = module.completion_cost  # with the first name that litellm loads late, it sees to its own end
            background.at_end(partial(_close_clients, module))  # so this comes before that
            load(ctypes)
            _loaded = True
        return sys.modules["litellm"]


async def _close_clients(module: Any) -> None:
    """Close litellm's connections as the process ends, on the event loop that has opened them.

    litellm itself does that on another event loop, which Python 3.14 refuses, with complaints on the terminal. While a
    call waits for its answer they stay open: the step would record a failure that only the end of the process caused.
    """
    if not _at_work:
        await module.close_litellm_async_clients()


@in_child
def _leave_connections() -> None:
    """Have litellm open its own connections in a forked child, and leave alone those of the parent.

    Parent and child share each connection: if litellm closes it as the child ends, the parent's call never ends.
    """
    _at_work.clear()
    if not _loaded:
        return
    module = vars(sys.modules["litellm"])
    for name in ("in_memory_llm_clients_cache", "base_llm_aiohttp_handler"):
        if (held := module.get(name)) is not None:
            module[name] = type(held)()
            _keep(held)
    worker = getattr(sys.modules.get("litellm.litellm_core_utils.logging_worker"), "GLOBAL_LOGGING_WORKER", None)
    _keep(dict(getattr(worker, "__dict__", {})))  # its task, which Python would complain of


def _keep(held: object) -> None:
    """Keep something for ever: its finalizers would close connections, also as the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))


def _hush() -> None:
    """Ignore warnings about litellm's own code. litellm does so too, but only once, and a test runner resets filters.

    The last filter is about replies of an odd shape, which raise an error anyway. The program may cause such warnings
    itself, so its own filters for them come first.
    """
    first = [getattr(message, "pattern", None) for _, message, *_ in warnings.filters[: len(_ITS_OWN)]]
    if first == [*reversed(_ITS_OWN)]:
        return  # every change of the filters makes Python repeat warnings that it has shown once
    for message in _ITS_OWN:
        warnings.filterwarnings("ignore", message=message)
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings", append=True)


def _quieten() -> None:
    """Turn off litellm's log lines: errors are raised as typed errors, and its lines may hold requests."""
    if "LITELLM_LOG" not in os.environ:
        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _fetch_no_tokenizers(module: Any) -> None:
    """Keep litellm from fetching tokenizers to count tokens: it blocks the loop meanwhile. Keep what was set."""
    if module.disable_hf_tokenizer_download is None:
        module.disable_hf_tokenizer_download = True


def _keep_secrets() -> None:
    """Turn off log lines below INFO: they hold the user's own headers, which are secrets. Keep a level that was set.

    litellm has a handler of its own, so a level that is lower than the inherited one would print lines unasked.
    """
    for library in map(logging.getLogger, ("openai", "LiteLLM")):
        if library.level == logging.NOTSET:
            library.setLevel(max(logging.INFO, library.getEffectiveLevel()))
