"""Whatever is done to runs, in whatever order, is what a dictionary says it is, on every provider.

A program of random operations (begin, go on, cut, fork, edit, ask otherwise, rewind, label, prune, move, delete) is done
on memory, JSON and SQLite stores, and to a model that knows no journals. No recorded step runs again, nothing is lost,
what a rewind abandons stays readable, no tool is ever given an idempotency key twice, labels stay at their places, and
an edit runs again exactly what depends on it.
"""

from __future__ import annotations

import random
from uuid import uuid4

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, idempotency_key, tool
from crewlite.errors import RefError
from crewlite.state import InMemoryProvider, JsonProvider, SqliteProvider
from crewlite.testing import ScriptedLLM
from tests.parts import Stop
from tests.state.histories_model import CALLS, TASKS, Model, question

TOPICS = ("tides", "moons", "winds")


class World:
    """One store, and everything that is done to it."""

    def __init__(self, provider, location):
        self.provider, self.location = provider, location
        self.keys: list[str] = []
        """The idempotency keys of all calls of the tool."""

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

        @tool
        def look(where: str) -> str:
            """Look somewhere."""
            self.keys.append(idempotency_key())
            return f"saw {where}" + " and much besides" * 10

        who = Agent(role="Worker", goal="g", llm=ScriptedLLM(reply), tools=[look])
        tasks: list[Task] = []
        for n in range(TASKS):
            before = tasks[-1:] if n == TASKS - 1 else []
            about = question(n, "{topic}")
            tasks.append(Task(name=f"t{n}", description=about, expected_output="x", agent=who, context=before))
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
                view, about = found[branch], (self.provider.name, run, branch)
                known, places = model.known(run, branch), view.checkpoints(abandoned=True)
                ids = {place.tick: one.id for place, one in zip(known, places, strict=False)}
                assert [one.parent_id for one in places] == [
                    ids.get(model.parent(run, branch, place)) for place in known
                ], about
                assert told(view.checkpoints()) == wanted(model.shown(run, branch)), about
                assert view.usage.requests == line.state.requests, about
                assert view.inputs == {"topic": line.state.topic}, about
                states = [line.state, *(state for _, state in line.tails)]
                assert len(view.abandoned) == len(line.tails), about
                for state, seen in zip(states, (view, *view.abandoned), strict=True):
                    assert (seen.status == "finished") == state.finished, about
                    assert answers(seen) == state.answers, about
                for number, tail in enumerate(view.abandoned):
                    assert told(tail.checkpoints()) == wanted(model.tail(run, branch, number)), (*about, number)

    def check_listing(self, model):
        """Whether this store lists what the model lists."""
        alive = [
            (place, line.counts(place.at, model.tick), run)
            for run, lines in model.runs.items()
            for line in lines.values()
            for place in line.own
        ]
        alive.sort(key=lambda item: -item[0].tick)
        with self.history() as history:
            listed = history.checkpoints()
            assert [(p.run_id, p.branch, p.address, p.trigger, p.label, p.abandoned) for p in listed] == [
                (run, place.branch, place.address, place.trigger, place.label, not counts)
                for place, counts, run in alive
            ], self.provider.name
            assert [p.id for p in listed] == sorted((p.id for p in listed), reverse=True)
            assert history.doctor() == []


def told(places):
    return [(p.branch, p.address, p.trigger, p.label, p.tasks, p.usage.requests, p.inputs["topic"]) for p in places]


def wanted(places):
    return [
        (
            *(p.branch, p.address, p.trigger, p.label, tuple(f"task:t{n}" for n in p.state.ever)),
            *(p.state.requests, p.state.topic),
        )
        for p in places
    ]


def answers(view):
    return {step.address: step.value["raw"] for step in view.steps if step.kind == "task" and step.status == "finished"}


