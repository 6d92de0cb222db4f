"""From the terminal alone: a run is killed, resumed and forked, and nothing recorded is paid twice."""

import re
import signal

import pytest

from crewlite import History
from crewlite.errors import RefError
from tests.children import posix

BEGIN = ("run", "crews:crew", "--input", "topic=tides", "--run-id", "r")


def killed(shop, word, *words):
    """Run, and kill with SIGKILL in the call that has a word in it."""
    shop.hang(word)
    process = shop.begin(*words)
    shop.until(word)
    process.kill()
    process.communicate()
    shop.heal()
    return shop.paid()


def project(shop, target):
    (shop.path / "pyproject.toml").write_text(f'[tool.crewlite]\ncrew = "{target}"\n')


def test_a_killed_run_is_listed_resumed_and_forked_and_nothing_recorded_is_paid_twice(shop):
    assert killed(shop, "two", *BEGIN) == ["one", "two"]
    assert "r" in shop.do("checkpoint", "list", "--runs").stdout
    assert "unfinished" in shop.do("checkpoint", "show", "r").stdout

    done = shop.do("checkpoint", "resume", "--crew", "crews:crew")
    assert (done.returncode, done.stdout) == (0, "[Do three on tides]\n")
    assert "Going on with r/main (crew report)." in done.stderr
    assert shop.paid() == ["two", "three"]

    done = shop.do("checkpoint", "fork", "r@task:one", "--branch", "again", "--crew", "crews:crew")
    assert (done.returncode, done.stdout) == (0, "[Do three on tides]\n")
    assert "Forked r/main (crew report): r/again." in done.stderr
    assert shop.paid() == ["two", "three"]

    done = shop.do("checkpoint", "fork", "r", "--input", "topic=winds", "--crew", "crews:crew")
    assert done.stdout == "[Do three on winds]\n"
    assert shop.paid() == ["one", "two", "three"]
    with History(shop.path / ".checkpoints") as history:
        assert {run.status for run in history.runs()} == {"finished"}
        assert len(history.runs()) == 3


def test_a_killed_fork_goes_on_too(shop):
    shop.ask(*BEGIN)
    shop.paid()
    fork = ("checkpoint", "fork", "r@task:one", "--branch", "b", "--crew", "crews:crew")
    assert killed(shop, "three", *fork) == ["two", "three"]
    done = shop.ask("checkpoint", "resume", "r/b", "--crew", "crews:crew")
    assert done.stdout == "[Do three on tides]\n"
    assert shop.paid() == ["three"]
    again = shop.ask(*fork)
    assert again.returncode == 1
    assert (
        "Choose another --branch, or leave it out; to resume the existing branch: crewlite checkpoint resume r/b"
        in again.stderr
    )


def test_a_finished_run_says_so_and_prints_its_stored_answer_without_its_code(shop):
    shop.ask(*BEGIN)
    shop.paid()
    (shop.path / "crews.py").unlink()
    done = shop.ask("checkpoint", "resume")
    assert (done.returncode, done.stdout) == (0, "[Do three on tides]\n")
    assert "r/main (crew report) has finished before; this is its stored answer." in done.stderr
    last = shop.lines("checkpoint", "resume", "r")[-1]
    assert (last["type"], last["raw"], last["usage"]["requests"]) == ("result", "[Do three on tides]", 3)


def test_the_project_says_where_the_crew_is(shop):
    killed(shop, "two", *BEGIN)
    project(shop, "crews:crew")
    assert shop.ask("checkpoint", "resume").stdout == "[Do three on tides]\n"
    assert shop.paid() == ["two", "three"]


def test_a_crew_of_another_name_is_not_taken_for_the_runs(shop):
    killed(shop, "two", *BEGIN)
    project(shop, "crews:bill")
    done = shop.ask("checkpoint", "resume", "--model", "offline")
    assert "pyproject.toml names crew bill (crews:bill), and this run is of crew report" in done.stderr
    assert done.returncode == 0


