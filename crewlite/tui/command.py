"""A crewlite command in a process of its own, which runs what the view starts.

So a run that is resumed here loads the code as it is now, prints what it prints at a terminal, and can be stopped; and
nothing that it does can harm the view.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from crewlite.cli.shell import Again

_TO_STOP = 10.0  # seconds that a run has to end before its process is killed; it can be resumed either way


@dataclass(frozen=True, slots=True)
class Fork:
    """A branch to make: where, with which changes, and the definition that runs it."""

    ref: str
    changes: tuple[str, ...] = ()
    """The words of the command line for its edits and inputs."""
    branch: str = ""
    target: str = ""
    allow_effects: bool = False
    """Whether calls with effect="once" may be made again."""

    def words(self, location: str, *more: str) -> list[str]:
        """Return the words of the command."""
        named = ["--branch", self.branch] if self.branch else []
        named += ["--allow-effects"] if self.allow_effects else []
        return Again(location, self.target or None).words("fork", self.ref, *self.changes, *named, *more)


class Command:
    """One call of the crewlite command."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, hear: Callable[[str, bool], object]) -> int:
        """Run it to its end and return its exit code. `hear` is called with each line, and whether it is of stdout.

        If this is cancelled, the command is stopped.
        """
        settings = {"NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "crewlite", *self._words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **settings},
        )

        async def listen(stream: asyncio.StreamReader | None, is_answer: bool) -> None:
            assert stream
            async for line in _lines(stream):
                hear(line, is_answer)

        try:
            await asyncio.gather(listen(process.stdout, True), listen(process.stderr, False))
            return await process.wait()
        finally:
            await self._end(process)

    def stop(self) -> None:
        """Ask it to end: a run is saved then as after Ctrl-C."""
        if self._process and self._process.returncode is None:
            self._process.terminate()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        self.stop()
        try:
            await asyncio.wait_for(process.wait(), _TO_STOP)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield the lines of a stream, however long they are."""
    read, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
    while data := await stream.read(65_536):
        *lines, rest = (rest + read.decode(data)).split("\n")
        for line in lines:
            yield line
    if rest:
        yield rest
