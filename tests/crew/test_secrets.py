"""Configuration secrets appear in no file, log, event or error."""

from __future__ import annotations

import logging
import traceback
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from crewlite import Agent, BaseLLM, BaseTool, CheckpointConfig, Crew, LLMReply, Task, ToolCall, around, event_bus
from crewlite.errors import ConfigError, CrewliteError, InputsChanged, NotCodable, Suspended
from crewlite.events import BaseEvent, FlowStartedEvent
from crewlite.flow import Flow, flow, human_feedback, start, step
from crewlite.recovery import FailurePolicy, LLMClassifier, escalate, suspend
from crewlite.testing import ScriptedLLM

CANARIES = {
    "llm key": "sk-canary-1111111111",
    "tool field": "tok-canary-2222222222",
    "header": "hdr-canary-3333333333",
    "environment": "env-canary-4444444444",
    "typed": "typ-canary-5555555555",
    "redacted": "red-canary-6666666666",
}


class Leaky(BaseLLM):
    model = "leaky"

    def __init__(self, replies):
        super().__init__()
        self.api_key = CANARIES["llm key"]
        self.extra_headers = {"X-Auth": f"Bearer {CANARIES['header']}"}
        self.inner = ScriptedLLM(replies)

    async def acall(self, messages, **context):
        return await self.inner.acall(messages, **context)


class Fetch(BaseTool):
    name: str = "fetch"
    description: str = "Fetch."
    token: str
    password: SecretStr

    def _run(self, fail: bool = False) -> str:
        text = f"{self.token} {self.password.get_secret_value()} {CANARIES['environment']} {CANARIES['redacted']}"
        if fail:
            raise RuntimeError(f"refused {text}")
        return f"fetched with {text}"


@pytest.fixture
def said(caplog, capsys):
    """Everything said so far, in one text."""
    caplog.set_level(logging.DEBUG)
    heard = []
    event_bus.on(BaseEvent, lambda source, event: heard.append(repr(event)))

    def all_of_it():
        written = [path.read_bytes().decode("latin-1") for path in Path().rglob("*") if path.is_file()]
        captured = capsys.readouterr()
        return "\n".join([*heard, *written, caplog.text, captured.out, captured.err])

    return all_of_it


@pytest.mark.parametrize("location", ["./.checkpoints", "./.checkpoints.db"])
def test_planted_secrets_appear_nowhere(said, monkeypatch, location):
    monkeypatch.setenv("SOME_API_KEY", CANARIES["environment"])
    echo = f"my key is {CANARIES['llm key']} and {CANARIES['header']}"
    llm = Leaky([ToolCall("fetch"), ToolCall("fetch", {"fail": True}), LLMReply(text=echo), PermissionError(echo)])
    tools = [Fetch(token=CANARIES["tool field"], password=SecretStr(CANARIES["typed"]))]
    who = Agent(role="W", goal="g", llm=llm, tools=tools, verbose=True)
    tasks = [Task(description=f"d{n}", expected_output="x", agent=who) for n in range(2)]
    config = CheckpointConfig(location=location, redact=[CANARIES["redacted"]])
    crew = Crew(tasks=tasks, checkpoint=config, verbose=True)
    with pytest.raises(RuntimeError) as caught:
        crew.kickoff(run_id="r", inputs={"note": CANARIES["environment"]})
    everything = said() + "".join(traceback.format_exception(caught.value))
    assert "PermissionError: my key is [secret]" in str(caught.value)
    assert "[secret]" in everything
    for name, canary in CANARIES.items():
        assert canary not in everything, name


def test_a_resumed_run_hears_the_masked_text_the_first_life_heard(monkeypatch):
    class Stop(Exception):
        pass

    monkeypatch.setenv("SOME_API_KEY", CANARIES["environment"])
    llm = ScriptedLLM([f"key {CANARIES['environment']}", Stop(), "b"])
    who = Agent(role="W", goal="g", llm=llm)
    tasks = [Task(description=f"d{n}", expected_output="x", agent=who) for n in range(2)]
    crew = Crew(tasks=tasks, checkpoint=True)
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    crew.kickoff(run_id="r")
    assert llm.calls[1] == llm.calls[2]
    assert "key [secret]" in llm.calls[2][1]["content"]


class Paged(BaseTool):
    name: str = "paged"
    description: str = "Fetch pages."
    token_type: str = "bearer"
    password_field: str = "password"

    def _run(self) -> str:
        return "a summary: the bearer of the password"


def test_a_result_of_ordinary_words_is_the_result(monkeypatch):
    monkeypatch.setenv("SORT_KEY", "summary")
    monkeypatch.setenv("POSTGRES_PASSWORD", "postgres")
    answer = "A summary of how a bearer token replaces a password in postgres"
    llm = ScriptedLLM([ToolCall("paged"), answer])
    llm.api_key = SecretStr("password")
    who = Agent(role="W", goal="g", llm=llm, tools=[Paged()])
    crew = Crew(tasks=[Task(description="d", expected_output="x", agent=who)], checkpoint=True)
    assert crew.kickoff().raw == answer
    assert llm.calls[1][-1]["content"] == "a summary: the bearer of the password"


