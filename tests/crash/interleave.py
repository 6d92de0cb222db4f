"""Every verb interrupted by every act of another process, right before each thing it does to the disk.

The verb is done once undisturbed, to count its points: each file that it opens, looks for, lists, writes, renames or
removes; each statement of a database. Then once for each point: it stops right before it, another process does the act,
and it goes on. A third process looks at all there is, and goes on with every run.

Run as a program, so that it can fork before any thread exists. It prints one line of JSON and exits with 1 if any
promise was broken: {"verbs": 30, "acts": 23, "trials": 812, "violations": {"lost: ...": ["cut: prune, ..."]}}.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jsonschema  # noqa: F401 - loaded before the forks, once
import sqlite_utils  # noqa: F401
from interleavings.acts import INPUTS, VERBS, Pair, Said, act_of, kick, pairs
from interleavings.explorer import spots
from interleavings.judge import Outcome, Seen, go_on, judge, look, release
from interleavings.scenes import LONG, RUN, TASKS, Site, buys, crew, flow, lay_out, traced
from points import LONGEST, PATIENT, Child, FileTrace, Points

from crewlite import event_bus
from crewlite.events import TaskStartedEvent
from crewlite.state import RuntimeState

AT_WORK = ("stays at work", "goes on")
"""Acts that only another process can do: it claims the branch, and goes on after the verb; or has done so before, and
goes on where the verb is interrupted."""
LEAVES_ALONE = (
    *("fork", "prune", "delete", "export", "import", "doctor", "repair", "list", "rebuild", "preview"),
    *("rewind", "label", "explore"),
)


def tasks_of(scene: str) -> int:
    return LONG if scene == "long" else TASKS


def _fork(site: Site, state: RuntimeState, tasks: int) -> Said:
    made = crew(site, tasks=tasks).fork(RUN, branch="fc")
    return {"branch": "fc", **kick(site, run_id=None, made=made)}


IN_A_THREAD: dict[str, Callable[[Site, RuntimeState, int], object]] = {
    "checkpoints": lambda site, state, tasks: {"checkpoints": len(state.checkpoints())},
    "latest": lambda site, state, tasks: {"latest": bool(state.latest)},
    "flush": lambda site, state, tasks: {"flush": state.flush()},
    "crew.fork": _fork,
    "list": lambda site, state, tasks: VERBS["list"][1](site),
    "prune": lambda site, state, tasks: VERBS["prune"][1](site),
    "delete": lambda site, state, tasks: VERBS["delete"][1](site),
    "rewind": lambda site, state, tasks: VERBS["rewind"][1](site),
    "label": lambda site, state, tasks: VERBS["label"][1](site),
    "repair": lambda site, state, tasks: VERBS["repair"][1](site),
    "resume": lambda site, state, tasks: VERBS["resume"][1](site),
}
"""What a thread does in the process in which the run is at work, with the state that a handler was given."""
IN_A_PROCESS = ("the run goes on", "the run ends")


class Ended:
    """A thread, and how it ended."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.ended, self.outcome = threading.Event(), Outcome(stuck=True)
        threading.Thread(target=self._do, args=[act], daemon=True).start()

    def _do(self, act: Callable[[], object]) -> None:
        try:
            self.outcome = Outcome.of(act())
        except BaseException as error:
            self.outcome = Outcome.of(error)
        self.ended.set()