def test_what_no_record_holds_is_listed_with_what_to_do_and_nothing_is_imported(shop):
    killed(shop, "two", *BEGIN)
    (shop.path / "crews.py").write_text("raise SystemExit('imported')")
    done = shop.do("checkpoint", "resume")
    assert done.returncode == 1
    assert "agents.Clerk.llm (the model " in done.stderr
    assert "). Name the definition: --crew package.module:attribute" in done.stderr
    assert "--model M gives every missing model." in done.stderr
    done = shop.do("checkpoint", "fork")
    assert done.returncode == 1
    with History(shop.path / ".checkpoints") as history:
        assert [run.branch for run in history.runs()] == ["main"]
    done = shop.do("checkpoint", "resume", "--model", "offline")
    assert done.returncode == 0
    assert shop.paid() == []


def test_a_fork_may_be_made_without_being_run(shop):
    killed(shop, "two", *BEGIN)
    done = shop.ask("checkpoint", "fork", "r", "--branch", "later", "--no-run")
    assert (done.returncode, done.stdout) == (0, "r/later\n")
    assert "To run it: crewlite checkpoint resume r/later" in done.stderr
    assert shop.paid() == []
    assert shop.ask("checkpoint", "resume", "r/later", "--crew", "crews:crew").stdout == "[Do three on tides]\n"
    assert shop.paid() == ["two", "three"]
    assert shop.ask("checkpoint", "fork", "--no-run", "--model", "offline").returncode == 2


def test_a_fork_that_is_not_run_keeps_its_inputs(shop):
    shop.ask(*BEGIN)
    shop.paid()
    done = shop.ask("checkpoint", "fork", "r", "--branch", "later", "--no-run", "--input", "topic=winds")
    assert (done.returncode, done.stdout) == (0, "r/later\n")
    assert shop.ask("checkpoint", "resume", "r/later", "--crew", "crews:crew").stdout == "[Do three on winds]\n"
    assert shop.paid() == ["one", "two", "three"]


def test_a_preview_of_a_changed_definition_names_the_run_and_the_fork_that_can_be_previewed(shop):
    shop.ask(*BEGIN)
    shop.paid()
    words = ["checkpoint", "fork", "r", "--crew", "crews:changed", "--preview"]
    refused = shop.ask(*words)
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: Run 'r' is finished, but it is asked something else now: task:three ")
    advice = "crewlite checkpoint fork r --rerun task:three --crew crews:changed - or"
    assert advice in refused.stderr
    for words_of in (words[:-1], [*words[:-1], "--no-run"]):
        assert advice in shop.ask(*words_of).stderr
    assert [run.branch for run in History(str(shop.path / ".checkpoints")).runs()] == ["main"], "nothing was forked"
    done = shop.ask(*words, "--rerun", "task:three")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "runs     task:three  is to run again")
    assert shop.paid() == []


def test_a_preview_says_what_a_fork_would_do_and_leaves_nothing_behind(shop):
    shop.ask(*BEGIN)
    shop.paid()
    words = ["checkpoint", "fork", "r", "--crew", "crews:crew", "--preview", "--edit", "task:two=mine"]
    done = shop.ask(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "reused   task:one    is recorded",
        "reused   task:two    was edited",
        "runs     task:three  asks another question than the recorded one",
    ]
    [told] = shop.lines(*words)
    assert (told["type"], told["ends"], told["steps"][1]["verdict"]) == ("preview", "", "reused")
    for more in (["--no-run"], ["--answer", "human:x=yes"], ["--message", "Well?"]):
        assert shop.ask(*words, *more).returncode == 2
    assert shop.paid() == []
    with History(shop.path / ".checkpoints") as history:
        assert [run.branch for run in history.runs()] == ["main"]


def test_a_place_behind_the_head_is_not_gone_on_from(shop):
    shop.fail("three")
    shop.ask(*BEGIN)
    done = shop.ask("checkpoint", "resume", "r@task:one", "--crew", "crews:crew")
    assert done.returncode == 1
    assert "To go on from the head: crewlite checkpoint resume r/main --crew crews:crew" in done.stderr
    assert "to start again at this checkpoint: crewlite checkpoint fork " in done.stderr


