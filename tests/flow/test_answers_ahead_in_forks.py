"""An answer given ahead of its question counts for the run it was given to, and not for what a changed fork asks."""

from __future__ import annotations

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.errors import Suspended
from crewlite.flow import ask, flow, step
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, entries_of

PAY = "task:buy/human:pay"


def crew_of(setting, paid, *, item="{x}"):
    """A crew that finds a price and pays it, if a person approves the call."""

    @tool(requires_approval=True)
    def pay(price: int) -> str:
        """Pay."""
        paid.append(price)
        return f"paid {price}"

    def says(messages):
        if messages[-1]["role"] == "tool":
            return messages[-1]["content"]
        text = str(messages[-1]["content"])
        if "Find" in text:
            return "1000" if "yacht" in text else "3"
        return ToolCall("pay", {"price": 1000 if "1000" in text else 3})

    clerk = Agent(role="Clerk", goal="buy", llm=ScriptedLLM(says))
    price = Task(name="price", description=f"Find the price of {item}", expected_output="number", agent=clerk)
    buy = Task(name="buy", description="Pay", expected_output="text", agent=clerk.with_(tools=[pay]), context=[price])
    return Crew(tasks=[price, buy], checkpoint=setting)


@pytest.fixture
def bought(memory):
    paid = []
    crew = crew_of(memory(), paid)
    crew.kickoff({"x": "pen"}, run_id=RUN, answers={PAY: True})
    assert paid == [3]
    paid.clear()
    return crew, paid


@pytest.mark.parametrize("change", [{"inputs": {"x": "yacht"}}, {"edits": {"task:price": "1000"}}])
@pytest.mark.parametrize("ref", [RUN, f"{RUN}@task:price"])
def test_an_approval_given_ahead_is_not_inherited_by_a_fork_with_changes(bought, ref, change):
    crew, paid = bought
    fork = crew.fork(ref, **change)
    assert PAY not in [step.address for step in fork.preview() if step.verdict == "reused"]
    with pytest.raises(Suspended, match="1000"):
        fork.kickoff()
    assert paid == []
    fork.kickoff(answers={PAY: True})
    assert paid == [1000]


def test_an_approval_given_ahead_is_not_inherited_by_a_fork_that_runs_a_step_before_it_again(bought):
    crew, paid = bought
    with pytest.raises(Suspended):
        crew.fork(f"{RUN}@task:price", rerun=["task:price"]).kickoff()
    assert paid == []


def test_an_approval_given_ahead_is_not_inherited_by_a_fork_whose_kickoff_has_other_inputs(bought):
    crew, paid = bought
    with pytest.raises(Suspended, match="1000"):
        crew.fork(f"{RUN}@task:price").kickoff({"x": "yacht"})
    crew.fork(f"{RUN}@task:price").kickoff({"x": "yacht"}, answers={PAY: True})
    assert paid == [1000]


def test_an_approval_given_ahead_is_not_inherited_by_a_fork_with_another_definition(bought, memory):
    crew, paid = bought
    other = crew_of(memory(on_drift="rerun"), paid, item="a yacht, not {x}")
    with pytest.raises(Suspended, match="1000"):
        other.fork(f"{RUN}@task:price").kickoff()
    assert paid == []


def test_an_approval_given_ahead_is_inherited_by_a_fork_without_changes(bought):
    crew, paid = bought
    crew.fork(f"{RUN}@task:price").kickoff()
    assert paid == [3]


def test_an_approval_given_ahead_to_a_fork_counts_there(bought, memory):
    crew, paid = bought
    fork = crew.fork(f"{RUN}@task:price", branch="other", inputs={"x": "yacht"})
    with History("memory", memory().provider) as history:
        assert history.run(f"{RUN}/other").unused_answers == []
        history.answer(f"{RUN}/other", PAY, True)
    fork.kickoff()
    assert paid == [1000]


@pytest.mark.parametrize(("on_drift", "asks"), [("keep", False), ("rerun", True)])
def test_an_approval_given_ahead_of_a_changed_script_is_asked_for_if_that_runs_tasks_again(
    bought, memory, on_drift, asks, caplog
):
    _, paid = bought
    entries = entries_of(memory())
    at = next(n for n, one in enumerate(entries, 1) if "task:price" in str(one.commit.get("place")))
    changed = crew_of(cut(entries, at, on_drift=on_drift), paid, item="a yacht, not {x}")
    if not asks:
        changed.kickoff(run_id=RUN)
        assert paid == [3]
        return
    with pytest.raises(Suspended, match="1000"):
        changed.kickoff(run_id=RUN)
    assert PAY in caplog.text
    assert paid == []
    changed.kickoff(run_id=RUN, answers={PAY: True})
    assert paid == [1000]


@pytest.mark.parametrize("change", [{"inputs": {"what": "slander"}}, {"edits": {"step:draft_of": "slander"}}])
def test_an_answer_given_ahead_in_the_body_of_a_flow_is_not_inherited_by_a_fork_with_changes(memory, change):
    @step
    def draft_of(what):
        return what

    @flow(checkpoint=memory())
    def publish(what):
        return draft_of(what), ask("Publish?", bool, name="publish")

    publish.kickoff("tides", run_id=RUN, answers={"human:publish": True})
    with pytest.raises(Suspended):
        publish.fork(f"{RUN}@step:draft_of", **change).kickoff()
