"""Flows of methods whose code has changed since their run began."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, create_model

from crewlite import CheckpointConfig
from crewlite.errors import ConfigError
from crewlite.flow import Flow, listen, persist, router, start
from crewlite.state import InMemoryProvider, RuntimeState


def test_a_field_that_the_state_wants_since_the_run_began_is_told_where_the_state_is_asked_for():
    checkpoint = CheckpointConfig(location="here", provider=InMemoryProvider())

    def trip(state, fails):
        class Trip(Flow[state]):
            @start()
            def plan(self):
                self.state.port = "Cork"

            @listen(plan)
            def go(self):
                if fails:
                    raise OSError("no wind")
                return self.state.port, getattr(self.state, "metres", None)

        return Trip(checkpoint=checkpoint)

    class Was(BaseModel):
        port: str = ""

    class Wanting(Was):
        metres: float

    class WithDefault(Was):
        metres: float = 3.5

    with pytest.raises(OSError, match="no wind"):
        trip(Was, True).kickoff(run_id="r")
    with pytest.raises(ConfigError, match="wants metres, which this run was begun without; give the field a default"):
        trip(Wanting, False).kickoff(run_id="r")
    assert trip(WithDefault, False).kickoff(run_id="r") == ("Cork", 3.5)


@pytest.mark.parametrize("extra", ["ignore", "allow"])
def test_a_field_that_the_state_has_lost_since_the_run_began_is_warned_of_once(extra, caplog):
    checkpoint = CheckpointConfig(location="here", provider=InMemoryProvider())

    def trip(state, fails):
        class Trip(Flow[state]):
            @start()
            def plan(self):
                self.state.price = 10

            @listen(plan)
            def go(self):
                RuntimeState.current()["beside"] = 1
                if fails:
                    raise OSError("no wind")
                return getattr(self.state, "cost", None)

        return Trip(checkpoint=checkpoint)

    class Was(BaseModel):
        price: int = 0

    class Renamed(BaseModel, extra=extra):
        cost: int = 0

    with pytest.raises(OSError, match="no wind"):
        trip(Was, True).kickoff(run_id="r")
    assert "any more" not in caplog.text
    assert trip(Renamed, False).kickoff(run_id="r") == 0
    assert caplog.text.count("flow Trip: its state has no price any more") == (extra == "ignore")


def test_a_field_that_the_state_has_lost_since_its_last_turn_is_warned_of(caplog):
    def turn(state):
        @persist(CheckpointConfig(location="here", provider=provider))
        class Chat(Flow[state]):
            @start()
            def hear(self):
                RuntimeState.current()["beside"] = 1

        return Chat()

    provider = InMemoryProvider()
    turn(create_model("State", price=(int, 1))).kickoff(inputs={"id": "chat-1"})
    for _ in range(2):
        turn(create_model("State", cost=(int, 0))).kickoff(inputs={"id": "chat-1"})
    assert caplog.text.count("flow Chat: its state has no price any more") == 1
    assert "beside" not in caplog.text


def test_a_recorded_label_that_the_router_no_longer_returns_ends_the_run_with_an_error():
    checkpoint = CheckpointConfig(location="here", provider=InMemoryProvider())
    paid = []

    class Trip(Flow):
        @start()
        def plan(self):
            return "plan"

        @router(plan)
        def judge(self):
            return "go"

        @listen("go")
        def pay(self):
            raise OSError("no wind")

    with pytest.raises(OSError, match="no wind"):
        Trip(checkpoint=checkpoint).kickoff(run_id="r")

    class Trip(Flow):  # the label has another name now
        @start()
        def plan(self):
            return "plan"

        @router(plan)
        def judge(self):
            return "buy"

        @listen("buy")
        def pay(self):
            paid.append(1)

    with pytest.raises(
        ConfigError, match="Router 'judge' has recorded the label 'go', which it does not declare"
    ) as told:
        Trip(checkpoint=checkpoint).kickoff(run_id="r")
    assert "rerun=['method:judge@plan']" in str(told.value)
    Trip(checkpoint=checkpoint).fork("r", rerun=["method:judge@plan"]).kickoff()
    assert paid == [1]
