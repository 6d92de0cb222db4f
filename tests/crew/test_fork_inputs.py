"""A fork may be asked something else: exactly what that changes runs again, and what builds on it."""

from __future__ import annotations

import os
import sys

import pytest

from crewlite import Agent, Crew, Task, ToolCall, durable, event_bus, tool
from crewlite.errors import ConfigError, InputsChanged, MissingInput, TaskDrifted
from crewlite.events import StepReplayedEvent
from crewlite.testing import ScriptedLLM
from tests import children
from tests.parts import Stop, history, outputs


def team(llm, setting, a="about {topic}", e="e"):
    """a asks of a topic, b builds on a, c stands alone, d asks of a mood, e builds on c."""
    who = Agent(role="Worker", goal="g", llm=llm)

    def task(name, text, *context):
        return Task(name=name, description=text, expected_output="x", agent=who, context=list(context))

    one = task("a", a)
    two = task("b", "b", one)
    three = task("c", "c")
    four = task("d", "in a {mood} mood")
    return Crew(tasks=[one, two, three, four, task("e", e, three)], checkpoint=setting)


def echo(word):
    """A model that says which question it was asked, and `word`."""
    return ScriptedLLM(lambda messages: f"{messages[1]['content'].splitlines()[0]} ({word})")


RECORDED = ["about tides (1)", "b (1)", "c (1)", "in a calm mood (1)", "e (1)"]
TIDES = {"topic": "tides", "mood": "calm"}


@pytest.fixture
def finished(stored):
    result = team(echo(1), stored()).kickoff(TIDES, run_id="r")
    assert outputs(result) == RECORDED
    return stored


@pytest.mark.parametrize(
    ("inputs", "again"),
    [
        (None, ""),
        ({}, ""),
        (TIDES, ""),
        ({"topic": "tides"}, ""),
        ({"topic": "moons"}, "ab"),
        ({"mood": "wild"}, "d"),
        ({"topic": "moons", "mood": "wild"}, "abd"),
    ],
)
def test_exactly_the_tasks_whose_question_changes_run_again_and_what_builds_on_them(finished, inputs, again):
    llm = echo(2)
    replayed = []
    event_bus.on(StepReplayedEvent, lambda source, event: replayed.append(event.address))
    forked = team(llm, finished()).fork(finished(restore_from="r"), branch="f")
    result = forked.kickoff(inputs)
    values = TIDES | (inputs or {})
    assert outputs(result) == [
        f"about {values['topic']} ({2 if 'a' in again else 1})",
        f"b ({2 if 'b' in again else 1})",
        "c (1)",
        f"in a {values['mood']} mood ({2 if 'd' in again else 1})",
        "e (1)",
    ]
    assert len(llm.calls) == len(again)
    if again:
        assert replayed == [f"task:{name}" for name in "abcde" if name not in again]
    with history(finished()) as found:
        assert found.run("r/f").inputs == values
        assert found.run("r").inputs == TIDES
    assert outputs(team(ScriptedLLM([]), finished()).kickoff(run_id="r")) == RECORDED


def test_new_inputs_may_fill_new_placeholders(finished):
    forked = team(echo(2), finished(), e="e for a {strategy} plan").fork(finished(restore_from="r"), branch="f")
    with pytest.raises(MissingInput, match="strategy"):
        forked.kickoff()
    result = forked.kickoff({"strategy": "bold"})  # the first that began: what was refused recorded nothing
    assert outputs(result)[4] == "e for a bold plan (2)"
    assert outputs(result)[:4] == RECORDED[:4]


def test_a_dependent_answers_when_what_it_builds_on_says_the_same_again(stored):
    def first_word(messages):
        return messages[1]["content"].splitlines()[0].partition(" ")[0]

    team(ScriptedLLM(first_word), stored()).kickoff(TIDES, run_id="r")
    again = ScriptedLLM(first_word)
    team(again, stored()).fork(stored(restore_from="r"), branch="f").kickoff({"topic": "moons"})
    assert len(again.calls) == 1


def test_the_first_kickoff_settles_the_inputs(finished):
    llm = ScriptedLLM(["moons!", Stop(), "b!"])
    forked = team(llm, finished()).fork(finished(restore_from="r"), branch="f")
    with pytest.raises(Stop):
        forked.kickoff({"topic": "moons"})
    with pytest.raises(InputsChanged, match="other inputs: 'topic'"):
        forked.kickoff({"topic": "stars"})
    with pytest.raises(InputsChanged, match="other inputs: 'strategy'"):
        forked.kickoff({"strategy": "bold"})
    for inputs in (None, {"topic": "moons"}, {}, {"topic": "moons", "mood": "calm"}):
        assert outputs(forked.kickoff(inputs)) == ["moons!", "b!", *RECORDED[2:]]
    assert len(llm.calls) == 3


def test_a_kickoff_without_inputs_settles_them_too(finished):
    forked = team(ScriptedLLM([Stop()]), finished()).fork(finished(restore_from="main@task:a"), branch="f")
    with pytest.raises(Stop):
        forked.kickoff()
    with pytest.raises(InputsChanged):
        forked.kickoff({"topic": "moons"})


