"""The doctor: finds nothing at sound locations, leaves alone what somebody writes, and its repairs can be cut."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from crewlite import History, event_bus
from crewlite.events import TaskStartedEvent
from crewlite.state import InMemoryProvider
from crewlite.testing import CrashInjector
from tests import children, soak
from tests.state.doctoring import codes, crew_at, doctored, files, forked, going_on, healed, lines, query, run_at

# Nothing to say.


@pytest.mark.parametrize("name", ["store", "store.db"])
def test_a_healthy_location_needs_no_doctor(name, tmp_path):
    location = run_at(tmp_path / name)
    crew_at(location, ["x", "y", "z", "w"]).kickoff(run_id="s")
    with History(location) as history:
        history.fork("r@task:t0", branch="a/b")
        assert history.doctor() == history.doctor(repair=True) == []
        history.prune(keep_last=1)
        assert history.doctor() == history.doctor(repair=True) == []
        assert len(history.runs()) == 3


def test_a_healthy_memory_and_an_empty_database_need_none(tmp_path):
    assert doctored("anywhere", provider=InMemoryProvider()) == []
    with History(tmp_path / "new.db", make=True) as history:
        assert history.doctor(repair=True) == []
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("name", ["store", "store.db"])
def test_looking_writes_nothing(name, tmp_path):
    location = run_at(tmp_path / name)
    for path in tmp_path.glob("store/*_*.json"):
        path.unlink()
    if name == "store.db":
        query(location, "DELETE FROM place", "UPDATE entry SET body = x'00' WHERE seq = 5")
    with CrashInjector() as watched:
        assert doctored(location) != []
    assert watched.log == []


@pytest.mark.parametrize("name", ["store", "store.db"])
def test_a_run_at_work_in_this_process_is_healthy_and_left_alone(name, tmp_path):
    location, said = tmp_path / name, []

    def look(source, event):
        said.append(doctored(location, repair=True))
        if event.address == "task:t2":
            if name == "store":
                files(location)[0].unlink()
                path = location / "journal" / "r" / "main.jsonl"
                path.write_bytes(path.read_bytes().replace(b"task:t1", b"task:t9"))
            else:
                query(location, "DELETE FROM place", "UPDATE entry SET body = x'00' WHERE seq = 5")
            said.append(doctored(location, repair=True))

    event_bus.on(TaskStartedEvent, look)
    crew_at(location, ["a", "b", "c", "d"]).kickoff(run_id="r")
    *healthy, damaged, last = said
    assert healthy[:3] == [[]] * 3
    assert damaged
    assert not any(finding.repaired for finding in damaged + last)
    assert all("this process is running this branch" in finding.remedy for finding in damaged + last)


WAITING = """
import sys, time
from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.testing import ScriptedLLM
def reply(messages):
    if "Do 2" in messages[1]["content"]:
        print("waiting", flush=True)
        time.sleep(60)
    return "x"
