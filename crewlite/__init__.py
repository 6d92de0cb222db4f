"""Crews of LLM agents whose runs survive: a run that was killed anywhere resumes without paying twice.

```python
from crewlite import Agent, Crew, Task
```

Names are imported at their first use, so that importing crewlite itself is fast.
"""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False  # type checkers take this for typing.TYPE_CHECKING, whose module is slow to import

if TYPE_CHECKING:
    from typing import Any

    from crewlite.agent.agent import Agent as Agent, PlanningConfig as PlanningConfig
    from crewlite.agent.guardrail import LLMGuardrail as LLMGuardrail
    from crewlite.agent.output import LiteAgentOutput as LiteAgentOutput
    from crewlite.attempt_hooks import AttemptInfo as AttemptInfo, around as around
    from crewlite.codec import register as register
    from crewlite.crew.crew import Crew as Crew, Process as Process
    from crewlite.crew.output import CrewOutput as CrewOutput
    from crewlite.durable import idempotency_key as idempotency_key
    from crewlite.events.event_bus import event_bus as event_bus
    from crewlite.flow.classes.base import Flow as Flow
    from crewlite.flow.classes.conditions import and_ as and_, or_ as or_
    from crewlite.flow.classes.methods import listen as listen, router as router, start as start
    from crewlite.flow.steps import step as step
    from crewlite.llm.base import BaseLLM as BaseLLM, LLMReply as LLMReply, ToolCall as ToolCall
    from crewlite.llm.model import LLM as LLM
    from crewlite.own_threads import bound as bound
    from crewlite.recovery import FailurePolicy as FailurePolicy
    from crewlite.runtime.people.human import ask as ask
    from crewlite.runtime.steps.reporting import report as report
    from crewlite.state.config import CheckpointConfig as CheckpointConfig
    from crewlite.state.history import History as History
    from crewlite.state.runtime import RuntimeState as RuntimeState
    from crewlite.task.output import TaskOutput as TaskOutput
    from crewlite.task.task import ConditionalTask as ConditionalTask, Task as Task
    from crewlite.tools.base import BaseTool as BaseTool
    from crewlite.tools.function import tool as tool
    from crewlite.usage import Usage as Usage

__version__ = "0.1.0"

_HOMES = {
    "Agent": "crewlite.agent.agent",
    "AttemptInfo": "crewlite.attempt_hooks",
    "BaseLLM": "crewlite.llm.base",
    "BaseTool": "crewlite.tools.base",
    "CheckpointConfig": "crewlite.state.config",
    "ConditionalTask": "crewlite.task.task",
    "Crew": "crewlite.crew.crew",
    "CrewOutput": "crewlite.crew.output",
    "FailurePolicy": "crewlite.recovery",
    "Flow": "crewlite.flow",
    "History": "crewlite.state.history",
    "LLM": "crewlite.llm.model",
    "LLMGuardrail": "crewlite.agent.guardrail",
    "PlanningConfig": "crewlite.agent.agent",
    "LLMReply": "crewlite.llm.base",
    "LiteAgentOutput": "crewlite.agent.output",
    "Process": "crewlite.crew.crew",
    "RuntimeState": "crewlite.state.runtime",
    "Task": "crewlite.task.task",
    "TaskOutput": "crewlite.task.output",
    "ToolCall": "crewlite.llm.base",
    "Usage": "crewlite.usage",
    "and_": "crewlite.flow",
    "around": "crewlite.attempt_hooks",
    "ask": "crewlite.runtime.people.human",
    "bound": "crewlite.own_threads",
    "event_bus": "crewlite.events.event_bus",
    "idempotency_key": "crewlite.durable",
    "listen": "crewlite.flow",
    "or_": "crewlite.flow",
    "register": "crewlite.codec",
    "report": "crewlite.runtime.steps.reporting",
    "router": "crewlite.flow",
    "start": "crewlite.flow",
    "step": "crewlite.flow",
    "tool": "crewlite.tools.function",
}

__all__ = [*sorted(_HOMES), "__version__"]  # noqa: PLE0604 - the names of the table, all text


class _Missing:
    """The last finder of modules: finds a path of CrewAI's, or raises an error that says what to write instead."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> Any:
        if not name.startswith("crewlite."):
            return None
        if spec := importlib.import_module("crewlite.coming_from.modules").spec_of(name):
            return spec
        if error := importlib.import_module("crewlite.coming_from").missing_module(name):
            raise error
        return None


sys.meta_path.append(_Missing)


def __getattr__(name: str) -> Any:
    return importlib.import_module("crewlite.lazy").first_use("crewlite", _HOMES)(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
