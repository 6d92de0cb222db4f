"""The doctor: explains what is broken, saves what is sound, deletes nothing, leaves alone what somebody writes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, event_bus
from crewlite.errors import CheckpointMismatch, JournalCorrupt
from crewlite.events import TaskStartedEvent
from crewlite.state import InMemoryProvider
from crewlite.state.format.entry import SCHEMA, seal
from crewlite.testing import CrashInjector, ScriptedLLM
from crewlite.testing.bench import Branch
from tests import children, soak
from tests.parts import Stop


def crew_at(location, replies, count=4):
    agent = Agent(role="Pilot", goal="pilot", llm=ScriptedLLM(replies))
    tasks = [
        Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=agent, context=[]) for n in range(count)
    ]
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=str(location)))


def going_on(location):
    """The crew with an answer to every question: task n says the n-th letter."""
    return crew_at(location, lambda messages: "abcd"[int(messages[1]["content"].split()[1])])


def run_at(location, run_id="r"):
    with pytest.raises(Stop):
        crew_at(location, ["a", "b", "c", Stop()]).kickoff(run_id=run_id)
    return location


def doctored(location, *, repair=False, provider=None):
    with History(location, provider) as history:
        return history.doctor(repair=repair)


def codes(findings):
    return [finding.what for finding in findings]


def diagnosis(findings):
    return [(finding.what, finding.where, finding.problem, finding.sound) for finding in findings]


def healed(location, *expected):
    """What the doctor says before, does, and says after: nothing. A repair finds what was found without one."""
    before = doctored(location)
    assert codes(before) == list(expected)
    assert not any(finding.repaired for finding in before)
    assert all("repair=True" in finding.remedy for finding in before)
    done = doctored(location, repair=True)
    assert diagnosis(done) == diagnosis(before)
    assert all(finding.repaired and finding.remedy.startswith("Done: ") for finding in done)
    assert doctored(location, repair=True) == []
    assert doctored(location) == []
    return done


def query(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as db:
        rows = [db.execute(statement).fetchall() for statement in statements]
        db.commit()
    return rows[-1]


@pytest.fixture
def store(tmp_path):
    """A JSON location with a run that stopped in its fourth task, after three checkpoints."""
    return run_at(tmp_path / "store")


@pytest.fixture
def database(tmp_path):
    """The same in a database."""
    return run_at(tmp_path / "runs.db")


@pytest.fixture
def journal(store):
    return store / "journal" / "r" / "main.jsonl"


def files(store):
    return sorted(store.glob("*_*.json"))


def lines(journal):
    return journal.read_bytes().splitlines(keepends=True)


def seqs(location, run="r"):
    with History(location) as history:
        return history.run(run).events()[-1].seq


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


# JSON: journals.


def test_a_torn_tail_is_cut(store, journal):
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"sum":"0123')
    (finding,) = healed(store, "torn_tail")
    assert journal.read_bytes() == whole
    assert "12 bytes" in finding.problem
    assert finding.sound == str(files(store)[-1])
    (aside,) = [path for path in journal.parent.iterdir() if path != journal]
    assert aside.read_bytes() == whole + b'{"sum":"0123'


def test_a_torn_tail_with_more_writes_in_it_is_kept_beside(store, journal):
    whole = journal.read_bytes()
    torn = whole + b"\0" * 600 + b"\n" + lines(journal)[-1]
    journal.write_bytes(torn)
    healed(store, "torn_tail")
    assert journal.read_bytes() == whole
    (aside,) = [path for path in journal.parent.iterdir() if path != journal]
    assert aside.read_bytes() == torn


def damages(whole):
    middle = len(whole) // 2
    return {
        "flipped": [*whole[:middle], whole[middle].replace(b'"at":"2', b'"at":"3'), *whole[middle + 1 :]],
        "missing": [*whole[:middle], *whole[middle + 1 :]],
        "moved": [*whole[:middle], whole[middle + 1], whole[middle], *whole[middle + 2 :]],
        "doubled": [*whole[:middle], whole[middle - 1], *whole[middle:]],
        "not json": [*whole[:middle], b"\n", *whole[middle + 1 :]],
    }


@pytest.mark.parametrize("damage", ["flipped", "missing", "moved", "doubled", "not json"])
def test_a_damaged_journal_is_set_aside_and_its_run_goes_on_at_its_newest_sound_commit(damage, store, journal):
    whole = lines(journal)
    damaged = b"".join(damages(whole)[damage])
    journal.write_bytes(damaged)
    before = {path: path.read_bytes() for path in files(store)}
    with pytest.raises(JournalCorrupt, match=r"doctor\(repair=True\)") as raised:
        crew_at(store, []).kickoff(run_id="r")
    found = healed(store, *codes(doctored(store)))
    assert found[0].what == "damaged_journal"
    assert set(codes(found[1:])) == {"stale_index"}
    assert found[0].where == raised.value.where == f"{journal}, line {len(whole) // 2 + 1}"
    assert found[0].sound == raised.value.sound == str(files(store)[-1])
    assert lines(journal) == whole[: len(whole) // 2]
    (aside,) = journal.parent.glob("main.jsonl.aside-*")
    assert aside.read_bytes() == damaged
    for path, data in before.items():  # nothing is lost
        assert path.read_bytes() == data if path.exists() else len(list(store.glob(f"{path.name}.aside-*"))) == 1
    with History(store) as history:
        finished = len([step for step in history.run("r").steps if step.kind == "task"])
        assert len(history.checkpoints()) == finished
    assert going_on(store).kickoff(run_id="r").raw == "d"
    assert doctored(store) == []


@pytest.mark.parametrize("data", [b"", b"{", b"nothing\n", b'{"sum":"' + b"0" * 32 + b'",}\n'])
def test_a_journal_without_a_sound_line_is_set_aside(data, store, journal):
    crew_at(store, ["x", "y", "z", "w"]).kickoff(run_id="s")
    journal.write_bytes(data)
    (first, *rest) = healed(store, "damaged_journal", *["stale_index"] * 3)
    assert first.sound is None
    assert "line 1" in first.where
    assert not journal.exists()
    (aside,) = journal.parent.iterdir()
    assert aside.read_bytes() == data
    with History(store) as history:
        assert [run.run_id for run in history.runs()] == ["s"]
    assert going_on(store).kickoff(run_id="r").raw == "d"


def test_a_journal_under_a_name_that_is_not_its_own_is_set_aside(store, journal):
    shutil.copy(journal, journal.with_name("copy.jsonl"))
    (finding,) = healed(store, "damaged_journal")
    assert "belongs to branch 'main'" in finding.problem
    with History(store) as history:
        assert [run.branch for run in history.runs()] == ["main"]


def test_a_folded_journal_is_healthy_and_can_be_salvaged(store, journal):
    with History(store) as history:
        assert history.prune(keep_last=1).freed
    assert doctored(store) == []
    whole = lines(journal)
    journal.write_bytes(b"".join(whole[:-1]) + whole[-1].replace(b'"at":"2', b'"at":"3'))
    healed(store, *codes(doctored(store)))
    assert lines(journal) == whole[:-1]
    assert going_on(store).kickoff(run_id="r").raw == "d"


@pytest.mark.parametrize("name", ["store", "store.db"])
def test_a_newer_journal_is_explained_and_left_untouched(name, tmp_path):
    location = run_at(tmp_path / name)
    with History(location) as history:
        store = history._provider.open(str(location))
        branch = Branch("newer")
        branch.add(2)
        branch.checkpoint()
        branch.entries.append(
            seal({"schema": SCHEMA + 1, "seq": 4, "at": "2026-11-21T00:00:00+00:00"}, after=branch.entries[-1].sum)
        )
        store.append([branch.commit()])
        store.close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    for repair in (False, True, True):
        (finding,) = doctored(location, repair=repair)
        assert (finding.what, finding.repaired) == ("newer_schema", False)
        assert "pgrade" in finding.remedy
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == before


# Forks.


def forked(location):
    run_at(location)
    with History(location) as history:
        history.fork("r@task:t0", branch="early")
        history.fork("r@task:t2", branch="late")
        history.fork("r/late", branch="later")
    return location


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


# JSON: checkpoint files, and what a killed process leaves.


def fork_that_went_back(store):
    """A fork that was rewound; then its journal is lost, as where a backup restores `journal/` alone."""
    with History(store) as history:
        history.fork("r@task:t0", branch="f")
        going_on(store).kickoff(from_checkpoint="r/f")
        history.rewind("r/f@task:t1")
        (store / "journal" / "r" / "f.jsonl").unlink()


def test_a_fork_that_takes_the_name_of_a_lost_one_has_gone_back_nowhere(store):
    fork_that_went_back(store)
    with History(store) as history:
        history.fork("r@task:t0", branch="f")
        assert not (store / "heads" / "r" / "f.json").exists()
        history.doctor(repair=True)
        assert history.doctor() == []


def test_a_head_file_of_a_lost_branch_is_removed(store):
    fork_that_went_back(store)
    head = store / "heads" / "r" / "f.json"
    noted = head.read_bytes()
    with History(store) as history:
        history.fork("r@task:t0", branch="f")
        head.write_bytes(noted)  # as an earlier release has left it
        history.doctor(repair=True)
        assert not head.exists()
        assert history.doctor() == []


@pytest.mark.parametrize("place", ["store", "database"])
def test_a_damaged_fork_does_not_prevent_a_fork_of_another(place, request):
    location = request.getfixturevalue(place)
    with History(location) as history:
        for branch in ("whole", "damaged"):
            history.fork("r@task:t1", branch=branch)
        if place == "store":
            (location / "journal" / "r" / "damaged.jsonl").write_bytes(b"x")
        else:
            query(location, "UPDATE entry SET body='x' WHERE branch_id=(SELECT id FROM branch WHERE name='damaged')")
        assert history.fork("r/whole", branch="again").branch == "again"


def test_a_missing_checkpoint_file_is_made_again(store):
    before = {path: path.read_bytes() for path in files(store)}
    files(store)[1].unlink()
    (finding,) = healed(store, "stale_index")
    assert finding.sound == str(files(store)[-1])
    assert {path: path.read_bytes() for path in files(store)} == before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"trigger": "mine"}'])
def test_an_edited_checkpoint_file_is_set_aside_and_made_again(text, store):
    path = files(store)[-1]
    data = path.read_bytes()
    path.write_text(text)
    with pytest.raises(CheckpointMismatch):
        crew_at(store, []).kickoff(from_checkpoint=str(path))
    healed(store, "stale_index")
    assert path.read_bytes() == data
    (aside,) = store.glob("*.aside-*")
    assert aside.read_text() == text
    assert going_on(store).kickoff(from_checkpoint=str(path)).raw == "d"


def test_a_checkpoint_file_that_was_only_laid_out_anew_is_left(store):
    path = files(store)[-1]
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=8))
    assert doctored(store) == []


def test_checkpoint_files_whose_journal_is_gone_are_set_aside(store, journal):
    journal.unlink()
    found = healed(store, *["stale_index"] * 3)
    assert all("journal/r/main.jsonl" in finding.problem for finding in found)
    assert len(list(store.glob("*.aside-*"))) == 3
    with History(store) as history:
        assert history.checkpoints() == history.runs() == []


def test_a_checkpoint_file_that_its_journal_lacks_is_set_aside(store, journal):
    whole = lines(journal)
    last = max(n for n, line in enumerate(whole) if b'"place"' in line)
    journal.write_bytes(b"".join(whole[:last]))
    path = files(store)[-1]
    short, orphan = healed(store, "short_journal", "stale_index")
    assert (short.where, orphan.where) == (str(journal), str(path))
    assert not path.exists()


def test_the_file_of_a_dropped_checkpoint_is_removed(store):
    path = files(store)[0]
    data = path.read_bytes()
    with History(store) as history:
        history.prune(keep_last=1)
        path.write_bytes(data)
    healed(store, "stale_index")
    assert len(files(store)) == 1


def test_what_a_killed_process_left_is_removed_after_an_hour(store, journal):
    strays = [store / ".x.json.0123456789ab.tmp", journal.parent / ".main.jsonl.0123456789ab.tmp"]
    directory = store / "journal" / ("~" + "0" * 32)
    (directory / "deep").mkdir(parents=True)
    (directory / "deep" / "main.jsonl").write_text("x")
    theirs = [store / ".mine.tmp", store / "notes.json", store / "journal" / "~mine"]
    for path in [*strays, *theirs]:
        path.write_text("x")
    assert doctored(store, repair=True) == []
    long_ago = time.time() - 3700
    for path in [*strays, *theirs, directory]:
        os.utime(path, (long_ago, long_ago))
    healed(store, *["stray_file"] * 3)
    assert not any(path.exists() for path in [*strays, directory])
    assert all(path.exists() for path in theirs)


@pytest.mark.skipif(os.name == "nt", reason="makes named pipes")
@pytest.mark.parametrize(
    ("at", "make"),
    [
        ("journal/r/pipe.jsonl", "mkfifo"),
        ("journal/r/main.jsonl", "mkfifo"),
        ("journal/r/main.jsonl", "mkdir"),
        ("heads/r/main.json", "mkdir"),
    ],
)
def test_what_is_no_file_where_one_belongs_is_not_opened_and_set_aside(tmp_path, at, make):
    store = run_at(tmp_path / "store")
    (store / at).unlink(missing_ok=True)
    getattr(os, make)(store / at)
    with History(store) as history:
        assert len(history.runs()) == (0 if "main.jsonl" in at else 1)
    healed(store, *["stale_index"] * (3 if "main.jsonl" in at else 0), "stray_file")
    assert going_on(store).kickoff(run_id="r").raw == "d"


@pytest.mark.skipif(os.name == "nt", reason="makes named pipes")
@pytest.mark.parametrize("make", ["mkdir", "mkfifo"])
def test_what_stands_in_the_place_of_a_checkpoint_file_is_set_aside_and_stops_no_repair(tmp_path, make):
    store = run_at(run_at(tmp_path / "store"), "s")
    [place, *_] = sorted(store.glob("2*.json"))
    stranger = place.with_name(f"{place.name[:-37]}{'0' * 32}.json")
    place.unlink()
    getattr(os, make)(place)
    os.mkfifo(stranger)
    journal = store / "journal" / "s" / "main.jsonl"
    journal.write_bytes(journal.read_bytes()[:-5])
    healed(store, "stale_index", "torn_tail", "stale_index")
    assert place.is_file()
    assert not stranger.exists()


LOOP = lambda path: path.symlink_to(path.name)  # noqa: E731 - one way of several to put something in a place
FILE = lambda path: path.write_text("no directory")  # noqa: E731


@pytest.mark.parametrize("make", [LOOP, FILE])
@pytest.mark.parametrize("at", ["journal", "heads"])
def test_what_is_no_directory_where_one_belongs_is_set_aside(at, make, store):
    shutil.rmtree(store / at)
    make(store / at)
    checkpoints = ["stale_index"] * 3 if at == "journal" else []
    healed(store, *checkpoints, "stray_file")
    assert run_at(store, "another") == store


def test_a_journal_that_is_a_link_to_itself_is_set_aside(store, journal):
    journal.unlink()
    LOOP(journal)
    healed(store, *["stale_index"] * 3, "stray_file")


@pytest.mark.parametrize("target", [".", "r", "itself", "../journal/r", "/nowhere"])
def test_a_link_to_a_run_of_the_location_is_no_second_run_and_no_repair_sets_its_journal_aside(target, store, journal):
    (store / "journal" / "itself").symlink_to(target)
    before = journal.read_bytes()
    assert doctored(store, repair=True) == []
    assert journal.read_bytes() == before
    with History(store) as history:
        assert [run.run_id for run in history.runs()] == ["r"]


def test_a_link_to_a_run_that_was_moved_elsewhere_is_that_run(store, tmp_path):
    shutil.move(store / "journal" / "r", tmp_path / "elsewhere")
    (store / "journal" / "r").symlink_to(tmp_path / "elsewhere")
    assert doctored(store, repair=True) == []
    with History(store) as history:
        assert [run.run_id for run in history.runs()] == ["r"]


def test_a_damaged_fork_of_what_is_gone_is_set_aside_at_once(tmp_path):
    store = forked(tmp_path / "store")
    fork = store / "journal" / "r" / "later.jsonl"
    fork.write_bytes(fork.read_bytes() + b"{}\n" * 2)
    (store / "journal" / "r" / "main.jsonl").unlink()
    healed(store, "damaged_journal", *["dangling_fork"] * 3, *["stale_index"] * 3)


@pytest.mark.skipif(os.name == "nt", reason="makes named pipes")
def test_a_pipe_for_a_lock_file_locks_as_well(tmp_path):
    store = run_at(tmp_path / "store")
    for lock in (store / "journal" / "~locks").iterdir():
        lock.unlink()
        os.mkfifo(lock)
    assert doctored(store) == []
    assert going_on(store).kickoff(run_id="r").raw == "d"


# Databases.


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entry SET body = replace(body, 'task:t1', 'task:t9') WHERE seq = 7",
        "UPDATE entry SET body = NULL WHERE seq = 7",
        "UPDATE entry SET sum = 'x' WHERE seq = 7",
        "UPDATE entry SET seq = 700 WHERE seq = 7",
        "DELETE FROM entry WHERE seq = 7",
    ],
)
def test_damaged_commits_of_a_database_are_set_aside_and_the_run_goes_on(damage, database):
    query(database, damage)
    damaged = query(database, "SELECT seq, sum, body FROM entry WHERE seq >= 7")
    with pytest.raises(JournalCorrupt) as raised:
        crew_at(database, []).kickoff(run_id="r")
    found = healed(database, *codes(doctored(database)))
    assert found[0].what == "damaged_journal"
    assert "commit 7" in found[0].where
    assert found[0].sound == raised.value.sound
    assert query(database, "SELECT max(seq) FROM entry") == [(6,)]
    assert set(damaged) <= set(query(database, "SELECT seq, sum, body FROM aside"))
    assert going_on(database).kickoff(run_id="r").raw == "d"
    assert doctored(database) == []


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


def test_a_run_of_a_database_without_a_sound_commit_is_set_aside(database):
    crew_at(database, ["x", "y", "z", "w"]).kickoff(run_id="s")
    query(database, "UPDATE entry SET body = x'7b7d' WHERE seq = 1 AND branch_id = 1")
    healed(database, "damaged_journal")
    with History(database) as history:
        assert [run.run_id for run in history.runs()] == ["s"]
        assert {checkpoint.run_id for checkpoint in history.checkpoints()} == {"s"}
    assert going_on(database).kickoff(run_id="r").raw == "d"


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ("DELETE FROM place WHERE address = 'task:t1'", "stale_index"),
        ("DELETE FROM place", "stale_index"),
        ("UPDATE place SET trigger = 'mine', seq = 1", "stale_index"),
        (
            "INSERT INTO place SELECT 'ff', branch_id, seq, NULL, '', '', NULL, '', NULL FROM place LIMIT 1",
            "stale_index",
        ),
        ("INSERT INTO place SELECT 'ff', 77, seq, NULL, '', '', NULL, '', NULL FROM place LIMIT 1", "stale_index"),
        ("UPDATE branch SET seq = seq - 1", "stale_index"),
        ("UPDATE branch SET head = 'x'", "stale_index"),
        ("DELETE FROM branch", "stale_index"),
        ("UPDATE branch SET name = 'other'", "stale_index"),
        ("UPDATE branch SET run_id = 'other'", "stale_index"),
        ("UPDATE branch SET id = 77", "stale_index"),
        ("INSERT INTO entry SELECT 77, seq, sum, body FROM entry", "damaged_journal"),
        ("INSERT INTO entry SELECT NULL, seq, sum, body FROM entry", "damaged_journal"),
        ("INSERT INTO entry SELECT 'x', seq, sum, body FROM entry", "damaged_journal"),
    ],
)
def test_rows_that_do_not_fit_together_are_made_to(damage, what, database):
    with History(database) as history:
        before = history.checkpoints(), history.run("r").steps, history.run("r").digest
    query(database, damage)
    healed(database, what)
    with History(database) as history:
        assert (history.checkpoints(), history.run("r").steps, history.run("r").digest) == before
    assert going_on(database).kickoff(run_id="r").raw == "d"


def test_commits_that_are_gone_from_the_end_are_told(database):
    query(database, "DELETE FROM entry WHERE seq > 6")
    (first, *rest) = healed(database, "short_journal", "stale_index")
    assert "after 6" in first.problem
    assert going_on(database).kickoff(run_id="r").raw == "d"


def test_a_newer_database_is_explained_and_left_untouched(database):
    query(database, f"PRAGMA user_version={SCHEMA + 1}")
    for repair in (False, True):
        (finding,) = doctored(database, repair=repair)
        assert (finding.what, finding.repaired) == ("newer_schema", False)


def test_a_database_that_sqlite_cannot_read_in_places_is_explained_and_sound_runs_can_be_exported(tmp_path):
    database = run_at(tmp_path / "runs.db", "first")
    crew_at(database, ["x" * 30_000] * 4).kickoff(run_id="second")
    run_at(database, "third")
    whole = database.read_bytes()
    told = exported = 0
    for page in range(1, len(whole) // 4096):
        database.write_bytes(whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096 :])
        before = database.read_bytes()
        with History(database) as history:
            found = history.doctor(repair=True)
            if codes(found) != ["damaged_database"]:
                continue
            assert not found[0].repaired
            told += 1
            for run_id in ("first", "second", "third"):
                if run_id in found[0].remedy:
                    history.export(run_id, tmp_path / "out.json")
                    exported += 1
        assert database.read_bytes() == before
    assert told
    assert exported


def test_a_database_that_lacks_a_table_is_explained(database):
    query(database, "DROP TABLE place")
    (finding,) = doctored(database, repair=True)
    assert (finding.what, finding.repaired) == ("damaged_database", False)
    assert "r" in finding.remedy


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
