"""Users' texts know one construct; what is filled in is never looked at again."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, defaultdict, deque
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from crewlite.errors import ConfigError, MissingInput
from crewlite.texts.templates import fill


def placeholders(text):
    """The names that filling asks for, found by asking."""
    names = set()
    while True:
        try:
            fill(text, dict.fromkeys(names, ""), where="x")
        except MissingInput as missing:
            names.add(missing.name)
        else:
            return names


texts = st.text(st.sampled_from("{}ab \n\"':"), max_size=20)


def filled(text, **values):
    return fill(text, values, where="Task 'write'")


def test_each_placeholder_is_replaced_by_the_text_of_its_value():
    assert filled("{a} and {b_2} and {a-b}", a=1, b_2=None, **{"a-b": [2]}) == "1 and None and [2]"


class Tagged(BaseModel):
    tags: set[str]


@dataclasses.dataclass(frozen=True)
class Marked:
    marks: frozenset[str]
    place: tuple = ()


class Named(NamedTuple):
    one: object


WORDS = frozenset({"red", "green", "blue", "black", "white"})
SORTED = "'black', 'blue', 'green', 'red', 'white'"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (set(WORDS), f"{{{SORTED}}}"),
        ([{"a": (WORDS,)}], f"[{{'a': (frozenset({{{SORTED}}}),)}}]"),
        ({10, 9, "a", None, 2.5}, "{None, 2.5, 9, 10, 'a'}"),
        ({WORDS: set()}, f"{{frozenset({{{SORTED}}}): set()}}"),
        (Tagged(tags=WORDS), f"tags={{{SORTED}}}"),
        (Marked(WORDS), f"Marked(marks=frozenset({{{SORTED}}}), place=())"),
        (Named([set(WORDS)]), f"Named(one=[{{{SORTED}}}])"),
        (defaultdict(set, a=set(WORDS)), f"defaultdict(<class 'set'>, {{'a': {{{SORTED}}}}})"),
        (deque([set(WORDS)], maxlen=2), f"deque([{{{SORTED}}}], maxlen=2)"),
        (Counter({WORDS: 3}), f"Counter({{frozenset({{{SORTED}}}): 3}})"),
    ],
)
def test_a_set_within_a_value_has_one_text_in_every_process(value, text):
    before = repr(value)
    assert filled("{value}", value=value) == text
    assert repr(value) == before


def test_a_value_that_contains_itself_is_shown():
    value = [{1}]
    value += [value, value]
    assert filled("{value}", value=value).startswith("[{1}, [{1}")


def test_a_missing_input_is_named_with_where_it_is_asked_for_and_what_was_given():
    with pytest.raises(MissingInput) as raised:
        filled("About {topic} for {reader}.", topic="tides")
    assert (raised.value.name, raised.value.given) == ("reader", ("topic",))
    for part in ("Task 'write'", "{reader}", "given: topic", "kickoff(inputs={'reader': ...})"):
        assert part in str(raised.value)


def test_an_input_that_may_be_the_missing_one_misspelt_is_named():
    with pytest.raises(MissingInput, match=r"do not fill \(given: depth, topik; is 'topik' misspelt\?\)"):
        filled("About {topic}.", topik="tides", depth=3)


def test_the_message_about_a_missing_input_gives_advice_that_works():
    with pytest.raises(MissingInput, match=r"write \{\{reader\}\} for the braces themselves"):
        filled("{reader}")
    assert filled("{{reader}}") == "{reader}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{a}}", "{a}"),
        ("{{{a}}}", "{{a}}"),
        ("{{{{a}}}}", "{{{a}}}"),
        ("{{a} {a}}", "{1 1}"),
        ("a }} b {{ c", "a }} b {{ c"),
        ("}} {a}", "}} 1"),
        ("{} { a } {1} {a.b} {a!r} {a:>5} {a[0]}", "{} { a } {1} {a.b} {a!r} {a:>5} {a[0]}"),
        ("{% raw %}{# x #}", "{% raw %}{# x #}"),
    ],
)
def test_doubled_braces_stand_for_a_placeholder_and_other_braces_for_themselves(text, expected):
    assert filled(text, a=1) == expected


@pytest.mark.parametrize(
    "data", [{}, {"a": 1}, {"a": {"b": {"c": {}}}}, [{"x": [{}]}, {}], {"a": {"b": "}}{{"}}], ids=json.dumps
)
@pytest.mark.parametrize("indent", [None, 2])
def test_the_braces_of_json_are_left_alone(data, indent):
    example = json.dumps(data, indent=indent)
    assert filled(f"Answer like {example} about {{topic}}.", topic="x") == f"Answer like {example} about x."
    assert placeholders(example) == set()


def test_a_placeholder_inside_json_is_filled():
    assert json.loads(filled('{"a": {"b": {n}}}', n=7)) == {"a": {"b": 7}}


@pytest.mark.parametrize("value", ["{b}", "{{b}}", "{a}", "{{ 7*7 }}", "{% for x in y %}", "\\1 \\g<0>", "{missing}"])
def test_a_value_is_never_filled_again(value):
    assert filled("<{a}> <{b}>", a=value, b="B") == f"<{value}> <B>"


@given(texts)
def test_filling_asks_for_exactly_the_placeholders(text):
    names = placeholders(text)
    assert fill(text, dict.fromkeys(names, ""), where="x").count("{") <= text.count("{")
    for name in names:
        with pytest.raises(MissingInput):
            fill(text, dict.fromkeys(names - {name}, ""), where="x")


@given(texts)
def test_a_text_without_placeholders_stays_as_it_is(text):
    if "{{" not in text and not placeholders(text):
        assert fill(text, {}, where="x") == text


@given(st.text())
def test_any_value_arrives_whole(value):
    assert fill("[{a}]", {"a": value}, where="x") == f"[{value}]"


def test_a_value_that_is_nested_too_deep_for_a_text_is_told_with_its_name():
    deep = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ConfigError, match=r"^Task 'plan': the value of \{data\} is nested too deep"):
        fill("Read {data}", {"data": deep}, where="Task 'plan'")
