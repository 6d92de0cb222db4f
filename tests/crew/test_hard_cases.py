"""Where several promises meet: doubt and parallel calls, doubt and nesting, old lives under new ones, giving up twice."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, LLMReply, Task, ToolCall, event_bus, tool
from crewlite.errors import (
    ConfigError,
    InDoubt,
    InputsChanged,
    MissingInput,
    QuestionsChanged,
    RunMismatch,
    TaskDrifted,
    TaskGone,
    TimeBudgetExceeded,
)
from crewlite.events import LLMCallCompletedEvent
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests import children
from tests.parts import Stop

CUT = """
import os, sys, threading
from crewlite import Agent, Crew, Task, CheckpointConfig, ToolCall, tool
from crewlite.testing import ScriptedLLM
both = threading.Barrier(2)
@tool(effect="once")
def pay(amount: int) -> str:
    "Pay."
    if sys.argv[2] == "two":
        both.wait(10)
    os._exit(9)
calls = [ToolCall("pay", {"amount": n}) for n in range(2 if sys.argv[2] == "two" else 1)]
who = Agent(role="Worker", goal="g", llm=ScriptedLLM([calls]), tools=[pay])
task = Task(name="t", description="d", expected_output="x", agent=who)
if sys.argv[2] == "nested":
    inner = Crew(name="inner", tasks=[task])
    @tool
    def delegate() -> str:
        "Delegate."
        return inner.kickoff().raw
    boss = Agent(role="Boss", goal="g", llm=ScriptedLLM([ToolCall("delegate")]), tools=[delegate])
    task = Task(name="boss", description="d", expected_output="x", agent=boss)
