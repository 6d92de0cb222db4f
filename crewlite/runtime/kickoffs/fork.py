"""Fork a recorded run: the verb `fork` of definitions and of their classes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from crewlite.encoding.codec import decode
from crewlite.errors import BindMissing, ConfigError, MissingInput
from crewlite.runtime.kickoffs.rebuild import definition_of
from crewlite.runtime.kickoffs.request import Bind, FromCheckpoint, Request
from crewlite.runtime.kickoffs.resumption import check_definition, drift_of_result
from crewlite.runtime.kickoffs.runnable import Runnable
from crewlite.state.config import CheckpointConfig, at_ref
from crewlite.state.format.record import Record
from crewlite.state.reading.locate import locate
from crewlite.state.reading.located import Located
from crewlite.state.verbs.fork import Changes, fork, fork_in_memory
from crewlite.state.verbs.transfer import copy_if_elsewhere
from crewlite.texts.secrets import Secrets

D = TypeVar("D", bound=Runnable[Any])


def forked(
    source: D | type[D],
    config: FromCheckpoint,
    edits: Mapping[str, Any] | None,
    rerun: Iterable[str],
    inputs: Mapping[str, Any] | None,
    *,
    branch: str | None,
    operation_id: str | UUID | None,
    bind: Bind,
    allow_effects: bool,
) -> D:
    """Create a branch and return a definition bound to it, as Runnable.fork does; a class is first rebuilt."""
    given = at_ref(config)
    definition = None if isinstance(source, type) else source
    if definition is not None and bind:
        name = type(definition).__name__
        raise ConfigError(
            f"bind= is for {name}.fork, called on the class: an instance has live objects of its own. Leave bind out"
        )
    if isinstance(source, type):
        source.check_rebuilds(bind)
    own = config_of(definition)
    found = located_for(definition, own, given)
    definition_of(found, source.run_kind.name)  # raises before anything is written
    live = _rebuilt(source, given, bind) if isinstance(source, type) else source
    changed = changes_for(live, edits, rerun, inputs)
    secrets = Secrets.of(*(live.secret_sources() if live is not None else ()), extra=own.redact or ())
    found = copy_if_elsewhere(found, given)
    made = fork(
        found,
        source,
        branch=branch,
        operation_id=operation_id,
        changed=changed,
        secrets=secrets,
        check=kickoff_check(live, own.overridden_by(given), secrets) if live is not None else None,
        allow_effects=allow_effects,
    )
    at = bound_there(given, made)
    return source.from_checkpoint(at, bind=bind) if isinstance(source, type) else source.bound_to(at)


def _rebuilt(source: type[D], given: CheckpointConfig, bind: Bind) -> D | None:
    """Return the definition that a fork is checked against; None if `bind` lacks a part, which can be bound later."""
    with contextlib.suppress(BindMissing):
        return source.from_checkpoint(given, bind=bind)
    return None


def forked_in_memory(
    definition: D, given: CheckpointConfig, edits: Mapping[str, Any], rerun: Iterable[str], inputs: Mapping[str, Any]
) -> D:
    """Return the definition bound to the branch that a fork would create, for a preview. Writes nothing."""
    own = config_of(definition)
    found = located_for(definition, own, given)
    check = kickoff_check(definition, own.overridden_by(given), Secrets.of())
    made = fork_in_memory(found, changes_for(definition, edits, rerun, inputs), check)
    return definition.bound_to(bound_there(given, made))


def kickoff_check(definition: Runnable[Any], config: CheckpointConfig, secrets: Secrets) -> Callable[[Record], None]:
    """Return a check of the record of a fork: it raises what the fork's kickoff would raise for another definition.

    That is RunMismatch; QuestionsChanged and TaskDrifted for changed questions; ConfigError for inputs that make no
    initial state of a flow. Missing values for placeholders, and the next message of a conversation, are not checked:
    the kickoff may pass them.
    """

    def check(record: Record) -> None:
        if definition.run_kind.takes_messages:
            return
        with contextlib.suppress(MissingInput):
            root, inputs = definition.as_root(Request()), decode(record.run["inputs"])
            check_definition(root, record, inputs, secrets.mask)
            root.check_beginning(inputs, record)
            drift_of_result(root, record, inputs, config.on_drift, secrets.mask)

    return check


def config_of(definition: Runnable[Any] | None) -> CheckpointConfig:
    """Return the checkpoint settings of a definition; the default settings if it has none."""
    own = definition.checkpoint if definition is not None else None
    return own if isinstance(own, CheckpointConfig) else CheckpointConfig()


def located_for(definition: Runnable[Any] | None, own: CheckpointConfig, given: CheckpointConfig) -> Located:
    """Return the place to fork: what `given` names, with the definition's settings for what `given` leaves out."""
    config = own.overridden_by(given)
    if config.restore_from is None:
        raise ConfigError(
            "fork got a CheckpointConfig without restore_from, so it names no checkpoint; wanted a ref, or "
            "CheckpointConfig(restore_from=ref)"
        )
    identity = definition.identity() if definition is not None else None
    return locate(config.restore_from, config.location, config.provider, identity)


def changes_for(
    definition: Runnable[Any] | None,
    edits: Mapping[str, Any] | None,
    rerun: Iterable[str],
    inputs: Mapping[str, Any] | None,
) -> Changes:
    """Build the changes of a fork for the definition that is to run it, with their inputs checked if that is known."""
    changed = Changes.of(edits, rerun, inputs)
    if definition is None:
        return changed
    changed = replace(changed, definition=definition)
    if not changed.inputs:
        return changed
    return replace(changed, inputs=definition.as_inputs(changed.inputs), takes=frozenset(definition.input_names()))


def bound_there(given: CheckpointConfig, made: Located) -> CheckpointConfig:
    """Return the given configuration with the location and ref of the new branch."""
    ref = f"{made.run_id}/{made.branch}"
    return given.model_copy(update={"location": made.location, "provider": made.provider, "restore_from": ref})
