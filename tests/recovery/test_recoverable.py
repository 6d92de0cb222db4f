"""The page on durable checkpoints of triage, with our names: it behaves as that page says it should."""

from __future__ import annotations

import asyncio
from dataclasses import fields

import pytest

from crewlite import CheckpointConfig, FailurePolicy, History
from crewlite.errors import ConfigError, DeadlineExceeded, RecoveryEscalated
from crewlite.events import RecoveryStartedEvent
from crewlite.flow import flow, record_step, recoverable, recovery_hint, step, update_state
from crewlite.recovery import (
    FailureType,
    LoopDetector,
    RecordedStep,
    Rule,
    compensate,
    escalate,
    replan,
    resume_from_subgoal,
    retry,
    rollback_to_checkpoint,
)
from crewlite.testing import EventRecorder
from tests.cuts import Kept, cut

CLAIM = "agent claimed 100 records but tool returned 42"
ROLLBACK = FailurePolicy(
    HALLUCINATED_STATE=rollback_to_checkpoint(), UNKNOWN=rollback_to_checkpoint(), default=escalate()
)


class Pipeline:
    """Three phases. The model makes something up in the second, until it is told."""

    def __init__(self, policy=ROLLBACK, checkpoint=True, **more):
        self.did, self.told, did = [], [], None
        did = self.did.append

        @step
        def fetch(task: str) -> int:
            did("fetch")
            return 42

        @step
        def process(records: int, hint: str) -> str:
            did("process")
            return f"{records} records" if hint else "100 records"

        @step
        def report(processed: str) -> str:
            did("report")
            return f"Done. Processed {processed}"

        @recoverable(policy=policy, checkpoint=checkpoint, max_recovery_attempts=3, **more)
        def analyse(task: str, recovery=None) -> str:
            self.told.append(recovery)
            records = fetch(task)
            record_step("fetch_data", tool="fetch", output={"records": records})
            update_state(fetched=records)
            processed = process(records, recovery.hint if recovery else "")
            if str(records) not in processed:
                record_step("process_data", tool="process", error=CLAIM, said="I have processed all 100 records.")
                raise AssertionError(CLAIM)
            return report(processed)

        self.analyse = analyse


def test_phase_one_is_done_once_and_the_second_attempt_is_told_what_was_wrong(capsys):
    pipeline = Pipeline(verbose=True)
    with EventRecorder() as events:
        assert pipeline.analyse.kickoff("Q1", run_id="r") == "Done. Processed 42 records"
    assert pipeline.did == ["fetch", "process", "process", "report"]
    first, second = pipeline.told
    assert first is None
    assert (second.attempt, CLAIM in second.hint) == (2, True)
    assert [one.action for one in second.trajectory] == ["fetch_data", "process_data"]
    assert second.trajectory[0] == RecordedStep("fetch_data", tool="fetch", output={"records": 42})
    assert second.state == {"fetched": 42}
    [began] = events.of(RecoveryStartedEvent)
    assert (began.remedy, began.attempt, CLAIM in began.hint) == ("rollback", 1, True)
    shown = capsys.readouterr().out
    assert "AssertionError" in shown
    assert "rollback, try 2" in shown
    with History(".checkpoints") as history:
        run = history.run("r")
        assert [(one.address, type(one.remedy).__name__) for one in run.attempts] == [("", "Rollback")]
        assert run.values == {"fetched": 42}
        assert sorted(one.address for one in run.steps) == ["", "step:fetch", "step:process", "step:report"]


@pytest.mark.parametrize(
    ("strategy", "again"),
    [
        (rollback_to_checkpoint(), ["process", "report"]),
        (resume_from_subgoal("process the records"), ["process", "report"]),
        (replan(), ["fetch", "process", "report"]),
    ],
    ids=["rollback", "resume", "replan"],
)
def test_killed_after_any_commit_it_comes_to_the_same_and_repeats_nothing(strategy, again):
    policy, kept = FailurePolicy(default=strategy), Kept()
    whole = Pipeline(policy, CheckpointConfig(location="here", provider=kept))
    expected = whole.analyse.kickoff("Q1", run_id="run")
    assert whole.did == ["fetch", "process", *again]
    entries = kept.entries
    for at in range(1, len(entries)):
        setting = cut(entries, at)
        resumed = Pipeline(policy, setting)
        assert resumed.analyse.kickoff("Q1", run_id="run") == expected, f"cut after commit {at}"
        done = [one for entry in entries[:at] for one in entry.commit.get("steps", ()) if "value" in one]
        assert resumed.did == whole.did[len(done) :], f"cut after commit {at}"


