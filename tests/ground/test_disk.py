"""The one door to the disk: whole or not at all, in an order that a power cut cannot turn against us."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from crewlite.system import disk
from crewlite.system.forked import between_forks
from tests import children

OLD, NEW = b"old content", b"the new content, which is longer"


class PulledPlug(BaseException):
    """As final as a crash: no `except Exception` mends it."""


def crash_at(number):
    """A watcher that lets `number - 1` operations happen, and the log of those it heard of."""
    log = []

    def watch(operation):
        log.append(operation)
        if len(log) == number:
            raise PulledPlug

    return watch, log


def operations(act):
    log = []
    with disk.watched(log.append):
        act()
    return log


def verbs(act):
    return [operation.verb for operation in operations(act)]


def whole(tail):
    return not tail.endswith(b"\n")


# Replacing


def test_a_file_is_written_synced_renamed_and_its_directory_synced_in_this_order(tmp_path):
    log = operations(lambda: disk.replace(tmp_path / "a.json", NEW))
    assert [operation.verb for operation in log] == ["write", "fsync", "rename", "fsync_dir"]
    write, fsync, rename, directory = log
    assert write.path == fsync.path == rename.path != str(tmp_path / "a.json")
    assert (write.data, rename.data) == (NEW, str(tmp_path / "a.json").encode())
    assert directory.path == str(tmp_path)


@pytest.mark.parametrize("before", [None, OLD], ids=["new", "existing"])
@pytest.mark.parametrize("crash", [1, 2, 3, 4])
def test_a_file_is_replaced_whole_or_not_at_all_wherever_it_is_cut(crash, before, tmp_path):
    path = tmp_path / "a.json"
    if before:
        path.write_bytes(before)
    watch, _ = crash_at(crash)
    with disk.watched(watch), pytest.raises(PulledPlug):
        disk.replace(path, NEW)
    found = path.read_bytes() if path.exists() else None
    assert found == (before if crash < 4 else NEW)
    assert [other.name for other in tmp_path.iterdir()] in ([], ["a.json"])
    disk.replace(path, NEW)
    assert path.read_bytes() == NEW


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps other books")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_and_directories_are_for_their_owner_alone_whatever_the_umask(umask, tmp_path):
    before = os.umask(umask)
    try:
        disk.make_directory(tmp_path / "a" / "b")
        disk.replace(tmp_path / "a" / "b" / "replaced", NEW)
        disk.append(tmp_path / "a" / "b" / "appended", NEW, at=0, torn=whole)
        with between_forks:
            disk.connect(tmp_path / "a" / "b" / "runs.db", make=True).close()
    finally:
        os.umask(before)
    modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in (tmp_path / "a").rglob("*")}
    assert modes == {"b": "0o700", "replaced": "0o600", "appended": "0o600", "runs.db": "0o600"}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_a_file_for_others_to_read_can_be_asked_for(tmp_path):
    before = os.umask(0o022)
    try:
        disk.replace(tmp_path / "report.md", NEW, mode=0o644)
    finally:
        os.umask(before)
    if os.name != "nt":
        assert stat.S_IMODE((tmp_path / "report.md").stat().st_mode) == 0o644


def test_a_file_in_the_working_directory_needs_no_directory_in_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = operations(lambda: disk.replace(Path("a.json"), NEW))
    assert [os.path.dirname(operation.path) for operation in log] == [""] * 4
    assert log[-1].path == os.curdir
    assert (tmp_path / "a.json").read_bytes() == NEW


def test_replacing_a_symbolic_link_replaces_the_link_and_not_what_it_points_to(tmp_path):
    (tmp_path / "precious").write_bytes(OLD)
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    disk.replace(tmp_path / "link", NEW)
    assert (tmp_path / "precious").read_bytes() == OLD
    assert (tmp_path / "link").read_bytes() == NEW
    assert not (tmp_path / "link").is_symlink()


# Writing over


def test_a_file_of_the_same_length_is_written_over_in_place_and_no_other(tmp_path):
    path = tmp_path / "note.json"
    assert not disk.overwrite(path, OLD)
    assert not path.exists()
    path.write_bytes(OLD)
    file = path.stat().st_ino
    assert verbs(lambda: disk.overwrite(path, NEW)) == []
    assert path.read_bytes() == OLD
    assert verbs(lambda: disk.overwrite(path, OLD[::-1])) == ["write"]
    assert (disk.read_complete(path), path.stat().st_ino) == (OLD[::-1], file)


def test_a_file_that_may_not_be_written_is_not_written_over(forbidden):
    with forbidden() as directory:
        path = directory / "note.json"
        path.write_bytes(OLD)
        path.chmod(0o400)
        assert not disk.overwrite(path, OLD[::-1])
        assert path.read_bytes() == OLD


def test_a_file_with_another_name_is_not_written_over(tmp_path):
    path, copy = tmp_path / "note.json", tmp_path / "backup.json"
    path.write_bytes(OLD)
    copy.symlink_to(path)
    assert not disk.overwrite(copy, OLD[::-1])
    copy.unlink()
    copy.hardlink_to(path)
    assert not disk.overwrite(path, OLD[::-1])
    copy.unlink()
    assert path.read_bytes() == OLD
    assert disk.overwrite(path, OLD[::-1])


# Directories


def test_directories_are_made_from_the_top_and_each_is_synced_into_its_parent(tmp_path):
    log = operations(lambda: disk.make_directory(tmp_path / "a" / "b"))
    assert [(operation.verb, operation.path) for operation in log] == [
        ("mkdir", str(tmp_path / "a")),
        ("fsync_dir", str(tmp_path)),
        ("mkdir", str(tmp_path / "a" / "b")),
        ("fsync_dir", str(tmp_path / "a")),
    ]
    assert verbs(lambda: disk.make_directory(tmp_path / "a" / "b")) == []


@pytest.mark.parametrize("crash", [1, 2, 3, 4])
def test_making_directories_can_be_cut_and_done_again(crash, tmp_path):
    watch, _ = crash_at(crash)
    with disk.watched(watch), pytest.raises(PulledPlug):
        disk.make_directory(tmp_path / "a" / "b")
    disk.make_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


# Appending


def test_the_first_append_makes_the_file_and_syncs_its_directory(tmp_path):
    path = tmp_path / "main.jsonl"
    assert verbs(lambda: disk.append(path, b"one\n", at=0, torn=whole)) == ["write", "fsync", "fsync_dir"]
    assert verbs(lambda: disk.append(path, b"two\n", at=4, torn=whole)) == ["write", "fsync"]
    assert path.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("crash", [1, 2, 3])
def test_an_append_that_was_cut_can_be_tried_again(crash, tmp_path):
    path = tmp_path / "main.jsonl"
    for at, data in ((0, b"one\n"), (4, b"two\n")):
        watch, log = crash_at(crash)
        with disk.watched(watch):
            try:
                disk.append(path, data, at=at, torn=whole)
            except PulledPlug:
                assert len(log) == crash
        assert path.read_bytes() in (b"one\ntwo\n"[:at], b"one\ntwo\n"[: at + 4])
        disk.append(path, data, at=at, torn=whole)
    assert path.read_bytes() == b"one\ntwo\n"


def test_an_append_cuts_a_torn_tail_off_and_says_so(tmp_path):
    path = tmp_path / "main.jsonl"
    path.write_bytes(b"one\nxy")
    log = operations(lambda: disk.append(path, b"two\n", at=4, torn=whole))
    assert [(operation.verb, operation.offset) for operation in log][:2] == [("truncate", 4), ("write", 4)]
    assert path.read_bytes() == b"one\ntwo\n"


def test_an_append_over_a_longer_torn_tail_leaves_nothing_of_it(tmp_path):
    path = tmp_path / "main.jsonl"
    path.write_bytes(b"one\n" + b"x" * 1000)
    disk.append(path, b"two\n", at=4, torn=whole)
    assert path.read_bytes() == b"one\ntwo\n"


def test_an_append_refuses_to_write_over_what_somebody_else_wrote(tmp_path):
    path = tmp_path / "main.jsonl"
    path.write_bytes(b"one\ntheirs\n")
    with pytest.raises(FileExistsError, match="beyond byte 4"):
        disk.append(path, b"two\n", at=4, torn=whole)
    with pytest.raises(FileExistsError, match="beyond byte 0"):
        disk.append(path, b"one\n", at=0, torn=whole)
    assert path.read_bytes() == b"one\ntheirs\n"


def test_an_append_never_makes_a_file_that_should_exist_already(tmp_path):
    with pytest.raises(FileNotFoundError):
        disk.append(tmp_path / "main.jsonl", b"two\n", at=4, torn=whole)
    assert list(tmp_path.iterdir()) == []


def test_an_append_beyond_the_end_leaves_no_hole(tmp_path):
    path = tmp_path / "main.jsonl"
    path.write_bytes(b"on")
    with pytest.raises(OSError, match=r"main\.jsonl"):
        disk.append(path, b"two\n", at=4, torn=whole)
    assert path.read_bytes() == b"on"


@pytest.mark.skipif(os.name == "nt", reason="needs a limit on file sizes")
def test_a_disk_that_takes_only_a_part_of_a_write_is_an_error(tmp_path):
    import resource

    path = tmp_path / "main.jsonl"
    disk.append(path, b"one\n", at=0, torn=whole)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            disk.append(path, b"x" * 5000 + b"\n", at=4, torn=whole)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    disk.append(path, b"two\n", at=4, torn=whole)
    assert path.read_bytes() == b"one\ntwo\n"


# Removing, and watching


@pytest.mark.parametrize("fails", ["write", "fsync"])
def test_an_append_that_failed_is_taken_back_with_all_that_was_to_be_synced_with_it(fails, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    disk.append(one, b"one\n", at=0, torn=whole)

    def fail(operation):
        if operation.verb == fails and operation.path == str(two):
            raise OSError("no")

    with disk.watched(fail), pytest.raises(OSError, match="no"), disk.SyncBatch() as batch:
        batch.append(one, b"more\n", at=4, torn=whole)
        batch.append(two, b"two\n", at=0, torn=whole)
    assert (one.read_bytes(), two.read_bytes()) == (b"one\n", b"")


def test_removing_what_is_gone_already_is_no_error(tmp_path):
    (tmp_path / "a").write_bytes(OLD)
    assert verbs(lambda: disk.remove(tmp_path / "a")) == ["unlink"]
    disk.remove(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_statements_of_a_database_pass_the_door_too(tmp_path):
    path = tmp_path / "runs.db"
    log = []
    with between_forks, contextlib.closing(disk.connect(path, make=True)) as db, disk.watched(log.append):
        for sql in ("BEGIN IMMEDIATE", "CREATE TABLE t (a)", "COMMIT"):
            disk.execute(db, path, sql)
    assert [operation.verb for operation in log] == ["sql", "sql", "commit"]


def test_watchers_hear_only_while_their_block_runs_and_each_hears_all(tmp_path):
    inner, outer = [], []
    with disk.watched(outer.append):
        with disk.watched(inner.append):
            disk.remove(tmp_path / "a")
        disk.remove(tmp_path / "b")
    disk.remove(tmp_path / "c")
    assert (len(inner), len(outer)) == (1, 2)


@pytest.mark.skipif(os.name == "nt", reason="Windows asks for a right to make links")
def test_what_a_link_leads_to_outlives_the_directory_that_holds_the_link(tmp_path):
    kept, gone = tmp_path / "kept", tmp_path / "gone"
    (kept / "deep").mkdir(parents=True)
    (kept / "deep" / "file").write_text("x")
    (gone / "inside").mkdir(parents=True)
    (gone / "inside" / "link").symlink_to(kept)
    (tmp_path / "link").symlink_to(kept)
    disk.remove_directory(gone)
    disk.remove_directory(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "deep" / "file").read_text() == "x"


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="finds the open file by /proc")
def test_a_file_that_cannot_be_closed_keeps_no_lock_and_leaves_no_temporary_file(tmp_path):
    """File systems on a network tell only then that the disk is full. A lock that was kept would stop all writers."""
    held = tmp_path / "journal"
    held.write_bytes(b"")
    with pytest.raises(OSError, match="Bad file descriptor"), disk.SyncBatch() as batch:  # noqa: PT012 - all of it is one batch
        batch.hold(held)
        batch.replace(tmp_path / "checkpoint", NEW, durable=False)
        for temporary in tmp_path.glob(".checkpoint.*.tmp"):
            for number in os.listdir("/proc/self/fd"):
                with contextlib.suppress(FileNotFoundError):
                    if os.path.realpath(f"/proc/self/fd/{number}") == str(temporary.resolve()):
                        os.close(int(number))
    assert os.listdir(tmp_path) == ["journal"]
    with disk.SyncBatch() as batch:
        batch.hold(held)  # else this would wait for ever


THREAD_AFTER_MAIN = """
import sys, threading, time
from pathlib import Path
from crewlite.system import disk

def work():
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    time.sleep(0.1)  # no thread can be begun by now
    with disk.SyncBatch() as batch:
        for number in range(9):
            batch.replace(Path(sys.argv[1]) / str(number), b"x")

threading.Thread(target=work).start()
"""


def test_many_files_are_synced_also_by_a_thread_that_outlives_the_main_one(tmp_path):
    children.run([sys.executable, "-c", THREAD_AFTER_MAIN, str(tmp_path)], check=True)
    assert sorted(os.listdir(tmp_path)) == [str(number) for number in range(9)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_that_is_forked_while_a_file_is_read_does_not_wait_for_the_reader(tmp_path):
    path, over = tmp_path / "journal", threading.Event()
    with path.open("wb") as file:
        file.truncate(4_000_000)

    def reads():
        while not over.is_set():
            disk.read_complete(path)

    reader = threading.Thread(target=reads)
    reader.start()
    try:
        for _ in range(10):
            time.sleep(0.005)
            if not (child := os.fork()):
                os._exit(0)
            children.until(lambda child=child: os.waitpid(child, os.WNOHANG)[0])
    finally:
        over.set()
        reader.join()
