"""`crewlite run`: a crew of one's own from the command line, its answer alone on stdout, and always a way on."""

import json
import os
import signal
import sys

import pytest
from click.testing import CliRunner

from crewlite import History
from crewlite.cli.main import main
from crewlite.texts.resuming import without_advice
from tests import children
from tests.children import posix

if os.name == "posix":
    import fcntl
    import termios

CREWLITE = [sys.executable, "-c", "from crewlite.cli.main import main; main(prog_name='crewlite')"]


def test_only_the_answer_goes_to_stdout(shop):
    done = shop.do("run", "crews:made", "--input", "topic=tides")
    assert done.returncode == 0
    assert done.stdout == "[Do three on tides]\n"
    assert "the module prints" in done.stderr
    assert "▸ crew report begins" in done.stderr
    assert shop.paid() == ["one", "two", "three"]


def test_a_file_does_as_well_as_a_module_and_from_anywhere(shop, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "crews.py").rename(tmp_path / "deep" / "other.py")
    done = shop.do("run", "deep/other.py:crew", "--input", "topic=tides")
    assert (done.returncode, done.stdout) == (0, "[Do three on tides]\n")


def test_an_agent_is_asked_a_message(shop):
    done = shop.ask("run", "crews:clerk", "--message", "Well?")
    assert (done.returncode, done.stdout) == (0, "[Well?]\n")
    assert shop.ask("run", "crews:clerk").returncode == 2
    assert "--message TEXT" in shop.ask("run", "crews:clerk", "--input", "a=b").stderr
    assert "--input NAME=TEXT" in shop.ask("run", "crews:crew", "--message", "Well?").stderr


def test_inputs_are_text_unless_they_are_said_to_be_json(shop, tmp_path):
    (tmp_path / "in.json").write_text('{"topic": "winds", "more": [1]}')
    words = ["--inputs-file", "in.json", "--input", "topic=a=b", "--input", "n:=3", "--input", "t=3"]
    done = shop.ask("run", "crews:crew", *words, "--run-id", "r")
    assert done.stdout == "[Do three on a=b]\n"
    with History(tmp_path / ".checkpoints") as history:
        assert history.run("r").inputs == {"topic": "a=b", "more": [1], "n": 3, "t": "3"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["crews:crew", "--input", "topic"], "wanted name=text or name:=JSON"),
        (["crews:crew", "--input", "n:=x"], "is no JSON"),
        (["crews:crew", "--input", f"n:={'[' * 200_000}"], "is no JSON ("),
        (["crews:crew", "--inputs-file", "crews.py"], "is no JSON"),
        (["crews"], "wanted package.module:attribute, file.py:attribute or a crew in JSON"),
        (
            ["crews:crow"],
            "Did you mean 'crew'? What there is: clerk, cashier, crew, off, hears, elsewhere, own, memory, changed, bill, made.",
        ),
        (
            ["crews:number"],
            "is of type int; wanted a Crew, an Agent, a function with @flow, a class of flows, a function without required arguments",
        ),
        (["crews:wants"], "is a function with the arguments (topic)"),
        (["crews:Crew"], "is the class Crew"),
        (["nowhere.at_all:crew"], "there is no module 'nowhere'"),
        (["nowhere.py:crew"], "there is no file nowhere.py"),
        (["crews:crew"], "Pass --input topic=VALUE"),
    ],
)
def test_what_cannot_be_is_a_matter_of_usage(shop, words, said):
    done = shop.ask("run", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert shop.paid() == []


YEARS = """
from crewlite import Agent, Crew, Task
from crewlite.testing import ScriptedLLM

who = Agent(role="W", goal="g", llm=ScriptedLLM(lambda messages: messages[1]["content"].splitlines()[0]))
task = Task(name="t", description="Of {topic} in {year}", expected_output="x", agent=who)
crew = Crew(tasks=[task], before_kickoff_callbacks=[lambda inputs: {**inputs, "more": 1}])
"""


def test_an_input_that_is_found_missing_in_a_run_is_given_to_a_fork_as_a_resume_never_has_it(shop, tmp_path):
    (tmp_path / "years.py").write_text(YEARS)
    done = shop.ask("run", "years:crew", "--input", "topic=tides", "--run-id", "r")
    assert done.returncode == 2
    assert "To go on with that: crewlite checkpoint fork r --input year=VALUE --crew years:crew" in done.stderr
    done = shop.ask("checkpoint", "fork", "r", "--input", "year=2026", "--crew", "years:crew")
    assert (done.returncode, done.stdout.strip()) == (0, "Of tides in 2026")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "import crews\n\n1 / 0\n",
            "broken cannot be imported: ZeroDivisionError: division by zero (broken.py, line 3)",
        ),
        ("def f(:\n", "(broken.py, line 1)"),
        ("import crews\nimport not_there_either\n", "ModuleNotFoundError: No module named 'not_there_either' (broken"),
        ("from crewlite import Agent\nx = Agent(role='r', gaol='g')\n", "did you mean 'goal'?"),
        ("raise SystemExit(4)\n", "broken ends the program when it is imported (exit 4) (broken.py, line 1)"),
        ("import crews\ncrews.crew.kickoff({'topic': 'x'})\n", 'Put that under `if __name__ == "__main__":`'),
    ],
)
def test_code_that_does_not_load_is_one_error_with_its_place(shop, tmp_path, code, said):
    (tmp_path / "broken.py").write_text(code)
    done = shop.ask("run", "broken:crew")
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert shop.paid() == []


