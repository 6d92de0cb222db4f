"""The kinds of steps, in one table with their properties, so that no other code compares names of kinds.

A record holds only the names of kinds, perhaps some that a later release of crewlite has added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

Json = Any


def _whole(outcome: Json) -> Json:
    return outcome


class Kind(NamedTuple):
    """The properties that all steps of one kind share."""

    name: str
    """The name in addresses and in the record."""
    title: str
    """The name in messages to people."""
    given: Callable[[Json], Json] = _whole
    """Returns the part of a recorded outcome that is passed to other steps."""
    holds_value: bool = False
    """Whether the recorded outcome is the encoded value that the user's code returned."""
    asks_person: bool = False
    """Whether a person answers the step, perhaps only after a resume, and perhaps before the question is asked."""
    waits: bool = False
    """Whether the outcome may be recorded long after those of steps that were requested later."""
    needs_no_work: bool = False
    """Whether the outcome is known without executing the step."""
    is_task: bool = False
    """Whether the step is a task. A run counts finished tasks."""
    asks_model: bool = False
    """Whether the step is one call of a model, to which budgets apply."""
    is_call: bool = False
    """Whether the step is a call of a tool, which may kick off a crew of its own."""
    enters: bool = False
    """Whether its own code, between the steps inside it, has no side effects, so that a preview may execute it."""
    rebuilt: bool = False
    """Whether a definition of this kind can be rebuilt from the record of its run."""
    heard: bool = True
    """Whether the outcome is part of what later model calls of the same parent are asked."""
    is_aside: bool = False
    """Whether the models that the step asks talk about the work, so that their replies are no part of the answer."""
    is_about_failure: bool = False
    """Whether the step is about a failed attempt. If the attempt does not fail again, the code does not request it."""
    is_uncaught: bool = False
    """Whether no code can handle the failure of such a step, so that each kickoff tries it again."""
    takes_key: bool = False
    """Whether the user's code requests such steps, and may give them a key."""
    takes_messages: bool = False
    """Whether a definition of this kind takes messages instead of named inputs."""
    is_flow: bool = False
    """Whether its own code is that of a flow: it only leads from one step inside it to the next. So the kickoff after
    it has failed for good goes on in it, and takes what is finished there from the record."""
    worker: Literal["", "model", "code"] = ""
    """Who works in the step: an agent with its model, or code. Steps with a worker are the units of work, which
    remedies such as Replan run again. A second attempt at the work of an agent executes all its steps again."""

    def __str__(self) -> str:
        return self.name


AGENT = Kind("agent", "agent", rebuilt=True, takes_messages=True, takes_key=True, worker="model")
CALLBACK = Kind("callback", "callback", heard=False)
CLASSIFICATION = Kind("classify", "classification", heard=False, is_aside=True, is_about_failure=True)
COMPENSATION = Kind("compensate", "compensation", heard=False, is_about_failure=True)
CONDITION = Kind("condition", "condition", holds_value=True, heard=False)
CREW = Kind("crew", "crew", enters=True, rebuilt=True, takes_key=True)
DECISION = Kind("decision", "decision", heard=False, is_aside=True, is_about_failure=True)
EVALUATION = Kind("evaluation", "evaluation", holds_value=True, heard=False, is_aside=True)
FLOW = Kind("flow", "flow", enters=True, is_flow=True, takes_key=True, worker="code")
GUARDRAIL = Kind("guardrail", "guardrail", holds_value=True, is_aside=True)
HUMAN = Kind("human", "human", given=lambda outcome: outcome.get("answer"), asks_person=True, waits=True)
LLM = Kind("llm", "model", asks_model=True)
MESSAGE = Kind("message", "message")
METHOD = Kind("method", "method", holds_value=True, is_uncaught=True, is_flow=True, worker="code")
OBSERVATION = Kind("observation", "observation", is_aside=True)
PLAN = Kind("plan", "plan", holds_value=True, heard=False, is_aside=True, worker="model")
REASONING = Kind("reasoning", "reasoning", is_aside=True)
STEP = Kind("step", "step", holds_value=True, takes_key=True, worker="code")
SUMMARY = Kind("summary", "summary", is_aside=True)
TASK = Kind("task", "task", given=lambda outcome: outcome["raw"], is_task=True, worker="model")
TIMER = Kind("timer", "timer", waits=True, needs_no_work=True)
TOOL = Kind("tool", "tool", is_call=True)
TRIAL = Kind("trial", "trial", enters=True)
TURN = Kind("turn", "turn")

_ALL = (
    *(AGENT, CALLBACK, CLASSIFICATION, COMPENSATION, CONDITION, CREW, DECISION, EVALUATION, FLOW, GUARDRAIL, HUMAN),
    *(LLM, MESSAGE, METHOD, OBSERVATION, PLAN, REASONING, STEP, SUMMARY, TASK, TIMER, TOOL, TRIAL, TURN),
)
_KNOWN = {kind.name: kind for kind in _ALL}


def of(name: str) -> Kind:
    """Return the kind with this name; for an unknown name, a kind that has no special properties."""
    return _KNOWN.get(str(name)) or Kind(str(name), str(name))


def has_methods(definition: Mapping[str, Any]) -> bool:
    """Return whether the steps of a recorded definition are methods: whether it is a flow made from a class."""
    return "methods" in definition


def at(address: str) -> Kind:
    """Return the kind of the step at an address."""
    return of(address.rpartition("/")[2].partition("!")[0].partition("#")[0].partition(":")[0])
