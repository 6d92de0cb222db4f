"""A saga: finished steps of a flow are undone newest first, each once, also when the process is killed in between."""

from __future__ import annotations

import pytest

from crewlite import CheckpointConfig, FailurePolicy
from crewlite.errors import ConfigError, RecoveryAborted, RecoveryEscalated, RefError, Suspended
from crewlite.flow import Flow, flow, listen, recoverable, start, step
from crewlite.recovery import (
    abort,
    chain,
    compensate,
    escalate,
    replan,
    resume_from_subgoal,
    retry,
    rollback_to_checkpoint,
    sequence,
    suspend,
)
from crewlite.state.journal.compaction import compact_entries
from tests.cuts import Kept, cut


def test_a_compensation_after_a_compensation_undoes_once_and_ends():
    did = []

    @step(compensate=lambda booked: did.append(f"undo {booked}"))
    def book() -> str:
        did.append("book")
        return "flight"

    @step
    def pay() -> None:
        raise ValueError("no money")

    @flow(failure_policy=FailurePolicy(default=compensate(then=compensate())))
    def travel() -> None:
        book()
        pay()

    with pytest.raises(RecoveryEscalated):
        travel.kickoff()
    assert did == ["book", "undo flight"]


@pytest.mark.parametrize("undo", [lambda: None, lambda booked, by: None])
def test_a_compensator_takes_the_result_alone(undo):
    with pytest.raises(ConfigError, match="compensate is <lambda>.*; wanted a function that takes the result"):
        step(compensate=undo)(lambda: None)


class Trip:
    """Two bookings that can be undone, a call that nothing undoes, and a payment that fails `times` times."""

    def __init__(self, then, checkpoint=True, times=99, broken="", strategy=None, calls=False):
        self.did, did = [], None
        did = self.did.append

        def undo(booked):
            if broken and broken in booked:
                raise RuntimeError("the desk is closed")
            did(f"undo {booked}")

        @step(compensate=undo)
        def book(what: str) -> str:
            did(f"book {what}")
            return what

        @step
        def look() -> None:
            did("look")

        @step
        def pay() -> str:
            did("pay")
            if self.did.count("pay") <= times:
                raise ValueError("no money")
            return "paid"

        @step
        def call_ahead() -> None:
            did("call ahead")

        def travel() -> str:
            look()
            book("flight")
            book("hotel")
            if calls:
                call_ahead()
            return pay()

        policy = FailurePolicy(default=strategy or compensate(then))
        self.flow = flow(name="travel", checkpoint=checkpoint, failure_policy=policy, verbose=True)(travel)
        self.body = recoverable(name="body", policy=policy)(lambda: 1 // len([book("boat")][1:]))


def test_what_was_booked_is_undone_newest_first_and_the_failure_is_told(capsys):
    trip = Trip(escalate("Ask Ada"))
    with pytest.raises(RecoveryEscalated, match="Ask Ada") as caught:
        trip.flow.kickoff(run_id="run")
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in shown if "undone" in line] == ["✓ book-2 is undone", "✓ book is undone"]
    assert trip.did == ["look", "book flight", "book hotel", "pay", "undo hotel", "undo flight"]
    assert caught.value.failure.address == "step:pay"
    assert isinstance(caught.value.__cause__, ValueError)
    trip.did.clear()
    with pytest.raises(RecoveryEscalated):
        trip.flow.kickoff(run_id="run")
    assert trip.did == ["book flight", "book hotel", "pay", "undo hotel", "undo flight"], (
        "what was undone is done again"
    )


@pytest.mark.parametrize(
    ("then", "times"),
    [
        (escalate(), 99),
        (abort(), 99),
        (retry(max_attempts=1), 1),
        (retry(max_attempts=1), 99),
        (replan(max_replans=1), 99),
    ],
)
@pytest.mark.parametrize("compacted", [False, True])
def test_killed_after_any_commit_each_step_is_done_and_undone_as_often_as_without(then, times, compacted):
    def life(checkpoint):
        trip = Trip(then, checkpoint, times)
        try:
            return trip.flow.kickoff(run_id="run"), trip.did
        except (RecoveryEscalated, ValueError) as error:
            return type(error), trip.did

    kept = Kept()
    expected, whole = life(CheckpointConfig(location="here", provider=kept, on_events=["flow_failed"]))
    entries = kept.entries
    for at in range(1, len(entries) - 1):
        found, did = life(cut([*compact_entries([], entries[:at], ())] if compacted else entries[:at], at))
        if times == 1:  # the world is another one after the kill: the first payment in it fails
            continue
        assert found == expected, f"cut after commit {at}"
        assert did == whole[len(whole) - len(did) :], f"cut after commit {at}"
        records = [one for entry in entries[:at] for one in entry.commit.get("steps", ()) if not one.get("again")]
        assert len(did) == len(whole) - sum(bool(one["address"]) for one in records), f"cut after commit {at}"


