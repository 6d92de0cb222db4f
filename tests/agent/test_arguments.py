"""Arguments that cannot be read: the model is told what was wrong with them, plainly."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, field_validator

from crewlite import Agent, BaseTool, ToolCall, tool
from crewlite.events import ToolValidateInputErrorEvent
from crewlite.testing import EventRecorder, ScriptedLLM


@tool
def look(where: str, times: int = 1) -> str:
    """Look."""
    return f"saw {where}"


def heard(arguments):
    llm = ScriptedLLM([ToolCall("look", arguments), "done"])
    with EventRecorder() as events:
        Agent(role="W", goal="g", llm=llm, tools=[look]).kickoff("go")
    text = llm.calls[-1][-1]["content"]
    said = events.of(ToolValidateInputErrorEvent)
    assert [event.error for event in said] == ([] if text.startswith("saw") else [text])
    return text


DEEP = "that can be read: it is nested too deeply. Send a flatter one"


def nested(levels):
    made = "here"
    for _ in range(levels):
        made = {"where": made}
    return made


IT_TAKES = "It takes: where, times."


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            '{"where": "here", "tim',
            'not a JSON object: they break off after \'{"where": "here", "tim\'. Send them again, whole',
        ),
        ('{"where": ', "not a JSON object: they break off after '{\"where\":'. Send them again, whole"),
        (
            '{"where": "here" "times": 2}',
            "not a JSON object: Expecting ',' delimiter at character 18, after '{\"where\": \"here\" '. "
            "Send them again as one JSON object",
        ),
        ("here", "not a JSON object: Expecting value at 'here'. Send them again as one JSON object"),
        ('["here"]', "not a JSON object, but a list. Send them again as one JSON object, by name"),
        ("7", "not a JSON object, but a number. Send them again as one JSON object, by name"),
        ("[" * 100_000, f"not a JSON object {DEEP}"),
        (f'{{"where": {"[" * 400 + "]" * 400}}}', f"not a JSON object {DEEP}"),
        (f'{{"where": {"[" * 100 + "]" * 100}}}', f"not a JSON object {DEEP}"),
        (nested(100), f"not a JSON object {DEEP}"),
        (
            f'{{"where": "here", "times": {"7" * 5000}}}',
            "not a JSON object that can be read: it holds a number of more than 4,300 digits. Send a shorter one",
        ),
    ],
    ids=[
        "cut",
        "cut early",
        "a comma is missing",
        "no JSON",
        "a list",
        "a number",
        "deep",
        "sound but deep",
        "deeper than a record",
        "a deep object",
        "a number without end",
    ],
)
def test_it_is_told_that_they_were_no_json_object_and_where_they_broke_off(arguments, told):
    assert heard(arguments) == f"The arguments for look were {told}. {IT_TAKES}"


def test_arguments_as_deep_as_may_be_are_recorded_and_do_not_end_the_run():
    llm = ScriptedLLM([ToolCall("look", nested(80)), "done"])
    assert Agent(role="W", goal="g", llm=llm, tools=[look], checkpoint=True).kickoff("go").raw == "done"
    assert "where: Input should be a valid string" in llm.calls[-1][-1]["content"]


def test_no_text_is_no_arguments_and_sound_text_is_read():
    assert heard(' {"where": "here"} ') == "saw here"
    assert heard("  ").startswith("The arguments do not fit look: where: Field required.")


def test_names_are_told_as_they_were_before():
    assert heard({"wher": "x"}) == (
        "The arguments do not fit look: where: Field required; wher: Extra inputs are not permitted. " + IT_TAKES
    )


def test_a_validator_that_raises_what_it_likes_ends_no_run():
    class Odd(BaseModel):
        where: str

        @field_validator("where")
        @classmethod
        def _look(cls, value):
            raise LookupError("nowhere")

    class Look(BaseTool):
        name: str = "look"
        description: str = "Look."
        args_schema: type[BaseModel] | None = Odd

        def _run(self, where):
            return where

    llm = ScriptedLLM([ToolCall("look", {"where": "x"}), "done"])
    assert Agent(role="W", goal="g", llm=llm, tools=[Look()]).kickoff("go").raw == "done"
    assert "do not fit look: LookupError: nowhere" in llm.calls[-1][-1]["content"]
