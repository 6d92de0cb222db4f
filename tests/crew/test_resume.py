"""Killed, failed or stopped: kick off again, and only what is not recorded runs."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

import pytest
from pydantic import BaseModel

from crewlite import Agent, BaseLLM, CheckpointConfig, Crew, History, Task, ToolCall, event_bus, tool
from crewlite.errors import CheckpointIsBehind, ConfigError, InputsChanged, RefError, RunMismatch, TaskDrifted, TaskGone
from crewlite.events import BaseEvent, StepReplayedEvent, TaskCompletedEvent, TaskStartedEvent
from crewlite.testing import ScriptedLLM
from tests import children
from tests.parts import Held, Stop, both_resumed


def test_a_failed_run_goes_on_with_its_run_id_and_pays_nothing_twice(make_crew, config):
    llm = ScriptedLLM(["a", "b", Stop(), "c"])
    crew = make_crew(llm, checkpoint=config())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    result = crew.kickoff(run_id="r")
    assert [output.raw for output in result.tasks_output] == ["a", "b", "c"]
    assert len(llm.calls) == 4
    assert result.token_usage.requests == 3
    assert result.durability == "sync"


def test_a_finished_run_returns_its_result_and_calls_nothing(make_crew, config):
    llm = ScriptedLLM(["a", "b", "c"])
    crew = make_crew(llm, checkpoint=config())
    first = crew.kickoff(run_id="r")
    heard = []
    event_bus.on(BaseEvent, lambda source, event: heard.append(event.type))
    assert crew.kickoff(run_id="r") == first
    assert len(llm.calls) == 3
    assert heard == ["checkpoint_restore_started", "checkpoint_restore_completed", "step_replayed"]


def test_running_the_resume_command_twice_pays_nothing_twice(make_crew, on_disk):
    llm = ScriptedLLM(["a", Stop(), "b", "c"])
    crew = make_crew(llm, checkpoint=on_disk())
    checkpoints = []
    event_bus.on(TaskCompletedEvent, lambda source, event, state: checkpoints.append(state.checkpoint()))
    with pytest.raises(Stop):
        crew.kickoff()
    resume = CheckpointConfig(restore_from=checkpoints[0])
    first = crew.kickoff(from_checkpoint=resume)
    second = crew.kickoff(from_checkpoint=resume)
    assert first == second
    assert first.raw == "c"
    assert len(llm.calls) == 4


def test_a_crash_inside_a_tool_loop_resumes_at_the_exact_call(on_disk):
    calls = []

    @tool
    def look(where: str) -> str:
        """Look somewhere."""
        calls.append(where)
        return f"saw {where}"

    llm = ScriptedLLM([ToolCall("look", {"where": "here"}), ToolCall("look", {"where": "there"}), Stop(), "answer"])
    who = Agent(role="Worker", goal="g", llm=llm, tools=[look])
    crew = Crew(tasks=[Task(description="d", expected_output="x", agent=who)], checkpoint=on_disk())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r").raw == "answer"
    assert calls == ["here", "there"]
    assert len(llm.calls) == 4
    said = [(message["role"], message["content"]) for message in llm.calls[-1]]
    assert said[-1] == ("tool", "saw there")
    assert llm.calls[-1] == llm.calls[-2]


def test_replayed_steps_say_so_once_and_open_ones_start_again_as_resumed(make_crew, on_disk):
    crew = make_crew(ScriptedLLM(["a", Stop(), "b", "c"]), checkpoint=on_disk())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    replayed, started = [], []
    event_bus.on(StepReplayedEvent, lambda source, event: replayed.append((event.address, event.changed)))
    event_bus.on(TaskStartedEvent, lambda source, event: started.append((event.address, event.resumed)))
    crew.kickoff(run_id="r")
    assert replayed == [("task:t0", ())]
    assert started == [("task:t1", True), ("task:t2", False)]


def test_live_code_is_kept_custom_models_lambdas_callbacks_and_classes(on_disk, tmp_path):
    class Fact(BaseModel):
        word: str

        def loud(self):
            return self.word.upper()

    class Mine(BaseLLM):
        model = "mine"

        def __init__(self):
            super().__init__()
            self.lines = ['{"word": "tide"}', Stop(), '{"word": "moon"}']

        def call(self, messages):
            line = self.lines.pop(0)
            if isinstance(line, Exception):
                raise line
            return line

    heard = []
    who = Agent(role="Worker", goal="g", llm=Mine())
    tasks = [
        Task(name=name, description=name, expected_output="x", agent=who, output_pydantic=Fact, callback=heard.append)
        for name in ("one", "two")
    ]
    crew = Crew(tasks=tasks, checkpoint=on_disk())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    result = crew.kickoff(run_id="r")
    assert type(result["one"].pydantic) is Fact
    assert result["one"].pydantic.loud() == "TIDE"
    assert [output.name for output in heard] == ["one", "two"]


def crew_of(llm, descriptions, config, names=True, **fields):
    who = Agent(role="Worker", goal="g", llm=llm)
    tasks = [
        Task(name=f"t{n}" if names else None, description=text, expected_output="x", agent=who, context=[])
        for n, text in enumerate(descriptions)
    ]
    return Crew(tasks=tasks, checkpoint=config, **fields)


def test_a_pending_task_may_be_edited_before_going_on(on_disk):
    llm = ScriptedLLM(["a", Stop(), "b"])
    with pytest.raises(Stop):
        crew_of(llm, ["first", "second"], on_disk()).kickoff(run_id="r")
    crew_of(llm, ["first", "second, better"], on_disk()).kickoff(run_id="r")
    assert len(llm.calls) == 3
    assert "second, better" in llm.calls[-1][1]["content"]


@pytest.mark.parametrize(("on_drift", "calls"), [("keep", 3), ("rerun", 4)])
def test_a_finished_task_whose_question_changed_is_kept_or_run_again(on_disk, on_drift, calls, caplog):
    llm = ScriptedLLM(["a", Stop(), "x", "y"])
    with pytest.raises(Stop):
        crew_of(llm, ["first", "second"], on_disk()).kickoff(run_id="r")
    replayed = []
    event_bus.on(StepReplayedEvent, lambda source, event: replayed.append(event.changed))
    crew = crew_of(llm, ["first, changed", "second"], on_disk(on_drift=on_drift))
    result = crew.kickoff(run_id="r")
    assert len(llm.calls) == calls
    assert result["t0"].raw == ("a" if on_drift == "keep" else "x")
    assert replayed == ([("question",)] if on_drift == "keep" else [])
    assert ("it is asked something else now" in caplog.text) == (on_drift == "keep")


def test_rerun_takes_the_dependents_with_it_and_no_others(on_disk):
    def crew(text, llm, **config):
        who = Agent(role="Worker", goal="g", llm=llm)
        a = Task(name="a", description=text, expected_output="x", agent=who, context=[])
        b = Task(name="b", description="b", expected_output="x", agent=who, context=[a])
        c = Task(name="c", description="c", expected_output="x", agent=who, context=[])
        d = Task(name="d", description="d", expected_output="x", agent=who, context=[])
        return Crew(tasks=[a, b, c, d], checkpoint=on_disk(**config))

    with pytest.raises(Stop):
        crew("a", ScriptedLLM(["1", "2", "3", Stop()])).kickoff(run_id="r")
    llm = ScriptedLLM(["one", "two", "four"])
    result = crew("a!", llm, on_drift="rerun").kickoff(run_id="r")
    assert [output.raw for output in result.tasks_output] == ["one", "two", "3", "four"]


def test_drift_can_be_an_error(on_disk):
    with pytest.raises(Stop):
        crew_of(ScriptedLLM(["a", Stop()]), ["first", "second"], on_disk()).kickoff(run_id="r")
    with pytest.raises(TaskDrifted, match="task:t0 of run 'r' is finished"):
        crew_of(ScriptedLLM([]), ["other", "second"], on_disk(on_drift="error")).kickoff(run_id="r")


def test_changing_the_model_in_mid_run_keeps_what_is_paid_and_says_so(on_disk):
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def crew(llm):
        who = Agent(role="Worker", goal="g", llm=llm, tools=[look])
        return Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)], checkpoint=on_disk())

    with pytest.raises(Stop):
        crew(ScriptedLLM([ToolCall("look"), Stop()], model="cheap")).kickoff(run_id="r")
    changed = []
    event_bus.on(StepReplayedEvent, lambda source, event: changed.append((event.address, event.changed)))
    llm = ScriptedLLM(["answer"], model="dear")
    assert crew(llm).kickoff(run_id="r").raw == "answer"
    assert len(llm.calls) == 1
    assert changed == [("task:t/llm#1", ("model",)), ("task:t/tool:look", ())]


def test_tasks_are_matched_by_name_then_description_then_order(on_disk):
    def crew(llm, *tasks):
        who = Agent(role="Worker", goal="g", llm=llm)
        made = [Task(name=n, description=d, expected_output="x", agent=who, context=[]) for n, d in tasks]
        return Crew(tasks=made, checkpoint=on_disk())

    with pytest.raises(Stop):
        crew(ScriptedLLM(["A", "B", "C", Stop()]), ("a", "1"), (None, "2"), (None, "3"), ("d", "4")).kickoff(run_id="r")
    llm = ScriptedLLM(["new", "D"])
    later = crew(llm, ("new", "0"), (None, "2"), ("a", "1 edited"), (None, "3"), ("d", "4"))
    result = later.kickoff(run_id="r")
    assert [output.raw for output in result.tasks_output] == ["new", "B", "A", "C", "D"]
    assert len(llm.calls) == 2


def test_a_finished_task_that_nothing_answers_to_stops_the_resume(on_disk):
    with pytest.raises(Stop):
        crew_of(ScriptedLLM(["a", "b", Stop()]), ["1", "2", "3"], on_disk()).kickoff(run_id="r")
    with pytest.raises(TaskGone, match="task:t1"):
        crew_of(ScriptedLLM(["c"]), ["1"], on_disk()).kickoff(run_id="r")


def test_other_inputs_are_refused_and_none_are_the_recorded_ones(on_disk):
    llm = ScriptedLLM(["a", Stop(), "b"])
    crew = crew_of(llm, ["about {topic}", "more {topic}"], on_disk())
    with pytest.raises(Stop):
        crew.kickoff(inputs={"topic": "tides"}, run_id="r")
    with pytest.raises(InputsChanged, match="other inputs: 'topic'"):
        crew.kickoff(inputs={"topic": "moons"}, run_id="r")
    crew.kickoff(run_id="r")
    assert "more tides" in llm.calls[-1][1]["content"]


def test_a_place_behind_the_head_is_refused_with_what_came_after(make_crew, on_disk):
    crew = make_crew(["a", "b", Stop(), "c"], checkpoint=on_disk())
    checkpoints = []
    event_bus.on(TaskCompletedEvent, lambda source, event, state: checkpoints.append(state.checkpoint()))
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    with pytest.raises(CheckpointIsBehind, match="task:t1.*came after.*fork"):
        crew.kickoff(from_checkpoint=checkpoints[0])
    assert crew.kickoff(from_checkpoint=checkpoints[-1]).raw == "c"


def test_refs_of_every_kind_lead_to_the_run(make_crew, on_disk):
    config = on_disk()
    for ref in (config.location, "latest", "r", "r/main", "main", "main@task:t1", "main@task:t1~0"):
        llm = ScriptedLLM(["a", "b", Stop(), "c"])
        crew = make_crew(llm, checkpoint=config, name=f"crew for {len(ref)} {ref[:1]}")
        with pytest.raises(Stop):
            crew.kickoff()
        run = History(config.location).run("latest")
        target = ref.replace("r/main", f"{run.run_id}/main") if ref != "r" else run.run_id
        assert crew.kickoff(from_checkpoint=target).raw == "c"
        assert len(llm.calls) == 4
    with pytest.raises(RefError, match="names nothing"):
        crew.kickoff(from_checkpoint="nowhere")
    with pytest.raises(RefError, match="does not exist"):
        crew.kickoff(from_checkpoint="./missing/20260101T000000_abc.json")


def test_a_bare_location_means_the_newest_run_of_this_crew(make_crew, on_disk):
    mine = make_crew(ScriptedLLM(["a", Stop(), "b", "c"]), checkpoint=on_disk(), name="mine")
    other = make_crew(ScriptedLLM(["x", "y", "z"]), checkpoint=on_disk(), name="other")
    with pytest.raises(Stop):
        mine.kickoff()
    other.kickoff()
    assert mine.kickoff(from_checkpoint=on_disk().location).raw == "c"


def test_a_run_id_needs_a_store_and_a_usable_name(make_crew, on_disk):
    with pytest.raises(ConfigError, match="checkpoint=True"):
        make_crew(["a", "b", "c"]).kickoff(run_id="r")
    for bad in ("../x", "a/b", "", "latest", "-rf", "a" * 101, "a\nb", "a\0b"):
        with pytest.raises(ConfigError, match="not a usable name"):
            make_crew(["a", "b", "c"], checkpoint=on_disk()).kickoff(run_id=bad)


def test_a_run_of_another_kind_is_refused(make_crew, on_disk):
    make_crew(["a", "b", "c"], checkpoint=on_disk()).kickoff(run_id="r")
    with pytest.raises(RunMismatch, match="is of crew 'crew', and this is agent"):
        Agent(role="A", goal="g", llm=ScriptedLLM(["x"]), checkpoint=on_disk()).kickoff("hello", run_id="r")


def test_two_threads_resuming_one_run_one_wins_the_other_is_told(make_crew, on_disk):
    llm = Held(["a", Stop(), *["b", "c"] * 4])
    crew = make_crew(llm, checkpoint=on_disk())
    llm.go.set()
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    found = Counter(type(outcome).__name__ for outcome in both_resumed(crew))
    assert found == {"CrewOutput": 1, "BranchConflictError": 1}
    assert len(llm.calls) == 4


def test_resume_in_a_notebook_like_loop(make_crew, on_disk):
    crew = make_crew(["a", Stop(), "b", "c"], checkpoint=on_disk())

    async def notebook():
        with pytest.raises(Stop):
            await crew.akickoff(run_id="r")
        return crew.kickoff(run_id="r")

    assert asyncio.run(notebook()).raw == "c"


SCRIPT = """
import sys
from crewlite import Agent, Crew, Task, CheckpointConfig
from crewlite.testing import ScriptedLLM
def reply(messages):
    n = int(messages[1]["content"].split()[1])
    print("asked", n, flush=True)
    if n == 1 and sys.argv[2] == "die":
        import os; os._exit(9)
    return f"answer {n}"
who = Agent(role="W", goal="g", llm=ScriptedLLM(reply))
tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=who, context=[]) for n in range(3)]
print(Crew(tasks=tasks, checkpoint=CheckpointConfig(location=sys.argv[1])).kickoff(run_id="r").raw)
"""


def test_another_process_goes_on_where_one_died(on_disk):
    def script(word):
        command = [sys.executable, "-c", SCRIPT, on_disk().location, word]
        return children.run(command, capture_output=True, text=True)

    assert script("die").stdout.split("\n") == ["asked 0", "asked 1", ""]
    assert script("live").stdout.split("\n") == ["asked 1", "asked 2", "answer 2", ""]
    assert script("live").stdout.split("\n") == ["answer 2", ""]
