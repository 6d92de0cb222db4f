"""show says what is recorded of a run, who is at work on it, and what settles a call in doubt."""

import asyncio
import json
import re
import sys

import pytest
from click.testing import CliRunner

from crewlite import LLM, Agent, CheckpointConfig, Crew, History, Task, tool
from crewlite.cli.main import main
from crewlite.errors import InDoubt, LLMError
from crewlite.testing import ScriptedLLM, ToolCall
from tests import children
from tests.cli.recorded_runs import HOSTILE, ask, ask_json, crew_of, rows


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


# --- runs at work, and calls in doubt


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


def test_a_step_whose_outcome_a_prune_has_dropped_is_not_told_as_unfinished(tmp_path):
    def crew(name, replies, **settings):
        pilot = Agent(role="Pilot", goal="g", llm=ScriptedLLM(replies), tools=settings.pop("tools", []))
        return Crew(name=name, tasks=[Task(name="t", description="d", expected_output="x", agent=pilot)], **settings)

    @tool
    def look() -> str:
        """Look."""
        return crew("inner", ["noon"]).kickoff().raw * 200

    config = CheckpointConfig(location=tmp_path / "runs")
    outer = crew("outer", [ToolCall("look", {}), "f", ToolCall("look", {}), "g"], tools=[look], checkpoint=config)
    outer.kickoff(run_id="r")
    outer.fork("r", branch="b", edits={"task:t/tool:look/crew:inner/task:t": "low"}).kickoff()
    with History(config.location) as history:
        history.prune(keep_last=1)
    text = ask("show", "r/b", "--location", config.location)
    assert ("unfinished" in text, text.count(" pruned ")) == (False, 2), text


@pytest.mark.parametrize(("key", "named"), [(None, True), ("k", False)], ids=["no key here", "a key here"])
def test_a_crew_whose_model_has_no_key_here_is_to_be_named(tmp_path, monkeypatch, key, named):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = LLM("openai/x", base_url="http://127.0.0.1:9/v1", api_key="k", max_retries=0)
    agent = Agent(role="R", goal="g", llm=model)
    config = CheckpointConfig(location=tmp_path / "runs")
    task = Task(name="t", description="d", expected_output="x", agent=agent)
    with pytest.raises(LLMError):
        Crew(tasks=[task], checkpoint=config).kickoff(run_id="r")
    if key:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    line = next(line for line in ask("show", "r", "--location", config.location).splitlines() if "resume r" in line)
    assert line.endswith("--crew MODULE:NAME") is named


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
