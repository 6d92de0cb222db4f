"""What is frozen says what to do instead; what a tool of one's own keeps for itself may be set."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from typing import get_type_hints

import pytest

from crewlite import Agent, BaseTool, CheckpointConfig, Crew, Task, ToolCall, tool
from crewlite.errors import ConfigError, Suspended
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests import children


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return where


def crew(answer="offline"):
    """A crew of one agent and one task, with a model that answers by this function."""
    agent = Agent(role="Clerk", goal="answer", llm=ScriptedLLM(answer) if callable(answer) else answer)
    task = Task(name="do", description="Do", expected_output="x", agent=agent)
    return Crew(agents=[agent], tasks=[task])


def at_work(change):
    """A crew that calls `change(crew)` while a run is at work with it."""
    made = crew(lambda said: str(change(made)))
    return made


def echo(said):
    """The first line of what a model is asked."""
    return said[-1]["content"].splitlines()[0]


@pytest.mark.parametrize(
    ("part", "name"),
    [(lambda made: made.agents[0], "role"), (lambda made: made.tasks[0], "context"), (lambda made: made, "tasks")],
    ids=["agent", "task", "crew"],
)
def test_what_a_run_is_at_work_with_says_what_to_do_instead(part, name):
    def change(made):
        how = rf"while a run is at work with it: set it before the kickoff or .*{type(part(made)).__name__.lower()}\.with_\({name}=\.\.\.\)"
        with pytest.raises(ConfigError, match=rf"{name!r} of an? \w+ cannot be set {how}"):
            setattr(part(made), name, "other")
        with pytest.raises(ConfigError, match=rf"{name!r} of an? \w+ cannot be deleted"):
            delattr(part(made), name)

    assert at_work(change).kickoff().raw == "None"


def test_a_field_of_a_config_says_what_to_do_instead():
    config = CheckpointConfig()
    with pytest.raises(ConfigError, match=r"'location' of a CheckpointConfig cannot be set.*location=.*model_copy"):
        config.location = "other"
    with pytest.raises(ConfigError, match="cannot be set"):
        del config.location


def test_a_field_of_a_definition_in_use_may_be_set_to_what_it_is():
    def change(made):
        [task] = made.tasks
        task.agent, task.expected_output, made.tasks = made.agents[0], "x", [task]
        with pytest.raises(ConfigError, match="'agent' of a Task cannot be set"):
            task.agent = Agent(role="Clerk", goal="answer", llm="offline")
        return (task.agent, made.tasks) == (made.agents[0], (task,))

    assert at_work(change).kickoff().raw == "True"


def test_the_next_kickoff_goes_by_what_was_set_since_the_last_one():
    made, heard = crew(echo), []
    assert "Do" in made.kickoff().raw
    made.tasks[0].description, made.task_callback = "Count", heard.append
    assert "Count" in made.kickoff().raw
    assert len(heard) == 1
    made.tasks = [made.tasks[0].with_(description="Sum up")]
    assert "Sum up" in made.kickoff().raw


def test_what_was_set_is_checked_with_the_rest_of_the_crew_at_the_kickoff():
    made = crew()
    [first] = made.tasks
    second = Task(description="Do more", expected_output="x", agent=first.agent)
    made.tasks = [first, second]
    first.context = [second]
    with pytest.raises(ConfigError, match="task 'do' builds on 'Do more', which comes later"):
        made.kickoff()
    first.context, first.agent = [], None
    with pytest.raises(ConfigError, match="task 'do' has no agent"):
        made.kickoff()


def test_a_crew_that_was_given_no_agents_has_those_that_its_tasks_have_at_the_kickoff():
    [task] = crew().tasks
    for given in ({}, {"agents": []}):
        made = Crew(tasks=[task], **given)
        task.agent = Agent(role="Deputy", goal="answer", llm="offline")
        assert made.kickoff().tasks_output[0].agent == "Deputy"
        assert made.agents == (task.agent,)
        made.agents.append(Agent(role="Auditor", goal="answer", llm="offline"))
        made.tasks.append(task.with_(name="more", agent=Agent(role="Clerk", goal="answer", llm="offline")))
        assert [one.agent for one in made.kickoff().tasks_output] == ["Deputy", "Clerk"]
        assert [one.role for one in made.agents] == ["Deputy", "Auditor"]


def test_a_run_that_failed_or_waits_is_at_work_with_nothing():
    def fail(said):
        raise ValueError("no")

    made = crew(fail)
    with pytest.raises(ValueError, match="no"):
        made.kickoff()
    made.agents[0].llm = "offline"
    made.tasks[0].human_input, made.checkpoint = True, CheckpointConfig(provider=InMemoryProvider())
    with pytest.raises(Suspended):
        made.kickoff()
    made.tasks[0].human_input = False
    assert made.kickoff().raw


def test_while_one_of_two_runs_is_at_work_nothing_can_be_set():
    begun, go = threading.Barrier(3), [threading.Event(), threading.Event()]

    def hold(output):
        begun.wait(30)
        go[int(output.raw.partition("number ")[2][0])].wait(30)

    made = crew(echo)
    made.tasks[0].description, made.tasks[0].callback = "number {n}", hold
    handles = [made.submit(inputs={"n": n}) for n in range(2)]
    begun.wait(30)
    for number, handle in enumerate(handles):
        with pytest.raises(ConfigError, match="cannot be set while a run is at work"):
            made.tasks[0].description = "other"
        go[number].set()
        handle.result()
    made.tasks[0].description = "other"


def test_a_setting_of_crewai_without_effect_is_told_when_it_is_set_as_when_it_is_given(caplog):
    made = crew()
    made.memory = True
    assert "memory has no effect" in caplog.text
    assert "memory" not in vars(made)
    with pytest.raises(ConfigError, match=r"Crew has no field 'skills'; .*instead: tools"):
        made.skills = ["x"]
    with pytest.raises(ConfigError, match="Crew has no field 'memry'"):
        made.memry = True


def test_what_another_thread_sets_holds_for_a_whole_run():
    texts, done = (f"number {n}" for n in itertools.count()), threading.Event()
    made = crew(lambda said: f"{echo(said) == made.tasks[0].description}")

    def set_on():
        while not done.is_set():
            with contextlib.suppress(ConfigError):  # a run is at work
                made.tasks[0].description = next(texts)

    other = threading.Thread(target=set_on)
    other.start()
    try:
        found = [made.kickoff() for _ in range(50)]
    finally:
        done.set()
        other.join()
    assert [(one.raw, one.tasks_output[0].description[:7]) for one in found] == [("True", "number ")] * 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only Unix can fork")
def test_a_forked_child_has_none_of_the_kickoffs_of_its_parent():
    def change(made):
        def changed():
            made.tasks[0].description = "other"
            return made.tasks[0].description == "other"

        return children.in_a_fork(changed)

    assert at_work(change).kickoff().raw == "True"


def test_a_fork_shares_its_parts_with_the_crew_that_was_forked():
    made = crew(echo)
    made.checkpoint = CheckpointConfig(provider=InMemoryProvider())
    made.kickoff(run_id="first")
    fork = made.fork("first", rerun=["task:do"])
    made.tasks[0].description = "Count"
    assert "Count" in fork.kickoff().raw


def test_a_value_that_does_not_fit_changes_nothing():
    agent = Agent(role="Clerk", goal="answer")
    research = Task(description="Research", expected_output="x")
    write = Task(description="Write", expected_output="x", agent=agent)
    agent.llm = "offline"
    research.agent = agent
    research.tools = [look]
    write.context = [research]
    assert write.context == (research,), "as the constructor would have it"
    with pytest.raises(ConfigError, match="context is one Task; wanted a list"):
        write.context = research
    with pytest.raises(ConfigError, match="Task: description"):
        write.description = ""
    assert write.context == (research,), "what was refused has changed nothing"


def test_a_copy_with_other_fields_is_checked_like_a_new_one():
    task = crew().tasks[0]
    other = task.with_(context=[], description="Do more")
    assert (other.context, other.description, other.agent) == ((), "Do more", task.agent)
    assert task.description == "Do"
    other.description = "Do still more"
    with pytest.raises(ConfigError, match="Task: it has no field 'contxt'; did you mean 'context'"):
        task.with_(contxt=[])
    with pytest.raises(ConfigError, match="'description' is missing|description"):
        task.with_(description="")


def test_a_class_of_the_user_may_have_a_field_of_such_a_name_that_is_no_list():
    class Lead(Agent):
        agents: dict[str, int] = {}
        tasks: int = 0

    lead = Lead(role="Lead", goal="lead", llm="offline", agents={"Ada": 1}, tasks=2)
    assert (lead.agents, lead.tasks) == ({"Ada": 1}, 2)


def test_a_setting_of_a_tool_may_be_set_and_is_checked():
    @tool
    def find(what: str) -> str:
        """Find something."""
        return what

    find.name, find.description, find.effect = "seek", "Seek it.", "once"
    assert find.schema_for_model["function"]["name"] == "seek"
    assert find.schema_for_model["function"]["description"] == "Seek it."
    for name, value in (("effect", "twice"), ("timeout", 0), ("failure_policy", 3), ("args_schema", int)):
        before = getattr(find, name)
        with pytest.raises(ConfigError, match=name):
            setattr(find, name, value)
        assert getattr(find, name) == before
    with pytest.raises(ConfigError, match="effect='once', .* and a cache_function"):
        find.cache_function = lambda arguments, result: True


def test_a_tool_that_was_renamed_is_called_by_its_name_in_the_next_run():
    llm = ScriptedLLM([ToolCall("seek", {"where": "here"}), "done"])
    clerk = Agent(role="Clerk", goal="answer", llm=llm, tools=[look])
    try:
        look.name = "seek"
        clerk.kickoff("Go")
    finally:
        look.name = "look"
    assert llm.calls[-1][-1]["content"] == "here"


def test_what_is_no_field_of_a_definition_is_told_with_what_was_meant():
    with pytest.raises(ConfigError, match="Task has no field 'contxt'; did you mean 'context'"):
        Task(description="d", expected_output="x").contxt = []


class Counter(BaseTool):
    """A tool with a client and a count of its own."""

    name: str = "count"
    description: str = "Count."
    calls: int = 0

    def __init__(self, client, **fields):
        self.client = client
        super().__init__(**fields)
        self.late = "set"

    def _run(self, by: int) -> str:
        self.calls += by
        return f"{self.client} {self.late} {self.calls}"


def test_a_tool_of_ones_own_keeps_attributes_of_its_own():
    counter = Counter("shop")
    llm = ScriptedLLM([ToolCall("count", {"by": 2}), ToolCall("count", {"by": 3}), "done"])
    Agent(role="Clerk", goal="answer", llm=llm, tools=[counter]).kickoff("Go")
    assert [m["content"] for m in llm.calls[-1] if m["role"] == "tool"] == ["shop set 2", "shop set 5"]
    assert counter.calls == 5
    assert counter.model_copy().client == "shop"


def test_a_secret_that_a_tool_keeps_for_itself_is_known(memory):
    class Shop(BaseTool):
        name: str = "shop"
        description: str = "Shop."

        def __init__(self):
            super().__init__()
            self.api_key = "sk-1234-abcdefgh"

        def _run(self) -> str:
            return f"bought with {self.api_key}"

    llm = ScriptedLLM([ToolCall("shop"), "done"])
    Agent(role="Clerk", goal="answer", llm=llm, tools=[Shop()], checkpoint=memory()).kickoff("Go")
    assert llm.calls[-1][-1]["content"] == "bought with [secret]"


def test_a_definition_shows_what_was_set_and_no_defaults():
    made = Task(name="sum", description="Add", expected_output="x", agent=Agent(role="Clerk", goal="g", verbose=False))
    shown = "Task(description='Add', expected_output='x', agent=Agent(role='Clerk', goal='g'), name='sum')"
    assert repr(made) == str(made) == shown
    assert "timeout" not in repr(look)
    assert str(CheckpointConfig(location="runs.db")) == "CheckpointConfig(location='runs.db')"


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            lambda of: of(output_pydantic=list[int]),
            r"output_pydantic is list\[int\]; wanted a class of pydantic, such as",
        ),
        (lambda of: of(context=["first"]), "context.0 is a str; wanted a Task"),
        (lambda of: of(agent="Clerk"), "agent is a str; wanted an Agent"),
        (lambda of: of(agent=Agent), "agent is the class Agent; wanted an Agent"),
        (lambda of: Crew(tasks=[Task]), "tasks.0 is the class Task; wanted a Task$"),
        (lambda of: of(checkpoint=CheckpointConfig), "checkpoint is the class CheckpointConfig; wanted a Checkpoint"),
        (lambda of: of(markdown="sk-secret"), "markdown is a str; wanted True or False"),
        (lambda of: Crew(tasks=["first"]), "tasks.0 is a str; wanted a Task$"),
        (
            lambda of: Crew(tasks=[of()], process="parallel"),
            "process is 'parallel'; wanted 'sequential' or 'hierarchical'",
        ),
        (lambda of: CheckpointConfig(durability=None), "durability is None; wanted 'sync' or 'async'"),
    ],
)
def test_a_value_of_another_kind_is_told_in_words(made, told):
    with pytest.raises(ConfigError, match=told) as refused:
        made(lambda **fields: Task(description="d", expected_output="x", **fields))
    assert "secret" not in str(refused.value)


class Table:
    """Stands for an array, which is neither equal to a list nor unequal to it as a whole."""

    def __eq__(self, other):
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None


def test_a_value_that_cannot_be_compared_is_told_in_words():
    with pytest.raises(ConfigError, match="tasks is a Table; wanted"):
        Crew(tasks=Table())


@pytest.mark.parametrize("kind", [Agent, Task, Crew])
def test_the_types_of_fields_can_be_read(kind):
    assert {*kind.model_fields} <= {*get_type_hints(kind)}


def test_a_config_that_is_set_later_gives_fields_as_one_in_the_constructor_does():
    agent = Agent(config={"role": "Clerk", "goal": "answer"})
    agent.config = {"goal": "file", "max_iter": 3}
    assert (agent.role, agent.goal, agent.max_iter, agent.config) == ("Clerk", "file", 3, None)
    made = agent.with_(config={"goal": "copy", "role": "Deputy"}, role="Head")
    assert (made.role, made.goal, made.max_iter, agent.goal) == ("Head", "copy", 3, "file")
    assert (agent.with_().max_iter, agent.model_fields_set) == (3, {"role", "goal", "max_iter"})
    with pytest.raises(ConfigError, match="aim"):
        agent.config = {"aim": "file"}
