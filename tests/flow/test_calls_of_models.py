"""`llm.call(...)` in the code of a run, as programs for CrewAI have it: recorded like `llm.ask`, and never paid twice."""

import asyncio
import itertools
import threading

import pytest
from pydantic import BaseModel

from crewlite import Agent, BaseLLM, CheckpointConfig, Crew, LLMReply, Task, ToolCall, Usage, bound, event_bus
from crewlite.errors import ConfigError, LLMUnavailable, OnLoopThread, OutputInvalid
from crewlite.events import LLMCallCompletedEvent
from crewlite.flow import Flow, flow, listen, start, step
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from crewlite.tools import tool
from tests.cuts import RUN, cut, entries_of
from tests.parts import history

LOOKUP = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object", "properties": {}}}}


def model():
    """A model that answers with what it is asked, and asks for a tool if it is given one."""

    def answer(messages, tools=()):
        said = messages[-1]["content"]
        if "use the tool" in said:
            return ToolCall("harbour", {"name": "Brest"})
        if tools and said == "look it up":
            return ToolCall("lookup", {})
        return LLMReply(text=f"re: {said}", usage=Usage(prompt_tokens=4, requests=1))

    return ScriptedLLM(answer)


def asked(llm):
    return [messages[-1]["content"] for messages in llm.calls]


def voyage(llm, setting):
    """A flow that calls the model in a method, a step, a tool, a guardrail and a callback."""
    heard = []

    @step
    def log(text):
        return f"{llm.call(f'log {text}')}"

    @tool
    def harbour(name: str) -> str:
        """Look at a harbour."""
        return llm.call([{"role": "user", "content": f"harbour {name}"}])

    def is_short(output):
        return "re: short?" in llm.call("short?"), output.raw

    agent = Agent(role="Pilot", goal="pilot", llm=llm, tools=[harbour])
    task = Task(
        description="use the tool",
        expected_output="text",
        agent=agent,
        guardrail=is_short,
        callback=lambda output: heard.append(str(llm.call("done"))),
    )

    class Voyage(Flow):
        @start()
        def plan(self):
            found = llm.call("look it up", tools=[LOOKUP])
            text = llm.call("plan")
            return [text, text.usage.prompt_tokens, text.usage.requests, found.tool_calls[0].name, log("it")]

        @listen(plan)
        def sail(self, planned):
            return [*planned, Crew(tasks=[task]).kickoff().raw]

    return Voyage(checkpoint=setting)


def test_a_call_is_a_recorded_step_wherever_the_run_is_cut():
    setting, heard, llm = CheckpointConfig(location="here", provider=InMemoryProvider()), [], model()
    event_bus.on(LLMCallCompletedEvent, lambda source, event: heard.append(event.address))
    whole = voyage(llm, setting).kickoff(run_id=RUN)
    assert whole[:5] == ["re: plan", 4, 1, "lookup", "re: log it"]
    inside = "method:sail@plan/crew:crew/task#1"
    assert [address.partition("callback")[0] for address in heard] == [
        *("method:plan/llm#1", "method:plan/llm#2", "method:plan/step:log/llm#1", f"{inside}/llm#1"),
        *(f"{inside}/tool:harbour/llm#1", f"{inside}/llm#2", f"{inside}/guardrail#1/llm#1", f"{inside}/"),
    ]
    entries, paid = entries_of(setting), len(llm.calls)
    for at in range(1, len(entries) + 1):
        again, other = cut(entries, at), model()
        with history(again) as found:
            known = sum(one.kind == "llm" and one.status == "finished" for one in found.run(RUN).steps)
        assert voyage(other, again).kickoff(run_id=RUN) == whole, f"cut after commit {at}"
        assert asked(other) == asked(llm)[known:], f"cut after commit {at}"
        with history(again) as found:
            assert found.run(RUN).usage.requests == paid, "each call is counted once"


def test_a_call_that_asks_something_else_is_made_again_and_so_is_what_follows_it(on_disk):
    llm, moments, fails = model(), itertools.count(), [True]
    agent = Agent(role="Writer", goal="write", llm=llm)
    crew = Crew(tasks=[Task(description="Write about {said}", expected_output="text", agent=agent)])

    class Daily(Flow):
        @start()
        def first(self):
            llm.call("always the same")
            said = llm.call(f"It is {next(moments)} o'clock")
            told = crew.kickoff(inputs={"said": said}).raw
            if fails.pop():
                raise KeyError("cut")
            return [str(said), told]

    with pytest.raises(KeyError):
        Daily(checkpoint=on_disk()).kickoff(run_id="r")
    fails.append(False)
    said, told = Daily(checkpoint=on_disk()).kickoff(run_id="r")
    assert said == "re: It is 1 o'clock", "the answer to another question does not pass for the answer to this one"
    assert "It is 1 o'clock" in llm.calls[-1][-1]["content"]
    assert [one for one in asked(llm) if "Write" not in one] == [
        "always the same",
        "It is 0 o'clock",
        "It is 1 o'clock",
    ]


