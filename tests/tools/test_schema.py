"""Tools that are functions: what a model is told of them, and what it may pass."""

from __future__ import annotations

import asyncio
import functools
import threading
from enum import Enum
from typing import Annotated, Literal, Optional

import pytest
from pydantic import BaseModel, Field, ValidationError

from crewlite import BaseTool, tool
from crewlite.errors import StepTimeout
from crewlite.tools import FunctionTool
from crewlite.tools.schema import argument_descriptions, summary


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
    assert tool(anything.func).effect == "idempotent"


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
