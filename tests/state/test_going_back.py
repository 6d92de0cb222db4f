"""`History.rewind`: a branch goes back, and what came after stays readable; for all that can be kicked off, everywhere."""

from __future__ import annotations

import threading

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, event_bus
from crewlite.errors import AnswerRefused, BranchConflictError, ConfigError, RefError, Suspended
from crewlite.events import CheckpointLabelledEvent, CheckpointRewoundEvent, TaskCompletedEvent, TaskStartedEvent
from crewlite.flow import Flow, ask, flow, listen, start, step
from crewlite.state import InMemoryProvider, JsonProvider
from crewlite.state.reading.checkpoints import by_place
from crewlite.testing import ScriptedLLM
from tests import children
from tests.cuts import cut
from tests.parts import PROVIDERS

EVENTS = ["task_completed", "step_completed", "method_execution_finished", "llm_call_completed"]


@pytest.fixture(params=PROVIDERS)
def store(request, tmp_path):
    return CheckpointConfig(location=str(tmp_path / "store.db"), provider=PROVIDERS[request.param](), on_events=EVENTS)


@pytest.fixture
def kept():
    return CheckpointConfig(location="kept", provider=InMemoryProvider(), on_events=EVENTS)


def history_of(store):
    return History(store.location, store.provider)


class Said:
    """Answers one, two, three, ... so that what is asked again is told from what was recorded."""

    def __init__(self):
        self.count = 0

    def __call__(self, *_):
        self.count += 1
        return f"reply {self.count}"


def crew_of(said, store, **fields):
    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(said))
    tasks = [
        Task(name=name, description=f"Do {name}", expected_output="text", agent=agent, **fields.get(name, {}))
        for name in ("first", "second")
    ]
    return Crew(tasks=tasks, checkpoint=store)


def flow_of(said, store):
    @step
    def one():
        return said()

    @step
    def two(heard):
        return said()

    @flow(checkpoint=store)
    def both():
        heard = one()
        return [heard, two(heard)]

    return both


def class_flow_of(said, store):
    class Both(Flow):
        @start()
        def one(self):
            return said()

        @listen(one)
        def two(self, heard):
            return [heard, said()]

    return Both(checkpoint=store)


KINDS = {"crew": crew_of, "flow": flow_of, "class flow": class_flow_of}


def answers(result):
    return [output.raw for output in result.tasks_output] if hasattr(result, "tasks_output") else result


@pytest.mark.parametrize(
    ("kind", "store"),
    [("crew", "memory"), ("crew", "json"), ("crew", "sqlite"), ("flow", "json"), ("class flow", "sqlite")],
    indirect=["store"],
)
def test_a_finished_run_that_went_back_is_unfinished_and_runs_the_rest_again(kind, store):
    said = Said()
    definition = KINDS[kind](said, store)
    first = answers(definition.kickoff(run_id="r"))
    with history_of(store) as history:
        place, paid = history.run("r").checkpoints()[0], history.run("r").usage
        run = history.rewind(place, reason="two was wrong")
        assert (run.status, run.usage) == ("unfinished", paid)
        assert run.checkpoints() == [place] and history.checkpoint("r") == place
        assert [(back.seq, back.reason) for back in run.rewinds] == [(place.seq, "two was wrong")]
        (tail,) = run.abandoned
        assert (tail.status, tail.ref) == ("finished", "r/main@abandoned:1")
        assert history.run("r@abandoned:1").checkpoints() == tail.checkpoints()
        listed = {one.id: one.abandoned for one in history.checkpoints()}
        assert listed == {one.id: one != place for one in tail.checkpoints()}
        assert history.doctor() == []
    again = answers(definition.kickoff(run_id="r"))
    assert again[0] == first[0] and again[1] != first[1], "what is before the place answers, what is behind runs"
    fork = definition.fork(CheckpointConfig(restore_from="r@abandoned:1", **where(store)), branch="old")
    assert answers(fork.kickoff()) == first, "the tail can be forked"
    with history_of(store) as history:
        undone = history.rewind("r@abandoned:1")
        assert (undone.status, len(undone.abandoned)) == ("finished", 2)
        assert history.checkpoint("r/main") == tail.checkpoints()[-1]
    calls = said.count
    assert answers(definition.kickoff(run_id="r")) == first and said.count == calls


