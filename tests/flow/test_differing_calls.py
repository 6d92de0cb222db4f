"""A call of `llm.call` that asks something else on a resume: what was recorded after it is of another course."""

import contextlib
import threading

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task, bound
from crewlite.errors import InDoubt, NonDeterminism
from crewlite.flow import Flow, flow, start, step
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests import soak
from tests.cuts import RUN, cut, entries_of


def model():
    return ScriptedLLM(lambda messages: f"re: {messages[-1]['content']}")


def answers_unless_told_to_fail():
    def answer(messages):
        if "fail" in messages[-1]["content"]:
            raise ValueError("no answer")
        return "an answer"

    return ScriptedLLM(answer)


def asked(llm):
    return [messages[-1]["content"] for messages in llm.calls]


def in_memory():
    return CheckpointConfig(location="cut", provider=InMemoryProvider())


def daily(day, setting, *, how="asked"):
    """A flow whose course follows from the day, and that fails at its end on the first one.

    `how`: the call that differs asks something else, or does so in a thread, or is left out on the second day.
    """
    llm, done = model(), []
    agent = Agent(role="Writer", goal="write", llm=llm)
    tasks = [Task(description=f"{part} of {{said}}", expected_output="text", agent=agent) for part in ("Head", "Rest")]
    crew = Crew(tasks=tasks)

    @step
    def keep(text):
        return text

    @step(name=f"on_day_{day}")
    def of_today():
        return day

    @step(effect="once")
    def pay(what):
        done.append(what)
        return f"paid {what}"

    def ask(text):
        if how != "in a thread":
            return str(llm.call(text))
        heard = []
        asking = threading.Thread(target=bound(lambda: heard.append(str(llm.call(text)))))
        asking.start()
        asking.join()
        return heard[0]

    class Daily(Flow):
        @start()
        def first(self):
            said = str(llm.call("always"))
            if how != "left out" or day == 0:
                said = ask(f"day {day}")
            found = [said, of_today(), pay("rent"), keep(said), crew.kickoff(inputs={"said": said}).raw]
            ask("anything else?")
            if day == 0:
                raise KeyError("cut")
            return found

    return Daily(checkpoint=setting), llm, done


@pytest.mark.parametrize("how", ["asked", "in a thread", "left out"])
@soak.every(3)
def test_a_second_kill_leads_to_the_same_result_and_pays_once(how, every):
    first = daily(0, before := in_memory(), how=how)[0]
    with pytest.raises(KeyError):
        first.kickoff(run_id=RUN)
    entries, expected = entries_of(before), daily(1, in_memory(), how=how)[0].kickoff(run_id=RUN)
    for at in range(1, len(entries) - 1):  # in the last two commits the failure is recorded
        setting = cut(entries, at)
        with contextlib.suppress(InDoubt):
            assert daily(1, setting, how=how)[0].kickoff(run_id=RUN) == expected, f"cut after commit {at}"
        later = entries_of(setting)
        for behind in range(at + 1 + at % every, len(later) + 1, every):
            again, where = cut(later, behind), f"cut after commit {at}, then after {behind}"
            with contextlib.suppress(InDoubt):
                assert daily(1, again, how=how)[0].kickoff(run_id=RUN) == expected, where


def test_what_was_recorded_after_it_does_not_count_after_a_second_kill_either():
    with pytest.raises(KeyError):
        daily(0, before := in_memory())[0].kickoff(run_id=RUN)
    second, llm, paid = daily(1, setting := cut(entries_of(before), len(entries_of(before)) - 2))
    second.kickoff(run_id=RUN)
    assert asked(llm)[0] == "day 1"
    assert asked(llm)[-1] == "anything else?"
    assert len(llm.calls) == 4, "all that comes after it is asked again"
    assert paid == [], "what must happen once keeps its result"
    entries, left = entries_of(setting), 4
    for at in range(len(entries_of(before)), len(entries)):
        third, llm, paid = daily(1, cut(entries, at))
        third.kickoff(run_id=RUN)
        assert len(llm.calls) in (left, left - 1), f"cut after commit {at}"
        left = len(llm.calls)
        assert paid == []