def test_a_fork_of_a_fork_with_inputs_again(finished):
    one = team(echo(2), finished()).fork(finished(restore_from="r"), branch="one")
    one.kickoff({"topic": "moons"})
    two = team(echo(3), finished()).fork(finished(restore_from="one"), branch="two")
    assert outputs(two.kickoff({"mood": "wild"})) == [
        "about moons (2)",
        "b (2)",
        "c (1)",
        "in a wild mood (3)",
        "e (1)",
    ]
    back = team(echo(4), finished()).fork(finished(restore_from="two"), branch="back")
    assert outputs(back.kickoff({"topic": "tides"})) == [
        "about tides (4)",
        "b (4)",
        "c (1)",
        "in a wild mood (3)",
        "e (1)",
    ]


@pytest.mark.parametrize("crash_at", range(1, 6))
def test_a_fork_that_is_cut_anywhere_pays_nothing_twice(finished, crash_at):
    calls = []

    def answer(messages):
        calls.append(messages[1]["content"].splitlines()[0])
        if len(calls) == crash_at:
            raise Stop
        return f"{calls[-1]} (2)"

    forked = team(ScriptedLLM(answer), finished()).fork(finished(restore_from="main@task:b"), branch="f")
    wanted = ["about moons (2)", "b (2)", "c (2)", "in a calm mood (2)", "e (2)"]
    with pytest.raises(Stop):
        forked.kickoff({"topic": "moons"})
    assert outputs(forked.kickoff()) == wanted
    assert len(calls) == 6
    assert outputs(forked.kickoff()) == wanted
    assert len(calls) == 6


def test_an_answer_stands_until_there_is_another(finished):
    """Whoever tries to do something again, and fails, has not lost what was paid."""
    forked = team(ScriptedLLM([Stop()]), finished()).fork(finished(restore_from="r"), branch="f")
    with pytest.raises(Stop):
        forked.kickoff({"topic": "moons"})
    back = team(ScriptedLLM([]), finished()).fork(finished(restore_from="r/f"), branch="back")
    assert outputs(back.kickoff({"topic": "tides"})) == RECORDED


def test_a_finished_run_that_goes_on_as_a_fork_is_claimed_all_the_while(finished):
    """Its result holds no more from the moment on that it is asked something else."""
    claims = []

    def reply(messages):
        with history(finished()) as found:
            claims.append((found.run("r/f").status, found.prune(keep_last=1).busy))
        return "moons!"

    crew = team(ScriptedLLM(reply), finished(on_events=["task_started", "llm_call_started"]))
    crew.fork(finished(restore_from="r"), branch="f").kickoff({"topic": "moons"})
    assert claims == [("unfinished", ("r/f",))] * 2


@pytest.mark.parametrize(("on_drift", "calls"), [("keep", ["about moons", "b"]), ("rerun", ["about moons", "b", "E"])])
def test_on_drift_still_decides_about_what_was_edited_and_not_asked_otherwise(finished, on_drift, calls):
    llm = echo(2)
    forked = team(llm, finished(on_drift=on_drift), e="E").fork(finished(restore_from="r"), branch="f")
    forked.kickoff({"topic": "moons"})
    assert [messages[1]["content"].splitlines()[0] for messages in llm.calls] == calls


def test_on_drift_error_does_not_stop_what_inputs_have_changed(finished):
    strict = finished(on_drift="error")
    forked = team(echo(2), strict).fork(finished(restore_from="r"), branch="f")
    assert outputs(forked.kickoff({"topic": "moons"}))[:2] == ["about moons (2)", "b (2)"]
    edited = team(echo(2), strict, e="E")
    with pytest.raises(TaskDrifted, match="task:e"):
        edited.fork(finished(restore_from="r"), branch="g")
    with pytest.raises(TaskDrifted, match="task:e"):
        edited.fork(finished(restore_from="r"), branch="g", inputs={"topic": "moons"}).kickoff()


def test_what_a_fork_has_done_again_is_kept_like_anything_else_when_the_script_changes(finished):
    forked = team(ScriptedLLM(["moons!", Stop()]), finished()).fork(finished(restore_from="r"), branch="f")
    with pytest.raises(Stop):
        forked.kickoff({"topic": "moons"})
    llm = ScriptedLLM(["b!"])
    edited = team(llm, finished(), a="all about {topic}")
    assert outputs(edited.kickoff(from_checkpoint=finished(restore_from="r/f"))) == ["moons!", "b!", *RECORDED[2:]]
    assert len(llm.calls) == 1


def test_a_tool_called_by_a_fork_has_another_idempotency_key(stored):
    keys = []

    @tool
    def pay(amount: int, idempotency_key: str = "") -> str:
        """Pay."""
        keys.append(durable.scope().idempotency_key)
        return "paid"

    def crew():
        llm = ScriptedLLM([ToolCall("pay", {"amount": 3}), "done"])
        who = Agent(role="Worker", goal="g", llm=llm, tools=[pay])
        tasks = [Task(name="t", description="about {topic}", expected_output="x", agent=who)]
        return Crew(tasks=tasks, checkpoint=stored())

    crew().kickoff({"topic": "tides"}, run_id="r")
    for branch in ("one", "two"):
        crew().fork(stored(restore_from="r"), branch=branch).kickoff({"topic": "moons"})
    assert len(set(keys)) == 3


