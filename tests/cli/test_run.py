"""`crewlite run`: a crew of one's own from the command line, its answer alone on stdout, and always a way on."""

import json

import pytest

from crewlite import History


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
    done = shop.run(code, "--message", "Well?", "--json")
    lines = [json.loads(line, parse_constant=pytest.fail) for line in done.stdout.splitlines()]
    assert next(line for line in lines if line["type"] == "tool_usage_started")["tool_args"] == {"x": "nan"}
    assert lines[-1]["raw"] == "done"


def test_a_pipe_gets_the_answer_as_it_is(shop):
    code = "from crewlite.flow import flow\n@flow\ndef make():\n    return '\\x1b[31mred\\x1b[0m'\n"
    assert shop.run(code).stdout == "\x1b[31mred\x1b[0m\n"


def test_a_model_that_cannot_be_asked_is_not_advised_again(shop, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = shop.ask("run", "crews:crew", "--input", "topic=x", "--run-id", "r", "--model", "openai/x")
    assert done.returncode == 1
    assert "OPENAI_API_KEY" in done.stderr
    assert "--model openai/x" not in done.stderr
    assert "--model PROVIDER/MODEL" in done.stderr


def test_how_to_go_on_is_said_once(shop):
    code = """
from crewlite.errors import LLMAuthError
from crewlite.testing import ScriptedLLM
make = Agent(role="W", goal="w", llm=ScriptedLLM([LLMAuthError("m", 401, "no such key")]))
"""
    done = shop.run(code, "--message", "Well?", "--run-id", "r")
    assert done.stderr.splitlines()[-1] == (
        "Error: m refused the request (status 401): no such key. Check the key, its permissions and the balance of the "
        f"account. To go on, in {shop.path}: crewlite checkpoint resume r --crew broken:make"
    )