def where(store):
    return {"location": store.location, "provider": store.provider}


def test_a_conversation_goes_back_to_an_earlier_turn(kept):
    llm = ScriptedLLM(lambda messages: f"reply {len(llm.calls)} to {messages[-1]['content']}")
    agent = Agent(role="Clerk", goal="answer", llm=llm, checkpoint=kept.model_copy(update={"on_events": True}))
    for question in ("one", "two", "three"):
        agent.kickoff(question, run_id="talk")
    with history_of(kept) as history:
        history.rewind("talk@turn#1")
    assert agent.kickoff("two", run_id="talk").raw.startswith("reply "), "a turn that was abandoned is a new turn"
    assert len(llm.calls) == 4
    said = [message["content"] for message in llm.calls[-1][1:]]
    assert said == ["one", said[1], "two"]
    assert agent.kickoff("one", run_id="talk").raw == said[1], "the first turn answers from the record"


def test_people_are_asked_again_behind_the_place(kept):
    @flow(checkpoint=kept)
    def publish():
        draft = write()
        return [draft, ask("publish?", bool, name="publish")]

    @step
    def write():
        return "draft"

    with pytest.raises(Suspended):
        publish.kickoff(run_id="r")
    with history_of(kept) as history:
        history.answer("r", "human:publish", True)
    assert publish.kickoff(run_id="r") == ["draft", True]
    with history_of(kept) as history:
        history.rewind("r@step:write")
        assert history.run("r").waiting == []
        with pytest.raises(RefError, match="abandoned"):
            history.answer("r@abandoned:1", "human:publish", False)
    with pytest.raises(Suspended):
        publish.kickoff(run_id="r")
    with history_of(kept) as history:
        assert [one.address for one in history.run("r").waiting] == ["human:publish"]
        history.rewind("r@step:write")  # a run that waits
        assert history.run("r").waiting == []
        assert [tail.status for tail in history.run("r").abandoned] == ["finished", "waiting"]
    assert publish.kickoff(run_id="r", answers={"human:publish": False}) == ["draft", False]


def test_a_failed_and_a_cancelled_run_go_back(kept):
    replies = iter(["one", ValueError("no"), "two"])
    crew = crew_of(lambda _: next(replies), kept)
    with pytest.raises(ValueError, match="no"):
        crew.kickoff(run_id="r")
    with history_of(kept) as history:
        assert history.run("r").status == "failed"
        assert history.rewind("r@task:first").status == "unfinished"
        assert history.run("r").attempts == []
        history.cancel("r")
        assert history.rewind("r@task:first").status == "unfinished"
        assert [tail.status for tail in history.run("r").abandoned] == ["failed", "cancelled"]
    assert answers(crew.kickoff(run_id="r")) == ["one", "two"]


def test_a_run_that_was_killed_anywhere_goes_back(kept):
    crew_of(Said(), kept).kickoff(run_id="r")
    store = kept.provider.open("kept")
    entries = store.read("r", "main")
    for at in range(2, len(entries)):
        killed = cut(entries, at, run_id="r", on_events=EVENTS)
        with history_of(killed) as history:
            if places := history.run("r").checkpoints():
                assert history.rewind(places[0]).at_work is None
        assert answers(crew_of(Said(), killed).kickoff(run_id="r"))[0] == "reply 1"


def test_a_run_at_work_is_refused_and_not_disturbed(kept):
    refused = []

    @event_bus.on(TaskStartedEvent)
    def go_back(source, event):
        if event.address == "task:second":
            with history_of(kept) as history:
                try:
                    history.rewind("r@task:first")
                except BranchConflictError as error:
                    refused.append(str(error))

    assert answers(crew_of(Said(), kept).kickoff(run_id="r")) == ["reply 1", "reply 2"]
    assert "checkpoint cancel r/main" in refused[0] and "checkpoint fork r@task:first" in refused[0]


