"""A location with a bit of everything in it, what can be done there, and what must be true of it afterwards.

`Act.judge` is the one promise: whatever happened in the middle, the location shows what it showed before, or what it
shows after; a run that is not concerned never changes at all.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, event_bus, tool
from crewlite.errors import CrewliteError
from crewlite.events import LLMCallCompletedEvent, LLMCallStartedEvent, TaskCompletedEvent
from crewlite.state.providers.json import JsonStore
from crewlite.testing import ScriptedLLM

Facts = dict[str, Any]
LONG = 26  # tasks of the run that is resumed: more than 64 commits, so that its journal is compacted


class Stop(Exception):
    """The laptop lid."""


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"saw {where}"


def store_of(world: Path, provider: str) -> Path:
    return world / ("store" if provider == "json" else "store.db")


def crew_at(location: Path, count: int, *, stop_at: int | None = None, looks: bool = False, **fields: Any) -> Crew:
    """Tasks t0, t1, ..., the n-th of which answers from what it heard; one of them never comes back."""

    def reply(messages: list[Facts]) -> Any:
        number = int(messages[1]["content"].split()[1])
        heard = [message["content"] for message in messages if message["role"] == "tool"]
        if number == stop_at:
            raise Stop
        return ToolCall("look", {"where": f"w{number}"}) if looks and not heard else f"answer {number} from {heard}"

    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(reply), tools=[look] if looks else [])
    tasks = [
        Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=agent, context=[]) for n in range(count)
    ]
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=location, **fields))


def make(world: Path, provider: str) -> None:
    """The world before: a run with forks, a finished one, one that was cut, a damaged one elsewhere, an exported one."""
    location = store_of(world, provider)
    crew_at(location, 4, looks=True, on_events=["llm_call_completed", "task_completed"]).kickoff(run_id="trunk")
    crew_at(location, 2, max_checkpoints=1).kickoff(run_id="other")
    cut(location, 6)
    with History(location) as history:
        history.fork("trunk@task:t1", branch="side")
        history.fork("trunk", branch="twig")
    crew_at(location, 4, looks=True).kickoff(from_checkpoint=CheckpointConfig(restore_from="trunk/side"))
    with History(location) as history:
        history.export("trunk", world / "trunk.json")
        (world / "out.json").write_text("what was there before")
    hurt(location)


def cut(location: Path, count: int) -> None:
    """A run of so many tasks whose last but one never came back."""
    with contextlib.suppress(Stop):
        crew_at(location, count, stop_at=count - 2).kickoff(run_id="cut")


def hurt(location: Path) -> None:
    """A run whose newest checkpoint has lost its file, or its row."""
    crew_at(location, 2).kickoff(run_id="hurt")
    if location.suffix:
        import sqlite3

        with contextlib.closing(sqlite3.connect(location)) as db:
            db.execute("DELETE FROM place WHERE branch_id IN (SELECT id FROM branch WHERE run_id='hurt')")
            db.commit()
    else:
        for file in location.glob("*_*.json"):
            if json.loads(file.read_text())["run_id"] == "hurt":
                file.unlink()


def look_at(location: Path) -> Facts:
    """All that a location shows. Raises if anything is torn."""
    if not location.exists():
        return {"branches": {}, "digests": {}, "listed": []}
    if location.is_dir():
        for file in location.glob("*_*.json"):
            JsonStore(location).check_file(file)
    branches, digests = {}, {}
    with History(location) as history:
        for run in history.runs():
            digests[run.run_id] = digests.get(run.run_id) or run.digest
            branches[f"{run.run_id}/{run.branch}"] = {
                "status": run.status,
                "steps": {step.address: (step.status, json.dumps(step.value)) for step in run.steps},
                "places": [
                    (p.id, p.address, p.tasks, p.usage.total_tokens, p.label, p.abandoned)
                    for p in run.checkpoints(abandoned=True)
                ],
                "tails": [(tail.status, len(tail.checkpoints())) for tail in run.abandoned],
                "usage": run.usage,
                "events": len(run.events()),
            }
        listed = sorted((p.id, f"{p.run_id}/{p.branch}{' abandoned' * p.abandoned}") for p in history.checkpoints())
    return {"branches": branches, "digests": digests, "listed": listed}


def strays(found: Facts) -> list[str]:
    """Checkpoints that a listing shows and no journal has."""
    known = {place[0] for branch in found["branches"].values() for place in branch["places"]}
    return [f"{where} {place[-8:]}" for place, where in found["listed"] if place not in known]


@dataclass(frozen=True)
class Act:
    """Something that is done to a world."""

    do: Callable[[Path, str], Facts | None]
    """Does it; may say something of how it went."""
    concerns: tuple[str, ...] = ()
    """The runs that it may change. All others must stay exactly as they are."""
    whole: bool = True
    """All of it or nothing; if not, that holds for each branch by itself."""
    fresh: bool = False
    """It mints ids of its own, so two worlds in which it was done are told apart by them."""
    empty: bool = False
    """It is done where nothing is."""

    def judge(self, before: Facts, after: Facts, found: Facts) -> list[str]:
        """The promises that a world breaks in which this was cut in the middle."""
        wrong = []
        for run, digest in before["digests"].items():
            if run not in self.concerns and found["digests"].get(run) != digest:
                wrong.append(f"run {run} has changed, though nothing was done to it")
        views = [{name: self.view(b) for name, b in seen["branches"].items()} for seen in (before, after, found)]
        old, new, now = views
        if self.whole and now not in (old, new) and not self.fresh:
            wrong.append(f"neither what it was nor what it is to be: {different(now, old)}; {different(now, new)}")
        for name in () if self.whole or self.fresh else sorted({*old, *new, *now}):
            if not between(old.get(name), now.get(name), new.get(name)):
                wrong.append(f"{name} is neither as it was nor as it is to be")
        return wrong

    def done(self, after: Facts, found: Facts) -> list[str]:
        """What is missing in a world in which this was done to the end."""
        old, now = ({name: self.view(b) for name, b in seen["branches"].items()} for seen in (after, found))
        wrong = [] if now == old else [f"done again, it is another world: {different(now, old)}"]
        listed = [[where for _, where in seen["listed"]] for seen in (after, found)]
        listed = [sorted(names) for names in listed] if self.fresh else listed
        wrong += [] if listed[0] == listed[1] else ["done again, its listing is another"]
        return wrong + [f"a listing shows what is gone: {stray}" for stray in strays(found)]

    def view(self, branch: Facts) -> Facts:
        """A branch without what differs from one time to the next."""
        if not self.fresh:
            return branch
        places = [place[1:] for place in branch["places"]]
        return {**{name: branch[name] for name in ("status", "usage")}, "places": places, "steps": _outer(branch)}


def between(old: Facts | None, now: Facts | None, new: Facts | None) -> bool:
    """Whether a branch is the old or the new one, or the new one with some inner detail that is to go yet.

    Detail is shared with forks, so a fork loses some when what it stands on is compacted.
    """
    if now in (old, new):
        return True
    if old is None or now is None or new is None or now["places"] not in (old["places"], new["places"]):
        return False
    return new["steps"].items() <= now["steps"].items() <= old["steps"].items() and all(
        old[name] == now[name] for name in ("status", "usage", "events")
    )


def different(one: Facts, other: Facts) -> str:
    """Where two worlds differ, in short."""
    if names := sorted(one.keys() ^ other.keys()):
        return f"branches {names}"
    parts = [f"{name} {part}" for name in one for part in one[name] if one[name][part] != other[name][part]]
    return ", ".join(parts)


def _outer(branch: Facts) -> Facts:
    return {address: said for address, said in branch["steps"].items() if address.count("/") == 0}


def _history(act: Callable[[History, Path], object]) -> Callable[[Path, str], None]:
    def do(world: Path, provider: str) -> None:
        with History(store_of(world, provider), make=True) as history:
            act(history, world)

    return do


def _kickoff(run_id: str, count: int, **fields: Any) -> Callable[[Path, str], Facts]:
    """Kick off a run and note what it does: what was asked, and what was acknowledged."""

    def do(world: Path, provider: str) -> Facts:
        with event_bus.scoped() as bus:
            bus.on(LLMCallStartedEvent, lambda source, event: note(world, "asked", event.address))
            for kind in (LLMCallCompletedEvent, TaskCompletedEvent):
                bus.on(kind, lambda source, event: note(world, "acks", event.address))
            crew = crew_at(store_of(world, provider), count, on_events=["task_completed"], **fields)
            result = crew.kickoff(run_id=run_id)
        return {"raw": [output.raw for output in result.tasks_output], "durability": result.durability}

    return do


def _crew_fork(world: Path, provider: str) -> None:
    crew_at(store_of(world, provider), 4, looks=True).fork("trunk@task:t1", branch="new", operation_id="once")


def _explore(world: Path, provider: str) -> Facts:
    """Explore two variants, the second of which begins with an edit; say so if a row is not what it is to be."""
    variants = [{"name": "plain"}, {"name": "other", "edits": {"task:t1": "other"}}]
    crew = crew_at(store_of(world, provider), 4, looks=True)
    judge = ScriptedLLM(lambda messages: '{"quality": 6.5, "reason": "brief"}')
    rows = crew.explore("trunk@task:t1", variants, judge, max_concurrency=1, study="s").rows
    if errors := [row.error for row in rows if row.error]:
        raise CrewliteError(errors[0])
    degraded = [row for row in rows if row.result.durability == "degraded"]
    return {"durability": "degraded" if degraded else "sync"}


def note(world: Path, file: str, text: str) -> None:
    """Leave a trace with one write, which a kill cannot tear."""
    handle = os.open(world / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, f"{text}\n".encode())
    os.close(handle)


def notes(world: Path, file: str) -> set[str]:
    path = world / file
    return set(path.read_text().splitlines()) if path.exists() else set()


ACTS = {
    "kickoff": Act(_kickoff("new", 3, max_checkpoints=1), ("new",), fresh=True, empty=True),
    "resume": Act(_kickoff("cut", LONG, max_checkpoints=3), ("cut",), fresh=True),
    "fork": Act(_history(lambda h, world: h.fork("trunk@task:t1", branch="new", operation_id="once")), ("trunk",)),
    "crew-fork": Act(_crew_fork, ("trunk",)),
    "explore": Act(_explore, ("trunk",), fresh=True),
    "rewind": Act(_history(lambda h, world: h.rewind("trunk@task:t1", reason="wrong")), ("trunk",)),
    "label": Act(_history(lambda h, world: h.label("trunk@task:t1", "good")), ("trunk",), fresh=True),
    "thin": Act(_history(lambda h, world: h.prune(keep_last=2)), ("trunk", "cut", "hurt", "other"), whole=False),
    "prune": Act(_history(lambda h, world: h.prune(older_than=timedelta(0))), ("trunk", "other", "hurt"), whole=False),
    "delete": Act(_history(lambda h, world: h.runs() and _delete(h)), ("trunk",)),
    "export": Act(_history(lambda h, world: h.export("trunk", world / "out.json"))),
    "import": Act(_history(lambda h, world: h.import_run(world / "trunk.json")), ("trunk",), empty=True),
    "import-beside": Act(_history(lambda h, world: h.import_run(world / "trunk.json")), ("trunk",)),
    "doctor": Act(_history(lambda h, world: h.doctor(repair=True)), ("hurt",)),
}


def _delete(history: History) -> None:
    if "trunk" in {run.run_id for run in history.runs()}:
        history.delete("trunk")


def prepare(name: str, world: Path, provider: str) -> None:
    """Change a world made by `make` to one in which an act has something to do."""
    location = store_of(world, provider)
    if name == "import-beside":
        with History(location) as history:
            history.delete("trunk")
    if name == "resume":  # every look at a long run takes long, so the others have a short one
        with History(location) as history:
            history.delete("cut")
        cut(location, LONG)
