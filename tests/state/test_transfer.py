"""A run moves as one file: what is imported is the run itself, or nothing at all."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, tool
from crewlite.errors import JournalCorrupt, RefError, RunExists, SchemaTooNew, StoreError
from crewlite.state import InMemoryProvider, JsonProvider, SqliteProvider
from crewlite.state.format.entry import SCHEMA, seal
from crewlite.state.journal.upkeep import compact_branch
from crewlite.testing import CrashInjector, ScriptedLLM
from tests import soak
from tests.parts import PROVIDERS, Stop


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"saw {where} ✒ \ud800"


def crew_at(location, replies, provider=None, count=3, **fields):
    agent = Agent(role="Pilot", goal="pilot", llm=ScriptedLLM(replies), tools=[look])
    tasks = [
        Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=agent, context=[]) for n in range(count)
    ]
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=str(location), provider=provider, **fields))


def made(location, provider=None):
    """A location with a run that stopped in its third task, and a fork of it, at an old place, that went on."""
    looks = [ToolCall("look", {"where": "here"}), ToolCall("look", {"where": "there"})]
    crew = crew_at(location, [*looks, "a", *looks, "b", looks[0], Stop()], provider)
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    with History(location, provider) as history:
        history.fork("r@task:t0", branch="other/way")
        history.fork("r/other/way", branch="late")
    with pytest.raises(Stop):
        crew_at(location, ["B", Stop()], provider).kickoff(from_checkpoint="r/other/way")
    return location


@pytest.fixture(params=["memory", "json", "sqlite"])
def kept(request, tmp_path):
    """`made`, as (location, provider)."""
    provider = PROVIDERS[request.param]()
    return made(str(tmp_path / f"first{'.db' if request.param == 'sqlite' else ''}"), provider), provider


@pytest.fixture
def exported(tmp_path):
    made(tmp_path / "first")
    with History(tmp_path / "first") as history:
        history.export("r", tmp_path / "run.json")
    return tmp_path / "run.json"


def views(history):
    """All that a reader can ask of the runs at a location."""
    return {
        (run.run_id, run.branch): (
            run.steps,
            run.attempts,
            run.events(),
            run.usage,
            run.inputs,
            run.status,
            run.digest,
            [
                (checkpoint.id, checkpoint.parent_id, checkpoint.tasks, checkpoint.branch)
                for checkpoint in run.checkpoints()
            ],
        )
        for run in history.runs()
    }


def listed(history):
    return history.checkpoints(), [run.branch for run in history.runs()]


def test_a_run_goes_from_provider_to_provider_and_stays_the_same(kept, tmp_path):
    digests, seen, files = set(), [], set()
    stations = [kept, (tmp_path / "json", None), (tmp_path / "runs.db", None), (tmp_path / "back", InMemoryProvider())]
    for number, (location, provider) in enumerate(stations):
        with History(location, provider, make=True) as history:
            if number:
                assert history.import_run(tmp_path / "moved.json").digest in digests
            digests.add(history.export("r", tmp_path / "moved.json"))
            files.add((tmp_path / "moved.json").read_bytes())
            seen.append((views(history), listed(history)))
    assert len(digests) == len(files) == 1
    assert len(seen[0][0]) == 3
    assert all(view == seen[0] for view in seen)


def test_an_exported_file_is_json_of_one_line_an_entry(kept, tmp_path):
    with History(*kept) as history:
        digest = history.export("r", tmp_path / "new" / "run.json")
        text = (tmp_path / "new" / "run.json").read_text("utf-8")
        said = json.loads(text)
        assert (said["crewlite"], said["schema"], said["run_id"], said["digest"]) == ("run", 1, "r", digest)
        assert [branch["branch"] for branch in said["branches"]] == ["main", "other/way", "late"]
        entries = [entry for branch in said["branches"] for entry in branch["entries"]]
        lines = [line for line in text.split("\n") if line.startswith('{"sum":"')]
        assert [json.loads(line.rstrip(",")) for line in lines] == entries
        assert history.run("r/other/way").digest == history.run("r").digest == digest


def test_the_digest_moves_with_any_branch_and_a_run_that_went_on_is_another(exported, tmp_path):
    with History(tmp_path / "first") as history:
        before = history.run("r").digest
        history.fork("r@task:t0", branch="third")
        between = history.run("r").digest
        with pytest.raises(RunExists):
            history.import_run(exported)
    crew_at(tmp_path / "first", ["c"]).kickoff(run_id="r")
    with History(tmp_path / "first") as history:
        assert len({before, between, history.run("r").digest}) == 3


@pytest.mark.parametrize("name", ["store", "store.db"])
def test_an_imported_unfinished_run_goes_on_where_the_original_was(name, exported, tmp_path):
    with History(tmp_path / name, make=True) as history:
        assert history.import_run(exported).status == "failed"
        checkpoints = [checkpoint for run in history.runs() for checkpoint in run.checkpoints()]
        assert {history.run(checkpoint.ref).run_id for checkpoint in checkpoints} == {"r"}
    crew = crew_at(tmp_path / name, ["c"])
    result = crew.kickoff(run_id="r")
    assert [output.raw for output in result.tasks_output] == ["a", "b", "c"]
    assert crew.kickoff(run_id="r") == result
    assert crew_at(tmp_path / name, ["C"]).kickoff(from_checkpoint="r/other/way").raw == "C"
    with History(tmp_path / name) as history:
        fork = history.fork("r@task:t1", branch="again")
        assert [step.address for step in fork.steps if step.kind == "task"] == ["task:t0", "task:t1"]


def test_a_compacted_run_moves_as_it_is_and_is_the_same_run(exported, tmp_path):
    store = JsonProvider().open(str(tmp_path / "first"))
    assert compact_branch(store, "r", "main") > 0
    compacted = store.read("r", "main")
    with History(tmp_path / "first") as history:
        digest = history.import_run(exported).digest
        assert store.read("r", "main") == compacted
        assert history.export("r", exported) == digest
        before = views(history)
    with History(tmp_path / "runs.db", make=True) as history:
        assert history.import_run(exported).digest == digest
        assert views(history) == before
        other = SqliteProvider().open(str(tmp_path / "runs.db"))
        assert other.read("r", "main") == compacted
        other.close()


@pytest.mark.parametrize("name", ["store", "store.db"])
def test_importing_what_is_there_changes_nothing_and_brings_back_lost_checkpoint_files(name, tmp_path):
    location = made(tmp_path / name)
    with History(location) as history:
        history.export("r", tmp_path / "run.json")
        before = views(history), listed(history)
        files = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
        for path in tmp_path.glob("store/*_*.json"):
            path.unlink()
        assert history.import_run(tmp_path / "run.json").run_id == "r"
        assert (views(history), listed(history)) == before
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == files


@pytest.mark.parametrize("name", ["store", "store.db"])
def test_another_run_of_that_name_is_left_as_it_is(name, exported, tmp_path):
    crew_at(tmp_path / name, ["x", "y", "z"]).kickoff(run_id="r")
    with History(tmp_path / name) as history:
        before = views(history)
        with pytest.raises(RunExists, match="delete") as raised:
            history.import_run(tmp_path / "run.json")
        assert views(history) == before
        history.delete("r")
        assert history.import_run(tmp_path / "run.json").digest == raised.value.wanted


# A file that is not as it was written is refused, and nothing is made.


def refused(path, tmp_path, error=JournalCorrupt):
    with History(tmp_path / "new", make=True) as history, pytest.raises(error) as raised:
        history.import_run(path)
    assert not (tmp_path / "new").exists()
    return str(raised.value)


def test_any_changed_entry_is_found_and_named(exported, tmp_path):
    lines = exported.read_bytes().split(b"\n")
    branch, number = b"", 0
    for at, line in enumerate(lines):
        if line.startswith(b'{"branch"'):
            branch, number = json.loads(line + b"]}")["branch"], 0
        if not line.startswith(b'{"sum"'):
            continue
        number += 1
        changed = re.sub(rb'"at":"20', b'"at":"19', line, count=1)
        exported.write_bytes(b"\n".join([*lines[:at], changed, *lines[at + 1 :]]))
        assert f"{exported}, branch {branch}, entry {number}:" in refused(exported, tmp_path)


def test_any_lost_entry_is_found(exported, tmp_path):
    said = json.loads(exported.read_bytes())
    for branch, whole in enumerate(said["branches"]):
        for number in range(len(whole["entries"])):
            kept = [*whole["entries"][:number], *whole["entries"][number + 1 :]]
            branches = [*said["branches"][:branch], {**whole, "entries": kept}, *said["branches"][branch + 1 :]]
            exported.write_text(json.dumps({**said, "branches": branches}))
            refused(exported, tmp_path)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda said: {**said, "schema": 2}, "upgrade"),
        (lambda said: {**said, "schema": "1"}, "not an exported run"),
        (lambda said: {**said, "crewlite": "walk"}, "not an exported run"),
        (lambda said: [said], "not an exported run"),
        (lambda said: {**said, "run_id": "../up"}, "not a usable name"),
        (lambda said: {**said, "run_id": "s"}, "entry 1: this commit belongs to"),
        (lambda said: {key: said[key] for key in said if key != "run_id"}, "'run_id' is missing"),
        (lambda said: {**said, "digest": "0" * 32}, "digest does not fit"),
        (lambda said: {**said, "branches": {}}, "no branches"),
        (lambda said: {**said, "branches": []}, "no branches"),
        (lambda said: {**said, "branches": said["branches"][:2]}, "digest does not fit"),
        (lambda said: {**said, "branches": said["branches"][1:]}, "forked from"),
        (lambda said: {**said, "branches": said["branches"] * 2}, "twice"),
        (lambda said: {**said, "branches": [7]}, "'branch' is missing"),
        (lambda said: {**said, "branches": [{"branch": "main"}]}, "no entries"),
        (lambda said: {**said, "branches": [{"branch": "main", "entries": [7]}]}, "entry 1: this is not an entry"),
        (lambda said: {**said, "branches": [{"branch": "main", "entries": [{"sum": "0" * 32}]}]}, "entry 1"),
    ],
)
def test_a_file_of_another_shape_is_refused(change, problem, exported, tmp_path):
    exported.write_text(json.dumps(change(json.loads(exported.read_bytes()))))
    error = SchemaTooNew if problem == "upgrade" else JournalCorrupt
    assert problem in refused(exported, tmp_path, error)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe\xfd", b"[" * 100_000, b"null"])
def test_a_file_that_is_no_export_at_all_is_refused(data, tmp_path):
    (tmp_path / "run.json").write_bytes(data)
    told = refused(tmp_path / "run.json", tmp_path)
    assert told.endswith("Nothing was imported: export the run again.") and "doctor" not in told


def test_an_error_about_the_file_names_the_file_and_not_the_location(tmp_path):
    (tmp_path / "a file").write_text("")
    with History(made(tmp_path / "runs.db")) as history:
        with pytest.raises(StoreError, match="the run was not exported") as caught:
            history.export("r", tmp_path / "a file" / "r.json")
        assert caught.value.location == str(tmp_path / "a file" / "r.json")
        with pytest.raises(StoreError, match="cannot be read now") as caught:
            history.import_run(tmp_path)
        assert caught.value.location == str(tmp_path)


def test_an_entry_of_a_newer_crewlite_is_refused(exported, tmp_path):
    said = json.loads(exported.read_bytes())
    entry = seal({"schema": SCHEMA + 1, "seq": 1}, after="")
    said["branches"] = [{"branch": "main", "entries": [json.loads(entry.line)]}]
    exported.write_text(json.dumps(said))
    assert "upgrade" in refused(exported, tmp_path, SchemaTooNew)


def test_a_reader_may_lay_the_file_out_anew(exported, tmp_path):
    exported.write_text(json.dumps(json.loads(exported.read_bytes()), indent=1))
    with History(tmp_path / "new", make=True) as history:
        assert history.import_run(exported).digest == json.loads(exported.read_bytes())["digest"]


def test_a_missing_file_or_run_is_a_ref_that_names_nothing(exported, tmp_path):
    with History(tmp_path / "first") as history:
        with pytest.raises(RefError, match="does not exist"):
            history.import_run(tmp_path / "nothing.json")
        with pytest.raises(RefError):
            history.export("nobody", tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


def test_a_damaged_run_is_not_exported(tmp_path):
    made(tmp_path / "first")
    journal = tmp_path / "first" / "journal" / "r" / "main.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    with History(tmp_path / "first") as history, pytest.raises(JournalCorrupt, match="line 3"):
        history.export("r", tmp_path / "run.json")
    assert not (tmp_path / "run.json").exists()


# Failed or killed anywhere, a run is there as a whole or not at all.


def operations(name, exported, tmp_path):
    with CrashInjector() as clean, History(tmp_path / f"clean-{name}", make=True) as history:
        history.import_run(exported)
    return clean.count


@pytest.mark.parametrize("name", ["store", "store.db"])
@soak.every(3)
def test_an_import_that_fails_leaves_a_whole_run_or_none_and_can_be_tried_again(name, every, exported, tmp_path):
    digest = json.loads(exported.read_bytes())["digest"]
    for at in range(1, operations(name, exported, tmp_path) + 1, every):
        with History(tmp_path / f"{at}-{name}", make=True) as history:
            with CrashInjector(at=at, error=OSError(28, "disk full")), contextlib.suppress(OSError):
                history.import_run(exported)
                assert len(history.runs()) == 3
            assert {run.digest for run in history.runs()} <= {digest}
            assert len(history.runs()) in (0, 3)
            assert history.import_run(exported).digest == digest
            assert history.doctor() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a child")
@pytest.mark.parametrize("name", ["store", "store.db"])
@soak.every(3)
def test_a_killed_import_leaves_a_whole_run_or_none_and_can_be_tried_again(name, every, exported, tmp_path):
    digest = json.loads(exported.read_bytes())["digest"]
    for at in range(1, operations(name, exported, tmp_path) + 1, every):
        child = os.fork()
        if not child:
            with CrashInjector(at=at, torn=True), History(tmp_path / f"{at}-{name}", make=True) as history:
                history.import_run(exported)
            os._exit(0)
        assert os.waitpid(child, 0)[1]
        with History(tmp_path / f"{at}-{name}", make=True) as history:
            assert len(history.runs()) in (0, 3)
            assert {run.digest for run in history.runs()} <= {digest}
            assert history.import_run(exported).digest == digest
            assert [finding.what for finding in history.doctor(repair=True) if finding.what != "stray_file"] == []


def test_an_export_that_fails_leaves_the_file_as_it_was(tmp_path):
    made(tmp_path / "first")
    path = tmp_path / "run.json"
    with History(tmp_path / "first") as history:
        with CrashInjector() as clean:
            history.export("r", path)
        before = path.read_bytes()
        history.fork("r", branch="third")
        for at in range(1, clean.count):  # the last one only syncs the directory
            with CrashInjector(at=at, error=OSError(28, "disk full")), pytest.raises(OSError, match="disk full"):
                history.export("r", path)
            assert path.read_bytes() == before
        history.export("r", path)
    assert path.read_bytes() != before
    assert [found.name for found in Path(tmp_path).iterdir() if found.name.endswith(".tmp")] == []
