"""What programs for CrewAI do besides: listeners, tools of functions, texts with white space, wrong definitions."""

from __future__ import annotations

import pytest

import crewlite
from crewlite import Agent, Crew, Task
from crewlite.errors import ConfigError
from crewlite.events import (
    AgentExecutionCompletedEvent,
    BaseEventListener,
    CrewKickoffStartedEvent,
    TaskCompletedEvent,
    TaskStartedEvent,
)
from crewlite.flow import flow
from crewlite.tools.function import FunctionTool


def test_a_listener_hears_what_it_subscribed_to():
    class Count(BaseEventListener):
        tasks = 0

        def setup_listeners(self, crewai_event_bus):
            @crewai_event_bus.on(TaskCompletedEvent)
            def count(source, event):
                self.tasks += 1

    count = Count()
    agent = Agent(role="r", goal="g", llm="offline")
    Crew(tasks=[Task(description="d", expected_output="x", agent=agent)]).kickoff()
    assert count.tasks == 1


def test_a_listener_reads_the_crew_the_task_and_the_agent_from_the_event():
    read = []

    class Names(BaseEventListener):
        def setup_listeners(self, crewai_event_bus):
            for cls in (CrewKickoffStartedEvent, TaskStartedEvent, AgentExecutionCompletedEvent, TaskCompletedEvent):
                crewai_event_bus.on(cls, self.hear)

        def hear(self, source, event):
            about = [getattr(event, name, None) for name in ("crew", "task", "agent")]
            read.append((event.type, [one for one in about if one is not None], event))

    agent = Agent(role="r", goal="g", llm="offline")
    task = Task(description="d", expected_output="x", agent=agent)
    crew = Crew(tasks=[task])
    with crewlite.event_bus.scoped():
        Names()
        crew.kickoff()
    assert [type for type, *_ in read] == [
        "crew_kickoff_started",
        "task_started",
        "agent_execution_completed",
        "task_completed",
    ]
    assert [about for _, about, _ in read] == [[crew], [task], [agent], [task]]
    assert read[1][2].task.agent.role == read[2][2].agent.role == "r"
    event = read[-1][2]
    assert event.model_copy() == event
    assert event.model_copy().task is None
    assert "source" not in event.model_dump()


def test_the_code_of_a_tool_made_of_a_function_is_called_as_that_of_a_class_is():
    @crewlite.tool
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    assert (add._run(2, b=3), add._run(a=2), add.run(2)) == (5, 3, 3)


def test_a_tool_of_langchain_becomes_one_where_a_program_says_so():
    class Search:
        name, description, args = "search", "Search.", {"query": {"type": "string"}}

        def invoke(self, arguments):
            return f"nothing about {arguments['query']}"

    assert FunctionTool.from_langchain(Search()).run(query="tides") == "nothing about tides"
    with pytest.raises(ConfigError, match="^from_langchain was given an int; wanted a tool of LangChain"):
        FunctionTool.from_langchain(3)


def test_texts_lose_the_white_space_around_them():
    agent = Agent(role="Market Analyst\n", goal="  know\n", backstory="\nold\n", llm="offline")
    assert (agent.role, agent.goal, agent.backstory) == ("Market Analyst", "know", "old")
    task = Task(description="Look\nclosely\n", expected_output="A line\n", agent=agent)
    assert (task.description, task.expected_output) == ("Look\nclosely", "A line")
    with pytest.raises(ConfigError, match="description"):
        Task(description=" \n", expected_output="x", agent=agent)


def test_a_wrong_definition_is_told_in_plain_words():
    class ChatOpenAI:
        """A model of somebody else's."""

    with pytest.raises(ConfigError) as caught:
        Agent(role="r", goal="g", llm=ChatOpenAI(), a2a=10, foo=1)
    told = str(caught.value)
    assert "llm is a ChatOpenAI; wanted an instance of BaseLLM, or text" in told
    assert "no field 'a2a': agents have tools" in told
    assert told.count("it has role, goal") == 1
    assert "max_iter'" not in told
    with pytest.raises(ConfigError, match=r"tools\[0\] is an object; wanted"):
        Agent(role="r", goal="g", tools=[object()])


def test_a_flow_on_a_method_is_told_to_be_a_function():
    class Pipeline:
        @flow
        def go(self, x: int):
            return x

    with pytest.raises(ConfigError, match="@flow 'go' is a method; wanted a function"):
        Pipeline().go.kickoff(x=1)
    assert Pipeline.go.kickoff(None, x=1) == 1, "a class may be a place to keep flows in"
