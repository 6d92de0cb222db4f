"""What code says with record_step() and update_state() is heard in later attempts, also after a kill."""

from __future__ import annotations

import contextlib

import pytest

from crewlite import CheckpointConfig, FailurePolicy
from crewlite.errors import ConfigError, RecoveryEscalated
from crewlite.flow import flow, record_step, recoverable, recovery, recovery_hint, step, update_state
from crewlite.recovery import FailureType, escalate, replan, rollback_to_checkpoint
from tests.cuts import Kept, cut


def test_what_is_recorded_outside_a_recoverable_function_is_a_mistake():
    with pytest.raises(ConfigError, match="decorate its caller"):
        record_step("look")
    with pytest.raises(ConfigError, match="decorate its caller"):
        update_state(found=1)
    assert recovery() is None
    assert recovery_hint() == ""


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda: record_step(), "ConfigError: record_step: action is missing; wanted a text that says what was done"),
        (lambda: record_step(3), "ConfigError: record_step: action is 3; wanted a text"),
        (lambda: record_step("x", error=KeyError()), r"ConfigError: record_step: error is KeyError\(\); wanted a text"),
        (lambda: record_step("x", input=object()), "NotCodable: record_step: input is an object, which cannot be"),
        (lambda: record_step("x", output={"a": [object()]}), "NotCodable: record_step: output.*a.*0.* is an object"),
        (lambda: update_state(a=object()), "NotCodable: update_state: a is an object, which cannot be recorded"),
    ],
)
def test_what_cannot_be_recorded_is_a_mistake_that_no_policy_tries_again(mistake, said):
    tries = []

    @recoverable(policy=FailurePolicy(default=replan()))
    def work() -> None:
        tries.append(1)
        mistake()

    with pytest.raises(RecoveryEscalated, match=said):
        work()
    assert len(tries) == 1


class Talkative:
    """Its steps say what they do: two beside each other, one inside another, one that is tried again, one that fails."""

    def __init__(self, checkpoint, policy=None):
        self.told, self.did = [], []

        @step
        def look(n: int) -> int:
            self.did.append(n)
            record_step("look", tool="look", input=n)
            update_state(**{f"seen{n}": n})
            return n

        @step
        def around(n: int) -> int:
            record_step("around")
            return look(n)

        @step(retries=2)
        def shaky() -> None:
            record_step("shaky")
            if "shaky" not in self.did:
                self.did.append("shaky")
                raise ValueError("not yet")

        @step(failure_policy=FailurePolicy(default=escalate()))
        def broken() -> None:
            record_step("broken", error="gone")
            raise ValueError("gone")

        @recoverable(policy=policy or FailurePolicy(default=rollback_to_checkpoint()), checkpoint=checkpoint)
        def work(recovery=None) -> list[str]:
            if recovery:
                self.told.append(([(one.action, one.input) for one in recovery.trajectory], dict(recovery.state)))
            both = [look.submit(n) for n in (1, 2)]
            assert [one.result() for one in both] == [1, 2]
            around(3)
            shaky()
            with contextlib.suppress(RecoveryEscalated):
                broken()
            record_step("end")
            if recovery is None or recovery.attempt < 3:
                raise ValueError("not good enough")
            return [one.action for one in recovery.trajectory]

        self.work = work


def test_what_finished_steps_have_said_is_told_in_every_later_attempt_also_after_a_kill_anywhere():
    kept = Kept()
    whole = Talkative(CheckpointConfig(location="here", provider=kept))
    said = [("look", 1), ("look", 2), ("around", None), ("look", 3), ("shaky", None), ("broken", None), ("end", None)]
    expected = whole.work.kickoff(run_id="run")
    assert expected == [action for action, _ in said]
    assert whole.told == [(said, {"seen1": 1, "seen2": 2, "seen3": 3})] * 2
    entries = kept.entries
    for at in range(1, len(entries)):
        again = Talkative(cut(entries, at))
        assert again.work.kickoff(run_id="run") == expected, f"cut after commit {at}"
        assert all(told == whole.told[0] for told in again.told), f"cut after commit {at}"


@pytest.mark.parametrize("location", ["runs", "runs.db"])
def test_the_classifier_of_a_later_kickoff_hears_what_finished_steps_have_said(location):
    @step
    def look() -> None:
        record_step("look", tool="look", input={"key": "sk-secret"}, output="nothing")

    @recoverable(
        policy=FailurePolicy(default=escalate()),
        checkpoint=CheckpointConfig(location=location, redact=["sk-secret"]),
    )
    def work() -> None:
        for _ in range(3):
            look()
        raise ValueError("stuck")

    for _ in range(2):
        with pytest.raises(RecoveryEscalated) as caught:
            work.kickoff(run_id="r")
        assert caught.value.failure.type is FailureType.LOOP_DETECTED
        assert "sk-secret" not in str(caught.value.failure)


def test_what_a_separate_run_inside_says_is_heard_as_well():
    @step
    def look() -> None:
        record_step("look")

    @flow(checkpoint=True)
    def separate() -> None:
        record_step("begin")
        look()

    @recoverable(policy=FailurePolicy(default=replan()))
    def work(recovery=None) -> list[str]:
        separate.kickoff()
        if recovery is None:
            raise ValueError("made up")
        return [one.action for one in recovery.trajectory]

    assert work.kickoff() == ["begin", "look"]
