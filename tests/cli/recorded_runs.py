"""A location with runs of every kind, for the tests of the commands that read, and those commands in this process."""

import json
import re
import sys

import pytest
from click.testing import CliRunner

from crewlite import Agent, CheckpointConfig, Crew, History, Task, tool
from crewlite.cli.main import main
from crewlite.testing import ScriptedLLM, ToolCall
from tests import children

CREWLITE = [sys.executable, "-c", "from crewlite.cli.main import main; main(prog_name='crewlite')"]
HOSTILE = "a\x1b[31mred\x1b[0m [bold]b[/bold] c\x00d \u202eevil\u202c \x9b2J e\u2028f \U0001f600 [/] end"


@tool(effect="none")
def search(query: str) -> str:
    """Search."""
    return f"found {query}"


def crew_of(llm, location, count=3, **fields):
    agent = Agent(role="Worker", goal="work", llm=llm, tools=[search])
    names = ("facts", "style", "text") if count == 3 else [f"t{n}" for n in range(count)]
    tasks = [Task(name=n, description=f"{n} {{topic}}", expected_output="text", agent=agent, context=[]) for n in names]
    return Crew(name="reports", tasks=tasks, checkpoint=CheckpointConfig(location=location, **fields))


def fill(location):
    """A finished run with two forks, a failed run, one that was killed, one with twelve tasks."""
    replies = [ToolCall("search", {"query": "tides"}), "tides come\nand go", "plain", "Tides come."]
    crew_of(ScriptedLLM(replies), location).kickoff({"topic": "tides"}, run_id="report")
    crew_of(ScriptedLLM(["flowery", "O!"]), location).fork("report/main@task:facts", branch="bold").kickoff()
    with History(location) as history:
        history.fork("report/bold", branch="bold/deeper")
    with pytest.raises(RuntimeError):
        crew_of(ScriptedLLM([HOSTILE, RuntimeError(HOSTILE)]), location).kickoff({"topic": HOSTILE}, run_id="hostile")
    crew_of(ScriptedLLM(["x"] * 12), location, 12).kickoff({"topic": "many"}, run_id="twelve")
    killed = (
        "import os\nfrom crewlite import Agent, CheckpointConfig, Crew, Task, tool\n"
        "from crewlite.testing import ScriptedLLM, ToolCall\n"
        "@tool(effect='once')\ndef pay(amount: int) -> str:\n    'Pay.'\n    os._exit(9)\n"
        "agent = Agent(role='W', goal='w', llm=ScriptedLLM(['a', ToolCall('pay', {'amount': 3})]), tools=[pay])\n"
        "tasks = [Task(name=n, description=n, expected_output='t', agent=agent) for n in ('a', 'pay')]\n"
        f"Crew(tasks=tasks, checkpoint=CheckpointConfig(location={str(location)!r})).kickoff(run_id='killed')\n"
    )
    assert children.run([sys.executable, "-c", killed]).returncode == 9
    return str(location)


def ask(*words, code=0, said="stdout"):
    done = CliRunner().invoke(main, ["checkpoint", *map(str, words)], prog_name="crewlite")
    assert done.exit_code == code, (done.output, done.exception)
    return str(getattr(done, said))


def ask_json(*words):
    return json.loads(ask(*words, "--json"))


def rows(text):
    head, *lines = text.splitlines()
    return head.split(), [re.split(r" {2,}", line.strip()) for line in lines]
