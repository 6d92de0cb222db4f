"""An answer is read for its JSON, however a model has wrapped it; what is not clearly the answer is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, RootModel

from crewlite.agent.shape import Misshapen, Shape


class Page(BaseModel):
    text: str = "none"


PAGE = Shape(Page)
MARKDOWN = 'Run it:\n```python\nprint(1)\n```\nIt prints:\n```json\n{"text": "no"}\n```\n'
CODE = json.dumps({"text": MARKDOWN}, indent=2)


@pytest.mark.parametrize(
    "answer",
    [
        CODE,
        f"```json\n{CODE}\n```",
        f"Here you are:\n```JSON\n{CODE}\n```\nIs that all?",
        f"```json {CODE} ```",
        f"```\r\n{CODE}\r\n```",
        f"First, some Python:\n```python\nprint(1)\n```\nAnd the page:\n```json\n{CODE}\n```",
        f"Some Python:\n```python\nprint(1)\n``` 3 lines, and the page:\n```json\n{CODE}\n```",
        f"Here you are: {CODE}",
        f"```json\n{CODE}",
        f"{CODE}\n\nI hope that helps.",
        f"\ufeff{CODE}",
        f"{CODE}\n\nNote: {{placeholders}} and [names] stay as they are.",
        f"The page about [Brest] {{text}} is: {CODE} [m]",
        f"By source [1], and [2, 3]: {CODE}",
    ],
)
def test_a_text_with_code_in_fences_is_read_from_json_however_that_is_wrapped(answer):
    assert PAGE.read(answer) == Page(text=MARKDOWN)


@pytest.mark.parametrize(
    "answer",
    [
        'I think {"text": "a"}. No, {"text": "b"}.',
        '{"text": "a", "more": {"text": "b"},}',
        'Two: [{"text": "a"}]',
        'By [1]: {"text": "a"}, or rather {"text": "b"}',
        'Broken: {"text": "a", {"text": "b"}',
        'By [{"text": "a"}, and {"text": "b"}',
        "The page {text} is empty.",
        "```json\n",
        "[" * 100_000,
        "```json\n" + '{"a":' * 100_000,
        "",
    ],
)
def test_what_may_be_no_answer_or_one_of_several_is_refused(answer):
    with pytest.raises(Misshapen):
        PAGE.read(answer)


def test_a_json_text_is_read_as_a_whole():
    answer = "Write {} or ```json\n{}\n```"
    assert Shape(RootModel[str]).read(json.dumps(answer)).root == answer


@given(st.dictionaries(st.text(), st.text() | st.lists(st.integers())), st.text("ab .:\n"), st.booleans())
def test_json_between_texts_without_brackets_is_found(data, around, is_fenced):
    written = json.dumps(data)
    wrapped = f"```json\n{written}\n```" if is_fenced else written
    assert json.loads(PAGE.json_in(f"{around}{wrapped}{around}")) == data
