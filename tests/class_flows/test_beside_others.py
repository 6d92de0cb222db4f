"""Whatever others do in the store in which a class flow is at work, it ends as it would have."""

from __future__ import annotations

from typing import Any

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Flow, Task, and_, listen, or_, router, start
from crewlite.testing import ScriptedLLM
from tests.beside import RUN, Beside


def _writers() -> Crew:
    writer = Agent(role="Writer", goal="write", llm=ScriptedLLM(lambda messages: f"a text of {len(messages)} messages"))
    return Crew(tasks=[Task(name="draft", description="Write {words} words", expected_output="text", agent=writer)])


class Newsroom(Flow):
    """Side by side, with a crew inside, a cycle, and a state that all of them change."""

    @start()
    def plan(self) -> str:
        self.state["words"] = 3
        return "plan"

    @start()
    async def look_up(self) -> str:
        self.state["sources"] = ["a", "b"]
        return "sources"

    @listen(or_(and_(plan, look_up), "again"))
    def write(self) -> str:
        self.state["tries"] = self.state.get("tries", 0) + 1
        return _writers().kickoff({"words": self.state["words"] * self.state["tries"]}).raw

    @listen(write)
    async def illustrate(self) -> str:
        return "picture"

    @router(and_(write, illustrate))
    def judge(self) -> str:
        return "again" if self.state["tries"] < 2 else "fine"

    @listen("fine")
    def publish(self) -> dict[str, Any]:
        return {"sources": self.state["sources"], "tries": self.state["tries"]}


def _kickoff(setting: CheckpointConfig) -> tuple[Any, dict[str, Any]]:
    flow = Newsroom(checkpoint=setting)
    result = flow.kickoff(run_id=RUN)
    return result, {name: value for name, value in dict(flow.state).items() if name != "id"}


EVENTS = "method_execution_finished", "task_completed"


def test_whatever_others_do_in_its_store_meanwhile_it_ends_as_it_would_have():
    assert Beside(_kickoff, *EVENTS).broken_by_a_sample(seed="flow") == []


@pytest.mark.soak
def test_whatever_others_do_in_its_store_at_any_moment():
    assert Beside(_kickoff, *EVENTS).broken_anywhere() == []
