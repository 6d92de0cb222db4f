"""A person looks at what a method returns: asked once, answered from anywhere, sorted by a model at most once."""

from __future__ import annotations

import sys
import textwrap

import pytest
from pydantic import BaseModel

from crewlite import Agent, CheckpointConfig, Crew, History, Task, event_bus
from crewlite.errors import AnswerRefused, ConfigError, Suspended
from crewlite.events import BaseEvent, HumanFeedbackRequestedEvent
from crewlite.flow import Flow, HumanFeedbackResult, human_feedback, listen, or_, router, start
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.children import DEVNULL, PIPE, Child, run
from tests.cuts import RUN, cut, entries_of

ADDRESS = "method:draft/human:draft"
OUTCOMES = ("approved", "rejected")


class Text(BaseModel):
    text: str


def review(setting, done=None, **options):
    """A flow whose draft a person approves or rejects."""

    class Review(Flow):
        checkpoint = setting

        @start()
        @human_feedback("Good?", **({"emit": OUTCOMES} | options))
        def draft(self):
            (done if done is not None else []).append("draft")
            self.state["drafted"] = True
            return Text(text="of the tides")

        @listen("approved")
        def publish(self, given):
            return "published", given.feedback, self.last_human_feedback == given

        @listen("rejected")
        def drop(self, given: HumanFeedbackResult):
            return "dropped", given.feedback, self.state["drafted"]

    return Review()


@pytest.mark.parametrize(
    ("options", "answer", "told"),
    [
        ({}, "approved", ("published", "approved", True)),
        ({}, " Rejected: too short", ("dropped", " Rejected: too short", True)),
        ({"default_outcome": "rejected"}, "", ("dropped", "", True)),
        ({"llm": ScriptedLLM([])}, "APPROVED", ("published", "APPROVED", True)),
        ({"llm": ScriptedLLM(['{"outcome": "rejected"}'])}, "no, shorter", ("dropped", "no, shorter", True)),
        ({"llm": ScriptedLLM(["Hm.", '{"outcome": "approved"}'])}, "ship it", ("published", "ship it", True)),
    ],
)
def test_an_answer_means_an_outcome(memory, options, answer, told):
    assert review(memory(), **options).kickoff(run_id=RUN, answers={ADDRESS: answer}) == told


@pytest.mark.parametrize("options", [{}, {"default_outcome": "approved"}, {"llm": ScriptedLLM([])}])
def test_an_answer_that_means_no_outcome_is_refused_and_the_question_waits(memory, options):
    answer = "" if "llm" in options else "perhaps"
    with pytest.raises(AnswerRefused, match="wanted one of 'approved', 'rejected'"):
        review(memory(), **options).kickoff(run_id=RUN, answers={ADDRESS: answer})
    with History("memory", memory().provider) as history:
        assert [one.address for one in history.run(RUN).waiting] == [ADDRESS]
    assert review(memory(), **options).kickoff(run_id=RUN, answers={ADDRESS: "approved"})[0] == "published"


def test_a_run_that_waits_for_feedback_tells_what_it_asks_and_goes_on_where_it_was(memory):
    heard, done = [], []
    event_bus.on(BaseEvent, lambda source, event: heard.append(event))
    with pytest.raises(Suspended) as waits:
        review(memory(), done, metadata={"to": "the editor"}).kickoff(run_id=RUN)
    question = '{\n  "text": "of the tides"\n}\n\nGood?\n\n(approved, rejected)'
    assert waits.value.waiting == {ADDRESS: question}
    with History("memory", memory().provider) as history:
        history.answer(RUN, ADDRESS, "approved: fine")
    flow = review(memory(), done, metadata={"to": "the editor"})
    assert flow.kickoff(run_id=RUN) == ("published", "approved: fine", True)
    assert done == ["draft"]
    told = [event.type for event in heard if not event.type.startswith(("checkpoint_", "step_"))]
    assert told == [
        *("flow_created", "flow_started", "method_execution_started", "human_feedback_requested"),
        *("method_execution_paused", "flow_paused"),
        *("flow_created", "flow_started", "method_execution_started", "human_feedback_received"),
        *("method_execution_finished", "method_execution_started", "method_execution_finished", "flow_finished"),
    ]
    asked, answered = (event for event in heard if event.type.startswith("human_feedback_"))
    assert (asked.flow_name, asked.method_name, asked.message) == ("Review", "draft", "Good?")
    assert (asked.output, asked.emit, asked.metadata) == (Text(text="of the tides"), OUTCOMES, {"to": "the editor"})
    assert (answered.answer, answered.method_name) == ("approved: fine", "draft")
    assert asked.timestamp < answered.timestamp <= flow.last_human_feedback.timestamp
    (said,) = flow.human_feedback_history
    assert (said.outcome, said.method_name, said.metadata) == ("approved", "draft", {"to": "the editor"})
    assert review(memory()).human_feedback_history == []


