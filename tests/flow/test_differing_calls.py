"""A call of `llm.call` that asks something else on a resume: what was recorded after it is of another course."""

import contextlib
import threading

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task, bound
from crewlite.errors import InDoubt
from crewlite.flow import Flow, start, step
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, entries_of


def model():
    return ScriptedLLM(lambda messages: f"re: {messages[-1]['content']}")


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
def test_a_second_kill_leads_to_the_same_result_and_pays_once(how):
    first = daily(0, before := in_memory(), how=how)[0]
    with pytest.raises(KeyError):
        first.kickoff(run_id=RUN)
    entries, expected = entries_of(before), daily(1, in_memory(), how=how)[0].kickoff(run_id=RUN)
    for at in range(1, len(entries) - 1):  # in the last two commits the failure is recorded
        setting = cut(entries, at)
        with contextlib.suppress(InDoubt):
            assert daily(1, setting, how=how)[0].kickoff(run_id=RUN) == expected, f"cut after commit {at}"
        later = entries_of(setting)
        for behind in range(at + 1, len(later) + 1):
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
