"""The verb `fork` of definitions, on the class and on an instance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from crewlite.errors import ConfigError
from crewlite.runtime.kickoff import FromCheckpoint
from crewlite.state.config import CheckpointConfig, defaults
from crewlite.state.fork import fork
from crewlite.state.locate import Located, locate


class Forkable(Protocol):
    """What a definition must have to be forked."""

    checkpoint: CheckpointConfig | bool | None

    @classmethod
    def from_checkpoint(cls, config: FromCheckpoint, *, bind: Mapping[str, Any] | None = None) -> Any:
        """Rebuild a definition from a record."""

    def bound_to(self, config: object) -> Any:
        """A copy whose kickoff goes on from `config`."""

    def identity(self) -> str:
        """The same for every run of this definition."""


D = TypeVar("D", bound=Forkable)


class ForkVerb:
    """Gives `Crew.fork` and `crew.fork` alike: the first rebuilds the crew from the record, the second keeps it."""

    def __get__(self, instance: D | None, owner: type[D]) -> Fork[D]:
        return Fork(instance, owner)


class Fork(Generic[D]):
    """`fork(config, *, branch=None, operation_id=None, bind=None)`, of a definition or of its class: see __call__."""

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
        bind: Mapping[str, Any] | None = None,
    ) -> D:
        """Begin a branch at a checkpoint and return this definition, bound to it: its kickoff goes on from there.

        The branch is made at once; the run it is made from stays as it is, and goes on by itself. The first kickoff
        may be given inputs: they are merged over the recorded ones, and finished tasks that ask something else
        because of them run again, with those that build on their answers.

        Args:
            config: A ref, or CheckpointConfig(restore_from=ref): a checkpoint, or a run or branch, which is forked at
                its head. `latest` is the newest run of this definition.
            branch: The name of the new branch; one is made up if it is left out.
            operation_id: Makes a repeated call safe: the same operation gives the same branch.
            edits: Outcomes to put in the place of recorded ones, by address: `{"task:research": "other text"}`. What is
                made from them runs again, everything else answers from the record.
            rerun: Addresses of finished steps to run again, with what is made from their outcomes.
            bind: On the class, the live parts that no record holds: see from_checkpoint.

        Raises:
            RefError: there is nothing to fork, or no such step. BranchExists: the name is taken. StoreError, OSError:
                nothing was made.
            BindMissing: on the class, after the branch was made; from_checkpoint takes it up.
        """
        given = config if isinstance(config, CheckpointConfig) else CheckpointConfig(restore_from=config)
        found = self._found(given)
        if self._instance is not None and bind:
            raise ConfigError(f"bind= is for {self._owner.__name__}.fork: an instance has its live parts")
        source = self._instance if self._instance is not None else self._owner
        made = fork(found, source, branch=branch, operation_id=operation_id, edits=edits, rerun=rerun)
        there = {"location": made.location, "provider": made.provider, "restore_from": f"{made.run_id}/{made.branch}"}
        at = given.model_copy(update=there)
        if self._instance is None:
            forked: D = self._owner.from_checkpoint(at, bind=bind)
        else:
            forked = self._instance.bound_to(at)
        return forked

    def _found(self, given: CheckpointConfig) -> Located:
        own = self._instance.checkpoint if self._instance is not None else None
        config = (own if isinstance(own, CheckpointConfig) else defaults()).overridden_by(given)
        if config.restore_from is None:
            raise ConfigError("fork names no checkpoint; wanted a ref, or CheckpointConfig(restore_from=ref)")
        identity = self._instance.identity() if self._instance is not None else None
        return locate(config.restore_from, config.location, config.provider, identity)
