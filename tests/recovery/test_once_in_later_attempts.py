"""A call with effect="once" in a later attempt, or after a kill: asked about, answered as said, or made again."""

import contextlib

import pytest

from crewlite import CheckpointConfig, FailurePolicy, History
from crewlite.errors import InDoubt, NonDeterminism
from crewlite.flow import flow, keyed, recoverable, step
from crewlite.recovery import compensate, replan, retry
from tests.cuts import RUN, Kept, cut, entries_of


def in_attempts(setting, texts, fails):
    """A flow of one step, which sends a text in each attempt; `fails` are the errors, one for each attempt."""

    @step(effect="once")
    def send(text):
        sent.append(text)
        if error := fails.pop(0):
            raise error
        return f"sent {text}"

    @step(retries=5)
    def around():
        told = send(texts.pop(0))
        if fails:
            raise fails.pop(0)
        return told

    sent = []
    return flow(around, name="one", checkpoint=setting), sent


def test_a_call_with_other_arguments_is_asked_about_and_not_answered_with_the_result_of_the_first():
    setting = CheckpointConfig(location="here", provider=Kept())
    program, sent = in_attempts(setting, ["a", "b", "b"], [ConnectionError("no route"), None])
    with pytest.raises(InDoubt, match="failed .ConnectionError: no route") as stop:
        program.kickoff(run_id=RUN)
    assert (stop.value.address, sent) == ("step:around/step:send", ["a"])
    assert (stop.value.run_id, stop.value.branch) == (RUN, "main")
    assert program.kickoff(run_id=RUN, answers={stop.value.address: "sent a after all"}) == "sent b"
    assert sent == ["a", "b"]


@pytest.mark.parametrize("pruned", [False, True])
def test_what_a_person_said_answers_every_later_attempt(pruned):
    setting = CheckpointConfig(location="here", provider=Kept(), on_events=["flow_failed"])
    lost, later = ConnectionError("no route"), ValueError("oops")
    program, sent = in_attempts(setting, ["a"] * 6, [lost, later, later, later])
    with pytest.raises(InDoubt) as stop:
        program.kickoff(run_id=RUN)
    if pruned:
        with History(setting.location, setting.provider) as history:
            history.prune(keep_last=1)
    assert program.kickoff(run_id=RUN, answers={stop.value.address: "told"}) == "told"
    assert sent == ["a"]
    with History(setting.location, setting.provider) as history:
        steps = {one.address: one for one in history.run(RUN).steps}
    assert steps[stop.value.address].status == "finished"
    assert steps[stop.value.address].value == "told"


@pytest.mark.parametrize("pruned", [False, True])
def test_a_failure_that_a_finished_step_has_handled_is_asked_about_where_that_step_is_done_again(pruned):
    setting = CheckpointConfig(location="here", provider=Kept(), on_events=["flow_failed"])
    sent, fails = [], [ValueError("oops")]

    @step(effect="once")
    def send():
        sent.append("a")
        raise ConnectionError("no route")

    @step
    def inner():
        with contextlib.suppress(ConnectionError):
            send()

    @step
    def around():
        inner()
        if fails:
            raise fails.pop()

    program = flow(around, name="one", checkpoint=setting)
    with pytest.raises(ValueError, match="oops"):
        program.kickoff(run_id=RUN)
    if pruned:
        with History(setting.location, setting.provider) as history:
            history.prune(keep_last=1)
    with pytest.raises(InDoubt) as stop:
        program.kickoff(run_id=RUN)
    assert stop.value.address == "step:around/step:inner/step:send"
    program.kickoff(run_id=RUN, answers={stop.value.address: "it was sent"})
    assert sent == ["a"]


