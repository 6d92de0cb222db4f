"""The doctor of JSON files: explains what is broken, saves what is sound, deletes nothing."""

from __future__ import annotations

import json
import os
import shutil
import time

import pytest

from crewlite import History
from crewlite.errors import CheckpointMismatch, JournalCorrupt
from crewlite.state.format.entry import SCHEMA, seal
from crewlite.testing.bench import Branch
from tests.state.doctoring import codes, crew_at, doctored, files, forked, going_on, healed, lines, query, run_at

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
