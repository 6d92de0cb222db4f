"""What a crew does when nothing goes wrong, and what it says when something is asked of it that cannot be."""

from __future__ import annotations

import asyncio
import sys

import pytest

from crewlite import Agent, Crew, History, Process, Task, ToolCall, event_bus, tool
from crewlite.errors import ConfigError, MissingInput, NoModel
from crewlite.events import BaseEvent, CrewKickoffCompletedEvent
from crewlite.testing import ScriptedLLM
from tests import children


def agent(*replies, role="Worker", **fields):
    return Agent(role=role, goal="work", backstory="works", llm=ScriptedLLM(list(replies)), **fields)


def test_the_result_is_the_last_answer_and_holds_every_tasks(make_crew):
    result = make_crew(["one", "two", "three"]).kickoff()
    assert str(result) == result.raw == "three"
    assert [output.raw for output in result.tasks_output] == ["one", "two", "three"]
    assert result["t1"].raw == "two"
    assert result.durability == "off"
    assert result.token_usage.requests == 3
    with pytest.raises(KeyError, match="t0, t1, t2"):
        result["t9"]


def test_two_tasks_of_one_name_are_two_steps():
    who = agent("one", "two", "three")
    tasks = [Task(name="t", description=text, expected_output="x", agent=who) for text in ("A", "B")]
    crew = Crew(tasks=tasks, checkpoint=True)
    assert crew.kickoff(run_id="r").tasks_output[0].raw == "one"
    with History() as history:
        assert [step.address for step in history.run("r").steps if step.kind == "task"] == ["task:t", "task:t#2"]
    again = crew.fork("r", edits={"task:t#2": "changed"}).kickoff()
    assert [output.raw for output in again.tasks_output] == ["one", "changed"]


def test_without_agents_of_its_own_a_crew_has_those_of_its_tasks_and_records_the_same():
    writer, editor, other = agent(role="Writer"), agent(role="Editor"), agent(role="Other")
    tasks = [
        Task(description=name, expected_output="x", agent=who) for name, who in zip("abc", [writer, editor, writer])
    ]
    crew = Crew(tasks=tasks)
    assert crew.agents == (writer, editor)
    facts = [made.as_root(made.as_request()).facts() for made in (crew, Crew(tasks=tasks, agents=crew.agents))]
    assert facts[0] == facts[1]
    for copy in (crew, crew.with_model("offline"), crew.with_(name="b"), crew.copy()):
        changed = copy.with_(tasks=[Task(description="d", expected_output="x", agent=other)])
        assert changed.agents == changed.people() == (other,)
    assert [one.role for one in crew.with_model("offline").agents] == ["Writer", "Editor"]


def test_a_task_is_given_the_outputs_it_builds_on_and_no_others():
    llm = ScriptedLLM(["alpha", "beta", "gamma", "delta"])
    who = Agent(role="Worker", goal="work", llm=llm)
    a = Task(description="first", expected_output="x", agent=who)
    b = Task(description="second", expected_output="x", agent=who, context=[])
    c = Task(description="third", expected_output="x", agent=who, context=[a])
    d = Task(description="fourth", expected_output="x", agent=who)
    Crew(tasks=[a, b, c, d]).kickoff()
    prompts = [messages[1]["content"] for messages in llm.calls]
    assert "alpha" not in prompts[1]
    assert "alpha" in prompts[2] and "beta" not in prompts[2]
    assert all(word in prompts[3] for word in ("alpha", "beta", "gamma"))


def test_placeholders_are_filled_in_tasks_and_agents_and_never_again():
    llm = ScriptedLLM(["ok"])
    who = Agent(role="{topic} expert", goal="know {topic}", llm=llm)
    task = Task(description="Tell of {topic}; keep {{this}}", expected_output="{size}", agent=who)
    result = Crew(tasks=[task]).kickoff(inputs={"topic": "{size} tides", "size": "small"})
    assert result.tasks_output[0].description == "Tell of {size} tides; keep {this}"
    assert result.tasks_output[0].agent == "{size} tides expert"
    assert "know {size} tides" in llm.calls[0][0]["content"]


