"""A flow that cannot work is an error when its class is made, which says what is wrong with it."""

from __future__ import annotations

from enum import Enum
from typing import Literal

import pytest

from crewlite.errors import ConfigError
from crewlite.events import BaseEvent
from crewlite.flow import Flow, and_, listen, or_, router, start
from crewlite.flow.classes.labels import known_labels


def act(self):
    return None


def flow(**methods):
    """A class with these methods, each given as its decorator."""
    made = {}
    for name, mark in methods.items():

        def work(self):
            return None

        work.__name__ = name
        made[name] = mark(work)
    return type("Plan", (Flow,), made)


@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ({"a": start(), "b": listen("plam"), "plan": listen("a")}, "'b' waits for 'plam', which is no method"),
        ({"plan": start(), "b": listen("plam")}, "did you mean 'plan'?"),
        ({"a": start(), "r": router("a", emit=["go"]), "b": listen("gone")}, "'b' waits for 'gone'"),
        ({"a": listen("b"), "b": listen("a")}, "no method begins it; mark one with @start()"),
        ({"a": start(), "b": listen("c"), "c": listen("b")}, "'b' never starts, as 'c' can never occur"),
        ({"a": start(), "b": listen(and_("a", "c")), "c": listen("b")}, "'b' never starts, as 'c' can never occur"),
        ({"a": start(), "b": listen(or_("b", "c")), "c": listen("b")}, "rename the method, for example to 'on_b'"),
        ({"a": start(), "r": router(emit=["x"])}, "nothing starts 'r'; give it a condition"),
        (
            {"a": start(), "r": router("a", emit=["b"]), "b": listen("b")},
            "router 'r' returns the label 'b', which is also the name of a method",
        ),
        ({"a": start(), "kickoff": listen("a")}, "Plan.kickoff: every flow has a 'kickoff' of its own"),
    ],
)
def test_a_graph_that_cannot_work_says_why(methods, told):
    with pytest.raises(ConfigError) as caught:
        flow(**methods)
    assert told in str(caught.value)
    assert "rename one of them" not in str(caught.value) or "abstract=True" not in str(caught.value)


def test_a_method_with_the_name_of_the_label_that_it_listens_to_is_told_to_be_renamed():
    class Color(Enum):
        BLUE = "blue"

    with pytest.raises(ConfigError, match="'blue' waits for 'blue', which is the method itself.* to 'on_blue'"):

        class Plan(Flow):
            @start()
            def first(self): ...

            @router(first)
            def choose(self):
                return self.state["color"]

            @listen(Color.BLUE)
            def blue(self): ...


def nested(depth):
    """A condition with `depth` conditions inside each other."""
    condition = "a"
    for _ in range(depth):
        condition = or_(condition, "b")
    return condition


def test_a_decorator_that_is_misused_says_so():
    for make, told in [
        (lambda: type("Plan", (Flow,), {"a": start(act)}), "write @start(), with parentheses"),
        (
            lambda: type("Plan", (Flow,), {"a": start()(act), "b": listen(act)}),
            "Plan.b: write @listen(...), with the method, label or condition that starts it in parentheses",
        ),
        (lambda: listen(3), "@listen(...): 3 is no condition"),
        (lambda: or_(), "or_() has no conditions"),
        (lambda: router("a", emit=[]), r"@router(emit=...) is []; wanted a list of labels"),
        (lambda: router("a", emit=5), r"@router(emit=...) is 5; wanted a list of labels"),
        (lambda: start(retries=-1)(act), "retries is -1"),
        (lambda: start(retry=1)(act), "@start has no option 'retry'"),
        (
            lambda: start(runtime="isolated")(act),
            "@start 'act': runtime is 'isolated', but a method works with its flow, which another process does not have",
        ),
        (lambda: start(runtime="other")(act), "@start 'act': runtime is 'other'; wanted one of inline, or an executor"),
        (lambda: nested(51), "or_(...) has more than 50 conditions inside each other; wanted a flat list"),
        (lambda: listen("a")(listen("b")(act)), "method 'act' has two conditions"),
    ]:
        with pytest.raises(ConfigError) as caught:
            make()
        assert told in str(caught.value)


