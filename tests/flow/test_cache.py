"""`@step(cache=...)`: what a step came to is reused by other runs, for as long as nothing it follows from has changed."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

import tests.flow.isolated_steps as far
from crewlite import CheckpointConfig, History, codec, disk
from crewlite.cli.main import main
from crewlite.errors import ConfigError, InDoubt
from crewlite.events import StepCompletedEvent, StepReplayedEvent, StepStartedEvent
from crewlite.events.console import watched
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider
from crewlite.testing import EventRecorder


@pytest.fixture
def ran():
    return []


@pytest.fixture
def memory():
    """Like `config`, where it does not matter what keeps the results."""
    provider = InMemoryProvider()
    return lambda **fields: CheckpointConfig(location="store", provider=provider, **fields)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """`program(program=..., helper=...)`: the modules of a program as they are written now, loaded anew."""
    versions, names = itertools.count(), set()

    def load(**sources):
        root = tmp_path / f"version-{next(versions)}"
        root.mkdir()
        for name, source in sources.items():
            (root / f"{name}.py").write_text(textwrap.dedent(source))
            sys.modules.pop(name, None)
        names.update(sources)
        monkeypatch.syspath_prepend(root)
        return importlib.import_module("program")

    yield load
    for name in names:
        sys.modules.pop(name, None)


def kickoff(config, work, *args, **options):
    return flow(name="pipeline", checkpoint=config)(work).kickoff(*args, **options)


def executed(config, module, *args):
    """Whether a run of a program that asks for its step `fetch` had to execute it."""
    before = len(module.ran)
    kickoff(config, lambda: module.fetch(*args))
    return len(module.ran) > before


def warnings_of(caplog, text):
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


# what a hit is


def test_a_result_is_reused_by_later_runs_which_say_where_it_comes_from(config, ran):
    @step(cache=True, type="fetch")
    def fetch(n):
        ran.append(n)
        return {"n": n, "at": (1, 2.5)}

    @flow(checkpoint=config(on_events=["step_completed"]))
    def pipeline(n):
        return fetch(n)

    with EventRecorder() as heard:
        first, second = (pipeline.kickoff(7, run_id=run_id) for run_id in ("one", "two"))
    assert first == second == {"n": 7, "at": (1, 2.5)}
    assert ran == [7]
    assert [(event.run_id, event.reused_from) for event in heard.of(StepCompletedEvent)] == [
        ("one", None),
        ("two", "one/main@step:fetch"),
    ]
    assert [event.run_id for event in heard.of(StepStartedEvent)] == ["one"]
    location, provider = pipeline.checkpoint.location, pipeline.checkpoint.provider
    with History(location, provider) as history:
        views = {run.run_id: run.steps[0] for run in history.runs()}
        assert [place.trigger for place in history.run("two").checkpoints()] == ["step_completed"]
    assert (views["one"].reused_from, views["two"].reused_from) == (None, "one/main@step:fetch")
    assert (views["two"].value, views["two"].type, views["two"].status) == (first, "fetch", "finished")


def test_a_second_call_in_the_same_run_is_answered_too(config, ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return [n]

    assert kickoff(config(), lambda: [fetch(1), fetch(2), fetch(1)]) == [[1], [2], [1]]
    assert ran == [1, 2]


def test_nothing_is_reused_unless_it_is_asked_for(config, ran):
    @step
    def fetch(n):
        ran.append(n)

    for _ in range(2):
        kickoff(config(), lambda: fetch(1))
    assert ran == [1, 1]


def test_a_resume_answers_from_the_record_whatever_became_of_the_cache(config, ran):
    broken = []

    @step(cache=True)
    def fetch():
        ran.append(1)
        return "found"

    @flow(checkpoint=config())
    def pipeline(n):
        found = fetch()
        if broken:
            raise OSError
        return found

    pipeline.kickoff(1)
    broken.append(True)
    with pytest.raises(OSError):
        pipeline.kickoff(2, run_id="two")
    broken.clear()
    with History(pipeline.checkpoint.location, pipeline.checkpoint.provider) as history:
        history.prune(older_than=timedelta(0))
    with EventRecorder() as heard:
        assert pipeline.kickoff(run_id="two") == "found"
    assert ran == [1]
    assert (len(heard.of(StepReplayedEvent)), heard.of(StepCompletedEvent)) == (1, [])


def test_what_is_reused_is_told_on_the_terminal(on_disk, capsys):
    @step(cache=True)
    def fetch():
        return "found"

    def said(*words):
        return CliRunner().invoke(main, ["checkpoint", "show", *words, "--location", on_disk().location]).output

    with watched():
        for run_id in ("one", "two"):
            kickoff(on_disk(), fetch, run_id=run_id)
    assert "step fetch from one/main@step:fetch" in capsys.readouterr().out
    assert "reused" not in said("one")
    assert "reused" in said("two")
    assert "one/main@step:fetch" in said("two", "--step", "step:fetch")
    assert json.loads(said("two", "--json"))["steps"][0]["reused_from"] == "one/main@step:fetch"


# what is asked


def test_arguments_of_other_types_are_other_questions(memory, ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    for _ in range(2):
        found = kickoff(memory(), lambda: [fetch(n) for n in (1, "1", True, 1.0)])
        assert [type(value) for value in found] == [int, str, bool, float]
    assert len(ran) == 4


def test_a_default_that_is_spelt_out_is_the_same_question(memory, ran):
    @step(cache=True)
    def fetch(n, *rest, size=3, kind=len):
        ran.append(n)
        return n

    kickoff(memory(), lambda: [fetch(1), fetch(n=1), fetch(1, size=3)])
    assert ran == [1]
    kickoff(memory(), lambda: [fetch(1, size=4), fetch(1, 2)])
    assert ran == [1, 1, 1]


def test_arguments_that_cannot_be_written_are_asked_anew_each_time_with_one_warning(memory, ran, caplog):
    @step(cache=True)
    def fetch(lock):
        ran.append(1)

    for _ in range(2):
        kickoff(memory(), lambda: fetch(threading.Lock()))
    assert len(ran) == 2
    assert len(warnings_of(caplog, "no result is reused")) == 1


def test_a_result_that_cannot_be_written_is_not_kept(memory, ran):
    @step(cache=True)
    def fetch():
        ran.append(1)
        return threading.Lock()

    for _ in range(2):
        kickoff(memory(), lambda: fetch() and None)
    assert len(ran) == 2


# when the code has changed

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
    assert warnings_of(caplog, "its class is no longer what it was")


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
        with pytest.raises(ConfigError, match=f"{what}.*version=, or pass it as an argument"):
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


# when it is not taken


def test_what_is_older_than_asked_for_is_a_miss(memory, ran):
    def fetch(n):
        ran.append(n)
        return len(ran)

    always, hourly, fleeting = (
        step(cache=cache, version=1)(fetch) for cache in (True, timedelta(hours=1), timedelta(microseconds=1))
    )
    assert kickoff(memory(), lambda: [always(1), hourly(1), fleeting(1), hourly(1)]) == [1, 1, 2, 2]


def test_a_fork_runs_its_tail_and_leaves_what_it_comes_to(config, ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return f"{n}, the {len(ran)}th"

    @flow(checkpoint=config(on_events=["step_completed"]))
    def pipeline():
        return [fetch("first"), fetch("second")]

    assert pipeline.kickoff(run_id="one") == ["first, the 1th", "second, the 2th"]
    with EventRecorder() as heard:
        forked = pipeline.fork("one@step:fetch", branch="again")
        assert forked.kickoff() == ["first, the 1th", "second, the 3th"]
    assert [event.reused_from for event in heard.of(StepCompletedEvent)] == [None]
    assert pipeline.kickoff(run_id="two") == ["first, the 1th", "second, the 3th"]


def test_a_call_in_doubt_is_not_answered_from_elsewhere_and_its_answer_stays_here(memory, ran):
    lives = []

    async def send(n):
        ran.append(n)
        if lives:
            lives.pop().cancel()
            await asyncio.sleep(60)
        return n

    send = step(cache=True, effect="once", version=1)(send)

    @flow(checkpoint=memory())
    async def pipeline(n):
        return await send(n)

    async def cut(n, run_id):
        lives.append(asyncio.ensure_future(pipeline.akickoff(n, run_id=run_id)))
        with pytest.raises(asyncio.CancelledError):
            await lives[0]

    asyncio.run(cut(1, "one"))
    assert pipeline.kickoff(1) == 1
    with pytest.raises(InDoubt):
        pipeline.kickoff(run_id="one")
    assert pipeline.kickoff(run_id="one", rerun=["step:send"]) == 1
    asyncio.run(cut(2, "two"))
    assert pipeline.kickoff(run_id="two", answers={"step:send": "sent"}) == "sent"
    assert pipeline.kickoff(2) == 2
    assert ran == [1, 1, 1, 2, 2]


def test_a_run_may_ask_for_steps_to_run_whatever_is_kept(memory, ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    @flow(checkpoint=memory())
    def pipeline():
        return [fetch(1), fetch(2)]

    pipeline.kickoff()
    pipeline.kickoff(rerun=["step:fetch#2"])
    assert ran == [1, 2, 2]


def test_without_a_store_the_step_runs_with_one_warning(ran, caplog):
    @step(cache=True)
    def fetch(n):
        ran.append(n)

    flow(name="pipeline")(lambda: [fetch(1), fetch(1)]).kickoff()
    assert ran == [1, 1]
    assert len(warnings_of(caplog, "no store")) == 1


def test_a_result_that_held_a_secret_is_not_kept(memory, ran):
    @step(cache=True)
    def fetch():
        ran.append(1)
        return {"token": "hunter2-hunter2"}

    for _ in range(2):
        assert kickoff(memory(redact=["hunter2-hunter2"]), fetch) != {"token": "hunter2-hunter2"}
    assert kickoff(memory(), fetch) == {"token": "hunter2-hunter2"}
    assert len(ran) == 3


# every kind of step


def test_every_way_to_ask_for_a_step_reuses(memory, ran):
    @step(cache=True)
    async def gentle(n):
        ran.append(n)
        return -n

    @step(cache=True)
    def blocking(n, m=0):
        ran.append((n, m))
        return n + m

    @flow(checkpoint=memory())
    async def pipeline(life):
        here = [await gentle(1), await blocking.submit(1)]
        mapped = [await future for future in [*blocking.map([2, 3]), *blocking.product([4], [5, 6])]]
        return [*here, *mapped]

    assert pipeline.kickoff(1) == pipeline.kickoff(2) == [-1, 1, 2, 3, 9, 10]
    assert len(ran) == 6


def test_an_isolated_step_is_reused(tmp_path):
    config = CheckpointConfig(location="store")
    first, second = (kickoff(config, lambda: far.kept(1)) for _ in range(2))
    assert first == second != os.getpid()


def test_of_what_is_inside_a_reused_step_nothing_is_asked(config, ran):
    @step
    def inner(n):
        ran.append(n)
        return n

    @step(cache=True)
    def outer(n):
        return [inner(n), inner(n + 1)]

    @flow(checkpoint=config())
    def pipeline():
        return outer(1)

    for run_id in ("one", "two"):
        assert pipeline.kickoff(run_id=run_id) == [1, 2]
    assert pipeline.kickoff(run_id="two") == [1, 2]
    with History(pipeline.checkpoint.location, pipeline.checkpoint.provider) as history:
        assert [view.address for view in history.run("two").steps] == ["step:outer", ""]
    assert ran == [1, 2]


# a cache that fails is none


def entry_of(location):
    (path,) = Path(location, "cache").glob("*.json")
    return path


def test_an_entry_is_a_readable_file_of_its_owner_alone(tmp_path):
    @step(cache=True, name="tides")
    def fetch(n):
        return {"high": "at noon"}

    kickoff(CheckpointConfig(location="store"), lambda: fetch(1), run_id="one")
    path = entry_of("store")
    said = json.loads(path.read_text())
    assert (said["key"], said["step"], said["from"]) == (path.stem, "tides", "one/main@step:tides")
    assert (said["schema"], said["value"]) == (1, {"high": "at noon"})
    assert os.name == "nt" or (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def sealed(said):
    del said["check"]
    return said | {"check": codec.digest(said)}


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda said: said | {"value": 8}, "not as it was written"),
        (lambda said: said | {"at": "yesterday"}, "not as it was written"),
        (lambda said: {}, "not as it was written"),
        (lambda said: sealed(said | {"from": 5}), "not as it was written"),
        (lambda said: sealed(said | {"at": "noon"}), "Invalid isoformat"),
        (lambda said: sealed(said | {"value": {"$": "of", "v": ""}}), "unknown tag"),
        (lambda said: [], "no JSON object"),
        (lambda said: said | {"schema": 2}, "schema 2"),
    ],
    ids=["value", "time", "empty", "origin", "no time", "reference", "list", "newer"],
)
def test_what_was_changed_after_it_was_written_is_a_miss(damage, told, ran, caplog):
    @step(cache=timedelta(hours=1))
    def fetch(n):
        ran.append(n)
        return 7

    config = CheckpointConfig(location="store")
    kickoff(config, lambda: fetch(1))
    path = entry_of("store")
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    assert kickoff(config, lambda: [fetch(1), fetch(1)]) == [7, 7]
    assert ran == [1, 1]  # and what it came to took the place of the damage
    assert len(warnings_of(caplog, told)) == 1


def test_half_an_entry_and_that_of_another_question_are_misses(ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    config = CheckpointConfig(location="store")
    kickoff(config, lambda: fetch(1))
    one = entry_of("store")
    whole = one.read_bytes()
    one.unlink()
    kickoff(config, lambda: fetch(2))
    other = entry_of("store")
    for data in (whole, other.read_bytes()[:-20], b""):
        other.write_bytes(data)
        assert kickoff(config, lambda: fetch(2)) == 2
    assert ran == [1, 2, 2, 2, 2]


def test_a_row_that_was_changed_is_a_miss(ran, caplog):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    config = CheckpointConfig(location="store.db")
    kickoff(config, lambda: fetch(1))
    for data in (b"{}", "text", None, 5):
        with sqlite3.connect("store.db") as db:
            db.execute("UPDATE cache SET data=?", (data,))
        db.close()
        assert kickoff(config, lambda: fetch(1)) == 1
    assert len(ran) == 5


def test_a_result_that_cannot_be_kept_costs_a_warning_and_not_the_run(on_disk, ran, caplog):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    def full(operation):
        if f"{os.sep}cache{os.sep}" in operation.path or b"INTO cache" in operation.data:
            raise OSError("no space left")

    pipeline = flow(name="pipeline", checkpoint=on_disk(on_save_error="raise"))(lambda: [fetch(1), fetch(2)])
    with disk.watched(full):
        handle = pipeline.submit()
        assert handle.result(10) == [1, 2]
    assert len(warnings_of(caplog, "no space left")) == 1
    kickoff(on_disk(), lambda: fetch(1))
    assert ran == [1, 2, 1]


class Before:
    """A provider of somebody who has not heard of what is remembered."""

    name = "before"

    def __init__(self):
        self._inner = InMemoryProvider()

    def open(self, location):
        return _BeforeStore(self._inner.open(location))


class _BeforeStore:
    def __init__(self, inner):
        self._inner, self.location = inner, inner.location

    def __getattr__(self, name):
        if name in ("recall", "remember", "forget"):
            raise AttributeError(f"this store has no {name}")
        return getattr(self._inner, name)


def test_a_store_that_cannot_remember_costs_a_warning(ran, caplog):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    assert kickoff(CheckpointConfig(location="store", provider=Before()), lambda: [fetch(1), fetch(1)]) == [1, 1]
    assert ran == [1, 1]
    assert len(warnings_of(caplog, "cache=")) == 1


# what becomes of it


def test_the_doctor_leaves_it_alone_and_clears_what_a_killed_process_left(on_disk, ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    kickoff(on_disk(), lambda: fetch(1))
    location = on_disk().location
    with History(location) as history:
        assert history.doctor(repair=True) == []
    kickoff(on_disk(), lambda: fetch(1))
    assert ran == [1]
    if os.path.isdir(location):
        left = Path(location, "cache", f".{entry_of(location).name}.0123456789ab.tmp")
        left.write_bytes(b"{")
        os.utime(left, (0, 0))
        with History(location) as history:
            assert [finding.what for finding in history.doctor(repair=True)] == ["stray_file"]
        assert not left.exists()


def test_it_outlives_its_run_until_it_is_pruned(config, ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    @flow(checkpoint=config())
    def pipeline():
        return fetch(1)

    pipeline.kickoff(run_id="one")
    with History(pipeline.checkpoint.location, pipeline.checkpoint.provider) as history:
        history.delete("one")
        assert history.prune(older_than=timedelta(days=1)).results == 0
        assert history.prune(keep_last=1).results == 0
    pipeline.kickoff(run_id="two")
    assert ran == [1]
    with History(pipeline.checkpoint.location, pipeline.checkpoint.provider) as history:
        assert history.prune(older_than=timedelta(0), dry_run=True).results == 1
        assert history.prune(older_than=timedelta(0)).results == 1
    pipeline.kickoff(run_id="three")
    assert ran == [1, 1]


def test_processes_that_come_to_it_at_once_leave_one_whole_result(on_disk, program, tmp_path):
    source = f"""
        import os, sys, time
        from crewlite import CheckpointConfig
        from crewlite.flow import flow, step
        ran = []

        @step(cache=True)
        def fetch(n):
            ran.append(n)
            open(f"here-{{os.getpid()}}", "x").close()
            while len([name for name in os.listdir() if name.startswith("here-")]) < 2:
                time.sleep(0.005)
            return os.getpid()

        if __name__ == "program":
            pipeline = flow(checkpoint=CheckpointConfig(location={on_disk().location!r}))(lambda: fetch(1))
    """
    module = program(program=source)
    root = Path(module.__file__).parent
    work = "import program; program.flow(name='p', checkpoint=program.pipeline.checkpoint)(lambda: program.fetch(1))"
    both = [
        subprocess.Popen([sys.executable, "-c", f"{work}.kickoff()"], env={**os.environ, "PYTHONPATH": _path(root)})
        for _ in range(2)
    ]
    assert [one.wait(30) for one in both] == [0, 0]
    assert kickoff(on_disk(), lambda: module.fetch(1)) in [one.pid for one in both]
    assert module.ran == []


def _path(root):
    return os.pathsep.join(
        [str(root), *filter(None, [os.environ.get("PYTHONPATH"), str(Path(far.__file__).parents[2])])]
    )
