"""What is set on a flow before its kickoff are inputs: part of what is asked, on a resume and in a fork too."""

import uuid
from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from crewlite import CheckpointConfig
from crewlite.errors import ConfigError, InputsChanged, Suspended
from crewlite.flow import Flow, flow, listen, persist, start, step
from crewlite.state import InMemoryProvider


def store():
    return CheckpointConfig(location="here", provider=InMemoryProvider())


class Trip(BaseModel):
    topic: str = "none"
    words: int = 3
    stops: list[str] = []
    token: str = Field(default_factory=lambda: uuid.uuid4().hex)


class Write(Flow[Trip]):
    fails = False

    @start()
    def first(self):
        return f"about {self.state.topic}"

    @listen(first)
    def second(self, text):
        if type(self).fails:
            raise ConnectionError("no route")
        return f"{text} {self.state.topic} {self.state.stops}"


class Open(Flow):
    @start()
    def first(self):
        return f"about {self.state['topic']}"


def given(topic, setting=None):
    return Write(topic=topic, checkpoint=setting)


def assigned(topic, setting=None):
    made = Write(checkpoint=setting)
    made.state.topic = topic
    return made


def begun_with(topic, setting=None):
    return Write(initial_state=Trip(topic=topic), checkpoint=setting)


def changed_inside(topic, setting=None):
    made = Write(checkpoint=setting)
    made.state.stops.append(topic)
    return made


def with_mapping(topic, setting=None):
    return Open(initial_state={"topic": topic}, checkpoint=setting)


def with_key(topic, setting=None):
    made = Open(checkpoint=setting)
    made.state["topic"] = topic
    return made


def begun_with_changed(topic, setting=None):
    state = Trip()
    state.stops.append(topic)
    return Write(initial_state=state, checkpoint=setting)


WAYS = [given, assigned, begun_with, begun_with_changed, changed_inside, with_mapping, with_key]


@pytest.mark.parametrize("way", WAYS)
def test_a_finished_run_does_not_answer_another_question(way):
    setting = store()
    result = way("tides", setting).kickoff(run_id="r")
    assert "tides" in result
    with pytest.raises(InputsChanged, match="Set on the flow before this kickoff: (topic|stops)"):
        way("winds", setting).kickoff(run_id="r")
    assert way("tides", setting).kickoff(run_id="r") == result


@pytest.mark.parametrize("way", [given, assigned, begun_with, changed_inside])
def test_an_unfinished_run_goes_on_for_its_own_question_alone(way, monkeypatch):
    setting = store()
    monkeypatch.setattr(Write, "fails", True)
    with pytest.raises(ConnectionError):
        way("tides", setting).kickoff(run_id="r")
    monkeypatch.setattr(Write, "fails", False)
    with pytest.raises(InputsChanged):
        way("winds", setting).kickoff(run_id="r")
    assert "winds" in way("winds", setting).kickoff(resume=True), "a run of its own"
    assert "tides" in way("tides", setting).kickoff(run_id="r")


@pytest.mark.parametrize("way", WAYS)
def test_a_fork_that_sets_something_else_runs_the_flow_inside_again(way):
    @step
    def choose(topic):
        return topic

    @flow(checkpoint=store())
    def outer(topic):
        chosen = choose(topic)
        return [chosen, way(chosen).kickoff()]

    assert "tides" in outer.kickoff("tides", run_id="r")[1]
    for changes in ({"edits": {"step:choose": "moons"}}, {"inputs": {"topic": "moons"}}):
        chosen, inner = outer.fork("r", **changes).kickoff()
        assert chosen == "moons"
        assert "moons" in inner
    preview = outer.fork("r", edits={"step:choose": "suns"}).preview()
    assert {one.verdict for one in preview if "method" in one.address} == {"runs"}


def test_a_fork_keeps_its_own_inputs_whatever_is_set_on_the_flow_it_is_made_of():
    made = given("tides", store())
    made.kickoff(run_id="r")
    assert "winds" in made.fork("r", inputs={"topic": "winds"}).kickoff()
    assert made.fork("r", rerun=["method:first"]).kickoff() == made.kickoff(run_id="r")


def test_an_input_of_the_kickoff_goes_before_what_was_set():
    setting = store()
    made = given("tides", setting)
    assert "winds" in made.kickoff({"topic": "winds"}, run_id="r")
    assert "winds" in made.kickoff({"topic": "winds"}, run_id="r")
    assert "tides" in made.kickoff(run_id="other"), "the flow keeps it"


class Words(BaseModel):
    words: int | None = 5


