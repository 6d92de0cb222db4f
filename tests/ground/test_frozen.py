"""What is frozen says what to do instead; what a tool of one's own keeps for itself may be set."""

from __future__ import annotations

from typing import get_type_hints

import pytest
from pydantic import BaseModel

from crewlite import Agent, BaseTool, CheckpointConfig, Crew, Task, ToolCall, tool
from crewlite.definitions.frozen_list import FrozenList
from crewlite.encoding import codec
from crewlite.encoding.comparable import comparable, seen
from crewlite.errors import ConfigError
from crewlite.testing import ScriptedLLM


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return where


def crew():
    """A crew that was kicked off, and what it is made of."""
    agent = Agent(role="Clerk", goal="answer", llm="offline")
    task = Task(description="Do", expected_output="x", agent=agent)
    made = Crew(agents=[agent], tasks=[task])
    made.kickoff()
    return made


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (lambda: crew().agents[0], "role"),
        (lambda: crew().tasks[0], "context"),
        (crew, "tasks"),
        (CheckpointConfig, "location"),
    ],
    ids=["agent", "task", "crew", "config"],
)
def test_what_is_in_use_says_what_to_do_instead(thing, name):
    made = thing()
    how = "model_copy" if isinstance(made, CheckpointConfig) else rf"{type(made).__name__.lower()}\.with_\({name}="
    with pytest.raises(ConfigError, match=rf"{name!r} of an? \w+ cannot be set.*{name}=.*{how}"):
        setattr(made, name, "other")
    with pytest.raises(ConfigError, match="cannot be set"):
        delattr(made, name)


def test_a_field_of_a_definition_in_use_may_be_set_to_what_it_is():
    made = crew()
    [task] = made.tasks
    task.agent, task.expected_output, made.tasks = made.agents[0], "x", [task]
    assert (task.agent, made.tasks) == (made.agents[0], (task,))
    with pytest.raises(ConfigError, match="'agent' of a Task cannot be set"):
        task.agent = Agent(role="Clerk", goal="answer", llm="offline")


def test_a_definition_may_be_set_until_a_crew_is_made_of_it():
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
    Crew(tasks=[research, write]).kickoff()
    with pytest.raises(ConfigError, match="cannot be set"):
        write.context = []


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


def test_a_crew_may_be_set_until_it_is_kicked_off():
    agent = Agent(role="Clerk", goal="answer", llm="offline")
    made = Crew(tasks=[Task(description="Do", expected_output="x", agent=agent)])
    made.name = "other"
    assert made.kickoff().raw
    with pytest.raises(ConfigError, match="'name' of a Crew cannot be set"):
        made.name = "third"


def test_a_field_that_takes_a_list_says_what_to_write_instead_of_a_change_in_place():
    agent = Agent(role="Clerk", goal="answer", llm="offline")
    first, second = (Task(description=text, expected_output="x", agent=agent) for text in ("Do", "Do more"))
    made = Crew(tasks=[first])
    for change in (lambda: made.tasks.append(second), lambda: agent.tools.extend([look]), lambda: made.agents.pop()):
        with pytest.raises(AttributeError, match=r"Before its first use, set the field .*\[\*crew.tasks, task\]"):
            change()
    second.tools = [look] + second.tools
    made.tasks += [second]
    assert (made.tasks, second.tools) == ((first, second), (look,))
    assert len(made.kickoff().tasks_output) == 2


def test_such_a_field_is_recorded_and_compared_as_a_tuple():
    agent = Agent(role="Clerk", goal="answer", llm="offline")
    assert codec.encode(agent.tools) == codec.encode(())
    agents = Crew(tasks=[Task(description="Do", expected_output="x", agent=agent)]).agents
    for value in (agent.tools, agents):
        assert comparable(value) == comparable(tuple(value))
    assert seen(agents).parts.keys() == seen(tuple(agents)).parts.keys()


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
        (lambda of: Crew(tasks=[]), "tasks is empty; wanted at least one"),
        (lambda of: Crew(tasks=iter([])), "tasks is a list_iterator; wanted at least one"),
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


def test_a_list_of_a_definition_may_be_a_field_of_any_model():
    class Kept(BaseModel):
        names: FrozenList[str]
        others: FrozenList

    kept = Kept.model_validate_json('{"names": ["a"], "others": [1, "b"]}')
    assert (kept.names + ["c"], kept.others + ["c"]) == (("a", "c"), (1, "b", "c"))
