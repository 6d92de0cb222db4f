"""What a tool is: a name, a description, a schema of its arguments, and code to run."""

from __future__ import annotations

import dataclasses
import inspect
import json
from enum import Enum
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from crewlite import background
from crewlite.definition import Described
from crewlite.durable import Effect
from crewlite.errors import ConfigError
from crewlite.tools.schema import arguments_model


class BaseTool(Described):
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
    """

    model_config = ConfigDict(ignored_types=(cached_property,))

    name: str
    description: str
    args_schema: type[BaseModel] | None = None
    effect: Effect = "idempotent"
    """What a repeated call would do: "none" (nothing), "idempotent" (no harm, given the same idempotency key), "once"
    (harm: after a cut in the middle the run stops and asks)."""
    timeout: float | None = None
    """Seconds for one call; a call that takes longer is an error the model hears of."""

    @model_validator(mode="after")
    def _has_code(self) -> BaseTool:
        if type(self)._run is BaseTool._run and type(self)._arun is BaseTool._arun:
            raise ConfigError(f"tool {self.name!r} has no code: write _run or _arun in {type(self).__name__}")
        return self

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise ConfigError(f"tool {self.name!r} has no _run; it runs asynchronously: await arun(...)")

    async def _arun(self, **kwargs: Any) -> Any:
        return await background.in_thread(self._run, **kwargs)

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The model that arguments are checked against."""
        return self.args_schema or arguments_model(self.name, self._code())

    @cached_property
    def schema_for_model(self) -> dict[str, Any]:
        """How the tool is offered to a language model."""
        parameters = self.arguments.model_json_schema()
        parameters.pop("title", None)
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    async def arun(self, **arguments: Any) -> Any:
        """Check the arguments and run. Raises pydantic.ValidationError, TimeoutError, and what the tool raises."""
        checked = self.arguments.model_validate(arguments)
        values = {name: getattr(checked, name) for name in type(checked).model_fields}
        return await background.within(self._arun(**values), self.timeout, f"tool {self.name}")

    def _code(self) -> Any:
        overridden = type(self)._arun is not BaseTool._arun
        return self._arun if overridden else self._run

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def as_text(result: object) -> str:
    """A tool's result as the model reads it: text as it is, data as JSON."""
    if isinstance(result, str):
        return result
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


def is_async(fn: object) -> bool:
    """Whether calling `fn` gives something to await."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
