"""The outermost definition of a run, as the engine sees it during one kickoff."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from crewlite.durable import Step
from crewlite.encoding.codec import Json, JsonObject, digest
from crewlite.errors import ConfigError
from crewlite.kinds import Kind
from crewlite.runtime.kickoffs.request import Progress, Request
from crewlite.runtime.steps.questions import Comparison
from crewlite.runtime.steps.run import Run
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.commit import CommitParts, RunStart
from crewlite.state.format.record import Record
from crewlite.state.subscriber import Setting
from crewlite.system.forked import cached_property
from crewlite.texts.secrets import Secrets

if TYPE_CHECKING:
    from crewlite.events import FlowPausedEvent

T = TypeVar("T")


class RootSource(Protocol):
    """What a root needs of its definition, of whatever kind."""

    run_kind: ClassVar[Kind]

    @property
    def run_name(self) -> str:
        """The name under which runs of the definition are recorded."""

    @property
    def checkpoint(self) -> Setting:
        """Where and when runs of the definition are saved."""

    def identity(self) -> str:
        """Return a digest that is the same for every run of this definition."""

    def secret_sources(self) -> tuple[object, ...]:
        """Return the live objects whose fields are searched for secrets, the definition itself first."""

    def inner_settings(self) -> tuple[Setting, ...]:
        """Return the checkpoint settings of the definitions inside this one."""


class Root(ABC, Generic[T]):
    """A definition as the engine uses it: facts for the record, a check of inputs, and the step that runs it.

    Each kind of definition has a subclass. An instance serves one kickoff, so it may cache its results.
    """

    default_events: ClassVar[frozenset[str]] = frozenset()
    """The events that `on_events=True` stands for."""
    never_emitted: frozenset[str] = frozenset()
    """Events that a run of this kind never emits."""
    waits: ClassVar[type[FlowPausedEvent] | None] = None
    """The class of the event that a run waits for people."""
    default_name: ClassVar[str] = ""
    """The name of a definition whose author gave it none."""
    strict_replay: ClassVar[bool] = False
    """As `Step.strict_replay` of the root step."""

    address: str = ""
    """The address of the step whose outcome the kickoff returns: "" for the root step, or that of an earlier answer."""
    asks_people: bool = False
    """Whether people are sure to be asked."""
    asks_approval: bool = False
    """Whether the definition has tools whose calls people have to approve."""
    verbose: bool = False
    """Whether any definition in the run wants its progress shown."""
    classes: Collection[type] = ()
    """The classes that the definition itself names, for decoding its inputs."""
    log_file: str | None = None
    """The file to which progress is written; None for none."""

    def __init__(self, definition: RootSource) -> None:
        self.source: object = definition
        self.kind, self.name, self.identity = definition.run_kind.name, definition.run_name, definition.identity()
        self.setting, self.inner = definition.checkpoint, definition.inner_settings()
        self.secret_sources = definition.secret_sources()
        self.progress = Progress()  # replaced by the progress of the kickoff

    def again(self) -> Self:
        """Return a root for another kickoff, with what follows from the definition alone, and the same secrets."""
        made = object.__new__(type(self))
        vars(made).update(vars(self), secrets=self.secrets)
        return made

    def reset(self, before: Self) -> None:
        """Make this root equal to `before`, a copy that `again` made before a kickoff that could not begin."""
        vars(self).update(vars(before))

    @cached_property
    def secrets(self) -> Secrets:
        """The secrets of the definition and of the environment, as they are when it is kicked off."""
        return Secrets.of(*self.secret_sources, extra=self.redact)

    @property
    def redact(self) -> frozenset[str]:
        """The texts that any checkpoint setting in the run forbids to store or show."""
        settings = (setting for setting in (self.setting, *self.inner) if isinstance(setting, CheckpointConfig))
        return frozenset(text for setting in settings for text in setting.redact or ())

    @abstractmethod
    def facts(self) -> JsonObject:
        """Return plain data that identifies the definition in the record, such as kind, name, tasks; never a secret."""

    @abstractmethod
    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise an error if the definition cannot run with these inputs. Called before anything is recorded or paid."""

    def check_beginning(self, inputs: Mapping[str, Any], record: Record) -> None:
        """Raise an error if a run that begins with these inputs would fail at once. `record`: the run's record.

        Called before anything is recorded, so that the caller can correct the inputs and keep the run_id.
        """

    def defaults(self) -> JsonObject:
        """Return the encoded values that omitted inputs have, by name. A run records them in its facts."""
        return {}

    def changed_inputs(self, run: RunStart, given: JsonObject) -> list[str]:
        """Return the names of the inputs, encoded in `given`, that differ from the run's inputs.

        For an omitted input, the run's value is the default that the input had when the run began.
        """
        then, now = {**run["definition"].get("defaults", {}), **run["inputs"]}, {**self.defaults(), **given}

        def differs(name: str) -> bool:
            return name not in then or name not in now or digest(then[name]) != digest(now[name])

        return sorted(filter(differs, {*run["inputs"], *given}))

    def check_recorded(self, inputs: Mapping[str, Any], run_id: str) -> None:
        """Do as `check` for the recorded inputs of a run. A ConfigError says that they come from the record."""
        try:
            self.check(inputs)
        except ConfigError as error:
            raise ConfigError(
                f"{str(error).rstrip('.')}. The inputs ({', '.join(inputs) or 'none'}) are those that run {run_id!r} "
                f"has recorded: change the {self.kind} back to resume it, or use another run_id"
            ) from None

    def with_own_inputs(self, request: Request) -> Request:
        """Return the request with the inputs that the definition itself gives."""
        return request

    def named(self, request: Request) -> Request:
        """Return the request, with a name for its run if the definition has one for the next new run."""
        return request

    def continuing(self, request: Request) -> Callable[[CheckpointConfig], Request] | None:
        """Return a function that finds the run which the inputs name and returns the request for it; else None."""
        return None

    @abstractmethod
    def question(self, inputs: Mapping[str, Any]) -> Any:
        """Return the question of the root step with these inputs, as plain JSON: `Step.question`."""

    @abstractmethod
    def step(self, inputs: dict[str, Any], run: Run | None) -> Step[T]:
        """Build the root step. `run` is None if the step is to be part of another definition's run."""

    def compare(self, record: Record, inputs: Mapping[str, Any]) -> Comparison:
        """Compare the questions of the steps now with those recorded in the finished run."""
        return Comparison()

    def shares(self, record: Record, inputs: Mapping[str, Any], mask: Callable[[str], str]) -> bool:
        """Return whether any step has a name or a text in common with the record; if not, the run is not of this crew.

        `mask` masks texts as the record does.
        """
        return True

    def fork_inputs(self, record: Record, recorded: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the inputs for the kickoff of a fork: the `recorded` ones, changed by those `given` to the kickoff."""
        return {**recorded, **given}

    def find_turn(self, record: Record, given: Json | None) -> CommitParts | None:
        """Find the turn of a conversation that a kickoff with these inputs asks for.

        `given`: encoded inputs; None if the kickoff has none. Returns the parts to commit for a new turn, {} for a
        recorded one, and None if the kickoff must have the recorded inputs.
        """
        return None

    def facts_now(self, run: RunStart, finished: frozenset[str]) -> JsonObject:
        """Return the definition to record for a resumed run. `finished`: the steps that have outcomes."""
        definition: JsonObject = run["definition"]
        return definition
