"""Fields that other frameworks have and crewlite has not: accepted while they are off, refused once they ask."""

import pytest

from crewlite import Agent, Crew, Task
from crewlite.errors import ConfigError
from crewlite.testing import ScriptedLLM

OFF = [
    (cls, name)
    for cls in (Agent, Task, Crew)
    for name in sorted(cls.accepted_if_off - set(dir(cls)) - cls.model_fields.keys())
]


def made(cls, **more):
    agent = {"role": "R", "goal": "g", "llm": ScriptedLLM(["done"])}
    task = {"description": "d", "expected_output": "e"}
    if cls is Agent:
        return Agent(**agent, **more)
    if cls is Task:
        return Task(**task, agent=Agent(**agent), **more)
    return Crew(tasks=[Task(**task, agent=Agent(**agent))], **more)


@pytest.mark.parametrize(("cls", "name"), OFF)
@pytest.mark.parametrize("value", [False, None, []])
def test_a_setting_that_is_off_is_accepted(cls, name, value):
    assert not hasattr(made(cls, **{name: value}), name)


@pytest.mark.parametrize(("cls", "name"), OFF)
def test_a_setting_that_asks_for_something_is_refused_by_name(cls, name):
    with pytest.raises(ConfigError, match=f"no field '{name}'"):
        made(cls, **{name: True})


def test_a_field_of_that_name_in_a_class_of_ones_own_is_kept():
    class Remembering(Agent):
        memory: bool = True

    assert made(Agent).kickoff("?").raw == "done"
    assert Remembering(role="R", goal="g", memory=False).memory is False
