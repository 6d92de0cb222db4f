"""Definitions that can be kicked off, and their verbs, such as kickoff, submit, preview, fork and explore.

A definition implements `as_request` (the arguments of its kickoff), `as_root` (how the engine runs it) and `as_result`
(the value that its kickoff returns). The verbs are written once, here. They import the engine when first called, so
that a program which only defines a crew need not wait for that.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, Protocol, Self, TypeVar
from uuid import UUID

from crewlite.definitions.keywords import known_keywords
from crewlite.encoding.codec import Json, digest
from crewlite.errors import ConfigError
from crewlite.kinds import Kind
from crewlite.lazy import lazy
from crewlite.runtime.kickoffs.definition_verbs import KickoffTypes, made_on_class_too, sign
from crewlite.runtime.kickoffs.request import Bind, Finished, FromCheckpoint, Progress, Request
from crewlite.texts.tracebacks import shortened

if TYPE_CHECKING:
    from crewlite.definitions.definition import Definition
    from crewlite.runtime.exploring.exploration import Exploration
    from crewlite.runtime.kickoffs.handle import RunHandle
    from crewlite.runtime.kickoffs.preview import Preview
    from crewlite.runtime.kickoffs.root import Root
    from crewlite.runtime.kickoffs.stream import RunStream
    from crewlite.state.config import CheckpointConfig
    from crewlite.state.format.record import Record

chunks = lazy("crewlite.runtime.kickoffs.chunks")
engine = lazy("crewlite.runtime.kickoffs.engine")
forks = lazy("crewlite.runtime.kickoffs.fork")
studies = lazy("crewlite.runtime.exploring.study")
streams = lazy("crewlite.runtime.kickoffs.stream")

_CONFIG = {"config": "a ref, such as 'latest' or a run_id"}
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class ExploreTypes(Protocol[P]):
    """The parameters of `explore`, from which `aexplore` takes its types."""

    def explore(self, *args: P.args, **kwargs: P.kwargs) -> Exploration:
        """Fork one place of a run into several variants, run them, and compare their results."""


class Runnable(ABC, Generic[R]):
    """A definition that can be kicked off."""

    run_kind: ClassVar[Kind]
    """The kind under which runs of the definition are recorded."""
    run_verb: ClassVar[str] = "kickoff"
    """The blocking verb that users call to run it."""

    if TYPE_CHECKING:  # to pydantic it would be the first field of every definition
        checkpoint: CheckpointConfig | bool | None
        """Where and when runs of the definition are saved."""

    _bound: FromCheckpoint

    @property
    @abstractmethod
    def run_name(self) -> str:
        """The name under which runs of the definition are recorded."""

    @abstractmethod
    def as_request(self, *args: Any, **kwargs: Any) -> Request:
        """Build the request of a kickoff with these arguments. kickoff, akickoff, submit and preview take the same."""

    def relies_on(self) -> Iterable[Definition]:
        """Return the definitions whose fields a kickoff reads, so that none can be set until it has ended."""
        return ()

    @abstractmethod
    def as_root(self, request: Request) -> Root[Any]:
        """Build the Root that the engine runs for this request. Raises whatever prevents the kickoff."""

    @abstractmethod
    def as_result(self, finished: Finished[Any]) -> R:
        """Build the value that a kickoff returns from the outcome of its run."""

    def _note_kickoff(self, progress: Progress) -> None:
        """Keep the progress of a kickoff, to tell its outcome later. Called in the caller's context before each."""

    @classmethod
    def check_rebuilds(cls, bind: Bind) -> None:
        """Raise ConfigError if this class cannot rebuild a run at all, or not with this `bind`."""

    @classmethod
    @abstractmethod
    def rebuilt(cls, source: FromCheckpoint, bind: Bind) -> Self:
        """Rebuild the definition from the record of its run, as `from_checkpoint` does."""

    @abstractmethod
    def as_inputs(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return inputs as runs record them. Raises ConfigError for inputs that a kickoff does not take."""

    @abstractmethod
    def input_names(self) -> Iterable[str]:
        """Return the names of the inputs that a kickoff may take.

        For a crew these are the placeholders in its texts, for a flow its parameters, for an agent `messages`.
        """

    def secret_sources(self) -> tuple[object, ...]:
        """Return the live objects whose fields are searched for secrets, the definition itself first."""
        return (self,)

    def required_inputs(self) -> Iterable[str]:
        """Return the names of the inputs that a run needs to begin, as far as they are known before."""
        return ()

    def input_types(self) -> Mapping[str, Any]:
        """Return the types of the inputs that declare a type, by name."""
        return {}

    def inner_settings(self) -> tuple[CheckpointConfig | bool | None, ...]:
        """Return the checkpoint settings of the definitions inside this one, such as a crew's tasks and agents."""
        return ()

    def kickoff(self: KickoffTypes[P, R_co], *args: P.args, **kwargs: P.kwargs) -> R_co:  # noqa: D417 - as_request says which arguments there are
        """Run it and wait for its result. With `stream=True` of a crew or flow: begin it, and return a StreamingOutput.

        Args:
            inputs: Of a crew: values for the `{placeholders}` of tasks and agents. A resume needs none, or the same.
            messages: Of an agent: a question, or a conversation as a list of `{"role": ..., "content": ...}`. A resume
                needs none; the kickoff of a fork adds them to the recorded conversation.
            response_format: Of an agent: a pydantic class the answer must fit.
            turn: Of an agent: the number, from 1, of this turn in the conversation `run_id`. None: the turn that has
                these messages, or else the next.
            run_id: Name of the run. A new run is started, an unfinished one is resumed, and for a finished one its
                stored result is returned.
            from_checkpoint: A ref, or CheckpointConfig(restore_from=ref), to resume from. Fields that are set on it
                override the definition's own configuration.
            answers: Answers of people, and results of calls in doubt (see InDoubt), by address.
            rerun: Addresses of calls in doubt to make again, and of failed steps to retry.
            resume: Resume the newest unfinished run of this definition with these inputs that no process is working
                on; start a new run if there is none.
            auto_approve: Approve every call of a tool that requires approval. Recorded, so a resume does the same.
            wait: Join the run if a live process is working on it, here or elsewhere: wait until it ends, and return its
                result, or raise its failure. If its process dies, go on with the run. Without, that is a
                BranchConflictError.

        A flow takes the arguments of its function, and the last seven of these.

        Raises:
            ConfigError, MissingInput, NoModel, StoreUnusable: before anything was paid.
            RunMismatch, CheckpointIsBehind, BranchConflictError: the run cannot be resumed in this way.
            InDoubt: a call declared effect="once" was interrupted.
            AnswerRefused: an answer does not fit its question, or its step has another one already.
            Suspended: the run waits for people to answer.
            BudgetExceeded: a budget is used up. Kicked off again with more, the run goes on.
            StoreError: a save failed, with on_save_error="raise".
        """
        with shortened():
            request = _kickoff_request(self, *args, **kwargs)
            result: R_co = (chunks.begun if request.streamed else engine.kickoff_here)(self, request)
        return result

    async def akickoff(self: KickoffTypes[P, R_co], *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run `kickoff` from code on an event loop: await it there."""
        with shortened():
            request = _kickoff_request(self, *args, **kwargs)
            result: R_co = await (chunks.abegun if request.streamed else engine.kickoff)(self, request)
        return result

    kickoff_async = akickoff

    def submit(self: KickoffTypes[P, R_co], *args: P.args, **kwargs: P.kwargs) -> RunHandle[R_co]:
        """Begin a run and return its handle, without waiting for the run's end. Takes the arguments of `kickoff`.

        The handle has the run's id, status, usage and result, and can cancel it. Raises what `kickoff` raises before
        a run begins.
        """
        with shortened():
            begun: RunHandle[R_co] = engine.submit(self, _kickoff_request(self, *args, **kwargs))
        return begun

    def stream(self: KickoffTypes[P, R_co], *args: P.args, **kwargs: P.kwargs) -> RunStream[R_co]:
        """Begin a run and iterate over its events as they happen, with `for` or `async for`.

        Takes what `kickoff` takes. `.result` is what `kickoff` would have returned, `.text()` iterates over what models
        say. Raises what `submit` raises.
        """
        with shortened():
            request = _kickoff_request(self, *args, **kwargs)
            begun: RunStream[R_co] = streams.RunStream(
                partial(engine.submit, self, request, "stream"), request.progress
            )
        return begun

    def preview(self: KickoffTypes[P, R_co], *args: P.args, **kwargs: P.kwargs) -> Preview:
        """Return what `kickoff` would do with these arguments: which steps answer from the record, which run, and why.

        It needs a recorded run: a definition bound to one, as `fork` returns it, or `from_checkpoint` or `run_id`. It
        calls no model, runs no step and writes nothing; only a flow's code between the steps runs. The run may be at
        work meanwhile. Raises what kickoff raises before it pays for anything, and ConfigError if no run is named.
        """
        with shortened():
            foreseen: Preview = engine.preview_here(self, self.as_request(*args, **kwargs))
        return foreseen

    async def apreview(self: KickoffTypes[P, R_co], *args: P.args, **kwargs: P.kwargs) -> Preview:
        """Run `preview` from code on an event loop: await it there."""
        with shortened():
            foreseen: Preview = await engine.preview(self, self.as_request(*args, **kwargs))
        return foreseen

    @made_on_class_too
    @known_keywords("fork", needs=_CONFIG)
    def fork(
        self,
        config: FromCheckpoint,
        *,
        branch: str | None = None,
        operation_id: str | UUID | None = None,
        edits: Mapping[str, Any] | None = None,
        rerun: Iterable[str] = (),
        inputs: Mapping[str, Any] | None = None,
        bind: Bind = None,
        allow_effects: bool = False,
    ) -> Any:
        """Create a branch at a checkpoint and return this definition bound to it: its kickoff continues from there.

        The branch is created at once. The run it is forked from does not change and can be resumed as before. Called
        on the class, it rebuilds the definition from the record, as `from_checkpoint` does.

        Args:
            config: A ref, or CheckpointConfig(restore_from=ref): a checkpoint, or a run or branch, which is forked at
                its head. `latest` is the newest run of this definition.
            branch: The name of the new branch; one is made up if it is left out.
            operation_id: A text or UUID that makes a repeated call safe: it returns the same branch again.
            edits: Outcomes that replace recorded ones, by address: `{"task:research": "other text"}`; fields of the
                state, as a finished step left it: `{"method:plan.state.tone": "dry"}`. Steps that use them run again;
                all other steps answer from the record.
            rerun: Addresses of finished steps to run again, together with the steps that use their outcomes.
            inputs: Inputs that replace recorded ones of the same name, and are recorded with the branch; the first
                kickoff of the branch may replace them once more. Finished tasks whose prompts change because of them
                run again, with the tasks that use their answers. Of an agent, `{"messages": ...}`; of a flow,
                arguments by name.
            bind: On the class, the live parts that no record holds: see from_checkpoint.
            allow_effects: Whether calls with effect="once" may be made again: those that were made after the
                checkpoint, and those before it that the changes may make again.

        Raises:
            EffectsRepeat: such calls would be made again, and allow_effects is False.
            QuestionsChanged, TaskDrifted: the definition asks a finished run something else, and its kickoff would
                refuse that; give `rerun` or `inputs`.
            RunMismatch: the run is of another definition. RefError: there is nothing to fork, or no such step.
                BranchExists: the name is taken. ConfigError: inputs that it does not take, edits that cannot be
                made, such as to a label that a router does not declare. AnswerRefused: an edit of a person's answer
                does not fit the question. StoreError, OSError: no branch was created.
            BindMissing: on the class, after the branch was created. Pass its ref to from_checkpoint.
        """
        how: Any = {"branch": branch, "operation_id": operation_id, "bind": bind, "allow_effects": allow_effects}
        with shortened():
            return forks.forked(self, config, edits, rerun, inputs, **how)

    @known_keywords("explore", needs=_CONFIG)
    def explore(
        self,
        config: FromCheckpoint,
        variants: Sequence[Mapping[str, Any]],
        judge: Any = None,
        *,
        max_concurrency: int = 4,
        study: str | None = None,
        allow_effects: bool = False,
    ) -> Exploration:
        """Fork one place of a run into several variants, run them side by side, and compare their results.

        The run itself does not change. A variant that fails, waits for a person or reaches a budget is a row that says
        so. Called again with the same arguments, as after a kill, it continues: finished variants answer from their
        branches, the others go on where they stopped, and no recorded step and no recorded score is paid again.

        Args:
            config: What to fork: a ref, or CheckpointConfig(restore_from=ref), as for `fork`.
            variants: A mapping for each, with a `name` and what it changes: `model`, a model or its name; `prompt`,
                texts by path, such as `{"tasks.research.description": "..."}`; `inputs`, `edits` and `rerun` as for
                `fork`; `definition`, another definition of this kind. One with a name alone changes nothing.
            judge: Scores what the kickoff of a variant returned. A function that returns a number, or a number and the
                reason as text, may be async, and is called each time; a model or its name, or an Agent, which score
                from 0 to 10 and whose scores are recorded.
            max_concurrency: The number of variants that run at once.
            study: A name for the comparison. Variants get branches named `explore/<study>/<name>`, so the same name
                finds them again. None takes the name of the branch or the short id of the checkpoint that is explored.
            allow_effects: Whether calls with effect="once" may be made again, as for `fork`.

        Raises:
            VariantsRefused: before anything is forked or run; it lists all mistakes in the variants.
            EffectsRepeat: such calls would be made again, and allow_effects is False. Nothing was forked either.
            RefError, ConfigError, RunMismatch, StoreError: there is nothing to explore, or it cannot be forked.
        """
        how: Any = {"max_concurrency": max_concurrency, "study": study, "allow_effects": allow_effects}
        with shortened():
            explored: Exploration = studies.explore_here(self, config, variants, judge, **how)
        return explored

    async def aexplore(self: ExploreTypes[P], *args: P.args, **kwargs: P.kwargs) -> Exploration:
        """Run `explore` from code on an event loop: await it there."""
        with shortened():
            explored: Exploration = await studies.explore(self, *args, **kwargs)
        return explored

    @classmethod
    @known_keywords("from_checkpoint", needs=_CONFIG)
    def from_checkpoint(cls, config: FromCheckpoint, *, bind: Bind = None) -> Self:
        """Rebuild a definition from the record of its run; its `kickoff()` resumes that run.

        Plain fields were recorded. Of models, tools, callbacks and classes only the names were: pass these objects in
        `bind`; one error lists all that are missing. Reads the store, writes nothing and imports nothing. No record
        holds functions and methods: a flow that is a function cannot be rebuilt, one that is a class needs nothing.

        Args:
            config: A ref to the run, or CheckpointConfig(restore_from=ref).
            bind: What no record holds, by path (of a crew `agents.Researcher.llm`, `agents.Researcher.tools.search`,
                `tasks.research.callback`, `llm` for its own; of an agent `llm`, `tools.search`, `response_format`) or
                by last word: `search` binds every tool of that name. None as a value leaves the part out. The
                path of a plain field overrides what was recorded. A list of tools binds each by its name. An
                `LLM(...)` is rebuilt from its settings if its key is in the environment.

        Raises:
            BindMissing: live parts that were not passed; it lists all of them.
            ConfigError: a key of `bind` that binds nothing, or a part that does not fit.
            RefError, JournalCorrupt, StoreError: the ref names nothing, or its record cannot be read.
            RunMismatch: the run is of another kind of definition.
        """
        with shortened():
            return cls.rebuilt(config, bind)

    def check_edit(self, record: Record, address: str, value: Json) -> None:
        """Raise ConfigError if the definition cannot use `value`, as recorded, as the outcome of a step of this run."""

    def as_field(self, record: Record, name: str, value: Any) -> Any:
        """Convert a value for the field `name` of this run's state. Raises ConfigError if it does not fit."""
        return value

    def bound_to(self, config: FromCheckpoint) -> Self:
        """Return a copy whose kickoff resumes from `config`, such as a ref. With None the copy is bound to no run.

        The copy shares everything else with this definition. `from_checkpoint=` of a kickoff takes precedence.
        """
        bound = copy.copy(self)
        bound._bound = config
        return bound

    def with_checkpoint(self, setting: CheckpointConfig | bool) -> Self:
        """Return a copy with this checkpoint setting."""
        other = copy.copy(self)
        vars(other)["checkpoint"] = setting  # works for frozen fields; nobody else has the copy yet
        return other

    def with_model(self, llm: Any) -> Self:
        """Return a copy in which every agent uses this model. Raises ConfigError if its code chooses its models."""
        raise ConfigError(
            f"The code of {self.run_kind} {self.run_name!r} chooses its own models; a model can be set for a crew or "
            f"an agent only. Leave the model out"
        )

    def with_prompts(self, prompts: Mapping[str, str]) -> Self:
        """Return a copy with these texts, by path. Raises ConfigError for a path without a prompt."""
        raise ConfigError(
            f"The prompts of {self.run_kind} {self.run_name!r} are in its code, so they cannot be set by path: pass "
            f"another definition, or edits"
        )

    @property
    def bound_at(self) -> FromCheckpoint:
        """The ref or configuration from which a kickoff resumes unless the caller names another; None for none."""
        return self._bound

    def identity(self) -> str:
        """Return a digest of kind, name and `known_by`: the same for every run of this definition."""
        return digest([self.run_kind.name, self.run_name, *self.known_by()])

    def known_by(self) -> Iterable[str]:
        """Return texts that distinguish this definition from others of the same kind and name."""
        return ()

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if asked := cls.__dict__.get("as_request"):
            sign(cls, ("kickoff", "akickoff", "submit", "stream", "preview", "apreview", "kickoff_async"), asked)
            sign(cls, ("aexplore",), cls.explore)


def _kickoff_request(definition: KickoffTypes[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Request:
    """Build the request of a kickoff, and let the definition keep its progress for the caller."""
    request = definition.as_request(*args, **kwargs)
    definition._note_kickoff(request.progress)
    return request
