"""A program whose abandoned runs are closed at each line of the package that runs while the thread holds a lock, and on
another thread while one is starting. Garbage collection closes them there too, at a moment that it chooses."""

import asyncio
import contextlib
import logging
import sys
import threading
import time
from pathlib import Path

from crewlite import Agent, CheckpointConfig, Crew, History, Task, events
from crewlite.events.event_bus import event_bus
from crewlite.flow import Flow, listen, start
from crewlite.recovery import CircuitBreaker, FailurePolicy
from crewlite.state import InMemoryProvider
from crewlite.state.journal.writer import writers
from crewlite.system import forked
from crewlite.testing import ScriptedLLM

PACKAGE = str(Path(forked.__file__).parent.parent)
setting = CheckpointConfig(location="here", provider=InMemoryProvider())
asked = {}
abandoned, closed, seen = [], [0], set()


class Model(ScriptedLLM):
    async def acall(self, messages, **context):
        said = await super().acall(messages, **context)
        if reached := asked.get(asyncio.get_running_loop()):
            reached.set()
            await asyncio.Event().wait()
        return said


agent = Agent(
    role="Clerk",
    goal="answer",
    llm=Model(lambda messages: "done"),
    max_rpm=10**6,
    failure_policy=FailurePolicy(guards=[CircuitBreaker()]),
)
crew = Crew(tasks=[Task(description=text, expected_output="a word", agent=agent) for text in "ab"], checkpoint=setting)


class Asks(Flow):
    @start()
    async def first(self):
        self.state["first"] = (await agent.akickoff("go")).raw

    @listen(first)
    def second(self):
        return self.state["first"]


asks = Asks(checkpoint=setting)


def abandon(number):
    """Leave a run that waits for its model on a loop that is closed then."""
    loop = asyncio.new_event_loop()
    asked[loop] = asyncio.Event()

    async def begin():
        work = asyncio.create_task((crew, asks)[number % 2].akickoff(run_id=f"left-{number}"))
        await asyncio.wait([work, asyncio.create_task(asked[loop].wait())], return_when=asyncio.FIRST_COMPLETED)
        return [work, *asyncio.all_tasks()]

    abandoned.append(loop.run_until_complete(begin()))
    del asked[loop]
    loop.close()


def close_one():
    for task in abandoned.pop():
        with contextlib.suppress(BaseException):  # Python prints what a coroutine raises that is closed like this
            task.get_coro().close()
    closed[0] += 1


def look(frame, event, argument):
    line = frame.f_code, frame.f_lineno
    if event == "line" and abandoned and line not in seen and holds_a_lock():
        seen.add(line)
        sys.settrace(None)
        close_one()
        sys.settrace(watch)
    return look


def holds_a_lock():
    """Whether this thread holds a lock of the package."""
    return any(lock._is_owned() for known in forked._locks.data.copy() if (lock := known()))


def watch(frame, event, argument):
    return look if frame.f_code.co_filename.startswith(PACKAGE) else None


def started(thread, start=threading.Thread.start):
    """Start a thread that closes a run before it has begun, as far as `start` can tell."""
    if abandoned and sys.gettrace():
        closing = threading.Thread(target=close_one)
        start(closing)
        closing.join()
    start(thread)


def work(number):
    assert crew.kickoff(run_id=f"crew-{number}").raw == "done"
    assert [*crew.stream(run_id=f"stream-{number}")]
    assert asks.kickoff(run_id=f"flow-{number}") == "done"
    asyncio.run(asyncio.wait_for(crew.akickoff(run_id=f"own-{number}"), 60))
    with History("here", setting.provider) as history:
        assert len(history.runs()) >= 4


def count(source, event, state):
    state["calls"] = state.get("calls", 0) + 1


if __name__ == "__main__":
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it tells of each task that never ended
    event_bus.on(events.LLMCallCompletedEvent, count)
    threading.Thread.start = started
    number = 0
    for _ in range(2):
        for _ in range(int(sys.argv[1])):
            abandon(number := number + 1)
        threading.settrace(watch)
        sys.settrace(watch)
        work(number)
        sys.settrace(None)
        threading.settrace(None)
    while abandoned:
        close_one()
    assert crew.kickoff(run_id="last").raw == "done"
    agent.goal = "answer no more"  # refused while a kickoff uses it
    while writers:
        time.sleep(0.01)
    print(len(seen), closed[0] == number)
