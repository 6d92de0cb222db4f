"""Two runs beside each other: which steps are the same, what else differs, and how that reads."""

import json

import pytest

from crewlite import LLM, Agent, CheckpointConfig, Crew, History, Task, ToolCall
from crewlite.cli.checkpoint.document import plain
from crewlite.errors import RefError
from crewlite.flow import Flow, flow, listen, start
from crewlite.state import SqliteProvider
from crewlite.state.comparing.fields import changed_lines
from crewlite.state.comparing.run_diff import settings_of
from crewlite.state.format.entry import next_entry
from crewlite.state.providers.base import Commit
from crewlite.testing import ScriptedLLM
from tests.parts import look


def crew_of(setting, *replies, **fields):
    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM([*replies]), tools=[look])
    facts = Task(name="facts", description="Facts about {topic}", expected_output="text", agent=agent, context=[])
    style = Task(name="style", description="Choose a style", expected_output="text", agent=agent, context=[])
    text = Task(name="text", description="Write", expected_output="text", agent=agent, context=[facts, style])
    return Crew(tasks=[facts, style, text], checkpoint=setting, **fields)


def opened(setting):
    return History(setting.location, setting.provider)


def statuses(diff):
    return {step.address: step.status for step in diff.steps}


def test_a_fork_beside_its_base_tells_what_it_did_otherwise(stored):
    kept = stored()
    crew_of(kept, ToolCall("look", {"where": "here"}), "tides come", "plain", "Tides.").kickoff(
        {"topic": "tides"}, run_id="r"
    )
    crew_of(kept, "moons pull", "Moons.").fork("r", branch="moons", inputs={"topic": "moons"}).kickoff()
    with opened(kept) as history:
        diff = history.diff("r", "r/moons")
        assert statuses(diff) == {
            "": "changed",
            "task:facts": "changed",
            "task:facts/llm#1": "changed",
            "task:facts/tool:look": "only_a",  # both are in the record of the fork too, but nothing requests them there
            "task:facts/llm#2": "only_a",
            "task:style": "same",
            "task:style/llm#1": "same",
            "task:text": "changed",
            "task:text/llm#1": "changed",
        }
        assert [step.address for step in diff.steps if step.shared] == ["task:style", "task:style/llm#1"]
        assert [(field.name, field.a, field.b) for field in diff.inputs] == [("topic", "tides", "moons")]
        facts = {field.name: field.lines for field in diff.steps[1].changes}
        assert facts == {
            "description": ("-Facts about tides", "+Facts about moons"),
            "output": ("-tides come", "+moons pull"),
        }
        prompt, reply = diff.steps[2].changes
        assert (prompt.name, reply.name, reply.a) == ("prompt", "output", 'look({"where": "here"})')
        assert prompt.lines == (
            *("@@ -1,5 +1,5 @@", " role: Worker", " goal: work"),
            *("-description: Facts about tides", "+description: Facts about moons"),
            *(" expected_output: text", " (not recorded: the descriptions of its tools (look))"),
        )
        (of_text,) = [step.changes[0].lines for step in diff.steps if step.address == "task:text/llm#1"]
        assert "-context (task:facts): tides come" in of_text and "+context (task:facts): moons pull" in of_text
        assert diff.usage.requests == history.run("r/moons").usage.requests - history.run("r").usage.requests
        assert diff.common == history.run("r/moons").base.seq
        assert not history.diff("r", history.run("r"))
        assert not diff.models and not diff.settings and not diff.state
        json.dumps(plain(diff))


def test_a_checkpoint_stands_for_its_run_as_it_was_there(stored):
    kept = stored()
    crew_of(kept, "a", "b", "c").kickoff({"topic": "tides"}, run_id="r")
    with opened(kept) as history:
        first = history.checkpoint("r@task:facts")
        for ref in (first, first.id, "r@task:facts"):
            diff = history.diff(ref, "r")
            assert (diff.a.at, diff.a.status, diff.b.status) == (first.id, "unfinished", "finished")
            assert set(statuses(diff).values()) == {"same", "only_b"}
            assert diff.a.usage == first.usage
        with pytest.raises(RefError):
            history.diff("r", "nobody")


