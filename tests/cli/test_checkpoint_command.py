"""The command finds its location, answers fast, ends with documented codes and completes what is typed."""

import json
import os
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from crewlite import Agent, CheckpointConfig, History
from crewlite.cli import exits
from crewlite.cli.checkpoint import where
from crewlite.cli.main import LazyGroup, main
from crewlite.coming_from.commands import COMMANDS
from crewlite.errors import ConfigError, Suspended
from crewlite.flow import ask as asked, flow
from crewlite.testing import ScriptedLLM
from tests import children

CREWLITE = [sys.executable, "-c", "from crewlite.cli.main import main; main(prog_name='crewlite')"]


def kick_off(location, run_id):
    config = CheckpointConfig(location=location, on_events=True)
    Agent(role="Clerk", goal="answer", llm=ScriptedLLM(["x"]), checkpoint=config).kickoff("What?", run_id=run_id)


def ask(*words):
    return CliRunner().invoke(main, ["checkpoint", *map(str, words)], prog_name="crewlite")


# --- where


def test_without_a_location_the_directory_goes_before_the_database(tmp_path):
    kick_off(".checkpoints.db", "in-database")
    assert "in-database" in ask("list").stdout
    kick_off(".checkpoints", "in-directory")
    shown = ask("list").stdout
    assert "in-directory" in shown
    assert "in-database" not in shown


def test_where_there_is_nothing_it_says_where_it_looked_and_what_to_do(tmp_path):
    for words in ([], ["list"], ["info"], ["tree"], ["show"], ["doctor"], ["prune", "--keep-last", "1"]):
        done = ask(*words)
        assert done.exit_code == 1
        assert done.stdout == ""
        assert done.stderr.startswith("Error: no checkpoints here: there is neither ./.checkpoints/ nor")
        assert "--location PATH" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_location_may_be_given_to_the_group_or_to_the_command(tmp_path):
    kick_off("a.db", "a")
    kick_off("b", "b")
    assert "a" in ask("--location", "a.db", "list", "--runs").stdout
    assert ask("list", "--location", "a.db").stdout == ask("--location", "b", "list", "--location", "a.db").stdout
    assert ask("--json", "--location", "b", "list").stdout == ask("list", "--location", "b", "--json").stdout
    done = ask("list", "--location", "nowhere")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "'nowhere' does not exist" in done.stderr


def test_a_bare_word_names_a_run_before_it_names_a_directory(tmp_path):
    kick_off(".checkpoints", "report")
    kick_off("report", "another")
    kick_off("stored", "third")
    assert "  report  " in ask("list", "report").stdout
    assert "  another  " in ask("list", "./report").stdout
    assert "  third  " in ask("list", "stored").stdout
    assert "  third  " in ask("list", "stored/").stdout


def test_an_empty_directory_holds_no_runs_and_is_left_as_it_is(tmp_path):
    Path("empty").mkdir()
    for words in (["list"], ["list", "--runs"], ["tree"]):
        done = ask(*words, "./empty")
        assert (done.exit_code, done.stdout) == (0, "")
        assert done.stderr in ("No checkpoints in ./empty.\n", "No runs in ./empty.\n")
    assert list(Path("empty").iterdir()) == []


def test_a_file_that_is_no_store_is_an_error(tmp_path):
    Path("x.db").write_text("hello, this is a text")
    Path("y.json").write_text("{}")
    for words in (["list", "x.db"], ["info", "y.json"], ["import", "y.json", "--location", "z"]):
        done = ask(*words)
        assert done.exit_code == 1
        assert done.stderr.startswith("Error: ")
        assert isinstance(done.exception, SystemExit)


def test_what_names_nothing_is_told_with_what_to_do(tmp_path):
    kick_off(".checkpoints", "report")
    for words in (["info", "nobody"], ["show", "nobody"], ["list", "nobody"], ["export", "nobody", "f.json"]):
        done = ask(*words)
        assert done.exit_code == 1
        assert "'nobody' names nothing in ./.checkpoints. Candidates: report." in done.stderr
    assert not Path("f.json").exists()
    for words in (["info", "reprot"], ["fork", "reprot"], ["info", "reprot@latest"], ["delete", "reprot", "--yes"]):
        done = ask(*words)
        assert done.exit_code == 1
        assert "; did you mean 'report'? Candidates: report." in done.stderr


