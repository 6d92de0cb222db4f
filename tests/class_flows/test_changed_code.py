"""Flows of methods whose code has changed since their run began."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, create_model, model_validator

from crewlite import CheckpointConfig
from crewlite.errors import ConfigError, RefError, RunMismatch
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


def test_a_field_of_another_type_than_in_the_last_turn_is_converted_or_given_anew_in_inputs():
    def turn(kind, **inputs):
        @persist(CheckpointConfig(location="here", provider=provider))
        class Chat(Flow[create_model("State", price=(kind, ...))]):
            @start()
            def hear(self):
                return self.state.price

        return Chat().kickoff(inputs={"id": "chat-1", **inputs})

    provider = InMemoryProvider()
    turn(int, price=1)
    assert isinstance(turn(float), float)
    with pytest.raises(ConfigError, match="the stored price does not fit its state: .* pass the field in inputs"):
        turn(str)
    assert turn(str, price="one") == "one"


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


def fuel(state, *, fails, seen):
    """A flow of a state whose class may change: its second method fails, or notes what it sees of the state."""

    class Trip(Flow[state]):
        checkpoint = CheckpointConfig(location="here", provider=SHARED)

        @start()
        def plan(self):
            self.state.litres = 5
            self.state.stops.append("3")

        @listen(plan)
        def go(self):
            if fails:
                raise OSError("no wind")
            self.state.stops.append(7)
            seen.append((self.state.litres, list(self.state.stops)))

        @listen(go)
        def arrive(self):
            seen.append((self.state.litres, list(self.state.stops)))

    return Trip()


SHARED = InMemoryProvider()


class Tank(BaseModel):
    litres: int = 0
    stops: list[str] = []


def cut_and_resumed(run_id, **types):
    seen = []
    with pytest.raises(OSError, match="no wind"):
        fuel(Tank, fails=True, seen=seen).kickoff(run_id=run_id)
    fuel(create_model("Tank", **types), fails=False, seen=seen).kickoff(run_id=run_id)
    return seen


def test_recorded_fields_are_converted_to_the_types_that_they_have_now():
    seen = cut_and_resumed("floats", litres=(float, 0.0), stops=(list[int], []))
    assert seen == [(5.0, [3, 7])] * 2
    assert all(isinstance(litres, float) for litres, _ in seen)


@pytest.mark.parametrize(("run_id", "kind"), [("text", str), ("list", list[int]), ("set", set[int])])
def test_a_recorded_field_that_does_not_fit_its_type_of_now_ends_the_kickoff_until_that_is_mended(run_id, kind):
    found = "flow 'Trip': the recorded litres does not fit its state: Input should be a valid "
    with pytest.raises(ConfigError, match=f"{found}.*Undo that; or fork .*'method:NAME.state.litres'"):
        cut_and_resumed(run_id, litres=(kind, ...), stops=(list[str], []))
    seen = []
    fuel(Tank, fails=False, seen=seen).kickoff(run_id=run_id)
    assert seen == [(5, ["3", 7])] * 2


def test_a_field_that_a_method_has_set_to_another_type_stays_as_it_is_while_the_class_is_the_same():
    seen = []
    with pytest.raises(OSError, match="no wind"):
        fuel(Tank, fails=True, seen=seen).kickoff(run_id="same")
    fuel(create_model("Tank", litres=(int, 1), stops=(list[str], [])), fails=False, seen=seen).kickoff(run_id="same")
    assert seen == [(5, ["3", 7])] * 2


def test_a_class_with_another_name_is_told_how_to_go_on_with_its_old_runs():
    seen = []

    class Voyage(type(fuel(Tank, fails=False, seen=seen))):
        pass

    with pytest.raises(OSError, match="no wind"):
        fuel(Tank, fails=True, seen=seen).kickoff(run_id="renamed")
    with pytest.raises(RunMismatch, match="If only its name has changed since, set name='Trip'"):
        Voyage().kickoff(run_id="renamed")
    with pytest.raises(RefError, match=r"'latest' means the newest run of this definition.*renamed \(flow 'Trip'\)"):
        Voyage().kickoff(from_checkpoint="latest")
    Voyage(name="Trip").kickoff(run_id="renamed")
    assert seen == [(5, ["3", 7])] * 2


def test_a_fork_with_an_edit_of_the_field_goes_on_with_the_new_type():
    seen = []
    with pytest.raises(OSError, match="no wind"):
        fuel(Tank, fails=True, seen=seen).kickoff(run_id="edited")
    now = fuel(create_model("Tank", litres=(str, ""), stops=(list[str], [])), fails=False, seen=seen)
    now.fork("edited", edits={"method:plan.state.litres": "five"}).kickoff()
    assert seen == [("five", ["3", 7])] * 2


def test_a_validator_of_the_whole_state_sees_the_other_fields_when_one_is_converted():
    class Checked(Tank):
        litres: float = 0.0

        @model_validator(mode="after")
        def has_stopped(self):
            assert self.stops
            return self

    seen = []
    with pytest.raises(OSError, match="no wind"):
        fuel(Tank, fails=True, seen=seen).kickoff(run_id="checked")
    fuel(Checked, fails=False, seen=seen).kickoff(run_id="checked")
    assert seen == [(5.0, ["3", 7])] * 2
