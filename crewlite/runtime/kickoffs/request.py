"""The caller's request for a kickoff, the progress of its run, and how the run ended.

Light to import: every definition needs it, long before it is kicked off.
"""

from __future__ import annotations

import dataclasses
import os
import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypedDict, TypeVar
from uuid import UUID

from crewlite import kinds
from crewlite.definitions.definition import check_inputs
from crewlite.definitions.keywords import known_keywords
from crewlite.errors import ConfigError
from crewlite.lazy import lazy
from crewlite.refs import as_operation_id, as_run_id, to_rerun
from crewlite.state.config import AS_SETTINGS, CheckpointConfig
from crewlite.step_parts import Durability
from crewlite.texts.resuming import call_again, in_doubt, to_resume
from crewlite.usage import NO_USAGE, Usage

attempts = lazy("crewlite.runtime.steps.attempts")
steps = lazy("crewlite.state.reading.steps")  # only a run reads a record, and every definition loads this module

if TYPE_CHECKING:
    from crewlite.state.journal.journal import Journal
    from crewlite.state.reading.located import Located

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
FromCheckpoint = CheckpointConfig | str | UUID | os.PathLike[str] | None
Bind = Mapping[str, Any] | Sequence[Any] | None


class KickoffOptions(TypedDict, total=False):
    """The options of every kickoff, whatever is kicked off."""

    run_id: str | UUID | None
    """Name of the run. A new run is started, an unfinished one resumed; for a finished one, its result is returned."""
    from_checkpoint: FromCheckpoint
    """A ref to resume from, or CheckpointConfig(restore_from=ref), whose fields override the definition's."""
    answers: Mapping[str, Any] | None
    """Answers of people, and results of calls in doubt, by address."""
    rerun: Iterable[str]
    """Addresses of calls in doubt to make again, and of failed steps to retry."""
    resume: bool
    """Resume the newest unfinished run of this definition with these inputs; start a new run if there is none."""
    auto_approve: bool | None
    """Approve every call of a tool that requires approval. Recorded: a resume that passes None keeps the choice."""
    wait: bool
    """Join a run that a live process is working on: wait until it ends, and return its result."""