def test_the_budget_of_attempts_is_counted_over_restarts():
    calls = []

    def make(checkpoint):
        @recoverable(policy=FailurePolicy(default=retry(max_attempts=2)), checkpoint=checkpoint)
        async def work() -> None:
            calls.append(recovery_hint())
            raise ValueError("never")

        return work

    kept = Kept()
    with pytest.raises(RecoveryEscalated):
        asyncio.run(make(CheckpointConfig(location="here", provider=kept))(run_id="run"))
    assert len(calls) == 3
    entries = kept.entries
    failed = [n for n, entry in enumerate(entries, 1) if any("error" in one for one in entry.commit.get("steps", ()))]
    assert len(failed) == 3
    for done, at in enumerate(failed[:2], 1):
        calls.clear()
        with pytest.raises(RecoveryEscalated) as caught:
            make(cut(entries, at)).kickoff(run_id="run")
        assert (len(calls), caught.value.failure.attempts) == (3 - done, 3)


def test_inside_a_flow_it_is_a_step_that_recovers_by_itself():
    pipeline = Pipeline(checkpoint=None)

    @flow(checkpoint=True)
    def outer() -> str:
        return pipeline.analyse("Q1")

    assert outer.kickoff(run_id="r") == "Done. Processed 42 records"
    assert pipeline.did == ["fetch", "process", "process", "report"]
    with History(".checkpoints") as history:
        assert [one.address for one in history.run("r").attempts] == ["flow:analyse"]


def test_a_step_that_fails_inside_is_done_again_alone_and_reads_the_hint():
    hints = []

    @step
    def shaky() -> str:
        hints.append(recovery_hint())
        if not hints[-1]:
            raise ValueError("made up")
        return "sound"

    @recoverable(policy=ROLLBACK)
    def work(hint: str) -> str:
        assert hint == ""
        return shaky()

    assert work() == "sound"
    assert len(hints) == 2


def test_after_a_rollback_a_call_that_must_happen_once_is_not_made_again_behind_one_that_is():
    sent = []

    @step
    def draft(hint: str) -> str:
        return f"draft {bool(hint)}"

    @step(effect="once")
    def send(to: str) -> str:
        sent.append(to)
        return "sent"

    @recoverable(policy=ROLLBACK, checkpoint=True)
    def work(hint: str) -> str:
        text = draft(hint)
        send("Ada")
        if "False" in text:
            raise ValueError("made up")
        return text

    assert work.kickoff(run_id="r") == "draft True"
    assert sent == ["Ada"]


@pytest.mark.parametrize("place", [None, "step:weigh"])
@pytest.mark.parametrize("rollbacks", [1, 2])
def test_after_a_rollback_a_call_made_once_in_an_earlier_attempt_is_not_made_again(place, rollbacks):
    sent, fails = [], ["check"] * rollbacks + ["order"]

    def fail_at(where):
        if fails[-1:] == [where]:
            raise ConnectionError(fails.pop())

    @step(effect="once")
    def send(what: str) -> str:
        sent.append(what)
        return f"sent {what}"

    @step
    def weigh() -> str:
        return "tea"

    @step(retries=1)
    def order(what: str) -> str:
        said = send(what)
        fail_at("order")
        return said

    @step
    def check(said: str) -> str:
        fail_at("check")
        return f"{said}!"

    @flow(checkpoint=True, failure_policy=FailurePolicy(default=rollback_to_checkpoint(place)))
    def shop() -> str:
        return check(order(weigh()))

    assert shop.kickoff(run_id="r") == "sent tea!"
    assert (sent, fails) == (["tea"], [])


def test_a_deadline_that_has_passed_is_told_as_that_of_a_flow_is_and_what_was_done_is_undone():
    did = []

    @step(compensate=lambda what: did.append(f"undo {what}"))
    def book() -> str:
        did.append("book")
        return "boat"

    @recoverable(policy=FailurePolicy(default=compensate(then=replan())), checkpoint=True, timeout=2)
    async def work() -> None:
        await book.submit()
        await asyncio.sleep(60)

    with pytest.raises(DeadlineExceeded) as late:
        work.kickoff(run_id="r")
    assert str(late.value).count("Its record is kept") == 1
    assert did == ["book", "undo boat"]


def test_its_classifier_and_limit_are_those_of_its_policy():
    class Always:
        def classify(self, failure):
            assert failure.trajectory[-1].error == CLAIM
            return FailureType.HALLUCINATED_STATE

    pipeline = Pipeline(FailurePolicy(HALLUCINATED_STATE=replan("Count them.")), classifier=Always())
    assert pipeline.analyse("Q1") == "Done. Processed 42 records"
    assert pipeline.told[1].failure_type is FailureType.HALLUCINATED_STATE
    assert pipeline.told[1].hint == "Count them."
    with pytest.raises(ConfigError, match="settings of a FailurePolicy"):
        recoverable(policy=retry(), classifier=Always())(lambda: None)


