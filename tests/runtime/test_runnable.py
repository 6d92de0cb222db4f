"""Whatever can be kicked off has the same verbs: of a crew, an agent and a flow."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.errors import ConfigError, MissingInput, QuestionsChanged, RunCancelled
from crewlite.flow import flow, step
from crewlite.testing import ScriptedLLM

OPTIONS = ["run_id", "from_checkpoint", "answers", "rerun", "resume", "auto_approve", "wait"]


def agent_at(location, replies=("done",), **more):
    checkpoint = CheckpointConfig(location=str(location))
    return Agent(role="W", goal="g", llm=ScriptedLLM(list(replies)), checkpoint=checkpoint, **more)


def crew_at(location, reply="done", **more):
    who = Agent(role="W", goal="g", llm=ScriptedLLM(lambda messages: reply))
    task = Task(name="t", description="Do {what}", expected_output="x", agent=who)
    return Crew(tasks=[task], checkpoint=CheckpointConfig(location=str(location)), **more)


class Held(ScriptedLLM):
    """A model that answers when it is let go."""

    def __init__(self):
        super().__init__([])
        self.asked, self.go_on = threading.Event(), threading.Event()

    async def acall(self, messages, **context):
        self.asked.set()
        while not self.go_on.is_set():
            await asyncio.sleep(0.01)
        return "late"


def test_every_verb_shows_what_it_takes():
    for verb in (Crew.kickoff, Crew.akickoff, Crew.submit, Crew.preview, Crew.apreview):
        assert list(inspect.signature(verb).parameters) == ["self", "inputs", "input_files", *OPTIONS]
    for verb in (Agent.kickoff, Agent.submit):
        assert list(inspect.signature(verb).parameters) == [
            "self",
            "messages",
            "response_format",
            "turn",
            "input_files",
            *OPTIONS,
        ]
    assert "edits" in inspect.signature(Crew.fork).parameters
    assert "Outcomes that replace recorded ones" in inspect.getdoc(Crew.fork)
    assert "Name of the run" in inspect.getdoc(Agent.kickoff)


def test_a_crew_and_an_agent_are_submitted_and_answer_through_a_handle(tmp_path):
    crew = crew_at(tmp_path).submit({"what": "it"}, run_id="c")
    agent = agent_at(tmp_path).submit("Well?", run_id="a")
    assert (crew.run_id, agent.run_id) == ("c", "a")
    assert (crew.result(30).raw, agent.result(30).raw) == ("done", "done")
    assert (crew.status, crew.usage.requests, agent.usage.requests) == ("finished", 1, 1)
    assert crew.result().durability == "sync"


def test_what_cannot_be_kicked_off_cannot_be_submitted(tmp_path):
    with pytest.raises(ConfigError, match="asked nothing"):
        agent_at(tmp_path).submit()
    with pytest.raises(MissingInput, match="what"):
        crew_at(tmp_path).submit({})


def test_a_result_that_is_waited_for_too_long_says_whose_it_is_and_how_to_go_on(tmp_path):
    llm = Held()
    handle = Agent(role="W", goal="g", llm=llm, checkpoint=CheckpointConfig(location=tmp_path)).submit("?", run_id="r")
    wanted = r"Run 'r' of agent 'W' has not ended within 0.05 s and continues to run\. Wait longer with result\(\)"
    with pytest.raises(TimeoutError, match=wanted):
        handle.result(0.05)
    llm.go_on.set()
    assert handle.result(30).raw == "late"


def test_a_submitted_run_is_stopped_and_goes_on_later(tmp_path):
    llm = Held()
    agent = Agent(role="W", goal="g", llm=llm, checkpoint=CheckpointConfig(location=tmp_path))
    handle = agent.submit("?", run_id="r")
    assert llm.asked.wait(30)
    handle.cancel()
    with pytest.raises(RunCancelled):
        handle.result(30)
    assert handle.status == "cancelled"
    llm.go_on.set()
    assert agent.kickoff(run_id="r").raw == "late"


def test_inside_a_run_nothing_is_submitted(tmp_path):
    crew = crew_at(tmp_path / "crew")

    @flow(checkpoint=CheckpointConfig(location=tmp_path / "flow"))
    def outer():
        return crew.submit({"what": "it"}).result()

    with pytest.raises(ConfigError, match="was called inside a run, but it begins a run of its own: call kickoff"):
        outer.kickoff()


def test_a_step_may_begin_a_run_of_its_own_in_a_context_of_its_own(tmp_path):
    crew = crew_at(tmp_path / "crew")

    @step
    def begin(what):
        return contextvars.Context().run(crew.submit, {"what": what}, run_id=f"about-{what}", wait=True).run_id

    @flow(checkpoint=CheckpointConfig(location=tmp_path / "flow"))
    def outer():
        return begin("it")

    assert outer.kickoff(run_id="r") == "about-it"
    assert crew.kickoff(run_id="about-it", wait=True).raw == crew.kickoff({"what": "it"}).raw
    with History(tmp_path / "flow") as history:
        assert [one.address for one in history.run("r").steps] == ["step:begin", ""]


def test_the_result_of_a_step_that_is_waited_for_too_long_says_which_step(tmp_path):
    go_on = threading.Event()

    @step
    def slow():
        return go_on.wait(30)

    @flow
    def waits():
        began = slow.submit()
        try:
            return began.result(0.05)
        except TimeoutError as error:
            go_on.set()
            return str(error), began.result()

    text, value = waits.kickoff()
    assert text == "Step 'slow' has not ended within 0.05 s and continues to run. Wait longer with result()"
    assert value is True


def test_a_failure_of_one_of_many_says_which_inputs_it_had(tmp_path):
    def answer(messages):
        return "good" if "good" in messages[1]["content"] else str(1 / 0)

    who = Agent(role="W", goal="g", llm=ScriptedLLM(answer))
    task = Task(name="t", description="Do {what}", expected_output="x", agent=who)
    with pytest.raises(ZeroDivisionError) as raised:
        Crew(tasks=[task]).kickoff_for_each([{"what": "good"}, {"what": "bad"}])
    assert raised.value.__notes__ == [
        "In step task:t/llm#1",
        "kickoff_for_each: this was inputs[1] of 2: {'what': 'bad'}",
    ]


def test_a_run_is_previewed_by_its_id(tmp_path):
    crew = crew_at(tmp_path)
    crew.kickoff({"what": "it"}, run_id="r")
    assert [(one.address, one.verdict) for one in crew.preview(run_id="r")] == [("task:t", "reused")]
    agent = agent_at(tmp_path)
    agent.kickoff("Well?", run_id="a")
    assert [(one.address, one.verdict) for one in agent.preview(run_id="a")] == [("llm#1", "reused")]
    with pytest.raises(ConfigError, match="preview takes no answers, rerun or resume"):
        crew.preview(run_id="r", rerun=["task:t"])


def test_each_text_of_a_task_is_filled_in_once_in_a_kickoff(tmp_path):
    class Counted:
        count = 0

        def __str__(self):
            Counted.count += 1
            return "it"

    who = Agent(role="W", goal="g", llm=ScriptedLLM(["done"]))
    task = Task(name="t", description="Do {what}", expected_output="x", agent=who)
    assert Crew(tasks=[task]).kickoff({"what": Counted()}).tasks_output[0].description == "Do it"
    assert Counted.count == 1


def test_who_plays_a_part_may_be_edited_and_both_texts_are_told(tmp_path):
    crew_at(tmp_path).kickoff({"what": "it"}, run_id="r")
    other = Agent(role="W", goal="another goal", llm=ScriptedLLM([]))
    task = Task(name="t", description="Do {what}", expected_output="x", agent=other)
    with pytest.raises(QuestionsChanged, match="answered with the goal 'g', and has 'another goal' now"):
        Crew(tasks=[task], checkpoint=CheckpointConfig(location=tmp_path)).kickoff(run_id="r")


@pytest.mark.parametrize("blocks", [False, True])
def test_what_kicks_itself_off_without_end_is_told_so(blocks):
    @flow
    async def endless() -> None:
        await endless.akickoff()

    @flow
    def blocking() -> None:
        blocking.kickoff()

    with pytest.raises(ConfigError, match="is kicked off inside 400 nested steps"):
        (blocking if blocks else endless).kickoff()
