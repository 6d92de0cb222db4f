"""list, info, tree and show say what is recorded, to people and to programs, and act upon nothing of it."""

import asyncio
import json
import os
import re
import shlex
import sys

import pytest
from click.testing import CliRunner

from crewlite import Agent, CheckpointConfig, Crew, History, Task, event_bus, tool
from crewlite.cli.main import main
from crewlite.errors import ConfigError, InDoubt, RefError
from crewlite.events import TaskCompletedEvent
from crewlite.state import RuntimeState, SqliteProvider
from crewlite.testing import ScriptedLLM, ToolCall
from tests import children

CREWLITE = [sys.executable, "-c", "from crewlite.cli.main import main; main(prog_name='crewlite')"]
HOSTILE = "a\x1b[31mred\x1b[0m [bold]b[/bold] c\x00d \u202eevil\u202c \x9b2J e\u2028f \U0001f600 [/] end"


@tool(effect="none")
def search(query: str) -> str:
    """Search."""
    return f"found {query}"


def crew_of(llm, location, count=3, **fields):
    agent = Agent(role="Worker", goal="work", llm=llm, tools=[search])
    names = ("facts", "style", "text") if count == 3 else [f"t{n}" for n in range(count)]
    tasks = [Task(name=n, description=f"{n} {{topic}}", expected_output="text", agent=agent, context=[]) for n in names]
    return Crew(name="reports", tasks=tasks, checkpoint=CheckpointConfig(location=location, **fields))


def fill(location):
    """A finished run with two forks, a failed run, one that was killed, one with twelve tasks."""
    replies = [ToolCall("search", {"query": "tides"}), "tides come\nand go", "plain", "Tides come."]
    crew_of(ScriptedLLM(replies), location).kickoff({"topic": "tides"}, run_id="report")
    crew_of(ScriptedLLM(["flowery", "O!"]), location).fork("report/main@task:facts", branch="bold").kickoff()
    with History(location) as history:
        history.fork("report/bold", branch="bold/deeper")
    with pytest.raises(RuntimeError):
        crew_of(ScriptedLLM([HOSTILE, RuntimeError(HOSTILE)]), location).kickoff({"topic": HOSTILE}, run_id="hostile")
    crew_of(ScriptedLLM(["x"] * 12), location, 12).kickoff({"topic": "many"}, run_id="twelve")
    killed = (
        "import os\nfrom crewlite import Agent, CheckpointConfig, Crew, Task, tool\n"
        "from crewlite.testing import ScriptedLLM, ToolCall\n"
        "@tool(effect='once')\ndef pay(amount: int) -> str:\n    'Pay.'\n    os._exit(9)\n"
        "agent = Agent(role='W', goal='w', llm=ScriptedLLM(['a', ToolCall('pay', {'amount': 3})]), tools=[pay])\n"
        "tasks = [Task(name=n, description=n, expected_output='t', agent=agent) for n in ('a', 'pay')]\n"
        f"Crew(tasks=tasks, checkpoint=CheckpointConfig(location={str(location)!r})).kickoff(run_id='killed')\n"
    )
    assert children.run([sys.executable, "-c", killed]).returncode == 9
    return str(location)


