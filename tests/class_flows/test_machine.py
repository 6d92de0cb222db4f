"""Which method starts when, method by method: what is told to the machine, and what it starts."""

from __future__ import annotations

from itertools import permutations

import pytest

from crewlite.flow import Flow, and_, listen, or_, router, start
from crewlite.flow.classes.machine import Machine

S, R = start(), lambda *given: router(*given, emit=["x", "y"])
LOOP = {"begin": S, "draft": listen(or_("begin", "x")), "check": R("draft"), "end": listen("y")}
TURNS = {"talk": R(or_("hello", "one", "two")), "hello": S, "one": listen("x"), "two": listen("y")}
SIDES = {
    "begin": S,
    "left": listen(or_("begin", "x")),
    "right": listen(or_("begin", "x")),
    "join": R(and_("left", "right")),
    "end": listen("y"),
}
INNER = {**LOOP, "other": S, "join": listen(and_("y", "other"))}

CASES = {
    "a listener starts each time": ({"a": S, "b": listen("a")}, "a", "a> b>a"),
    "or_ starts once": ({"a": S, "b": S, "c": listen(or_("a", "b"))}, "a b", "a> b> c>a"),
    "and_ starts when both have ended": ({"a": S, "b": S, "c": listen(and_("a", "b"))}, "a b", "a> b> c>b"),
    "nested": (
        {"a": S, "b": S, "c": S, "d": listen(or_(and_("a", "b"), "c"))},
        "a c b",
        "a> b> c> d>c",
    ),
    "or_ of the way in and the way back": (
        LOOP,
        "begin draft check:x draft check:y end",
        "draft>begin draft>check end>check",
    ),
    "alternating ways back": (
        TURNS,
        "hello talk:x one talk:y two talk:x one",
        "hello> talk>hello one>talk talk>one two>talk talk>two one>talk talk>one",
    ),
    "a label that the router was not known to return": (
        {"a": S, "b": R("a"), "c": router("x", emit=["z"]), "d": listen("z")},
        "a b:z",
        "d>b",
    ),
    "a listener outside hears each round": (
        {**TURNS, "log": listen(or_("one", "two"))},
        "hello talk:x one talk:y two",
        "log>one log>two",
    ),
    "and_ of a cycle that has ended and another branch": (
        INNER,
        "begin other draft check:x draft check:x draft check:y",
        "join>check",
    ),
    "or_ of a cycle that has ended and another branch starts once": (
        {**LOOP, "other": S, "join": listen(or_("y", "other"))},
        "begin other draft check:x draft check:y",
        "join>other",
    ),
    "and_ in a cycle holds anew each round": (
        {
            "begin": S,
            "a": listen(or_("begin", "x")),
            "b": listen("a"),
            "c": listen("a"),
            "check": R(and_("b", "c")),
        },
        "begin a b c check:x a c b check:y",
        "check>c check>b",
    ),
    "what was there before a cycle counts in each round": (
        {"docs": S, "begin": S, "a": listen(or_("begin", "x")), "check": R(and_("a", "docs"))},
        "begin a docs check:x a check:y",
        "check>docs check>a",
    ),
    "the end of a branch in an inner cycle is joined in the round of the outer one": (
        {
            "begin": S,
            "plan": listen(or_("begin", "next")),
            "side": listen("plan"),
            "draft": listen(or_("plan", "again")),
            "check": router("draft", emit=["again", "fine"]),
            "publish": router(and_("fine", "side"), emit=["next", "stop"]),
        },
        "begin plan side draft check:again draft check:fine publish:next plan draft check:fine side publish:stop",
        "publish>check publish>side",
    ),
    "branches that begin side by side are joined in each round": (
        SIDES,
        "begin left right join:x right left join:x left right join:y end",
        "left>begin join>right left>join join>left left>join join>right end>join",
    ),
    "so are branches that begin the flow": (
        {"left": start("x"), "right": start("x"), "join": R(and_("left", "right"))},
        "left right join:x right left join:y",
        "join>right join>left",
    ),
    "so are branches that begin behind different methods": (
        {**SIDES, "other": S, "right": listen(or_("other", "x"))},
        "other begin left right join:x right left join:y",
        "join>right join>left",
    ),
    "so are branches of several methods, and what follows the join decides": (
        {
            **SIDES,
            "more": listen("left"),
            "join": listen(and_("more", "right")),
            "decide": R("join"),
            "end": listen("y"),
        },
        "begin left right more join decide:x right left more join decide:y",
        "join>more join>more end>decide",
    ),
    "so are branches whose join also waits for what begins the cycle": (
        {
            "begin": S,
            "join": R(and_("left", "right", or_("begin", "more"))),
            "left": listen(or_("begin", "x")),
            "right": listen(or_("begin", "x")),
            "more": listen("x"),
        },
        "begin left right join:x right more left join:y",
        "join>right join>left",
    ),
    "so are branches of which one has a cycle of its own": (
        {
            "begin": S,
            "left": listen(or_("begin", "x", "again")),
            "right": listen(or_("begin", "x")),
            "check": router("left", emit=["again", "fine"]),
            "join": R(and_("fine", "right")),
        },
        "begin left right check:again left check:fine join:x right left check:again left check:fine join:y",
        "join>check join>check",
    ),
    "so are branches if what begins them starts their join too, which starts once a round": (
        {**SIDES, "join": R(or_(and_("left", "right"), "begin"))},
        "begin left join:x right left right join:x left right join:y end",
        "join>begin left>begin left>join join>right left>join join>right end>join",
    ),
    "so are branches of which one alone is enough": (
        {**SIDES, "other": listen(or_("begin", "x")), "join": R(or_(and_("left", "right"), "other"))},
        "begin left other right join:x left right join:y other end",
        "left>begin join>other left>join join>right end>join",
    ),
    "a method in a cycle that two begin side by side starts once a round": (
        {"begin": S, "draft": listen(or_("begin", "x")), "check": R(or_("draft", "begin")), "end": listen("y")},
        "begin draft check:x draft check:y end",
        "check>begin draft>begin draft>check check>draft end>check",
    ),
    "two routers that start each other and begin side by side have rounds of their own": (
        {"begin": S, "one": R(or_("begin", "y")), "two": router(or_("begin", "x"), emit=["y", "z"])},
        "begin one:x two:y one two",
        "one>begin two>begin two>one one>two",
    ),
    "either of two joins starts what routes to both": (
        {"begin": S, "a": S, "c": S, "r": R(or_("begin", "join")), "join": listen(or_(and_("a", "x"), and_("c", "y")))},
        "a c begin r:x join r:y join r",
        "r>begin join>r r>join join>r r>join",
    ),
}


