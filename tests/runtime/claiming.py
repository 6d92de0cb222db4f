"""What the tests of claims share: a process that holds a run, and what the record says of its holder."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading

import pytest

from crewlite.state.journal.lineage import find_lineage
from crewlite.state.providers import provider_for
from crewlite.testing import ScriptedLLM
from tests import children
from tests.parts import Stop

CHILD = """
import asyncio, os, sys
from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.errors import BranchConflictError
from crewlite.testing import ScriptedLLM

class Slow(ScriptedLLM):
    async def acall(self, messages, **context):
        n = messages[1]["content"].split()[1]
        print("asked", n, flush=True)
        while n == "1" and not os.path.exists(sys.argv[2]):
            await asyncio.sleep(0.01)
        return await super().acall(messages, **context)

who = Agent(role="Worker", goal="work", backstory="works", llm=Slow(lambda messages: "from the child"))
tasks = []
for n in range(3):
    tasks.append(Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=who, context=tasks[-1:]))
try:
    print(Crew(tasks=tasks, checkpoint=CheckpointConfig(location=sys.argv[1])).kickoff(run_id="r").raw, flush=True)
except BranchConflictError as error:
    print("conflict", error.run_id, error.branch, flush=True)
"""


@contextlib.contextmanager
def holder(config, tmp_path):
    """Another process that is in the middle of a model call of run `r`; it goes on once the file `go` is there."""
    child = children.Child(
        [sys.executable, "-c", CHILD, config().location, str(tmp_path / "go")], stdout=children.PIPE, text=True
    )
    try:
        for line in child.stdout:
            if line == "asked 1\n":
                break
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def crew_of(make_crew, config, replies):
    return make_crew(ScriptedLLM(replies), checkpoint=config())


def answers(result):
    return [output.raw for output in result.tasks_output]


def store_of(config):
    return provider_for(config().location, config().provider).open(config().location)


def record_of(config):
    store = store_of(config)
    try:
        return find_lineage(store, "r", "main").record()
    finally:
        store.close()


def cut(make_crew, config):
    """Run `r` stands in its second task, and nobody is at work on it."""
    with pytest.raises(Stop):
        crew_of(make_crew, config, ["a", Stop()]).kickoff(run_id="r")


class Sleeper(ScriptedLLM):
    """A model that says when its second call has come, which it never answers."""

    def __init__(self):
        super().__init__(["a"])
        self.asleep = threading.Event()

    async def acall(self, messages, **context):
        if self.calls:
            self.asleep.set()
            await asyncio.sleep(60)
        return await super().acall(messages, **context)


def while_at_work(make_crew, config, act):
    """What `act` returns, called in a thread while run `r` is in its second task in this process; then that is cancelled."""
    llm = Sleeper()

    async def main():
        run = asyncio.create_task(make_crew(llm, checkpoint=config()).akickoff(run_id="r"))
        await asyncio.to_thread(llm.asleep.wait)
        done = await asyncio.to_thread(act)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        return done

    return asyncio.run(main())
