"""Flows, questions to people and edits from the terminal alone: nothing is done twice, and there is always a way on."""

import contextlib
import json
import os
import signal
import sys
import time

import pytest

from crewlite import History, event_bus
from crewlite.events import FlowPlotEvent
from tests import children

CREWLITE = [sys.executable, "-c", "from crewlite.cli.main import main; main(prog_name='crewlite')"]
posix = pytest.mark.skipif(os.name == "nt", reason="needs signals or a pseudo-terminal")

FLOWS = '''
import os, time
from pathlib import Path
from crews import Own, note, tasks
from crewlite import Agent, Crew, Task, tool, BaseLLM, LLMReply, ToolCall
from crewlite.flow import Flow, ask, flow, listen, start, step
from crewlite.state import InMemoryProvider
from crewlite import CheckpointConfig
from pydantic import BaseModel

class Report(BaseModel):
    title: str
    pages: int

@step(type="fetch")
def fetch(n: int) -> int:
    note(f"fetch {n}")
    if os.path.exists("hang") and Path("hang").read_text() == str(n):
        time.sleep(60)
    return n * 10

@step
def add(a, b):
    note(f"add {a} {b}")
    return a + b

@flow
def sums(one: int, other: int = 2) -> int:
    return add(fetch(one), fetch(other))

@flow
def publish(text: str, pages: int = 1) -> Report | None:
    n = fetch(pages)
    who = ask("Who are\\nyou?", name="who")
    if ask(f"Publish {text!r}?", bool, name="publish"):
        return Report(title=f"{text} by {who}", pages=add(n, 1))

@flow
def says(what):
    return what

@flow(checkpoint=CheckpointConfig(provider=InMemoryProvider()))
def forgets():
    return ask("Well?", name="well")

@flow(checkpoint=CheckpointConfig(location="own", provider=Own()))
def elsewhere():
    return ask("Well?", name="well")

@flow
def hires():
    return crew.kickoff({"topic": "tides"}).raw

class Paying(BaseLLM):
    model = "paying"
    async def acall(self, messages, **context):
        note("asked")
        if messages[-1]["role"] == "tool":
            return LLMReply(text=messages[-1]["content"])
        return LLMReply(tool_calls=(ToolCall("pay", {"amount": "5"}),))

@tool(requires_approval=True)
def pay(amount: str) -> str:
    """Pay."""
    note("paid " + amount)
    return "paid " + amount

cashier = Agent(role="Cashier", goal="pay", llm=Paying(), tools=[pay])
bill = Crew(name="bill", tasks=[Task(name="pay", description="Pay", expected_output="text", agent=cashier)])
frugal = bill.model_copy(update={"name": "frugal", "max_iter": 1})
first, second, third = tasks("one", "two", "three")
second = second.model_copy(update={"context": (first,)})
third = third.model_copy(update={"context": ()})
crew = Crew(name="report", tasks=[first, second, third])

class Depth(BaseModel):
    fathoms: int = 1

class Sound(Flow[Depth]):
    @start()
    def lower(self):
        note("lower")
        return self.state.fathoms * 6

    @listen(lower)
    def read(self, feet):
        note("read")
        if os.path.exists("shoal"):
            raise ConnectionError("aground")
        return Report(title="feet", pages=feet)
'''


@pytest.fixture
def flows(shop):
    (shop.path / "flows.py").write_text(FLOWS, encoding="utf-8")
    return shop


def answered(flows, ref, *words):
    done = flows.do("checkpoint", "answer", ref, *words)
    assert done.returncode == 0, done.stderr
    return done


# --- running


def test_a_start_method_is_given_an_input_as_the_type_that_its_argument_has(shop):
    code = """from crewlite import Flow, start

class Count(Flow):
    @start()
    def begin(self, limit: int, days: list[str] | None = None, name="x"):
        return [limit, days, name]
"""
    (shop.path / "counting.py").write_text(code, encoding="utf-8")
    done = shop.do("run", "counting:Count", "--input", "limit=3", "--input", 'days:=["mon"]', "--input", "name=4")
    assert done.stdout.split() == ["[3,", '["mon"],', '"4"]'], done.stderr
    refused = shop.do("run", "counting:Count", "--input", "limit=three")
    assert (refused.returncode, "limit" in refused.stderr) == (2, True)


