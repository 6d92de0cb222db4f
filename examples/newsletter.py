"""A newsletter: a crew drafts it, three checks run side by side, a router sends it back or on, a person approves it.

    python examples/newsletter.py           # waits for an approval, and draws newsletter.html
    python examples/newsletter.py yes       # goes on with it

Kill it anywhere and run the same line again: no method that has finished runs again. `make demo-flow` shows that.
"""

import asyncio
import os
import sys
from typing import Literal

from crewlite import Agent, Crew, Task
from crewlite.errors import Suspended
from crewlite.flow import Flow, and_, listen, router, start
from crewlite.testing import ScriptedLLM


def stand_in(messages: list) -> str:
    """Answers like a model, so that the example needs no key; CREWLITE_MODEL names a real one."""
    return "The moon pulls the sea." if "the cause" in messages[-1]["content"] else "Tides come and go."


model = os.environ.get("CREWLITE_MODEL") or ScriptedLLM(stand_in)
writer = Agent(role="Writer", goal="Say what is so in one sentence", llm=model)
report = Task(description="Report on {topic}; {wish}", expected_output="facts", agent=writer)
edit = Task(description="Write a newsletter; {wish}", expected_output="one sentence", agent=writer)
writers = Crew(tasks=[report, edit])


class Newsletter(Flow):
    checkpoint = True

    @start()
    @listen("revise")
    def write(self):
        draft = writers.kickoff({name: self.state[name] for name in ("topic", "wish")})
        print("wrote:", draft, flush=True)
        return draft.raw

    @listen(write)
    async def check_facts(self, text: str):
        self.state["facts"] = await checked("facts", 0.1, fine="monster" not in text)

    @listen(write)
    async def check_style(self, text: str):
        self.state["style"] = await checked("style", 0.3, fine="moon" in text)

    @listen(write)
    async def check_law(self, text: str):
        self.state["law"] = await checked("law", 0.5, fine="secret" not in text)

    @router(and_(check_facts, check_style, check_law))
    def judge(self) -> Literal["revise", "ready"]:
        self.state["wish"] = "name the cause"
        return "ready" if all(self.state[check] for check in ("facts", "style", "law")) else "revise"

    @listen("ready")
    def send(self):
        return "sent" if self.ask("Send it?", bool, name="send") else "not sent"


async def checked(what: str, seconds: float, *, fine: bool) -> bool:
    """A check of a draft, which takes its time."""
    await asyncio.sleep(seconds)
    print(f"checked {what}: {'fine' if fine else 'not yet'}", flush=True)
    return fine


if __name__ == "__main__":
    answers = {"method:send@ready/human:send": sys.argv[1] == "yes"} if sys.argv[1:] else None
    try:
        print(Newsletter().kickoff({"topic": "tides", "wish": "be brief"}, run_id="issue-1", answers=answers))
    except Suspended as waits:
        print(f"waiting: {', '.join(waits.waiting.values())}")
    print("drawn:", Newsletter.plot("newsletter.html", run_id="issue-1"))
