"""What is forgotten is what nobody needs: every outcome, all usage, every event and every way on stay."""

from __future__ import annotations

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, tool
from crewlite.errors import BudgetExceeded, JournalCorrupt, Suspended
from crewlite.flow import ask, flow, step
from crewlite.state import InMemoryProvider
from crewlite.state.format.earlier import definition_at
from crewlite.state.journal.compaction import compact_entries
from crewlite.testing import ScriptedLLM
from crewlite.testing.bench import Branch
from tests.cuts import RUN, cut, entries_of
from tests.parts import Stop, outputs
from tests.state.folded import EVERYTHING, at, history, look, looking, loop, size


def told(place):
    """All that a checkpoint tells."""
    return (
        place.id,
        place.branch,
        place.seq,
        place.label,
        place.inputs,
        place.tasks,
        place.usage,
        [(event.type, event.event_id, event.address) for event in place.events()],
    )


def view(config, ref):
    """What is to stay of a run whatever is pruned."""
    with history(config) as found:
        run = found.run(ref)
        steps = {
            step.address: (step.kind, step.status, step.value)
            for step in run.steps
            if step.kind in ("task", "crew") or step.status != "finished"
        }
        events = [(event.type, event.event_id, event.address) for event in run.events()]
        return run.status, run.usage, steps, events, {place.id: told(place) for place in run.checkpoints()}


# What compaction leaves.


def test_what_is_folded_must_be_without_a_hole():
    main = Branch().add(6)
    fork = main.forked("experiment", 4).add(5)
    compacted = [entry for entry in compact_entries([], main.entries, [4]) if entry.seq <= 4]
    assert compact_entries(compacted, fork.entries, [])[-1].sum == fork.entries[-1].sum
    for before, own in (
        ([], [*main.entries[:2], *main.entries[3:]]),
        ([], main.entries[1:]),
        (main.entries[:3], fork.entries),
        (compacted[:1], fork.entries),
        (main.entries[:4], [*fork.entries[:1], *fork.entries[2:]]),
    ):
        with pytest.raises(JournalCorrupt, match="is missing"):
            compact_entries(before, own, [])


def test_folding_keeps_outcomes_usage_events_and_what_each_kept_checkpoint_tells(config):
    result = looking(loop(), 6, config(on_events=EVERYTHING)).kickoff(run_id="r")
    before = view(config, "r")
    with history(config) as found:
        pruned = found.prune(keep_last=7)
    after = view(config, "r")
    assert after[:4] == before[:4]
    assert list(after[4].values()) == [before[4][identifier] for identifier in after[4]]
    assert len(after[4]) == 7
    assert set(pruned.checkpoints) == before[4].keys() - after[4].keys()
    assert pruned.freed > 0
    with history(config) as found:
        kept = {step.address for step in found.run("r").steps}
    assert "task:t0/llm#1" not in kept, "the inside of a finished step is what goes"
    assert "task:t5/tool:look" in kept, "unless a checkpoint stands in its middle"
    assert looking(ScriptedLLM([]), 6, config()).kickoff(run_id="r") == result


def test_what_steps_have_worked_stays_without_the_steps_inside_them(config):
    @tool
    def wonder() -> str:
        """Ask somebody."""
        return ask("Really?")

    llm = ScriptedLLM([ToolCall("wonder"), "first", "second", "third"], delay=0.03)
    agent = Agent(role="Scout", goal="look", llm=llm, tools=[wonder])
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent) for n in range(3)]
    crew = Crew(tasks=tasks, checkpoint=config())
    with pytest.raises(Suspended):
        crew.kickoff(run_id="r")
    crew.kickoff(run_id="r", answers={"task:t0/tool:wonder/human#1": "yes"})

    def worked(depth):
        with history(config) as found:
            steps = found.run("r").steps
            return {step.address: step.milliseconds for step in steps if step.address.count("/") == depth}

    before = worked(0)
    assert before["task:t0"] >= sum(ms for at, ms in worked(1).items() if at.startswith("task:t0/llm#")), (
        "of both kickoffs"
    )
    for _ in range(2):
        with history(config) as found:
            found.prune(keep_last=1)
            assert "task:t0/llm#1" not in {step.address for step in found.run("r").steps}
            assert found.doctor() == []
        assert worked(0) == pytest.approx(before, abs=0.2)
    with history(config) as found:
        copy = found.fork("r", branch="f", rerun=["task:t2"])
        assert {step.address: step.milliseconds for step in copy.steps}["task:t0"] == before["task:t0"]