def test_a_way_through_a_graph_may_be_longer_than_the_stack_is_deep():
    def method(name):
        def work(self):
            return "back" if name.startswith("judge") else name

        work.__name__ = name
        return work

    size = 1500
    methods = {"m0": start()(method("m0")), "m1": listen(or_("m0", "back"))(method("m1"))}
    methods |= {f"m{n}": listen(f"m{n - 1}")(method(f"m{n}")) for n in range(2, size)}
    methods["judge"] = router(f"m{size - 1}", emit=["back", "end"])(method("judge"))
    made = type(
        "Long",
        (Flow,),
        {**methods, "after": listen(nested(50))(method("after"))}
        | {"a": start()(method("a")), "b": start()(method("b"))},
    )
    assert made.graph.cycles.paths[f"m{size - 1}"] == made.graph.cycles.paths["judge"] == ("m1",)
    assert made.graph.places["judge"] == (size + 1, size)
    assert f"m{size - 1}" in made.mermaid()
    chain = {name: one for name, one in methods.items() if name not in ("m1", "judge")}
    assert type("Chain", (Flow,), {**chain, "m1": listen("m0")(method("m1"))})(max_concurrency=1).kickoff() == "m1499"


def test_a_class_that_its_subclasses_complete_is_checked_with_them():
    class Base(Flow, abstract=True):
        @listen("begin")
        def end(self):
            return "ended"

    class Whole(Base):
        @start()
        def begin(self):
            return 1

    class Other(Whole):
        def end(self):  # an override keeps its place in the graph
            return "otherwise"

    assert (Whole().kickoff(), Other().kickoff()) == ("ended", "otherwise")
    with pytest.raises(ConfigError, match="waits for 'begin'"):
        type("Part", (Base,), {"act": start()(act)})


def test_a_conditional_start_that_begins_the_flow_may_wait_for_what_nobody_returns_yet():
    class Watch(Flow):
        @start("another_night")
        def look_out(self):
            return "a light"

        @listen(look_out)
        def report(self, seen):
            return f"seen: {seen}"

    assert Watch().kickoff() == "seen: a light"
    with pytest.raises(ConfigError, match="'b' waits for 'agian', which is no method.*did you mean 'again'"):
        flow(b=start("agian"), r=router("b", emit=["again"]))
    with pytest.raises(ConfigError, match="'b' waits for 'another_night'"):
        flow(a=start(), b=start("another_night"))


class Way(Enum):
    LEFT = "left"
    RIGHT = "right"


STRAIGHT = "straight"
topic = problem = "a text of the module"


def test_the_labels_of_a_router_are_read_from_its_annotation_or_its_source():
    def literal(self) -> Literal["a", "b"]: ...
    def maybe(self) -> Literal["a"] | None: ...
    def enum(self) -> Way: ...
    def both(self) -> bool: ...

    def source(self):
        def inner():
            return "not this one"

        if self.state:
            return "one" if inner() else "two"
        elif self.other:
            return Way.LEFT
        label = "three"
        if self.last:
            return STRAIGHT
        return label

    def unknown(self):
        return self.state["label"]

    def looped(self):
        for label in self.labels:
            return label

    def given(self, topic):
        return topic

    def caught(self):
        try:
            return "one"
        except ValueError as problem:
            return problem

    assert known_labels(literal) == {"a", "b"}
    assert known_labels(maybe) == {"a"}
    assert known_labels(enum) == {"left", "right"}
    assert known_labels(both) == {"True", "False"}
    assert known_labels(source) == {"one", "two", "left", "three", "straight"}
    assert known_labels(unknown) is None
    assert known_labels(looped) is None
    assert known_labels(given) is None, "it returns its parameter, not what the module has under that name"
    assert known_labels(caught) is None


def test_where_labels_cannot_be_known_nothing_is_complained_of():
    class Plan(Flow):
        @start()
        def begin(self):
            return "later"

        @router(begin)
        def choose(self, given):
            return given

        @listen("later")
        def end(self, given):
            return given

    assert Plan().kickoff() == "later"


def test_a_router_compiled_from_a_text_is_not_read_from_the_lines_of_its_module():
    other = BaseEvent.emitted_by  # stands in the same line of that module
    lines = "\n" * (other.__code__.co_firstlineno - 1)
    module = {"__name__": other.__module__}
    exec(compile(f"{lines}def choose(self, given):\n    return given", "text-1", "exec"), module)
    assert known_labels(module["choose"]) is None


def test_the_graph_is_plain_data():
    class Plan(Flow):
        @start()
        def begin(self): ...

        @router(or_(begin, "again"))
        def choose(self):
            return "again"

    assert [tuple(edge) for edge in Plan.graph.edges] == [("begin", "choose", None), ("choose", "choose", "again")]
    assert (list(Plan.graph.methods), Plan.graph.entries) == (["begin", "choose"], ["begin"])


def test_a_label_that_a_method_returns_which_is_no_router_says_so():
    with pytest.raises(ConfigError, match="'b' waits for 'go on', .*; 'a' returns it, but only what a @router returns"):

        class Wrong(Flow):
            @start()
            def a(self):
                return "go on"

            @listen("go on")
            def b(self):
                pass
