"""A list of a definition that is changed in place sets its field: checked, or refused, as the field itself is."""

from __future__ import annotations

import contextlib
import copy
import pickle
import random
import threading
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from crewlite import Agent, Crew, Flow, Task, listen, start, tool
from crewlite.definitions.field_list import FieldList
from crewlite.encoding import codec
from crewlite.encoding.comparable import comparable, seen
from crewlite.errors import ConfigError, MissingInput
from crewlite.knowledge import Knowledge, StringKnowledgeSource
from crewlite.testing import ScriptedLLM

CLERK = Agent(role="Clerk", goal="answer")


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return where


def task(name):
    return Task(name=name, description=name, expected_output="x", agent=CLERK)


def crew_of(titles, llm="offline", kind=Crew):
    """A crew with a task for each letter."""
    return kind(tasks=[task(title) for title in titles], llm=llm)


def names(crew):
    return "".join(one.name for one in crew.tasks)


def test_a_crew_gets_its_tasks_later_and_a_kickoff_needs_one():
    crew = Crew(agents=[CLERK], tasks=[], llm="offline")
    for verb in (crew.kickoff, crew.preview, crew.submit, lambda: crew.kickoff_for_each([{}])):
        with pytest.raises(ConfigError, match=r"crew 'crew' has no tasks: crew.tasks.append\(Task\(...\)\)"):
            verb()
    for count in (1, 2):
        crew.tasks.append(task(f"t{count}"))
        assert len(crew.kickoff().tasks_output) == count
    crew.tasks = []
    crew.tasks.append(task("last"))
    assert [one.name for one in crew.kickoff().tasks_output] == ["last"]
    managed = Crew(agents=[CLERK], tasks=[], process="hierarchical", llm="offline", manager_llm="offline")
    managed.tasks.append(Task(name="any", description="Answer", expected_output="x"))
    assert managed.kickoff().tasks_output[0].name == "any"


def test_tasks_agents_and_tools_may_be_added_between_kickoffs():
    agent, other = (Agent(role=role, goal="answer", llm="offline") for role in ("Clerk", "Deputy"))
    first, second = (Task(description=text, expected_output="x", agent=agent) for text in ("Do", "Do more"))
    crew = Crew(agents=[agent], tasks=[first])
    assert len(crew.kickoff().tasks_output) == 1
    crew.tasks.append(second)
    crew.agents.append(other)
    agent.tools.append(look.func)
    second.context = []
    second.context.append(first)
    heard = []
    crew.before_kickoff_callbacks.append(heard.append)
    assert len(crew.kickoff(inputs={"n": 1}).tasks_output) == 2
    assert (crew.agents, agent.tools[0].name, second.context, heard) == ([agent, other], "look", [first], [{"n": 1}])


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda tasks: tasks.append(task("c")), "abc"),
        (lambda tasks: tasks.extend(task(name) for name in "cd"), "abcd"),
        (lambda tasks: tasks.insert(0, task("c")), "cab"),
        (lambda tasks: tasks.remove(tasks[0]), "b"),
        (lambda tasks: tasks.pop(), "a"),
        (lambda tasks: tasks.reverse(), "ba"),
        (lambda tasks: tasks.sort(key=lambda one: one.name, reverse=True), "ba"),
        (lambda tasks: tasks.__iadd__([task("c")]), "abc"),
        (lambda tasks: tasks.__setitem__(0, task("c")), "cb"),
        (lambda tasks: tasks.__setitem__(slice(1, None), (task(name) for name in "cd")), "acd"),
        (lambda tasks: tasks.__delitem__(0), "b"),
        (lambda tasks: tasks.clear(), ""),
        (lambda tasks: tasks.__imul__(2), None),
        (lambda tasks: tasks.append("c"), None),
    ],
)
def test_a_change_in_place_gives_what_it_gives_of_any_list_if_the_field_may_be_set_to_that(change, left):
    crew = crew_of("ab")
    held = crew.tasks
    if left is None:
        with pytest.raises(ConfigError, match="Crew: .*task"):
            change(crew.tasks)
    else:
        change(crew.tasks)
    assert names(crew) == ("ab" if left is None else left)
    assert held is crew.tasks
    in_use = crew_of("ab", ScriptedLLM(lambda said: str(refuses(change, in_use))))
    assert in_use.kickoff().raw == "True"


def test_items_of_a_list_change_places():
    crew = crew_of("abcd")
    crew.tasks[3].context = [crew.tasks[0]]
    crew.tasks[0], crew.tasks[1] = crew.tasks[1], crew.tasks[0]
    assert names(crew) == "bacd"
    with pytest.raises(ConfigError, match="task 'd' builds on 'a', which comes later"):
        crew.tasks[1], crew.tasks[3] = crew.tasks[3], crew.tasks[1]
    with pytest.raises(ConfigError, match="a task is listed twice"):
        crew.kickoff()
    crew.tasks[:] = [*crew.tasks[:1], crew.tasks[3].context[0], crew.tasks[2], crew.tasks[3]]
    assert len(crew.kickoff().tasks_output) == 4
    agent = Agent(role="Deputy", goal="answer", tools=[look, tool("find")(look.func), tool("see")(look.func)])
    random.Random(7).shuffle(agent.tools)
    assert sorted(one.name for one in agent.tools) == ["find", "look", "see"]


