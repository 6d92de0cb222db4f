"""Limits, kept results and tools that answer, over the whole run: with and without a stop in the middle."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from pydantic import BaseModel

from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.errors import ConfigError, InDoubt, MaxIterations, OutputInvalid
from crewlite.events import (
    LLMCallCompletedEvent,
    ToolSelectionErrorEvent,
    ToolUsageFinishedEvent,
    ToolUsageStartedEvent,
)
from crewlite.testing import EventRecorder, ScriptedLLM
from tests.parts import Stop

LONG = "It is high at noon, and again at midnight, and so on, as the moon goes round."


def crew_of(llm, *tools, checkpoint=None, count=1, agents=1, **fields):
    who = [Agent(role=f"Worker {n}", goal="work", llm=llm, tools=tools) for n in range(agents)]
    tasks = [
        Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=who[n % agents], context=[], **fields)
        for n in range(count)
    ]
    return Crew(tasks=tasks, checkpoint=checkpoint)


def told(llm, call=-1):
    return [message["content"] for message in llm.calls[call] if message["role"] == "tool"]


def a_tool(calls, **fields):
    @tool("look", **fields)
    def look(where: str = "here") -> str:
        """Look."""
        calls.append(where)
        return f"saw {where}"

    return look


# Results that are the answer


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


# Limits


def test_a_limit_counts_over_all_tasks_and_agents_of_a_run_and_over_no_other_run(stored):
    llm = ScriptedLLM(lambda messages: "done" if told_in(messages) else ToolCall("look"))
    crew = crew_of(llm, a_tool(calls := [], max_usage_count=2), checkpoint=stored(), count=4, agents=2)
    for run in ("a", "b"):
        with EventRecorder() as events:
            crew.kickoff(run_id=run)
        refused = events.of(ToolSelectionErrorEvent)
        assert [event.address for event in refused] == ["task:t2/tool:look", "task:t3/tool:look"]
        assert "Tool look was used 2 times in this run, which is its limit (max_usage_count=2)" in refused[0].error
    assert len(calls) == 4


def told_in(messages):
    return [message for message in messages if message["role"] == "tool"]


def test_calls_side_by_side_do_not_slip_through_a_limit_and_refused_ones_do_not_count(stored):
    many = [ToolCall("look", {"whre": "x"}), *(ToolCall("look", {"where": w}) for w in "abcd")]
    llm = ScriptedLLM([many, "done"])
    crew_of(llm, a_tool(calls := [], max_usage_count=3), checkpoint=stored()).kickoff(run_id="r")
    assert sorted(calls) == ["a", "b", "c"]
    heard = told(llm)
    assert heard[1:4] == ["saw a", "saw b", "saw c"]
    assert "do not fit" in heard[0] and "its limit" in heard[4]


@pytest.mark.parametrize("stop", range(4))
def test_a_limit_holds_over_any_stop_and_replayed_calls_count_once(stored, stop):
    turns = [ToolCall("look"), ToolCall("look"), ToolCall("look")]
    turns.insert(stop, Stop())
    llm = ScriptedLLM([*turns, "done"])
    crew = crew_of(llm, a_tool(calls := [], max_usage_count=2), checkpoint=stored())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r").raw == "done"
    assert len(calls) == 2
    assert [text[:8] for text in told(llm)] == ["saw here", "saw here", "Tool loo"]


def test_a_call_that_failed_counts(stored):
    calls = []

    @tool(max_usage_count=2)
    def look() -> str:
        """Look."""
        calls.append(1)
        raise OSError("dark")

    llm = ScriptedLLM([[ToolCall("look")] * 3, "done"])
    crew_of(llm, look, checkpoint=stored()).kickoff(run_id="r")
    assert len(calls) == 2
    assert told(llm)[1] == "Tool look failed: OSError: dark"
    assert "its limit" in told(llm)[2]


def test_a_limit_counts_over_the_attempts_at_a_task(stored):
    llm = ScriptedLLM([ToolCall("look")] * 6)
    who = Agent(role="W", goal="g", llm=llm, tools=[a_tool(calls := [], max_usage_count=2)], max_iter=1)
    crew = Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)], checkpoint=stored())
    with EventRecorder() as events:
        for _ in range(3):
            with pytest.raises(MaxIterations):
                crew.kickoff(run_id="r")
    assert len(calls) == 2
    assert [event.address for event in events.of(ToolSelectionErrorEvent)] == ["task:t!3/tool:look"]


def test_a_limit_and_kept_results_hold_in_crews_inside_of_tools_and_after_a_fork(on_disk):
    calls = []
    look = a_tool(calls, max_usage_count=2, cache_function=keep)
    turns = ScriptedLLM(lambda messages: "done" if told_in(messages) else ToolCall("look", {"where": "x"}))
    inner = crew_of(turns, look)

    @tool
    async def delegate() -> str:
        """Let others look."""
        return (await inner.akickoff()).raw

    script = [ToolCall("look", {"where": "x"}), ToolCall("delegate"), "done", ToolCall("look", {"where": "y"}), "done"]
    last = [ToolCall("look", {"where": "z"}), ToolCall("look", {"where": "x"}), "done"]
    llm = ScriptedLLM([*script, *last, *last])
    crew = crew_of(llm, look, delegate, checkpoint=on_disk(), count=3)
    crew.kickoff(run_id="r")
    assert calls == ["x", "y"]
    assert told(turns) == ["saw x"]
    crew.fork("r@task:t1", branch="again").kickoff()
    assert calls == ["x", "y"]
    assert "its limit" in told(llm)[0] and told(llm)[1] == "saw x"


def test_a_limit_is_known_where_a_prune_has_left_nothing_else_of_the_calls(on_disk):
    turns = [ToolCall("look"), ToolCall("look"), "done", Stop(), ToolCall("look"), "done"]
    llm = ScriptedLLM(turns)
    crew = crew_of(llm, a_tool(calls := [], max_usage_count=2), checkpoint=on_disk(), count=2)
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    with History(on_disk().location) as history:
        history.prune(keep_last=1)
        assert not [step for step in history.run("r").steps if step.kind == "tool"]
    crew.kickoff(run_id="r")
    assert len(calls) == 2
    assert "its limit" in told(llm)[-1]


# Kept results


def keep(arguments, result):
    return "saw" in result


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


# Limits of time


@pytest.mark.parametrize("blocks", [True, False])
def test_a_call_that_must_happen_once_and_takes_too_long_is_in_doubt(stored, blocks):
    late = threading.Event()

    def pay(amount: int) -> str:
        """Pay."""
        assert late.wait(60), "the run waited for a call that is over its limit"
        return "paid"

    async def wait(amount: int) -> str:
        """Pay."""
        await asyncio.sleep(3600)
        return "paid"

    payer = tool("pay", effect="once", timeout=0.05)(pay if blocks else wait)
    llm = ScriptedLLM([ToolCall("pay", {"amount": 3}), "paid it is"])
    crew = crew_of(llm, payer, checkpoint=stored())
    with pytest.raises(InDoubt, match="task:t0/tool:pay"):
        crew.kickoff(run_id="r")
    late.set()
    with pytest.raises(InDoubt):
        crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r", answers={"task:t0/tool:pay": "paid"}).raw == "paid it is"
    assert told(llm) == ["paid"]


@pytest.mark.parametrize(("effect", "says"), [("none", ""), ("idempotent", " It may still take effect.")])
def test_a_blocking_call_that_hangs_is_left_behind_and_the_model_hears_of_it(effect, says):
    late = threading.Event()

    @tool(timeout=0.05, effect=effect)
    def hang() -> str:
        """Hang."""
        assert late.wait(60), "the run waited for a call that is over its limit"
        return "late"

    llm = ScriptedLLM([ToolCall("hang"), "went on"])
    assert crew_of(llm, hang).kickoff().raw == "went on"
    late.set()
    assert told(llm) == [f"Tool hang failed: it did not end within 0.05 s.{says}"]


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


# Names


def test_a_name_that_services_refuse_is_offered_under_a_safe_one_and_found_under_both(stored):
    calls = []

    @tool("Search the web", max_usage_count=2)
    def search(query: str) -> str:
        """Search."""
        calls.append(query)
        return f"found {query}"

    offered = []

    def reply(messages, tools):
        offered.append([item["function"]["name"] for item in tools])
        turns = [("Search_the_web", "a"), ("Search the web", "b"), ("Search_the_web", "c")]
        done = len(told_in(messages))
        return ToolCall(turns[done][0], {"query": turns[done][1]}) if done < 3 else "done"

    crew = crew_of(ScriptedLLM(reply), search, checkpoint=stored())
    with EventRecorder() as events:
        crew.kickoff(run_id="r")
    assert set(map(tuple, offered)) == {("Search_the_web",)}
    assert calls == ["a", "b"]
    assert {event.tool_name for event in events.of(ToolUsageFinishedEvent)} == {"Search the web"}
    assert len(events.of(LLMCallCompletedEvent)) == 4


def test_a_tool_of_the_task_takes_the_place_of_one_of_the_agent():
    @tool("look")
    def other(where: str = "there") -> str:
        """Look elsewhere."""
        return f"saw {where}"

    offered = []

    def reply(messages, tools):
        offered.extend(item["function"]["name"] for item in tools)
        return "done" if told_in(messages) else ToolCall("look")

    llm = ScriptedLLM(reply)
    who = Agent(role="W", goal="g", llm=llm, tools=[a_tool([])])
    Crew(tasks=[Task(description="d", expected_output="x", agent=who, tools=[other])]).kickoff()
    assert offered == ["look", "look"]
    assert told(llm) == ["saw there"]
