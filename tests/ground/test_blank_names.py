"""What is known by a name has one that can be seen: an empty or blank one is refused like any other bad name."""

from __future__ import annotations

import pytest

from crewlite import Agent, Crew, Task, ask, step, tool
from crewlite.errors import ConfigError
from crewlite.flow import flow, recoverable
from tests.ground.smallest import TASK, Gauge, Plan


def work():
    """Do it."""


NAMED = {
    "Agent": lambda name: Agent(role=name, goal="g"),
    "Task": lambda name: TASK.with_(name=name),
    "Crew": lambda name: Crew(tasks=[TASK], name=name),
    "Flow": lambda name: Plan(name=name),
    "flow": lambda name: flow(name=name)(work),
    "recoverable": lambda name: recoverable(name=name)(work),
    "step": lambda name: step(name=name)(work),
    "BaseTool": lambda name: Gauge(name=name),
    "tool": lambda name: tool(name)(work),
    "renamed tool": lambda name: setattr(Gauge(), "name", name),
    "renamed crew": lambda name: setattr(Crew(tasks=[TASK]), "name", name),
}


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
@pytest.mark.parametrize("kind", NAMED)
def test_a_blank_name_is_refused(kind, blank):
    with pytest.raises(ConfigError, match=r"(name|role|is named) (is )?'.*'; wanted a name"):
        NAMED[kind](blank)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda blank: Agent(role="r", goal="g", llm=blank), "Agent: llm is {}; wanted a model, or its name, that is"),
        (lambda blank: Crew(tasks=[TASK], manager_llm=blank), "Crew: manager_llm is {}; wanted a model, or its name"),
        (lambda blank: tool(blank)(work), "FunctionTool: name is {}; wanted a name"),
        (lambda blank: ask(blank), r"ask\({}\): wanted the text of a question that is not blank"),
        (lambda blank: Crew(tasks=[TASK]).fork(blank), "^the ref is {}; wanted a run, a checkpoint or 'latest'"),
        (lambda blank: Crew(tasks=[TASK]).train(1, blank), "^filename is {}; wanted the name of a file"),
    ],
)
@pytest.mark.parametrize("blank", ["", " "])
def test_a_blank_setting_is_refused_where_it_is_given(make, said, blank):
    with pytest.raises(ConfigError, match=said.format(repr(blank))):
        make(blank)


@pytest.mark.parametrize("blank", ["", " "])
def test_a_task_without_a_description_is_refused(blank):
    with pytest.raises(ConfigError, match=f"description is '{blank}'; wanted a text that is not blank"):
        Task(description=blank, expected_output="e")
