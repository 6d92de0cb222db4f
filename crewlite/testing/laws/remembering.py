"""Laws of result caches: results are stored beside the runs, by key, each complete or not at all."""

from __future__ import annotations

import threading
import time

from crewlite.testing.bench import Bench, Branch, branch_line, same

_KEYS = [f"{number:032x}" for number in (0, 1, 2**127)]


def what_is_remembered_is_recalled(bench: Bench) -> None:
    """What is recalled under a key is what was last remembered under it, byte for byte; None if nothing was."""
    results = bench.results()
    same(results.recall(_KEYS[0]), None, "a key that was never used recalls")
    for key in _KEYS:
        results.remember(key, f"of {key}".encode())
    for data in (b"", b'{"value": "\\u2713"}\n', bytes(range(256)) * 64):
        results.remember(_KEYS[1], data)
        for reader in (results, bench.results()):
            same(reader.recall(_KEYS[1]), data, "a key recalls")
    same(results.recall(_KEYS[2]), f"of {_KEYS[2]}".encode(), "another key recalls")


def what_is_remembered_survives_closing(bench: Bench) -> None:
    """What a store remembered before it was closed is recalled by one that is opened after."""
    store = bench.open()
    bench.results(store).remember(_KEYS[0], b"kept")
    bench.close(store)
    same(bench.results().recall(_KEYS[0]), b"kept", "a key recalls")


def what_is_remembered_is_of_no_run(bench: Bench) -> None:
    """What is remembered is listed with no run, and stays when runs are removed."""
    store, branch = bench.open(), Branch().add(2)
    results = bench.results(store)
    results.remember(_KEYS[0], b"kept")
    same((store.branches(), store.places()), ([], []), "branches and checkpoints are listed:")
    store.append([branch.commit()])
    results.remember(_KEYS[1], b"kept too")
    same(store.branches(), [branch_line(branch)], "branches are listed:")
    store.remove(branch.run_id, {branch.branch: branch.entries[-1].head})
    same([results.recall(key) for key in _KEYS], [b"kept", b"kept too", None], "after the run was removed, keys recall")


def what_is_old_is_forgotten(bench: Bench) -> None:
    """`forget` takes away what was last remembered before a moment, and nothing else; a rehearsal only counts it."""
    results = bench.results()
    same(results.forget(time.time() + 60), 0, "in a new location it counts")
    for key in _KEYS:
        results.remember(key, b"kept")
    past, future = time.time() - 60, time.time() + 60
    same(results.forget(past), 0, "of what is young it counts")
    same(results.forget(future, dry_run=True), 3, "a rehearsal counts")
    same([results.recall(key) for key in _KEYS], [b"kept"] * 3, "after a rehearsal, keys recall")
    same(results.forget(future), 3, "of what is old it counts")
    same([results.recall(key) for key in _KEYS], [None] * 3, "what was forgotten is recalled as")
    results.remember(_KEYS[0], b"again")
    same(bench.results().recall(_KEYS[0]), b"again", "a key that was forgotten and used again recalls")


def what_several_remember_at_once_is_whole(bench: Bench) -> None:
    """Where several stores remember something under one key at once, one of them has it, whole."""
    written = [bytes([letter]) * 20_000 for letter in b"abc"]
    caches, reader = [bench.results() for _ in written], bench.results()
    caches[0].remember(_KEYS[0], written[0])

    def work(number: int) -> None:
        for _ in range(5):
            caches[number].remember(_KEYS[0], written[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(written))]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert reader.recall(_KEYS[0]) in written, "a reader met something that nobody wrote"
    for thread in threads:
        thread.join()
    assert reader.recall(_KEYS[0]) in written, "what is left is something that nobody wrote"


def what_was_changed_meanwhile_is_not_exchanged(bench: Bench) -> None:
    """An exchange stores its data only where the old data are still those that the caller has seen."""
    shared = bench.exchange()
    same(shared.exchange(_KEYS[0], b"other", b"new"), False, "where nothing was stored, an exchange of data says")
    same(shared.exchange(_KEYS[0], None, b"first"), True, "where nothing was stored, an exchange of nothing says")
    same(shared.exchange(_KEYS[0], None, b"second"), False, "where something is stored, an exchange of nothing says")
    same(bench.exchange().exchange(_KEYS[0], b"first", b"third"), True, "of what is stored, another store says")
    same([shared.recall(key) for key in _KEYS[:2]], [b"third", None], "after that, keys recall")


def of_several_exchanges_at_once_one_succeeds(bench: Bench) -> None:
    """Where several stores exchange the same old data at once, one of them succeeds."""
    stores = [bench.exchange() for _ in range(3)]
    won: list[int] = []

    def work(number: int) -> None:
        for turn in range(10):
            old = f"{turn}".encode() if turn else None
            while stores[number].recall(_KEYS[0]) != old and len(won) <= turn:
                time.sleep(0.001)
            if stores[number].exchange(_KEYS[0], old, f"{turn + 1}".encode()):
                won.append(turn)  # perhaps after another thread has won the next turn

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same(sorted(won), list(range(10)), "of ten rounds, these were won:")
