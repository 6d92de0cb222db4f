"""`@step(cache=...)`: what is looked at to tell whether a step is still the same."""

from __future__ import annotations

import textwrap
import threading
from dataclasses import dataclass
from datetime import timedelta

import pytest

from crewlite.errors import ConfigError
from crewlite.events import StepCompletedEvent, StepReplayedEvent
from crewlite.flow import flow, step
from crewlite.testing import EventRecorder


def kickoff(config, work, *args, **options):
    return flow(name="pipeline", checkpoint=config)(work).kickoff(*args, **options)


def executed(config, module, *args):
    """Whether a run of a program that asks for its step `fetch` had to execute it."""
    before = len(module.ran)
    kickoff(config, lambda: module.fetch(*args))
    return len(module.ran) > before


FETCH = """
    from crewlite.flow import step
    import helper

    ran = []

    {above}
    @step({options})
    def fetch(n):
        ran.append(n){body}
        return helper.shape(n)
    """
HELPER = """
    def shape(n):
        return {value}

    class Shape:
        stem = {value}
    """


def written(options="cache=True", body="", value=1, above=""):
    program = FETCH.format(options=options, body=body, above=above)
    return {"program": program, "helper": HELPER.format(value=value)}


def test_a_program_that_is_loaded_anew_finds_what_it_came_to_before(memory, program):
    assert executed(memory(), program(**written()), 1)
    assert not executed(memory(), program(**written()), 1)


def test_an_edit_of_the_function_itself_is_a_miss(memory, program):
    assert executed(memory(), program(**written()), 1)
    for body in ("; n = n", "  # and say so"):
        assert executed(memory(), program(**written(body=body)), 1)


def test_decorators_and_what_stands_around_the_function_do_not_matter(memory, program):
    assert executed(memory(), program(**written()), 1)
    assert not executed(memory(), program(**written("cache=True, retries=2", above="OTHER = 1")), 1)


def test_an_edit_of_a_helper_is_a_miss_if_deps_name_it(memory, program):
    for deps in ("(helper.shape,)", "(helper.Shape,)", "(helper,)"):
        options = f"cache=True, deps={deps}"
        assert executed(memory(), program(**written(options)), 1)
        assert not executed(memory(), program(**written(options)), 1)
        assert executed(memory(), program(**written(options, value=2)), 1)


def test_an_edit_of_a_helper_that_nothing_names_goes_unseen(memory, program):
    assert executed(memory(), program(**written()), 1)
    assert not executed(memory(), program(**written(value=2)), 1)


def test_a_step_among_deps_counts_with_its_own_deps_and_version(memory, program):
    def written(version=1, value=1, body="s"):
        return {
            "program": f"""
                from crewlite.flow import step
                import helper
                ran = []

                @step(deps=(helper.shape,), version={version})
                def inner(s):
                    return {body}

                @step(cache=True, deps=(inner,))
                def fetch(n):
                    ran.append(n)
                    return inner(n)
                """,
            "helper": HELPER.format(value=value),
        }

    assert executed(memory(), program(**written()), 1)
    assert not executed(memory(), program(**written()), 1)
    for changed in ({"version": 2}, {"value": 2}, {"body": "-s"}):
        assert executed(memory(), program(**written(**changed)), 1)


def test_another_version_is_a_miss(memory, program):
    for version in ("1", "'1'", "2"):
        assert executed(memory(), program(**written(f"cache=True, version={version}")), 1)
    assert not executed(memory(), program(**written("cache=True, version=1")), 1)


def test_a_resume_tells_of_another_version_and_keeps_what_is_recorded(memory, ran):
    def fetch():
        ran.append(1)

    def pipeline(version, *, fails):
        @flow(name="pipeline", checkpoint=memory())
        def work():
            step(version=version)(fetch)()
            if fails:
                raise OSError

        return work

    with pytest.raises(OSError):
        pipeline(1, fails=True).kickoff(run_id="one")
    with EventRecorder() as heard:
        pipeline(2, fails=False).kickoff(run_id="one")
    assert [event.changed for event in heard.of(StepReplayedEvent)] == [("version",)]
    assert ran == [1]


