"""Functions that a crew calls back: before and after a kickoff, after each task and each step of an agent."""

from __future__ import annotations

import threading

import pytest
from pydantic import BaseModel, PrivateAttr

from crewlite import Agent, CrewOutput, ToolCall, event_bus
from crewlite.agent.steps import AgentAction, AgentFinish
from crewlite.errors import ConfigError, MissingInput
from crewlite.events import StepCompletedEvent
from crewlite.testing import ScriptedLLM
from tests.crew.called_back import asked, crew_of, upper
from tests.parts import Fact, look


def test_before_kickoff_callbacks_prepare_the_inputs_in_order():
    def trim(inputs):
        return {"topic": inputs["topic"].strip()}

    async def shout(inputs):
        inputs["topic"] = inputs["topic"].upper()  # and returns nothing

    crew = crew_of(["done"], before_kickoff_callbacks=[trim, shout])
    result = crew.kickoff({"topic": " tides "})
    assert asked(crew) == ["About TIDES, 0"]
    assert (result.tasks_output[0].description, result.tasks_output[0].agent) == ("About TIDES, 0", "Clerk of TIDES")


def test_they_may_be_what_gives_the_inputs_at_all():
    crew = crew_of(["done"], before_kickoff_callbacks=[lambda inputs: {"topic": "tides"}])
    assert crew.kickoff().raw == "done"
    with pytest.raises(MissingInput):
        crew_of(["done"], before_kickoff_callbacks=[lambda inputs: inputs]).kickoff()


def test_a_callback_that_returns_no_inputs_is_told_so():
    with pytest.raises(ConfigError, match="'wrong' returned 7; wanted a dict of inputs"):

        def wrong(inputs):
            return 7

        crew_of(["done"], before_kickoff_callbacks=[wrong]).kickoff({"topic": "tides"})


def test_after_kickoff_callbacks_may_change_the_text_of_the_result():
    heard = []

    async def sign(result):
        result.raw += "\nsigned"
        return result

    def note(result):
        heard.append((result.raw, result.token_usage.requests, type(result).__mro__[1]))

    result = crew_of(["done"], after_kickoff_callbacks=[sign, note]).kickoff({"topic": "tides"})
    assert (result.raw, result.tasks_output[0].raw) == ("done\nsigned", "done")
    assert heard == [("done\nsigned", 1, CrewOutput)]
    assert type(result) is CrewOutput


def test_a_text_that_they_return_is_the_text_of_the_result(on_disk):
    crew = crew_of(["done"], after_kickoff_callbacks=[lambda result: f"# {result}", print], checkpoint=on_disk())
    first = crew.kickoff({"topic": "tides"}, run_id="r")
    assert (type(first), first.raw, first.tasks_output[0].raw) == (CrewOutput, "# done", "done")
    assert crew.kickoff(run_id="r") == first


@pytest.mark.parametrize(
    ("callback", "problem"),
    [
        (lambda result: {"word": "w"}, "returned a dict; wanted the CrewOutput, its text, or None"),
        (
            lambda result: result.model_copy(update={"run_id": "other"}),
            "changed run_id of the result; it may change raw",
        ),
        (lambda result: setattr(result.pydantic, "word", "other"), "changed pydantic, tasks_output of the result"),
        (lambda result: result.model_copy(update={"raw": 7}), "wanted a text"),
    ],
)
def test_they_may_change_nothing_else(callback, problem):
    crew = crew_of(['{"word": "w"}'], task={"output_pydantic": Fact}, after_kickoff_callbacks=[callback])
    with pytest.raises(ConfigError, match=problem):
        crew.kickoff({"topic": "tides"})


def test_task_callback_of_the_crew_comes_after_the_tasks_own():
    heard = []

    def own(output):
        heard.append(("own", output.raw))

    async def of_crew(output):
        heard.append(("crew", output.raw))

    crew_of(["a", "b"], tasks=2, task={"callback": own}, task_callback=of_crew).kickoff({"topic": "tides"})
    assert heard == [("own", "a"), ("crew", "a"), ("own", "b"), ("crew", "b")]
    heard.clear()
    crew_of(["a"], task={"callback": own}, task_callback=own).kickoff({"topic": "tides"})
    assert heard == [("own", "a")], "one function is called once"


def test_step_callback_hears_of_each_tool_call_and_of_the_answer():
    heard = []
    replies = [[ToolCall("look", {"where": "here"}), ToolCall("look", {"where": "there"})], "done"]
    crew_of(replies, agent={"tools": [look]}, step_callback=heard.append).kickoff({"topic": "tides"})
    assert [(type(one), getattr(one, "result", "")) for one in heard] == [
        (AgentAction, "saw here"),
        (AgentAction, "saw there"),
        (AgentFinish, ""),
    ]
    assert (heard[0].tool, heard[0].tool_input, heard[2].output) == ("look", '{"where": "here"}', "done")
    assert heard[2].__dict__ == {"thought": "", "output": "done", "text": "done"}, "callbacks for CrewAI print it so"


def test_an_agents_own_step_callback_takes_the_place_of_the_crews_and_hears_it_alone_too():
    own, of_crew = [], []

    async def tell(step):
        own.append(step.output)

    crew = crew_of(["done", "alone"], agent={"step_callback": tell}, step_callback=of_crew.append)
    crew.kickoff({"topic": "tides"})
    crew.tasks[0].agent.kickoff("?")
    assert (own, of_crew) == (["done", "alone"], [])


