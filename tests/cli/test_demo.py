"""The demo is real: a process is killed, another goes on, and nothing recorded runs again."""

import os
import re
import signal
import sys

import pytest

from crewlite import History
from tests import children

CREWLITE = [sys.executable, "-c", "from crewlite.cli.main import main; main()"]


def run(*arguments, **environment):
    env = {**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", **environment}
    return children.run([*CREWLITE, *arguments], capture_output=True, env=env)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def shown(place):
    ended = run("demo", "--directory", str(place))
    assert ended.returncode == 0, ended.stderr.decode()
    assert ended.stderr == b""
    return ended.stdout.decode("utf-8")


def test_the_demo_really_kills_the_first_process(shown):
    killed = re.search(r"killed \(exit code (-?\d+)\) in the middle of (\S+)", shown)
    assert killed
    assert int(killed[1]) == (1 if sys.platform == "win32" else -signal.SIGKILL)
    assert killed[2].startswith("task:")


def test_nothing_that_was_recorded_runs_again(shown):
    table = shown.partition("1st process")[2].splitlines()
    rows = re.findall(r"^  (\S.*?) {2,}(ran|cut|) +(ran|reused)\b", "\n".join(table), re.MULTILINE)
    assert {tuple(row[1:]) for row in rows} == {("ran", "reused"), ("cut", "ran"), ("", "ran")}
    kept = [step for step, first, second in rows if (first, second) == ("ran", "reused")]
    assert len(kept) >= 9
    assert f"✓ Recorded before the kill: {len(kept)} steps. None of them ran again." in shown


def test_the_second_process_finishes_the_same_run(shown, place):
    with History(place / ".checkpoints") as history:
        (found,) = history.runs()
        assert found.status == "finished"
        addresses = [step.address for step in found.steps]
    assert found.run_id in shown
    assert len(addresses) == len(set(addresses))


def test_the_brief_is_written_and_cited(shown, place):
    brief = (place / "brief.md").read_text(encoding="utf-8")
    cited = re.findall(r"\[([a-z_]+\.md):(\d+)\]", brief)
    assert len({name for name, _ in cited}) >= 3
    assert str(place / "brief.md") in shown
    assert "no language model was asked" in brief


def test_every_citation_of_the_brief_is_true(place, shown):
    from crewlite.cli.demo_crew import read_document

    for line in (place / "brief.md").read_text(encoding="utf-8").splitlines():
        if quote := re.fullmatch(r"- (.+) \[([^:]+):(\d+)\]", line):
            text, name, number = quote.groups()
            assert f"{name}:{number}: {text}" in read_document(name).splitlines()


def test_the_line_it_ends_with_works(shown, place):
    line = shown.rstrip().splitlines()[-1].split()
    ended = children.run(line, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert ended.returncode == 0
    assert "crew brief has finished" in ended.stdout.decode("utf-8")


def test_it_fits_eighty_columns_and_a_stream_without_ticks(tmp_path):
    ended = run("demo", "--directory", str(tmp_path), "--kill-after", "4", PYTHONIOENCODING="ascii")
    assert ended.returncode == 0
    table = [line for line in ended.stdout.decode("ascii").splitlines() if line.startswith(("|", "+-"))]
    assert max(map(len, table)) <= 80


def test_a_crew_that_ends_before_the_kill_is_said_to_have_done_so(tmp_path):
    ended = run("demo", "--directory", str(tmp_path), "--kill-after", "99")
    out = ended.stdout.decode("utf-8")
    assert ended.returncode == 0, ended.stderr.decode()
    told = re.search(
        r"The crew had its result after (\d+) recorded steps, before it was to be killed: nothing was", out
    )
    assert told
    assert "killed (exit code" not in out
    assert f"Recorded by the first process: {told[1]} steps. None of them ran again." in out


def test_no_model_is_taken_from_the_environment(tmp_path):
    ended = run("demo", "--directory", str(tmp_path), "--kill-after", "2", CREWLITE_MODEL="nobody")
    assert ended.returncode == 0, ended.stderr.decode()


def test_a_crew_that_stops_by_itself_is_said_to_have_done_so_and_how_to_go_on_without_a_traceback(tmp_path):
    ended = run("demo", "--directory", str(tmp_path), "--model", "openai/nobody", OPENAI_API_KEY="")
    said = ended.stderr.decode()
    assert ended.returncode == 1
    assert "OPENAI_API_KEY" in said
    assert "the crew stopped by itself, with exit code 1" in said
    assert re.search(
        r"to go on with it: \S+ -m crewlite.cli.demo_crew --directory \S+ --run-id demo-\w+ --model openai/nobody", said
    )
    assert "Traceback" not in said


def test_the_command_knows_its_version():
    assert run("--version").stdout.decode().startswith("crewlite, version ")