def graph(methods):
    made = {}
    for name, mark in methods.items():

        def work(self):
            return None

        work.__name__ = name
        made[name] = mark(work)
    return type("Plan", (Flow,), made).graph


def orders(methods):
    """All orders of a few methods; of many, some that have each method in each place."""
    if len(methods) <= 5:
        return list(permutations(methods))
    names = [*methods]
    turned = [names[at:] + names[:at] for at in range(len(names))]
    return turned + [one[::-1] for one in turned]


@pytest.mark.parametrize("case", CASES)
def test_what_starts(case):
    methods, told, expected = CASES[case]
    wanted = {each.partition(">")[0] for each in expected.split()}
    for order in orders(methods):
        machine = Machine(graph({name: methods[name] for name in order}))
        at_work = machine.begin()
        started = sorted(f"{one.method}>" for one in at_work)
        for each in told.split():
            name, _, label = each.partition(":")
            ended = next(one for one in at_work if one.method == name)
            at_work.remove(ended)
            found = machine.ended(ended, label or None)
            started += sorted(f"{one.method}>{ended.method}" for one in found)
            at_work += found
        assert [each for each in started if each.partition(">")[0] in wanted] == expected.split()


def test_a_start_with_a_condition_begins_the_flow_if_there_is_no_other():
    both = graph({"a": S, "b": start("a")})
    alone = graph({"b": start("x"), "check": R("b")})
    assert [one.method for one in Machine(both).begin()] == ["a"]
    assert [one.method for one in Machine(alone).begin()] == ["b"]


def test_a_long_cycle_takes_the_same_time_each_round():
    machine = Machine(graph(LOOP))
    (ended,) = machine.ended(machine.begin()[0])
    for turn in range(1, 20_000):
        (check,) = machine.ended(ended)
        (ended,) = machine.ended(check, "x")
        assert ended.round == (turn + 1,)


@pytest.mark.parametrize("order", [list, reversed])
def test_which_method_is_the_last_one_follows_from_the_graph_and_not_from_the_order_of_the_class(order):
    methods = {
        **SIDES,
        "more": listen("x"),  # only later rounds have it
        "join": R(and_("left", "right", or_("begin", "more"))),
        "log": listen("more"),
    }
    made = graph({name: methods[name] for name in order([*methods])})
    ended = [("begin", ()), ("left", (1,)), ("join", (1,)), ("more", (2,)), ("join", (2,)), ("log", ()), ("end", ())]
    assert sorted(ended, key=lambda one: made.place(*one)) == ended
