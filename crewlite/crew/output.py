"""What a crew's kickoff returns."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from crewlite.coming_from import Hinting
from crewlite.encoding import codec
from crewlite.step_parts import Durability
from crewlite.task.output import Structured, TaskOutput
from crewlite.usage import Usage


@codec.register
class CrewOutput(Hinting, Structured, BaseModel):  # type: ignore[misc]  # BaseModel.json is deprecated
    """A crew's result: the last task's answer, and every task's. `result["research"]` is the output of that task.

    A name that no task has is looked up in the structured answer: `result["total"]`.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, defer_build=True)

    raw: str = ""
    pydantic: Any = None
    json_dict: dict[str, Any] | None = None
    tasks_output: tuple[TaskOutput, ...] = ()
    token_usage: Usage = Field(default_factory=Usage)
    """The usage of this kickoff and all work inside it, with earlier kickoffs of the run. Inside another run it is a
    part of that run's usage, which counts it once."""
    own_usage: Usage = Field(default_factory=Usage)
    """Of a fork, the usage without what had been paid when it was forked; else the same as `token_usage`."""
    run_id: str | None = None
    drifted: tuple[str, ...] = ()
    """Addresses of the tasks whose recorded answers were kept, though they are asked something else now. The
    `description` of each of their outputs is what it answered."""
    durability: Durability = "off"
    """sync: all of it was saved before it was used. degraded: something was not. off: nothing was to be saved."""

    @property
    def usage_metrics(self) -> dict[str, int]:
        """The counts of `token_usage` as a plain dict, under CrewAI's names."""
        return self.token_usage.metrics()

    def __getitem__(self, name: str) -> Any:
        named = [output for output in self.tasks_output if output.name == name]
        if len(named) > 1:
            raise KeyError(f"{len(named)} tasks are named {name!r}: take one by its place, result.tasks_output[0]")
        if named:
            return named[0]
        fields = self._fields()
        if name in fields:
            return fields[name]
        names = ", ".join(output.name for output in self.tasks_output if output.name) or "none has a name"
        also = f"; its answer has {', '.join(fields)}" if fields else ""
        raise KeyError(f"No task named {name!r} (tasks: {names}){also}")