def test_a_flow_takes_its_parameters_and_prints_what_it_returns(flows):
    done = flows.do("run", "flows:sums", "--input", "one=1", "--run-id", "s")
    assert (done.returncode, done.stdout) == (0, "30\n")
    told = [line.strip() for line in done.stderr.splitlines() if "checkpoint" not in line]
    assert told[:3] == ["▸ flow sums begins (run s)", "▸ step fetch (fetch)", "✓ step fetch (fetch)"]
    assert told[-3:] == ["▸ step add", "✓ step add", "✓ flow sums has finished"]
    assert flows.calls() == ["fetch 1", "fetch 2", "add 10 20"]


def test_a_class_of_flows_is_run_and_gone_on_with(flows):
    (flows.path / "shoal").write_text("")
    done = flows.do("run", "flows:Sound", "--input", "fathoms=3", "--run-id", "deep")
    assert (done.returncode, "✗ method read failed: ConnectionError: aground" in done.stderr) == (1, True), done.stderr
    assert "▸ method read, by lower" in done.stderr
    asked = ("checkpoint", "fork", "deep", "--crew", "flows:Sound", "--preview", "--rerun", "method:read@lower")
    assert "--preview: method:read@lower has not finished, so only a run can make it again" in flows.do(*asked).stderr
    (flows.path / "shoal").unlink()
    for _ in range(2):
        done = flows.do("checkpoint", "resume", "deep", "--crew", "flows:Sound")
        assert (done.returncode, done.stdout) == (0, '{"title": "feet", "pages": 18}\n'), done.stderr
    assert flows.calls() == ["lower", "read", "read"]
    stored = flows.do("checkpoint", "resume", "deep")
    assert (stored.returncode, json.loads(stored.stdout)) == (0, {"title": "feet", "pages": 18}), stored.stderr
    done = flows.do("run", "flows:Sound", "--input", "fathoms=many")
    assert (done.returncode, "--input fathoms: Input should be a valid integer" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("what=as it is", "as it is\n"),
        ('what:="text"', "text\n"),
        ("what:=null", ""),
        ('what:={"a": [1, "\\u00e9"]}', '{"a": [1, "é"]}\n'),
        ("what:=7", "7\n"),
    ],
)
def test_text_is_printed_as_it_is_data_as_json_and_nothing_for_none(flows, given, printed):
    done = flows.ask("run", "flows:says", "--input", given)
    assert (done.returncode, done.stdout) == (0, printed)


def test_the_last_line_of_json_has_the_value(flows):
    last = flows.lines("run", "flows:says", "--input", "what:=[1, null]", "--run-id", "r")[-1]
    assert (last["type"], last["run_id"], last["value"], last["durability"]) == ("result", "r", [1, None], "sync")
    assert last["usage"]["requests"] == 0
    assert flows.lines("checkpoint", "resume", "r")[-1]["value"] == [1, None]


