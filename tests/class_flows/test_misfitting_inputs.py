"""Inputs that make no initial state are refused before anything is recorded, so the run_id stays free."""

import pytest
from pydantic import BaseModel

from crewlite import History
from crewlite.errors import ConfigError
from crewlite.flow import Flow, listen, start
from tests.cuts import RUN


class Draft(BaseModel):
    topic: str
    words: int = 5


@pytest.fixture
def plan(memory):
    class Plan(Flow[Draft]):
        checkpoint = memory()

        @start()
        def begin(self):
            return self.state.words

        @listen(begin)
        def end(self, words):
            return f"{words} words about {self.state.topic}"

    return Plan()


@pytest.mark.parametrize("wrong", [{"topic": "tides", "words": "many"}, {"words": 3}], ids=["misfit", "missing"])
def test_a_kickoff_that_is_refused_leaves_no_run(plan, wrong):
    with pytest.raises(ConfigError, match="the input words does not fit|is missing the input topic"):
        plan.kickoff(inputs=wrong, run_id=RUN)
    assert plan.kickoff(inputs={"topic": "tides", "words": 3}, run_id=RUN) == "3 words about tides"


def test_a_fork_that_is_refused_leaves_no_branch(plan):
    plan.kickoff(inputs={"topic": "tides"}, run_id=RUN)
    with pytest.raises(ConfigError, match="the input words does not fit"):
        plan.fork(RUN, inputs={"words": "many"}, branch="other")
    assert plan.fork(RUN, inputs={"words": 3}, branch="other").kickoff() == "3 words about tides"


def test_a_fork_that_was_made_without_the_class_may_be_given_other_inputs_after_a_refusal(plan):
    plan.kickoff(inputs={"topic": "tides"}, run_id=RUN)
    config = plan.checkpoint
    with History(config.location, config.provider) as history:
        history.fork(RUN, inputs={"words": "many"}, branch="other")
    fork = plan.bound_to(f"{RUN}/other")
    for verb in (fork.preview, fork.kickoff):
        with pytest.raises(ConfigError, match="the input words does not fit"):
            verb()
    assert fork.kickoff(inputs={"words": 3}) == "3 words about tides"


def test_a_run_whose_inputs_do_not_fit_the_state_any_more_ends_in_the_method_that_asks_for_it(memory):
    fails, place = [True], memory()

    def plan_with(kind):
        class Plan(Flow[kind]):
            checkpoint = place

            @start()
            def begin(self):
                if fails.pop():
                    raise OSError("no line")
                return self.state.words

        Plan.__name__ = "Plan"
        return Plan()

    with pytest.raises(OSError, match="no line"):
        plan_with(type("Old", (BaseModel,), {"__annotations__": {"words": str}})).kickoff({"words": "many"}, run_id=RUN)
    fails.append(False)
    now = plan_with(type("New", (BaseModel,), {"__annotations__": {"words": int}, "words": 5}))
    with pytest.raises(ConfigError, match=r"the recorded words does not fit .* inputs=\{'words': ...\}"):
        now.kickoff(run_id=RUN)
    fails.append(False)
    assert now.fork(RUN, inputs={"words": 3}).kickoff() == 3