def test_after_a_compaction_a_failed_flow_does_again_what_was_undone():
    kept = Kept()
    with pytest.raises(RecoveryEscalated):
        Trip(escalate(), CheckpointConfig(location="here", provider=kept, on_events=["flow_failed"])).flow.kickoff(
            run_id="run"
        )
    entries = compact_entries([], kept.entries, ())
    assert len(entries) < 6
    trip = Trip(escalate(), cut(entries, len(entries)), times=0)
    assert trip.flow.kickoff(run_id="run") == "paid"
    assert trip.did == ["book flight", "book hotel", "pay"]


@pytest.mark.parametrize("compacted", [False, True])
def test_killed_after_any_commit_the_kickoff_after_the_undoing_does_again_what_was_undone(compacted):
    def trip(checkpoint, times=99):
        return Trip(escalate(), checkpoint, times, calls=True)

    kept = Kept()
    with pytest.raises(RecoveryEscalated):
        trip(CheckpointConfig(location="here", provider=kept, on_events=["flow_failed"])).flow.kickoff(run_id="run")
    entries = kept.entries
    for at in range(1, len(entries) + 1):
        checkpoint = cut([*compact_entries([], entries[:at], ())] if compacted else entries[:at], at)
        with pytest.raises(RecoveryEscalated):
            trip(checkpoint).flow.kickoff(run_id="run")
        again = trip(checkpoint, times=0)
        assert again.flow.kickoff(run_id="run") == "paid", f"cut after commit {at}"
        assert again.did == ["book flight", "book hotel", "pay"], f"cut after commit {at}"


def test_after_the_undoing_the_flow_may_be_tried_again():
    trip = Trip(retry(max_attempts=1), times=1)
    assert trip.flow.kickoff() == "paid"
    again = ["book flight", "book hotel", "pay"]
    assert trip.did == ["look", *again, "undo hotel", "undo flight", *again]


@pytest.mark.parametrize(
    ("strategy", "attempts"),
    [
        (compensate(escalate()), 1),
        (compensate(retry(max_attempts=1)), 2),
        (compensate(replan(max_replans=1)), 2),
        (compensate(replan(max_replans=2)), 3),
        (compensate(rollback_to_checkpoint(max_rollbacks=1)), 2),
        (compensate(resume_from_subgoal(max_attempts=1)), 2),
        (compensate(sequence(replan(), retry(), escalate())), 3),
        (compensate(chain(replan(max_replans=1), retry(max_attempts=1))), 3),
        (sequence(compensate(replan()), compensate(escalate("hand"))), 2),
        (sequence(compensate(replan()), compensate(replan()), compensate(escalate("hand"))), 3),
    ],
    ids=repr,
)
def test_the_budget_of_what_follows_the_undoing_counts_each_undoing_once(strategy, attempts):
    trip = Trip(None, strategy=strategy)
    with pytest.raises(RecoveryEscalated):
        trip.flow.kickoff()
    assert [trip.did.count(one) for one in ("pay", "undo flight", "undo hotel")] == [attempts] * 3


def test_the_body_of_a_recoverable_function_has_its_own_steps_undone():
    trip = Trip(escalate())
    with pytest.raises(RecoveryEscalated):
        trip.body()
    assert trip.did == ["book boat", "undo boat"]


@pytest.mark.parametrize("compacted", [False, True])
def test_a_call_made_once_whose_result_a_later_attempt_had_is_made_again_once_it_is_undone(compacted):
    done = []

    @step(effect="once", compensate=lambda what: done.append(f"undo {what}"))
    def send(what: str) -> str:
        done.append(f"send {what}")
        return what

    def life(checkpoint, fails):
        again = sequence(replan(max_replans=1), compensate(replan(max_replans=2)))

        @recoverable(policy=FailurePolicy(default=again))
        def body() -> str:
            sent = send("tea")
            if fails and fails.pop():
                raise ValueError("no")
            return sent

        @flow(checkpoint=checkpoint)
        def shop() -> str:
            return body()

        return shop.kickoff(run_id="run")

    kept = Kept()
    assert life(CheckpointConfig(location="here", provider=kept), [True, True]) == "tea"
    assert done == ["send tea", "undo tea", "send tea"]
    entries = kept.entries
    [at] = [at for at, entry in enumerate(entries, 1) if any("again" in one for one in entry.commit.get("steps", ()))]
    done.clear()
    assert life(cut([*compact_entries([], entries[:at], ())] if compacted else entries[:at], at), []) == "tea"
    assert done == ["send tea"]


