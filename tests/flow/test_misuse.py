"""What newcomers write that cannot be: told at once, with what to write instead."""

from __future__ import annotations

import asyncio
import functools
import time

import pytest

import tests.flow.isolated_steps as far
from crewlite.errors import ConfigError, OnLoopThread
from crewlite.flow import ask, flow, sleep_for, step


@step
def add(a, b=0):
    return a + b


@step
async def aadd(a, b=0):
    return a + b


def told(work, match, error=ConfigError):
    with pytest.raises(error, match=match) as caught:
        flow(name="pipeline")(work).kickoff()
    return str(caught.value)


# options


@pytest.mark.parametrize(
    "options",
    [
        {"retries": 1.5},
        {"retries": "2"},
        {"retries": True},
        {"retry_delay": "x"},
        {"retry_delay": None},
        {"retry_delay": float("nan")},
        {"timeout": "x"},
        {"timeout": True},
        {"type": 3},
        {"max_concurrency": 2.5},
        {"max_concurrency": True},
        {"name": 5},
    ],
    ids=str,
)
def test_an_option_of_another_type_is_told_when_the_function_is_decorated(options):
    (option,) = options
    match = "named 5" if option == "name" else option
    with pytest.raises(ConfigError, match=match):
        step(**options)(lambda: None)
    if option not in ("timeout", "type"):
        with pytest.raises(ConfigError, match=match):
            flow(**options)(lambda: None)


@pytest.mark.parametrize("made", [step, flow])
def test_a_function_whose_arguments_python_does_not_know_is_told_to_be_called_in_another(made):
    with pytest.raises(ConfigError, match="'max' does not tell which arguments it takes, .*: call it in a function"):
        made(max)


@pytest.mark.parametrize("made", [step, flow])
def test_a_function_that_yields_is_told_to_return_a_list(made):
    def numbers():
        yield 1

    async def anumbers():
        yield 1

    for wrong in (numbers, anumbers, functools.partial(numbers)):
        with pytest.raises(ConfigError, match="return a list"):
            made(wrong)
    with pytest.raises(ConfigError, match="wanted a function"):
        made(5)


def test_a_flow_that_is_a_class_is_told_to_inherit():
    class Report:
        pass

    with pytest.raises(ConfigError, match=r"@flow 'Report' is a class; wanted a function. .* class Report\(Flow\)"):
        flow(Report)


# futures


@pytest.mark.parametrize(
    "work",
    [
        lambda: add(add.submit(1)),
        lambda: add.submit(1, b=add.submit(1)).result(),
        lambda: add([add.submit(1)]),
        lambda: add(add.map([1, 2])),
        lambda: add.map(add.map([1, 2])).result(),
        lambda: add.submit(1),
        lambda: add.map([1, 2]),
        lambda: {"sum": add.submit(1)},
        lambda: step(name="gives")(lambda: add.submit(1))(),
    ],
)
def test_a_future_in_the_place_of_a_value_is_told(work):
    assert "call .result() on the future" in told(work, "the future of a step")


def test_a_coroutine_in_the_place_of_a_value_is_told():
    async def forgets():
        return await aadd(aadd(1))

    async def gives():
        return aadd(1)

    for work in (forgets, gives):
        told(work, "await it")


# map and product


@pytest.mark.parametrize(
    ("work", "match"),
    [
        (lambda: add.map([1, 2], [3]), "argument 2 is shorter than argument 1; wanted iterables"),
        (lambda: add.map(), r"add\.map\(\): wanted an iterable"),
        (lambda: add.product(), r"add\.product\(\): wanted an iterable"),
        (lambda: add.map(5), r"add\.map\(5\): wanted an iterable"),
        (lambda: add.product([1], 5), r"add\.product\(5\): wanted an iterable"),
        (lambda: add.map([1], [2], [3]), r"step 'add': too many positional arguments; it takes \(a, b=0\)"),
        (lambda: add(), "step 'add': missing a required argument: 'a'; it takes"),
        (lambda: add(1, bb=2), r"unexpected keyword argument 'bb'; it takes \(a, b=0\)"),
        (lambda: add(inputs={"a": 1}), r"; pass what is in inputs by its own names, without inputs="),
    ],
)
def test_items_that_do_not_go_together_are_told(work, match):
    told(work, match)


# on the loop


def test_what_blocks_on_the_loop_names_what_to_write_there():
    async def calls():
        return add(1)

    async def waits():
        return add.submit(1).result()

    assert told(calls, "add", OnLoopThread).endswith("await add.submit(...)")
    assert told(waits, "result", OnLoopThread).endswith("await the future itself")


def test_a_flow_that_is_called_as_it_cannot_be_names_what_to_write_there():
    child, achild = flow(name="child")(lambda: add(1)), flow(name="achild")(aadd.func)

    async def calls():
        return child()

    assert told(calls, "child", OnLoopThread).endswith("await child.akickoff(...)")
    assert told(lambda: achild(1), "achild").endswith("call achild.kickoff(...)")


# a process of its own


class Shelf:
    def read(self):
        return 1