class Explorer:
    """Makes trials with one provider, each in processes of its own."""

    def __init__(self, provider: str, directory: Path) -> None:
        self._name = "store" if provider == "json" else "store.db"
        self._directory = directory
        self._counts: dict[tuple[str, str], int] = {}
        self._before: dict[str, Seen] = {}
        self._sound: set[str] = set()
        """Shapes of sites on which every run went on as it ought to."""
        self.told = False

    def of_pair(self, pair: Pair) -> range:
        return self.thread_positions(*pair) if pair[2] in IN_A_PROCESS else self.positions(*pair[:2])

    def positions(self, scene: str, verb: str) -> range:
        if (scene, verb) not in self._counts:
            world = self._world(scene)
            clean = self._verb(world, verb, None).end()
            assert clean.said, f"{verb} in {scene}, undisturbed: {clean}"
            self._counts[scene, verb] = clean.said["points"]
        return range(1, self._counts[scene, verb] + 1)

    def trial(self, scene: str, verb: str, act: str, at: int) -> list[str]:
        """Do a verb, and the act right before its `at`-th point: what is broken."""
        world = self._world(scene)
        other = self._act(world, verb, act) if act == "goes on" else None
        if other and not other.stopped():
            return [f"{act}: it did not begin: {other.end()}"]
        interrupted, stopped = self._verb(world, verb, at), None
        if interrupted.stopped():
            if other:
                other.go()
            else:
                other = self._act(world, verb, act)
            stopped = other.stopped(PATIENT, unless_it_waits=True)
        elif other is None:  # this time it was over before
            interrupted.end()
            return []
        interrupted.go()
        of_verb = interrupted.end()
        other.go()
        of_act = other.end()
        of_verb.said = of_verb.said and of_verb.said["said"]
        broken = self._at_work(world, verb, act, of_verb, of_act, holds=bool(stopped) or act == "goes on")
        return broken + self._judged(world, scene, verb, act, of_verb, of_act)

    def _judged(self, world: Path, scene: str, verb: str, act: str, of_verb: Outcome, of_act: Outcome) -> list[str]:
        looked = Child(world, "look", lambda child: self._looked(world)).end()
        if looked.said is None:
            return [f"the look: {looked.error}: {looked.text}"]
        found, trace, later = Seen(**looked.said["seen"]), looked.said["trace"], looked.said["later"]
        broken = judge(verb, act, self._before[scene], found, (of_verb, of_act), trace) + later
        if not broken:
            self._sound.add(found.shape)
        if self.told and broken:
            print(of_verb, of_act, json.dumps(looked.said, indent=1), looked.said["trace"], sep="\n")
        return broken

    def thread_positions(self, scene: str, verb: str, act: str) -> range:
        """Where a thread of the process can be interrupted in which the run is at work."""
        if (f"{scene}, threads", verb) not in self._counts:
            clean = self._threads(self._world(scene), scene, verb, act, None).end()
            assert clean.said, f"{verb} in a thread, undisturbed: {clean}"
            self._counts[f"{scene}, threads", verb] = clean.said["points"]
        return range(1, self._counts[f"{scene}, threads", verb] + 1)

    def thread_trial(self, scene: str, verb: str, act: str, at: int) -> list[str]:
        """Do a verb in a thread of the process in which the run is at work, and let it go on before the point."""
        world = self._world(scene)
        outcome = self._threads(world, scene, verb, act, at).end()
        if outcome.said is None:
            return [f"{outcome.error}: {outcome.text}"]
        of_verb, of_act = Outcome(**outcome.said["verb"]), Outcome(**outcome.said["act"])
        broken = [f"{act} was disturbed: {of_act.error}: {of_act.text}"] if of_act.error else []
        return broken + self._judged(world, scene, verb, act, of_verb, of_act)

    def _threads(self, world: Path, scene: str, verb: str, act: str, at: int | None) -> Child:
        def do(child: Child) -> dict[str, Any]:
            holds, go, states = [threading.Event(), threading.Event()], threading.Event(), []

            def hold() -> None:
                holds[min(sum(held.is_set() for held in holds), 1)].set()
                go.wait(LONGEST)
                go.clear()

            def goes_on() -> None:
                go.set()
                if act == "the run ends":
                    run.ended.wait(PATIENT)
                elif holds[1].wait(PATIENT):
                    states[-1].flush()  # its journal is compacted by then

            site = dataclasses.replace(self._site(world), hold=hold)
            keep = event_bus.on(TaskStartedEvent, lambda source, event, state: states.append(state))
            at_first = LONG - 2 if scene == "long" else 2
            stops = [at_first, at_first + 1] if act == "the run goes on" else [at_first]
            run = Ended(lambda: kick(site, tasks=tasks_of(scene), hold_at=stops, max_checkpoints=1))
            holds[0].wait(LONGEST)
            points = Points(str(world / self._name), at, goes_on)

            def look() -> object:
                points.install(only_here=True)
                try:
                    return IN_A_THREAD[verb](site, states[-1], tasks_of(scene))
                finally:
                    points.on = False

            reader = Ended(look)
            while not (reader.ended.wait(0.005) and run.ended.wait(0.005)):
                if reader.ended.is_set():
                    go.set()
            keep.cancel()
            return {"verb": asdict(reader.outcome), "act": asdict(run.outcome), "points": points.count}

        return Child(world, "verb", do)

    def _at_work(
        self, world: Path, verb: str, act: str, of_verb: Outcome, of_act: Outcome, *, holds: bool
    ) -> list[str]:
        """Who is at work is left alone by whoever only looks, tidies or forks."""
        if act in AT_WORK and holds and of_act.error and verb.startswith(LEAVES_ALONE):
            return [f"a run at work was disturbed by {verb}: {of_act.error}: {of_act.text}"]
        if act == "stays at work" and holds and verb.startswith("resume") and not (of_act.error or of_verb.error):
            return ["two held one branch, and both succeeded"]
        held = (of_act.said or {}).get("held")
        refused = release(self._site(world), held) if held and verb != "cancel" else ""
        return [f"who is at work elsewhere was disturbed: {refused}"] if refused else []

    def _looked(self, world: Path) -> dict[str, Any]:
        """What there is, and what comes of going on with it, unless that is known already."""
        site = self._site(world)
        seen, trace = look(site), site.trace.lines()
        later = [] if seen.wrong or seen.shape in self._sound else go_on(site, seen) or look(site).wrong
        return {"seen": vars(seen), "trace": trace, "later": later}

    def _verb(self, world: Path, verb: str, at: int | None) -> Child:
        def do(child: Child) -> dict[str, Any]:
            points = Points(str(world / self._name), at, child.stop)
            points.install()
            try:
                said = VERBS[verb][1](self._site(world))
            finally:
                points.on = False
            return {"said": said, "points": points.count}

        return Child(world, "verb", do)

    def _act(self, world: Path, verb: str, act: str) -> Child:
        def do(child: Child) -> dict[str, Any]:
            site = self._site(world, child)
            return kick(site, hold_at=[2]) if act in AT_WORK else act_of(verb, act)(site)

        return Child(world, "act", do)

    def _site(self, world: Path, child: Child | None = None) -> Site:
        hold = child.stop if child else lambda: None
        return Site(str(world / self._name), None, world, FileTrace(world / "trace"), hold)

    def _world(self, scene: str) -> Path:
        """A fresh copy of a scene."""
        template, world = self._directory / scene, self._directory / "trial"
        if not template.exists():
            template.mkdir(parents=True)
            Child(template, "made", lambda child: lay_out(scene, self._site(template))).end()
            seen = Child(template, "look", lambda child: vars(look(self._site(template)))).end()
            assert seen.said, seen
            self._before[scene] = Seen(**seen.said)
            for path in template.glob("*.log"):
                path.unlink()
        shutil.rmtree(world, ignore_errors=True)
        shutil.copytree(template, world)
        return world


