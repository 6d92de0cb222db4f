"""History: how long its views take at a location with 2,000 runs and more than 100,000 checkpoints.

Three crews run, one of 50 tasks and two of 1,000, whose models answer differently. Their commits are sealed again under
other names and appended to the store, so the journals are as the engine writes them: two runs have 1,000 tasks, the
others 50. The long ones are the oldest, so the ten runs that `tree` shows, and the twenty of `list --runs`, are short;
what a long one adds is a row of its own. Every command opens the location anew. The details give the CPU time, on which
other work on the computer has less influence.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import io
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from benchmarks.measure import Row, scratch
from benchmarks.scenes import ANSWER, KINDS, Kind, answering, crew_of, stored
from crewlite import CheckpointConfig, History
from crewlite.cli.checkpoint.files import diff
from crewlite.cli.checkpoint.listing import list_, tree
from crewlite.cli.checkpoint.show import info
from crewlite.ids import new_id
from crewlite.state.format.entry import Entry, seal
from crewlite.state.providers import Commit, InMemoryProvider

_RUNS = 2000
_SHORT, _LONG = 50, 1000  # tasks of a run
_TOGETHER = 25  # runs that are appended at once
_ROUNDS = 7
_KEYS = 20
_TARGET = 300.0  # milliseconds of a command
_OPENS, _ANSWERS = 1000.0, 100.0  # milliseconds until the view shows the runs, and until it answers a key

Times = list[tuple[float, float]]
"""Seconds by the clock, and seconds of CPU time."""


def measure() -> Iterator[Row]:
    for kind in KINDS:
        directory = scratch()
        config = _filled(kind, directory)
        for title, command, words in _commands(config):
            times = [_timed(lambda c=command, w=words: _quietly(c, w)) for _ in range(_ROUNDS + 1)]
            yield _row(f"{kind}: {title}", times[1:], _TARGET)
        yield from _view(kind, str(config.location))


def _commands(config: CheckpointConfig) -> Iterator[tuple[str, click.Command, list[str]]]:
    """What is measured: a title, a command, and its words."""
    with History(config.location, config.provider) as history:
        run = history.run("run-1000")
        place, page = run.checkpoints()[25], history.checkpoints(limit=20)
    at = ["--location", str(config.location)]
    yield "tree", tree, at
    yield "tree of a run, found by its id", tree, [run.run_id, *at]
    yield "tree of a run of 1,000 tasks", tree, ["long-1", *at]
    yield "info, found by a run id", info, [run.run_id, *at]
    yield "info, found by a part of an id", info, [place.id[-12:], *at]
    yield "info, found by run@address", info, [f"{run.run_id}@{place.address}", *at]
    yield "info about a run of 1,000 tasks", info, ["long-1", *at]
    yield "list, a page of 20", list_, at
    yield "list, the next page", list_, ["--before", page[-1].id, *at]
    yield "list, the next page by a short id", list_, ["--before", page[-1].id[-8:], *at]
    yield "list --runs, 20 of them", list_, ["--runs", *at]
    yield "diff of two runs of 1,000 tasks", diff, ["long-0", "long-1", *at]


def _quietly(command: click.Command, words: Sequence[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.redirect_stderr(io.StringIO()):
        command.main(list(words), prog_name="crewlite", standalone_mode=False)
    assert shown.getvalue(), f"{command.name} {words} printed nothing"


def _view(kind: Kind, location: str) -> Iterator[Row]:
    if importlib.util.find_spec("textual") is None:
        yield Row(f"{kind}: the terminal view", None, detail="not measured: textual is not installed")
        return
    opened, answered = Times(), Times()
    for _ in range(_ROUNDS + 1):
        asyncio.run(_look(location, opened, answered))
    yield _row(f"{kind}: opening the terminal view", opened[1:], _OPENS)
    yield _row(f"{kind}: answering a key while it reads all runs", answered[_KEYS:], _ANSWERS)


async def _look(location: str, opened: Times, answered: Times) -> None:
    """Open the view once, and press a key again and again while it lists the runs anew."""
    from crewlite.tui.tree import RunTree  # imports textual, an extra
    from crewlite.tui.verbs import View

    app, start = View(location), _now()
    async with app.run_test(size=(120, 40)):
        shown = app.query_one(RunTree)
        while not shown.root.children:
            await asyncio.sleep(0.001)
        opened.append(_since(start))
        for _ in range(_KEYS):
            app.action_refresh()
            await asyncio.sleep(0.01)
            before, start = shown.cursor_line, _now()
            app.simulate_key("down")
            while shown.cursor_line == before:
                await asyncio.sleep(0)
            answered.append(_since(start))


def _filled(kind: Kind, directory: Path) -> CheckpointConfig:
    """A location with the runs."""
    config = stored(kind, directory)
    short = _recorded("short", _SHORT, ANSWER)
    runs = [(f"long-{number}", _recorded(f"long-{number}", _LONG, ANSWER + number)) for number in (0, 1)]
    runs += [(f"run-{number}", short) for number in range(_RUNS - 2)]
    with contextlib.closing(config.provider.open(str(config.location))) as store:
        for start in range(0, len(runs), _TOGETHER):
            part = runs[start : start + _TOGETHER]
            store.append([Commit(run_id, "main", 0, "", tuple(_as(run_id, entries))) for run_id, entries in part])
    return config


def _recorded(name: str, tasks: int, length: int) -> list[Entry]:
    """The entries of a run of so many tasks."""
    provider = InMemoryProvider()
    config = CheckpointConfig(location=name, provider=provider)
    crew_of(tasks, answering(length), checkpoint=config).kickoff(run_id=name)
    with contextlib.closing(provider.open(name)) as store:
        return store.read(name, "main")


def _as(run_id: str, entries: Sequence[Entry]) -> Iterator[Entry]:
    """The same entries as of another run: with its id, ids of their own for it and its checkpoints, sealed again."""
    ids, total = dict[str | None, str | None]({None: None}), ""
    for entry in entries:
        commit = {**entry.commit}
        if run := commit.get("run"):
            commit["run"] = {**run, "run_id": run_id, "uid": new_id()}
        if place := commit.get("place"):
            ids[place["id"]] = new_id()
            commit["place"] = {**place, "id": ids[place["id"]], "parent": ids[place["parent"]]}
        sealed = seal(commit, after=total)
        total = sealed.sum
        yield sealed


def _row(title: str, times: Times, target: float) -> Row:
    wall, cpu = (statistics.median(each) * 1000 for each in zip(*times, strict=True))
    return Row(title, wall, "ms", target, f"CPU time {cpu:,.0f} ms")


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    start = _now()
    work()
    return _since(start)


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(start: tuple[float, float]) -> tuple[float, float]:
    wall, cpu = _now()
    return wall - start[0], cpu - start[1]
