"""The code changes while a call with effect="once" is recorded or in doubt: it is never made again under another name."""

import asyncio
from functools import partial
from types import FunctionType

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task, tool
from crewlite.errors import InDoubt, NonDeterminism
from crewlite.flow import Flow, flow, start, step
from crewlite.llm import ToolCall
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, Kept, cut, entries_of

CUT = "step:charge"
CHANGES = ("renamed", "left out", "moved into a step", "behind a new step", "no more once")


class World:
    """What the calls have done, in the kickoffs since it was made."""

    def __init__(self, code=""):
        self.code, self.paid = code, []
        effect = "none" if code == "no more once" else "once"
        self.charge = step(name="pay" if code == "renamed" else "charge", effect=effect)(self.pay)
        self.tool = tool("pay" if code == "renamed" else "charge", effect=effect)(self.pay)

    def pay(self, amount: int) -> str:
        """Pay."""
        self.paid.append(amount)
        return "paid"

    def steps(self):
        @step
        def around():
            return self.charge(5)

        @step
        def other():
            return "other"

        if self.code == "left out":
            return other()
        if self.code == "behind a new step":
            other()
        return around() if self.code == "moved into a step" else self.charge(5)


def in_flow(world, setting):
    @flow(checkpoint=setting)
    def order():
        return world.steps()

    return order


def in_async_flow(world, setting):
    @step
    async def around():
        return await world.charge.submit(5)

    @flow(checkpoint=setting)
    async def order():
        if world.code == "left out":
            return "other"
        return await (around() if world.code == "moved into a step" else world.charge.submit(5))

    return order


def in_method(world, setting):
    class Order(Flow):
        checkpoint = setting

        @start()
        def pay(self):
            return world.steps()

    return Order()


def in_crew(world, setting):
    def reply(messages):
        return "Done." if messages[-1]["role"] == "tool" else ToolCall("charge", {"amount": 5})

    tools = [] if world.code == "left out" else [world.tool]
    clerk = Agent(role="Clerk", goal="pay", llm=ScriptedLLM(reply), tools=tools)
    chat = Task(name="chat", description="Chat", expected_output="text", agent=clerk.with_(llm=ScriptedLLM(["hello"])))
    bill = Task(name="bill", description="Pay", expected_output="text", agent=clerk)
    return Crew(tasks=[chat] if world.code == "no such task" else [bill, chat], checkpoint=setting)


def left(program, *, in_doubt=True, paid=(5,), **config):
    """A store in which the call is in doubt, or recorded, and no more."""
    setting, world = CheckpointConfig(location="here", provider=Kept()), World()
    program(world, setting).kickoff(run_id=RUN)
    assert world.paid == [*paid]
    entries = entries_of(setting)
    commits = (entry.commit for entry in entries)
    told = ["intents" in one if in_doubt else "charge" in str(one.get("steps", "")) for one in commits]
    return cut(entries, told.index(True) + 1, **config)


@pytest.mark.parametrize("program", [in_flow, in_method])
@pytest.mark.parametrize("code", CHANGES)
def test_a_step_in_doubt_is_not_made_under_another_name_or_forgotten(program, code):
    world = World(code)
    with pytest.raises((InDoubt, NonDeterminism), match="charge"):
        program(world, left(program)).kickoff(run_id=RUN)
    assert world.paid == []


@pytest.mark.parametrize("code", ["left out", "moved into a step"])
def test_in_a_coroutine_which_may_begin_steps_in_any_order_it_is_told_at_the_end(code):
    with pytest.raises(NonDeterminism, match=CUT):
        in_async_flow(World(code), left(in_async_flow)).kickoff(run_id=RUN)


@pytest.mark.parametrize("code", CHANGES[:3])
def test_a_flow_that_may_run_anew_asks_about_a_call_that_its_code_makes_no_more(code):
    setting, world = left(in_flow, on_drift="rerun"), World(code)
    with pytest.raises(InDoubt) as asks:
        in_flow(world, setting).kickoff(run_id=RUN)
    assert asks.value.address == CUT
    assert in_flow(world, setting).kickoff(run_id=RUN, rerun=[CUT]) in ("paid", "other")


