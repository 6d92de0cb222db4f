"""One history in several threads: they take turns at what cannot be shared, and each act is done."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from crewlite import CheckpointConfig, History
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider
from crewlite.system import disk
from tests import children

from .wrapped import Wrapped


@step
def counted(number: int) -> int:
    return number


def act(history: History, number: int) -> str:
    """Write something to a run of one's own."""
    return history.label(f"run{number}@step:counted", f"label{number}").ref


def stored(location: str, provider=None) -> None:
    @flow(checkpoint=CheckpointConfig(location=location, provider=provider, on_events=["step_completed"]))
    def counts() -> int:
        return counted(1)

    for number in (1, 2):
        counts.kickoff(run_id=f"run{number}")


def acted(location: str, at: int) -> int:
    """Act in this thread, and in another one right before the `at`-th operation. Returns the number of operations."""
    operations, others, me = 0, [], threading.get_ident()
    with History(location) as history, ThreadPoolExecutor(1) as pool:

        def beside(operation: disk.Operation) -> None:
            nonlocal operations
            if threading.get_ident() == me:
                operations += 1
                if operations == at:
                    others.append(pool.submit(act, history, 2))
                    threading.Event().wait(0.05)  # it ends meanwhile, unless it has to wait for its turn

        with disk.watched(beside):
            act(history, 1)
        for other in others:
            other.result()
        for number in range(1, 2 + len(others)):
            assert history.checkpoint(f"run{number}@label:label{number}").label == f"label{number}"
        assert history.doctor() == []
    return operations


@pytest.mark.parametrize("name", ["store", "store.db"])
def test_a_thread_may_write_with_a_history_right_before_each_operation_of_another_thread(name, tmp_path):
    stored(location := str(tmp_path / name))
    operations = acted(location, 0)
    assert operations > 3
    for at in range(1, operations + 1):
        (tmp_path / str(at)).mkdir()
        stored(location := str(tmp_path / str(at) / name))
        assert acted(location, at) == operations


class Alone(Wrapped):
    """A provider whose stores count the threads that are in a verb that writes journals."""

    def __init__(self, provider):
        super().__init__(provider)
        self.met = threading.Barrier(2)
        self.together = False

    def _do(self, store, verb, call, args):
        if verb in ("append", "rewrite", "remove"):
            with contextlib.suppress(threading.BrokenBarrierError):
                self.met.wait(0.2)
                self.together = True
        return call()


def test_a_provider_of_ones_own_is_written_to_by_one_thread_at_a_time():
    provider = InMemoryProvider()
    stored("there", provider)
    alone = Alone(provider)
    with History("there", alone) as history, ThreadPoolExecutor(2) as pool:
        assert len({*pool.map(lambda number: act(history, number), (1, 2))}) == 2
    assert not alone.together


class Interrupted(Wrapped):
    """A provider in whose first append something else is done, as a signal handler may, on the same thread."""

    act = None

    def _do(self, store, verb, call, args):
        if verb == "append" and (act := self.act):
            self.act = None
            act()
        return call()


def test_what_interrupts_a_thread_that_writes_may_write_with_the_same_history():
    provider = InMemoryProvider()
    stored("there", provider)
    interrupted = Interrupted(provider)
    with History("there", interrupted) as history:
        interrupted.act = lambda: act(history, 2)
        acting = threading.Thread(target=act, args=(history, 1), daemon=True)
        acting.start()
        acting.join(children.PATIENCE)
        assert not acting.is_alive()
        assert [history.checkpoint(f"run{number}@label:label{number}").label for number in (1, 2)] == [
            "label1",
            "label2",
        ]
