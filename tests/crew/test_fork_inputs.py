"""A fork may be asked something else: exactly what that changes runs again, and what builds on it."""

from __future__ import annotations

import os
import sys

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, event_bus, tool
from crewlite.errors import ConfigError, InputsChanged, MissingInput, TaskDrifted
from crewlite.events import StepReplayedEvent
from crewlite.testing import ScriptedLLM
from tests import children
from tests.parts import Stop, outputs


def at(stored, ref, **more):
    return stored(restore_from=ref, **more)


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
    forked = team(llm, finished()).fork(at(finished, "r"), branch="f")
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
    with History(finished().location, finished().provider) as history:
        assert history.run("r/f").inputs == values
        assert history.run("r").inputs == TIDES
    assert outputs(team(ScriptedLLM([]), finished()).kickoff(run_id="r")) == RECORDED


def test_new_inputs_may_fill_new_placeholders(finished):
    forked = team(echo(2), finished(), e="e for a {strategy} plan").fork(at(finished, "r"), branch="f")
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
    team(again, stored()).fork(at(stored, "r"), branch="f").kickoff({"topic": "moons"})
    assert len(again.calls) == 1


def test_the_first_kickoff_settles_the_inputs(finished):
    llm = ScriptedLLM(["moons!", Stop(), "b!"])
    forked = team(llm, finished()).fork(at(finished, "r"), branch="f")
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
    forked = team(ScriptedLLM([Stop()]), finished()).fork(at(finished, "main@task:a"), branch="f")
    with pytest.raises(Stop):
        forked.kickoff()
    with pytest.raises(InputsChanged):
        forked.kickoff({"topic": "moons"})


def test_a_fork_of_a_fork_with_inputs_again(finished):
    one = team(echo(2), finished()).fork(at(finished, "r"), branch="one")
    one.kickoff({"topic": "moons"})
    two = team(echo(3), finished()).fork(at(finished, "one"), branch="two")
    assert outputs(two.kickoff({"mood": "wild"})) == [
        "about moons (2)",
        "b (2)",
        "c (1)",
        "in a wild mood (3)",
        "e (1)",
    ]
    back = team(echo(4), finished()).fork(at(finished, "two"), branch="back")
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

    forked = team(ScriptedLLM(answer), finished()).fork(at(finished, "main@task:b"), branch="f")
    wanted = ["about moons (2)", "b (2)", "c (2)", "in a calm mood (2)", "e (2)"]
    with pytest.raises(Stop):
        forked.kickoff({"topic": "moons"})
    assert outputs(forked.kickoff()) == wanted
    assert len(calls) == 6
    assert outputs(forked.kickoff()) == wanted
    assert len(calls) == 6


def test_an_answer_stands_until_there_is_another(finished):
    """Whoever tries to do something again, and fails, has not lost what was paid."""
    forked = team(ScriptedLLM([Stop()]), finished()).fork(at(finished, "r"), branch="f")
    with pytest.raises(Stop):
        forked.kickoff({"topic": "moons"})
    back = team(ScriptedLLM([]), finished()).fork(at(finished, "r/f"), branch="back")
    assert outputs(back.kickoff({"topic": "tides"})) == RECORDED


def test_a_finished_run_that_goes_on_as_a_fork_is_claimed_all_the_while(finished):
    """Its result holds no more from the moment on that it is asked something else."""
    claims = []

    def reply(messages):
        with History(finished().location, finished().provider) as history:
            claims.append((history.run("r/f").status, history.prune(keep_last=1).busy))
        return "moons!"

    crew = team(ScriptedLLM(reply), finished(on_events=["task_started", "llm_call_started"]))
    crew.fork(at(finished, "r"), branch="f").kickoff({"topic": "moons"})
    assert claims == [("unfinished", ("r/f",))] * 2


@pytest.mark.parametrize(("on_drift", "calls"), [("keep", ["about moons", "b"]), ("rerun", ["about moons", "b", "E"])])
def test_on_drift_still_decides_about_what_was_edited_and_not_asked_otherwise(finished, on_drift, calls):
    llm = echo(2)
    forked = team(llm, finished(on_drift=on_drift), e="E").fork(at(finished, "r"), branch="f")
    forked.kickoff({"topic": "moons"})
    assert [messages[1]["content"].splitlines()[0] for messages in llm.calls] == calls


def test_on_drift_error_does_not_stop_what_inputs_have_changed(finished):
    strict = finished(on_drift="error")
    forked = team(echo(2), strict).fork(at(finished, "r"), branch="f")
    assert outputs(forked.kickoff({"topic": "moons"}))[:2] == ["about moons (2)", "b (2)"]
    edited = team(echo(2), strict, e="E")
    with pytest.raises(TaskDrifted, match="task:e"):
        edited.fork(at(finished, "r"), branch="g")
    with pytest.raises(TaskDrifted, match="task:e"):
        edited.fork(at(finished, "r"), branch="g", inputs={"topic": "moons"}).kickoff()


