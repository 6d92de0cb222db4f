"""One run, one writer: whoever is alive keeps the branch, whoever is dead has lost it, and nobody overwrites anybody."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.errors import BranchConflictError
from crewlite.ids import now
from crewlite.state.format.entry import SCHEMA, seal
from crewlite.state.journal.claim import SILENCE, claim, is_held
from crewlite.state.journal.lineage import find_lineage
from crewlite.state.journal.writer import Writer
from crewlite.state.providers import Commit, provider_for
from crewlite.state.providers.json import JsonStore
from crewlite.state.providers.sqlite import SqliteStore
from crewlite.system import disk
from crewlite.testing import ScriptedLLM
from tests import children
from tests.parts import Stop
from tests.runtime.claiming import Sleeper, answers, crew_of, cut, holder, record_of, store_of, while_at_work
from tests.state.wrapped import Wrapped

pytestmark = pytest.mark.skipif(os.name == "nt", reason="stops and kills processes by POSIX signals")
linux = pytest.mark.skipif(sys.platform != "linux", reason="what is known of other processes is read from /proc")


def add(config, **parts):
    """One more commit of run `r`, as another process would make it."""
    store, record = store_of(config), record_of(config)
    entry = seal({"schema": SCHEMA, "seq": record.seq + 1, "at": now().isoformat(), **parts}, after=record.sum)
    store.append([Commit("r", "main", record.seq, record.sum, (entry,))])
    store.close()


def heard_of(config, at):
    """Set when the writer of run `r` was last heard of, in seconds since the epoch."""
    location = Path(config().location)
    if location.suffix == ".db":
        with contextlib.closing(sqlite3.connect(location)) as db, db:
            db.execute("UPDATE branch SET touched=?", (at,))
    else:
        os.utime(location / "journal" / "r" / "main.jsonl", (at, at))


def claimed_by(config, **other):
    """A claim like that of this process, but for what is said, is written to run `r`."""
    add(config, claim={**claim(), **other})


ELSEWHERE = {"host": "another-machine", "boot": "another boot", "pid": 7, "started": 7}


def test_a_run_at_work_is_refused_to_others_who_are_told_by_whom(make_crew, on_disk, tmp_path):
    with holder(on_disk, tmp_path) as child:
        crew = crew_of(make_crew, on_disk, [])
        for _ in range(2):
            with pytest.raises(BranchConflictError, match=f"process {child.pid} on .*wait=True.*fork") as told:
                crew.kickoff(run_id="r")
            assert (told.value.run_id, told.value.branch) == ("r", "main")
            assert told.value.holder == f"process {child.pid} on {os.uname().nodename}"
        with pytest.raises(BranchConflictError), History(on_disk().location) as history:
            history.delete("r")
        (tmp_path / "go").touch()
        assert child.stdout.read() == "asked 2\nfrom the child\n"
    assert answers(crew.kickoff(run_id="r")) == ["from the child"] * 3


def test_a_kickoff_that_is_refused_has_closed_its_store(make_crew, on_disk, monkeypatch):
    """The program may delete the store next."""
    cut(make_crew, on_disk)
    claimed_by(on_disk, **ELSEWHERE)
    closed = []
    for kind in (JsonStore, SqliteStore):

        def close(store, close=kind.close):
            time.sleep(0.1)
            close(store)
            closed.append(store)

        monkeypatch.setattr(kind, "close", close)
    with pytest.raises(BranchConflictError, match="process 7 on another-machine"):
        crew_of(make_crew, on_disk, []).kickoff(run_id="r")
    assert len(closed) == 1


class Overtaken(Wrapped):
    """A provider in whose stores another process begins the run just before this one does."""

    def __init__(self, provider, overtake):
        super().__init__(provider)
        self.overtake = overtake

    def _do(self, store, verb, call, args):
        if verb == "append" and (overtake := self.overtake):
            self.overtake = None
            overtake()
        return call()


def test_whoever_is_overtaken_at_the_beginning_of_a_run_is_told_by_whom(make_crew, on_disk, tmp_path):
    with contextlib.ExitStack() as stack:
        there = on_disk()
        others = provider_for(there.location, there.provider)
        begun = []
        provider = Overtaken(others, lambda: begun.append(stack.enter_context(holder(on_disk, tmp_path))))
        crew = make_crew(ScriptedLLM([]), checkpoint=CheckpointConfig(location=there.location, provider=provider))
        with pytest.raises(BranchConflictError, match="process .*wait=True.*fork") as told:
            crew.kickoff(run_id="r")
        assert told.value.holder == f"process {begun[0].pid} on {os.uname().nodename}"


def test_a_run_at_work_is_forked_beside(make_crew, on_disk, tmp_path):
    with holder(on_disk, tmp_path) as child:
        forked = crew_of(make_crew, on_disk, ["b", "c"]).fork("r")
        assert answers(forked.kickoff()) == ["from the child", "b", "c"]
        (tmp_path / "go").touch()
        assert child.stdout.read() == "asked 2\nfrom the child\n"


def test_a_killed_holder_has_lost_the_run_at_once(make_crew, on_disk, tmp_path):
    with holder(on_disk, tmp_path) as child:
        child.kill()
        child.wait()
        assert answers(crew_of(make_crew, on_disk, ["b", "c"]).kickoff(run_id="r")) == ["from the child", "b", "c"]


@linux
def test_a_dead_holder_that_nobody_has_buried_is_dead(make_crew, on_disk, tmp_path):
    with holder(on_disk, tmp_path) as child:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and its number still taken
        assert answers(crew_of(make_crew, on_disk, ["b", "c"]).kickoff(run_id="r")) == ["from the child", "b", "c"]


@linux
def test_a_holder_that_sleeps_keeps_the_run_however_long(make_crew, on_disk, tmp_path):
    with holder(on_disk, tmp_path) as child:
        child.send_signal(signal.SIGSTOP)
        heard_of(on_disk, time.time() - 100 * SILENCE)
        with pytest.raises(BranchConflictError, match=f"process {child.pid} "):
            crew_of(make_crew, on_disk, []).kickoff(run_id="r")
        child.send_signal(signal.SIGCONT)
        (tmp_path / "go").touch()
        assert child.stdout.read() == "asked 2\nfrom the child\n"


def test_a_holder_elsewhere_is_dead_after_thirty_seconds_of_silence(make_crew, on_disk):
    cut(make_crew, on_disk)
    claimed_by(on_disk, **ELSEWHERE)
    crew = crew_of(make_crew, on_disk, ["b", "c"])
    with pytest.raises(BranchConflictError, match="process 7 on another-machine"):
        crew.kickoff(run_id="r")
    heard_of(on_disk, time.time() - SILENCE + 5)
    with pytest.raises(BranchConflictError):
        crew.kickoff(run_id="r")
    heard_of(on_disk, time.time() - SILENCE - 5)
    assert answers(crew.kickoff(run_id="r")) == ["a", "b", "c"]


def test_a_dead_holder_elsewhere_whose_clock_was_ahead_is_waited_for_no_longer(make_crew, on_disk, monkeypatch):
    """As with the clock here set back by an hour: its last sign of life is in the future for that long."""
    monkeypatch.setattr("crewlite.state.journal.claim.SILENCE", 1.0)
    cut(make_crew, on_disk)
    claimed_by(on_disk, **ELSEWHERE)
    heard_of(on_disk, time.time() + 3600)
    handle = crew_of(make_crew, on_disk, ["b", "c"]).submit(run_id="r", wait=True)
    assert answers(handle.result(20)) == ["a", "b", "c"]


def test_a_live_holder_elsewhere_whose_clock_is_ahead_keeps_the_run(monkeypatch):
    monkeypatch.setattr("crewlite.state.journal.claim.SILENCE", 0.2)
    elsewhere = {**claim(), **ELSEWHERE}
    for sign in range(4):
        assert is_held(elsewhere, time.time() + 3600 + sign)
        time.sleep(0.1)
    assert is_held(elsewhere, time.time() + 4000)


def test_a_machine_whose_clock_was_set_back_since_was_not_started_again_for_that(monkeypatch):
    """A container of the same name, where processes have numbers of their own, gives its signs by the same clock."""
    beside, right = {**claim(), **ELSEWHERE, "host": os.uname().nodename}, time.time
    monkeypatch.setattr(time, "time", lambda: right() + 1e9)
    assert not is_held(beside, right())
    monkeypatch.setattr(time, "time", right)
    assert is_held(beside, right())


def test_the_machine_of_the_holder_was_started_again(make_crew, on_disk):
    cut(make_crew, on_disk)
    claimed_by(on_disk, boot="the boot before")
    crew = crew_of(make_crew, on_disk, ["b", "c"])
    heard_of(on_disk, 1.0)
    assert not is_held(record_of(on_disk).claim, touched=1.0)
    assert answers(crew.kickoff(run_id="r")) == ["a", "b", "c"]


def test_another_machine_or_container_of_the_same_name_is_not_taken_for_this_one_started_again(make_crew, on_disk):
    cut(make_crew, on_disk)
    claimed_by(on_disk, boot="another boot")
    with pytest.raises(BranchConflictError):
        crew_of(make_crew, on_disk, []).kickoff(run_id="r")


@linux
def test_a_machine_that_was_given_another_name_is_still_the_same(make_crew, on_disk):
    cut(make_crew, on_disk)
    with children.Child(["sleep", "60"]) as dead:
        dead.kill()
    claimed_by(on_disk, host="its-name-in-the-cafe", pid=dead.pid)
    assert answers(crew_of(make_crew, on_disk, ["b", "c"]).kickoff(run_id="r")) == ["a", "b", "c"]


@linux
def test_a_process_that_was_given_the_number_of_a_dead_holder_is_not_the_holder(make_crew, on_disk):
    cut(make_crew, on_disk)
    claimed_by(on_disk, pid=os.getppid(), started=1)
    assert answers(crew_of(make_crew, on_disk, ["b", "c"]).kickoff(run_id="r")) == ["a", "b", "c"]


@pytest.mark.parametrize(("silent", "alive"), [(SILENCE - 5, True), (SILENCE + 5, False)])
def test_where_starts_are_unknown_a_process_of_that_number_must_also_give_signs_of_life(silent, alive):
    unknown = {**claim(), "pid": os.getppid(), "started": None}
    assert is_held(unknown, time.time() - silent) is alive


@linux
def test_a_holder_that_wakes_up_after_a_takeover_stops_and_overwrites_nothing(make_crew, on_disk, tmp_path):
    with holder(on_disk, tmp_path) as child:
        claimed_by(on_disk, **ELSEWHERE)  # somebody who could not see that it lives
        heard_of(on_disk, time.time() - SILENCE - 5)
        assert answers(crew_of(make_crew, on_disk, ["b", "c"]).kickoff(run_id="r")) == ["from the child", "b", "c"]
        there = record_of(on_disk).sum
        (tmp_path / "go").touch()
        assert child.stdout.read() == "conflict r main\n"
    assert record_of(on_disk).sum == there


@linux
def test_a_holder_whose_run_was_taken_over_stops_while_it_still_waits_for_its_model(make_crew, on_disk, tmp_path):
    with holder(on_disk, tmp_path) as child:
        claimed_by(on_disk, **ELSEWHERE)
        assert child.stdout.read() == "conflict r main\n"
    assert not (tmp_path / "go").exists()


@pytest.mark.parametrize(
    "verb",
    [
        lambda history: history.prune(keep_last=1),
        lambda history: history.label("r", "kept"),
        lambda history: history.answer("r", "human:ok", "yes", ahead=True),
    ],
    ids=["prune", "label", "answer"],
)
def test_a_commit_from_outside_is_no_sign_of_life_of_a_dead_holder(make_crew, on_disk, verb):
    with pytest.raises(Stop):
        crew_of(make_crew, on_disk, ["a", "b", Stop()]).kickoff(run_id="r")
    claimed_by(on_disk, **ELSEWHERE)
    heard_of(on_disk, time.time() - SILENCE - 5)
    before = record_of(on_disk).seq
    with History(on_disk().location) as history:
        assert verb(history)
    assert record_of(on_disk).seq > before
    assert answers(crew_of(make_crew, on_disk, ["c"]).kickoff(run_id="r")) == ["a", "b", "c"]


@pytest.mark.parametrize("busy", [False, True], ids=["alone", "beside a run that never pauses"])
def test_a_run_that_waits_for_long_gives_signs_of_life(make_crew, config, busy):
    cut(make_crew, config)
    store, record = store_of(config), record_of(config)
    writer = Writer(store, ("test", "test"), "test", beat=0.02, users=1)
    writer.start()
    queue = writer.enter("r", "main")
    queue.head, queue.written = record.head, True
    went_on = threading.Event()
    idle = writer.enter("other", "main")

    def again(error):
        if not went_on.is_set():
            idle.put((), again)

    try:
        if busy:
            again(None)
        before = store.touched("r", "main")
        children.until(lambda: store.touched("r", "main") > before)
        before = store.touched("r", "main")
        children.until(lambda: store.touched("r", "main") > before)
    finally:
        went_on.set()
        writer.release().result()
    assert record_of(config).sum == record.sum


def test_a_database_is_only_read_while_a_run_waits_for_its_model(make_crew, tmp_path):
    config, written = CheckpointConfig(location=str(tmp_path / "runs.db")), []
    with disk.watched(lambda operation: written.append(operation.data)):
        make_crew(ScriptedLLM(["a"], delay=1.3), count=1, checkpoint=config).kickoff(run_id="r")
    entries = [sql for sql in written if sql.startswith(b"INSERT INTO entry")]
    moves = [sql for sql in written if sql.startswith(b"UPDATE branch")]
    assert len(moves) == len(entries) - 1  # the first entry creates the branch


def test_signs_of_life_end_when_another_has_the_branch_and_the_writer_goes_on(make_crew, on_disk, caplog):
    cut(make_crew, on_disk)
    store, record = store_of(on_disk), record_of(on_disk)
    writer = Writer(store, ("test", "test"), "test", beat=0.02, users=1)
    writer.start()
    queue = writer.enter("r", "main")
    queue.head, queue.written = record.head, True
    claimed_by(on_disk, **ELSEWHERE)
    heard_of(on_disk, 1000.0)
    children.until(lambda: "r/main gave no sign of life" in caplog.text)
    settled = threading.Event()
    queue.put((), lambda error: settled.set())
    assert settled.wait(20)
    writer.release().result()
    assert store_of(on_disk).touched("r", "main") == 1000.0


def test_a_branch_that_was_only_read_so_far_is_given_no_sign_of_life(make_crew, on_disk, caplog):
    cut(make_crew, on_disk)
    store, record = store_of(on_disk), record_of(on_disk)
    writer = Writer(store, ("test", "test"), "test", beat=0.02, users=1)
    writer.start()
    read, beside = writer.enter("r", "main"), writer.enter("s", "main")
    read.head = record.head
    crew_of(make_crew, on_disk, ["a", "b", "c"]).kickoff(run_id="s")
    other = find_lineage(store, "s", "main").record()
    beside.head, beside.written = other.head, True
    claimed_by(on_disk, **ELSEWHERE)  # somebody was faster
    heard_of(on_disk, 1000.0)
    heard = store.touched("s", "main")
    children.until(lambda: store.touched("s", "main") > heard)  # the writer has looked after its branches
    writer.release().result()
    assert (store.touched("r", "main"), read.fenced, caplog.text) == (1000.0, False, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_does_not_take_its_parents_claim_for_its_own(make_crew, on_disk):
    def refused():
        with pytest.raises(BranchConflictError) as conflict:
            crew_of(make_crew, on_disk, ["b", "c"]).kickoff(run_id="r")
        return conflict.value.holder.startswith(f"process {os.getppid()} on ")

    assert while_at_work(make_crew, on_disk, lambda: children.in_a_fork(refused))
    assert answers(crew_of(make_crew, on_disk, ["b", "c"]).kickoff(run_id="r")) == ["a", "b", "c"]


def test_a_live_holder_in_this_process_is_known_without_asking(make_crew, config):
    llm = Sleeper()

    async def main():
        crew = make_crew(llm, checkpoint=config())
        run = asyncio.create_task(crew.akickoff(run_id="r"))
        await asyncio.to_thread(llm.asleep.wait)
        with pytest.raises(BranchConflictError, match="being run by this process"):
            await crew.akickoff(run_id="r")
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(main())


def test_an_agent_of_its_own_holds_its_run_too(on_disk):
    agent = Agent(role="Clerk", goal="answer", llm=ScriptedLLM(["x"]), checkpoint=on_disk())
    agent.kickoff("hello", run_id="r")
    assert record_of(on_disk).claim is None
    claimed = [
        entry.commit["claim"]
        for entry in find_lineage(store_of(on_disk), "r", "main").entries
        if "claim" in entry.commit
    ]
    assert [found["pid"] for found in claimed] == [os.getpid()]
    assert isinstance(Crew(tasks=[Task(description="d", expected_output="x", agent=agent)]), Crew)