SCRIPT = """
import sys
from crewlite import Agent, Crew, Task, CheckpointConfig
from crewlite.testing import ScriptedLLM
location, verb, *rest = sys.argv[1:]
def reply(messages):
    line = messages[1]["content"].splitlines()[0]
    print("asked", line, flush=True)
    if verb == "die" and line == "Do 2":
        import os; os._exit(9)
    return f"answer to {line}"
who = Agent(role="W", goal="g", llm=ScriptedLLM(reply))
texts = ["Do {what}", "Do 1", "Do 2"]
tasks = [Task(name=f"t{n}", description=text, expected_output="x", agent=who, context=[]) for n, text in enumerate(texts)]
crew = Crew(tasks=tasks, checkpoint=CheckpointConfig(location=location))
if verb == "fork":
    crew.fork("r", branch="f")
elif rest:
    print(crew.kickoff({"what": rest[0]}, from_checkpoint="r/f")["t0"].raw)
else:
    print(crew.kickoff({"what": "0"}, run_id="r")["t0"].raw)
"""


@pytest.mark.skipif(os.name == "nt", reason="a process that ends itself so does it elsewhere otherwise")
def test_a_fork_made_in_one_process_is_cut_in_a_second_and_finished_in_a_third(on_disk):
    def script(*words):
        command = [sys.executable, "-c", SCRIPT, on_disk().location, *words]
        done = children.run(command, capture_output=True, text=True, check=False)
        return done.stdout.splitlines()

    assert script("die") == ["asked Do 0", "asked Do 1", "asked Do 2"]
    assert script("fork") == []
    assert script("die", "other") == ["asked Do other", "asked Do 2"]
    assert script("live", "other") == ["asked Do 2", "answer to Do other"]
    assert script("live") == ["asked Do 2", "answer to Do 0"]


def test_an_input_that_no_text_asks_for_is_refused_before_a_branch_is_made(finished):
    crew = team(echo(2), finished())
    with pytest.raises(ConfigError, match="Run 'r' has no input 'topik'; did you mean 'topic'"):
        crew.fork(finished(restore_from="r"), branch="f", inputs={"topik": "moons"})
    with pytest.raises(ConfigError, match="has no input 'strategy'; it takes mood, topic"):
        Crew.fork(finished(restore_from="r"), branch="f", inputs={"strategy": "bold"}, bind={"llm": echo(2)})
    with history(finished()) as found:
        with pytest.raises(ConfigError, match="did you mean 'mood'"):
            found.fork("r", branch="f", inputs={"moods": "wild"})
        assert [run.branch for run in found.runs()] == ["main"]


def test_an_input_that_no_text_asks_for_is_refused_at_the_kickoff_of_a_fork_too(finished):
    llm = echo(2)
    forked = team(llm, finished()).fork(finished(restore_from="r"), branch="f")
    for verb in (forked.kickoff, forked.preview):
        with pytest.raises(ConfigError, match="Run 'r' has no input 'topik'; did you mean 'topic'"):
            verb({"topik": "moons"})
        with pytest.raises(ConfigError, match="has no input 'strategy'; it takes mood, topic"):
            verb({"strategy": "bold"})
    with history(finished()) as found:
        assert found.run("r/f").inputs == TIDES
    assert not llm.calls
    assert outputs(forked.kickoff({"topic": "moons"}))[0] == "about moons (2)", "what was refused recorded nothing"


def test_an_input_that_only_the_crew_of_today_asks_for_is_taken(finished):
    crew = team(echo(2), finished(), e="e for a {strategy} plan")
    forked = crew.fork(finished(restore_from="r"), branch="f", inputs={"strategy": "bold"})
    assert outputs(forked.kickoff())[4] == "e for a bold plan (2)"


def test_an_input_that_was_recorded_is_taken_though_no_text_asks_for_it(stored):
    team(echo(1), stored()).kickoff(TIDES | {"note": "x"}, run_id="r")
    forked = team(echo(2), stored()).fork(stored(restore_from="r"), branch="f", inputs={"note": "y"})
    assert outputs(forked.kickoff()) == RECORDED


def test_a_label_leaves_the_inputs_of_a_fork_open_that_has_gone_back_to_its_beginning(finished):
    with history(finished()) as found:
        base = found.checkpoint("r@task:a")
        found.fork(base, branch="other")
        team(echo(2), finished(restore_from="r/other")).kickoff()
        own = found.checkpoint("r/other@task:e")
        found.rewind(f"r/other@{base.id}", reason="the inputs were wrong")
        assert not found.run("r/other").kicked_off
        found.label(own, "before")
        assert not found.run("r/other").kicked_off
    result = team(echo(3), finished(restore_from="r/other")).kickoff({**TIDES, "topic": "winds"})
    assert outputs(result)[0] == "about winds (3)"
