"""What `kickoff` returns with `stream=True`: what a run says, piece by piece, with the task and agent of each piece."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, PrivateAttr

from crewlite import durable, events
from crewlite.events.base import BaseEvent
from crewlite.lazy import futures
from crewlite.runtime.kickoffs import engine
from crewlite.runtime.kickoffs.handle import AwaitedHandle, RunHandle
from crewlite.runtime.kickoffs.request import Progress, Request
from crewlite.runtime.kickoffs.runnable import Runnable
from crewlite.runtime.kickoffs.stream import RunStream
from crewlite.state.format.addresses import outers

R = TypeVar("R")
_CHANNELS = {"llm": "llm", "tool": "tools", "flow": "flow", "method": "flow"}


def begun(definition: Runnable[R], request: Request) -> StreamingOutput[R]:
    """Begin a run and return its stream; inside another run, wait for the kickoff, which is a step of that run."""
    if durable.scope().loop is None:
        return _of_own_run(definition, request)
    with heard(definition, request) as (stream, end):
        end(engine.kickoff_here(definition, request))
    return stream


async def abegun(definition: Runnable[R], request: Request) -> StreamingOutput[R]:
    """Do as `begun`, in a coroutine."""
    if durable.scope().loop is None:
        return _of_own_run(definition, request)
    with heard(definition, request) as (stream, end):
        end(await engine.kickoff(definition, request))
    return stream


@contextlib.contextmanager
def heard(definition: Runnable[R], request: Request) -> Iterator[tuple[StreamingOutput[R], Callable[[R], object]]]:
    """Give a stream of what a kickoff says that happens in the block, and what to call with its result."""
    ended = futures.Future[R]()
    handle = AwaitedHandle(f"{definition.run_kind} {definition.run_name!r}", request.progress, ended)
    try:
        yield StreamingOutput(definition, lambda: handle, request.progress), ended.set_result
    finally:
        ended.cancel()


def _of_own_run(definition: Runnable[R], request: Request) -> StreamingOutput[R]:
    return StreamingOutput(definition, partial(engine.submit, definition, request, "kickoff"), request.progress)


class StreamChunkType(Enum):
    """What a chunk tells: a piece of text, or that a tool is about to be called."""

    TEXT = "text"
    TOOL_CALL = "tool_call"


class ToolCallChunk(BaseModel):
    """A call of a tool that is about to be made."""

    tool_id: str | None = None
    tool_name: str | None = None
    arguments: str = ""
    """JSON of the arguments."""
    index: int = 0


class StreamChunk(BaseModel):
    """A piece of what an agent says, or a call of a tool; of a flow also any other event, with the content ""."""

    content: str = ""
    chunk_type: StreamChunkType = StreamChunkType.TEXT
    task_index: int = 0
    """The place of the task in its crew, from 0."""
    task_name: str = ""
    """The name of the task, or else its description."""
    task_id: str = ""
    """The address of the task in the run."""
    agent_role: str = ""
    agent_id: str = ""
    """The role again, by which an agent is known."""
    tool_call: ToolCallChunk | None = None

    _of: BaseEvent = PrivateAttr()

    def __str__(self) -> str:
        return self.content

    @property
    def type(self) -> str:
        """The type of the event that the chunk is made of, such as "llm_stream_chunk"."""
        return self._of.type

    @property
    def channel(self) -> str:
        """What the event is about: "llm", "tools", "flow", or "custom" for all else."""
        return _CHANNELS.get(self.type.partition("_")[0], "custom")

    @property
    def event(self) -> dict[str, Any]:
        """The event as plain data."""
        return self._of.model_dump(mode="json")


class _Task(NamedTuple):
    task_index: int
    task_name: str
    task_id: str


_NO_TASK = _Task(0, "", "")


class StreamingOutput(RunStream[R]):
    """Iterates over what a run says as StreamChunks, with `for` or `async for`; then raises the run's error.

    `result` is the run's result. What was recorded by an earlier kickoff of the run is not said again.
    """

    _all_in = "`chunks` and `get_full_text()` keep what was read"

    def __init__(self, definition: Runnable[R], begin: Callable[[], RunHandle[R]], progress: Progress) -> None:
        self._of_crew: tuple[Any, ...] | None = getattr(definition, "tasks", None)
        self._tasks = dict[str, _Task]()
        self._chunks = list[StreamChunk]()
        super().__init__(begin, progress)

    def __iter__(self) -> Iterator[StreamChunk]:  # type: ignore[override]  # other items than those of a RunStream
        return super().__iter__()  # type: ignore[return-value]  # see `_item_in`

    def __aiter__(self) -> AsyncIterator[StreamChunk]:  # type: ignore[override]  # as above
        return super().__aiter__()  # type: ignore[return-value]  # see `_item_in`

    @property
    def chunks(self) -> list[StreamChunk]:
        """The chunks that were read so far."""
        return [*self._chunks]

    def get_full_text(self) -> str:
        """Return the text of the chunks that were read so far."""
        return "".join(chunk.content for chunk in self._chunks)

    @property
    def is_completed(self) -> bool:
        """Whether the run has ended, in whatever way."""
        return not self.handle.at_work

    @property
    def is_cancelled(self) -> bool:
        """Whether the run was cancelled."""
        return self.handle.status == "cancelled"

    def close(self) -> None:
        """Cancel the run if it has not ended, and wait until it has released its branch."""
        self.__exit__(None, None, None)

    async def aclose(self) -> None:
        """Do as `close`, in a coroutine."""
        await self.__aexit__(None, None, None)

    def _item_in(self, event: BaseEvent) -> StreamChunk | None:
        if isinstance(event, events.TaskStartedEvent):
            self._note_task(event)
        text, call = self._text_in(event), None
        if isinstance(event, events.ToolUsageStartedEvent):
            call = ToolCallChunk(tool_name=event.tool_name, arguments=json.dumps(event.tool_args, default=str))
        if not (text or call) and self._of_crew is not None:
            return None
        kind = StreamChunkType.TOOL_CALL if call else StreamChunkType.TEXT
        near = (event.address or "", *outers(event.address or ""))
        task = next((self._tasks[at] for at in near if at in self._tasks), _NO_TASK)
        role = getattr(event, "agent_role", None) or ""
        about = {**task._asdict(), "agent_role": role, "agent_id": role}
        chunk = StreamChunk(content=text, chunk_type=kind, tool_call=call, **about)
        chunk._of = event
        self._chunks.append(chunk)
        return chunk

    def _note_task(self, event: events.TaskStartedEvent) -> None:
        """Keep what the chunks of a task tell of it."""
        number = next((n for n, one in enumerate(self._of_crew or ()) if one is event.source), 0)
        address = event.address or ""
        self._tasks[address] = _Task(number, event.task_name or event.description, address)


class StreamingOutputs(list[StreamingOutput[R] | Exception]):
    """What `kickoff_for_each` returns with `stream=True`: a stream for each of the inputs, all of which have ended.

    `async for` gives the chunks of all. With `return_exceptions`, a failure is in the place of its stream.
    """

    @property
    def results(self) -> list[R | Exception]:
        """The results, in the order of the inputs."""
        return [one if isinstance(one, Exception) else one.result for one in self]

    async def __aiter__(self) -> AsyncIterator[StreamChunk]:
        for stream in self:
            if not isinstance(stream, Exception):
                async for chunk in stream:
                    yield chunk
