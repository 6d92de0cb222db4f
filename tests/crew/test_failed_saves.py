"""Saves that fail are told: before anything is paid, and in the result of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from crewlite import CheckpointConfig, event_bus
from crewlite.errors import StoreError, StoreUnusable
from crewlite.events import CheckpointFailedEvent
from crewlite.flow import flow, step
from crewlite.state import SqliteProvider
from crewlite.testing import CrashInjector, ScriptedLLM
from tests.crew.listed import checkpoints


def test_a_store_that_cannot_work_is_told_before_anything_is_paid(make_crew, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "directory").mkdir()
    cases = [
        (CheckpointConfig(location=tmp_path / "file"), "wants a directory"),
        (CheckpointConfig(location=tmp_path / "directory", provider=SqliteProvider()), "is a directory"),
        (CheckpointConfig(location=tmp_path / "file" / "below"), "nothing can be saved"),
        (CheckpointConfig(location=tmp_path / "file.db"), "not a SQLite database"),
    ]
    (tmp_path / "file.db").write_text("this is no database at all")
    for config, problem in cases:
        llm = ScriptedLLM(["a", "b", "c"])
        with pytest.raises(StoreUnusable, match=problem):
            make_crew(llm, checkpoint=config).kickoff()
        with pytest.raises(StoreUnusable, match=problem):
            make_crew(llm, checkpoint=config).kickoff(run_id="r")
        assert llm.calls == []


def test_a_failed_save_degrades_the_result_or_stops_the_run(make_crew, tmp_path):
    with CrashInjector() as clean:
        make_crew(["a", "b", "c"], checkpoint=CheckpointConfig(location=tmp_path / "clean")).kickoff()
    at = next(n for n, operation in enumerate(clean.log, 1) if operation.data and b"task:t1/llm#1" in operation.data)
    failed = []
    event_bus.on(CheckpointFailedEvent, lambda source, event: failed.append(event.error))
    config = CheckpointConfig(location=tmp_path / "warn")
    with CrashInjector(at, error=OSError(28, "No space left on device")):
        result = make_crew(["a", "b", "c"], checkpoint=config).kickoff(run_id="r")
    assert result.durability == "degraded"
    assert failed and "No space left" in failed[0]
    assert len(checkpoints(config)) == 3, "what failed was saved with the next commit, in its order"
    strict = CheckpointConfig(location=tmp_path / "raise", on_save_error="raise")
    with CrashInjector(at, error=OSError(28, "No space left on device")), pytest.raises(StoreError, match="No space"):
        make_crew(["a", "b", "c"], checkpoint=strict).kickoff(run_id="r")
    llm = ScriptedLLM(["c"])
    assert make_crew(llm, checkpoint=strict).kickoff(run_id="r").raw == "c", "what was paid was saved late"


def test_a_value_that_cannot_be_recorded_does_not_hide_a_disk_that_fails_after_it(tmp_path, caplog):
    @step
    def live():
        return object()

    @step
    def plain():
        return "plain"

    def both(location):
        def run():
            live()
            return plain()

        return flow(name="both", checkpoint=CheckpointConfig(location=location))(run)

    with CrashInjector() as clean:
        both(tmp_path / "clean").kickoff()
    at = next(n for n, operation in enumerate(clean.log, 1) if operation.data and b"step:plain" in operation.data)
    caplog.clear()
    with CrashInjector(at, error=OSError(28, "No space left on device")):
        assert both(tmp_path / "full").kickoff() == "plain"
    assert caplog.text.count("is an object, which cannot be recorded") == 1
    assert "not everything is saved: [Errno 28] No space left on device" in caplog.text


@pytest.mark.parametrize("name", ["store", "store.db"])
def test_a_result_is_never_plain_success_when_only_its_own_save_failed(make_crew, tmp_path, name):
    with CrashInjector() as clean:
        make_crew(["a"], count=1, checkpoint=CheckpointConfig(location=tmp_path / f"clean-{name}")).kickoff()
    last = max(n for n, op in enumerate(clean.log, 1) if op.verb in ("write", "commit"))
    with CrashInjector(last, error=OSError(28, "No space left on device")):
        result = make_crew(["a"], count=1, checkpoint=CheckpointConfig(location=tmp_path / name)).kickoff()
    assert (result.raw, result.durability) == ("a", "degraded")


def test_a_newest_sound_place_is_named_when_a_journal_is_damaged(make_crew):
    make_crew(["a", "b", "c"], checkpoint=True).kickoff(run_id="r")
    journal = Path(".checkpoints/journal/r/main.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"address":"task:t1","kind":"task"' in line)
    journal.write_bytes(b"".join([*lines[:at], lines[at].replace(b'"raw"', b'"rAw"'), *lines[at + 1 :]]))
    with pytest.raises(ValueError, match=r"checksum.*newest intact checkpoint is .*\.json"):
        make_crew([], checkpoint=True).kickoff(run_id="r")
