"""The result of a tool over the whole run, also after a stop: as the answer, kept for the same call, or shortened."""

from __future__ import annotations

import asyncio
import logging

import pytest
from pydantic import BaseModel

from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.errors import ConfigError, InDoubt, OutputInvalid
from crewlite.events import ToolUsageFinishedEvent, ToolUsageStartedEvent
from crewlite.testing import EventRecorder, ScriptedLLM
from tests.crew.tooled import a_tool, crew_of, keep, told, told_in
from tests.parts import Stop


def test_a_tools_result_is_the_answer_and_the_model_is_not_asked_again(stored):
    llm = ScriptedLLM([ToolCall("look"), "next"])
    crew = crew_of(llm, a_tool(calls := [], result_as_answer=True), checkpoint=stored(), count=2)
    result = crew.kickoff(run_id="r")
    assert [output.raw for output in result.tasks_output] == ["saw here", "next"]
    assert (calls, len(llm.calls)) == (["here"], 2)


def test_a_stop_after_the_tool_and_before_the_task_is_finished_asks_and_calls_nobody(stored):
    fails = [Stop()]

    def callback(output):
        if fails:
            raise fails.pop()

    llm = ScriptedLLM([ToolCall("look")])
    crew = crew_of(llm, a_tool(calls := [], result_as_answer=True), checkpoint=stored(), callback=callback)
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r").raw == "saw here"
    assert (calls, len(llm.calls)) == (["here"], 1)


def test_the_first_that_succeeded_in_call_order_answers_and_an_error_does_not():
    @tool(result_as_answer=True)
    async def slow(word: str) -> str:
        """Slow."""
        await asyncio.sleep(0.05 if word == "second" else 0)
        if word == "first":
            raise OSError("no")
        return word

    llm = ScriptedLLM([[ToolCall("look"), *(ToolCall("slow", {"word": w}) for w in ("first", "second", "third"))]])
    assert crew_of(llm, slow, a_tool([])).kickoff().raw == "second"
    llm = ScriptedLLM([ToolCall("slow", {"word": "first"}), ToolCall("slow", {"wurd": "x"}), "so be it"])
    assert crew_of(llm, slow).kickoff().raw == "so be it"


class Tide(BaseModel):
    port: str
    hour: int


def test_an_answering_tool_fits_the_shape_or_the_model_is_asked_to_mend(stored):
    @tool(result_as_answer=True)
    def tide(port: str):
        """Tell the tide."""
        return {"brest": Tide(port="Brest", hour=11), "cork": {"port": "Cork", "hour": 5}}.get(port, "no such port")

    for port, hour in (("brest", 11), ("cork", 5)):
        llm = ScriptedLLM([ToolCall("tide", {"port": port})])
        result = crew_of(llm, tide, output_pydantic=Tide, checkpoint=stored()).kickoff(run_id=port)
        assert result.pydantic.hour == hour
    llm = ScriptedLLM([ToolCall("tide", {"port": "x"}), Stop(), ToolCall("tide", {"port": "cork"})])
    crew = crew_of(llm, tide, output_json=Tide, checkpoint=stored())
    with pytest.raises(Stop):
        crew.kickoff(run_id="mended")
    assert crew.kickoff(run_id="mended").json_dict == {"port": "Cork", "hour": 5}
    assert "does not have the shape" in llm.calls[-1][-1]["content"]
    assert llm.calls[-1] == llm.calls[-2]
    llm = ScriptedLLM([ToolCall("tide", {"port": "x"})] * 3)
    with pytest.raises(OutputInvalid, match="after 3 tries"):
        crew_of(llm, tide, output_json=Tide).kickoff()


def test_an_answer_of_a_tool_is_recorded_once_and_given_to_the_next_task_whole(on_disk):
    text = ("ebb and flow, " * 3000).strip()

    @tool(result_as_answer=True)
    def read() -> str:
        """Read."""
        return text

    llm = ScriptedLLM([ToolCall("read"), "short"])
    who = Agent(role="W", goal="g", llm=llm, tools=[read])
    tasks = [Task(name=n, description=n, expected_output="x", agent=who) for n in ("one", "two")]
    result = Crew(tasks=tasks, checkpoint=on_disk()).kickoff(run_id="r")
    assert result["one"].raw == text
    assert text in llm.calls[-1][1]["content"]
    steps = {step.address: step for step in History(on_disk().location).run("r").steps}
    assert steps["task:one"].value["raw"] == text == steps["task:one/tool:read"].value["text"]


# Kept results


def test_the_same_call_is_answered_with_the_earlier_result_over_the_whole_run(stored):
    llm = ScriptedLLM(lambda messages: "done" if told_in(messages) else ToolCall("look", {"where": "x"}))
    crew = crew_of(llm, a_tool(calls := [], cache_function=keep), checkpoint=stored(), count=3, agents=2)
    with EventRecorder() as events:
        crew.kickoff(run_id="r")
    assert calls == ["x"]
    assert [event.from_cache for event in events.of(ToolUsageFinishedEvent)] == [False, True, True]
    assert len(events.of(ToolUsageStartedEvent)) == 1
    assert told(llm) == ["saw x"]
    crew.kickoff(run_id="another")
    assert calls == ["x", "x"]


