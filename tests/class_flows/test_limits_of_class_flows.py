"""A class as a flow: what is refused, warned of or told where a method sets or names what cannot last."""

from __future__ import annotations

import logging
import threading
from contextvars import ContextVar
from typing import Any

import pytest
from pydantic import BaseModel, PrivateAttr, SecretStr

from crewlite import Agent, Crew, History, Task
from crewlite.errors import ConfigError
from crewlite.flow import Flow, flow, listen, router, start, step
from crewlite.testing import ScriptedLLM


def test_what_a_method_sets_on_the_flow_itself_is_not_recorded_which_is_told_once(caplog):
    class Own(Flow):
        def __init__(self):  # without the one of Flow
            self.shown = 0

        @start()
        def begin(self):
            self.shown = 1

        @listen(begin)
        def end(self):
            self.shown += 1
            return self.shown

    with caplog.at_level(logging.WARNING, "crewlite.flow"):
        assert Own().kickoff() == 2
    told = [line for line in caplog.messages if "has set self.shown, which is not recorded" in line]
    assert len(told) == 1


def test_a_label_that_is_the_name_of_a_method_is_refused_also_where_it_is_only_known_in_the_run():
    class Turn(Flow):
        @start()
        def begin(self):
            return "begun"

        @router(begin)
        def turn(self):
            return str(self.state["to"])

        @listen(turn)
        def end(self): ...

        @listen(end)
        def after(self): ...

    with pytest.raises(ConfigError, match="the label 'end', which is also the name of a method; rename one of them"):
        Turn().kickoff({"to": "end"})
    Turn().kickoff({"to": "after"})  # nobody waits for this method


def test_a_config_without_events_names_the_usual_ones_of_what_is_kicked_off(memory, caplog):
    @step
    def count():
        return 1

    class Work(Flow):
        @start()
        def begin(self):
            return count()

    @flow
    def work():
        return count()

    agent = Agent(role="r", goal="g", llm=ScriptedLLM(["a", "a"]))
    crew = Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=agent)])
    setting, found = memory(), {}
    for made, *given in ((Work(),), (work,), (crew,), (agent, "hi")):
        with History("memory", setting.provider) as history:
            made.with_checkpoint(setting).kickoff(*given, run_id=made.run_kind.name + made.run_name)
            run = history.run(made.run_kind.name + made.run_name)
            found[made.run_name] = [one.trigger for one in run.checkpoints()]
    assert list(found.values()) == [
        ["step_completed", "method_execution_finished"],
        ["step_completed"],
        ["task_completed"],
        ["lite_agent_execution_completed"],
    ]
    assert not caplog.messages


def test_a_state_with_a_field_for_a_secret_is_refused():
    class Login(BaseModel):
        key: SecretStr | None = None

    class Keys(BaseModel):
        logins: list[Login] = []

    for state in (Login, Keys):
        with pytest.raises(ConfigError, match=r"its state has the field (key|logins) for a secret"):

            class Work(Flow[state]):
                @start()
                def begin(self): ...


def test_what_a_method_sets_in_a_private_attribute_of_the_state_is_lost_with_one_warning(caplog):
    class Part(BaseModel):
        _seen: int = 0

    class Whole(BaseModel):
        part: Part = Part()

    class Hidden(Whole):
        _seen: int = 0
        _limit: int = 5
        _lock: Any = PrivateAttr(default_factory=threading.Lock)

    class Sets(Flow[Hidden]):
        @start()
        def begin(self):
            with self.state._lock:
                return self.state._limit

        @listen(begin)
        def middle(self, limit):
            self.state._seen = limit

        @listen(middle)
        def end(self):
            seen, self.state._seen = self.state._seen, 3
            return seen

    assert Sets().kickoff() == 0
    told = [line for line in caplog.messages if "private attribute" in line]
    assert len(told) == 1
    assert told[0].startswith("the private attribute _seen of the state Hidden was set")
    caplog.clear()

    class Work(Flow[Whole]):
        @start()
        def begin(self):
            self.state.part._seen = 3

        @listen(begin)
        def end(self):
            return self.state.part._seen

    assert Work().kickoff() == 3
    assert not caplog.messages


def test_what_a_method_sets_in_context_variables_is_its_own_as_it_would_be_after_a_resume():
    seen = {}

    class Work(Flow):
        @start()
        async def begin(self):
            trace.set("begin")

        @listen(begin)
        async def after(self):
            seen["after"] = trace.get()

        @listen(after)
        def last(self):
            seen["last"] = trace.get()

    trace.set("the caller's")
    Work().kickoff()
    assert seen == {"after": "the caller's", "last": "the caller's"}
    assert trace.get() == "the caller's"


trace = ContextVar("trace", default="none")


def test_a_field_of_a_state_that_is_a_mapping_is_told_to_be_an_item():
    class Count(Flow):
        @start()
        def begin(self):
            with pytest.raises(
                AttributeError, match=r"write state\['total'\]; for state.total, give the flow a pydantic class"
            ):
                self.state.total = 1
            with pytest.raises(AttributeError, match=r"write state\['total'\]"):
                print(self.state.total)
            assert getattr(self.state, "total", None) is None
            self.state["total"] = 2
            return self.state["total"]

    assert Count().kickoff() == 2
