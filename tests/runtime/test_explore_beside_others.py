"""Studies that are killed, interrupted, or explored beside others, and places that are damaged or abandoned."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sqlite3
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, tool
from crewlite.errors import ConfigError, EffectsRepeat, JournalCorrupt, RefError
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider
from crewlite.testing import Interleaved, ScriptedLLM
from tests import children
from tests.cuts import Kept
from tests.runtime.exploring import VARIANTS, crew, length, ran


def test_a_study_that_is_killed_after_any_commit_goes_on_and_pays_nothing_twice():
    whole, kept, judged = [], Kept(), []

    def verdict(messages):
        judged.append(messages)
        return '{"quality": 6.5, "reason": "brief"}'

    judge = ScriptedLLM(verdict)
    at = CheckpointConfig(location="here", provider=kept)
    ran(at)
    before = len(kept.commits)
    expected = crew(at, whole).explore("r", VARIANTS, judge)
    assert (len(whole), len(judged)) == (4, 5)
    for count in range(before, len(kept.commits) + 1):
        provider = kept.cut(count)
        with History("here", provider) as history:
            branches = [run for run in history.runs() if run.branch != "main"]
            own = [run.checkpoints()[-1] for run in branches if run.checkpoints()]
            scored = sum(checkpoint.trigger == "scored" for checkpoint in own)
            paid = sum(run.own_usage.requests for run in branches if run.branch != "explore/main/model")
        asked: list[str] = []
        judged.clear()
        again = crew(CheckpointConfig(location="here", provider=provider), asked).explore("r", VARIANTS, judge)
        assert [(row.output, row.score, row.usage) for row in again] == [
            (row.output, row.score, row.usage) for row in expected
        ], f"killed after commit {count}"
        assert (len(asked), len(judged)) == (4 - paid, 5 - scored), f"killed after commit {count}"


def test_a_study_whose_run_is_deleted_at_any_moment_says_so():
    for at in itertools.count(1):
        kept = InMemoryProvider()
        ran(CheckpointConfig(location="here", provider=kept))

        def delete(kept=kept):
            with History("here", kept) as history:
                history.delete("r")

        beside = Interleaved(kept, at=at, act=delete)
        try:
            explored = crew(CheckpointConfig(location="here", provider=beside)).explore("r", VARIANTS[:1], judge=length)
            assert explored.rows[0].status == "finished" or "deleted" in explored.rows[0].error
        except RefError as error:
            assert "r" in str(error)
        if beside.count < at:
            break


def test_all_variants_begin_at_one_commit_while_the_run_goes_on(memory):
    reached, on = threading.Event(), threading.Event()

    @flow(checkpoint=memory())
    def steady(hold=True):
        first = one("first")
        if hold:
            reached.set()
            on.wait(10)
        return first + one("second")

    @step
    def one(what):
        return what

    running = threading.Thread(target=steady.kickoff, kwargs={"run_id": "s"})
    running.start()
    assert reached.wait(10)
    found = steady.explore("s", [{"name": "a", "inputs": {"hold": False}}])
    on.set()
    running.join()
    grown = steady.explore("s", [{"name": n, "inputs": {"hold": False}} for n in ("a", "b")])
    assert grown.base == found.base
    with History("memory", memory().provider) as history:
        bases = {history.run(row.ref).base.seq for row in grown}
        assert bases == {found.base.seq} != {history.run("s").checkpoints()[-1].seq}


def test_two_that_explore_the_same_study_at_once_pay_once_and_both_have_all_of_it(on_disk):
    asked, found = [], []
    ran(on_disk())

    def one():
        found.append(crew(on_disk(), asked).explore("r", VARIANTS, judge=length))

    both = [threading.Thread(target=one) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert [[(row.status, row.output, row.score) for row in each] for each in found] == [
        [(row.status, row.output, row.score) for row in found[0]]
    ] * 2
    assert len(asked) == 4


def test_it_is_awaited_on_a_loop_and_refused_inside_a_run(memory):
    made = ran(memory())
    assert len(asyncio.run(made.aexplore("r", VARIANTS))) == 5

    @flow
    def inside():
        return made.explore("r", VARIANTS)

    with pytest.raises(ConfigError, match="explore was called inside a run"):
        inside.kickoff()


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_ends_a_study_says_how_to_go_on_and_frees_its_branches(tmp_path):
    program = """
        import sys, time
        from crewlite.flow import flow, step
        @step
        def work(what):
            print("working", flush=True)
            time.sleep(float(what))
            return what
        @flow(checkpoint=True)
        def slow(what):
            return work(what)
        slow.kickoff("0", run_id="s")
        print(slow.explore("s", [{"name": "a", "inputs": {"what": sys.argv[1]}}]).rows[0].status)
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    command = [sys.executable, "program.py"]
    with children.Child([*command, "30"], stdout=children.PIPE, stderr=children.PIPE, text=True) as child:
        for _ in range(2):
            assert child.stdout.readline() == "working\n"
        child.send_signal(signal.SIGINT)
        _, said = child.communicate()
    assert child.returncode in (130, -signal.SIGINT)
    assert "Call explore again with the same arguments: it continues" in said
    with History() as history:
        run = history.run("s/explore/main/a")
        assert (run.status, run.at_work) == ("unfinished", None)


