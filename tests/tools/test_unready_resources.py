"""A resource that cannot be made ready or closed: who hears of it, what goes on, and what is refused."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
from pydantic import SecretStr

from crewlite import BaseTool, ToolCall
from crewlite.errors import ConfigError
from tests.agent.alone import agent


class Logged(BaseTool):
    """Says when it is made ready, and when it is closed."""

    name: str = "logged"
    description: str = "Say how it is."

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.log: list[str] = []

    async def ready(self) -> None:
        self.log.append("ready")

    async def aclose(self) -> None:
        self.log.append("aclose")

    def _run(self) -> str:
        return "well"


def test_the_model_is_told_that_it_cannot_be_made_ready_and_the_next_call_tries_again():
    class Late(Logged):
        async def ready(self) -> None:
            await super().ready()
            if len(self.log) == 1:
                raise ConnectionError("nobody listens")

    late = Late()
    caller = agent(ToolCall("logged"), ToolCall("logged"), "done", tools=[late])
    assert caller.kickoff("Go").raw == "done"
    told = [m["content"] for m in caller.llm.calls[-1] if m["role"] == "tool"]
    assert told == ["Tool logged failed: ConnectionError: nobody listens", "well"]
    assert late.log == ["ready", "ready", "aclose"]


def test_a_ready_that_is_the_authors_mistake_or_takes_too_long():
    class Wrong(Logged):
        async def ready(self) -> None:
            if self.timeout is None:
                raise ConfigError("no port is set")
            await asyncio.sleep(60)

    wrong, slow = Wrong(), Wrong(timeout=0.05, effect="once")
    with pytest.raises(ConfigError, match="no port is set"):
        agent(ToolCall("logged"), "done", tools=[wrong]).kickoff("Go")
    caller = agent(ToolCall("logged"), "done", tools=[slow])
    assert caller.kickoff("Go").raw == "done"
    assert caller.llm.calls[-1][-1]["content"] == "Tool logged failed: TimeoutError: ready() did not end within 0.05 s"
    assert wrong.log == slow.log == [], "what was never ready is not closed"


def test_a_run_that_is_cancelled_while_it_is_made_ready_does_not_wait_for_it():
    class Slow(Logged):
        async def ready(self) -> None:
            self.log.append("begins")
            try:
                await asyncio.sleep(60)
            finally:
                self.log.append("is cut")

    slow = Slow()

    async def test() -> None:
        run = asyncio.ensure_future(agent(ToolCall("logged"), tools=[slow]).akickoff("Go"))
        while not slow.log:
            await asyncio.sleep(0.005)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    before = time.monotonic()
    asyncio.run(test())
    assert time.monotonic() - before < 20
    assert slow.log == ["begins", "is cut"]


@pytest.mark.parametrize("error", [OSError("the line with s3cret-word is dead"), SystemExit(3)])
def test_an_error_of_aclose_is_logged_without_secrets_and_the_result_stays(error, caplog):
    class Rough(Logged):
        token: SecretStr = SecretStr("s3cret-word")

        async def aclose(self) -> None:
            raise error

    with caplog.at_level(logging.WARNING, "crewlite"):
        assert agent(ToolCall("logged"), "done", tools=[Rough()]).kickoff("Go").raw == "done"
    assert "aclose() of Rough raised" in caplog.text
    assert "s3cret-word" not in caplog.text


@pytest.mark.parametrize("verb", ["ready", "aclose"])
def test_one_that_is_not_async_is_refused(verb):
    blocking = type("Blocking", (BaseTool,), {verb: lambda self: None, "_run": lambda self: ""})
    with pytest.raises(ConfigError, match=f"{verb} of Blocking is awaited; write async def {verb}"):
        blocking(name="b", description="c")