@pytest.mark.parametrize("then", [retry(), replan()])
def test_a_call_that_was_undone_is_made_again_without_a_question(then):
    done, fails = [], [ValueError("oops")]

    @step(effect="once", compensate=lambda value: done.append(f"{value} back"))
    def pay():
        done.append("pay")
        return "paid"

    @recoverable(policy=FailurePolicy(default=compensate(then=then)))
    def one(hint: str):
        pay()
        if fails:
            raise fails.pop()

    one.kickoff()
    assert done == ["pay", "paid back", "pay"]


def test_a_call_that_has_answered_once_answers_no_second_call_after_a_kill_whatever_key_is_around_it():
    def program(setting, sent, fails):
        @step(effect="once")
        def send(text):
            sent.append(text)
            return f"letter {len(sent)}"

        @step(retries=1)
        def around():
            send("a")
            if fails:
                raise fails.pop()
            send("a")

        @flow(checkpoint=setting)
        def one():
            with keyed("ada@example.org"):
                around()

        return one

    def made_in(setting):
        with History(setting.location, setting.provider) as history:
            ended = [one for one in history.run(RUN).steps if "send" in one.address and one.status == "finished"]
        return sum(not one.reused_from for one in ended)

    sent, setting = [], CheckpointConfig(location="here", provider=Kept())
    program(setting, sent, [ValueError("oops")]).kickoff(run_id=RUN)
    assert sent == ["a", "a"]
    entries = entries_of(setting)
    for at in range(1, len(entries) + 1):
        kept, more = cut(entries, at), []
        before = made_in(kept)
        try:
            program(kept, more, []).kickoff(run_id=RUN)
        except InDoubt:
            continue
        assert before + len(more) == 2, f"commit {at}"


@pytest.mark.parametrize("took_effect", [False, True])
def test_a_call_that_was_undone_is_made_again_also_after_a_kill(took_effect):
    def program(checkpoint, done, fails):
        @step(effect="once", compensate=lambda value: None)
        def book():
            done.append(len(entries_of(checkpoint)))
            return "booked"

        @step
        def check(value):
            if fails:
                raise fails.pop()
            return value

        @flow(checkpoint=checkpoint, failure_policy=FailurePolicy(default=compensate(then=retry())))
        def one():
            return check(book())

        return one

    setting, done = CheckpointConfig(location="here", provider=Kept(), on_events=["flow_failed"]), []
    assert program(setting, done, [ValueError("oops")]).kickoff(run_id=RUN) == "booked"
    assert len(done) == 2
    entries = entries_of(setting)
    for at in range(1, len(entries) + 1):
        again = cut(entries, at)
        with History("cut", again.provider) as history:
            fails = [] if history.run(RUN).attempts else [ValueError("oops")]
        more = [commits for commits in done if commits < at or (commits == at and took_effect)]
        one = program(again, more, fails)
        try:
            assert one.kickoff(run_id=RUN) == "booked"
        except InDoubt as doubt:
            decided = {"answers": {doubt.address: "booked"}} if took_effect else {"rerun": [doubt.address]}
            assert one.kickoff(run_id=RUN, **decided) == "booked"
        assert len(more) == 2, f"commit {at}"


@pytest.mark.parametrize("decided", [{}, {"answers": {"step:pay": "paid 3"}}, {"rerun": ["step:pay"]}])
def test_what_is_said_of_a_call_does_not_count_for_another_one_at_its_address(decided):
    def program(checkpoint, amount, paid):
        @step(effect="once")
        def pay(amount):
            paid.append(amount)
            return f"paid {amount}"

        @flow(checkpoint=checkpoint)
        def one():
            return pay(amount)

        return one

    setting, paid = CheckpointConfig(location="here", provider=Kept()), []
    program(setting, 3, paid).kickoff(run_id=RUN)
    begun = cut(entries_of(setting), 2)
    with pytest.raises(NonDeterminism, match="with which that call was begun.*found .*4"):
        program(begun, 4, paid).kickoff(run_id=RUN, **decided)
    assert program(begun, 3, paid).kickoff(run_id=RUN, answers={"step:pay": "paid 3"}) == "paid 3"
    assert paid == [3]