def test_every_kept_checkpoint_can_be_forked_as_before(config):
    expected = outputs(looking(loop(), 2, config(on_events=EVERYTHING)).kickoff(run_id="r"))

    def forked(place, branch):
        llm = loop()
        found = looking(llm, 2, config(on_events=["crew_kickoff_failed"])).fork(at(config, place.ref), branch=branch)
        assert outputs(found.kickoff()) == expected
        return len(llm.calls)

    with history(config) as found:
        costs = {place.id: forked(place, f"f{n}") for n, place in enumerate(found.run("r").checkpoints())}
        found.delete("r")
    assert sorted(costs.values()) == sorted([*range(6), 1, 2, 4, 5, 0, 3])
    looking(loop(), 2, config(on_events=EVERYTHING)).kickoff(run_id="r")
    for keep in (5, 2):
        with history(config) as found:
            found.prune(keep_last=keep)
            left = found.run("r").checkpoints()[-keep:]
        for n, (place, cost) in enumerate(zip(left, list(costs.values())[-keep:], strict=True)):
            assert forked(place, f"keep-{keep}.{n}") == cost, place


@pytest.mark.parametrize("keep", [1, 3])
@pytest.mark.parametrize("cut", [2, 3, 4, 7, 10, 13])
def test_a_run_that_was_cut_goes_on_after_it_was_pruned(config, keep, cut):
    with pytest.raises(Stop):
        looking(loop(stops=[cut]), 5, config(on_events=EVERYTHING)).kickoff(run_id="r")
    with history(config) as found:
        found.prune(keep_last=keep)
        found.prune(keep_last=keep)
    llm = loop()
    assert outputs(looking(llm, 5, config()).kickoff(run_id="r")) == [f"answer {n}" for n in range(5)]
    assert len(llm.calls) == 15 - (cut - 1)
    with history(config) as found:
        assert found.run("r").usage.requests == 15


def test_folding_twice_changes_nothing(config):
    looking(loop(), 4, config(on_events=EVERYTHING)).kickoff(run_id="r")
    with history(config) as found:
        assert found.prune(keep_last=3).freed > 0
        digest = found.run("r").digest
        again = found.prune(keep_last=3)
        assert (again.checkpoints, again.freed, again.runs, again.busy) == ((), 0, (), ())
        assert found.run("r").digest == digest


def test_a_settled_call_is_not_in_doubt_after_folding(config):
    """An intent and its outcome may come to stand in one commit; the intent must not take the outcome away."""
    paid = []

    @tool(effect="once")
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    def crew(*script):
        who = Agent(role="Worker", goal="g", llm=ScriptedLLM(script), tools=[pay])
        task = Task(name="t", description="d", expected_output="x", agent=who)
        return Crew(tasks=[task], checkpoint=config(on_events=["tool_usage_finished"]))

    with pytest.raises(Stop):
        crew(ToolCall("pay", {"amount": 1}), ToolCall("pay", {"amount": 2}), Stop()).kickoff(run_id="r")
    with history(config) as found:
        found.prune(keep_last=1)
        assert "in_doubt" not in {step.status for step in found.run("r").steps}
    assert crew("done").kickoff(run_id="r").raw == "done"
    assert paid == [1, 2]