def test_a_missing_input_is_named_before_anything_is_paid():
    llm = ScriptedLLM(["ok", "ok"])
    who = Agent(role="Worker", goal="work", llm=llm)
    tasks = [Task(description=text, expected_output="x", agent=who) for text in ("plain", "about {topic}")]
    with pytest.raises(MissingInput, match=r"\{topic\}.*given: theme"):
        Crew(tasks=tasks).kickoff(inputs={"theme": "x"})
    assert llm.calls == []


def test_all_missing_inputs_are_named_at_once():
    who = Agent(role="Worker", goal="work", llm="offline")
    tasks = [Task(description=text, expected_output="{size}", agent=who) for text in ("on {place}", "about {topic}")]
    with pytest.raises(MissingInput) as missing:
        Crew(tasks=tasks).kickoff(inputs={"place": "x"})
    assert missing.value.names == ("size", "topic")
    assert str(missing.value).startswith(
        "Task 'on {place}' holds the placeholder {size}, which the inputs do not fill, nor {topic} (given: place). "
        "Pass kickoff(inputs={'size': ..., 'topic': ...}), or write {{size}} for"
    )


def test_every_agent_without_a_model_is_named_at_once():
    tasks = [
        Task(description="a", expected_output="x", agent=Agent(role=role, goal="g")) for role in ("Reader", "Writer")
    ]
    with pytest.raises(NoModel, match="'Reader', 'Writer'.*CREWLITE_MODEL"):
        Crew(tasks=tasks).kickoff()


@pytest.mark.litellm
def test_models_are_inherited_agent_then_crew_then_environment(monkeypatch):
    own, shared = ScriptedLLM(["own"]), ScriptedLLM(["shared"])
    tasks = [
        Task(description="a", expected_output="x", agent=Agent(role="One", goal="g", llm=own)),
        Task(description="b", expected_output="x", agent=Agent(role="Two", goal="g")),
    ]
    result = Crew(tasks=tasks, llm=shared).kickoff()
    assert [output.raw for output in result.tasks_output] == ["own", "shared"]
    monkeypatch.setenv("CREWLITE_MODEL", "offline")
    assert Crew(tasks=tasks[1:]).kickoff().raw
    monkeypatch.setenv("CREWLITE_MODEL", "somebody/gpt")
    with pytest.raises(ConfigError, match="somebody/gpt.*offline"):
        Crew(tasks=tasks[1:]).kickoff()


def test_bad_definitions_list_every_problem_at_once():
    who = agent("x")
    late = Task(description="late", expected_output="x", agent=who)
    early = Task(description="early", expected_output="x", context=[late])
    with pytest.raises(ConfigError) as caught:
        Crew(tasks=[early, late])
    assert "'early' has no agent" in str(caught.value)
    assert "'late', which comes later" in str(caught.value)
    with pytest.raises(ConfigError, match="no field 'desciption'; did you mean 'description'"):
        Task(desciption="x", expected_output="y")
    with pytest.raises(ConfigError, match="'goal' is missing"):
        Agent(role="x")
    with pytest.raises(ConfigError, match="listed twice"):
        Crew(tasks=[late, late])
    with pytest.raises(ConfigError, match="task 'alone' builds on 'early', which is not in this crew"):
        Crew(tasks=[Task(name="alone", description="d", expected_output="x", agent=who, context=[early])])
    with pytest.raises(
        ConfigError, match="'one', which is not in this crew, though another task of that name is: build on that one"
    ):
        one = Task(name="one", description="d", expected_output="x", agent=who)
        Crew(tasks=[one.with_(), Task(name="two", description="d", expected_output="x", agent=who, context=[one])])


def test_tasks_that_build_on_each_other_are_refused():
    one, other = (Task(name=name, description="d", expected_output="x", agent=agent("x")) for name in ("one", "other"))
    one.context, other.context = [other], [one]
    with pytest.raises(ConfigError, match="task 'one' builds on 'other', which comes later"):
        Crew(tasks=[one, other])
    one.context = [one]
    with pytest.raises(
        ConfigError, match="task 'one' builds on 'one', which is the task itself: take it out of its context$"
    ):
        Crew(tasks=[one, other])


