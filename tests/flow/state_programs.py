"""Random programs of steps that change the state: nested, failing, tried again, side by side. They are plain data.

`body` takes such a program, `expected` says what a dictionary makes of it.
"""

from __future__ import annotations

import copy

from hypothesis import strategies as st

from crewlite import durable
from crewlite.flow import flow, step
from crewlite.state import RuntimeState
from crewlite.state.format.operations import applied, difference

names = st.sampled_from(["a", "b", "c"])
plain = st.one_of(
    st.tuples(st.just("set"), names, st.integers(0, 9)),
    st.tuples(st.just("append"), names, st.integers(0, 9)),
    st.tuples(st.just("put"), names, st.sampled_from(["x", "y"])),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("add"), names, st.integers(0, 9)),
    st.tuples(st.just("remove"), names, st.integers(0, 2)),
)
programs = st.recursive(
    st.lists(plain, max_size=3),
    lambda inner: st.lists(
        plain
        | st.tuples(st.sampled_from(["step", "fails", "retried", "submit", "left", "flow"]), inner)
        | st.tuples(st.just("beside"), st.lists(inner, min_size=2, max_size=3), st.booleans()),
        max_size=4,
    ),
    max_leaves=8,
)


class Broken(Exception):
    pass


def act(bag, operation):
    match operation:
        case ("set", name, value):
            bag[name] = [value]
        case ("append", name, value):
            found = bag.setdefault(name, [])
            if isinstance(found, list):
                found.append(value)
        case ("put", name, key):
            found = bag.get(name)
            bag[name] = {**found, key: len(found)} if isinstance(found, dict) else {key: 0}
        case ("delete", name):
            bag.pop(name, None)
        case ("add", name, value):
            items(bag, name).append(value)
        case ("remove", name, number):
            found = items(bag, name)
            if number < len(found):
                del found[number]


def items(bag, name):
    """The items of a collection as a dictionary has them."""
    return bag.setdefault(f"items of {name}", [])


def act_on(state, operation):
    match operation:
        case ("add", name, value):
            before = set(state.collection(name))
            assert state.collection(name).add(value) not in before
        case ("remove", name, number):
            if identifier := list(state.collection(name))[number : number + 1]:
                state.collection(name).remove(identifier[0])
        case _:
            act(state, operation)


def own(program, prefix):
    """The program with names of its own, so that nothing hangs on who commits first."""
    return [
        (verb, [own(inner, prefix) for inner in rest[0]], *rest[1:])
        if verb == "beside"
        else (verb, own(rest[0], prefix), *rest[1:])
        if isinstance(rest[0], list)
        else (verb, f"{prefix}{rest[0]}", *rest[1:])
        for verb, *rest in program
        if verb not in ("add", "remove")
    ]


def expected(program, bag):
    """What a dictionary says. A step works on a copy; what it changes comes in where its result is taken."""
    seen, left = [], []

    def done(inner):
        work = copy.deepcopy(bag)
        seen.append(expected(inner, work))
        return difference(bag, work)

    def take(changes):
        now = applied(copy.deepcopy(bag), changes)
        bag.clear()
        bag.update(copy.deepcopy(dict(now)))

    for verb, *details in program:
        match verb:
            case "step" | "retried" | "flow":
                take(done(details[0]))
            case "fails":
                done(details[0])
            case "submit":
                changes = done(details[0])
                bag["between"] = 1
                take(changes)
            case "left":  # nobody takes its result before the step around it ends
                left.append(done(own(details[0], f"left{len(left)}")))
                seen.pop()
            case "beside":
                parts = [own(inner, f"beside{n}") for n, inner in enumerate(details[0])]
                for changes in [done(part) for part in parts]:
                    take(changes)
            case _:
                act(bag, (verb, *details))
        seen.append(shown(bag))
    for changes in left:
        take(changes)
    return seen


def body(program):
    seen, left, state = [], 0, RuntimeState.current()
    for verb, *details in program:
        match verb:
            case "step":
                seen.append(inner(details[0]))
            case "retried":
                seen.append(retried(details[0]))
            case "flow":
                seen.append(nested.kickoff(program=details[0]))
            case "fails":
                try:
                    failing(details[0])
                except Broken as error:
                    seen.append(error.args[0])
            case "submit":
                handle = inner.submit(details[0])
                state["between"] = 1
                seen.append(handle.result())
            case "left":
                inner.submit(own(details[0], f"left{left}"))
                left += 1
            case "beside":
                handles = [inner.submit(own(part, f"beside{n}")) for n, part in enumerate(details[0])]
                order = list(range(len(handles)))[:: -1 if details[1] else 1]
                results = {n: handles[n].result() for n in order}
                seen += [results[n] for n in sorted(results)]
            case _:
                act_on(state, (verb, *details))
        collections = {f"items of {name}": list(state.collection(name).values()) for name in "abc"}
        seen.append(shown({**state, **collections}))
    return seen


def shown(bag):
    kept = ((name, value) for name, value in bag.items() if value or not name.startswith("items"))
    return copy.deepcopy(dict(sorted(kept)))


@step
def inner(program):
    return body(program)


@step
def failing(program):
    raise Broken(body(program))


@step(retries=1)
def retried(program):
    seen = body(program)
    if not durable.scope().past:
        raise Broken
    return seen


@flow
def nested(program):
    return body(program)
