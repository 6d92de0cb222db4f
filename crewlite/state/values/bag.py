"""The mappings of named values that programs use: with snapshots, or as the code of a running step sees them.

The journal records their changes.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn, Self, SupportsIndex

from crewlite.definitions.keywords import methods_with_known_keywords
from crewlite.encoding.codec import Json, encode
from crewlite.errors import ConfigError, CrewliteError, RefError, add_note
from crewlite.refs import check_name
from crewlite.state.format.checkpoints import SNAPSHOT
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.entry import unsealed
from crewlite.state.journal import manual
from crewlite.state.journal.journal import Journal
from crewlite.state.journal.lineage import find_lineage
from crewlite.state.journal.states import OutsideValues
from crewlite.state.journal.values import Values
from crewlite.state.journal.view import View
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.state.reading.checkpoints import Checkpoints, at_head
from crewlite.state.subscriber import new_checkpoint
from crewlite.state.values.mapping import NamedValues
from crewlite.usage import NO_USAGE, Usage


@methods_with_known_keywords("a state", constructed=False)
class Bag(NamedValues):
    """The named values of a run, as a mapping that the program may change. All objects of one run share the values."""

    __slots__ = ("__weakref__", "_address", "_journal", "_late", "_paid")

    def __init__(self, journal: Journal, address: str) -> None:
        self._journal = journal
        self._address = address
        """The address of the step to which the changes belong; "" for the run itself."""
        self._late: OutsideValues | None = None
        self._paid = NO_USAGE
        """The usage added through this object."""

    def __setitem__(self, key: str, value: Any) -> None:
        self._open()
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        self._open()
        super().__delitem__(key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._journal.run_id}/{self._journal.branch}: {dict(self)!r}>"

    @property
    def _values(self) -> Values:
        """The current values: of the step at `_address` while it runs, then those that its enclosing step sees."""
        states = self._journal.states
        with states.common.lock:  # threads that ask for the first time at the same moment get the same view
            if self._late is None:
                found = states.given(self._address, self)
                if isinstance(found, View):
                    return found.values
                self._late = found
            states.follow(self._late)
            return self._late

    def add_usage(
        self,
        usage: Usage | None = None,
        *,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        cached_tokens: int = 0,
        reasoning_tokens: int = 0,
        requests: int = 0,
        cost: float | None = None,
    ) -> None:
        """Add tokens, requests and cost (in US dollars) of calls that crewlite did not make to the usage of the run.

        The next commit records them, as it does values. Neither `restore` nor `rollback_on_error` subtracts them again.
        Raises ConfigError for an argument that is not a number, or is below 0.
        """
        if usage is not None and not isinstance(usage, Usage):
            raise ConfigError(f"add_usage was given {usage!r}; wanted a Usage, or add_usage(prompt_tokens=...)")
        more: dict[str, Any] = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "cached_tokens": cached_tokens,
            "reasoning_tokens": reasoning_tokens,
            "requests": requests,
            "cost": cost,
        }
        for given in (more, *(dict(one) for one in ((usage, *usage.by_agent.values()) if usage else ()))):
            _check_counts(given)
        paid = Usage(**more) + (usage or NO_USAGE)
        self._open().states.pay(paid)
        self._paid = self._paid + paid

    def snapshot(self, label: str | None = None, metadata: dict[str, Any] | None = None) -> Checkpoint:
        """Create a checkpoint with the current values, and wait until it is on disk if there is a store.

        Raises NotCodable, with the path of the value, if one cannot be recorded; RefError if another checkpoint of the
        run has the label; ConfigError for an unusable label or metadata; StoreError if it cannot be saved;
        BranchConflictError or RunCancelled if another process has taken the branch or cancelled the run.
        """
        started = time.perf_counter()
        return self._completed(*manual.outcome(self._journal, self._commit_snapshot(label, metadata)), started)

    async def asnapshot(self, label: str | None = None, metadata: dict[str, Any] | None = None) -> Checkpoint:
        """`snapshot`, for coroutines."""
        started = time.perf_counter()
        return self._completed(*await asyncio.wrap_future(self._commit_snapshot(label, metadata)), started)

    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints of this branch, first to last; for a fork, also those before the fork.

        Leaves out those that a rewind has abandoned. Raises StoreError if the run has ended or cannot be saved.
        """
        return self._read().all()

    @property
    def latest(self) -> Checkpoint | None:
        """The newest checkpoint of this branch; None if there is none."""
        return self._read().newest()

    def _read(self) -> Checkpoints:
        journal = self._open()
        ref = partial(manual.ref_of, journal)
        if journal.queue is None:
            return Checkpoints([*map(unsealed, journal.unstored)], ref, {})
        manual.flush(journal).result()
        entries, lacks = find_lineage(journal.queue.store, journal.run_id, journal.branch)
        return Checkpoints(entries, ref, lacks)

    def restore(self, target: Checkpoint | int | str) -> None:
        """Set the values to those of a checkpoint, and record the change. Later checkpoints remain recorded.

        The next snapshot has the restored checkpoint as its parent, and version numbers continue. Only the values
        change: the usage and the steps of the run stay as they are.

        Args:
            target: A checkpoint of any run; the version of a checkpoint of this branch; or a ref of one: its id or a
                part of it, `@label:x`, `latest~1`, or the value of its `.ref`.

        Raises:
            RefError: there is no such checkpoint, or several match.
            ConfigError: `target` is neither a checkpoint, nor a version, nor a ref.
            StoreError: the change was not saved.
            BranchConflictError, RunCancelled: another process has taken the branch, or cancelled the run.
        """
        found = target if isinstance(target, Checkpoint) else self._read().chosen(target)
        self._put_back(found.coded_values(), found)

    def _rollback(self) -> Callable[[BaseException], None]:
        journal = self._journal
        before, recorded = self._values.coded(), journal.record.kept

        def roll_back(error: BaseException) -> None:
            if journal.closed or journal.record.kept is recorded:
                self._values.put_back(before)
                return
            try:
                self._put_back(before)
            except CrewliteError as problem:
                add_note(error, f"The restored values are not recorded: {problem}")

        return roll_back

    def _open(self) -> Journal:
        """Return the journal. Raises StoreError if the run has ended."""
        if self._journal.closed:
            raise self._journal.ended()
        return self._journal

    def _snapshot_parts(self, label: str | None, metadata: dict[str, Any] | None) -> CommitParts:
        """Build the commit that records the changed values and creates a checkpoint with them."""
        journal, record = self._journal, self._journal.record
        usage = record.paid.total + journal.states.paid
        about = {"finished_tasks": len(record.tasks), "tokens": usage.total_tokens}
        checkpoint = new_checkpoint(
            record, journal.next_seq, SNAPSHOT, self._address, about=about, **self._label_and_metadata(label, metadata)
        )
        return {"values": journal.states.shown(self._values), "place": checkpoint}

    def _label_and_metadata(self, label: str | None, metadata: dict[str, Any] | None) -> dict[str, Any]:
        """Check and encode the label and the metadata of a checkpoint. Raises ConfigError, RefError."""
        record = self._journal.record
        if label is not None:
            check_name("label", label)
        if metadata is not None and not isinstance(metadata, dict):
            raise ConfigError(f"metadata is {metadata!r}; wanted a dict, such as {{'reason': 'before the tool'}}")
        if label and record.checkpoints.labelled(label):
            raise RefError(label, "labels another checkpoint of this run already: choose another label")
        coded: Any = self._journal.secrets.mask_data(encode(metadata, "metadata")) if metadata else None
        return {"label": label, "metadata": coded}

    def _commit_snapshot(
        self, label: str | None, metadata: dict[str, Any] | None
    ) -> Future[tuple[CommitParts, Checkpoint]]:
        journal = self._journal

        def seen(parts: CommitParts) -> tuple[CommitParts, Checkpoint]:
            return parts, at_head(journal.record, parts["place"], manual.ref_of(journal, parts["place"]))

        return manual.change(journal, lambda: self._snapshot_parts(label, metadata), seen)

    def _completed(self, parts: CommitParts, made: Checkpoint, started: float) -> Checkpoint:
        self._journal.announce_saved(parts, started)
        return made

    def _put_back(self, coded: Mapping[str, Json], origin: Checkpoint | None = None) -> None:
        journal = self._journal

        def parts() -> CommitParts:
            values = self._values
            values.put_back(coded)
            changed = journal.states.shown(values)
            known = journal.record.checkpoints
            ours = origin and (origin.id in known or origin.id in known.dropped)
            return {"values": changed | ({"restored": origin.id} if origin and ours else {})}

        manual.outcome(journal, manual.change(journal, parts, lambda parts: None))


