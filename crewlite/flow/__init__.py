"""Plain Python functions as durable runs: `@flow` for the run, `@step` for work that must not be done twice."""

from crewlite.coming_from import missing_import
from crewlite.durable import bound
from crewlite.flow.function import FlowFunction, flow
from crewlite.flow.steps import StepFunction, step
from crewlite.flow.timer import sleep_for
from crewlite.runtime.executors import Executor, Job
from crewlite.runtime.future import StepFuture, StepFutures
from crewlite.runtime.handle import RunHandle as FlowHandle
from crewlite.runtime.human import ask

__all__ = [
    "Executor",
    "FlowFunction",
    "FlowHandle",
    "Job",
    "StepFunction",
    "StepFuture",
    "StepFutures",
    "ask",
    "bound",
    "flow",
    "sleep_for",
    "step",
]


def __getattr__(name: str) -> None:
    raise missing_import("crewlite.flow", name) or AttributeError(f"crewlite.flow has no {name!r}")
