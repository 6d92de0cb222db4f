"""Damage by a power cut or a bad disk: torn writes are left out, and the rest is told, and never read over."""

from __future__ import annotations

import itertools
import sqlite3

import pytest

from crewlite.errors import BranchConflictError, JournalCorrupt, StoreUnusable
from crewlite.state import JsonProvider, SqliteProvider
from crewlite.testing.bench import Branch


def test_a_torn_tail_is_left_out_wherever_the_write_was_cut(kept):
    store, branch, journal, _ = kept
    whole = journal.read_bytes()
    last = len(branch.entries[-1].line) + 1
    for cut in range(1, last + 1):
        journal.write_bytes(whole[:-cut])
        assert JsonProvider().open(store.location).read("run-1", "main") == branch.entries[:-1]


def test_blocks_that_a_power_cut_left_unwritten_are_left_out(kept):
    store, branch, journal, _ = kept
    whole = journal.read_bytes()
    for end in (b"\0" * 4096, branch.entries[-1].line[:40] + b"\0" * 40, b"\0\n"):
        journal.write_bytes(whole + end)
        assert JsonProvider().open(store.location).read("run-1", "main") == branch.entries


def test_the_next_append_cuts_a_torn_tail_off(kept):
    store, branch, journal, _ = kept
    journal.write_bytes(journal.read_bytes() + b'{"sum":"0123')
    other = JsonProvider().open(store.location)
    other.append([branch.add(2).commit()])
    assert JsonProvider().open(store.location).read("run-1", "main") == branch.entries
    assert journal.read_bytes() == b"".join(entry.line + b"\n" for entry in branch.entries)


def test_a_flipped_byte_is_corruption_and_names_the_newest_sound_place(kept):
    store, branch, journal, checkpoints = kept
    whole = journal.read_bytes()
    starts = list(itertools.accumulate((len(entry.line) + 1 for entry in branch.entries), initial=0))
    sound = [None, None, store.ref(checkpoints[0]), store.ref(checkpoints[0]), store.ref(checkpoints[1])]
    for line, (start, stop) in enumerate(itertools.pairwise(starts)):
        for at in range(start, min(stop, len(whole) - 1), 7):
            journal.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(JournalCorrupt, match=f"line {line + 1}") as raised:
                JsonProvider().open(store.location).read("run-1", "main")
            assert raised.value.sound == sound[line]


def test_damage_in_the_middle_is_not_taken_for_a_torn_tail(kept):
    store, _, journal, _ = kept
    whole = journal.read_bytes()
    at = whole.index(b"\n") + 60
    journal.write_bytes(whole[:at] + b"#" + whole[at + 1 :] + b'{"sum":"torn')
    with pytest.raises(JournalCorrupt, match="line 2"):
        JsonProvider().open(store.location).read("run-1", "main")


def test_a_torn_tail_hides_no_commits_of_another_process(kept):
    store, branch, journal, _ = kept
    mine = branch.twin().add()
    JsonProvider().open(store.location).append([branch.add(2).commit()])
    journal.write_bytes(journal.read_bytes() + b'{"sum":"torn')
    with pytest.raises(BranchConflictError):
        store.append([mine.commit()])
    assert JsonProvider().open(store.location).read("run-1", "main") == branch.entries


def test_a_branch_is_not_made_over_one_with_a_torn_tail(kept):
    store, branch, journal, _ = kept
    journal.write_bytes(journal.read_bytes() + b'{"sum":"torn')
    with pytest.raises(BranchConflictError):
        JsonProvider().open(store.location).append([Branch().add().commit()])
    assert JsonProvider().open(store.location).read("run-1", "main") == branch.entries


def test_sqlite_tells_a_changed_entry_and_a_missing_one(tmp_path):
    path = tmp_path / "runs.db"
    store, branch = SqliteProvider().open(str(path)), Branch().add()
    checkpoint = branch.checkpoint()
    store.append([branch.add(2).commit()])
    ref = store.ref(checkpoint)
    store.close()
    for damage in (
        "UPDATE entry SET body = replace(body, 'reply 4', 'reply 5') WHERE seq = 4",
        "DELETE FROM entry WHERE seq = 3",
    ):
        db = sqlite3.connect(path)
        db.execute(damage)
        db.commit()
        db.close()
        store = SqliteProvider().open(str(path))
        with pytest.raises(JournalCorrupt, match=r"commit 4") as raised:
            store.read("run-1", "main")
        assert raised.value.sound == ref
        store.close()


def test_a_database_with_overwritten_pages_is_corruption_not_a_traceback_of_sqlite(tmp_path):
    path = tmp_path / "runs.db"
    store, branch = SqliteProvider().open(str(path)), Branch().add(200)
    store.append([branch.commit()])
    store.close()
    whole = path.read_bytes()
    for page in range(1, len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096 :])
        try:
            store = SqliteProvider().open(str(path))
        except (JournalCorrupt, StoreUnusable):
            continue
        try:
            assert store.read("run-1", "main") in ([], branch.entries)
            store.branches()
            store.places()
        except JournalCorrupt:
            pass
        finally:
            store.close()
