"""Methods of a crew's class that are called before and after a kickoff, and functions that files name."""

from __future__ import annotations

import pytest

from crewlite import Agent, Crew, History, Task
from crewlite.project import CrewBase, after_kickoff, agent, before_kickoff, callback, crew, task
from crewlite.testing import ScriptedLLM


def made_by(llm, called, **fields):
    @CrewBase
    class Office:
        agents_config = {"clerk": {"role": "Clerk", "goal": "answer", "step_callback": "stepped"}}
        tasks_config = {"answer": {"description": "Answer {x}", "expected_output": "y", "agent": "clerk"}}

        @before_kickoff
        def prepare(self, inputs):
            called.append("before")
            return {**inputs, "x": inputs["x"] + 1}

        @after_kickoff
        async def finish(self, result):
            called.append("after")
            result.raw = result.raw.upper()
            return result

        @callback
        def stepped(self, step):
            called.append(type(step).__name__)

        @agent
        def clerk(self):
            return Agent(config=self.agents_config["clerk"], llm=llm)

        @task
        def answer(self):
            return Task(config=self.tasks_config["answer"])

        @crew
        def crew(self):
            return Crew(agents=self.agents, tasks=self.tasks, **fields)

    return Office().crew()


def test_they_change_the_inputs_and_the_result():
    called, llm = [], ScriptedLLM(["done"])
    result = made_by(llm, called).kickoff({"x": 1})
    assert result.raw == "DONE"
    assert "Answer 2" in llm.calls[0][-1]["content"]
    assert called == ["before", "AgentFinish", "after"]


def test_what_was_called_before_a_cut_is_not_called_again(memory):
    class Cut(Exception):
        pass

    called, config = [], memory()
    with pytest.raises(Cut):
        made_by(ScriptedLLM([Cut()]), called, checkpoint=config).kickoff({"x": 1}, run_id="r")
    assert made_by(ScriptedLLM(["done"]), called, checkpoint=config).kickoff(run_id="r").raw == "DONE"
    assert called == ["before", "AgentFinish", "after"]
    with History("memory", config.provider) as history:
        calls = [step.address.rpartition(".")[2] for step in history.run("r").steps if step.kind == "callback"]
    assert calls == ["prepare", "stepped", "finish"], "they are known by their own names"