def test_a_crew_that_says_nothing_of_checkpoints_is_saved(shop, tmp_path):
    shop.ask("run", "crews:crew", "--input", "topic=tides", "--run-id", "r")
    with History(tmp_path / ".checkpoints") as history:
        assert len(history.run("r").checkpoints()) == 3


def test_one_that_wants_no_checkpoints_is_not_and_it_is_said(shop, tmp_path):
    done = shop.ask("run", "crews:off", "--input", "topic=tides")
    assert done.returncode == 0
    assert "Nothing of this run will be saved: the crew has checkpoint=False." in done.stderr
    assert not (tmp_path / ".checkpoints").exists()


def test_a_run_that_no_command_can_find_again_says_so_or_how_it_goes_on_itself(shop):
    shop.fail("one")
    done = shop.ask("run", "crews:memory", "--input", "topic=tides")
    assert "The run cannot be resumed: the crew keeps its record in memory." in done.stderr
    done = shop.ask("run", "crews:own", "--input", "topic=tides", "--run-id", "r")
    assert f"To go on, in {shop.path}: crewlite run crews:own --run-id r" in done.stderr
    shop.heal()
    assert shop.ask("run", "crews:own", "--run-id", "r").stdout == "[Do two on tides]\n"


def test_the_location_of_the_crew_is_kept_unless_another_is_given(shop, tmp_path):
    shop.ask("run", "crews:elsewhere", "--input", "topic=x", "--run-id", "r")
    assert (tmp_path / "else.db").exists()
    shop.ask("run", "crews:elsewhere", "--input", "topic=x", "--run-id", "r", "--location", "there")
    assert History(tmp_path / "there").run("r").status == "finished"
    assert not (tmp_path / ".checkpoints").exists()


def test_resume_goes_on_with_the_newest_unfinished_run_and_says_how_to_do_a_recorded_task_again(shop):
    words = ["run", "crews:crew", "--input", "topic=tides", "--resume"]
    shop.fail("two")
    shop.do(*words)
    again = shop.do(*words)
    assert "to run a recorded step again: crewlite checkpoint fork" in again.stderr
    assert "--rerun task:one" in again.stderr
    assert shop.paid() == ["one", "two", "two"]
    shop.heal()
    assert shop.do(*words).stdout == "[Do three on tides]\n"
    assert shop.paid() == ["two", "three"]
    shop.do(*words)
    assert shop.paid() == ["one", "two", "three"], "the next night"
    assert "pass only one of the two" in shop.do(*words, "--run-id", "r").stderr


def test_a_finished_run_of_a_crew_that_was_changed_since_says_the_commands_out(shop):
    words = ["run", "crews:crew", "--input", "topic=tides", "--run-id", "r"]
    shop.ask(*words)
    module = shop.path / "crews.py"
    module.write_text(module.read_text().replace("Do {n} on", "Act {n} on"))
    refused = shop.do(*words)
    assert refused.returncode == 1
    assert "task:one answered 'Do one on tides', and is asked 'Act one on tides' now" in refused.stderr
    assert "crewlite checkpoint fork" in refused.stderr
    assert "--rerun task:one --rerun task:two --rerun task:three" in refused.stderr
    assert "crew.fork" not in refused.stderr