def test_what_a_fork_has_done_again_is_kept_like_anything_else_when_the_script_changes(finished):
    forked = team(ScriptedLLM(["moons!", Stop()]), finished()).fork(at(finished, "r"), branch="f")
    with pytest.raises(Stop):
        forked.kickoff({"topic": "moons"})
    llm = ScriptedLLM(["b!"])
    edited = team(llm, finished(), a="all about {topic}")
    assert outputs(edited.kickoff(from_checkpoint=at(finished, "r/f"))) == ["moons!", "b!", *RECORDED[2:]]
    assert len(llm.calls) == 1


def test_a_tool_called_by_a_fork_has_another_idempotency_key(stored):
    keys = []

    @tool
    def pay(amount: int, idempotency_key: str = "") -> str:
        """Pay."""
        from crewlite import durable

        keys.append(durable.scope().idempotency_key)
        return "paid"

    def crew():
        llm = ScriptedLLM([ToolCall("pay", {"amount": 3}), "done"])
        who = Agent(role="Worker", goal="g", llm=llm, tools=[pay])
        tasks = [Task(name="t", description="about {topic}", expected_output="x", agent=who)]
        return Crew(tasks=tasks, checkpoint=stored())

    crew().kickoff({"topic": "tides"}, run_id="r")
    for branch in ("one", "two"):
        crew().fork(at(stored, "r"), branch=branch).kickoff({"topic": "moons"})
    assert len(set(keys)) == 3


# Agents.


def agent(stored, *script, **fields):
    return Agent(role="Clerk", goal="answer", llm=ScriptedLLM(script), checkpoint=stored(on_events=True), **fields)


def test_an_agents_fork_may_be_asked_a_new_question(stored):
    agent(stored, "to tides").kickoff("What?", run_id="r")
    forked = agent(stored, "to moons", "to winds").fork(at(stored, "r"), branch="f")
    assert forked.kickoff("And then?").raw == "to moons"
    assert forked.kickoff().raw == "to moons"
    assert forked.kickoff("And then?").raw == "to moons"
    assert forked.kickoff("What else?").raw == "to winds"
    assert forked.kickoff("And then?").raw == "to moons"
    assert agent(stored).kickoff(run_id="r").raw == "to tides"


def test_a_further_instruction_to_an_agents_fork_is_added_to_the_conversation(stored):
    @tool
    def look(where: str) -> str:
        """Look."""
        return f"seen {where}"

    first = agent(stored, ToolCall("look", {"where": "sea"}), "to tides", tools=[look])
    first.kickoff("What?", run_id="r")
    llm = ScriptedLLM(["to moons", "to winds"])
    forked = first.model_copy(update={"llm": llm}).fork(at(stored, "r"), branch="f")
    assert forked.kickoff("And then?").raw == "to moons"
    assert [(said["role"], said["content"]) for said in llm.calls[0][1:]] == [
        ("user", "What?"),
        ("assistant", ""),
        ("tool", "seen sea"),
        ("assistant", "to tides"),
        ("user", "And then?"),
    ]
    assert forked.kickoff("And then?").raw == "to moons", "said again, it is not said twice"
    further = forked.fork(at(stored, "r/f"), branch="g")
    assert further.kickoff("And at last?").raw == "to winds"
    assert [said["content"] for said in llm.calls[1][1:]] == [
        "What?",
        "",
        "seen sea",
        "to tides",
        "And then?",
        "to moons",
        "And at last?",
    ]


def test_a_further_instruction_to_a_fork_in_the_middle_of_a_turn_leaves_that_turn_out(stored):
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    llm = ScriptedLLM([ToolCall("look"), "looked", "without looking"])
    names_replies = stored(on_events=["llm_call_completed"])
    who = Agent(role="Clerk", goal="answer", llm=llm, tools=[look], checkpoint=names_replies)
    who.kickoff("What?", run_id="r")
    with History(stored().location, stored().provider) as history:
        [asks, _] = history.run("r").checkpoints()
    assert who.fork(at(stored, asks.id), branch="f").kickoff("Do not look.").raw == "without looking"
    assert [said["content"] for said in llm.calls[2][1:]] == ["What?", "Do not look."]


def test_the_inputs_of_an_agents_fork_replace_its_conversation(stored):
    llm = ScriptedLLM(["to tides", "to moons"])
    who = Agent(role="Clerk", goal="answer", llm=llm, checkpoint=stored(on_events=True))
    who.kickoff("What?", run_id="r")
    who.fork(at(stored, "r"), inputs={"messages": "Which?"}).kickoff()
    assert [said["content"] for said in llm.calls[1][1:]] == ["Which?"]