def test_the_secrets_of_a_fallback_are_known_to_the_run():
    spare = Leaky([])
    llm = ScriptedLLM([f"I know {CANARIES['llm key']}"])
    llm.fallbacks = (spare,)
    assert Agent(role="W", goal="g", llm=llm).kickoff("What?").raw == "I know [secret]"


@pytest.mark.parametrize("name", ["retries", "classifier", "person"])
def test_a_failure_that_is_decided_on_is_told_without_secrets(name, said, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", CANARIES["environment"])
    judge = ScriptedLLM(lambda messages: "timeout: it took long")
    settings = {
        "retries": {"retries": 1},
        "classifier": {"failure_policy": FailurePolicy(TIMEOUT=escalate(), classifier=LLMClassifier(judge))},
        "person": {"failure_policy": FailurePolicy(default=suspend())},
    }

    @step(**settings[name])
    def fetch():
        raise RuntimeError(f"refused {CANARIES['environment']}")

    @flow(checkpoint=True)
    def fetched():
        fetch()

    with pytest.raises((CrewliteError, Suspended)):
        fetched.kickoff(run_id="r")
    assert CANARIES["environment"] not in said() + repr(judge.calls)


def test_a_secret_within_bytes_is_masked(said, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", CANARIES["environment"])

    @step
    def fetch(head):
        return {"page": head + CANARIES["environment"].encode() + b"\xff", "other": b"\x00\xfe"}

    @flow(checkpoint=True)
    def fetched():
        return fetch(b"\xfe ")

    expected = {"page": b"\xfe [secret]\xff", "other": b"\x00\xfe"}
    assert fetched.kickoff(run_id="r") == fetched.kickoff(run_id="r") == expected
    assert CANARIES["environment"] not in said()


def test_a_question_of_a_flow_of_methods_is_told_without_secrets(said, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", CANARIES["environment"])

    class Asks(Flow):
        checkpoint = True

        @start()
        def asks(self):
            return self.ask(f"Log in with {CANARIES['environment']}?")

        @start()
        @human_feedback(f"Was it {CANARIES['environment']}?")
        def shows(self):
            return "done"

    with pytest.raises(Suspended):
        Asks().kickoff(run_id="r")
    everything = said()
    assert "Log in with [secret]?" in everything
    assert "Was it [secret]?" in everything
    assert CANARIES["environment"] not in everything


# A value of type SecretStr that a program passes on or returns


def _cut_once():
    """A flow whose step fails the first time, and the tokens that the step hears."""
    heard = []

    @step
    def whose(token: SecretStr) -> str:
        heard.append(token.get_secret_value())
        if len(heard) == 1:
            raise InterruptedError
        return f"mail of {heard[-1]}"

    @flow(checkpoint=True)
    def mail(token: SecretStr, note: str = "") -> str:
        return whose(token) + note

    return mail, heard


def test_a_run_is_not_looked_for_by_a_secret(monkeypatch):
    mail, heard = _cut_once()
    with pytest.raises(InterruptedError):
        mail.kickoff(SecretStr("ann"), run_id="r")
    with pytest.raises(ConfigError, match=r"resume=True finds a run by its inputs, but the input token holds a secret"):
        mail.kickoff(SecretStr("bob"), resume=True)
    monkeypatch.setenv("CREWLITE_RUN_ID", "night")
    with pytest.raises(ConfigError, match=r"CREWLITE_RUN_ID finds a run by its inputs"):
        mail.kickoff(SecretStr("bob"))
    assert heard == ["ann"]


def test_a_resume_that_is_not_given_its_secret_again_is_refused_before_any_step():
    mail, heard = _cut_once()
    with pytest.raises(InterruptedError):
        mail.kickoff(SecretStr("old"), run_id="r")
    again = r"The input token of run 'r' holds a secret, which is never recorded: .* Pass all inputs again"
    for go_on in (mail.kickoff, mail.preview):
        with pytest.raises(ConfigError, match=again):
            go_on(run_id="r")
    with pytest.raises(ConfigError, match=again):
        mail.kickoff(run_id="r", note="")
    with pytest.raises(InputsChanged, match=r"other inputs: 'note'.*, secrets too; .*\.kickoff\({'token': \.\.\.}\)"):
        mail.kickoff(SecretStr("rotated"), run_id="r", note="!")
    with pytest.raises(ConfigError, match=r"The input token of run 'r/b' .* with from_checkpoint='r/b'"):
        mail.fork("r", branch="b").kickoff(note="!")
    assert mail.fork("r").kickoff(SecretStr("forked"), note="!") == "mail of forked!"
    assert mail.kickoff(SecretStr("rotated"), run_id="r") == mail.kickoff(run_id="r") == "mail of rotated"
    assert heard == ["old", "forked", "rotated"]


def test_a_configured_secret_in_one_input_masks_no_secret_in_another(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", CANARIES["environment"])
    mail, heard = _cut_once()
    heard.append("")
    assert mail.kickoff(SecretStr("tok"), note=CANARIES["environment"], run_id="r") == "mail of tok[secret]"


def test_a_result_that_holds_a_secret_is_used_and_not_recorded(caplog):
    made = []

    @step
    def log_in() -> dict[str, SecretStr]:
        made.append(len(made))
        return {"token": SecretStr(f"fresh-{made[-1]}")}

    @flow(checkpoint=True)
    def used():
        token = log_in()["token"].get_secret_value()
        if len(made) == 1:
            raise InterruptedError
        return token

    with pytest.raises(InterruptedError):
        used.kickoff(run_id="r")
    assert "step:log_in cannot be recorded and will run again on resume" in caplog.text
    assert "it holds a secret" in caplog.text
    assert used.kickoff(run_id="r") == "fresh-1"
    strict = flow(name="strict", checkpoint=CheckpointConfig(on_save_error="raise"))(lambda: log_in())
    with pytest.raises(NotCodable, match="it holds a secret"):
        strict.kickoff()


def test_inputs_that_a_callback_of_a_crew_prepares_may_hold_a_secret():
    heard = []

    def log_in(inputs):
        return {"token": SecretStr("tok")}

    def use(inputs):
        heard.append(inputs["token"].get_secret_value())

    who = Agent(role="W", goal="g", llm=ScriptedLLM(["a"]))
    task = Task(description="d", expected_output="x", agent=who)
    Crew(tasks=[task], before_kickoff_callbacks=[log_in, use], checkpoint=True).kickoff()
    assert heard == ["tok"]


def test_a_state_is_given_no_secret(caplog):
    class Work(Flow):
        checkpoint = True

        @start()
        def begin(self):
            self.state["token"] = SecretStr("tok")

    with pytest.raises(ConfigError, match="its state has the field key for a secret"):
        Work().kickoff(inputs={"key": SecretStr("tok")})
    Work().kickoff()
    assert "state['token'] is a SecretStr, which cannot be recorded (it holds a secret" in caplog.text


@pytest.mark.parametrize("location", ["./.checkpoints", "./.checkpoints.db"])
def test_the_text_of_a_secret_input_appears_nowhere(said, location):
    secret, login = "tok-77aab-9ZZx1", []

    @step
    def header(token: SecretStr) -> str:
        login.append(f"Bearer {token.get_secret_value()}")
        return login[-1]

    @flow(checkpoint=CheckpointConfig(location=location))
    def call(token: SecretStr) -> str:
        header(token)
        raise ValueError(f"{token.get_secret_value()} was refused")

    for _ in range(2):
        with pytest.raises(Exception, match="was refused"):
            call.kickoff(SecretStr(secret), run_id="one")
    assert login == [f"Bearer {secret}"] * 2, "the code is given the text itself, so it is not recorded"
    assert "step:header cannot be recorded" in said()
    assert secret not in said()


def test_the_error_of_a_handler_or_a_hook_is_logged_without_secrets(monkeypatch, caplog):
    monkeypatch.setenv("SOME_API_KEY", CANARIES["environment"])
    caplog.set_level(logging.DEBUG)

    def refused(source, event):
        raise PermissionError(f"401 for {CANARIES['environment']}")

    async def refused_later(source, event):
        raise PermissionError(f"401 for {CANARIES['environment']}")

    @contextmanager
    def hook(seen):
        yield
        raise PermissionError(f"401 for {CANARIES['environment']}")

    @flow
    def work():
        return "done"

    with event_bus.on(FlowStartedEvent, refused), event_bus.on(FlowStartedEvent, refused_later), around(hook):
        assert work.kickoff() == "done"
        event_bus.flush()
    shown = caplog.text + "".join(str(record.exc_info) for record in caplog.records)
    assert shown.count("PermissionError('401 for [secret]')") == 2
    assert "the hook hook raised" in shown
    assert "Traceback" in shown
    assert CANARIES["environment"] not in shown


def test_no_control_character_of_an_error_reaches_a_log(caplog):
    caplog.set_level(logging.INFO)
    failing = [OSError("gone \x1b]0;title\x07\nERROR: a line of its own")]

    @step(retries=1)
    def work():
        if failing:
            raise failing.pop()
        return "done"

    @flow
    def outer():
        return work()

    assert outer.kickoff() == "done"
    [retry] = [record.getMessage() for record in caplog.records if "attempt 1 at" in record.getMessage()]
    assert retry.isprintable()