def test_a_run_cut_at_any_commit_neither_works_nor_asks_a_model_twice():
    setting = CheckpointConfig(location="here", provider=InMemoryProvider())
    replies = ['{"outcome": "rejected"}']
    whole = review(setting, llm=ScriptedLLM(replies)).kickoff(run_id=RUN, answers={ADDRESS: "no"})
    entries, paid = entries_of(setting), []
    for at in range(1, len(entries)):
        model, again = ScriptedLLM(replies), cut(entries, at)
        for _ in range(2):
            flow = review(again, llm=model)
            assert flow.kickoff(run_id=RUN) == whole, f"cut after commit {at}"
            assert [one.outcome for one in flow.human_feedback_history] == ["rejected"]
        paid.append(len(model.calls))
    assert paid == sorted(paid, reverse=True)
    assert set(paid) == {0, 1}


def test_work_that_fails_is_tried_again_and_goes_on_to_the_question(memory):
    tries = []

    class Draft(Flow):
        checkpoint = memory()

        @start(retries=1)
        @human_feedback("Good?")
        def draft(self):
            tries.append(len(tries))
            if len(tries) in (1, 2, 3):
                raise ConnectionError("down")
            return "a draft"

    with pytest.raises(ConnectionError):
        Draft().kickoff(run_id=RUN)
    assert len(tries) == 2
    assert Draft().kickoff(run_id=RUN, answers={ADDRESS: "good"}).output == "a draft"
    assert len(tries) == 4


def test_a_model_that_cannot_say_what_an_answer_means_does_not_have_the_person_asked_again(memory):
    done, model = [], ScriptedLLM([PermissionError("no key"), '{"outcome": "rejected"}'])
    with pytest.raises(PermissionError):
        review(memory(), done, llm=model).kickoff(run_id=RUN, answers={ADDRESS: "no"})
    assert review(memory(), done, llm=model).kickoff(run_id=RUN) == ("dropped", "no", True)
    assert done == ["draft"]


def test_a_fork_with_another_answer_goes_the_other_way(memory):
    flow = review(memory())
    flow.kickoff(run_id=RUN, answers={ADDRESS: "approved"})
    assert flow.fork(RUN, edits={ADDRESS: "rejected: now"}).kickoff() == ("dropped", "rejected: now", True)


def test_a_crews_output_is_shown_as_its_text_and_an_edit_of_the_method_has_all_that_feedback_has(memory):
    class Draft(Flow):
        checkpoint = memory()

        @start()
        @human_feedback("Good?", emit=OUTCOMES)
        def draft(self):
            agent = Agent(role="Writer", goal="write", llm=ScriptedLLM(["of the tides"]))
            task = Task(name="write", description="Write", expected_output="x", agent=agent)
            return Crew(tasks=[task]).kickoff()

    with pytest.raises(Suspended) as waits:
        Draft().kickoff(run_id=RUN)
    assert waits.value.waiting == {ADDRESS: "of the tides\n\nGood?\n\n(approved, rejected)"}
    assert Draft().kickoff(run_id=RUN, answers={ADDRESS: "approved"}).raw == "of the tides"
    told = f"wanted data with the fields of .*HumanFeedbackResult: output, feedback, .* of the person, edit {ADDRESS}$"
    with pytest.raises(ConfigError, match=told):
        Draft().fork(RUN, edits={"method:draft": "rejected"})


