"""The program with flows that tests of the command run."""

FLOWS = '''
import os, time
from pathlib import Path
from crews import Own, note, tasks
from crewlite import Agent, Crew, Task, tool, BaseLLM, LLMReply, ToolCall
from crewlite.flow import Flow, ask, flow, listen, start, step
from crewlite.state import InMemoryProvider
from crewlite import CheckpointConfig
from pydantic import BaseModel

class Report(BaseModel):
    title: str
    pages: int

@step(type="fetch")
def fetch(n: int) -> int:
    note(f"fetch {n}")
    if os.path.exists("hang") and Path("hang").read_text() == str(n):
        time.sleep(60)
    return n * 10

@step
def add(a, b):
    note(f"add {a} {b}")
    return a + b

@flow
def sums(one: int, other: int = 2) -> int:
    return add(fetch(one), fetch(other))

@flow
def publish(text: str, pages: int = 1) -> Report | None:
    n = fetch(pages)
    who = ask("Who are\\nyou?", name="who")
    if ask(f"Publish {text!r}?", bool, name="publish"):
        return Report(title=f"{text} by {who}", pages=add(n, 1))

@flow
def says(what):
    return what

@flow(checkpoint=CheckpointConfig(provider=InMemoryProvider()))
def forgets():
    return ask("Well?", name="well")

@flow(checkpoint=CheckpointConfig(location="own", provider=Own()))
def elsewhere():
    return ask("Well?", name="well")

@flow
def hires():
    return crew.kickoff({"topic": "tides"}).raw

class Paying(BaseLLM):
    model = "paying"
    async def acall(self, messages, **context):
        note("asked")
        if messages[-1]["role"] == "tool":
            return LLMReply(text=messages[-1]["content"])
        return LLMReply(tool_calls=(ToolCall("pay", {"amount": "5"}),))

@tool(requires_approval=True)
def pay(amount: str) -> str:
    """Pay."""
    note("paid " + amount)
    return "paid " + amount

cashier = Agent(role="Cashier", goal="pay", llm=Paying(), tools=[pay])
bill = Crew(name="bill", tasks=[Task(name="pay", description="Pay", expected_output="text", agent=cashier)])
frugal = bill.model_copy(update={"name": "frugal", "max_iter": 1})
first, second, third = tasks("one", "two", "three")
second = second.model_copy(update={"context": (first,)})
third = third.model_copy(update={"context": ()})
crew = Crew(name="report", tasks=[first, second, third])

class Depth(BaseModel):
    fathoms: int = 1

class Sound(Flow[Depth]):
    @start()
    def lower(self):
        note("lower")
        return self.state.fathoms * 6

    @listen(lower)
    def read(self, feet):
        note("read")
        if os.path.exists("shoal"):
            raise ConnectionError("aground")
        return Report(title="feet", pages=feet)
'''