_OUTSIDE_STEPS = {name for cls in Bag.__mro__ for name in vars(cls)} | {"checkpoint", "acheckpoint", "flush", "aflush"}
_OUTSIDE_STEPS |= {"open", "aopen", "close", "aclose"}
"""The names that the state of a handler or a saved state has, and the state of a running step does not have."""


class StepState(NamedValues):
    """The state of the running step: a view of its own, whose changes count once the step has finished."""

    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def _values(self) -> Values:
        return self._view.values

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self}

    def __ior__(self, other: Mapping[str, Any]) -> Self:
        self.update(other)
        return self

    def copy(self) -> dict[str, Any]:
        """Return a new dict with the same values."""
        return dict(self)

    def __str__(self) -> str:
        return str(dict(self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._view.address or 'the run'}: {dict(self)!r}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise ConfigError(
            "the state of a running step cannot be copied or pickled, because it belongs to that step. "
            "Copy the values: copy.deepcopy(dict(state))"
        )

    def __getattr__(self, name: str) -> Any:
        if name in _OUTSIDE_STEPS and not name.startswith("_"):
            raise ConfigError(
                f"RuntimeState.current().{name}: the state of a running step has no {name}, because the code of a step "
                f"may run again. Use {name} in a handler (source, event, state), or on a state of RuntimeState.open"
            )
        raise AttributeError(
            f"{type(self).__name__} has no attribute {name!r}. It is a mapping: write state[{name!r}]; for "
            f"state.{name}, give the flow a pydantic class, as class Work(Flow[State])"
        )

    def __setattr__(self, name: str, value: object) -> None:
        try:
            super().__setattr__(name, value)
        except AttributeError:
            self.__getattr__(name)


def _check_counts(usage: Mapping[str, Any]) -> None:
    for name, value in usage.items():
        if name == "by_agent":
            continue
        if name == "cost":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and 0 <= value < math.inf):
                raise ConfigError(f"add_usage: cost is {value!r}; wanted US dollars, 0 or more, or None if unknown")
        elif type(value) is not int or value < 0:
            raise ConfigError(f"add_usage: {name} is {value!r}; wanted a whole number, 0 or more")
