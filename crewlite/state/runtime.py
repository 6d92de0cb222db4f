"""What a handler sees of the run it hears from: `(source, event, state)`."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from crewlite.codec import decode, encode
from crewlite.errors import ConfigError, RefError
from crewlite.refs import check_name
from crewlite.state.entry import Facts
from crewlite.state.journal import Journal
from crewlite.state.providers import BaseProvider
from crewlite.state.subscriber import new_place
from crewlite.usage import Usage


class RuntimeState:
    """The run at the moment of one event. It stays bound to that moment, however late it is used."""

    __slots__ = ("_address", "_finished", "_journal", "_sum", "_trigger", "seq", "usage")

    def __init__(self, journal: Journal, trigger: str, address: str) -> None:
        self._journal, self._trigger, self._address = journal, trigger, address
        self.seq: int = journal.record.seq
        """The commit of this moment."""
        self.usage: Usage = journal.record.usage
        """Tokens and cost of the run up to this moment."""
        self._finished, self._sum = len(journal.record.tasks), journal.record.sum

    @property
    def run_id(self) -> str:
        """The run."""
        return self._journal.run_id

    @property
    def branch(self) -> str:
        """Its branch."""
        return self._journal.branch

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the kickoff."""
        inputs: dict[str, Any] = decode(self._journal.record.run["inputs"])
        return inputs

    def checkpoint(
        self,
        location: str | os.PathLike[str] | None = None,
        *,
        provider: BaseProvider | None = None,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Name a checkpoint at this event and wait until it is on disk.

        A run without a store gets one at `location` with the first call. Returns the ref to resume from: a file's
        path (JSON) or `database#id`. Raises StoreError if it cannot be saved.
        """
        started = time.perf_counter()
        naming = self._journal.name_place(lambda: self._facts(label, metadata), provider, _text(location))
        return self._journal.completed(naming.result(), started)

    async def acheckpoint(
        self,
        location: str | os.PathLike[str] | None = None,
        *,
        provider: BaseProvider | None = None,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """`checkpoint`, for async handlers."""
        started = time.perf_counter()
        naming = self._journal.name_place(lambda: self._facts(label, metadata), provider, _text(location))
        return self._journal.completed(await asyncio.wrap_future(naming), started)

    def flush(self) -> int:
        """Wait until all that the run has committed is on disk, also with durability="async".

        Returns the number of the last commit that is. Raises StoreError if something still cannot be saved, or the run
        has ended, or has no store.
        """
        return self._journal.ask_to_flush().result()

    async def aflush(self) -> int:
        """`flush`, for async handlers."""
        return await asyncio.wrap_future(self._journal.ask_to_flush())

    def _facts(self, label: str | None, metadata: dict[str, Any] | None) -> Facts:
        record = self._journal.record
        if label is not None:
            check_name("label", label)
        if metadata is not None and not isinstance(metadata, dict):
            raise ConfigError(f"metadata is {metadata!r}; wanted a dict, such as {{'reason': 'before the tool'}}")
        if label and any(place.get("label") == label for place in record.places.values()):
            raise RefError(label, "labels another place of this run already; choose another label")
        about = {"finished_tasks": self._finished, "tokens": self.usage.total_tokens}
        coded: Any = self._journal.secrets.mask_data(encode(metadata, "metadata")) if metadata else None
        named = {"about": about, "total": self._sum, "label": label, "metadata": coded}
        return {"place": new_place(record, self.seq, self._trigger, self._address, **named)}


def _text(location: str | os.PathLike[str] | None) -> str | None:
    return os.fspath(location) if location is not None else None
