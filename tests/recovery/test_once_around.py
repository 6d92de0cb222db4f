"""Changed code asks for the steps around its calls with effect="once" in another order, for others, or with other arguments.

Each call is made as often as the version asks for it that asks for it most often, in the same function. Each version goes on
with what the one before it has left, which was killed right after some commit, and is itself killed right after each commit.
"""

import asyncio
import random
import re
from collections import Counter

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, durable, tool
from crewlite.errors import InDoubt
from crewlite.flow import Flow, flow, start, step
from crewlite.llm import ToolCall
from crewlite.state.format.addresses import bare_name, without_numbers
from crewlite.testing import ScriptedLLM
from crewlite.texts.resuming import nth_attempt
from tests.cuts import RUN, Kept, cut, entries_of
from tests.recovery.tills import Interrupted
from tests.soak import SEED, in_time


class Shop:
    """A program that makes orders, each (the function that makes it, a note, the amounts that it pays)."""

    def __init__(self, orders):
        self.orders, self.paid = orders, []
        take = self.take

        @step(effect="once")
        def pay(amount: int) -> int:
            return take(amount)

        @tool("pay", effect="once")
        def pay_tool(amount: int) -> int:
            """Pay."""
            return take(amount)

        @step
        def order(note, amounts):
            return [pay(amount) for amount in amounts]

        @step
        def refill(note, amounts):
            return [pay(amount) for amount in amounts]

        @step
        def bundle(note, amounts):
            return [order(note, [amount]) for amount in amounts]

        @step
        async def crew(note, amounts):
            def reply(messages):
                made = sum(message["role"] == "tool" for message in messages)
                return ToolCall("pay", {"amount": amounts[made]}) if made < len(amounts) else "Done."

            clerk = Agent(role="Clerk", goal="pay", llm=ScriptedLLM(reply), tools=[pay_tool])
            bill = Task(name="bill", description=f"Pay {amounts} {note}", expected_output="x", agent=clerk)
            await Crew(tasks=[bill], name="clerks").akickoff()

        self.functions = {"order": order, "refill": refill, "bundle": bundle, "crew": crew}
        self.pay = pay

    def take(self, amount):
        self.paid.append((without_numbers(durable.scope().address), amount))
        return amount

    def wanted(self, program):
        """How often the program asks for each payment."""
        around = {
            "order": "step:order/step:pay",
            "refill": "step:refill/step:pay",
            "bundle": "step:bundle/step:order/step:pay",
            "crew": "step:crew/crew:clerks/task:bill/tool:pay",
        }
        return Counter(
            (AROUND[program] + around[function], amount) for function, _, amounts in self.orders for amount in amounts
        )


def in_async_flow(shop, setting):
    @flow(checkpoint=setting)
    async def shopping():
        for function, note, amounts in shop.orders:
            await shop.functions[function].submit(note, amounts)

    return shopping


def side_by_side(shop, setting):
    @flow(checkpoint=setting)
    async def shopping():
        made = [shop.functions[function].submit(note, amounts) for function, note, amounts in shop.orders]
        await asyncio.gather(*made)

    return shopping


def in_step(shop, setting):
    @step
    async def around():
        for function, note, amounts in shop.orders:
            await shop.functions[function].submit(note, amounts)

    @flow(checkpoint=setting)
    async def shopping():
        await around.submit()

    return shopping


def in_method(shop, setting):
    class Shopping(Flow):
        checkpoint = setting

        @start()
        async def begin(self):
            for function, note, amounts in shop.orders:
                await shop.functions[function].submit(note, amounts)

    return Shopping()


