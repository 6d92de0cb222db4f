"""Models of the providers that litellm knows, by name: `LLM(model="provider/model")`."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr

from crewlite import durable
from crewlite.concurrency import background
from crewlite.errors import ConfigError, LLMRejected, LLMTimeout, MissingKey, UnknownProvider
from crewlite.lazy import lazy
from crewlite.llm import faults, keys, library as provided, wire
from crewlite.llm.arguments import check, full_name, handed_on, set_later
from crewlite.llm.base import (
    OFFLINE,
    BaseLLM,
    LLMReply,
    Message,
    OnChunk,
    ReplyText,
    ToolProtocol,
    as_messages,
    whole_reply,
)
from crewlite.llm.streamed import StreamedReply
from crewlite.recovery.policy import MaxRetries
from crewlite.recovery.port import Policy, check_policy
from crewlite.texts.logs import logger
from crewlite.texts.secrets import Secrets
from crewlite.texts.wording import what_is

if TYPE_CHECKING:
    from crewlite.llm import offline
else:
    offline = lazy("crewlite.llm.offline")  # only for those who ask for it

log = logger("crewlite.llm")
T = TypeVar("T")
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high"]
_SETTINGS = ("temperature", "top_p", "max_tokens", "stop", "seed", "reasoning_effort", "api_version", "extra_headers")
_PLAIN: tuple[str, ...] = ("api_version", "temperature", "top_p", "max_tokens", "stop", "seed", "timeout")
_PLAIN += ("idle_timeout", "max_retries", "reasoning_effort", "stream")
_BAD_REQUEST = (400, 422)
_NO_SETTINGS = ("self", "__class__", "others")  # in the frame of the constructor


class LLM(BaseLLM):
    """A model by name, `provider/model`: `LLM(model="anthropic/claude-sonnet-4-5", temperature=0)`.

    The providers are litellm's; a server of your own that speaks OpenAI's protocol is
    `LLM(model="openai/NAME", base_url="http://...")`. The key is `api_key`, else the provider's usual environment
    variable (OPENAI_API_KEY, ANTHROPIC_API_KEY, ...); it is never written, logged or shown.

    Args:
        model: Provider and model. A name without a provider is one of those that litellm knows, such as `gpt-4o`, or
            with a `base_url` any that a server with OpenAI's protocol has there; `offline` answers without a network,
            whatever the other settings say.
        base_url: Where to ask, instead of the provider's own address.
        temperature, top_p, max_tokens, stop, seed, reasoning_effort, response_format: As the provider defines them;
            None leaves them to it. A pydantic class as response_format is sent as its JSON schema. What a provider
            does not take is an error, not left out.
        timeout: Seconds for one complete reply.
        idle_timeout: Seconds without a piece of a streamed reply: once the response has begun, until its first piece,
            and then between two pieces.
        stream: Receive the reply in pieces, emitted as `llm_stream_chunk` and `llm_thinking_chunk`. The record holds
            the complete reply, as without streaming.
        fallbacks: Models, or their names, to ask, in order, when this one fails and is not retried any more.
        failure_policy: Decides on failed calls, including those of the fallbacks; None inherits.
        tool_protocol: "native" (the provider's tool calls) or "text" (thought, action, observation); None takes
            "native" unless the model is known to have no tool calls.
        extra_headers: Further HTTP headers to send; their values are secrets.
        max_retries: How often a call that failed for now is made again. The nearest failure policy decides on all
            else, and on this too where it is None.
        extra: Any other argument of `litellm.acompletion`, except those that crewlite sets itself. The common ones,
            such as `presence_penalty`, are taken by name as well, and so is any that is like no other name here, with
            a warning. `api_base` and `endpoint` are base_url, `default_headers` is extra_headers, `max_output_tokens`
            is max_tokens, `num_retries` is max_retries, `stop_sequences` is stop, and `provider`, or
            `custom_openai=True`, is that in `model`.

    Raises:
        ConfigError: a setting has a value that it cannot have, or does not exist.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | SecretStr | None = None,
        api_version: str | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        seed: int | None = None,
        timeout: float | None = 600.0,
        max_retries: int | None = None,
        idle_timeout: float | None = 120.0,
        response_format: type[BaseModel] | Mapping[str, Any] | None = None,
        reasoning_effort: ReasoningEffort | None = None,
        fallbacks: Sequence[BaseLLM | str] = (),
        failure_policy: Policy | None = None,
        stream: bool = False,
        tool_protocol: ToolProtocol | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        base_url = base_url or others.pop("api_base", None) or others.pop("endpoint", None) or None
        extra_headers = extra_headers or others.pop("default_headers", None)
        max_tokens = others.pop("max_output_tokens", None) if max_tokens is None else max_tokens
        max_retries = others.pop("num_retries", None) if max_retries is None else max_retries
        if (sequences := others.pop("stop_sequences", None)) and stop:
            raise ConfigError("LLM: stop and stop_sequences are one setting; give stop or stop_sequences, not both")
        stop = stop or sequences
        model = full_name(model, others)
        extra, others = handed_on(extra, others)
        others = check({name: value for name, value in locals().items() if name not in _NO_SETTINGS}, others)
        super().__init__(model)
        self.base_url, self.api_version = base_url, api_version
        self.api_key = keys.checked(api_key)
        self.temperature, self.top_p, self.max_tokens = temperature, top_p, max_tokens
        self.stop = [stop] if isinstance(stop, str) else list(stop) if stop else None
        self.seed, self.timeout, self.idle_timeout = seed, timeout, idle_timeout
        self.response_format, self.reasoning_effort = response_format, reasoning_effort
        self.fallbacks = _models(fallbacks)
        self.max_retries = max_retries
        self.failure_policy = check_policy(failure_policy, "LLM") if max_retries is None else MaxRetries(max_retries)
        self.stream = stream
        self.extra_headers = dict(extra_headers) if extra_headers else None
        self.extra = {**(extra or {}), **others}
        if tool_protocol is not None:
            self.tool_protocol = tool_protocol
        self._decided = tool_protocol is not None
        self._provider: str | None = None
        self._bare = False  # whether litellm has to be told the provider, as the name of the model does not
        self._sees = True
        self._login = keys.Login.of(base_url)
        self._stand_in = offline.OfflineLLM() if model == OFFLINE else None

    def __setattr__(self, name: str, value: object) -> None:
        is_made = "_stand_in" in vars(self)
        for one, held in (set_later(self, LLM, name, value) if is_made else {name: value}).items():
            super().__setattr__(one, held)

    def plain_settings(self) -> dict[str, Any] | None:
        """Return the settings that differ from the defaults, without keys.

        None if the settings include headers, `extra`, a response format or a policy, an address on another machine, or
        a fallback of which one of these is true or whose fallbacks lead back to itself.
        """
        return self._plain_settings(())

    def _plain_settings(self, above: tuple[LLM, ...]) -> dict[str, Any] | None:
        if self in above:
            return None
        inner = (*above, self)
        spares = [
            spare._plain_settings(inner) if isinstance(spare, LLM) else spare.plain_settings()
            for spare in self.fallbacks
        ]
        if type(self) is not LLM or self.extra or self.extra_headers or self.response_format or None in spares:
            return None
        if self.failure_policy is not None and self.max_retries is None:  # code, which no record holds
            return None
        if self.base_url and not keys.is_here(self.base_url):
            return None
        usual = inspect.signature(LLM).parameters
        settings = {
            name: getattr(self, name) for name in (*_PLAIN, "base_url") if getattr(self, name) != usual[name].default
        }
        settings |= {"tool_protocol": self.tool_protocol} if self._decided else {}
        settings |= {"fallbacks": spares} if spares else {}
        return {"model": self.model, **settings, **({"key": True} if self.api_key else {})}

    def supports_multimodal(self) -> bool:
        """Return False if litellm lists the model without vision. Known once the model is `ready`."""
        return self._sees if self._stand_in is None else self._stand_in.supports_multimodal()

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> LLM | None:
        """Build the model of `plain_settings`, with its key from the environment.

        None if a key is missing or a setting does not fit. Settings are read from a record, so they never send a key to
        an address on another machine.
        """
        given = {name: value for name, value in settings.items() if name in (*_PLAIN, "base_url", "tool_protocol")}
        spares = [cls.of_settings(spare) for spare in settings.get("fallbacks", ())]
        model, base_url = str(settings.get("model")), settings.get("base_url")
        provider = model.partition("/")[0]
        there = any(os.environ.get(name) for name in keys.NAMES.get(provider, ()))
        if keys.missing(provider, None, base_url) or (settings.get("key") and not there) or None in spares:
            return None
        if base_url and not keys.is_here(base_url):
            return None
        try:
            return cls(model, fallbacks=[spare for spare in spares if spare], **given)
        except (ConfigError, TypeError, ValueError):  # the record holds settings that no crewlite wrote
            return None

    async def acall(
        self,
        messages: str | list[Message],
        *,
        tools: Sequence[dict[str, Any]] = (),
        response_schema: dict[str, Any] | None = None,
        stop: Sequence[str] = (),
        on_chunk: OnChunk | None = None,
        **context: Any,
    ) -> ReplyText:
        """Ask once and return the complete reply. Ignores the rest of the context. Raises kinds of LLMError.

        A text in place of messages is sent as one user message.
        """
        asked = as_messages(messages)
        if self._stand_in is not None:
            reply = await self._stand_in.acall(asked, tools=tools, response_schema=response_schema)
            return ReplyText(whole_reply(reply, self.model))
        await self._look_up()
        asking = self._ask(asked, tools, response_schema, stop, on_chunk)
        return ReplyText(await background.on_loop(asking))  # connections belong to a loop: to the one that stays open

    async def ready(self) -> None:
        """Import litellm and check that the model can be asked at all. Raises MissingKey, UnknownProvider."""
        own = type(self).call is not LLM.call or type(self).acall is not LLM.acall  # which may ask nothing
        with contextlib.suppress(*((MissingKey, UnknownProvider) if own else ())):
            await self._look_up()

    async def _look_up(self) -> None:
        if self._provider is not None or self._stand_in is not None:
            return
        named = self.model.partition("/")[0] if "/" in self.model else None
        self._check_key(named)
        library = await provided.litellm()
        try:
            _, provider, *_ = library.get_llm_provider(self.model, api_base=self.base_url, api_key=self._key)
        except library.exceptions.BadRequestError:
            if named or not keys.has_own_address("openai", self.base_url):
                raise UnknownProvider(self.model, provided.close_names(library, self.model)) from None
            provider, self._bare = "openai", True
        self._check_key(provider)
        if not self._decided:
            vars(self)["tool_protocol"] = "native" if provided.calls_tools(library, self.model, provider) else "text"
        self._sees = provided.sees(library, self.model)
        self._provider = provider

    @property
    def _key(self) -> str | None:
        key = keys.checked(self.api_key)  # again, as code may have set another one
        return key.get_secret_value() if key else None

    @property
    def _host(self) -> str | None:
        """The host and port of `base_url`, without the login."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2] if self.base_url else None

    def _mask(self, text: str) -> str:
        """Mask the secrets of this model and of the run: of other models, tools and the environment."""
        return durable.scope().mask(Secrets.of(self).mask(text))

    def _check_key(self, provider: str | None) -> None:
        if provider and (names := keys.missing(provider, self._key, self.base_url, self.extra)):
            raise MissingKey(self.model, names)

    async def _ask(
        self,
        messages: list[Message],
        tools: Sequence[dict[str, Any]],
        schema: dict[str, Any] | None,
        stop: Sequence[str],
        on_chunk: OnChunk | None,
    ) -> LLMReply:
        library = await provided.litellm()
        if schema and (tools or not library.supports_response_schema(self.model, self._provider or "")):
            schema = None
        form = wire.schema_for(schema) if schema else None
        request = self._request(library, messages, tools, form, stop)
        response, late = None, False
        try:
            with provided.call_at_work():
                async with asyncio.timeout(self.timeout):
                    response = await self._answered(library, request, form)
                    if isinstance(response, StreamedReply):
                        response = await response.whole(on_chunk)
        except LLMTimeout:
            raise
        except TimeoutError:
            late = True
        if late:  # raised here and not above, where the original, which holds the request, would be its context
            raise LLMTimeout(self.model, self.timeout or 0.0)
        cost = provided.cost(library, response, self.model)
        reply = wire.reply_of(response, self.model, self._provider or "", cost, self._mask)
        if reply.finish_reason == "length" and reply.text:
            log.warning("The reply of %s was cut at its token limit (max_tokens)", self.model)
        return whole_reply(reply, self.model)

    async def _answered(self, library: Any, request: dict[str, Any], form: dict[str, Any] | None) -> Any:
        """Send a request. A schema that the service refuses is left out: the messages tell the model of it as well.

        Only before an answer has begun: what a stream has sent is paid and told. Returns what `_begun` returns.
        """
        try:
            return await self._begun(library, request)
        except LLMRejected as error:
            if form is None or type(error) is not LLMRejected or error.status not in _BAD_REQUEST:
                raise
            log.warning("%s refused the schema of the answer, so it is told in words alone: %s", self.model, error.said)
        return await self._begun(library, request | {"response_format": self.response_format})

    async def _begun(self, library: Any, request: dict[str, Any]) -> Any:
        """Send a request. Return the response, or the StreamedReply that has begun."""
        response = await self._heard(library, library.acompletion(**request), begun=False)
        if not request.get("stream"):
            return response
        reply = StreamedReply(library, response, self.model, self.idle_timeout, partial(self._heard, library))
        await reply.begin()
        return reply

    async def _heard(self, library: Any, answer: Awaitable[T], *, begun: bool) -> T:
        """Wait for the service's answer to litellm. Raises kinds of LLMError. `begun`: the answer had begun."""
        try:
            return await answer
        except TimeoutError:
            raise
        except Exception as error:  # the border: litellm converts most errors to its own classes, and not all
            failure = faults.typed(
                error, self.model, library.exceptions, self._mask, self.timeout, host=self._host, heard=begun
            )
        raise failure  # not above, for the same reason as in `_ask`

    def _request(
        self,
        library: Any,
        messages: list[Message],
        tools: Sequence[dict[str, Any]],
        form: dict[str, Any] | None,
        stop: Sequence[str],
    ) -> dict[str, Any]:
        provider, streamed = self._provider or "", self.stream or durable.scope().streamed
        settings = {name: getattr(self, name) for name in _SETTINGS}
        stops = stop if provided.takes(library, self.model, provider, "stop") else ()  # useful, but not needed
        settings["stop"] = [*(self.stop or ()), *stops] or None
        settings["response_format"] = form or self.response_format
        if self._login:
            settings["extra_headers"] = self._login.headers | (self.extra_headers or {})
        return {
            "model": self.model,
            "messages": wire.messages_for(messages, provider),
            "api_base": self._login.address if self._login else self.base_url,
            "api_key": keys.key_for(provider, self._key, self.base_url),
            "timeout": None if self.timeout is None else self.timeout + 5,  # asyncio.timeout in `_ask` comes first
            "max_retries": 0,
            "_skip_mcp_handler": True,  # litellm 1.106 asks for a package that it does not install
            **{name: value for name, value in settings.items() if value is not None},
            **({"tools": [dict(tool) for tool in tools]} if tools else {}),
            **({"stream": True, "stream_options": {"include_usage": True}} if streamed else {}),
            **({"custom_llm_provider": provider} if self._bare else {}),
            **self.extra,
        }


def _models(fallbacks: Sequence[BaseLLM | str]) -> tuple[BaseLLM, ...]:
    wanted = "wanted a list of models or their names"  # what was found is not shown: it may hold a key
    if isinstance(fallbacks, str) or not isinstance(fallbacks, Iterable):
        raise ConfigError(f"LLM: fallbacks is {what_is(fallbacks)}; {wanted}")
    for item in (listed := list(fallbacks)):
        if not isinstance(item, BaseLLM | str):
            raise ConfigError(f"LLM: fallbacks holds {what_is(item)}; {wanted}")
    return tuple(LLM(item) if isinstance(item, str) else item for item in listed)