def test_what_a_crew_in_a_flow_paid_is_in_the_result_and_it_is_told_once(flows):
    last = flows.lines("run", "flows:hires")[-1]
    assert (last["value"], last["usage"]["requests"]) == ("[Do three on tides]", 3)
    assert flows.do("run", "flows:hires").stderr.count("▸ task one: Clerk begins") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["flows:sums"], "flow 'sums': missing 'one'. Pass it: --input NAME=TEXT"),
        (["flows:sums", "--input", "two=2"], "unexpected keyword argument 'two'; it takes (one: int, other: int = 2)"),
        (["flows:sums", "--input", "one=many"], "--input one: Input should be a valid integer"),
        (["flows:sums", "--input", "one=1", "--model", "offline"], "The code of flow 'sums' chooses its own models"),
        (["flows:sums", "--message", "Well?"], "this is a flow; pass inputs: --input NAME=TEXT"),
        (["flows:nothing"], "sums"),
    ],
)
def test_what_a_flow_does_not_take_is_told(flows, words, said):
    done = flows.ask("run", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (flows.path / ".checkpoints").exists()


# --- going on


@posix
def test_a_killed_flow_is_resumed_and_no_step_is_made_twice(flows):
    flows.hang("2")
    process = flows.begin("run", "flows:sums", "--input", "one=1", "--run-id", "s")
    flows.until("fetch 2")
    process.kill()
    process.communicate()
    flows.heal()
    done = flows.do("checkpoint", "resume")
    assert done.returncode == 1
    assert (
        "s/main (flow sums) is a run of a flow, and no record holds its function or class. Name its place: --crew "
        "MODULE:sums" in done.stderr
    )
    assert flows.ask("checkpoint", "resume", "--crew", "flows:sums", "--model", "offline").returncode == 2
    assert flows.ask("checkpoint", "resume", "--crew", "crews:crew").returncode == 1
    assert flows.calls() == ["fetch 1", "fetch 2"]
    done = flows.do("checkpoint", "resume", "--crew", "flows:sums")
    assert (done.returncode, done.stdout) == (0, "30\n")
    assert flows.calls() == ["fetch 1", "fetch 2", "fetch 2", "add 10 20"]
    done = flows.do("checkpoint", "resume", "s")
    assert (done.returncode, done.stdout) == (0, "30\n")
    assert len(flows.calls()) == 4


@posix
def test_an_interrupted_flow_says_how_to_go_on(flows):
    flows.hang("2")
    process = flows.begin("run", "flows:sums", "--input", "one=1", "--run-id", "s")
    flows.until("fetch 2")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert f"Interrupted. To go on, in {flows.path}: crewlite checkpoint resume s --crew flows:sums" in said


def test_the_project_says_where_the_flow_is(flows):
    flows.ask("run", "flows:publish", "--input", "text=x", "--run-id", "p")
    (flows.path / "pyproject.toml").write_text('[tool.crewlite]\ncrew = "flows:sums"\n')
    done = flows.ask("checkpoint", "resume", "p")
    assert done.returncode == 1
    assert "pyproject.toml names flow sums (flows:sums), and this run is of flow publish" in done.stderr
    (flows.path / "pyproject.toml").write_text('[tool.crewlite]\ncrew = "flows:publish"\n')
    done = flows.ask("checkpoint", "resume", "p", "--answer", "human:who=Ada", "--answer", "human:publish=no")
    assert (done.returncode, done.stdout) == (0, "")
    assert flows.calls() == ["fetch 1"]


# --- people


def test_a_run_that_waits_is_answered_and_resumed_to_its_end_and_nothing_is_done_twice(flows):
    done = flows.do("run", "flows:publish", "--input", "text=tides", "--run-id", "p")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-7:] == [
        "p waits for an answer.",
        "human:who: Who are",
        "  you?",
        "  wanted: any text",
        "  crewlite checkpoint answer p human:who VALUE",
        "To go on then: crewlite checkpoint resume p --crew flows:publish",
        "Or both at once: crewlite checkpoint resume p --answer human:who=VALUE --crew flows:publish",
    ]
    shown = answered(flows, "p", "human:who", "Ada").stdout
    assert "✓ human:who of p/main is answered" in shown
    assert "crewlite checkpoint resume p --crew MODULE:publish" in shown
    assert "human:who of p/main has this answer already" in answered(flows, "p", "human:who", "Ada").stdout
    second = flows.do("checkpoint", "answer", "p", "human:who", "Eve")
    assert second.returncode == 1
    assert "it has an answer already" in second.stderr
    assert second.stderr.rstrip().endswith("crewlite checkpoint answer p human:who VALUE --replace")
    assert 'answered  human:who: "Ada", not used yet' in flows.do("checkpoint", "show", "p").stdout
    answered(flows, "p", "human:who", "Eve", "--replace")
    answered(flows, "p", "Ada", "--replace")
    refused = flows.do("checkpoint", "answer", "p", "Eve")
    assert "p/main waits for no answer; to change the answer to human:who, add --replace" in refused.stderr
    assert 'human:who was answered with "Ada"' in refused.stderr

    done = flows.do("checkpoint", "resume", "p", "--crew", "flows:publish")
    assert done.returncode == 3
    assert "wanted: yes or no" in done.stderr
    refused = flows.do("checkpoint", "answer", "p", "yes", "--replace")
    assert "p/main has no answer that can be replaced" in refused.stderr
    refused = flows.do("checkpoint", "answer", "p", "human:publish", "perhaps")
    assert refused.returncode == 1
    assert "'perhaps' is not of type 'boolean'; wanted yes or no" in refused.stderr
    refused = flows.do("checkpoint", "resume", "p", "--crew", "flows:publish", "--answer", "human:publish=perhaps")
    assert refused.returncode == 1
    assert "The question still waits: crewlite checkpoint resume p --answer human:publish=VALUE" in refused.stderr
    answered(flows, "p", "human:publish", "yes")

    done = flows.do("checkpoint", "resume", "p", "--crew", "flows:publish")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"title": "tides by Ada", "pages": 11})
    assert flows.calls() == ["fetch 1", "add 10 1"]
    refused = flows.do("checkpoint", "answer", "p", "yes")
    assert "p/main waits for no answer" in refused.stderr
    assert 'human:who was answered with "Ada"' in refused.stderr
    assert "human:publish was answered with true" in refused.stderr


