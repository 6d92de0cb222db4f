"""A fork of a pruned run: what is inside a step that runs again is no part of the outcome that the step had before."""

import pytest

from crewlite import History
from crewlite.errors import Suspended
from crewlite.flow import Flow, listen, start
from tests.cuts import RUN


def test_a_question_that_is_asked_again_waits_and_can_be_answered(memory):
    class Plan(Flow):
        checkpoint = memory()

        @start()
        def begin(self):
            return "begun"

        @listen(begin)
        def approve(self):
            return self.ask("Go on?", bool, name="go")

    at = "method:approve@begin/human:go"
    assert Plan().kickoff(run_id=RUN, answers={at: True}) is True
    with History(Plan.checkpoint.location, Plan.checkpoint.provider) as history:
        history.prune(keep_last=1)
        assert at not in [step.address for step in history.run(RUN).steps]
        fork = Plan().fork(RUN, branch="other", edits={"method:begin": "begun otherwise"})
        with pytest.raises(Suspended) as waits:
            fork.kickoff()
        assert waits.value.waiting == {at: "Go on?"}
        history.prune(keep_last=1)
        other = history.run(f"{RUN}/other")
        assert (other.status, [one.address for one in other.waiting]) == ("waiting", [at])
        history.answer(f"{RUN}/other", at, False)
    assert fork.kickoff() is False
