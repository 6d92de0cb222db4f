"""The last entries of a run, which are still being written when the run releases its branch.

A run that is cancelled twice does not wait for them. The next run of this process that acquires the branch does,
because it must not read a branch that is still being written.
"""

from __future__ import annotations

from concurrent.futures import Future

from crewlite.forked import in_child
from crewlite.state.journal.writer import WriteQueue

_Branch = tuple[tuple[str, str], str, str]
_settling: dict[_Branch, Future[BaseException | None]] = {}


def settling(queue: WriteQueue) -> Future[BaseException | None]:
    """Return a future that ends when the queue is empty, with None, or when its entries have failed again."""
    branch = _branch(queue)
    settled = _settling[branch] = Future()
    settled.set_running_or_notify_cancel()  # so that a caller that is cancelled does not cancel it
    settled.add_done_callback(lambda _: _settling.pop(branch) if _settling.get(branch) is settled else None)
    queue.put((), settled.set_result)
    return settled


def wait_for_earlier(queue: WriteQueue) -> None:
    """Wait until the entries of an earlier run of this process in this branch are written, or have failed."""
    if earlier := _settling.get(_branch(queue)):
        earlier.result()


def _branch(queue: WriteQueue) -> _Branch:
    return queue.writer.key, queue.run_id, queue.branch


in_child(_settling.clear)  # a forked child has none of the threads that write
