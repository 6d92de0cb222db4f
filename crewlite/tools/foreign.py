"""Tools of other frameworks, known by their shape and never imported: LangChain, CrewAI, LlamaIndex, and alike.

A tool is what has a name, a description, and something to call: `invoke`, `run`, `call`, `_run` or `func`, or one of
their asynchronous kin.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from crewlite.concurrency import background
from crewlite.definitions.callables import is_async
from crewlite.errors import ConfigError, attribute_of
from crewlite.tools.base import BaseTool
from crewlite.tools.schema import arguments_model, model_of

_WANTED = "a name, a description, and invoke, run, call, _run or func (or ainvoke, arun, acall, _arun or coroutine)"
_VERBS = (("invoke", "ainvoke"), ("run", "arun"), ("call", "acall"), ("_run", "_arun"), ("func", "coroutine"))
_DIRECT = ("result_as_answer", "return_direct")
_COMPOSED = "Tool Description: "  # earlier CrewAI releases wrote name and arguments into the description too


class ForeignTool(BaseTool):
    """A tool of another framework. `original` is what was given."""

    original: Any = Field(repr=False)
    described: bool = False
    """Its arguments are described by a JSON schema, not by a class."""

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the original takes them: plain data. Raises pydantic.ValidationError."""
        checked = self.arguments.model_validate(arguments)
        verb = _verb(self.original)
        if verb and verb.takes_one:  # it checks and fills in by itself
            return dict(arguments)
        return checked.model_dump(by_alias=self.described, exclude_unset=self.described)

    async def _arun(self, /, **arguments: Any) -> Any:
        verb = _verb(self.original)
        assert verb, "checked when it was adopted"
        result = await verb.call(arguments)
        if not hasattr(result, "raw_output"):
            return result
        if attribute_of(result, "is_error") is True:  # LlamaIndex does not raise what its tools raise
            raise RuntimeError(str(attribute_of(result, "content") or result.raw_output))
        return result.raw_output


def adopt(item: object, **fields: Any) -> BaseTool | None:
    """A tool of another framework as one of ours; None if it is nothing of the kind.

    `fields` say what other frameworks have no word for, or win over what they say: `adopt(pay, effect="once")`. Its
    `result_as_answer` or `return_direct`, `max_usage_count` and a `cache_function` of its own hold here too; counting
    and caching are by the run.

    Raises:
        ConfigError: it has a name, but no description or nothing to call, or a schema that cannot be read.
    """
    if isinstance(item, BaseTool | type) or inspect.isroutine(item):
        return None
    about = item if isinstance(attribute_of(item, "name"), str) else attribute_of(item, "metadata")
    name = attribute_of(about, "name")
    if not isinstance(name, str):
        return None
    found, verb = f"a {type(item).__module__}.{type(item).__qualname__}", _verb(item)
    description = attribute_of(about, "description")
    description = description if isinstance(description, str) else ""
    description = description.rpartition(_COMPOSED)[2] if description.startswith("Tool Name:") else description
    if verb is None and not description and callable(item):
        return None  # a callable object that happens to have a name
    if not name.strip() or not description.strip():
        lacks = "name" if not name.strip() else "description"
        raise ConfigError(f"tool {name!r} is {found} without a {lacks}; wanted: {_WANTED}. Give it a {lacks}")
    if verb is None:
        raise ConfigError(f"tool {name!r} is {found} with nothing to call; wanted: {_WANTED}")
    schema = _schema(item, about, name)
    most = attribute_of(item, "max_usage_count")
    options = {
        "result_as_answer": any(attribute_of(one, word) is True for one in (item, about) for word in _DIRECT),
        "max_usage_count": most if type(most) is int and most > 0 else None,
        "cache_function": _own_cache_function(item),
    }
    return ForeignTool(
        name=name,
        description=description,
        args_schema=schema if isinstance(schema, type) else model_of(name, schema),
        original=item,
        described=isinstance(schema, Mapping),
        **{**options, **fields},
    )