def test_a_program_is_told_what_the_run_waits_for(flows):
    done = flows.ask("run", "flows:publish", "--input", "text=x", "--run-id", "p", "--json")
    last = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, last["type"], last["run_id"]) == (3, "waiting", "p")
    assert last["waiting"] == {"human:who": "Who are\nyou?"}
    told = json.loads(flows.ask("checkpoint", "answer", "p", "human:who", "Ada", "--json").stdout)
    assert (told["status"], told["waiting"], told["address"]) == ("unfinished", [], "human:who")
    assert flows.ask("checkpoint", "answer", "p", "human:whom", "Ada").returncode == 1


def test_an_answer_may_be_given_with_the_line_that_goes_on(flows):
    words = ["run", "flows:publish", "--input", "text=x", "--run-id", "p"]
    done = flows.ask(*words, "--answer", "human:who=7", "--answer", "human:publish=y")
    assert (done.returncode, json.loads(done.stdout)["title"]) == (0, "x by 7")


def test_a_crew_that_asks_for_approval_waits_and_goes_on(flows):
    done = flows.do("run", "flows:bill", "--run-id", "b")
    assert done.returncode == 3
    assert 'task:pay/human:pay: Cashier wants to call pay with {"amount": "5"}. Allow it?' in done.stderr
    assert flows.calls() == ["asked"]
    answered(flows, "b", "task:pay/human:pay", "yes")
    done = flows.do("checkpoint", "resume", "b", "--crew", "flows:bill")
    assert (done.returncode, done.stdout) == (0, "paid 5\n")
    assert flows.calls() == ["asked", "paid 5", "asked"]


def test_a_call_is_answered_in_its_place_or_approved_by_nobody(flows):
    assert flows.do("run", "flows:bill", "--run-id", "b").returncode == 3
    answered(flows, "b", "task:pay/human:pay", '{"answer": "paid in cash"}')
    assert flows.do("checkpoint", "resume", "b", "--crew", "flows:bill").stdout == "paid in cash\n"
    done = flows.do("run", "flows:bill", "--run-id", "c", "--auto-approve")
    assert (done.returncode, done.stdout) == (0, "paid 5\n")
    assert flows.calls().count("paid 5") == 1


def test_a_run_that_has_used_up_its_budget_waits_for_more(flows):
    done = flows.do("run", "flows:frugal", "--run-id", "f", "--auto-approve")
    assert done.returncode == 3, done.stderr
    told = " ".join(done.stderr.split())
    assert "crew 'frugal' has used 1 replies of models, and its max_iter is 1. Raise max_iter in the" in told
    assert f"To go on, in {flows.path}: crewlite checkpoint resume f" in told


def test_a_record_in_memory_cannot_wait(flows):
    done = flows.ask("run", "flows:forgets")
    assert done.returncode == 3
    assert "cannot be resumed with one. The run cannot be resumed: the flow keeps its record in memory." in done.stderr


def test_a_record_that_only_the_flow_can_find_is_answered_by_running_it(flows):
    done = flows.ask("run", "flows:elsewhere", "--run-id", "e")
    assert done.returncode == 3
    line = "crewlite run flows:elsewhere --run-id e --answer human:well=VALUE"
    assert f"human:well: Well?\nTo answer and go on: {line}\n" in done.stderr
    assert flows.ask(*line.replace("VALUE", "yes").split()[1:]).stdout == "yes\n"


def test_who_looks_around_sees_what_a_run_waits_for(flows):
    flows.ask("run", "flows:publish", "--input", "text=x", "--run-id", "p")
    assert "◇ main  waiting" in flows.ask("checkpoint", "tree").stdout
    assert "~ main  waiting" in flows.do("checkpoint", "tree", PYTHONIOENCODING="ascii").stdout
    assert "  waiting  " in flows.ask("checkpoint", "list", "--runs").stdout
    shown = flows.ask("checkpoint", "show", "p").stdout
    assert "step:fetch  step  fetch  finished" in shown
    for text in (shown, flows.ask("checkpoint", "info", "p").stdout):
        assert "human:who: Who are\n    you?\n" in text
        assert "    crewlite checkpoint answer p human:who VALUE\n" in text
        assert "crewlite checkpoint resume p --crew MODULE:publish" in text
    assert "  type   fetch\n" in flows.ask("checkpoint", "show", "p", "--step", "step:fetch").stdout
    for words in (["show", "p"], ["info", "p"], ["list", "--runs"], ["tree"]):
        told = json.loads(flows.ask("checkpoint", *words, "--json").stdout)
        run = told["runs"][0] if "runs" in told else told
        assert run["status"] == "waiting"
        assert [(one["address"], one["schema"]) for one in run["waiting"]] == [("human:who", None)]
    assert json.loads(flows.ask("checkpoint", "show", "p", "--json").stdout)["steps"][0]["type"] == "fetch"


