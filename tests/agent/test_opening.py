"""How a conversation opens: the messages given, its own templates, the date, models that take no system message."""

from __future__ import annotations

from datetime import datetime

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.errors import ConfigError
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM

LLAMA = {
    "system_template": "<|system|>\n{{ .System }}<|end|>",
    "prompt_template": "<|user|>\n{{ .Prompt }}<|end|>",
    "response_template": "<|assistant|>\n{{ .Response }}<|end|>",
}


def pilot(**fields):
    return Agent(role="Pilot", goal="answer", llm=ScriptedLLM(lambda messages: "done"), **fields)


def test_templates_of_crewai_are_taken_as_they_are():
    who = pilot(**LLAMA)
    who.kickoff("How deep?")
    system, asked = who.llm.calls[0]
    assert system["content"] == "<|system|>\nYou are Pilot. \n\nYour goal: answer<|end|>"
    assert asked["content"] == "<|user|>\nHow deep?<|end|><|assistant|>\n"


def test_templates_are_jinja2_and_hold_for_tasks_too():
    who = pilot(system_template="{{ role|upper }}: {% if backstory %}{{ backstory }}{% else %}go{% endif %}")
    Crew(tasks=[Task(name="t", description="Look", expected_output="x", agent=who)]).kickoff()
    assert who.llm.calls[0][0]["content"] == "PILOT: go"


@pytest.mark.parametrize(
    "trick", ["{{ role }}", "{{ 7 * 7 }}", "{% for x in y %}", "{{ .System }}", "{{ ''.__class__.__mro__ }}", "{role}"]
)
def test_template_tricks_in_inputs_stay_text(trick):
    who = pilot(**LLAMA).with_(role="Pilot of {place}")
    crew = Crew(tasks=[Task(name="t", description="Look at {place}", expected_output="x", agent=who)])
    crew.kickoff({"place": trick})
    system, asked = (message["content"] for message in who.llm.calls[0])
    assert f"You are Pilot of {trick}." in system
    assert f"Look at {trick}\n" in asked


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"system_template": "{{ .Sistem }}"}, "system_template uses Sistem; did you mean 'System'"),
        ({"prompt_template": "{{ .Prompt }} {{ topic }}"}, "prompt_template uses topic; there is Prompt, role, goal"),
        ({"prompt_template": "Answer"}, "prompt_template does not use {{ .Prompt }}, so its text would be lost"),
        ({"response_template": "Answer:"}, "response_template does not use {{ .Response }}"),
        ({"system_template": "{% if %}"}, "system_template cannot be read as a template.*line 1"),
        ({"system_template": "{{ role|center(9) }}"}, "cannot be read as a template.*center"),
        (
            {"system_template": "{{ role }}", "inject_date": True},
            "does not use {{ .System }}, so the date would be lost",
        ),
        ({"date_format": "today"}, "date_format is 'today'; wanted a format of dates"),
    ],
)
def test_templates_are_checked_when_an_agent_is_defined(fields, told):
    with pytest.raises(ConfigError, match=told.replace("{", r"\{").replace("}", r"\}").replace("|", r"\|")):
        pilot(**fields)


@pytest.mark.parametrize(
    "bomb",
    [
        "{{ 'x' * 1000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 'x'.ljust(1000000000) }}",
        "{{ role.__class__.__mro__ }}",
        "{% for a in 'x'|replace('x', '0123456789') %}" * 7 + "{{ goal }}" + "{% endfor %}" * 7,
    ],
)
def test_templates_reach_nothing_and_make_no_endless_text(bomb):
    with pytest.raises(ConfigError, match="Agent: system_template (cannot be rendered|renders to more)"):
        pilot(system_template=bomb)


def test_a_model_without_system_messages_is_told_in_the_first_message():
    who = pilot(use_system_prompt=False)
    who.kickoff("How deep?")
    assert [message["role"] for message in who.llm.calls[0]] == ["user"]
    assert who.llm.calls[0][0]["content"] == "You are Pilot. \n\nYour goal: answer\n\nHow deep?"


def test_the_date_is_that_of_the_runs_start_also_in_a_resume():
    class Stop(Exception):
        pass

    def reply(messages):
        asked.append(messages[0]["content"])
        if len(asked) == 2:
            raise Stop
        return "done"

    def crew(setting):
        agent = Agent(role="Pilot", goal="g", llm=ScriptedLLM(reply), inject_date=True, date_format="%d.%m.%Y %f")
        tasks = [Task(name=name, description=name, expected_output="x", agent=agent) for name in ("one", "two")]
        return Crew(tasks=tasks, checkpoint=setting)

    asked, config = list[str](), CheckpointConfig(location="here", provider=InMemoryProvider())
    before = datetime.now().astimezone()
    with pytest.raises(Stop):
        crew(config).kickoff(run_id="run")
    crew(config).kickoff(run_id="run")
    assert any(f"The date today is {at:%d.%m.%Y} " in asked[0] for at in (before, datetime.now().astimezone()))
    assert len(set(asked)) == 1, "to the microsecond"


def test_an_agent_alone_knows_the_date_too():
    who, before = pilot(inject_date=True), datetime.now().astimezone()
    who.kickoff("go")
    asked = who.llm.calls[0][0]["content"]
    assert any(f"The date today is {at:%Y-%m-%d}." in asked for at in (before, datetime.now().astimezone()))


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], r"messages is \[\]; wanted a text, or a list of"),
        (7, "messages is 7; wanted a text"),
        (["hello"], "wanted a text, or a list of"),
        ([{"role": "user"}], "wanted a text, or a list of"),
        ([{"role": "human", "content": "x"}], r"messages\[0\]: the role is 'human'; write 'user'"),
        ([{"role": "usr", "content": "x"}], r"the role is 'usr'; did you mean 'user'"),
        (
            [{"role": "user", "content": "x"}, {"role": "user", "content": 7}],
            r"messages\[1\]: the content is 7; wanted",
        ),
        ([{"role": "user", "content": None}], "the content is None; wanted a text"),
        ([{"role": "user", "content": []}], "the content is an empty list"),
        ([{"role": "user", "content": ["x"]}], "a part of the content is 'x'; wanted"),
        ([{"role": "user", "content": [{"type": "text"}]}], "wanted its text"),
    ],
)
def test_messages_that_no_model_takes_are_told_before_anything_is_paid(messages, problem):
    with pytest.raises(ConfigError, match=problem):
        pilot().kickoff(messages)


def test_a_message_with_calls_needs_no_content():
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "seen"},
    ]
    who = pilot()
    assert who.kickoff(asked).raw == "done"
    assert who.llm.calls[0][2] == {**asked[1], "content": None}