@pytest.mark.parametrize("stop", range(1, 3))
def test_kept_results_are_found_again_after_a_stop(stored, stop):
    turns = [ToolCall("look", {"where": "x"}), ToolCall("look", {"where": "x"}), "done"]
    turns.insert(stop, Stop())
    llm = ScriptedLLM(turns)
    crew = crew_of(llm, a_tool(calls := [], cache_function=keep), checkpoint=stored())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r").raw == "done"
    assert calls == ["x"]
    assert told(llm, -1) == ["saw x", "saw x"]


def test_only_what_the_function_allows_is_kept_and_arguments_decide():
    asked = []

    def only_x(arguments, result):
        asked.append((arguments, result))
        return arguments == {"where": "x"}

    calls = []
    llm = ScriptedLLM([*(ToolCall("look", {"where": w}) for w in "xxyy"), "done"])
    crew_of(llm, a_tool(calls, cache_function=only_x)).kickoff()
    assert calls == ["x", "y", "y"]
    assert asked[0] == ({"where": "x"}, "saw x")


def test_errors_are_not_kept_and_a_function_that_raises_keeps_nothing_and_is_told_to_the_log(caplog):
    calls = []

    @tool(cache_function=keep)
    def fails() -> str:
        """Fail."""
        calls.append(1)
        raise OSError("no")

    crew_of(ScriptedLLM([ToolCall("fails"), ToolCall("fails"), "done"]), fails).kickoff()
    assert len(calls) == 2

    def broken(arguments, result):
        raise KeyError("oh")

    caplog.set_level(logging.WARNING, "crewlite.tools")
    llm = ScriptedLLM([ToolCall("look"), "done"])
    crew_of(llm, a_tool(calls := [], cache_function=broken)).kickoff()
    assert told(llm) == ["saw here"]
    assert [record.message for record in caplog.records if record.name == "crewlite.tools"] == [
        "the cache_function of tool 'look' raised KeyError: 'oh'; the result is used, and not kept for the same call"
    ]


def test_kept_results_cost_no_use_and_a_kept_answer_answers(stored):
    fields = {"cache_function": keep, "max_usage_count": 1, "result_as_answer": True}
    llm = ScriptedLLM([ToolCall("look")] * 2)
    crew = crew_of(llm, a_tool(calls := [], **fields), checkpoint=stored(), count=2)
    assert [output.raw for output in crew.kickoff(run_id="r").tasks_output] == ["saw here"] * 2
    assert len(calls) == 1


def test_a_call_that_was_begun_is_made_though_a_result_of_its_like_was_recorded_meanwhile(on_disk):
    made = []

    @tool(cache_function=keep)
    async def look(n: int = 0) -> str:
        """Look."""
        made.append(n)
        if len(made) == 2:
            await asyncio.sleep(0.1)
            raise InDoubt("somewhere", "a stop in the middle")
        return "saw it"

    llm = ScriptedLLM([[ToolCall("look"), ToolCall("look")], "done"])
    crew = crew_of(llm, look, checkpoint=on_disk())
    with pytest.raises(InDoubt):
        crew.kickoff(run_id="r")
    with EventRecorder() as events:
        crew.kickoff(run_id="r")
    assert [event.in_doubt for event in events.of(ToolUsageStartedEvent)] == [True]
    assert len(made) == 3


def test_what_must_happen_is_not_answered_with_what_happened():
    with pytest.raises(ConfigError, match="effect='once'.* and a cache_function.*leave one of them out"):
        a_tool([], effect="once", cache_function=keep)
    with pytest.raises(ConfigError, match="cache_function is async"):

        async def later(arguments, result):
            return True

        a_tool([], cache_function=later)
    with pytest.raises(ConfigError, match="max_usage_count"):
        a_tool([], max_usage_count=0)


# Long results


def test_a_long_result_is_recorded_whole_and_shown_by_head_and_tail_also_after_a_stop(stored):
    text = "".join(f"{n:06}" for n in range(10_000))

    @tool
    def read(fail: bool = False) -> str:
        """Read."""
        if fail:
            raise OSError(text)
        return text

    llm = ScriptedLLM([ToolCall("read"), ToolCall("read", {"fail": True}), Stop(), "done"])
    who = Agent(role="W", goal="g", llm=llm, tools=[read], max_tool_output=1_000)
    crew = Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)], checkpoint=stored())
    with EventRecorder() as events, pytest.raises(Stop):
        crew.kickoff(run_id="r")
    assert events.of(ToolUsageFinishedEvent)[0].output == text
    crew.kickoff(run_id="r")
    assert told(llm, -1) == told(llm, -2)
    seen = told(llm)[0]
    assert seen.startswith(text[:667]) and seen.endswith(text[-333:])
    assert "[59,000 of 60,000 characters are left out here. The whole is recorded at task:t/tool:read." in seen
    assert len(seen) < 1_300 and len(told(llm)[1]) < 1_300
    llm = ScriptedLLM([ToolCall("read"), "done"])
    Agent(role="W", goal="g", llm=llm, tools=[read], max_tool_output=None).kickoff("go")
    assert told(llm) == [text]
