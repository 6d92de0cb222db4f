"""The base class of language models: an object that takes messages and returns a reply.

Messages are plain dicts in OpenAI's format: `{"role": "user", "content": "..."}`, an assistant's `tool_calls`, a
tool's `tool_call_id`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial, wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator

from crewlite.coming_from import Hinting
from crewlite.concurrency.between_loops import begin_on
from crewlite.concurrency.resources import Resource
from crewlite.definitions.callables import is_generator, only, parameters_of
from crewlite.definitions.keywords import refuse_unknown
from crewlite.errors import ConfigError, LLMEmptyReply, LLMError, meant
from crewlite.lazy import asyncio, lazy
from crewlite.llm.tool_arguments import as_dict
from crewlite.recovery.port import Policy
from crewlite.texts.wording import what_is
from crewlite.usage import Usage

if TYPE_CHECKING:
    from crewlite.concurrency import background
else:
    background = lazy("crewlite.concurrency.background")

bare_call = lazy("crewlite.agent.bare_call")  # only for code that asks a model itself
Message = dict[str, Any]

OFFLINE = "offline"
"""The name of the model that needs no network and no key."""

REMINDER = "crewlite"
"""The `name` of a user message that asks nothing new: it tells the model how to go on with what it was asked."""

OVERFLOW = "context_overflow"
"""The `finish_reason` of a recorded reply without tool calls that says: the conversation does not fit the model."""

ORDER = ("tools", "callbacks", "available_functions", "from_task", "from_agent")
"""The context that `call` takes by position, after the messages, in CrewAI's order."""

_IS_RECORDED = "_is_recorded"  # marks a `call` whose calls in the code of a run are steps

ToolProtocol = Literal["native", "text"]
"""How a model asks for tools: by tool calls of its own, or in the text of its replies (see `protocol`)."""


class OnChunk(Protocol):
    """Receives the pieces of a streamed reply as they arrive."""

    def __call__(self, text: str, thinking: bool = False) -> Awaitable[None]:
        """Receive a piece of the reply's text, or, if `thinking`, of the model's thoughts before it."""


class ToolCall(BaseModel):
    """A model's request to call a tool: `ToolCall("search", {"query": "tides"})`."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None

    def __init__(self, name: str, arguments: dict[str, Any] | str | None = None, id: str | None = None) -> None:  # noqa: A002 - its name on the wire
        super().__init__(name=name, arguments=as_dict(arguments), id=id)


class LLMReply(BaseModel):
    """A complete reply: text, or requests to call tools, or both."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Field(default_factory=Usage)
    finish_reason: str | None = None
    response_id: str | None = None
    model: str | None = None
    """The model that replied, if it is a fallback of the one that was asked."""
    carried: dict[str, Any] | None = None
    """Data that the model's service wants to receive unchanged with the next call, such as signed thoughts."""

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, **parts: Any) -> None:
            if not parts.keys() <= self.__pydantic_fields__.keys():
                refuse_unknown("LLMReply", type(self).model_fields, parts)
            super().__init__(**parts)

    @field_validator("text", mode="before")
    @classmethod
    def _none_is_empty(cls, value: object) -> object:
        return "" if value is None else value  # many services send None with a reply that is only tool calls

    def as_message(self) -> Message:
        """Return the reply as a message of the conversation."""
        message: Message = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id or f"call_{n}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for n, call in enumerate(self.tool_calls, 1)
            ]
        if self.carried:
            message["carried"] = self.carried
        return message


class ReplyText(str):
    """The text of a reply, as a str. The rest of the reply is at hand as its attributes: `.usage`, `.tool_calls`.

    A record, a copy and a pickle of it hold the text alone.
    """

    recorded_as_text = True
    reply: LLMReply

    def __new__(cls, reply: LLMReply) -> ReplyText:
        """Make the text of a complete reply."""
        made = super().__new__(cls, reply.text)
        made.reply = reply
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)

    def __getattr__(self, name: str) -> Any:
        if name in LLMReply.model_fields:
            return getattr(self.reply, name)
        raise AttributeError(
            f"The text of a reply has no {name!r}. To get an object: llm.ask(messages, response_format=...)", name=name
        )


