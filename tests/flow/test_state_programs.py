"""Whatever steps do to the state, in whatever order, is what a dictionary says, wherever the run is cut and gone on with."""

from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from crewlite import CheckpointConfig, History, durable
from crewlite.errors import ChangeUnused
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider, JsonProvider, RuntimeState, SqliteProvider
from crewlite.state.format.operations import applied, difference
from tests.cuts import RUN, cut, entries_of

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


def played(program, setting, **options):
    @flow(name="played", checkpoint=setting)
    def whole(program):
        return body(program)

    return whole.kickoff(program, run_id=RUN) if not options else whole.fork(RUN, **options).kickoff()


def values(setting, ref=RUN):
    with History(setting.location, setting.provider) as history:
        run = history.run(ref)
        return shown(run.values | {f"items of {name}": [*items.values()] for name, items in run.collections.items()})


def hold(program, setting, *, every=1):
    """The whole run, the run cut after each commit, pruned there, and forks that do a step again."""
    bag: dict[str, object] = {}
    wanted = expected(program, bag)
    assert played(program, setting) == wanted
    assert values(setting) == shown(bag)
    entries, cuts = entries_of(setting), 0
    for at in range(1, len(entries), every):
        for pruned in (False, True):
            again = cut(entries, at, on_events=["step_completed"])
            if pruned:
                with History(again.location, again.provider) as history:
                    history.prune(keep_last=1)
            assert played(program, again) == wanted, f"cut after commit {at}, {pruned=}"
            assert values(again) == shown(bag), f"cut after commit {at}, {pruned=}"
            cuts += 1
    done = [one["address"] for entry in entries for one in entry.commit.get("steps", ()) if "value" in one]
    for number, address in enumerate(at for at in done if at):
        try:
            assert played(program, setting, rerun=[address], branch=f"b{number}") == wanted, f"{address} done again"
        except ChangeUnused:  # it is inside a try that failed
            continue
        assert values(setting, f"{RUN}/b{number}") == shown(bag), f"{address} done again"
    return cuts


def in_memory():
    return CheckpointConfig(location="whole", provider=InMemoryProvider(), on_events=["step_completed"])


@given(programs)
@settings(max_examples=15, deadline=None)
def test_any_program_that_is_cut_after_any_commit_has_the_state_that_a_dictionary_says(program):
    hold(program, in_memory())


def test_a_step_that_is_done_again_comes_before_those_that_were_requested_after_it():
    first, second = [[], [("set", "a", 0)], []], [[], [("set", "a", 1)]]
    hold([("beside", first, False), ("beside", second, False)], in_memory())


@pytest.mark.parametrize("kind", [JsonProvider, SqliteProvider])
@given(program=programs)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_program_has_it_on_disk(kind, program, tmp_path_factory):
    place = str(tmp_path_factory.mktemp("kept") / ("kept.db" if kind is SqliteProvider else "kept"))
    hold(program, CheckpointConfig(location=place, provider=kind(), on_events=["step_completed"]), every=3)


@pytest.mark.soak
def test_thousands_of_programs():
    cuts = []

    @given(programs)
    @settings(max_examples=1000, deadline=None, database=None)
    def any_program(program):
        cuts.append(hold(program, in_memory()))

    any_program()
    print({"programs": len(cuts), "cuts": sum(cuts)})
