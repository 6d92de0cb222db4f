"""Killed after any commit, or with others at work in its store, a class flow ends as it would have."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import pytest
from pydantic import BaseModel

from crewlite import Agent, CheckpointConfig, Crew, Flow, Task, and_, listen, or_, router, start, step
from crewlite.flow import flow, human_feedback
from crewlite.testing import ScriptedLLM
from tests.beside import RUN, Beside
from tests.cuts import lives


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


class Sent(BaseModel):
    id: str = ""
    tries: int = 0
    letters: list[str] = []


@step
def stamped(letter: str) -> str:
    return f"stamped {letter}"


@flow
def posted(letter: str) -> str:
    return stamped(letter)


class Inner(Flow[Sent]):
    @start()
    async def fold(self) -> str:
        self.state.tries += 1
        return f"folded {self.state.tries} time"


_failed = WeakSet[Flow[Any]]()


class Post(Flow[Sent]):
    """People are asked, a method is tried again, a flow, an agent and a function are kicked off, a start has a condition."""

    @start()
    def begin(self) -> str:
        return f"to {self.ask('To whom?', str, name='whom')}"

    @start("again")
    async def shred(self) -> str:
        return "shredded"

    @human_feedback("Is it fine?", emit=["again", "fine"])
    @listen(or_(begin, "again"))
    def draft(self) -> str:
        self.state.tries += 1
        return f"draft {self.state.tries}"

    @listen("fine", retries=9)
    def send(self) -> str:
        if self not in _failed:
            _failed.add(self)
            raise OSError("the first attempt of each life fails")
        self.state.letters = [*self.state.letters, posted.kickoff(f"letter {self.state.tries}")]
        return Inner().kickoff()

    @listen("fine", timeout=60)
    async def note(self) -> str:
        clerk = Agent(role="Clerk", goal="note", llm=ScriptedLLM(lambda messages: f"noted {messages[-1]['content']}"))
        return (await clerk.akickoff("What was sent?")).raw

    @listen(and_(send, note))
    def end(self, said: str) -> list[str]:
        return sorted([*self.state.letters, str(self.state.tries), str(self.last_human_feedback.feedback)])


ANSWERS = {
    Newsroom: {},
    Post: {
        "method:begin/human:whom": "Ada",
        "method:draft@begin|again/human:draft": "again",
        "method:draft@begin|again#2/human:draft": "fine",
    },
}
"""The flows, and what people say to them."""


def _kickoff(made: type[Flow[Any]], setting: CheckpointConfig) -> tuple[Any, dict[str, Any]]:
    flow = made(checkpoint=setting)
    result = flow.kickoff(run_id=RUN, answers=ANSWERS[made])
    return result, {name: value for name, value in dict(flow.state).items() if name != "id"}


def _beside(made: type[Flow[Any]]) -> Beside:
    return Beside(lambda setting: _kickoff(made, setting), "method_execution_finished", "task_completed")


@pytest.mark.parametrize("made", ANSWERS)
def test_killed_after_any_commit_it_ends_as_it_would_have(made):
    def verb(flow: Flow[Any], run_id: str) -> tuple[Any, dict[str, Any]]:
        result = flow.kickoff(run_id=run_id, answers=ANSWERS[made])
        return result, {name: value for name, value in dict(flow.state).items() if name != "id"}

    for whole, again in lives(made, verb):
        assert again == whole


@pytest.mark.parametrize("made", ANSWERS)
def test_whatever_others_do_in_its_store_meanwhile_it_ends_as_it_would_have(made):
    assert _beside(made).broken_by_a_sample(seed="flow") == []


@pytest.mark.soak
@pytest.mark.parametrize("made", ANSWERS)
def test_whatever_others_do_in_its_store_at_any_moment(made):
    assert _beside(made).broken_anywhere() == []
