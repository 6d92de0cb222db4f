"""list, info and tree say what is recorded, to people and to programs, and act upon nothing of it."""

import re
import shlex

import pytest
from click.testing import CliRunner

from crewlite import Agent, CheckpointConfig, History, event_bus
from crewlite.cli.main import main
from crewlite.errors import ConfigError, RefError
from crewlite.events import TaskCompletedEvent
from crewlite.state import RuntimeState, SqliteProvider
from crewlite.testing import ScriptedLLM
from tests.cli.recorded_runs import ask, ask_json, crew_of, rows

# --- list


def test_list_shows_the_checkpoints_of_all_runs_newest_first(location):
    head, found = rows(ask("list", location, "--all"))
    assert head == ["id", "run", "branch", "trigger", "at", "when", "label"]
    with History(location) as history:
        wanted = [[p.id[-8:], p.run_id, p.branch, p.trigger, p.address] for p in history.checkpoints()]
    assert [row[:5] for row in found] == wanted
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[5]) and row[6] == "-" for row in found)


def test_a_page_ends_with_how_to_get_the_next(location):
    whole = [row[0] for row in rows(ask("list", location, "--all"))[1]]
    done = CliRunner().invoke(main, ["checkpoint", "list", location, "--limit", "2"])
    assert [row[0] for row in rows(done.stdout)[1]] == whole[:2]
    assert done.stderr == f"There are older ones: --before {whole[1]}, or --all\n"
    again = ask("list", location, "--limit", "3", "--before", whole[1])
    assert [row[0] for row in rows(again)[1]] == whole[2:5]


def test_list_of_a_run_shows_all_its_branches_and_of_a_branch_what_it_stands_on(location):
    assert [row[2] for row in rows(ask("list", "report", "--location", location))[1]] == ["bold"] * 2 + ["main"] * 3
    assert [row[2] for row in rows(ask("list", "report/bold", "--location", location))[1]] == ["bold"] * 2 + ["main"]


def test_list_of_runs_shows_how_each_stands(location):
    found = {(row[0], row[1]): row[2:6] for row in rows(ask("list", "--runs", location))[1]}
    with History(location) as history:
        tokens = history.run("report").usage.total_tokens
    assert found["report", "main"] == ["finished", "3/3", str(tokens), "unknown"]
    assert found["hostile", "main"][:2] == ["failed", "1/3"]
    assert found["killed", "main"][:2] == ["unfinished", "1/2"]
    assert len(rows(ask("list", "--runs", "report", "--location", location))[1]) == 3


def test_list_in_json_has_the_names_of_the_python_api(location):
    said = ask_json("list", location, "--limit", "2")
    with History(location) as history:
        place = history.checkpoints(limit=1)[0]
    assert said["location"] == location
    assert said["checkpoints"][0] == {
        name: getattr(place, name)
        for name in (
            *("id", "run_id", "branch", "seq", "parent_id"),
            *("trigger", "address", "label", "created_at", "abandoned"),
        )
    }
    runs = ask_json("list", location, "--runs")["runs"]
    report = next(run for run in runs if run["run_id"] == "report" and run["branch"] == "bold")
    assert report["usage"]["cost"] is None
    assert report["base"]["branch"] == "main"
    assert report["status"] == "finished"
    assert report["inputs"] == {"topic": "tides"}


def test_labels_are_shown_and_named_by(tmp_path):
    location = str(tmp_path / "runs.db")

    def label(source, event, state):
        if event.address == "task:t5":
            state.checkpoint(label="good", metadata={"why": "it reads well"})

    with event_bus.on(TaskCompletedEvent, label):
        crew_of(ScriptedLLM(["x"] * 12), location, 12).kickoff({"topic": ""}, run_id="labelled")
    assert [row[6] for row in rows(ask("list", location))[1] if row[6] != "-"] == ["good"]
    taken = ask("label", "labelled@task:t3", "good", "--location", location, code=1, said="stderr")
    (command,) = re.findall(r"What there is: crewlite checkpoint (.+)", taken)
    assert "good" in ask(*shlex.split(command))
    assert re.search(r"task:t5  label:good  \d", ask("tree", location)), "though most of the branch is left out"
    text = ask("info", "labelled@label:good", "--location", location)
    assert re.search(r"label +good\nmetadata +\{\"why\": \"it reads well\"\}", text)


# --- info


def test_info_shows_the_newest_checkpoint_of_a_location_and_says_so(location):
    text = ask("info", location)
    assert text.startswith(f"the newest checkpoint in {location}, killed/main\n")
    assert "killed/main, now unfinished" in text
    assert "cost unknown" in text
    assert re.search(r"tasks +[✓+] task:a\n +[○-] task:pay not done", text)


