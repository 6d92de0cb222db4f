"""The file of a checkpoint is a view of its journal, which decides: it is checked, and made again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from crewlite.errors import CheckpointMismatch, RefError
from crewlite.state import JsonProvider
from crewlite.state.reading.locate import locate
from crewlite.system import disk
from crewlite.testing.bench import Branch


def test_a_checkpoint_file_names_its_place(kept):
    store, _, _, checkpoints = kept
    for checkpoint in checkpoints:
        assert locate(store.ref(checkpoint), ".", None, None).checkpoint == checkpoint["id"]
        document = json.loads(Path(store.ref(checkpoint)).read_text())
        assert (document["run_id"], document["branch"], document["seq"]) == ("run-1", "main", checkpoint["seq"])
        assert list(document)[:6] == ["schema", "id", "run_id", "branch", "parent_id", "seq"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq", 1),
        ("label", "mine"),
        ("trigger", "other"),
        ("parent_id", "x"),
        ("about", {}),
        ("extra", 1),
        ("id", "0" * 32),
    ],
)
def test_a_checkpoint_file_changed_by_hand_is_refused(field, value, kept):
    store, _, _, checkpoints = kept
    path = store.ref(checkpoints[0])
    document = json.loads(Path(path).read_text())
    Path(path).write_text(json.dumps({**document, field: value}))
    with pytest.raises(CheckpointMismatch) as raised:
        locate(path, ".", None, None)
    assert raised.value.sound == store.ref(checkpoints[1])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"run_id": 1}', '{"run_id": "run-1", "branch": "main"}', "null"]
)
def test_a_checkpoint_file_that_is_none_any_more_is_refused(text, kept):
    store, _, _, checkpoints = kept
    path = store.ref(checkpoints[0])
    Path(path).write_text(text)
    with pytest.raises(CheckpointMismatch):
        locate(path, ".", None, None)


def test_a_checkpoint_file_that_points_beyond_its_journal_is_refused(kept):
    store, branch, journal, checkpoints = kept
    journal.write_bytes(b"".join(entry.line + b"\n" for entry in branch.entries[:3]))
    assert locate(store.ref(checkpoints[0]), ".", None, None).checkpoint == checkpoints[0]["id"]
    with pytest.raises(CheckpointMismatch, match="does not name this checkpoint") as raised:
        locate(store.ref(checkpoints[1]), ".", None, None)
    assert raised.value.sound == store.ref(checkpoints[0])
    journal.unlink()
    with pytest.raises(CheckpointMismatch, match="its journal is missing"):
        locate(store.ref(checkpoints[0]), ".", None, None)


def test_a_checkpoint_file_that_does_not_exist_is_a_ref_that_names_nothing(kept):
    store, _, _, checkpoints = kept
    with pytest.raises(RefError, match="does not exist") as raised:
        locate(store.ref(checkpoints[0]).replace(".json", "0.json"), ".", None, None)
    assert store.ref(checkpoints[1]) in raised.value.candidates


def test_missing_checkpoint_files_are_made_again_at_the_next_append(kept):
    store, branch, _, checkpoints = kept
    before = {store.ref(checkpoint): Path(store.ref(checkpoint)).read_bytes() for checkpoint in checkpoints}
    for path in before:
        os.unlink(path)
    other = JsonProvider().open(store.location)
    other.append([branch.add().commit()])
    assert {path: Path(path).read_bytes() for path in before} == before


def test_foreign_json_files_in_the_location_disturb_nobody(kept, tmp_path):
    store, _, _, checkpoints = kept
    for text in ("{}", "[1, 2]", '{"id": 7}', "not json"):
        (tmp_path / "store" / "my_notes.json").write_text(text)
        assert [checkpoint.id for checkpoint in JsonProvider().open(store.location).places(checkpoints[0]["id"])] == [
            checkpoints[0]["id"]
        ]
        assert len(JsonProvider().open(store.location).places(checkpoints[0]["id"][:4])) == 2


def test_a_failed_checkpoint_file_is_made_by_trying_again(tmp_path):
    store, branch = JsonProvider().open(str(tmp_path / "store")), Branch().add()
    store.append([branch.commit()])
    checkpoint = branch.checkpoint()
    commit = branch.commit()

    def fail(operation):
        if operation.verb == "rename":
            raise OSError(28, "No space left on device")

    with disk.watched(fail), pytest.raises(OSError, match="No space left"):
        store.append([commit])
    store.append([commit])
    assert store.read("run-1", "main") == branch.entries
    assert [found.id for found in store.places(checkpoint["id"])] == [checkpoint["id"]]
