"""A question is on record, with its event and the checkpoint that names, before anybody hears of it."""

from __future__ import annotations

import os
import sys
import textwrap

import pytest

from crewlite import CheckpointConfig, History, event_bus
from crewlite.errors import AnswerRefused, Suspended
from crewlite.events import HumanFeedbackRequestedEvent
from crewlite.flow import ask, flow
from crewlite.testing import EventRecorder
from tests import children

ADDRESS = "human:much"
ASKS = """
    import os, sys
    from crewlite import CheckpointConfig, event_bus
    from crewlite.errors import Suspended
    from crewlite.events import HumanFeedbackRequestedEvent
    from crewlite.flow import ask, flow
    from crewlite.testing import CrashInjector
    from crewlite.testing.failing import kill

    name, events = sys.argv[1:]

    def life(n):
        @flow(checkpoint=CheckpointConfig(location=f"{n}/{name}", on_events=[events]))
        def work() -> int:
            return ask("How much?", int, name="much")

        if n == 0:
            event_bus.on(HumanFeedbackRequestedEvent, lambda source, event: kill())
        with CrashInjector(n or None):
            try:
                work.kickoff(run_id="r")
            except Suspended:
                return

    for n in range(1000):  # a process each, killed at its nth operation on the disk; the first one by its handler
        os.mkdir(str(n))
        pid = os.fork()
        if not pid:
            life(n)
            os._exit(0)
        if os.waitpid(pid, 0)[1] == 0:
            print(n)
            break
"""


def _asking(on_disk, **fields):
    @flow(checkpoint=on_disk(**fields))
    def work() -> int:
        return ask("How much?", int, name="much")

    return work


def test_a_handler_that_hears_of_a_question_finds_it_on_record(on_disk):
    found = []

    def hear(source, event):
        with History(on_disk().location) as history:
            found.extend((waiting.address, waiting.question) for waiting in history.run("r").waiting)
            with pytest.raises(AnswerRefused):  # checked by the question, as that is known
                history.answer("r", ADDRESS, "no number")

    with event_bus.on(HumanFeedbackRequestedEvent, hear), pytest.raises(Suspended):
        _asking(on_disk).kickoff(run_id="r")
    assert found == [(ADDRESS, "How much?")]


def test_the_checkpoint_of_a_question_holds_the_question(on_disk):
    with EventRecorder() as heard, pytest.raises(Suspended):
        _asking(on_disk, on_events=["human_feedback_requested"]).kickoff(run_id="r")
    (asked,) = heard.of(HumanFeedbackRequestedEvent)
    with History(on_disk().location) as history:
        (checkpoint,) = history.run("r").checkpoints()
        assert checkpoint.trigger == "human_feedback_requested"
        assert checkpoint.seq == asked.seq
        assert [waiting.address for waiting in history.run("r").waiting] == [ADDRESS]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="every life is a forked process")
@pytest.mark.parametrize("events", ["flow_paused", "human_feedback_requested"])
@pytest.mark.parametrize("name", ["store", "store.db"])
def test_a_run_killed_at_any_moment_neither_loses_its_question_nor_asks_it_twice(name, events, tmp_path):
    (tmp_path / "asks.py").write_text(textwrap.dedent(ASKS))
    done = children.run([sys.executable, "asks.py", name, events], capture_output=True, text=True, check=True)
    lives = int(done.stdout)
    assert lives > 5
    for n in range(lives):
        config = CheckpointConfig(location=str(tmp_path / str(n) / name), on_events=[events])
        if n == 0:  # killed by the handler that hears of the question
            with History(config.location) as history:
                assert [waiting.address for waiting in history.run("r").waiting] == [ADDRESS]
        with pytest.raises(Suspended) as suspended:
            _asking(lambda config=config, **fields: config).kickoff(run_id="r")
        assert list(suspended.value.waiting) == [ADDRESS]
        with History(config.location) as history:
            run = history.run("r")
            assert [event.type for event in run.events()].count("human_feedback_requested") == 1, n
            named = [checkpoint.trigger for checkpoint in run.checkpoints()]
            assert named.count("human_feedback_requested") == (events == "human_feedback_requested"), n
        assert _asking(lambda config=config, **fields: config).kickoff(run_id="r", answers={ADDRESS: 7}) == 7
