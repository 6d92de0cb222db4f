"""In a fork, what a person has said about one thing is not taken for what they would say about another."""

from __future__ import annotations

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, tool
from crewlite.errors import Suspended
from crewlite.flow import Flow, ask, flow, human_feedback, listen, router, start, step
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, Kept

DRAFT = "method:draft"
REVIEW = "method:review@draft/human:review"
CHANGES = [{"edits": {DRAFT: "slander"}}, {"rerun": [DRAFT]}]


def reviewed(setting, words, *, emit=("yes", "no"), by_state=False):
    """A flow whose second method a person looks at."""

    class Reviewed(Flow):
        checkpoint = setting

        @start()
        def draft(self):
            self.state["text"] = words[-1]
            return words[-1]

        @listen(draft)
        @human_feedback("Good?", emit=emit)
        def review(self, given):
            return (self.state["text"] if by_state else given).upper()

        @listen("yes" if emit else review)
        def publish(self, given):
            return f"published {given.output}"

    return Reviewed()


@pytest.mark.parametrize("emit", [("yes", "no"), None])
@pytest.mark.parametrize("change", CHANGES)
def test_a_method_with_feedback_behind_a_changed_one_works_and_asks_again(memory, emit, change):
    words = ["nice text"]
    made = reviewed(memory(), words, emit=emit)
    assert made.kickoff(run_id=RUN, answers={REVIEW: "yes"}) == "published NICE TEXT"
    words.append("slander")
    fork = made.fork(RUN, branch="other", **change)
    with pytest.raises(Suspended) as waits:
        fork.kickoff()
    assert waits.value.waiting[REVIEW].startswith("SLANDER")
    assert fork.kickoff(answers={REVIEW: "yes"}) == "published SLANDER"


def test_what_is_looked_at_may_come_from_the_state(memory):
    words = ["nice text"]
    made = reviewed(memory(), words, by_state=True)
    made.kickoff(run_id=RUN, answers={REVIEW: "yes"})
    words.append("slander")
    with pytest.raises(Suspended, match="SLANDER"):
        made.fork(RUN, rerun=[DRAFT]).kickoff()


def test_a_method_with_feedback_that_is_called_with_something_else_works_again(memory):
    class Called(Flow):
        checkpoint = memory()

        @start()
        def draft(self):
            return "nice text"

        @listen("never")
        @human_feedback("Good?")
        def look(self, given):
            return given.upper()

        @router(draft)
        def go_on(self, given):
            return "never" if given is None else self.look(given).output

    address = "method:go_on@draft/step:look/human:look"
    assert Called().kickoff(run_id=RUN, answers={address: "yes"}) == "NICE TEXT"
    with pytest.raises(Suspended, match="SLANDER"):
        Called().fork(RUN, edits={DRAFT: "slander"}).kickoff()


def asking(setting):
    """A flow whose second method asks a question that does not show what it is about."""

    class Asking(Flow):
        checkpoint = setting

        @start()
        def draft(self):
            return "nice text"

        @listen(draft)
        def publish(self, given):
            return given if self.ask("Publish it?", bool, name="publish") else "dropped"

    return Asking()


PUBLISH = "method:publish@draft/human:publish"


@pytest.mark.parametrize("change", CHANGES)
def test_a_method_behind_a_changed_one_asks_again(memory, change):
    asking(memory()).kickoff(run_id=RUN, answers={PUBLISH: True})
    fork = asking(memory()).fork(RUN, branch="other", **change)
    for _ in range(2):
        with pytest.raises(Suspended):
            fork.kickoff()
    with History("memory", memory().provider) as history:
        history.answer(f"{RUN}/other", PUBLISH, False)
    assert fork.kickoff() == "dropped"
    assert asking(memory()).kickoff(run_id=RUN) == "nice text"


def test_an_answer_that_no_kickoff_has_heard_yet_is_to_what_was_asked(memory):
    with pytest.raises(Suspended):
        asking(memory()).kickoff(run_id=RUN)
    with History("memory", memory().provider) as history:
        history.answer(RUN, PUBLISH, True)
    with pytest.raises(Suspended):
        asking(memory()).fork(RUN, edits={DRAFT: "slander"}).kickoff()
    assert asking(memory()).fork(RUN).kickoff() == "nice text"


def test_an_edited_answer_holds_beside_an_edit_of_what_it_is_about(memory):
    asking(memory()).kickoff(run_id=RUN, answers={PUBLISH: True})
    fork = asking(memory()).fork(RUN, branch="a", edits={DRAFT: "slander", PUBLISH: False})
    assert fork.kickoff() == "dropped"
    with pytest.raises(Suspended):
        asking(memory()).fork(f"{RUN}/a", edits={DRAFT: "flattery"}).kickoff()
    again = asking(memory()).fork(RUN, rerun=[DRAFT], edits={PUBLISH: False})
    assert again.kickoff() == "dropped"


def test_a_step_that_is_asked_something_else_asks_the_person_again_and_one_that_is_not_does_not(memory):
    @step
    def draft(of):
        return f"a text of {of}"

    @step
    def approved(text):
        return ask("Publish it?", bool, name="publish") and text

    @flow(checkpoint=memory())
    def both():
        return approved(draft("tides")), approved("an advertisement")

    addresses = ["step:approved/human:publish", "step:approved#2/human:publish"]
    both.kickoff(run_id=RUN, answers=dict.fromkeys(addresses, True))
    with pytest.raises(Suspended) as waits:
        both.fork(RUN, edits={"step:draft": "slander"}).kickoff()
    assert [*waits.value.waiting] == addresses[:1]


