"""Events of crews."""

from __future__ import annotations

from typing import Any, Literal

from crewlite.events.base import BaseEvent, ErrorFields


class _CrewEvent(BaseEvent):
    crew_name: str

    @property
    def crew(self) -> Any:
        """The crew, which emits it."""
        return self.source


class CrewKickoffStartedEvent(_CrewEvent):
    """A crew begins, or is resumed (`resumed`)."""

    type: Literal["crew_kickoff_started"] = "crew_kickoff_started"
    inputs: dict[str, Any]


class CrewKickoffCompletedEvent(_CrewEvent):
    """A crew's result is recorded."""

    type: Literal["crew_kickoff_completed"] = "crew_kickoff_completed"
    output: Any
    """The CrewOutput."""
    total_tokens: int


class CrewKickoffFailedEvent(_CrewEvent, ErrorFields):
    """A crew stopped without a result; its finished steps are recorded."""

    type: Literal["crew_kickoff_failed"] = "crew_kickoff_failed"


class _TestEvent(_CrewEvent):
    n_iterations: int
    eval_llm: str
    """The model that scores the answers."""


class CrewTestStartedEvent(_TestEvent):
    """A test of a crew begins, or goes on (`resumed`)."""

    type: Literal["crew_test_started"] = "crew_test_started"
    inputs: dict[str, Any]


class CrewTestResultEvent(_CrewEvent):
    """The scores of one iteration of a test are recorded."""

    type: Literal["crew_test_result"] = "crew_test_result"
    iteration: int
    """From 1."""
    quality: float
    """The mean of the scores, from 0 to 10."""
    execution_duration: float
    """How many seconds the crew took."""
    model: str
    """The model that scored."""


class CrewTestCompletedEvent(_TestEvent):
    """All scores of a test are recorded."""

    type: Literal["crew_test_completed"] = "crew_test_completed"
    quality: float
    """The mean of all scores."""


class CrewTestFailedEvent(_TestEvent, ErrorFields):
    """A test stopped without a result; what has been answered and scored is recorded."""

    type: Literal["crew_test_failed"] = "crew_test_failed"


class _TrainEvent(_CrewEvent):
    n_iterations: int
    filename: str
    """The file that the suggestions are written to when the training has ended."""


class CrewTrainStartedEvent(_TrainEvent):
    """A training of a crew begins, or goes on (`resumed`)."""

    type: Literal["crew_train_started"] = "crew_train_started"
    inputs: dict[str, Any]


class CrewTrainCompletedEvent(_TrainEvent):
    """All that a training came to is recorded."""

    type: Literal["crew_train_completed"] = "crew_train_completed"


class CrewTrainFailedEvent(_TrainEvent, ErrorFields):
    """A training stopped without a result; what has been answered and said is recorded."""

    type: Literal["crew_train_failed"] = "crew_train_failed"
