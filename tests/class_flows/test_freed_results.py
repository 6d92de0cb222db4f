"""What a method returned is freed once no method needs it, and a flow once nobody has it: long programs do not grow."""

from __future__ import annotations

import gc
import weakref

from pydantic import BaseModel

from crewlite import Agent, Crew, Task
from crewlite.flow import Flow, listen, router, start
from tests import children


class Report(BaseModel):
    text: str


def alive(references):
    gc.collect()
    return [reference().text for reference in references if reference() is not None]


def test_a_result_is_freed_some_methods_later():
    class Write(Flow):
        @start()
        def first(self):
            return Report(text="first")

        @listen(first)
        def second(self, before):
            given.append(weakref.ref(before))
            return Report(text="second")

        @listen(second)
        def third(self, before):
            given.append(weakref.ref(before))
            return Report(text="third")

        @listen(third)
        def fourth(self):
            return Report(text="fourth")

        @listen(fourth)
        def fifth(self):
            left.extend(alive(given))
            return Report(text="fifth")

    given, left = [], []
    assert Write().kickoff() == Report(text="fifth")
    assert len(given) == 2
    assert left == []


def test_the_results_of_earlier_rounds_are_freed():
    class Improve(Flow):
        @start("again")
        def draft(self):
            return Report(text=f"draft {len(given) + 1}")

        @listen(draft)
        def review(self, before):
            given.append(weakref.ref(before))
            return before.text

        @router(review)
        def judge(self):
            left.append(len(alive(given)))
            return "again" if len(given) < 6 else "fine"

        @listen("fine")
        def publish(self):
            return "published"

    given, left = [], []
    assert Improve().kickoff() == "published"
    assert len(given) == 6
    assert max(left) <= 2, left


def test_a_flow_that_was_kicked_off_is_freed_with_its_last_reference():
    crew = Crew(tasks=[Task(description="d", expected_output="o", agent=Agent(role="r", goal="g", llm="offline"))])

    class Write(Flow):
        @start()
        def first(self):
            return "first"

        @listen(first)
        async def second(self):
            return crew.kickoff().raw

    made = Write()
    made.kickoff()
    assert made.state is not None
    gone = weakref.ref(made)
    del made
    children.until(lambda: (gc.collect(), gone() is None)[1])  # the run's threads may still be ending
