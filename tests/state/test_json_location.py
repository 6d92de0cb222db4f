"""A JSON location alone: what its store knows of journals, does to the disk, and names its files."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tracemalloc
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from crewlite import History
from crewlite.errors import BranchConflictError, StoreError
from crewlite.state import JsonProvider
from crewlite.state.journal.claim import claim
from crewlite.state.journal.compaction import compact_entries
from crewlite.state.providers.json_paths import Paths
from crewlite.system import disk
from crewlite.testing.bench import Branch
from tests.parts import Stop
from tests.state.doctoring import crew_at, files


@pytest.mark.parametrize("reads", [True, False])
def test_a_journal_that_another_has_compacted_takes_the_next_commit_also_if_it_is_read_before(
    json_store, json_location, reads
):
    branch = Branch().add(claim=claim()).add(60)
    json_store.append([branch.commit()])
    own = json_store.read("run-1", "main")
    JsonProvider().open(json_location).rewrite("run-1", "main", own, compact_entries([], own, []))
    if reads:
        json_store.read("run-1", "main")
    json_store.append([branch.add().commit()])
    assert json_store.read("run-1", "main")[-1] == branch.entries[-1]


def test_a_store_keeps_nothing_of_a_branch_that_was_left(json_store):
    def live(number):
        run = Branch(f"run-{number}")
        run.add(claim=claim(), inputs={"text": "x" * 200_000})
        run.checkpoint()
        json_store.append([run.commit()])
        run.add(released=True)
        json_store.append([run.commit()])
        json_store.read(run.run_id, "main")
        json_store.places(limit=3)

    for number in range(3):
        live(number)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(3, 33):
            live(number)
        gc.collect()
        texts = [trace.size for trace in tracemalloc.take_snapshot().traces if 200_000 <= trace.size < 210_000]
    finally:
        tracemalloc.stop()
    assert not texts, "no block of memory can hold the inputs of a run"


def test_a_kickoff_does_not_look_at_the_files_other_runs(json_location):
    crew_at(json_location).kickoff(run_id="other")
    with pytest.raises(Stop):
        crew_at(json_location, ["done", Stop()]).kickoff(run_id="mine")
    looked, looking = [], True

    def hear(event, args):
        if looking and event in ("os.scandir", "os.listdir") and args[0] is not None:
            looked.append(os.path.realpath(os.fspath(args[0])))

    sys.addaudithook(hear)
    try:
        assert crew_at(json_location).kickoff(run_id="mine").raw == "done"
    finally:
        looking = False
    assert looked
    assert os.path.realpath(json_location) not in looked


def test_a_commit_does_to_the_disk_no_more_than_it_must(json_store, json_location):
    branch = Branch("run-1").add(claim=claim())

    def operations():
        log = []
        with disk.watched(log.append):
            json_store.append([branch.commit()])
        return [(one.verb, Path(one.path).name) for one in log if not one.path.endswith(".tmp")]

    JsonProvider().open(json_location).append([Branch("run-0").add().commit()])
    assert [verb for verb, _ in operations()] == [
        "mkdir",
        "write",
        "touch",
        "fsync",
        "fsync_dir",
        "rename",
        "fsync_dir",
    ]
    journal, file = [("write", "main.jsonl"), ("fsync", "main.jsonl")], [("fsync_dir", "store")]
    branch.checkpoint()
    assert operations() == [*journal, *file, ("mkdir", "heads"), ("mkdir", "run-1")]
    branch.checkpoint()
    assert operations() == [*journal, *file, ("write", "main.json")]
    branch.add(rewind={"seq": 2, "sum": branch.entries[1].sum})
    assert operations() == [*journal, *[("fsync_dir", name) for name in ("run-1", "heads", "store")]]
    branch.add()
    assert operations() == journal


@pytest.mark.skipif(os.name == "nt", reason="Windows syncs no directories")
@pytest.mark.parametrize("verb", ["fork", "kickoff", "import"])
def test_what_is_said_to_be_not_made_is_not_there_whichever_sync_has_failed(json_location, tmp_path, verb):
    crew_at(json_location).kickoff(run_id="mine")
    with History(json_location) as history:
        history.export("mine", tmp_path / "mine.json")
        if verb == "import":
            history.delete("mine")
    made = "mine" if verb == "import" else "made"
    makes = {
        "fork": lambda history: history.fork("mine", branch="made"),
        "kickoff": lambda history: crew_at(json_location).kickoff(run_id="made"),
        "import": lambda history: history.import_run(tmp_path / "mine.json"),
    }
    for nth in count():
        syncs = []

        def fail(operation, syncs=syncs, nth=nth):
            if operation.verb in ("fsync", "fsync_dir"):
                syncs.append(operation)
                if len(syncs) == nth + 1:
                    raise OSError(5, "Input/output error")

        with History(json_location) as history:
            try:
                with disk.watched(fail):
                    makes[verb](history)
                    break
            except StoreError as error:
                there = [run for run in history.runs() if made in (run.run_id, run.branch)]
                assert not there or "not completely" in str(error), f"sync {nth}: {error}"
                if there:
                    history.delete(made)
    assert nth > 2


def test_a_fork_is_safe_also_if_the_creator_of_its_run_died_before_it_had_synced_the_name(json_location):
    crew_at(json_location).kickoff(run_id="mine")
    log = []
    with disk.watched(log.append), History(json_location) as history:
        history.fork("mine", branch="other")
    assert os.path.join(json_location, "journal") in [one.path for one in log if one.verb == "fsync_dir"]


def test_a_backup_of_hard_links_is_read_while_the_run_goes_on(json_store, json_location, tmp_path):
    branch = Branch("run-1").add(claim=claim())
    branch.checkpoint()
    json_store.append([branch.commit()])
    backup = str(tmp_path / "backup")
    shutil.copytree(json_location, backup, copy_function=os.link)
    own = json_store.read("run-1", "main")
    json_store.rewrite(
        "run-1", "main", own, compact_entries([], own, [])
    )  # replaces the journal, not that of the backup
    branch.checkpoint()
    json_store.append([branch.commit()])
    assert JsonProvider().open(backup).read("run-1", "main") == own


def test_a_journal_is_not_read_again_for_the_claim_of_a_branch_that_was_just_read(json_store, json_location):
    branch = Branch("run-1").add(4)
    branch.checkpoint()
    json_store.append([branch.commit()])
    read = json_store.read("run-1", "main")
    (file,) = files(Path(json_location))
    file.unlink()
    claiming = replace(branch.add(claim=claim()).commit(), read=read)

    def entries_read():
        count = 0

        def count_them(frame, event, arg):
            nonlocal count
            count += event == "call" and frame.f_code.co_name == "unseal"

        sys.setprofile(count_them)
        try:
            json_store.append([claiming])
        finally:
            sys.setprofile(None)
        return count

    assert entries_read() == 0
    assert file.exists()
    JsonProvider().open(json_location).append([branch.add().commit()])
    claiming = replace(branch.add(claim=claim()).commit(), read=read)
    assert entries_read() == 7  # another has written in the meantime
    assert [entry.seal for entry in json_store.read("run-1", "main")] == [entry.seal for entry in branch.entries]


def test_nothing_is_renamed_or_removed_while_this_process_holds_it_open(json_store, json_location):
    if not Path("/proc/self/fd").exists():
        pytest.skip("tells open files where the system lists them")
    watching, wrong = True, []

    def hear(event, args):
        if watching and event in ("os.rename", "os.remove", "os.rmdir"):
            paths = [os.path.realpath(arg) for arg in args[: 2 if event == "os.rename" else 1]]
            for fd in os.listdir("/proc/self/fd"):
                try:
                    held = os.readlink(f"/proc/self/fd/{fd}")
                except OSError:
                    continue
                wrong.extend((event, path) for path in paths if held == path or held.startswith(f"{path}/"))

    sys.addaudithook(hear)
    try:
        crew_at(json_location, max_checkpoints=1).kickoff(run_id="r")
        crew_at(json_location).kickoff(run_id="q")
        with History(json_location) as history:
            history.fork("q", branch="side")
            history.export("q", Path(json_location).with_name("q.json"))
            history.prune(keep_last=1)
            history.delete("r")
            journal = Path(json_location, "journal", "q", "main.jsonl")
            whole = journal.read_bytes()
            journal.write_bytes(whole[:-20] + b"#" * 19 + b"\n")
            for path in files(Path(json_location)):
                path.write_text("{}")
            assert history.doctor(repair=True)
            history.delete("q")
            history.import_run(Path(json_location).with_name("q.json"))
    finally:
        watching = False
    assert wrong == []


def test_paths_differ_also_where_case_does_not_count_and_windows_has_names_of_its_own(json_location):
    paths = Paths(Path(json_location))
    odd = ["a", "A", "aA", "Aa", "nul", "NUL", "nul.txt", "con", "com1", "aux.b", "a.", "x.jsonl", "X.jsonl"]
    names = [*odd, "R" * 100]
    found = [paths.journal(run, branch) for run in names for branch in [*names, "a/b", "a.jsonl/b", "A/b", "nul/con"]]
    assert len({str(path).lower() for path in found}) == len(found)
    for path in found:
        for part in path.relative_to(json_location).parts:
            assert part.partition(".")[0] not in {"nul", "con", "aux", "com1"}
            assert part[-1] not in ". "
            assert len(part) < 220
    directories = {path.parent for path in found}
    assert not directories & set(found)


def test_a_journal_that_was_folded_to_its_old_length_is_not_taken_for_the_old_one(json_location):
    ours, theirs = (JsonProvider().open(json_location) for _ in range(2))
    branch = Branch().add(12)
    ours.append([branch.commit()])
    journal = Path(json_location, "journal", "run-1", "main.jsonl")
    length, late = journal.stat().st_size, branch.twin().add()
    own = theirs.read("run-1", "main")
    compacted = compact_entries([], own, ())
    theirs.rewrite("run-1", "main", own, compacted)
    gap = length - journal.stat().st_size - len(branch.twin().add().entries[-1].line) - 1
    branch.add(note="x" * (gap - len(',"note":""')))
    theirs.append([branch.commit()])
    assert journal.stat().st_size == length, "as long as before, and another"
    with pytest.raises(BranchConflictError):
        ours.append([late.commit()])
    assert theirs.read("run-1", "main")[-1].sum == branch.entries[-1].sum
