"""A preview says beforehand what a kickoff reuses, what it runs and why, and it does nothing."""

from __future__ import annotations

import asyncio

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, tool
from crewlite.errors import ChangeUnused, ConfigError, InDoubt, NonDeterminism, OnLoopThread
from crewlite.events import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.flow import ask, flow, sleep_for, step
from crewlite.runtime.kickoffs.fork import forked_in_memory
from crewlite.testing import ScriptedLLM
from tests.flow.previewed import add, fetch, ran, tell, told, verdicts


@pytest.fixture
def sums(memory):
    @flow(checkpoint=memory())
    def sums(one, other, third=None):
        a, b = fetch.submit(one), fetch.submit(other)
        total = add(a.result()["number"], b.result()["number"])
        said = tell(f"So: {a.result()['text']}")
        return [total, said, *([add(total, third)] if third else [])]

    sums.kickoff(1, 2, run_id="r")
    ran.clear()
    return sums


def test_a_preview_of_a_fork_of_a_lone_agent_knows_what_its_model_is_asked(memory):
    @tool
    def look() -> str:
        """Look."""
        return "rain"

    def says(messages):
        heard = [message["content"] for message in messages if message["role"] == "tool"]
        return f"take {heard[0]}" if heard else ToolCall("look", {})

    scout = Agent(role="Scout", goal="g", llm=ScriptedLLM(says), tools=[look], checkpoint=memory())
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


def test_a_run_that_is_at_work_may_be_previewed(memory):
    seen = []

    @step
    def look():
        seen.append(busy.preview(from_checkpoint="r"))

    @flow(checkpoint=memory())
    def busy(n):
        add(n, 1)
        look()

    busy.kickoff(1, run_id="r")
    assert told(seen[0]) == {"step:add": "reused: is recorded", "step:look": "runs: was never recorded"}


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


def test_what_is_no_longer_asked_for_is_told_and_so_is_an_edit_in_vain(memory):
    @flow(checkpoint=memory())
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


def test_an_edit_in_vain_is_foretold_also_inside_a_step_and_where_the_preview_ends_early(memory):
    @flow(checkpoint=memory())
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


def test_a_call_in_doubt_is_foretold(memory):
    lives = []

    @step(effect="once")
    async def send(n):
        lives[0].cancel()
        await asyncio.sleep(60)

    @flow(checkpoint=memory())
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


def test_crews_and_flows_in_a_flow_are_told_by_their_steps_and_steps_as_a_whole(memory):
    agent = Agent(role="Clerk", goal="g", llm=ScriptedLLM(lambda messages: messages[1]["content"].split("\n")[0]))
    tasks = [Task(name=name, description=f"{name} {{topic}}", expected_output="e", agent=agent) for name in ("a", "b")]
    crew = Crew(name="desk", tasks=tasks)

    @step
    def outer(n):
        return add(n, 1)

    @flow
    def inner(n):
        return add(n, 5)

    @flow(checkpoint=memory())
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


def test_what_the_kickoff_would_refuse_the_preview_refuses(memory):
    size = [3]

    @flow(checkpoint=memory())
    def counts(n):
        return sum(add(i, 1) for i in range(size[0]))

    with pytest.raises(ConfigError, match="no recorded run to start from: call flow.fork"):
        counts.preview(3)
    counts.kickoff(3, run_id="r")
    size[0] = 2
    assert not counts.fork("r").preview().ends, "it has its result"
    forked = counts.fork("r", inputs={"n": 4})
    assert verdicts(forked.preview())["step:add#3"] == "dropped"

    @flow(checkpoint=memory())
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

    @flow(name="stops", checkpoint=memory())
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
