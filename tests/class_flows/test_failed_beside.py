"""A method that fails beside others is tried again by the next kickoff, however the run has stopped meanwhile."""

from __future__ import annotations

import logging

import pytest

from crewlite import CheckpointConfig
from crewlite.errors import Suspended
from crewlite.flow import Flow, and_, listen, start
from crewlite.state import InMemoryProvider
from tests.cuts import RUN, cut, entries_of

ANSWER = {"method:asks/human#1": True}


@pytest.fixture
def service():
    """What the method `fetch` calls: `down` says whether that fails, `calls` counts."""

    class Service:
        down, calls = True, 0

    return Service()


@pytest.fixture
def asking(service):
    """A flow in which one method asks a person and another one fails, side by side."""

    class Asking(Flow):
        checkpoint = CheckpointConfig(location=f"{id(service)}", provider=InMemoryProvider())

        @start()
        def asks(self):
            return self.ask("Ok?", bool)

        @start()
        def fetch(self):
            service.calls += 1
            if service.down:
                raise ConnectionError("down")
            return "data"

        @listen(and_(asks, fetch))
        def end(self):
            return "end"

    return Asking()


def test_a_method_that_failed_while_another_waits_is_tried_again_with_the_answer(asking, service, caplog):
    caplog.set_level(logging.WARNING)
    with pytest.raises(Suspended):
        asking.kickoff(run_id=RUN)
    service.down = False
    assert asking.kickoff(run_id=RUN, answers=ANSWER) == "end"
    assert service.calls == 2
    assert "tried again" not in caplog.text


def test_a_method_that_failed_while_another_waits_is_tried_again_before_the_answer(asking, service):
    for expected in (1, 2):
        with pytest.raises(Suspended):
            asking.kickoff(run_id=RUN)
        assert service.calls == expected
    service.down = False
    with pytest.raises(Suspended):
        asking.kickoff(run_id=RUN)
    assert asking.kickoff(run_id=RUN, answers=ANSWER) == "end"
    assert service.calls == 3  # its result is recorded, and it is not called for the answer


def test_rerun_may_name_a_method_that_has_failed_although_it_is_tried_again_anyway(asking, service):
    with pytest.raises(Suspended):
        asking.kickoff(run_id=RUN)
    with pytest.raises(ConnectionError):
        asking.kickoff(run_id=RUN, answers=ANSWER)
    service.down = False
    assert asking.kickoff(run_id=RUN, rerun=["method:fetch"]) == "end"


def test_a_preview_shows_that_a_method_which_failed_while_another_waits_is_tried_again(asking):
    with pytest.raises(Suspended):
        asking.kickoff(run_id=RUN)
    foreseen = asking.preview(run_id=RUN)
    assert {one.address: one.verdict for one in foreseen.steps}["method:fetch"] == "runs"


def test_a_method_that_failed_while_another_was_cut_is_tried_again(service):
    class Slow(Flow):
        @start()
        async def fetch(self):
            if service.down:
                raise ConnectionError("down")
            return "data"

        @start()
        async def work(self):
            return "done"

        @listen(and_(fetch, work))
        def end(self):
            return "end"

    whole = CheckpointConfig(location="whole", provider=InMemoryProvider())
    with pytest.raises(ConnectionError):
        Slow(checkpoint=whole).kickoff(run_id=RUN)
    entries = entries_of(whole)
    service.down = False
    for at in range(1, len(entries) + 1):
        assert Slow(checkpoint=cut(entries, at)).kickoff(run_id=RUN) == "end", at
