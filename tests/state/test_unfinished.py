"""What a service goes on with at its start: the runs that were cut, and no others."""

import itertools
import sys

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, LLMReply, Task, Usage, ask, step
from crewlite.errors import RefError, Suspended
from crewlite.flow import flow
from crewlite.state import JsonProvider
from crewlite.testing import Interleaved, ScriptedLLM
from tests import children

SERVICE = """
import contextlib, os, sys, time
from crewlite import CheckpointConfig, ask, event_bus, step
from crewlite.errors import Suspended
from crewlite.events import HumanFeedbackRequestedEvent
from crewlite.flow import flow

@step
def work(how):
    if how == "fails":
        raise ValueError("no")
    if how == "is killed":
        os._exit(9)
    return how

@flow(checkpoint=CheckpointConfig(location=sys.argv[1]))
def job(how):
    if "asks" in how:
        return ask("Well?", timeout=1 if how == "asks in vain" else None)
    return work(how)

@flow(checkpoint=CheckpointConfig(location=sys.argv[1]))
def other(how):
    return work(how)
"""
BEGIN = """
for how in ("ends", "fails", "asks", "asks in vain"):
    with contextlib.suppress(ValueError, Suspended):
        job.kickoff(how, run_id=how.replace(" ", "-"))
if os.fork() == 0:
    other.kickoff("is killed", run_id="killed-other")
os.wait()
if os.fork() == 0:
    event_bus.on(HumanFeedbackRequestedEvent, lambda source, event: os._exit(9))
    job.kickoff("asks", run_id="killed-as-it-asks")
os.wait()
time.sleep(1)
job.kickoff("is killed", run_id="killed")
"""


def test_the_unfinished_runs_are_those_that_were_cut_and_that_nobody_works_on(location):
    assert children.run([sys.executable, "-c", SERVICE + BEGIN, location], stdin=-3).returncode == 9
    with History(location) as history:
        history.fork("killed", branch="f")
        assert [run.run_id for run in history.unfinished("job")] == ["killed", "killed-as-it-asks", "asks-in-vain"]
        assert "killed-other" in [run.run_id for run in history.unfinished()]
        assert history.run("asks").status == history.run("asks-in-vain").status == "waiting"
        assert history.run("fails").because == "ValueError: no"
        assert [history.run(name).because for name in ("ends", "asks", "killed")] == [None, None, None]
        history.answer("killed-as-it-asks", "human:later", "yes", ahead=True)
        assert [run.run_id for run in history.unfinished("job")] == ["killed", "killed-as-it-asks", "asks-in-vain"]
        history.cancel("killed")
        history.answer("asks", history.run("asks").waiting[0], "yes")
        assert [run.run_id for run in history.unfinished("job")] == ["killed-as-it-asks", "asks-in-vain", "asks"]


def test_a_run_of_which_one_of_two_questions_is_answered_has_work(location):
    @step
    def asks(name):
        return ask(f"{name}?", name=name)

    @flow(checkpoint=CheckpointConfig(location=location))
    def both():
        return [one.result() for one in [asks.submit("a"), asks.submit("b")]]

    with pytest.raises(Suspended):
        both.kickoff(run_id="r")
    with History(location) as history:
        assert history.unfinished() == []
        history.answer("r", history.run("r").waiting[0], "yes")
        assert [run.run_id for run in history.unfinished()] == ["r"]
        with pytest.raises(Suspended):
            both.kickoff(run_id="r")
        assert (history.unfinished(), len(history.run("r").waiting)) == ([], 1)


def test_a_run_at_work_is_not_unfinished_and_a_store_that_is_not_there_has_none(location):
    with History(location, make=True) as history:
        assert history.unfinished() == []
    seen = []

    @flow(checkpoint=CheckpointConfig(location=location))
    def own():
        with History(location) as history:
            seen.append((history.run().status, history.unfinished()))

    own.kickoff()
    assert seen == [("unfinished", [])]


def test_the_usage_of_a_step_counts_all_that_is_inside_it_also_after_a_prune(location):
    def answer(messages):
        return LLMReply(text="x", usage=Usage(prompt_tokens=3, requests=1, cost=0.5))

    agent = Agent(role="W", goal="w", llm=ScriptedLLM(answer))
    tasks = [Task(name=name, description=name, expected_output="x", agent=agent) for name in "ab"]

    @flow(checkpoint=CheckpointConfig(location=location))
    def both():
        Crew(name="c", tasks=tasks).kickoff()
        agent.kickoff("once more")

    both.kickoff(run_id="r")
    with History(location) as history:
        for _ in range(2):
            run = history.run("r")
            assert [run.usage_of(at).requests for at in ("", "crew:c", "agent:W")] == [3, 2, 1]
            assert run.usage_of("crew:c").cost == 1.0
            with pytest.raises(
                RefError, match=r"'crew:d' names no step of r/main\. Candidates: (\S+, )*\S+( and \d+ more)?\.$"
            ):
                run.usage_of("crew:d")
            history.prune(keep_last=1)


ENDING = """
import sys

from crewlite.flow import flow


@flow(checkpoint=True)
def ending():
    sys.stdin.readline()
    raise ConnectionError("down")


ending.kickoff(run_id="r")
"""


def test_a_run_whose_process_ends_while_it_is_read_has_the_status_that_it_was_left_with(tmp_path):
    (tmp_path / "ending.py").write_text(ENDING)
    location, seen = tmp_path / ".checkpoints", set()
    for at in itertools.count(1):
        child = children.Child([sys.executable, "ending.py"], cwd=tmp_path, stdin=children.PIPE, stderr=children.PIPE)
        with History(location, make=True) as history:
            children.until(lambda history=history: any(run.at_work for run in history.runs()))
        beside = Interleaved(JsonProvider(), at=at, act=lambda child=child: child.communicate(b"\n"))
        with History(location, beside) as history:
            assert history.unfinished() == []
            run = history.run_by_id("r")
            seen.add((run.status, bool(run.at_work)))
        child.end()
        history = History(location)
        history.delete("r")
        history.close()
        if beside.count < at:
            break
    assert seen == {("unfinished", True), ("failed", False)}
