"""Other frameworks beside ours: what the same work costs in CrewAI, LangGraph and DBOS.

PEERS names a directory with an environment for each (`crewai`, `langgraph`, `dbos`; see docs/performance.md); without
it the subject is left out. Every framework runs in a process of its own, with its own Python, and plays a scene in
turns with crewlite: A, B, C, A, B, C, ..., after a round that does not count. Values are the peer's over crewlite's,
medians of the rounds: above 1, the peer takes more. What each does in a scene stands in `with_*.py`; what it promises
of a stored step stands in its row, because that is what the time is paid for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Row, scratch
from benchmarks.peers.player import Peer
from benchmarks.peers.stage import Stage

_STEPS = 50
_CUT = 100
"""Steps of a flow; where it is cut, half of them are done."""
_LISTED = 1000
_DELAY = 0.05
_KINDS = {"json": "JSON", "sqlite": "SQLite"}

_OURS = Peer(name="crewlite", folder="", unit="task", imports="from crewlite import Agent, Crew, Task")
_CREWAI = Peer(
    name="CrewAI",
    folder="crewai",
    unit="task",
    imports="from crewai import Agent, Crew, Task",
    promise="best effort: the next task does not wait, files are not synced",
)
_LANGGRAPH = Peer(
    name="LangGraph",
    folder="langgraph",
    unit="node",
    imports="from langgraph.graph import StateGraph",
    promise="at least once, a node cut in the middle runs again",
)
_DBOS = Peer(
    name="DBOS",
    folder="dbos",
    unit="step",
    imports="from dbos import DBOS",
    promise="at least once, a step cut in the middle runs again",
)


def measure() -> Iterator[Row]:
    if not (named := os.environ.get("PEERS")):
        yield Row("other frameworks", None, detail="not measured: set PEERS (docs/performance.md says how)")
        return
    directory = scratch()
    stage = Stage(_OURS, Path(named).absolute(), directory)
    yield from _imports(stage)
    yield from _plain(stage)
    yield from _durable(stage, "json", [_CREWAI])
    yield from _durable(stage, "sqlite", [_LANGGRAPH, _DBOS])
    yield from _flows(stage)
    yield from _methods(stage)
    yield from _at_once(stage)
    yield from _listing(stage, "json", [_CREWAI])
    yield from _listing(stage, "sqlite", [_LANGGRAPH, _DBOS])


def _imports(stage: Stage) -> Iterator[Row]:
    peers = [_CREWAI, _LANGGRAPH, _DBOS]
    played = stage.imports(peers)
    for peer in peers:
        yield played.row(peer, f"{peer.name}: import, CPU time", "seconds", _ms)


def _plain(stage: Stage) -> Iterator[Row]:
    peers = [_CREWAI, _LANGGRAPH]
    played = stage.play("plain", peers, steps=_STEPS)
    for peer in peers:
        title = f"{peer.name}: time per {peer.unit}, {_STEPS} in a row, nothing stored"
        yield played.row(peer, title, "seconds", _ms_a_step)
    yield Row(f"{_DBOS.name}: the same", None, detail="not measured: it has no mode without a database")


def _durable(stage: Stage, kind: str, peers: list[Peer]) -> Iterator[Row]:
    played = stage.play("durable", peers, kind=kind, steps=_STEPS)
    for peer in peers:
        title = f"{peer.name}, {_KINDS[kind]}:"
        row = played.row(peer, f"{title} time added per stored {peer.unit}", "seconds", _ms_a_step, peer.promise)
        yield row
        if row.value is not None:
            yield played.row(peer, f"{title} bytes per {peer.unit}", "bytes", _bytes_a_step)
            yield played.lost(peer, f"{title} missing of {_STEPS} {peer.unit}s", _STEPS)
    yield played.lost(_OURS, f"{_OURS.name}, {_KINDS[kind]}: missing of {_STEPS} tasks", _STEPS, 0)


def _flows(stage: Stage) -> Iterator[Row]:
    """Plain functions as durable steps: ours are a flow of steps, a workflow of steps, a graph of nodes."""
    peers, how = [_LANGGRAPH, _DBOS], {"kind": "sqlite"}
    played = stage.play("steps", peers, steps=_CUT, **how)
    for peer in peers:
        title = f"{peer.name}: time per stored {peer.unit}, {_CUT} functions in a row"
        yield played.row(peer, title, "seconds", lambda seconds: f"{seconds / _CUT * 1000:.2f} ms")
    played = stage.play("resumed", peers, steps=_CUT, **how)
    for peer in peers:
        title = f"{peer.name}: {_CUT} functions, cut at the half, gone on with"
        yield played.row(peer, title, "seconds", _ms, f"{_CUT // 2} run again, as with crewlite")
    played = stage.play("mapped", peers, count=_CUT, delay=_DELAY, **how)
    for peer in peers:
        title = f"{peer.name}: {_CUT} stored {peer.unit}s of 50 ms at once"
        yield played.row(peer, title, "seconds", _ideals)


def _methods(stage: Stage) -> Iterator[Row]:
    """A chain of methods of a flow, each of which adds a text to a list in the state; of nodes that do the same."""
    for scene, how, said in (("methods", {}, "nothing stored"), ("stored_methods", {"kind": "sqlite"}, "SQLite")):
        played = stage.play(scene, [_LANGGRAPH], steps=_CUT, **how)
        title = f"{_LANGGRAPH.name}: time per node against a method of a flow, {_CUT} in a row, {said}"
        yield played.row(_LANGGRAPH, title, "seconds", lambda seconds: f"{seconds / _CUT * 1000:.2f} ms")


def _at_once(stage: Stage) -> Iterator[Row]:
    peers = [_CREWAI, _LANGGRAPH]
    played = stage.play("at_once", peers, count=50, delay=_DELAY)
    for peer in peers:
        yield played.row(peer, f"{peer.name}: 50 at once, model of 50 ms", "seconds", _ideals)


def _listing(stage: Stage, kind: str, peers: list[Peer]) -> Iterator[Row]:
    played = stage.play("listing", peers, kind=kind, count=_LISTED)
    for peer in peers:
        title = f"{peer.name}, {_KINDS[kind]}: listing {_LISTED:,} checkpoints"
        yield played.row(peer, title, "seconds", _ms)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


def _ms_a_step(seconds: float) -> str:
    return f"{seconds / _STEPS * 1000:.2f} ms"


def _bytes_a_step(count: float) -> str:
    return f"{count / _STEPS:,.0f} B"


def _ideals(seconds: float) -> str:
    return f"{seconds / _DELAY:.1f}x ideal"