def kickoff_options(
    what: str, instead: Mapping[str, str] = MappingProxyType({}), others: str = "values of your own: inputs={them}"
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function, which takes the options of a kickoff by `**`, raise UnknownOption for any other keyword.

    `instead`: hints about options of other functions. Settings of checkpoints have one already. `others`: see
    UnknownOption.
    """
    return known_keywords(what, *KickoffOptions.__annotations__, instead={**AS_SETTINGS, **instead}, others=others)


@dataclass
class Progress:
    """The progress of a run, kept for the caller, who needs it also when the kickoff was interrupted."""

    run_id: str | None = None
    location: str | None = None
    branch: str = "main"
    address: str = ""
    """The address of this kickoff if it is a step of another run; "" for a run of its own."""
    how_to_go_on: Callable[[], str] | None = None
    """Returns advice on how to resume, for callers that did not kick off from Python; None for the usual advice."""
    known: queue.SimpleQueue[None] | None = None
    """Receives an item once the run has begun or was resumed; None if the caller does not wait for that."""
    journal: Journal | None = None
    """The run's journal, from the beginning of the kickoff until the run releases its branch."""
    paid: Usage = NO_USAGE
    """The usage of the complete run, set when the run releases its branch."""
    durability: Durability = "off"
    """How reliably the result was saved."""
    outcome: Any = None
    """The outcome of the root step once it has ended; of a failed flow of methods, its last state and feedback; else
    None."""
    again: tuple[str, ...] = ()
    """If the user's code failed after a step that answered from the record: the arguments of `crewlite checkpoint fork
    REF` for running this step again."""
    asks_again: bool = False
    """Whether this step is a question that nobody answered in time: the error of the user's code."""
    found_again: bool = False
    """Whether an equal kickoff would continue the run, as it names the run or a search finds it."""
    cancelled: bool = False
    """Whether the caller has asked to cancel the run."""
    target: Located | None = None
    """The branch of this kickoff in its store, once it is known."""
    joined: str = ""
    """The live process that runs the run while this kickoff waits for it; "" if this kickoff does not wait."""
    waited: bool = False
    """Whether this kickoff has waited for another process."""
    finished_steps: int | None = None
    """The number of finished steps that the next kickoff reuses, set when the run releases its branch."""
    unsettled: Mapping[str, int] = field(default_factory=dict)
    """The calls at which the next kickoff stops with InDoubt, and how often each was begun; set when the run releases
    its branch."""

    @property
    def usage(self) -> Usage:
        """The usage of the complete run so far."""
        journal = self.journal
        return journal.record.paid.total if journal else self.paid

    def attach(self, journal: Journal) -> None:
        """Note that the run has begun or was resumed, with this journal."""
        self.run_id, self.location, self.branch = journal.run_id, journal.location, journal.branch
        self.journal, self.joined = journal, ""
        if self.known:
            self.known.put(None)

    def join(self, run_id: str, branch: str, holder: str) -> None:
        """Note that this kickoff waits for a run that `holder` is working on."""
        self.run_id, self.branch, self.joined, self.waited = run_id, branch, holder, True
        if self.known:
            self.known.put(None)

    def advice(self, kind: str, repeat: str = "run the same script again", aim: str = "To go on") -> str:
        """Return advice for the user: how to resume the interrupted run.

        `kind`: the kind of its definition. `repeat`: in words, how to make the same kickoff again, and `aim`: what for.
        """
        if self.joined:
            return f"Only the waiting has ended: run {self.run_id!r} goes on in {self.joined}."
        if self.how_to_go_on:
            return self.how_to_go_on()
        if self.run_id is None:
            return f"No step had begun: {call_again(kind)}."
        if self.location is None:
            return f"Nothing was saved. To be able to resume a run, give the {kind} checkpoint=True."
        resume = to_resume(self.run_id, self.branch)
        if self.unsettled:
            return in_doubt(self.unsettled, resume, kind)
        if kinds.of(kind) is kinds.TRIAL:
            return f"{aim}: {call_again(kind)} with {resume}"
        same = f"{repeat}, or " if self.found_again and self.branch == "main" else ""
        return f"{aim}: {same}{kind}.kickoff({resume})"

    def end(self) -> None:
        """Note that the run has released its branch. Keeps the usage and drops the journal."""
        if self.journal:
            self.finished_steps = attempts.reusable(self.journal.record)
            self.unsettled = steps.unsettled(self.journal.record)
        self.paid, self.journal = self.usage, None


class StateTurn(NamedTuple):
    """A turn of a state that `@persist` keeps: one run of a flow."""

    state_id: str
    is_finished: bool | None = None
    """Whether its run is finished; None if it is the next turn, and no run has its name yet."""
    by_operation: Mapping[str, str] = MappingProxyType({})
    """For a new run to record: the run ids of the turns of its state, by the digests of their operation ids."""


@dataclass(frozen=True, slots=True)
class Request:
    """The caller's request for a kickoff. Raises ConfigError for values that a kickoff cannot take."""

    inputs: Mapping[str, Any] | None = None
    run_id: str | UUID | None = None
    """Stored as text."""
    from_checkpoint: FromCheckpoint = None
    answers: Mapping[str, Any] | None = None
    rerun: Iterable[str] = ()
    """One address, or several; see `attempts`."""
    resume: bool = False
    auto_approve: bool | None = None
    wait: bool = False
    progress: Progress = field(default_factory=Progress, kw_only=True)
    verbose: bool = field(default=False, kw_only=True)
    """Show the progress of the run, even if the definition is not verbose."""
    streamed: bool = field(default=False, kw_only=True)
    """Whether models are asked for their replies in pieces."""
    of_study: bool = field(default=False, kw_only=True)
    """Whether a study makes this request, to run one of its variants."""
    operation_id: str | UUID | None = field(default=None, kw_only=True)
    """The caller's name for this request, which makes a repeated one the same turn of a state: see `@persist`. Stored
    as text."""
    state_turn: StateTurn | None = field(default=None, kw_only=True)
    """The turn of a state that the definition found by the inputs; None without `@persist`."""
    names_new_run: bool = field(default=False, kw_only=True)
    """Whether the definition has made the run_id up, so that an equal kickoff would begin another run."""
    preset: frozenset[str] = field(default=frozenset(), kw_only=True)
    """The names of the inputs that the definition itself gives, and not the caller."""
    attempts: Mapping[str, int] = field(default_factory=dict, init=False)
    """The addresses in `rerun`, each with the number of the attempt that it names."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attempts", to_rerun(self.rerun))
        if self.answers is not None and not (
            isinstance(self.answers, Mapping) and all(isinstance(at, str) for at in self.answers)
        ):
            raise ConfigError(
                f"answers is {self.answers!r}; wanted a dict from addresses to answers, such as {{'human:ok': True}}"
            )
        check_inputs(self.inputs)
        if self.run_id is not None:
            object.__setattr__(self, "run_id", as_run_id(self.run_id))
        if not isinstance(self.resume, bool):
            raise ConfigError(f"resume is {self.resume!r}; wanted True or False. To name a run, pass run_id=")
        if self.auto_approve is not None and not isinstance(self.auto_approve, bool):
            raise ConfigError(f"auto_approve is {self.auto_approve!r}; wanted True or False")
        if self.operation_id is not None:
            object.__setattr__(self, "operation_id", as_operation_id(self.operation_id))
        if not isinstance(self.wait, bool):
            raise ConfigError(
                f"wait is {self.wait!r}; wanted True or False. To limit the time, use a timeout of asyncio"
            )

    @property
    def inputs_of_caller(self) -> Mapping[str, Any] | None:
        """The inputs that the caller gave; None if the caller gave none."""
        given = {name: value for name, value in (self.inputs or {}).items() if name not in self.preset}
        return self.inputs if not self.preset else given or None

    def with_preset(self, preset: Mapping[str, Any]) -> Request:
        """Return this request with `preset` as inputs, unless the caller gave others."""
        if not preset:
            return self
        own = preset.keys() - (self.inputs or {}).keys()
        return dataclasses.replace(self, inputs={**preset, **(self.inputs or {})}, preset=frozenset(own))

    def going_on_from(self, bound: FromCheckpoint) -> Request:
        """Return this request with `bound` as its from_checkpoint, unless the caller passed one."""
        if bound is None or self.from_checkpoint is not None:
            return self
        return dataclasses.replace(self, from_checkpoint=bound)

    def how_to_go_on(self, kind: str, aim: str = "To go on") -> str:
        """Return advice for the user: how to resume the interrupted run. See `Progress.advice`."""
        repeat = "repeat the request" if self.operation_id else "run the same script again"
        return self.progress.advice(kind, repeat, aim)


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """The end of a kickoff. The definition builds its return value from this."""

    value: T
    """The outcome of the root step."""
    usage: Usage = NO_USAGE
    """The usage of the complete run."""
    durability: Durability = "off"
    """How reliably the run was saved."""
    run_id: str | None = None
    """The id of the run; None if the kickoff was part of another run."""
