"""The file of a task stays in the working directory, whatever its inputs are, and the model is not paid before."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from crewlite import Agent, Crew, Task, ToolCall, tool
from crewlite.errors import ConfigError
from crewlite.testing import ScriptedLLM
from tests import children
from tests.parts import Fact


def run(output_file, *, inputs=None, tools=(), replies=("text",), **fields):
    """Kick off two tasks, the second of which writes a file; and the calls of the model."""
    llm = ScriptedLLM([*replies, "text"] if tools else ["text", *replies])
    who = Agent(role="W", goal="g", llm=llm, tools=tools)
    about = {"description": "d", "expected_output": "x", "agent": who}
    try:
        Crew(tasks=[Task(**about), Task(name="t", output_file=output_file, **about, **fields)]).kickoff(inputs)
    finally:
        run.calls = len(llm.calls)


LONG = "x" * 201


@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        ("../../etc/x", "goes up with '..'"),
        ("a/../../x", "goes up with '..'"),
        ("..\\..\\x", "goes up with '..'"),
        ("/etc/x", "is an absolute path"),
        ("\\\\host\\share\\x", "is an absolute path"),
        ("C:x", "is an absolute path"),
        ("~/x", "~ is not replaced by a home directory"),
        ("~root/x", "~ is not replaced by a home directory"),
        ("a\0b", "holds a NUL character"),
        ("a\ud800b", "holds characters that no name of a file can have"),
        ("", "names no file"),
        ("a/", "names no file"),
        ("a/.", "names no file"),
        (LONG, "a name of 201 bytes; wanted at most 200"),
        ("ä" * 101, "a name of 202 bytes"),
    ],
)
def test_inputs_cannot_lead_it_elsewhere_and_no_task_is_begun(topic, problem):
    with pytest.raises(ConfigError, match=rf"Task 't': output_file is .*{problem}"):
        run("{topic}", inputs={"topic": topic})
    assert run.calls == 0, "not even for the task before it"
    assert list(Path().iterdir()) == []


def test_an_absolute_path_in_the_working_directory_is_taken():
    run(str(Path.cwd() / "reports" / "{topic}.md"), inputs={"topic": "tides"})
    assert Path("reports/tides.md").exists()


@pytest.mark.parametrize("text", ["", " ", "/tmp/x.md", "../x.md", "~/x.md", "C:\\x.md", "/srv/{topic}.md", "out/"])
def test_a_path_that_the_author_wrote_is_checked_when_the_task_is_defined(text):
    with pytest.raises(ConfigError, match="Task 'd': output_file is"):
        Task(description="d", expected_output="x", output_file=text)


def test_a_longer_way_inside_and_a_brace_are_what_they_are():
    run("out/{topic}/{{a}}.md", inputs={"topic": "über/b c"})
    assert Path("out/über/b c/{a}.md").read_text() == "text"


def test_it_may_be_anywhere_if_the_task_allows_it(tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with pytest.raises(ConfigError, match=r"unless Task\(output_file_anywhere=True\)"):
        Task(description="d", expected_output="x", output_file=str(elsewhere / "a.md"))
    run(str(elsewhere / "{topic}.md"), inputs={"topic": "a"}, output_file_anywhere=True)
    assert (elsewhere / "a.md").read_text() == "text"
    with pytest.raises(ConfigError, match="holds a NUL character"):
        run("{topic}", inputs={"topic": "a\0"}, output_file_anywhere=True)


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_links_are_followed_before_the_model_is_asked_and_before_the_file_is_written(tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    Path("in").mkdir()
    Path("in/out").symlink_to(elsewhere)
    Path("in/file.md").symlink_to(elsewhere / "file.md")
    Path("circle").symlink_to("circle")
    Path("inside").symlink_to("in")
    for text, problem in (("in/out/a.md", "a link leads to"), ("in/file.md", "a link leads to"), ("circle/a.md", "")):
        with pytest.raises(ConfigError, match=f"Task 't': output_file is .*{problem}"):
            run(text)
        assert run.calls == 0, "not even the task before it is begun"
    run("inside/a.md")
    assert Path("in/a.md").read_text() == "text"

    @tool
    def swap() -> str:
        """Put a link in the place of the directory."""
        Path("later").symlink_to(elsewhere)
        return "done"

    with pytest.raises(ConfigError, match="a link leads to"):
        run("later/a.md", tools=[swap], replies=["text", ToolCall("swap", {})])
    assert list(elsewhere.iterdir()) == []


def test_a_missing_directory_is_made_unless_it_must_be_there():
    with pytest.raises(ConfigError, match="there is no directory .*make it, or leave out create_directory=False"):
        run("out/a.md", create_directory=False)
    assert run.calls == 1
    Path("out").mkdir()
    run("out/a.md", create_directory=False)
    assert Path("out/a.md").read_text() == "text"


@pytest.mark.parametrize(("place", "problem"), [("out", "is a directory"), ("file/below/it.md", "is no directory")])
def test_a_place_that_holds_something_else_is_told_before_the_model_is_paid(place, problem):
    Path("out").mkdir()
    Path("file").write_text("text")
    with pytest.raises(ConfigError, match=f"Task 't': output_file is .*{problem}"):
        run(place)
    assert run.calls == 1, "of the task before"


@pytest.mark.parametrize("kind", ["output_pydantic", "output_json", "response_model"])
def test_a_structured_answer_is_written_as_json(kind):
    run("it.json", replies=['Here it is:\n```json\n{"word": "tide"}\n```'], **{kind: Fact})
    assert json.loads(Path("it.json").read_text()) == {"word": "tide"}


def test_markdown_is_asked_for_and_part_of_the_question(memory):
    def crew(**fields):
        who = Agent(role="W", goal="g", llm=ScriptedLLM(["# a"]))
        return Crew(tasks=[Task(description="d", expected_output="x", agent=who, **fields)], checkpoint=memory())

    one = crew(markdown=True)
    one.kickoff(run_id="r")
    assert "Write the answer in Markdown" in one.tasks[0].agent.llm.calls[0][-1]["content"]
    with pytest.raises(ValueError, match="it is asked something else now"):
        crew().kickoff(run_id="r")


KILLED = """
import os, sys
from crewlite import Agent, Crew, Task
from crewlite.system import disk
from crewlite.testing import ScriptedLLM

def kill(operation):
    if operation.verb == "rename" and "report.md" in operation.path and sys.argv[1:]:
        os._exit(9)

agent = Agent(role="W", goal="g", llm=ScriptedLLM(["text"]))
task = Task(name="t", description="d", expected_output="x", agent=agent, output_file="out/report.md")
with disk.watched(kill):
    print(Crew(tasks=[task], checkpoint=True).kickoff(run_id="r"))
"""


def test_a_write_that_was_killed_leaves_nothing_once_the_run_has_gone_on():
    Path("out").mkdir()
    others = Path("out/.report.md.0123456789ab.tmp"), Path("out/.report.md.tmp")
    for other in others:
        other.write_text("of somebody else")
    ends = []
    for words in (["kill"], ["kill"], []):
        done = children.run([sys.executable, "-c", KILLED, *words], stdout=children.PIPE, text=True)
        ends.append((done.returncode, len(list(Path("out").iterdir())) - len(others)))
    assert ends == [(9, 1), (9, 1), (0, 1)]
    assert Path("out/report.md").read_text() == "text"
    assert all(other.exists() for other in others)