def in_tool(shop, setting):
    """An agent whose tool makes the orders."""

    @tool("shop")
    async def buy(number: int) -> str:
        """Make an order."""
        function, note, amounts = shop.orders[number]
        return str(await shop.functions[function].submit(note, amounts))

    def reply(messages):
        made = sum(message["role"] == "tool" for message in messages)
        return ToolCall("shop", {"number": made}) if made < len(shop.orders) else "Done."

    clerk = Agent(role="Clerk", goal="pay", llm=ScriptedLLM(reply), tools=[buy])
    bill = Task(name="bill", description=f"Order {shop.orders}", expected_output="x", agent=clerk)
    return Crew(tasks=[bill], checkpoint=setting)


PROGRAMS = [in_async_flow, side_by_side, in_step, in_method, in_tool]
AROUND = {
    in_async_flow: "",
    side_by_side: "",
    in_step: "step:around/",
    in_method: "method:begin/",
    in_tool: "task:bill/tool:shop/",
}


def made(setting):
    """How often the record says that each payment was made."""
    with History(setting.location, setting.provider) as history:
        steps = [one for one in history.run(RUN).steps if one.status == "finished" and not one.reused_from]
    return Counter(
        (without_numbers(one.address), int(re.sub(r"\D", "", str(one.value))))
        for one in steps
        if bare_name(one.address) == "pay"
    )


def goes_on(program, orders, setting):
    """Let a program that makes these orders go on with the run, and check that it pays what is missing, and no more."""
    shop, known, again, in_doubt = Shop(orders), made(setting) if entries_of(setting) else Counter(), [], Counter()
    while True:
        try:
            program(shop, setting).kickoff(run_id=RUN, rerun=again)
            break
        except InDoubt as asks:
            again.append(nth_attempt(asks.address, asks.times))
            in_doubt[without_numbers(asks.address)] += 1
    paid, total = known + Counter(shop.paid), known | shop.wanted(program)
    exact = program is not side_by_side  # of these, it is not known what those were asked that were cut in the middle
    # A call at the place of one in doubt stops for that, also where the result of an earlier call is free for it: which of the
    # two it gets must not depend on when the run was killed. Whoever has it made again may so pay once more than is wanted.
    more = Counter(at for at, _ in (paid - total).elements())
    assert paid >= total and (not exact or more <= in_doubt), f"{orders}: paid {shop.paid}, known {known}"
    assert made(setting) == paid


def changed(program, versions, choose):
    """Let versions of a program go on with a run, one after the other. `choose`: after which commit each is killed."""
    entries, killed = [], 0
    for orders in versions:
        setting = CheckpointConfig(location="here", provider=Kept(), on_drift="rerun")
        if entries:
            setting = cut(entries, killed, on_drift="rerun")
        goes_on(program, orders, setting)
        entries = entries_of(setting)
        for at in range(killed + 1, len(entries) + 1) if killed else ():
            goes_on(program, orders, cut(entries, at, on_drift="rerun"))
        unfinished = [at for at in range(max(killed, 1), len(entries) + 1) if not is_over(program, cut(entries, at))]
        killed = choose(unfinished)


def is_over(program, setting):
    """Whether a resume would no longer ask for the orders, as what is around them is finished."""
    with History(setting.location, setting.provider) as history:
        run = history.run(RUN)
        steps, status = run.steps, run.status
    around = AROUND[program].split("/")[0]
    return status == "finished" or any(one.status == "finished" and one.address == around for one in steps)


ORDER_3, ORDER_5 = ("order", "", [3]), ("order", "", [5])


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    "orders",
    [
        [ORDER_5, ORDER_3],
        [("order", "x", [5]), ("order", "x", [3])],
        [ORDER_5, ORDER_5],
        [("order", "x", [5]), ORDER_5],
        [("refill", "", [3]), ORDER_5],
    ],
)
def test_a_step_around_calls_that_is_asked_for_in_another_place_or_with_other_arguments(program, orders):
    changed(program, [[ORDER_3, ORDER_5, ("order", "", [])], orders], max)