def test_a_class_that_has_changed_makes_what_is_kept_of_it_a_miss(memory, program, caplog):
    source = """
        from dataclasses import dataclass
        from crewlite.flow import step
        ran = []

        @dataclass
        class Report:
            title: str
            {more}

        @step(cache=True)
        def fetch(n) -> Report:
            ran.append(n)
            return Report("Tides")
        """
    assert executed(memory(), program(program=source.format(more="")), 1)
    assert not executed(memory(), program(program=source.format(more="")), 1)
    assert executed(memory(), program(program=source.format(more="pages: int = 0")), 1)
    assert "the class of its value has changed" in caplog.text


@dataclass
class Shape:
    sides: int


def test_what_a_function_holds_on_to_counts(memory, ran):
    def made(held, default):
        @step(cache=True)
        def fetch(n=default):
            noted(held)
            return held if not callable(held) else held()

        return fetch

    def noted(held, into=ran):
        into.append(1)

    noted = step(version="notes")(noted)  # what it is given changes from call to call
    made_of = [(1, 1), ("1", 1), (1, 2), (Shape(3), 1), (Shape(4), 1), (lambda: 5, 1), (lambda: 6, 1)]
    kickoff(memory(), lambda: [made(*held)() for held in made_of])
    assert len(ran) == len(made_of)


def test_what_cannot_be_told_apart_is_refused_when_it_is_decorated(ran):
    lock = threading.Lock()

    def held():
        return lock

    def given(lock=lock):
        return lock

    for func, what in ((held, "'lock' in its closure"), (given, "a default of given")):
        with pytest.raises(ConfigError, match=f"{what}.*Pass that value as an argument, or give the step a version="):
            step(cache=True)(func)
        assert step(cache=True, version=1)(func).name == func.__name__


def test_a_version_stands_for_what_cannot_be_told_apart(memory, ran):
    lock = threading.Lock()

    def fetch(n):
        with lock:
            ran.append(n)

    first, same, other = (step(cache=True, version=version)(fetch) for version in (1, 1, 2))
    kickoff(memory(), lambda: [first(1), same(1), other(1)])
    assert ran == [1, 1]


def test_a_function_that_calls_itself_is_known_by_its_code(memory, ran):
    def made():
        @step(cache=True)
        def count(n):
            ran.clear()
            return n and 1 + count(n - 1)

        return count

    assert kickoff(memory(), lambda: made()(3)) == 3
    with EventRecorder() as heard:
        assert kickoff(memory(), lambda: made()(3)) == 3
    assert [event.address for event in heard.of(StepCompletedEvent)] == ["step:count"]


def test_a_name_that_has_no_value_when_the_step_is_called_is_told(memory):
    @step(cache=True)
    def fetch():
        return later

    with pytest.raises(ConfigError, match="later in its closure has no value"):
        kickoff(memory(), lambda: fetch())
    later = 1


def test_without_a_source_the_compiled_code_counts(memory):
    def made(text, name="fetch"):
        names = {"__name__": "nowhere", "ran": []}
        exec(textwrap.dedent(text), names)  # noqa: S102 - as at a prompt
        return names

    def misses(text):
        names = made(text)
        kickoff(memory(), lambda: step(cache=True, name="fetch")(names["fetch"])(1))
        return len(names["ran"])

    text = "def fetch(n):\n    ran.append(n)\n    return n in {'a', 'b', 'c'} or (lambda: %s)()"
    assert [misses(text % value) for value in (1, 1, 2, "(1, 2)", "(1, 2)")] == [1, 0, 1, 1, 0]
    assert [misses(f"fetch = lambda n: ran.append(n) or {value}") for value in (1, 1, 2)] == [1, 0, 1]


def test_two_lambdas_of_one_line_are_two_functions(memory):
    one, two = step(cache=True, name="fetch")(lambda: 1), step(cache=True, name="fetch")(lambda: 2)
    assert kickoff(memory(), lambda: [one(), two(), one(), two()]) == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("cache", 1),
        ("cache", "yes"),
        ("cache", timedelta(0)),
        ("cache", timedelta(seconds=-1)),
        ("version", 1.5),
        ("version", True),
        ("deps", len),
        ("deps", ("helper",)),
        ("deps", (3,)),
    ],
)
def test_an_option_that_cannot_be_is_told_when_the_function_is_decorated(option, value):
    with pytest.raises(ConfigError, match=f"'work': {option}"):
        step(name="work", **{option: value})(lambda: None)
