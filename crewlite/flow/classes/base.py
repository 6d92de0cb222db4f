"""`class MyFlow(Flow)`: a flow of methods, each of which starts when others have finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, Unpack, cast, get_args
from uuid import UUID

from pydantic import BaseModel

from crewlite import durable, kinds
from crewlite.coming_from import Hinting
from crewlite.coming_from.settings import without_accepted
from crewlite.definitions import last_kickoff
from crewlite.definitions.callables import types_of
from crewlite.definitions.keywords import known_keywords
from crewlite.encoding import codec, homes
from crewlite.encoding.codec import Json
from crewlite.encoding.comparable import comparable
from crewlite.errors import ConfigError
from crewlite.flow.classes.feedback import HumanFeedbackResult
from crewlite.flow.classes.graph import Graph
from crewlite.flow.classes.running import is_at_work, method_of, original, running
from crewlite.flow.classes.settings import (
    ARGUMENTS,
    Declared,
    FlowType,
    check_arguments,
    gives_setting,
    name_to_set,
    read_attributes,
)
from crewlite.flow.classes.state import Outcome, StateKind, fields_set, values_of, warn_of_late_changes
from crewlite.flow.options import check_checkpoint, named
from crewlite.kinds import Kind
from crewlite.lazy import lazy
from crewlite.recovery import checks
from crewlite.recovery.port import Policy, check_policy
from crewlite.runtime.kickoffs.definition_verbs import on_class_too
from crewlite.runtime.kickoffs.request import (
    Bind,
    Finished,
    FromCheckpoint,
    KickoffOptions,
    Progress,
    Request,
    kickoff_options,
)
from crewlite.runtime.kickoffs.runnable import Runnable
from crewlite.runtime.people.human import asked_here
from crewlite.runtime.people.question import Question, QuestionEvents
from crewlite.state.config import CheckpointConfig
from crewlite.state.journal.view import View
from crewlite.state.values.bag import StepState
from crewlite.system.forked import cached_property
from crewlite.texts.logs import logger

if TYPE_CHECKING:
    import os

    from crewlite.runtime.kickoffs.root import Root
    from crewlite.state.format.record import Record
    from crewlite.state.run_history import RunHistory

root = lazy("crewlite.flow.classes.root")  # imports the engine, which a program that only defines a flow does not need
pages = lazy("crewlite.flow.classes.plot.page")
events = lazy("crewlite.events")
event_bus = lazy("crewlite.events.event_bus")

S = TypeVar("S")
log = logger("crewlite.flow")


class Left(NamedTuple):
    """What the flow keeps of its last kickoff: the final state and people's feedback."""

    state: Any
    feedback: tuple[HumanFeedbackResult, ...]


