"""The doctor of databases: explains what is broken, saves what is sound, deletes nothing."""

from __future__ import annotations

import pytest

from crewlite import History
from crewlite.errors import JournalCorrupt
from crewlite.state.format.entry import SCHEMA
from tests.state.doctoring import codes, crew_at, doctored, going_on, healed, query, run_at


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