@pytest.mark.parametrize("ref", ["report/main@task:facts", "report@task:facts", "report~2"])
def test_info_takes_every_kind_of_ref(location, ref):
    said = ask_json("info", ref, "--location", location)
    assert (said["run_id"], said["branch"], said["address"]) == ("report", "main", "task:facts")
    for other in (said["id"], said["id"][-8:], said["id"][-9:-1]):
        assert ask_json("info", other, "--location", location)["id"] == said["id"]
    assert ask_json("info", said["ref"])["id"] == said["id"], "a file, or db#id, from anywhere"
    assert said["tasks"] == ["task:facts"]
    assert said["created_at"].endswith("+00:00")


def test_info_ends_with_lines_to_copy(location):
    text = ask("info", "hostile", "--location", location)
    assert f"crewlite checkpoint resume hostile --location {location} --crew MODULE:NAME\n" in text
    text = ask("info", "report/bold@task:style", "--location", location)
    assert "resume" not in text, "it is finished"
    assert re.search(rf"crewlite checkpoint fork [0-9a-f]{{8}} --location {location} --crew MODULE:NAME\n", text)


def test_info_of_a_run_without_checkpoints_says_so(tmp_path):
    crew_of(ScriptedLLM(["x"] * 3), tmp_path / "runs", on_events=["task_failed"]).kickoff({"topic": ""}, run_id="bare")
    done = CliRunner().invoke(main, ["checkpoint", "info", "bare", "--location", str(tmp_path / "runs")])
    assert done.exit_code == 1
    assert "bare/main has no checkpoints" in done.stderr


# --- tree


def test_the_tree_hangs_forks_on_the_places_they_came_from(location):
    text = re.sub(r"[0-9a-f]{8}  |\d{4}-\S+Z|, \d+ tokens", "", ask("tree", "--run", "report", "--location", location))
    assert [line.rstrip() for line in text.splitlines()] == [
        "report  crew reports, begun",
        "└─ ✓ main  finished, 3 of 3 tasks",
        "   ├─ ● task:facts",
        "   │  └─ ✓ bold  finished, 3 of 3 tasks",
        "   │     ├─ ● task:style",
        "   │     └─ ● task:text  head",
        "   │        └─ ✓ bold/deeper  finished, 3 of 3 tasks",
        "   ├─ ● task:style",
        "   └─ ● task:text  head",
    ]


def test_a_fork_of_an_abandoned_place_hangs_there_and_a_label_is_a_name_of_its_place(tmp_path):
    location = str(tmp_path / "runs.db")
    crew_of(ScriptedLLM(["x"] * 3), location).kickoff({"topic": ""}, run_id="r")
    with History(location) as history:
        for name in ("good", "best"):
            history.label("r@task:facts", name)
        history.rewind("r@task:facts")
        history.fork("r@abandoned:1", branch="end")
        history.fork("r@task:style", branch="middle")
        history.fork("r@label:best", branch="from-best")
    text = ask("tree", location)
    assert "middle  not run yet, inherits 2 of 3 tasks, " in text
    text = re.sub(r"[0-9a-f]{8}  |\d{4}-\S+Z|, .*tokens|, abandoned.*", "", text)
    assert [line.rstrip() for line in text.splitlines()[1:]] == [
        "└─ ▸ main  unfinished",
        "   ├─ ● task:facts  head  label:good  label:best",
        "   │  └─ ▸ from-best  not run yet",
        "   └─ ○ @abandoned:1  finished",
        "      ├─ ● task:style",
        "      │  └─ ▸ middle  not run yet",
        "      └─ ● task:text",
        "         └─ ✓ end  finished",
    ]
    assert re.findall(r"task:(\w+) .* (\S+)$", ask("list", location), re.MULTILINE) == [
        ("text", "-"),
        ("style", "-"),
        ("facts", "best"),
    ]
    assert "good, best" in ask("list", location)


def test_the_tree_is_what_the_group_shows_without_a_command(location):
    assert ask("--location", location) == ask("tree", location)
    assert "▸ main  unfinished, 1 of 2 tasks" in ask("--location", location)
    assert ask_json("--location", location) == ask_json("tree", location)


def test_a_long_branch_shows_its_ends_and_with_all_the_whole(location):
    text = ask("tree", "twelve", "--location", location)
    assert re.findall(r"task:t(\d+)|(\.\.\. 7 more: --all)", text) == [
        ("0", ""),
        ("1", ""),
        ("", "... 7 more: --all"),
        ("9", ""),
        ("10", ""),
        ("11", ""),
    ]
    assert ask("tree", "twelve", "--all", "--location", location).count("●") == 12


def test_the_tree_in_json_has_each_branch_with_its_own_places(location):
    said = {(run["run_id"], run["branch"]): run for run in ask_json("tree", location)["runs"]}
    main_, bold = said["report", "main"], said["report", "bold"]
    assert [place["address"] for place in bold["checkpoints"]] == ["task:style", "task:text"]
    assert bold["base"]["checkpoint_id"] == main_["checkpoints"][0]["id"]
    assert said["report", "bold/deeper"]["checkpoints"] == []


