"""A provider whose stores can be interrupted: right before the n-th call of a store, other code runs.

Between two calls of a store another process or thread may use it. A test that waits for this to happen by chance mostly
passes; with this provider it happens exactly where the test wants it.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any, cast

from crewlite.state.providers import BaseProvider, Exchange, Store
from crewlite.system.forked import lock

_VERBS = {
    name
    for port in (Store, Exchange)
    for name, _ in inspect.getmembers(port, inspect.isfunction)
    if not name.startswith("_") and name not in ("close", "ref")
}
"""The methods of a store that read or write stored data. Only some stores have `mentions`, so it is not among them: the
n-th verb should be the same in each."""


class Interleaved:
    """A provider around another. Right before the `at`-th verb of the stores it opens, `act` is called, once.

    ```python
    from crewlite import Agent, CheckpointConfig, History
    from crewlite.state import InMemoryProvider
    from crewlite.testing import Interleaved

    kept = InMemoryProvider()
    config = CheckpointConfig(location="here", provider=kept)
    Agent(role="Clerk", goal="answer", llm="offline", checkpoint=config).kickoff("What is recorded?", run_id="first")

    def delete():
        with History("here", kept) as other:
            other.delete("first")

    beside = Interleaved(kept, at=2, act=delete)
    with History("here", beside) as history:
        assert history.runs()[0].run_id == "first"  # the first verb: branches
        assert not history.checkpoints()  # the second, and by then the run is gone
    assert beside.log == ["branches", "places"]
    ```

    `act` runs on a thread of its own, and the verb waits for it, at most `patience` seconds: `act` may need something
    that the interrupted code holds. Let `act` use the inner provider, so that its own verbs do not count. `outcome` is
    the value that `act` returned, or the exception that it raised.
    """

    def __init__(
        self,
        provider: BaseProvider,
        *,
        at: int | None = None,
        act: Callable[[], Any] | None = None,
        patience: float = 10.0,
    ) -> None:
        self.name = provider.name
        self.log: list[str] = []
        """The verbs so far, in order."""
        self.outcome: Any = None
        self._inner, self._at, self._act, self._patience = provider, at, act, patience
        self._thread: threading.Thread | None = None
        self._lock = lock()

    @property
    def count(self) -> int:
        """The number of verbs so far."""
        return len(self.log)

    def open(self, location: str) -> Store:
        """Open a location with the inner provider."""
        return cast(Store, _Store(self, self._inner.open(location)))

    def ended(self, within: float = 10.0) -> bool:
        """Wait until `act` has ended, at most `within` seconds. Returns False if it has not; True if it never began."""
        if self._thread:
            self._thread.join(within)
        return not (self._thread and self._thread.is_alive())

    def _before(self, verb: str) -> None:
        with self._lock:
            self.log.append(verb)
            if len(self.log) != self._at or self._act is None:
                return
            self._thread = threading.Thread(target=self._do, name="crewlite-interleaved", daemon=True)
        self._thread.start()
        self._thread.join(self._patience)

    def _do(self) -> None:
        assert self._act
        self.outcome = outcome_of(self._act)


def outcome_of(act: Callable[[], object]) -> object:
    """Call an act and return its result, or the exception that it raises."""
    try:
        return act()
    except BaseException as error:  # returned, for a test to look at
        return error


class _Store:
    """A store that reports each verb before it runs it."""

    def __init__(self, owner: Interleaved, inner: Store) -> None:
        self._owner, self._inner = owner, inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "results":
            return _Store(self._owner, found)
        if name not in _VERBS:
            return found

        def verb(*args: Any, **more: Any) -> Any:
            self._owner._before(name)
            return found(*args, **more)

        return verb
