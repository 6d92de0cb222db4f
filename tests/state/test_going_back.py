"""`History.rewind`: a branch goes back, and what came after stays readable; for all that can be kicked off, everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from crewlite import Agent, event_bus
from crewlite.errors import AnswerRefused, BranchConflictError, RefError, Suspended
from crewlite.events import CheckpointLabelledEvent, CheckpointRewoundEvent, TaskStartedEvent
from crewlite.flow import Flow, ask, flow, listen, start, step
from crewlite.testing import ScriptedLLM
from tests import parts
from tests.cuts import cut, entries_of
from tests.state.folded import at, history
from tests.state.going_back import EVENTS, Said, answers, crew_of


def flow_of(said, config):
    @step
    def one():
        return said()

    @step
    def two(heard):
        return said()

    @flow(checkpoint=config(on_events=EVENTS))
    def both():
        heard = one()
        return [heard, two(heard)]

    return both


def class_flow_of(said, config):
    class Both(Flow):
        @start()
        def one(self):
            return said()

        @listen(one)
        def two(self, heard):
            return [heard, said()]

    return Both(checkpoint=config(on_events=EVENTS))


KINDS = {"crew": crew_of, "flow": flow_of, "class flow": class_flow_of}


@pytest.mark.parametrize(
    ("kind", "config"),
    [("crew", "memory"), ("crew", "json"), ("crew", "sqlite"), ("flow", "json"), ("class flow", "sqlite")],
    indirect=["config"],
)
def test_a_finished_run_that_went_back_is_unfinished_and_runs_the_rest_again(kind, config):
    said = Said()
    definition = KINDS[kind](said, config)
    first = answers(definition.kickoff(run_id="r"))
    with history(config) as found:
        place, paid = found.run("r").checkpoints()[0], found.run("r").usage
        run = found.rewind(place, reason="two was wrong")
        assert (run.status, run.usage) == ("unfinished", paid)
        assert run.checkpoints() == [place] and found.checkpoint("r") == place
        assert [(back.seq, back.reason) for back in run.rewinds] == [(place.seq, "two was wrong")]
        (tail,) = run.abandoned
        assert (tail.status, tail.ref) == ("finished", "r/main@abandoned:1")
        assert found.run("r@abandoned:1").checkpoints() == tail.checkpoints()
        listed = {one.id: one.abandoned for one in found.checkpoints()}
        assert listed == {one.id: one != place for one in tail.checkpoints()}
        assert found.doctor() == []
    again = answers(definition.kickoff(run_id="r"))
    assert again[0] == first[0] and again[1] != first[1], "what is before the place answers, what is behind runs"
    fork = definition.fork(at(config, "r@abandoned:1"), branch="old")
    assert answers(fork.kickoff()) == first, "the tail can be forked"
    with history(config) as found:
        undone = found.rewind("r@abandoned:1")
        assert (undone.status, len(undone.abandoned)) == ("finished", 2)
        assert found.checkpoint("r/main") == tail.checkpoints()[-1]
    calls = said.count
    assert answers(definition.kickoff(run_id="r")) == first and said.count == calls


def test_a_conversation_goes_back_to_an_earlier_turn(memory):
    llm = ScriptedLLM(lambda messages: f"reply {len(llm.calls)} to {messages[-1]['content']}")
    agent = Agent(role="Clerk", goal="answer", llm=llm, checkpoint=memory(on_events=True))
    for question in ("one", "two", "three"):
        agent.kickoff(question, run_id="talk")
    with history(memory) as found:
        found.rewind("talk@turn#1")
    assert agent.kickoff("two", run_id="talk").raw.startswith("reply "), "a turn that was abandoned is a new turn"
    assert len(llm.calls) == 4
    said = [message["content"] for message in llm.calls[-1][1:]]
    assert said == ["one", said[1], "two"]
    assert agent.kickoff("one", run_id="talk").raw == said[1], "the first turn answers from the record"


def test_people_are_asked_again_behind_the_place(memory):
    @flow(checkpoint=memory(on_events=EVENTS))
    def publish():
        draft = write()
        return [draft, ask("publish?", bool, name="publish")]

    @step
    def write():
        return "draft"

    with pytest.raises(Suspended):
        publish.kickoff(run_id="r")
    with history(memory) as found:
        found.answer("r", "human:publish", True)
    assert publish.kickoff(run_id="r") == ["draft", True]
    with history(memory) as found:
        found.rewind("r@step:write")
        assert found.run("r").waiting == []
        with pytest.raises(RefError, match="abandoned"):
            found.answer("r@abandoned:1", "human:publish", False)
    with pytest.raises(Suspended):
        publish.kickoff(run_id="r")
    with history(memory) as found:
        assert [one.address for one in found.run("r").waiting] == ["human:publish"]
        found.rewind("r@step:write")  # a run that waits
        assert found.run("r").waiting == []
        assert [tail.status for tail in found.run("r").abandoned] == ["finished", "waiting"]
    assert publish.kickoff(run_id="r", answers={"human:publish": False}) == ["draft", False]


def test_a_failed_and_a_cancelled_run_go_back(memory):
    replies = iter(["one", ValueError("no"), "two"])
    crew = crew_of(lambda _: next(replies), memory)
    with pytest.raises(ValueError, match="no"):
        crew.kickoff(run_id="r")
    with history(memory) as found:
        assert found.run("r").status == "failed"
        assert found.rewind("r@task:first").status == "unfinished"
        assert found.run("r").attempts == []
        found.cancel("r")
        assert found.rewind("r@task:first").status == "unfinished"
        assert [tail.status for tail in found.run("r").abandoned] == ["failed", "cancelled"]
    assert answers(crew.kickoff(run_id="r")) == ["one", "two"]


def test_a_run_that_was_killed_anywhere_goes_back(memory):
    crew_of(Said(), memory).kickoff(run_id="r")
    entries = entries_of(memory(), "r")
    for count in range(2, len(entries)):
        killed = cut(entries, count, run_id="r")
        with parts.history(killed) as found:
            if places := found.run("r").checkpoints():
                assert found.rewind(places[0]).at_work is None
        assert (
            answers(crew_of(Said(), lambda **fields: killed.model_copy(update=fields)).kickoff(run_id="r"))[0]
            == "reply 1"
        )


def test_a_run_at_work_is_refused_and_not_disturbed(memory):
    refused = []

    @event_bus.on(TaskStartedEvent)
    def go_back(source, event):
        if event.address == "task:second":
            with history(memory) as found:
                try:
                    found.rewind("r@task:first")
                except BranchConflictError as error:
                    refused.append(str(error))

    assert answers(crew_of(Said(), memory).kickoff(run_id="r")) == ["reply 1", "reply 2"]
    assert "checkpoint cancel r/main" in refused[0] and "checkpoint fork r@task:first" in refused[0]


def test_a_fork_goes_back_to_where_it_began_and_no_further(config):
    crew = crew_of(Said(), config)
    crew.kickoff(run_id="r")
    with history(config) as found:
        first, second = (found.checkpoint(f"r@task:{name}") for name in ("first", "second"))
        found.fork(second, branch="side", edits={"task:first": "edited"})
    side = at(config, "r/side")
    assert answers(crew.kickoff(from_checkpoint=side)) == ["edited", "reply 3"]
    with history(config) as found:
        with pytest.raises(RefError, match="before the place at which r/side was forked"):
            found.rewind("r/side@task:first")
        assert found.run("r/side").abandoned == ()
        run = found.rewind(f"r/side@{second.id}")
        assert run.checkpoints()[-1] == second and all(one.branch == "main" for one in run.checkpoints())
        with pytest.raises(RefError, match="names no place"):
            found.rewind("r/side")
    assert answers(crew.kickoff(from_checkpoint=side)) == ["edited", "reply 4"]
    with history(config) as found:
        assert found.run("r/main").abandoned == ()


def test_nothing_goes_on_from_an_abandoned_place_by_mistake(config):
    crew = crew_of(Said(), config)
    crew.kickoff(run_id="r")
    with history(config) as found:
        left = found.checkpoint("r@task:second")
        found.rewind("r@task:first")
        for ref in (left.id, "r@abandoned:1"):
            with pytest.raises(RefError, match="was abandoned"):
                crew.kickoff(from_checkpoint=at(config, ref))
        with pytest.raises(RefError, match="was abandoned"):
            found.cancel("r@abandoned:1")
        with pytest.raises(RefError, match="rewound 1 time"):
            found.run("r@abandoned:2")
        assert found.checkpoint(left.id) == left and found.checkpoint(left.id).abandoned
        assert found.checkpoint("r@abandoned:1~1").address == "task:second/llm#1"
        assert found.checkpoint("r").address == found.checkpoint("r~0").address == "task:first"


def test_to_go_back_twice_to_the_same_place_is_to_go_back_once(memory):
    crew_of(Said(), memory).kickoff(run_id="r")
    with history(memory) as found:
        digest = found.rewind("r@task:first").digest
        assert found.rewind("r@task:first").digest == digest
        assert len(found.run("r").rewinds) == 1


def test_the_newest_places_stay_when_old_ones_are_dropped(config):
    crew_of(Said(), config).kickoff(run_id="r")
    with history(config) as found:
        first = found.rewind("r@task:first").checkpoints()
        found.prune(keep_last=len(first))
        assert found.run("r").checkpoints() == first, "abandoned places are dropped first"
        assert [one.status for one in found.run("r").abandoned] == ["finished"]
        assert found.doctor() == []
    assert answers(crew_of(Said(), config, max_checkpoints=3).kickoff(run_id="r")) == ["reply 1", "reply 1"]
    with history(config) as found:
        assert [one.address for one in found.run("r").checkpoints()][-2:] == ["task:second/llm#1", "task:second"]
        assert answers(crew_of(Said(), config).kickoff(run_id="r")) == ["reply 1", "reply 1"]


def test_a_branch_that_went_back_often_can_be_read(memory):  # twice the work for each rewind would never end
    crew_of(Said(), memory).kickoff(run_id="r")
    with history(memory) as found:
        for number in range(40):
            found.rewind("r@task:first" if number % 2 == 0 else f"r@abandoned:{number}")
        run = found.run("r")
        assert (run.status, len(run.abandoned), len(run.checkpoints())) == ("finished", 40, 4)


def test_a_secret_in_the_reason_is_masked(memory, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-indeed-42")
    crew_of(Said(), memory).kickoff(run_id="r")
    with history(memory) as found:
        (back,) = found.rewind("r@task:first", reason="sk-very-secret-indeed-42 leaked").rewinds
        assert "sk-very" not in back.reason and "leaked" in back.reason


def test_the_note_of_a_rewind_that_was_lost_is_made_again(stored):
    crew_of(Said(), stored).kickoff(run_id="r")
    note = Path(stored().location) / "heads/r/main.json"
    before = note.read_bytes()
    with history(stored) as found:
        found.rewind("r@task:first")
        after = note.read_bytes()
        for mend in (lambda: found.rewind("r@task:first"), lambda: found.doctor(repair=True)):
            note.write_bytes(before)
            (finding,) = found.doctor()
            assert (finding.what, "rewinds" in finding.problem) == ("stale_index", True)
            mend()
            assert note.read_bytes() == after and found.doctor() == []


def test_an_answer_ahead_of_its_question_goes_with_the_tail(memory):
    @flow(checkpoint=memory(on_events=EVENTS))
    def publish():
        return [write(), ask("publish?", bool, name="publish")]

    @step
    def write():
        return "draft"

    with pytest.raises(Suspended):
        publish.kickoff(run_id="r")
    with history(memory) as found:
        found.rewind("r@step:write")
        found.answer("r", "human:publish", True)
    assert publish.kickoff(run_id="r") == ["draft", True]
    with pytest.raises(AnswerRefused):
        publish.kickoff(run_id="r", answers={"human:publish": False})


def test_a_rewind_and_a_label_are_told_once(memory):
    crew_of(Said(), memory).kickoff(run_id="r")
    told = []
    with (
        event_bus.on(CheckpointRewoundEvent, lambda source, event: told.append((source, event))),
        event_bus.on(CheckpointLabelledEvent, lambda source, event: told.append((source, event))),
        history(memory) as found,
    ):
        for _ in range(2):
            place = found.label("r@task:first", "good")
            found.rewind("r@task:first", reason="dull")
        found.rewind("r@abandoned:1")
        assert {source for source, _ in told} == {found}
    labelled, *rewound = (event for _, event in told)
    assert (labelled.run_id, labelled.branch, labelled.label, labelled.checkpoint_id) == ("r", "main", "good", place.id)
    assert [(event.reason, event.abandoned) for event in rewound] == [("dull", 1), ("", 2)]
    assert (rewound[0].checkpoint_id is None, rewound[1].checkpoint_id) == (False, None)


def test_what_a_rewind_has_abandoned_is_no_usage_of_a_step_but_is_told_apart(config):
    crew = crew_of(Said(), config)
    crew.kickoff(run_id="r")
    with history(config) as found:
        one, all_ = found.run("r").usage_of("task:second").requests, found.run("r").usage.requests
        assert found.run("r").abandoned_usage.requests == 0
        found.rewind("r@task:first")
        assert found.run("r").abandoned_usage.requests == one
        with pytest.raises(RefError):
            found.run("r").usage_of("task:second")
    crew.kickoff(run_id="r")
    crew.fork("r", branch="fork")

    def check():
        for ref in ("r", "r/fork"):
            run = found.run(ref)
            assert run.usage_of("task:second").requests == one
            assert (run.usage.requests, run.abandoned_usage.requests) == (all_ + one, one), "what was paid stays paid"
        tail = found.run("r@abandoned:1")
        assert (tail.usage.requests, tail.abandoned_usage.requests) == (all_, 0)

    with history(config) as found:
        check()
        found.prune(keep_last=1)
        check()
        found.rewind("r@abandoned:1")
        assert found.run("r").usage_of("task:second").requests == one
        assert found.run("r").abandoned_usage.requests == one