@pytest.fixture(scope="module", params=["json", "sqlite"])
def location(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("reading")
    return fill(place / ("runs.db" if request.param == "sqlite" else "runs"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("terminal") / "runs")


def ask(*words, code=0, said="stdout"):
    done = CliRunner().invoke(main, ["checkpoint", *map(str, words)], prog_name="crewlite")
    assert done.exit_code == code, (done.output, done.exception)
    return str(getattr(done, said))


def ask_json(*words):
    return json.loads(ask(*words, "--json"))


def rows(text):
    head, *lines = text.splitlines()
    return head.split(), [re.split(r" {2,}", line.strip()) for line in lines]


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


# --- show


def test_show_lists_every_step_below_the_one_it_is_part_of(location):
    text = ask("show", "report", "--location", location)
    steps = re.findall(r"^(\s*)(the crew|task:\S+) +(\w+) +finished", text, re.MULTILINE)
    assert [(len(indent) // 2, name) for indent, name, _ in steps] == [
        (0, "the crew"),
        (1, "task:facts"),
        (2, "task:facts/llm#1"),
        (2, "task:facts/tool:search"),
        (2, "task:facts/llm#2"),
        (1, "task:style"),
        (2, "task:style/llm#1"),
        (1, "task:text"),
        (2, "task:text/llm#1"),
    ]
    assert 'search({"query": "tides"})' in text
    assert "tides come\n" in text, "the first line of a value"
    assert "and go" not in text


def test_show_adds_up_the_tokens_of_what_is_inside_a_step(location):
    steps = {row[0]: row for row in rows(ask("show", "report", "--location", location).partition("\n\n")[2])[1]}
    with History(location) as history:
        run = history.run("report")
    for address, name in (("", "the crew"), ("task:facts", "task:facts"), ("task:facts/llm#2", "task:facts/llm#2")):
        tokens = str(run.usage_of(address).total_tokens)
        assert tokens in steps[name]
        assert f"{tokens} tokens" in ask("show", "report", "--step", address or "crew", "--location", location)


def test_show_adds_up_what_the_run_rests_on_and_tells_apart_what_a_rewind_has_abandoned(tmp_path):
    location = str(tmp_path / "runs.db")
    crew_of(ScriptedLLM(["x"] * 3), location).kickoff({"topic": ""}, run_id="r")

    def tokens(*names):
        table = {row[0]: row for row in rows(ask("show", "r", "--location", location).partition("\n\n")[2])[1]}
        return [table[name][5] for name in names]

    before = tokens("the crew", "task:facts", "task:text")
    assert "abandoned" not in ask("show", "r", "--location", location)
    with History(location) as history:
        history.rewind("r@task:facts")
    crew_of(ScriptedLLM(["x"] * 2), location).kickoff({"topic": ""}, run_id="r")
    assert tokens("the crew", "task:facts", "task:text") == before
    text = ask("show", "r", "--location", location)
    assert re.search(r"usage +\d+ tokens .* in 5 calls", text)
    assert re.search(r"abandoned +of these, \d+ tokens .* in 2 calls", text)
    with History(location) as history:
        assert "Of that abandoned" in history.as_html("r")


def test_show_of_a_killed_run_tells_what_is_open_and_what_is_in_doubt(location):
    text = ask("show", "killed", "--location", location)
    assert re.search(r"the crew +- +unfinished", text)
    assert re.search(r"task:pay +- +unfinished", text)
    assert re.search(r"task:pay/tool:pay +tool +in_doubt", text)


def test_show_of_a_failed_run_tells_why(location):
    text = ask("show", "hostile", "--location", location)
    assert text.startswith("✗ hostile/main  failed\n")
    assert "task:style/llm#1  try 1, scripted, given up\n    RuntimeError: a\\x1b[31mred" in text
    assert "task:style  try 1, given up\n    because task:style/llm#1 failed" in text


def test_a_reason_that_is_cut_ends_in_an_ellipsis(tmp_path):
    where = CheckpointConfig(location=tmp_path)
    agent = Agent(role="W", goal="w", llm=ScriptedLLM([RuntimeError("x" * 300)]), checkpoint=where)
    with pytest.raises(RuntimeError):
        agent.kickoff("Well?", run_id="long")
    (because,) = re.findall("because +(.*)\n", ask("show", "long", "--location", str(tmp_path)).partition("\n\n")[0])
    assert because == "RuntimeError: ".ljust(199, "x") + "…"


def test_show_of_a_step_prints_its_whole_value(location):
    assert "text:\n  tides come\n  and go\n" in ask(
        "show", "report", "--step", "task:facts/llm#2", "--location", location
    )
    assert "raw: plain\nagent: Worker\n" in ask("show", "report", "--step", "task:style", "--location", location)
    assert "tasks: [" in ask("show", "report", "--step", "crew", "--location", location)
    assert "Traceback" in ask("show", "hostile", "--step", "task:style/llm#1", "--location", location)


def test_show_of_a_step_by_its_end_wants_it_to_be_the_only_one(location):
    assert "text:\n  tides come\n" in ask("show", "report", "--step", "llm#2", "--location", location)
    done = CliRunner().invoke(main, ["checkpoint", "show", "report", "--step", "llm#1", "--location", location])
    assert done.exit_code == 1
    assert "names 3 steps" in done.stderr
    assert "task:style/llm#1" in done.stderr
    done = CliRunner().invoke(main, ["checkpoint", "show", "report", "--step", "x", "--location", location])
    assert "names no step" in done.stderr


def test_show_of_events_lists_them_in_order(location):
    head, found = rows(ask("show", "report", "--events", "--location", location))
    assert head == ["seq", "when", "event", "address"]
    with History(location) as history:
        events = history.run("report").events()
    assert [(row[0], row[2]) for row in found] == [(str(event.seq), event.type) for event in events]
    assert ask_json("show", "report", "--events", "--location", location)["events"][0]["type"] == events[0].type


def test_show_in_json_holds_steps_and_attempts_decoded(location):
    said = ask_json("show", "hostile", "--location", location)
    assert said["status"] == "failed"
    assert said["inputs"]["topic"] == HOSTILE
    assert said["steps"][0]["value"] == {"text": HOSTILE}
    assert said["attempts"][0]["message"] == HOSTILE
    assert said["usage"]["cost"] is None
    step = ask_json("show", "report", "--step", "task:facts/llm#2", "--location", location)["step"]
    assert step["value"] == {"text": "tides come\nand go"}


def test_show_in_json_has_the_sums_of_the_table_and_the_model_of_each_call(location):
    for ref in ("report", "killed"):
        said, table = ask_json("show", ref, "--location", location), rows(ask("show", ref, "--location", location))[1]
        shown = {row[0]: row[5] for row in table if len(row) == 8}
        sums = {at: used["total_tokens"] for at, used in said["usage_of"].items()}
        assert sums == {at: int(shown[at]) for at in shown if any(inside.startswith(f"{at}/") for inside in shown)}
    calls = {step["address"]: step["model"] for step in said["steps"] if step["kind"] == "llm"}
    assert set(calls.values()) == {"scripted"}
    one = ask_json("show", "report", "--step", "task:facts", "--location", location)
    assert one["usage_of"]["task:facts"]["requests"] == 2
    assert "  model  scripted\n" in ask("show", "report", "--step", "task:style/llm#1", "--location", location)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["list"], "There are older ones: "),
        (["list", "--runs"], "1 older run left out: "),
        (["tree"], "1 older run left"),
    ],
    ids=["list", "list --runs", "tree"],
)
def test_an_answer_in_json_says_that_there_is_more_and_how_to_get_it(tmp_path, words, left):
    runs, location = 21 if "--runs" in words else 11, str(tmp_path / "runs")
    for number in range(runs):
        crew_of(ScriptedLLM(["x", "x"]), location, 2).kickoff({"topic": ""}, run_id=f"r{number}")
    done = CliRunner().invoke(main, ["checkpoint", *words, location, "--json"])
    said = json.loads(done.stdout)
    assert said["more"] is True
    assert done.stderr.startswith(left)
    assert done.stderr.endswith("--all\n")
    done = CliRunner().invoke(main, ["checkpoint", *words, location, "--json", "--all"])
    assert (json.loads(done.stdout)["more"], done.stderr) == (False, "")