def shop(setting, paid):
    """A crew that pays what its first task says; a person has to allow that, and the call is always the same."""

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    def replies(messages):
        return "done" if messages[-1]["role"] == "tool" else ToolCall("pay", {"amount": 900})

    clerk = Agent(role="Clerk", goal="g", llm=ScriptedLLM(lambda messages: "an honest bill"))
    cashier = Agent(role="Cashier", goal="g", llm=ScriptedLLM(replies), tools=[pay])
    bill = Task(name="bill", description="Read the bill of {day}", expected_output="x", agent=clerk)
    pays = Task(name="pay", description="Pay it", expected_output="x", agent=cashier, context=[bill])
    alone = Task(name="alone", description="Pay the rent", expected_output="x", agent=cashier, context=[])
    return Crew(tasks=[bill, pays, alone], checkpoint=setting)


ALLOW = ["task:pay/human:pay", "task:alone/human:pay"]
TODAY = {"day": "today"}
FORGED = {"edits": {"task:bill": "a forged bill"}}


def test_a_call_is_approved_again_if_its_task_runs_again(memory):
    paid = []
    shop(memory(), paid).kickoff(TODAY, run_id=RUN, answers=dict.fromkeys(ALLOW, True))
    fork = shop(memory(), paid).fork(RUN, **FORGED)
    with pytest.raises(Suspended) as waits:
        fork.kickoff()
    assert [*waits.value.waiting] == ALLOW[:1]
    assert fork.kickoff(answers={ALLOW[0]: False}).raw == "done"
    assert paid == [900, 900]


def test_a_call_in_a_task_that_has_not_finished_is_approved_again_too(memory):
    paid = []
    with pytest.raises(Suspended):
        shop(memory(), paid).kickoff(TODAY, run_id=RUN)
    with History("memory", memory().provider) as history:
        history.answer(RUN, ALLOW[0], True)
    fork = shop(memory(), paid).fork(RUN, **FORGED)
    for _ in range(2):
        with pytest.raises(Suspended) as waits:
            fork.kickoff()
        assert [*waits.value.waiting] == ALLOW[:1]
    assert paid == []


@pytest.mark.parametrize("change", [FORGED, {"rerun": ["task:bill"]}, {"inputs": {"day": "tomorrow"}}])
def test_a_changed_fork_waits_only_for_what_it_has_asked_itself(memory, change):
    with pytest.raises(Suspended):
        shop(memory(), []).kickoff(TODAY, run_id=RUN)
    with History("memory", memory().provider) as history:
        history.answer(RUN, ALLOW[1], True)
        shop(memory(), []).fork(RUN, branch="other", **change)
        assert history.run(f"{RUN}/other").waiting == []
        shop(memory(), []).fork(RUN, branch="same")
        assert [one.address for one in history.run(f"{RUN}/same").waiting] == ALLOW[:1]


def test_a_question_that_an_edit_leads_past_is_waited_for_no_more(memory):
    def replies(messages):
        told = [message["content"] for message in messages if message["role"] == "tool"]
        return ToolCall("pay", {"amount": 900}) if told in ([], ["paid"]) else "done"

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    def crew():
        cashier = Agent(role="Cashier", goal="g", llm=ScriptedLLM(replies), tools=[pay])
        pays = Task(name="pay", description="d", expected_output="x", agent=cashier, human_input=True)
        return Crew(tasks=[pays], checkpoint=memory())

    with pytest.raises(Suspended) as waits:
        crew().kickoff(run_id=RUN, answers={ALLOW[0]: True})
    assert [*waits.value.waiting] == ["task:pay/human:pay#2"]
    with pytest.raises(Suspended) as waits:
        crew().fork(RUN, edits={ALLOW[0]: False}).kickoff()
    assert [*waits.value.waiting] == ["task:pay/human#1"]


def test_a_call_is_approved_again_behind_another_reply_of_its_model(memory):
    paid = []
    shop(memory(), paid).kickoff(TODAY, run_id=RUN, answers=dict.fromkeys(ALLOW, True))
    with pytest.raises(Suspended) as waits:
        shop(memory(), paid).fork(RUN, edits={"task:pay/llm#1": [ToolCall("pay", {"amount": 900})] * 2}).kickoff()
    assert ALLOW[0] in waits.value.waiting
    assert paid == [900, 900]


def test_a_fork_that_is_killed_anywhere_asks_again_all_the_same(memory):
    paid, kept = [], Kept()
    setting = CheckpointConfig(location="here", provider=kept)
    shop(setting, paid).kickoff(TODAY, run_id=RUN, answers=dict.fromkeys(ALLOW, True))
    fork = shop(setting, paid).fork(RUN, branch="other", **FORGED)
    before = len(kept.commits)
    with pytest.raises(Suspended):
        fork.kickoff()
    for count in range(before, len(kept.commits) + 1):
        cut = CheckpointConfig(location="here", provider=kept.cut(count))
        with pytest.raises(Suspended):
            shop(cut, paid).kickoff(from_checkpoint=f"{RUN}/other")
    assert paid == [900, 900]


@pytest.mark.parametrize("change", CHANGES)
def test_an_answer_given_ahead_to_a_later_method_is_not_inherited_by_a_fork_with_changes(memory, change):
    words = ["nice text"]
    made = reviewed(memory(), words)
    made.kickoff(run_id=RUN, answers={REVIEW: "yes"})
    words.append("slander")
    with pytest.raises(Suspended, match="SLANDER"):
        made.fork(f"{RUN}@{DRAFT}", **change).kickoff()
    asking(memory()).kickoff(run_id="asked", answers={PUBLISH: True})
    with pytest.raises(Suspended):
        asking(memory()).fork(f"asked@{DRAFT}", **change).kickoff()
