"""Settings that CrewAI has and crewlite has not: accepted while they ask for nothing that is missing, else refused."""

from __future__ import annotations

import pytest

from crewlite import LLM, Agent, Crew, Task
from crewlite.coming_from.settings import ANY, SETTINGS
from crewlite.errors import ConfigError
from crewlite.testing import ScriptedLLM

CLASSES = {"Agent": Agent, "Task": Task, "Crew": Crew}
EACH = [(CLASSES[cls], one) for one in SETTINGS for cls in one.of.split() if cls in CLASSES]
EACH = [(cls, one) for cls, one in EACH if one.name not in cls.model_fields]
ASKING = [(cls, one) for cls, one in EACH if one.accepted is not ANY]


def named(pair):
    return f"{pair[0].__name__}-{pair[1].name}"


def made(cls, **more):
    agent = {"role": "R", "goal": "g", "llm": ScriptedLLM(["done"])}
    task = {"description": "d", "expected_output": "e"}
    if cls is Agent:
        return Agent(**agent, **more)
    if cls is Task:
        return Task(**task, agent=Agent(**agent), **more)
    return Crew(tasks=[Task(**task, agent=Agent(**agent))], **more)


@pytest.mark.parametrize("pair", EACH, ids=named)
def test_a_setting_that_is_off_or_can_be_ignored_is_accepted(pair):
    cls, setting = pair
    accepted = "anything" if setting.accepted is ANY else setting.accepted
    for value in (False, None, [], "", accepted):
        assert setting.name not in vars(made(cls, **{setting.name: value}))


@pytest.mark.parametrize("pair", ASKING, ids=named)
def test_a_setting_that_asks_for_something_is_refused_and_says_what_to_write(pair):
    cls, setting = pair
    asked = "something" if setting.accepted is True else True
    with pytest.raises(ConfigError) as caught:
        made(cls, **{setting.name: asked})
    told = str(caught.value)
    assert f"no field {setting.name!r}: {setting.here}" in told
    assert setting.instead in told


def test_no_setting_is_listed_twice():
    listed = [(cls, one.name) for one in SETTINGS for cls in one.of.split()]
    assert len(listed) == len(set(listed))


def test_a_name_with_a_capital_has_no_effect_as_in_crewai_and_is_logged(caplog):
    made(Crew, Process="hierarchical", Verbose=True)
    assert [record.getMessage() for record in caplog.records] == [
        f"Crew: {name} has no effect: names begin with a small letter; CrewAI ignores this one, too; "
        f"instead: {name.lower()}=..."
        for name in ("Process", "Verbose")
    ]
    with pytest.raises(ConfigError, match="it has no field 'Checkpoint'; did you mean 'checkpoint'"):
        made(Crew, Checkpoint=True)


def test_a_setting_that_asks_for_something_and_does_nothing_is_logged(caplog):
    made(Agent, allow_code_execution=True)
    made(Task, dependencies=[made(Task)])
    made(Task, depends_on=["first"])
    made(Agent, allow_code_execution=False)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["Agent", "Task", "Task"]
    assert "allow_code_execution has no effect: no code is run" in caplog.text


def test_memory_that_is_only_switched_on_is_accepted_with_a_warning(caplog):
    assert made(Crew, memory=True).kickoff().raw == "done"
    assert made(Agent, memory=True).kickoff("?").raw == "done"
    assert caplog.text.count("memory has no effect: a run knows its inputs") == 2
    with pytest.raises(ConfigError, match="no field 'memory': a run knows its inputs"):
        made(Crew, memory={"provider": "mem0"})


def test_a_misspelt_setting_is_no_setting_of_others():
    with pytest.raises(ConfigError, match="no field 'max_itr'; did you mean 'max_iter'"):
        made(Agent, max_itr=3)


@pytest.mark.parametrize("cls", [Agent, Task, Crew])
def test_a_setting_of_checkpoints_says_where_it_belongs(cls):
    belongs = r"no field 'on_drift'; it is a setting: checkpoint=CheckpointConfig\(on_drift=...\)$"
    with pytest.raises(ConfigError, match=belongs):
        made(cls, on_drift="rerun")
    with pytest.raises(ConfigError, match=belongs):
        made(cls).on_drift = "rerun"


def test_a_setting_of_a_model_is_accepted_or_refused_likewise():
    LLM("openai/m", is_litellm=True, callbacks=[])
    with pytest.raises(ConfigError, match="LLM has no option 'callbacks' .calls are events"):
        LLM("openai/m", callbacks=[print])


def test_a_field_of_that_name_in_a_class_of_ones_own_is_kept():
    class Remembering(Agent):
        memory: bool = True

    assert made(Agent).kickoff("?").raw == "done"
    assert Remembering(role="R", goal="g", memory=False).memory is False
    with pytest.raises(ConfigError, match="no field 'mcps'"):
        Remembering(role="R", goal="g", mcps=True)