def test_twins_are_two():
    who = agent("x")
    one, two = (Task(description="same", expected_output="same", agent=who) for _ in range(2))
    assert one != two
    assert len({one, two}) == 2
    assert Crew(agents=[who], tasks=[one]).process is Process.sequential


def test_one_crew_runs_many_times_at_once_and_shares_nothing():
    llm = ScriptedLLM(lambda messages: f"about {messages[1]['content'].split()[2]}", delay=0.01)
    who = Agent(role="Worker", goal="work", llm=llm)
    crew = Crew(tasks=[Task(description="Tell of {topic} please", expected_output="x", agent=who)])

    async def all_at_once():
        return await asyncio.gather(*(crew.akickoff({"topic": f"topic{n}"}) for n in range(50)))

    results = asyncio.run(all_at_once())
    assert [result.raw for result in results] == [f"about topic{n}" for n in range(50)]
    assert len({result.run_id for result in results}) == 50


def test_kickoff_for_each_keeps_the_order_and_names_the_runs(on_disk):
    llm = ScriptedLLM(lambda messages: messages[1]["content"].split()[0])
    who = Agent(role="Worker", goal="work", llm=llm)
    task = Task(description="{word} please", expected_output="x", agent=who)
    crew = Crew(tasks=[task], checkpoint=on_disk())
    results = crew.kickoff_for_each([{"word": f"w{n}"} for n in range(5)], run_id="batch")
    assert [result.raw for result in results] == [f"w{n}" for n in range(5)]
    assert [result.run_id for result in results] == [f"batch.{n}" for n in range(5)]
    again = crew.kickoff_for_each([{"word": f"w{n}"} for n in range(5)], run_id="batch")
    assert [result.raw for result in again] == [result.raw for result in results]
    assert len(llm.calls) == 5


def test_kickoff_works_inside_a_running_loop_as_in_a_notebook(make_crew):
    crew = make_crew(["a", "b", "c"])

    async def cell():
        return crew.kickoff()

    assert asyncio.run(cell()).raw == "c"


def test_events_tell_the_story_in_order_with_parents(make_crew):
    heard = []
    event_bus.on(BaseEvent, lambda source, event: heard.append((source, event)))
    crew = make_crew(["a", "b"], count=2)
    crew.kickoff()
    story = [event.type for _, event in heard]
    task = [
        "task_started",
        "agent_execution_started",
        "llm_call_started",
        "llm_call_completed",
        "agent_execution_completed",
        "task_completed",
    ]
    assert story == ["crew_kickoff_started", *task, *task, "crew_kickoff_completed"]
    by_id = {event.event_id: event for _, event in heard}
    first_task, first_call = heard[1][1], heard[3][1]
    assert by_id[first_task.parent_event_id].type == "crew_kickoff_started"
    assert by_id[first_call.parent_event_id].type == "task_started"
    done = heard[6][1]
    assert done.started_event_id == first_task.event_id
    assert (done.address, done.task_name, done.output.raw) == ("task:t0", "t0", "a")
    assert heard[0][0] is crew and heard[1][0] is crew.tasks[0]
    seqs = [event.seq for _, event in heard if event.seq is not None]
    assert seqs == sorted(seqs)
    assert len({event.run_id for _, event in heard}) == 1


def test_a_failure_travels_after_it_was_announced(make_crew):
    heard = []
    event_bus.on(BaseEvent, lambda source, event: heard.append(event))
    with pytest.raises(ValueError, match="no such word"):
        make_crew(["a", ValueError("no such word")], count=2).kickoff()
    failed = [event.type for event in heard if event.type.endswith(("failed", "error"))]
    assert failed == ["llm_call_failed", "agent_execution_error", "task_failed", "crew_kickoff_failed"]
    assert all(event.error == "no such word" and event.error_type == "ValueError" for event in heard[-4:])