class _Verb(NamedTuple):
    """The function of a tool that is called, and how it takes its arguments."""

    fn: Callable[..., Any]
    takes_one: bool
    """All arguments in one dict."""

    async def call(self, arguments: dict[str, Any]) -> Any:
        args, kwargs = ((arguments,), {}) if self.takes_one else ((), arguments)
        result = self.fn(*args, **kwargs) if is_async(self.fn) else await background.blocking(self.fn, *args, **kwargs)
        return await result if isinstance(result, Awaitable) else result


def _verb(item: object) -> _Verb | None:
    """Return the most public function of a tool to call, the async one if its author wrote that; None without any."""
    counts = hasattr(item, "current_usage_count")  # its public verbs count for ever, across runs
    for blocking, waiting in _VERBS:
        if counts and not blocking.startswith("_") and hasattr(item, "_run"):
            continue
        found = [attribute_of(item, word) for word in ((waiting, blocking) if _waits(item) else (blocking, waiting))]
        if fn := next((fn for fn in found if callable(fn)), None):
            return _Verb(fn, blocking == "invoke")
    return None


def _waits(item: object) -> bool:
    """Return whether the author of the tool wrote async code. The framework derives the other form from it."""
    if "coroutine" in dir(item):
        return callable(attribute_of(item, "coroutine"))
    code = attribute_of(item, "func") or attribute_of(item, "real_fn") or attribute_of(item, "fn")
    if callable(code):
        return is_async(code)
    blocking, waiting = _depth(item, "_run"), _depth(item, "_arun")
    if blocking is None or waiting is None:
        return blocking is None
    return waiting <= blocking and is_async(attribute_of(item, "_arun"))


def _depth(item: object, word: str) -> int | None:
    """Return the position in the MRO of the class that defines a method; None if no class does."""
    return next((n for n, cls in enumerate(type(item).__mro__) if word in vars(cls)), None)


def _schema(item: object, about: object, name: str) -> type[BaseModel] | Mapping[str, Any]:
    """Return what the tool takes, as a pydantic class or a JSON schema. Raises ConfigError."""
    given = attribute_of(item, "args_schema") or attribute_of(about, "fn_schema")
    if given is not None:
        offered = attribute_of(item, "tool_call_schema")  # without what the framework puts in by itself
        given = offered if isinstance(offered, type | Mapping) else given
    if isinstance(given, Mapping) or (isinstance(given, type) and issubclass(given, BaseModel)):
        return given
    for word in ("model_json_schema", "schema"):
        made = attribute_of(given, word)
        if isinstance(given, type) and callable(made) and isinstance(read := made(), Mapping):
            return read
    if given is not None:
        raise ConfigError(
            f"tool {name!r} has the args_schema {given!r}; wanted a pydantic class, or a JSON schema as a dict"
        )
    arguments = attribute_of(item, "args")
    if isinstance(arguments, Mapping):
        wanted = [key for key, field in arguments.items() if not (isinstance(field, Mapping) and "default" in field)]
        return {"type": "object", "properties": dict(arguments), "required": wanted}
    return arguments_model(name, _code(item))


def _code(item: object) -> Callable[..., Any]:
    """Return the function whose signature says what the tool takes."""
    words = ("func", "coroutine", "fn", "_run", "_arun", "run", "arun", "call", "acall", "invoke", "ainvoke")
    found: Callable[..., Any] = next(fn for fn in (attribute_of(item, word) for word in words) if callable(fn))
    return found


def _own_cache_function(item: object) -> Any:
    """Return the tool's cache_function, unless the framework gives the same one to every tool; then None."""
    own = attribute_of(item, "cache_function")
    if not callable(own):
        return None
    for cls in reversed(type(item).__mro__):
        field = (attribute_of(cls, "model_fields") or {}).get("cache_function")
        plain = vars(cls).get("cache_function") if cls is not type(item) else None
        usual = field.default if field is not None else plain
        if usual is not None:
            return None if getattr(own, "__func__", own) is usual else own
    return own
