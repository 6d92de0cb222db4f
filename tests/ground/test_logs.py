"""What is logged holds texts of models, tools and files: none of them forges a line of the log or controls a terminal."""

from __future__ import annotations

import importlib
import logging

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.events import TaskStartedEvent
from crewlite.events.event_bus import event_bus
from crewlite.testing import ScriptedLLM
from crewlite.texts.logs import logger
from tests.ground.modules import modules

FORGED = "ok\n2026-01-01 ERROR paid\x1b]0;gone\x07"
SECRET = "Bluebird-17"


@pytest.mark.parametrize("name", [name for name in modules() if not name.endswith("__main__")])
def test_each_logger_of_the_package_escapes(name, caplog):
    module = importlib.import_module(name)
    for found in [value for value in vars(module).values() if isinstance(value, logging.Logger)]:
        caplog.clear()
        found.warning("said %s", FORGED)
        assert [one.getMessage() for one in caplog.records] == [r"said ok\n2026-01-01 ERROR paid\x1b]0;gone\x07"]


def test_the_spaces_of_all_languages_stay_in_what_is_logged(caplog):
    text = "Marée haute\N{NO-BREAK SPACE}: 東京\N{IDEOGRAPHIC SPACE}十時"
    logger("crewlite.run").warning(text)
    assert caplog.messages == [text]


def test_the_traceback_of_a_failing_handler_keeps_its_lines_and_nothing_that_controls_a_terminal(caplog):
    def fail(source, event):
        raise ValueError(f"{FORGED} {SECRET}" if masked else FORGED)

    agent = Agent(role="a", goal="b", llm=ScriptedLLM(["c", "c"]))
    crew = Crew(
        tasks=[Task(description="d", expected_output="e", agent=agent)], checkpoint=CheckpointConfig(redact=[SECRET])
    )
    for masked in (False, True):
        caplog.clear()
        with event_bus.on(TaskStartedEvent, fail):
            crew.kickoff()
        shown = [logging.Formatter().format(record) for record in caplog.records if record.name == "crewlite.events"]
        assert "Traceback (most recent call last):\n" in shown[0]
        assert "\x1b" not in shown[0]
        assert SECRET not in shown[0]
