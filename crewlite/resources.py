"""What tools and models hold open while runs use them, such as a connection or a child process.

`ready()` is awaited before a run first uses one, `aclose()` when the last run that uses it has ended. One task awaits
both, as clients that are built on anyio must be left by the task that entered them. It is no part of any run: a resumed
run, whose first calls are answered from the record, readies later than its first life did.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from contextvars import ContextVar, Token

from crewlite import background, durable
from crewlite.errors import text_of
from crewlite.lazy import asyncio

log = logging.getLogger("crewlite.run")
_TO_CLOSE = 10.0  # seconds that one aclose() may take; a run ends only after it


class Resource:
    """What may hold something open. Neither method must do anything."""

    async def ready(self) -> None:
        """Make what calls need, before the first call of a run; after `aclose`, it may be awaited again.

        Runs that overlap on one event loop share it. An error is the error of that call, and the next call tries again.
        """

    async def aclose(self) -> None:
        """Let go of what `ready` has made. Awaited once, when the last run that uses it ends, however it ends.

        It is not awaited if `ready` failed. An error is logged and does not change the result of the run. After 10
        seconds it is cancelled.
        """


async def ready(resource: Resource, limit: float | None = None) -> None:
    """See that `resource` is ready, for as long as the run lasts. Raises what its `ready` raises.

    It raises TimeoutError if that takes longer than `limit` seconds.
    """
    if type(resource).ready is Resource.ready and type(resource).aclose is Resource.aclose:
        return
    used = _used.get()
    if used is None:  # outside a run, nobody knows when to close it
        await resource.ready()
    else:
        await used.ready(resource, limit)


class InUse:
    """What one run uses: an async context. At its end it closes what no other run uses."""

    def __init__(self) -> None:
        self._shared: dict[int, _Shared] = {}
        self._over = False
        self._token: Token[InUse | None] | None = None

    async def __aenter__(self) -> None:
        self._token = _used.set(self)

    async def __aexit__(self, *raised: object) -> None:
        if self._token:
            _used.reset(self._token)
        await self._let_go()

    async def ready(self, resource: Resource, limit: float | None) -> None:
        """See that it is ready on this loop. Raises what its `ready` raises, and TimeoutError after `limit` seconds."""
        if self._over:  # a step that was cut and went on
            raise RuntimeError(f"{type(resource).__name__} is not made ready: the run has ended")
        shared = self._shared.get(id(resource))
        if shared is None:
            key = id(resource), id(asyncio.get_running_loop())
            shared = self._shared[id(resource)] = _all.setdefault(key, _Shared(resource, key))
            shared.users += 1
        session = shared.session
        if session is None or session.over:
            session = shared.session = _Session(shared, limit, session)
        await asyncio.wait({session.opened})
        session.opened.result()

    async def _let_go(self) -> None:
        self._over = True
        ending = set[asyncio.Task[None]]()
        for shared in self._shared.values():
            shared.users -= 1
            if not shared.users and shared.session:
                ending.add(shared.session.end())
                shared.forget()
        if ending:
            await asyncio.wait(ending)


class _Shared:
    """A resource on one event loop, and how many runs use it there."""

    def __init__(self, resource: Resource, key: tuple[int, int]) -> None:
        self.resource, self.users = resource, 0
        self.session: _Session | None = None
        self._key = key

    def forget(self) -> None:
        """Drop it when it is closed and no run uses it."""
        if not self.users and self.session and self.session.task.done():
            _all.pop(self._key, None)


class _Session:
    """One time that a resource is open: the task that awaits its `ready` and its `aclose`."""

    def __init__(self, shared: _Shared, limit: float | None, previous: _Session | None) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.opened.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever waited may be gone
        self._unused = asyncio.Event()
        self._mask = durable.scope().mask
        self.task = loop.create_task(self._last(shared.resource, limit, previous))
        self.task.add_done_callback(lambda _: self._ended(shared))

    @property
    def over(self) -> bool:
        """Whether it was never open, or is closed, or about to be."""
        failed = self.opened.done() and (self.opened.cancelled() or self.opened.exception() is not None)
        return failed or self._unused.is_set() or self.task.done()

    def end(self) -> asyncio.Task[None]:
        """Have it closed. The task ends when it is."""
        self._unused.set()
        if not self.opened.done():
            self.task.cancel()
        return self.task

    def _ended(self, shared: _Shared) -> None:
        self.opened.cancel()  # if it was never open
        shared.forget()

    async def _last(self, resource: Resource, limit: float | None, previous: _Session | None) -> None:
        durable.detach()  # this task is no part of a run
        try:
            if previous:
                await asyncio.wait({previous.task})
            await _within(resource.ready(), limit, "ready()")
        except Exception as error:  # noqa: BLE001 - the border: whoever waits is given it
            self.opened.set_exception(error)
            return
        self.opened.set_result(None)
        try:
            await self._unused.wait()
        finally:  # also when the loop is shut down
            await self._close(resource)

    async def _close(self, resource: Resource) -> None:
        try:
            await _within(resource.aclose(), _TO_CLOSE, "aclose()")
        except Exception as error:  # noqa: BLE001 - the border: the run has its result, whatever this raises
            problem = f"aclose() of {type(resource).__name__} raised {type(error).__name__}: {text_of(error)}"
            log.warning("%s", self._mask(problem))


async def _within(work: Awaitable[None], limit: float | None, what: str) -> None:
    """Await `work` in this task for at most `limit` seconds. Raises TimeoutError."""
    try:
        async with asyncio.timeout(limit) as bound:
            await background.guarded(work)
    except TimeoutError:
        if not bound.expired():
            raise
        raise TimeoutError(f"{what} did not end within {limit:g} s") from None


_all: dict[tuple[int, int], _Shared] = {}
"""By the ids of resource and loop. Each is touched on its own loop alone."""
_used: ContextVar[InUse | None] = ContextVar("crewlite_used_resources", default=None)
