"""Storage that fails: what can be found is found before anything is paid, and what comes later is told."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
from datetime import timedelta

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, event_bus, tool
from crewlite.errors import CrewliteError, StoreError, StoreUnusable, Suspended
from crewlite.events import CheckpointFailedEvent, TaskCompletedEvent
from crewlite.flow import ask, flow, step
from crewlite.system import disk
from crewlite.testing import ScriptedLLM
from tests import children

FREE = r"nothing can be saved \(.*so nothing was started: free space on its disk, or use another location"
READ_ONLY = "[Rr]ead-?only|unable to open"


@contextlib.contextmanager
def full_disk(when=lambda operation: True):
    """From the first operation on for which `when` holds, nothing more can be written."""
    refusing = []

    def hear(operation):
        refusing.extend([True] if refusing or when(operation) else [])
        if refusing and operation.verb in ("mkdir", "write", "fsync", "rename", "sql", "commit"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), operation.path)

    with disk.watched(hear):
        yield refusing


def database_full(operation):
    """The error with which SQLite tells a full disk."""
    if operation.verb == "commit":
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error


@contextlib.contextmanager
def mounted(target, *arguments):
    """Something mounted at `target`; skips where that is not allowed."""
    target.mkdir(exist_ok=True)
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a file system")
    done = children.run(["mount", *map(str, arguments), target], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield target
    finally:
        children.run(["umount", target], check=True)


def crew_at(location, replies=("a", "b", "c"), *, tools=(), **fields):
    llm = ScriptedLLM(list(replies) if isinstance(replies, tuple) else replies)
    agent = Agent(role="Worker", goal="work", llm=llm, tools=tools)
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent, context=[]) for n in range(3)]
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=str(location), **fields)), llm


def refused(location, problem, **fields):
    """Nothing is started there, and nothing is paid."""
    crew, llm = crew_at(location, **fields)
    with pytest.raises(StoreUnusable, match=problem) as caught:
        crew.kickoff(run_id="r")
    assert llm.calls == []
    return str(caught.value)


names = pytest.mark.parametrize("name", ["store", "store.db"])


@names
def test_a_disk_that_is_full_at_kickoff_is_found_before_anything_is_paid(name, tmp_path):
    with full_disk():
        assert "No space left" in refused(tmp_path / name, FREE)
    crew, llm = crew_at(tmp_path / name)
    assert crew.kickoff(run_id="r").durability == "sync"
    assert len(llm.calls) == 3


def test_a_full_disk_that_only_sqlite_tells_is_told_as_one(tmp_path):
    crew_at(tmp_path / "store.db")[0].kickoff(run_id="first")
    with disk.watched(database_full):
        assert "database or disk is full" in refused(tmp_path / "store.db", FREE)
        with History(tmp_path / "store.db") as history:
            for change in (lambda: history.label("first", "good"), lambda: history.fork("first", branch="b")):
                with pytest.raises(StoreError, match="Nothing that was saved before is lost: free space on its disk"):
                    change()


@names
def test_a_disk_that_fills_in_mid_run_degrades_the_result_and_the_rest_is_done_again(name, tmp_path):
    crew, llm = crew_at(tmp_path / name)
    with full_disk(lambda operation: len(llm.calls) == 2) as refusing:
        result = crew.kickoff(run_id="r")
    assert refusing
    assert (result.raw, result.durability) == ("c", "degraded")
    crew, llm = crew_at(tmp_path / name, ("b", "c"))
    assert crew.kickoff(run_id="r").durability == "sync"
    assert len(llm.calls) == 2, "the first was saved"


@pytest.mark.parametrize("kept_back", ["the first task", "the result"])
def test_the_log_says_at_the_end_that_what_could_not_be_saved_at_first_is_saved(kept_back, tmp_path, caplog):
    refused = []

    def fills_once(operation):
        part = b'"address":""' if kept_back == "the result" else b'"address":"task:'
        if not refused and operation.path.endswith("journal/r/main.jsonl") and part in operation.data:
            refused.append(operation)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), operation.path)

    with disk.watched(fills_once):
        assert crew_at(tmp_path / "store")[0].kickoff(run_id="r").durability == "degraded"
    [at_first, at_last] = [record.getMessage() for record in caplog.records]
    assert "the run goes on, but not everything is saved: [Errno 28]" in at_first
    assert at_last == "r/main: what had failed is saved now"


def fill(directory):
    with contextlib.suppress(OSError), open(directory / "filler", "ab", buffering=0) as filler:
        while True:
            filler.write(b"x" * 512)


@names
def test_a_really_full_disk(name, tmp_path):
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=512k", "none") as small:
        crew, _ = crew_at(small / name, ("short", "x" * 2_000_000, "the end"))
        result = crew.kickoff(run_id="r")
        assert (result.raw, result.durability) == ("the end", "degraded")
        with History(small / name) as history:
            assert [step.address for step in history.run("r").steps] == ["task:t0/llm#1", "task:t0"]
        fill(small)
        refused(small / f"new-{name}", FREE)
        (small / "filler").unlink()
        crew, llm = crew_at(small / name, ("b", "c"))
        assert (crew.kickoff(run_id="r").durability, len(llm.calls)) == ("sync", 2)


@names
def test_a_run_on_a_full_disk_can_be_read_or_the_reason_is_told(name, tmp_path):
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=512k", "none") as small:
        crew_at(small / name)[0].kickoff(run_id="r")
        fill(small)
        if name == "store":
            assert History(small / name).run("r").status == "finished"
        else:  # SQLite makes a file beside a database, also to read it
            with pytest.raises(StoreUnusable, match="the disk is full.* Nothing was changed: free space on the disk"):
                History(small / name).run("r")
        refused(small / f"new-{name}", FREE)
        (small / "filler").unlink()
        with History(small / name) as history:
            assert history.run("r").status == "finished"


@names
def test_a_read_only_file_system_can_be_read_and_not_begun_on(name, tmp_path):
    crew_at(tmp_path / "there" / name)[0].kickoff(run_id="r")
    with mounted(tmp_path / "locked", "--bind", "-o", "ro", tmp_path / "there") as locked:
        children.run(["mount", "-o", "remount,bind,ro", locked], check=False)  # where --bind ignores `ro`
        with History(locked / name) as history:
            assert [run.status for run in history.runs()] == ["finished"]
            assert len(history.run("r").checkpoints()) == len(history.checkpoints()) == 3
            with pytest.raises((CrewliteError, OSError), match=READ_ONLY):
                history.fork("r", branch="new")
            assert [run.branch for run in history.runs()] == ["main"]
        crew, llm = crew_at(locked / name)
        assert crew.kickoff(run_id="r").raw == "c", "a stored result needs no writing"
        with pytest.raises(StoreUnusable, match=READ_ONLY):
            crew.kickoff(run_id="new")
        assert llm.calls == []
        refused(locked / f"new-{name}", READ_ONLY)


@names
def test_permissions_are_found_before_anything_is_paid(name, forbidden):
    with forbidden() as directory:
        crew_at(directory / "mine" / name)[0].kickoff(run_id="r")
        (directory / "closed").mkdir(mode=0o500)
        assert str(directory / "closed") in refused(directory / "closed" / name, "denied|unable")
        for path in (directory / "mine").rglob("*"):
            path.chmod(0o500 if path.is_dir() else 0o400)
        (directory / "mine").chmod(0o500)
        with History(directory / "mine" / name) as history:
            assert history.run("r").status == "finished"
        with pytest.raises(StoreUnusable, match="denied|readonly|unable"):
            crew_at(directory / "mine" / name)[0].kickoff(run_id="new")


def broken_locations(tmp_path):
    (tmp_path / "a" / "journal").parent.mkdir()
    (tmp_path / "a" / "journal").write_text("a file where a directory should be")
    (tmp_path / "b" / "journal").mkdir(parents=True)
    (tmp_path / "b" / "journal" / "r").write_text("a file where a directory should be")
    (tmp_path / "c" / "journal" / "r" / "main.jsonl").mkdir(parents=True)
    (tmp_path / "d.db").mkdir()
    (tmp_path / "file").write_text("a file")
    return [tmp_path / name for name in ("a", "b", "c", "d.db", "file/below.db", "file/below")]


@pytest.mark.parametrize("which", range(6))
def test_a_file_where_a_directory_should_be_and_the_reverse(which, tmp_path):
    location = broken_locations(tmp_path)[which]
    crew, llm = crew_at(location)
    with pytest.raises(StoreError) as caught:
        crew.kickoff(run_id="r")
    assert llm.calls == []
    assert str(tmp_path) in str(caught.value)


def gone(location):
    shutil.rmtree(location) if location.is_dir() else location.unlink()


def moved(location):
    location.rename(location.with_name("elsewhere"))


def replaced(location):
    gone(location)
    if location.suffix:
        with contextlib.closing(sqlite3.connect(location)) as db:
            db.execute("CREATE TABLE other (a)")
    else:
        location.mkdir()


@names
@pytest.mark.parametrize("how", [gone, moved, replaced])
@pytest.mark.parametrize("on_save_error", ["warn", "raise"])
def test_a_location_that_vanishes_in_mid_run_is_told(name, how, on_save_error, tmp_path):
    failed = []
    event_bus.on(CheckpointFailedEvent, lambda source, event: failed.append(event.error))

    @event_bus.on(TaskCompletedEvent)
    def vanish(source, event):
        if event.task_name == "t0":
            how(tmp_path / name)

    crew, llm = crew_at(tmp_path / name, on_save_error=on_save_error)
    if on_save_error == "raise":
        with pytest.raises(StoreError, match="gone"):
            crew.kickoff(run_id="r")
        assert len(llm.calls) == 2
        return
    result = crew.kickoff(run_id="r")
    assert (result.raw, result.durability) == ("c", "degraded")
    assert all("gone" in error and str(tmp_path / name) in error for error in failed)
    if how is not replaced and name.endswith(".db"):
        assert not (tmp_path / name).exists(), "no second store is begun in silence"


@pytest.mark.parametrize("provider", ["json", "sqlite"])
def test_a_location_that_comes_back_is_written_to_again(provider, tmp_path):
    """A network drive that was away for a moment costs nothing but the mark of it."""
    location = tmp_path / ("store" if provider == "json" else "store.db")

    @event_bus.on(TaskCompletedEvent)
    def away(source, event):
        for path in tmp_path.glob("*"):
            if event.task_name == "t0" and path.name.startswith("store"):
                path.rename(path.with_name(f"away-{path.name}"))
            elif event.task_name == "t1" and path.name.startswith("away-"):
                path.rename(path.with_name(path.name.removeprefix("away-")))

    crew, _ = crew_at(location)
    result = crew.kickoff(run_id="r")
    assert (result.raw, result.durability) == ("c", "degraded")
    with History(location) as history:
        assert history.run("r").status == "finished"
        assert len(history.run("r").checkpoints()) == 3


@names
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_what_may_happen_only_once_is_not_done_while_its_intent_cannot_be_saved(name, durability, tmp_path):
    sent = []

    @tool(effect="once")
    def send(word: str) -> str:
        """Send it."""
        sent.append(word)
        return "sent"

    script = (ToolCall("send", {"word": "now"}), "a", "b", "c")
    crew, llm = crew_at(tmp_path / name, script, tools=[send], durability=durability)
    with (
        full_disk(lambda operation: len(llm.calls) == 1),
        pytest.raises(StoreError, match="is not made while nothing can be saved.*No space left"),
    ):
        crew.kickoff(run_id="r")
    assert sent == []
    crew, llm = crew_at(tmp_path / name, script, tools=[send], durability=durability)
    assert crew.kickoff(run_id="r").raw == "c"
    assert sent == ["now"]


@names
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_run_does_not_wait_for_people_while_its_question_cannot_be_saved(name, durability, tmp_path):
    """The next kickoff might ask something else, for which the answer would then be taken."""
    setting = CheckpointConfig(location=str(tmp_path / name), durability=durability)
    amounts = [927, 849]

    @step
    def amount():
        is_full.append(True)
        return amounts.pop(0)

    @flow(checkpoint=setting)
    def pay():
        found = amount()
        return f"{found}: {ask(f'Pay {found} euros?')}"

    is_full = []
    with (
        full_disk(lambda operation: is_full),
        pytest.raises(StoreError, match=r"cannot wait for people.*human#1.*No space left"),
    ):
        pay.kickoff(run_id="r")
    with pytest.raises(Suspended) as waits:
        pay.kickoff(run_id="r")
    ((address, question),) = waits.value.waiting.items()
    with History(setting.location) as history:
        history.answer("r", address, "yes")
    result = pay.kickoff(run_id="r")
    assert str(result.split(":")[0]) in question
    assert result.endswith(": yes")


@names
def test_a_call_that_a_full_disk_forbade_is_made_once_there_is_space(name, tmp_path):
    """A new file needs more space than the end of a journal, so the checkpoint of the task before is refused first."""
    sent = []

    @tool(effect="once")
    def send(word: str) -> str:
        """Send it."""
        sent.append(word)
        return "sent"

    def reply(messages):
        asked = "Do 1" in messages[1]["content"] and messages[-1]["role"] != "tool"
        return ToolCall("send", {"word": "now"}) if asked else "done"

    def fill(operation):
        if llm.calls and (operation.path.endswith(".tmp") or operation.verb == "sql"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), operation.path)

    crew, llm = crew_at(tmp_path / name, reply, tools=[send])
    with disk.watched(fill), pytest.raises(StoreError, match="is not made while nothing can be saved.*No space left"):
        crew.kickoff(run_id="r")
    assert sent == []
    with History(tmp_path / name) as history:
        assert history.doctor() == []
    crew, _ = crew_at(tmp_path / name, reply, tools=[send])
    assert crew.kickoff(run_id="r").durability == "sync"
    assert sent == ["now"]


def test_a_journal_is_saved_also_where_its_length_cannot_be_noted(tmp_path, caplog):
    def fill(operation):
        if "/heads/" in operation.path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), operation.path)

    with disk.watched(fill):
        assert crew_at(tmp_path / "store")[0].kickoff(run_id="r").durability == "sync"
    assert "an older copy of the journal is not noticed" in caplog.text
    with History(tmp_path / "store") as history:
        assert (history.run("r").status, len(history.checkpoints())) == ("finished", 3)


@pytest.mark.parametrize("verb", ["delete", "prune"])
def test_a_run_is_deleted_though_not_all_of_its_files_can_be_removed(tmp_path, caplog, verb):
    crew_at(tmp_path / "store")[0].kickoff(run_id="r")

    def hear(operation):
        if operation.verb == "unlink" and "journal/~" in operation.path.replace(os.sep, "/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), operation.path)

    with disk.watched(hear), History(tmp_path / "store") as history:
        done = history.delete("r") if verb == "delete" else history.prune(older_than=timedelta(0))
        assert done.runs == ("r",)
        assert history.runs() == []
    assert "'r' is deleted, but not all of its files" in caplog.text
