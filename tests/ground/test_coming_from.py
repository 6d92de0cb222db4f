"""Names of CrewAI's that are not here are told what to write instead."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
from pathlib import Path

import pytest

import crewlite
from crewlite import (
    Agent,
    BaseLLM,
    CheckpointConfig,
    ConditionalTask,
    Crew,
    CrewOutput,
    Flow,
    LiteAgentOutput,
    Task,
    coming_from,
    start,
)
from crewlite.agent.steps import AgentFinish
from crewlite.coming_from import modules, names, others
from crewlite.errors import ConfigError
from crewlite.events import (
    BaseEvent,
    BaseEventListener,
    ContextWindowSummarizationStartedEvent,
    PlanRefinementEvent,
    SigTermEvent,
    TaskCompletedEvent,
    ToolUsageStartedEvent,
)
from crewlite.flow import flow, human_feedback
from crewlite.knowledge import FileKnowledgeSource, KnowledgeConfig, KnowledgeSource, StringKnowledgeSource
from crewlite.state import BaseProvider, JsonProvider, SqliteProvider
from crewlite.tools.function import FunctionTool

ROOT = Path(crewlite.__file__).parent


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("from crewlite import MemorySaver", "checkpoint=CheckpointConfig(location='runs.db')"),
        ("from crewlite.flow import interrupt", "import ask: ask(question) waits for a person"),
        ("from crewlite.flow import sleep", "from crewlite.flow import sleep_for, sleep_until (docs/coming-from.md)"),
        ("from crewlite.utilities.printer import Printer", "progress is shown with verbose=True"),
        ("from crewlite.utilities.converter import Converter", "Task(output_pydantic=...)"),
        ("from crewlite.utilities.streaming import signal_end", "crew.stream(...)"),
        (
            "from crewlite.utilities.constants import NOT_SPECIFIED",
            "part of CrewAI's own works, and nothing stands for",
        ),
        ("from crewlite.experimental.evaluation import AgentEvaluator", "crew.test(...) scores answers"),
        ("from crewlite.tasks import Tusk", "'Tusk': it has ConditionalTask, TaskOutput (docs/crewai.md)"),
        ("from crewlite.utilities import RPMController", "max_rpm=... of a crew, a task or an agent (docs/crewai.md)"),
        ("from crewlite.utilities.prompts import Prompts", "Agent(system_template=..., prompt_template=...)"),
        ("from crewlite.utilities.paths import db_storage_path", "where CheckpointConfig(location=...) says"),
        ("from crewlite.utilities.evaluators.task_evaluator import TaskEvaluator", "crew.test(...) scores answers"),
        ("from crewlite.lite_agent import LiteAgent", "Agent(...).kickoff(text)"),
        ("from crewlite.agents import CrewAgentExecutor", "import AgentAction, AgentFinish"),
        ("from crewlite.events import MCPConnectionStartedEvent", "tools of an MCP client, such as LangChain's"),
        ("from crewlite.mcp import MCPServerStdio", "tools of an MCP client, such as LangChain's"),
        ("from crewlite.state import CheckpointEventType", "from crewlite.events import CheckpointEventType"),
        ("from crewlite.events import Depends", "in the order in which they subscribed"),
        ("from crewlite.events.types.memory_events import MemorySaveStartedEvent", "goes into its inputs"),
        ("from crewlite.flow import ConversationMessage", "continues a conversation (docs/crewai.md)"),
        ("from crewlite.flow.visualization import build_flow_structure", "flow.mermaid() the text"),
        ("from crewlite.llms.providers.openai.completion import OpenAICompletion", "LLM('provider/model')"),
        ("from crewlite.project.json_loader import load_jsonc_file", "load_crew(...)"),
        ("from crewlite.tools.tool_usage import ToolUsage", "a tool is called by crewlite alone"),
        ("from crewlite.tools.agent_tools.delegate_work_tool import DelegateWorkTool", "allow_delegation=True"),
        ("from crewlite.tasks.hallucination_guardrail import HallucinationGuardrail", "LLMGuardrail(...)"),
        ("from crewlite.agents.crew_agent_executor import ToolResult", "import AgentAction, AgentFinish"),
        ("import crewlite.flow.persistence.base", "a store of your own is a provider"),
        ("from crewlite.hooks import before_tool_call", "a guard refuses them, FailurePolicy(guards=[...])"),
        ("from crewlite.hooks import after_llm_call", "event_bus.on(LLMCallCompletedEvent)"),
        ("from crewlite.tools.tool_failure import ToolFailure", "BaseTool(failure_policy=...)"),
        ("from crewlite.utilities.exceptions.window import TooLong", "from crewlite.errors import ContextOverflow"),
        ("from crewlite.project import CrewDefinition", "crewlite.project has no 'CrewDefinition': load_crew"),
        (
            "from crewlite.tools import ToolFailure",
            "crewlite.tools has no 'ToolFailure': a tool that cannot do its work",
        ),
        ("from crewlite.events import MemoryQueryCompletedEvent", "what a run should remember goes into its inputs"),
        ("from crewlite.agent import CrewTrainingHandler", "crewlite.agent has no 'CrewTrainingHandler': crew.train"),
        ("from crewlite.crew import FlowTrackable", "cannot import name 'FlowTrackable' from 'crewlite.crew'"),
        (
            "from crewlite.task import Agent",
            "crewlite.task has no 'Agent': from crewlite import Agent (docs/crewai.md)",
        ),
        ("from crewlite.llm import StreamingChoices", "LLMStreamChunkEvent.chunk is the text of a piece"),
        ("from crewlite.events.event_bus import is_replaying", "that is used again emits StepReplayedEvent"),
        ("from crewlite.events.types.llm_events import LLMEventBase", "@event_bus.on(BaseEvent) (docs/crewai.md)"),
        ("from crewlite.events.types.llm_events import ToolCall", "from crewlite import ToolCall"),
        ("from crewlite.events.types.llm_events import LLMCallType", "is 'llm_call' or 'tool_call'"),
        ("from crewlite.events.types.llm_events import Nothing", "cannot import name 'Nothing' from"),
        ("from crewlite.events.types.crew_events import CrewBaseEvent", "crew_events has no 'CrewBaseEvent': handlers"),
        ("from crewlite.events.types.llm_guardrail_events import LLMGuardrailBaseEvent", "hear every event"),
        ("from crewlite.events.types.flow_events import ConversationTurnStartedEvent", "continues a conversation"),
        ("from crewlite.events.types.system_events import on_signal", "import SigTermEvent, SigIntEvent"),
        ("from crewlite import CrewBase", "crewlite has no 'CrewBase': from crewlite.project import CrewBase"),
        ("from crewlite import persist", "from crewlite.flow import persist (docs/crewai.md)"),
        ("from crewlite.utilities import BaseEventListener", "from crewlite.events import BaseEventListener"),
        ("from crewlite import Memory", "what a run should remember goes into its inputs"),
        ("import crewlite.knowledge.source.utils.source_helper", "from load_content, as in docs/knowledge.md (docs/"),
        ("import crewlite.knowledge.storage.knowledge_storage", "found by their words, without a store"),
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


MEMBERS = [(cls, name) for cls, told in names.MEMBERS.items() for name in told]


class Summary(Flow):
    @start()
    def write(self):
        return "x"


@crewlite.tool
def look_up(query: str) -> str:
    """Look it up."""
    return query


@pytest.fixture(scope="module")
def parts():
    """A definition, a model, a tool or a result of each kind, by the name of its class."""
    agent = Agent(role="r", goal="g", llm="offline")
    crew = Crew(tasks=[Task(description="d", expected_output="x", agent=agent)])
    result = crew.kickoff()
    also = ConditionalTask(description="d", expected_output="x", agent=agent, condition=lambda output: True)
    objects = [
        *(agent, crew, crew.tasks[0], also, Summary(), crewlite.LLM("openai/gpt-4o"), look_up, CheckpointConfig()),
        *(result, result.tasks_output[0], agent.kickoff("q"), result.token_usage, crewlite.event_bus, BaseEvent()),
    ]
    return {cls.__name__: one for one in objects for cls in type(one).__mro__ if cls.__module__.startswith("crewlite.")}


@pytest.mark.parametrize(("cls", "name"), MEMBERS, ids=".".join)
def test_a_method_or_field_that_is_not_here_says_what_to_write(cls, name, parts):
    with pytest.raises(AttributeError) as caught:
        getattr(parts[cls], name)
    assert (
        str(caught.value) == f"{type(parts[cls]).__name__} has no {name!r}: {names.MEMBERS[cls][name]} (docs/crewai.md)"
    )


@pytest.mark.parametrize("name", others.VERBS)
def test_a_verb_of_another_framework_says_what_to_write(name, parts):
    @flow
    def report():
        return "x"

    lacking = [one for one in (parts["Crew"], parts["Agent"], parts["Flow"], report) if name not in dir(one)]
    assert lacking[1:], "it is of one definition at most"
    for definition in lacking:
        with pytest.raises(AttributeError, match=rf"has no '{name}': .*\(docs/(coming-from|crewai).md\)$"):
            getattr(definition, name)


@pytest.mark.parametrize(
    ("cls", "name", "told"),
    [
        ("Crew", "memory", "a run knows its inputs and the outputs of its tasks"),
        ("Agent", "mcps", "agents have tools; instead: tools=[...]"),
        ("BaseTool", "env_vars", "a tool reads the environment itself"),
        ("LLM", "interceptor", "attempts can be wrapped; instead: crewlite.around(...)"),
        ("Task", "converter_cls", "the model is told what does not fit; instead: Task(output_pydantic=...)"),
    ],
)
def test_a_setting_that_is_not_here_says_so_where_it_is_read_too(cls, name, told, parts):
    with pytest.raises(AttributeError) as caught:
        getattr(parts[cls], name)
    assert f"{type(parts[cls]).__name__} has no {name!r}: {told}" in str(caught.value)
    assert str(caught.value).endswith(" (docs/crewai-names.md)")


def test_an_error_in_a_property_of_ones_own_is_told_as_it_is():
    class Echo(BaseLLM):
        def call(self, messages):
            return "x"

        @property
        def context_window_size(self):
            return self.sizes["x"]

        get_context_window_size = context_window_size.fget

    with pytest.raises(AttributeError, match="'Echo' object has no attribute 'sizes'"):
        _ = Echo().context_window_size
    with pytest.raises(AttributeError, match="'Echo' object has no attribute 'sizes'"):
        Echo().get_context_window_size()
    with pytest.raises(AttributeError, match="^Echo has no 'summarize_messages': what no longer fits is summarised"):
        Echo().summarize_messages([])


def test_what_nobody_has_is_missing_as_ever(parts):
    for cls in names.MEMBERS:
        with pytest.raises(AttributeError) as caught:
            _ = parts[cls].no_such_thing
        assert str(caught.value) == f"{type(parts[cls]).__name__!r} object has no attribute 'no_such_thing'"
    assert parts["Crew"].bound_to(None)._bound is None


@pytest.mark.parametrize(
    ("path", "name", "same"),
    [
        ("crewlite.crew", "Crew", Crew),
        ("crewlite.agent", "Agent", Agent),
        ("crewlite.task", "Task", Task),
        ("crewlite.llm", "LLM", crewlite.LLM),
        ("crewlite.llms.base_llm", "BaseLLM", crewlite.BaseLLM),
        ("crewlite.process", "Process", crewlite.Process),
        ("crewlite.knowledge.knowledge", "Knowledge", crewlite.Knowledge),
        ("crewlite.knowledge.knowledge_config", "KnowledgeConfig", KnowledgeConfig),
        ("crewlite.knowledge.source.base_knowledge_source", "BaseKnowledgeSource", KnowledgeSource),
        ("crewlite.knowledge.source.string_knowledge_source", "StringKnowledgeSource", StringKnowledgeSource),
        ("crewlite.knowledge.source.pdf_knowledge_source", "PDFKnowledgeSource", FileKnowledgeSource),
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
        ("crewlite.agent.planning_config", "PlanningConfig", crewlite.PlanningConfig),
        ("crewlite.agents", "AgentFinish", AgentFinish),
        (
            "crewlite.events.types.llm_events",
            "ContextWindowSummarizationStartedEvent",
            ContextWindowSummarizationStartedEvent,
        ),
        ("crewlite.events.types.observation_events", "PlanRefinementEvent", PlanRefinementEvent),
        ("crewlite.events.types.system_events", "SigTermEvent", SigTermEvent),
        ("crewlite.flow.runtime", "Flow", crewlite.Flow),
        ("crewlite.flow.dsl", "listen", crewlite.listen),
        ("crewlite.state.provider.core", "BaseProvider", BaseProvider),
        ("crewlite.state.provider.json_provider", "JsonProvider", JsonProvider),
        ("crewlite.state.provider.sqlite_provider", "SqliteProvider", SqliteProvider),
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
    for path, there in modules._PATHS.items():
        for name in there:
            assert name == "*" or getattr(importlib.import_module(path), name) is not None, f"{path}.{name}"


def test_a_module_that_nobody_has_is_missing_as_ever():
    with pytest.raises(ModuleNotFoundError, match="No module named 'crewlite.flow.no_such_thing'"):
        importlib.import_module("crewlite.flow.no_such_thing")
    assert importlib.util.find_spec("crewlite.no_such_thing") is None


def test_what_is_not_here_is_really_not_here(parts):
    for package in ("crewlite", "crewlite.flow", "crewlite.tools", "crewlite.state", "crewlite.project"):
        there = {*importlib.import_module(package).__all__}
        assert not there.intersection((*names.IMPORTS, *others.IMPORTS))
    for kind, told in names.MEMBERS.items():
        its_class = next(cls for cls in type(parts[kind]).__mro__ if cls.__name__ == kind)
        assert not [name for name in told if name in dir(its_class)]
    files = {path.relative_to(ROOT).with_suffix("").as_posix() for path in ROOT.rglob("*.py")}
    assert not [path for path in names.MODULES if path.replace(".", "/") in files]


@pytest.mark.parametrize(("kind", "result"), [(Crew, CrewOutput), (Agent, LiteAgentOutput)])
def test_every_attribute_of_a_result_is_known_where_a_definition_lacks_it(kind, result):
    public = {*result.model_fields, *(name for name in dir(result) if not name.startswith("_"))}
    assert {*coming_from._OF_RESULTS[kind.__name__]} == public - {*kind.model_fields} - {*dir(kind)}


def test_an_event_that_nothing_stands_for_gets_no_hint():
    with pytest.raises(
        ConfigError, match="'memory_save_started' is not an event that can create a checkpoint; known: "
    ):
        CheckpointConfig(on_events=["memory_save_started"])


def test_whoever_looks_through_all_modules_finds_a_name_missing_in_the_paths_of_crewai():
    """As `pickle` does for an object whose module it does not know."""
    for name in (*modules._PATHS, "crewlite.utilities"):
        assert not hasattr(importlib.import_module(name), "no_such_name"), name
        with pytest.raises(ImportError, match="no_such_name"):
            exec(f"from {name} import no_such_name")
    nowhere = eval("lambda: 1", {"__name__": None})
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(nowhere)
