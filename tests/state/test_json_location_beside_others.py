"""A JSON location beside itself: whatever else happens there at the same moment, files are what the journals say."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crewlite import History
from crewlite.errors import BranchConflictError
from crewlite.state import JsonProvider
from crewlite.state.journal.cancel import cancel
from crewlite.state.journal.claim import claim
from crewlite.state.verbs.doctor import doctor
from crewlite.state.verbs.transfer import export_run, import_run
from crewlite.system import disk
from crewlite.testing.bench import Branch
from tests.state.doctoring import files


def heads(store):
    found = {info.branch: store.read("run-1", info.branch)[-1] for info in store.branches("run-1")}
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


# Checkpoint files that must not come back


def dropping(branch, checkpoint):
    """A commit in which a run drops a checkpoint."""
    return branch.add(drops=[[checkpoint["id"], None]]).commit()


def test_a_canceller_does_not_bring_back_a_file_that_the_run_dropped(json_store, json_location):
    branch = Branch().add(claim={**claim(), "pid": 1})
    checkpoint = branch.checkpoint()
    json_store.append([branch.commit()])
    other, done = JsonProvider().open(json_location), []

    class Late(type(other)):
        def append(self, commits):
            if not done:
                done.append(json_store.append([dropping(branch, checkpoint)]))
            super().append(commits)

    cancel(Late(Path(json_location)), "run-1", "main")
    assert files(Path(json_location)) == []
    assert doctor(json_store) == []


def test_a_thread_that_reads_does_not_bring_back_a_file_that_the_run_dropped(json_store, json_location):
    branch = Branch().add(claim=claim())
    checkpoint = branch.checkpoint()
    json_store.append([branch.commit()])
    with Beside(lambda: json_store.read("run-1", "main"), "unlink", checkpoint["id"]):
        json_store.append([dropping(branch, checkpoint)])
    json_store.append([branch.add().commit()])
    assert files(Path(json_location)) == []


def test_an_import_does_not_bring_back_the_files_of_a_run_that_is_deleted_meanwhile(
    json_store, json_location, tmp_path
):
    branch = Branch().add()
    checkpoint = branch.checkpoint()
    json_store.append([branch.commit()])
    exported = tmp_path / "run.json"
    with History(json_location) as history:
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
def test_a_repair_does_not_bring_back_the_file_of_a_checkpoint_that_is_taken_away_meanwhile(
    gone, json_store, json_location
):
    branch = Branch().add()
    checkpoint = branch.checkpoint()
    json_store.append([branch.commit()])
    other = JsonProvider().open(json_location)
    files(Path(json_location))[0].unlink()

    def act():
        if gone == "dropped":
            other.append([dropping(branch, checkpoint)])
        else:
            other.remove("run-1", heads(other))

    with Beside(act, "write", checkpoint["id"]):
        doctor(json_store, repair=True)
    assert files(Path(json_location)) == []
    assert doctor(json_store) == []


def test_a_prune_with_a_repair_in_its_middle_brings_no_file_back(json_store, json_location):
    branch = Branch().add()
    for _ in range(4):
        branch.checkpoint()
    json_store.append([branch.commit()])
    with (
        History(json_location) as history,
        Beside(lambda: doctor(json_store, repair=True), "unlink", ".json") as beside,
    ):
        history.prune(keep_last=1)
    assert beside.said == [[]]
    assert len(files(Path(json_location))) == 1
    assert doctor(json_store) == []


# The doctor beside others


@pytest.mark.parametrize("verb", ["fsync", "write", "rename", "unlink"])
def test_a_doctor_beside_a_run_that_names_and_drops_checkpoints_finds_nothing(verb, json_store, json_location):
    branch = Branch().add(claim=claim())
    checkpoint = branch.checkpoint()
    json_store.append([branch.commit()])
    other = JsonProvider().open(json_location)
    with Beside(lambda: doctor(other), verb) as beside:
        branch.checkpoint(drops=[checkpoint["id"]])
        json_store.append([branch.commit()])
    assert beside.said == [[]]


@pytest.mark.parametrize("verb", ["unlink", "rename", "touch"])
def test_a_doctor_beside_a_delete_finds_a_sound_location(verb, json_store, json_location):
    for run in ("run-1", "run-2"):
        branch = Branch(run).add()
        branch.checkpoint()
        json_store.append([branch.commit()])
    other = JsonProvider().open(json_location)
    with Beside(lambda: doctor(other, repair=True), verb) as beside:
        json_store.remove("run-1", heads(json_store))
    assert beside.said == [[]]
    assert [info.run_id for info in json_store.branches()] == ["run-2"]


def test_a_run_that_is_old_is_deleted_though_a_repair_removes_what_was_left_long_ago(json_store, json_location):
    json_store.append([Branch().add(3).commit()])
    for path in Path(json_location).rglob("*"):
        os.utime(path, (time.time() - 10_000,) * 2)

    def repair():
        return doctor(JsonProvider().open(json_location), repair=True)

    with Beside(repair, "unlink", "main.jsonl") as beside:
        json_store.remove("run-1", heads(json_store))
    assert beside.said == [[]]
    assert json_store.branches() == []


# Forks, imports and kept results beside others


def test_a_fork_of_a_run_that_is_gone_leaves_no_directory(json_store, json_location):
    branch = Branch().add(2)
    json_store.append([branch.commit()])
    fork = branch.forked("side", 2).add().commit()
    json_store.remove("run-1", heads(json_store))
    with pytest.raises(BranchConflictError):
        json_store.append([fork])
    assert not Path(json_location, "journal", "run-1").exists()


def test_one_of_two_who_make_the_same_fork_at_once_makes_it(json_store, json_location):
    branch = Branch().add(2)
    json_store.append([branch.commit()])
    forks = [branch.forked("side", 2).add().commit() for _ in range(2)]
    other = JsonProvider().open(json_location)
    with Beside(lambda: other.append([forks[1]]), "rename", "side") as beside:
        json_store.append([forks[0]])
    assert isinstance(beside.said[0], BranchConflictError)
    assert json_store.read("run-1", "side") == list(forks[0].entries)


def test_a_reader_beside_an_older_export_that_takes_the_place_of_a_run_reads_it(json_store, json_location, tmp_path):
    branch = Branch().add(2)
    json_store.append([branch.commit()])
    export_run(json_store, "run-1", tmp_path / "early.json")
    early = list(branch.entries)
    branch.checkpoint()
    json_store.append([branch.add().commit()])

    class Late(type(json_store.journals)):
        def scan(self, run_id, name):
            if json_store.read("run-1", "main") != early:
                json_store.remove("run-1", heads(json_store))
                import_run(json_store, tmp_path / "early.json")
            return super().scan(run_id, name)

    reader = JsonProvider().open(json_location)
    reader.journals = Late(reader.paths, reader.ref)
    assert reader.read("run-1", "main") == early


def test_a_result_that_was_kept_again_meanwhile_is_not_forgotten(json_store, json_location):
    old, new = "a" * 32, "b" * 32
    for key in (old, new):
        json_store.results.remember(key, b"first")
    for path in Path(json_location, "cache").glob("*.json"):
        os.utime(path, (1, 1))
    other = JsonProvider().open(json_location)
    with Beside(lambda: other.results.remember(new, b"second"), "unlink"):
        json_store.results.forget(time.time() - 60)
    assert json_store.results.recall(new) == b"second"


def test_two_who_write_to_the_same_runs_in_another_order_never_wait_for_each_other(json_location):
    stores, runs = [JsonProvider().open(str(json_location)) for _ in range(2)], [f"run-{n}" for n in range(8)]
    sides = [[Branch(run, branch=f"side-{n}").add() for run in order] for n, order in enumerate((runs, runs[::-1]))]
    stores[0].append([Branch(run).add().commit() for run in runs])

    def write(store, branches):
        store.append([branch.commit() for branch in branches])
        for _ in range(20):
            store.append([branch.add().commit() for branch in branches])

    with ThreadPoolExecutor() as threads:
        for writing in [threads.submit(write, store, side) for store, side in zip(stores, sides, strict=True)]:
            writing.result(30)
    assert {len(stores[0].read(run, f"side-{n}")) for run in runs for n in range(2)} == {21}
