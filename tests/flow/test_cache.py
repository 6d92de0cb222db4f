"""`@step(cache=...)`: what a step came to is reused by other runs, for as long as nothing it follows from has changed."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from datetime import timedelta

import pytest
from click.testing import CliRunner
from pydantic import SecretStr

import tests.flow.isolated_steps as far
from crewlite import CheckpointConfig, History
from crewlite.cli.main import main
from crewlite.errors import ConfigError, InDoubt
from crewlite.events import StepCompletedEvent, StepReplayedEvent, StepStartedEvent
from crewlite.flow import flow, step
from crewlite.testing import EventRecorder


def kickoff(config, work, *args, **options):
    return flow(name="pipeline", checkpoint=config)(work).kickoff(*args, **options)


def warnings_of(caplog, text):
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


# what a hit is


def test_a_result_is_reused_by_later_runs_which_say_where_it_comes_from(config, ran):
    @step(cache=True, type="fetch")
    def fetch(n):
        ran.append(n)
        return {"n": n, "at": (1, 2.5)}

    @flow(checkpoint=config(on_events=["step_completed"]))
    def pipeline(n):
        return fetch(n)

    with EventRecorder() as heard:
        first, second = (pipeline.kickoff(7, run_id=run_id) for run_id in ("one", "two"))
    assert first == second == {"n": 7, "at": (1, 2.5)}
    assert ran == [7]
    assert [(event.run_id, event.reused_from) for event in heard.of(StepCompletedEvent)] == [
        ("one", None),
        ("two", "one/main@step:fetch"),
    ]
    assert [event.run_id for event in heard.of(StepStartedEvent)] == ["one"]
    location, provider = pipeline.checkpoint.location, pipeline.checkpoint.provider
    with History(location, provider) as history:
        views = {run.run_id: run.steps[0] for run in history.runs()}
        assert [place.trigger for place in history.run("two").checkpoints()] == ["step_completed"]
    assert (views["one"].reused_from, views["two"].reused_from) == (None, "one/main@step:fetch")
    assert (views["two"].value, views["two"].type, views["two"].status) == (first, "fetch", "finished")


def test_a_second_call_in_the_same_run_is_answered_too(config, ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return [n]

    assert kickoff(config(), lambda: [fetch(1), fetch(2), fetch(1)]) == [[1], [2], [1]]
    assert ran == [1, 2]


def test_nothing_is_reused_unless_it_is_asked_for(config, ran):
    @step
    def fetch(n):
        ran.append(n)

    for _ in range(2):
        kickoff(config(), lambda: fetch(1))
    assert ran == [1, 1]


def test_a_resume_answers_from_the_record_whatever_became_of_the_cache(config, ran):
    broken = []

    @step(cache=True)
    def fetch():
        ran.append(1)
        return "found"

    @flow(checkpoint=config())
    def pipeline(n):
        found = fetch()
        if broken:
            raise OSError
        return found

    pipeline.kickoff(1)
    broken.append(True)
    with pytest.raises(OSError):
        pipeline.kickoff(2, run_id="two")
    broken.clear()
    with History(pipeline.checkpoint.location, pipeline.checkpoint.provider) as history:
        history.prune(older_than=timedelta(0))
    with EventRecorder() as heard:
        assert pipeline.kickoff(run_id="two") == "found"
    assert ran == [1]
    assert (len(heard.of(StepReplayedEvent)), heard.of(StepCompletedEvent)) == (1, [])


def test_what_is_reused_is_told_on_the_terminal(on_disk, capsys):
    @step(cache=True)
    def fetch():
        return "found"

    def said(*words):
        return CliRunner().invoke(main, ["checkpoint", "show", *words, "--location", on_disk().location]).output

    for run_id in ("one", "two"):
        flow(name="pipeline", checkpoint=on_disk(), verbose=True)(fetch).kickoff(run_id=run_id)
    assert "step fetch from one/main@step:fetch" in capsys.readouterr().out
    assert "reused" not in said("one")
    assert "reused" in said("two")
    assert "one/main@step:fetch" in said("two", "--step", "step:fetch")
    assert json.loads(said("two", "--json"))["steps"][0]["reused_from"] == "one/main@step:fetch"


# what is asked


def test_arguments_of_other_types_are_other_questions(memory, ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    for _ in range(2):
        found = kickoff(memory(), lambda: [fetch(n) for n in (1, "1", True, 1.0)])
        assert [type(value) for value in found] == [int, str, bool, float]
    assert len(ran) == 4


def test_a_default_that_is_spelt_out_is_the_same_question(memory, ran):
    @step(cache=True)
    def fetch(n, *rest, size=3, kind=len):
        ran.append(n)
        return n

    kickoff(memory(), lambda: [fetch(1), fetch(n=1), fetch(1, size=3)])
    assert ran == [1]
    kickoff(memory(), lambda: [fetch(1, size=4), fetch(1, 2)])
    assert ran == [1, 1, 1]


def test_arguments_that_cannot_be_written_are_asked_anew_each_time_with_one_warning(memory, ran, caplog):
    @step(cache=True)
    def fetch(lock):
        ran.append(1)

    for _ in range(2):
        kickoff(memory(), lambda: fetch(threading.Lock()))
    assert len(ran) == 2
    assert len(warnings_of(caplog, "no result is cached")) == 1


def test_a_result_that_cannot_be_written_is_not_kept(memory, ran):
    @step(cache=True)
    def fetch():
        ran.append(1)
        return threading.Lock()

    for _ in range(2):
        kickoff(memory(), lambda: fetch() and None)
    assert len(ran) == 2


def test_what_is_asked_with_a_secret_is_not_kept_with_one_warning(memory, caplog):
    @step(cache=True)
    def who(token: SecretStr) -> str:
        return token.get_secret_value()

    assert [kickoff(memory(), lambda name: who(SecretStr(name)), name) for name in ("ann", "bob")] == ["ann", "bob"]
    assert len(warnings_of(caplog, "the argument token holds a secret, by which no result can be found")) == 1


def test_a_step_with_a_secret_in_its_closure_is_not_kept_with_a_warning(memory, caplog):
    def made(token):
        @step(cache=True)
        def who() -> str:
            return token.get_secret_value()

        return who

    assert [kickoff(memory(), made(SecretStr(name))) for name in ("ann", "bob")] == ["ann", "bob"]
    assert len(warnings_of(caplog, "'token' in its closure holds a secret, by which no result can be found")) == 2


# when it is not taken


def test_what_is_older_than_asked_for_is_a_miss(memory, ran):
    def fetch(n):
        ran.append(n)
        return len(ran)

    always, hourly, fleeting = (
        step(cache=cache, version=1)(fetch) for cache in (True, timedelta(hours=1), timedelta(microseconds=1))
    )
    assert kickoff(memory(), lambda: [always(1), hourly(1), fleeting(1), hourly(1)]) == [1, 1, 2, 2]


def test_a_fork_runs_its_tail_and_leaves_what_it_comes_to(config, ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return f"{n}, the {len(ran)}th"

    @flow(checkpoint=config(on_events=["step_completed"]))
    def pipeline():
        return [fetch("first"), fetch("second")]

    assert pipeline.kickoff(run_id="one") == ["first, the 1th", "second, the 2th"]
    with EventRecorder() as heard:
        forked = pipeline.fork("one@step:fetch", branch="again")
        assert forked.kickoff() == ["first, the 1th", "second, the 3th"]
    assert [event.reused_from for event in heard.of(StepCompletedEvent)] == [None]
    assert pipeline.kickoff(run_id="two") == ["first, the 1th", "second, the 3th"]


def test_a_step_whose_calls_are_all_to_be_made_has_no_cache():
    with pytest.raises(ConfigError, match="'send' has effect='once'.*and cache=True.*leave one of them out"):

        @step(effect="once", cache=True)
        def send(n):
            return n


def test_a_call_in_doubt_is_not_answered_from_elsewhere_and_its_answer_stays_here(memory, ran):
    """As where the step was declared effect="once" when it was cut, and has a cache since."""
    lives = []

    async def send(n):
        ran.append(n)
        if lives:
            lives.pop().cancel()
            await asyncio.sleep(60)
        return n

    once, cached = step(effect="once", version=1)(send), step(cache=True, version=1)(send)

    @flow(checkpoint=memory())
    async def pipeline(n):
        return await (once if lives else cached)(n)

    async def cut(n, run_id):
        lives.append(asyncio.ensure_future(pipeline.akickoff(n, run_id=run_id)))
        with pytest.raises(asyncio.CancelledError):
            await lives[0]

    asyncio.run(cut(1, "one"))
    assert pipeline.kickoff(1) == 1
    with pytest.raises(InDoubt):
        pipeline.kickoff(run_id="one")
    assert pipeline.kickoff(run_id="one", rerun=["step:send"]) == 1
    asyncio.run(cut(2, "two"))
    assert pipeline.kickoff(run_id="two", answers={"step:send": "sent"}) == "sent"
    assert pipeline.kickoff(2) == 2
    assert ran == [1, 1, 1, 2, 2]


def test_a_run_may_ask_for_steps_to_run_whatever_is_kept(memory, ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    @flow(checkpoint=memory())
    def pipeline():
        return [fetch(1), fetch(2)]

    pipeline.kickoff()
    pipeline.kickoff(rerun=["step:fetch#2"])
    assert ran == [1, 2, 2]


def test_without_a_store_the_step_runs_with_one_warning(ran, caplog):
    @step(cache=True)
    def fetch(n):
        ran.append(n)

    flow(name="pipeline")(lambda: [fetch(1), fetch(1)]).kickoff()
    assert ran == [1, 1]
    assert len(warnings_of(caplog, "no store")) == 1


def test_a_result_that_held_a_secret_is_not_kept(memory, ran):
    @step(cache=True)
    def fetch():
        ran.append(1)
        return {"token": "hunter2-hunter2"}

    for _ in range(2):
        assert kickoff(memory(redact=["hunter2-hunter2"]), fetch) != {"token": "hunter2-hunter2"}
    assert kickoff(memory(), fetch) == {"token": "hunter2-hunter2"}
    assert len(ran) == 3


# every kind of step


def test_every_way_to_ask_for_a_step_reuses(memory, ran):
    @step(cache=True)
    async def gentle(n):
        ran.append(n)
        return -n

    @step(cache=True)
    def blocking(n, m=0):
        ran.append((n, m))
        return n + m

    @flow(checkpoint=memory())
    async def pipeline(life):
        here = [await gentle(1), await blocking.submit(1)]
        mapped = [await future for future in [*blocking.map([2, 3]), *blocking.product([4], [5, 6])]]
        return [*here, *mapped]

    assert pipeline.kickoff(1) == pipeline.kickoff(2) == [-1, 1, 2, 3, 9, 10]
    assert len(ran) == 6


def test_an_isolated_step_is_reused(tmp_path):
    config = CheckpointConfig(location="store")
    first, second = (kickoff(config, lambda: far.kept(1)) for _ in range(2))
    assert first == second != os.getpid()


def test_of_what_is_inside_a_reused_step_nothing_is_asked(config, ran):
    @step
    def inner(n):
        ran.append(n)
        return n

    @step(cache=True)
    def outer(n):
        return [inner(n), inner(n + 1)]

    @flow(checkpoint=config())
    def pipeline():
        return outer(1)

    for run_id in ("one", "two"):
        assert pipeline.kickoff(run_id=run_id) == [1, 2]
    assert pipeline.kickoff(run_id="two") == [1, 2]
    with History(pipeline.checkpoint.location, pipeline.checkpoint.provider) as history:
        assert [view.address for view in history.run("two").steps] == ["step:outer", ""]
    assert ran == [1, 2]
