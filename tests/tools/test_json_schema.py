"""Arguments that a JSON schema describes: names and plain types are checked, the rest is let through."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from crewlite.errors import ConfigError
from crewlite.tools import adopt
from crewlite.tools.approval import schema_of
from crewlite.tools.naming import address_name, safe_name
from crewlite.tools.schema import model_of


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, ["a"], [1, None]),
        ({"type": "integer"}, [1, "1"], ["x", 1.5]),
        ({"type": "number"}, [1, 1.5], ["x"]),
        ({"type": "boolean"}, [True], ["perhaps"]),
        ({"type": ["string", "null"]}, ["a", None], [1]),
        ({"type": "array", "items": {"type": "integer"}}, [[1, 2], []], [["x"], 1]),
        ({"type": "array"}, [[1, "x"]], ["x"]),
        ({"type": "object"}, [{"a": 1}], ["x"]),
        ({"enum": ["a", 1, None]}, ["a", 1, None], ["b", 2]),
        ({"const": "a"}, ["a"], ["b"]),
        ({"enum": [{"a": 1}]}, [{"a": 1}, "anything"], []),
        ({"anyOf": [{"type": "string"}]}, ["a", 1], []),
        ({"$ref": "#/$defs/X"}, ["a", 1], []),
        (True, ["a", 1], []),
    ],
    ids=str,
)
def test_plain_types_are_checked(schema, good, bad):
    model = model_of("t", {"type": "object", "properties": {"x": schema}, "required": ["x"]})
    for value in good:
        model.model_validate({"x": value})
    for value in bad:
        with pytest.raises(ValidationError):
            model.model_validate({"x": value})
    with pytest.raises(ValidationError):
        model.model_validate({})


def test_unknown_names_are_refused_unless_the_schema_is_open():
    closed = model_of("t", {"properties": {"x": {}}})
    with pytest.raises(ValidationError, match="y"):
        closed.model_validate({"y": 1})
    for schema in ({}, {"properties": {"x": {}}, "additionalProperties": True}, {"type": "object"}):
        assert model_of("t", schema).model_validate({"y": 1}).model_dump(exclude_unset=True) == {"y": 1}
    with pytest.raises(ConfigError, match="takes 'array' by its schema; wanted an object"):
        model_of("t", {"type": "array"})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"type": "string"}}},
        {"properties": {"x": {"items": {"$ref": "#/definitions/X"}}}, "definitions": {"X": {"type": "string"}}},
        {"properties": {"x": {"$ref": "#/properties/y"}, "y": {}}, "required": None},
        {"type": "object", "properties": None, "description": "No arguments."},
    ],
    ids=str,
)
def test_a_model_is_shown_the_schema_as_it_was_given(schema):
    class Described:
        name, description, args_schema = "look", "Look.", schema

        def run(self, **arguments):
            return arguments

    shown = adopt(Described()).schema_for_model["function"]["parameters"]
    assert shown == {**schema, "type": "object", "properties": schema["properties"] or {}}
    said = schema_of(adopt(Described()))
    assert said["anyOf"][1]["properties"]["arguments"]["properties"] == shown["properties"]
    assert [said.get(name) for name in ("$defs", "definitions")] == [schema.get("$defs"), schema.get("definitions")]


def test_names_that_services_take_stay_and_others_become_one_of_their_own():
    names = [
        "search",
        "Search the web",
        "Marée",
        "поиск",
        "карта",
        "潮",
        "x" * 65,
        "x" * 66,
        "!",
        "?",
        "a/b",
        "a b" * 40,
    ]
    safe = [safe_name(name) for name in names]
    assert safe[:3] == ["search", "Search_the_web", "Maree"]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in safe)
    assert len(set(safe)) == len(names)
    assert [safe_name(name) for name in safe] == safe
    assert (address_name("a/b#2!3"), address_name("Search the web")) == ("a_b_2_3", "Search the web")


def test_a_name_in_an_address_is_short_and_can_be_seen():
    assert address_name("x" * 64) == "x" * 64
    assert re.fullmatch(r"x{57}_[0-9a-f]{6}", address_name("x" * 9_000))
    assert address_name("x" * 9_000) != address_name("x" * 9_001)
    assert address_name("ls\x1b[2J\n\u202e") == "ls[2J"
    assert re.fullmatch(r"tool_[0-9a-f]{6}", address_name("\n\x00"))