Crew(tasks=[task], checkpoint=CheckpointConfig(location=sys.argv[1])).kickoff(run_id="r")
"""


def cut(config, how):
    assert children.run([sys.executable, "-c", CUT, config.location, how]).returncode == 9


def payer(paid, *replies, description="d"):
    @tool(effect="once")
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    who = Agent(role="Worker", goal="g", llm=ScriptedLLM(list(replies)), tools=[pay])
    return Task(name="t", description=description, expected_output="x", agent=who)


def test_two_calls_in_doubt_can_both_be_answered_and_neither_is_made_again(on_disk):
    cut(on_disk(), "two")
    paid = []
    crew = Crew(tasks=[payer(paid, "done")], checkpoint=on_disk())
    with pytest.raises(InDoubt):
        crew.kickoff(run_id="r")
    answers = {"task:t/tool:pay": "paid", "task:t/tool:pay#2": "paid"}
    assert crew.kickoff(run_id="r", answers=answers).raw == "done"
    assert paid == []
    assert crew.kickoff(run_id="r", answers=answers).raw == "done", "answers may stay in the script"


def test_a_call_in_doubt_inside_a_tool_stops_the_run_and_is_not_told_to_the_model(on_disk):
    cut(on_disk(), "nested")
    paid = []
    inner = Crew(name="inner", tasks=[payer(paid, "inner done")])

    @tool
    def delegate() -> str:
        """Delegate."""
        return inner.kickoff().raw

    boss = Agent(role="Boss", goal="g", llm=ScriptedLLM(["outer done"]), tools=[delegate])
    crew = Crew(tasks=[Task(name="boss", description="d", expected_output="x", agent=boss)], checkpoint=on_disk())
    with pytest.raises(InDoubt) as caught:
        crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r", answers={caught.value.address: "paid"}).raw == "outer done"
    assert paid == []


def test_a_doubt_outlives_a_change_of_the_question(on_disk):
    cut(on_disk(), "one")
    paid = []
    task = payer(paid, ToolCall("pay", {"amount": 7}), "done", description="another question")
    with pytest.raises(InDoubt):
        Crew(tasks=[task], checkpoint=on_disk()).kickoff(run_id="r")
    assert paid == []


def test_a_task_run_again_takes_its_old_answer_with_it(on_disk):
    def crew(text, *replies, **config):
        @tool
        def look() -> str:
            """Look."""
            return "seen"

        who = Agent(role="W", goal="g", llm=ScriptedLLM(list(replies)), tools=[look])
        tasks = [Task(name=n, description=d, expected_output="x", agent=who) for n, d in (("a", text), ("b", "b"))]
        return Crew(tasks=tasks, checkpoint=on_disk(**config))

    long = "the first answer, which is long enough to be stored only once and to be referred to ever after"
    with pytest.raises(Stop):
        crew("first", long, Stop()).kickoff(run_id="r")
    with pytest.raises(Stop):
        crew("second", ToolCall("look"), Stop(), on_drift="rerun").kickoff(run_id="r")
    result = crew("first", "asked anew", "b's answer", on_drift="rerun").kickoff(run_id="r")
    assert [output.raw for output in result.tasks_output] == ["asked anew", "b's answer"]


def test_a_task_that_ran_out_of_time_goes_on_where_it_was(on_disk):
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    llm = ScriptedLLM([*[ToolCall("look")] * 4, "answer"], delay=0.15)
    who = Agent(role="W", goal="g", llm=llm, tools=[look], max_execution_time=0.5)
    crew = Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)], checkpoint=on_disk())
    with pytest.raises(TimeBudgetExceeded):
        crew.kickoff(run_id="r")
    asked = len(llm.calls)
    crew = Crew(tasks=[crew.tasks[0].with_(agent=who.with_(max_execution_time=60))], checkpoint=on_disk())
    time.sleep(0.2)  # whatever was in flight is over
    llm._script = [*llm._script[: len(llm.calls)], *[ToolCall("look")] * max(0, 3 - asked), "answer"]
    assert crew.kickoff(run_id="r").raw == "answer"
    recorded = [step.address for step in History(on_disk().location).run("r").steps if step.kind == "llm"]
    assert len(recorded) == len(set(recorded))
    assert all("!" not in address for address in recorded), "the same attempt went on"


def test_forgotten_inputs_are_told_before_anything_is_paid_and_do_not_spoil_the_run_id(on_disk):
    llm = ScriptedLLM(["one", "two"])
    who = Agent(role="W", goal="g", llm=llm)
    tasks = [Task(description=d, expected_output="x", agent=who) for d in ("plain", "about {topic}")]
    crew = Crew(tasks=tasks, checkpoint=on_disk())
    with pytest.raises(MissingInput):
        crew.kickoff(run_id="r")
    assert llm.calls == []
    assert crew.kickoff(inputs={"topic": "tides"}, run_id="r").raw == "two"
    with pytest.raises(InputsChanged):
        crew.kickoff(inputs={"topic": "moons"}, run_id="r")


def test_cancelling_twice_leaves_the_branch_free(make_crew, on_disk):
    llm = ScriptedLLM(lambda messages: "done", delay=0.03)
    crew = make_crew(llm, checkpoint=on_disk())

    @event_bus.on(LLMCallCompletedEvent)
    async def slow(source, event):
        await asyncio.sleep(0.2)

    async def impatient():
        running = asyncio.create_task(crew.akickoff(run_id="r"))
        while len(llm.calls) < 2:
            await asyncio.sleep(0.005)
        for _ in range(3):
            running.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await running
        return await crew.akickoff(run_id="r")

    assert asyncio.run(impatient()).durability == "sync"


def test_cancelling_while_the_store_is_opened_leaves_the_branch_free(make_crew, on_disk):
    crew = make_crew(["a", "b", "c"], checkpoint=on_disk())

    async def impatient():
        running = asyncio.create_task(crew.akickoff(run_id="r"))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(0.1)
        return await crew.akickoff(run_id="r")

    assert asyncio.run(impatient()).raw == "c"


def test_a_manual_checkpoint_that_was_given_up_harms_nobody(make_crew, on_disk):
    @event_bus.on(LLMCallCompletedEvent)
    async def impatient(source, event, state):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(state.acheckpoint(), 0)

    assert make_crew(["a", "b", "c"], checkpoint=on_disk()).kickoff().raw == "c"


def test_two_providers_of_ones_own_are_two(make_crew):
    class Mine(InMemoryProvider):
        name = "mine"

    one, two = Mine(), Mine()
    llm = ScriptedLLM(lambda messages: "x", delay=0.01)

    async def both():
        crews = [make_crew(llm, checkpoint=CheckpointConfig(provider=provider)) for provider in (one, two)]
        await asyncio.gather(*(crew.akickoff(run_id=f"r{n}") for n, crew in enumerate(crews)))

    asyncio.run(both())
    assert [[run.run_id for run in History("./.checkpoints", provider).runs()] for provider in (one, two)] == [
        ["r0"],
        ["r1"],
    ]


def test_tasks_without_names_can_be_named_by_their_address(make_crew, on_disk):
    who = Agent(role="W", goal="g", llm=ScriptedLLM(["a", Stop(), "b"]))
    tasks = [Task(description=f"d{n}", expected_output="x", agent=who) for n in range(2)]
    crew = Crew(tasks=tasks, checkpoint=on_disk())
    with pytest.raises(Stop):
        crew.kickoff()
    assert crew.kickoff(from_checkpoint="main@task#1").raw == "b"


def test_looking_writes_nothing(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("mine")
    assert History(tmp_path / "docs").runs() == []
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["index.md"]


def test_a_shape_that_a_finished_answer_does_not_fit_is_a_clear_error(on_disk):
    from pydantic import BaseModel

    class Fact(BaseModel):
        word: str

    def crew(*replies, **fields):
        who = Agent(role="W", goal="g", llm=ScriptedLLM(list(replies)))
        first = Task(name="a", description="a", expected_output="x", agent=who, **fields)
        return Crew(
            tasks=[first, Task(name="b", description="b", expected_output="x", agent=who)], checkpoint=on_disk()
        )

    with pytest.raises(Stop):
        crew("plain text", Stop()).kickoff(run_id="r")
    with pytest.raises(RunMismatch, match=r"does not fit Fact.*fork 'r' with rerun=\['task:a'\]"):
        crew("x", output_pydantic=Fact).kickoff(run_id="r")


def test_any_inputs_do_without_a_store(make_crew):
    who = Agent(role="W", goal="g", llm=ScriptedLLM(["ok"]))
    task = Task(description="about {thing}", expected_output="x", agent=who)
    assert Crew(tasks=[task]).kickoff(inputs={"thing": object}).raw == "ok"


def test_a_journal_cut_just_before_its_last_newline_goes_on(make_crew):
    crew = make_crew(["a", Stop(), "b", "c"], checkpoint=True)
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    journal = Path(".checkpoints/journal/r/main.jsonl")
    journal.write_bytes(journal.read_bytes()[:-1])
    assert crew.kickoff(run_id="r").raw == "c"


def test_a_changed_crew_goes_on_where_its_finished_run_ended(on_disk, caplog):
    def crew(llm, *tasks, **config):
        who = Agent(role="W", goal="g", llm=llm)
        made = [Task(name=n, description=d, expected_output="x", agent=who, context=[]) for n, d in tasks]
        return Crew(tasks=made, checkpoint=on_disk(**config))

    first = crew(ScriptedLLM(["1", "2"]), ("a", "one"), ("b", "two"))
    assert first.kickoff(run_id="r").raw == "2"
    more = ScriptedLLM(["3"])
    result = crew(more, ("a", "one"), ("b", "two"), ("c", "three")).kickoff(run_id="r")
    assert [output.raw for output in result.tasks_output] == ["1", "2", "3"]
    assert len(more.calls) == 1
    edited = [("a", "one!"), ("b", "two"), ("c", "three")]
    with pytest.raises(QuestionsChanged, match="task:a answered 'one', and is asked 'one!' now"):
        crew(ScriptedLLM([]), *edited).kickoff(run_id="r")
    assert crew(ScriptedLLM([]), *edited, on_drift="keep").kickoff(run_id="r")["a"].raw == "1"
    assert "it is asked something else now" in caplog.text
    with pytest.raises(TaskDrifted):
        crew(ScriptedLLM([]), ("a", "one!!"), *edited[1:], on_drift="error").kickoff(run_id="r")
    again = crew(ScriptedLLM(["1 again"]), ("a", "one!!"), *edited[1:], on_drift="rerun").kickoff(run_id="r")
    assert [output.raw for output in again.tasks_output] == ["1 again", "2", "3"]
    with pytest.raises(TaskGone):
        crew(ScriptedLLM([]), ("a", "one!!")).kickoff(run_id="r")


class Rude(BaseException):
    pass


class Unreadable(Exception):
    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError, GeneratorExit, Rude, SystemExit, Unreadable], ids=lambda e: e.__name__
)
@pytest.mark.parametrize("blocking", [True, False])
def test_whatever_a_tool_raises_the_model_is_told_and_the_run_goes_on(error, blocking, on_disk):
    if blocking:

        @tool
        def odd() -> str:
            """Be odd."""
            raise error

    else:

        @tool
        async def odd() -> str:
            """Be odd."""
            raise error

    llm = ScriptedLLM([ToolCall("odd"), "went on"])
    who = Agent(role="W", goal="g", llm=llm, tools=[odd])
    task = Task(description="d", expected_output="x", agent=who)
    assert Crew(tasks=[task], checkpoint=on_disk()).kickoff().raw == "went on"
    assert llm.calls[1][-1]["content"].startswith("Tool odd failed")


def test_a_directory_that_is_not_ours_keeps_its_files_in_version_control(make_crew):
    Path("data").mkdir()
    Path("data/mine.csv").write_text("1,2")
    make_crew(["a"], count=1, checkpoint=CheckpointConfig(location="data")).kickoff()
    assert not Path("data/.gitignore").exists()
    assert Path("data/journal/.gitignore").read_text() == "*\n"


@pytest.mark.parametrize("inputs", ["topic", ["t"], {1: 2}, 5])
def test_inputs_of_another_shape_are_a_clear_error(make_crew, inputs):
    with pytest.raises(ConfigError, match="wanted names and values"):
        make_crew(["a"], count=1).kickoff(inputs)


@pytest.mark.parametrize("location", ["", "  ", "a\0b"])
def test_a_location_that_is_none_is_a_clear_error(location):
    with pytest.raises(ConfigError, match="not a location"):
        CheckpointConfig(location=location)


def test_what_services_say_without_text_or_with_json_arguments_is_understood():
    assert LLMReply(text=None, tool_calls=(ToolCall("f", '{"a": 1}'),)).tool_calls[0].arguments == {"a": 1}
    assert ToolCall("f", "{broken").arguments == {"not JSON": "{broken"}