@pytest.mark.parametrize("kind", [Words, dict])
def test_an_input_that_is_none_sets_its_field(kind):
    class Plan(Flow[kind]):
        checkpoint = True

        @start()
        def begin(self):
            return self.state.get("words", 5) if kind is dict else self.state.words

    assert Plan().kickoff({"words": None}) is None
    assert Plan().kickoff({"words": 3}, run_id="three") == 3
    assert Plan().fork("three", inputs={"words": None}).kickoff() is None


def test_an_unfinished_run_of_a_persisted_state_is_not_gone_on_with_if_an_input_is_none_now():
    @persist
    class Plan(Flow[dict]):
        @start()
        def begin(self):
            return self.ask("Go on?", bool)

    with pytest.raises(Suspended):
        Plan().kickoff({"id": "chat"})
    with pytest.raises(InputsChanged, match="words"):
        Plan().kickoff({"id": "chat", "words": None})


def test_each_run_draws_defaults_of_its_own_and_a_resume_keeps_them():
    made = Write(topic="tides", checkpoint=store())
    tokens = []
    for run_id in ("a", "b", "a"):
        made.kickoff(run_id=run_id)
        tokens.append(made.state.token)
    assert tokens[0] == tokens[2] != tokens[1]


def test_what_a_run_of_a_persisted_state_has_left_goes_before_what_is_set():
    @persist(store())
    class Count(Flow):
        @start()
        def count(self):
            self.state["count"] = self.state.get("count", 0) + 1
            return self.state["count"]

    counts = []
    for _ in range(3):
        made = Count()
        made.state["count"] = 0
        counts.append(made.kickoff({"id": "mine"}))
    assert counts == [1, 2, 3]


@pytest.mark.parametrize("kind", [Trip, dict])
def test_what_is_set_in_the_state_after_a_kickoff_is_warned_of_by_the_next(kind, caplog):
    class Count(Flow[kind]):
        @start()
        def count(self):
            values = self.state if kind is dict else vars(self.state)
            return len(values["stops"]), values["words"]

    made = Count(words=3, stops=["a"])
    for _ in range(2):
        assert made.kickoff() == (1, 3)
        assert dict(made.state)["words"] == 3
    assert not caplog.messages
    dict(made.state)["stops"].append("b")
    assert made.kickoff() == (1, 3)
    assert caplog.messages == [
        "flow Count: stops was set in its state after a kickoff, and no kickoff begins with that: pass inputs"
    ]
    assert made.kickoff() == (1, 3)
    assert len(caplog.messages) == 1


def test_what_was_set_is_taken_as_it_is():
    class Kept(BaseModel):
        count: Annotated[int, AfterValidator(lambda count: count + 1)] = 0
        tags: Annotated[list[str], BeforeValidator(str.split)] = []
        name: str = Field("none", frozen=True)

    class Show(Flow[Kept]):
        @start()
        def show(self):
            return self.state.model_dump()

    shown = {"count": 2, "tags": ["a", "b"], "name": "x"}
    assert Show(initial_state=Kept(count=1, tags="a b", name="x")).kickoff() == shown
    made = Show()
    made.state.count = None
    assert made.kickoff()["count"] is None


def test_a_field_that_was_removed_is_gone():
    class Show(Flow):
        initial_state = {"x": 1, "y": 2}  # noqa: RUF012 - the setting that is tested

        @start()
        def show(self):
            return sorted(self.state)

    made, other = Show(), Show(initial_state={"x": 1, "z": 2})
    made.state.pop("x")
    other.state.pop("x")
    assert made.kickoff() == ["id", "y"]
    assert other.kickoff() == ["id", "z"]


class Kinds(Flow):
    @start()
    def begin(self):
        return dict(self.state)


def test_an_initial_state_that_is_set_later_is_that_of_the_next_kickoff():
    flow = Kinds()
    flow.state["lost"] = 1
    flow.initial_state = {"a": 2}
    assert flow.kickoff({"id": "x"}) == {"a": 2, "id": "x"}
    flow.initial_state = Trip
    assert flow.kickoff({"topic": "sea"})["topic"] == flow.state.topic == "sea"
    with pytest.raises(ConfigError, match="has a state of 3; wanted a pydantic class, or dict"):
        flow.initial_state = 3


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("name", 3, "flow is named 3"),
        ("checkpoint", "here", "checkpoint is 'here'; wanted True, or CheckpointConfig"),
        ("max_concurrency", "x", "max_concurrency is 'x'; wanted a whole number"),
        ("max_method_calls", 0, "max_method_calls is 0; wanted a whole number"),
        ("failure_policy", 3, "failure_policy is 3; wanted a FailurePolicy"),
    ],
)
def test_a_setting_that_is_set_later_is_checked_at_the_kickoff(setting, value, told):
    flow = Kinds()
    setattr(flow, setting, value)
    with pytest.raises(ConfigError, match=told):
        flow.kickoff()
