"""The verb `fork` of definitions, on the class and on an instance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from crewlite.errors import ConfigError
from crewlite.runtime.kickoff import FromCheckpoint
from crewlite.runtime.rebuild import Bind
from crewlite.secrets import Secrets
from crewlite.state.bring import brought
from crewlite.state.config import CheckpointConfig, defaults
from crewlite.state.fork import Changes, fork, tried
from crewlite.state.locate import Located, locate


class Forkable(Protocol):
    """What a definition must have to be forked."""

    @property
    def checkpoint(self) -> CheckpointConfig | bool | None:
        """Where its runs are kept."""

    @classmethod
    def from_checkpoint(cls, config: FromCheckpoint, *, bind: Bind = None) -> Any:
        """Rebuild a definition from a record."""

    def bound_to(self, config: object) -> Any:
        """A copy whose kickoff goes on from `config`."""

    def identity(self) -> str:
        """The same for every run of this definition."""

    def as_inputs(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Inputs as its runs record them. Raises ConfigError for what it does not take."""

    def input_names(self) -> Iterable[str]:
        """The inputs that it asks for."""

    def secret_sources(self) -> tuple[object, ...]:
        """The live objects in whose fields secrets are looked for."""


D = TypeVar("D", bound=Forkable)


class ForkVerb:
    """Gives `Crew.fork` and `crew.fork` alike: the first rebuilds the crew from the record, the second keeps it."""

    def __get__(self, instance: D | None, owner: type[D]) -> Fork[D]:
        return Fork(instance, owner)


class Fork(Generic[D]):
    """The verb, of a definition or of its class: see __call__."""

    def __init__(self, instance: D | None, owner: type[D]) -> None:
        self._instance, self._owner = instance, owner

    def __call__(
        self,
        config: FromCheckpoint,
        *,
        branch: str | None = None,
        operation_id: str | None = None,
        edits: Mapping[str, Any] | None = None,
        rerun: Iterable[str] = (),
        inputs: Mapping[str, Any] | None = None,
        bind: Bind = None,
    ) -> D:
        """Begin a branch at a checkpoint and return this definition, bound to it: its kickoff goes on from there.

        The branch is made at once; the run it is made from stays as it is, and goes on by itself.

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
                answers. Of an agent, `{"messages": ...}`.
            bind: On the class, the live parts that no record holds: see from_checkpoint.

        Raises:
            RefError: there is nothing to fork, or no such step. BranchExists: the name is taken. ConfigError: inputs
                that it does not take. AnswerRefused: an edit does not answer its question. StoreError, OSError: nothing
                was made.
            BindMissing: on the class, after the branch was made; from_checkpoint takes it up.
        """
        given = config if isinstance(config, CheckpointConfig) else CheckpointConfig(restore_from=config)
        if self._instance is not None and bind:
            raise ConfigError(f"bind= is for {self._owner.__name__}.fork: an instance has its live parts")
        found, changed = self._found(given), self._changed(edits, rerun, inputs)
        source = self._owner if self._instance is None else self._instance
        sources = () if self._instance is None else self._instance.secret_sources()
        secrets = Secrets.of(*sources, extra=self._own.redact or ())
        found = brought(found, given)
        made = fork(found, source, branch=branch, operation_id=operation_id, changed=changed, secrets=secrets)
        at = _there(given, made)
        if self._instance is None:
            forked: D = self._owner.from_checkpoint(at, bind=bind)
        else:
            forked = self._instance.bound_to(at)
        return forked

    def tried(
        self, given: CheckpointConfig, edits: Mapping[str, Any], rerun: Iterable[str], inputs: Mapping[str, Any]
    ) -> D:
        """The definition, bound to what this fork would be. That is in memory only: good for a preview."""
        assert self._instance is not None
        made = tried(self._found(given), self._changed(edits, rerun, inputs))
        bound: D = self._instance.bound_to(_there(given, made))
        return bound

    @property
    def _own(self) -> CheckpointConfig:
        own = self._instance.checkpoint if self._instance is not None else None
        return own if isinstance(own, CheckpointConfig) else defaults()

    def _found(self, given: CheckpointConfig) -> Located:
        config = self._own.overridden_by(given)
        if config.restore_from is None:
            raise ConfigError("fork names no checkpoint; wanted a ref, or CheckpointConfig(restore_from=ref)")
        identity = self._instance.identity() if self._instance is not None else None
        return locate(config.restore_from, config.location, config.provider, identity)

    def _changed(
        self, edits: Mapping[str, Any] | None, rerun: Iterable[str], inputs: Mapping[str, Any] | None
    ) -> Changes:
        changed = Changes.of(edits, rerun, inputs)
        if self._instance is None or not changed.inputs:
            return changed
        takes = frozenset(self._instance.input_names())
        return replace(changed, inputs=self._instance.as_inputs(changed.inputs), takes=takes)


def _there(given: CheckpointConfig, made: Located) -> CheckpointConfig:
    """The configuration, from the branch that was made."""
    ref = f"{made.run_id}/{made.branch}"
    return given.model_copy(update={"location": made.location, "provider": made.provider, "restore_from": ref})