def test_who_is_refused_is_told_where_the_run_is_kept(shop):
    assert shop.do("run", "crews:elsewhere", "--input", "topic=tides", "--run-id", "r").returncode == 0
    refused = shop.ask("run", "crews:elsewhere", "--input", "topic=moons", "--run-id", "r")
    lines = [line for line in refused.stderr.replace(" - ", "\n").splitlines() if "crewlite checkpoint" in line]
    assert len(lines) == 2
    assert all("--location " in line for line in lines), refused.stderr


def test_the_same_run_id_goes_on_and_a_finished_run_is_not_paid_again(shop):
    words = ["run", "crews:crew", "--input", "topic=tides", "--run-id", "r"]
    shop.fail("two")
    failed = shop.do(*words)
    assert failed.returncode == 1
    assert "Error: ValueError: no paper (crews.py, line " in failed.stderr
    assert f"To go on, in {shop.path}: crewlite checkpoint resume r --crew crews:crew" in failed.stderr
    assert shop.paid() == ["one", "two"]
    shop.heal()
    assert shop.do(*words).stdout == "[Do three on tides]\n"
    assert shop.paid() == ["two", "three"]
    assert shop.do(*words).stdout == "[Do three on tides]\n"
    assert shop.paid() == []
    other = shop.do("run", "crews:crew", "--input", "topic=winds", "--run-id", "r")
    assert other.returncode == 1
    assert "crewlite checkpoint fork r --input topic=VALUE --crew crews:crew" in other.stderr


def test_another_model_is_asked_by_everybody(shop):
    done = shop.ask("run", "crews:crew", "--input", "topic=tides", "--model", "offline")
    assert done.returncode == 0
    assert "offline model" in done.stdout
    assert shop.paid() == []


def test_each_event_is_a_line_of_json_and_the_last_one_the_result(shop):
    told = shop.lines("run", "crews:crew", "--input", "topic=tides", "--run-id", "r")
    assert [line["type"] for line in told][:2] == ["crew_kickoff_started", "task_started"]
    assert all({"type", "address", "run_id", "timestamp"} <= line.keys() for line in told[:-1])
    called = next(line for line in told if line["type"] == "llm_call_completed")
    assert called["usage"]["prompt_tokens"] == 100
    assert "messages" not in called
    last = told[-1]
    assert (last["type"], last["run_id"], last["raw"]) == ("result", "r", "[Do three on tides]")
    assert (last["usage"]["requests"], last["durability"]) == (3, "sync")


def test_an_error_is_a_line_of_json_too(shop):
    assert shop.lines("run", "crews:crew")[-1]["code"] == "missing_input"
    shop.fail("two")
    last = shop.lines("run", "crews:crew", "--input", "topic=tides")[-1]
    assert (last["type"], last["code"]) == ("error", "failed")
    assert "no paper" in last["message"]
    assert "crewlite checkpoint resume" in last["message"]


@posix
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_leaves_a_run_that_can_go_on_and_says_how(shop, name, status):
    shop.hang("two")
    process = shop.begin("run", "crews:crew", "--input", "topic=tides", "--run-id", "r", "--location", "my runs")
    shop.until("two")
    process.send_signal(getattr(signal, name))
    out, said = process.communicate()
    assert process.returncode == status
    assert out == ""
    line = "crewlite checkpoint resume r --location 'my runs' --crew crews:crew\n"
    assert f"Interrupted. To go on, in {shop.path}: {line}" in said
    assert "Traceback" not in said
    shop.heal()
    assert shop.paid() == ["one", "two"]
    done = shop.do("checkpoint", "resume", "r", "--location", "my runs", "--crew", "crews:crew")
    assert done.stdout == "[Do three on tides]\n"
    assert shop.paid() == ["two", "three"]


