"""Names of CrewAI that crewlite does not have, and what to write instead.

Each line states a fact about this release. If crewlite has nothing in place of a name, its line only says so.
"""

from __future__ import annotations

_MODULE: dict[str, str] = {
    "Flow": "a flow is a function here: from crewlite.flow import flow, step",
    "start": "a flow is a function here, which calls its steps: from crewlite.flow import flow, step",
    "listen": "a flow is a function here, which calls its steps: from crewlite.flow import flow, step",
    "router": "a flow is a function here, which chooses with `if`: from crewlite.flow import flow, step",
    "or_": "a flow is a function here: from crewlite.flow import flow, step",
    "and_": "a flow is a function here: from crewlite.flow import flow, step",
    "persist": "a flow is kept with @flow(checkpoint=True): from crewlite.flow import flow",
    "human_feedback": "a flow asks people with ask: from crewlite.flow import ask",
    "CrewBase": "a crew is made in Python, Crew(agents=[...], tasks=[...]); there are no YAML files",
    "project": "a crew is made in Python, Crew(agents=[...], tasks=[...]); there are no decorators for it",
    "crewai_event_bus": "it is event_bus: from crewlite import event_bus",
    "BaseEventListener": "handlers are functions: @event_bus.on(TaskCompletedEvent)",
}
_FILES: dict[str, str] = {
    "crewlite.flow.flow": "a flow is a function here: from crewlite.flow import flow, step",
    "crewlite.flow.persistence": _MODULE["persist"],
    "crewlite.flow.human_feedback": _MODULE["human_feedback"],
    "crewlite.events.base_event_listener": _MODULE["BaseEventListener"],
    "crewlite.events.base_events": "from crewlite.events import BaseEvent",
    "crewlite.utilities": "events: from crewlite.events import ...; the bus: from crewlite import event_bus",
    "crewlite.tools.base_tool": "from crewlite import BaseTool",
    "crewlite.tasks": "from crewlite import TaskOutput",
    "crewlite.process": "from crewlite import Process",
}
_RUN: dict[str, str] = {
    "kickoff_async": "await akickoff(...)",
    "usage_metrics": "the result has it: crew.kickoff(...).token_usage",
    "replay": "fork a checkpoint: crew.fork(ref).kickoff(), or crewlite checkpoint fork",
    "train": "there is no training",
    "test": "there is no evaluation",
}
_TASK: dict[str, str] = {
    "execute": "a task runs in a crew: Crew(tasks=[task]).kickoff()",
    "execute_sync": "a task runs in a crew: Crew(tasks=[task]).kickoff()",
    "execute_async": "a task runs in a crew: await Crew(tasks=[task]).akickoff()",
    "output": "the result has it: crew.kickoff(...).tasks_output",
}
_AGENT: dict[str, str] = {
    "execute_task": "an agent answers with agent.kickoff('a question'), or runs a task in a crew",
    "kickoff_async": "await akickoff(...)",
}
_EVENTS: dict[str, str] = {
    "method_execution_started": "step_started",
    "method_execution_finished": "step_completed",
    "method_execution_failed": "step_failed",
    "method_execution_paused": "flow_paused",
    "flow_input_requested": "human_feedback_requested",
    "flow_input_received": "human_feedback_received",
}
_OF = {"Crew": _RUN, "Task": _TASK, "Agent": _AGENT}


def missing_import(module: str, name: str) -> ImportError | None:
    """Build the error for a name of CrewAI that a module of crewlite lacks; None for any other name.

    It is an ImportError, because `from crewlite import ...` replaces the text of an AttributeError.
    """
    return ImportError(f"{module} has no {name!r}: {instead}") if (instead := _MODULE.get(name)) else None


def missing_module(name: str) -> ModuleNotFoundError | None:
    """Build the error for a module of CrewAI that crewlite lacks; None for any other module."""
    if instead := _FILES.get(name):
        return ModuleNotFoundError(f"There is no module {name!r}: {instead}", name=name)
    return None


def instead_of(kind: type, attribute: str) -> str | None:
    """Return what to write instead of a method or field of CrewAI; None for any other attribute."""
    return next((_OF[cls.__name__].get(attribute) for cls in kind.__mro__ if cls.__name__ in _OF), None)


def event(name: str) -> str | None:
    """Return the name of the event that CrewAI calls `name`; None if the names are equal or there is none."""
    return _EVENTS.get(name)
