"""A fork of a pruned run: what is inside a step that runs again is no part of the outcome that the step had before."""

import pytest

from crewlite import Agent, Crew, History, Task
from crewlite.errors import Suspended
from crewlite.flow import Flow, flow, listen, start, step
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN
from tests.parts import Stop


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
        assert at in [step.address for step in history.run(RUN).steps], "what people decided stays"
        fork = Plan().fork(RUN, branch="other", edits={"method:begin": "begun otherwise"})
        with pytest.raises(Suspended) as waits:
            fork.kickoff()
        assert waits.value.waiting == {at: "Go on?"}
        history.prune(keep_last=1)
        other = history.run(f"{RUN}/other")
        assert (other.status, [one.address for one in other.waiting]) == ("waiting", [at])
        history.answer(f"{RUN}/other", at, False)
    assert fork.kickoff() is False


def test_what_the_code_of_a_method_asks_again_is_neither_paid_nor_done_again(memory):
    model, counted = ScriptedLLM(["tides", "bullets", "a poem", "a song"]), []
    poet = Agent(role="Poet", goal="Rhyme", llm=model)
    facts = Task(name="facts", description="Find facts", expected_output="Bullets", agent=poet)

    @step
    def count(text):
        counted.append(text)
        return len(text)

    class Verse(Flow):
        @start()
        def write(self):
            return poet.kickoff("Write a poem").raw

    class Plan(Flow):
        checkpoint = memory()

        @start()
        def begin(self):
            return "begun"

        @listen(begin)
        def work(self, begun):
            crew = Crew(name="crew", tasks=[facts], before_kickoff_callbacks=[lambda inputs: counted.append("before")])
            raw = crew.kickoff().raw
            return begun, poet.kickoff("Write bullets").raw, Verse().kickoff(), model.call("Write a song"), count(raw)

    found = Plan().kickoff(run_id=RUN)
    done = (len(model.calls), [*counted])
    with History(Plan.checkpoint.location, Plan.checkpoint.provider) as history:
        assert history.prune(keep_last=1).freed
        assert not [one for one in history.run(RUN).steps if one.address.endswith("task:facts/llm#1")]
    assert Plan().fork(RUN, edits={"method:begin": "otherwise"}).kickoff() == ("otherwise", *found[1:])
    assert (len(model.calls), counted) == done


@pytest.mark.parametrize("pruned", [False, True])
def test_a_step_that_was_set_to_run_again_has_done_so_once_it_is_left_out(memory, pruned):
    """Else the next attempt at the step around it would go on with the number of the one that failed."""
    setting, asked = memory(on_drift="rerun"), []

    def program(text, *failures, stops=False):
        left = [*failures]

        @step
        def leaf():
            return len(asked)

        @step
        def long(number):
            return f"{number} " * 200

        @step
        def other():
            if left:
                raise left.pop()
            return "other"

        @step(retries=1)
        def outer(text):
            asked.append(text)
            return long(leaf()) if text == "as before" else other()

        def whole():
            found = outer(text)
            if stops:
                raise Stop
            return found

        return flow(whole, name="program", checkpoint=setting)

    program("as before").kickoff(run_id=RUN)
    with pytest.raises(Stop):
        program("as before", stops=True).fork(RUN, branch="f", rerun=["step:outer/step:leaf"]).kickoff()
    with History(setting.location, setting.provider) as history:
        assert history.prune(keep_last=1).freed if pruned else True
        assert program("otherwise", ValueError("no")).kickoff(from_checkpoint=f"{RUN}/f") == "other"
        assert "step:outer!2/step:other" in [step.address for step in history.run(f"{RUN}/f").steps]
