"""The state of a flow of methods, for code that is none of its methods: after kickoffs of all kinds, and meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import BaseModel

from crewlite import Agent, Crew, Flow, History, Task, bound, event_bus, listen, start
from crewlite.errors import ConfigError, Suspended
from crewlite.events import FlowFailedEvent, FlowFinishedEvent, MethodExecutionFinishedEvent
from crewlite.testing import ScriptedLLM
from tests.parts import Stop


class Counted(Flow):
    @start()
    def first(self, how: str = "well") -> str:
        self.state["v"] = how
        return how

    @listen(first)
    def second(self, how: str) -> str:
        self.state["late"] = True
        if how == "badly":
            raise Stop(how)
        if how == "asks":
            return str(self.ask("Go on?", bool))
        return how


def _values(flow: Flow) -> dict[str, Any]:
    return {name: value for name, value in dict(flow.state).items() if name not in ("id", "how")}


async def _streamed(flow: Flow, how: str) -> None:
    async for _ in flow.stream({"how": how}):
        pass


KICKOFFS = {
    "kickoff": lambda flow, how: flow.kickoff({"how": how}),
    "submit": lambda flow, how: flow.submit({"how": how}).result(),
    "stream": lambda flow, how: list(flow.stream({"how": how})),
}


@pytest.mark.parametrize("kickoff", KICKOFFS.values(), ids=KICKOFFS)
def test_after_any_kickoff_the_state_is_what_that_has_left(kickoff):
    flow = Counted()
    kickoff(flow, "well")
    assert _values(flow) == {"v": "well", "late": True}
    kickoff(flow, "again")
    assert _values(flow) == {"v": "again", "late": True}
    assert flow.state is flow.state


@pytest.mark.parametrize(("how", "error"), [("badly", Stop), ("asks", Suspended)])
def test_after_a_kickoff_that_did_not_finish_it_is_what_finished_methods_have_left(how, error, memory):
    flow = Counted(checkpoint=memory())
    flow.kickoff(run_id="whole")
    with pytest.raises(error):
        flow.kickoff({"how": how}, run_id="cut")
    assert _values(flow) == {"v": how}
    with History("memory", memory().provider) as history:
        assert history.run("cut").values["v"] == how


def test_on_a_loop_each_task_sees_the_state_that_its_kickoff_has_left():
    flow = Counted()

    async def one(how: str) -> Any:
        await (flow.akickoff({"how": how}) if how != "streamed" else _streamed(flow, how))
        return flow.state["v"]

    async def several() -> list[Any]:
        return await asyncio.gather(*map(one, ("a", "b", "streamed")))

    assert asyncio.run(several()) == ["a", "b", "streamed"]


class Leaky(Flow):
    @start()
    def fetch(self, user: str, way: Any = None) -> dict[str, Any]:
        write = self.write if way is None else way(self.write)
        with ThreadPoolExecutor() as pool:
            pool.submit(write, user).result()
        return {"of": self.state["of"]}

    def write(self, user: str) -> None:
        self.state["of"] = user


def test_a_thread_of_a_method_sees_no_state_unless_it_is_bound_to_the_method():
    flow = Leaky()
    with pytest.raises(ConfigError, match=r"flow 'Leaky' is running.*crewlite\.bound"):
        flow.kickoff({"user": "ada"})
    assert "of" not in flow.state and "of" not in Leaky().state
    assert flow.kickoff({"user": "bob", "way": bound}) == {"of": "bob"}


def test_a_handler_takes_the_state_as_an_argument(caplog):
    seen = []

    def look(flow: Counted, event: Any, state: Any) -> None:
        seen.append("late" in state)
        with pytest.raises(ConfigError, match="third argument"):
            assert flow.state

    with event_bus.scoped():
        event_bus.on(MethodExecutionFinishedEvent, look)
        Counted().kickoff()
    assert seen == [False, True]
    assert not caplog.records


@pytest.mark.parametrize("how", ["well", "badly"])
def test_a_handler_of_the_end_of_a_flow_sees_what_it_has_left(how, caplog):
    flow, seen = Counted(), []
    with event_bus.scoped():
        event_bus.on(FlowFinishedEvent, lambda flow, event: seen.append((_values(flow), event.state["v"])))
        event_bus.on(FlowFailedEvent, lambda flow, event: seen.append((_values(flow), "")))
        flow.kickoff({"how": "first"})
        with contextlib.suppress(Stop):
            flow.kickoff({"how": how})
    last = ({"v": "badly"}, "") if how == "badly" else ({"v": "well", "late": True}, "well")
    assert seen == [({"v": "first", "late": True}, "first"), last]
    assert not caplog.records


def test_a_state_may_be_returned_as_it_is_and_be_used_like_a_dict(memory):
    class Whole(Flow):
        @start()
        def all(self) -> Any:
            self.state |= {"k": 1}
            assert self.state | {"m": 2} == {**self.state, "m": 2} == self.state.copy() | {"m": 2}
            assert str(self.state) == str(dict(self.state))
            return self.state

    for _ in range(2):
        result = Whole(checkpoint=memory()).kickoff(run_id="r")
        assert type(result) is dict and result["k"] == 1
    with History("memory", memory().provider) as history:
        assert history.run("r").status == "finished"


def test_an_input_that_a_start_method_takes_is_a_field_of_a_mapping_too():
    class Given(Flow):
        @start()
        def who(self, name: str) -> None:
            pass

        @listen(who)
        def later(self) -> str:
            return self.state["name"]

    assert Given().kickoff({"name": "ada", "other": 2}) == "ada"


class Number(BaseModel):
    n: int = 1


def test_initial_values_are_checked_by_the_class_of_the_state():
    class Numbered(Flow[Number]):
        initial_state = {"n": 4}

        @start()
        def add(self) -> int:
            return self.state.n + 1

    assert Numbered().kickoff() == 5
    assert Numbered(initial_state={"n": 7}).kickoff() == 8
    for wrong, told in (({"oops": 1}, "no field 'oops'"), ({"n": "many"}, "does not fit")):
        with pytest.raises(ConfigError, match=told):
            Numbered(initial_state=wrong)
        with pytest.raises(ConfigError, match=told):
            type("Wrong", (Numbered,), {"initial_state": wrong})


@pytest.mark.parametrize("slip", ["checkpont", "max_concurency"])
def test_a_slip_in_a_setting_is_no_field_of_the_state(slip):
    with pytest.raises(ConfigError, match=rf"'{slip}'; did you mean"):
        Counted(**{slip: True})


def test_a_secret_in_an_attribute_of_the_class_is_masked(memory):
    secret = "sk-abcdefghijklmnop"

    class Told(Flow):
        api_key = secret

        @start()
        def tell(self) -> str:
            return f"the key is {self.api_key}"

    assert Told(checkpoint=memory()).kickoff(run_id="r") == "the key is [secret]"
    with History("memory", memory().provider) as history:
        assert secret not in str([step.value for step in history.run("r").steps])


def test_outputs_of_tasks_are_those_of_the_last_kickoff_whichever_verb_began_it():
    def say(messages: Any) -> str:
        if "badly" in messages[-1]["content"]:
            raise Stop
        return "done " + messages[-1]["content"].split()[0]

    task = Task(description="{word} it", expected_output="x", agent=Agent(role="r", goal="g", llm=ScriptedLLM(say)))
    crew = Crew(tasks=[task])
    for word in ("one", "two"):
        crew.submit({"word": word}).result()
        assert task.output and crew.usage_metrics
    with pytest.raises(Stop):
        crew.kickoff({"word": "badly"})
    assert task.output is None and crew.usage_metrics is None