# --- states, and where a location is


def test_a_state_is_shown_by_its_snapshots_and_goes_on_in_python(tmp_path):
    location = str(tmp_path / "kept")
    with RuntimeState.open("bag", location) as state:
        state["log"] = "x" * 3_000_000
        state.snapshot(label="first")
        state["n"] = 1
        state.snapshot()
    opens = f"RuntimeState.open('bag', {location!r})"
    shown = ask("show", "bag", "--location", location)
    assert opens in shown
    assert [line.split()[0] for line in shown.splitlines() if "log" in line] == ["1", "2"]
    told = ask("info", "bag", "--location", location)
    assert len(told) < 3_000
    assert "(3,000,002 characters; --json has them all), n: 1" in told
    assert re.search(r"version +2", told)
    assert [one["version"] for one in ask_json("list", "bag", "--location", location)["checkpoints"]] == [2, 1]
    made = ask("fork", "bag", "--location", location, "--no-run", "--branch", "b", said="stderr")
    assert f"Made bag/b. To open it: RuntimeState.open('bag/b', {location!r})" in made
    assert opens in ask("resume", "bag", "--location", location, code=1, said="stderr")
    assert f"History({location!r}).fork(" in ask("fork", "bag", "--location", location, code=1, said="stderr")
    with_inputs = ask("fork", "bag", "--location", location, "--no-run", "--input", "a=b", code=1, said="stderr")
    assert "bag is a saved state, and a state takes no inputs" in with_inputs
    assert "--no-run" not in with_inputs, "that is what the caller has just done"
    assert "bag/main is a saved state, not a run" in ask("cancel", "bag", "--location", location, code=1, said="stderr")
    with (
        History(location) as history,
        pytest.raises(ConfigError, match="bag is a saved state, and a state takes no inputs"),
    ):
        history.fork("bag", inputs={"a": 1})


@pytest.mark.parametrize("kind", ["json", "sqlite"])
def test_info_of_a_location_shows_the_newest_checkpoint_of_a_fork_too(tmp_path, kind):
    location = str(tmp_path / ("runs.db" if kind == "sqlite" else "runs"))
    crew_of(ScriptedLLM(["a", "b", "c"]), location).kickoff({"topic": "tides"}, run_id="old")
    crew_of(ScriptedLLM(["a", "b", "c"]), location).kickoff({"topic": "tides"}, run_id="new")
    crew_of(ScriptedLLM(["x", "y"]), location).fork("old/main@task:facts", branch="side").kickoff()
    text = ask("info", location)
    assert text.startswith(f"the newest checkpoint in {location}, old/side\n")


def test_a_database_is_made_exactly_where_it_is_to_be_and_found_there(tmp_path):
    place = tmp_path / "mydb"
    config = CheckpointConfig(location=str(place), provider=SqliteProvider(), on_events=True)
    Agent(role="W", goal="w", llm=ScriptedLLM(["well"]), checkpoint=config).kickoff("Well?", run_id="own")
    assert place.is_file() and not place.with_name("mydb.db").exists()
    for words in (["info", str(place)], ["show", "own", "--location", str(place)], ["list", str(place)]):
        assert "own" in ask(*words)
    with History(str(place)) as history:
        assert [run.run_id for run in history.runs()] == ["own"]


def test_a_database_that_an_earlier_release_put_beside_its_location_is_found(tmp_path):
    beside = CheckpointConfig(location=str(tmp_path / "mydb.db"))
    Agent(role="W", goal="w", llm=ScriptedLLM(["well"]), checkpoint=beside).kickoff("Well?", run_id="own")
    config = CheckpointConfig(location=str(tmp_path / "mydb"), provider=SqliteProvider())
    again = Agent(role="W", goal="w", llm=ScriptedLLM([]), checkpoint=config).kickoff("Well?", run_id="own")
    assert again.raw == "well"
    assert not (tmp_path / "mydb").exists()
    assert "own" in ask("show", "own", "--location", str(tmp_path / "mydb"))


def test_the_default_location_of_a_database_is_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = CheckpointConfig(provider=SqliteProvider())
    Agent(role="W", goal="w", llm=ScriptedLLM(["well"]), checkpoint=config).kickoff("Well?", run_id="own")
    assert (tmp_path / ".checkpoints.db").is_file()


def test_a_mistyped_run_is_told_with_the_nearest_first(location):
    for ref in ("reprot", "reprot@task:facts"):
        with History(location) as history, pytest.raises(RefError, match=r"did you mean 'report'\?") as caught:
            history.checkpoint(ref)
        assert caught.value.candidates[0] == "report"
