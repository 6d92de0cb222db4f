"""Runs that wait for people: at the command line they are answered, gone on with, and told of."""

import contextlib
import json
import os
import time

import pytest
from click.testing import CliRunner

from crewlite import History
from crewlite.cli.main import main
from crewlite.errors import Suspended
from crewlite.flow import ask, flow
from tests.children import posix


def answered(flows, ref, *words):
    done = flows.do("checkpoint", "answer", ref, *words)
    assert done.returncode == 0, done.stderr
    return done


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
        "Or answer and go on at once: crewlite checkpoint resume p --answer human:who=VALUE --crew flows:publish",
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


def test_no_control_character_of_a_question_reaches_the_terminal_by_the_error_that_tells_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @flow(checkpoint=True)
    def publish():
        return ask("Who \x1b]0;title\x07 \x9b31m \u202e?", name="who")

    with pytest.raises(Suspended):
        publish.kickoff(run_id="p")
    refused = CliRunner().invoke(main, ["checkpoint", "answer", "p", "human:who"])
    assert "human:who: Who " in refused.stderr
    assert refused.stderr.replace("\n", "").isprintable()


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


def test_a_question_that_nobody_answered_in_time_is_asked_again_as_the_error_advises(flows):
    flows.path.joinpath("late.py").write_text(
        "from crewlite.flow import ask, flow\n"
        "@flow(checkpoint=True)\n"
        "def patient():\n"
        "    return ask('Anybody?', name='any', timeout=1)\n"
    )
    assert flows.ask("run", "late.py:patient", "--run-id", "p").returncode == 3
    time.sleep(1)
    late = flows.ask("run", "late.py:patient", "--run-id", "p").stderr
    assert "To go on then, in " in late
    fork = "crewlite checkpoint fork p --rerun human:any --crew late.py:patient"
    assert f" - to ask again: {fork}\n" in late
    assert "human:any: Anybody?" in flows.ask(*fork.split()[1:]).stderr


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


def test_an_answer_that_a_finished_run_has_already_is_told_so_and_not_how_to_resume_it(flows):
    flows.ask(
        "run",
        "flows:publish",
        "--input",
        "text=x",
        "--run-id",
        "p",
        "--answer",
        "human:who=Ada",
        "--answer",
        "human:publish=y",
    )
    told = answered(flows, "p", "human:who", "Ada").stdout
    assert told == "✓ human:who of p/main has this answer already\n\nthe run has finished\n"


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
def test_a_question_at_a_terminal_may_be_answered_elsewhere(flows):
    process, leader = at_terminal(flows)
    until(leader, b"you? ")
    assert answered(flows, "p", "human:who", "Ada").returncode == 0
    assert b"(answered elsewhere)" in until(leader, b"Publish 'x'? ")
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
    return flows.at_terminal("run", "flows:publish", "--input", "text=x", "--run-id", "p", COLUMNS="100", LINES="24")


def until(leader, words):
    told = b""
    with contextlib.suppress(OSError):
        while words not in told:
            told += os.read(leader, 10_000)
    assert words in told
    return told


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
