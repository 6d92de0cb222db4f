"""Forking what a definition has recorded, for the verb `fork` of definitions and of their classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from crewlite.errors import ConfigError
from crewlite.runtime.request import Bind, FromCheckpoint
from crewlite.runtime.runnable import Runnable
from crewlite.secrets import Secrets
from crewlite.state.config import CheckpointConfig, defaults
from crewlite.state.reading.locate import Located, locate
from crewlite.state.verbs.copy_run import copy_if_elsewhere
from crewlite.state.verbs.fork import Changes, fork, tried

D = TypeVar("D", bound=Runnable[Any])


def forked(
    source: D | type[D],
    config: FromCheckpoint,
    edits: Mapping[str, Any] | None,
    rerun: Iterable[str],
    inputs: Mapping[str, Any] | None,
    *,
    branch: str | None,
    operation_id: str | None,
    bind: Bind,
) -> D:
    """The definition, bound to the branch that is begun; of a class, rebuilt from the record. See Runnable.fork."""
    given = config if isinstance(config, CheckpointConfig) else CheckpointConfig(restore_from=config)
    definition = None if isinstance(source, type) else source
    if definition is not None and bind:
        raise ConfigError(f"bind= is for {type(definition).__name__}.fork: an instance has its live parts")
    own = _config_of(definition)
    found, changed = _found(definition, own, given), _changes(definition, edits, rerun, inputs)
    secrets = Secrets.of(*(definition.secret_sources() if definition is not None else ()), extra=own.redact or ())
    found = copy_if_elsewhere(found, given)
    made = fork(found, source, branch=branch, operation_id=operation_id, changed=changed, secrets=secrets)
    at = _there(given, made)
    return source.from_checkpoint(at, bind=bind) if isinstance(source, type) else source.bound_to(at)


def forked_in_memory(
    definition: D, given: CheckpointConfig, edits: Mapping[str, Any], rerun: Iterable[str], inputs: Mapping[str, Any]
) -> D:
    """The definition, bound to what its fork would be, for a preview: nothing is written."""
    found = _found(definition, _config_of(definition), given)
    return definition.bound_to(_there(given, tried(found, _changes(definition, edits, rerun, inputs))))


def _config_of(definition: Runnable[Any] | None) -> CheckpointConfig:
    own = definition.checkpoint if definition is not None else None
    return own if isinstance(own, CheckpointConfig) else defaults()


def _found(definition: Runnable[Any] | None, own: CheckpointConfig, given: CheckpointConfig) -> Located:
    config = own.overridden_by(given)
    if config.restore_from is None:
        raise ConfigError("fork names no checkpoint; wanted a ref, or CheckpointConfig(restore_from=ref)")
    identity = definition.identity() if definition is not None else None
    return locate(config.restore_from, config.location, config.provider, identity)


def _changes(
    definition: Runnable[Any] | None,
    edits: Mapping[str, Any] | None,
    rerun: Iterable[str],
    inputs: Mapping[str, Any] | None,
) -> Changes:
    changed = Changes.of(edits, rerun, inputs)
    if definition is None or not changed.inputs:
        return changed
    return replace(changed, inputs=definition.as_inputs(changed.inputs), takes=frozenset(definition.input_names()))


def _there(given: CheckpointConfig, made: Located) -> CheckpointConfig:
    """The configuration, from the branch that was made."""
    ref = f"{made.run_id}/{made.branch}"
    return given.model_copy(update={"location": made.location, "provider": made.provider, "restore_from": ref})