def test_what_a_rewind_has_abandoned_is_compared_with_what_came_instead(stored):
    kept = stored()
    crew_of(kept, "a", "b", "c").kickoff({"topic": "tides"}, run_id="r")
    with opened(kept) as history:
        history.rewind("r@task:style")
    crew_of(kept, "another").kickoff(run_id="r")
    with opened(kept) as history:
        diff = history.diff("r@abandoned:1", "r")
        assert (diff.a.ref, diff.b.ref) == ("r/main@abandoned:1", "r/main")
        assert [step.address for step in diff.steps_with("changed")] == ["", "task:text", "task:text/llm#1"]
        assert diff.common == history.checkpoint("r@task:style").seq
        assert not history.diff("r@abandoned:1", history.run("r").abandoned[0])
        page = history.as_html("r")
        assert 'data-branch="main@abandoned:1"' in page and "a is r/main, b is r/main@abandoned:1" in page


def test_runs_of_two_locations_are_compared(tmp_path):
    for name in ("one.db", "two"):
        crew_of(CheckpointConfig(location=str(tmp_path / name)), name, "b", "c").kickoff({"topic": "t"}, run_id="r")
    with History(tmp_path / "one.db") as history:
        diff = history.diff("r", str(tmp_path / "two"))
        assert (diff.common, diff.steps_with("changed")[0].address) == (0, "task:facts")
        assert statuses(diff)["task:style"] == "same"


class Story(Flow):
    @start()
    def begin(self):
        self.state["words"] = 3
        self.state["only"] = "a" if self.state["id"] == "s1" else None

    @listen(begin)
    def end(self):
        self.state["words"] += 1
        return {"words": self.state["words"]}


def test_values_are_compared_with_the_numbers_of_their_changes(stored):
    kept = stored()
    Story(checkpoint=kept).kickoff(run_id="s")
    Story(checkpoint=kept).fork("s", branch="more", edits={"method:begin": None}).kickoff()
    with opened(kept) as history:
        (field,) = [field for field in history.diff("s@method:begin", "s").state if field.name == "words"]
        assert (field.a, field.b, field.version_b - field.version_a) == (3, 4, 1)
        assert field.lines == ("-3", "+4")


def test_models_and_settings_of_definitions_are_named(stored):
    kept = stored()
    for name, heat in {"one": 0.1, "two": 0.9}.items():
        llm = LLM("offline", temperature=heat)
        Agent(role="Clerk", goal=f"answer {name}", llm=llm, checkpoint=kept).kickoff("What?", run_id=name)
    with opened(kept) as history:
        diff = history.diff("one", "two")
        assert [(field.name, field.a, field.b) for field in diff.models] == [("agent.llm.temperature", 0.1, 0.9)]
        assert [field.name for field in diff.settings] == ["agent.goal"]


def test_agents_and_tasks_in_settings_are_known_by_their_names():
    agents = [{"role": "Editor", "live": {"llm": "big"}}, {"role": "Editor", "models": {"llm": {"model": "m"}}}]
    tasks = [{"address": "task:a", "description": "x"}]
    models, others = settings_of({"kind": "crew", "agents": agents, "tasks": tasks})
    assert models == {"agents.Editor.llm": "big", "agents.Editor#2.llm.model": "m"}
    assert others["tasks.a.description"] == "x"


