"""Whatever code of users raises where crewlite calls it, somebody hears of it, and the process and its runs go on.

Every border at which that code is called (`borders.py`), against everything that it may raise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crewlite import Crew
from crewlite.errors import ConfigError, OnLoopThread, RecoveryEscalated, StoreError, Suspended
from crewlite.recovery import DEFAULT, FailurePolicy, Guard
from tests.beside import NeverEnds, bounded
from tests.runtime.borders import (
    FAILS,
    FAILS_PLAIN,
    KINDS,
    LOGGED,
    LOGGED_PLAIN,
    LONGEST,
    TOLD,
    Opened,
    Raises,
    crew,
    guarded,
    heard_by,
    quiet_with,
    task,
    trained,
    undone,
    uses,
    validated,
)


@pytest.fixture(params=KINDS)
def raises(request: pytest.FixtureRequest) -> Iterator[Raises]:
    yield Raises(request.param)
    assert bounded(lambda: crew().kickoff().raw, LONGEST) == "hello", "the next run does not run"


@pytest.fixture(params=["plain", "awaited"])
def call(request: pytest.FixtureRequest, raises: Raises) -> Any:
    return getattr(raises, request.param)


@pytest.mark.parametrize("border", FAILS)
def test_the_run_fails_with_what_code_of_the_user_raises(border: str, call: Any, raises: Raises) -> None:
    failed_with(bounded(lambda: FAILS[border](call), LONGEST), raises)


@pytest.mark.parametrize("border", FAILS_PLAIN)
def test_so_it_does_where_the_code_is_never_awaited(border: str, raises: Raises) -> None:
    failed_with(bounded(lambda: FAILS_PLAIN[border](raises.plain), LONGEST), raises)


# "an error" is a ValueError, and so a misfit
@pytest.mark.parametrize("raises", [kind for kind in KINDS if kind != "an error"], indirect=True)
def test_so_it_does_with_a_validator_whose_error_is_no_misfit(raises: Raises) -> None:
    failed_with(bounded(lambda: validated(raises.plain), LONGEST), raises)


def test_so_it_does_with_the_feedback_of_a_training(call: Any, raises: Raises, tmp_path: Any) -> None:
    failed_with(bounded(lambda: trained(call, tmp_path), LONGEST), raises)


def test_a_compensator_that_fails_is_told_with_the_failure(call: Any, raises: Raises) -> None:
    ended = bounded(lambda: undone(call), LONGEST)
    assert isinstance(ended, RecoveryEscalated)
    assert "The compensator of step:book failed" in str(ended)


@pytest.mark.parametrize("border", LOGGED)
def test_an_error_that_changes_nothing_is_logged(border: str, call: Any, caplog: pytest.LogCaptureFixture) -> None:
    is_logged(*LOGGED[border], call, caplog)


@pytest.mark.parametrize("border", LOGGED_PLAIN)
def test_so_it_is_where_the_code_is_never_awaited(
    border: str, raises: Raises, caplog: pytest.LogCaptureFixture
) -> None:
    is_logged(*LOGGED_PLAIN[border], raises.plain, caplog)


@pytest.mark.parametrize("border", TOLD)
def test_an_error_that_may_be_lived_with_is_told(border: str, call: Any) -> None:
    make, told = TOLD[border]
    assert told in str(bounded(lambda: make(call), LONGEST))


def failed_with(ended: object, raises: Raises) -> None:
    """Assert that a run has ended with an exception of this kind, or with an error that it is the cause of."""
    assert not isinstance(ended, NeverEnds)
    assert isinstance(ended, Exception), ended
    one: BaseException | None = ended
    while one is not None and type(one) is not type(KINDS[raises.kind]()):
        one = one.__cause__
    assert one is not None, f"{ended!r} does not say what was raised"
    if not isinstance(one, Exception) or isinstance(one, StopIteration):
        assert isinstance(ended, RuntimeError | ConfigError | StoreError)


def is_logged(make: Callable[[Any], Any], told: str, call: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "crewlite"):
        ended = bounded(lambda: make(call), LONGEST)
    assert not isinstance(ended, NeverEnds)
    assert not isinstance(ended, BaseException) or isinstance(ended, ZeroDivisionError), ended
    assert told in caplog.text


def generator(*args: Any, **kwargs: Any) -> Iterator[int]:
    yield 1


async def async_generator(*args: Any, **kwargs: Any) -> Any:
    yield 1


REFUSED: dict[str, Callable[[Any], Any]] = {
    **{name: make for name, make in FAILS.items() if name not in ("start", "listen", "router")},
    **{name: make for name, make in FAILS_PLAIN.items() if not name.startswith(("store", "executor"))},
    "handler": heard_by,
    "guard.after": lambda call: guarded(after=call),
    "cache_function": lambda call: uses(quiet_with(cache_function=call)),
    "compensator": undone,
    "tool": lambda call: uses(type("Own", (Opened,), {"_run": call})()),
}


@pytest.mark.parametrize("made", [generator, async_generator])
@pytest.mark.parametrize("border", REFUSED)
def test_a_generator_of_which_nothing_would_run_is_refused(border: str, made: Any) -> None:
    ended = bounded(lambda: REFUSED[border](made), LONGEST)
    assert isinstance(ended, Exception), f"{border} took a generator: {ended!r}"
    assert not isinstance(ended, Suspended | NeverEnds)


@pytest.mark.parametrize("said", [False, True, "no"])
def test_a_guard_that_returns_its_verdict_is_refused(said: Any) -> None:
    with pytest.raises(ConfigError, match=r"Own.before returned .*; wanted None, or CallVetoed raised to refuse"):
        guarded(before=lambda call: said)


def test_all_guards_hear_how_a_call_ended_also_if_one_of_them_raises_and_if_they_are_async() -> None:
    heard = []

    class Broken(Guard):
        def after(self, call: Any, error: Any) -> None:
            raise ValueError("the monitor is gone")

    class Hears(Guard):
        async def after(self, call: Any, error: Any) -> None:
            await asyncio.sleep(0)
            heard.append(call.what)

    policy = FailurePolicy(DEFAULT.rules, guards=[Broken(), Hears()])
    assert uses(quiet_with(effect="once"), failure_policy=policy) == "ok"
    assert heard == ["model scripted", "tool quiet", "model scripted"]


def kicks_off(*args: Any, **kwargs: Any) -> Any:
    return Crew(tasks=[task()]).kickoff().raw


async def kicks_off_awaited(*args: Any, **kwargs: Any) -> Any:
    return (await Crew(tasks=[task()]).akickoff()).raw


@pytest.mark.parametrize("inside", [kicks_off, kicks_off_awaited])
@pytest.mark.parametrize("border", ["task callback", "task_callback", "step_callback", "condition", "flow", "step"])
def test_code_of_the_user_may_kick_off(border: str, inside: Any) -> None:
    ended = bounded(lambda: FAILS[border](inside), LONGEST)
    assert getattr(ended, "raw", ended) == "hello"


@pytest.mark.parametrize("border", ["guard.asks", "model", "hook", "scorer", "policy"])
def test_where_it_is_called_on_the_loop_a_blocking_kickoff_is_refused(border: str) -> None:
    ended = bounded(lambda: FAILS_PLAIN[border](kicks_off), LONGEST)
    assert isinstance(ended, OnLoopThread) or isinstance(getattr(ended, "__cause__", None), OnLoopThread)
