"""The verbs of a crew that run it several times: to score its answers, and to learn from feedback on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Unpack

from crewlite.crew.learned import FILE, CrewTrainingResult
from crewlite.crew.scores import CrewTestResult
from crewlite.lazy import lazy
from crewlite.llm.base import BaseLLM
from crewlite.runtime.kickoffs.request import KickoffOptions, kickoff_options
from crewlite.task.output import TaskOutput
from crewlite.tracebacks import shortened

testing = lazy("crewlite.crew.testing")  # they need the engine
training = lazy("crewlite.crew.training")


class Trials:
    """The verbs of a crew that make a trial of it."""

    @kickoff_options("test of a crew")
    def test(
        self,
        n_iterations: int,
        eval_llm: BaseLLM | str | None = None,
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[KickoffOptions],
    ) -> CrewTestResult:
        """Run the crew several times and have a model score each task's answer from 0 to 10.

        All of it is one run: with a `run_id`, a test that was interrupted continues where it was.

        Args:
            n_iterations: How often the crew is kicked off.
            eval_llm: The model that scores; None takes CREWLITE_MODEL.
            inputs: The inputs of each kickoff.
            options: `run_id`, `resume` and the other options of `kickoff`.

        Returns:
            The scores; print it for a table.

        Raises:
            What `kickoff` raises; OutputInvalid: the model gives no score.
        """
        with shortened():
            trial = testing.trial_of(self, n_iterations, eval_llm)
            scored: CrewTestResult = trial.kickoff(n_iterations, inputs, **options)
        return scored

    @kickoff_options("train of a crew")
    def train(
        self,
        n_iterations: int,
        filename: str | PathLike[str] = FILE,
        inputs: Mapping[str, Any] | None = None,
        *,
        feedback: Callable[[TaskOutput], Any] | Sequence[str | Mapping[str, str]] | None = None,
        **options: Unpack[KickoffOptions],
    ) -> CrewTrainingResult:
        """Run the crew several times, collect feedback on its answers, and write what its agents learn from it.

        The agents get the feedback on earlier iterations. In the end a model makes suggestions for each agent, which
        are written to `filename` as JSON, all of them or nothing: `Crew(trained_agents_file=filename)` uses them. All
        of it is one run: with a `run_id`, a training that was interrupted continues where it was.

        Args:
            n_iterations: How often the crew is kicked off.
            filename: The file. What it has about other agents stays there.
            inputs: The inputs of each kickoff.
            feedback: A function that is given each TaskOutput and returns what should be better, or None; it may be
                async. Or a list with an item for each iteration: one text for all tasks, or a mapping of task name
                to text. None asks a person.
            options: `run_id`, `answers` and the other options of `kickoff`.

        Raises:
            ConfigError: `filename` is a file of something else than trained agents; and what `kickoff` raises.
        """
        with shortened():
            name = fspath(filename)
            taught: CrewTrainingResult = training.train(self, n_iterations, name, inputs, feedback, options)
        return taught
