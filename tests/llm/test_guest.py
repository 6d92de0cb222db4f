"""What litellm does with a request that crewlite gives it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from server import CLOSE, Server, chat, reply

from crewlite import LLM, Agent
from crewlite.llm import library
from tests import children

LOST = [b"no answer\r\n\r\n", CLOSE]


@pytest.mark.parametrize("without_aiohttp", [True, False])
def test_a_request_whose_connection_is_lost_is_not_sent_again(serve, monkeypatch, without_aiohttp):
    """A request that was sent may be paid, so a second one would be paid twice, and nobody would hear of it."""

    async def posted():
        monkeypatch.setattr(await library.litellm(), "disable_aiohttp_transport", without_aiohttp)
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler  # seconds, which only this test needs

        client = AsyncHTTPHandler()
        try:
            return (await client.post(f"{server.address}/x", json={})).status_code
        except Exception as error:  # of whichever library it is
            return type(error).__name__
        finally:
            await client.close()

    server = serve(LOST, reply({}))
    assert asyncio.run(posted()) != 200
    assert len(server.requests) == 1


def said_by(code, directory, also="", **environment):
    """What a new process prints that runs this code."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = children.run(
        [sys.executable, "-c", f"from crewlite import LLM; from server import *\n{code}"],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": path, "LITELLM_LOCAL_MODEL_COST_MAP": "True"} | environment,
        also=also,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("first", ["", "import litellm\n"], ids=["crewlite loads it", "the program loads it"])
def test_no_tokenizer_is_fetched_from_the_network(tmp_path, first):
    """litellm fetches one to count the tokens of a stream, and blocks the loop until it has it or gives up."""
    code = f"""{first}
with Server(stream(piece("hello"), piece(finish="stop"), COUNTED)) as server:
    print(LLM("openai/llama-3-8b", base_url=server.base_url, stream=True).call("Who?"))"""
    with Server(*[reply({}, 404)] * 20) as hub:
        said = said_by(code, tmp_path, HF_ENDPOINT=hub.address, HF_HOME=str(tmp_path))
        assert said.split()[-1] == "hello"
        assert hub.requests == []


def test_a_program_that_loaded_litellm_is_told_no_more_by_its_logs_than_before(tmp_path):
    code = """import litellm
with Server(reply(chat("hello"))) as server:
    LLM("openai/foo", base_url=server.base_url).call("Who?")"""
    assert "completion()" not in said_by(code, tmp_path, also="litellm")


def test_the_import_of_litellm_logs_nothing_where_the_program_logs_whatever_there_is(tmp_path):
    """litellm has a handler of its own, which prints what its loggers are not kept from."""
    code = """import logging
logging.basicConfig(level=logging.DEBUG, filename="program.log")
with Server(reply(chat("hello"))) as server:
    print(LLM("openai/foo", base_url=server.base_url).call("Who?"))"""
    assert said_by(code, tmp_path) == "hello\n"
    assert "LiteLLM" not in (tmp_path / "program.log").read_text()


AT_THE_END = """
import atexit, litellm, threading, time
litellm.suppress_debug_info = True
litellm.completion_cost  # litellm registers what it does at the end of the process, which is later than ours
@atexit.register
def tell():
    kept = litellm.in_memory_llm_clients_cache.cache_dict.values()
    print([one.is_closed() for one in kept if isinstance(one, litellm.AsyncOpenAI)])
server = Server(reply(chat("hello")), HANG).__enter__()
llm = LLM("openai/foo", base_url=server.base_url)
llm.call("Who?")
"""
AT_WORK = """
threading.Thread(target=llm.call, args=["Who?"], daemon=True).start()
while len(server.requests) < 2:
    time.sleep(0.01)
"""


@pytest.mark.parametrize(("then", "closed"), [("", "[True]\n"), (AT_WORK, "[False]\n")], ids=["idle", "at work"])
def test_connections_are_closed_at_the_end_on_the_loop_that_opened_them_unless_a_call_is_at_work(
    tmp_path, then, closed
):
    """litellm closes them on another loop, of which Python 3.14 complains. A call at work would record a failure."""
    assert said_by(AT_THE_END + then, tmp_path).startswith(closed)


FORKING = """import os, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12 and later, about forks beside threads
server = Server(reply(chat("hello")), [1.0, *reply(chat("still here"))], reply(chat("hello"))).__enter__()
llm = LLM("openai/foo", base_url=server.base_url)
llm.call("Who?")
answers = []
asking = threading.Thread(target=lambda: answers.append(llm.call("Who?")), daemon=True)
asking.start()
while len(server.requests) < 2:
    time.sleep(0.01)
if not (child := os.fork()):
    CHILD
    sys.exit()
os.waitpid(child, 0)
asking.join(30)
print(answers)
"""


