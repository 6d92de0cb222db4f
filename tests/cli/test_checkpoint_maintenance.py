"""prune, delete, export, import and doctor do what History does, say what they did, and end with the right code."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.cli.checkpoint import maintenance
from crewlite.cli.main import main
from crewlite.errors import JournalCorrupt
from crewlite.testing import ScriptedLLM
from tests import children
from tests.cli.recorded_runs import CREWLITE


def kick_off(location, run_id, *, count=3, fails=False):
    agent = Agent(role="W", goal="w", llm=ScriptedLLM(["x"] * (count - fails) + [RuntimeError("no")] * fails))
    tasks = [Task(name=f"t{n}", description=f"{n}", expected_output="t", agent=agent, context=[]) for n in range(count)]
    crew = Crew(name="c", tasks=tasks, checkpoint=CheckpointConfig(location=location))
    if fails:
        with pytest.raises(RuntimeError):
            crew.kickoff(run_id=run_id)
    else:
        crew.kickoff(run_id=run_id)


@pytest.fixture(params=["json", "sqlite"])
def location(request, tmp_path):
    place = str(tmp_path / ("runs.db" if request.param == "sqlite" else "runs"))
    kick_off(place, "one")
    kick_off(place, "broken", fails=True)
    return place


def ask(*words, code=0, **fields):
    done = CliRunner().invoke(main, ["checkpoint", *map(str, words)], prog_name="crewlite", **fields)
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout


def places(location):
    with History(location) as history:
        return [(place.run_id, place.address) for place in reversed(history.checkpoints())]


def runs(location):
    with History(location) as history:
        return {run.run_id for run in history.runs()}


def test_prune_without_a_word_on_what_may_go_says_what_to_pass(location):
    done = CliRunner().invoke(main, ["checkpoint", "prune", "--location", location])
    assert done.exit_code == 2
    assert "--keep-last 5, or --older-than 30d" in done.stderr


def test_what_a_task_has_used_is_shown_also_once_its_calls_are_pruned(location):
    def shown():
        text = ask("show", "one", "--location", location)
        used = json.loads(ask("show", "one", "--json", "--location", location))["usage_of"]
        return text.count("/llm#"), {at: sums["total_tokens"] for at, sums in used.items()}

    before = shown()
    ask("prune", "--keep-last", 1, "--location", location)
    assert (before[0], shown()) == (3, (0, before[1]))


def test_prune_keeps_the_last_checkpoints_and_says_what_it_took(location):
    before = places(location)
    text = ask("prune", "--keep-last", 1, "--dry-run", "--location", location)
    assert re.match(r"3 checkpoints would be taken away: \w{8}, \w{8}, \w{8}\n", text)
    assert places(location) == before
    said = json.loads(ask("prune", "--keep-last", 1, "--json", "--location", location))
    assert sorted(said) == [
        "busy",
        "checkpoints",
        "dry_run",
        "freed",
        "holding",
        "location",
        "results",
        "runs",
        "unreadable",
    ]
    assert (len(said["checkpoints"]), said["runs"], said["dry_run"]) == (3, [], False)
    assert places(location) == [("one", "task:t2"), ("broken", "task:t1")]
    assert ask("prune", "--keep-last", 1, "--location", location) == "nothing to take away\n"


def test_what_a_prune_has_taken_is_told_as_such(location):
    """A checkpoint, and a step inside a finished one, that are not kept any more are not told as misspelt."""
    ask("prune", "--keep-last", 1, "--location", location)

    def refused(*words):
        done = CliRunner().invoke(main, ["checkpoint", *words, "--location", location], prog_name="crewlite")
        assert done.exit_code == 1
        return done.stderr

    gone = "names no checkpoint of this branch any more: 2 checkpoints of it were pruned"
    assert gone in refused("fork", "one@task:t0", "--no-run")
    assert gone in refused("rewind", "one@task:t0")
    inside = "'task:t0/llm#1' is inside task:t0, of which only the outcome is recorded; a prune drops the rest"
    assert inside in refused("fork", "one", "--edit", "task:t0/llm#1=y", "--no-run")
    assert inside in refused("show", "one", "--step", "task:t0/llm#1")


def test_the_candidates_for_going_further_back_than_the_first_checkpoint_are_not_abandoned(location):
    ask("rewind", "one~1", "--location", location)
    done = CliRunner().invoke(main, ["checkpoint", "rewind", "one~9", "--location", location], prog_name="crewlite")
    assert "(task:t0)" in done.stderr
    assert "(task:t2)" not in done.stderr


def test_prune_deletes_old_finished_runs(location):
    assert "nothing" in ask("prune", "--older-than", "7d", "--location", location)
    assert ask("prune", "--older-than", "0s", "--location", location).startswith("1 run deleted: one\n")
    assert runs(location) == {"broken"}


@pytest.mark.parametrize("span", ["7", "d", "-1d", "1y", "7 days", "1e3d"])
def test_a_span_that_is_none_is_a_wrong_usage(location, span):
    done = CliRunner().invoke(main, ["checkpoint", "prune", "--older-than", span, "--location", location])
    assert done.exit_code == 2


@pytest.mark.parametrize(("answer", "left"), [("n", 2), ("y", 1)])
def test_on_a_terminal_prune_asks_first(location, answer, left, monkeypatch):
    monkeypatch.setattr(maintenance, "sees_terminal", lambda: True)
    done = CliRunner().invoke(
        main, ["checkpoint", "prune", "--older-than", "0s", "--location", location], input=f"{answer}\n"
    )
    assert done.exit_code == (0 if answer == "y" else 1)
    assert "1 run would be deleted: one" in done.stderr
    assert "Go on?" in done.stderr
    assert len(runs(location)) == left


def test_a_question_on_a_terminal_leaves_the_answer_in_json_alone(location, monkeypatch):
    monkeypatch.setattr(maintenance, "sees_terminal", lambda: True)
    command = ["checkpoint", "prune", "--older-than", "0s", "--json", "--location", location]
    done = CliRunner().invoke(main, command, input="y\n")
    assert json.loads(done.stdout)["runs"] == ["one"]


def test_delete_takes_a_whole_run_away(location):
    assert ask("delete", "broken", "--yes", "--location", location).startswith("1 run deleted: broken\n")
    assert runs(location) == {"one"}
    done = CliRunner().invoke(main, ["checkpoint", "delete", "broken", "--location", location])
    assert done.exit_code == 1
    assert "'broken' names no run" in done.stderr
    assert "one" in done.stderr
    done = CliRunner().invoke(main, ["checkpoint", "delete", "one/main", "--location", location])
    assert "names branch 'main', which cannot be deleted alone: delete run 'one'" in done.stderr


def test_a_run_travels_by_export_and_import(location, tmp_path):
    with History(location) as history:
        digest = history.run("one").digest
    file, other = tmp_path / "one.json", tmp_path / "other.db"
    assert digest in ask("export", "one", file, "--location", location)
    assert ask("import", file, "--location", other) == f"imported one (finished) into {other}\n"
    said = json.loads(ask("import", file, "--location", other, "--json"))
    assert (said["run_id"], said["status"], said["digest"]) == ("one", "finished", digest)
    assert json.loads(ask("export", "latest", file, "--force", "--json", "--location", other))["digest"] == digest


def test_import_of_nothing_makes_nothing(tmp_path):
    done = CliRunner().invoke(main, ["checkpoint", "import", "nothing.json"])
    assert done.exit_code == 1
    assert "does not exist" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_import_goes_to_the_location_of_this_directory(tmp_path):
    kick_off(str(tmp_path / "elsewhere"), "one")
    ask("export", "one", "one.json", "--location", "elsewhere")
    assert ask("import", "one.json") == "imported one (finished) into ./.checkpoints\n"
    assert runs(".checkpoints") == {"one"}


def damage(location):
    """Change a recorded word of run `one`. A database is damaged through its own door."""
    if location.endswith(".db"):
        code = """import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE entry SET body = replace(body, 't1', 't9') WHERE seq = 5 "
           "AND branch_id = (SELECT id FROM branch WHERE run_id = 'one')")