# --- hostile text, streams and terminals


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["list", "--runs"],
        ["tree"],
        ["info", "hostile"],
        ["show", "hostile"],
        ["show", "hostile", "--step", "task:facts"],
        ["show", "hostile", "--step", "task:style/llm#1"],
        ["show", "hostile", "--events"],
        ["show", "hostile", "--json"],
        ["info", "hostile", "--json"],
        ["info", HOSTILE],
        ["show", "hostile", "--step", HOSTILE],
    ],
)
def test_nothing_that_was_recorded_or_typed_acts_on_the_terminal(location, words):
    done = CliRunner().invoke(main, ["checkpoint", "--location", location, *words])
    for text in (done.stdout, done.stderr):
        assert [c for c in text if not c.isprintable() and c != "\n"] == []
    shown = done.stdout + done.stderr
    if "hostile" in words and words[-1] in ("hostile", "task:facts", "task:style/llm#1"):
        assert "[bold]b[/bold]" in shown or "[bold]b" in shown, "markup is shown, not obeyed"
        assert "\\u202eevil" in shown or "info" in words


def run(*words, stdout=children.PIPE, **environment):
    env = {**os.environ, "PYTHONIOENCODING": "utf-8", **environment}
    done = children.run([*CREWLITE, "checkpoint", *words], stdout=stdout, stderr=children.PIPE, env=env)
    return done