def test_without_outcomes_the_feedback_is_the_result(memory):
    class Look(Flow):
        checkpoint = memory()

        @start()
        @human_feedback("What do you say?")
        async def draft(self):
            return "a draft"

        @listen(draft)
        def more(self, given):
            return given.output, given.feedback, given.outcome

    assert Look().kickoff(run_id=RUN, answers={ADDRESS: ""}) == ("a draft", "", None)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_method_with_feedback_may_be_called_from_another(memory, is_async):
    """The shape of a review that sends back to the writer by plain calls."""
    drafts = []

    class Write(Flow):
        checkpoint = memory()

        @start()
        def write(self, feedback=None):
            drafts.append(feedback)
            return f"draft {len(drafts)}"

        @listen(write)
        @human_feedback("Publish?", emit=OUTCOMES)
        def look(self, draft):
            return f"To publish: {draft}"

        @listen("approved")
        def publish(self):
            return "published"

        if is_async:

            @listen("rejected")
            async def again(self, given):
                return await self.look("a better one"), [one.outcome for one in self.human_feedback_history]
        else:

            @listen("rejected")
            def again(self, given):
                return self.look("a better one"), [one.outcome for one in self.human_feedback_history]

    def answered(answer):
        with pytest.raises(Suspended) as waits:
            Write().kickoff(run_id=RUN)
        (address,) = waits.value.waiting
        with History("memory", memory().provider) as history:
            history.answer(RUN, address, answer)
        return address

    assert answered("rejected") == "method:look@write/human:look"
    assert answered("approved") == "method:again@rejected/step:look/human:look"
    assert Write().kickoff(run_id=RUN) == ("approved", ["rejected", "approved"])
    assert drafts == [None]
    with pytest.raises(ConfigError, match="was called outside a run"):
        Write().look("x")
    assert Write.look(Write(), "x") == "To publish: x"


def test_the_last_method_of_a_flow_that_gets_feedback_gives_its_output_as_the_result(memory):
    class Loop(Flow):
        checkpoint = memory()

        @start()
        def begin(self):
            self.state["tries"] = 0

        @listen(or_(begin, "again"))
        @human_feedback("Enough?", emit=["again", "enough"])
        def draft(self):
            self.state["tries"] += 1
            return self.state["tries"]

    flow, answers = Loop(), {}
    for answer in ("again", "again: once more", "enough"):
        with pytest.raises(Suspended) as waits:
            flow.kickoff(run_id=RUN, answers=answers)
        answers = dict.fromkeys(waits.value.waiting, answer)
    assert flow.kickoff(run_id=RUN, answers=answers) == 3
    assert [one.outcome for one in flow.human_feedback_history] == ["again", "again", "enough"]