def test_questions_are_completed(flows):
    flows.ask("run", "flows:publish", "--input", "text=x", "--run-id", "p")
    words = {"COMP_WORDS": "crewlite checkpoint answer p hum", "COMP_CWORD": "4"}
    done = flows.do(_CREWLITE_COMPLETE="bash_complete", **words)
    assert done.stdout == "plain,human:who\n"


@posix
def test_at_a_terminal_the_question_is_put_and_the_foot_stands_back(flows):
    process, leader = at_terminal(flows)
    told = until(leader, b"you? ")
    time.sleep(0.6)  # some looks of the status lines at their clock
    os.write(leader, b"Ada\n")
    told += until(leader, b"Publish 'x'? ")
    assert told.count(b"Who are") == 1, "the question is told once"
    waited = told.partition(b"you? ")[2].partition(b"Ada\r\n")[0]
    assert waited == b"", "nothing is drawn while the line of the question is open"
    os.write(leader, b"perhaps\n")
    told = until(leader, b"Publish 'x'? ")
    assert b"'perhaps' is not of type 'boolean'; wanted yes or no: answer again" in told
    os.write(leader, b"y\n")
    out, _ = process.communicate()
    os.close(leader)
    assert (process.returncode, json.loads(out)["title"]) == (0, "x by Ada")


@posix
def test_ctrl_c_at_a_question_leaves_a_run_that_waits(flows):
    process, leader = at_terminal(flows)
    until(leader, b"you? ")
    os.write(leader, b"\x03")
    told = until(leader, b"To go on: crewlite checkpoint resume p --crew flows:publish")
    assert b"Traceback" not in told
    process.communicate()
    os.close(leader)
    assert process.returncode == 130
    with History(flows.path / ".checkpoints") as history:
        assert [one.address for one in history.run("p").waiting] == ["human:who"]


def at_terminal(flows):
    import fcntl
    import pty
    import termios

    leader, follower = pty.openpty()
    process = children.Child(
        [*CREWLITE, "run", "flows:publish", "--input", "text=x", "--run-id", "p"],
        cwd=flows.path,
        env=flows.environment(COLUMNS="100", LINES="24", TERM="xterm"),
        stdin=follower,
        stdout=children.PIPE,
        stderr=follower,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(follower)
    return process, leader


def until(leader, words):
    told = b""
    with contextlib.suppress(OSError):
        while words not in told:
            told += os.read(leader, 10_000)
    assert words in told
    return told


# --- forks


@pytest.mark.parametrize(
    ("words", "printed", "made"),
    [
        (["--edit", "step:fetch=7"], "27", ["add 7 20"]),
        (["--edit", "step:fetch:=7"], "27", ["add 7 20"]),
        (["--edit", "step:fetch:=@seven.json"], "27", ["add 7 20"]),
        (["--edit", "step:add=by hand"], "by hand", []),
        (["--rerun", "step:fetch#2"], "30", ["fetch 2"]),
        (["--edit", "step:fetch:=7", "--rerun", "step:fetch#2"], "27", ["fetch 2", "add 7 20"]),
        (["--input", "one=4"], "60", ["fetch 4", "add 40 20"]),
    ],
)
def test_a_fork_of_a_flow_runs_what_builds_on_what_was_changed(flows, words, printed, made):
    (flows.path / "seven.json").write_text("7")
    flows.ask("run", "flows:sums", "--input", "one=1", "--run-id", "s")
    (flows.path / "calls.txt").unlink()
    done = flows.do("checkpoint", "fork", "s", "--crew", "flows:sums", "--branch", "b", *words)
    assert (done.returncode, done.stdout) == (0, f"{printed}\n")
    assert flows.calls() == made
    assert flows.ask("checkpoint", "resume", "s/main").stdout == "30\n"


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (["--edit", "task:one=by hand"], ["two"]),
        (["--edit", "task:one=@answer.txt"], ["two"]),
        (["--rerun", "task:three"], ["three"]),
        (["--edit", "task:two=by hand"], []),
    ],
)
def test_a_fork_of_a_crew_runs_what_builds_on_what_was_changed(flows, words, made):
    (flows.path / "answer.txt").write_text("by hand")
    flows.ask("run", "flows:crew", "--input", "topic=tides", "--run-id", "r")
    assert flows.paid() == ["one", "two", "three"]
    done = flows.do("checkpoint", "fork", "r", "--crew", "flows:crew", *words)
    assert (done.returncode, done.stdout) == (0, "[Do three on tides]\n")
    assert flows.paid() == made


