"""The kinds of steps, in one table: what tells them apart, so that no other code compares their names.

A record holds names of kinds. `of` gives the kind of a name, also of one that only a later release knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Json = Any


def _whole(outcome: Json) -> Json:
    return outcome


@dataclass(frozen=True, slots=True)
class Kind:
    """What all steps of one kind have in common."""

    name: str
    """As addresses and the record have it."""
    title: str
    """What people call it."""
    given: Callable[[Json], Json] = _whole
    """What other steps are given of a recorded outcome."""
    holds_value: bool = False
    """Its recorded outcome is the coded value itself: code of the user returned it."""
    asks_person: bool = False
    """A person answers it, perhaps in another life of the run, and perhaps before it is asked."""
    waits: bool = False
    """Its outcome may be recorded long after those of steps that were asked for later."""
    needs_no_work: bool = False
    """What it comes to is known without doing it."""
    is_task: bool = False
    """It is a task, whose completion a run counts."""
    is_call: bool = False
    """It is a call of a tool, which may kick off a crew of its own."""
    enters: bool = False
    """Between the steps that it asks for there is only code without effects, so a preview goes through it."""
    begins_anew: bool = False
    """As a whole run, a second attempt asks everything again."""
    rebuilt: bool = False
    """A definition of this kind can be made again from what its run recorded."""
    heard: bool = True
    """What it comes to is part of what its parent has heard, which later calls of a model are asked with."""
    takes_messages: bool = False
    """A definition of this kind is asked messages, not inputs by name."""

    def __str__(self) -> str:
        return self.name


AGENT = Kind("agent", "agent", begins_anew=True, rebuilt=True, takes_messages=True)
CALLBACK = Kind("callback", "callback", heard=False)
CONDITION = Kind("condition", "condition", holds_value=True, heard=False)
CREW = Kind("crew", "crew", enters=True, rebuilt=True)
FLOW = Kind("flow", "flow", enters=True)
HUMAN = Kind("human", "human", given=lambda outcome: outcome.get("answer"), asks_person=True, waits=True)
LLM = Kind("llm", "model")
STEP = Kind("step", "step", holds_value=True)
TASK = Kind("task", "task", given=lambda outcome: outcome["raw"], is_task=True)
TIMER = Kind("timer", "timer", waits=True, needs_no_work=True)
TOOL = Kind("tool", "tool", is_call=True)

_KNOWN = {kind.name: kind for kind in (AGENT, CALLBACK, CONDITION, CREW, FLOW, HUMAN, LLM, STEP, TASK, TIMER, TOOL)}


def of(name: str) -> Kind:
    """The kind of this name."""
    return _KNOWN.get(str(name)) or Kind(str(name), str(name))


def at(address: str) -> Kind:
    """The kind of the step at an address."""
    return of(address.rpartition("/")[2].partition("!")[0].partition("#")[0].partition(":")[0])
