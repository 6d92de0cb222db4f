"""What the caller of a kickoff asks for, what is known of the run while it goes on, and how it has ended.

Light to import: every definition needs it, long before it is kicked off.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar
from uuid import UUID

from crewlite.definition import check_inputs
from crewlite.durable import Durability
from crewlite.errors import ConfigError
from crewlite.refs import as_run_id
from crewlite.state.config import CheckpointConfig
from crewlite.usage import Usage

if TYPE_CHECKING:
    from crewlite.state.journal.journal import Journal

T = TypeVar("T")
FromCheckpoint = CheckpointConfig | str | UUID | os.PathLike[str] | None
Bind = Mapping[str, Any] | Sequence[Any] | None


class KickoffOptions(TypedDict, total=False):
    """The options of every kickoff, whatever is kicked off."""

    run_id: str | UUID | None
    """Name of the run: started if new, gone on with if unfinished, its stored result if finished."""
    from_checkpoint: FromCheckpoint
    """A ref, or CheckpointConfig(restore_from=ref), to go on from. Its fields override the definition's own."""
    answers: Mapping[str, Any] | None
    """For calls in doubt and questions to people: address to result."""
    rerun: Iterable[str]
    """Addresses of calls in doubt to make again."""
    resume: bool
    """Go on with the newest unfinished run of this definition with these inputs; begin one if there is none."""


@dataclass
class Progress:
    """What an interrupted caller needs to know."""

    run_id: str | None = None
    location: str | None = None
    branch: str = "main"
    address: str = ""
    """The step that it is of another's run; "" is a run of its own."""
    how_to_go_on: Callable[[], str] | None = None
    """Says it to people who did not kick off in Python."""
    known: threading.Event = field(default_factory=threading.Event)
    """Set when the run has begun, or goes on."""
    journal: Journal | None = None
    """The run's, from when it begins until it lets go of its branch."""
    paid: Usage = field(default_factory=Usage)
    """What the whole run had paid when it did."""
    durability: Durability = "off"
    """How far that result was saved."""
    answered: tuple[str, ...] = ()
    """If the run has failed: the last steps that answered from the record of an earlier life."""
    cancelled: bool = False
    """Whoever began it wants it to be stopped."""

    @property
    def usage(self) -> Usage:
        """What the whole run has paid so far."""
        journal = self.journal
        return journal.record.usage if journal else self.paid

    def attach(self, journal: Journal) -> None:
        """The run has begun, or goes on."""
        self.run_id, self.location, self.branch = journal.run_id, journal.location, journal.branch
        self.journal = journal
        self.known.set()

    def attach_part(self, run_id: str, address: str) -> None:
        """It is a step of a run that is at work."""
        self.run_id, self.address = run_id, address

    def end(self) -> None:
        """The run has let go of its branch. Its record is nobody's to keep."""
        self.paid, self.journal = self.usage, None


@dataclass(frozen=True, slots=True)
class Request:
    """What the caller of a kickoff asks for. Raises ConfigError for what cannot be asked."""

    inputs: Mapping[str, Any] | None = None
    run_id: str | UUID | None = None
    """Kept as a text."""
    from_checkpoint: FromCheckpoint = None
    answers: Mapping[str, Any] | None = None
    rerun: Iterable[str] = ()
    """One address, or several; kept as a tuple, as it is looked at more than once."""
    resume: bool = False
    progress: Progress = field(default_factory=Progress, kw_only=True)
    verbose: bool = field(default=False, kw_only=True)
    """Show what it does, whatever the definition says."""

    def __post_init__(self) -> None:
        if not isinstance(self.rerun, Iterable):
            raise ConfigError(f"rerun is {self.rerun!r}; wanted the addresses of calls in doubt")
        if self.answers is not None and not isinstance(self.answers, Mapping):
            raise ConfigError(
                f"answers is {self.answers!r}; wanted a dict from the addresses of calls to their results"
            )
        object.__setattr__(self, "rerun", (self.rerun,) if isinstance(self.rerun, str) else tuple(self.rerun))
        check_inputs(self.inputs)
        if self.run_id is not None:
            object.__setattr__(self, "run_id", as_run_id(self.run_id))
        if not isinstance(self.resume, bool):
            raise ConfigError(f"resume is {self.resume!r}; wanted True or False. A run is named by run_id=")
        if self.resume and (self.run_id is not None or self.from_checkpoint is not None):
            raise ConfigError(
                "resume=True looks for the run to go on with, and run_id or from_checkpoint (or the fork that this is "
                "bound to) names one: wanted one of the two"
            )

    def going_on_from(self, bound: FromCheckpoint) -> Request:
        """The same, from where a definition is bound to unless the caller says otherwise."""
        if bound is None or self.from_checkpoint is not None:
            return self
        return dataclasses.replace(self, from_checkpoint=bound)

    def how_to_go_on(self, kind: str) -> str:
        """The line that resumes an interrupted run."""
        if self.progress.how_to_go_on:
            return self.progress.how_to_go_on()
        if self.progress.run_id is None or self.progress.location is None:
            return "Nothing was saved: give it checkpoint=True to be able to go on."
        if self.progress.branch != "main":
            ref = f"{self.progress.run_id}/{self.progress.branch}"
            return f"To go on: {kind}.kickoff(from_checkpoint={ref!r})"
        if self.run_id or self.resume:
            return f"To go on: run the same script again, or {kind}.kickoff(run_id={self.progress.run_id!r})"
        return f"To go on: {kind}.kickoff(run_id={self.progress.run_id!r})"


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """How a kickoff has ended. The definition makes of it what it returns."""

    value: T
    """What its root step came to."""
    usage: Usage = field(default_factory=Usage)
    """What the whole run has paid."""
    durability: Durability = "off"
    """How far it was saved."""
    run_id: str | None = None
    """None if it was part of another run."""