def test_a_fork_that_is_not_run_keeps_its_edits(flows):
    flows.ask("run", "flows:sums", "--input", "one=1", "--run-id", "s")
    (flows.path / "calls.txt").unlink()
    done = flows.ask("checkpoint", "fork", "s", "--branch", "b", "--edit", "step:fetch:=7", "--no-run")
    assert (done.returncode, done.stdout) == (0, "s/b\n")
    assert "Made s/b. To run it: crewlite checkpoint resume s/b --crew MODULE:sums" in done.stderr
    assert flows.ask("checkpoint", "resume", "s/b", "--crew", "flows:sums").stdout == "27\n"
    assert flows.calls() == ["add 7 20"]
    shown = flows.ask("checkpoint", "show", "s/b", "--step", "step:fetch").stdout
    assert shown.startswith("step:fetch  edited")
    whole = json.loads(flows.ask("checkpoint", "show", "s/b", "--json").stdout)
    assert [step["address"] for step in whole["steps"] if step["edited"]] == ["step:fetch"]


def test_inputs_of_a_fork_become_what_the_flow_says_they_are_also_if_it_is_not_run(flows):
    flows.ask("run", "flows:sums", "--input", "one=1", "--run-id", "s")
    (flows.path / "calls.txt").unlink()
    words = ["checkpoint", "fork", "s", "--branch", "b", "--input", "other=3", "--no-run"]
    assert flows.ask(*words).returncode == 1, "nobody knows what the flow takes"
    assert flows.ask(*words, "--crew", "flows:sums").stdout == "s/b\n"
    assert flows.ask("checkpoint", "resume", "s/b", "--crew", "flows:sums").stdout == "40\n"
    assert flows.calls() == ["fetch 3", "add 10 30"]
    shown = flows.ask("checkpoint", "fork", "s", "--crew", "flows:sums", "--preview", "--input", "other=4").stdout
    assert shown.splitlines()[1:] == [
        "runs     step:fetch#2  asks another question than the recorded one",
        "may run  step:add      is given what step:fetch#2 returns",
    ]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--edit", "step:fetsh:=7"], 1, "step:fetch"),
        (["--rerun", "step:nothing"], 1, "names no finished step"),
        (["--edit", "step:fetch"], 2, "wanted ADDRESS=TEXT or ADDRESS:=JSON"),
        (["--edit", "step:fetch=@nowhere"], 2, "cannot be read"),
        (["--edit", "step:fetch=1", "--edit", "step:fetch:=2"], 2, "--edit names step:fetch twice; wanted one value"),
        (["--input", "one=1", "--input", "one=2"], 2, "--input names one twice; wanted one value for each name"),
        (["--answer", "human:x=a", "--answer", "human:x=b"], 2, "--answer names human:x twice"),
        (["--model", "offline"], 2, "a model can be set for a crew or an agent only"),
        (["--input", "three=3"], 2, "unexpected keyword argument 'three'"),
    ],
)
def test_a_change_that_cannot_be_is_told_and_nothing_is_forked(flows, words, code, said):
    flows.ask("run", "flows:sums", "--input", "one=1", "--run-id", "s")
    done = flows.ask("checkpoint", "fork", "s", "--crew", "flows:sums", *words)
    assert done.returncode == code
    assert said in done.stderr
    with History(flows.path / ".checkpoints") as history:
        assert [run.branch for run in history.runs()] == ["main"]


REPORTS = """
from pydantic import BaseModel
from crewlite.flow import flow, step

class Report(BaseModel):
    title: str
    pages: int

@step
def report():
    return Report(title="x", pages=1)

@flow
def reports():
    return report().pages
"""