def test_code_that_makes_other_calls_after_a_kill_goes_on(on_disk):
    llm, lives = model(), itertools.count(1)

    class Loops(Flow):
        @start()
        def first(self):
            life = next(lives)
            for number in range(4 - life):
                llm.call(f"round {number}")
            asking = threading.Thread(target=bound(lambda: llm.call(f"in life {life}")))
            asking.start()
            asking.join()
            if life < 3:
                raise KeyError("cut")
            return life

    for _ in range(2):
        with pytest.raises(KeyError):
            Loops(checkpoint=on_disk()).kickoff(run_id="r")
    assert Loops(checkpoint=on_disk()).kickoff(run_id="r") == 3
    assert asked(llm) == ["round 0", "round 1", "round 2", "in life 1", "in life 2", "in life 3"]


@pytest.mark.parametrize(
    ("change", "result", "paid"),
    [
        ({"edits": {"llm#1": "mine"}}, ["mine", "re: about mine"], ["about mine"]),
        ({"edits": {"llm#2": "mine"}}, ["re: one", "mine"], []),
        ({"rerun": ["llm#2"]}, ["re: one", "re: about re: one"], ["about re: one"]),
    ],
    ids=str,
)
def test_a_fork_makes_the_calls_that_a_change_concerns(on_disk, change, result, paid):
    llm = model()

    @flow(checkpoint=on_disk())
    def two():
        said = llm.call("one")
        return [str(said), str(llm.call(f"about {said}"))]

    two.kickoff(run_id="r")
    llm.calls.clear()
    assert two.fork("r", branch="b", **change).kickoff() == result
    assert asked(llm) == paid


class Live:
    """No record can hold it."""


@pytest.mark.parametrize(
    "more",
    [
        {"available_functions": {"f": print}},
        {"of": Usage},
        {"callbacks": [Live()]},
        {"x": {Live(): [Live]}},
    ],
    ids=["function", "class", "object", "keys"],
)
def test_live_objects_beside_the_messages_do_not_make_two_questions_one(on_disk, more):
    llm, lives = model(), []

    @flow(checkpoint=on_disk())
    def one():
        lives.append(1)
        said = [str(llm.call("the same", **more)), str(llm.call(f"life {len(lives)}", **more))]
        if len(lives) == 1:
            raise KeyError("cut")
        return said

    with pytest.raises(KeyError):
        one.kickoff(run_id="r")
    assert one.kickoff(run_id="r") == ["re: the same", "re: life 2"]
    assert asked(llm) == ["the same", "life 1", "life 2"]


def test_messages_that_no_record_can_hold_are_asked_by_a_plain_call(on_disk):
    llm, lives = ScriptedLLM(lambda messages: f"picture of {messages[-1]['content'][0]['of'].number}"), []

    class Picture(Live):
        def __init__(self, number):
            self.number = number

    @flow(checkpoint=on_disk())
    def one():
        lives.append(1)
        said = llm.call([{"role": "user", "content": [{"type": "picture", "of": Picture(len(lives))}]}])
        if len(lives) == 1:
            raise KeyError("cut")
        return str(said)

    with pytest.raises(KeyError):
        one.kickoff(run_id="r")
    assert one.kickoff(run_id="r") == "picture of 2"


def test_a_call_that_failed_is_retried_in_a_run_and_its_failure_reaches_the_code(on_disk):
    replies = [LLMUnavailable("busy"), "fine", ValueError("no"), "else"]
    llm = ScriptedLLM(replies)

    @flow(checkpoint=on_disk())
    def one():
        first = llm.call("a")
        try:
            llm.call("b")
        except ValueError as error:
            return [str(first), str(error), str(llm.call("c"))]

    assert one.kickoff(run_id="r") == ["fine", "no", "else"] == one.kickoff(run_id="r")
    assert asked(llm) == ["a", "a", "b", "c"]


def test_a_model_that_asks_another_one_is_one_call():
    inner = model()

    class Outer(BaseLLM):
        model = "outer"

        def call(self, messages):
            return inner.call(messages)

    setting = CheckpointConfig(location="here", provider=InMemoryProvider())

    @flow(checkpoint=setting)
    def one():
        return [Outer().ask("x"), Agent(role="A", goal="g", llm=Outer()).kickoff("y").raw]

    assert [text.partition(":")[0] for text in one.kickoff(run_id="r")] == ["re", "re"]
    with history(setting) as found:
        assert [one.address for one in found.run("r").steps if one.kind == "llm"] == ["llm#1", "agent:A/llm#1"]


