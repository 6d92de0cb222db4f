"""A support desk: its manager has a clerk look into a complaint and a cashier refund it, if a person approves.

    python examples/support_desk.py

At a terminal it asks. Elsewhere it ends and waits; the same line with `yes` or `no` goes on, and asks
no model again what it has answered.
"""

import os
import sys
from pathlib import Path

from crewlite import Agent, Crew, Process, Task, ToolCall, tool
from crewlite.errors import Suspended
from crewlite.testing import ScriptedLLM


@tool(effect="none")
def look_up(order: str) -> str:
    """What is known of an order."""
    return f"order {order}: a lamp for 30 euros, delivered broken"


@tool(effect="once", requires_approval=True)
def refund(order: str, amount: int) -> str:
    """Pay the price of an order back."""
    with Path("ledger.txt").open("a", encoding="utf-8") as ledger:
        ledger.write(f"{order} -{amount}\n")
    return f"{amount} euros are on their way"


def stand_in(messages: list) -> str | ToolCall:
    """Answers like a model, so that the example needs no key; CREWLITE_MODEL names a real one."""
    who, heard = messages[0]["content"], [one["content"] for one in messages if one["role"] == "tool"]
    if who.startswith("You are Clerk"):
        return heard[-1] if heard else ToolCall("look_up", {"order": "A-17"})
    if who.startswith("You are Cashier"):
        return heard[-1] if heard else ToolCall("refund", {"order": "A-17", "amount": 30})
    wishes = [("Clerk", "What is wrong with order A-17?"), ("Cashier", "Refund order A-17: 30 euros")]
    if len(heard) == len(wishes):
        return f"Dear customer, we are sorry. {heard[-1]}"
    coworker, wish = wishes[len(heard)]
    return ToolCall("Delegate work to coworker", {"coworker": coworker, "task": wish})


model = os.environ.get("CREWLITE_MODEL") or ScriptedLLM(stand_in)
clerk = Agent(role="Clerk", goal="Find out what happened", llm=model, tools=[look_up])
cashier = Agent(role="Cashier", goal="Refund what is owed", llm=model, tools=[refund])
reply = Task(name="reply", description='Settle this: "{complaint}"', expected_output="A reply to the customer")
desk = Crew(agents=[clerk, cashier], tasks=[reply], process=Process.hierarchical, manager_llm=model, checkpoint=True)

if __name__ == "__main__":
    asked: dict = {"inputs": {"complaint": "My lamp (order A-17) came broken."}, "run_id": "complaint-1"}
    try:
        print(desk.kickoff(**asked))
    except Suspended as waits:
        if not sys.argv[1:]:
            sys.exit(f"{waits}\n\nTo go on: python examples/support_desk.py yes")
        print(desk.kickoff(**asked, answers=dict.fromkeys(waits.waiting, sys.argv[1] == "yes")))
