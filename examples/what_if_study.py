"""What if? One research run, four variants of it side by side, and a table in which a model judges them.

    python examples/what_if_study.py

Kill it anywhere and run it again: what is recorded is not paid again, neither by the run, nor by a variant, nor by the
judge. Scripted models stand for real ones; set CREWLITE_MODEL to ask that model instead.
"""

import json
import os

from crewlite import Agent, Crew, LLMReply, Task, Usage
from crewlite.testing import ScriptedLLM

DUES = {"Brest": 410, "Hull": 380, "Porto": 350}
REAL = os.environ.get("CREWLITE_MODEL")


def model(name: str, *, dollars: float, words: str = "") -> str | ScriptedLLM:
    """A model that knows the dues of some harbours and answers in the style of its task, or the real one."""

    def reply(messages):
        task = messages[-1]["content"]
        known = [f"{town}: {due} euros" for town, due in DUES.items() if town in task]
        brief = "one line" in task.splitlines()[0]
        text = (
            min(known, key=lambda due: int(due.split()[1]), default="No dues are known.") if brief else "; ".join(known)
        )
        said = f"{words}{text or 'No dues are known.'}"
        return LLMReply(text=said, usage=Usage(prompt_tokens=len(task), completion_tokens=len(said), cost=dollars))

    return REAL or ScriptedLLM(reply, model=name)


def verdict(messages):
    """The judge's reply: an answer is good if it names the cheapest harbour, and better if it is short."""
    result = messages[-1]["content"].partition("<result>")[2].partition("</result>")[0]
    quality = max(0, 9 - len(result) // 20) if "Porto" in result else 2
    return json.dumps({"quality": quality, "reason": f"{len(result.split())} words"})


clerk = Agent(role="Harbour clerk", goal="Know what a berth costs", llm=model("small", dollars=0.01, words="Well: "))
research = Task(name="research", description="List the dues of {towns}", expected_output="A list", agent=clerk)
advise = Task(name="advise", description="Say where a berth is cheapest", expected_output="Town and dues", agent=clerk)
crew = Crew(tasks=[research, advise], name="harbours", checkpoint=True)

VARIANTS: list[dict] = [
    {"name": "as-it-was"},
    {"name": "large-model", "model": model("large", dollars=0.05), "rerun": ["task:advise"]},
    {"name": "one-line", "prompt": {"tasks.advise.description": "Say in one line where a berth is cheapest"}},
    {"name": "two-towns", "inputs": {"towns": "Brest and Hull"}},
    {"name": "porto-is-closed", "edits": {"task:research": "Brest: 410 euros; Hull: 380 euros"}},
]

if __name__ == "__main__":
    crew.kickoff({"towns": "Brest, Hull and Porto"}, run_id="berths")
    study = crew.explore("berths", VARIANTS, judge=REAL or ScriptedLLM(verdict, model="judge"))
    print(study)
    print(f"\nThe best is {study.best.name}. To go on: crewlite checkpoint show {study.best.ref}")