@pytest.mark.parametrize("at", [1, 2, 3, None])
def test_a_call_in_async_code_is_recorded_too(memory, at):
    config, paid = memory(), []

    def answer(messages):
        paid.append(messages[-1]["content"])
        return KeyboardInterrupt() if len(paid) == at else f"re: {paid[-1]}"

    llm = ScriptedLLM(answer)

    class Voyage(Flow):
        checkpoint = config

        @start()
        async def plan(self):
            return llm.call("plan")

        @listen(plan)
        async def log(self, plan):
            return [str(llm.call(f"log {plan} {day}")) for day in (1, 2)]

    async def sail():
        return await Voyage().akickoff(run_id="v")

    if at:
        with pytest.raises((KeyboardInterrupt, RuntimeError)):
            Voyage().kickoff(run_id="v")
    told = ["re: log re: plan 1", "re: log re: plan 2"]
    assert asyncio.run(sail()) == Voyage().kickoff(run_id="v") == told
    assert len(paid) == (4 if at else 3)  # three questions, of which one was cut


def test_where_a_call_is_a_plain_one(on_disk):
    llm, heard = model(), []

    async def waits():
        return llm.call("in a loop of the user's")

    def helper():
        return str(llm.call("x"))

    @flow(checkpoint=on_disk())
    async def blocks_its_loop():
        return helper()

    @flow(checkpoint=on_disk())
    def streams():
        return str(llm.call("y", on_chunk=lambda text, thinking=False: heard.append(text)))

    assert llm.call("outside") == "re: outside"
    assert asyncio.run(waits()) == "re: in a loop of the user's"
    assert streams.kickoff(run_id="s") == "re: y"
    with pytest.raises(OnLoopThread, match="await ask"):
        blocks_its_loop.kickoff(run_id="b")
    with history(on_disk()) as found:
        assert [one.kind for one in found.run("s").steps] == ["flow"]


def test_a_preview_asks_no_model_in_a_plain_call_either(on_disk):
    llm = model()

    @step
    def keep(text):
        return text

    @flow(checkpoint=on_disk())
    def streams():
        return keep(str(llm.call("y", on_chunk=lambda text, thinking=False: None)))

    streams.kickoff(run_id="s")
    preview = str(streams.fork("s", branch="b", rerun=["step:keep"]).preview())
    assert preview.startswith("runs     llm#0  was never recorded\nThe steps after llm#0 are not known")
    assert asked(llm) == ["y"]


def test_nor_in_a_call_that_blocks_the_loop_of_the_caller(on_disk):
    llm = model()

    @step
    async def keep(text):
        return text

    def helper():
        return str(llm.call("y"))

    @flow(checkpoint=on_disk())
    async def blocks():
        await keep("x")
        return helper()

    async def again():
        await blocks.akickoff(run_id="s")
        return str(await blocks.fork("s", branch="b", rerun=["step:keep"]).apreview())

    assert "runs     llm#0" in asyncio.run(again())
    assert asked(llm) == ["y"]


def test_messages_that_are_none_are_refused_in_a_run(on_disk):
    @flow(checkpoint=on_disk())
    def one():
        return model().call([1])

    with pytest.raises(ConfigError, match=r"call\(messages=\[1\]\).*wanted text, or a list of messages"):
        one.kickoff()


class Tide(BaseModel):
    time: str


def test_a_call_with_a_response_model_returns_an_object_and_is_recorded_as_well(on_disk):
    llm = ScriptedLLM(lambda messages: f'{{"time": "{messages[-1]["content"]}"}}')

    class Plan(Flow):
        checkpoint = on_disk()

        @start()
        def first(self):
            return llm.call("11:40", response_model=Tide)

        @listen(first)
        async def second(self, tide):
            return tide.time, llm.call("17:50", response_format=Tide).time

    assert Plan().kickoff(run_id="r") == Plan().kickoff(run_id="r") == ("11:40", "17:50")
    assert len(llm.calls) == 2
    assert "run again" in str(Plan().fork("r", rerun=["method:first"]).preview())

    async def main():
        return (lambda: llm.call("6:10", response_model=Tide))()

    assert llm.call("5:30", response_model=Tide).time + asyncio.run(main()).time == "5:306:10"
    with pytest.raises(OutputInvalid, match="does not fit the output schema"):
        ScriptedLLM(["soon"]).call("When?", response_model=Tide)


def test_a_model_that_asks_another_for_an_object_is_one_call():
    inner = ScriptedLLM(['{"time": "11:40"}'])

    class Outer(BaseLLM):
        def call(self, messages, **context):
            return inner.call(messages, response_model=Tide).time

    assert Agent(role="Pilot", goal="g", llm=Outer()).kickoff("When?").raw == "11:40"


def test_a_class_that_overrides_call_makes_the_object_itself():
    class Own(ScriptedLLM):
        def call(self, messages, response_model=None):
            return response_model.model_validate_json(super().call(messages, response_model=response_model))

    assert Own(['{"time": "11:40"}']).call("When?", response_model=Tide) == Tide(time="11:40")
