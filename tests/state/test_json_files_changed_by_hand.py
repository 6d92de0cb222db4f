"""Files of a JSON location that were deleted, copied or renamed by hand, or named by an earlier crewlite."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from crewlite import CheckpointConfig, History
from crewlite.errors import JournalCorrupt
from crewlite.flow import flow
from crewlite.state import JsonProvider
from crewlite.state.verbs.doctor import doctor
from crewlite.state.verbs.score import RecordedScore, record_score, recorded_score
from crewlite.testing.bench import Branch
from crewlite.texts.secrets import Secrets
from tests.parts import Stop
from tests.state.doctoring import crew_at, files


def test_an_older_copy_of_a_journal_is_not_taken_for_the_run(json_location):
    crew_at(json_location).kickoff(run_id="r")
    journal = Path(json_location, "journal", "r", "main.jsonl")
    whole = journal.read_bytes().splitlines(keepends=True)
    named = [at for at, line in enumerate(whole) if b'"place":{' in line]
    journal.write_bytes(b"".join(whole[: named[0] + 1]))
    with pytest.raises(JournalCorrupt, match=r"ends at commit \d+, though checkpoint \w+ was made at \d+"):
        crew_at(json_location).kickoff(run_id="r")
    with History(json_location) as history:
        assert "short_journal" in [finding.what for finding in history.doctor(repair=True)]
        assert history.doctor() == []
    assert crew_at(json_location).kickoff(run_id="r").raw == "done"


def test_a_run_begun_anew_under_the_id_of_one_that_is_gone_is_warned_of_and_can_be_resumed(json_location, caplog):
    crew_at(json_location).kickoff(run_id="r")
    assert not caplog.messages
    shutil.rmtree(Path(json_location, "journal", "r"))  # by hand: its checkpoint files stay
    with pytest.raises(Stop):
        crew_at(json_location, ["done", Stop()]).kickoff(run_id="r")
    (warning,) = [said for said in caplog.messages if "begins anew" in said]
    assert "notes a checkpoint in it" in warning and "journal/r" in warning.replace(os.sep, "/")
    assert crew_at(json_location).kickoff(run_id="r").raw == "done"


@pytest.mark.parametrize("begun", ["a", "other"])
def test_runs_of_which_only_checkpoint_files_are_left_are_warned_of(json_location, caplog, begun):
    for run_id in "ab":
        crew_at(json_location).kickoff(run_id=run_id)
    for deleted in ("journal", "heads"):
        shutil.rmtree(Path(json_location, deleted))  # by hand
    assert not caplog.messages
    crew_at(json_location).kickoff(run_id=begun)
    crew_at(json_location).kickoff(run_id="new")
    (warning,) = caplog.messages
    assert "checkpoints of 'a', 'b' are left: kicked off, they begin anew, and pay again" in warning


def test_an_older_export_takes_the_place_of_a_run_that_was_deleted_by_hand(json_location, tmp_path):
    def early(messages):
        if not (tmp_path / "early.json").exists():
            with History(json_location) as history:
                history.export("r", tmp_path / "early.json")
        return "done"

    crew_at(json_location, early).kickoff(run_id="r")
    shutil.rmtree(Path(json_location, "journal", "r"))
    with History(json_location) as history:
        assert history.import_run(tmp_path / "early.json").status == "unfinished"


def test_the_doctor_looks_at_a_checkpoint_file_whose_run_has_no_name_that_can_be(json_location):
    crew_at(json_location).kickoff(run_id="r")
    file = files(Path(json_location))[0]
    odd = file.with_name(file.name.replace(file.stem[-4:], "0000"))
    odd.write_text(file.read_text().replace('"run_id": "r"', '"run_id": "\\ud800"'))
    with History(json_location) as history:
        assert [finding.what for finding in history.doctor(repair=True)] == ["stale_index"]
        assert history.doctor() == []


def test_a_score_whose_file_is_missing_is_listed_again_and_that_is_no_sign_of_life(json_location):
    @flow(checkpoint=CheckpointConfig(location=json_location))
    def scored() -> int:
        return 1

    scored.kickoff(run_id="r")
    with contextlib.closing(JsonProvider().open(json_location)) as store:
        record_score(store, "r", "main", "judge", RecordedScore(0.5), Secrets.of())
        (found,) = [one for one in store.places() if one.trigger == "scored"]
        (file,) = Path(json_location).glob(f"*{found.id}.json")
        file.unlink()
        touched = store.touched("r", "main")
    with contextlib.closing(JsonProvider().open(json_location)) as store:
        assert recorded_score(store, "r", "main", "judge") == RecordedScore(0.5)
        assert file.exists()
        assert store.touched("r", "main") == touched


def test_a_location_of_an_earlier_crewlite_keeps_its_names(json_store, json_location):
    branch = Branch("Berlin").add()
    branch.checkpoint()
    json_store.append([branch.commit()])
    root = Path(json_location, "journal")
    assert [path.name for path in root.iterdir() if path.name[0] not in ".~"] == ["+berlin"]
    (root / "+berlin").rename(root / "Berlin")
    shutil.rmtree(Path(json_location, "heads"))
    for path in files(Path(json_location)):
        path.unlink()
    doctor(json_store, repair=True)
    assert [info.run_id for info in json_store.branches()] == ["Berlin"]
    assert json_store.read("Berlin", "main") == branch.entries
    json_store.append([branch.add().commit()])
    json_store.append([branch.forked("Side", 2).add().commit()])
    assert {path.name for path in root.glob("*/*")} == {"main.jsonl", "+side.jsonl"} | {
        path.name for path in root.glob("~locks/*")
    }
    assert doctor(json_store) == []
    with History(json_location) as history:
        history.delete("Berlin")
    assert json_store.branches() == []
