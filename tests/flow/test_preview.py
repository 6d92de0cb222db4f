"""A preview says beforehand what a kickoff reuses, what it runs and why, and it does nothing."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, durable, tool
from crewlite.errors import ChangeUnused, ConfigError, InDoubt, NonDeterminism, OnLoopThread, Suspended
from crewlite.events import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.flow import ask, flow, sleep_for, step
from crewlite.runtime.kickoffs.fork import forked_in_memory
from crewlite.state import InMemoryProvider
from crewlite.state.reading.fitting import Typed
from crewlite.testing import ScriptedLLM

ran = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    ran.clear()


def did():
    ran.append(durable.scope().address)


@step
def fetch(n):
    did()
    return {"number": n * 10, "text": f"the number {n * 10}"}


@step
def add(a, b):
    did()
    return a + b


@step
def tell(text):
    did()
    return text.upper()


def verdicts(preview):
    return {line.address: line.verdict for line in preview}


def told(preview):
    return {line.address: f"{line.verdict}: {line.why}" for line in preview}


@pytest.fixture
def stored():
    """A store in memory."""
    provider = InMemoryProvider()
    return lambda **fields: CheckpointConfig(location="x", provider=provider, **fields)


@pytest.fixture
def sums(stored):
    @flow(checkpoint=stored())
    def sums(one, other, third=None):
        a, b = fetch.submit(one), fetch.submit(other)
        total = add(a.result()["number"], b.result()["number"])
        said = tell(f"So: {a.result()['text']}")
        return [total, said, *([add(total, third)] if third else [])]

    sums.kickoff(1, 2, run_id="r")
    ran.clear()
    return sums


def test_a_preview_of_a_fork_of_a_lone_agent_knows_what_its_model_is_asked(stored):
    @tool
    def look() -> str:
        """Look."""
        return "rain"

    def says(messages):
        heard = [message["content"] for message in messages if message["role"] == "tool"]
        return f"take {heard[0]}" if heard else ToolCall("look", {})

    scout = Agent(role="Scout", goal="g", llm=ScriptedLLM(says), tools=[look], checkpoint=stored())
    scout.kickoff("Look out.", run_id="r")
    preview = scout.fork("r", edits={"tool:look": "sun"}).preview()
    assert verdicts(preview) == {"llm#1": "reused", "tool:look": "reused", "llm#2": "runs"}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, ["reused: is recorded"] * 4),
        (
            {"rerun": ["step:fetch"]},
            ["runs: is to run again", "reused: is recorded"] + ["may run: is given what step:fetch returns"] * 2,
        ),
        (
            {"edits": {"step:fetch": {"number": 1, "text": "one"}}},
            ["reused: was edited", "reused: is recorded"] + ["runs: asks another question than the recorded one"] * 2,
        ),
        (
            {"inputs": {"other": 5}},
            [
                "reused: is recorded",
                "runs: asks another question than the recorded one",
                "may run: is given what step:fetch#2 returns",
                "reused: is recorded",
            ],
        ),
    ],
    ids=str,
)
def test_it_says_what_is_reused_what_runs_and_why(sums, change, wanted):
    addresses = ["step:fetch", "step:fetch#2", "step:add", "step:tell"]
    forked = sums.fork("r", branch="x", **change)
    assert told(forked.preview()) == dict(zip(addresses, wanted, strict=True))
    assert ran == []
    seen = verdicts(forked.preview())
    forked.kickoff()
    assert set(ran) <= {at for at in addresses if seen[at] != "reused"}
    assert {at for at in addresses if seen[at] == "runs"} <= set(ran)


def test_inputs_of_the_kickoff_are_those_of_the_preview(sums):
    forked = sums.fork("r", branch="x", inputs={"one": 7})
    assert verdicts(forked.preview(1))["step:fetch"] == "reused"
    assert verdicts(forked.preview(other=7))["step:fetch#2"] == "runs"
    with pytest.raises(ConfigError, match="unexpected keyword argument 'fourth'"):
        forked.preview(fourth=1)


def test_it_ends_where_nobody_knows_what_comes_behind_and_says_so(sums):
    preview = sums.fork("r", branch="x", inputs={"third": 3}, rerun=["step:fetch"]).preview()
    assert told(preview)["step:add#2"] == "runs: was never recorded"
    assert preview.ends == "The steps after step:add#2 are not known, because no outcome of it was ever recorded."
    assert str(preview).splitlines() == [
        "runs     step:fetch    is to run again",
        "reused   step:fetch#2  is recorded",
        "may run  step:add      is given what step:fetch returns",
        "may run  step:tell     is given what step:fetch returns",
        "runs     step:add#2    was never recorded",
        "The steps after step:add#2 are not known, because no outcome of it was ever recorded.",
    ]


def lines(path):
    """What is stored there, as an export has it, and the files that are there."""
    location = next(at for at in path.iterdir() if at.name.startswith("store"))
    with History(str(location)) as history:
        return history.run("r").digest, sorted(at.name for at in path.rglob("*.json*"))


def test_it_writes_nothing_emits_nothing_and_takes_no_claim(on_disk, tmp_path):
    @flow(checkpoint=on_disk())
    def waits(text):
        said = tell(text)
        if ask(f"{said}?", bool, name="ok"):
            sleep_for(600)
        return said

    waits.kickoff("a", run_id="r", answers={"human:ok": False})
    forked = waits.fork("r", branch="x", edits={"human:ok": True})
    files = lines(tmp_path)
    heard = []
    with event_bus.on(BaseEvent, lambda source, event: heard.append(event.type)):
        assert told(forked.preview())["human:ok"] == "reused: was edited"
        assert told(forked.preview())["timer#1"] == "runs: was never recorded"
        assert verdicts(forked.preview("b")) == {"step:tell": "runs", "human:ok": "reused", "timer#1": "runs"}
    assert heard == []
    assert lines(tmp_path) == files
    with History(on_disk().location) as history:
        assert history.run("r/x").at_work is None


def test_a_run_that_is_at_work_may_be_previewed(stored):
    seen = []

    @step
    def look():
        seen.append(busy.preview(from_checkpoint="r"))

    @flow(checkpoint=stored())
    def busy(n):
        add(n, 1)
        look()

    busy.kickoff(1, run_id="r")
    assert told(seen[0]) == {"step:add": "reused: is recorded", "step:look": "runs: was never recorded"}


def test_a_question_waits_unless_it_was_answered(stored):
    @flow(checkpoint=stored())
    def publish(text):
        return tell(text) if ask(f"Publish {text}?", bool, name="ok") else "dropped"

    publish.kickoff("a", run_id="r", answers={"human:ok": True})
    again = publish.fork("r", branch="x", rerun=["human:ok"]).preview()
    assert told(again) == {
        "human:ok": "runs: is to run again and waits for an answer",
        "step:tell": "reused: is recorded",
    }
    other = publish.fork("r", branch="y", inputs={"text": "b"}).preview()
    assert told(other)["human:ok"] == "runs: asks another question than the recorded one and waits for an answer"


def test_an_answer_that_was_given_meanwhile_is_to_one_question(stored):
    @flow(checkpoint=stored())
    def publish(text):
        return ask(f"Publish {text}?", bool, name="ok")

    with pytest.raises(Suspended):
        publish.kickoff("a", run_id="r")
    waits = told(publish.preview(from_checkpoint="r"))
    assert waits == {"human:ok": "runs: waits for an answer"}
    with History("x", stored().provider, make=True) as history:
        history.answer("r", "human:ok", True)
    assert told(publish.preview(from_checkpoint="r")) == {"human:ok": "reused: was answered"}
    assert told(publish.fork("r", branch="x", inputs={"text": "b"}).preview()) == waits


@pytest.mark.parametrize(
    ("typed", "wanted"), [('{"a": 1}', "reused: was answered"), ("a", "runs: waits for an answer")]
)
def test_an_answer_that_was_typed_ahead_is_read_as_the_run_will_read_it(stored, typed, wanted):
    broken = [True]

    @flow(checkpoint=stored())
    def counts():
        if broken:
            raise KeyError
        return ask("How many?", dict[str, int], name="count")

    with pytest.raises(KeyError):
        counts.kickoff(run_id="r")
    broken.clear()
    with History("x", stored().provider, make=True) as history:
        history.answer("r", "human:count", Typed(typed))
    assert told(counts.preview(from_checkpoint="r")) == {"human:count": wanted}


def test_a_damaged_branch_does_not_keep_another_from_being_foreseen(tmp_path):
    location = tmp_path / "x"

    @flow(checkpoint=CheckpointConfig(location=str(location)))
    def sums(n):
        return add(n, n)

    sums.kickoff(1, run_id="r")
    sums.fork("r", branch="b")
    (location / "journal" / "r" / "b.jsonl").write_text("no journal\n")
    forked = forked_in_memory(sums, CheckpointConfig(restore_from="r/main"), {}, (), {"n": 2})
    assert told(forked.preview()) == {"step:add": "runs: asks another question than the recorded one"}


def test_what_is_no_longer_asked_for_is_told_and_so_is_an_edit_in_vain(stored):
    @flow(checkpoint=stored())
    def counts(n):
        return sum(add(i, 1) for i in range(n))

    counts.kickoff(3, run_id="r")
    assert (
        told(counts.fork("r", branch="x", inputs={"n": 2}).preview())["step:add#3"]
        == "dropped: is not requested any more"
    )
    forked = counts.fork("r", branch="y", inputs={"n": 2}, edits={"step:add#3": 9})
    assert (
        "was edited, but is not requested any more: kickoff will raise ChangeUnused"
        in told(forked.preview())["step:add#3"]
    )
    with pytest.raises(ChangeUnused, match="Fork again without that change"):
        forked.kickoff()
    forked = counts.fork("r", branch="z", inputs={"n": 2}, rerun=["step:add#3"])
    assert "is to run again, but is not requested any more" in told(forked.preview())["step:add#3"]
    for _ in range(2):
        with pytest.raises(ChangeUnused, match="step:add#3"):
            forked.kickoff()


@step
def tells(n):
    return add(n, n)


def test_an_edit_in_vain_is_foretold_also_inside_a_step_and_where_the_preview_ends_early(stored):
    @flow(checkpoint=stored())
    def counts():
        found = fetch(1)["number"]
        if found == 10:
            return tells(found)
        return add(found, 1) if found > 10 else 0

    counts.kickoff(run_id="r")
    for number, line in (
        (0, "was changed inside, but is not requested any more: kickoff will raise ChangeUnused"),
        (20, ""),
    ):
        edits = {"step:fetch": {"number": number}, "step:tells/step:add": 7}
        fork = counts.fork("r", branch=f"f{number}", edits=edits)
        preview = fork.preview()
        if line:
            assert line in told(preview)["step:tells"]
        else:
            assert preview.ends.endswith(
                "Unless they include step:tells/step:add, which this fork has changed, kickoff will raise ChangeUnused."
            )
        with pytest.raises(ChangeUnused, match="step:tells/step:add"):
            fork.kickoff()
    ends = counts.fork("r", branch="used", edits={"step:tells/step:add": 7}).preview().ends
    assert "ChangeUnused" not in ends


def test_a_call_in_doubt_is_foretold(stored):
    lives = []

    @step(effect="once")
    async def send(n):
        lives[0].cancel()
        await asyncio.sleep(60)

    @flow(checkpoint=stored())
    async def sends():
        return await send(1)

    async def cut():
        lives.append(asyncio.ensure_future(sends.akickoff(run_id="r")))
        with pytest.raises(asyncio.CancelledError):
            await lives[0]

    asyncio.run(cut())
    forked = sends.fork("r", branch="x")
    assert told(forked.preview())["step:send"].endswith(
        "in step:send, a call with effect='once': kickoff will raise InDoubt, unless given answers={'step:send': ...} or "
        "rerun=['step:send']"
    )
    with pytest.raises(InDoubt):
        forked.kickoff()


def test_crews_and_flows_in_a_flow_are_told_by_their_steps_and_steps_as_a_whole(stored):
    agent = Agent(role="Clerk", goal="g", llm=ScriptedLLM(lambda messages: messages[1]["content"].split("\n")[0]))
    tasks = [Task(name=name, description=f"{name} {{topic}}", expected_output="e", agent=agent) for name in ("a", "b")]
    crew = Crew(name="desk", tasks=tasks)

    @step
    def outer(n):
        return add(n, 1)

    @flow
    def inner(n):
        return add(n, 5)

    @flow(checkpoint=stored())
    def whole(n, topic):
        return [outer(n), inner.kickoff(n), crew.kickoff({"topic": topic}).raw]

    whole.kickoff(1, "tides", run_id="r")
    assert verdicts(whole.fork("r", branch="a").preview()) == {
        "step:outer": "reused",
        "flow:inner": "reused",
        "crew:desk": "reused",
    }
    changed = whole.fork("r", branch="b", edits={"step:outer/step:add": 9}, rerun=["crew:desk/task:b"], inputs={"n": 1})
    assert told(changed.preview()) == {
        "step:outer": "runs: a step inside it was changed",
        "flow:inner": "reused: is recorded",
        "crew:desk/task:a": "reused: is recorded",
        "crew:desk/task:b": "runs: is to run again",
    }
    deep = whole.fork("r", branch="c", inputs={"n": 2})
    assert verdicts(deep.preview())["flow:inner/step:add"] == "runs"


def test_what_the_kickoff_would_refuse_the_preview_refuses(stored):
    size = [3]

    @flow(checkpoint=stored())
    def counts(n):
        return sum(add(i, 1) for i in range(size[0]))

    with pytest.raises(ConfigError, match="no recorded run to start from: call flow.fork"):
        counts.preview(3)
    counts.kickoff(3, run_id="r")
    size[0] = 2
    assert not counts.fork("r").preview().ends, "it has its result"
    forked = counts.fork("r", inputs={"n": 4})
    assert verdicts(forked.preview())["step:add#3"] == "dropped"

    @flow(checkpoint=stored())
    def stops(n):
        for i in range(size[0]):
            add(i, 1)
        raise ValueError(f"no {n}")

    with pytest.raises(ValueError, match="no 1"):
        stops.kickoff(1, run_id="s")
    assert stops.fork("s").preview().ends == "After these steps flow 'stops' raises ValueError: no 1"
    size[0] = 1
    stopped = stops.fork("s")
    assert stopped.preview().ends
    size[0] = 0

    @flow(name="stops", checkpoint=stored())
    def ends(n):
        return n

    with pytest.raises(NonDeterminism):
        ends.preview(from_checkpoint=f"s/{stopped._bound.restore_from.partition('/')[2]}")


def test_on_the_loop_that_would_do_it_one_is_told_what_to_await():
    @flow
    async def pipeline():
        pipeline.preview(from_checkpoint="r")

    with pytest.raises(
        OnLoopThread,
        match=r"preview\(\) was called on the thread of a running event loop.*: write `await flow.apreview\(...\)`",
    ):
        pipeline.kickoff()


class Life:
    number = 1


@step
def node(kind, *given):
    did()
    moving = Life.number if kind % 2 else 0
    return [(kind + moving + sum(sum(one) if isinstance(one, list) else one for one in given)) % 9, kind]


def grown(plan, inputs):
    """Steps that are given inputs, numbers, or what steps before them returned, as it is."""
    made = []
    for kind, sources in plan:
        of = [made[n % len(made)] if made and n >= 0 else inputs[n % len(inputs)] for n in sources]
        made.append(node(kind, *of))
    return made


plans = st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(-3, 8), max_size=3)), min_size=1, max_size=9)


@settings(max_examples=60, deadline=None)
@given(
    plan=plans,
    inputs=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    others=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    edited=st.sets(st.integers(0, 8), max_size=2),
    again=st.sets(st.integers(0, 8), max_size=2),
)
def test_what_it_says_is_reused_does_not_run_and_what_it_says_runs_does(plan, inputs, others, edited, again):
    places = ["step:node", *(f"step:node#{n}" for n in range(2, len(plan) + 1))]

    @flow(checkpoint=CheckpointConfig(location="x", provider=InMemoryProvider()))
    def tree(plan, inputs):
        return grown(plan, inputs)

    Life.number = 1
    tree.kickoff(plan, inputs, run_id="r")
    edits = {places[n]: [n, n] for n in edited if n < len(places)}
    rerun = [places[n] for n in again if n < len(places) and places[n] not in edits]
    forked = tree.fork("r", branch="x", edits=edits, rerun=rerun, inputs={"inputs": others})
    Life.number = 2
    ran.clear()
    seen = verdicts(forked.preview())
    assert ran == []
    forked.kickoff()
    assert list(seen) == places
    assert Counter(ran).keys() <= {at for at in places if seen[at] in ("runs", "may run")}
    assert {at for at in places if seen[at] == "runs"} <= set(ran)