# --- exits


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, exits.OK, ""),
        (ConfigError("found \x1b[31mthat\nfile"), exits.FAILED, "Error: found \\x1b[31mthat\\nfile\n"),
        (PermissionError(13, "Permission denied", "/x"), exits.FAILED, "Error: [Errno 13] Permission denied: '/x'\n"),
        (KeyboardInterrupt(), exits.INTERRUPTED, ""),
        (click.UsageError("so not"), exits.USAGE, "Usage: c \nError: so not\n"),
    ],
)
def test_every_end_has_its_code_and_no_traceback(error, code, said):
    def act():
        if error:
            raise error

    group = LazyGroup("c", late={"act": ("nowhere:act", "Act.")}, commands={"act": click.Command("act", callback=act)})
    done = CliRunner().invoke(group, ["act"], prog_name="c")
    assert done.exit_code == code
    assert "Traceback" not in done.output
    if code != exits.USAGE:
        assert done.stderr == said


def test_a_bug_is_not_dressed_up_as_an_error_of_the_user():
    def act():
        raise ZeroDivisionError

    group = LazyGroup("c", late={"act": ("nowhere:act", "Act.")}, commands={"act": click.Command("act", callback=act)})
    assert isinstance(CliRunner().invoke(group, ["act"]).exception, ZeroDivisionError)


# --- late commands


def groups():
    found = [main]
    for group in found:
        ctx = click.Context(group, info_name="x")
        found += [c for name in group.list_commands(ctx) if isinstance(c := group.get_command(ctx, name), LazyGroup)]
    return found


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.name)
def test_the_line_of_help_that_is_shown_without_loading_is_that_of_the_command(group):
    ctx = click.Context(group, info_name="x")
    for name, (_, line) in group.late.items():
        assert group.get_command(ctx, name).help.splitlines()[0] == line, name


