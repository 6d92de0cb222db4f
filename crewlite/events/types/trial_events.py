"""Events of the tests and trainings of crews, and of the scores that answers get."""

from __future__ import annotations

from typing import Any, Literal

from crewlite.events.base import ErrorFields
from crewlite.events.types.agent_events import AgentInTaskFields
from crewlite.events.types.crew_events import CrewFields


class _TestEvent(CrewFields):
    n_iterations: int
    eval_llm: str
    """The model that scores the answers."""


class CrewTestStartedEvent(_TestEvent):
    """A test of a crew begins, or goes on (`resumed`)."""

    type: Literal["crew_test_started"] = "crew_test_started"
    inputs: dict[str, Any]


class CrewTestResultEvent(CrewFields):
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


class _TrainEvent(CrewFields):
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


class _EvaluationEvent(AgentInTaskFields):
    iteration: int
    """Of the test, from 1."""


class AgentEvaluationStartedEvent(_EvaluationEvent):
    """An answer of an agent is to be scored."""

    type: Literal["agent_evaluation_started"] = "agent_evaluation_started"


class AgentEvaluationCompletedEvent(_EvaluationEvent):
    """The score of an answer is recorded."""

    type: Literal["agent_evaluation_completed"] = "agent_evaluation_completed"
    score: float
    """From 0 to 10."""
    reason: str


class AgentEvaluationFailedEvent(_EvaluationEvent, ErrorFields):
    """The model gave no score."""

    type: Literal["agent_evaluation_failed"] = "agent_evaluation_failed"
