"""A hook of the user's own is called around every attempt, and may open a context around it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextvars import ContextVar

import pytest

from crewlite import Agent, AttemptInfo, Crew, History, Task, around
from crewlite.errors import ConfigError, LLMUnavailable
from crewlite.flow import flow, step
from crewlite.testing import ScriptedLLM

span: ContextVar[str] = ContextVar("span", default="none")


@pytest.fixture
def seen():
    return []


def tracer(seen):
    @contextlib.contextmanager
    def traced(attempt: AttemptInfo):
        token = span.set(f"{attempt.address}!{attempt.attempt}")
        try:
            yield
        except BaseException as error:
            seen.append((attempt.kind, attempt.name, attempt.attempt, type(error).__name__))
            raise
        else:
            seen.append((attempt.kind, attempt.name, attempt.attempt, "ok"))
        finally:
            span.reset(token)

    return traced


def test_the_model_call_sees_what_the_hook_has_set_and_tries_are_numbered(seen):
    inside = []

    def reply(messages):
        inside.append(span.get())
        return LLMUnavailable("503", retry_after=0) if len(inside) == 1 else "hello"

    agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply))
    crew = Crew(tasks=[Task(name="t", description="d", expected_output="e", agent=agent)])
    with around(tracer(seen)):
        crew.kickoff()
    assert inside == ["task:t/llm#1!1", "task:t/llm#1!2"]
    assert seen == [
        ("llm", "llm", 1, "LLMUnavailable"),
        ("llm", "llm", 2, "ok"),
        ("task", "t", 1, "ok"),
        ("crew", "crew", 1, "ok"),
    ]
    assert span.get() == "none"


def test_sync_and_async_steps_see_it_with_and_without_a_timeout(seen):
    inside = []

    @step
    def plain():
        inside.append(span.get())

    @step(timeout=5)
    def timed():
        inside.append(span.get())

    @step
    async def awaited():
        await asyncio.sleep(0)
        inside.append(span.get())

    @flow
    async def pipeline():
        await plain.submit()
        await timed.submit()
        await awaited()

    with around(tracer(seen)):
        pipeline.kickoff()
    assert inside == ["step:plain!1", "step:timed!1", "step:awaited!1"]
    assert [name for _, name, _, _ in seen] == ["plain", "timed", "awaited", "pipeline"]


def test_a_resume_numbers_on_and_a_recorded_step_has_no_attempt(seen):
    @step
    def done():
        return 1

    @step(retries=1)
    def shaky():
        if len([one for one in seen if one[1] == "shaky"]) < 3:
            raise ValueError("no")

    @flow(checkpoint=True)
    def pipeline():
        done()
        shaky()

    with around(tracer(seen)):
        with pytest.raises(ValueError, match="no"):
            pipeline.kickoff(run_id="r")
        pipeline.kickoff(run_id="r")
    assert [(number, how) for _, name, number, how in seen if name == "shaky"] == [
        (1, "ValueError"),
        (2, "ValueError"),
        (3, "ValueError"),
        (4, "ok"),
    ]
    assert [name for _, name, _, _ in seen].count("done") == 1


def test_a_hook_reaches_the_runs_of_its_block_only_and_the_outer_one_comes_first(seen):
    @step
    def work():
        return None

    piece = flow(name="piece", checkpoint=True)(lambda: work())

    def told(name):
        return lambda attempt: seen.append((name, attempt.run_id, attempt.name))

    with around(told("outer")):
        with around(told("inner")):
            piece.kickoff(run_id="a")
        piece.kickoff(run_id="b")
    piece.kickoff(run_id="c")
    assert seen == [
        ("outer", "a", "piece"),
        ("inner", "a", "piece"),
        ("outer", "a", "work"),
        ("inner", "a", "work"),
        ("outer", "b", "piece"),
        ("outer", "b", "work"),
    ]


def test_runs_side_by_side_keep_their_hooks_apart(seen):
    @step
    async def work():
        await asyncio.sleep(0.01)

    @flow(checkpoint=True)
    async def piece(n: int):
        await work()

    async def one(n):
        with around(lambda attempt: seen.append((n, attempt.run_id, attempt.name))):
            await piece.akickoff(n, run_id=str(n))

    async def both():
        await asyncio.gather(one(1), one(2))

    asyncio.run(both())
    assert {(n, run_id) for n, run_id, _ in seen} == {(1, "1"), (2, "2")}
    assert len(seen) == 4


@pytest.mark.parametrize("opens", [False, True], ids=["called", "entered"])
def test_an_error_before_the_attempt_fails_it_and_is_retried_like_any_other(opens, seen):
    ran = []

    def hook(attempt):
        if attempt.kind != "step":
            return None
        if opens:
            return refusing(attempt)
        return refuse(attempt)

    def refuse(attempt):
        seen.append(attempt.attempt)
        if attempt.attempt == 1:
            raise KeyError("no span")

    @contextlib.contextmanager
    def refusing(attempt):
        refuse(attempt)
        yield

    @step(retries=1)
    def work():
        ran.append(1)

    with around(hook):
        flow(name="f", checkpoint=True)(lambda: work()).kickoff(run_id="r")
    assert (seen, ran) == ([1, 2], [1])
    with History(".checkpoints") as history:
        (failed,) = history.run("r").attempts
    assert failed.error_type == "KeyError"
    assert "Raised by the hook hook before attempt 1 of step:work" in failed.traceback


def test_contexts_that_were_open_are_closed_when_a_later_hook_fails(seen):
    def broken(attempt):
        raise KeyError("x")

    with around(tracer(seen)), around(broken), pytest.raises(KeyError):
        flow(name="f")(lambda: None).kickoff()
    assert seen == [("flow", "f", 1, "KeyError")]
    assert span.get() == "none"


@pytest.mark.parametrize("fails", [False, True])
def test_an_error_after_the_attempt_is_logged_and_the_attempt_stays_what_it_was(fails, caplog):
    @contextlib.contextmanager
    def breaks(attempt):
        try:
            yield
        finally:
            raise RuntimeError("collector gone")

    def work():
        if fails:
            raise ValueError("mine")
        return 7

    with around(breaks), caplog.at_level(logging.WARNING, "crewlite.around"):
        if fails:
            with pytest.raises(ValueError, match="mine"):
                flow(name="f")(work).kickoff()
        else:
            assert flow(name="f")(work).kickoff() == 7
    assert "the hook breaks raised after attempt 1 of f: RuntimeError: collector gone" in caplog.text


def test_a_hook_cannot_swallow_the_error_of_an_attempt():
    with around(lambda attempt: contextlib.suppress(ValueError)), pytest.raises(ValueError, match="mine"):

        @flow
        def fails():
            raise ValueError("mine")

        fails.kickoff()


def test_a_hook_that_exits_fails_the_attempt_and_no_more():
    def leaves(attempt):
        raise SystemExit(3)

    with around(leaves), pytest.raises(RuntimeError, match="the hook leaves raised SystemExit"):
        flow(name="f")(lambda: 1).kickoff()
    assert flow(name="f")(lambda: 1).kickoff() == 1


def test_steps_that_a_hook_calls_are_plain_calls():
    @step
    def probe():
        return "plain"

    with around(lambda attempt: probe() and None):
        flow(name="f", checkpoint=True)(lambda: 1).kickoff(run_id="r")
    with History(".checkpoints") as history:
        assert [one.address for one in history.run("r").steps] == [""]


def test_what_is_no_hook_is_told():
    with pytest.raises(ConfigError, match=r"around\(3\): wanted a function that takes an AttemptInfo"), around(3):
        pass
    with around(lambda attempt: 3), pytest.raises(ConfigError, match="returned 3; wanted a context manager, or None"):
        flow(name="f")(lambda: 1).kickoff()
