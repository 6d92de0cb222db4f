"""What a server can do wrong, and what comes of it: one table, over real connections and the real litellm.

Whatever the row, the server was asked exactly so often, the key is nowhere, and a run that failed goes on as soon as
the server answers. Rows that are tried again say so (`again`), and answer at the second try.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from server import Request, Server, chat, nobody, reply
from wire import BODIES, CONNECTIONS, KEY, OK, PROXY_KEY, SECRETS, STATUSES, TOOLS, Row, high_water
from wire_of_others import ANTHROPIC, GEMINI
from wire_streams import STREAMS

from crewlite import LLM, Agent, CheckpointConfig, History, event_bus
from crewlite.agent.output import LiteAgentOutput
from crewlite.errors import LLMError, LLMRejected, LLMUnavailable, MaxIterations
from crewlite.events import BaseEvent
from tests import children

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # litellm's, about replies of odd shape

TABLE = [*STATUSES, *CONNECTIONS, *BODIES, *TOOLS, *STREAMS, *ANTHROPIC, *GEMINI]


@dataclass
class Outcome:
    """What came of a row."""

    said: LiteAgentOutput | None
    error: Exception | None
    later: str | None
    """What the run answered when it was kicked off again, after a failure."""
    tried: str
    requests: list[Request]
    seconds: float
    told: str
    """Everything that anybody could see of it: events, files, the error."""


def outcome_of(made: Row, where: Path) -> Outcome:
    """Play a row: a run of an agent, and another life of it if it failed."""
    heard = list[str]()
    config = CheckpointConfig(location=str(where), on_events=True)
    said, failure, later = None, None, None
    with Server(*made.script) as server:
        base_url = server.base_url if made.model.startswith("openai/") else server.address
        headers = {"X-Proxy": PROXY_KEY}
        llm = LLM(made.model, base_url=base_url, api_key=KEY, extra_headers=headers, **made.settings)
        more = {"tools": [high_water], "checkpoint": config, "respect_context_window": False}
        agent = Agent(role="Pilot", goal="answer", llm=llm, **more)
        with event_bus.on(BaseEvent, lambda source, event: heard.append(repr(event))):
            clock = time.monotonic()
            try:
                said = agent.kickoff("When is high water?", run_id="r")
            except Exception as error:
                failure = error
            seconds, requests = time.monotonic() - clock, list(server.requests)
        with History(str(where)) as history:
            tried = " ".join(attempt.error_type for attempt in history.run("r").attempts if attempt.kind == "llm")
        if isinstance(failure, LLMError) and len(requests) == len(made.script):
            server.script.append(made.ok)
            with contextlib.suppress(Exception):
                later = agent.kickoff(run_id="r").raw
    seen = [*heard, *(path.read_bytes().decode("latin-1") for path in where.rglob("*") if path.is_file())]
    if failure:
        seen += [repr(failure.args), repr(vars(failure)), "".join(traceback.format_exception(failure))]
        seen += [repr(failure.__cause__), repr(failure.__context__)]
    return Outcome(said, failure, later, tried, requests, seconds, "\n".join(seen))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, clients):
    """The whole table, many rows at once: what takes time is waiting. The rows with a limit are played after the others,
    whose work would make even an answer at once too late."""
    played = dict[str, Outcome]()
    for timed in (False, True):
        rows = [made for made in TABLE if bool(made.settings.keys() & {"timeout", "idle_timeout"}) is timed]
        with ThreadPoolExecutor(16) as pool:
            ends = pool.map(outcome_of, rows, [tmp_path_factory.mktemp("row") for _ in rows])
            played |= zip((made.name for made in rows), ends, strict=True)
    return played


@pytest.mark.parametrize("made", TABLE, ids=lambda made: made.name)
def test_what_a_server_does_wrong_ends_as_the_table_says(made, outcomes):
    outcome = outcomes[made.name]
    assert (outcome.said and outcome.said.raw, type(outcome.error)) == (made.says, made.raises or type(None)), (
        outcome.error
    )
    assert outcome.tried.split() == made.tried.split()
    assert len(outcome.requests) == len(made.script)
    assert {name: getattr(outcome.error, name) for name in made.facts} == made.facts
    assert made.words in str(outcome.error or "")
    assert outcome.error is None or len(str(outcome.error)) < 800
    assert not [secret for secret in SECRETS if secret in outcome.told]
    if made.observed:
        assert made.observed in observed(outcome.requests[1])
    if made.tokens is not None:
        assert outcome.said.token_usage.total_tokens == made.tokens
    if made.raises and made.raises is not MaxIterations:
        assert outcome.later == "hello", "a failed run goes on"
        assert outcome.error.__cause__ is outcome.error.__context__ is None


def observed(request: Request) -> str:
    """What the model is told: the texts of the conversation, as they are."""
    return json.dumps(request.body.get("messages") or request.body["contents"], ensure_ascii=False).replace("\\n", "\n")


def test_the_table_is_long_and_its_names_are_distinct():
    assert len({made.name for made in TABLE}) == len(TABLE) >= 40


def test_a_port_where_nobody_listens_is_tried_four_times():
    with nobody() as base_url:
        agent = Agent(role="Pilot", goal="answer", llm=LLM("openai/foo", base_url=base_url), checkpoint=True)
        with pytest.raises(LLMUnavailable, match=r"the connection to 127\.0\.0\.1:\d+ failed: Connection refused\."):
            agent.kickoff("Who?", run_id="r")
    with History(".checkpoints") as history:
        assert [attempt.kind for attempt in history.run("r").attempts] == ["llm"] * 4 + ["agent"]


def test_the_host_is_told_that_was_asked_also_if_the_environment_names_it(monkeypatch):
    with nobody() as address:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        agent = Agent(role="Pilot", goal="answer", llm=LLM("openai/foo", api_key="k", max_retries=0))
        with pytest.raises(LLMUnavailable, match=rf"the connection to {urlsplit(address).netloc} failed"):
            agent.kickoff("Who?")


ODD = ("a stream", "a stream that is reset", "usage in words", "content in parts", "arguments an object", "no choices")
ODD += ("401, the key in its message", "400, a header in its message", "silence in the body", "anthropic: reset")


def said_by(code, directory, also=""):
    """What a new process prints that runs this code, which may import this module."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = children.run(
        [sys.executable, "-c", code],
        cwd=directory,
        # litellm, if the code loads it first, would ask the network for prices
        env=os.environ | {"PYTHONPATH": path, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        also=also,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("level", ["WARNING", "DEBUG"])
def test_a_process_says_nothing_on_its_own_and_nothing_secret_at_all(tmp_path, level):
    code = (
        f"import logging, pathlib; logging.basicConfig(level={level!r}); from test_wire import *\n"
        "made = [made for made in TABLE if made.name in ODD]\n"
        "places = [pathlib.Path(str(number)) for number in range(len(made))]\n"
        "with ThreadPoolExecutor(len(made)) as pool: list(pool.map(outcome_of, made, places))\n"
        "assert len(made) == len(ODD)"
    )
    said = said_by(code, tmp_path)
    assert not [secret for secret in SECRETS if secret in said]
    assert said == "" or level == "DEBUG"


def test_if_the_program_loaded_litellm_first_there_is_one_request_and_no_secret_in_a_log_either(tmp_path):
    code = (
        "import logging; logging.basicConfig(level='DEBUG'); import litellm; from test_wire import *\n"
        "from server import RESET; from wire_of_others import CLAUDE\n"
        "with Server([RESET], CLAUDE) as server, contextlib.suppress(LLMUnavailable):\n"
        "    LLM('anthropic/x', base_url=server.address, api_key=KEY).call('Who?')\n"
        "assert len(server.requests) == 1\n"
        "with Server(OK) as server:\n"
        "    LLM('openai/x', base_url=server.base_url, api_key=KEY, extra_headers={'X-Proxy': PROXY_KEY}).call('Who?')"
    )
    said = said_by(code, tmp_path, also="litellm")
    assert not [secret for secret in SECRETS if secret in said]


def test_a_reply_that_was_cut_at_its_token_limit_is_warned_of_once(serve, caplog):
    server = serve(reply(chat("High wa", finish="length")), OK)
    llm = LLM("openai/foo", base_url=server.base_url)
    assert [llm.call("When?").text, llm.call("Who?").text] == ["High wa", "hello"]
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["The reply of openai/foo was cut at its token limit (max_tokens)"]


@pytest.mark.parametrize(("model", "sent"), [("openai/gpt-5", None), ("openai/foo", ["\nObservation:"])])
def test_where_to_stop_is_sent_only_to_models_that_take_it(serve, model, sent):
    server = serve(reply(chat("Final Answer: hello")))
    llm = LLM(model, base_url=server.base_url, tool_protocol="text")
    assert Agent(role="Pilot", goal="answer", llm=llm, tools=[high_water]).kickoff("Who?").raw == "hello"
    assert server.requests[0].body.get("stop") == sent


def test_a_stop_of_the_users_own_that_a_model_does_not_take_is_an_error():
    with pytest.raises(LLMRejected, match="stop"):
        LLM("openai/gpt-5", api_key="k", base_url="http://127.0.0.1:9", stop="x").call("Who?")