def days(setting, llm, lives, *, effect="none"):
    """A flow that asks the model in each life what `lives` says, (prompts, cut): and then saves what it was told."""
    left, saved = iter(lives), []

    @step(effect=effect)
    def save(text):
        saved.append(text)

    @step
    def note(number):
        saved.append(number)

    @flow(checkpoint=setting)
    def daily(argument=None):
        prompts, cut_at = next(left)
        said = [str(llm.call(prompt)) for prompt in prompts]
        if cut_at == "told":
            raise KeyError("cut")
        for number in range(len(prompts) - 1):
            note(number)
        save(argument or said[0])
        if cut_at == "saved":
            raise KeyError("cut")
        return said

    def live(argument=None):
        try:
            return daily.kickoff(argument, run_id=f"r-{argument}")
        except KeyError:
            return None

    return live, saved


@pytest.mark.parametrize("cut_at", ["told", "saved"])
@pytest.mark.parametrize("prompts", [["Monday", "more"], ["Tuesday"], ["Tuesday", "more"]])
def test_what_was_recorded_after_another_answer_is_forgotten_also_by_later_lives(on_disk, prompts, cut_at):
    llm = model()
    live, saved = days(on_disk(), llm, [(["Monday"], "saved"), (prompts, cut_at), (prompts, None)])
    assert [live(), live()] == [None, None]
    assert live() == [f"re: {prompt}" for prompt in prompts]
    assert saved == ["re: Monday", *range(len(prompts) - 1), f"re: {prompts[0]}"], "each once"
    assert asked(llm) == list(dict.fromkeys(["Monday", *prompts])), "and no call is paid twice"


def test_a_step_that_may_happen_once_is_not_repeated_because_a_call_asked_something_else(on_disk):
    lives = [(["Monday"], "saved"), (["Tuesday"], "saved"), (["Tuesday"], None)]
    live, saved = days(on_disk(), model(), lives, effect="once")
    assert [live("gift"), live("gift"), live("gift"), saved] == [None, None, ["re: Tuesday"], ["gift"]]
    live, saved = days(on_disk(), model(), lives, effect="once")
    live()
    for _ in range(2):
        with pytest.raises(NonDeterminism, match="step:save .* expected the question that it has answered with"):
            live()
    assert saved == ["re: Monday"]


@pytest.mark.parametrize("second", [["Tuesday"], ["Tuesday", "judge"], ["judge"]])
def test_a_failure_that_the_code_handled_is_forgotten_after_a_changed_call_too(on_disk, second):
    lives, tried = iter([["fail on Monday", "judge"], second, ["Tuesday", "judge", "end"]]), []
    llm = answers_unless_told_to_fail()

    @step
    def judge():
        tried.append(len(tried))
        raise RuntimeError("judged")

    @flow(checkpoint=on_disk())
    def daily():
        acts = next(lives)
        for act in acts:
            with contextlib.suppress(ValueError, RuntimeError):
                judge() if act == "judge" else act == "end" or llm.call(act)
        if "end" not in acts:
            raise KeyError("cut")

    for _ in range(2):
        with pytest.raises(KeyError):
            daily.kickoff(run_id="r")
    daily.kickoff(run_id="r")
    assert tried == [0, 1], "what it came to on Monday says nothing about Tuesday, and is asked once there"
    assert asked(llm) == ["fail on Monday", "Tuesday"]


def test_a_call_that_comes_earlier_than_the_recorded_one_is_another_call(on_disk):
    course, lives = [], iter([["tell", "call"], ["call", "tell", "call"]])
    llm = model()

    @step
    def tell():
        return f"told after {len(course)} calls"

    @flow(checkpoint=on_disk())
    def program():
        course.clear()
        acts, found = next(lives), []
        for act in acts:
            found.append(tell() if act == "tell" else str(llm.call("the same")))
            course.extend(["call"] * (act == "call"))
        if len(acts) == 2:
            raise KeyError("cut")
        return found

    with pytest.raises(KeyError):
        program.kickoff(run_id="r")
    assert program.kickoff(run_id="r") == ["re: the same", "told after 1 calls", "re: the same"]


def test_what_follows_a_failure_that_was_forgotten_is_needed_as_before(on_disk):
    lives, course = iter([["1", "fail"], ["9", "tell"], ["9", "8", "tell", "end"]]), []

    llm = answers_unless_told_to_fail()

    @step
    def tell():
        return f"told after {course}"

    @flow(checkpoint=on_disk())
    def program():
        course.clear()
        acts = next(lives)
        for act in acts:
            if act == "tell":
                told = tell()
            elif act != "end":
                with contextlib.suppress(ValueError):
                    llm.call(act)
                course.append(act)
        if acts[-1] != "end":
            raise KeyError("cut")
        return told

    for _ in range(2):
        with pytest.raises(KeyError):
            program.kickoff(run_id="r")
    assert program.kickoff(run_id="r") == "told after ['9', '8']"