@pytest.mark.parametrize("kept_at", ["the end", "where it was halted"])
@pytest.mark.parametrize("reply", [Stop(), "two"], ids=["failed", "stopped"])
def test_a_run_that_was_halted_and_went_on_waits_after_folding_too(config, reply, kept_at):
    def crew(*replies, **fields):
        who = Agent(role="Worker", goal="g", llm=ScriptedLLM([*replies]))
        tasks = [
            Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=who, human_input=n == 1)
            for n in range(2)
        ]
        return Crew(tasks=tasks, checkpoint=config(on_events=["task_completed"]), **fields)

    with pytest.raises(Stop if isinstance(reply, Stop) else BudgetExceeded):
        crew("one", reply, max_tokens=None if isinstance(reply, Stop) else 1).kickoff(run_id="r")
    with history(config) as found:
        assert (found.run("r").status, bool(found.run("r").stopped_by)) in [("failed", False), ("unfinished", True)]
        if kept_at == "where it was halted":
            found.fork("r", branch="beside")
    with pytest.raises(Suspended):
        crew("two", "two").kickoff(run_id="r")
    with history(config) as found:
        for _ in range(2):
            run = found.run("r")
            assert (run.status, run.because, run.stopped_by) == ("waiting", None, None)
            found.prune(keep_last=1)


def test_tasks_have_the_definition_of_their_time_after_folding(config):
    def crew(second, *replies):
        who = Agent(role="Worker", goal="g", llm=ScriptedLLM([*replies]))
        told = ["Do 0", "Do 1", second, "Do 3"]
        tasks = [
            Task(name=f"t{n}", description=text, expected_output="x", agent=who, context=[])
            for n, text in enumerate(told)
        ]
        return Crew(tasks=tasks, checkpoint=config(on_events=["task_completed"]))

    with pytest.raises(Stop):
        crew("Do 2", "a", "b", Stop()).kickoff(run_id="r")
    crew("Do it all", "c", "d").kickoff(run_id="r")
    with history(config) as found:
        for _ in range(2):
            record = found.run("r")._record
            texts = [definition_at(record, f"task:t{n}")["tasks"][2]["description"] for n in range(4)]
            assert texts == ["Do 2", "Do 2", "Do it all", "Do it all"]
            found.prune(keep_last=1)


def test_a_fork_that_went_back_to_its_beginning_takes_other_inputs_after_a_prune_too(config):
    def crew():
        who = Agent(role="Worker", goal="g", llm=loop())
        tasks = [Task(name=f"t{n}", description=f"Do {n} of {{it}}", expected_output="x", agent=who) for n in range(3)]
        return Crew(tasks=tasks, checkpoint=config(on_events=["task_completed"]))

    crew().kickoff({"it": "keys"}, run_id="r")
    crew().fork("r@task:t0", branch="f").kickoff()
    with history(config) as found:
        found.rewind("r/f@task:t0")
        assert found.prune(keep_last=1).checkpoints
        assert not found.run("r/f").kicked_off
    crew().kickoff({"it": "hats"}, from_checkpoint=at(config, "r/f"))
    with history(config) as found:
        assert found.run("r/f").inputs == {"it": "hats"}


@pytest.mark.parametrize("effect", ["idempotent", "once"])
def test_a_call_that_had_begun_at_a_kept_checkpoint_is_not_in_doubt_once_it_has_ended(config, effect):
    @tool(effect=effect)
    def pay() -> str:
        """Pay."""
        return "paid " * 100

    who = Agent(role="Payer", goal="g", llm=ScriptedLLM([ToolCall("pay", {}), "done"]), tools=[pay])
    task = Task(name="t", description="Pay", expected_output="x", agent=who)
    Crew(tasks=[task], checkpoint=config(on_events=["tool_usage_started"])).kickoff(run_id="r")
    with history(config) as found:
        assert found.prune(keep_last=1).freed
        assert [step.status for step in found.run("r").steps if step.address == "task:t/tool:pay"] == ["finished"]


def test_a_step_stays_finished_after_folding_though_a_call_inside_it_failed_that_must_not_be_made_twice(config):
    begun = []

    @tool
    def read() -> str:
        """Read."""
        return "read " * 100

    def look():
        model = ScriptedLLM([ToolCall("read", {}), "seen"])
        return Agent(role="Reader", goal="Read", llm=model, tools=[read]).kickoff("Look").raw

    @step(effect="once")
    def pay():
        raise ValueError

    @step
    def around():
        begun.append(1)
        try:
            return look() + pay() + look()
        except ValueError:
            return look()

    @flow(checkpoint=config(on_events=["tool_usage_finished"]))
    def program():
        around()
        if len(begun) == 1:
            raise Stop
        return "done"

    with pytest.raises(Stop):
        program.kickoff(run_id="r")
    with history(config) as found:
        assert found.prune(keep_last=1).freed
        listed = {step.address: step.status for step in found.run("r").steps}
        assert (listed["step:around"], listed["step:around/step:pay"]) == ("finished", "failed")
    with pytest.raises(Stop):
        program.kickoff(run_id="r")
    assert len(begun) == 1, "a recorded step does not run again"