@pytest.mark.parametrize("code", ["renamed", "left out", "no more once", "no such task"])
def test_a_crew_asks_about_a_call_of_a_tool_or_task_that_it_has_no_more(code):
    setting, world = left(in_crew), World(code)
    with pytest.raises(InDoubt) as asks:
        in_crew(world, setting).kickoff(run_id=RUN)
    assert (asks.value.address, world.paid) == ("task:bill/tool:charge", [])
    answers = {asks.value.address: "paid at 11:40"}
    assert in_crew(world, setting).kickoff(run_id=RUN, answers=answers).raw == "hello"
    assert world.paid == []


def test_the_doubt_about_a_call_that_changed_does_not_show_the_arguments_of_now():
    setting = left(in_flow, on_drift="rerun")

    @step(name="charge", effect="once")
    def dearer(amount):
        return amount

    @flow(checkpoint=setting)
    def order():
        return dearer(6)

    with pytest.raises(InDoubt) as asks:
        order.kickoff(run_id=RUN)
    assert asks.value.arguments == ""


def test_a_call_that_was_made_is_not_made_again_under_another_name():
    renamed = World("renamed")
    with pytest.raises(NonDeterminism, match=f"expected {CUT}; found step:pay, which is new"):
        in_flow(renamed, left(in_flow, in_doubt=False)).kickoff(run_id=RUN)
    assert renamed.paid == []


def dearer(program, setting, amount):
    """The program of `left`, whose call has another amount now; in a crew, as its task has other words."""
    world = World()

    @flow(checkpoint=setting)
    def order():
        return world.charge(amount)

    def reply(messages):
        return "Done." if messages[-1]["role"] == "tool" else ToolCall("charge", {"amount": amount})

    clerk = Agent(role="Clerk", goal="pay", llm=ScriptedLLM(reply), tools=[world.tool])
    bill = Task(name="bill", description="Pay now", expected_output="text", agent=clerk)
    return (order if program is in_flow else Crew(tasks=[bill], checkpoint=setting)), world


@pytest.mark.parametrize("program", [in_flow, in_crew])
@pytest.mark.parametrize("took_effect", [True, False])
def test_what_a_person_says_of_a_call_counts_for_it_alone_and_another_call_is_made_behind_it(program, took_effect):
    setting = left(program, on_drift="rerun")
    order, world = dearer(program, setting, 6)
    with pytest.raises(InDoubt) as asks:
        order.kickoff(run_id=RUN)
    at = asks.value.address
    assert (asks.value.arguments, asks.value.times, world.paid) == ("", 1, [])
    said = {"answers": {at: "paid by hand"}} if took_effect else {"rerun": [at]}
    order.kickoff(run_id=RUN, **said)
    assert world.paid == [6]


def test_a_call_that_was_cut_once_is_asked_about_once_though_its_task_has_other_words():
    order, world = dearer(in_crew, left(in_crew), 5)
    with pytest.raises(InDoubt, match="was interrupted, and") as asks:
        order.kickoff(run_id=RUN)
    order.kickoff(run_id=RUN, answers={asks.value.address: "paid at 11:40"})
    assert world.paid == []


def test_a_call_that_was_begun_as_once_stays_in_doubt_where_its_task_and_its_effect_have_changed():
    setting, world = left(in_crew), World("no more once")
    clerk = Agent(role="Clerk", goal="pay", llm=ScriptedLLM([ToolCall("charge", {"amount": 5})]), tools=[world.tool])
    bill = Task(name="bill", description="Pay now", expected_output="text", agent=clerk)
    with pytest.raises(InDoubt):
        Crew(tasks=[bill], checkpoint=setting).kickoff(run_id=RUN)
    assert world.paid == []


def moved_in_steps(world, setting, names):
    around = {name: step(name=name)(lambda: world.charge(5)) for name in "ab"}

    @flow(checkpoint=setting)
    def order():
        return [around[name]() for name in names]

    return order


