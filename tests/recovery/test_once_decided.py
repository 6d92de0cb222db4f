"""What a person says of a call in doubt: it counts after a kill at any place, and it has the type that the call returns."""

import pytest

from crewlite import CheckpointConfig
from crewlite.errors import InDoubt, NonDeterminism
from crewlite.flow import flow, step
from tests.cuts import RUN, Kept, cut, entries_of

SEND = "step:around/step:send"


def posting(setting, sent, *, fails=False):
    """A flow whose step sends a letter in a step of its own."""

    @step(effect="once")
    def send():
        sent.append("letter")
        if fails:
            raise ConnectionError("no route")
        return "sent"

    @step
    def around():
        return send()

    @flow(checkpoint=setting)
    def one():
        return around()

    return one


@pytest.mark.parametrize("decided", [{"answers": {SEND: "told"}}, {"rerun": [SEND]}])
def test_a_doubt_that_was_decided_is_not_raised_again_where_the_asking_kickoff_was_killed(decided):
    setting = CheckpointConfig(location="here", provider=Kept())
    with pytest.raises(ConnectionError):
        posting(setting, [], fails=True).kickoff(run_id=RUN)
    before = len(entries_of(setting))
    with pytest.raises(InDoubt):
        posting(setting, []).kickoff(run_id=RUN)
    entries = entries_of(setting)
    for at in range(before, len(entries) + 1):
        sent = []
        result = posting(cut(entries, at), sent).kickoff(run_id=RUN, **decided)
        assert (result, sent) == (("told", []) if "answers" in decided else ("sent", ["letter"])), f"commit {at}"


def test_code_that_asked_otherwise_and_was_mended_goes_on_where_the_run_that_refused_it_was_killed():
    def program(setting, first, *, fails=False):
        @step
        def get(word):
            return word

        @step
        def around():
            got = get(first)
            if fails:
                raise ConnectionError("no route")
            return got

        @flow(checkpoint=setting)
        def one():
            return around()

        return one

    setting = CheckpointConfig(location="here", provider=Kept())
    with pytest.raises(ConnectionError):
        program(setting, "a", fails=True).kickoff(run_id=RUN)
    entries = entries_of(setting)
    begun = next(at for at in range(1, len(entries)) if b"step:around/step:get" in entries[at - 1].body)
    other = cut(entries, begun)
    with pytest.raises(NonDeterminism):
        program(other, "b").kickoff(run_id=RUN)
    entries = entries_of(other)
    for at in range(begun, len(entries) + 1):
        assert program(cut(entries, at), "a").kickoff(run_id=RUN) == "a", f"commit {at}"