class Program:
    """Operations drawn at random, each done to the model and to every store."""

    def __init__(self, seed, tmp_path):
        self.dice, self.model, self.tmp_path, self.number = random.Random(seed), Model(), tmp_path, 0
        self.worlds = [
            World(InMemoryProvider(), "store"),
            World(JsonProvider(), str(tmp_path / "store")),
            World(SqliteProvider(), str(tmp_path / "store.db")),
        ]

    def play(self, operations):
        self.begin()
        for self.number in range(1, operations):
            run = self.dice.choice(list(self.model.runs))
            verb = self.dice.choice(self.VERBS)
            run = verb(self, run, self.dice.choice(list(self.model.runs[run]))) or run
            for world in self.worlds:
                world.check(self.model, run)
        for world in self.worlds:
            for run in self.model.runs:
                world.check(self.model, run)
            world.check_listing(self.model)

    def begin(self, *_):
        run, topic = f"run{self.number}", self.dice.choice(TOPICS)
        self.model.begin(run, topic)
        self.kickoff(run, "main", topic)
        return run

    def go_on(self, run, branch):
        fresh = self.model.runs[run][branch].state.fresh
        self.kickoff(run, branch, self.dice.choice(TOPICS) if fresh and self.dice.random() < 0.7 else None)

    def kickoff(self, run, branch, topic):
        crash, limit = self.dice.choice([1, 2, 3, 4, 5, 99]), self.dice.choice([None, None, 1, 2])
        calls, finishes = self.model.kickoff(run, branch, topic, crash, limit)
        expected = list(self.model.runs[run][branch].state.answers.values()) if finishes else None
        for world in self.worlds:
            made, outputs = world.kickoff(run, branch, topic, crash, limit)
            assert made == calls, (world.provider.name, run, branch)
            assert outputs == expected, (world.provider.name, run, branch)
            assert world.keys == self.worlds[0].keys
            assert len(set(world.keys)) == len(world.keys), "a call that is made again on purpose has a key of its own"

    def fork(self, run, branch):
        """Fork the head, a place, or what a rewind has abandoned; perhaps with edits, and tasks to do again."""
        target, name = self.target(run, branch, head=True), f"fork{self.number}"
        line = self.model.runs[run][branch]
        place, tail = target.get("place"), target.get("tail")
        state = place.state if place else line.state if tail is None else line.tails[tail][1]
        done = [n for n, task in enumerate(state.done) if task.answer is not None]
        edits = {n: f"edit {self.number}" for n in done if self.dice.random() < 0.3}
        rerun = [n for n in done if n not in edits and self.dice.random() < 0.2]
        ref, again = self.ref(run, branch, target), [f"task:t{n}" for n in rerun]
        for world in self.worlds:
            with world.history() as history:
                other = {f"task:t{n}": text for n, text in edits.items()}
                history.fork(ref(history), branch=name, edits=other, rerun=again)
        self.model.fork(run, branch, name, place, tail=tail, edits=edits.items(), rerun=rerun)
        if self.dice.random() < 0.8:
            self.kickoff(run, name, self.dice.choice([None, *TOPICS]))

    def rewind(self, run, branch):
        """Go back to a place, abandoned or not, or to the end of what a rewind has abandoned."""
        target, line = self.target(run, branch), self.model.runs[run][branch]
        place, tail = target.get("place"), target.get("tail")
        if not target:
            return
        inherited = place and place.branch != branch
        at = line.tails[tail][0] if tail is not None else line.begin if inherited else place.at
        nothing_since = inherited and line.state.fresh and not (line.own or line.tails)
        if nothing_since or at == line.back_at:
            return
        ref = self.ref(run, branch, target)
        beyond = inherited and (line.base.branch, line.base.at) != (place.branch, place.at)
        for world in self.worlds:
            with world.history() as history:
                if beyond:
                    with pytest.raises(RefError, match="fork that place instead"):
                        history.rewind(ref(history))
                else:
                    history.rewind(ref(history), reason="wrong")
        if not beyond:
            self.model.rewind(run, branch, place, tail=tail)

    def label(self, run, branch):
        place = self.target(run, branch, tails=False).get("place")
        if place is None:
            return
        names = {one.label for line in self.model.runs[run].values() for one in line.own if one.label}
        name = self.dice.choice([f"label{self.number}", *sorted(names)])
        given = self.model.label(run, branch, place, name)
        ref = self.ref(run, branch, {"place": place})
        for world in self.worlds if given is not None else ():
            with world.history() as history:
                target = history.checkpoint(ref(history))
                if given:
                    assert history.label(target, name).seq == target.seq
                else:
                    with pytest.raises(RefError, match="labels another place"):
                        history.label(target, name)

    def target(self, run, branch, *, head=False, tails=True):
        """A place of the branch, abandoned ones too, or a tail; {} for the head, or for none."""
        places = [{"place": place} for place in self.model.known(run, branch)]
        ends = [{"tail": number} for number in range(len(self.model.runs[run][branch].tails))] if tails else []
        if head and self.dice.random() < 0.3:
            return {}
        return self.dice.choice([*places, *ends] or [{}])

    def ref(self, run, branch, target):
        """A function that gives the ref of a target in a store."""
        if "tail" in target:
            return lambda history: f"{run}/{branch}@abandoned:{target['tail'] + 1}"
        if "place" not in target:
            return lambda history: f"{run}/{branch}"
        number = self.model.known(run, branch).index(target["place"])
        found = lambda history: history.run(f"{run}/{branch}").checkpoints(abandoned=True)[number]  # noqa: E731
        return lambda history: f"{run}/{branch}@{found(history).id}"

    def prune(self, *_):
        keep = self.dice.choice([1, 2, 4])
        self.model.prune(keep)
        for world in self.worlds:
            with world.history() as history:
                said = history.prune(keep_last=keep, dry_run=True)
                assert history.prune(keep_last=keep) == said

    def move(self, run, _):
        for world in self.worlds:
            path = self.tmp_path / f"{world.provider.name}.json"
            with world.history() as history:
                digest = history.export(run, path)
                history.delete(run)
                assert history.import_run(path).digest == digest

    def delete(self, run, _):
        if len(self.model.runs) > 1:
            del self.model.runs[run]
            for world in self.worlds:
                with world.history() as history:
                    history.delete(run)

    VERBS = (begin, go_on, go_on, fork, fork, rewind, rewind, label, prune, move, delete)