def test_every_other_setting_of_its_policy_stays():
    rules = (Rule({"unavailable"}, 2),)
    policy = FailurePolicy(
        rules, default=retry(), TIMEOUT=replan(), max_recovery_attempts_per_run=9, guards=[LoopDetector()]
    )
    changed = recoverable(policy=policy, max_recovery_attempts=1)(lambda: None).policy
    slots = {one.name: getattr(policy, one.name) for one in fields(policy)}
    assert all(value for value in slots.values()), "each is set, so that a lost one is seen"
    assert {name: getattr(changed, name) for name in slots} == slots | {"max_recovery_attempts": 1}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"policy": 3}, "@recoverable 'work': policy is 3"),
        ({"classifier": 3}, "@recoverable 'work': classifier is 3"),
        ({"max_recovery_attempts": -1}, "@recoverable 'work': max_recovery_attempts is -1"),
        ({"timeout": 0}, "@recoverable 'work': timeout is 0"),
        ({"verbose": 1}, "@recoverable 'work': verbose is 1"),
        ({"checkpoint": "x"}, "@recoverable 'work': checkpoint is 'x'"),
        ({"max_concurrency": 0}, "@recoverable 'work': max_concurrency is 0"),
        ({"name": "a/b"}, "@recoverable is named 'a/b'"),
    ],
)
def test_a_mistake_names_the_decorator_and_the_option_as_they_were_written(options, wanted):
    def work():
        pass

    with pytest.raises(ConfigError, match=wanted):
        recoverable(**options)(work)


def test_a_preview_in_the_middle_of_a_recovery_tells_what_is_done_again():
    kept = Kept()
    Pipeline(checkpoint=CheckpointConfig(location="here", provider=kept)).analyse.kickoff("Q1", run_id="run")
    entries = kept.entries
    failed = next(
        n for n, entry in enumerate(entries, 1) if any("error" in one for one in entry.commit.get("steps", ()))
    )
    pipeline = Pipeline(checkpoint=cut(entries, failed))
    assert [(one.address, one.verdict) for one in pipeline.analyse.preview(run_id="run")] == [
        ("step:fetch", "reused"),
        ("step:process", "runs"),
    ]
    assert pipeline.did == []


def test_code_that_handles_an_escalated_failure_handles_it_on_every_resume():
    def make(checkpoint):
        @step
        def shaky() -> str:
            did.append("shaky")
            raise ValueError("made up")

        @step
        def other(why: str) -> str:
            did.append("other")
            return why

        @flow(checkpoint=checkpoint, failure_policy=FailurePolicy(default=escalate("Ask Ada")))
        def work() -> str:
            try:
                return shaky()
            except RecoveryEscalated as error:
                assert error.failure.type is FailureType.HALLUCINATED_STATE
                return other(f"{error.said} about {error.failure.address}")

        return work

    did, kept = [], Kept()
    assert make(CheckpointConfig(location="here", provider=kept)).kickoff(run_id="run") == "Ask Ada about step:shaky"
    whole, entries = [*did], kept.entries
    for at in range(1, len(entries)):
        did.clear()
        assert make(cut(entries, at)).kickoff(run_id="run") == "Ask Ada about step:shaky"
        assert did == whole[len(whole) - len(did) :]


@pytest.mark.parametrize("strategy", [rollback_to_checkpoint(), resume_from_subgoal("count"), replan()])
def test_after_it_has_failed_for_good_in_a_hinted_attempt_the_next_kickoff_goes_on_with_it(strategy):
    def make(checkpoint):
        @step
        def count(hint: str, attempt: int) -> str:
            did.append(attempt)
            return "100"

        @recoverable(policy=FailurePolicy(default=strategy, max_recovery_attempts=1), checkpoint=checkpoint)
        def work(hint: str, recovery=None) -> str:
            counted = count(hint, recovery.attempt if recovery else 1)
            if not mended:
                raise AssertionError(CLAIM)
            return counted

        return work

    did, mended, kept = list[int](), False, Kept()
    work = make(CheckpointConfig(location="here", provider=kept))
    for _ in range(3):
        with pytest.raises(RecoveryEscalated, match=CLAIM):
            work.kickoff(run_id="run")
    assert did == [1, 2, 4, 6], "a kickoff begins with the finished steps of the attempt that failed"
    entries, mended = kept.entries, True
    for at in range(1, len(entries) + 1):
        did.clear()
        assert make(cut(entries, at)).kickoff(run_id="run") == "100", f"cut after commit {at}"
        assert len(did) <= 1, f"cut after commit {at}"
