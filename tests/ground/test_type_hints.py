"""Other libraries can read the type hints of all public names, as those do that build forms, tools or commands of them."""

from __future__ import annotations

import importlib
import inspect
import typing

import pytest
from pydantic.errors import PydanticUserError

from crewlite import Agent, BaseTool, CheckpointConfig, Crew, Task

PACKAGES = (
    "crewlite",
    *(f"crewlite.{name}" for name in "errors events flow llm project recovery state testing tools".split()),
)
BETWEEN_FLOORS = {"as_field", "as_root", "check_edit", "lessons", "taught", "model_post_init"}
"""What the engine and pydantic call: the types of their arguments belong to packages that a definition does not load."""


def public():
    found = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", dir(module)):
            value = getattr(module, name)
            if inspect.isfunction(value) or (inspect.isclass(value) and value.__module__.startswith("crewlite")):
                found[value] = f"{package}.{name}"
    return [
        pytest.param(value, id=name) for value, name in found.items() if not name.rpartition(".")[2].startswith("_")
    ]


def functions_of(cls):
    for name, value in [*vars(cls).items()]:
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if inspect.isfunction(inner) and name not in BETWEEN_FLOORS and (name == "__init__" or name[0] != "_"):
            yield inner


@pytest.mark.parametrize("value", public())
def test_the_type_hints_of_a_public_name_can_be_read(value):
    typing.get_type_hints(value)
    for function in functions_of(value) if inspect.isclass(value) else ():
        typing.get_type_hints(function)


@pytest.mark.parametrize("cls", [Agent, BaseTool, Crew, Task])
def test_what_holds_live_objects_says_why_it_has_no_json_schema(cls):
    with pytest.raises(
        PydanticUserError, match=f"{cls.__name__} has no JSON schema, because .*write a model of your own"
    ):
        cls.model_json_schema()


def test_settings_that_are_plain_data_have_a_json_schema():
    assert CheckpointConfig.model_json_schema()["properties"]["max_checkpoints"]