def test_a_fork_goes_back_to_where_it_began_and_no_further(store):
    crew = crew_of(Said(), store)
    crew.kickoff(run_id="r")
    with history_of(store) as history:
        first, second = (history.checkpoint(f"r@task:{name}") for name in ("first", "second"))
        history.fork(second, branch="side", edits={"task:first": "edited"})
    side = CheckpointConfig(restore_from="r/side", **where(store))
    assert answers(crew.kickoff(from_checkpoint=side)) == ["edited", "reply 3"]
    with history_of(store) as history:
        with pytest.raises(RefError, match="before the place at which r/side was forked"):
            history.rewind("r/side@task:first")
        assert history.run("r/side").abandoned == ()
        run = history.rewind(f"r/side@{second.id}")
        assert run.checkpoints()[-1] == second and all(one.branch == "main" for one in run.checkpoints())
        with pytest.raises(RefError, match="names no place"):
            history.rewind("r/side")
    assert answers(crew.kickoff(from_checkpoint=side)) == ["edited", "reply 4"]
    with history_of(store) as history:
        assert history.run("r/main").abandoned == ()


def test_nothing_goes_on_from_an_abandoned_place_by_mistake(store):
    crew = crew_of(Said(), store)
    crew.kickoff(run_id="r")
    with history_of(store) as history:
        left = history.checkpoint("r@task:second")
        history.rewind("r@task:first")
        for ref in (left.id, "r@abandoned:1"):
            with pytest.raises(RefError, match="was abandoned"):
                crew.kickoff(from_checkpoint=CheckpointConfig(restore_from=ref, **where(store)))
        with pytest.raises(RefError, match="was abandoned"):
            history.cancel("r@abandoned:1")
        with pytest.raises(RefError, match="rewound 1 time"):
            history.run("r@abandoned:2")
        assert history.checkpoint(left.id) == left and history.checkpoint(left.id).abandoned
        assert history.checkpoint("r@abandoned:1~1").address == "task:second/llm#1"
        assert history.checkpoint("r").address == history.checkpoint("r~0").address == "task:first"


def test_to_go_back_twice_to_the_same_place_is_to_go_back_once(kept):
    crew_of(Said(), kept).kickoff(run_id="r")
    with history_of(kept) as history:
        digest = history.rewind("r@task:first").digest
        assert history.rewind("r@task:first").digest == digest
        assert len(history.run("r").rewinds) == 1


def test_the_newest_places_stay_when_old_ones_are_dropped(store):
    crew_of(Said(), store).kickoff(run_id="r")
    with history_of(store) as history:
        first = history.rewind("r@task:first").checkpoints()
        history.prune(keep_last=len(first))
        assert history.run("r").checkpoints() == first, "abandoned places are dropped first"
        assert [one.status for one in history.run("r").abandoned] == ["finished"]
        assert history.doctor() == []
    limited = store.model_copy(update={"max_checkpoints": 3})
    assert answers(crew_of(Said(), limited).kickoff(run_id="r")) == ["reply 1", "reply 1"]
    with history_of(store) as history:
        assert [one.address for one in history.run("r").checkpoints()][-2:] == ["task:second/llm#1", "task:second"]
        assert answers(crew_of(Said(), store).kickoff(run_id="r")) == ["reply 1", "reply 1"]


def test_a_label_that_was_abandoned_can_be_given_again(kept):
    @event_bus.on(TaskCompletedEvent)
    def mark(source, event, state):
        state.snapshot(label=event.address.replace(":", "-"))

    crew = crew_of(Said(), kept)
    crew.kickoff(run_id="r")
    with history_of(kept) as history:
        history.rewind("r@label:task-first")
    crew.kickoff(run_id="r")
    with history_of(kept) as history:
        assert not history.checkpoint("r@label:task-second").abandoned


def test_a_branch_that_went_back_often_can_be_read(kept):  # twice the work for each rewind would never end
    crew_of(Said(), kept).kickoff(run_id="r")
    with history_of(kept) as history:
        for number in range(40):
            history.rewind("r@task:first" if number % 2 == 0 else f"r@abandoned:{number}")
        run = history.run("r")
        assert (run.status, len(run.abandoned), len(run.checkpoints())) == ("finished", 40, 4)


