"""Edit one outcome and go on: what builds on it runs again, everything else answers from the record."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel

from crewlite import Agent, Crew, History, LLMReply, Task, ToolCall, tool
from crewlite.errors import AnswerMisfit, BranchExists, ChangeUnused, ConfigError, RefError
from crewlite.flow import flow, step
from crewlite.testing import ScriptedLLM
from tests.crew.listed import branches
from tests.parts import outputs


def team(setting, life):
    """a; b builds on a; c stands alone; d builds on b and c."""
    llm = ScriptedLLM(lambda messages: f"{messages[1]['content'].splitlines()[0]} in life {life}")
    who = Agent(role="Worker", goal="g", llm=llm)

    def task(name, *context):
        return Task(name=name, description=name, expected_output="x", agent=who, context=list(context))

    a = task("a")
    b = task("b", a)
    c = task("c")
    return Crew(tasks=[a, b, c, task("d", b, c)], checkpoint=setting), llm


def scout(setting, where="out", seen=None):
    """An agent that looks out, and takes what it sees."""

    @tool
    def look(where: str) -> str:
        """Look."""
        if seen is not None:
            seen.append(where)
        return "rain"

    def replies(messages):
        heard = [m["content"] for m in messages if m["role"] == "tool"]
        return f"take {heard[0]}" if heard else ToolCall("look", {"where": where})

    agent = Agent(role="Scout", goal="g", llm=ScriptedLLM(replies), tools=[look])
    return Crew(tasks=[Task(name="t", description="d", expected_output="e", agent=agent)], checkpoint=setting)


FIRST = ["a in life 1", "b in life 1", "c in life 1", "d in life 1"]


@pytest.fixture
def finished(stored):
    crew, _ = team(stored(), 1)
    assert outputs(crew.kickoff(run_id="r")) == FIRST
    return stored


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"edits": {"task:a": "mine"}}, ["mine", "b in life 2", "c in life 1", "d in life 2"]),
        ({"edits": {"task:b": "mine"}}, ["a in life 1", "mine", "c in life 1", "d in life 2"]),
        ({"edits": {"task:c": "mine"}}, ["a in life 1", "b in life 1", "mine", "d in life 2"]),
        ({"edits": {"task:d": "mine"}}, ["a in life 1", "b in life 1", "c in life 1", "mine"]),
        ({"edits": {"task:a": "mine", "task:b": "ours"}}, ["mine", "ours", "c in life 1", "d in life 2"]),
        ({"edits": {"task:a": "a in life 1"}}, FIRST),
        ({"edits": {"task:a/llm#1": "thought"}}, ["thought", "b in life 2", "c in life 1", "d in life 2"]),
        ({"rerun": ["task:b"]}, ["a in life 1", "b in life 2", "c in life 1", "d in life 2"]),
        ({"rerun": "task:d"}, ["a in life 1", "b in life 1", "c in life 1", "d in life 2"]),
        ({"edits": {"task:a": "mine"}, "rerun": ["task:c"]}, ["mine", "b in life 2", "c in life 2", "d in life 2"]),
    ],
    ids=str,
)
def test_exactly_what_builds_on_a_change_runs_again(finished, change, wanted):
    crew, llm = team(finished(), 2)
    forked = crew.fork("r", branch="edited", **change)
    assert outputs(forked.kickoff()) == wanted
    assert len(llm.calls) == sum("life 2" in text for text in wanted)
    assert outputs(forked.kickoff()) == wanted
    assert outputs(team(finished(), 3)[0].kickoff(run_id="r")) == FIRST, "the original is as it was"


def test_a_fork_that_is_cut_keeps_its_edits(finished):
    crew, _ = team(finished(), 2)
    crew.fork("r", branch="edited", edits={"task:a": "mine"})
    crew, llm = team(finished(), 3)
    assert outputs(crew.kickoff(from_checkpoint="r/edited")) == ["mine", "b in life 3", "c in life 1", "d in life 3"]
    assert len(llm.calls) == 2


def test_a_fork_of_an_edited_fork_stands_on_the_edit(finished):
    crew, _ = team(finished(), 2)
    crew.fork("r", branch="one", edits={"task:a": "mine"}).kickoff()
    crew, _ = team(finished(), 3)
    forked = crew.fork("r/one", branch="two", edits={"task:c": "ours"})
    assert outputs(forked.kickoff()) == ["mine", "b in life 2", "ours", "d in life 3"]


def test_what_ran_again_on_a_fork_is_asked_anew_by_a_fork_with_other_inputs(memory):
    asked = []

    def crew():
        who = Agent(
            role="W", goal="g", llm=ScriptedLLM(lambda messages: f"of {messages[1]['content'].splitlines()[0]}")
        )
        return Crew(tasks=[Task(name="a", description="{topic}", expected_output="x", agent=who)], checkpoint=memory())

    def flow_of():
        @step
        def look(topic):
            asked.append(topic)
            return f"of {topic}"

        @flow(checkpoint=memory())
        def looks(topic):
            return look(topic)

        return looks

    for made, run, at in ((crew(), "c", "task:a"), (flow_of(), "f", "step:look")):
        made.kickoff({"topic": "tides"}, run_id=run) if run == "c" else made.kickoff("tides", run_id=run)
        made.fork(run, branch="again", rerun=[at]).kickoff()
        result = made.fork(f"{run}/again", branch="moons", inputs={"topic": "moons"}).kickoff()
        assert getattr(result, "raw", result) == "of moons"
    assert asked == ["tides", "tides", "moons"]


def test_an_edited_outcome_is_told_from_one_that_a_step_came_to_also_in_forks_of_the_fork(on_disk):
    crew, _ = team(on_disk(), 1)
    crew.kickoff(run_id="r")
    crew.fork("r", branch="one", edits={"task:a": "mine", "task:c": "mine too"}).kickoff()
    again = crew.fork("r/one", branch="two", rerun=["task:c"])
    assert [line.why for line in again.preview()][:2] == ["was edited", "is recorded"]
    again.kickoff()
    with History(on_disk().location) as history:
        edited = [[step.address for step in history.run(f"r/{name}").steps if step.edited] for name in ("one", "two")]
    assert edited == [["task:a", "task:c"], ["task:a"]]


def test_the_history_makes_the_same_fork(on_disk):
    team(on_disk(), 1)[0].kickoff(run_id="r")
    with History(on_disk().location) as history:
        history.fork("r", branch="edited", edits={"task:b": "mine"})
        steps = {view.address: view.value for view in history.run("r/edited").steps}
        assert steps["task:b"]["raw"] == "mine"
        assert "task:d" in steps
    crew, _ = team(on_disk(), 2)
    assert outputs(crew.kickoff(from_checkpoint="r/edited"))[1:] == ["mine", "c in life 1", "d in life 2"]


def test_the_same_operation_with_the_same_edits_makes_one_fork(finished):
    crew, _ = team(finished(), 2)
    for _ in range(2):
        crew.fork("r", branch="x", operation_id="o", edits={"task:a": "mine"})
    with pytest.raises(BranchExists):
        crew.fork("r", branch="x", operation_id="o", edits={"task:a": "other"})


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"edits": {"task:z": "x"}}, RefError, "task:a"),
        ({"edits": {"": "x"}}, RefError, "no finished step"),
        ({"rerun": ["task:z"]}, RefError, "run again"),
        ({"edits": ["task:a"]}, ConfigError, "wanted outcomes by address"),
        ({"rerun": 7}, ConfigError, "wanted a list of addresses"),
        ({"edits": {"task:a": 7}}, ConfigError, "int"),
        ({"edits": {"task:a": "x"}, "rerun": ["task:a"]}, ConfigError, "one of the two"),
    ],
    ids=str,
)
def test_a_change_that_cannot_be_is_told_and_no_branch_is_made(finished, change, error, says):
    crew, _ = team(finished(), 2)
    with pytest.raises(error, match=says):
        crew.fork("r", branch="edited", **change)
    with pytest.raises(RefError):
        crew.kickoff(from_checkpoint="r/edited")


class Verdict(BaseModel):
    good: bool


def test_structured_answers_are_edited_as_data_and_must_fit(stored):
    def crew(word):
        llm = ScriptedLLM(lambda messages: f'{{"good": {word}}}')
        judge = Agent(role="Judge", goal="g", llm=llm)
        task = Task(name="judge", description="j", expected_output="v", agent=judge, output_pydantic=Verdict)
        return Crew(tasks=[task], checkpoint=stored())

    crew("true").kickoff(run_id="r")
    forked = crew("true").fork("r", branch="one", edits={"task:judge": Verdict(good=False)})
    assert forked.kickoff().pydantic == Verdict(good=False)
    forked = crew("true").fork("r", branch="two", edits={"task:judge": {"good": False}})
    assert forked.kickoff().pydantic == Verdict(good=False)


NO_VERDICT = {
    "a text": ("task:judge", "no verdict", "the answer: Invalid JSON"),
    "other data": ("task:judge", {"bad": True}, "good: Field required"),
    "a guardrail's answer": ("task:judge/guardrail#1", [True, '{"good": 7}'], "good: Input should be a valid boolean"),
}


def judging(setting):
    judge = Agent(role="Judge", goal="g", llm=ScriptedLLM(lambda messages: '{"good": true}'))
    about = {"expected_output": "v", "agent": judge}
    task = Task(name="judge", description="j", output_pydantic=Verdict, guardrail=lambda output: (True, None), **about)
    return Crew(tasks=[task, Task(name="end", description="e", **about)], checkpoint=setting)


@pytest.mark.parametrize(("address", "value", "problem"), NO_VERDICT.values(), ids=NO_VERDICT)
def test_a_fork_refuses_an_edit_that_does_not_fit_the_class_of_its_task(stored, address, value, problem):
    judging(stored()).kickoff(run_id="r")
    live = {"llm": ScriptedLLM([]), "output_pydantic": Verdict, "guardrail": lambda output: (True, None)}
    for fork, source, more in (
        (judging(stored()).fork, "r", {}),
        (Crew.fork, stored(restore_from="r"), {"bind": live}),
    ):
        with pytest.raises(ConfigError) as refused:
            fork(source, edits={address: value}, **more)
        for part in (f"The edit of {address}", "task 'judge'", "Verdict", problem, "data with its fields: good"):
            assert part in str(refused.value)
    assert branches(stored) == ["main"]


@pytest.mark.parametrize(("address", "value", "problem"), NO_VERDICT.values(), ids=NO_VERDICT)
def test_a_kickoff_that_cannot_use_an_edit_says_how_to_go_on(stored, address, value, problem):
    judging(stored()).kickoff(run_id="r")
    with History(stored().location, provider=stored().provider) as history:
        history.fork("r", branch="x", edits={address: value})
    with pytest.raises(AnswerMisfit, match=re.escape(problem)) as refused:
        judging(stored()).kickoff(from_checkpoint="r/x")
    assert f"fork 'r/x' with another edit, or with rerun=['{address}']" in str(refused.value)
    if address == "task:judge":  # a preview does not look into a task
        with pytest.raises(AnswerMisfit):
            judging(stored()).bound_to("r/x").preview()
    other = {"good": True} if address == "task:judge" else [True, None]
    for changes in ({"rerun": [address]}, {"edits": {address: other}}):
        assert judging(stored()).fork("r/x", **changes).kickoff().raw == '{"good": true}'


@pytest.mark.parametrize("address", ["crew:crew/task:judge", "llm#1"])
def test_a_flow_that_cannot_use_an_edit_says_how_to_go_on(memory, address):
    @flow(checkpoint=memory())
    def court():
        told = ScriptedLLM(lambda messages: '{"good": false}').ask("Guilty?", Verdict)
        return [told.good, judging(None).kickoff()["judge"].pydantic.good]

    court.kickoff(run_id="r")
    forked = court.fork("r", branch="x", edits={address: "no verdict"})
    with pytest.raises(AnswerMisfit, match=re.escape(f"fork 'r/x' with another edit, or with rerun=['{address}']")):
        forked.kickoff()
    assert court.fork("r/x", rerun=[address]).kickoff() == [False, True]


def test_a_tools_result_may_be_edited_and_the_agent_goes_on_from_it(stored):
    assert scout(stored()).kickoff(run_id="r").raw == "take rain"
    assert scout(stored()).fork("r", branch="x", edits={"task:t/tool:look": "sun"}).kickoff().raw == "take sun"


def test_a_tools_result_may_be_edited_while_the_reply_that_asks_for_it_is_done_again(stored):
    scout(stored()).kickoff(run_id="r")
    forked = scout(stored()).fork("r", branch="x", edits={"task:t/tool:look": "sun"}, rerun=["task:t/llm#1"])
    assert forked.kickoff().raw == "take sun"
    assert scout(stored()).fork("r/x", branch="y", rerun=["task:t/llm#1"]).kickoff().raw == "take sun"


@pytest.mark.parametrize(
    ("edits", "rerun", "lost"),
    [
        ({"task:t/tool:look": "sun"}, ["task:t/llm#1"], "tool:look"),
        ({"task:t/tool:look": "sun", "task:t/llm#1": ToolCall("look", {"where": "in"})}, [], "tool:look"),
        ({"task:t/llm#2": "stay", "task:t/llm#1": ToolCall("look", {"where": "in"})}, [], "llm#2"),
        ({"task:t/llm#2": "stay", "task:t/tool:look": "sun"}, [], "llm#2"),
    ],
)
def test_an_edit_of_what_an_agent_said_or_heard_is_no_answer_to_something_else(on_disk, edits, rerun, lost):
    scout(on_disk()).kickoff(run_id="r")
    seen = []
    forked = scout(on_disk(), "in", seen).fork("r", branch="x", edits=edits, rerun=rerun)
    for _ in range(2):
        with pytest.raises(
            ChangeUnused, match=f"'task:t/{lost}' was edited, but this branch asks the step another question"
        ):
            forked.kickoff()
    assert seen == ["in"] * ("task:t/tool:look" not in edits), "the call that was edited is not made"
    first = {at: value for at, value in edits.items() if at != f"task:t/{lost}"}
    scout(on_disk(), "in").fork("r", branch="y", edits=first, rerun=rerun).kickoff()
    wanted = edits[f"task:t/{lost}"]
    result = scout(on_disk(), "in").fork("r/y", branch="z", edits={f"task:t/{lost}": wanted}).kickoff()
    assert wanted in result.raw, "one change after the other, as the error says"


def test_an_edit_that_nobody_asks_for_is_told_at_the_end_of_a_crew_too(memory):
    scout(memory()).kickoff(run_id="r")
    forked = scout(memory()).fork("r", branch="x", edits={"task:t/llm#1": "no need to look", "task:t/tool:look": "sun"})
    with pytest.raises(ChangeUnused, match="'task:t/tool:look' was edited or marked to run again, but this branch"):
        forked.kickoff()
    with pytest.raises(ConfigError, match="task:t/llm#1 is part of task:t, which is edited or rerun itself"):
        scout(memory()).fork("r", edits={"task:t/llm#1": "x", "task:t": "y"})
    with pytest.raises(ConfigError, match="is part of task:t"):
        scout(memory()).fork("r", edits={"task:t/llm#1": "x"}, rerun=["task:t"])
    assert scout(memory()).fork("r", rerun=["task:t", "task:t/llm#1"]).kickoff().raw == "take rain"


@pytest.mark.parametrize("wish", [lambda call: call, lambda call: [call], lambda call: LLMReply(tool_calls=(call,))])
def test_a_models_reply_may_be_edited_to_be_a_call(stored, wish):
    @tool(effect="once")
    def look(where: str) -> str:
        """Look."""
        return f"rain {where}"

    def crew():
        def replies(messages):
            heard = [m["content"] for m in messages if m["role"] == "tool"]
            return f"take {heard[0]}" if heard else ToolCall("look", {"where": "out"})

        agent = Agent(role="Scout", goal="g", llm=ScriptedLLM(replies), tools=[look])
        return Crew(tasks=[Task(name="t", description="d", expected_output="e", agent=agent)], checkpoint=stored())

    assert crew().kickoff(run_id="r").raw == "take rain out"
    other = {"task:t/llm#1": wish(ToolCall("look", {"where": "west"}))}
    assert crew().fork("r", branch="x", edits=other, allow_effects=True).kickoff().raw == "take rain west"
    with pytest.raises(ConfigError, match="wanted its text"):
        crew().fork("r", branch="y", edits={"task:t": wish(ToolCall("look", {}))})


# flows


def pipeline(setting, ran):
    @step
    def fetch(n):
        ran.append(("fetch", n))
        return n * 10

    @step
    def add(a, b):
        ran.append(("add", a, b))
        return a + b

    @flow(checkpoint=setting)
    def sums(one, other):
        return add(fetch(one), fetch(other))

    return sums


@pytest.mark.parametrize(
    ("change", "inputs", "result", "runs"),
    [
        ({"edits": {"step:fetch": 7}}, (), 27, [("add", 7, 20)]),
        ({"edits": {"step:add": 7}}, (), 7, []),
        ({"rerun": ["step:fetch#2"]}, (), 30, [("fetch", 2)]),
        ({}, (5,), 70, [("fetch", 5), ("add", 50, 20)]),
        ({"edits": {"step:fetch#2": 1}}, (5,), 51, [("fetch", 5), ("add", 50, 1)]),
    ],
    ids=str,
)
def test_a_fork_of_a_flow_runs_what_a_change_concerns(stored, change, inputs, result, runs):
    assert pipeline(stored(), []).kickoff(1, 2, run_id="r") == 30
    ran = []
    forked = pipeline(stored(), ran).fork("r", branch="x", **change)
    assert forked.kickoff(*inputs) == result
    assert ran == runs


def test_an_edit_that_the_flow_never_asks_for_is_an_error(stored):
    @step
    def fetch(n):
        return n

    def reading(count):
        return flow(name="f", checkpoint=stored())(lambda n=count: sum(fetch(i) for i in range(n)))

    reading(3).kickoff(run_id="r")
    with pytest.raises(RefError, match="step:fetch#3 was edited, but is not requested|'step:fetch#3' was edited"):
        reading(3).fork("r", branch="x", edits={"step:fetch#3": 9}).kickoff(2)