def refuses(change, crew):
    with pytest.raises(ConfigError, match="'tasks' of a Crew cannot be set while a run is at work"):
        change(crew.tasks)
    return names(crew) == "ab"


def test_every_change_in_place_goes_through_the_field():
    reading = {"copy", "__reversed__"}
    changing = {name for name in set(dir(list)) - set(dir(tuple)) if getattr(FieldList, name) is getattr(list, name)}
    assert changing == reading


def test_a_list_belongs_to_one_definition():
    crew = crew_of("a")
    copies = [crew.with_(name="other"), crew.model_copy(), copy.copy(crew), Crew(tasks=crew.tasks)]
    copies.append(crew.model_copy(update={"tasks": crew.tasks}))
    for one in copies:
        one.tasks.append(task("b"))
        assert (names(crew), names(one)) == ("a", "ab")
    crew.tasks.append(task("c"))
    assert [names(one) for one in (crew, *copies)] == ["ac", *["ab"] * 5]
    for one in (copy.deepcopy(crew), pickle.loads(pickle.dumps(crew))):
        with pytest.raises(ConfigError, match="listed twice"):
            one.tasks.append(one.tasks[0])
        one.tasks.pop()
        assert (names(one), names(crew)) == ("a", "ac")
    CLERK.tools.append(look)
    assert Agent(role="Deputy", goal="answer").tools == []
    CLERK.tools.clear()


def test_a_copy_that_is_made_while_a_run_is_at_work_may_be_changed():
    copies = []
    crew = crew_of("a")
    crew.task_callback = lambda output: copies.extend((copy.deepcopy(crew), pickle.loads(pickle.dumps(CLERK))))
    crew.kickoff()
    made, clerk = copies
    made.tasks.append(task("b"))
    clerk.goal = "file"
    assert (names(made), clerk.goal, names(crew), CLERK.goal) == ("ab", "file", "a", "answer")


def test_a_change_that_sets_another_field_of_its_definition_is_refused():
    crew = crew_of("ab")

    def key(one):
        crew.verbose = False
        return one.name

    with pytest.raises(
        ConfigError, match="'tasks' of a Crew is not changed: a function that was called for the change"
    ):
        crew.tasks.sort(key=key)


@pytest.mark.parametrize("change", ["crew.tasks.extend(more)", "crew.tasks += more"])
def test_a_list_that_is_extended_by_one_item_says_what_it_wants(change):
    crew = crew_of("a")
    with pytest.raises(ConfigError, match="tasks is extended by a Task; wanted a list. append adds one item"):
        exec(change, {"crew": crew, "more": task("b")})
    assert names(crew) == "a"


def test_a_list_that_was_replaced_is_a_list_like_any_other():
    crew = crew_of("a")
    before = crew.tasks
    crew.tasks = [task("b")]
    before.append("anything")
    assert (len(before), names(crew)) == (2, "b")
    before.pop()
    crew.tasks = before
    assert names(crew) == "a"


def test_a_list_that_was_read_stays_that_of_its_field_when_another_field_is_set():
    crew = crew_of("a")
    tasks, agents = crew.tasks, crew.agents
    crew.name = "other"
    crew.kickoff()
    tasks.append(task("b"))
    crew.kickoff()
    assert (names(crew), agents is crew.agents) == ("ab", True)


def test_a_list_of_what_is_frozen_for_ever_is_frozen_as_well():
    knowledge = Knowledge(sources=[StringKnowledgeSource(content="Opening hours are from 9 to 5.")])
    with pytest.raises(ConfigError, match="'sources' of a Knowledge cannot be set"):
        knowledge.sources.append("more")


def test_of_what_several_threads_set_nothing_is_lost():
    crew = crew_of("a")

    def add(number):
        for count in range(40):
            crew.tasks.extend(iter([task(f"{number}-{count}")]))
            setattr(crew, ("max_iter", "max_tokens")[number % 2], count + 1)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(crew.tasks), crew.max_iter, crew.max_tokens) == (161, 40, 40)


def test_a_definition_is_copied_and_set_while_another_thread_sets_a_field_for_the_first_time():
    changes = [("backstory", "old"), ("verbose", True)]

    class Watched(Agent):
        def __getattribute__(self, name: str) -> Any:
            if name == "goal" and changes:
                other = threading.Thread(target=setattr, args=(self, *changes.pop()))
                other.start()
                other.join()
            return super().__getattribute__(name)

    agent = Watched(role="Clerk", goal="answer")
    assert agent.with_().goal == "answer"
    agent.max_iter = 3
    assert (agent.verbose, agent.backstory, agent.max_iter) == (True, "old", 3)


