"""What a tool raises: an error of the program's author ends the run, at once; an error of the world goes to the model."""

from __future__ import annotations

import pytest

from crewlite import Agent, Crew, Task, ToolCall, errors, event_bus, tool
from crewlite.errors import ConfigError, CrewliteError, InputsChanged, MissingInput, NoModel, Redacted, RunMismatch
from crewlite.events import ToolUsageErrorEvent
from crewlite.testing import ScriptedLLM


def raising(make, *, limit=3):
    """An agent whose tool does what `make` does, and its model, which goes on asking for it."""

    @tool
    def work(what: str) -> str:
        """Do some work."""
        return str(make())

    llm = ScriptedLLM(lambda messages: ToolCall("work", {"what": "x"}) if len(llm.calls) <= limit else "done")
    return Agent(role="Boss", goal="g", llm=llm, tools=[work]), llm


def inner(**fields):
    return Crew(tasks=[Task(description="Do {what}", expected_output="x", agent=Agent(role="W", goal="g", **fields))])


def fails(error):
    def make():
        raise error

    return make


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Agent(role="W", goal="g", rol="W"), ConfigError),
        (lambda: inner().kickoff({"what": "x"}), NoModel),
        (lambda: inner(llm="offline").kickoff(), MissingInput),
        (lambda: inner(llm="offline").kickoff("x"), ConfigError),
        (fails(InputsChanged("r", ["a"])), InputsChanged),
        (fails(RunMismatch("another")), RunMismatch),
    ],
    ids=["a wrong field", "no model", "no input", "no mapping", "other inputs", "another run"],
)
def test_an_error_of_the_author_in_a_tool_ends_the_run_at_once(make, expected):
    agent, llm = raising(make)
    with pytest.raises(expected) as raised:
        agent.kickoff("Go")
    assert type(raised.value) is expected
    assert len(llm.calls) == 1


def test_an_error_of_the_author_that_holds_a_secret_ends_the_run_too(monkeypatch):
    monkeypatch.setenv("SHOP_API_KEY", "sk-1234-abcdefgh")
    agent, llm = raising(lambda: inner(llm="offline").kickoff("sk-1234-abcdefgh"))
    with pytest.raises(Redacted, match="ConfigError"):
        agent.kickoff("Go")
    assert len(llm.calls) == 1


@pytest.mark.parametrize(
    "error", [OSError("disk on fire"), ValueError("no"), errors.LLMUnavailable("busy"), errors.RefError("x", "no")]
)
def test_an_error_of_the_world_in_a_tool_is_told_to_the_model(error):
    agent, llm = raising(fails(error), limit=1)
    assert agent.kickoff("Go").raw == "done"
    assert llm.calls[1][-1]["content"] == f"Tool work failed: {type(error).__name__}: {error}"


def test_what_stops_a_run_is_never_told_to_the_model():
    assert all(cls.ends_run for cls in errors.CONTROL_FLOW)


def test_the_class_of_an_error_alone_says_whether_it_ends_the_run():
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, CrewliteError)]
    ending = {cls.__name__ for cls in classes if cls.ends_run}
    told = {"LLMError", "StepTimeout", "MaxIterations", "OutputInvalid", "StepCrashed", "RunExists", "AnswerTimeout"}
    told |= {"GuardrailFailed"}
    assert {"ConfigError", "NotCodable", "RunMismatch", "StoreError", "InDoubt", "Suspended"} <= ending
    assert not told & ending
    assert not CrewliteError.ends_run


def test_the_reason_of_a_failed_tool_is_told_once(capsys):
    heard = []
    event_bus.on(ToolUsageErrorEvent)(lambda source, event: heard.append(event.error))
    path = "/a/very/long/path/that/nobody/has/and/that/does/not/fit/into/one/line/of/eighty/columns/notes.txt"
    agent, _ = raising(lambda: open(path), limit=1)
    agent.model_copy(update={"verbose": True}).kickoff("Go")
    reason = f"[Errno 2] No such file or directory: {path!r}"
    assert heard == [reason]
    assert f"✗ tool work failed: FileNotFoundError: {reason}" in capsys.readouterr().out.replace("\n", "")