def test_an_edit_of_fields_must_be_of_their_kinds_where_their_class_is_not_known(flows):
    (flows.path / "reports.py").write_text(REPORTS, encoding="utf-8")

    def fork(report, *words):
        """In a process that has the class of the report only if a word names the flow."""
        return flows.do("checkpoint", "fork", "s", "--edit", f"step:report:={json.dumps(report)}", "--no-run", *words)

    assert flows.ask("run", "reports:reports", "--run-id", "s").returncode == 0
    assert fork({"title": "y", "pages": 2.5}).returncode == 0, "a number is a number"
    unknown = fork({"title": "y", "pages": "many"})
    assert unknown.returncode == 1
    assert 'step:report, pages is "many"; wanted a number, like the recorded value; a program that' in unknown.stderr
    known = fork({"title": "y", "pages": "many"}, "--crew", "reports:reports")
    assert "wanted data that reports:Report takes (pages: Input should be a valid integer" in known.stderr
    assert fork({"title": "y", "pages": "2"}, "--crew", "reports:reports").returncode == 0


def test_the_address_may_be_left_out_where_one_question_waits_and_what_waits_is_told(flows):
    flows.ask("run", "flows:publish", "--input", "text=x", "--run-id", "p")
    for words in ((), ("human:who",)):
        missing = flows.ask("checkpoint", "answer", "p", *words)
        assert missing.returncode == 2
        assert "human:who: Who are" in missing.stderr
        assert "crewlite checkpoint answer p human:who VALUE" in missing.stderr
    assert "human:who of p/main is answered" in flows.ask("checkpoint", "answer", "p", "Ada").stdout
    nothing = flows.ask("checkpoint", "answer", "p", "Ada")
    assert (nothing.returncode, "waits for no answer" in nothing.stderr) == (2, True)


# --- stopping


@posix
def test_a_run_is_stopped_from_another_terminal_and_resumed(flows):
    flows.hang("2")
    child = flows.begin("run", "flows:sums", "--input", "one=1", "--run-id", "s")
    flows.until("fetch 2")
    done = flows.ask("checkpoint", "cancel", "s")
    assert done.stdout == "■ s/main is cancelled\n\nto go on  crewlite checkpoint resume s --crew MODULE:sums\n"
    stdout, stderr = child.communicate()
    assert (child.returncode, stdout) == (1, "")
    assert "Run 's' was cancelled" in stderr
    assert "crewlite checkpoint resume s --crew flows:sums" in stderr
    assert "■ s/main  cancelled" in flows.ask("checkpoint", "show", "s").stdout
    assert json.loads(flows.ask("checkpoint", "cancel", "s", "--json").stdout)["status"] == "cancelled"
    flows.heal()
    assert flows.do("checkpoint", "resume", "s", "--crew", "flows:sums").stdout == "30\n"
    assert flows.calls() == ["fetch 1", "fetch 2", "fetch 2", "add 10 20"]
    done = flows.ask("checkpoint", "cancel", "s")
    assert (done.returncode, done.stdout) == (1, "")
    assert "is finished already, so there is nothing to cancel" in done.stderr


# --- tries


def test_show_tells_when_each_try_of_a_step_began_and_ended(flows):
    (flows.path / "fail").write_text("one")
    flows.ask("run", "flows:hires", "--run-id", "h")
    flows.heal()
    assert flows.ask("run", "flows:hires", "--run-id", "h").returncode == 0
    for words in (["h@crew:report/task:one/llm#1"], ["h", "--step", "crew:report/task:one/llm#1"]):
        said = flows.ask("checkpoint", "show", *words).stdout.splitlines()
        assert said[0] == "crew:report/task:one/llm#1  finished"
        names = [line.split()[0] for line in said if line.startswith("  ")]
        assert names.count("began") == names.count("ended") == 2
        assert "    ValueError: no paper" in said
    step = json.loads(flows.ask("checkpoint", "show", "h@crew:report", "--json").stdout)["step"]
    (attempt,) = step["attempts"]
    moments = [attempt["started_at"], attempt["ended_at"], step["started_at"], step["ended_at"]]
    assert moments == sorted(moments)
    assert all(moment.endswith("+00:00") for moment in moments)
    assert attempt["usage"]["total_tokens"] == 0


