"""The scenes in LangGraph: a chain of nodes that add an answer to a list of messages. A node is a bare function."""

from __future__ import annotations

import asyncio
import operator
import os
import sqlite3
import time
import uuid
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from serving import ANSWER, alone, seconds, serve, size, whole


class State(TypedDict):
    """A conversation, as usual."""

    messages: Annotated[list[str], operator.add]


class Counted(TypedDict):
    """As little as possible, for what is only there to be listed."""

    number: int


_databases: dict[str, sqlite3.Connection] = {}
_ends_at: list[int] = []
_written: list[int] = []


def plain(steps: int) -> dict[str, Any]:
    graph = _chain(steps).compile()
    return {"seconds": seconds(lambda: graph.invoke({"messages": []}, _thread(steps)))}


def durable(kind: str, steps: int, directory: str) -> dict[str, Any]:
    db = _database(directory)
    bare, graph, thread = _chain(steps).compile(), _chain(steps).compile(SqliteSaver(db)), _thread(steps)
    before = size(directory)
    without = seconds(lambda: bare.invoke({"messages": []}, thread))
    with_store = seconds(lambda: graph.invoke({"messages": []}, thread, durability="sync"))
    found = sum(snapshot.metadata["step"] > 0 for snapshot in graph.get_state_history(thread))
    _fold(db)
    return {"seconds": with_store - without, "bytes": size(directory) - before, "found": found}


def at_once(count: int, delay: float) -> dict[str, Any]:
    async def node(state: State) -> dict[str, Any]:
        await asyncio.sleep(delay)
        return {"messages": [ANSWER]}

    graph = StateGraph(State).add_node("write", node).add_edge(START, "write").add_edge("write", END).compile()

    async def all_of_them() -> None:
        await asyncio.gather(*(graph.ainvoke({"messages": []}) for _ in range(count)))

    return {"seconds": seconds(lambda: asyncio.run(all_of_them()))}


def listing(kind: str, count: int, directory: str) -> dict[str, Any]:
    graph, thread, found = _loop(count, directory), _thread(count, "long"), []
    if not graph.get_state(thread).values:
        graph.invoke({"number": 0}, thread, durability="sync")
    took = seconds(lambda: found.extend(graph.get_state_history(thread)))
    return {"seconds": took, "found": whole(sum(snapshot.metadata["step"] > 0 for snapshot in found), count)}


def steps(kind: str, steps: int, directory: str) -> dict[str, Any]:
    db = _database(directory)
    graph, found = _chain(steps).compile(SqliteSaver(db)), []
    took = seconds(lambda: found.append(graph.invoke({"messages": []}, _thread(steps), durability="sync")))
    _fold(db)
    return {"seconds": took, "found": whole(len(found[0]["messages"]), steps)}


def resumed(kind: str, steps: int, directory: str) -> dict[str, Any]:
    name = uuid.uuid4().hex
    alone("cut", steps=steps, directory=directory, name=name)
    return alone("go_on", steps=steps, directory=directory, name=name)


def cut(steps: int, directory: str, name: str) -> dict[str, Any]:
    _ends_at.append(steps // 2)
    graph = _chain(steps).compile(SqliteSaver(_database(directory)))
    return {"broken": len(graph.invoke({"messages": []}, _thread(steps, name), durability="sync"))}


def go_on(steps: int, directory: str, name: str) -> dict[str, Any]:
    def work() -> None:
        graph = _chain(steps).compile(SqliteSaver(_database(directory)))
        found = graph.invoke(None, _thread(steps, name), durability="sync")
        whole(len(found["messages"]), steps)

    return {"seconds": seconds(work), "found": whole(len(_written), steps - steps // 2)}


def mapped(kind: str, count: int, delay: float, directory: str) -> dict[str, Any]:
    async def wait(state: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(delay)
        return {"messages": [f"{state['number']:06d} {ANSWER}"[:200]]}

    graph = StateGraph(State).add_node("wait", wait).add_edge("wait", END)
    graph.add_conditional_edges(START, lambda state: [Send("wait", {"number": n}) for n in range(count)], ["wait"])

    async def fan_out() -> float:
        async with AsyncSqliteSaver.from_conn_string(str(Path(directory) / "store.db")) as saver:
            compiled, began = graph.compile(saver), time.perf_counter()
            found = await compiled.ainvoke({"messages": []}, _thread(count), durability="sync")
            took = time.perf_counter() - began
        whole(len(found["messages"]), count)
        return took

    return {"seconds": asyncio.run(fan_out())}


def _chain(steps: int) -> StateGraph[Any]:
    graph = StateGraph(State)
    for number in range(steps):
        graph.add_node(f"write-{number}", _writer(number))
        graph.add_edge(f"write-{number - 1}" if number else START, f"write-{number}")
    return graph.add_edge(f"write-{steps - 1}", END)


def _writer(number: int) -> Any:
    def write(state: State) -> dict[str, Any]:
        if number in _ends_at:
            os._exit(9)
        _written.append(number)
        return {"messages": [f"{number:06d} {ANSWER}"[:200]]}

    return write


def _loop(count: int, directory: str) -> Any:
    """One node that goes round `count` times."""
    graph = (
        StateGraph(Counted).add_node("count", lambda state: {"number": state["number"] + 1}).add_edge(START, "count")
    )
    graph.add_conditional_edges("count", lambda state: "count" if state["number"] < count else END)
    return graph.compile(SqliteSaver(_database(directory)))


def _thread(steps: int, name: str = "") -> dict[str, Any]:
    return {"configurable": {"thread_id": name or uuid.uuid4().hex}, "recursion_limit": steps + 10}


def _database(directory: str) -> sqlite3.Connection:
    if directory not in _databases:
        _databases[directory] = sqlite3.connect(Path(directory) / "store.db", check_same_thread=False)
    return _databases[directory]


def _fold(db: sqlite3.Connection) -> None:
    """Bring what is in the write-ahead log into the database, as closing it would."""
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


serve(
    "langgraph",
    plain=plain,
    durable=durable,
    at_once=at_once,
    listing=listing,
    steps=steps,
    resumed=resumed,
    cut=cut,
    go_on=go_on,
    mapped=mapped,
    methods=plain,
    stored_methods=steps,
)
