"""Mistakes in a flow say what was found, what was wanted and what to write, where they are made."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Literal

import pytest
from pydantic import BaseModel, PrivateAttr

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.errors import ConfigError, OnLoopThread, TooManyCalls
from crewlite.flow import Flow, FlowState, human_feedback, listen, or_, persist, router, start


class Draft(BaseModel):
    words: int = 0


def begin(self):
    return "begun"


def follow(self, given):
    return given


def plan(**methods):
    """A class of a flow that begins, with these methods besides."""
    return type("Plan", (Flow,), {"initial_state": Draft, "begin": start()(begin), **methods})


def incomplete():
    class Part(Flow, abstract=True):
        @listen("x")
        def end(self): ...

    return Part


def number(result, hint=None):
    """A flow with a router that returns a number."""

    def judge(self):
        return result

    if hint:
        judge.__annotations__["return"] = hint
    return plan(judge=router("begin")(judge))


def two(self, given, other): ...


def keyword(self, *, given): ...


def nothing(): ...


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: plan()(name=""), "flow is named ''; wanted a name"),
        (lambda: plan()(max_concurrency=0), "flow 'Plan': max_concurrency is 0; wanted a whole number, 1 or more"),
        (lambda: start(retries=-1)(begin), "@start 'begin': retries is -1; wanted a whole number"),
        (lambda: listen("begin", timeout=0)(follow), "@listen 'follow': timeout is 0; wanted seconds"),
        (lambda: router("begin", retry_delay="1")(follow), "@router 'follow': retry_delay is '1'; wanted seconds"),
        (
            lambda: listen("begin", retires=1)(follow),
            "@listen has no option 'retires' (did you mean 'retries'?)",
        ),
        (lambda: start(runtime="thread")(begin), "@start 'begin': runtime is 'thread'; wanted one of inline, or an"),
        (lambda: start(runtime="isolated")(begin), "@start 'begin': runtime is 'isolated', but a method works with"),
        (lambda: start(failure_policy=3)(begin), "@start 'begin': failure_policy is 3; wanted a FailurePolicy"),
        (lambda: start()(3), "@start 'int' is 3; wanted a function"),
        (lambda: human_feedback("Well?")(3), "@human_feedback 'int' is 3; wanted a function"),
        (lambda: listen("begin", retries=-1)(start()(begin)), "@listen 'begin': retries is -1"),
        (lambda: Flow().kickoff(), "flow 'Flow' has no methods; mark one with @start()"),
        (lambda: Flow.from_checkpoint("run"), "flow 'Flow' has no methods; mark one with @start()"),
        (
            lambda: incomplete()().kickoff(),
            "'Part' cannot work: no method begins it; mark one with @start(). (It is abs",
        ),
        (lambda: incomplete().from_checkpoint("run"), "flow 'Part' cannot work: no method begins it"),
        (lambda: number(3)().kickoff(), "Router 'judge' returned 3; wanted a label: a text, a member of an Enum"),
        (lambda: number(3, Literal[3]), "Router 'judge' returned 3; wanted a label: a text, a member of an Enum"),
        (lambda: listen("a", "b"), "@listen takes one condition, not 2. Join them: or_(...) holds once one of them"),
        (lambda: start("a", "b"), "@start takes one condition, not 2"),
        (lambda: router("a", "b", "c"), "@router takes one condition, not 3"),
        (lambda: listen(), "@listen() has no condition; wanted a method, its name or a label"),
        (
            lambda: plan(two=listen("begin")(two)),
            "Plan.two takes given, other, but a method that another one starts is called with",
        ),
        (
            lambda: plan(keyword=listen("begin")(keyword)),
            "Plan.keyword takes given, but a method that another one starts",
        ),
        (
            lambda: plan(nothing=listen("begin")(nothing)),
            "Plan.nothing takes no self; wanted a method: def nothing",
        ),
        (
            lambda: start()(staticmethod(nothing)),
            "a staticmethod is no method of a flow; wanted a plain method with self",
        ),
        (lambda: start()(classmethod(begin)), "a classmethod is no method of a flow"),
        (lambda: start()(property(begin)), "a property is no method of a flow"),
        (lambda: plan(act=staticmethod(listen("begin")(follow))), "Plan.act is a staticmethod; wanted a plain method"),
        (lambda: router("a", emit=[3]), "@router(emit=...) is [3]; wanted a list of labels"),
        (lambda: plan()().kickoff(inputs="x"), "inputs is 'x'; wanted names and values"),
        (lambda: plan()().kickoff("x"), "inputs is 'x'; wanted names and values"),
        (lambda: setattr(plan()(), "state", Draft()), "flow 'Plan': its state cannot be replaced. Set its fields"),
        (
            lambda: plan()(persistence=object()),
            "'persistence'; a flow is kept with its checkpoints; instead: checkpoint=",
        ),
        (lambda: type("Open", (Flow,), {"begin": start()(begin)})(memory=True), "'memory'; a run knows its inputs"),
    ],
)
def test_a_mistake_says_what_is_wrong(make, told):
    with pytest.raises(ConfigError) as caught:
        make()
    assert told in str(caught.value)


def test_a_state_that_a_method_replaces_is_refused_there():
    class Plan(Flow[Draft]):
        @start()
        def act(self):
            self.state = Draft(words=2)

    with pytest.raises(ConfigError, match="its state cannot be replaced"):
        Plan().kickoff()


def test_a_method_that_begins_takes_any_inputs_and_further_arguments_may_have_defaults():
    class Plan(Flow):
        @start()
        def act(self, one, two, *, three=3):
            return [one, two, three]

        @listen(act)
        def end(self, given, more=4, *others, **named):
            return [*given, more]

    assert Plan().kickoff({"one": 1, "two": 2}) == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["fork", "stream", "kickoff", "ask", "plot", "preview", "state", "graph", "submit"])
@pytest.mark.parametrize("mark", [start(), listen("begin"), router("begin", emit=["x"])])
def test_a_method_that_would_hide_what_every_flow_has_is_refused(mark, name):
    def hides(self): ...

    hides.__name__ = name
    with pytest.raises(ConfigError, match=f"Plan.{name}: every flow has a '{name}' .* rename .* 'my_{name}'"):
        plan(**{name: mark(hides)})
    assert plan(**{f"my_{name}": start()(renamed(hides, f"my_{name}"))})().kickoff() is None


def renamed(func, name):
    func.__name__ = name
    return func


@pytest.mark.parametrize("name", ["fields_in", "first_values", "identity", "as_inputs", "graph", "initial_state"])
def test_a_function_without_a_decorator_that_would_hide_what_every_flow_has_is_refused(name):
    def helper(self):
        return "mine"

    begin = start()(renamed(lambda self: None, "begin"))
    for given in ({name: helper}, {name: property(helper)}, {name: staticmethod(helper)}):
        with pytest.raises(ConfigError, match=f"Plan.{name}: every flow has a '{name}' .* 'my_{name}'"):
            plan(**given, begin=begin)
    with pytest.raises(ConfigError, match=f"Both.{name}: every flow has"):
        type(Flow)("Both", (type("Mixin", (), {name: helper}), plan(begin=begin)), {})


@pytest.mark.parametrize("per_object", [property, functools.cached_property])
def test_a_property_gives_each_flow_a_setting_of_its_own(per_object, tmp_path):
    class Plan(Flow):
        name = per_object(lambda self: f"plan-{self.of}")
        checkpoint = per_object(lambda self: CheckpointConfig(location=tmp_path / self.of))
        max_method_calls = per_object(lambda self: len(self.of))

        def __init__(self, of):
            self.of = of
            super().__init__()

        @start("again")
        def begin(self):
            return self.name

        @router(begin)
        def judge(self) -> Literal["again"]:
            return "again"

    for of in ("tides", "sea"):
        with pytest.raises(TooManyCalls, match=f"'plan-{of}' was to start more than {len(of)} times"):
            Plan(of).kickoff(run_id="mine")
        assert History(location=tmp_path / of).run("mine").definition["name"] == f"plan-{of}"
    Plan.plot(str(tmp_path / "plot"))
    assert "object at" not in (tmp_path / "plot.html").read_text()
    with pytest.raises(ConfigError, match="Plan has checkpoint=, and @persist names another place"):
        persist()(Plan)


def test_a_class_may_do_more_before_a_verb_of_every_flow():
    class Told(Flow):
        @start()
        def begin(self):
            return "done"

        def kickoff(self, *args, **options):
            return f"told: {super().kickoff(*args, **options)}"

    assert Told().kickoff() == "told: done"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("method_outputs", "History(location).run(run_id).steps"),
        ("flow_id", "self.state.id"),
        ("usage_metrics", "flow.submit().usage"),
        ("recall", "what a run should know is kept in its state"),
    ],
)
def test_a_name_of_crewai_says_what_to_write(name, told):
    with pytest.raises(AttributeError) as caught:
        getattr(plan()(), name)
    assert told in str(caught.value)
    assert not hasattr(plan()(), "no_such_thing")


def test_a_property_that_fails_tells_its_own_error():
    class Plan(Flow):
        @start()
        def act(self): ...

        @property
        def broken(self):
            return self.missing

    with pytest.raises(AttributeError, match="'Plan' object has no attribute 'missing'"):
        Plan().broken  # noqa: B018


def test_a_state_may_be_a_flow_state_as_in_crewai():
    class Kept(FlowState):
        words: int = 1

    class Plan(Flow[Kept]):
        @start()
        def act(self):
            return self.state.id

    flow = Plan()
    assert flow.kickoff() == flow.state.id != ""
    assert Plan().kickoff({"id": "mine"}) == "mine"


def test_settings_of_crewai_that_ask_for_nothing_are_accepted():
    flow = plan()(tracing=False, persistence=None, suppress_flow_events=True, stream=False, words=3)
    assert flow.state == Draft(words=3)
    flow.kickoff()
    assert set(dict(flow.state)) == {"id", "words"}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("chekpoint", "did you mean 'checkpoint'"),
        ("max_concurency", "did you mean 'max_concurrency'"),
        ("max_tokens", "budgets are set for crews, tasks and agents"),
        ("max_cost_usd", "budgets are set for crews, tasks and agents"),
        ("max_requests", "budgets are set for crews, tasks and agents"),
        ("retrys", "set for methods"),
    ],
)
def test_a_class_attribute_that_looks_like_a_setting_is_refused(name, told):
    with pytest.raises(
        ConfigError, match=f"has no setting '{name}'; .*{told}.* give it a name that resembles no setting"
    ):
        type("F", (Flow,), {name: 3, "go": start()(lambda self: 1)})


def test_a_class_attribute_that_would_hide_a_verb_is_refused():
    with pytest.raises(ConfigError, match=r"a flow has no setting 'submit'; this would hide submit\(\) of every flow"):
        type("F", (Flow,), {"submit": 3, "go": start()(lambda self: 1)})
    made = plan(begin=start()(renamed(lambda self: 1, "begin")))()
    with pytest.raises(ConfigError, match=r"has no setting 'submit'; this would hide submit\(\) of every flow"):
        made.submit = 3
    assert made.stream().result == 1


def test_other_class_attributes_are_the_users_own():
    class Own(Flow):
        names = ("a", "b")
        llm = "offline"
        max_words = 3

        @start()
        def go(self):
            return self.names, self.llm, self.max_words

    assert Own().kickoff() == (("a", "b"), "offline", 3)


def blocking(verb):
    crew = Crew(tasks=[Task(description="d", expected_output="e", agent=Agent(role="r", goal="g", llm="offline"))])
    calls = {
        "crew.kickoff": lambda: crew.kickoff(),
        "crew.kickoff_for_each": lambda: crew.kickoff_for_each([{}]),
        "agent.kickoff": lambda: crew.agents[0].kickoff("?"),
        "agent.execute_task": lambda: crew.agents[0].execute_task(crew.tasks[0]),
        "task.execute_sync": lambda: crew.tasks[0].execute_sync(),
        "crew.test": lambda: crew.test(1, "offline"),
    }

    class Plan(Flow):
        @start()
        async def go(self):
            return calls[verb]()

    return Plan()


@pytest.mark.parametrize("on_own_loop", [False, True])
@pytest.mark.parametrize(
    ("verb", "instead"),
    [
        ("crew.kickoff", "write `await crew.akickoff(...)`, or take `async` from the `def`"),
        ("crew.kickoff_for_each", "write `await crew.akickoff_for_each(...)`, or take `async` from the `def`"),
        ("agent.kickoff", "write `await agent.akickoff(...)`, or take `async` from the `def`"),
        ("agent.execute_task", "write `await Crew(tasks=[task]).akickoff()`, or take `async` from the `def`"),
        ("task.execute_sync", "write `await Crew(tasks=[task]).akickoff()`, or take `async` from the `def`"),
        ("crew.test", ": take `async` from the `def`"),
    ],
)
def test_a_verb_that_would_block_the_loop_of_its_run_says_what_to_write(verb, instead, on_own_loop):
    flow = blocking(verb)
    with pytest.raises(OnLoopThread) as caught:
        asyncio.run(flow.akickoff()) if on_own_loop else flow.kickoff()
    assert str(caught.value).startswith(f"{verb.partition('.')[2]}() was called")
    assert instead in str(caught.value)


class Guarded(BaseModel):
    text: str = ""
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)


def test_an_initial_state_that_cannot_be_copied_is_told_to_be_given_as_its_class():
    def begin(self):
        return type(self.state).__name__

    with pytest.raises(ConfigError, match="initial_state cannot be copied .* or the class of the state"):
        type("Plan", (Flow,), {"initial_state": Guarded(), "begin": start()(begin)})().kickoff()
    assert type("Plan", (Flow,), {"initial_state": Guarded, "begin": start()(begin)})().kickoff() == "Guarded"


def test_a_result_that_contains_itself_is_not_recorded_and_the_flow_goes_on(memory, caplog):
    class Circular(Flow[dict]):
        checkpoint = memory()

        @start()
        def begin(self):
            circle = {}
            circle["circle"] = circle
            return circle

        @listen(begin)
        def end(self):
            return "done"

    assert Circular().kickoff() == "done"
    assert "method:begin" in caplog.text
    assert "contains itself" in caplog.text


@pytest.mark.parametrize("named", ["the method", "its name", "a condition of both"])
def test_a_start_without_parentheses_is_told_also_where_others_listen_to_it(named):
    with pytest.raises(ConfigError, match=r"Greeting\.hello: write @start\(\), with parentheses"):

        class Greeting(Flow):
            @start
            def hello(self):
                return "Hello"

            @listen({"the method": hello, "its name": "hello", "a condition of both": or_(hello, "other")}[named])
            def answer(self):
                return "Hello to you"