def test_a_method_that_asks_emits_events_of_its_own_which_those_of_feedback_include(memory):
    heard, asked = [], []
    event_bus.on(BaseEvent, lambda source, event: heard.append(event))
    event_bus.on(HumanFeedbackRequestedEvent, lambda source, event: asked.append(event.type))

    class Ask(Flow):
        checkpoint = memory(on_events=["flow_input_requested"])

        @start()
        async def begin(self):
            return await self.ask("Topic?", name="topic", metadata={"form": 7})

    with pytest.raises(Suspended):
        Ask().kickoff(run_id=RUN)
    assert Ask().kickoff(run_id=RUN, answers={"method:begin/human:topic": "tides"}) == "tides"
    told = [event for event in heard if event.type.startswith("flow_input_")]
    assert [event.type for event in told] == ["flow_input_requested", "flow_input_received"]
    assert {(event.flow_name, event.method_name, event.metadata["form"]) for event in told} == {("Ask", "begin", 7)}
    assert (told[0].message, told[1].answer, asked) == ("Topic?", "tides", ["flow_input_requested"])
    with History("memory", memory().provider) as history:
        assert [one.trigger for one in history.run(RUN).checkpoints()] == ["flow_input_requested"]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: human_feedback(print), "write @human_feedback(message=...)"),
        (lambda: human_feedback("m", emit=[]), "wanted a list of outcomes"),
        (lambda: human_feedback("m", emit="ab"), "is 'ab'; wanted a list of outcomes"),
        (lambda: human_feedback("m", emit=["a", "A"]), "wanted outcomes that differ"),
        (lambda: human_feedback("m", emit=["approved"], default_outcome="aproved"), "did you mean 'approved'?"),
        (lambda: human_feedback("m", default_outcome="a"), "wanted no default outcome without emit=[...]"),
        (lambda: human_feedback("m", llm=3), "wanted a model, its name, or None"),
        (lambda: human_feedback("m", metadata={"a": print}), "@human_feedback(metadata=...)"),
        (lambda: human_feedback("m", provider=object()), "@human_feedback has no option 'provider'"),
        (lambda: human_feedback("m", learn=True), "nothing is learned from feedback"),
        (lambda: router("a")(human_feedback("m")(act)), "give the labels there"),
        (lambda: human_feedback("m")(human_feedback("m")(act)), "has @human_feedback twice"),
    ],
)
def test_feedback_that_cannot_work_says_why(make, told):
    with pytest.raises(ConfigError) as caught:
        make()
    assert told in str(caught.value)


def act(self):
    return None


PROGRAM = """
import os, signal, sys
from crewlite import event_bus
from crewlite.errors import Suspended
from crewlite.events import BaseEvent
from crewlite.flow.flow import Flow, listen, start
from crewlite.flow.human_feedback import HumanFeedbackResult, human_feedback

class Review(Flow[dict]):
    checkpoint = "--plain" not in sys.argv

    @start()
    @human_feedback(message="Good?", emit=["approved", "rejected"])
    def draft(self):
        with open("drafts", "a") as file:
            file.write("draft\\n")
        return "a draft"

    @listen("approved")
    def publish(self, result: HumanFeedbackResult):
        return f"published: {result.output}, {result.feedback}"

def die(source, event):
    if event.type in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)

event_bus.on(BaseEvent, die)
options = {} if "--plain" in sys.argv else {"run_id": "r"}
answers = {"method:draft/human:draft": sys.argv[sys.argv.index("--answer") + 1]} if "--answer" in sys.argv else None
try:
    print(Review().kickoff(**options, answers=answers))
except Suspended as waits:
    print("waits for", *waits.waiting)
"""


def test_a_process_that_is_killed_between_question_and_answer_neither_works_nor_asks_again(tmp_path):
    (tmp_path / "review.py").write_text(textwrap.dedent(PROGRAM))

    def life(*arguments):
        command = [sys.executable, "review.py", *arguments]
        child = run(command, cwd=tmp_path, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, text=True)
        return child.returncode, child.stdout.strip()

    assert life("human_feedback_requested") == (-9, "")
    assert life() == (0, f"waits for {ADDRESS}")
    assert life("--answer", "approved: go", "human_feedback_received") == (-9, "")
    assert life("method_execution_finished") == (-9, "")
    assert life() == (0, "published: a draft, approved: go")
    assert (tmp_path / "drafts").read_text() == "draft\n"


def test_a_program_without_a_store_reads_its_answers_from_a_pipe(tmp_path):
    (tmp_path / "review.py").write_text(textwrap.dedent(PROGRAM))
    command, options = [sys.executable, "review.py", "--plain"], {"cwd": tmp_path, "text": True}
    piped = run(command, **options, input="perhaps\napproved: fine\nmore\n", capture_output=True)
    assert piped.stdout == "published: a draft, approved: fine\n"
    assert "Good?" in piped.stderr
    assert "wanted one of" in piped.stderr
    ended = run(command, **options, input="", capture_output=True)
    assert "ConfigError" in ended.stderr
    child = Child(command, **options, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    child.stdin.write("approv")
    child.stdin.flush()
    assert child.communicate("ed\n")[0] == "published: a draft, approved\n"
