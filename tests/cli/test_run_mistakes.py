"""What `crewlite run` cannot run is one error, with its place and what to write instead, before anything is paid."""

import pytest


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


def test_a_function_that_makes_a_crew_is_told_apart_from_its_module(shop):
    done = shop.run("def make():\n    raise RuntimeError('boom')\n")
    assert "Error: broken:make was called and raised RuntimeError: boom (broken.py, line 4)" in done.stderr
    done = shop.run("async def make():\n    return crews.crew\n")
    assert (done.returncode, "is an async function" in done.stderr) == (2, True)
    done = shop.run("def other() -> Crew:\n    ...\ndef text() -> str:\n    ...\n")
    assert "What there is: other." in done.stderr


def test_a_key_in_the_environment_is_not_printed(shop, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-123456789")
    for code in ("raise RuntimeError('boom sk-123456789')", "def make():\n    raise ValueError('sk-123456789')\n"):
        done = shop.run(code)
        assert "[secret]" in done.stderr
        assert "sk-1" not in done.stderr + done.stdout


def test_a_misspelt_setting_of_the_project_is_told(shop, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.crewlite]\ncrw = "crews:crew"\n')
    done = shop.ask("run", "crews:crew", "--input", "topic=x")
    assert (done.returncode, "[tool.crewlite] has 'crw'; it takes only crew" in done.stderr) == (1, True)


def test_an_answer_that_is_none_is_told_how_one_looks(shop):
    done = shop.ask("run", "crews:crew", "--answer", "nonsense")
    assert (done.returncode, "wanted ADDRESS=VALUE or ADDRESS:=JSON" in done.stderr) == (2, True)


CLASSY = """
from crewlite import Agent, Crew, Task

class Research:
    def crew(self):
        agent = Agent(role="Clerk", goal="answer", llm="offline")
        return Crew(name="research", tasks=[Task(description="What is a tide?", expected_output="x", agent=agent)])

class Other:
    pass
"""


def test_a_class_with_a_method_crew_is_a_definition(shop):
    (shop.path / "classy.py").write_text(CLASSY)
    done = shop.ask("run", "classy.py:Research")
    assert (done.returncode, "extracted by crewlite" in done.stdout) == (0, True)
    done = shop.ask("run", "classy.py:Other")
    assert done.returncode == 2
    assert "is the class Other; wanted a Crew" in done.stderr
    assert "What there is: Research." in done.stderr


def test_a_file_without_an_attribute_is_told_with_what_is_in_it(shop):
    (shop.path / "classy.py").write_text(CLASSY)
    done = shop.ask("run", "classy.py")
    assert done.returncode == 2
    assert "names no definition; wanted package.module:attribute, file.py:attribute or a crew in JSON" in done.stderr
    assert "What there is: classy.py:Research." in done.stderr
