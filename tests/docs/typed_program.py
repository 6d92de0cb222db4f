# mypy: disallow-untyped-defs, disallow-untyped-calls, disallow-any-generics, disallow-untyped-decorators, warn-return-any
"""What type checkers know of a program. Nothing runs it. At the end of a line, `# WRONG code` names what they find there."""

import asyncio
from pathlib import Path
from typing import Any, assert_type

from pydantic import BaseModel

from crewlite import Agent, BaseLLM, BaseTool, CheckpointConfig, Crew, CrewOutput, Task, event_bus, tool
from crewlite.events import TaskCompletedEvent
from crewlite.flow import Flow, flow, listen, start, step


@tool
def search(words: str) -> str:
    """Search."""
    return words


class Depth(BaseTool):
    name: str = "depth"
    description: str = "Say how deep it is."

    async def _arun(self, place: str) -> float:
        return 4.0


class Gauge:
    """A tool of another framework."""

    name = "gauge"
    description = "Read the gauge."

    def run(self, port: str) -> str:
        return port


class Chat:
    """A chat model of another framework."""

    async def ainvoke(self, messages: Any, *, stop: list[str] | None = None) -> str:
        return "yes"


class Own(BaseLLM):
    def call(self, messages: str | list[dict[str, Any]], tools: Any = None) -> str:
        return "yes"


def plain(words: str) -> str:
    """Search."""
    return words


own_tools = [search]
pilot = Agent(role="Pilot", goal="answer", llm=Own("own"), tools=own_tools, allowed_tools=["search", search])
clerk = Agent(role="Clerk", goal="answer", llm=Chat(), tools=[search, Depth(), Gauge(), plain])
facts = Task(description="Facts", expected_output="text", agent=pilot, input_files={"a": Path("a.txt"), "b": "b.txt"})
poem = Task(description="Poem", expected_output="text", agent=clerk, context=[facts], guardrails=["is short"])
crew = Crew(
    agents=[pilot],
    tasks=[facts],
    process="sequential",
    checkpoint=CheckpointConfig(on_events=["task_completed"], redact=["x"]),
)
crew.tasks += [poem]
crew.tasks = [*crew.tasks]
poem.context = [facts]
clerk.tools.append(plain)
assert_type(crew.tasks[0], Task)
assert_type([tool.name for tool in clerk.tools], list[str])
assert_type(crew.kickoff(), CrewOutput)


class Report(BaseModel):
    title: str


@step(retries=2)
def words_of(page: str, least: int = 1) -> list[str]:
    return page.split()


@step
async def fetch(url: str) -> Report:
    return Report(title=url)


@flow(checkpoint=True)
def survey(pages: list[str]) -> int:
    assert_type(words_of("a"), list[str])
    assert_type(words_of.submit("a").result(), list[str])
    assert_type(words_of.map(pages).result(), list[list[str]])
    return 1


@flow
async def fetching(url: str) -> Report:
    assert_type(await fetch(url), Report)
    return await fetch.submit(url)


assert_type(survey.kickoff(["a"], run_id="r"), int)
assert_type(asyncio.run(fetching.akickoff("u")), Report)


class Reader:
    @step
    def read(self, page: str) -> str:
        return page

    @flow
    def all(self, pages: list[str]) -> str:
        return pages[0]


Reader().read("a")  # WRONG arg-type
Reader().all.kickoff(["a"])  # WRONG arg-type
words_of(3)  # WRONG arg-type
words_of("a", most=3)  # WRONG call-arg
Crew(tasks=facts)  # WRONG arg-type
Crew(tasks=[facts], process="parallel")  # WRONG arg-type
Crew(tasks=["facts"])  # WRONG list-item
Task(description="x")  # WRONG call-arg
crew.tasks.append("facts")  # WRONG arg-type
Agent(role="x", goal="y", max_iter="many")  # WRONG arg-type
CheckpointConfig(location=3)  # WRONG arg-type


class State(BaseModel):
    id: str = ""
    done: int = 0


class Steps(Flow[State]):
    @start()
    def begin(self) -> str:
        assert_type(self.state, State)
        self.state.done += 1
        self.state.gone = 1  # WRONG attr-defined
        return "x"

    @listen(begin)
    async def end(self, said: str) -> int:
        return len(said)


Steps().kickoff(inputs={"done": 3})


@event_bus.on(TaskCompletedEvent)
def tell(source: object, event: TaskCompletedEvent) -> str:
    return event.type


@event_bus.on(TaskCompletedEvent, source=crew)
async def tell_later(source: object, event: TaskCompletedEvent, state: Any) -> None: ...


assert_type(tell(crew, TaskCompletedEvent(output=crew.kickoff().tasks_output[0])), str)
with event_bus.on(TaskCompletedEvent, tell) as subscription:
    subscription.cancel()
event_bus.on(TaskCompletedEvent, "tell")  # WRONG call-overload