@children.posix
@pytest.mark.parametrize("does", ["pass", "llm.call('Who?')"], ids=["nothing", "a call of its own"])
def test_a_forked_child_that_ends_leaves_alone_the_connections_of_its_parent(tmp_path, does):
    """They share them: what litellm closes at the end of the child, the parent's call would wait for in vain."""
    assert said_by(FORKING.replace("CHILD", does), tmp_path) == "['still here']\n"


BELOW_ZERO = {"prompt_tokens": -7, "completion_tokens": -5, "total_tokens": -12}


@pytest.mark.parametrize(
    ("model", "usage"),
    [("fireworks_ai/foo", True), ("openai/gpt-4o", False), ("openai/gpt-4o", BELOW_ZERO)],
    ids=["a model that is not listed", "no usage", "usage below zero"],
)
def test_a_cost_that_is_not_known_is_none_and_never_zero(serve, model, usage):
    """litellm says 0 for any model of Fireworks that it does not list, and for a response without usage."""
    assert cost_of(LLM(model, base_url=serve(reply(chat(usage=usage))).base_url)) is None


def test_the_cost_of_a_model_that_is_listed_as_free_is_zero(serve, monkeypatch):
    from litellm import model_cost  # seconds, which only this test needs

    free = {"input_cost_per_token": 0, "output_cost_per_token": 0}
    monkeypatch.setitem(model_cost, "openai/free", {"litellm_provider": "openai", "mode": "chat", **free})
    assert cost_of(LLM("openai/free", base_url=serve(reply(chat())).base_url)) == 0
    assert cost_of(LLM("openai/gpt-4o", base_url=serve(reply(chat())).base_url)) > 0


def cost_of(llm):
    return Agent(role="Pilot", goal="answer", llm=llm).kickoff("Who?").token_usage.cost


@pytest.mark.parametrize("name", ["openai", "litellm"])
@pytest.mark.parametrize("kickoff", ["agent.kickoff('x')", "asyncio.run(agent.akickoff('x'))", "agent.llm.call('x')"])
def test_a_program_named_as_what_litellm_imports_is_told_so(tmp_path, name, kickoff):
    """litellm imports the program, which would wait for litellm for ever."""
    program = tmp_path / f"{name}.py"
    program.write_text(
        "import asyncio\n"
        "from crewlite import Agent, LLM\n"
        "llm = LLM('openai/gpt-4o', base_url='http://127.0.0.1:9', api_key='x')\n"
        "agent = Agent(role='R', goal='g', backstory='b', llm=llm)\n"
        f"{kickoff}\n"
    )
    done = children.run([sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True)
    wanted = f"ConfigError: litellm imports a module '{name}', and Python finds this program instead: give {program} "
    assert done.returncode == 1
    assert f"{wanted}another name" in done.stderr


MAIN = """
import sys
from crewlite import Agent, LLM
llm = LLM('openai/gpt-4o', base_url='http://127.0.0.1:9', api_key='x')
agent = Agent(role='R', goal='g', backstory='b', llm=llm)
if __name__ == "__main__":
    agent.kickoff('x')
"""


@pytest.mark.parametrize("name", ["openai", "litellm", "httpx"])
@pytest.mark.parametrize("how", ["the program", "beside the program", "at the command line"])
def test_a_file_that_hides_what_litellm_imports_is_named(tmp_path, name, how):
    """The import of litellm only misses something in it, as the program kicks off under `if __name__ == "__main__"`."""
    hiding, program = tmp_path / f"{name}.py", tmp_path / ("main.py" if how == "beside the program" else f"{name}.py")
    hiding.write_text("TIDES = 7\n")
    program.write_text(MAIN)
    command = [sys.executable, str(program)]
    if how == "at the command line":
        command = [sys.executable, "-P", "-m", "crewlite", "run", f"{program}:agent", "--message", "x"]
    done = children.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    wanted = f"litellm imports a module '{name}', and Python finds {hiding} instead: give that file another name"
    assert wanted in done.stderr.replace("this program instead: give ", f"{hiding} instead: give ")


def test_an_error_of_the_import_of_litellm_that_no_file_of_the_program_causes_stays_as_it_is(tmp_path):
    (tmp_path / "main.py").write_text(f"import httpx\ndel httpx.Headers\n{MAIN}")
    done = children.run([sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True)
    assert "Error: " in done.stderr
    assert "'Headers'" in done.stderr
    assert "another name" not in done.stderr
