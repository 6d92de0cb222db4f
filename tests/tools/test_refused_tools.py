"""Functions and classes that make no tool: what their author is told, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from pydantic import v1

from crewlite import BaseTool, tool
from crewlite.errors import ConfigError
from crewlite.tools import FunctionTool


class Reader(BaseTool):
    name: str = "reader"
    description: str = "Read."
    limit: int = 3

    def _run(self, path: str) -> str:
        return path


def variadic(*args: int):
    """Use."""


def positional(a: int, /):
    """Use."""


@pytest.mark.parametrize("make", [tool, FunctionTool.from_function])
@pytest.mark.parametrize(("fn", "found"), [(variadic, r"\*args"), (positional, "a: ")])
def test_arguments_without_a_name_are_refused(fn, found, make):
    with pytest.raises(ConfigError, match=f"takes {found}.*by name"):
        make(fn)


@pytest.mark.parametrize("make", [tool, FunctionTool.from_function])
def test_a_function_without_a_docstring_is_refused(make):
    def silent(a: int):
        return a

    with pytest.raises(ConfigError, match="Tool 'silent' has no docstring"):
        make(silent)
    silent.__doc__ = """
        Args:
            a: Only this.
    """
    with pytest.raises(ConfigError, match="no docstring"):
        make(silent)


def test_a_type_that_cannot_be_resolved_is_told_when_the_tool_is_made():
    def lost(a: NoSuchType):  # noqa: F821
        """Use."""

    with pytest.raises(ConfigError, match=r"'lost'.*NoSuchType"):
        tool(lost)


def test_an_argument_with_a_leading_underscore_is_told_when_the_tool_is_made():
    def use(_hidden: str):
        """Use."""

    with pytest.raises(ConfigError, match=r"'use'.*underscore"):
        tool(use)


class Client:
    """An object of the program, which no JSON describes."""


@pytest.mark.parametrize(
    ("hint", "shown"),
    [(Client, "Client"), (Callable[[int], str], "Callable"), (type, "type"), (dict[str, Client], "dict")],
)
def test_an_argument_that_no_model_can_pass_is_named_when_the_tool_is_made(hint, shown):
    def use(query: str, other: object):
        """Use."""

    use.__annotations__["other"] = hint
    with pytest.raises(ConfigError, match=f"'use' takes other: .*{shown}.*which a model cannot pass") as told:
        tool(use)
    assert "query" not in str(told.value)

    class Use(BaseTool):
        name: str = "use"
        description: str = "Use."

        def _run(self, query: str, other: object) -> str:
            return query

    Use._run.__annotations__["other"] = hint
    with pytest.raises(ConfigError, match="'use' takes other"):
        Use().schema_for_model


def test_a_tool_without_code_is_told_what_to_write():
    class Empty(BaseTool):
        name: str = "empty"
        description: str = "Nothing."

    with pytest.raises(ConfigError, match="'empty'"):
        asyncio.run(Empty().arun())


def test_a_tool_with_wrong_fields_lists_every_problem_at_once():
    with pytest.raises(ConfigError, match=r"did you mean 'limit'.*effect|effect.*did you mean 'limit'"):
        Reader(limitt=1, effect="twice")


def test_a_class_of_the_old_pydantic_is_refused_when_the_tool_is_made():
    class Old(v1.BaseModel):
        path: str

    with pytest.raises(ConfigError, match="args_schema is the class Old of pydantic.v1; wanted a subclass of pydantic"):
        Reader(args_schema=Old)

    class Defaulting(Reader):
        args_schema: type | None = Old

    with pytest.raises(ConfigError, match="args_schema is the class Old"):
        Defaulting()
