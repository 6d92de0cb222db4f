"""What a user asks of checkpoints: where, when, how many, and what to do when a save fails or a question changed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from pydantic import Field, field_validator

from crewlite import coming_from
from crewlite.definition import Described
from crewlite.errors import ConfigError, meant
from crewlite.events.base import BaseEvent
from crewlite.events.registry import CheckpointEventType, checkpoint_event_types
from crewlite.lazy import lazy

if TYPE_CHECKING:
    from crewlite.state.providers import BaseProvider

providers = lazy("crewlite.state.providers")  # a definition needs none before it is kicked off


class CheckpointConfig(Described):
    """Checkpoints of a crew or an agent: `Crew(checkpoint=CheckpointConfig(...))`.

    Inside another definition only `on_events`, `max_checkpoints` and `redact` have a say: one run is kept in one store,
    in one way. Whatever any of them says in `redact` is secret in the whole run.
    """

    location: str = "./.checkpoints"
    """A directory, or a database file (.db, .sqlite). Relative to the working directory at kickoff."""
    on_events: tuple[str, ...] | Literal[True] = ("task_completed",)
    """Events that name a checkpoint: names, event classes; True for the root's natural one; "*" for all but signals
    and the chunks of streams."""
    provider: Any = None
    """A BaseProvider; None goes by the location: SqliteProvider for .db and .sqlite, else JsonProvider."""
    max_checkpoints: int | None = Field(default=None, ge=1)
    """Keep this many per run and branch, dropping the oldest. None keeps all."""
    restore_from: str | None = None
    """For `from_checkpoint=`: a ref to go on from (a file, a location, `db#id`, an id, `latest`)."""
    durability: Literal["sync", "async"] = "sync"
    """"sync": each outcome is on disk, synced, before the run goes on. "async": it follows, in order, while the run
    goes on; a crash may cost the last of it. Calls declared effect="once" are on disk first either way."""
    on_save_error: Literal["warn", "raise"] = "warn"
    """When a save fails: go on and say so in the result (durability="degraded"), or stop the run."""
    on_drift: Literal["keep", "rerun", "error"] | None = None
    """When a finished task's question changed: keep its answer, run it and its dependents again, or stop. None
    keeps the answers of a run that goes on, and refuses a finished run that is asked something else."""
    redact: tuple[str, ...] | None = None
    """Further texts that must never be stored or said."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            location: str | os.PathLike[str] = "./.checkpoints",
            on_events: Iterable[CheckpointEventType | Literal["*"] | type[BaseEvent]] | Literal[True] = (
                "task_completed",
            ),
            provider: BaseProvider | None = None,
            max_checkpoints: int | None = None,
            restore_from: str | UUID | os.PathLike[str] | None = None,
            durability: Literal["sync", "async"] = "sync",
            on_save_error: Literal["warn", "raise"] = "warn",
            on_drift: Literal["keep", "rerun", "error"] | None = None,
            redact: Iterable[str] | None = None,
        ) -> None: ...

    @field_validator("location", "restore_from", mode="before")
    @classmethod
    def _path(cls, value: object) -> object:
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        text = str(text) if isinstance(text, UUID) else text
        if isinstance(text, str) and (not text.strip() or "\0" in text):
            raise ConfigError(f"{text!r} is no location; wanted a directory or a database, such as './.checkpoints'")
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
        """This configuration with the fields that were set on `other`."""
        return self.model_copy(update={name: getattr(other, name) for name in other.model_fields_set})


def _event_name(item: object) -> str:
    if isinstance(item, type) and issubclass(item, BaseEvent):
        item = item.model_fields["type"].default
    known = checkpoint_event_types()
    if item == "*" or item in known:
        return str(item)
    about = "events about checkpoints never name one" if str(item).startswith("checkpoint_") else ""
    here = f"here it is {ours!r}" if (ours := coming_from.event(str(item))) else ""
    hint = about or here or meant(str(item).removesuffix("Event"), known) or f"known: {', '.join(known)}"
    raise ConfigError(f"on_events: {item!r} is no event that can name a checkpoint; {hint}")


def defaults() -> CheckpointConfig:
    """What `checkpoint=True` stands for."""
    return CheckpointConfig(on_events=True)
