"""Events about checkpoints. They never create a checkpoint themselves."""

from __future__ import annotations

from typing import Literal

from crewlite.events.base import BaseEvent, ErrorFields


class _CheckpointEvent(BaseEvent):
    location: str | None = None
    provider: str


class CheckpointStartedEvent(_CheckpointEvent):
    """A checkpoint is about to be stored."""

    type: Literal["checkpoint_started"] = "checkpoint_started"
    checkpoint_id: str
    trigger: str
    parent_id: str | None = None


class CheckpointCompletedEvent(_CheckpointEvent):
    """A checkpoint is stored. `duration_ms` covers the commit it is part of."""

    type: Literal["checkpoint_completed"] = "checkpoint_completed"
    checkpoint_id: str
    trigger: str
    parent_id: str | None = None
    ref: str
    duration_ms: float


class CheckpointFailedEvent(_CheckpointEvent, ErrorFields):
    """Something could not be saved: a write failed, or a value cannot be recorded."""

    type: Literal["checkpoint_failed"] = "checkpoint_failed"


class CheckpointPrunedEvent(_CheckpointEvent):
    """Old checkpoints of this run and branch were dropped to keep `max_checkpoints`."""

    type: Literal["checkpoint_pruned"] = "checkpoint_pruned"
    removed_count: int
    max_checkpoints: int


class _ForkEvent(_CheckpointEvent):
    parent_branch: str
    parent_checkpoint_id: str | None = None


class CheckpointForkStartedEvent(_ForkEvent):
    """A branch is about to be created."""

    type: Literal["checkpoint_fork_started"] = "checkpoint_fork_started"


class CheckpointForkCompletedEvent(_ForkEvent):
    """A branch was created at a checkpoint."""

    type: Literal["checkpoint_fork_completed"] = "checkpoint_fork_completed"


class CheckpointForkFailedEvent(_ForkEvent, ErrorFields):
    """A branch could not be created."""

    type: Literal["checkpoint_fork_failed"] = "checkpoint_fork_failed"


class CheckpointRewoundEvent(_CheckpointEvent):
    """A branch has gone back to an earlier place. `abandoned` is the number of what came after: `@abandoned:1`."""

    type: Literal["checkpoint_rewound"] = "checkpoint_rewound"
    checkpoint_id: str | None = None
    """The checkpoint that it has gone back to; None for the end of an abandoned tail."""
    reason: str = ""
    abandoned: int


class CheckpointLabelledEvent(_CheckpointEvent):
    """A place of a run was given a label, from outside of the run."""

    type: Literal["checkpoint_labelled"] = "checkpoint_labelled"
    checkpoint_id: str
    label: str


class CheckpointRestoreStartedEvent(_CheckpointEvent):
    """A recorded run is about to be resumed."""

    type: Literal["checkpoint_restore_started"] = "checkpoint_restore_started"


class CheckpointRestoreCompletedEvent(_CheckpointEvent):
    """A recorded run was resumed."""

    type: Literal["checkpoint_restore_completed"] = "checkpoint_restore_completed"
    checkpoint_id: str | None = None
    finished_steps: int
    duration_ms: float


class CheckpointRestoreFailedEvent(_CheckpointEvent, ErrorFields):
    """A recorded run could not be resumed."""

    type: Literal["checkpoint_restore_failed"] = "checkpoint_restore_failed"
