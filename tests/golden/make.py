"""Makes the golden files: one location of JSON files and one database with the same runs, as this release writes them.

```console
$ python -m tests.golden.make
```

writes `tests/golden/schema-<number>/`. Done once for each schema, when its format is final; after that the files never
change, and every later release must load, list and resume them (`tests/state/test_golden.py`). The runs are of every
kind there is: finished, cut in the middle, failed, forked, folded, with labels, of an agent alone. Nothing of the
machine they were made on is in them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, event_bus, tool
from crewlite.events import TaskCompletedEvent
from crewlite.state import InMemoryProvider, JsonProvider, SqliteProvider
from crewlite.state.format.entry import SCHEMA, Entry, seal
from crewlite.state.providers import Commit
from crewlite.testing import ScriptedLLM

HERE = Path(__file__).parent
RUNS = ("finished", "cut", "failed", "forked", "folded", "labelled", "alone")
INPUTS = {
    "topic": "the tides \U0001f30a of Brest",
    "$": "of",
    "alone": "half a pair: \ud83c",
    "when": datetime(2026, 1, 31, 12, 30, 0, 250, tzinfo=UTC),
    "cost": Decimal("0.10"),
    "raw": b"\x00\xff",
    "pair": (1, 2.5, None, {"deep": [True, {3, 4}]}),
}
QUESTION = "Do 0, alone, and say how it went \ud83c"
Journals = dict[str, list[Entry]]


def crew(config: CheckpointConfig | None, *, broken: bool = False, count: int = 3) -> Crew:
    """Three tasks, each on the one before; the first measures twice. What it says depends only on what it is asked."""
    warden = agent(None, broken=broken)
    tasks: list[Task] = []
    for number in range(count):
        about = f"Do {number}: write on {{topic}}"
        tasks.append(
            Task(name=f"t{number}", description=about, expected_output="text", agent=warden, context=tasks[-1:])
        )
    return Crew(name="golden", tasks=tasks, checkpoint=config)


def agent(config: CheckpointConfig | None, *, broken: bool = False) -> Agent:
    """Who does the work."""

    @tool("gauge", effect="none")
    def gauge(place: str) -> str:
        """How high the water stands."""
        return f"{len(place)} m at {place}, measured from the quay and noted in the book with the date and the hour"

    def reply(messages: list[dict[str, Any]]) -> Any:
        asked = messages[1]["content"]
        heard = [message["content"] for message in messages if message["role"] == "tool"]
        if "Do 0" in asked and not heard:
            return [ToolCall("gauge", {"place": "Brest"}), ToolCall("gauge", {"place": "Fundy \ud800"})]
        if broken and "Do 1" in asked:
            return ValueError("the pen broke")
        said = asked.split("Do ", 1)[1][:40]
        return f"What was found of '{said}' is told here at some length, with {len(heard)} measures taken. \U0001f9ed"

    said = {"role": "Warden", "goal": "know the sea", "backstory": "of long standing"}
    return Agent(**said, llm=ScriptedLLM(reply), tools=[gauge], checkpoint=config)


def runs(names: tuple[str, ...] = RUNS) -> dict[str, Journals]:
    """The journals of the runs, by run and branch, without a trace of who made them."""
    provider = InMemoryProvider()
    config = CheckpointConfig(location="golden", provider=provider)
    for name in names:
        with event_bus.scoped(), contextlib.suppress(ValueError):
            if name == "labelled":
                event_bus.on(TaskCompletedEvent, _label)
            if name == "alone":
                agent(config).kickoff(QUESTION, run_id=name)
            else:
                crew(config, broken=name == "failed").kickoff(INPUTS, run_id=name)
        if name == "forked":
            crew(config).fork("forked@task:t0", branch="other/way").kickoff({"topic": "ships"})
        if name == "folded":
            with History("golden", provider) as history:
                _prune_one(history, provider, name)
    store = provider.open("golden")
    found: dict[str, Journals] = {}
    for info in store.branches():
        found.setdefault(info.run_id, {})[info.branch] = store.read(info.run_id, info.branch)
    if "cut" in found:
        found["cut"]["main"] = found["cut"]["main"][:-4]
    return {name: _anonymous(found[name]) for name in names}


def store(provider: JsonProvider | SqliteProvider, location: Path, made: dict[str, Journals]) -> None:
    """Write runs to a location."""
    opened = provider.open(str(location))
    for run_id, journals in made.items():
        for branch, entries in journals.items():
            base = entries[0].commit["run"].get("base") or {"seq": 0, "sum": ""}
            opened.append([Commit(run_id, branch, base["seq"], base["sum"], tuple(entries))])
    opened.close()
    _age(location)


def summary(location: Path) -> dict[str, Any]:
    """What History tells of a location, as plain text and numbers."""
    with History(location) as history:
        return {f"{run.run_id}/{run.branch}": _told(run) for run in history.runs()}


def _told(run: Any) -> dict[str, Any]:
    steps = [[s.address, s.kind, s.status, ascii(s.value), s.usage.total_tokens] for s in run.steps]
    attempts = [[a.address, a.error_type, a.message, a.final] for a in run.attempts]
    places = [
        [
            p.id,
            p.parent_id,
            p.seq,
            p.branch,
            p.trigger,
            p.address,
            p.label,
            ascii(p.metadata),
            list(p.tasks),
            len(p.events()),
        ]
        for p in run.checkpoints()
    ]
    events = [[event.type, event.address] for event in run.events()]
    about = {
        "status": run.status,
        "inputs": ascii(run.inputs),
        "tasks": [task["address"] for task in run.definition.get("tasks", ())],
    }
    return about | {"steps": steps, "attempts": attempts, "places": places, "events": events}


def _age(location: Path) -> None:
    """Whoever wrote this is long gone."""
    for journal in location.rglob("*.jsonl"):
        os.utime(journal, (1, 1))
    if location.is_file():
        with contextlib.closing(sqlite3.connect(location, isolation_level=None)) as database:
            database.execute("UPDATE branch SET touched=1")


def _label(source: object, event: Any, state: Any) -> None:
    state.checkpoint(label=f"after-{event.task_name}", metadata={"by": "hand", 7: Decimal("1.5")})


def _prune_one(history: History, provider: InMemoryProvider, run_id: str) -> None:
    """Fold one run only: in a location of its own."""
    own = InMemoryProvider()
    there, here = own.open("own"), provider.open("golden")
    entries = here.read(run_id, "main")
    there.append([Commit(run_id, "main", 0, "", tuple(entries))])
    with History("own", own) as alone:
        alone.prune(keep_last=1)
    here.remove(run_id, {"main": (entries[-1].seq, entries[-1].sum)})
    here.append([Commit(run_id, "main", 0, "", tuple(there.read(run_id, "main")))])


def _anonymous(journals: Journals) -> Journals:
    """The same journals, sealed again without hosts, processes and paths."""
    sums: dict[str, str] = {}
    made: Journals = {}
    for branch, entries in journals.items():
        made[branch] = []
        for entry in entries:
            commit = _cleaned(json.loads(entry.body), sums)
            base = (commit.get("run") or {}).get("base")
            after = made[branch][-1].sum if made[branch] else base["sum"] if base else ""
            made[branch].append(seal(commit, after=after))
            sums[entry.sum] = made[branch][-1].sum
    return made


def _cleaned(data: Any, sums: dict[str, str]) -> Any:
    if isinstance(data, list):
        return [_cleaned(item, sums) for item in data]
    if not isinstance(data, dict):
        return data
    cleaned = {key: _cleaned(item, sums) for key, item in data.items()}
    if "traceback" in data:
        cleaned["traceback"] = data["traceback"] and "Traceback (most recent call last):\n  ..."
    if "claim" in data:
        cleaned["claim"] = {"id": "0" * 32, "host": "golden.example", "boot": "", "pid": 7, "started": None}
    if data.get("sum") in sums:
        cleaned["sum"] = sums[data["sum"]]
    return cleaned


def write(directory: Path) -> None:
    """Make a directory of golden files."""
    made = runs()
    store(JsonProvider(), directory / "store", made)
    store(SqliteProvider(), directory / "store.db", made)
    for ignored in directory.rglob(".gitignore"):
        ignored.unlink()  # these are kept
    results = {
        topic: crew(None).kickoff({**INPUTS, "topic": topic}).tasks_output for topic in (INPUTS["topic"], "ships")
    }
    expected = {
        "alone": agent(None).kickoff(QUESTION).raw,
        "results": {topic: [output.raw for output in outputs] for topic, outputs in results.items()},
        "runs": summary(directory / "store"),
    }
    text = json.dumps(expected, indent=1, ensure_ascii=True)
    (directory / "expected.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Write the golden files of this schema, in place of those that are there."""
    directory = HERE / f"schema-{SCHEMA}"
    shutil.rmtree(directory, ignore_errors=True)
    write(directory)


if __name__ == "__main__":
    main()
