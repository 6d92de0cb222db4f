"""All locks of the package come from one place, whose docstring tells how they are used."""

from __future__ import annotations

import ast

import pytest

from tests.ground.modules import modules

HOME = "crewlite.system.forked"
WAITING = {
    "threading": {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"},
    "_thread": {"allocate_lock", "RLock"},
    "multiprocessing": {"Lock", "RLock"},
    "queue": {"Queue", "LifoQueue", "PriorityQueue"},
}
"""What is a lock or holds one, by its module."""


def locks_of(tree: ast.Module) -> list[str]:
    """What a module uses of these, other than in annotations."""
    annotations = {
        id(part)
        for node in ast.walk(tree)
        for note in [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if note
        for part in ast.walk(note)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in WAITING:
            found += [f"{node.module}.{name.name}" for name in node.names if name.name in WAITING[node.module]]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and id(node) not in annotations:
            if node.attr in WAITING.get(node.value.id, ()):
                found.append(f"{node.value.id}.{node.attr}")
    return found


def test_all_modules_take_their_locks_from_the_ground():
    """A lock is `lock()`, and a queue a SimpleQueue, whose calls are reentrant."""
    found = {name: locks_of(ast.parse(path.read_bytes())) for name, path in modules().items()}
    assert {name: locks for name, locks in found.items() if locks} == {HOME: ["threading.RLock", "threading.Condition"]}


@pytest.mark.parametrize(
    "code",
    ["import threading\nheld = threading.Lock()", "from queue import Queue", "x: int = dict(a=threading.Condition)"],
)
def test_a_lock_is_seen(code):
    assert locks_of(ast.parse(code))


def test_a_name_in_an_annotation_is_none():
    assert not locks_of(ast.parse("held: threading.RLock\ndef made() -> threading.RLock: ..."))
