"""Names of CrewAI's that are not here are told what to write instead."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

import crewlite
from crewlite import Agent, CheckpointConfig, Crew, CrewOutput, LiteAgentOutput, Task, coming_from
from crewlite.coming_from import modules
from crewlite.errors import ConfigError
from crewlite.events import (
    AgentExecutionCompletedEvent,
    BaseEventListener,
    CrewKickoffStartedEvent,
    TaskCompletedEvent,
    TaskStartedEvent,
    ToolUsageStartedEvent,
)
from crewlite.flow import flow, human_feedback
from crewlite.tools.function import FunctionTool


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("from crewlite.utilities.printer import Printer", "the bus: from crewlite import event_bus"),
        ("from crewlite.tasks import Printer", "crewlite.tasks has no 'Printer': it has ConditionalTask, TaskOutput"),
        ("from crewlite.tasks.hallucination_guardrail import HallucinationGuardrail", "LLMGuardrail(...)"),
        ("from crewlite.agents.crew_agent_executor import ToolResult", "import AgentAction, AgentFinish"),
        ("import crewlite.flow.persistence.base", "a store of your own is a provider"),
        ("from crewlite.hooks import before_tool_call", "a guard refuses a call (docs/crewai.md)"),
        ("from crewlite.hooks import after_llm_call", "event_bus.on(LLMCallCompletedEvent)"),
        ("from crewlite.tools.tool_failure import ToolFailure", "BaseTool(failure_policy=...)"),
        ("from crewlite.utilities.exceptions.window import TooLong", "from crewlite.errors import"),
        ("from crewlite.project import load_crew", "crewlite.project has no 'load_crew': Crew.from_yaml"),
        ("from crewlite.tools import EnvVar", "crewlite.tools has no 'EnvVar': a tool reads the environment itself"),
        ("from crewlite.events import MemoryQueryCompletedEvent", "what a run should know goes into its inputs"),
        ("from crewlite import Knowledge", "what a run should know goes into its inputs"),
        ("from crewlite.project import crow", "cannot import name 'crow' from 'crewlite.project'"),
    ],
)
def test_an_import_of_what_is_not_here_says_what_to_write(line, told):
    with pytest.raises(ImportError) as caught:
        exec(line)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "name", ["long_term_memory", "short_term_memory", "external_memory", "memory_config", "config"]
)
def test_a_setting_of_a_crew_that_is_not_here_names_the_page_that_lists_it(name):
    with pytest.raises(ConfigError, match=rf"it has no field '{name}': .*; instead: .* \(docs/crewai-names.md\)"):
        Crew(tasks=[], **{name: "x"})


@pytest.mark.parametrize("name", ["replay", "query_knowledge"])
def test_a_verb_of_a_crew_that_is_not_here_says_what_to_write(name):
    agent = Agent(role="r", goal="g", llm="offline")
    crew = Crew(tasks=[Task(description="d", expected_output="x", agent=agent)])
    with pytest.raises(AttributeError, match=f"Crew has no {name!r}: "):
        getattr(crew, name)
    assert not hasattr(crew, "no_such_thing")
    for part, told in ((agent, "an agent is known by its role"), (crew.tasks[0], "a task is known by its name")):
        with pytest.raises(AttributeError, match=f"has no 'id': {told}"):
            part.id  # noqa: B018 - the attribute that is asked for
    assert crew.bound_to(None)._bound is None


@pytest.mark.parametrize(
    ("path", "name", "same"),
    [
        ("crewlite.crew", "Crew", Crew),
        ("crewlite.agent", "Agent", Agent),
        ("crewlite.task", "Task", Task),
        ("crewlite.llm", "LLM", crewlite.LLM),
        ("crewlite.llms.base_llm", "BaseLLM", crewlite.BaseLLM),
        ("crewlite.process", "Process", crewlite.Process),
        ("crewlite.tools.base_tool", "BaseTool", crewlite.BaseTool),
        ("crewlite.tools.base_tool", "tool", crewlite.tool),
        ("crewlite.tasks.task_output", "TaskOutput", crewlite.TaskOutput),
        ("crewlite.crews.crew_output", "CrewOutput", crewlite.CrewOutput),
        ("crewlite.flow.flow", "Flow", crewlite.Flow),
        ("crewlite.flow", "flow", flow),
        ("crewlite.flow.human_feedback", "human_feedback", human_feedback),
        ("crewlite.flow", "human_feedback", human_feedback),
        ("crewlite.agents.agent_builder.base_agent", "BaseAgent", Agent),
        ("crewlite.state.checkpoint_config", "CheckpointConfig", CheckpointConfig),
        ("crewlite.types.usage_metrics", "UsageMetrics", crewlite.Usage),
        ("crewlite.events", "crewai_event_bus", crewlite.event_bus),
        ("crewlite.events.event_bus", "crewai_event_bus", crewlite.event_bus),
        ("crewlite.utilities.events", "crewai_event_bus", crewlite.event_bus),
        ("crewlite.events", "CrewAIEventsBus", type(crewlite.event_bus)),
        ("crewlite.events.event_bus", "CrewAIEventsBus", type(crewlite.event_bus)),
        ("crewlite.utilities.events", "CrewAIEventsBus", type(crewlite.event_bus)),
        ("crewlite.utilities.events.crewai_event_bus", "CrewAIEventsBus", type(crewlite.event_bus)),
        ("crewlite.utilities.events", "TaskCompletedEvent", TaskCompletedEvent),
        ("crewlite.utilities.events.task_events", "TaskCompletedEvent", TaskCompletedEvent),
        ("crewlite.utilities.events.tool_usage_events", "ToolUsageStartedEvent", ToolUsageStartedEvent),
        ("crewlite.events.types.tool_usage_events", "ToolUsageStartedEvent", ToolUsageStartedEvent),
        ("crewlite.agent.core", "Agent", Agent),
        ("crewlite.tools.structured_tool", "CrewStructuredTool", FunctionTool),
        ("crewlite.events.base_event_listener", "BaseEventListener", BaseEventListener),
    ],
)
def test_a_path_of_crewai_leads_to_the_name_that_is_here(path, name, same):
    space = {}
    exec(f"from {path} import {name} as found", space)
    assert space["found"] is same


def test_a_name_is_not_hidden_by_the_module_of_the_same_name():
    space = {}
    exec("import crewlite.utilities.events.crewai_event_bus", space)
    exec("from crewlite.utilities.events.crewai_event_bus import crewai_event_bus as deep", space)
    exec("from crewlite.utilities.events import crewai_event_bus as near", space)
    assert space["deep"] is space["near"] is crewlite.event_bus


def test_every_name_on_a_path_of_crewai_is_there():
    for path, names in modules._PATHS.items():
        for name in names:
            assert name == "*" or getattr(importlib.import_module(path), name) is not None, f"{path}.{name}"


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


def test_a_module_that_nobody_has_is_missing_as_ever():
    with pytest.raises(ModuleNotFoundError, match="No module named 'crewlite.flow.no_such_thing'"):
        importlib.import_module("crewlite.flow.no_such_thing")
    assert importlib.util.find_spec("crewlite.no_such_thing") is None


def test_what_is_not_here_is_really_not_here():
    for name in coming_from._MODULE:
        assert name not in crewlite.__all__
        assert name not in importlib.import_module("crewlite.flow").__all__
    for kind, names in (("Crew", coming_from._RUN), ("Task", coming_from._TASK), ("Agent", coming_from._AGENT)):
        assert not [name for name in names if name in dir(getattr(crewlite, kind))]


@pytest.mark.parametrize(("kind", "result"), [(Crew, CrewOutput), (Agent, LiteAgentOutput)])
def test_every_attribute_of_a_result_is_known_where_a_definition_lacks_it(kind, result):
    public = {*result.model_fields, *(name for name in dir(result) if not name.startswith("_"))}
    assert {*coming_from._OF_RESULTS[kind.__name__]} == public - {*kind.model_fields} - {*dir(kind)}


def test_an_event_that_nothing_stands_for_gets_no_hint():
    with pytest.raises(
        ConfigError, match="'memory_save_started' is not an event that can create a checkpoint; known: "
    ):
        CheckpointConfig(on_events=["memory_save_started"])


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
