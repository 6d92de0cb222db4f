"""What can be kicked off, and the verbs of all that can: kickoff, submit, preview, fork, from_checkpoint.

A definition says how its kickoff is asked (`as_request`), what it is to the engine (`as_root`) and what its kickoff
returns (`as_result`); the verbs are here, once. The engine loads with the first of them: who only defines a crew need
not wait for it.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from crewlite.codec import digest
from crewlite.kinds import Kind
from crewlite.lazy import lazy
from crewlite.runtime.request import Bind, Finished, FromCheckpoint, KickoffOptions, Request
from crewlite.tracebacks import shortened

if TYPE_CHECKING:
    from crewlite.runtime.handle import RunHandle
    from crewlite.runtime.preview import Preview
    from crewlite.runtime.root import Root
    from crewlite.state.config import CheckpointConfig

engine = lazy("crewlite.runtime.engine")
forks = lazy("crewlite.runtime.fork")

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
D = TypeVar("D")


class Asked(Protocol[P, R_co]):
    """A definition by how its kickoff is asked and what it returns; its verbs have their types from these two."""

    def as_request(self, *args: P.args, **kwargs: P.kwargs) -> Request:
        """What a kickoff with these arguments asks for."""

    def as_result(self, finished: Finished[Any]) -> R_co:
        """What a kickoff returns."""


class on_class_too(Generic[P]):  # noqa: N801 - a decorator
    """Makes a verb of a definition and of its class alike: it gets whichever it is called on."""

    def __init__(self, verb: Callable[Concatenate[Any, P], Any]) -> None:
        self._verb = verb

    def __get__(self, instance: D | None, owner: type[D]) -> Callable[P, D]:
        return MethodType(self._verb, owner if instance is None else instance)


class Runnable(ABC, Generic[R]):
    """A definition that can be kicked off."""

    run_kind: ClassVar[Kind]
    """The kind that its runs are recorded as."""

    if TYPE_CHECKING:  # pydantic would take it for the first field of every definition
        checkpoint: CheckpointConfig | bool | None
        """Where and when its runs are saved."""

    _bound: FromCheckpoint

    @property
    @abstractmethod
    def run_name(self) -> str:
        """The name that its runs are recorded under."""

    @abstractmethod
    def as_request(self, *args: Any, **kwargs: Any) -> Request:
        """What a kickoff with these arguments asks for. Its signature is that of kickoff, akickoff, submit, preview."""

    @abstractmethod
    def as_root(self, request: Request) -> Root[Any]:
        """What it is to the engine, in the kickoff that is asked for. Raises what keeps it from being kicked off."""

    @abstractmethod
    def as_result(self, finished: Finished[Any]) -> R:
        """What a kickoff returns, made of how its run has ended."""

    @classmethod
    @abstractmethod
    def rebuilt(cls, source: FromCheckpoint, bind: Bind) -> Self:
        """See from_checkpoint."""

    @abstractmethod
    def as_inputs(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Inputs as its runs record them. Raises ConfigError for what it does not take."""

    @abstractmethod
    def input_names(self) -> Iterable[str]:
        """Names of the inputs that a kickoff may be given: placeholders in its texts, or its parameters."""

    @abstractmethod
    def secret_sources(self) -> tuple[object, ...]:
        """The live objects in whose fields secrets are looked for, itself first."""

    def required_inputs(self) -> Iterable[str]:
        """The inputs without which no run can begin, as far as that is known without beginning one."""
        return ()

    def input_types(self) -> Mapping[str, Any]:
        """What its inputs must be, of those of which it says so."""
        return {}

    def inner_settings(self) -> tuple[CheckpointConfig | bool | None, ...]:
        """What the definitions inside it say about checkpoints."""
        return ()

    def kickoff(self: Asked[P, R_co], *args: P.args, **kwargs: P.kwargs) -> R_co:  # noqa: D417
        """Run it and wait for its result.

        Args:
            inputs: Of a crew: values for the `{placeholders}` of tasks and agents. A resume needs none, or the same.
            messages: Of an agent: a question, or a conversation as a list of `{"role": ..., "content": ...}`. A resume
                needs none; a fork goes on with its conversation, to which they are added.
            response_format: Of an agent: a pydantic class the answer must fit.
            run_id: Name of the run: started if new, gone on with if unfinished, its stored result if finished.
            from_checkpoint: A ref, or CheckpointConfig(restore_from=ref), to go on from. Fields that are set on it
                override the definition's own configuration.
            answers: For calls in doubt: address to result.
            rerun: Addresses of calls in doubt to make again.
            resume: Go on with the newest unfinished run of this definition with these inputs that nobody is at work on;
                begin a new run if there is none.

        A flow takes the arguments of its function, and the last five of these.

        Raises:
            ConfigError, MissingInput, NoModel, StoreUnusable: before anything was paid.
            RunMismatch, InputsChanged, QuestionsChanged, CheckpointIsBehind, TaskGone, TaskDrifted,
                BranchConflictError: a resume that cannot be.
            InDoubt: a call declared effect="once" was cut in the middle.
            StoreError: a save failed, with on_save_error="raise".
        """
        with shortened():
            result: R_co = engine.kickoff_here(self, self.as_request(*args, **kwargs))
        return result

    async def akickoff(self: Asked[P, R_co], *args: P.args, **kwargs: P.kwargs) -> R_co:
        """`kickoff`, to await on a loop of your own."""
        with shortened():
            result: R_co = await engine.kickoff(self, self.as_request(*args, **kwargs))
        return result

    def submit(self: Asked[P, R_co], *args: P.args, **kwargs: P.kwargs) -> RunHandle[R_co]:
        """Begin a run and go on; takes what `kickoff` takes. Raises what that raises before a run begins.

        The handle has the run's id, status, usage and result, and can cancel it.
        """
        with shortened():
            begun: RunHandle[R_co] = engine.submit(self, self.as_request(*args, **kwargs))
        return begun

    def preview(self: Asked[P, R_co], *args: P.args, **kwargs: P.kwargs) -> Preview:
        """What `kickoff` would do with these arguments: which steps answer from the record, which run, and why.

        For a definition that is bound, as `fork` returns it, or with `from_checkpoint` or `run_id`. Asks no model, does
        no step and writes nothing; the run may be at work meanwhile. Of a flow, the code between the steps runs. Raises
        what kickoff raises before it pays for anything, and ConfigError if it is not told what to go on from.
        """
        with shortened():
            foreseen: Preview = engine.preview_here(self, self.as_request(*args, **kwargs))
        return foreseen

    async def apreview(self: Asked[P, R_co], *args: P.args, **kwargs: P.kwargs) -> Preview:
        """`preview`, to await on a loop of your own."""
        with shortened():
            foreseen: Preview = await engine.preview(self, self.as_request(*args, **kwargs))
        return foreseen

    @on_class_too
    def fork(
        self,
        config: FromCheckpoint,
        *,
        branch: str | None = None,
        operation_id: str | None = None,
        edits: Mapping[str, Any] | None = None,
        rerun: Iterable[str] = (),
        inputs: Mapping[str, Any] | None = None,
        bind: Bind = None,
    ) -> Any:
        """Begin a branch at a checkpoint and return this definition, bound to it: its kickoff goes on from there.

        The branch is made at once; the run it is made from stays as it is, and goes on by itself. Called on the class,
        it rebuilds the definition from the record, as `from_checkpoint` does.

        Args:
            config: A ref, or CheckpointConfig(restore_from=ref): a checkpoint, or a run or branch, which is forked at
                its head. `latest` is the newest run of this definition.
            branch: The name of the new branch; one is made up if it is left out.
            operation_id: Makes a repeated call safe: the same operation gives the same branch.
            edits: Outcomes to put in the place of recorded ones, by address: `{"task:research": "other text"}`. What is
                made from them runs again, everything else answers from the record.
            rerun: Addresses of finished steps to run again, with what is made from their outcomes.
            inputs: Laid over the recorded ones, and recorded with the branch; the first kickoff may be given others.
                Finished tasks that ask something else because of them run again, with those that build on their
                answers. Of an agent, `{"messages": ...}`; of a flow, arguments by name.
            bind: On the class, the live parts that no record holds: see from_checkpoint.

        Raises:
            RefError: there is nothing to fork, or no such step. BranchExists: the name is taken. ConfigError: inputs
                that it does not take. AnswerRefused: an edit does not answer its question. StoreError, OSError: nothing
                was made.
            BindMissing: on the class, after the branch was made; from_checkpoint takes it up.
        """
        changes = (edits, rerun, inputs)
        return forks.forked(self, config, *changes, branch=branch, operation_id=operation_id, bind=bind)

    @classmethod
    def from_checkpoint(cls, config: FromCheckpoint, *, bind: Bind = None) -> Self:
        """Rebuild a definition from what its run recorded; its `kickoff()` goes on with that run.

        What is plain was recorded. Models, tools, callbacks and classes were not: only that there were some, and what
        they were called. They are passed in `bind`; one error lists all that are missing. Reads the disk, writes
        nothing and imports nothing. A flow is a function, which no record holds.

        Args:
            config: A ref to the run, or CheckpointConfig(restore_from=ref).
            bind: What no record holds, by path (of a crew `agents.Researcher.llm`, `agents.Researcher.tools.search`,
                `tasks.research.callback`, `llm` for its own; of an agent `llm`, `tools.search`, `response_format`) or
                by last word: `search` binds every missing tool of that name. None as a value leaves the part out. The
                path of a plain field overrides what was recorded. A list of tools binds each by its name. An
                `LLM(...)` is rebuilt from its settings if its key is in the environment.

        Raises:
            BindMissing: live parts that were not passed; it lists all of them.
            ConfigError: a key of `bind` that binds nothing, or a part that does not fit.
            RefError, JournalCorrupt, StoreError: the ref names nothing, or nothing sound.
            RunMismatch: a run of something else.
        """
        return cls.rebuilt(config, bind)

    def bound_to(self, config: FromCheckpoint) -> Self:
        """A copy whose kickoff goes on from `config` (a CheckpointConfig with `restore_from`); None: from nothing.

        The copy shares everything else with this definition. `from_checkpoint=` of a kickoff wins over it.
        """
        bound = copy.copy(self)
        bound._bound = config
        return bound

    def with_checkpoint(self, setting: CheckpointConfig | bool) -> Self:
        """A copy that is saved as this setting says."""
        other = copy.copy(self)
        vars(other)["checkpoint"] = setting  # also of what is frozen: nobody else knows the copy yet
        return other

    @abstractmethod
    def with_model(self, llm: Any) -> Self:
        """A copy in which everybody asks this model. Raises ConfigError if that cannot be told from outside."""

    @property
    def bound_at(self) -> FromCheckpoint:
        """What its kickoff goes on from if it is told nothing else."""
        return self._bound

    def identity(self) -> str:
        """The same for every run of this definition: its kind, its name and what its parts are known by."""
        return digest([self.run_kind.name, self.run_name, *self.known_by()])

    def known_by(self) -> Iterable[str]:
        """What tells it from others of the same kind and name."""
        return ()

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if asked := cls.__dict__.get("as_request"):
            for verb in (cls.kickoff, cls.akickoff, cls.submit, cls.preview, cls.apreview):
                setattr(cls, verb.__name__, _signed(verb, inspect.signature(asked)))


def _signed(verb: Any, signature: inspect.Signature) -> FunctionType:
    """A copy of a verb that shows `help()` and editors what it takes: every option by name."""
    parameters = list(signature.parameters.values())
    if parameters[-1].annotation == "Unpack[KickoffOptions]":
        parameters[-1:] = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(_DEFAULTS, name),
                annotation=hint.__forward_arg__,
            )
            for name, hint in KickoffOptions.__annotations__.items()
        ]
    made = FunctionType(verb.__code__, verb.__globals__, verb.__name__, verb.__defaults__, verb.__closure__)
    made.__doc__, made.__module__, made.__qualname__ = verb.__doc__, verb.__module__, verb.__qualname__
    made.__annotations__ = dict(verb.__annotations__)
    made.__signature__ = inspect.signature(verb).replace(parameters=parameters)  # type: ignore[attr-defined]
    return made


_DEFAULTS = Request()
