"""What cannot be an address, a name, a budget or a file is refused in words, where it is given."""

from __future__ import annotations

import math

import pytest

from crewlite import Agent, Crew, Task
from crewlite.errors import ConfigError, RefError
from crewlite.flow import Flow, ask, flow, start
from crewlite.testing import ScriptedLLM


def worker(checkpoint=None):
    return Agent(role="A", goal="g", llm=ScriptedLLM(lambda messages: "done"), checkpoint=checkpoint)


def crew_of(config):
    return Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=worker())], checkpoint=config())


class Plain(Flow):
    @start()
    def begin(self):
        return "begun"


@pytest.mark.parametrize("address", [5, None, b"human:ok"])
def test_an_address_that_is_no_text_is_refused_by_each_verb_that_takes_one(memory, address):
    crew = crew_of(memory)
    crew.kickoff(run_id="r")
    for run_id in ("r", "new"):
        with pytest.raises(ConfigError, match="answers is .*; wanted a dict from addresses to answers"):
            crew.kickoff(run_id=run_id, answers={address: True})
        with pytest.raises(ConfigError, match="rerun is .*; wanted a list of addresses"):
            crew.kickoff(run_id=run_id, rerun=[address])
    with pytest.raises(ConfigError, match="rerun is .*; wanted a list of addresses"):
        crew.fork("r", rerun=[address])
    with pytest.raises(ConfigError, match="edits is .*; wanted outcomes by address"):
        crew.fork("r", edits={address: True})


def test_an_address_without_its_kind_is_hinted_at(memory):
    crew = crew_of(memory)
    crew.kickoff(run_id="r")
    for change in ({"edits": {"t": "x"}}, {"rerun": ["t"]}):
        with pytest.raises(RefError, match=r"did you mean 'task:t'\? Candidates: "):
            crew.fork("r", **change)


def test_a_turn_that_is_not_there_has_the_turns_as_candidates(memory):
    agent = worker(memory())
    for message in ("one", "two", "three"):
        agent.kickoff(message, run_id="d")
    with pytest.raises(RefError) as missing:
        agent.fork("d@turn#99")
    assert missing.value.candidates == ("@turn#3", "@turn#2", "@turn#1")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("", "wanted a name that is not blank"), ("a/b", "not blank, without / # and !"), (5, "is named 5; wanted text")],
)
def test_a_name_that_an_address_cannot_hold_is_refused(name, wanted):
    with pytest.raises(ConfigError, match=wanted):
        Plain(name=name).kickoff()
    with pytest.raises(ConfigError, match="not blank, without / # and !"):
        flow(lambda: ask("Well?", name=name)).kickoff()


@pytest.mark.parametrize("setting", ["max_cost_usd", "max_execution_time"])
def test_an_infinite_budget_limits_nothing_and_one_that_is_no_number_is_refused(setting):
    for make in (
        lambda **budget: Crew(tasks=[], **budget),
        lambda **budget: Agent(role="A", goal="g", **budget),
        lambda **budget: Task(description="d", expected_output="x", **budget),
    ):
        with pytest.raises(ConfigError, match=f"{setting} is nan; wanted a number greater than 0"):
            make(**{setting: math.nan})
    endless = {setting: math.inf}
    agent = Agent(role="A", goal="g", llm=ScriptedLLM(["done"]), **endless)
    task = Task(description="d", expected_output="x", agent=agent, **endless)
    assert Crew(tasks=[task], **endless).kickoff().raw == "done"


@pytest.mark.parametrize(("filename", "why"), [(5, "wanted the name of a file"), ("x" * 250, "cannot be written")])
def test_a_page_that_cannot_be_written_says_so(tmp_path, monkeypatch, filename, why):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"plot: .*{why}"):
        Plain.plot(filename)