def moved_in_coroutines(world, setting, names):
    async def pay():
        return await world.charge.submit(5)

    around = {name: step(name=name)(pay) for name in "ab"}

    @flow(checkpoint=setting)
    async def order():
        return await asyncio.gather(*[around[name]() for name in names])

    return order


def moved_in_inner_flows(world, setting, names):
    inner = {name: flow(name=name)(lambda: world.charge(5)) for name in "ab"}

    @flow(checkpoint=setting)
    def order():
        return [inner[name].kickoff() for name in names]

    return order


def moved_in_methods(world, setting, names):
    def pay(self):
        return world.charge(5)

    return type("Order", (Flow,), {"checkpoint": setting, **{name: start()(named(pay, name)) for name in names}})()


def named(function, name):
    return FunctionType(function.__code__, globals(), name, closure=function.__closure__)


def moved_in_tasks(world, setting, names):
    def reply(messages):
        return "Done." if messages[-1]["role"] == "tool" else ToolCall("charge", {"amount": 5})

    clerk = Agent(role="Clerk", goal="pay", llm=ScriptedLLM(reply), tools=[world.tool])
    tasks = [Task(name=name, description="Pay", expected_output="text", agent=clerk) for name in names]
    return Crew(tasks=tasks, checkpoint=setting)


def moved_in_inner_crews(world, setting, names):
    @flow(checkpoint=setting)
    def order():
        return [moved_in_tasks(world, None, name).kickoff().raw for name in names]

    return order


@pytest.mark.parametrize("names", ["b", "ba"])
@pytest.mark.parametrize(
    "program",
    [
        moved_in_steps,
        moved_in_coroutines,
        moved_in_inner_flows,
        moved_in_methods,
        moved_in_tasks,
        moved_in_inner_crews,
    ],
)
def test_nothing_is_paid_in_another_place_before_a_person_has_decided_about_the_payment_in_doubt(program, names):
    setting, world = left(partial(program, names="a"), on_drift="rerun"), World()
    with pytest.raises(InDoubt) as asks:
        program(world, setting, names).kickoff(run_id=RUN)
    assert world.paid == []
    program(world, setting, names).kickoff(run_id=RUN, answers={asks.value.address: "paid at 11:40"})
    assert len(world.paid) == (0 if program is moved_in_tasks and names == "b" else 1)  # a renamed task has that result


def until_done(program, answers):
    """Kick off a program, and say of each further call in doubt that it took no effect."""
    again = []
    while True:
        try:
            return program.kickoff(run_id=RUN, answers=answers, rerun=again)
        except InDoubt as asks:
            again.append(asks.address)


def orders(world, setting, amounts):
    order = step(name="order")(lambda amount: world.charge(amount))

    @flow(checkpoint=setting)
    def all_orders():
        return [f"{amount} {order(amount)}" for amount in amounts]

    return all_orders


def test_what_a_person_says_of_a_payment_is_its_result_where_changed_code_makes_it_in_another_step():
    answers = {"step:order/step:charge": "by hand"}
    kept, world = left(partial(orders, amounts=(3,)), on_drift="rerun", paid=[3]), World()
    result = orders(world, kept, (5, 3, 3)).kickoff(run_id=RUN, answers=answers)
    assert (result, world.paid) == (["5 paid", "3 by hand", "3 paid"], [5, 3])
    entries = entries_of(kept)
    for at in range(3, len(entries)):
        setting, world = cut(entries, at, on_drift="rerun"), World()
        assert until_done(orders(world, setting, (5, 3, 3)), answers) == result, f"cut after commit {at}"


@pytest.mark.parametrize("program", [moved_in_steps, moved_in_inner_flows])
def test_a_preview_foretells_that_it_stops_before_it_pays_in_another_place(program):
    setting = left(partial(program, names="a"), on_drift="rerun")
    (line,) = program(World(), setting, "b").preview(from_checkpoint=RUN).steps[:1]
    assert (line.verdict, "InDoubt" in line.why) == ("runs", program is moved_in_inner_flows), line
