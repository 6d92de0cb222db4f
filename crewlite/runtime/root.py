"""The outermost definition of a run, as the engine sees it during one kickoff."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from crewlite.codec import JsonObject
from crewlite.durable import Stamp, Step
from crewlite.events.base import BaseEvent
from crewlite.kinds import Kind
from crewlite.runtime.questions import Comparison
from crewlite.runtime.run import Run
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.commit import RunStart
from crewlite.state.format.record import Record
from crewlite.state.subscriber import Setting

T = TypeVar("T")


class Definition(Protocol):
    """What every definition says of itself."""

    run_kind: ClassVar[Kind]

    @property
    def run_name(self) -> str:
        """The name that its runs are recorded under."""

    @property
    def checkpoint(self) -> Setting:
        """Where and when its runs are saved."""

    def identity(self) -> str:
        """The same for every run of this definition."""

    def secret_sources(self) -> tuple[object, ...]:
        """The live objects in whose fields secrets are looked for, itself first."""

    def inner_settings(self) -> tuple[Setting, ...]:
        """The checkpoint settings of the definitions inside it."""


class Root(ABC, Generic[T]):
    """What a definition is to the engine: facts for the record, a check of inputs, a question, and a step.

    Made for one kickoff, so it may keep what it has worked out. Whatever is kicked off is a subclass of this.
    """

    default_events: ClassVar[frozenset[str]] = frozenset()
    """The events that `on_events=True` stands for."""
    never_emitted: frozenset[str] = frozenset()
    """Events that a run of this kind never emits."""
    default_name: ClassVar[str] = ""
    """The name it has where its author gave it none."""
    exact: ClassVar[bool] = False
    """Whether its steps follow from its inputs alone."""

    asks_people: bool = False
    """Whether it is known beforehand that somebody will be asked."""
    verbose: bool = False
    """Whether any definition in it wants its progress shown."""

    def __init__(self, definition: Definition) -> None:
        self.source: object = definition
        self.kind, self.name, self.identity = definition.run_kind.name, definition.run_name, definition.identity()
        self.setting, self.inner = definition.checkpoint, definition.inner_settings()
        self.secret_sources = definition.secret_sources()

    @property
    def redact(self) -> frozenset[str]:
        """Texts that any of its settings says must never be stored or said."""
        settings = (setting for setting in (self.setting, *self.inner) if isinstance(setting, CheckpointConfig))
        return frozenset(text for setting in settings for text in setting.redact or ())

    @abstractmethod
    def facts(self) -> JsonObject:
        """Plain data to know it again by: kind, name, tasks. Never a live object, never a secret."""

    @abstractmethod
    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise if these inputs cannot do, before anything is recorded or paid."""

    @abstractmethod
    def question(self, inputs: Mapping[str, Any]) -> Any:
        """What its root step is asked with these inputs, as plain JSON."""

    @abstractmethod
    def step(self, inputs: dict[str, Any], run: Run | None) -> Step[T]:
        """Its root step. `run` is None when it is a step of somebody else's run."""

    def compare(self, record: Record, inputs: Mapping[str, Any]) -> Comparison:
        """Compare what is asked now to what the finished run answered."""
        return Comparison()

    def shares(self, record: Record, inputs: Mapping[str, Any], mask: Callable[[str], str]) -> bool:
        """Whether a record has a name or a question in common with it; if not, the run is of another definition.

        `mask` masks texts as the record does.
        """
        return True

    def follow(self, record: Record, recorded: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs of a fork: from its record, the recorded inputs, and those that its kickoff is given."""
        return {**recorded, **given}

    def facts_now(self, run: RunStart, finished: frozenset[str]) -> JsonObject:
        """The definition as a recorded run, with these steps finished, should know it from now on."""
        definition: JsonObject = run["definition"]
        return definition

    def paused(self, waiting: dict[str, str]) -> Callable[[Stamp], BaseEvent] | None:
        """Makes the event of a run that waits for people, given their questions."""
        return None