Reply = str | LLMReply | ToolCall | Sequence[ToolCall]


class BaseLLM(Hinting, Resource):
    """Base class for models of your own: write `call` or `acall`. Events, retries and recording are added around it.

    ```python
    from crewlite import Agent, BaseLLM

    class Echo(BaseLLM):
        model = "echo"

        def call(self, messages, **context):
            return messages[-1]["content"]

    assert Agent(role="Echo", goal="echo", llm=Echo()).kickoff("hello").raw == "hello"
    ```

    `context` holds the rest of the request; only arguments that the signature takes are passed: `tools` (schemas of the
    available tools, as `{"type": "function", "function": {...}}`), `agent` (its role), `from_agent` and `from_task`
    (the Agent, and its Task or None), `response_schema` (JSON schema of the wanted answer, or None), `on_chunk` (to be
    called, or by `acall` awaited, with each piece of a streamed reply), `stop` (texts at which the reply should end).
    Return text, a ToolCall or several, as such or in the form of OpenAI's protocol, or an LLMReply with usage.

    Raise LLMUnavailable for failures that a later try may not have (rate limits, server errors), and any other error
    for the rest.
    """

    model: str = "custom"
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: Sequence[str] | None = ()
    stream: bool = False
    timeout: float | None = None
    api_key: Any = None
    base_url: str | None = None
    provider: str | None = None
    """As `temperature` and the other settings above: for models of your own, this class does nothing with it."""
    tool_protocol: ToolProtocol = "native"
    """ "text" for a model without tool calls of its own: tools and calls are then part of the messages' text."""
    fallbacks: tuple[BaseLLM, ...] = ()
    """Models to ask, in order, when this one fails and is not retried any more."""
    failure_policy: Policy | None = None
    """Decides on failed calls, including those of the fallbacks. None inherits the policy of the enclosing definition;
    if there is none, `crewlite.recovery.DEFAULT` decides."""

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        """Settings become attributes: those that the class names itself, and the usual ones of this class."""
        if model is not None:
            self.model = model
        for name, value in settings.items():
            if not hasattr(type(self), name) and name not in _annotated(type(self)):
                hint = meant(name, sorted(_annotated(type(self))))
                raise ConfigError(
                    f"{type(self).__name__} has no setting {name!r}; {hint or 'correct it, or add it to the class'}"
                )
            setattr(self, name, value)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.call is BaseLLM.call and cls.acall is BaseLLM.acall:
            raise ConfigError(
                f"{cls.__name__} derives from BaseLLM but has no method that answers: define call(self, messages) or "
                f"async acall(self, messages)"
            )
        if inspect.iscoroutinefunction(cls.call):
            raise ConfigError(f"{cls.__name__}.call is async; wanted a plain function: rename it to acall")
        for name, verb in (("call", cls.call), ("acall", cls.acall)):
            if is_generator(verb):
                raise ConfigError(
                    f"{cls.__name__}.{name} is a generator; wanted code that returns the reply: take on_chunk, and "
                    f"call it with each piece"
                )
        if _definer(cls, "call") < _definer(cls, "acall"):  # a run asks by `acall`, so that has to go through `call`
            cls.acall = BaseLLM.acall  # type: ignore[method-assign]  # of a class that is being made
        own = inspect.getattr_static(cls, "call")
        if isinstance(own, FunctionType) and own is not BaseLLM.call and not hasattr(own, _IS_RECORDED):
            cls.call = _recorded(own)  # type: ignore[method-assign]  # as above

    def call(self, messages: str | list[Message], *also: Any, **context: Any) -> Any:
        """Ask and wait for the complete reply, a `ReplyText`. A text in place of messages is sent as one user message.

        `also`: context by position, in CrewAI's order: tools, callbacks, available_functions, from_task, from_agent.
        `response_model`, or `response_format`: a pydantic class, of which an object is returned, as by `ask`.

        In the code of a flow, a step, a tool or a callback, the call is a recorded step of the run: a resume does not
        make it again, unless it asks something else. An `async def` with such a call in its own code runs in a thread.
        Outside a run, in a plain function that a coroutine calls, with `on_chunk`, and when one model asks another, it
        is a plain call: no record, events or retries. Raises OnLoopThread where it would block: await `ask` there.
        """
        if acall_behind(type(self)) is BaseLLM.acall:
            raise ConfigError(
                f"{type(self).__name__}.call called super().call(), but BaseLLM cannot answer: return the reply instead"
            )
        return bare_call.called(self, messages, dict(zip(ORDER, also, strict=False)) | context)

    async def acall(self, messages: list[Message], *also: Any, **context: Any) -> Reply:
        """Answer the messages. Unless overridden, it runs `call` in a thread."""
        if on_chunk := context.get("on_chunk"):
            context["on_chunk"] = FromAThread(on_chunk)
        return await background.blocking(self.call, messages, **only(_taken_by_call(cast(Any, type(self))), context))

    def ask(self, messages: str | Sequence[Message], response_format: type[BaseModel] | None = None) -> Any:
        """Ask once, as a step of the run that the caller is in, and return the text; `await` it in a coroutine.

        The reply is recorded with its usage, so that a resume does not ask again. Outside a run it is a plain call: no
        record, events or retries. `response_format`: a pydantic class, of which an object is returned.

        Raises OutputInvalid if the reply does not fit it (it is not recorded), ConfigError, and what the model raises.
        """
        return bare_call.asked(self, messages, response_format)

    def supports_multimodal(self) -> bool:
        """Return whether messages may hold pictures: as content a list of parts, `{"type": "image_url", ...}`."""
        return False

    def plain_settings(self) -> dict[str, Any] | None:
        """Return plain data, without keys, to build the same model from; None if plain data is not enough."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"


def _definer(cls: type, name: str) -> int:
    """Return which class of the MRO defines this method, counted from the class itself."""
    return next(n for n, base in enumerate(cls.__mro__) if name in vars(base))


def _recorded(call: Callable[..., Any]) -> Callable[..., Any]:
    """Make a step of each call of this method in the code of a run, unless it is to return a `response_model`."""
    takes = [*inspect.signature(call).parameters.values()][1:]
    names = [one.name for one in takes if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    names = names if len(names) > 1 else [*(names or ["messages"]), *ORDER]

    @wraps(call)
    def asked(self: BaseLLM, *given: Any, **context: Any) -> Any:
        own, arguments = partial(call, self, *given, **context), dict(zip(names, given, strict=False)) | context
        messages = arguments.pop(names[0], None)
        is_free = arguments.get("response_model") is not None or len(given) > len(names)
        return own() if messages is None or is_free else bare_call.called(self, messages, arguments, own=own)

    setattr(asked, _IS_RECORDED, True)
    return asked


def acall_behind(cls: type[BaseLLM]) -> Any:
    """Return the `acall` that an overridden `call` reaches by `super().call(...)`; that of the class if there is none.

    It is the nearest one behind the class that defines `call`, so that it does not lead back to the same `call`.
    """
    behind = (vars(base).get("acall", BaseLLM.acall) for base in cls.__mro__[_definer(cls, "call") + 1 :])
    return next((acall for acall in behind if acall is not BaseLLM.acall), cls.acall)


def _annotated(cls: type) -> frozenset[str]:
    """Return the names of the attributes that a class and its base classes annotate."""
    return frozenset(name for base in cls.__mro__ for name in inspect.get_annotations(base))


def as_messages(asked: str | list[Message]) -> list[Message]:
    """Return messages as they are, and a text as one message of a user."""
    return [{"role": "user", "content": asked}] if isinstance(asked, str) else asked


class FromAThread:
    """Hands pieces of a reply to `on_chunk`, which belongs to this loop, from the thread that `call` runs in."""

    def __init__(self, on_chunk: OnChunk) -> None:
        self.on_chunk, self._loop = on_chunk, asyncio.get_running_loop()

    def __call__(self, text: str, thinking: bool = False) -> None:
        """Hand on a piece, and wait until it is received."""
        background.wait(begin_on(self._loop, self._tell(text, thinking)), work_loop=self._loop)

    async def _tell(self, text: str, thinking: bool) -> None:
        await self.on_chunk(text, thinking)


@cache
def _taken_by_call(cls: Any) -> frozenset[str] | None:
    """Return what `call` takes of the context, itself or by handing `**` on to what it overrides; None for all."""
    names = frozenset[str]()
    for base in cls.__mro__[: cls.__mro__.index(BaseLLM)]:
        if "call" in vars(base):
            taken, takes_more = parameters_of(base.call)
            names |= taken
            if not takes_more:
                return names
    return None


def writes_calls(llm: BaseLLM) -> bool:
    """Return whether the model asks for tools in the text of its replies.

    A class of CrewAI says so by `supports_function_calling`, one of crewlite by `tool_protocol`.
    """
    says_so = callable(getattr(type(llm), "supports_function_calling", None))  # the class has no hint to look for
    return llm.tool_protocol == "text" or (says_so and not cast(Any, llm).supports_function_calling())


@cache
def is_of_crewai(cls: Any) -> bool:
    """Return whether the method that answers has CrewAI's signature, so that arguments of calls are JSON text to it."""
    answers = cls.call if cls.acall is BaseLLM.acall else cls.acall
    names, takes_more = parameters_of(answers)
    return acall_behind(cls) is cls.acall and not takes_more and "available_functions" in names


