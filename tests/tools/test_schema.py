"""What a model is told of a tool, and what it may pass."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Literal, Optional

import pytest
from pydantic import BaseModel, Field, SecretStr, ValidationError

from crewlite import BaseTool, tool
from crewlite.errors import ConfigError, StepTimeout
from crewlite.tools import FunctionTool
from crewlite.tools.schema import argument_descriptions, arguments_model, summary


class Unit(Enum):
    METRE = "m"
    FOOT = "ft"


class Place(BaseModel):
    name: str
    depth: float = 0.0


def offered(made):
    return made.schema_for_model["function"]


def parameters(made):
    return offered(made)["parameters"]


# Functions


def test_a_function_becomes_a_tool_known_by_its_name_docstring_and_signature():
    @tool
    def tide(place: str, hour: int = 12) -> str:
        """How high the tide is.

        Measured from the chart datum.

        Args:
            place: A harbour.
            hour: Hour of the day,
                from 0 to 23.

        Returns:
            Metres, as text.
        """
        return f"{place} at {hour}"

    assert isinstance(tide, FunctionTool)
    assert offered(tide)["name"] == "tide"
    assert offered(tide)["description"] == "How high the tide is. Measured from the chart datum."
    assert parameters(tide) == {
        "type": "object",
        "additionalProperties": False,
        "required": ["place"],
        "properties": {
            "place": {"type": "string", "title": "Place", "description": "A harbour."},
            "hour": {
                "type": "integer",
                "title": "Hour",
                "default": 12,
                "description": "Hour of the day, from 0 to 23.",
            },
        },
    }
    assert tide("Brest", hour=3) == "Brest at 3"


def test_a_tool_can_be_given_another_name_an_effect_and_a_limit():
    @tool("look_up", effect="once", timeout=2.5)
    def anything(x: int) -> int:
        """Look it up."""
        return x

    assert (anything.name, anything.effect, anything.timeout) == ("look_up", "once", 2.5)
    assert tool(lambda_with_doc()).effect == "idempotent"


def lambda_with_doc():
    def f(a: int) -> int:
        """Double."""
        return a * 2

    return f


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (str, ["a", ""], [1, None, ["a"]]),
        (int, [1, "1", -5], ["x", 1.5, None]),
        (float, [1, 1.5, "2.5"], ["x", None]),
        (bool, [True, "false", 0], ["perhaps", 7]),
        (Optional[int], [None, 1], ["x"]),  # noqa: UP045
        (int | str, [1, "x"], [None, []]),
        (Literal["a", "b"], ["a"], ["c", None]),
        (list[int], [[], [1, "2"]], [["x"], 1, None]),
        (dict[str, int], [{}, {"a": 1}], [{"a": "x"}, []]),
        (tuple[int, str], [[1, "a"]], [[1], [1, 2, 3]]),
        (set[int], [[1, 1]], [1]),
        (Unit, ["m", Unit.FOOT], ["yard"]),
        (Place, [{"name": "Brest"}, {"name": "Brest", "depth": 3}], [{}, "Brest"]),
        (list[Place], [[{"name": "Brest"}]], [[{}]]),
        (Annotated[int, Field(ge=0)], [0], [-1]),
    ],
    ids=str,
)
def test_arguments_are_checked_against_their_types(hint, good, bad):
    def use(x):
        """Use."""
        return x

    use.__annotations__ = {"x": hint}
    made = tool(use)
    assert "x" in parameters(made)["properties"]
    for value in good:
        asyncio.run(made.arun(x=value))
    for value in bad:
        with pytest.raises(ValidationError):
            asyncio.run(made.arun(x=value))


def test_what_arrives_in_the_function_is_of_the_declared_type():
    seen = []

    @tool
    def use(
        unit: Unit, place: Place, numbers: list[int], when: Literal["now", "then"] = "now", extra: int | None = None
    ):
        """Use."""
        seen.append((unit, place, numbers, when, extra))

    asyncio.run(use.arun(unit="ft", place={"name": "Brest"}, numbers=["1", 2]))
    assert seen == [(Unit.FOOT, Place(name="Brest"), [1, 2], "now", None)]


def test_unknown_and_missing_arguments_are_refused():
    @tool
    def use(a: int, b: int = 2):
        """Use."""

    for arguments in ({}, {"b": 1}, {"a": 1, "c": 2}):
        with pytest.raises(ValidationError):
            asyncio.run(use.arun(**arguments))


def test_an_argument_without_a_type_takes_anything():
    @tool
    def use(a, b=None):
        """Use."""
        return [a, b]

    assert asyncio.run(use.arun(a={"x": [1]}, b=2)) == [{"x": [1]}, 2]


def test_arguments_by_name_only_are_welcome():
    @tool
    def use(*, a: int) -> int:
        """Use."""
        return a

    assert asyncio.run(use.arun(a=1)) == 1


def test_a_tool_that_takes_any_keyword_is_given_all_that_a_model_passes():
    @tool
    def use(a: int, *args, **kwargs) -> str:
        """Use."""
        return f"{a} {args} {kwargs}"

    class Use(BaseTool):
        name: str = "use"
        description: str = "Use."

        def _run(self, **kwargs):
            return str(kwargs)

    assert asyncio.run(use.arun(a=1, b=[2])) == "1 () {'b': [2]}"
    assert asyncio.run(Use().arun(a=1, b=[2])) == "{'a': 1, 'b': [2]}"
    assert use.arguments.model_json_schema()["additionalProperties"] is True
    assert use.takes == ("a",)


def test_any_keyword_fits_the_type_of_kwargs_and_is_described_as_they_are():
    @tool
    def count(**ports: int) -> str:
        """Count.

        Args:
            ports: how many ships lie in each
        """
        return str(ports)

    assert count.arguments.model_json_schema()["additionalProperties"] == {
        "type": "integer",
        "description": "how many ships lie in each",
    }
    assert asyncio.run(count.arun(Brest="2")) == "{'Brest': 2}"
    with pytest.raises(ValueError, match=r"Brest\s+Input should be a valid integer"):
        asyncio.run(count.arun(Brest="two"))


@pytest.mark.parametrize("name", ["self", "fn", "call", "args", "kwargs", "arguments", "name"])
def test_an_argument_may_have_any_name(name):
    @tool
    def plain(**kwargs) -> str:
        """Use."""
        return str(kwargs)

    @tool
    async def waiting(**kwargs) -> str:
        """Use."""
        return str(kwargs)

    for use in (plain, waiting):
        assert asyncio.run(use.arun(**{name: 1})) == use.run(**{name: 1}) == str({name: 1})


def variadic(*args: int):
    """Use."""


def positional(a: int, /):
    """Use."""


@pytest.mark.parametrize(("fn", "found"), [(variadic, r"\*args"), (positional, "a: ")])
def test_arguments_without_a_name_are_refused(fn, found):
    with pytest.raises(ConfigError, match=f"takes {found}.*by name"):
        tool(fn)


def test_a_function_without_a_docstring_is_refused():
    def silent(a: int):
        return a

    with pytest.raises(ConfigError, match="Tool 'silent' has no docstring"):
        tool(silent)
    silent.__doc__ = """
        Args:
            a: Only this.
    """
    with pytest.raises(ConfigError, match="no docstring"):
        tool(silent)


def test_a_tool_is_made_of_a_function_as_structured_tools_of_crewai_are():
    def depth(port: str, at: int = 7) -> str:
        """Say how deep it is."""
        return f"{port} {at}"

    made = FunctionTool.from_function(depth)
    assert (made.name, made.description, made.result_as_answer) == ("depth", "Say how deep it is.", False)
    assert made.run(port="Brest") == "Brest 7"

    class Depth(BaseModel):
        port: str

    made = FunctionTool.from_function(
        func=lambda **told: told, name="deep", description="Depth.", args_schema=Depth, return_direct=True
    )
    assert (offered(made)["name"], made.run(port="Brest"), made.result_as_answer) == ("deep", {"port": "Brest"}, True)
    with pytest.raises(ConfigError, match="has no docstring"):
        FunctionTool.from_function(lambda port: port)
    with pytest.raises(ConfigError, match="takes a: "):
        FunctionTool.from_function(positional)


def test_a_type_that_cannot_be_resolved_is_told_when_the_tool_is_made():
    def lost(a: NoSuchType):  # noqa: F821
        """Use."""

    with pytest.raises(ConfigError, match=r"'lost'.*NoSuchType"):
        tool(lost)


def test_a_type_that_no_model_can_pass_is_told_when_the_tool_is_made():
    class Connection:
        pass

    def use(connection):
        """Use."""

    use.__annotations__ = {"connection": Connection}
    with pytest.raises(ConfigError, match=r"'use'.*Connection"):
        tool(use)


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
        offered(Use())


@pytest.mark.parametrize("name", ["json", "copy", "schema", "dict", "model_name", "validate", "self_", "type"])
def test_an_argument_may_have_any_name_a_function_may(name):
    space: dict = {}
    exec(f"def use({name}: str):\n    '''Use.'''\n    return {name}", space)
    made = tool(space["use"])
    assert list(parameters(made)["properties"]) == [name]
    assert asyncio.run(made.arun(**{name: "x"})) == "x"


def test_callable_objects_and_partial_functions_become_tools_too():
    class Tide:
        """How high the tide is."""

        def __call__(self, place: str) -> str:
            return place.upper()

    def height(place: str, unit: Unit) -> str:
        """How high the tide is."""
        return f"{place} {unit.value}"

    in_feet = functools.partial(height, unit=Unit.FOOT)
    in_feet.__doc__ = height.__doc__
    assert asyncio.run(tool(Tide()).arun(place="x")) == "X"
    assert asyncio.run(tool("feet")(in_feet).arun(place="x")) == "x ft"


def test_decorated_functions_and_methods_keep_their_signature():
    def logged(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            return fn(*args, **kwargs)

        return wrapper

    class Harbour:
        depth = 3

        def level(self, hour: int) -> int:
            """The water level."""
            return self.depth + hour

    @tool
    @logged
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert asyncio.run(add.arun(a="1", b=2)) == 3
    assert asyncio.run(tool(Harbour().level).arun(hour=2)) == 5


def test_async_functions_are_awaited_and_sync_ones_get_a_thread():
    import threading

    @tool
    async def here() -> str:
        """Where."""
        return threading.current_thread().name

    @tool
    def there() -> str:
        """Where."""
        return threading.current_thread().name

    assert asyncio.run(here.arun()) == threading.current_thread().name
    assert asyncio.run(there.arun()) == "crewlite-there"


def test_a_call_that_takes_too_long_is_ended():
    @tool(timeout=0.01)
    async def slow() -> None:
        """Wait."""
        await asyncio.sleep(30)

    with pytest.raises(StepTimeout, match="tool slow did not end within 0.01 s"):
        asyncio.run(slow.arun())


# Docstrings


@pytest.mark.parametrize("title", ["Args", "Arguments", "Parameters"])
def test_descriptions_of_arguments_are_read_in_the_style_of_google(title):
    text = f"""Say.

    {title}:
        a: One: with a colon.
        b (int, optional): Two,
            over two lines.
        c: Three.

    Returns:
        d: Not an argument.
    """
    assert argument_descriptions(text) == {"a": "One: with a colon.", "b": "Two, over two lines.", "c": "Three."}
    assert summary(text) == "Say."


@pytest.mark.parametrize("text", ["", "Say.", "Args: no", "Say.\n\nArgs:\n"])
def test_docstrings_without_arguments_describe_none(text):
    assert argument_descriptions(text) == {}


# Classes


class Search(BaseTool):
    name: str = "search"
    description: str = "Search the archive."
    token: SecretStr = SecretStr("hunter22")
    limit: int = 3

    def _run(self, query: str, pages: int = 1) -> str:
        """Args:
        query: What to look for.
        """
        return f"{query} {pages} {self.limit} {self.token.get_secret_value()}"


class Fetch(BaseTool):
    name: str = "fetch"
    description: str = "Fetch."

    async def _arun(self, url: str) -> str:
        await asyncio.sleep(0)
        return url


class Given(BaseModel):
    q: str = Field(description="A question.")


class WithSchema(BaseTool):
    name: str = "given"
    description: str = "Ask."
    args_schema: type[BaseModel] | None = Given

    def _run(self, **arguments):
        return arguments


def test_a_class_of_tools_takes_its_schema_from_run():
    search = Search(limit=5)
    assert list(parameters(search)["properties"]) == ["query", "pages"]
    assert parameters(search)["required"] == ["query"]
    assert asyncio.run(search.arun(query="tides", pages="2")) == "tides 2 5 hunter22"


def test_the_secrets_and_settings_of_a_tool_are_no_business_of_the_model():
    search = Search()
    for text in (repr(search), str(search.schema_for_model), search.model_dump_json(exclude={"args_schema"})):
        assert "hunter22" not in text
    assert "token" not in str(search.schema_for_model)


def test_a_class_of_tools_may_be_async():
    assert list(parameters(Fetch())["properties"]) == ["url"]
    assert asyncio.run(Fetch().arun(url="u")) == "u"


def test_a_schema_that_is_given_is_taken():
    made = WithSchema()
    assert parameters(made)["properties"] == {"q": {"type": "string", "title": "Q", "description": "A question."}}
    assert asyncio.run(made.arun(q="x")) == {"q": "x"}
    with pytest.raises(ValidationError):
        asyncio.run(made.arun())


def test_a_tool_without_code_is_told_what_to_write():
    class Empty(BaseTool):
        name: str = "empty"
        description: str = "Nothing."

    with pytest.raises(ConfigError, match="'empty'"):
        asyncio.run(Empty().arun())


def test_a_tool_with_wrong_fields_lists_every_problem_at_once():
    with pytest.raises(ConfigError, match=r"did you mean 'limit'.*effect|effect.*did you mean 'limit'"):
        Search(limitt=1, effect="twice")


def test_tools_are_themselves_and_can_be_keys():
    one, twin = Search(), Search()
    assert one == one
    assert one != twin
    assert len({one, twin}) == 2


def test_the_model_of_arguments_can_be_made_of_any_function():
    def use(a: int, b: str = "x"):
        pass

    model = arguments_model("use", use)
    assert model(a=1).model_dump() == {"a": 1, "b": "x"}


def test_a_class_of_the_old_pydantic_is_refused_when_the_tool_is_made():
    from pydantic import v1

    class Old(v1.BaseModel):
        path: str

    class Reader(BaseTool):
        name: str = "reader"
        description: str = "Read."

        def _run(self, path: str) -> str:
            return path

    with pytest.raises(ConfigError, match="args_schema is the class Old of pydantic.v1; wanted a subclass of pydantic"):
        Reader(args_schema=Old)

    class Defaulting(Reader):
        args_schema: type | None = Old

    with pytest.raises(ConfigError, match="args_schema is the class Old"):
        Defaulting()
