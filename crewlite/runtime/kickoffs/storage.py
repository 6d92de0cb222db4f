"""Decide where a run is stored, before anything is opened, read or paid."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from crewlite import kinds
from crewlite.concurrency import background
from crewlite.errors import ConfigError
from crewlite.runtime.kickoffs.request import Request
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.people.terminal import piped, terminal
from crewlite.state.config import CheckpointConfig, at_ref
from crewlite.state.providers import declares, provider_for
from crewlite.state.providers.locations import real_path
from crewlite.state.subscriber import Setting
from crewlite.texts.logs import logger

log = logger("crewlite.run")
_OF_EACH = frozenset({"on_events", "max_checkpoints", "redact"})  # settings that each definition in a run may have
_refusal: contextvars.ContextVar[str | None] = contextvars.ContextVar("crewlite_refusal", default=None)


@contextlib.contextmanager
def refused(why: str) -> Iterator[None]:
    """Have every kickoff inside the block raise a ConfigError with the message `why`."""
    token = _refusal.set(why)
    try:
        yield
    finally:
        _refusal.reset(token)


@dataclass(frozen=True, slots=True)
class Storage:
    """Where and how a run is stored."""

    config: CheckpointConfig | None
    """The run's one store; None keeps the record in memory."""
    own: CheckpointConfig | None
    """The configuration given by the definitions, without what the kickoff overrides; None if none of them gives
    one."""
    setting: Setting
    """The checkpoint setting of the root."""


def storage_of(root: Root[Any], request: Request) -> Storage:
    """Decide where the run is stored. Raises ConfigError, before anything is opened or paid."""
    if why := _refusal.get():
        raise ConfigError(why)
    config = own = _given((root.setting, *root.inner))
    check_one_store(root.inner, config)
    if request.from_checkpoint is not None:
        override = at_ref(request.from_checkpoint)
        if override.restore_from is None and request.run_id is None:
            raise ConfigError(
                "from_checkpoint is a CheckpointConfig without restore_from, so it names no checkpoint; wanted a ref, "
                "or CheckpointConfig(restore_from=ref)"
            )
        config = (config or CheckpointConfig()).overridden_by(override)
    if config is None and (request.run_id is not None or request.operation_id is not None or request.resume):
        named = f"operation_id={request.operation_id!r}" if request.run_id is None else f"run_id={request.run_id!r}"
        wish = "resume=True looks for" if request.resume else f"{named} names"
        owner = kinds.CREW if kinds.of(root.kind) is kinds.TRIAL else root.kind  # a trial is stored like its crew
        raise ConfigError(
            f"{wish} a recorded run, but this {owner} has no store to record runs in: give it checkpoint=True"
        )
    listed = config.on_events if config and isinstance(config.on_events, tuple) else ()
    if listed and set(listed) <= root.never_emitted:
        events = ", ".join(listed)
        log.warning(
            "on_events: %s is never emitted in a run of %s %r and creates no checkpoint", events, root.kind, root.name
        )
    asks_approval = root.asks_approval and not request.auto_approve
    unheard = asks_approval or (root.asks_people and not piped())  # a pipe may answer questions, not approve calls
    if unheard and config is None and not request.answers and not terminal():
        instead = "" if root.asks_people else ", or kick off with auto_approve=True"
        raise ConfigError(
            f"{root.kind} {root.name!r} asks people (human_input, requires_approval), and nobody could answer: "
            f"there is no terminal, and the run has no store in which to wait for an answer. Give it checkpoint=True"
            f"{instead}"
        )
    says_something = root.setting is not None or request.from_checkpoint is not None
    return Storage(config, own, False if root.setting is False else config if says_something else None)


def _given(settings: Iterable[Setting]) -> CheckpointConfig | None:
    """Return the first of these settings that says where runs are stored, the outermost definition's first."""
    said = next((setting for setting in settings if setting), None)
    return CheckpointConfig() if said is True else said or None


async def continued(root: Root[Any], request: Request) -> Request:
    """Return the request, with the run to continue if the definition finds one for these inputs.

    If the definition does not search, raises ConfigError for an `operation_id`, and for a `resume` that another option
    contradicts.
    """
    if (find := root.continuing(request)) is None:
        _check_options(request)
        return request
    if (config := storage_of(root, request).config) is None:
        return request
    return await background.in_thread(find, config)


def _check_options(request: Request) -> None:
    """Raise ConfigError for options that need a run to be named, if the inputs name none."""
    if request.operation_id is not None:
        raise ConfigError(
            f"operation_id={request.operation_id!r} names a turn of a state: give the flow @persist, and inputs an "
            f"'id', without from_checkpoint. To make any other kickoff safe to repeat, name its run: run_id="
        )
    if request.resume and request.wait:
        raise ConfigError(
            "resume=True skips a run that a process is running, but wait=True waits for one: pass resume=True "
            "without wait, or name the run to wait for, with run_id="
        )
    if request.resume and (request.run_id is not None or request.from_checkpoint is not None):
        raise ConfigError(
            "resume=True searches for an unfinished run, but run_id=, from_checkpoint= or the fork that this "
            "definition is bound to already names a run. Leave resume=True out, or leave the run's name out "
            "(bound_to(None) unbinds a definition)"
        )


def check_one_store(settings: Iterable[Setting], config: CheckpointConfig | None) -> None:
    """Raise ConfigError if a setting of an inner definition contradicts `config`, which stores the run."""
    if config is None:
        return
    for setting in settings:
        if not isinstance(setting, CheckpointConfig):
            continue
        own = setting.model_fields_set - _OF_EACH
        if differing := [name for name in sorted(own) if _differs(name, setting, config)]:
            says, has = (_written(differing, one) for one in (setting, config))
            another = "another " if says == has else ""  # two objects that look the same
            raise ConfigError(
                f"An inner definition sets {another}{says}, but the run has {has}. A run has one store and is stored "
                f"in one way: set {', '.join(differing)} on the outermost definition only. An inner definition may set "
                f"{', '.join(sorted(_OF_EACH))}."
            )


def _differs(name: str, setting: CheckpointConfig, config: CheckpointConfig) -> bool:
    """Return whether a field differs. Two spellings of one location are the same."""
    one, other = getattr(setting, name), getattr(config, name)
    if one == other or name not in ("location", "provider"):
        return bool(one != other)
    ours, theirs = (provider_for(config.location, given.provider) for given in (setting, config))
    if not declares(theirs, "named_by_location"):
        return True
    return type(ours) is not type(theirs) if name == "provider" else real_path(one) != real_path(other)


def _written(names: Iterable[str], config: CheckpointConfig) -> str:
    """Return fields of a configuration as Python code, for an error. An object is shown as `Class()`."""
    values = ((name, getattr(config, name)) for name in names)
    return ", ".join(
        f"{n}={v!r}" if v is None or isinstance(v, str) else f"{n}={type(v).__name__}()" for n, v in values
    )
