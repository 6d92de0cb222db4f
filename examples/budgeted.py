"""A crew with a budget: it stops when that is used up, and goes on when it is given more.

python examples/budgeted.py          # stops after 0.05 dollars
python examples/budgeted.py 1.00     # goes on, and pays nothing twice
"""

import sys

from crewlite import Agent, Crew, LLMReply, Task, ToolCall, Usage, tool
from crewlite.errors import BudgetExceeded
from crewlite.testing import ScriptedLLM

CITIES = ["Brest", "Cádiz", "Hull", "Izmir", "Porto"]


@tool(effect="none")
def harbour_dues(city: str) -> str:
    """What a berth costs there."""
    print(f"looked up {city}", flush=True)
    return f"{city}: {len(city) * 100} euros"


def reply(messages):
    """Stands for a model: one look-up after the other, a cent each, then the answer."""
    found = [message["content"] for message in messages if message["role"] == "tool"]
    asked = (ToolCall("harbour_dues", {"city": CITIES[len(found)]}),) if len(found) < len(CITIES) else ()
    text = "" if asked else f"The cheapest is {min(found, key=lambda dues: int(dues.split()[1]))}."
    return LLMReply(text=text, tool_calls=asked, usage=Usage(prompt_tokens=900, completion_tokens=60, cost=0.01))


def survey(dollars: float) -> Crew:
    """The crew, with this budget for all lives of a run together."""
    agent = Agent(role="Purser", goal="Find a cheap berth", llm=ScriptedLLM(reply), tools=[harbour_dues])
    dues = Task(name="dues", description="Where is a berth cheapest?", expected_output="A city", agent=agent)
    return Crew(tasks=[dues], name="survey", max_cost_usd=dollars, max_rpm=60, checkpoint=True)


if __name__ == "__main__":
    dollars = float(sys.argv[1]) if sys.argv[1:] else 0.05
    try:
        result = survey(dollars).kickoff(run_id="berths")
    except BudgetExceeded as stopped:
        print(stopped, file=sys.stderr)
        sys.exit(4)
    print(f"{result} That was {result.token_usage.cost:.2f} dollars.")
