"""A directory with a module of crews in it, as a user has one, and the real command to run there."""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from crewlite.cli.main import main
from tests import children
from tests.cli.flows_program import FLOWS
from tests.cli.recorded_runs import CREWLITE, fill

if os.name == "posix":
    import fcntl
    import pty
    import termios

CREWS = '''
import asyncio, os
from pathlib import Path
from crewlite.state import InMemoryProvider, JsonProvider
from crewlite import Agent, BaseLLM, CheckpointConfig, Crew, LLMReply, Task, ToolCall, Usage, tool

def note(text):
    with open("calls.txt", "a") as file:
        file.write(text + "\\n")

class Counting(BaseLLM):
    model = "counting"
    async def acall(self, messages, **context):
        asked = messages[1]["content"].split("\\n")[0]
        note(asked)
        if os.path.exists("hang") and Path("hang").read_text() in asked:
            await asyncio.sleep(60)
        if os.path.exists("fail") and Path("fail").read_text() in asked:
            raise ValueError("no paper")
        if "pay" in asked and messages[-1]["role"] != "tool":
            return LLMReply(tool_calls=(ToolCall("charge", {"amount": "5"}),))
        return LLMReply(text=f"[{asked}]", usage=Usage(prompt_tokens=100, completion_tokens=10, requests=1, cost=0.01))

@tool(effect="once")
def charge(amount: str) -> str:
    """Charge."""
    note("charged " + amount)
    if os.path.exists("hang"):
        import time
        time.sleep(60)
    return "paid"

clerk = Agent(role="Clerk", goal="answer", llm=Counting())
cashier = Agent(role="Cashier", goal="charge", llm=Counting(), tools=[charge])

def tasks(*names, agent=clerk):
    return [Task(name=n, description=f"Do {n} on {{topic}}", expected_output="text", agent=agent) for n in names]

crew = Crew(name="report", tasks=tasks("one", "two", "three"))
off = Crew(name="off", tasks=tasks("one"), checkpoint=False)
hears = Crew(name="hears", tasks=tasks("one", "two"), checkpoint=CheckpointConfig(on_events=["SIGTERM"]))
elsewhere = Crew(name="elsewhere", tasks=tasks("one", "two"), checkpoint=CheckpointConfig(location="else.db"))
class Own:
    name = "own"
    def open(self, location):
        return JsonProvider().open(location)

own = Crew(name="own", tasks=tasks("one", "two"), checkpoint=CheckpointConfig(location="own", provider=Own()))
memory = Crew(name="memory", tasks=tasks("one"), checkpoint=CheckpointConfig(provider=InMemoryProvider()))
changed = Crew(name="report", tasks=[*tasks("one", "two"), tasks("three")[0].with_(description="Redo it")])
bill = Crew(name="bill", tasks=tasks("pay", agent=cashier))
number = 3

def made():
    print("the module prints")
    return crew

def wants(topic):
    return crew
'''


class Shop:
    """The directory, and what is done in it."""

    def __init__(self, path):
        self.path = path
        (path / "crews.py").write_text(CREWS, encoding="utf-8")

    def environment(self, **more):
        return {**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1", **more}

    def begin(self, *words, started=(), **environment):
        return children.Child([*started, *CREWLITE, *words], **self._options(environment))

    def at_terminal(self, *words, piped=True, **environment):
        """A command that was begun at a terminal of its own, and that terminal. Only what it answers goes to a pipe, if to any."""
        leader, follower = pty.openpty()
        process = children.Child(
            [*CREWLITE, *words],
            cwd=self.path,
            env=self.environment(TERM="xterm", **environment),
            stdin=follower,
            stdout=children.PIPE if piped else follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(follower)
        return process, leader

    def do(self, *words, **environment):
        return children.run([*CREWLITE, *words], **self._options(environment))

    def _options(self, environment):
        env, said = self.environment(**environment), {"stdout": children.PIPE, "stderr": children.PIPE}
        return {"cwd": self.path, "env": env, "text": True, "encoding": "utf-8", **said}

    def ask(self, *words, stdin=None):
        """As `do`, but in this process, which is quicker."""
        modules, path = set(sys.modules), list(sys.path)
        try:
            done = CliRunner().invoke(main, words, input=stdin, prog_name="crewlite")
        finally:
            sys.path[:] = path
            for name in set(sys.modules) - modules:
                if str(self.path) in (getattr(sys.modules[name], "__file__", None) or ""):
                    del sys.modules[name]
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return SimpleNamespace(returncode=done.exit_code, stdout=done.stdout, stderr=done.stderr)

    def run(self, code, *words):
        """As `ask`, to run what this code calls `make`."""
        (self.path / "broken.py").write_text(f"import crews\nfrom crewlite import *\n{code}")
        return self.ask("run", "broken:make", *words)

    def lines(self, *words):
        """The JSON lines that a command tells."""
        return [json.loads(line) for line in self.ask(*words, "--json").stdout.splitlines()]

    def calls(self):
        file = self.path / "calls.txt"
        return file.read_text().splitlines() if file.exists() else []

    def paid(self):
        """The calls since this was last asked."""
        found = [call.removeprefix("Do ").partition(" on ")[0] for call in self.calls()]
        (self.path / "calls.txt").unlink(missing_ok=True)
        return found

    def until(self, call):
        """Wait until a call was made."""
        children.until(lambda: any(call in line for line in self.calls()))

    def hang(self, word):
        (self.path / "hang").write_text(word)

    def fail(self, word):
        (self.path / "fail").write_text(word)

    def heal(self):
        for name in ("hang", "fail"):
            (self.path / name).unlink(missing_ok=True)


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


@pytest.fixture
def flows(shop):
    (shop.path / "flows.py").write_text(FLOWS, encoding="utf-8")
    return shop


@pytest.fixture(scope="module", params=["json", "sqlite"])
def location(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("reading")
    return fill(place / ("runs.db" if request.param == "sqlite" else "runs"))