def test_a_compensator_that_fails_ends_the_undoing_and_is_told():
    trip = Trip(abort(), broken="flight")
    with pytest.raises(RecoveryEscalated, match="compensator of step:book failed .RuntimeError: the desk is closed"):
        trip.flow.kickoff()
    assert trip.did[-1] == "undo hotel"


def test_a_person_may_decide_what_follows_the_undoing_which_is_done_once():
    trip = Trip(suspend())
    with pytest.raises(Suspended) as waits:
        trip.flow.kickoff(run_id="run")
    assert trip.did[-2:] == ["undo hotel", "undo flight"]
    [question] = waits.value.waiting
    trip.did.clear()
    with pytest.raises(RefError, match=f"'step:pay' has failed, and takes no answer: the run waits .* to '{question}'"):
        trip.flow.kickoff(run_id="run", answers={"step:pay": "retry"})
    with pytest.raises(RecoveryAborted, match="too late"):
        trip.flow.kickoff(run_id="run", answers={question: "abort: too late"})
    assert trip.did == []


def test_a_compensator_is_a_function():
    with pytest.raises(ConfigError, match="wanted a function that takes the result"):
        step(compensate="undo")(lambda: None)
    with pytest.raises(ConfigError, match="compensate is 3; wanted a function that takes the result"):
        start(compensate=3)(lambda plan: None)


class Journey:
    """The trip as a flow of methods: two bookings side by side, and a payment that fails `times` times."""

    def __init__(self, then, checkpoint=True, times=99):
        self.did = did = []

        def undo(booked):
            did.append(f"undo {booked}")

        class Travel(Flow):
            failure_policy = FailurePolicy(default=compensate(then))

            @start(compensate=undo)
            async def fly(self):
                did.append("book flight")
                self.state["booked"] = 1
                return "flight"

            @listen(fly, compensate=undo)
            def stay(self):
                did.append("book hotel")
                return "hotel"

            @listen(stay)
            def pay(self):
                did.append("pay")
                if did.count("pay") <= times:
                    raise ValueError("no money")
                return f"paid with {self.state.get('booked')}"

        Travel.checkpoint = checkpoint
        self.flow = Travel()


def test_the_finished_methods_of_a_flow_are_undone_too():
    journey = Journey(escalate("Ask Ada"))
    with pytest.raises(RecoveryEscalated, match="Ask Ada"):
        journey.flow.kickoff(run_id="run")
    assert journey.did == ["book flight", "book hotel", "pay", "undo hotel", "undo flight"]
    again = Journey(escalate(), times=0)
    assert again.flow.kickoff(run_id="run") == "paid with 1"
    assert again.did == ["book flight", "book hotel", "pay"], "what was undone is done again"


def test_killed_after_any_commit_the_methods_are_undone_as_often_as_without():
    def life(checkpoint):
        journey = Journey(escalate(), checkpoint)
        with pytest.raises(RecoveryEscalated):
            journey.flow.kickoff(run_id="run")
        return journey.did

    kept = Kept()
    whole = life(CheckpointConfig(location="here", provider=kept))
    entries = kept.entries
    for at in range(1, len(entries) - 1):
        did = life(cut(entries[:at], at))
        assert did == whole[len(whole) - len(did) :], f"cut after commit {at}"


def test_a_flow_of_methods_is_tried_again_after_its_methods_were_undone():
    journey = Journey(retry(max_attempts=1), times=1)
    assert journey.flow.kickoff() == "paid with 1"
    assert journey.did.count("undo flight") == journey.did.count("undo hotel") == 1
    assert [journey.did.count(one) for one in ("book flight", "book hotel", "pay")] == [2, 2, 2]


def test_what_a_step_inside_has_booked_stays_and_a_warning_names_it(caplog):
    did = []

    @step(compensate=lambda booked: did.append(f"undo {booked}"))
    def book(what: str) -> str:
        did.append(f"book {what}")
        return what

    @step
    def in_a_step() -> None:
        book("boat")

    @step(compensate=lambda nothing: did.append("undo all of it"))
    def as_one() -> None:
        book("train")

    @step(compensate=lambda nothing: did.append("undo what never ended"))
    def pay() -> None:
        book("taxi")
        raise ValueError("no money")

    @flow(failure_policy=FailurePolicy(default=compensate(abort("no"))))
    def travel() -> None:
        book("flight")
        in_a_step()
        as_one()
        pay()

    with pytest.raises(RecoveryAborted):
        travel.kickoff()
    assert [one for one in did if one.startswith("undo")] == ["undo all of it", "undo flight"]
    [warning] = [one.message for one in caplog.records if "compensate" in one.message]
    assert "the code of the flow itself has called, so these stay done: " in warning
    assert "done: step:in_a_step/step:book, step:pay/step:book. Call" in warning
