"""Import paths of CrewAI: a program keeps its import paths, and gets the names from their modules in crewlite.

There are no files for these paths. A module is created when a program imports it; the paths above it are packages.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

from crewlite.coming_from import PAGE, missing_import, missing_module

_EVENTS = {"*": "crewlite.events"}
_KINDS_OF_SOURCES = ("base", "base_file", "csv", "excel", "json", "pdf", "string", "text_file")
_FAMILIES_OF_EVENTS = ("agent", "crew", "flow", "knowledge", "llm", "llm_guardrail", "reasoning", "task", "tool_usage")
_FILES = "crewlite.knowledge.sources:FileKnowledgeSource"
_OF_FILES = ("BaseFile", "CSV", "Excel", "JSON", "PDF", "TextFile")
_SOURCES = {
    "BaseKnowledgeSource": "crewlite.knowledge.sources:KnowledgeSource",
    "StringKnowledgeSource": "crewlite.knowledge.sources",
    "CrewDoclingSource": _FILES,
    **{f"{kind}KnowledgeSource": _FILES for kind in _OF_FILES},
}
_PATHS: dict[str, Mapping[str, str]] = {
    "crewlite.agent.planning_config": {"PlanningConfig": "crewlite.agent.agent"},
    "crewlite.agents": {"AgentAction": "crewlite.agent.steps", "AgentFinish": "crewlite.agent.steps"},
    "crewlite.agent.core": {"Agent": "crewlite.agent.agent"},
    "crewlite.agents.agent_builder.base_agent": {"BaseAgent": "crewlite.agent.agent:Agent"},
    "crewlite.agents.parser": {"AgentAction": "crewlite.agent.steps", "AgentFinish": "crewlite.agent.steps"},
    "crewlite.crews": {"CrewOutput": "crewlite.crew.output"},
    "crewlite.crews.crew_output": {"CrewOutput": "crewlite.crew.output"},
    "crewlite.events.base_event_listener": {"BaseEventListener": "crewlite.events.event_bus"},
    "crewlite.events.base_events": {"BaseEvent": "crewlite.events.base"},
    "crewlite.events.types.llm_guardrail_events": {"*": "crewlite.events.types.guardrail_events"},
    "crewlite.events.types.observation_events": {"*": "crewlite.events.types.reasoning_events"},
    "crewlite.events.types.system_events": {"*": "crewlite.events.types.signal_events"},
    "crewlite.events.types.tool_usage_events": {"*": "crewlite.events.types.tool_events"},
    "crewlite.flow.flow": {"*": "crewlite.flow"},
    "crewlite.flow.dsl": {"*": "crewlite.flow"},
    "crewlite.flow.runtime": {"Flow": "crewlite.flow", "FlowState": "crewlite.flow"},
    "crewlite.flow.persistence": {
        "SQLiteFlowPersistence": "crewlite.flow.classes.persisting",
        "persist": "crewlite.flow",
    },
    "crewlite.flow.persistence.decorators": {"persist": "crewlite.flow"},
    "crewlite.flow.persistence.sqlite": {"SQLiteFlowPersistence": "crewlite.flow.classes.persisting"},
    "crewlite.flow.human_feedback": {"HumanFeedbackResult": "crewlite.flow", "human_feedback": "crewlite.flow"},
    "crewlite.knowledge.knowledge_config": {"KnowledgeConfig": "crewlite.knowledge.knowledge"},
    "crewlite.knowledge.source": _SOURCES,
    "crewlite.knowledge.source.crew_docling_source": _SOURCES,
    **{f"crewlite.knowledge.source.{kind}_knowledge_source": _SOURCES for kind in _KINDS_OF_SOURCES},
    "crewlite.lite_agent": {"LiteAgentOutput": "crewlite.agent.output"},
    "crewlite.lite_agent_output": {"LiteAgentOutput": "crewlite.agent.output"},
    "crewlite.llms": {"BaseLLM": "crewlite.llm.base"},
    "crewlite.llms.base_llm": {"BaseLLM": "crewlite.llm.base"},
    "crewlite.process": {"Process": "crewlite.crew.process"},
    "crewlite.project.annotations": {"*": "crewlite.project"},
    "crewlite.project.crew_base": {"CrewBase": "crewlite.project"},
    "crewlite.state.checkpoint_config": {"CheckpointConfig": "crewlite.state.config"},
    "crewlite.state.provider": {"BaseProvider": "crewlite.state"},
    "crewlite.state.provider.core": {"BaseProvider": "crewlite.state"},
    "crewlite.state.provider.json_provider": {"JsonProvider": "crewlite.state"},
    "crewlite.state.provider.sqlite_provider": {"SqliteProvider": "crewlite.state"},
    "crewlite.tasks": {"ConditionalTask": "crewlite.task.task", "TaskOutput": "crewlite.task.output"},
    "crewlite.tasks.conditional_task": {"ConditionalTask": "crewlite.task.task"},
    "crewlite.tasks.llm_guardrail": {"LLMGuardrail": "crewlite.agent.guardrail"},
    "crewlite.tasks.task_output": {"TaskOutput": "crewlite.task.output"},
    "crewlite.tools.base_tool": {
        "BaseTool": "crewlite.tools.base",
        "EnvVar": "crewlite.tools.env_var",
        "Tool": "crewlite.tools.function:FunctionTool",
        "tool": "crewlite.tools.function",
    },
    "crewlite.tools.structured_tool": {"CrewStructuredTool": "crewlite.tools.function:FunctionTool"},
    "crewlite.types.streaming": {
        "CrewStreamingOutput": "crewlite.runtime.kickoffs.chunks:StreamingOutput",
        "FlowStreamingOutput": "crewlite.runtime.kickoffs.chunks:StreamingOutput",
        **dict.fromkeys(("StreamChunk", "StreamChunkType", "ToolCallChunk"), "crewlite.runtime.kickoffs.chunks"),
    },
    "crewlite.types.usage_metrics": {"UsageMetrics": "crewlite.usage:Usage"},
    "crewlite.utilities.events": _EVENTS,
    **{f"crewlite.utilities.events.{family}_events": _EVENTS for family in _FAMILIES_OF_EVENTS},
    "crewlite.utilities.events.base_event_listener": {"BaseEventListener": "crewlite.events.event_bus"},
    "crewlite.utilities.events.base_events": {"BaseEvent": "crewlite.events.base"},
    "crewlite.utilities.events.crewai_event_bus": {
        "CrewAIEventsBus": "crewlite.events.event_bus",
        "crewai_event_bus": "crewlite.events.event_bus",
    },
    "crewlite.utilities.types": {"LLMMessage": "crewlite.llm.base:Message"},
}


def spec_of(name: str) -> ModuleSpec | None:
    """Return the spec of a module for an import path of CrewAI; None for any other path.

    All are packages: for a name that a package lacks, `from package import name` looks for a module, and shows the
    ImportError that is raised here. Whoever asks the package for an attribute gets an AttributeError.
    """
    if name in _PATHS or any(path.startswith(f"{name}.") for path in _PATHS):
        return ModuleSpec(name, cast(Any, _Loader()), is_package=True)
    package, _, last = name.rpartition(".")
    if isinstance(sys.modules.get(package), _Path) and "*" not in _PATHS.get(package, {}):
        said = missing_module(name) or _has_no(package, last)  # the import system drops an error that names its module
        raise missing_import(package, last) or ModuleNotFoundError(str(said))
    return None


def _has_no(module: str, name: str) -> str:
    names = _PATHS.get(module, {})
    has = f"it has {', '.join(names)}" if names else "nothing of it is here"
    return f"{module} has no {name!r}: {has} ({PAGE})"


class _Loader:
    """Creates the module of an import path. No subclass of `importlib.abc.Loader`, whose module is slow to import."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Path(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing, as the module has no code."""


class _Path(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        names = _PATHS.get(self.__name__, {})
        home = names.get(name) or names.get("*")
        if home is None:
            raise AttributeError(_has_no(self.__name__, name))
        module, _, other = home.partition(":")
        return getattr(importlib.import_module(module), other or name)

    def __setattr__(self, name: str, value: object) -> None:
        """Let a name of this module stay what it is when a submodule of the same name is imported, as in CrewAI."""
        if not (isinstance(value, _Path) and name in _PATHS.get(value.__name__, {})):
            super().__setattr__(name, value)
