"""What a fork begins with: inputs that are recorded with it, edits that are checked and used, and a budget of its own."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.errors import (
    AnswerRefused,
    BranchExists,
    CheckpointIsBehind,
    ConfigError,
    InputsChanged,
    RefError,
    Suspended,
)
from crewlite.flow import ask, flow, step
from crewlite.testing import ScriptedLLM

ran = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    ran.clear()


@step
def double(n):
    ran.append(n)
    return n * 2


def doubling(config):
    @flow(checkpoint=config)
    def both(one, other=2):
        return [double(one), double(other)]

    return both


def pair(config):
    llm = ScriptedLLM(lambda messages: messages[1]["content"].splitlines()[0])
    who = Agent(role="Worker", goal="g", llm=llm)
    tasks = [Task(name=n, description=f"{n} {{{n}}}", expected_output="x", agent=who, context=[]) for n in ("a", "b")]
    return Crew(tasks=tasks, checkpoint=config), llm


# inputs


def test_inputs_are_recorded_with_the_fork_and_hold_for_whoever_kicks_it_off(on_disk):
    both = doubling(on_disk())
    assert both.kickoff(1, run_id="r") == [2, 4]
    both.fork("r", branch="x", inputs={"one": 5})
    with History(on_disk().location) as history:
        run = history.run("r/x")
        assert (run.inputs, run.status) == ({"one": 5}, "unfinished")
        assert history.run("r").inputs == {"one": 1}
    ran.clear()
    assert doubling(on_disk()).kickoff(from_checkpoint="r/x") == [10, 4]
    assert ran == [5]
    assert doubling(on_disk()).kickoff(5, from_checkpoint="r/x") == [10, 4]
    with pytest.raises(InputsChanged, match=r"flow.fork\('r/x', inputs=\{'one': ...\}\)"):
        doubling(on_disk()).kickoff(6, from_checkpoint="r/x")


def test_the_history_makes_the_same_fork_of_a_crew(on_disk):
    pair(on_disk())[0].kickoff({"a": 1, "b": 2}, run_id="r")
    with History(on_disk().location) as history:
        history.fork("r", branch="x", inputs={"b": 3})
    crew, llm = pair(on_disk())
    assert [output.raw for output in crew.kickoff(from_checkpoint="r/x").tasks_output] == ["a 1", "b 3"]
    assert len(llm.calls) == 1


def test_a_fresh_fork_takes_inputs_over_its_own_also_when_it_was_answered(on_disk):
    @flow(checkpoint=on_disk())
    def asks(one, other=2):
        return [double(one), double(other), ask("Well?", name="well")]

    with pytest.raises(Suspended):
        asks.kickoff(1, run_id="r")
    asks.fork("r", branch="x", inputs={"one": 3})
    with History(on_disk().location) as history:
        history.answer("r/x", "human:well", "yes")
    assert asks.kickoff(other=4, from_checkpoint="r/x") == [6, 8, "yes"]
    with pytest.raises(InputsChanged):
        asks.kickoff(other=5, from_checkpoint="r/x")


def test_inputs_that_a_flow_does_not_take_are_refused_before_a_branch_is_made(memory):
    both = doubling(memory())
    both.kickoff(1, run_id="r")
    with pytest.raises(ConfigError, match="unexpected keyword argument 'third'"):
        both.fork("r", branch="x", inputs={"third": 1})
    with pytest.raises(RefError):
        both.kickoff(from_checkpoint="r/x")
    with pytest.raises(ConfigError, match=r"argument 'othr'; did you mean 'other'\?; it takes \(one, other=2\)"):
        both.fork("r", branch="x", inputs={"othr": 1})
    with History(memory().location, memory().provider, make=True) as history:
        with pytest.raises(ConfigError, match="Run 'r' has no input 'othr'; did you mean 'other'"):
            history.fork("r", branch="x", inputs={"othr": 1})
        history.fork("r", branch="z", inputs={"other": 7})  # it was not given, and is a parameter
    assert both.kickoff(from_checkpoint="r/z") == [2, 14]
    with pytest.raises(ConfigError, match="wanted names and values"):
        both.fork("r", branch="y", inputs=["one"])


def test_an_agent_is_asked_something_else_by_its_fork(memory):
    agent = Agent(role="Clerk", goal="g", llm=ScriptedLLM(["first", "second"]), checkpoint=memory())
    assert agent.kickoff("One?", run_id="r").raw == "first"
    agent.fork("r", branch="x", inputs={"messages": "Two?"})
    assert agent.kickoff(from_checkpoint="r/x").raw == "second"
    assert agent.kickoff("Two?", from_checkpoint="r/x").raw == "second"
    with pytest.raises(ConfigError, match="did you mean .messages."):
        agent.fork("r", inputs={"message": "Two?"})


@pytest.mark.parametrize(
    "change", [{"inputs": {"topic": "moons"}}, {"edits": {"step:double": 8}}], ids=["inputs", "an edit"]
)
def test_a_crew_in_a_flow_does_again_what_is_asked_otherwise_and_no_more(memory, change):
    llm = ScriptedLLM(lambda messages: messages[1]["content"].splitlines()[0])
    who = Agent(role="Worker", goal="g", llm=llm)
    tasks = [
        Task(name=name, description=text, expected_output="x", agent=who, context=[])
        for name, text in (("a", "about {topic} {n}"), ("b", "always"))
    ]
    crew = Crew(name="desk", tasks=tasks)

    @flow(checkpoint=memory())
    def whole(topic):
        return [output.raw for output in crew.kickoff({"topic": topic, "n": double(1)}).tasks_output]

    assert whole.kickoff("tides", run_id="r") == ["about tides 2", "always"]
    forked = whole.fork("r", branch="x", **change)
    assert [line.verdict for line in forked.preview()][1:] == ["runs", "reused"]
    changed = "about moons 2" if "inputs" in change else "about tides 8"
    assert forked.kickoff() == [changed, "always"]
    assert len(llm.calls) == 3


def test_inputs_are_part_of_the_operation(memory):
    both = doubling(memory())
    both.kickoff(1, run_id="r")
    for _ in range(2):
        both.fork("r", branch="x", operation_id="o", inputs={"one": 2})
    with pytest.raises(BranchExists):
        both.fork("r", branch="x", operation_id="o", inputs={"one": 3})


def test_a_secret_of_the_crew_is_not_written_with_what_a_fork_changes(memory):
    class Keyed(ScriptedLLM):
        key = SecretStr("abcdefgh-very-secret")

        def __init__(self):
            super().__init__(lambda messages: "said")
            self.api_key = self.key

    who = Agent(role="Worker", goal="g", llm=Keyed())
    crew = Crew(
        tasks=[Task(name="a", description="a {a}", expected_output="x", agent=who)],
        checkpoint=memory(redact=("ivory-tower",)),
    )
    crew.kickoff({"a": 1}, run_id="r")
    crew.fork("r", branch="x", inputs={"a": "abcdefgh-very-secret"}, edits={"task:a": "an ivory-tower"})
    with History(memory().location, memory().provider, make=True) as history:
        assert history.run("r/x").inputs == {"a": "[secret]"}
        assert {s.address: s.value for s in history.run("r/x").steps}["task:a"]["raw"] == "an [secret]"


# edits


def test_an_edited_answer_must_fit_its_question_when_the_fork_is_made(memory):
    @flow(checkpoint=memory())
    def publish(text):
        return [ask("Publish?", bool, name="ok"), ask("Who?", name="who")]

    for answers in ({}, {"human:ok": True}):
        with pytest.raises(Suspended):
            publish.kickoff("x", run_id="r", answers=answers)
    publish.kickoff("x", run_id="r", answers={"human:who": "Ada"})
    for edits in ({"human:ok": "perhaps"}, {"human:who": 7}):
        with pytest.raises(AnswerRefused, match="Nothing was changed"):
            publish.fork("r", branch="x", edits=edits)
    assert publish.fork("r", branch="x", edits={"human:ok": False}).kickoff() == [False, "Ada"]


@pytest.mark.parametrize(("first", "then"), [(True, False), (False, True)])
def test_an_edited_approval_decides_on_the_call_anew(memory, first, then):
    paid = []

    @tool(requires_approval=True)
    def pay(amount: str) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    def replies(messages):
        heard = [m["content"] for m in messages if m["role"] == "tool"]
        return heard[0] if heard else ToolCall("pay", {"amount": "5"})

    who = Agent(role="Cashier", goal="g", llm=ScriptedLLM(replies), tools=[pay])
    crew = Crew(tasks=[Task(name="t", description="d", expected_output="e", agent=who)], checkpoint=memory())
    results = {True: "paid 5", False: "A person did not allow this call of pay. Go on without it."}
    assert crew.kickoff(run_id="r", answers={"task:t/human:pay": first}).raw == results[first]
    assert crew.fork("r", branch="x", edits={"task:t/human:pay": then}).kickoff().raw == results[then]
    assert paid == ["5"]


def test_an_edit_within_a_step_stands_also_if_the_inside_was_pruned_meanwhile(on_disk):
    @step
    def outer(n):
        return double(n) + 1

    @flow(checkpoint=on_disk())
    def whole(n):
        return [outer(n), outer(2)]

    assert whole.kickoff(1, run_id="r") == [3, 5]
    whole.fork("r", branch="x", edits={"step:outer#2/step:double": 50})
    with History(on_disk().location) as history:
        assert history.prune(keep_last=1).freed
        history.export("r", "r.json")
        assert history.doctor() == []
    assert whole.kickoff(from_checkpoint="r/x") == [3, 51]


def test_many_edits_of_many_steps_all_stand(memory):
    @step
    async def same(n):
        ran.append(n)
        return n

    @flow(checkpoint=memory(on_events=["flow_finished"]))
    async def sums(count):
        return sum(await same.map(range(count)))

    sums.kickoff(400, run_id="r")
    ran.clear()
    edits = {"step:same" if n == 0 else f"step:same#{n + 1}": n + 1000 for n in range(0, 400, 2)}
    assert sums.fork("r", branch="x", edits=edits).kickoff() == sum(range(400)) + 200 * 1000
    assert ran == []


# budgets


def test_what_failed_before_the_place_spends_no_budget_of_the_fork(memory):
    fails = [2]

    @step(retries=2)
    def shaky():
        if fails[0]:
            fails[0] -= 1
            raise ConnectionError("no line")
        return "at last"

    @flow(checkpoint=memory())
    def patient():
        return shaky()

    assert patient.kickoff(run_id="r") == "at last"
    fails[0] = 2
    assert patient.fork("r", branch="x", rerun=["step:shaky"]).kickoff() == "at last"
    fails[0] = 3
    with pytest.raises(ConnectionError):
        patient.fork("r", branch="y", rerun=["step:shaky"]).kickoff()
    with History(memory().location, memory().provider, make=True) as history:
        assert [a.number for a in history.run("r/x").attempts] == [3, 4]


def test_a_place_behind_the_head_of_a_flow_names_the_verb_of_flows(memory):
    @flow(checkpoint=memory(on_events=["step_completed"]))
    def fails(n):
        double(double(n))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails.kickoff(1, run_id="r")
    with pytest.raises(CheckpointIsBehind, match=r"flow\.fork\("):
        fails.kickoff(from_checkpoint="r/main@step:double")


def test_an_edit_or_rerun_of_a_failed_step_is_told_what_a_fork_does_with_it(memory):
    @step
    def fails():
        raise ConnectionError("no line")

    @flow(checkpoint=memory())
    def patient(catches):
        try:
            return fails()
        except ConnectionError:
            if not catches:
                raise

    with pytest.raises(ConnectionError):
        patient.kickoff(False, run_id="failed")
    for changed in ({"rerun": ["step:fails"]}, {"edits": {"step:fails": 1}}):
        with pytest.raises(RefError, match="'step:fails' has failed, .* any fork from there tries it again, without"):
            patient.fork("failed", **changed)
    patient.kickoff(True, run_id="handled")
    with pytest.raises(RefError, match="'step:fails' has failed, .* only if rerun names it"):
        patient.fork("handled", edits={"step:fails": 1})
