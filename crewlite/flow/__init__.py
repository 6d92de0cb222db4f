"""Plain Python functions and classes as durable runs: `@flow`, or `class MyFlow(Flow)`; `@step` for work in them."""

import sys
from types import ModuleType

from crewlite.coming_from import missing_import
from crewlite.concurrency.own_threads import bound
from crewlite.errors import WrongArguments
from crewlite.flow.classes.base import Flow
from crewlite.flow.classes.conditions import and_, or_
from crewlite.flow.classes.feedback import HumanFeedbackResult
from crewlite.flow.classes.methods import human_feedback, listen, router, start
from crewlite.flow.classes.persisting import persist
from crewlite.flow.classes.state import FlowState
from crewlite.flow.function import FlowFunction, flow
from crewlite.flow.recovering import (
    RecoverableFunction,
    record_step,
    recoverable,
    recovery,
    recovery_hint,
    update_state,
)
from crewlite.flow.steps import StepFunction, step
from crewlite.flow.timer import sleep_for, sleep_until
from crewlite.runtime.kickoffs.handle import RunHandle as FlowHandle
from crewlite.runtime.people.human import ask
from crewlite.runtime.steps.executors import Executor, Job
from crewlite.runtime.steps.future import StepFuture, StepFutures
from crewlite.runtime.steps.keyed import keyed
from crewlite.runtime.steps.reporting import report

__all__ = [
    "Executor",
    "Flow",
    "FlowFunction",
    "FlowHandle",
    "FlowState",
    "HumanFeedbackResult",
    "Job",
    "RecoverableFunction",
    "StepFunction",
    "StepFuture",
    "StepFutures",
    "and_",
    "ask",
    "bound",
    "flow",
    "human_feedback",
    "keyed",
    "listen",
    "or_",
    "persist",
    "record_step",
    "recoverable",
    "recovery",
    "recovery_hint",
    "report",
    "router",
    "sleep_for",
    "sleep_until",
    "start",
    "step",
    "update_state",
]


class _Package(ModuleType):
    def __call__(self, *args: object, **options: object) -> None:
        raise WrongArguments(
            "crewlite.flow", "is a module, and was called as a decorator", "write `from crewlite.flow import flow`"
        )

    def __setattr__(self, name: str, value: object) -> None:
        """Let a name of this package stay what it is when a module of the same name is imported, as in CrewAI."""
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> None:
    raise missing_import("crewlite.flow", name) or AttributeError(f"crewlite.flow has no {name!r}")