@posix
def test_a_call_in_doubt_waits_for_an_answer(shop):
    made = killed(shop, "charged", "run", "crews:bill", "--input", "topic=x", "--run-id", "r")
    assert made == ["pay", "charged 5"]
    done = shop.do("checkpoint", "resume", "--crew", "crews:bill")
    assert done.returncode == 3
    address = "task:pay/tool:charge"
    assert f"--answer {address}=RESULT --crew crews:bill" in done.stderr
    assert f"--rerun {address} --crew crews:bill" in done.stderr
    assert shop.lines("checkpoint", "resume", "--crew", "crews:bill")[-1]["code"] == "in_doubt"
    done = shop.ask("checkpoint", "answer", "r", address, "paid")
    assert done.returncode == 1
    assert f"{address} is not a question but a call in doubt" in done.stderr
    assert f"If it did: crewlite checkpoint resume r --answer {address}=RESULT" in done.stderr
    assert f"if it did not: crewlite checkpoint resume r --rerun {address}" in done.stderr
    with (
        History(shop.path / ".checkpoints") as history,
        pytest.raises(RefError, match=r"call in doubt.*answers=.*rerun="),
    ):
        history.answer("r", address, "paid")
    done = shop.do("run", "crews:bill", "--run-id", "r")
    assert done.returncode == 3
    assert shop.paid() == []
    foretold = shop.ask("checkpoint", "preview", "r", "--crew", "crews:bill")
    assert f"was interrupted in {address}, a call" in foretold.stdout
    assert f"if it did not: crewlite checkpoint resume r --rerun {address} --crew crews:bill" in foretold.stderr
    done = shop.ask("checkpoint", "fork", "r", "--crew", "crews:bill", "--rerun", f"{address}!2")
    assert "names attempt 2 at a call that was begun once" in done.stderr
    with History(shop.path / ".checkpoints") as history:
        assert [one.branch for one in history.branches("r")] == ["main"]
    done = shop.do("checkpoint", "fork", "r", "--crew", "crews:bill", "--rerun", address)
    assert done.returncode == 0
    assert shop.paid() == ["charged 5", "pay"]
    done = shop.do("checkpoint", "resume", "r", "--crew", "crews:bill", "--answer", f"{address}=paid")
    assert (done.returncode, done.stdout) == (0, "[Do pay on x]\n")
    assert shop.paid() == ["pay"]


def test_an_agents_run_goes_on_and_is_given_a_further_instruction_in_a_fork(shop):
    assert killed(shop, "Well", "run", "crews:clerk", "--message", "Well?", "--run-id", "r") == ["Well?"]
    assert shop.ask("checkpoint", "resume", "--crew", "crews:clerk").stdout == "[Well?]\n"
    done = shop.ask("checkpoint", "fork", "--crew", "crews:clerk", "--message", "Why?")
    assert (done.returncode, done.stdout) == (0, "[Well?]\n"), "the model that is asked here quotes what was said first"
    with History(shop.path / ".checkpoints") as history:
        forked = next(run for run in history.runs() if run.base)
    assert [said["content"] for said in forked.inputs["messages"]] == ["Well?"]
    assert "message#2" in [step.address for step in forked.steps], "it is a further turn"
    assert shop.ask("checkpoint", "fork", "--crew", "crews:clerk", "--input", "a=b").returncode == 2


def test_a_database_elsewhere_is_found_by_its_ref(shop):
    words = ("run", "crews:elsewhere", "--input", "topic=x", "--run-id", "r")
    assert killed(shop, "two", *words) == ["one", "two"]
    done = shop.ask("checkpoint", "resume", "else.db", "--crew", "crews:elsewhere")
    assert (done.returncode, done.stdout) == (0, "[Do two on x]\n")
    assert shop.paid() == ["two"]
    assert shop.ask("checkpoint", "resume").returncode == 1


