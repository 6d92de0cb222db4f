"""Forks of flows and crews at the command line: what was changed, what runs again, and what is refused."""

import json

import pytest

from crewlite import History


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
