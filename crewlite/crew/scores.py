"""The result of a test of a crew: a score for each task in each iteration."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from crewlite.encoding import codec
from crewlite.texts.wording import table
from crewlite.usage import Usage


@codec.register
class TaskScore(BaseModel):
    """The score of one answer."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    task: str
    """The name of the task, else how its description begins."""
    agent: str
    """The role of who did it."""
    iteration: int
    """From 1."""
    quality: float
    """From 0 to 10."""
    reason: str


@codec.register
class CrewTestResult(BaseModel):
    """The scores of a test; `str()` gives them as a table."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    crew_name: str
    model: str
    """The model that judged."""
    scores: tuple[TaskScore, ...]
    """Iteration by iteration, in the order of the tasks; skipped tasks have none."""
    seconds: tuple[float, ...]
    """How long the crew took in each iteration."""
    token_usage: Usage
    """Of the crew and of the model that judged."""

    @property
    def quality(self) -> float:
        """The mean of all scores."""
        return fmean(score.quality for score in self.scores)

    def __getitem__(self, task: str) -> tuple[float, ...]:
        """Return the scores of a task, in the order of the iterations."""
        found = tuple(score.quality for score in self.scores if score.task == task)
        if not found:
            known = ", ".join(dict.fromkeys(score.task for score in self.scores))
            raise KeyError(f"no task {task!r} was scored; scored were {known}")
        return found

    def __str__(self) -> str:
        runs = range(1, len(self.seconds) + 1)
        rows = [["task", *(f"run {run}" for run in runs), "mean", "agent"]]
        for task, agent in dict.fromkeys((score.task, score.agent) for score in self.scores):
            own = [score for score in self.scores if (score.task, score.agent) == (task, agent)]
            each = [[score.quality for score in own if score.iteration == run] for run in runs]
            rows.append([task, *map(_mean, each), _mean(score.quality for score in own), agent])
        each = [[score.quality for score in self.scores if score.iteration == run] for run in runs]
        rows.append(["crew", *map(_mean, each), _mean([self.quality]), ""])
        rows.append(["seconds", *(f"{took:.1f}" for took in self.seconds), f"{fmean(self.seconds):.1f}", ""])
        return table(rows)


def _mean(values: Iterable[float]) -> str:
    given = list(values)
    return f"{fmean(given):.1f}" if given else "-"
