"""Programs that pay amounts with calls of effect="once": in a flow, a step, a method, under a key, side by side, in a crew."""

import asyncio

from crewlite import Agent, Crew, Task, tool
from crewlite.flow import Flow, flow, keyed, start, step
from crewlite.llm import ToolCall
from crewlite.testing import ScriptedLLM


class Interrupted(Exception):
    """What ends the first program."""


class Till:
    """A program that pays amounts, and what has been paid in it."""

    def __init__(self, *amounts, ends=True):
        self.amounts, self.ends, self.paid = amounts, ends, []
        self.pay = step(name="pay", effect="once")(self.take)
        self.tool = tool("pay", effect="once")(self.take)

    def take(self, amount: int) -> int:
        """Pay."""
        self.paid.append(amount)
        return amount

    def end(self, value):
        if not self.ends:
            raise Interrupted
        return value

    def say(self, messages):
        made = sum(message["role"] == "tool" for message in messages)
        if made < len(self.amounts):
            return ToolCall("pay", {"amount": self.amounts[made]})
        return self.end(" ".join(message["content"] for message in messages if message["role"] == "tool"))


def in_flow(till, setting):
    @flow(checkpoint=setting)
    def order():
        return till.end(" ".join(str(till.pay(amount)) for amount in till.amounts))

    return order


def in_step(till, setting):
    @step
    def around():
        return till.end(" ".join(str(till.pay(amount)) for amount in till.amounts))

    @flow(checkpoint=setting)
    def order():
        return around()

    return order


def in_method(till, setting):
    class Order(Flow):
        checkpoint = setting

        @start()
        def begin(self):
            return till.end(" ".join(str(till.pay(amount)) for amount in till.amounts))

    return Order()


def under_a_key(till, setting):
    @flow(checkpoint=setting)
    def order():
        with keyed("till"):
            paid = [till.pay(amount) for amount in till.amounts]
        return till.end(" ".join(map(str, paid)))

    return order


def side_by_side(till, setting):
    @flow(checkpoint=setting)
    async def order():
        asked = [till.pay.submit(amount) for amount in till.amounts]
        return till.end(" ".join(map(str, await asyncio.gather(*asked))))

    return order


def in_crew(till, setting):
    clerk = Agent(role="Clerk", goal="pay", llm=ScriptedLLM(till.say), tools=[till.tool])
    bill = Task(name="bill", description=f"Pay {till.amounts}", expected_output="x", agent=clerk)
    return Crew(tasks=[bill], checkpoint=setting)


PROGRAMS = [in_flow, in_step, in_method, under_a_key, side_by_side, in_crew]
