"""The arguments of `LLM`: the values that they may have, and further ones that are passed on to litellm."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, get_args

from crewlite.coming_from.settings import why_not, without_accepted
from crewlite.definitions.keywords import refuse_unknown
from crewlite.errors import ConfigError, meant_setting
from crewlite.llm import keys, library as provided
from crewlite.llm.base import OFFLINE, ToolProtocol
from crewlite.texts.logs import logger
from crewlite.texts.wording import what_is

log = logger("crewlite.llm")
_HANDED_ON = frozenset(
    {"additional_drop_params", "allowed_openai_params", "drop_params", "frequency_penalty", "logit_bias", "logprobs"}
    | {"max_completion_tokens", "metadata", "modalities", "n", "num_ctx"}
    | {"organization", "parallel_tool_calls", "presence_penalty", "safety_settings", "service_tier", "thinking"}
    | {"top_k", "top_logprobs", "user", "web_search_options"}
)
_RENAMED = {"guardrail_config": "guardrailConfig", "region_name": "aws_region_name"}
"""Arguments of CrewAI that litellm takes by another name."""
_ALSO = {"stop_sequences": "stop=", "default_headers": "extra_headers=", "custom_openai": "model='openai/...'"}
"""Other names of arguments, which the constructor takes, and what to set later instead."""
_OF_SERVICES = ("aws_", "azure_", "vertex_", "watsonx_")
_PROVIDERS = {"aws": "bedrock", "azure_openai": "azure", "claude": "anthropic", "google": "gemini", "litellm": ""}
"""Names of providers in CrewAI, and those of litellm; "" leaves the provider to the name of the model."""


_ALONE = ("others", "tool_protocol", "max_retries", "failure_policy")
"""Arguments that no other one depends on, or of which each replaces the other."""
_FOLLOWING = {
    "model": ("_stand_in", "_provider", "_bare", "_sees"),
    "base_url": ("_login", "_provider", "_bare"),
    "max_retries": ("failure_policy",),
    "failure_policy": ("max_retries",),
    "tool_protocol": ("_decided",),
}
"""By argument: further attributes of a model that follow from it."""


def handed_on(extra: Mapping[str, Any] | None, others: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return `extra` with the other arguments that are passed on to litellm, and the arguments that are unknown."""
    if extra is not None and not isinstance(extra, Mapping):
        return extra, {}  # `check` raises an error for it
    asked = {_RENAMED.get(name, name): value for name, value in without_accepted(["LLM"], others).items()}
    takes = {*_HANDED_ON, *_RENAMED.values()}
    own = {name: value for name, value in asked.items() if name in takes or name.startswith(_OF_SERVICES)}
    left = {name: value for name, value in asked.items() if name not in own}
    return {**(extra or {}), **{name: value for name, value in own.items() if value is not None}}, left


def full_name(model: str, others: dict[str, Any]) -> str:
    """Return the name of a model with its provider, which CrewAI may have in other arguments; these are removed."""
    given = others.pop("provider", None)
    given = "openai" if others.pop("custom_openai", None) else given
    if not isinstance(given, str | None):
        raise ConfigError(f"LLM: provider is {_shown(given)}; wanted a name, such as 'openai'")
    if model == OFFLINE or not isinstance(model, str):
        return model  # `check` raises an error for what is no text
    named, slash, rest = model.partition("/")
    known = _PROVIDERS.get(named, named) if slash else ""
    provider = _PROVIDERS.get(given, given) if given else known
    return f"{provider}/{rest if known == provider else model}" if provider else model


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _seconds(value: object) -> bool:
    return _number(value) and cast(float, value) > 0


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _texts(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, Sequence) and all(isinstance(item, str) for item in value))


def _headers(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(part, str) for item in value.items() for part in item)


_WANTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "model": (lambda value: isinstance(value, str) and bool(value.strip()), "a name, such as 'openai/gpt-4o'"),
    "base_url": (keys.is_address, "an address, such as http://127.0.0.1:8000/v1"),
    "temperature": (_number, "a number"),
    "top_p": (_number, "a number"),
    "max_tokens": (_whole, "a whole number"),
    "stop": (_texts, "a text, or a list of texts"),
    "seed": (_whole, "a whole number"),
    "timeout": (_seconds, "seconds, more than 0, or None"),
    "stream": (lambda value: isinstance(value, bool), "True or False"),
    "max_retries": (lambda value: _whole(value) and value >= 0, "a whole number, 0 or more"),
    "idle_timeout": (_seconds, "seconds, more than 0, or None"),
    "tool_protocol": (lambda value: value in get_args(ToolProtocol), "'native' or 'text'"),
    "extra_headers": (_headers, "a dict of text to text"),
    "extra": (lambda value: isinstance(value, Mapping), "a dict of arguments of litellm.acompletion"),
}


def check(settings: Mapping[str, Any], unknown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the unknown arguments that are passed on to litellm, as CrewAI does: those that are like none of ours.

    Raises ConfigError for any other, and for settings that cannot have their value. Only numbers are shown in it.
    """
    unlike = {name: value for name, value in unknown.items() if not _meant(name, settings)}
    refuse_unknown("LLM", settings, [name for name in unknown if name not in unlike], instead=provided.OWNED)
    if unlike:
        log.warning("LLM(%r): no option of LLM, passed on to litellm: %s", settings["model"], ", ".join(sorted(unlike)))
    if settings["max_retries"] is not None and settings["failure_policy"] is not None:
        raise ConfigError("LLM: max_retries and failure_policy both say what follows a failed call; set one of the two")
    for name, (fits, wanted) in _WANTED.items():
        value = settings[name]
        if (value is not None or name == "model") and not fits(value):
            raise ConfigError(f"LLM: {name} is {_shown(value)}; wanted {wanted}")
    for name in settings["extra"] or ():
        if name in settings or name in provided.OWNED:
            instead = provided.OWNED.get(name, f"{name}=")
            raise ConfigError(f"LLM: extra holds {name!r}, which crewlite sets itself; use {instead}")
    return unlike


def set_later(llm: Any, kind: type[Any], name: str, value: object) -> dict[str, Any]:
    """Return what an attribute of a model is set to, and others that follow from it, as its constructor makes them.

    Raises what the constructor raises.
    """
    taken = inspect.signature(kind).parameters
    if name not in taken or name == "others":
        if type(llm) is not kind or hasattr(kind, name) or name.startswith("_"):  # a user's class has its own
            return {name: value}
        extra, unknown = handed_on(None, {name: value})
        if unknown and (name in _ALSO or _meant(name, taken)):
            refuse_unknown("LLM", taken, unknown, instead=provided.OWNED | _ALSO)
        return {name: value} | ({"extra": {**llm.extra, **extra}} if extra else {})
    given = {one: getattr(llm, one) for one in taken if one not in _ALONE}
    made = kind(**given | {name: value})
    return {one: getattr(made, one) for one in (name, *_FOLLOWING.get(name, ()))}


def _meant(name: str, settings: Mapping[str, Any]) -> bool:
    """Return whether there is anything to say about an unknown argument."""
    return bool(name in provided.OWNED or why_not(["LLM"], name) or meant_setting(name, settings))


def _shown(value: object) -> str:
    return repr(value) if value is None or isinstance(value, int | float) else f"{what_is(value)} that does not fit"
