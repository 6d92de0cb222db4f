"""`crewlite test` and `crewlite train`: trials of a crew from the command line, which go on where they were cut."""

import json
import shlex

import pytest

from crewlite import History

JUDGES = """
import json, os
from crewlite import Agent, Crew, Task
from crewlite.testing import ScriptedLLM

def says(messages):
    who = messages[0]["content"]
    if who.startswith("You judge"):
        return json.dumps({"quality": 7, "reason": "Good."})
    if who.startswith("You train"):
        return json.dumps({"suggestions": ["Be brief"], "quality": 6, "final_summary": "Good."})
    if os.path.exists("fail"):
        raise OSError("no answer")
    return "about " + messages[1]["content"].split()[1]

agent = Agent(role="Teller", goal="g", llm=ScriptedLLM(says))
crew = Crew(name="tell", tasks=[Task(name="one", description="Tell {topic}", expected_output="x", agent=agent)])
"""


@pytest.fixture
def office(shop, monkeypatch):
    (shop.path / "judges.py").write_text(JUDGES)
    return shop


def test_a_crew_is_tested_and_goes_on_where_it_was_cut(office):
    words = ["test", "judges:crew", "-n", "2", "--eval-llm", "offline", "--input", "topic=tides"]
    (office.path / "fail").touch()
    cut = office.ask(*words, "--run-id", "t")
    assert cut.returncode == 1
    line = "crewlite test judges:crew --iterations 2 --eval-llm offline --input topic=tides --run-id t"
    assert line in cut.stderr
    (office.path / "fail").unlink()
    done = office.ask(*line.split()[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["task", "run", "1", "run", "2", "mean", "agent"]
    again = office.ask(*words, "--run-id", "t", "--json")
    result = json.loads(again.stdout.splitlines()[-1])
    assert (result["type"], result["run_id"], len(result["value"]["scores"])) == ("result", "t", 2)


def test_inputs_that_came_on_stdin_stand_in_the_line_that_goes_on(office):
    (office.path / "fail").touch()
    words = ["test", "judges:crew", "-n", "1", "--eval-llm", "offline", "--run-id", "s"]
    cut = office.ask(*words, "--inputs-file", "-", stdin='{"topic": "tides", "n": 2}')
    line = shlex.split(cut.stderr.partition("crewlite test ")[2].splitlines()[0])
    assert line[-6:] == ["--input", 'topic:="tides"', "--input", "n:=2", "--run-id", "s"]
    (office.path / "fail").unlink()
    assert office.ask("test", *line).returncode == 0


def test_a_crew_that_no_model_scores_is_told_the_option(office):
    done = office.ask("test", "judges:crew", "--input", "topic=tides")
    assert (done.returncode, "no model scores the answers: --eval-llm M" in done.stderr) == (2, True)


def test_a_crew_is_trained_and_a_person_is_asked_without_feedback(office):
    words = ["train", "judges:crew", "-n", "1", "--input", "topic=tides"]
    done = office.ask(*words, "-f", "own.json", "--feedback", "Shorter.")
    assert (done.returncode, done.stdout) == (0, "Teller (6.0 of 10)\n- Be brief\n")
    assert json.loads((office.path / "own.json").read_text())["Teller"]["suggestions"] == ["Be brief"]
    waits = office.ask(*words, "--run-id", "w")
    assert waits.returncode == 3, waits.stderr
    assert "crewlite train judges:crew --iterations 1" in waits.stderr
    assert "--input topic=tides --run-id w --answer human:feedback.1.one=VALUE" in waits.stderr
    done = office.ask(*words, "--run-id", "w", "--answer", "human:feedback.1.one=Longer.")
    assert (done.returncode, done.stdout) == (0, "Teller (6.0 of 10)\n- Be brief\n")
    with History(office.path / ".checkpoints") as history:
        assert history.run("w").definition["kind"] == "trial"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["test", "crews:clerk"], "crews:clerk is of kind agent; wanted a Crew"),
        (["train", "judges:crew", "-f", "x.pkl"], "plain JSON and never a pickle"),
        (
            ["train", "judges:crew", "-n", "2", "--feedback", "a"],
            "--feedback is given 1 time for 2 iterations; wanted one",
        ),
        (["test", "judges:crew", "-n", "0"], "0 is not in the range"),
        (["test"], "nothing says what to run"),
    ],
)
def test_what_cannot_be_is_a_usage_error(office, words, said):
    done = office.ask(*words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