@pytest.mark.parametrize("words", [["tree"], ["show", "hostile"], ["show", "report"]])
def test_a_stream_that_takes_ascii_only_gets_it(directory, words):
    done = run(*words, "--location", directory, PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode("ascii")
    assert "\\U0001f600" in text or "hostile" not in words
    assert ("`- + main" in text) == (words == ["tree"])


def test_a_pipe_that_is_closed_early_ends_it_quietly(directory):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = run("tree", "--all", "--location", directory, stdout=pipe)
    assert done.stderr == b""
    assert done.returncode in (0, 1)


def on_terminal(directory, *words, columns=80, **environment):
    """What a command prints on a terminal of so many columns."""
    pty = pytest.importorskip("pty")
    main_end, own_end = pty.openpty()
    env = {**os.environ, "PYTHONIOENCODING": "utf-8", "TERM": "xterm-256color", "COLUMNS": str(columns), **environment}
    command = [*CREWLITE, "checkpoint", "--location", directory, *words]
    with children.Child(command, stdin=own_end, stdout=own_end, stderr=own_end, env=env) as child:
        os.close(own_end)
        text = b""
        while True:
            try:
                part = os.read(main_end, 65536)
            except OSError:  # how Linux says that the other end is closed
                part = b""
            if not part:
                break
            text += part
    os.close(main_end)
    return child.returncode, text.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
@pytest.mark.parametrize("words", [["list"], ["list", "--runs"], ["tree"], ["show", "hostile"], ["show", "report"]])
def test_a_terminal_of_eighty_columns_holds_every_line(directory, words):
    code, text = on_terminal(directory, *words)
    assert code == 0
    assert "\x1b[3" in text, "in colour"
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).split("\r\n")
    long = [line for line in lines if len(line) > 80]
    whole = ("    RuntimeError", "to go on  crewlite")
    assert [line for line in long if not line.startswith(whole)] == [], "but for what is quoted whole"
    assert "ago" in text or "just now" in text or "show" in words


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
def test_no_color_is_honoured_and_a_narrow_terminal_leaves_columns_out(directory):
    code, text = on_terminal(directory, "list", "--runs", columns=50, NO_COLOR="1")
    assert code == 0
    assert re.findall(r"\x1b\[[0-9;]*3[1-7]", text) == []
    head = re.sub(r"\x1b\[[0-9;]*m", "", text).split("\r\n")[0].split()
    assert head == ["run", "branch", "status", "tasks", "tokens"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
def test_deep_forks_and_long_names_do_not_break_the_tree(tmp_path):
    location = str(tmp_path / "runs")
    crew_of(ScriptedLLM(["x"] * 3), location).kickoff({"topic": ""}, run_id="r" * 100)
    with History(location) as history:
        branch = "main"
        for n in range(40):
            history.fork(f"{'r' * 100}/{branch}", branch=f"b{n}")
            branch = f"b{n}"
    _, text = on_terminal(location, "tree")
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", text).split("\r\n"))) <= 80
    assert "b39" in ask("tree", location)


def test_a_run_at_work_says_who_is_at_it_and_not_how_to_go_on(tmp_path):
    place = str(tmp_path / "runs")
    holds = (
        "import sys\nfrom crewlite import Agent, CheckpointConfig\nfrom crewlite.testing import ScriptedLLM\n"
        "def act(messages):\n    print('here', flush=True)\n    sys.stdin.readline()\n    return 'x'\n"
        f"config = CheckpointConfig(location={place!r}, on_events=True)\n"
        "Agent(role='W', goal='w', llm=ScriptedLLM(act), checkpoint=config).kickoff('Well?', run_id='busy')\n"
    )
    process = children.Child([sys.executable, "-c", holds], stdin=-1, stdout=-1, text=True)
    process.stdout.readline()
    said = f"at work (process {process.pid} on "
    shown = ask("show", "busy", "--location", place)
    assert said in shown.splitlines()[0]
    assert "no step has finished yet" in shown
    assert "crewlite checkpoint resume" not in shown
    assert said in ask("tree", "--location", place)
    assert json.loads(ask("show", "busy", "--json", "--location", place))["at_work"].startswith("process ")
    process.communicate("\n")
    with History(place) as history:
        assert history.run("busy").at_work is None
    assert "at work" not in ask("show", "busy", "--location", place)


def test_a_run_at_work_in_this_process_is_known_to_be(tmp_path):
    seen = []

    def look(messages):
        with History(tmp_path / "runs") as history:
            seen.append(history.run("own").at_work)
        return "x"

    config = CheckpointConfig(location=tmp_path / "runs")
    Agent(role="W", goal="w", llm=ScriptedLLM(look), checkpoint=config).kickoff("Well?", run_id="own")
    assert seen == ["this process"]


def test_a_call_in_doubt_comes_with_the_lines_that_settle_it(location):
    for words in (["show", "killed"], ["info", "killed"]):
        text = ask(*words, "--location", location)
        at = re.search(r"in doubt  (\S+)( with {.*})? did not finish", text)[1]
        line = rf"crewlite checkpoint resume killed {{}} --location {re.escape(location)} --crew MODULE:NAME\n"
        assert re.search(line.format(re.escape(f"--answer '{at}=RESULT'").replace("'", "'?")), text)
        assert re.search(line.format(rf"--rerun '?{re.escape(at)}'?"), text)
        assert "to go on" not in text  # which is refused until the doubt is settled


def test_the_arguments_of_a_call_in_doubt_are_told_as_a_person_has_changed_them(tmp_path):
    """The same ones by the error, by `show` and by the preview."""

    @tool(effect="once", requires_approval=True, timeout=0.05)
    async def pay(amount: int) -> str:
        """Pay."""
        await asyncio.Event().wait()
        return "never"

    agent = Agent(role="Clerk", goal="pay", llm=ScriptedLLM([ToolCall("pay", {"amount": 900})]), tools=[pay])
    tasks = [Task(name="t", description="d", expected_output="x", agent=agent)]
    crew = Crew(tasks=tasks, checkpoint=CheckpointConfig(location=tmp_path / "runs"))
    with pytest.raises(InDoubt, match=r'tool pay at task:t/tool:pay with {"amount": 90} ') as caught:
        crew.kickoff(run_id="r", answers={"task:t/human:pay": {"arguments": {"amount": 90}}})
    told = f"{caught.value.address} with {{"
    assert f'in doubt  {told}"amount": 90}} did not finish' in ask("show", "r", "--location", str(tmp_path / "runs"))
    (foretold,) = (one.why for one in crew.preview(run_id="r") if one.address == "task:t")
    assert """a call with effect='once' with {"amount": 90}: kickoff will raise InDoubt, unless given""" in foretold


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
