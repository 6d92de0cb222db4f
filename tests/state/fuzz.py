"""Looks at thousands of damaged stores through every public door, and tells which promise was broken.

```console
$ python tests/state/fuzz.py --provider json --count 2000
$ python tests/state/fuzz.py --provider json --only 1234
```

A damaged store gives a typed error, or leaves out of a listing what cannot be read and warns, or answers exactly as
the sound one did, up to where a torn tail begins. A forged one, whose seals are right, gives a typed error or some
answer. Nothing it says is ever imported, compiled, run, connected to, or written outside its directory: an audit hook,
which cannot be taken off again, watches for that, so this is a program of its own. One line of JSON, exit code 1 if
anything was found.
"""

from __future__ import annotations

import argparse
import difflib  # noqa: F401 - an error with candidates would import it at its first use
import hashlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "golden")]

import make  # noqa: E402
from mutants import Rows, damage_database, damage_files, damage_pages, forged, summed  # noqa: E402
from watch import Warned, Watch  # noqa: E402

from crewlite import CheckpointConfig, History  # noqa: E402
from crewlite.errors import CrewliteError  # noqa: E402
from crewlite.state import JsonProvider, SqliteProvider  # noqa: E402
from crewlite.state.run_history import RunHistory  # noqa: E402

SCENES = (("finished", "labelled"), ("cut",), ("failed",), ("forked",), ("folded",), ("alone",))
GONE = ("removed", "renamed", "a link to what is not", "a file for its directory", "page")
"""Damage after which nothing is there to tell of a run."""
PATIENCE = 30.0  # seconds for one mutant


class Scene:
    """A sound location, and all that it may answer."""

    def __init__(self, fuzz: Fuzz, names: tuple[str, ...], made: dict[str, make.Journals]) -> None:
        self.fuzz, self.names, self.journals = fuzz, names, made
        self.rows = {r: {b: [(e.seal, e.body) for e in es] for b, es in js.items()} for r, js in made.items()}
        self.kept = fuzz.root / f"sound-{'-'.join(names)}"
        fuzz.write(self.kept, made)
        fuzz.lay(self.kept)
        with History(fuzz.location) as history:
            self.places = {ascii(place) for place in history.checkpoints()}
            self.ids = [place.id for place in history.checkpoints()]
            self.refs = [place.ref for run in history.runs() for place in run.checkpoints()]
            self.runs = {f"{run.run_id}/{run.branch}": self._answers(history, run) for run in history.runs()}
        self.results = {}
        for door in self.doors():
            fuzz.lay(self.kept)
            self.results[door[0]] = guarded(door[1])

    def _answers(self, history: History, run: RunHistory) -> set[str]:
        """What a branch may answer: all, or what is left when its tail was torn."""
        length = len(self.journals[run.run_id][run.branch])
        store = history._store
        return {told(RunHistory(Prefix(store, run.branch, n), run.run_id, run.branch)) for n in range(1, length + 1)}

    def doors(self) -> list[tuple[str, Callable[[], Any]]]:
        """Ways to go on with what is stored, each with its name."""
        where, crew, agent = str(self.fuzz.location), self.fuzz.crew, self.fuzz.agent
        if self.names == ("alone",):
            return [("run_id alone", lambda: agent.kickoff(make.QUESTION, run_id="alone"))]

        def fork(ref: str) -> Any:
            return crew.fork(ref).kickoff()

        doors: list[tuple[str, Callable[[], Any]]] = []
        for name in self.names:
            doors.append((f"run_id {name}", lambda name=name: crew.kickoff(run_id=name)))
            doors.append((f"fork {name}", lambda name=name: fork(name)))
            doors.append((f"place of {name}", lambda name=name: fork(f"{name}@task:t0")))
        for number, ref in enumerate(self.refs[:4]):
            doors.append((f"ref {number}", lambda ref=ref: crew.kickoff(from_checkpoint=ref)))
            doors.append((f"fork ref {number}", lambda ref=ref: fork(ref)))
        doors.append(("location", lambda: crew.kickoff(from_checkpoint=where)))
        doors.append(("latest", lambda: crew.kickoff(from_checkpoint="latest~1")))
        if "forked" in self.names:
            doors.append(("branch", lambda: crew.kickoff(from_checkpoint="forked/other/way")))
        return doors


