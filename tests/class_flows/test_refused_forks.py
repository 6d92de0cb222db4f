"""Forks and previews of flows that cannot be: each says what was found, and what to write."""

from functools import partial
from pathlib import Path

import pytest

from crewlite import Agent, Crew, History
from crewlite.errors import ConfigError, RefError, RunMismatch
from crewlite.flow import Flow, flow, start
from tests.cuts import RUN


def test_a_class_that_can_rebuild_nothing_of_a_run_forks_nothing():
    class Plan(Flow):
        checkpoint = True

        @start()
        def begin(self): ...

    @flow
    def pipeline(): ...

    Plan().kickoff(run_id=RUN)
    for fork, told in (
        (Flow.fork, "flow 'Flow' has no methods"),
        (partial(Plan.fork, bind={"llm": 1}), "Plan takes no bind"),
        (type(pipeline).fork, "A flow is a function, which no record holds"),
        (Crew.fork, "is of flow 'Plan', not of a crew"),
        (Agent(role="Clerk", goal="answer", llm="offline").fork, "is of flow 'Plan', not of an agent"),
    ):
        with pytest.raises((ConfigError, RunMismatch), match=told):
            fork(RUN)
    with History("./.checkpoints") as history:
        assert [run.branch for run in history.runs()] == ["main"]
        with pytest.raises(RefError, match=r"names no run in .* Candidates: run\.$"):
            Plan().fork(RUN)
            history.delete("other")


def test_a_method_in_place_of_its_address_is_told_in_short():
    class Plan(Flow):
        checkpoint = True

        @start()
        def begin(self): ...

    Plan().kickoff(run_id=RUN)
    with pytest.raises(ConfigError, match=r"^rerun is <method begin>; wanted a list of addresses, such as"):
        Plan().fork(RUN, rerun=Plan.begin)
    with pytest.raises(ConfigError, match=r"^edits is {<method begin>: 1}; wanted outcomes by address, such as"):
        Plan().fork(RUN, edits={Plan.begin: 1})


def test_a_preview_of_a_run_that_never_was_says_so():
    class Plan(Flow):
        checkpoint = True

        @start()
        def begin(self): ...

    for plan in (Plan(), Agent(role="Clerk", goal="answer", llm="offline", checkpoint=True)):
        with pytest.raises(
            RefError, match="'other' names no run in .*, so there is nothing to preview: a kickoff would"
        ):
            plan.preview({} if isinstance(plan, Plan) else "hello", run_id="other")
        assert not Path(".checkpoints").exists()
