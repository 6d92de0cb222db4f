"""Checkpoint settings: where and when to save, how many to keep, what to do if a save fails or a task has changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from pydantic import Field, ValidationInfo, field_validator

from crewlite.definitions.definition import Described
from crewlite.definitions.takes import Takes, left_out
from crewlite.errors import ConfigError, meant
from crewlite.events.registry import CheckpointEventType, checkpoint_event_types
from crewlite.lazy import lazy
from crewlite.system.paths import why_no_path

if TYPE_CHECKING:
    from crewlite.events import base as events
    from crewlite.events.base import BaseEvent
    from crewlite.state.providers import BaseProvider
else:
    events = lazy("crewlite.events.base")
    BaseEvent = BaseProvider = Any

providers = lazy("crewlite.state.providers")  # a definition needs none before it is kicked off


class CheckpointConfig(Described):
    """Checkpoints of a crew or an agent: `Crew(checkpoint=CheckpointConfig(...))`.

    A definition inside another one can set only `on_events`, `max_checkpoints` and `redact`, because one run has one
    store. The texts in `redact` of any of them are secret in the complete run.
    """

    location: Takes[str | os.PathLike[str], str] = left_out("./.checkpoints")
    """A directory, or a database file (.db, .sqlite). Relative to the working directory at kickoff."""
    on_events: Takes[
        Iterable[CheckpointEventType | Literal["*"] | type[BaseEvent]] | Literal[True], tuple[str, ...] | Literal[True]
    ] = left_out(True)
    """Events that create a checkpoint, by name or class; "*" for every recorded event except signals. True, the
    default, stands for the usual ones of what is kicked off: of a crew `task_completed`, of an agent alone
    `lite_agent_execution_completed`, of a flow those of its methods or steps, and of the tasks in it."""
    provider: Takes[BaseProvider | None, Any] = left_out(None)
    """A BaseProvider; None chooses by the location: SqliteProvider for .db and .sqlite, else JsonProvider."""
    max_checkpoints: int | None = Field(default=None, ge=1)
    """The number of checkpoints to keep per branch; older ones are dropped. None keeps all."""
    restore_from: Takes[str | UUID | os.PathLike[str] | None, str | None] = left_out(None)
    """For `from_checkpoint=`: the ref to resume from (a file, a location, `db#id`, an id, `latest`)."""
    durability: Literal["sync", "async"] = "sync"
    """"sync": each outcome is on disk before the run continues. "async": outcomes are written in order while the run
    continues, and a crash may lose the last ones. A call with effect="once" is on disk before it is made either way."""
    on_save_error: Literal["warn", "raise"] = "warn"
    """If a save fails: "warn" continues the run, with durability="degraded" in its result; "raise" stops it."""
    on_drift: Literal["keep", "rerun", "error"] | None = None
    """If a finished task is asked something else now: keep its answer, run it and its dependents again, or stop. None
    keeps the answers of an unfinished run, and refuses a finished run that is asked something else."""
    on_conflict: Literal["last", "error"] = "last"
    """If parallel steps change the same value of the state: "last" keeps the change that was committed later and emits
    an event; "error" fails the later step with StateConflict, so that its retries can change the value again."""
    redact: Takes[Iterable[str] | None, tuple[str, ...] | None] = left_out(None)
    """Further texts that must not be stored or shown."""

    @field_validator("location", "restore_from", mode="before")
    @classmethod
    def _path(cls, value: object, info: ValidationInfo) -> object:
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        text = str(text) if isinstance(text, UUID) else text
        if isinstance(text, str) and (why := why_no_path(text) or (not text.strip() and "is blank")):
            where = "a location; wanted a directory or a database, such as './.checkpoints'"
            what = "a ref; wanted a run, a checkpoint or 'latest'" if info.field_name == "restore_from" else where
            raise ConfigError(f"{text!r} {why}, so it is not {what}")
        return os.path.expanduser(text) if isinstance(text, str) else text

    @field_validator("redact", mode="before")
    @classmethod
    def _texts(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("on_events", mode="before")
    @classmethod
    def _events(cls, value: object) -> object:
        if value is True:
            return True
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise ConfigError(
                f"on_events is {value!r}; wanted a list of event names or classes, such as ['task_completed']"
            )
        return tuple(_event_name(item) for item in value)

    @field_validator("provider", mode="after")
    @classmethod
    def _is_provider(cls, value: object) -> object:
        if value is not None and not providers.is_provider(value):
            hint = " (an instance: JsonProvider(), not JsonProvider)" if isinstance(value, type) else ""
            raise ConfigError(f"provider is {value!r}; wanted an object with `name` and `open(location)`{hint}")
        return value

    def overridden_by(self, other: CheckpointConfig) -> CheckpointConfig:
        """Return a copy of this configuration with the fields that were set explicitly on `other`."""
        return self.model_copy(update={name: getattr(other, name) for name in other.model_fields_set})


def _event_name(item: object) -> str:
    if isinstance(item, type) and issubclass(item, events.BaseEvent):
        item = item.model_fields["type"].default
    known = checkpoint_event_types()
    if item == "*" or item in known:
        return str(item)
    about = "events about checkpoints never create one" if str(item).startswith("checkpoint_") else ""
    hint = about or meant(str(item).removesuffix("Event"), known) or f"known: {', '.join(known)}"
    raise ConfigError(f"on_events: {item!r} is not an event that can create a checkpoint; {hint}")


def at_ref(ref: CheckpointConfig | str | UUID | os.PathLike[str] | None) -> CheckpointConfig:
    """Return a configuration that names `ref`, or `ref` itself if it is one. Raises ConfigError for a blank ref."""
    if isinstance(ref, str) and not ref.strip():
        raise ConfigError(f"the ref is {ref!r}; wanted a run, a checkpoint or 'latest'")
    return ref if isinstance(ref, CheckpointConfig) else CheckpointConfig(restore_from=ref)


AS_SETTINGS: Mapping[str, str] = {
    name: f"it is a setting: checkpoint=CheckpointConfig({name}=...)" for name in CheckpointConfig.model_fields
}
"""What to write where one of the settings is given as an option of something else."""