def test_what_a_rewind_has_abandoned_is_a_place_of_its_own(memory):
    made = ran(memory())
    one = [{"name": "a"}]
    assert made.explore("r", one)["a"].ref == "r/explore/main/a"
    with History("memory", memory().provider) as history:
        history.rewind("r@task:research")
        with pytest.raises(ConfigError, match="explores another place"):
            made.explore("r", one)
        left = history.explore(made, "r@abandoned:1", one)
        again = made.explore("r", one, study="second")
    assert left["a"].ref == "r/explore/main-abandoned-1/a"
    assert left.base.seq != again.base.seq
    assert [row.output for row in (*left, *again)] == ["write of tides, all"] * 2


def test_calls_that_may_be_made_once_are_not_made_again_by_variants_unless_that_is_allowed(memory):
    paid = []

    @tool(effect="once")
    def pay(amount: str) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    def reply(messages):
        return "done" if messages[-1]["role"] == "tool" else ToolCall("pay", {"amount": "5"})

    agent = Agent(role="Cashier", goal="g", llm=ScriptedLLM(reply), tools=[pay], checkpoint=memory())
    first = Task(name="ask", description="Ask", expected_output="x", agent=agent.with_(llm="offline", tools=[]))
    bill = Task(name="pay", description="Pay", expected_output="x", agent=agent)
    made = Crew(tasks=[first, bill], checkpoint=memory())
    made.kickoff(run_id="b")
    for ref, variant in (("b@task:ask", {"name": "a"}), ("b", {"name": "a", "rerun": ["task:pay"]})):
        with pytest.raises(EffectsRepeat, match='task:pay/tool:pay.*amount.*"5"'):
            made.explore(ref, [{"name": "safe"}, variant])
    with History("memory", memory().provider) as history:
        assert [run.branch for run in history.runs()] == ["main"]
        allowed = history.explore(made, "b@task:ask", [{"name": "a"}], allow_effects=True)
    assert (allowed["a"].output, paid) == ("done", ["5", "5"])
    assert made.explore("b@task:ask", [{"name": "a"}])["a"].status == "finished", "it has its branch already"


def damaged(at, branch):
    """Overwrite the first commit of a branch that is stored on disk."""
    if at.location.endswith(".db"):
        with contextlib.closing(sqlite3.connect(at.location)) as database, database:
            where = "branch_id = (SELECT id FROM branch WHERE name = ?)"
            database.execute(
                f"UPDATE entry SET body = 'lost' WHERE {where} AND seq = (SELECT min(seq) FROM entry WHERE {where})",
                (branch, branch),
            )
        return
    (journal,) = Path(at.location).glob(f"journal/**/{branch}.jsonl")
    journal.write_bytes(b"lost" + journal.read_bytes()[4:])


def test_a_damaged_branch_is_a_failed_row_that_names_the_doctor_and_the_others_are_explored(on_disk):
    made = ran(on_disk())
    made.explore("r", VARIANTS[2:4])
    damaged(on_disk(), "explore/main/prompt")
    for again in (made.explore("r", VARIANTS[2:]), made.explore("r", [VARIANTS[2]])):
        assert (again["prompt"].status, again["prompt"].output) == ("failed", "")
        assert "crewlite checkpoint doctor" in str(again)
        assert {row.status for row in again if row.name != "prompt"} <= {"finished"}
    assert made.explore("r", [VARIANTS[2]], study="other")["prompt"].status == "finished"
    with History(on_disk().location) as history:
        assert history.label("r@task:research", "good").label == "good"
        with pytest.raises(JournalCorrupt, match="doctor"):
            history.fork("r", branch="explore/main/prompt")
        page = history.as_html("r")
        assert "r/explore/main/input" in page and "Left out: " in page and "crewlite checkpoint doctor" in page