def nested(on_disk, inner_llm, outer_llm, blocking):
    inner_agent = Agent(role="Inner", goal="g", llm=inner_llm)
    tasks = [Task(name=f"deep{n}", description="d", expected_output="x", agent=inner_agent) for n in range(2)]
    inner = Crew(name="inner", tasks=tasks)
    if blocking:

        @tool
        def consult() -> str:
            """Ask the inner crew."""
            return inner.kickoff().raw

    else:

        @tool
        async def consult() -> str:
            """Ask the inner crew."""
            return (await inner.akickoff()).raw

    outer = Agent(role="Outer", goal="g", llm=outer_llm, tools=[consult])
    task = Task(name="ask", description="d", expected_output="x", agent=outer)
    return Crew(tasks=[task], checkpoint=on_disk())


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("own_loop", [False, True])
def test_crews_may_run_inside_tools_as_part_of_the_run(on_disk, blocking, own_loop):
    inner, outer = ScriptedLLM(["one", "two"]), ScriptedLLM([ToolCall("consult"), "outer"])
    crew = nested(on_disk, inner, outer, blocking)
    heard = []
    event_bus.on(BaseEvent, lambda source, event: heard.append(event.address))
    result = asyncio.run(crew.akickoff(run_id="n")) if own_loop else crew.kickoff(run_id="n")
    assert (result.raw, result.token_usage.requests) == ("outer", 4)
    assert "task:ask/tool:consult/crew:inner/task:deep1/llm#1" in heard
    assert outer.calls[1][-1]["content"] == "two"


def test_a_crew_cut_inside_a_tool_goes_on_where_it_was(on_disk):
    script = """
import os, sys
from crewlite import Agent, CheckpointConfig, Crew, Task, ToolCall, tool
from crewlite.testing import ScriptedLLM
def deep(messages):
    if "second" in messages[1]["content"] and sys.argv[2] == "die":
        os._exit(9)
    print("asked", messages[1]["content"].split()[0], flush=True)
    return "deep answer"
inner_agent = Agent(role="Inner", goal="g", llm=ScriptedLLM(deep))
tasks = [Task(name=n, description=n + " thing", expected_output="x", agent=inner_agent, context=[]) for n in ("first", "second")]
inner = Crew(name="inner", tasks=tasks)
@tool
def consult() -> str:
    "Ask the inner crew."
    return inner.kickoff().raw
def outer(messages):
    return "outer" if messages[-1]["role"] == "tool" else ToolCall("consult")
who = Agent(role="Outer", goal="g", llm=ScriptedLLM(outer), tools=[consult])
task = Task(name="ask", description="d", expected_output="x", agent=who)
print(Crew(tasks=[task], checkpoint=CheckpointConfig(location=sys.argv[1])).kickoff(run_id="n").raw)
"""

    def run(word):
        command = [sys.executable, "-c", script, on_disk().location, word]
        return children.run(command, capture_output=True, text=True).stdout.split("\n")

    assert run("die") == ["asked first", ""]
    assert run("live") == ["asked second", "outer", ""]
    assert run("live") == ["outer", ""]


def test_a_kickoff_inside_a_handler_is_a_run_of_its_own(make_crew):
    inner = make_crew(["x"], count=1, name="inner")
    results = []

    @event_bus.on(CrewKickoffCompletedEvent)
    async def again(source, event):
        if event.crew_name == "crew":
            results.append(await inner.akickoff())

    outer = make_crew(["a"], count=1).kickoff()
    assert results[0].run_id != outer.run_id


def test_a_cancelled_kickoff_leaves_a_run_that_can_go_on(make_crew, on_disk):
    class Endless(ScriptedLLM):
        async def acall(self, messages, **context):
            reply = await super().acall(messages, **context)
            if len(self.calls) == 2:
                asked.set()
                await asyncio.Event().wait()
            return reply

    llm, asked = Endless(lambda messages: "done"), asyncio.Event()
    crew = make_crew(llm, checkpoint=on_disk())

    async def cancel_in_the_middle():
        running = asyncio.create_task(crew.akickoff(run_id="r"))
        await asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return await crew.akickoff(run_id="r")

    assert asyncio.run(cancel_in_the_middle()).durability == "sync"
    assert len(llm.calls) == 4