@pytest.mark.parametrize(
    "words", [["--help"], ["checkpoint", "--help"], ["checkpoint", "list", "--help"], ["completion", "zsh"]]
)
def test_help_loads_nothing_that_costs(words):
    code = (
        "import sys\nfrom crewlite.cli.main import main\n"
        f"try: main({words!r})\n"
        "except SystemExit: pass\n"
        "print([m for m in ('rich', 'sqlite_utils', 'sqlite3', 'jinja2', 'litellm') if m in sys.modules])"
    )
    done = children.run([sys.executable, "-c", code], capture_output=True, text=True, cold=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


# --- completion


def completed(line, **environment):
    words = line.split(" ")
    env = {**os.environ, "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), **environment}
    env["_CREWLITE_COMPLETE"] = "bash_complete"
    done = children.run(CREWLITE, capture_output=True, text=True, env=env)
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_and_refs_are_completed(tmp_path):
    kick_off(".checkpoints", "report")
    kick_off("other.db", "another")
    with History(".checkpoints") as history:
        history.fork("report", branch="bold")
        place = history.checkpoints()[0].id[-8:]
    assert "plain,checkpoint" in completed("crewlite ch")
    assert "plain,info" in completed("crewlite checkpoint in")
    assert completed("crewlite checkpoint show rep") == ["plain,report", "plain,report/bold"]
    assert set(completed("crewlite checkpoint info ")) == {
        "plain,report",
        "plain,report/bold",
        "plain,latest",
        f"plain,{place}",
    }
    assert completed("crewlite checkpoint --location other.db info a")[:1] == ["plain,another"]
    assert completed("crewlite checkpoint info ./x") == ["file,./x"]


def test_completion_is_silent_whatever_is_wrong(tmp_path):
    assert completed("crewlite checkpoint info x") == []
    Path(".checkpoints.db").write_text("this is no database")
    assert completed("crewlite checkpoint info x") == []
    assert completed("crewlite checkpoint --location nowhere info x") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_asks_crewlite(shell):
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert f"_CREWLITE_COMPLETE={shell}_complete" in done.stdout


def test_an_answer_in_json_is_one_document_and_nothing_else(tmp_path):
    kick_off(".checkpoints", "report")
    path = Path(".checkpoints/journal/report/main.jsonl")
    path.write_bytes(path.read_bytes() + b'{"torn')  # a write that was cut, which is warned of
    for words in (["list"], ["list", "--runs"], ["info"], ["tree"], ["show"], ["show", "--events"], []):
        done = ask(*words, "--json")
        assert done.exit_code == 0, words
        assert isinstance(json.loads(done.stdout), dict)


def test_an_option_of_another_command_names_the_commands_that_have_it():
    said = ask("resume", "r", "--input", "topic=other").stderr
    assert "No such option '--input'. It is an option of: " in said
    assert "checkpoint fork, " in said
    assert "option of" not in ask("resume", "r", "--jsn").stderr


def test_an_answer_may_be_a_negative_number(tmp_path):
    @flow(checkpoint=True)
    def pay():
        return asked("How much?", int, name="n")

    with pytest.raises(Suspended):
        pay.kickoff(run_id="one")
    assert "No such option" in ask("answer", "one", "human:n", "--jsn").stderr
    done = ask("answer", "one", "human:n", -5, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert pay.kickoff(run_id="one") == -5


def test_a_misspelt_command_gets_the_one_that_was_meant(tmp_path):
    done = CliRunner().invoke(main, ["chekpoint"], prog_name="crewlite")
    assert (done.exit_code, "Did you mean 'checkpoint'?" in done.stderr) == (2, True)
    assert "Did you mean 'list'?" in ask("lst").stderr
    done = CliRunner().invoke(main, ["show", "r"], prog_name="crewlite")
    assert (done.exit_code, "Did you mean 'crewlite checkpoint show'?" in done.stderr) == (2, True)
    assert "No such command 'xyz'" in ask("xyz").stderr
    assert "Did you mean 'crewlite checkpoint'?" in ask("tui").stderr
    assert "Did you mean 'crewlite checkpoint fork'?" in ask("replay", "-t", "1").stderr
    assert "Did you mean 'crewlite run'?" in ask("run", "flows:publish").stderr
    assert "Did you mean 'crewlite checkpoint diff'?" in ask("compare", "a", "b").stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_crewai_says_what_to_do_instead(command):
    done = CliRunner().invoke(main, [command, "create"], prog_name="crewlite")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (
        2,
        f"Error: No such command {command!r}: {COMMANDS[command]}",
    )
    assert command not in main.late


def test_the_command_is_also_a_module():
    done = children.run([sys.executable, "-m", "crewlite", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.startswith("crewlite, version")) == (0, True)


def test_what_a_shell_would_trip_over_is_not_completed():
    items = where._items({"good": "two\nlines", "ugly": "a\x1b[31m b", "bad\nname": "x", "worse\x1b": "x"})
    assert [(item.value, item.help) for item in items] == [("good", "two"), ("ugly", "a[31m b")]


def test_the_lines_to_copy_leave_out_the_location_that_is_looked_at_anyway(tmp_path):
    kick_off(".checkpoints.db", "one")
    assert "fork" in (shown := ask("info", "one").stdout)
    assert "--location" not in shown
    with pytest.MonkeyPatch.context() as patch:
        Path("deep").mkdir()
        patch.chdir("deep")
        assert "--location ../.checkpoints.db" in ask("info", "one", "--location", "../.checkpoints.db").stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_output_that_cannot_be_written_is_called_so(tmp_path):
    kick_off(".checkpoints", "one")
    for words in (["list"], ["show"], ["tree", "--json"], ["resume", "one"]):
        with open("/dev/full", "w") as full:
            done = children.run([*CREWLITE, "checkpoint", *words], stdout=full, stderr=children.PIPE, text=True)
        assert done.returncode == 1, words
        assert "Error: the output cannot be written: [Errno 28]" in done.stderr
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr


@children.posix
def test_a_command_works_with_streams_that_are_closed(tmp_path):
    Path("program.py").write_text(
        "from crewlite import Agent\nclerk = Agent(role='Clerk', goal='answer', llm='offline')\n"
    )
    kick_off(".checkpoints", "one")
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        for words, code in (
            (["run", "program.py:clerk", "--message", "Well?"], 0),
            (["run", "program.py:clerk", "--message", "Well?", "--json"], 0),
            (["checkpoint", "list"], 0),
            (["checkpoint"], 0),
            (["checkpoint", "delete", "one"], 2),
        ):
            program = ["sh", "-c", f'exec "$@" {closed}', "sh", *CREWLITE, *words]
            done = children.run(program, stdout=children.PIPE, stderr=children.PIPE, text=True)
            assert done.returncode == code, (closed, words, done.stderr)
            assert "Traceback" not in done.stderr