agent = Agent(role="Pilot", goal="pilot", llm=ScriptedLLM(reply))
tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=agent, context=[]) for n in range(4)]
Crew(tasks=tasks, checkpoint=CheckpointConfig(location=sys.argv[1])).kickoff(run_id="r")
"""


@pytest.mark.skipif(os.name == "nt", reason="a process elsewhere is presumed alive there")
@pytest.mark.parametrize("name", ["store", "store.db"])
def test_a_branch_that_another_process_writes_is_left_alone_until_that_is_dead(name, tmp_path):
    location = tmp_path / name
    other = children.Child([sys.executable, "-c", WAITING, str(location)], stdout=children.PIPE, text=True)
    try:
        assert other.stdout.readline() == "waiting\n"
        assert doctored(location, repair=True) == []
        if name == "store":
            path = location / "journal" / "r" / "main.jsonl"
            whole = lines(path)
            path.write_bytes(b"".join([*whole[:3], *whole[4:]]))
        else:
            query(location, "DELETE FROM entry WHERE seq = 4")
        for repair in (False, True):
            (found, *_) = doctored(location, repair=repair)
            assert (found.what, found.repaired) == ("damaged_journal", False)
            assert f"process {other.pid} on " in found.remedy
        if name == "store":
            assert path.read_bytes() == b"".join([*whole[:3], *whole[4:]])
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    healed(location, *codes(doctored(location)))
    assert going_on(location).kickoff(run_id="r").raw == "d"


# Forks.


def test_forks_of_what_is_gone_are_set_aside_and_the_others_stay(tmp_path):
    store = forked(tmp_path / "store")
    directory = store / "journal" / "r"
    whole = lines(directory / "main.jsonl")
    at = next(n for n, line in enumerate(whole) if json.loads(line).get("place", {}).get("address") == "task:t1")
    (directory / "main.jsonl").write_bytes(b"".join([*whole[:at], b"#\n", *whole[at + 1 :]]))
    kept = {path.name: path.read_bytes() for path in directory.iterdir()}
    found = healed(store, "damaged_journal", "dangling_fork", "dangling_fork", "stale_index", "stale_index")
    assert [Path(finding.where).name for finding in found[1:3]] == ["late.jsonl", "later.jsonl"]
    assert "of main) is missing" in found[1].problem
    for name, data in kept.items():
        assert data in [path.read_bytes() for path in directory.glob(f"{name}*")]
    with History(store) as history:
        assert sorted(run.branch for run in history.runs()) == ["early", "main"]
        assert [run.status for run in history.runs()] == ["unfinished", "unfinished"]
    assert going_on(store).kickoff(from_checkpoint="r/early").raw == "d"


def test_forks_in_a_database_of_what_is_gone_are_set_aside_too(tmp_path):
    database = forked(tmp_path / "runs.db")
    ((seq,),) = query(database, "SELECT seq FROM place WHERE address = 'task:t1'")
    query(database, f"UPDATE entry SET body = x'23' WHERE seq = {seq} AND branch_id = 1")
    before = query(database, "SELECT seq, sum, body FROM entry")
    found = healed(database, "damaged_journal", "dangling_fork", "dangling_fork", "stale_index")
    assert [finding.where.rpartition(" ")[2] for finding in found[1:3]] == ["late", "later"]
    after = query(
        database, "SELECT seq, sum, body FROM entry UNION ALL SELECT seq, sum, body FROM aside WHERE body <> ''"
    )
    assert set(before) <= set(after)
    with History(database) as history:
        assert sorted(run.branch for run in history.runs()) == ["early", "main"]
    assert going_on(database).kickoff(from_checkpoint="r/early").raw == "d"
    assert going_on(database).kickoff(run_id="r").raw == "d"


# What was set aside, and what is gone, is missed.


def test_a_run_whose_commits_were_set_aside_says_so_when_it_begins_anew(store, journal, database, caplog):
    journal.write_bytes(b"nothing\n" + journal.read_bytes())
    query(database, "UPDATE entry SET body = x'7b7d' WHERE seq = 1")
    for location in (store, database):
        doctored(location, repair=True)
        caplog.clear()
        assert going_on(location).kickoff(run_id="r").raw == "d"
        assert [said for said in caplog.messages if "run 'r'" in said and "begins anew, and pays again" in said]
        with History(location) as history:
            history.delete("r")
        caplog.clear()
        assert going_on(location).kickoff(run_id="r").raw == "d"
        assert not caplog.messages, "what was deleted on purpose is not missed"
    assert query(database, "SELECT count(*) FROM aside") == [(0,)]


@pytest.mark.parametrize("place", ["store", "database"])
def test_a_run_that_is_imported_in_place_of_what_was_set_aside_does_not_begin_anew(place, request, tmp_path, caplog):
    location = request.getfixturevalue(place)
    with History(location) as history:
        history.export("r", tmp_path / "r.json")
    if place == "store":
        (location / "journal" / "r" / "main.jsonl").write_bytes(b"nothing\n")
    else:
        query(location, "UPDATE entry SET body = x'7b7d' WHERE seq = 1")
    doctored(location, repair=True)
    caplog.clear()
    with History(location) as history:
        history.import_run(tmp_path / "r.json")
    assert not caplog.messages
    assert going_on(location).kickoff(run_id="r").raw == "d"


@pytest.mark.parametrize("beside", ["what the doctor set aside", "a fork"])
def test_a_journal_that_was_deleted_by_hand_is_missed_whatever_is_left_beside_it(beside, store, journal, caplog):
    if beside == "a fork":
        with History(store) as history:
            history.fork("r", branch="b")
    else:
        lines = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join([*lines[:-1], lines[-1][:50] + b"?" + lines[-1][51:]]))
        doctored(store, repair=True)
    journal.unlink()
    assert list(journal.parent.iterdir())
    assert going_on(store).kickoff(run_id="r").raw == "d"
    assert [said for said in caplog.messages if f"{journal} is gone" in said and "begins anew" in said]


# A repair that is cut can be done again.


def broken(name, tmp_path):
    """A location with a bit of everything."""
    location = forked(tmp_path / name)
    if name.endswith(".db"):
        query(
            location,
            "DELETE FROM place WHERE address = 'task:t0'",
            "UPDATE entry SET body = x'00' WHERE branch_id = 1 AND seq = 6",
            "INSERT INTO entry VALUES (77, 1, 'x', x'00')",
        )
        return location
    journal = location / "journal" / "r" / "main.jsonl"
    whole = lines(journal)
    journal.write_bytes(b"".join([*whole[:5], *whole[6:]]))
    early = journal.with_name("early.jsonl")
    early.write_bytes(early.read_bytes() + b"{")
    files(location)[0].write_text("{}")
    return location


def bytes_of(location):
    """Everything that a repair must not lose."""
    if location.is_dir():
        kept = [path.read_bytes() for path in location.rglob("*.json*")]
        return {data.removesuffix(b"{") for data in kept}
    rows = query(location, "SELECT body FROM entry")
    if query(location, "SELECT name FROM sqlite_master WHERE name = 'aside'"):
        rows += query(location, "SELECT body FROM aside WHERE sum <> ''")
    return {row[0] for row in rows}


@pytest.mark.parametrize("kill", [False, True], ids=["failed", "killed"])
@pytest.mark.parametrize("name", ["store", "store.db"])
@soak.every(3)
def test_a_repair_cut_anywhere_can_be_done_again_and_loses_nothing(name, kill, every, tmp_path):
    if kill and not hasattr(os, "fork"):
        pytest.skip("kills a child")
    pattern = broken(name, tmp_path)
    before, copy = bytes_of(pattern), tmp_path / f"copy-{name}"

    def fresh():
        for path in tmp_path.glob("copy-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(pattern, copy) if pattern.is_dir() else shutil.copy(pattern, copy)

    fresh()
    with CrashInjector() as clean:
        whole = doctored(copy, repair=True)
    assert len(whole) > 4
    for at in range(1, clean.count + 1, every):
        fresh()
        if kill:
            child = os.fork()
            if not child:
                with CrashInjector(at=at, torn=True):
                    doctored(copy, repair=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1]
        else:
            with CrashInjector(at=at, error=OSError(28, "disk full")), pytest.raises(OSError, match="disk full"):
                doctored(copy, repair=True)
        assert before <= bytes_of(copy)
        doctored(copy, repair=True)
        assert doctored(copy) == []
        assert before <= bytes_of(copy)
        with History(copy) as history:
            assert sorted(run.branch for run in history.runs()) == ["early", "main"]
            assert history.run("r/early").steps
    assert going_on(copy).kickoff(from_checkpoint="r/early").raw == "d"