def test_a_callback_that_returns_an_awaitable_is_awaited():
    heard = []

    async def tell(output):
        heard.append(output.raw)

    crew_of(["done"], task_callback=lambda output: tell(output)).kickoff({"topic": "tides"})
    assert heard == ["done"]


def test_each_is_visible_as_a_step():
    heard = []
    event_bus.on(StepCompletedEvent, lambda source, event: heard.append((event.address, event.step_type)))
    crew_of(
        ["a"],
        before_kickoff_callbacks=[upper, upper],
        after_kickoff_callbacks=[print],
        task_callback=print,
        step_callback=print,
    ).kickoff({"topic": "tides"})
    assert heard == [
        ("callback:before_kickoff.upper", "upper"),
        ("callback:before_kickoff.upper#2", "upper"),
        ("task:t0/callback:step_callback.print", "print"),
        ("task:t0/callback:task_callback.print", "print"),
        ("callback:after_kickoff.print", "print"),
    ]


def test_one_function_where_a_list_is_wanted_is_refused():
    with pytest.raises(ConfigError, match=r"before_kickoff_callbacks is one function; wanted a list"):
        crew_of(["a"], before_kickoff_callbacks=upper)


def test_a_before_callback_changes_neither_the_callers_data_nor_that_of_other_runs(on_disk):
    def add(inputs):
        inputs["tags"].append(inputs["topic"])

    tags = ["base"]
    crew = crew_of(lambda messages: "done", before_kickoff_callbacks=[add], checkpoint=on_disk())
    crew = crew.with_(tasks=[crew.tasks[0].with_(description="{topic}: {tags}")])
    inputs = [{"topic": topic, "tags": tags} for topic in "ab"]
    for _ in range(2):
        results = crew.kickoff_for_each(inputs, run_id="r", max_concurrency=1)
        assert [one.tasks_output[0].description for one in results] == ["a: ['base', 'a']", "b: ['base', 'b']"]
    assert tags == ["base"]


class Locked(BaseModel):
    """A model that cannot be copied."""

    tide: str
    _lock: object = PrivateAttr(default_factory=threading.Lock)


@pytest.mark.parametrize("kept", [False, True])
def test_a_result_that_holds_what_cannot_be_copied_can_be_changed(on_disk, kept):
    def shout(result):
        result.raw = result.pydantic.tide.upper()

    checkpoint = on_disk() if kept else False
    task = {"output_pydantic": Locked}
    crew = crew_of(['{"tide": "low"}'], task=task, checkpoint=checkpoint, after_kickoff_callbacks=[shout])
    assert crew.kickoff({"topic": "tides"}).raw == "LOW"


def test_a_before_callback_changes_no_list_of_the_callers_that_holds_what_cannot_be_copied():
    def add(inputs):
        inputs["tags"].append("more")

    tags = ["base", threading.Lock()]
    crew_of(["done"], before_kickoff_callbacks=[add]).kickoff({"topic": "tides", "tags": tags})
    assert len(tags) == 2


def test_a_field_that_a_result_does_not_have_cannot_be_set():
    with pytest.raises(ConfigError, match="set 'note' of the result; it may change raw and json_dict"):
        crew_of(["done"], after_kickoff_callbacks=[lambda result: setattr(result, "note", 1)]).kickoff({"topic": "t"})


@pytest.mark.parametrize("field", ["callback", "guardrail"])
def test_an_output_that_is_changed_in_place_says_what_changes_an_answer(field):
    def change(output):
        output.raw = "changed"

    with pytest.raises(ConfigError, match=r"'raw' of a TaskOutput cannot be set.*guardrail.*\(True, value\)"):
        crew_of(["done"], task={field: change}).kickoff({"topic": "t"})
    answer = Agent(role="Clerk", goal="g", llm=ScriptedLLM(["done"])).kickoff("Well?")
    for output, name in ((answer, "LiteAgentOutput"), (crew_of(["done"]).kickoff({"topic": "t"}), "CrewOutput")):
        with pytest.raises(ConfigError, match=f"'raw' of a {name} cannot be set"):
            output.raw = "changed"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"before_kickoff_callbacks": [upper, lambda: None]}, r"before_kickoff_callbacks\[1\] is .*takes the inputs"),
        ({"after_kickoff_callbacks": [7]}, r"after_kickoff_callbacks\[0\] is 7; wanted a function that takes the Crew"),
        ({"task_callback": lambda one, two: None}, "task_callback is .*takes the TaskOutput"),
        ({"step_callback": lambda: None}, "step_callback is .*takes a step"),
        ({"task": {"callback": "tell"}}, "callback is 'tell'; wanted a function that takes the TaskOutput"),
        ({"task": {"async_execution": "yes"}}, "async_execution is a str; wanted True or False"),
        ({"max_concurrency": "2"}, "max_concurrency is a str; wanted a whole number"),
    ],
)
def test_what_cannot_be_called_back_is_found_at_definition(fields, problem):
    with pytest.raises(ConfigError, match=problem):
        crew_of([], **fields)