def test_an_agent_that_is_asked_something_else_before_it_has_answered_names_the_ways_out(stored):
    with pytest.raises(OSError, match="cut"):
        agent(stored, OSError("cut")).kickoff("What?", run_id="r")
    with pytest.raises(InputsChanged, match=r"agent\.fork\('r'\)\.kickoff\('\.\.\.'\)"):
        agent(stored).kickoff("And then?", run_id="r")


def test_an_agents_fork_without_a_question_answers_as_recorded(stored):
    agent(stored, "to tides").kickoff("What?", run_id="r")
    assert agent(stored).fork(at(stored, "r")).kickoff().raw == "to tides"
    rebuilt = Agent.fork(at(stored, "r"), branch="f", bind={"llm": ScriptedLLM(["anew"])})
    assert rebuilt.kickoff("Once more?").raw == "anew"


def test_an_agents_fork_goes_on_in_the_middle_of_its_tools(stored):
    seen = []

    @tool
    def look(where: str) -> str:
        """Look."""
        seen.append(where)
        return f"saw {where}"

    def clerk(*script):
        llm = ScriptedLLM(script)
        return Agent(
            role="Clerk", goal="g", llm=llm, tools=[look], checkpoint=stored(on_events=["tool_usage_finished"])
        )

    clerk(ToolCall("look", {"where": "here"}), "first").kickoff("What?", run_id="r")
    assert clerk("second").fork(at(stored, "main@tool:look"), branch="f").kickoff().raw == "second"
    assert seen == ["here"]
    other = clerk(ToolCall("look", {"where": "there"}), "third").fork(at(stored, "main@tool:look"), branch="g")
    assert other.kickoff("Where else?").raw == "third"
    assert seen == ["here", "there"]


# A fork lives in the store, not in a process.

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
        crew.fork(at(finished, "r"), branch="f", inputs={"topik": "moons"})
    with pytest.raises(ConfigError, match="has no input 'strategy'; it takes mood, topic"):
        Crew.fork(at(finished, "r"), branch="f", inputs={"strategy": "bold"}, bind={"llm": echo(2)})
    with History(finished().location, finished().provider) as history:
        with pytest.raises(ConfigError, match="did you mean 'mood'"):
            history.fork("r", branch="f", inputs={"moods": "wild"})
        assert [run.branch for run in history.runs()] == ["main"]


def test_an_input_that_no_text_asks_for_is_refused_at_the_kickoff_of_a_fork_too(finished):
    llm = echo(2)
    forked = team(llm, finished()).fork(at(finished, "r"), branch="f")
    for verb in (forked.kickoff, forked.preview):
        with pytest.raises(ConfigError, match="Run 'r' has no input 'topik'; did you mean 'topic'"):
            verb({"topik": "moons"})
        with pytest.raises(ConfigError, match="has no input 'strategy'; it takes mood, topic"):
            verb({"strategy": "bold"})
    with History(finished().location, finished().provider) as history:
        assert history.run("r/f").inputs == TIDES
    assert not llm.calls
    assert outputs(forked.kickoff({"topic": "moons"}))[0] == "about moons (2)", "what was refused recorded nothing"


def test_a_mistyped_input_of_a_lone_agents_fork_names_the_one_that_was_meant(stored):
    agent = Agent(role="Lone", goal="g", llm=ScriptedLLM(["A"]), checkpoint=stored())
    agent.kickoff("Q", run_id="r")
    for fork in (agent.fork, History(stored().location, stored().provider).fork):
        with pytest.raises(ConfigError, match="did you mean 'messages'"):
            fork("r", inputs={"message": "x"})


def test_an_input_that_only_the_crew_of_today_asks_for_is_taken(finished):
    crew = team(echo(2), finished(), e="e for a {strategy} plan")
    forked = crew.fork(at(finished, "r"), branch="f", inputs={"strategy": "bold"})
    assert outputs(forked.kickoff())[4] == "e for a bold plan (2)"


def test_an_input_that_was_recorded_is_taken_though_no_text_asks_for_it(stored):
    team(echo(1), stored()).kickoff(TIDES | {"note": "x"}, run_id="r")
    forked = team(echo(2), stored()).fork(at(stored, "r"), branch="f", inputs={"note": "y"})
    assert outputs(forked.kickoff()) == RECORDED


def test_a_label_leaves_the_inputs_of_a_fork_open_that_has_gone_back_to_its_beginning(finished):
    with History(finished().location, finished().provider) as history:
        base = history.checkpoint("r@task:a")
        history.fork(base, branch="other")
        team(echo(2), at(finished, "r/other")).kickoff()
        own = history.checkpoint("r/other@task:e")
        history.rewind(f"r/other@{base.id}", reason="the inputs were wrong")
        assert not history.run("r/other").kicked_off
        history.label(own, "before")
        assert not history.run("r/other").kicked_off
    result = team(echo(3), at(finished, "r/other")).kickoff({**TIDES, "topic": "winds"})
    assert outputs(result)[0] == "about winds (3)"