def test_a_kickoff_that_begins_while_a_change_is_checked_has_it_refused():
    checking, begun, done = threading.Event(), threading.Event(), threading.Event()

    class Slow(Crew):
        @field_validator("tasks", mode="before")
        @classmethod
        def wait(cls, value: Any) -> Any:
            if len(value) > 1:
                checking.set()
                begun.wait(30)
            return value

    def answer(said):
        begun.set()
        done.wait(30)
        return names(crew)

    crew, refused = crew_of("a", ScriptedLLM(answer), Slow), []

    def add():
        try:
            crew.tasks.append(task("b"))
        except ConfigError as error:
            refused.append(str(error))
        done.set()

    other = threading.Thread(target=add)
    other.start()
    checking.wait(30)
    assert crew.kickoff().raw == "a"
    other.join()
    assert "cannot be set while a run is at work" in refused[0]


def test_a_kickoff_sees_all_of_a_change_or_has_it_refused():
    crew, done = crew_of("a"), threading.Event()

    def change():
        while not done.is_set():
            try:
                crew.tasks.extend([task("b"), task("c")])
                del crew.tasks[1:]
            except ConfigError:  # a run is at work, perhaps with all three
                continue

    other = threading.Thread(target=change)
    other.start()
    try:
        found = {tuple(one.name for one in crew.kickoff().tasks_output) for _ in range(40)}
    finally:
        done.set()
        other.join()
    assert all(len(one) % 2 for one in found)


def test_all_runs_of_kickoff_for_each_go_by_the_same_fields():
    heard = []

    class Changing:
        def __repr__(self):  # is called between two runs, for the note at an error
            with contextlib.suppress(ConfigError):
                crew.before_kickoff_callbacks.append(heard.append)
            return "changing"

    crew = crew_of(["{n}"])
    inputs = [{"other": Changing()}, {"n": 1}]
    failed, done = crew.kickoff_for_each(inputs, max_concurrency=1, return_exceptions=True)
    assert (type(failed), done.tasks_output[0].description, heard) == (MissingInput, "1", [])
    crew.before_kickoff_callbacks.append(heard.append)


def test_a_list_of_a_definition_is_recorded_and_compared_as_a_list():
    assert codec.encode(CLERK.tools) == []
    agents = crew_of("a").agents
    for value in (CLERK.tools, agents):
        assert comparable(value) == comparable(list(value))
        assert (value, tuple(value), value) == (tuple(value), value, list(value))
    assert agents != ()
    assert seen(agents).parts.keys() == seen(tuple(agents)).parts.keys()


def test_a_list_of_a_definition_is_a_plain_list_in_the_state_of_a_run():
    agent = Agent(role="Clerk", goal="answer", allowed_tools=["look"])

    class Plan(Flow):
        @start()
        def begin(self):
            self.state["names"] = agent.allowed_tools
            return agent.allowed_tools

        @listen(begin)
        def go_on(self, given):
            given.append("given")
            self.state["names"].append("kept")
            return [type(given) is list, *given, *self.state["names"], *agent.allowed_tools]

    assert Plan().kickoff() == [True, "look", "given", "look", "kept", "look"]


def test_lists_are_added_to_whatever_holds_the_rest():
    crew = crew_of("a")
    crew.tasks = crew.tasks + (task("b"),)
    crew.tasks = (task("c"),) + crew.tasks
    assert names(crew) == "cab"
    agent = Agent(role="Clerk", goal="answer", allowed_tools=["look"])
    for add in (lambda: agent.allowed_tools + "find", lambda: "find" + agent.allowed_tools, lambda: crew.tasks + CLERK):
        with pytest.raises(TypeError, match="can only concatenate"):  # as with any list: no letters, no fields
            add()


def test_a_function_is_found_among_the_tools_that_it_was_given_as():
    def look(where: str) -> str:
        """Look somewhere."""
        return where

    agent = Agent(role="Clerk", goal="answer", tools=[tool("other")(look)])
    agent.tools.append(look)
    assert (look in agent.tools, agent.tools.index(look), look.__call__ in agent.tools) == (True, 0, False)
    assert len({*agent.tools}) == 2
    assert agent.tools[0] != agent.tools[1]
    agent.tools.remove(agent.tools[1])
    agent.tools.remove(look)
    assert agent.tools == []


def test_a_list_of_a_definition_may_be_a_field_of_any_model():
    class Kept(BaseModel):
        names: FieldList[str]
        others: FieldList

    kept = Kept.model_validate_json('{"names": ["a"], "others": [1, "b"]}')
    kept.names.append("c")
    assert (kept.names, kept.others + ("c",)) == (["a", "c"], [1, "b", "c"])
    assert kept.model_dump_json() == '{"names":["a","c"],"others":[1,"b"]}'
