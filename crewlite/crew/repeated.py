"""The verbs of a crew that kick it off several times: for many inputs, to score its answers, to learn from feedback."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload
from uuid import UUID

from crewlite.crew.output import CrewOutput
from crewlite.definitions.keywords import known_keywords
from crewlite.definitions.last_kickoff import Kickoff, keep
from crewlite.lazy import lazy
from crewlite.llm.base import BaseLLM
from crewlite.runtime.kickoffs.request import KickoffOptions, kickoff_options
from crewlite.task.output import TaskOutput
from crewlite.texts.tracebacks import shortened
from crewlite.usage import NO_USAGE

if TYPE_CHECKING:
    from crewlite.crew.learned import CrewTrainingResult
    from crewlite.crew.scores import CrewTestResult

many = lazy("crewlite.runtime.kickoffs.many")  # these need the engine
testing = lazy("crewlite.crew.testing")
training = lazy("crewlite.crew.training")

FILE = "trained_agents_data.json"
"""The file that `train` writes unless it is given another."""
_GO_ON = "give the runs a name, run_id='NAME': the same call again goes on with those that are unfinished"
_ALONE = "it is about one run: call kickoff(run_id='NAME.0', {}) for the run of inputs[0], then this again"
_OF_ONE_RUN = {
    "resume": _GO_ON,
    "from_checkpoint": _GO_ON,
    "answers": _ALONE.format("answers={...}"),
    "rerun": _ALONE.format("rerun=[...]"),
}
"""What to write instead of the options of a kickoff that are about one run."""
_OTHERS = "values of your own: inputs=[{them}, ...]"


class EachOptions(TypedDict, total=False):
    """The options of a kickoff for many inputs."""

    run_id: str | UUID | None
    max_concurrency: int | None
    auto_approve: bool | None
    wait: bool


class Repeated:
    """The verbs of a crew that kick it off several times."""

    @overload
    def kickoff_for_each(
        self, inputs: Sequence[Mapping[str, Any]], *, return_exceptions: Literal[True], **options: Unpack[EachOptions]
    ) -> list[CrewOutput | Exception]: ...
    @overload
    def kickoff_for_each(
        self,
        inputs: Sequence[Mapping[str, Any]],
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[EachOptions],
    ) -> list[CrewOutput]: ...
    @known_keywords("kickoff_for_each of a crew", *EachOptions.__annotations__, instead=_OF_ONE_RUN, others=_OTHERS)
    def kickoff_for_each(
        self, inputs: Sequence[Mapping[str, Any]], *, return_exceptions: bool = False, **options: Unpack[EachOptions]
    ) -> Any:
        """Run the crew once for each set of inputs, side by side. Results come in the order of the inputs.

        At most `max_concurrency` runs are at work at once: 32, unless CREWLITE_MAX_CONCURRENCY says otherwise.

        With a `run_id`, the runs are `run_id.0`, `run_id.1`, ..., and each can be resumed alone. If one fails, the
        others still end; then its failure is raised, with a note that names its inputs. With `return_exceptions` the
        failure is returned in place of the result instead. `usage_metrics` of the crew is then the sum of the results.

        Raises ConfigError for a crew that is bound to a run, and what `kickoff` raises.
        """
        with shortened():
            return _noted(self, many.kickoff_for_each(self, inputs, return_exceptions=return_exceptions, **options))

    @overload
    async def akickoff_for_each(
        self, inputs: Sequence[Mapping[str, Any]], *, return_exceptions: Literal[True], **options: Unpack[EachOptions]
    ) -> list[CrewOutput | Exception]: ...
    @overload
    async def akickoff_for_each(
        self,
        inputs: Sequence[Mapping[str, Any]],
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[EachOptions],
    ) -> list[CrewOutput]: ...
    @known_keywords("kickoff_for_each of a crew", *EachOptions.__annotations__, instead=_OF_ONE_RUN, others=_OTHERS)
    async def akickoff_for_each(
        self, inputs: Sequence[Mapping[str, Any]], *, return_exceptions: bool = False, **options: Unpack[EachOptions]
    ) -> Any:
        """Do the same as `kickoff_for_each`, for code on an event loop: await it there."""
        with shortened():
            results = await many.akickoff_for_each(self, inputs, return_exceptions=return_exceptions, **options)
            return _noted(self, results)

    kickoff_for_each_async = akickoff_for_each

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


def _noted(crew: Repeated, results: list[Any]) -> list[Any]:
    """Return the results of kickoffs, and have the crew's `usage_metrics` return their sum."""
    usage = sum((one.token_usage for one in results if isinstance(one, CrewOutput)), NO_USAGE)
    keep({crew: Kickoff(lambda: usage)})
    return results