def test_a_call_that_took_no_effect_is_not_in_doubt_after_folding():
    @step(effect="once")
    def pay():
        return "paid"

    def program(setting, fails=False):
        @step
        def around():
            if fails:
                raise Stop
            return pay()

        return flow(around, name="program", checkpoint=setting)

    whole = CheckpointConfig(location="whole", provider=InMemoryProvider())
    program(whole).kickoff(run_id=RUN)
    begun = next(n for n, entry in enumerate(entries_of(whole), 1) if "intents" in entry.commit)
    setting = cut(entries_of(whole), begun)
    with pytest.raises(Stop):
        program(setting, fails=True).kickoff(run_id=RUN)
    program(setting).kickoff(run_id=RUN, rerun=["step:around/step:pay"])
    with History(setting.location, setting.provider) as found:
        for _ in range(2):
            assert {step.address: step.status for step in found.run(RUN).steps if step.status != "finished"} == {}
            found.prune(keep_last=1)


def test_what_a_fork_does_again_over_a_folded_run_is_not_taken_for_inner_detail(config):
    def crew(llm, **fields):
        who = Agent(role="Worker", goal="g", llm=llm, tools=[look])
        task = Task(name="t", description="Do {what}", expected_output="x", agent=who)
        return Crew(tasks=[task], checkpoint=config(on_events=EVERYTHING, **fields))

    crew(loop()).kickoff({"what": "this"}, run_id="r")
    with history(config) as found:
        found.prune(keep_last=1)
    llm = ScriptedLLM([ToolCall("look", {"where": "there"}), ToolCall("look", {"where": "here"}), Stop(), "done"])
    forked = crew(llm).fork(at(config, "r"), branch="f")
    with pytest.raises(Stop):
        forked.kickoff({"what": "that"})
    with history(config) as found:
        assert found.run("r/f").status == "failed"
        found.prune(keep_last=1)
    assert forked.kickoff().raw == "done"
    assert len(llm.calls) == 4, "what was paid before the cut answered"


# As a run goes on.


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_long_run_with_max_checkpoints_stays_small_and_says_the_same(on_disk, durability, tmp_path):
    def bytes_per_task(count, **fields):
        suffix = ".db" if on_disk().location.endswith(".db") else ""
        config = CheckpointConfig(location=f"{tmp_path}/{count}{len(fields)}{suffix}", durability=durability, **fields)
        result = looking(loop(), count, config).kickoff(run_id="r")
        return size(lambda: config) / count, result, config

    few, _, _ = bytes_per_task(20, max_checkpoints=2)
    many, result, config = bytes_per_task(60, max_checkpoints=2)
    whole, other, plain = bytes_per_task(60)
    assert outputs(result) == outputs(other)
    assert result.token_usage == other.token_usage
    assert many <= 1.6 * few, "at most half of it is still to be compacted, and where that ends is chance"
    assert many <= 0.85 * whole
    with History(config.location) as small, History(plain.location) as large:
        assert [event.type for event in small.run("r").events() if not event.type.startswith("checkpoint")] == [
            event.type for event in large.run("r").events() if not event.type.startswith("checkpoint")
        ]
        assert small.run("r").usage == large.run("r").usage
        assert [place.address for place in small.run("r").checkpoints()] == ["task:t58", "task:t59"]


def test_a_run_that_folds_itself_and_is_cut_goes_on(config):
    llm = loop(stops=[60, 121, 157])
    crew = looking(llm, 60, config(max_checkpoints=1))
    for _ in range(3):
        with pytest.raises(Stop):
            crew.kickoff(run_id="r")
    assert outputs(crew.kickoff(run_id="r")) == [f"answer {n}" for n in range(60)]
    assert len(llm.calls) == 3 * 60 + 3
    with history(config) as found:
        assert found.run("r").usage.requests == 3 * 60
