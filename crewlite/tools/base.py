"""What a tool is: a name, a description, a schema of its arguments, and code to run."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.errors import PydanticUserError

from crewlite.concurrency.resources import Resource
from crewlite.definitions.callables import is_async, is_generator
from crewlite.definitions.definition import Described
from crewlite.errors import ConfigError, OnLoopThread, ends_run, text_of
from crewlite.lazy import lazy
from crewlite.recovery.port import Policy, check_policy
from crewlite.step_parts import Effect
from crewlite.system.forked import cached_property
from crewlite.tools.naming import safe_name

if TYPE_CHECKING:
    from crewlite.concurrency import background
    from crewlite.tools import schema
else:
    background = lazy("crewlite.concurrency.background")  # only calls need it
    schema = lazy("crewlite.tools.schema")


class BaseTool(Described, Resource):
    """Subclass with a `name`, a `description` and `_run` (blocking, in a thread of its own) or `_arun`.

    ```python
    from crewlite import BaseTool
    from pydantic import SecretStr

    class Search(BaseTool):
        name: str = "search"
        description: str = "Search the archive."
        token: SecretStr

        def _run(self, query: str) -> str:
            return f"nothing about {query}"

    search = Search(token="a token that is never written")
    ```

    The schema of the arguments is taken from the signature, unless `args_schema` gives one. Whatever is returned goes
    to the model as text; an exception goes to it as an error it can react to.

    A tool is an ordinary object: its attributes may be set, in `__init__` too. Those of your own live in this process
    and are not recorded; what stands here is checked when it is set, and holds from the next call on.

    What calls need open, such as a connection, `async def ready(self)` makes before the first call of a run and
    `async def aclose(self)` lets go when the last run that uses it has ended.
    """

    model_config = ConfigDict(ignored_types=(functools.cached_property,), frozen=False)

    name: str
    description: str
    args_schema: type[BaseModel] | None = None
    effect: Effect = "idempotent"
    """What a repeated call would do: "none" (nothing), "idempotent" (no harm, given the same idempotency key), "once"
    (harm: after a cut in the middle the run stops and asks)."""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds for one call; a call that takes longer is an error the model hears of. With effect="once" the run stops
    and asks instead, as nobody knows whether it took effect."""
    result_as_answer: bool = False
    """Its result is the agent's answer as it is; the model is not asked again."""
    max_usage_count: int | None = Field(default=None, ge=1)
    """Calls of a tool of this name that one run may make, by whichever agent; further ones are refused."""
    cache_function: Callable[[dict[str, Any], Any], bool] | None = None
    """Called with the arguments and the result of a call: whether the same call, made again in this run, is given this
    result instead. None: never."""
    requires_approval: bool = False
    """Every call waits for a person to say yes: at the terminal, else the run suspends (see `ask`)."""
    failure_policy: Policy | None = None
    """Decides whether a call that failed is made again before the model is told. None inherits; with effect="once" only
    one that is set here has a call made again."""

    @field_validator("args_schema", mode="before")
    @classmethod
    def _is_schema(cls, value: object) -> object:
        if isinstance(value, type) and not hasattr(value, "model_json_schema"):
            old = " of pydantic.v1" if hasattr(value, "__fields__") else ""
            raise ConfigError(
                f"args_schema is the class {value.__name__}{old}; wanted a subclass of pydantic.BaseModel"
            )
        return value

    @model_validator(mode="after")
    def _can_work(self) -> BaseTool:
        self._check_work()
        return self

    def _check_work(self) -> None:
        """Raise ConfigError for settings that do not go together."""
        if not self.name.strip():
            raise ConfigError(f"name is {self.name!r}; wanted a name that is not blank")
        self._is_schema(self.args_schema)  # a default in the class is not validated as a field
        if type(self)._run is BaseTool._run and type(self)._arun is BaseTool._arun:
            raise ConfigError(f"tool {self.name!r} has no code: write _run or _arun in {type(self).__name__}")
        if is_generator(self._code()):
            raise ConfigError(f"tool {self.name!r} is a generator; wanted code that returns its result, without yield")
        for verb in ("ready", "aclose"):
            if not inspect.iscoroutinefunction(getattr(type(self), verb, None)):
                raise ConfigError(
                    f"tool {self.name!r}: {verb} of {type(self).__name__} is awaited; write async def {verb}(self)"
                )
        if self.cache_function and self.effect == "once":
            raise ConfigError(
                f"tool {self.name!r} has effect='once', so that each call is made, and a cache_function, which answers "
                f"calls with earlier results: leave one of them out"
            )
        if self.cache_function and (is_async(self.cache_function) or is_generator(self.cache_function)):
            how = "async" if is_async(self.cache_function) else "a generator"
            raise ConfigError(
                f"tool {self.name!r}: cache_function is {how}; wanted a plain function that returns a bool"
            )

    if not TYPE_CHECKING:  # type checkers keep the signature made from the fields

        def __init__(self, *args: Any, **data: Any) -> None:
            own = dict(self.__dict__)  # set by a subclass before this was called
            super().__init__(*args, **data)
            self.__dict__.update(own)

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("_") or isinstance(getattr(type(self), name, None), property):
            super().__setattr__(name, value)
        elif name in BaseTool.model_fields and hasattr(self, "__pydantic_fields_set__"):  # its constructor has ended
            self._set(name, value)
        else:
            vars(self)[name] = value

    def _set(self, name: str, value: object) -> None:
        """Set a field. Raises ConfigError for an invalid value, and leaves the field unchanged then."""
        before = vars(self)[name]
        try:
            vars(self)[name] = _checked(type(self), name, value)
            self._check_work()
        except ConfigError:
            vars(self)[name] = before
            raise
        for made in ("arguments", "safe_name", "schema_for_model"):
            vars(self).pop(made, None)

    def run(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it from blocking code, outside of any run: `tool.run(query="tides")`. Its arguments are checked."""
        if background.on_loop_thread():
            raise OnLoopThread("run", "await arun(...)")
        named = dict(zip(self.takes, args, strict=False)) | kwargs
        return background.run(self.arun(**named))

    def _run(self, /, *args: Any, **kwargs: Any) -> Any:
        raise ConfigError(f"tool {self.name!r} has no _run; it runs asynchronously: await arun(...)")

    async def _arun(self, /, *args: Any, **kwargs: Any) -> Any:
        return await background.blocking(self._run, *args, **kwargs)

    def _generate_description(self) -> None:
        """Do nothing: constructors written for CrewAI call it. A model is told of the arguments by their schema."""

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The pydantic class that arguments are checked against."""
        return self.args_schema or schema.arguments_model(self.name, self._code())

    @cached_property
    def safe_name(self) -> str:
        """The name that models are told: the name itself if services accept it, else one that is made from it."""
        return safe_name(self.name)

    @cached_property
    def schema_for_model(self) -> dict[str, Any]:
        """The tool as a language model is told of it, in OpenAI's form."""
        try:
            parameters = self.arguments.model_json_schema()
        except PydanticUserError as error:
            hints = {name: field.annotation for name, field in self.arguments.model_fields.items()}
            raise schema.cannot_pass(self.name, hints, str(error).partition("\n")[0]) from None
        parameters.pop("title", None)
        function = {"name": self.safe_name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    @property
    def takes(self) -> tuple[str, ...]:
        """The names of its arguments, as a model passes them."""
        return tuple(field.alias or name for name, field in self.arguments.model_fields.items())

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the code of the tool gets them. Raises pydantic.ValidationError."""
        checked = self.arguments.model_validate(arguments)
        named = {name: getattr(checked, name) for name in type(checked).model_fields}
        more = checked.model_extra  # only a schema of the user may have some that the code does not take
        return named | more if more and schema.takes_any(self._code()) else named

    def is_told_of(self, error: Exception) -> bool:
        """Return whether the model is told of an error that a call raised. Any other error fails the task."""
        return not ends_run(error)

    async def arun(self, /, **arguments: Any) -> Any:
        """Check the arguments and run. Raises pydantic.ValidationError, TimeoutError, and what the tool raises."""
        work, once = self._arun(**self.check(arguments)), self.effect == "once"
        return await background.within(work, self.timeout, f"tool {self.name}", once=once)

    def _code(self) -> Any:
        overridden = type(self)._arun is not BaseTool._arun
        return self._arun if overridden else self._run

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def _checked(cls: type[BaseTool], name: str, value: object) -> Any:
    if name == "failure_policy":
        return check_policy(value)
    field = cls.model_fields[name]
    try:
        hint: Any = Annotated[(field.annotation, "checked", *field.metadata)]
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        raise ConfigError(f"{cls.__name__}: {name}: {error.errors()[0]['msg']}") from None


def misfit(tool: BaseTool, arguments: dict[str, Any]) -> str:
    """Return in one line which arguments do not fit the tool, and why; "" if all fit.

    Raises errors of the tool's own validators with which a run ends.
    """
    try:
        tool.check(arguments)
    except ValidationError as error:
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
    except Exception as error:  # the border: validators are the tool's own, and may raise anything
        if ends_run(error):
            raise
        return f"{type(error).__name__}: {text_of(error)}"
    return ""


def as_text(result: object) -> str:
    """Return a tool's result as the model reads it: text as it is, data as JSON."""
    if isinstance(result, str):
        return str.__str__(result)  # of a subclass, its plain text
    if result is None:
        return "done"
    if isinstance(result, BaseModel):
        return result.model_dump_json()
    if isinstance(result, Enum):
        return as_text(result.value)
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        result = dataclasses.asdict(result)
    if isinstance(result, set | frozenset):
        result = sorted(result, key=repr)
    if isinstance(result, dict | list | tuple | bool | int | float):
        return json.dumps(result, ensure_ascii=False, default=str)
    return str(result)