def test_a_call_in_doubt_is_told_once_and_not_with_what_is_around_it(flows):
    (flows.path / "pays.py").write_text(
        "import os\nfrom crewlite.flow import flow, step\n"
        "@step(effect='once')\ndef pay():\n    os.path.exists('go') or os._exit(9)\n    return 'paid'\n"
        "@step\ndef around():\n    return pay()\n"
        "@flow\ndef pays():\n    return around()\n"
    )
    assert flows.do("run", "pays:pays", "--run-id", "p").returncode == 9
    for _ in range(2):
        said = flows.ask("checkpoint", "show", "p").stdout
        assert [line for line in said.splitlines() if "did not finish: check" in line] == [
            "in doubt  step:around/step:pay did not finish: check whether it took effect"
        ]
        assert flows.do("run", "pays:pays", "--run-id", "p").returncode == 3
    (flows.path / "go").touch()
    done = flows.do("run", "pays:pays", "--run-id", "p", "--rerun", "step:around/step:pay")
    assert done.stdout == "paid\n", done.stderr
    for words in (["show", "p"], ["info", "p"]):
        assert "in doubt" not in flows.ask("checkpoint", *words).stdout


def test_a_refused_edit_and_a_change_in_vain_are_told_with_another_fork_and_not_with_a_resume(flows):
    answers = ["--answer", "human:who=Ann", "--answer", "human:publish=yes"]
    flows.ask("run", "flows:publish", "--input", "text=x", "--run-id", "p", *answers)
    fork = ["checkpoint", "fork", "p", "--crew", "flows:publish"]
    refused = flows.ask(*fork, "--edit", "human:publish=perhaps")
    assert refused.returncode == 1
    assert "Nothing was forked. Fork again with an answer that fits: --edit human:publish=VALUE" in refused.stderr
    vain = flows.ask(*fork, "--branch", "no", "--edit", "human:publish=no", "--edit", "step:add=5")
    assert vain.returncode == 1
    assert "Fork again without that change" in vain.stderr
    assert "resume" not in refused.stderr + vain.stderr


PLOTTED = """
from crewlite import Flow, listen, start
from crewlite.flow import flow

class Plan(Flow):
    @start()
    def begin(self):
        return "begun"

    @listen(begin)
    def end(self):
        return "ended"

@flow
def plain():
    return 1
"""


def test_a_flow_and_its_run_are_drawn(shop):
    (shop.path / "plans.py").write_text(PLOTTED)
    drawn = shop.ask("plot", "plans.py:Plan", "-o", "graph.html")
    assert (drawn.returncode, drawn.stdout) == (0, f"{shop.path / 'graph.html'}\n")
    assert "begun" not in (shop.path / "graph.html").read_text()
    assert shop.ask("run", "plans.py:Plan", "--run-id", "one").returncode == 0
    with event_bus.scoped():
        told = []
        event_bus.on(FlowPlotEvent, lambda source, event: told.append((event.type, event.flow_name)))
        assert shop.ask("plot", "one", "--crew", "plans.py:Plan").stdout == f"{shop.path / 'crewlite_flow.html'}\n"
        assert event_bus.flush()
    assert told == [("flow_plot", "Plan")]
    assert "<pre>begun</pre>" in (shop.path / "crewlite_flow.html").read_text()
    assert shop.ask("plot", "plans:Plan", "--mermaid").stdout.startswith('flowchart TD\n    m0(["begin"])')
    (shop.path / "pyproject.toml").write_text('[tool.crewlite]\ncrew = "plans:Plan"\n')
    assert shop.ask("plot", "one", "-o", "again.html", "--location", ".checkpoints").returncode == 0
    assert shop.ask("plot", "--mermaid").returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 2, "no flow is named: wanted MODULE:FLOW"),
        (("one",), 2, "no flow is named"),
        (("plans:plain",), 2, "plans:plain is flow 'plain'; wanted a class of flows"),
        (("plans:Plan", "--crew", "plans:Plan"), 2, "plans:Plan names a flow, and so does --crew"),
        (("plans:Plan", "--mermaid", "-o", "x"), 2, "--mermaid prints the graph alone"),
        (("one", "--crew", "plans:Plan"), 1, "'./.checkpoints' does not exist, so it holds no runs"),
        (("plans:Plan", "-o", "nowhere/x.html"), 1, "there is no directory"),
    ],
)
def test_what_cannot_be_drawn_is_told(shop, words, code, told):
    (shop.path / "plans.py").write_text(PLOTTED)
    said = shop.ask("plot", *words)
    assert (said.returncode, said.stdout) == (code, "")
    assert told in " ".join(said.stderr.split())