@pytest.mark.parametrize(
    ("func", "match"),
    [
        (lambda: None, "a lambda"),
        (Shelf.read, r"Shelf\.read, which is defined inside a class"),
        (Shelf().read, "not a Python function"),
        (time.sleep, "not a Python function"),
        (functools.partial(print, 1), "not a Python function"),
    ],
)
def test_what_no_other_process_could_find_is_told_when_it_is_decorated(func, match):
    with pytest.raises(ConfigError, match=match):
        step(runtime="isolated")(func)

    def local():
        return 1

    with pytest.raises(ConfigError, match="defined inside a function"):
        step(runtime="isolated")(local)


def test_what_has_another_name_in_its_module_is_told_before_a_process_is_started():
    told(lambda: far.renamed(1), "but module tests.flow.isolated_steps has something else under that name")


def test_what_another_decorator_adds_is_there_in_the_process_too():
    assert flow(lambda: far.doubled(4)).kickoff() == 8


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (lambda: step(retry=3), r"@step has no option 'retry' \(did you mean 'retries'\?\)$"),
        (lambda: flow(retry=3), r"@flow has no option 'retry' \(did you mean 'retries'\?\)$"),
        (lambda: step(xyz=3), r"@step has no option 'xyz'; it takes"),
    ],
)
def test_an_option_that_is_none_is_told_with_those_there_are(made, match):
    with pytest.raises(ConfigError, match=match):
        made()


@pytest.mark.parametrize("checkpoint", ["runs.db", {"location": "runs.db"}, 1], ids=str)
def test_what_is_no_setting_for_checkpoints_is_told_when_the_function_is_decorated(checkpoint):
    with pytest.raises(ConfigError, match=r"wanted True, or CheckpointConfig\(location=\.\.\.\)"):
        flow(checkpoint=checkpoint)(lambda: 1)


@pytest.mark.parametrize(
    ("work", "match"),
    [
        (lambda: ask("?", {"a": 1}), r"schema is \{'a': 1\}; wanted a type, or a list of choices"),
        (lambda: ask("?", timeout="5"), "timeout is '5'; wanted a number of seconds, more than 0"),
        (lambda: ask("?", timeout=0), "timeout is 0; wanted a number of seconds, more than 0"),
        (lambda: sleep_for("1"), r"sleep_for\('1'\): wanted a number of seconds"),
        (lambda: sleep_for(float("inf")), r"sleep_for\(inf\): wanted a number of seconds"),
    ],
)
def test_arguments_of_ask_and_sleep_for_that_cannot_be_are_told(work, match):
    with pytest.raises(ConfigError, match=match):
        flow(name="pipeline")(work).kickoff(answers={"human#1": "a"})


# awaiting


async def passed_on(work):
    return await work


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: ask("Publish?", bool), r"`await ask\(\.\.\.\)`"),
        (lambda: sleep_for(0), r"`await sleep_for\(\.\.\.\)`"),
        (lambda: aadd(0), r"`await aadd\(\.\.\.\)`"),
    ],
    ids=["ask", "sleep_for", "step"],
)
@pytest.mark.filterwarnings("error")
def test_a_gate_whose_await_was_forgotten_is_not_open(call, match):
    passed = []

    @flow
    async def gate():
        if call():
            passed.append(1)

    with pytest.raises(ConfigError, match=match):
        gate.kickoff(answers={"human#1": False})
    assert passed == []


def test_a_timer_outside_a_run_is_not_taken_for_true_either():
    async def wait():
        return bool(sleep_for(0))

    with pytest.raises(ConfigError, match=r"`await sleep_for\(\.\.\.\)`"):
        asyncio.run(wait())


def test_whatever_takes_coroutines_takes_calls_of_steps():
    @flow
    async def beside():
        async with asyncio.TaskGroup() as group:
            grouped = group.create_task(aadd(1))
        waited = await asyncio.wait_for(aadd(3), 5)
        task = asyncio.create_task(aadd(4))
        return grouped.result(), waited, await task, await asyncio.gather(aadd(5), aadd(6)), await passed_on(aadd(7))

    assert beside.kickoff() == (1, 3, 4, [5, 6], 7)


def test_an_error_of_an_awaited_step_is_raised_where_it_is_awaited():
    @step
    async def fails():
        raise LookupError("gone")

    @flow
    async def handles():
        try:
            await fails()
        except LookupError as error:
            return str(error)

    assert handles.kickoff() == "gone"


def test_of_several_arguments_by_name_the_misspelt_one_is_told():
    @flow
    def report(n, when="now"):
        return n

    with pytest.raises(ConfigError, match=r"unexpected keyword argument 'wen'; did you mean 'when'\?"):
        report.kickoff(n=1, wen="later")


def test_a_step_that_nobody_awaits_is_told():
    @step
    async def write():
        return 1

    @flow
    async def pipeline():
        forgotten.append(write())
        return 2

    forgotten = []
    with pytest.raises(ConfigError, match="step:write was requested in .* not awaited"):
        pipeline.kickoff()
    forgotten[0].close()
