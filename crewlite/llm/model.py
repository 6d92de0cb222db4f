"""Models of the providers that litellm knows, by name: `LLM(model="provider/model")`."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from pydantic import BaseModel, SecretStr

from crewlite import background, durable
from crewlite.errors import ConfigError, LLMError, LLMTimeout, LLMUnavailable, MissingKey, OnLoopThread, UnknownProvider
from crewlite.llm import faults, keys, wire
from crewlite.llm.base import BaseLLM, LLMReply, Message, OnChunk, ToolProtocol, whole_reply
from crewlite.llm.library import api_error, litellm
from crewlite.llm.models import named
from crewlite.secrets import Secrets

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high"]
_SETTINGS = ("temperature", "top_p", "max_tokens", "stop", "seed", "reasoning_effort", "api_version", "extra_headers")


class LLM(BaseLLM):
    """A model by name, `provider/model`: `LLM(model="anthropic/claude-sonnet-4-5", temperature=0)`.

    The providers are litellm's; a server of your own that speaks OpenAI's protocol is
    `LLM(model="openai/NAME", base_url="http://...")`. The key is `api_key`, else the provider's usual environment
    variable (OPENAI_API_KEY, ANTHROPIC_API_KEY, ...); it is never written, logged or shown.

    Args:
        model: Provider and model. A name without a provider is one of those that litellm knows, such as `gpt-4o`.
        base_url: Where to ask, instead of the provider's own address.
        temperature, top_p, max_tokens, stop, seed, reasoning_effort, response_format: As the provider defines them;
            None leaves them to it. A pydantic class as response_format is sent as its JSON schema. What a provider
            does not take is an error, not left out.
        timeout: Seconds for one whole reply.
        idle_timeout: Seconds between two pieces of a streamed reply.
        stream: Receive the reply in pieces, told as `llm_stream_chunk` and `llm_thinking_chunk`. What is recorded is
            the whole reply, as without.
        fallbacks: Models, or their names, to ask when this one fails for good, in order.
        tool_protocol: "native" (the provider's tool calls) or "text" (thought, action, observation); None takes
            "native" unless the model is known to have none.
        extra_headers: HTTP headers to send besides; their values are secrets.
        extra: Any other argument of `litellm.acompletion`.

    Raises:
        ConfigError: a setting that cannot be.
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
        idle_timeout: float | None = 120.0,
        response_format: type[BaseModel] | Mapping[str, Any] | None = None,
        reasoning_effort: ReasoningEffort | None = None,
        fallbacks: Sequence[BaseLLM | str] = (),
        stream: bool = False,
        tool_protocol: ToolProtocol | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(_checked("model", model, isinstance(model, str) and bool(model.strip())))
        self.base_url = base_url
        self.api_key = SecretStr(api_key) if isinstance(api_key, str) else api_key
        self.api_version = api_version
        self.temperature, self.top_p, self.max_tokens = temperature, top_p, max_tokens
        self.stop = [stop] if isinstance(stop, str) else list(stop) if stop else None
        self.seed = seed
        self.timeout = _checked("timeout", timeout, timeout is None or timeout > 0)
        self.idle_timeout = _checked("idle_timeout", idle_timeout, idle_timeout is None or idle_timeout > 0)
        self.response_format = response_format
        self.reasoning_effort = reasoning_effort
        self.fallbacks = _models(fallbacks)
        self.stream = stream
        self.extra_headers = dict(extra_headers) if extra_headers else None
        self.extra = dict(extra or {})
        if tool_protocol is not None:
            self.tool_protocol = tool_protocol
        self._decided = tool_protocol is not None
        self._provider: str | None = None
        self._login = keys.Login.of(base_url)

    def call(self, messages: str | list[Message], **context: Any) -> LLMReply:
        """Ask, and wait for the whole reply. Not part of a run: nothing is recorded, retried or told."""
        if background.on_loop_thread():
            raise OnLoopThread("call")
        asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return background.submit(self.acall(asked, **context)).result()

    async def acall(
        self,
        messages: list[Message],
        *,
        tools: Sequence[dict[str, Any]] = (),
        response_schema: dict[str, Any] | None = None,
        stop: Sequence[str] = (),
        on_chunk: OnChunk | None = None,
        **context: Any,
    ) -> LLMReply:
        """Ask once; what else is known is not needed. Raises LLMError, of which there are several kinds."""
        await self.ready()
        asking = self._ask(messages, tools, response_schema, stop, on_chunk)
        return await background.on_loop(asking)  # connections belong to a loop, and this is the one that lives on

    async def ready(self) -> None:
        """Load what is needed, and see that the model can be asked at all, and its fallbacks.

        Raises MissingKey, UnknownProvider.
        """
        if self._provider is not None:
            return
        for spare in self.fallbacks:
            await spare.ready()
        named = self.model.partition("/")[0] if "/" in self.model else None
        self._check_key(named)
        library = await litellm()
        try:
            _, provider, *_ = library.get_llm_provider(self.model, api_base=self.base_url, api_key=self._key)
        except library.exceptions.BadRequestError:
            raise UnknownProvider(self.model, _close(self.model, library)) from None
        self._check_key(provider)
        if not self._decided:
            self.tool_protocol = _protocol(library, self.model, provider)
        self._provider = provider

    @property
    def _key(self) -> str | None:
        return self.api_key.get_secret_value() if self.api_key else None

    def _mask(self, text: str) -> str:
        """Take out the secrets of this model, and those of the run: of other models, tools and the environment."""
        return durable.scope().mask(Secrets.of(self).mask(text))

    def _check_key(self, provider: str | None) -> None:
        if provider and (names := keys.missing(provider, self._key, self.base_url)):
            raise MissingKey(self.model, names)

    async def _ask(
        self,
        messages: list[Message],
        tools: Sequence[dict[str, Any]],
        schema: dict[str, Any] | None,
        stop: Sequence[str],
        on_chunk: OnChunk | None,
    ) -> LLMReply:
        library = await litellm()
        response, failure = None, cast(LLMError | None, None)
        request = self._request(library, messages, tools, schema, stop)
        try:
            async with asyncio.timeout(self.timeout):
                response = await library.acompletion(**request)
                if self.stream:
                    response = await self._whole(library, response, on_chunk)
        except LLMTimeout:
            raise
        except TimeoutError:
            failure = LLMTimeout(self.model, self.timeout or 0.0)
        except api_error() as error:
            failure = faults.typed(error, self.model, library.exceptions, self._mask, self.timeout)
        if failure:  # not raised above: it would keep the original, which holds the request, as its context
            raise failure
        cost = _cost(library, response, self.model)
        reply = wire.reply_of(response, self.model, self._provider or "", cost, self._mask)
        return whole_reply(reply, self.model)

    def _request(
        self,
        library: Any,
        messages: list[Message],
        tools: Sequence[dict[str, Any]],
        schema: dict[str, Any] | None,
        stop: Sequence[str],
    ) -> dict[str, Any]:
        provider = self._provider or ""
        settings = {name: getattr(self, name) for name in _SETTINGS}
        settings["stop"] = [*(self.stop or ()), *stop] or None
        settings["response_format"] = self.response_format
        if self._login:
            settings["extra_headers"] = self._login.headers | (self.extra_headers or {})
        if schema and not tools and library.supports_response_schema(self.model, provider):
            settings["response_format"] = wire.schema_for(schema)
        return {
            "model": self.model,
            "messages": wire.messages_for(messages, provider),
            "api_base": self._login.address if self._login else self.base_url,
            "api_key": keys.key_for(provider, self._key, self.base_url),
            "timeout": None if self.timeout is None else self.timeout + 5,  # ours is the one that counts
            "max_retries": 0,
            "_skip_mcp_handler": True,  # litellm 1.106 asks for a package that it does not install
            **{name: value for name, value in settings.items() if value is not None},
            **({"tools": [dict(tool) for tool in tools]} if tools else {}),
            **({"stream": True, "stream_options": {"include_usage": True}} if self.stream else {}),
            **self.extra,
        }

    async def _whole(self, library: Any, stream: Any, on_chunk: OnChunk | None) -> Any:
        """The whole response of a stream. Raises LLMUnavailable if it broke off: half a reply is none."""
        pieces, waiting = list[Any](), aiter(stream)
        while True:
            try:
                async with asyncio.timeout(self.idle_timeout):
                    piece = await anext(waiting)
            except StopAsyncIteration:
                break
            except TimeoutError:
                raise LLMTimeout(self.model, self.idle_timeout or 0.0, "idle_timeout") from None
            pieces.append(piece)
            for said, thinking in _said(piece):
                if on_chunk:
                    await on_chunk(said, thinking)
        if not _ended(stream):
            raise LLMUnavailable(f"{self.model}: its stream ended before its reply. Kick off the run again to go on.")
        return library.stream_chunk_builder(pieces)


def _ended(stream: Any) -> bool:
    """Whether the service said that its reply is at an end; litellm's last piece says so in any case.

    Of Gemini's it knows only the second of these, with every piece: a reply that is cut is told by the connection.
    """
    told = getattr(stream, "received_finish_reason", "unknown") or getattr(stream, "intermittent_finish_reason", None)
    return told is not None


def _said(piece: Any) -> list[tuple[str, bool]]:
    """The texts in a piece of a stream, each with whether it is thinking."""
    delta = piece.choices[0].delta if getattr(piece, "choices", None) else None
    found = [(getattr(delta, "reasoning_content", None), True), (getattr(delta, "content", None), False)]
    return [(wire.clean(text), thinking) for text, thinking in found if isinstance(text, str) and text]


def _cost(library: Any, response: Any, model: str) -> float | None:
    """US dollars; None for a model without a known price, never 0 by default."""
    try:
        return float(library.completion_cost(completion_response=response, model=model))
    except Exception:  # noqa: BLE001 - litellm raises bare exceptions for what it has no price for
        return None


def _protocol(library: Any, model: str, provider: str) -> ToolProtocol:
    """Native, unless the provider takes no tools or the model is listed as having none."""
    if "tools" not in (library.get_supported_openai_params(model, provider) or ("tools",)):
        return "text"
    listed = library.model_cost.get(model) or library.model_cost.get(model.partition("/")[2]) or {}
    return "text" if listed.get("supports_function_calling") is False else "native"


def _close(model: str, library: Any) -> list[str]:
    """Names like this one that are known."""
    provider, slash, name = model.partition("/")
    known = [str(getattr(item, "value", item)) for item in library.provider_list] if slash else ["offline"]
    return [f"{one}{slash}{name}" for one in difflib.get_close_matches(provider, known, n=2, cutoff=0.7)]


def _models(fallbacks: Sequence[BaseLLM | str]) -> tuple[BaseLLM, ...]:
    if isinstance(fallbacks, str) or not all(isinstance(item, BaseLLM | str) for item in fallbacks):
        raise ConfigError(f"fallbacks is {fallbacks!r}; wanted a list of models or their names")
    return tuple(named(item) if isinstance(item, str) else item for item in fallbacks)


def _checked(name: str, value: Any, fits: bool) -> Any:
    if not fits:
        wanted = "a name, such as 'openai/gpt-4o'" if name == "model" else "seconds, more than 0, or None"
        raise ConfigError(f"LLM: {name} is {value!r}; wanted {wanted}")
    return value
