"""What a method returned is freed once no method needs it, and a flow once nobody has it: long programs do not grow."""

from __future__ import annotations

import weakref

from pydantic import BaseModel

from crewlite import Agent, Crew, Task
from crewlite.flow import Flow, listen, router, start
from tests.children import until_freed


class Report(BaseModel):
    text: str


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
            until_freed(*given)
            return Report(text="fifth")

    given = []
    assert Write().kickoff() == Report(text="fifth")
    assert len(given) == 2


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
            until_freed(*given, but=2)
            return "again" if len(given) < 6 else "fine"

        @listen("fine")
        def publish(self):
            return "published"

    given = []
    assert Improve().kickoff() == "published"
    assert len(given) == 6


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
    until_freed(gone)
