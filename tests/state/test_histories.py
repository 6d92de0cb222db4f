"""Whatever is done to runs, in whatever order, is what a dictionary says it is, on every provider.

A program of random operations (begin, go on, cut, fork, ask otherwise, prune, move, delete) is done on memory, JSON and
SQLite stores, and to a model that knows no journals: for each branch it keeps how many calls each task has had.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, tool
from crewlite.state import InMemoryProvider, JsonProvider, SqliteProvider
from crewlite.testing import ScriptedLLM

TASKS = 3
CALLS = 2  # of the model, for each task: one asks for a tool, one answers
TOPICS = ("tides", "moons", "winds")


class Stop(Exception):
    """The laptop lid."""


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"saw {where}" + " and much besides" * 10


def asks_of_the_topic(task):
    return task % 2 == 0


def question(task, topic):
    return f"Do {task} about {topic if asks_of_the_topic(task) else 'anything'}"


@dataclass(frozen=True)
class Done:
    """How far a task is, and for which topic."""

    calls: int = 0
    finished: bool = False
    topic: str = ""


@dataclass(frozen=True)
class Place:
    """A checkpoint as the model has it."""

    tick: int
    branch: str
    address: str
    trigger: str
    state: State


@dataclass(frozen=True)
class State:
    """What a branch holds at some moment."""

    topic: str
    done: tuple[Done, ...] = (Done(),) * TASKS
    ever: tuple[int, ...] = ()
    requests: int = 0
    finished: bool = False


@dataclass
class Line:
    """A branch as the model has it."""

    state: State
    base: tuple[str, int, int | None] | None = None
    """The branch it stands on, up to which tick, and the tick of the place there."""
    own: list[Place] = field(default_factory=list)
    fresh: bool = False


class Model:
    """All runs, as they ought to be."""

    def __init__(self):
        self.runs: dict[str, dict[str, Line]] = {}
        self.tick = 0

    def shown(self, run, branch, until=None):
        """The checkpoints of a branch, those it stands on included."""
        line = self.runs[run][branch]
        before = self.shown(run, line.base[0], line.base[1]) if line.base else []
        return [place for place in (*before, *line.own) if until is None or place.tick <= until]

    def bases(self, run, branch):
        lines = self.runs[run].values()
        return {line.base[2] for line in lines if line.base and line.base[2] is not None}

    def kickoff(self, run, branch, topic, crash, limit):
        """Go on until the call numbered `crash` fails. Returns how many calls that takes, and whether it finishes."""
        line = self.runs[run][branch]
        again = topic is not None and topic != line.state.topic
        line.fresh = False
        if line.state.finished and not again:
            return 0, True
        line.state = replace(line.state, topic=topic or line.state.topic, finished=False)
        calls = 0
        for task in range(TASKS):
            done = line.state.done[task]
            if asks_of_the_topic(task) and done.topic not in ("", line.state.topic):
                done = Done()
            if done.finished:
                continue
            for number in range(done.calls, CALLS):
                calls += 1
                if calls == crash:
                    return calls, False
                done = Done(number + 1, topic=line.state.topic)
                self._set(line, task, done, requests=line.state.requests + 1)
                self._name(run, branch, f"task:t{task}/llm#{number + 1}", "llm_call_completed", limit)
            ever = line.state.ever if task in line.state.ever else (*line.state.ever, task)
            self._set(line, task, replace(done, finished=True), ever=ever)
            self._name(run, branch, f"task:t{task}", "task_completed", limit)
        line.state = replace(line.state, finished=True)
        return calls, True

    def fork(self, run, branch, name, place):
        """Fork at a place, or at the head."""
        self.tick += 1
        if place is None:
            newest = self.shown(run, branch)[-1:]
            base = (branch, self.tick, newest[0].tick if newest else None)
            self.runs[run][name] = Line(self.runs[run][branch].state, base, fresh=True)
        else:
            self.runs[run][name] = Line(place.state, (place.branch, place.tick, place.tick), fresh=True)

    def prune(self, keep):
        """Drop all but the newest of each branch."""
        for run, lines in self.runs.items():
            for branch, line in lines.items():
                free = [place for place in line.own if place.tick not in self.bases(run, branch)]
                gone = free[:-keep]
                line.own = [place for place in line.own if place not in gone]

    def _set(self, line, task, done, **fields):
        tasks = (*line.state.done[:task], done, *line.state.done[task + 1 :])
        line.state = replace(line.state, done=tasks, **fields)

    def _name(self, run, branch, address, trigger, limit):
        line = self.runs[run][branch]
        if limit:
            free = [place for place in line.own if place.tick not in self.bases(run, branch)]
            gone = free[: max(0, len(free) + 1 - limit)]
            line.own = [place for place in line.own if place not in gone]
        self.tick += 1
        line.own.append(Place(self.tick, branch, address, trigger, line.state))


class World:
    """One store, and everything that is done to it."""

    def __init__(self, provider, location):
        self.provider, self.location = provider, location

    def config(self, **fields):
        return CheckpointConfig(location=self.location, provider=self.provider, **fields)

    def history(self):
        return History(self.location, self.provider, make=True)

    def kickoff(self, run, branch, topic, crash, limit):
        """Kick off until the call numbered `crash`. Returns how many calls were made, and the outputs."""
        calls = []

        def reply(messages):
            calls.append(1)
            if len(calls) == crash:
                return Stop()
            seen = sum(message["role"] == "tool" for message in messages)
            asked = messages[1]["content"].splitlines()[0]
            # never the same twice: else what follows could still answer when a fork asks as its base once did
            return ToolCall("look", {"where": f"{asked}, {uuid4()}"}) if seen + 1 < CALLS else f"answer to: {asked}"

        who = Agent(role="Worker", goal="g", llm=ScriptedLLM(reply), tools=[look])
        tasks = [
            Task(name=f"t{n}", description=question(n, "{topic}"), expected_output="x", agent=who, context=[])
            for n in range(TASKS)
        ]
        limits = {"max_checkpoints": limit} if limit else {}
        crew = Crew(tasks=tasks, checkpoint=self.config(on_events=["task_completed", "llm_call_completed"], **limits))
        there = (
            {"run_id": run} if branch == "main" else {"from_checkpoint": self.config(restore_from=f"{run}/{branch}")}
        )
        try:
            result = crew.kickoff({"topic": topic} if topic else None, **there)
        except Stop:
            return len(calls), None
        return len(calls), [output.raw for output in result.tasks_output]

    def check(self, model, run):
        """Whether this store says of a run what the model says."""
        with self.history() as history:
            found = {info.branch: info for info in history.runs() if info.run_id == run}
            assert list(found) == list(model.runs.get(run, {})), self.provider.name
            for branch, line in model.runs.get(run, {}).items():
                view, places = found[branch], found[branch].checkpoints()
                shown = model.shown(run, branch)
                told = [(p.branch, p.address, p.trigger, p.tasks, p.usage.requests, p.inputs["topic"]) for p in places]
                assert told == [
                    (
                        *(p.branch, p.address, p.trigger, tuple(f"task:t{n}" for n in p.state.ever)),
                        *(p.state.requests, p.state.topic),
                    )
                    for p in shown
                ], (self.provider.name, run, branch)
                ids = [place.id for place in places]
                assert [place.parent_id for place in places] == [None, *ids][: len(ids)], (self.provider.name, run)
                assert (view.status == "finished") == line.state.finished
                assert view.usage.requests == line.state.requests
                assert view.inputs == {"topic": line.state.topic}

    def check_listing(self, model):
        """Whether this store lists what the model lists."""
        alive = [(p, run) for run, lines in model.runs.items() for line in lines.values() for p in line.own]
        alive.sort(key=lambda item: -item[0].tick)
        with self.history() as history:
            listed = history.checkpoints()
            assert [(p.run_id, p.branch, p.address, p.trigger) for p in listed] == [
                (run, place.branch, place.address, place.trigger) for place, run in alive
            ], self.provider.name
            assert [p.id for p in listed] == sorted((p.id for p in listed), reverse=True)
            assert history.doctor() == []


def play(seed, operations, tmp_path):
    dice, model = random.Random(seed), Model()
    worlds = [
        World(InMemoryProvider(), "store"),
        World(JsonProvider(), str(tmp_path / "store")),
        World(SqliteProvider(), str(tmp_path / "store.db")),
    ]
    number = 0

    def kickoff(run, branch, topic):
        crash, limit = dice.choice([1, 2, 3, 4, 5, 99]), dice.choice([None, None, 1, 2])
        calls, finishes = model.kickoff(run, branch, topic, crash, limit)
        for world in worlds:
            made, outputs = world.kickoff(run, branch, topic, crash, limit)
            assert made == calls, (world.provider.name, run, branch)
            state = model.runs[run][branch].state
            wanted = [f"answer to: {question(n, state.topic)}" for n in range(TASKS)]
            assert outputs == (wanted if finishes else None), (world.provider.name, run, branch)

    for _ in range(operations):
        number += 1
        verb = dice.choice(["begin", "go on", "go on", "fork", "fork", "prune", "move", "delete"])
        run = dice.choice(list(model.runs)) if model.runs else ""
        if verb == "begin" or not run:
            run, topic = f"run{number}", dice.choice(TOPICS)
            model.runs[run] = {"main": Line(State(topic))}
            kickoff(run, "main", topic)
        elif verb == "go on":
            branch = dice.choice(list(model.runs[run]))
            fresh = model.runs[run][branch].fresh
            kickoff(run, branch, dice.choice(TOPICS) if fresh and dice.random() < 0.7 else None)
        elif verb == "fork":
            branch = dice.choice(list(model.runs[run]))
            shown = model.shown(run, branch)
            at = dice.randrange(len(shown)) if shown and dice.random() < 0.7 else None
            for world in worlds:
                with world.history() as history:
                    places = history.run(f"{run}/{branch}").checkpoints()
                    ref = f"{run}/{branch}" if at is None else places[at].ref
                    history.fork(ref, branch=f"fork{number}")
            model.fork(run, branch, f"fork{number}", None if at is None else shown[at])
            if dice.random() < 0.8:
                kickoff(run, f"fork{number}", dice.choice([None, *TOPICS]))
        elif verb == "prune":
            keep = dice.choice([1, 2, 4])
            model.prune(keep)
            for world in worlds:
                with world.history() as history:
                    said = history.prune(keep_last=keep, dry_run=True)
                    assert history.prune(keep_last=keep) == said
        elif verb == "move":
            for world in worlds:
                path = tmp_path / f"{world.provider.name}.json"
                with world.history() as history:
                    digest = history.export(run, path)
                    history.delete(run)
                    assert history.import_run(path).digest == digest
        elif len(model.runs) > 1:
            del model.runs[run]
            for world in worlds:
                with world.history() as history:
                    history.delete(run)
        for world in worlds:
            world.check(model, run)
    for world in worlds:
        for run in model.runs:
            world.check(model, run)
        world.check_listing(model)


@pytest.mark.parametrize("seed", range(10))
def test_any_history_is_what_a_dictionary_says_it_is_on_every_provider(seed, tmp_path):
    play(seed, 12, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_any_long_history_is_what_a_dictionary_says_it_is_on_every_provider(seed, tmp_path):
    play(seed, 40, tmp_path)
