"""The result of a finished run is read from its record, without the definition that ran."""

from __future__ import annotations

import sys

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.flow import Flow, flow, start
from crewlite.testing import ScriptedLLM
from tests.children import run

KEPT = CheckpointConfig(location="runs.db")


def test_the_result_of_every_kind_of_run_is_what_its_kickoff_came_to():
    @flow(checkpoint=KEPT)
    def double(n: int) -> dict[str, int]:
        return {"twice": 2 * n}

    class Greet(Flow):
        checkpoint = KEPT

        @start()
        def hello(self):
            return ["hello"]

    agent = Agent(role="Clerk", goal="answer", llm=ScriptedLLM(lambda messages: "done"), checkpoint=KEPT)
    tasks = [Task(name=name, description=name, expected_output="x", agent=agent) for name in "ab"]
    results = {
        "flow": double.kickoff(2, run_id="flow"),
        "class": Greet().kickoff(run_id="class"),
        "agent": agent.kickoff("What?", run_id="agent").raw,
        "crew": Crew(tasks=tasks, checkpoint=KEPT).kickoff(run_id="crew").raw,
    }
    with History("runs.db") as history:
        assert {name: history.run_by_id(name).result for name in results} == results
        first = history.run_by_id("crew").checkpoints()[0]
        assert history.fork(first, branch="b").result is None


READER = """
import sys
from crewlite import History
with History(sys.argv[1]) as history:
    print([type(step.value).__name__ for step in history.run("r").steps if step.address == "method:write"])
"""


def test_a_program_that_only_reads_gets_the_result_of_a_crew_as_one(tmp_path):
    agent = Agent(role="r", goal="g", llm=ScriptedLLM(["The moon."]))
    crew = Crew(tasks=[Task(description="d", expected_output="x", agent=agent)])

    class Letter(Flow):
        checkpoint = CheckpointConfig(location=str(tmp_path))

        @start()
        def write(self):
            return crew.kickoff()

    Letter().kickoff(run_id="r")
    done = run([sys.executable, "-c", READER, str(tmp_path)], cold=True, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("['CrewOutput']", "")