class Prefix:
    """A store in which one branch ends early."""

    def __init__(self, store: Any, branch: str, length: int) -> None:
        self._store, self._branch, self._length = store, branch, length

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, run_id: str, branch: str) -> list[Any]:
        entries = self._store.read(run_id, branch)
        return entries[: self._length] if branch == self._branch else entries


class Hung(BaseException):
    """It took too long."""


def told(run: RunHistory) -> str:
    """All that is to be known of a branch, as a digest."""
    parts = [run.status, run.definition, run.inputs, run.usage, run.steps, run.attempts, run.events()]
    places = [[place, place.tasks, place.events()] for place in run.checkpoints()]
    return hashlib.sha256(ascii([parts, places]).encode()).hexdigest()


def guarded(act: Callable[[], Any]) -> Any:
    """What came of it: raw answers, or the name of a typed error. Anything else is raised."""
    try:
        result = act()
        return [output.raw for output in getattr(result, "tasks_output", [result])]
    except CrewliteError as error:
        str(error)
        return type(error).__name__


class Fuzz:
    """One round of damage and looking."""

    def __init__(self, kind: str, root: Path, seed: int, *, pages: bool) -> None:
        self.kind, self.root, self.seed, self.pages = kind, root, seed, pages
        self.location = root / "now" / ("store" if kind == "json" else "store.db")
        self.provider = JsonProvider() if kind == "json" else SqliteProvider()
        config = CheckpointConfig(location=str(self.location))
        self.crew, self.agent = make.crew(config), make.agent(config)  # before anything is watched
        self.outcomes: Counter[str] = Counter()
        self.violations: list[str] = []
        self.warned = Warned()
        for name in ("crewlite.state", "crewlite.codec", "crewlite.run", "crewlite"):
            logger = logging.getLogger(name)
            logger.addHandler(self.warned)
            logger.propagate = False
        made = make.runs()
        self.scenes = [Scene(self, names, {name: made[name] for name in names}) for names in SCENES]
        self.strange = [entry.line + b"\n" for journals in made.values() for es in journals.values() for entry in es]
        self.watch = Watch(root)

    def write(self, directory: Path, made: dict[str, make.Journals]) -> None:
        make.store(self.provider, directory / self.location.name, made)

    def lay(self, kept: Path) -> None:
        """Put a fresh copy where damage is done."""
        while self.location.parent.exists():  # a kickoff that could not release its branch may still try to
            shutil.rmtree(self.location.parent, ignore_errors=True)
        shutil.copytree(kept, self.location.parent, symlinks=True)

    def mutate(self, chance: Random, scene: Scene) -> tuple[str, bool]:
        if self.pages:
            return damage_pages(chance, self.location), False
        if chance.random() < 0.4:
            run = chance.choice(scene.names)
            rows, how = forged(chance, scene.rows[run])
            self.put(run, rows)
            return how, True
        if self.kind == "json":
            return damage_files(chance, self.location, self.strange), False
        return damage_database(chance, self.location), False

    def put(self, run: str, journals: dict[str, Rows]) -> None:
        """Store forged journals in place of the sound ones."""
        if self.kind == "json":
            for branch, rows in journals.items():
                lines = [b'{"sum":"%b",%b\n' % (seal.encode(), body[1:]) for seal, body in rows]
                (self.location / "journal" / run / f"{branch}.jsonl").write_bytes(b"".join(lines))
            return
        sqlite3 = sys.modules["sqlite3"]
        db = sqlite3.connect(self.location)
        for branch, rows in journals.items():
            (number,) = db.execute("SELECT id FROM branch WHERE run_id=? AND name=?", (run, branch)).fetchone()
            seqs = [seq for (seq,) in db.execute("SELECT seq FROM entry WHERE branch_id=? ORDER BY seq", (number,))]
            seqs += range(seqs[-1] + 1, seqs[-1] + 1 + len(rows))
            db.execute("DELETE FROM entry WHERE branch_id=?", (number,))
            db.executemany(
                "INSERT INTO entry (branch_id, seq, sum, body) VALUES (?,?,?,?)",
                [(number, seq, seal, body) for seq, (seal, body) in zip(seqs, rows, strict=False)],
            )
            head = (seqs[len(rows) - 1], summed(*rows[-1])) if rows else (0, "")
            db.execute("UPDATE branch SET seq=?, head=? WHERE id=?", (*head, number))
        db.commit()
        db.close()

    def trial(self, number: int) -> None:
        """Make mutant `number`, and look at it."""
        chance = Random(f"{self.seed}:{number}")
        scene = chance.choice(self.scenes)
        self.lay(scene.kept)
        how, sealed = self.mutate(chance, scene)
        for path in self.location.rglob("*.jsonl") if self.kind == "json" else ():
            if path.is_file():
                os.utime(path, (1, 1))  # whoever wrote it is long gone
        door = chance.choice(scene.doors())
        self.warned.said.clear()
        self.watch.heard.clear()
        found: list[str] = []
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        try:
            with self.watch.watching():
                found += self.look(scene, how, sealed)
                if chance.random() < 0.4:
                    found += self.enter(scene, door, sealed)
        except CrewliteError as error:
            str(error)
            self.outcomes[f"all: {type(error).__name__}"] += 1
        except (Exception, Hung):
            found.append(traceback.format_exc(limit=-6))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        found += self.watch.heard
        again = f"--seed {self.seed} --only {number}{' --pages' if self.pages else ''}"
        about = f"{how}; {'-'.join(scene.names)}; {door[0]}"
        self.violations += [f"{again} ({about}): {text}" for text in found]

    def look(self, scene: Scene, how: str, sealed: bool) -> list[str]:
        """Look through History, and compare with what was there."""
        found = []
        with History(self.location) as history:
            runs = history.runs()
            places = history.checkpoints()
            for run in runs:
                name = f"{run.run_id}/{run.branch}"
                try:
                    answer = told(run)
                except CrewliteError as error:
                    str(error)
                    self.outcomes[f"run: {type(error).__name__}"] += 1
                    continue
                good = sealed or answer in scene.runs.get(name, ())
                self.outcomes["run: answered" if good else "run: CHANGED"] += 1
                found += [] if good else [f"{name} answers something else"]
            if not sealed and (strange := {ascii(place) for place in places} - scene.places):
                found.append(f"places that never were: {strange}")
        missing = len(scene.runs) - len(runs)
        self.outcomes["run: left out"] += missing
        self.outcomes["place: left out"] += max(0, len(scene.places) - len(places))
        if missing and not self.warned.said:
            self.outcomes["run: gone"] += missing
            if not how.startswith(GONE):
                found.append(f"{missing} runs are left out of the list without a word")
        return found

    def enter(self, scene: Scene, door: tuple[str, Callable[[], Any]], sealed: bool) -> list[str]:
        """Go on with a run, by one of the doors."""
        name, act = door
        result = guarded(act)
        self.outcomes[f"door: {result if isinstance(result, str) else 'answered'}"] += 1
        if sealed or isinstance(result, str) or result == scene.results[name]:
            return []
        if name in ("location", "latest") and result in scene.results.values():
            return []  # another run is the newest that can be read
        return [f"{name} gave {result}, not {scene.results[name]}"]


def _hang(number: int, frame: object) -> None:
    raise Hung


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--provider", choices=["json", "sqlite"], required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the one mutant of that number")
    parser.add_argument("--until", help="stop at the first violation that says this")
    parser.add_argument("--pages", action="store_true", help="only flip bytes of database pages")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _hang)
    with tempfile.TemporaryDirectory() as name:
        fuzz = Fuzz(options.provider, Path(name), options.seed, pages=options.pages)
        numbers = range(options.count) if options.only is None else [options.only]
        for tried, number in enumerate(numbers, 1):
            fuzz.trial(number)
            if options.until and any(options.until in violation for violation in fuzz.violations):
                break
    found = {"seed": options.seed, "mutants": tried, "outcomes": dict(sorted(fuzz.outcomes.items()))}
    print(json.dumps(found | {"broken": len(fuzz.violations), "violations": fuzz.violations[:20]}))
    return 1 if fuzz.violations else 0


if __name__ == "__main__":
    sys.exit(main())