def test_a_secret_in_the_reason_is_masked(kept, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-indeed-42")
    crew_of(Said(), kept).kickoff(run_id="r")
    with history_of(kept) as history:
        (back,) = history.rewind("r@task:first", reason="sk-very-secret-indeed-42 leaked").rewinds
        assert "sk-very" not in back.reason and "leaked" in back.reason


def test_the_note_of_a_rewind_that_was_lost_is_made_again(tmp_path):
    store = CheckpointConfig(location=str(tmp_path / "kept"), provider=JsonProvider())
    crew_of(Said(), store).kickoff(run_id="r")
    note = tmp_path / "kept/heads/r/main.json"
    before = note.read_bytes()
    with history_of(store) as history:
        history.rewind("r@task:first")
        after = note.read_bytes()
        for mend in (lambda: history.rewind("r@task:first"), lambda: history.doctor(repair=True)):
            note.write_bytes(before)
            (found,) = history.doctor()
            assert (found.what, "rewinds" in found.problem) == ("stale_index", True)
            mend()
            assert note.read_bytes() == after and history.doctor() == []


def test_an_answer_ahead_of_its_question_goes_with_the_tail(kept):
    @flow(checkpoint=kept)
    def publish():
        return [write(), ask("publish?", bool, name="publish")]

    @step
    def write():
        return "draft"

    with pytest.raises(Suspended):
        publish.kickoff(run_id="r")
    with history_of(kept) as history:
        history.rewind("r@step:write")
        history.answer("r", "human:publish", True)
    assert publish.kickoff(run_id="r") == ["draft", True]
    with pytest.raises(AnswerRefused):
        publish.kickoff(run_id="r", answers={"human:publish": False})


def test_a_label_names_one_place_of_a_run(store):
    crew_of(Said(), store).kickoff(run_id="r")
    with history_of(store) as history:
        place = history.checkpoint("r@task:first")
        made = history.label(place, "good")
        assert (made.label, made.seq, made.address, made.parent_id) == ("good", place.seq, place.address, place.id)
        assert history.checkpoint("r@label:good") == made == history.label("r@task:first", "good")
        history.fork("r@label:good", branch="side")
        assert history.label("r/side", "good") == made, "a fork that stands there is at the same place"
        with pytest.raises(RefError, match=r"checkpoint .* \(task:first\) of r/main"):
            history.label("r", "good")
        with pytest.raises(ConfigError, match="label"):
            history.label("r", "not a name")
        history.prune(keep_last=1)
        assert history.checkpoint("r@label:good").id == made.id, "its parent is gone"
        assert history.rewind("r@label:good").checkpoints()[-1].id == made.id
        left = history.label("r@abandoned:1", "old")
        assert left.abandoned and history.checkpoint("r@label:old") == left
        assert history.doctor() == []
    assert answers(crew_of(Said(), store).kickoff(run_id="r")) == ["reply 1", "reply 1"]


def test_a_run_of_this_process_is_labelled_while_it_works(store):
    crew = crew_of(Said(), store)
    given = []

    @event_bus.on(TaskStartedEvent)
    def mark(source, event):
        if event.task_name == "second" and not given:
            with history_of(store) as history, pytest.raises(RefError, match="another place"):
                given.append(history.label("r@task:first", "good"))
                assert history.label("r@task:first", "good") == given[0]
                history.label("r@task:first/llm#1", "good")

    crew.kickoff(run_id="r")
    with history_of(store) as history:
        assert history.run("r").status == "finished"
        assert history.checkpoint("r@label:good") == given[0]
        assert history.fork("r@label:good").tasks == ("task:first",)
        assert history.doctor() == []


def test_a_run_is_labelled_by_another_thread_of_its_process(store):
    begun, on, given = threading.Event(), threading.Event(), []

    @step
    def one():
        return 1

    @step
    def two():
        begun.set()
        assert on.wait(children.PATIENCE)
        return 2

    @flow(checkpoint=store)
    def sums():
        return one() + two()

    running = threading.Thread(target=lambda: given.append(sums.kickoff(run_id="r")))
    running.start()
    assert begun.wait(children.PATIENCE)
    with history_of(store) as history:
        made = history.label("r@step:one", "good")
        on.set()
        running.join()
        assert history.checkpoint("r@label:good") == made
    assert given == [3]


def test_a_labelled_place_is_one_place(kept):
    crew_of(Said(), kept).kickoff(run_id="r")
    with history_of(kept) as history:
        first = history.checkpoint("r@task:first")
        before = history.checkpoint("r@task:first~1")
        for name in ("good", "better"):
            history.label("r@task:first", name)
            assert history.checkpoint("r@task:first~1") == before == history.checkpoint(f"r@label:{name}~1")
        assert history.checkpoint("r@task:second/llm#1~1").seq == first.seq
        for listed in (history.run("r").checkpoints(), history.checkpoints()):
            places = by_place(listed)
            assert [place.labels for place in places if place.checkpoint.seq == first.seq] == [("good", "better")]
            assert {place.checkpoint.id for place in places if place.labels} == {first.id}
            assert len(places) == len(listed) - 2
        page = history.as_html("r")
        assert (page.count(">good<"), page.count(first.id[-8:])) == (1, 1)


def test_a_label_stands_for_the_checkpoint_of_its_place_that_was_dropped(kept):
    crew_of(Said(), kept).kickoff(run_id="r")
    with history_of(kept) as history:
        labelled = history.label("r@task:first", "good")
        history.prune(keep_last=1)
        *_, before, last = history.run("r").checkpoints()
        assert (before.id, last.parent_id) == (labelled.id, labelled.id)
        assert history.checkpoint("r~1").id == labelled.id


def test_an_inherited_place_is_labelled_on_the_branch_that_it_is_of(kept):
    crew = crew_of(Said(), kept)
    crew.kickoff(run_id="r")
    crew.fork("r@task:first", branch="side")
    with history_of(kept) as history:
        labelled = history.label("r/side@task:first", "good")
        assert (labelled.branch, history.checkpoint("r/main@label:good")) == ("main", labelled)
        with pytest.raises(RefError):
            history.checkpoint("r/side@label:good")


def test_a_rewind_and_a_label_are_told_once(kept):
    crew_of(Said(), kept).kickoff(run_id="r")
    told = []
    with (
        event_bus.on(CheckpointRewoundEvent, lambda source, event: told.append((source, event))),
        event_bus.on(CheckpointLabelledEvent, lambda source, event: told.append((source, event))),
        history_of(kept) as history,
    ):
        for _ in range(2):
            place = history.label("r@task:first", "good")
            history.rewind("r@task:first", reason="dull")
        history.rewind("r@abandoned:1")
        assert {source for source, _ in told} == {history}
    labelled, *rewound = (event for _, event in told)
    assert (labelled.run_id, labelled.branch, labelled.label, labelled.checkpoint_id) == ("r", "main", "good", place.id)
    assert [(event.reason, event.abandoned) for event in rewound] == [("dull", 1), ("", 2)]
    assert (rewound[0].checkpoint_id is None, rewound[1].checkpoint_id) == (False, None)


def test_what_a_rewind_has_abandoned_is_no_usage_of_a_step_but_is_told_apart(store):
    crew = crew_of(Said(), store)
    crew.kickoff(run_id="r")
    with history_of(store) as history:
        one, all_ = history.run("r").usage_of("task:second").requests, history.run("r").usage.requests
        assert history.run("r").abandoned_usage.requests == 0
        history.rewind("r@task:first")
        assert history.run("r").abandoned_usage.requests == one
        with pytest.raises(RefError):
            history.run("r").usage_of("task:second")
    crew.kickoff(run_id="r")
    crew.fork("r", branch="fork")

    def check():
        for ref in ("r", "r/fork"):
            run = history.run(ref)
            assert run.usage_of("task:second").requests == one
            assert (run.usage.requests, run.abandoned_usage.requests) == (all_ + one, one), "what was paid stays paid"
        tail = history.run("r@abandoned:1")
        assert (tail.usage.requests, tail.abandoned_usage.requests) == (all_, 0)

    with history_of(store) as history:
        check()
        history.prune(keep_last=1)
        check()
        history.rewind("r@abandoned:1")
        assert history.run("r").usage_of("task:second").requests == one
        assert history.run("r").abandoned_usage.requests == one
