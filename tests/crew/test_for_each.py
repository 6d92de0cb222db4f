"""One crew for many inputs: side by side, in their order, and each of its runs can be gone on with alone."""

from __future__ import annotations

import asyncio

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.errors import ConfigError, InDoubt
from crewlite.testing import ScriptedLLM
from tests.parts import Stop


class Counting(ScriptedLLM):
    def __init__(self, fails=()):
        super().__init__([])
        self.open = self.most = 0
        self.asked, self.fails = [], set(fails)

    async def acall(self, messages, **context):
        topic = messages[-1]["content"].partition("\n")[0]
        self.asked.append(topic)
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0.01 * (5 - int(topic)))
        self.open -= 1
        if topic in self.fails:
            raise Stop(topic)
        return f"on {topic}"


def crew_of(llm, **fields):
    agent = Agent(role="W", goal="g", llm=llm)
    return Crew(tasks=[Task(description="{topic}", expected_output="x", agent=agent)], **fields)


TOPICS = [{"topic": n} for n in range(5)]


def in_plain_code(crew, **options):
    return crew.kickoff_for_each(TOPICS, **options)


def in_a_coroutine(crew, **options):
    return asyncio.run(crew.akickoff_for_each(TOPICS, **options))


def by_its_other_name(crew, **options):
    return asyncio.run(crew.kickoff_for_each_async(TOPICS, **options))


verbs = pytest.mark.parametrize("verb", [in_plain_code, in_a_coroutine, by_its_other_name])


@verbs
def test_results_come_in_the_order_of_the_inputs(verb):
    assert [result.raw for result in verb(crew_of(Counting()))] == [f"on {n}" for n in range(5)]


@verbs
def test_only_so_many_are_at_work_at_once(verb):
    llm = Counting()
    verb(crew_of(llm), max_concurrency=2)
    assert llm.most == 2
    with pytest.raises(ConfigError, match="max_concurrency is 0"):
        verb(crew_of(llm), max_concurrency=0)


@verbs
def test_failures_stand_in_the_places_of_their_results(verb, memory):
    llm = Counting(fails={"1", "3"})
    crew = crew_of(llm, checkpoint=memory())
    results = verb(crew, run_id="r", return_exceptions=True)
    assert [str(result) for result in results] == ["on 0", "1", "on 2", "3", "on 4"]
    assert [type(result) for result in results if isinstance(result, Exception)] == [Stop, Stop]
    assert results[3].__notes__[-1] == "kickoff_for_each: this was inputs[3] of 5: {'topic': 3}"


@verbs
def test_else_the_first_is_raised_when_all_have_ended(verb, memory):
    llm = Counting(fails={"1", "3"})
    with pytest.raises(Stop, match="1"):
        verb(crew_of(llm, checkpoint=memory()), run_id="r")
    assert len(llm.asked) == 5


def test_called_again_it_repeats_only_what_has_not_finished(on_disk):
    llm = Counting(fails={"1", "3"})
    crew = crew_of(llm, checkpoint=on_disk())
    crew.kickoff_for_each(TOPICS, run_id="r", return_exceptions=True)
    llm.fails.clear()
    llm.asked.clear()
    assert crew.kickoff(TOPICS[1], run_id="r.1").raw == "on 1"
    assert [result.raw for result in crew.kickoff_for_each(TOPICS, run_id="r")] == [f"on {n}" for n in range(5)]
    assert llm.asked == ["1", "3"]
    with History(on_disk().location) as history:
        assert sorted(run.run_id for run in history.runs()) == [f"r.{n}" for n in range(5)]


def test_none_at_all_is_an_empty_list():
    assert crew_of(Counting()).kickoff_for_each([]) == []


def test_one_set_of_inputs_and_options_that_it_does_not_have_are_told_apart():
    crew = crew_of(Counting())
    with pytest.raises(ConfigError, match="inputs is one set of inputs; wanted a list of them, one for each run"):
        crew.kickoff_for_each({"topic": "1"})
    with pytest.raises(TypeError, match="kickoff_for_each of a crew has no option 'max_concurency'.*max_concurrency"):
        crew.kickoff_for_each([{}], max_concurency=2)
    with pytest.raises(TypeError, match="kickoff of a crew has no option 'inputz' .did you mean 'inputs'"):
        crew.kickoff(inputz={})


@pytest.mark.parametrize("name", ["r", None])
def test_a_call_in_doubt_names_its_run_and_the_call_that_settles_it(on_disk, name):
    """`kickoff_for_each` takes neither answers nor reruns."""

    @tool(effect="once", timeout=0.05)
    async def pay() -> str:
        """Pay."""
        await asyncio.Event().wait()
        return "never"

    llm = ScriptedLLM(lambda messages: "done" if messages[-1]["role"] == "tool" else ToolCall("pay"))
    agent = Agent(role="W", goal="g", llm=llm, tools=[pay])
    crew = Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=agent)], checkpoint=on_disk())
    with pytest.raises(InDoubt) as caught:
        crew.kickoff_for_each([{}, {}], run_id=name)
    with History(on_disk().location) as history:
        run_id = (
            "r.0" if name else next(run.run_id for run in history.runs() if run.run_id in caught.value.__notes__[-1])
        )
    note = f"To go on with that run: crew.kickoff(run_id='{run_id}', answers= or rerun=)"
    assert caught.value.__notes__[-1] == note + (", then call kickoff_for_each again with run_id='r'" if name else "")
    assert f"kick off again with run_id='{run_id}', answers=" in str(caught.value)
    assert crew.kickoff(run_id=run_id, answers={caught.value.address: "paid"}).raw == "done"