@posix
def test_a_resume_that_is_interrupted_says_how_to_go_on(shop):
    killed(shop, "two", *BEGIN)
    shop.hang("three")
    process = shop.begin("checkpoint", "resume", "--crew", "crews:crew")
    shop.until("three")
    busy = shop.ask("checkpoint", "resume", "--crew", "crews:crew")
    assert busy.returncode == 1
    assert "is being run by" in busy.stderr
    assert "crewlite checkpoint fork r/main --crew crews:crew" in busy.stderr
    refused = shop.ask("checkpoint", "label", "r@task:one", "good")
    assert (refused.returncode, refused.stdout) == (1, "")
    (instead,) = re.findall(r"crewlite (checkpoint fork \w+ --branch good --no-run)", refused.stderr)
    assert shop.ask(*instead.split()).stdout == "r/good\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert f"Interrupted. To go on, in {shop.path}: crewlite checkpoint resume r --crew crews:crew" in said


def test_a_run_that_is_not_there_is_a_plain_error(shop):
    assert shop.ask("checkpoint", "resume", "r").returncode == 1
    shop.ask(*BEGIN)
    done = shop.ask("checkpoint", "fork", "nothing", "--crew", "crews:crew")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


JUDGES = """
from pydantic import BaseModel
from crewlite import Agent, Crew, LLMReply, BaseLLM, Task

class Verdict(BaseModel):
    good: bool

class Judge(BaseLLM):
    model = "judge"
    async def acall(self, messages, **context):
        return LLMReply(text='{"good": true}')

judge = Agent(role="Judge", goal="g", llm=Judge())
about = {"description": "judge", "expected_output": "v", "agent": judge}
crew = Crew(name="court", tasks=[Task(name="judge", output_pydantic=Verdict, **about)])
"""


def test_an_answer_that_does_not_fit_its_class_is_to_be_forked_and_not_resumed(shop):
    module = shop.path / "judges.py"
    module.write_text(JUDGES, encoding="utf-8")
    assert shop.ask("run", "judges:crew", "--run-id", "r").returncode == 0
    shop.ask("checkpoint", "fork", "r", "--branch", "x", "--edit", "task:judge=guilty", "--no-run")
    refused = shop.ask("checkpoint", "resume", "r/x", "--crew", "judges:crew")
    assert refused.returncode == 1
    assert "The edit of task:judge does not fit Verdict" in refused.stderr
    assert (
        "To fork with another edit: crewlite checkpoint fork r/x --edit task:judge=VALUE --crew judges:crew - to run it "
        "again on a fork: crewlite checkpoint fork r/x --rerun task:judge --crew judges:crew" in refused.stderr
    )
    assert "resume" not in refused.stderr

    stricter = "@field_validator('good')\n    def no(cls, good): raise ValueError('no judge is good')"
    changed = JUDGES.replace("good: bool", f"good: bool\n    {stricter}").replace(
        "BaseModel\n", "BaseModel, field_validator\n"
    )
    module.write_text(changed, encoding="utf-8")
    refused = shop.ask("checkpoint", "resume", "r", "--crew", "judges:crew")
    assert "its recorded answer does not fit Verdict (good: Value error, no judge is good)" in refused.stderr
    assert "crewlite checkpoint fork r --rerun task:judge --crew judges:crew" in refused.stderr
    assert "resume" not in refused.stderr


@pytest.mark.parametrize("words", [["show"], ["info"], ["rewind", "r~1"]], ids=" ".join)
def test_a_project_file_that_cannot_be_read_fails_no_command_that_needs_no_definition(shop, monkeypatch, words):
    monkeypatch.chdir(shop.path)
    shop.fail("three")
    shop.ask(*BEGIN)
    (shop.path / "pyproject.toml").write_text("[tool.crewlite")
    done = shop.ask("checkpoint", *words, *(() if words[1:] else ("r",)))
    assert (done.returncode, done.stderr) == (0, "")
    assert "crewlite checkpoint resume r --crew MODULE:NAME" in done.stdout
    refused = shop.ask("checkpoint", "resume", "r")
    assert (refused.returncode, "pyproject.toml cannot be read" in refused.stderr) == (1, True)
