"""What is left behind when its time is up says nothing more."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import textwrap
import threading

import pytest

from crewlite.concurrency import background
from crewlite.errors import StepTimeout
from crewlite.system.steady_clock import is_true_within
from tests import children


def test_work_that_was_left_behind_and_fails_later_is_not_complained_of(caplog):
    async def stubborn():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
        raise KeyError("too late to be heard")

    async def waits():
        with pytest.raises(StepTimeout):
            await background.within(stubborn(), 0.01, "the work")
        await asyncio.sleep(0.6)
        gc.collect()

    asyncio.run(waits())
    assert "too late to be heard" not in caplog.text  # what other tests have left may be complained of here


def test_work_whose_time_is_up_before_it_begins_is_not_complained_of():
    async def never():
        raise AssertionError("it has no time")

    async def waits():
        with pytest.raises(StepTimeout):
            await background.within(never(), 1e-9, "the work")
        gc.collect()

    asyncio.run(waits())


class Opening:
    """Something that opens when it is told to, and the events of its life."""

    def __init__(self):
        self.begun, self.go_on, self.released = threading.Event(), threading.Event(), threading.Event()

    def open(self):
        self.begun.set()
        self.go_on.wait(30)
        return "open"

    def release(self, opened):
        assert opened == "open"
        self.released.set()

    async def acquiring(self):
        """Begin to acquire it. Returns the task."""
        task = asyncio.create_task(background.acquire(self.open, self.release))
        await asyncio.to_thread(self.begun.wait, 30)
        return task


def test_whoever_is_cancelled_while_it_opens_something_has_released_it_when_the_cancellation_is_over():
    async def main():
        opening = Opening()
        task = await opening.acquiring()
        task.cancel()
        asyncio.get_running_loop().call_soon(opening.go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert opening.released.is_set()

    asyncio.run(main())


def test_what_opens_after_its_loop_was_closed_is_released():
    opening = Opening()

    async def main():
        task = await opening.acquiring()
        for _ in range(2):  # the second one does not wait
            task.cancel()
            await asyncio.sleep(0)

    asyncio.run(main())
    assert not opening.released.is_set()
    opening.go_on.set()
    assert opening.released.wait(30)


def test_ctrl_c_at_any_moment_of_a_wait_for_an_event_is_raised_as_it_is():
    """In the wait of a threading.Event it may become an error that a lock is not locked."""
    gc.disable()  # a finalizer of what other tests have left would be interrupted as well
    try:
        came = next(filter(lambda one: one is not None, map(came_at, itertools.count())))
    finally:
        gc.enable()
    assert came is False


def came_at(moment):
    """Whether an event came in a wait that Ctrl-C interrupts at this moment; None if Ctrl-C was raised."""

    def trace(frame, what, arg):
        nonlocal moment
        moment -= 1
        if moment < 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return is_true_within(lambda: False, 0.0)
    except KeyboardInterrupt:
        return None
    finally:
        sys.settrace(before)


def ending(code, directory):
    """A process of its own that has run the code and ended."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return children.run(command, cwd=directory, cold=True, capture_output=True, text=True)


def test_a_process_that_ends_while_its_loop_imports_a_module_ends(tmp_path):
    """Also if the import takes longer than the end of a process waits for the loop."""
    (tmp_path / "slow.py").write_text(
        "import threading, time; begun.set(); threading.main_thread().join(); time.sleep(2.5)"
    )
    code = """
        import atexit, builtins, gc, threading

        gc.disable()
        atexit.register(gc.enable)  # the first to be registered is the last to be called

        from crewlite.concurrency import background

        builtins.begun = threading.Event()

        class ImportsAtItsEnd:
            def __init__(self):
                self.me = self  # so that Python's last garbage collection finds it

            def __del__(self):
                import slow

                print("ended")

        async def imports():
            import slow

        ImportsAtItsEnd()
        background.submit(imports())
        begun.wait()
    """
    ended = ending(code, tmp_path)
    assert (ended.stdout, ended.stderr) == ("ended\n", "")


def test_a_handler_of_the_exit_that_waits_for_a_run_when_the_loop_has_halted_is_told_so(tmp_path):
    code = """
        import atexit

        atexit.register(lambda: handle.result())

        import asyncio
        from crewlite.flow import flow

        @flow
        async def endless():
            await asyncio.sleep(3600)

        handle = endless.submit()
    """
    ended = ending(code, tmp_path)
    assert "RuntimeError: the event loop that does this work has halted, as the process is ending" in ended.stderr


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_no_exception_ends_the_loop_that_all_runs_share(error, caplog):
    async def ends():
        raise error

    async def works():
        return "still there"

    with pytest.raises(type(error)):
        background.submit(ends()).result(10)
    assert background.submit(works()).result(10) == "still there"
    assert "has ended its own task only" in caplog.text


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(1), asyncio.CancelledError()])
def test_what_replaces_an_exception_of_a_thread_says_where_that_was_raised(error):
    def ends():
        raise error

    with pytest.raises(RuntimeError, match=f"it raised {type(error).__name__}") as caught:
        background.run(background.in_thread(ends))
    assert caught.value.__cause__ is error
    assert error.__traceback__ is not None
