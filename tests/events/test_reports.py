"""report() tells watchers how far a run has come, from wherever its code is, and leaves nothing in the record."""

from __future__ import annotations

import logging

import pytest

import crewlite
from crewlite import Agent, Crew, Flow, History, Task, ToolCall, event_bus, report, start, step, tool
from crewlite.console.underway import Underway
from crewlite.errors import ConfigError
from crewlite.events import ProgressReportedEvent
from crewlite.flow import flow
from crewlite.testing import ScriptedLLM


@step
def blocking(pages):
    for page in range(1, pages + 1):
        report(f"page {page}", done=page, total=pages)
    return pages


@step
async def waiting():
    report("on the loop")


@tool
def search(text: str) -> str:
    """Search."""
    report("searching", done=0.5)
    return "found"


def crew_of(**fields):
    agent = Agent(
        role="Worker", goal="work", llm=ScriptedLLM([ToolCall("search", {"text": "x"}), "done"]), tools=[search]
    )
    return Crew(tasks=[Task(name="t", description="Do", expected_output="x", agent=agent)], **fields)


def heard(work):
    found = []
    with event_bus.on(ProgressReportedEvent, lambda source, event: found.append(event)):
        work()
    return found


def test_code_reports_from_flows_steps_methods_and_tools_in_order(on_disk):
    @flow(checkpoint=on_disk(on_events=["*"]))
    def scan():
        report("begins")
        blocking(2)
        return crew_of().kickoff().raw

    found = heard(lambda: scan.kickoff(run_id="r"))
    assert [(event.address, event.text) for event in found] == [
        ("", "begins"),
        ("step:blocking", "page 1 (50%)"),
        ("step:blocking", "page 2 (100%)"),
        ("crew:crew/task:t/tool:search", "searching"),
    ]
    assert {(event.run_id, event.branch, event.seq) for event in found} == {("r", "main", None)}
    with History(on_disk().location) as history:
        run = history.run("r")
        assert not [event for event in run.events() if event.type == "progress_reported"]
        assert not [one for one in run.checkpoints() if one.trigger == "progress_reported"]
    assert heard(lambda: scan.kickoff(run_id="r")) == []  # the stored result


def test_a_resume_hears_of_code_that_runs_again_and_not_of_recorded_steps_and_a_preview_of_none(memory):
    broken = True

    @flow(checkpoint=memory())
    async def scan():
        report("begins")
        await blocking_in_coroutine()
        if broken:
            raise ValueError("once")

    @step
    async def blocking_in_coroutine():
        report("once")

    def fails():
        with pytest.raises(ValueError, match="once"):
            scan.kickoff(run_id="r")

    assert [event.message for event in heard(fails)] == ["begins", "once"]
    assert heard(lambda: scan.preview(run_id="r")) == []
    broken = False
    assert [event.message for event in heard(lambda: scan.kickoff(run_id="r"))] == ["begins"]


def test_a_stream_yields_reports_of_methods_and_secrets_are_masked(memory):
    class Scan(Flow):
        @start()
        def read(self):
            report("key hunter2-hunter2", done=1_500, total=3_000)
            return "read"

    found = [
        event for event in Scan(checkpoint=memory(redact=["hunter2-hunter2"])).stream() if "progress" in event.type
    ]
    assert [(event.address, event.total) for event in found] == [("method:read", 3000)]
    assert "hunter2" not in found[0].text


def test_outside_a_run_it_is_logged_and_mistakes_are_named(caplog):
    with caplog.at_level(logging.INFO, "crewlite.progress"):
        assert heard(lambda: report(done=3, total=1_200)) == []
    assert caplog.messages == ["3 of 1,200 (0%)"]
    assert crewlite.report is report
    for wrong, said in (
        (lambda: report(), "nothing to report; wanted a message, or done="),
        (lambda: report(3), "message is 3; wanted a text"),
        (lambda: report("x", done="3"), "done is '3'; wanted a number"),
        (lambda: report("x", total=-1), "total is -1; wanted a number, 0 or more"),
        (lambda: report("x", done=float("nan")), "done is nan"),
    ):
        with pytest.raises(ConfigError, match=said):
            wrong()


def test_the_live_view_shows_a_line_a_second_for_each_step_and_the_last_one(capsys):
    @flow(verbose=True)
    async def scan():
        blocking.func(500)
        await waiting()

    scan.kickoff()
    lines = [
        line.split(": ", 1)[1] for line in capsys.readouterr().out.splitlines() if "page " in line or "loop" in line
    ]
    assert lines[0] == "page 1 (0%)"
    assert lines[-2:] == ["page 500 (100%)", "on the loop"]
    assert len(lines) < 10
    view = Underway(clock=lambda: 1.0)
    event = ProgressReportedEvent(address="step:x", message="x")
    assert [view.is_due(event) for _ in range(3)] == [True, False, False]
