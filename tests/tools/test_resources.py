"""What tools and models hold open: made before the first call of a run, and closed with the last run that uses it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import textwrap

import pytest

from crewlite import Agent, BaseLLM, BaseTool, CheckpointConfig, Crew, Task, ToolCall, idempotency_key, tool
from crewlite.errors import Suspended
from crewlite.flow import flow, step
from crewlite.testing import ScriptedLLM
from tests import children
from tests.agent.alone import agent


class Echo:
    """A server on the loopback device that answers each line with itself and knows who is connected."""

    def __init__(self) -> None:
        self.came = self.left = 0

    async def begin(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                writer.write(line)
                await writer.drain()
        self.left += 1
        writer.close()

    async def all_left(self) -> None:
        """Wait until nobody is connected: what is closed at one end is known at the other a moment later."""
        async with asyncio.timeout(30):
            while self.left < self.came:
                await asyncio.sleep(0.005)

    async def end(self) -> None:
        self._server.close()


class Line(BaseTool):
    name: str = "say"
    description: str = "Say a word to the server."
    port: int

    async def ready(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.turn, self.owner, self.key = asyncio.Lock(), asyncio.current_task(), idempotency_key()

    async def aclose(self) -> None:
        assert asyncio.current_task() is self.owner, "a client built on anyio must be left where it was entered"
        self.writer.close()
        await self.writer.wait_closed()

    async def _arun(self, word: str) -> str:
        async with self.turn:
            self.writer.write(f"{word}\n".encode())
            return (await self.reader.readline()).decode().strip()


@pytest.fixture
def served():
    """Runs an async test with a server, and sees that nobody is left connected."""

    def run(test) -> None:
        async def whole() -> None:
            echo = Echo()
            await echo.begin()
            try:
                await test(echo)
                await echo.all_left()
            finally:
                await echo.end()

        asyncio.run(asyncio.wait_for(whole(), 60))

    return run


def say(word: str) -> ToolCall:
    return ToolCall("say", {"word": word})


def test_one_connection_serves_all_calls_of_a_run_and_is_closed_with_it(served):
    async def test(echo: Echo) -> None:
        caller = agent([say("a"), say("b")], say("c"), "done", tools=[line := Line(port=echo.port)])
        result = await caller.akickoff("Call")
        assert (result.raw, echo.came, line.key) == ("done", 1, "")
        assert [m["content"] for m in caller.llm.calls[-1] if m["role"] == "tool"] == ["a", "b", "c"]
        assert line.writer.is_closing()

    served(test)


def test_a_tool_that_no_call_uses_is_not_made_ready(served):
    async def test(echo: Echo) -> None:
        await agent("done", tools=[Line(port=echo.port)]).akickoff("Do not call")
        assert echo.came == 0

    served(test)


def test_a_run_that_fails_closes_it(served):
    async def test(echo: Echo) -> None:
        def reply(messages):
            if messages[-1]["role"] == "tool":
                raise KeyError("the model broke")
            return say("a")

        with pytest.raises(KeyError):
            await Agent(role="a", goal="b", llm=ScriptedLLM(reply), tools=[Line(port=echo.port)]).akickoff("Call")
        assert echo.came == 1

    served(test)


def test_a_run_that_is_cancelled_closes_it(served):
    async def test(echo: Echo) -> None:
        waits = asyncio.Event()

        @tool
        async def hang() -> str:
            """Wait."""
            waits.set()
            await asyncio.sleep(60)
            return ""

        caller = agent(say("a"), ToolCall("hang"), tools=[line := Line(port=echo.port), hang])
        run = asyncio.ensure_future(caller.akickoff("Call"))
        await waits.wait()
        assert not line.writer.is_closing()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert line.writer.is_closing()

    served(test)


def test_a_run_that_waits_for_a_person_closes_it_and_the_next_life_opens_it_again(served, tmp_path):
    async def test(echo: Echo) -> None:
        @tool(requires_approval=True)
        def pay() -> str:
            """Pay."""
            return "paid"

        def caller() -> Agent:
            turns = [say("a"), ToolCall("pay"), say("b"), "done"]
            llm = ScriptedLLM(lambda messages: turns[sum(m["role"] == "assistant" for m in messages)])
            tools = [Line(port=echo.port), pay]
            return Agent(role="a", goal="b", llm=llm, tools=tools, checkpoint=CheckpointConfig(location=tmp_path / "r"))

        with pytest.raises(Suspended) as waits:
            await caller().akickoff("Call", run_id="r")
        await echo.all_left()
        result = await caller().akickoff("Call", run_id="r", answers=dict.fromkeys(waits.value.waiting, True))
        assert (result.raw, echo.came) == ("done", 2)
        await caller().akickoff("Call", run_id="r")
        assert echo.came == 2, "what is answered from the record opens nothing"

    served(test)


def test_runs_side_by_side_share_it_and_the_last_one_closes_it(served):
    async def test(echo: Echo) -> None:
        inside, gate = asyncio.Event(), asyncio.Event()

        @tool
        async def hold() -> str:
            """Wait for the other run to end."""
            inside.set()
            await gate.wait()
            return "held"

        line = Line(port=echo.port)
        slow = asyncio.ensure_future(
            agent(say("a"), ToolCall("hold"), say("c"), "slow", tools=[line, hold]).akickoff("A")
        )
        await inside.wait()
        quick = await agent(say("b"), "quick", tools=[line]).akickoff("B")
        assert (quick.raw, echo.came, line.writer.is_closing()) == ("quick", 1, False)
        gate.set()
        assert (await slow).raw == "slow"
        assert line.writer.is_closing()
        await agent(say("d"), "again", tools=[line]).akickoff("C")
        assert echo.came == 2

    served(test)


def test_many_runs_at_once_never_find_it_closed(served):
    async def test(echo: Echo) -> None:
        line = Line(port=echo.port)

        async def one(n: int) -> str:
            await asyncio.sleep(n % 7 * 0.01)
            caller = agent(say(f"{n}"), "done", tools=[line])
            await caller.akickoff("Call")
            return caller.llm.calls[-1][-1]["content"]

        heard = await asyncio.gather(*(one(n) for n in range(30)))
        assert not [said for said in heard if "failed" in said]

    served(test)


def test_runs_on_two_loops_each_have_their_own():
    class Numbered(BaseTool):
        name: str = "n"
        description: str = "Say whose it is."

        def __init__(self) -> None:
            super().__init__()
            self.log: list[tuple[str, int]] = []

        async def ready(self) -> None:
            self.log.append(("ready", id(asyncio.get_running_loop())))

        async def aclose(self) -> None:
            self.log.append(("aclose", id(asyncio.get_running_loop())))

        async def _arun(self) -> str:
            return await asyncio.to_thread(lambda: agent(ToolCall("n"), "in", tools=[inner]).kickoff("Go").raw)

    class Inner(Numbered):
        async def _arun(self) -> str:
            return "inner"

    inner, outer = Inner(), Numbered()
    caller = agent([ToolCall("n")], "done", tools=[outer])
    asyncio.run(caller.akickoff("Go"))
    asyncio.run(agent(ToolCall("n"), "x", tools=[inner]).akickoff("Go"))
    agent(ToolCall("n"), "x", tools=[inner]).kickoff("Go")
    assert [word for word, _ in outer.log] == ["ready", "aclose"]
    assert [word for word, _ in inner.log] == ["ready", "aclose"] * 3
    assert all(one[1] == other[1] for one, other in zip(inner.log[::2], inner.log[1::2], strict=True))


def test_a_crew_in_a_flow_holds_it_until_the_flow_ends(served):
    async def test(echo: Echo) -> None:
        line, seen = Line(port=echo.port), []

        def crew(word: str) -> Crew:
            one = agent(say(word), "done", tools=[line])
            return Crew(agents=[one], tasks=[Task(description=f"Say {word}", expected_output="text", agent=one)])

        @step
        async def twice() -> str:
            for word in "ab":
                await crew(word).akickoff()
                seen.append(line.writer.is_closing())
            return "both"

        @flow
        async def calls() -> str:
            return await twice()

        assert await calls.akickoff() == "both"
        assert (seen, echo.came, line.writer.is_closing()) == ([False, False], 1, True)

    served(test)


def test_a_model_is_made_ready_once_and_closed_with_the_run():
    log = []

    class Held(BaseLLM):
        model = "held"

        async def ready(self) -> None:
            log.append("ready")

        async def aclose(self) -> None:
            log.append("aclose")

        async def acall(self, messages, **context):
            log.append("call")
            return "done" if len(log) > 2 else ToolCall("nothing")

    one = Agent(role="a", goal="b", llm=Held())
    crew = Crew(agents=[one], tasks=[Task(description=what, expected_output="text", agent=one) for what in "ab"])
    assert crew.kickoff().raw == "done"
    assert log == ["ready", "call", "call", "call", "aclose"]


CHILD = """
    import asyncio, sys
    from pathlib import Path
    from crewlite import Agent, BaseTool, CheckpointConfig, ToolCall
    from crewlite.testing import ScriptedLLM

    class Cat(BaseTool):
        name: str = "cat"
        description: str = "Have a child process say a word."

        async def ready(self):
            note("ready")
            pipe = asyncio.subprocess.PIPE
            self.child = await asyncio.create_subprocess_exec("cat", stdin=pipe, stdout=pipe)

        async def aclose(self):
            self.child.stdin.close()
            note(f"aclose {await self.child.wait()}")

        async def _arun(self, word: str):
            self.child.stdin.write(f"{word}\\n".encode())
            said = (await self.child.stdout.readline()).decode().strip()
            note(said)
            if word == "b" and "first" in sys.argv:
                print("here", flush=True)
                await asyncio.sleep(600)
            return said

    def note(word):
        with (Path(sys.argv[1]) / "log").open("a") as file:
            file.write(f"{word}\\n")

    turns = [ToolCall("cat", {"word": "a"}), ToolCall("cat", {"word": "b"}), "done"]
    llm = ScriptedLLM(lambda messages: turns[sum(m["role"] == "assistant" for m in messages)])
    agent = Agent(role="a", goal="b", llm=llm, tools=[Cat()], checkpoint=CheckpointConfig(location=sys.argv[1] + "/r"))
    print(asyncio.run(agent.akickoff("Go", run_id="r")).raw)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs cat and SIGKILL")
def test_a_killed_run_makes_it_ready_again_where_it_goes_on(tmp_path):
    program = tmp_path / "app.py"
    program.write_text(textwrap.dedent(CHILD))
    command = [sys.executable, str(program), str(tmp_path)]
    first = children.Child([*command, "first"], stdout=children.PIPE, text=True)
    assert first.stdout.readline() == "here\n"
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = children.run(command, capture_output=True, text=True)
    assert second.stdout == "done\n", second.stderr
    assert (tmp_path / "log").read_text().split("\n")[:-1] == ["ready", "a", "b", "ready", "b", "aclose 0"]