def warm_up(directory: Path) -> None:
    """Work out here, once, what each process would work out at its first use. Leaves no thread behind."""
    directory.mkdir(parents=True)
    for name in ("store", "store.db"):
        site = Site(str(directory / name), None, directory)
        with traced(site):
            asyncio.run(crew(site).akickoff(INPUTS, run_id=RUN))
            asyncio.run(flow(site, buys).akickoff(1, run_id="b"))
        for verb in ("fork.edits", "export", "label", "rewind", "prune", "repair", "list"):
            VERBS[verb][1](site)
        look(site)
    until = time.monotonic() + LONGEST
    while threading.active_count() > 1 and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() == 1, "children are forked, so nothing may have begun a thread"


def chosen(scene: str, verb: str, act: str) -> Iterator[Pair]:
    """The pairs that fit; * fits all."""
    of_processes = [("cut", verb, act) for verb, (where, _) in VERBS.items() if "cut" in where for act in AT_WORK]
    of_threads = [(scene, verb, act) for scene in ("cut", "long") for verb in IN_A_THREAD for act in IN_A_PROCESS]
    for pair in [*pairs(), *of_processes, *of_threads]:
        if all(wanted in ("*", found) for wanted, found in zip((scene, verb, act), pair, strict=True)):
            yield pair


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--provider", choices=["json", "sqlite"], required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--scene", default="*")
    parser.add_argument("--verb", default="*")
    parser.add_argument("--act", default="*")
    parser.add_argument("--at", type=int, help="this point alone; tell what came of it")
    parser.add_argument("--trials", type=int, help="so many, of any of them")
    parser.add_argument("--seed", type=int, default=1, help="which")
    parser.add_argument("--seconds", type=float, default=1e9, help="no new trial after so many")
    options = parser.parse_args()
    explorer = Explorer(options.provider, options.directory)
    warm_up(options.directory / "warm")
    explorer.told = options.at is not None
    verbs, acts, trials, violations = set(), set(), 0, dict[str, list[str]]()
    pairs = list(chosen(options.scene, options.verb, options.act))
    wanted = spots(pairs, explorer.of_pair, options.trials, options.seed)
    began = time.monotonic()
    for (scene, verb, act), at in wanted:
        if options.at not in (None, at) or time.monotonic() - began > options.seconds:
            continue
        trials += 1
        verbs.add(verb)
        acts.add(act)
        in_thread = act in IN_A_PROCESS
        for text in explorer.thread_trial(scene, verb, act, at) if in_thread else explorer.trial(scene, verb, act, at):
            where = f"{scene}: {verb}, {act} before {at}"
            violations.setdefault(text.replace(str(options.directory / "trial"), ""), []).append(where)
    said = {"provider": options.provider, "verbs": len(verbs), "acts": len(acts), "trials": trials, "of": len(wanted)}
    print(json.dumps({**said, "seconds": round(time.monotonic() - began), "violations": violations}))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