class Flow(Hinting, Declared, Runnable[Any], Generic[S], metaclass=FlowType):
    """A flow of methods with a state: `class Plan(Flow[PlanState])`, or `class Plan(Flow)` with a mapping as state.

    The settings below are class attributes, or arguments of the constructor. Further arguments of the constructor set
    fields of the state.
    """

    run_kind: ClassVar[Kind] = kinds.FLOW
    name: str | None = None
    """The name of the flow's runs; by default that of the class."""
    checkpoint: CheckpointConfig | bool | None = None
    initial_state: Any = None
    """The state before a kickoff: a pydantic class, an object of one, or a mapping."""
    max_concurrency: int | None = None
    """The most steps of the flow that run at the same time."""
    failure_policy: Policy | None = None
    """Decides what follows a failure of the flow or of a step in it."""
    max_method_calls: int = 1000
    """How often each method may start in a run, so that a cycle without an end is an error."""
    verbose: bool = False
    """Whether to show the progress of the flow's runs."""

    graph: ClassVar[Graph] = Graph({}, {})
    """The methods and what starts them, as plain data: `methods`, `edges`, `entries`."""
    state_kind: ClassVar[StateKind] = StateKind.PLAIN
    _bound: FromCheckpoint = None
    _as_made: Mapping[str, Json] = MappingProxyType({})
    """The fields of `first_state` before the program set any of them."""
    _abstract: ClassVar[bool] = False
    is_persisted: ClassVar[bool] = False
    """Whether the class has `@persist`, so that the id of its state names its run."""
    _warned: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, *, abstract: bool = False, **more: Any) -> None:
        super().__init_subclass__(**more)
        homes.note(cls)
        read_attributes(cls, Flow)
        cls.graph = Graph.of(cls, Flow)
        for base in cls.__dict__.get("__orig_bases__", ()):
            if isinstance(getattr(base, "__origin__", None), type) and issubclass(base.__origin__, Flow):
                cls.state_kind = StateKind.of(cls.__name__, get_args(base)[0])
        if cls.initial_state is not None:
            cls.state_kind = cls.state_kind.begun_with(cls.__name__, cls.initial_state)
        for method in cls.graph.methods.values():
            if method.persisted:
                cls.keep_runs(method.persisted)
        cls._abstract = abstract
        if cls.graph.methods and not abstract:
            cls.graph.check(cls.__name__)

    @classmethod
    def _check_complete(cls) -> None:
        """Raise ConfigError for a class without methods, and for an abstract one that only a subclass completes."""
        if not cls.graph.methods:
            raise ConfigError(f"flow {cls.__name__!r} has no methods; mark one with @start() in a class of your own")
        if cls._abstract:
            cls.graph.check(cls.__name__, abstract=True)

    @classmethod
    def keep_runs(cls, setting: CheckpointConfig | bool) -> None:
        """Keep the runs of this class: see `persist`. Raises ConfigError if the class has another setting."""
        own = cls.checkpoint
        if gives_setting("checkpoint", own) or (setting is not True and own not in (None, setting)):
            raise ConfigError(f"{cls.__name__} has checkpoint=, and @persist names another place: keep one of them")
        cls.checkpoint = own or setting
        cls.is_persisted = True

    def __init__(self, **settings: Any) -> None:
        fields = {name: settings.pop(name) for name in list(settings) if name not in ARGUMENTS}
        for name, value in settings.items():
            setattr(self, name, value)
        self._check()
        if fields:
            self._set_fields(fields)
        if event_bus.event_bus.hears(events.FlowCreatedEvent):
            event_bus.event_bus.emit(self, events.FlowCreatedEvent(flow_name=self.run_name))

    @property
    def run_name(self) -> str:
        """The name of the flow, by default that of its class."""
        return self.name or type(self).__name__

    @property
    def state(self) -> S:
        """The state: inside a method, as its step sees it; after a kickoff, the final one; before, the initial one.

        Every kickoff begins with the fields that were set before the first one. Later changes affect no kickoff.
        """
        if method := method_of(self):
            view = durable.scope().state if method is running.get() else None
            seen = self.state_kind.seen(view if isinstance(view, View) else method.view, self.run_name, method.retyped)
            return cast(S, seen)
        found = last_kickoff.last(self)
        if found is None and is_at_work(self):
            raise ConfigError(
                f"flow {self.run_name!r} is running, and code outside its methods has asked for its state. In "
                f"a thread that a method begins, call crewlite.bound(function); in a handler of events, take the state "
                f"as a third argument; elsewhere, History(...).run(...).values has it"
            )
        return cast(S, self.first_state if found is None else found.state)

    @cached_property
    def first_state(self) -> Any:
        """The state before any kickoff. A program may set fields of it: see `first_inputs`."""
        state, self.__dict__["next_id"] = self.state_kind.with_id(self.run_name, self.initial_state)
        object.__setattr__(self, "_as_made", {name: comparable(value) for name, value in values_of(state).items()})
        return state

    def first_inputs(self) -> dict[str, Any]:
        """Return the fields of the state that were set on this object, which are inputs of each kickoff of it."""
        if self.__dict__.keys().isdisjoint(("first_state", "initial_state")):
            return {}
        values, made = values_of(self.first_state), self._as_made
        changed = (name for name, value in values.items() if name not in made or made[name] != comparable(value))
        named = (*fields_set(self.__dict__.get("initial_state")), *changed)
        return {name: values[name] for name in named if name in values}

    def first_values(self) -> dict[str, Any]:
        """Return the values that a run begins with: new defaults, and the fields that the program set."""
        values = values_of(self.state_kind.initial(self.run_name, self.initial_state)) | self.first_inputs()
        removed = self._as_made.keys() - values_of(self.first_state).keys() if self._as_made else ()
        return {name: value for name, value in values.items() if name not in removed}

    @property
    def human_feedback_history(self) -> list[HumanFeedbackResult]:
        """What people have said to methods with `@human_feedback`, in the order of these methods' commits.

        In a method: what they said before it started, and to methods that it called itself. After a kickoff: what they
        said to all methods.
        """
        method = method_of(self)
        found = last_kickoff.last(self)
        return list(method.feedback if method else found.feedback if found else ())

    @property
    def last_human_feedback(self) -> HumanFeedbackResult | None:
        """The last of `human_feedback_history`; None if there is none."""
        return next(reversed(self.human_feedback_history), None)

    @known_keywords("ask of a flow")
    def ask(
        self,
        message: str,
        schema: Any = None,
        *,
        name: str | None = None,
        timeout: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Any:
        """Ask a person, as `crewlite.flow.ask` does: `self.ask("Publish it?", bool)`. In a coroutine, await it.

        `metadata` is plain data of your own for the events flow_input_requested and flow_input_received.
        """
        method = method_of(self)
        about = {"flow_name": self.run_name, "method_name": method and method.method, "metadata": dict(metadata or {})}
        kinds_of_event = events.FlowInputRequestedEvent, events.FlowInputReceivedEvent
        told = QuestionEvents(original(self), *kinds_of_event, about, {"message": message})
        return asked_here(Question(message, schema, timeout, events=told), name)

    @on_class_too
    @known_keywords("plot of a flow")
    def plot(
        self,
        filename: str | os.PathLike[str] = "crewlite_flow.html",
        show: bool = False,
        *,
        run_id: str | UUID | RunHistory | None = None,
    ) -> str:
        """Write a page of HTML with its graph, and with what happened in a run. Returns the path of the file.

        The page is one file that loads nothing and has no scripts. Results in it are as they are recorded.

        Args:
            filename: Where to write it; `.html` is added to a name without it. An existing file is replaced.
            show: Whether to open the page in a browser.
            run_id: A run of this flow: a run_id or another ref in the store of its `checkpoint`, or a run of a
                `History`. The run may be at work, waiting or failed.

        Raises:
            RefError: there is no such run. RunMismatch: it is not of this flow. ConfigError: the flow has no methods.
            OSError: the page was not written.
        """
        name = (isinstance(self.name, str) and self.name) or getattr(self, "__name__", type(self).__name__)
        path: str = pages.written(self.graph, name, filename, run_id, self.checkpoint, show=show)
        event_bus.event_bus.emit(self, events.FlowPlotEvent(flow_name=name))
        return path

    @classmethod
    def mermaid(cls) -> str:
        """Return the graph of the flow as Mermaid text, for Markdown and other documents."""
        return cls.graph.mermaid()

    @kickoff_options("kickoff of a flow")
    def as_request(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        operation_id: str | UUID | None = None,
        **options: Unpack[KickoffOptions],
    ) -> Request:
        """Build the request of a kickoff. `inputs` set fields of the state, and arguments of the start methods.

        `operation_id`, for a flow with `@persist`: a text or UUID that makes a repeated request safe.
        """
        given = dict(inputs) if isinstance(inputs, Mapping | BaseModel) else inputs
        return Request(given, operation_id=operation_id, streamed=self._streamed, **options)

    def as_root(self, request: Request) -> Root[Any]:
        """Build the Root that the engine runs. Raises ConfigError for a flow without methods, or an incomplete one."""
        self._check_complete()
        self._check()  # again: settings may have been set
        return cast("Root[Any]", root.ClassRoot(self))

    def as_result(self, finished: Finished[Outcome]) -> Any:
        """Return the result of the last method."""
        return finished.value.result

    def _note_kickoff(self, progress: Progress) -> None:
        """Have `state` and the feedback show the outcome of this kickoff once it has ended."""
        kind = self.state_kind
        warn_of_late_changes(self.run_name, last_kickoff.handed_out(self))

        # without a reference to the flow, which its own last kickoff would keep alive for ever
        def left(outcome: Outcome) -> Left:
            return Left(outcome.made(kind), outcome.feedback)

        last_kickoff.keep({self: last_kickoff.Kickoff(lambda: progress.outcome, left)})

    @classmethod
    def rebuilt(cls, source: FromCheckpoint, bind: Bind) -> Self:
        """Return a flow whose kickoff resumes from `source`. Raises what `check_rebuilds` raises."""
        cls.check_rebuilds(bind)
        return cls().bound_to(source)

    @classmethod
    def check_rebuilds(cls, bind: Bind) -> None:
        """Raise ConfigError for a class that is no complete flow, and for `bind`, which no flow of methods needs."""
        if bind:
            raise ConfigError(f"{cls.__name__} takes no bind: the class has all that a run needs. Leave bind out")
        cls._check_complete()

    def check_edit(self, record: Record, address: str, value: Json) -> None:
        """Raise ConfigError if the edit of a router's outcome is none of its labels."""
        if "/" not in address and kinds.at(address) is kinds.METHOD:
            self.graph.check_edit(address, codec.decode(value))

    def as_field(self, record: Record, name: str, value: Any) -> Any:
        """Convert a value for a field of the state. Raises ConfigError for an unknown field or an invalid value."""
        kind, flow = self.state_kind, self.run_name
        kind.check(flow, {name: value})
        known = kind.made({at: codec.decode(one) for at, one in record.values.items()})
        return kind.merged(flow, known, {name: value}, "the edit of")[name]

    def as_inputs(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return inputs as runs record them. Raises ConfigError for one that is neither a field nor an argument."""
        self.state_kind.check(self.run_name, self.fields_in(inputs))
        return dict(inputs)

    def fields_in(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs that set fields of the state. The others are only arguments of start methods."""
        arguments = {one.name for one in self.graph.arguments}
        return {name: value for name, value in inputs.items() if name not in arguments or self.state_kind.has(name)}

    def input_names(self) -> Iterable[str]:
        """Return the names of the fields of its state; none for a mapping without known fields."""
        return self.state_kind.fields

    def input_types(self) -> Mapping[str, Any]:
        """Return the types of the arguments of start methods and of the fields of its state, as far as known."""
        found: dict[str, Any] = {}
        for name in self.graph.entries:
            found |= types_of(self.graph.methods[name].func)
        model = self.state_kind.model
        return found | ({name: field.annotation for name, field in model.model_fields.items()} if model else {})

    def required_inputs(self) -> Iterable[str]:
        """Return the arguments of start methods that have no default."""
        return [one.name for one in self.graph.arguments if one.default is one.empty]

    def __setattr__(self, name: str, value: object) -> None:
        if name == "state":
            if isinstance(value, StepState):  # of self.state |= {...}, which has changed the state and then assigns it
                return
            raise ConfigError(
                f"flow {self.run_name!r}: its state cannot be replaced. Set its fields: self.state.words = 3, or "
                f"self.state['words'] = 3 if it is a mapping; before a kickoff, initial_state= says what it begins with"
            )
        name = name_to_set(self, Flow, name, value)
        method = running.get()
        is_inside = method is not None and method.is_of(self)
        if is_inside and name not in type(self)._warned:
            type(self)._warned |= {name}
            log.warning(
                "flow %s: a method has set self.%s, which is not recorded and lost where the run is resumed: use "
                "self.state",
                self.run_name,
                name,
            )
        super().__setattr__(name, value)
        if name == "initial_state" and not is_inside:
            self.__dict__["state_kind"] = type(self).state_kind.begun_with(type(self).__name__, value)
            self.__dict__.pop("first_state", None)

    def _check(self) -> None:
        label = f"flow {named('flow', self.run_name if self.name is None else self.name)!r}"
        checks.whole_or_none(label, 1, max_concurrency=self.max_concurrency)
        checks.whole(label, 1, max_method_calls=self.max_method_calls)
        check_policy(self.failure_policy, label)
        check_checkpoint(label, self.checkpoint)

    def _set_fields(self, fields: Mapping[str, Any]) -> None:
        own = {name: value for name, value in fields.items() if name in self.state_kind.fields}
        rest = {name: value for name, value in fields.items() if name not in own}
        other = without_accepted([type(self).__name__, "Flow"], rest)
        check_arguments(type(self).__name__, other, self.state_kind.fields, is_open=self.state_kind.is_open)
        values = self.state_kind.merged(self.run_name, self.first_state, own | other)
        self.__dict__["first_state"] = self.state_kind.made(values)
        object.__setattr__(self, "_as_made", {name: one for name, one in self._as_made.items() if name not in fields})