db.commit()
db.close()"""
        children.run([sys.executable, "-c", code, location], check=True)
        return
    path = Path(location, "journal", "one", "main.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:4], lines[4].replace("t1", "t9"), *lines[5:]]))


def test_doctor_of_a_sound_location_says_so(location):
    assert "all is well" in ask("doctor", "--location", location)
    assert json.loads(ask("doctor", "--json", "--location", location)) == {"location": location, "findings": []}


def test_doctor_finds_what_is_damaged_and_mends_it(location):
    damage(location)
    text = ask("doctor", "--location", location, code=1)
    assert "damaged_journal" in text
    assert "to do" in text
    [found, *_] = json.loads(ask("doctor", "--json", "--location", location, code=1))["findings"]
    assert sorted(found) == ["problem", "remedy", "repaired", "sound", "what", "where"]
    assert "done" in ask("doctor", "--repair", "--location", location)
    assert "all is well" in ask("doctor", "--location", location)


def test_an_error_of_damage_names_the_command_that_mends_it(location):
    damage(location)
    with History(location) as history, pytest.raises(JournalCorrupt) as caught:
        history.run("one").steps  # noqa: B018
    _, command, _ = str(caught.value).split("`")
    words = shlex.split(command)
    assert words[:2] == ["crewlite", "checkpoint"]
    assert "done" in ask(*words[2:])
    assert f"History({location!r}).doctor(repair=True)" in str(caught.value)
    with History(location) as history:
        assert history.run("one").steps


def test_one_damaged_run_does_not_hide_the_others(location):
    damage(location)
    assert re.search(r"one +main +damaged", ask("list", "--runs", location))
    tree = ask("tree", location)
    assert re.search(r"! main  damaged: .*(checksum|entry|commit)", tree)
    assert "✗ main  failed" in tree
    said = {run["run_id"]: run for run in json.loads(ask("tree", location, "--json"))["runs"]}
    assert (said["one"]["status"], said["broken"]["status"]) == ("damaged", "failed")
    done = CliRunner().invoke(main, ["checkpoint", "show", "one", "--location", location])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")


def test_the_real_command_ends_with_the_code_of_its_doctor(location):
    damage(location)
    command = [*CREWLITE, "checkpoint", "--location", location, "doctor"]
    assert children.run(command, capture_output=True).returncode == 1
    assert children.run([*command, "--repair"], capture_output=True).returncode == 0
    assert children.run(command, capture_output=True).returncode == 0


def test_delete_wants_yes_where_nobody_can_be_asked(location):
    done = CliRunner().invoke(main, ["checkpoint", "delete", "broken", "--location", location])
    assert done.exit_code == 2
    assert "--yes" in done.stderr
    assert runs(location) == {"one", "broken"}


def test_delete_wants_the_name_of_a_run(location):
    done = CliRunner().invoke(main, ["checkpoint", "delete", "latest", "--yes", "--location", location])
    assert (done.exit_code, "delete needs the name of a run" in done.stderr) == (2, True)
    assert runs(location) == {"one", "broken"}


def test_delete_names_each_candidate_once(location):
    with History(location) as history:
        history.fork("one", branch="bold")
    done = CliRunner().invoke(main, ["checkpoint", "delete", "nosuch", "--location", location])
    assert re.search(r"Candidates: (one, broken|broken, one)\.\n", done.stderr)


def test_export_writes_over_a_file_only_if_it_is_told_to(location, tmp_path):
    (tmp_path / "mine").write_text("mine")
    done = CliRunner().invoke(main, ["checkpoint", "export", "one", "mine", "--location", location])
    assert done.exit_code == 2
    assert "--force" in done.stderr
    assert (tmp_path / "mine").read_text() == "mine"
    ask("export", "one", "mine", "--force", "--location", location)
    assert json.loads((tmp_path / "mine").read_text())["run_id"] == "one"


def test_a_file_that_is_no_export_is_told_without_talk_of_doctors(location, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    done = CliRunner().invoke(main, ["checkpoint", "import", "x.json", "--location", location])
    assert done.exit_code == 1
    assert done.stderr == "Error: x.json: this is not an exported run. Nothing was imported: export the run again.\n"


def test_what_a_doctor_does_is_said_in_words_of_the_command(location):
    damage(location)
    done = CliRunner().invoke(main, ["checkpoint", "show", "one", "--location", location])
    assert "crewlite checkpoint doctor --repair" in done.stderr
    told = ask("doctor", "--location", location, code=1)
    assert "With --repair: " in told
    assert "repair=True" not in told
    mended = ask("doctor", "--repair", "--location", location)
    assert "Done:" not in mended
    assert re.search(r"done +\w", mended)
