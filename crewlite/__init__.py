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
    from crewlite.concurrency.own_threads import bound as bound
    from crewlite.crew.crew import Crew as Crew
    from crewlite.crew.output import CrewOutput as CrewOutput
    from crewlite.crew.process import Process as Process
    from crewlite.durable import idempotency_key as idempotency_key
    from crewlite.encoding.codec import register as register
    from crewlite.events.event_bus import event_bus as event_bus
    from crewlite.flow.classes.base import Flow as Flow
    from crewlite.flow.classes.conditions import and_ as and_, or_ as or_
    from crewlite.flow.classes.methods import listen as listen, router as router, start as start
    from crewlite.flow.steps import step as step
    from crewlite.knowledge.knowledge import Knowledge as Knowledge
    from crewlite.llm.base import BaseLLM as BaseLLM, LLMReply as LLMReply, ToolCall as ToolCall
    from crewlite.llm.model import LLM as LLM
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

_NAMES = {
    "agent.agent": "Agent PlanningConfig",
    "agent.guardrail": "LLMGuardrail",
    "agent.output": "LiteAgentOutput",
    "attempt_hooks": "AttemptInfo around",
    "concurrency.own_threads": "bound",
    "crew.crew": "Crew",
    "crew.output": "CrewOutput",
    "crew.process": "Process",
    "durable": "idempotency_key",
    "encoding.codec": "register",
    "events.event_bus": "event_bus",
    "flow": "Flow and_ listen or_ router start step",
    "knowledge.knowledge": "Knowledge",
    "llm.base": "BaseLLM LLMReply ToolCall",
    "llm.model": "LLM",
    "recovery": "FailurePolicy",
    "runtime.people.human": "ask",
    "runtime.steps.reporting": "report",
    "state.config": "CheckpointConfig",
    "state.history": "History",
    "state.runtime": "RuntimeState",
    "task.output": "TaskOutput",
    "task.task": "ConditionalTask Task",
    "tools.base": "BaseTool",
    "tools.function": "tool",
    "usage": "Usage",
}

__all__ = [*sorted(" ".join(_NAMES.values()).split()), "__version__"]  # noqa: PLE0604 - the names of the table, all text


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
    return importlib.import_module("crewlite.lazy").first_use("crewlite", _NAMES)[1](name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
