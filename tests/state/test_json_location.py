"""A JSON location beside itself: whatever else happens there at the same moment, files are what the journals say."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import sys
import threading
import time
import tracemalloc
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.errors import BranchConflictError, JournalCorrupt, StoreError
from crewlite.flow import flow
from crewlite.state import JsonProvider
from crewlite.state.journal.cancel import cancel
from crewlite.state.journal.claim import claim
from crewlite.state.journal.compaction import compact_entries
from crewlite.state.verbs.doctor import doctor
from crewlite.state.verbs.score import RecordedScore, record_score, recorded_score
from crewlite.state.verbs.transfer import export_run, import_run
from crewlite.system import disk
from crewlite.testing import ScriptedLLM
from crewlite.testing.bench import Branch
from crewlite.texts.secrets import Secrets


@pytest.fixture
def location(tmp_path):
    return str(tmp_path / "store")


@pytest.fixture
def store(location):
    return JsonProvider().open(location)


def files(location):
    return sorted(path.name for path in Path(location).glob("*_*.json"))


def crew(location, *, reply=lambda messages: "done", **fields):
    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(reply))
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent) for n in range(3)]
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=location, **fields))


def stopping_after(count):
    """A model that answers so many times, and then fails."""
    left = iter([*["done"] * count, ""])
    return lambda messages: next(left) or 1 / 0


def heads(store, run_id="run-1"):
    found = {info.branch: store.read(run_id, info.branch)[-1] for info in store.branches(run_id)}
    return {branch: (last.seq, last.sum) for branch, last in found.items()}


class Beside:
    """Does something in another thread, right before this process does `verb` to a path that holds `part`."""

    def __init__(self, act, verb, part=""):
        self.act, self.verb, self.part = act, verb, part
        self.thread, self.said = None, []

    def __enter__(self):
        self.watching = disk.watched(self.hear)
        self.watching.__enter__()
        return self

    def __exit__(self, *error):
        self.watching.__exit__(*error)
        assert self.thread, "what was to be waited for never happened"
        self.thread.join(20)
        assert not self.thread.is_alive()

    def hear(self, operation):
        names = f"{operation.path} {operation.data!r}" if operation.verb == "rename" else operation.path
        if self.thread is None and operation.verb == self.verb and self.part in names:
            self.thread = threading.Thread(target=self.run)
            self.thread.start()
            self.thread.join(0.3)  # it is done by then, or waits for us

    def run(self):
        try:
            self.said.append(self.act())
        except Exception as error:
            self.said.append(error)


# What a store knows of journals


@pytest.mark.parametrize("reads", [True, False])
def test_a_journal_that_another_has_compacted_takes_the_next_commit_also_if_it_is_read_before(store, location, reads):
    branch = Branch().add(claim=claim()).add(60)
    store.append([branch.commit()])
    own = store.read("run-1", "main")
    JsonProvider().open(location).rewrite("run-1", "main", own, compact_entries([], own, []))
    if reads:
        store.read("run-1", "main")
    store.append([branch.add().commit()])
    assert store.read("run-1", "main")[-1] == branch.entries[-1]


def test_a_store_keeps_nothing_of_a_branch_that_was_left(store):
    def live(number):
        run = Branch(f"run-{number}")
        run.add(claim=claim(), inputs={"text": "x" * 200_000})
        run.checkpoint()
        store.append([run.commit()])
        run.add(released=True)
        store.append([run.commit()])
        store.read(run.run_id, "main")
        store.places(limit=3)

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


def test_a_kickoff_does_not_look_at_the_files_of_other_runs(location):
    crew(location).kickoff(run_id="other")
    with pytest.raises(ZeroDivisionError):
        crew(location, reply=stopping_after(1)).kickoff(run_id="mine")
    looked, looking = [], True

    def hear(event, args):
        if looking and event in ("os.scandir", "os.listdir") and args[0] is not None:
            looked.append(os.path.realpath(os.fspath(args[0])))

    sys.addaudithook(hear)
    try:
        assert crew(location).kickoff(run_id="mine").raw == "done"
    finally:
        looking = False
    assert looked
    assert os.path.realpath(location) not in looked


def test_a_commit_does_to_the_disk_no_more_than_it_must(store, location):
    branch = Branch("run-1").add(claim=claim())

    def operations():
        log = []
        with disk.watched(log.append):
            store.append([branch.commit()])
        return [(one.verb, Path(one.path).name) for one in log if not one.path.endswith(".tmp")]

    JsonProvider().open(location).append([Branch("run-0").add().commit()])
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
def test_what_is_said_to_be_not_made_is_not_there_whichever_sync_has_failed(location, tmp_path, verb):
    crew(location).kickoff(run_id="mine")
    with History(location) as history:
        history.export("mine", tmp_path / "mine.json")
        if verb == "import":
            history.delete("mine")
    made = "mine" if verb == "import" else "made"
    makes = {
        "fork": lambda history: history.fork("mine", branch="made"),
        "kickoff": lambda history: crew(location).kickoff(run_id="made"),
        "import": lambda history: history.import_run(tmp_path / "mine.json"),
    }
    for nth in count():
        syncs = []

        def fail(operation, syncs=syncs, nth=nth):
            if operation.verb in ("fsync", "fsync_dir"):
                syncs.append(operation)
                if len(syncs) == nth + 1:
                    raise OSError(5, "Input/output error")

        with History(location) as history:
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


def test_a_fork_is_safe_also_if_the_creator_of_its_run_died_before_it_had_synced_the_name(location):
    crew(location).kickoff(run_id="mine")
    log = []
    with disk.watched(log.append), History(location) as history:
        history.fork("mine", branch="other")
    assert os.path.join(location, "journal") in [one.path for one in log if one.verb == "fsync_dir"]


def test_a_backup_of_hard_links_is_read_while_the_run_goes_on(store, location, tmp_path):
    branch = Branch("run-1").add(claim=claim())
    branch.checkpoint()
    store.append([branch.commit()])
    backup = str(tmp_path / "backup")
    shutil.copytree(location, backup, copy_function=os.link)
    own = store.read("run-1", "main")
    store.rewrite("run-1", "main", own, compact_entries([], own, []))  # replaces the journal, not that of the backup
    branch.checkpoint()
    store.append([branch.commit()])
    assert JsonProvider().open(backup).read("run-1", "main") == own


def test_a_journal_is_not_read_again_for_the_claim_of_a_branch_that_was_just_read(store, location):
    branch = Branch("run-1").add(4)
    branch.checkpoint()
    store.append([branch.commit()])
    read = store.read("run-1", "main")
    (file,) = Path(location).glob("*_*.json")
    file.unlink()
    claiming = replace(branch.add(claim=claim()).commit(), read=read)

    def entries_read():
        count = 0

        def count_them(frame, event, arg):
            nonlocal count
            count += event == "call" and frame.f_code.co_name == "unseal"

        sys.setprofile(count_them)
        try:
            store.append([claiming])
        finally:
            sys.setprofile(None)
        return count

    assert entries_read() == 0
    assert file.exists()
    JsonProvider().open(location).append([branch.add().commit()])
    claiming = replace(branch.add(claim=claim()).commit(), read=read)
    assert entries_read() == 7  # another has written in the meantime
    assert [entry.seal for entry in store.read("run-1", "main")] == [entry.seal for entry in branch.entries]


def test_an_older_copy_of_a_journal_is_not_taken_for_the_run(location):
    crew(location).kickoff(run_id="r")
    journal = Path(location, "journal", "r", "main.jsonl")
    whole = journal.read_bytes().splitlines(keepends=True)
    named = [at for at, line in enumerate(whole) if b'"place":{' in line]
    journal.write_bytes(b"".join(whole[: named[0] + 1]))
    with pytest.raises(JournalCorrupt, match=r"ends at commit \d+, though checkpoint \w+ was made at \d+"):
        crew(location).kickoff(run_id="r")
    with History(location) as history:
        assert "short_journal" in [finding.what for finding in history.doctor(repair=True)]
        assert history.doctor() == []
    assert crew(location).kickoff(run_id="r").raw == "done"


def test_a_run_begun_anew_under_the_id_of_one_that_is_gone_is_warned_of_and_can_be_resumed(location, caplog):
    crew(location).kickoff(run_id="r")
    assert not caplog.messages
    shutil.rmtree(Path(location, "journal", "r"))  # by hand: its checkpoint files stay
    with pytest.raises(ZeroDivisionError):
        crew(location, reply=stopping_after(1)).kickoff(run_id="r")
    (warning,) = [said for said in caplog.messages if "begins anew" in said]
    assert "notes a checkpoint in it" in warning and "journal/r" in warning.replace(os.sep, "/")
    assert crew(location).kickoff(run_id="r").raw == "done"


@pytest.mark.parametrize("begun", ["a", "other"])
def test_runs_of_which_only_checkpoint_files_are_left_are_warned_of(location, caplog, begun):
    for run_id in "ab":
        crew(location).kickoff(run_id=run_id)
    for deleted in ("journal", "heads"):
        shutil.rmtree(Path(location, deleted))  # by hand
    assert not caplog.messages
    crew(location).kickoff(run_id=begun)
    crew(location).kickoff(run_id="new")
    (warning,) = caplog.messages
    assert "checkpoints of 'a', 'b' are left: kicked off, they begin anew, and pay again" in warning


def test_an_older_export_takes_the_place_of_a_run_that_was_deleted_by_hand(location, tmp_path):
    def early(messages):
        if not (tmp_path / "early.json").exists():
            with History(location) as history:
                history.export("r", tmp_path / "early.json")
        return "done"

    crew(location, reply=early).kickoff(run_id="r")
    shutil.rmtree(Path(location, "journal", "r"))
    with History(location) as history:
        assert history.import_run(tmp_path / "early.json").status == "unfinished"


def test_a_reader_beside_an_older_export_that_takes_the_place_of_a_run_reads_it(store, location, tmp_path):
    branch = Branch().add(2)
    store.append([branch.commit()])
    export_run(store, "run-1", tmp_path / "early.json")
    early = list(branch.entries)
    branch.checkpoint()
    store.append([branch.add().commit()])

    class Late(type(store.journals)):
        def scan(self, run_id, name):
            if store.read("run-1", "main") != early:
                store.remove("run-1", heads(store))
                import_run(store, tmp_path / "early.json")
            return super().scan(run_id, name)

    reader = JsonProvider().open(location)
    reader.journals = Late(reader.paths, reader.ref)
    assert reader.read("run-1", "main") == early


def test_the_doctor_looks_at_a_checkpoint_file_whose_run_has_no_name_that_can_be(location):
    crew(location).kickoff(run_id="r")
    file = Path(location, files(location)[0])
    odd = file.with_name(file.name.replace(file.stem[-4:], "0000"))
    odd.write_text(file.read_text().replace('"run_id": "r"', '"run_id": "\\ud800"'))
    with History(location) as history:
        assert [finding.what for finding in history.doctor(repair=True)] == ["stale_index"]
        assert history.doctor() == []


# Checkpoint files that must not come back


def dropping(branch, checkpoint):
    """A commit in which a run drops a checkpoint."""
    return branch.add(drops=[[checkpoint["id"], None]]).commit()


def test_a_canceller_does_not_bring_back_a_file_that_the_run_dropped(store, location):
    branch = Branch().add(claim={**claim(), "pid": 1})
    checkpoint = branch.checkpoint()
    store.append([branch.commit()])
    other, done = JsonProvider().open(location), []

    class Late(type(other)):
        def append(self, commits):
            if not done:
                done.append(store.append([dropping(branch, checkpoint)]))
            super().append(commits)

    cancel(Late(Path(location)), "run-1", "main")
    assert files(location) == []
    assert doctor(store) == []


def test_a_thread_that_reads_does_not_bring_back_a_file_that_the_run_dropped(store, location):
    branch = Branch().add(claim=claim())
    checkpoint = branch.checkpoint()
    store.append([branch.commit()])
    with Beside(lambda: store.read("run-1", "main"), "unlink", checkpoint["id"]):
        store.append([dropping(branch, checkpoint)])
    store.append([branch.add().commit()])
    assert files(location) == []


def test_an_import_does_not_bring_back_the_files_of_a_run_that_is_deleted_meanwhile(store, location, tmp_path):
    branch = Branch().add()
    checkpoint = branch.checkpoint()
    store.append([branch.commit()])
    exported = tmp_path / "run.json"
    with History(location) as history:
        history.export("run-1", exported)
    target = JsonProvider().open(str(tmp_path / "target"))

    def delete():
        target.remove("run-1", heads(target))

    with Beside(delete, "write", checkpoint["id"]):
        import_run(target, exported)
    assert files(tmp_path / "target") == []
    assert doctor(target) == []
    assert target.branches() == []


@pytest.mark.parametrize("gone", ["dropped", "deleted"])
def test_a_repair_does_not_bring_back_the_file_of_a_checkpoint_that_is_taken_away_meanwhile(gone, store, location):
    branch = Branch().add()
    checkpoint = branch.checkpoint()
    store.append([branch.commit()])
    other = JsonProvider().open(location)
    next(Path(location).glob("*_*.json")).unlink()

    def act():
        if gone == "dropped":
            other.append([dropping(branch, checkpoint)])
        else:
            other.remove("run-1", heads(other))

    with Beside(act, "write", checkpoint["id"]):
        doctor(store, repair=True)
    assert files(location) == []
    assert doctor(store) == []


def test_a_prune_with_a_repair_in_its_middle_brings_no_file_back(store, location):
    branch = Branch().add()
    for _ in range(4):
        branch.checkpoint()
    store.append([branch.commit()])
    with History(location) as history, Beside(lambda: doctor(store, repair=True), "unlink", ".json") as beside:
        history.prune(keep_last=1)
    assert beside.said == [[]]
    assert len(files(location)) == 1
    assert doctor(store) == []


# The doctor beside others


@pytest.mark.parametrize("verb", ["fsync", "write", "rename", "unlink"])
def test_a_doctor_beside_a_run_that_names_and_drops_checkpoints_finds_nothing(verb, store, location):
    branch = Branch().add(claim=claim())
    checkpoint = branch.checkpoint()
    store.append([branch.commit()])
    other = JsonProvider().open(location)
    with Beside(lambda: doctor(other), verb) as beside:
        branch.checkpoint(drops=[checkpoint["id"]])
        store.append([branch.commit()])
    assert beside.said == [[]]


@pytest.mark.parametrize("verb", ["unlink", "rename", "touch"])
def test_a_doctor_beside_a_delete_finds_a_sound_location(verb, store, location):
    for run in ("run-1", "run-2"):
        branch = Branch(run).add()
        branch.checkpoint()
        store.append([branch.commit()])
    other = JsonProvider().open(location)
    with Beside(lambda: doctor(other, repair=True), verb) as beside:
        store.remove("run-1", heads(store))
    assert beside.said == [[]]
    assert [info.run_id for info in store.branches()] == ["run-2"]


def test_a_run_that_is_old_is_deleted_though_a_repair_removes_what_was_left_long_ago(store, location):
    store.append([Branch().add(3).commit()])
    for path in Path(location).rglob("*"):
        os.utime(path, (time.time() - 10_000,) * 2)

    def repair():
        return doctor(JsonProvider().open(location), repair=True)

    with Beside(repair, "unlink", "main.jsonl") as beside:
        store.remove("run-1", heads(store))
    assert beside.said == [[]]
    assert store.branches() == []


def test_a_fork_of_a_run_that_is_gone_leaves_no_directory(store, location):
    branch = Branch().add(2)
    store.append([branch.commit()])
    fork = branch.forked("side", 2).add().commit()
    store.remove("run-1", heads(store))
    with pytest.raises(BranchConflictError):
        store.append([fork])
    assert not Path(location, "journal", "run-1").exists()


def test_one_of_two_who_make_the_same_fork_at_once_makes_it(store, location):
    branch = Branch().add(2)
    store.append([branch.commit()])
    forks = [branch.forked("side", 2).add().commit() for _ in range(2)]
    other = JsonProvider().open(location)
    with Beside(lambda: other.append([forks[1]]), "rename", "side") as beside:
        store.append([forks[0]])
    assert isinstance(beside.said[0], BranchConflictError)
    assert store.read("run-1", "side") == list(forks[0].entries)


def test_a_result_that_was_kept_again_meanwhile_is_not_forgotten(store, location):
    old, new = "a" * 32, "b" * 32
    for key in (old, new):
        store.results.remember(key, b"first")
    for path in Path(location, "cache").glob("*.json"):
        os.utime(path, (1, 1))
    other = JsonProvider().open(location)
    with Beside(lambda: other.results.remember(new, b"second"), "unlink"):
        store.results.forget(time.time() - 60)
    assert store.results.recall(new) == b"second"


# Files that are held open


def test_nothing_is_renamed_or_removed_while_this_process_holds_it_open(store, location):
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
        crew(location, max_checkpoints=1).kickoff(run_id="r")
        crew(location).kickoff(run_id="q")
        with History(location) as history:
            history.fork("q", branch="side")
            history.export("q", Path(location).with_name("q.json"))
            history.prune(keep_last=1)
            history.delete("r")
            journal = Path(location, "journal", "q", "main.jsonl")
            whole = journal.read_bytes()
            journal.write_bytes(whole[:-20] + b"#" * 19 + b"\n")
            for path in Path(location).glob("*_*.json"):
                path.write_text("{}")
            assert history.doctor(repair=True)
            history.delete("q")
            history.import_run(Path(location).with_name("q.json"))
    finally:
        watching = False
    assert wrong == []


# Names


def test_a_location_of_an_earlier_crewlite_keeps_its_names(store, location):
    branch = Branch("Berlin").add()
    branch.checkpoint()
    store.append([branch.commit()])
    root = Path(location, "journal")
    assert [path.name for path in root.iterdir() if path.name[0] not in ".~"] == ["+berlin"]
    (root / "+berlin").rename(root / "Berlin")
    shutil.rmtree(Path(location, "heads"))
    for path in Path(location).glob("*_*.json"):
        path.unlink()
    doctor(store, repair=True)
    assert [info.run_id for info in store.branches()] == ["Berlin"]
    assert store.read("Berlin", "main") == branch.entries
    store.append([branch.add().commit()])
    store.append([branch.forked("Side", 2).add().commit()])
    assert {path.name for path in root.glob("*/*")} == {"main.jsonl", "+side.jsonl"} | {
        path.name for path in root.glob("~locks/*")
    }
    assert doctor(store) == []
    store.remove("Berlin", heads(store, "Berlin"))
    assert store.branches() == []


def test_paths_differ_also_where_case_does_not_count_and_windows_has_names_of_its_own(location):
    from crewlite.state.providers.json_paths import Paths

    paths = Paths(Path(location))
    names = [
        "a",
        "A",
        "aA",
        "Aa",
        "nul",
        "NUL",
        "nul.txt",
        "con",
        "com1",
        "aux.b",
        "a.",
        "x.jsonl",
        "X.jsonl",
        "-a" * 9,
    ]
    names = [name for name in names if name[0] != "-"] + ["R" * 100]
    found = [paths.journal(run, branch) for run in names for branch in [*names, "a/b", "a.jsonl/b", "A/b", "nul/con"]]
    assert len({str(path).lower() for path in found}) == len(found)
    for path in found:
        for part in path.relative_to(location).parts:
            assert part.partition(".")[0] not in {"nul", "con", "aux", "com1"}
            assert part[-1] not in ". "
            assert len(part) < 220
    directories = {path.parent for path in found}
    assert not directories & set(found)


def test_a_score_whose_file_is_missing_is_listed_again_and_that_is_no_sign_of_life(tmp_path):
    @flow(checkpoint=CheckpointConfig(location=str(tmp_path / "store")))
    def scored() -> int:
        return 1

    scored.kickoff(run_id="r")
    with contextlib.closing(JsonProvider().open(str(tmp_path / "store"))) as store:
        record_score(store, "r", "main", "judge", RecordedScore(0.5), Secrets.of())
        (found,) = [one for one in store.places() if one.trigger == "scored"]
        (file,) = (tmp_path / "store").glob(f"*{found.id}.json")
        file.unlink()
        touched = store.touched("r", "main")
    with contextlib.closing(JsonProvider().open(str(tmp_path / "store"))) as store:
        assert recorded_score(store, "r", "main", "judge") == RecordedScore(0.5)
        assert file.exists()
        assert store.touched("r", "main") == touched