LONG = "x" * 2_000_000
TEXTS = {
    "equal": ("a", "a", ()),
    "one line each": ("a", "b", ("-a", "+b")),
    "missing": (None, "b\nc", ("@@ -0,0 +1,2 @@", "+b", "+c")),
    "nothing left": ("a\nb", None, ("@@ -1,2 +0,0 @@", "-a", "-b")),
    "inside": ("a\nb\nc\nd\ne\nf", "a\nb\nc\nX\ne\nf", ("@@ -2,5 +2,5 @@", " b", " c", "-d", "+X", " e", " f")),
    "at the end": ("a\nb", "a\nb\nc", ("@@ -1,2 +1,3 @@", " a", " b", "+c")),
    "empty": ("", "b", ("-", "+b")),
    "apart": (
        "a\n1\n2\n3\n4\n5\n6\nb",
        "A\n1\n2\n3\n4\n5\n6\nB",
        ("@@ -1,3 +1,3 @@", "-a", "+A", " 1", " 2", "@@ -6,3 +6,3 @@", " 5", " 6", "-b", "+B"),
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_diff_shows_changed_lines_with_some_around_them(name):
    before, after, wanted = TEXTS[name]
    assert changed_lines(before, after) == wanted


def test_a_text_diff_of_any_texts_is_small_and_ends():  # compared pair by pair, these lines would take hours
    one, other = changed_lines(LONG + "a" + LONG, LONG + "b" + LONG)
    assert "xa" in one and "xb" in other and len(one) < 700 and "(4,000,001 characters)" in one
    many = changed_lines("\n".join(map(str, range(100_000))), "\n".join(map(str, range(1, 200_000, 2))))
    assert len(many) == 201 and many[-1].startswith("\\ ") and many[-1].endswith(" more lines")


def test_the_text_of_a_diff_moves_no_cursor(stored):
    kept = stored()
    for name in ("one", "two"):
        crew_of(kept, "a", "b", f"\x1b[2J\u202e{name}").kickoff({"topic": "t"}, run_id=name)
    with opened(kept) as history:
        text = str(history.diff("one", "two"))
    assert "\\x1b[2J\\u202eone" in text and text.replace("\n", "").isprintable()
    assert "  ~ task:text  output" in text and "(as the run itself)" in text


def outcome(address, kind, value, digest, **more):
    return {"address": address, "kind": kind, "ms": 1.0, "fingerprint": digest, "value": value, "digest": digest} | more


def long_run(run):
    """The steps of a run: 50 tasks of 20 steps; in the second half of them nothing is as in another run."""
    for task in range(50):
        own, texts = (
            run if task >= 25 else "",
            {"description": f"Do {task}", "role": "Clerk", "goal": "g", "backstory": ""},
        )
        for turn in range(1, 10):
            at, name = f"task:{task}", f"tool:look#{turn}" if turn > 1 else "tool:look"
            call = {"text": "", "tool_calls": [["look", {"where": f"{own}{turn}"}, None]]}
            yield outcome(f"{at}/llm#{turn}", "llm", call, f"{own}{task} {turn}", means={"model": "m"})
            yield outcome(f"{at}/{name}", "tool", {"text": f"{own}saw {turn}\n" * 20}, f"{own}{task} {turn}")
        yield outcome(f"{at}/llm#10", "llm", {"text": f"{own}done"}, f"{own}{task}", means={"model": "m"})
        answer = {"raw": {"$": "of", "v": f"{at}/llm#10"}, "agent": "Clerk"}
        yield outcome(at, "task", answer, f"{own}{task}", question=texts)


def test_two_runs_of_a_thousand_steps_are_compared_step_by_step(tmp_path):
    provider, location = SqliteProvider(), str(tmp_path / "big.db")
    store = provider.open(location)
    tasks = [{"address": f"task:{n}", "description": f"Do {n}", "agent": 0} for n in range(50)]
    definition = {"kind": "crew", "name": "many", "tasks": tasks, "agents": [{"role": "Clerk"}]}
    for run in ("one", "two"):
        begun = {"run_id": run, "branch": "main", "uid": run, "identity": "i", "definition": definition, "inputs": {}}
        entries = [next_entry({"run": begun}, after=(0, ""))]
        for made in long_run(run):
            entries.append(next_entry({"steps": [made]}, after=(entries[-1].seq, entries[-1].sum)))
        store.append([Commit(run, "main", 0, "", tuple(entries))])
    store.close()
    with History(location) as history:
        diff = history.diff("one", "two")
        assert (len(diff.steps_with("same")), len(diff.steps_with("changed"))) == (500, 500)
        assert str(diff).count("\n") > 1_000


@pytest.mark.parametrize("nested", [False, True])
def test_two_equal_runs_of_a_class_flow_do_not_differ_by_the_id_that_each_makes_for_itself(memory, nested):
    class Counts(Flow):
        @start()
        def go(self):
            self.state["n"] = self.state.get("n", 0) + 1
            return self.state["n"]

    @flow(name="outer", checkpoint=memory())
    async def outer(**given):
        return await Counts().akickoff(given)

    kicked = outer if nested else Counts(checkpoint=memory())
    for name in ("a", "b"):
        kicked.kickoff(run_id=name)
    if not nested:
        kicked.kickoff({"n": 1}, run_id="c")
        kicked.kickoff({"id": "mine"}, run_id="d")
    with History(memory().location, memory().provider) as history:
        diff = history.diff("a", "b")
        assert not diff and not diff.steps_with("changed")
        if not nested:
            assert [field.name for field in history.diff("a", "c").state] == ["n"]
            (given,) = history.diff("a", "d").state
            assert (given.name, given.status, given.b) == ("id", "changed", "mine"), "it was given, so it counts"