@posix
def test_a_command_in_the_background_outlives_its_terminal(shop):
    shop.hang("two")
    process = shop.begin("run", "crews:crew", "--input", "topic=tides", started=children.IN_THE_BACKGROUND)
    shop.until("two")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    with pytest.raises(children.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 143


@posix
def test_a_crew_that_listens_to_signals_hears_them_here_too(shop, tmp_path):
    shop.hang("two")
    process = shop.begin("run", "crews:hears", "--input", "topic=tides", "--run-id", "r")
    shop.until("two")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 143
    assert said.count("crewlite checkpoint resume r --crew crews:hears") == 1
    with History(tmp_path / ".checkpoints") as history:
        assert [place.trigger for place in history.run("r").checkpoints()] == ["SIGTERM"]


@posix
def test_on_a_terminal_it_is_shown_live_on_stderr_and_ctrl_c_leaves_it_tidy(shop):
    import pty

    shop.hang("two")
    leader, follower = pty.openpty()
    where = {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"}
    process = children.Child(
        [*CREWLITE, "run", "crews:crew", "--input", "topic=tides", "--run-id", "r"],
        cwd=shop.path,
        env=shop.environment(**where),
        stdin=follower,
        stdout=children.PIPE,
        stderr=follower,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(follower)
    told = b""
    while b"model counting\x1b" not in told.partition(b"task two: Clerk\x1b")[2]:
        told += os.read(leader, 10_000)  # until the status lines show the call that hangs
    shop.until("two")
    assert "110 tokens, $0.0100, 1 checkpoint" in told.decode()
    os.write(leader, b"\x03")
    told += children.rest_of(leader)
    out, _ = process.communicate()
    assert (process.returncode, out) == (130, b"")
    last = told.decode().rpartition("\x1b[J")[2]
    assert "Interrupted. To go on: crewlite checkpoint resume r --crew crews:crew" in last
    assert "▸" not in last


@posix
def test_a_terminal_that_goes_away_ends_the_run_in_good_order(shop, tmp_path):
    import pty

    shop.hang("two")
    leader, follower = pty.openpty()
    process = children.Child(
        [*CREWLITE, "run", "crews:crew", "--input", "topic=tides", "--run-id", "r"],
        cwd=shop.path,
        env=shop.environment(TERM="xterm"),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(follower)
    shop.until("two")
    os.close(leader)
    assert process.wait() == 129
    with History(tmp_path / ".checkpoints") as history:
        assert history.run("r").tasks == ("task:one",)


@posix
def test_an_interrupted_stream_of_json_ends_with_the_way_on(shop):
    shop.hang("one")
    process = shop.begin("run", "crews:off", "--input", "topic=tides", "--json")
    shop.until("one")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    assert process.returncode == 130
    assert '"code": "interrupted"' in out.splitlines()[-1]
    assert "Nothing was saved: the crew has checkpoint=False." in out.splitlines()[-1]


@posix
def test_a_reader_that_has_seen_enough_does_not_end_the_run(shop, tmp_path):
    process = shop.begin("run", "crews:crew", "--input", "topic=tides", "--run-id", "r", "--json")
    process.stdout.readline()
    process.stdout.close()
    process.wait()
    process.stderr.close()
    assert History(tmp_path / ".checkpoints").run("r").status == "finished"


def broken(shop, code, *words):
    (shop.path / "broken.py").write_text(f"import crews\nfrom crewlite import *\n{code}")
    return shop.ask("run", "broken:make", *words)


def test_a_function_that_makes_a_crew_is_told_apart_from_its_module(shop):
    done = broken(shop, "def make():\n    raise RuntimeError('boom')\n")
    assert "Error: broken:make was called and raised RuntimeError: boom (broken.py, line 4)" in done.stderr
    done = broken(shop, "async def make():\n    return crews.crew\n")
    assert (done.returncode, "is an async function" in done.stderr) == (2, True)
    done = broken(shop, "def other() -> Crew:\n    ...\ndef text() -> str:\n    ...\n")
    assert "What there is: other." in done.stderr


def test_a_key_in_the_environment_is_not_printed(shop, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-123456789")
    for code in ("raise RuntimeError('boom sk-123456789')", "def make():\n    raise ValueError('sk-123456789')\n"):
        done = broken(shop, code)
        assert "[secret]" in done.stderr
        assert "sk-1" not in done.stderr + done.stdout


def test_a_misspelt_setting_of_the_project_is_told(shop, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.crewlite]\ncrw = "crews:crew"\n')
    done = shop.ask("run", "crews:crew", "--input", "topic=x")
    assert (done.returncode, "[tool.crewlite] has 'crw'; it takes only crew" in done.stderr) == (1, True)


def test_an_answer_that_is_none_is_told_how_one_looks(shop):
    done = shop.ask("run", "crews:crew", "--answer", "nonsense")
    assert (done.returncode, "wanted ADDRESS=VALUE or ADDRESS:=JSON" in done.stderr) == (2, True)


def test_what_is_no_number_is_still_json(shop):
    code = """
from crewlite.testing import ScriptedLLM
from crewlite.flow import flow
@tool
def look(x: float) -> str:
    "Look."
    return "seen"
make = Agent(role="W", goal="w", llm=ScriptedLLM([ToolCall("look", {"x": float("nan")}), "done"]), tools=[look])
"""
    done = broken(shop, code, "--message", "Well?", "--json")
    lines = [json.loads(line, parse_constant=pytest.fail) for line in done.stdout.splitlines()]
    assert next(line for line in lines if line["type"] == "tool_usage_started")["tool_args"] == {"x": "nan"}
    assert lines[-1]["raw"] == "done"


def test_a_pipe_gets_the_answer_as_it_is(shop):
    code = "from crewlite.flow import flow\n@flow\ndef make():\n    return '\\x1b[31mred\\x1b[0m'\n"
    assert broken(shop, code).stdout == "\x1b[31mred\x1b[0m\n"


def test_a_model_that_cannot_be_asked_is_not_advised_again(shop, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = shop.ask("run", "crews:crew", "--input", "topic=x", "--run-id", "r", "--model", "openai/x")
    assert done.returncode == 1
    assert "OPENAI_API_KEY" in done.stderr
    assert "--model openai/x" not in done.stderr
    if "To go on" in done.stderr:
        assert "--model PROVIDER/MODEL" in done.stderr


def test_how_to_go_on_is_said_once(shop):
    code = """
from crewlite.errors import LLMAuthError
from crewlite.testing import ScriptedLLM
make = Agent(role="W", goal="w", llm=ScriptedLLM([LLMAuthError("m", 401, "no such key")]))
"""
    done = broken(shop, code, "--message", "Well?", "--run-id", "r")
    assert done.stderr.splitlines()[-1] == (
        "Error: m refused the request (status 401): no such key. Check the key, its permissions and the balance of the "
        f"account. To go on, in {shop.path}: crewlite checkpoint resume r --crew broken:make"
    )


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("It is gone. Start the run again to go on.", "It is gone."),
        ("Raise timeout=, or start the run again to go on.", "Raise timeout=."),
        ("Raise its limit, or start the same run again to go on.", "Raise its limit."),
        ("Change the model, then start the run again.", "Change the model."),
        ("No text. Start the run again to retry.", "No text."),
        ("Start the run again for a new attempt, or relax.", "Start the run again for a new attempt, or relax."),
    ],
)
def test_the_advice_of_the_library_gives_way_to_that_of_the_command(text, left):
    assert without_advice(text) == left


CLASSY = """
from crewlite import Agent, Crew, Task

class Research:
    def crew(self):
        agent = Agent(role="Clerk", goal="answer", llm="offline")
        return Crew(name="research", tasks=[Task(description="What is a tide?", expected_output="x", agent=agent)])

class Other:
    pass
"""


def test_a_class_with_a_method_crew_is_a_definition(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "classy.py").write_text(CLASSY)
    done = CliRunner().invoke(main, ["run", "classy.py:Research"])
    assert (done.exit_code, "extracted by crewlite" in done.output) == (0, True)
    done = CliRunner().invoke(main, ["run", "classy.py:Other"])
    assert done.exit_code == 2
    assert "is the class Other; wanted a Crew" in done.output
    assert "What there is: Research." in done.output


def test_a_file_without_an_attribute_is_told_with_what_is_in_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "classy.py").write_text(CLASSY)
    done = CliRunner().invoke(main, ["run", "classy.py"])
    assert done.exit_code == 2
    assert "names no definition; wanted package.module:attribute, file.py:attribute or a crew in JSON" in done.output
    assert "What there is: classy.py:Research." in done.output
