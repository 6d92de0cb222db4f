"""Resources that tools and models keep open while runs use them, such as a connection or a child process.

`ready()` is awaited before a run first uses a resource, `aclose()` when the last run that uses it has ended. One task
awaits both, because clients built on anyio must be closed by the task that opened them. That task belongs to no run, as
a resumed run, whose first calls are answered from the record, opens its resources at a later step than before.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

from crewlite.concurrency.unawaited import mark_seen
from crewlite.errors import text_of
from crewlite.lazy import asyncio, lazy
from crewlite.texts.logs import logger

if TYPE_CHECKING:
    from crewlite import durable
    from crewlite.concurrency import background
else:  # a definition opens nothing
    background, durable = lazy("crewlite.concurrency.background"), lazy("crewlite.durable")

log = logger("crewlite.run")
_TO_CLOSE = 10.0  # seconds that one aclose() may take; a run ends only after it


class Resource:
    """A tool or model that may keep something open. Overriding the methods is optional."""

    async def ready(self) -> None:
        """Open what calls need. Awaited before the first call of a run, and may be awaited again after `aclose`.

        Of a model it is awaited before anything is paid, and should raise an error that every call would have.
        Runs that overlap on one event loop share the opened resource. If this raises, the call fails with that error,
        and the next call awaits it again.
        """

    async def aclose(self) -> None:
        """Close what `ready` has opened. Awaited once, when the last run that uses it ends, successfully or not.

        It is not awaited if `ready` failed. An error is logged and does not change the result of the run. It is
        cancelled after 10 seconds.
        """


async def ready(resource: Resource, limit: float | None = None) -> None:
    """Open `resource` unless it is open, and keep it open until the run ends.

    Raises the error of its `ready`, and TimeoutError if that takes longer than `limit` seconds.
    """
    if type(resource).ready is Resource.ready and type(resource).aclose is Resource.aclose:
        return
    used = _used.get()
    if used is None:  # outside a run, no event says when to close it
        await resource.ready()
    else:
        await used.ready(resource, limit)


class InUse:
    """The resources that one run uses, as an async context. Its end closes those that no other run uses."""

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
        """Open a resource on this loop, unless it is open. Raises what its `ready` raises, or TimeoutError."""
        if self._over:  # the caller is a step that was cancelled and did not stop
            raise RuntimeError(f"{type(resource).__name__} is not opened: the run has ended")
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
    """A resource on one event loop, and the number of runs that use it there."""

    def __init__(self, resource: Resource, key: tuple[int, int]) -> None:
        self.resource, self.users = resource, 0
        self.session: _Session | None = None
        self._key = key

    def forget(self) -> None:
        """Remove this from the table if the resource is closed and no run uses it."""
        if not self.users and self.session and self.session.task.done():
            _all.pop(self._key, None)


class _Session:
    """One period in which a resource is open: the task that awaits its `ready` and its `aclose`."""

    def __init__(self, shared: _Shared, limit: float | None, previous: _Session | None) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.opened.add_done_callback(mark_seen)
        self._unused = asyncio.Event()
        self._mask = durable.scope().mask
        self.task = loop.create_task(self._last(shared.resource, limit, previous))
        self.task.add_done_callback(lambda _: self._ended(shared))

    @property
    def over(self) -> bool:
        """Whether the resource failed to open, is closing, or is closed."""
        failed = self.opened.done() and (self.opened.cancelled() or self.opened.exception() is not None)
        return failed or self._unused.is_set() or self.task.done()

    def end(self) -> asyncio.Task[None]:
        """Start closing the resource. Returns the task, which ends when it is closed."""
        self._unused.set()
        if not self.opened.done():
            self.task.cancel()
        return self.task

    def _ended(self, shared: _Shared) -> None:
        self.opened.cancel()  # has an effect only if the resource was never opened
        shared.forget()

    async def _last(self, resource: Resource, limit: float | None, previous: _Session | None) -> None:
        durable.detach()  # this task belongs to no run
        try:
            if previous:
                await asyncio.wait({previous.task})
            await _within(resource.ready(), limit, "ready()")
        except Exception as error:  # the border: it is raised in the calls that wait
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
        except Exception as error:  # the border: the run has its result, whatever this raises
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
"""All open resources, by the ids of resource and loop. Each is used on its own loop alone."""
_used: ContextVar[InUse | None] = ContextVar("crewlite_used_resources", default=None)