def whole_reply(reply: object, model: str) -> LLMReply:
    """Convert the return value of a model to an LLMReply. Raises LLMEmptyReply, LLMError."""
    if isinstance(reply, ReplyText):
        reply = reply.reply
    elif isinstance(reply, str):
        reply = LLMReply(text=reply)
    elif isinstance(reply, ToolCall):
        reply = LLMReply(tool_calls=(reply,))
    elif isinstance(reply, list | tuple) and reply and None not in (calls := [_tool_call(item) for item in reply]):
        reply = LLMReply(tool_calls=tuple(call for call in calls if call))
    if reply is None or (isinstance(reply, LLMReply) and not reply.text.strip() and not reply.tool_calls):
        raise LLMEmptyReply(model, is_cut=bool(reply and reply.finish_reason == "length"), usage=reply and reply.usage)
    if not isinstance(reply, LLMReply):
        found = what_is(reply)
        raise LLMError(f"{model} returned {found}; wanted text, a ToolCall, a list of ToolCalls, or an LLMReply")
    return reply


def _tool_call(item: object) -> ToolCall | None:
    """Return a call as it is, or in the form of OpenAI's protocol, a dict or an object; None for anything else."""
    if isinstance(item, ToolCall):
        return item
    function = _field(item, "function")
    name, arguments, label = _field(function, "name"), _field(function, "arguments"), _field(item, "id")
    if not isinstance(name, str) or not isinstance(arguments, dict | str | None):
        return None
    return ToolCall(name, arguments, label if isinstance(label, str) else None)


def _field(item: object, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def with_fallbacks(llm: BaseLLM) -> tuple[BaseLLM, ...]:
    """Return the model and all its fallbacks, including theirs, in the order in which they are asked; each once."""
    found, left = dict[int, BaseLLM](), [llm]
    while left:
        model = left.pop()
        if id(model) not in found:
            found[id(model)] = model
            left.extend(reversed(model.fallbacks))
    return tuple(found.values())
