"""`crewlite create`: what it writes runs and passes its tests at once, as real processes and without a network."""

import os
import sys
import tomllib
from pathlib import Path

import pytest

from crewlite.cli.create import shipped
from tests import children

ROOT = Path(__file__).parents[2]


def python(*words, cwd):
    offline = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    env = {name: value for name, value in os.environ.items() if name != "CREWLITE_MODEL"}
    env |= {"NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", **offline}
    return children.run([sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, encoding="utf-8")


@pytest.mark.parametrize("more", [[], ["--yaml"]])
def test_a_new_project_runs_and_passes_its_tests_at_once(shop, more):
    done = shop.ask("create", "tide-watch", *more)
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "cd tide-watch" in lines
    assert any(line.endswith(" -m tide_watch") for line in lines)

    project = shop.path / "tide-watch"
    answered = python("-m", "tide_watch", "What makes the seasons?", cwd=project)
    assert (answered.returncode, answered.stderr) == (0, "")
    assert "[seasons.md]" in answered.stdout
    command = ["-m", "crewlite", "run", "--input", "question=When are spring tides?"]
    run = python(*command, cwd=project)
    assert run.returncode == 0, run.stderr
    assert "these are spring tides" in run.stdout
    tested = python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout

    texts = {path: path.read_text(encoding="utf-8") for path in project.rglob("*") if path.suffix != ".pyc"
             and path.is_file() and ".checkpoints" not in path.parts}  # fmt: skip
    names = {path.relative_to(project).as_posix() for path in texts}
    assert {".gitignore", "README.md", "pyproject.toml", "tide_watch/notes/tides.md", "tests/test_crew.py"} <= names
    assert ("tide_watch/config/agents.yaml" in names) == bool(more)
    assert not [path for path, text in texts.items() if "my_crew" in text or "my-crew" in text or "MyCrew" in text]
    for row in texts[project / "README.md"].splitlines():
        if row.startswith("| `"):
            assert (project / row.split("`")[1]).exists(), f"README names {row}, which is not there"


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("two words", 2, "wanted a letter and at most 49 more of a-z A-Z 0-9 - _, such as tide-watch"),
        ("../out", 2, "cannot name a project"),
        ("1st", 2, "cannot name a project; wanted a letter"),
        ("größe", 2, "cannot name a project; wanted a letter and at most 49 more of a-z"),
        ("x" * 51, 2, "cannot name a project"),
        ("Class", 2, "class is a word of Python"),
        ("json", 2, "there is a module json already, which its package would hide. Choose another name"),
        ("crewlite", 2, "there is a module crewlite already"),
        ("con", 2, "con is the name of a device on Windows"),
        ("LPT1", 2, "lpt1 is the name of a device on Windows"),
        ("tests", 2, "its tests are in a folder of this name"),
        ("there", 1, "exists, and nothing is overwritten"),
        ("a-file", 1, "exists, and nothing is overwritten"),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(shop, name, code, said):
    (shop.path / "there").mkdir()
    (shop.path / "a-file").write_text("mine")
    before = sorted(shop.path.rglob("*"))
    done = shop.ask("create", name)
    assert done.returncode == code
    assert said in " ".join(done.stderr.split())
    assert sorted(shop.path.rglob("*")) == before
    assert (shop.path / "a-file").read_text() == "mine"


@pytest.mark.parametrize(("kind", "told"), [("crew", "tide-watch --yaml"), ("flow", "tide-watch")])
def test_the_form_that_crewai_has_says_what_to_write(shop, kind, told):
    done = shop.ask("create", kind, "tide-watch")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"Error: wanted one name: crewlite create {told}")
    assert not (shop.path / "tide-watch").exists()


def test_what_cannot_be_written_leaves_nothing_behind(shop, monkeypatch):
    from crewlite.system import disk

    def full(operation):
        if operation.verb == "write" and operation.path.endswith(".tmp") and "README" in operation.path:
            raise OSError(28, "No space left on device")

    with disk.watched(full):
        done = shop.ask("create", "tide-watch")
    assert done.returncode == 1
    assert "tide-watch was not written (No space left on device): change to a directory you can" in done.stderr
    assert [path.name for path in shop.path.iterdir()] == ["crews.py"]


def test_the_wheel_has_the_folders_that_the_command_copies_from():
    included = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = included["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for name in ("new_project", "founding_documents"):
        assert included[f"examples/{name}"] == f"crewlite/cli/{name}"
        assert shipped(name).is_dir()


def test_run_without_a_target_says_what_is_wanted(shop):
    done = shop.ask("run", "--input", "topic=x")
    assert (done.returncode, "crew in [tool.crewlite] of pyproject.toml" in " ".join(done.stderr.split())) == (2, True)


def test_a_class_that_makes_a_crew_is_named_where_the_attribute_is_missing(shop, monkeypatch):
    shop.ask("create", "tide-watch", "--yaml")
    monkeypatch.chdir(shop.path / "tide-watch")
    done = shop.ask("run", "tide_watch.crew:Crow", "--input", "question=x")
    assert "What there is: TideWatchCrew." in " ".join(done.stderr.split())