def test_a_tool_whose_payment_another_call_of_it_gets_is_not_in_doubt():
    paid = []

    @step(effect="once")
    def pay(amount):
        paid.append(amount)
        return amount

    @step
    def order(amount):
        return pay(amount)

    @tool
    def shop(amount: int) -> str:
        """Make an order."""
        return str(order(amount))

    def shopping(amounts, setting):
        def reply(messages):
            made = sum(message["role"] == "tool" for message in messages)
            if made == len(amounts):
                raise Interrupted
            return ToolCall("shop", {"amount": amounts[made]})

        clerk = Agent(role="Clerk", goal="pay", llm=ScriptedLLM(reply), tools=[shop])
        bill = Task(name="bill", description=f"Order {amounts}", expected_output="x", agent=clerk)
        return Crew(tasks=[bill], checkpoint=setting)

    setting = CheckpointConfig(location="here", provider=Kept(), on_drift="rerun")
    for amounts in ([3, 5], [5]):
        with pytest.raises(Interrupted):
            shopping(amounts, setting).kickoff(run_id=RUN)
    assert paid == [3, 5]
    with History(setting.location, setting.provider) as history:
        assert [one.address for one in history.run(RUN).steps if one.status == "in_doubt"] == []


def some_orders(chosen):
    functions = chosen.choice([["order"], ["order", "refill"], ["bundle"], ["crew"], ["order", "bundle", "crew"]])
    return [
        (chosen.choice(functions), chosen.choice(["", "", "x"]), chosen.choices((1, 2, 3), k=chosen.choice((1, 1, 2))))
        for _ in range(chosen.randint(1, 4))
    ]


def some_crews(chosen):
    """Orders of which agents make all, so that payments get their addresses as replies come."""
    return [
        ("crew", chosen.choice(["", "", "x"]), chosen.choices((1, 2, 3), k=chosen.choice((1, 1, 2))))
        for _ in range(chosen.randint(2, 3))
    ]


def other_orders(orders, chosen, some):
    others = [*orders]
    for _ in range(chosen.randint(1, 3)):
        match chosen.choice(["shuffle", "drop", "add", "note", "twice"]):
            case "shuffle":
                chosen.shuffle(others)
            case "drop" if len(others) > 1:
                others.pop(chosen.randrange(len(others)))
            case "add":
                others.insert(chosen.randint(0, len(others)), chosen.choice(some(chosen)))
            case "note":
                at = chosen.randrange(len(others))
                others[at] = (others[at][0], others[at][1] + "!", others[at][2])
            case _:
                others.insert(chosen.randint(0, len(others)), chosen.choice(others))
    return others


def any_program(chosen):
    return chosen.choice(PROGRAMS), some_orders


def crews_side_by_side(chosen):
    return side_by_side, some_crews


def try_at_random(seeds, kind=any_program):
    for seed in seeds:
        chosen = random.Random(seed)
        program, some = kind(chosen)
        versions = [some(chosen)]
        for _ in range(chosen.randint(1, 3)):
            versions.append(other_orders(versions[-1], chosen, some))
        print(f"seed {seed}: {program.__name__}, {versions}")
        changed(program, versions, chosen.choice)


def test_a_few_programs_at_random():
    try_at_random(range(4))


def test_agents_side_by_side_of_which_two_would_get_the_result_of_one_payment():
    """A reply has reserved the address of a payment, whose turn has not come when another agent looks for the result."""
    try_at_random([531])


def test_agents_side_by_side_of_which_one_would_get_the_result_of_its_payment_twice():
    """Its first payment has got a new address in this kickoff: the one that its next reply had recorded for its second."""
    try_at_random([20297, 30079, 60365], crews_side_by_side)


@pytest.mark.soak
def test_many_programs_at_random():
    try_at_random(range(SEED * 100_000, SEED * 100_000 + in_time(500)))


@pytest.mark.soak
def test_many_crews_side_by_side_at_random():
    try_at_random(range(SEED * 100_000, SEED * 100_000 + in_time(200)), crews_side_by_side)
