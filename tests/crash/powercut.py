"""A power cut after every operation on the disk: what was not synced is gone, what was acknowledged must not be.

The I/O door's log of a real run is replayed onto an empty disk that forgets all that was not synced: data until the
file's fsync, names until the directory's. Prints JSON and exits with 1 if an acknowledged outcome was ever lost.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from crewlite import Agent, CheckpointConfig, Crew, History, Task, event_bus
from crewlite.disk import Operation
from crewlite.events import LLMCallCompletedEvent, TaskCompletedEvent
from crewlite.state.providers.json import JsonStore
from crewlite.testing import CrashInjector, ScriptedLLM

Log = list[Operation | str]


def live(location: Path) -> Log:
    """One run, and its log: operations, and the addresses of outcomes as they were acknowledged."""
    injector = CrashInjector()
    log: Log = injector.log
    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(lambda messages: "done " * 40))
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent, context=[]) for n in range(5)]
    with event_bus.scoped() as bus, injector:
        for kind in (LLMCallCompletedEvent, TaskCompletedEvent):
            bus.on(kind, lambda source, event: log.append(event.address))
        Crew(tasks=tasks, checkpoint=CheckpointConfig(location=location)).kickoff(run_id="cut")
    return log


def after_the_cut(log: Log, disk: Path, root: Path) -> None:
    """Write to `disk` what a disk would hold that lost everything unsynced."""
    written: dict[str, bytearray] = {}
    synced: dict[str, bytes] = {}
    names: dict[str, str | None] = {}  # what the directory on disk says: path to the file it means
    pending: dict[str, str | None] = {}
    moved: dict[str, str] = {}  # directories by their new names, while the disk still knows the old ones
    for item in log:
        if isinstance(item, str):
            continue
        path, data = item.path, item.data
        if item.verb == "write":
            file = written.setdefault(path, bytearray(synced.get(path, b"")))
            file[item.offset : item.offset + len(data)] = data
            if path not in names:
                pending.setdefault(path, path)
        elif item.verb == "truncate":
            written[path] = written.get(path, bytearray(synced.get(path, b"")))[: item.offset]
        elif item.verb == "fsync":
            synced[path] = bytes(written.get(path, b""))
        elif item.verb == "rename" and any(name.startswith(f"{path}/") for name in (*names, *pending)):
            moved[data.decode()] = path  # a directory: its files are the same files, whatever it is called
            for files in (written, synced):
                files.update({_moved(name, path, data.decode()): content for name, content in files.items()})
            for listed in (names, pending):
                listed.update({name: file and _moved(file, path, data.decode()) for name, file in listed.items()})
        elif item.verb == "rename":
            pending[data.decode()] = path
        elif item.verb == "unlink":
            pending[path] = None
        elif item.verb == "fsync_dir":
            for new in [name for name in moved if str(Path(name).parent) == path]:
                old = moved.pop(new)
                names = {_moved(name, old, new): file for name, file in names.items()}
                pending = {_moved(name, old, new): file for name, file in pending.items()}
            settled = {name: file for name, file in pending.items() if str(Path(name).parent) == path}
            names.update(settled)
            pending = {name: file for name, file in pending.items() if name not in settled}
    for name, file in names.items():
        if file is not None and not name.endswith(".tmp"):
            target = disk / Path(name).relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(synced.get(file, b""))


def _moved(path: str, old: str, new: str) -> str:
    return new + path.removeprefix(old) if path.startswith(f"{old}/") else path


def check(disk: Path, acknowledged: set[str]) -> list[str]:
    """The promises that such a disk breaks."""
    try:
        for file in disk.glob("*_*.json"):
            JsonStore(disk).check_file(file)
        if not (disk / "journal").exists():
            return [f"lost: {sorted(acknowledged)}"] if acknowledged else []
        with History(disk) as history:
            runs = history.runs()
            held = {step.address for step in runs[0].steps} if runs else set()
    except Exception as error:
        return [f"torn: {type(error).__name__}: {error}"]
    lost = acknowledged - held
    return [f"lost: {sorted(lost)}"] if lost else []


def main() -> int:
    violations = []
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve() / "store"
        log = live(root)
        for cut in range(len(log) + 1):
            disk = Path(scratch) / f"disk{cut}"
            disk.mkdir()
            after_the_cut(log[:cut], disk, root)
            acknowledged = {item for item in log[:cut] if isinstance(item, str)}
            violations += [f"cut {cut}: {text}" for text in check(disk, acknowledged)]
    print(json.dumps({"cuts": len(log) + 1, "violations": violations[:20]}))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
