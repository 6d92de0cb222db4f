"""What people coming from Kitaru's page on checkpoints expect of steps, heading by heading, as far as nothing else tells.

Their checkpoint is our `@step`, their replay our kickoff of the same run or our fork. The rest of the page is told in
tests/flow, overrides on replay in tests/crew/test_fork_edits.py.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import BaseModel

import tests.flow.isolated_steps as far
from crewlite import History
from crewlite.errors import NotCodable, Suspended
from crewlite.events import CheckpointFailedEvent
from crewlite.flow import ask, flow, step
from crewlite.testing import EventRecorder


class Boom(Exception):
    """What goes wrong here."""


@pytest.fixture
def ran():
    return []


def view(config, address, run_id="one"):
    with History(config.location) as history:
        (found,) = [view for view in history.run(run_id).steps if view.address == address]
    return found


# Checkpoints are replay boundaries; resuming after failure


def test_a_failed_run_goes_on_at_the_first_step_that_is_not_done(on_disk, ran):
    broken = [True]

    @step
    def research(topic):
        ran.append("research")
        return f"notes on {topic}"

    @step(retries=1)
    def draft(notes):
        ran.append("draft")
        if broken:
            raise Boom("no ink")
        return notes.upper()

    @step
    def publish(text):
        ran.append("publish")
        return f"<p>{text}</p>"

    @flow(checkpoint=on_disk())
    def article(topic):
        return publish(draft(research(topic)))

    with pytest.raises(Boom):
        article.kickoff("tides", run_id="one")
    assert ran == ["research", "draft", "draft"]
    broken.clear()
    assert article.kickoff(run_id="one") == "<p>NOTES ON TIDES</p>"
    assert ran == ["research", "draft", "draft", "draft", "publish"]
    assert [a.number for a in view(on_disk(), "step:draft").attempts] == [1, 2], "one step, with all its tries"


# Defining a checkpoint; composing checkpoints in a flow


def test_one_step_serves_many_flows_and_a_flow_may_call_it_often(config):
    @step
    def clean(text):
        return text.strip()

    @flow(checkpoint=config())
    def letters(texts):
        return ",".join([clean(text) for text in texts])  # plain values, in the order of the calls

    @flow(checkpoint=config())
    def size(text):
        return len(clean(text))

    assert letters.kickoff([" b", "a "]) == "b,a"
    assert size.kickoff(" abc ") == 3


# Concurrent execution


@pytest.mark.parametrize("way", ["submit", "map", "product"])
def test_what_is_begun_together_runs_together(way):
    together = threading.Barrier(4, timeout=10)

    @step
    def meet(one, other="x"):
        together.wait()
        return f"{one}{other}"

    @flow
    def all_four():
        if way == "submit":
            return [future.result() for future in [meet.submit(letter) for letter in "abcd"]]
        return (meet.map("abcd") if way == "map" else meet.product("ab", ["x", "y"])).result()

    wanted = ["ax", "ay", "bx", "by"] if way == "product" else ["ax", "bx", "cx", "dx"]
    assert all_four.kickoff() == wanted


def test_a_fan_out_that_nothing_gathers_leaves_the_flow_its_own_result(config, ran):
    @step
    def notify(name):
        ran.append(name)

    @flow(checkpoint=config())
    def tell(names):
        notify.map(names)
        return f"{len(names)} told"

    assert tell.kickoff(["ann", "ben"]) == "2 told"
    assert sorted(ran) == ["ann", "ben"]


# Decorator options; isolated runtime


def test_where_a_step_runs_and_when_are_two_things():
    @step(runtime="inline")
    def here():
        return os.getpid()

    @flow
    def places():
        begun = [here.submit(), far.process.submit()]
        return [here(), far.process(), *[future.result() for future in begun]]

    called, called_far, begun, begun_far = places.kickoff()
    assert called == begun == os.getpid()
    assert len({called, called_far, begun_far}) == 3


# Error handling and retries


def test_a_failure_for_good_stops_the_flow_and_the_run_tells_every_try(on_disk, ran):
    @step(retries=2)
    def fetch(page):
        ran.append(page)
        raise ConnectionError(f"try {len(ran)}")

    @step
    def after():
        ran.append("after")

    @flow(checkpoint=on_disk())
    def pages():
        fetch("a")
        after()

    with pytest.raises(ConnectionError, match="try 3"):
        pages.kickoff(run_id="one")
    assert ran == ["a", "a", "a"]
    node, root = view(on_disk(), "step:fetch"), view(on_disk(), "")
    told = [(a.number, a.error_type, a.message, a.final) for a in node.attempts]
    assert told == [(n, "ConnectionError", f"try {n}", n == 3) for n in (1, 2, 3)]
    assert all("in fetch" in a.traceback and f"ConnectionError: {a.message}" in a.traceback for a in node.attempts)
    assert (node.status, root.status) == ("failed", "failed")
    assert [(a.error_type, a.cause) for a in root.attempts] == [("ConnectionError", "step:fetch")]
    with History(on_disk().location) as history:
        assert history.run("one").status == "failed"


# Return values


@dataclass
class Size:
    width: int
    unit: str = "cm"


class Report(BaseModel):
    title: str
    made: datetime
    sizes: tuple[Size, ...] = ()


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
VALUES = [
    ["text", 1, 2.5, True, None, [1, [2]], {"a": {"b": []}}],
    [(1, "two"), {3, 4}, frozenset("ab"), {5: "five", (6, 7): "pair"}, b"\x00\xff", Decimal("0.10")],
    [NOON, date(2026, 3, 1), timedelta(hours=1), Path("a/b")],
    [Size(3), [Size(4, "m")]],
    [Report(title="tides", made=NOON, sizes=(Size(1), Size(2)))],
]


@pytest.mark.parametrize("values", VALUES, ids=["builtins", "more builtins", "times", "dataclass", "pydantic"])
def test_what_a_step_returns_comes_back_as_it_was_in_another_life(on_disk, values):
    broken = [True]

    @step
    def give(n) -> Size | Report:
        return values[n]

    @flow(checkpoint=on_disk())
    def pipeline():
        found = give.map(range(len(values))).result()
        if broken:
            raise Boom
        assert [type(value) for value in found] == [type(value) for value in values]
        return found == values

    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    broken.clear()
    assert pipeline.kickoff(run_id="one") is True


class Socket:
    """Something that no record can hold, though a pickle could."""

    def __reduce__(self):
        raise AssertionError("pickled")


def test_what_cannot_be_recorded_names_its_path_and_is_never_pickled(on_disk, ran, caplog):
    @step
    def connect(n):
        ran.append(n)
        return {"lines": [1, Socket()]}

    @flow(checkpoint=on_disk())
    def pipeline():
        return len(connect(1)["lines"])

    with EventRecorder() as heard, caplog.at_level(logging.WARNING):
        assert pipeline.kickoff(run_id="one") == 2
    (failed,) = heard.of(CheckpointFailedEvent)
    assert "lines[1]" in failed.error
    assert "step:connect cannot be recorded and will run again" in caplog.text
    assert caplog.text.count("lines[1]") == 1
    strict = flow(name="strict", checkpoint=on_disk(on_save_error="raise"))(pipeline.func)
    with pytest.raises(NotCodable, match=r"lines\[1\]"):
        strict.kickoff()


# Rules to know: steps work outside a flow and inside steps, and may ask there


def test_mapped_steps_may_ask_and_what_they_did_before_is_not_done_again(on_disk, ran):
    @step
    def look_up(name):
        ran.append(name)
        return f"{name}@example.org"

    @step
    def invite(name):
        address = look_up(name)
        return address if ask(f"Write to {address}?", bool, name="ok") else None

    @flow(checkpoint=on_disk())
    def party(names):
        return invite.map(names).result()

    with pytest.raises(Suspended) as waits:
        party.kickoff(["ann", "ben"], run_id="one")
    assert waits.value.waiting == {
        "step:invite/human:ok": "Write to ann@example.org?",
        "step:invite#2/human:ok": "Write to ben@example.org?",
    }
    with History(on_disk().location) as history:
        history.answer("one", "step:invite/human:ok", True)
    assert party.kickoff(run_id="one", answers={"step:invite#2/human:ok": False}) == ["ann@example.org", None]
    assert sorted(ran) == ["ann", "ben"]
