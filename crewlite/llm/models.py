"""Find the model of an agent: an object, a name, or CREWLITE_MODEL. There is no paid default."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from crewlite.errors import ConfigError, NoModel
from crewlite.lazy import lazy
from crewlite.llm.base import OFFLINE, BaseLLM
from crewlite.texts.wording import what_is

if TYPE_CHECKING:
    from crewlite.llm import foreign, model, offline
else:
    foreign = lazy("crewlite.llm.foreign")  # only for models of other frameworks
    model = lazy("crewlite.llm.model")  # only for those who ask for one by name
    offline = lazy("crewlite.llm.offline")

Model = BaseLLM | str | None


class _Invoked(Protocol):
    @property
    def invoke(self) -> Callable[..., Any]: ...


class _InvokedAsync(Protocol):
    @property
    def ainvoke(self) -> Callable[..., Any]: ...


ChatModel = _Invoked | _InvokedAsync
"""A chat model of another framework, which answers a list of messages."""


def as_model(value: object) -> object:
    """Return the value of `llm=`, with a chat model of another framework wrapped in a ForeignLLM.

    Raises ConfigError for a model without invoke.
    """
    if value is None or isinstance(value, BaseLLM | str | type):
        return value
    if any(callable(getattr(value, verb, None)) for verb in ("ainvoke", "invoke")):
        return foreign.ForeignLLM(value)
    if callable(getattr(value, "chat", None)) or callable(getattr(value, "complete", None)):
        raise ConfigError(
            f"llm is {what_is(value)}, which has no invoke(messages); wanted LLM('provider/model'), a "
            f"BaseLLM, or a chat model of LangChain"
        )
    return value


def resolve_llm(outward: Iterable[Model], *, agent: str, give: str = "") -> BaseLLM:
    """Return the first model in `outward` (the agent's own, then those of enclosing definitions), else CREWLITE_MODEL.

    `give`: what to do without a model, if it is not to give the agent one. Raises NoModel, ConfigError.
    """
    for own in (*outward, os.environ.get("CREWLITE_MODEL") or None):
        if isinstance(own, BaseLLM):
            return own
        if isinstance(own, str):
            return named(own)
        if own is not None:
            found = what_is(own)  # not the value: it may hold a key
            raise ConfigError(f"Agent {agent!r} has {found} as llm; wanted a BaseLLM or the name of a model")
    raise NoModel([agent], give) if give else NoModel([agent])


def named(name: str) -> BaseLLM:
    """Build the model of this name: `offline`, or `provider/model`."""
    return offline.OfflineLLM() if name == OFFLINE else model.LLM(name)
