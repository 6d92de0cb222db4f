"""`crewlite test` and `crewlite train`: the trials of a crew, from the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from crewlite import Crew
from crewlite.cli.checkpoint.where import Asked
from crewlite.cli.definitions import find
from crewlite.cli.kinds import check_takes, saving
from crewlite.cli.options import RunOptions, pairs, run_options
from crewlite.cli.run import from_file, target_or_project
from crewlite.cli.runner import Runner
from crewlite.crew.learned import FILE
from crewlite.errors import ConfigError
from crewlite.lazy import lazy

if TYPE_CHECKING:
    from crewlite.crew.trial import Trial

testing = lazy("crewlite.crew.testing")  # they need the engine
training = lazy("crewlite.crew.training")
F = TypeVar("F", bound=Callable[..., Any])


def _trial(iterations: int) -> Callable[[F], F]:
    """Return a decorator that gives a command the target and the options that both trials have."""

    def decorate(function: F) -> F:
        for option in (
            run_options(location="Where to keep it. [default: what the crew says itself, or ./.checkpoints]"),
            click.option("--run-id", metavar="ID", help="Name of the run; the same name goes on with it."),
            click.option(
                "--inputs-file", type=click.File(encoding="utf-8"), metavar="F.json", help="Inputs; - for stdin."
            ),
            click.option(
                "--input",
                "inputs",
                multiple=True,
                metavar="NAME=TEXT",
                help="An input; NAME:=JSON for other than text.",
            ),
            click.option(
                "-n",
                "--iterations",
                type=click.IntRange(min=1),
                default=iterations,
                show_default=True,
                help="How often it is kicked off.",
            ),
            click.argument("target", metavar="[MODULE:ATTRIBUTE]", required=False),
        ):
            function = option(function)
        return function

    return decorate


@click.command()
@click.option("--eval-llm", metavar="M", help="The model that scores. [default: CREWLITE_MODEL]")
@_trial(3)
def test(eval_llm: str | None, iterations: int, **how: Any) -> None:
    """Kick off a crew several times, and have a model score each answer.

    The table of scores goes to stdout. MODULE:ATTRIBUTE is a Crew, as for `crewlite run`.
    """
    words = ["test", "--iterations", str(iterations), *(["--eval-llm", eval_llm] if eval_llm else [])]
    _carried_out(words, lambda crew: testing.trial_of(crew, iterations, eval_llm), {"n_iterations": iterations}, **how)


@click.command()
@click.option("-f", "--filename", metavar="F.json", default=FILE, show_default=True, help="Where to write it.")
@click.option(
    "--feedback", multiple=True, metavar="TEXT", help="On each iteration in turn. [default: a person is asked]"
)
@_trial(5)
def train(filename: str, feedback: Sequence[str], iterations: int, **how: Any) -> None:
    """Kick off a crew several times, and write down what its agents learn from feedback on their answers.

    What they learn goes to stdout, and to the file that `Crew(trained_agents_file=...)` uses. MODULE:ATTRIBUTE is a
    Crew, as for `crewlite run`.
    """
    said = list(feedback) or None
    words = ["train", "--iterations", str(iterations), "--filename", filename]
    words += [word for text in feedback for word in ("--feedback", text)]
    _carried_out(
        words,
        lambda crew: training.trial_of(crew, iterations, filename, said),
        {"n_iterations": iterations, "feedback": said},
        after=lambda result: training.written(filename, result),
        **how,
    )


def _carried_out(
    words: Sequence[str],
    make: Callable[[Crew], Trial],
    given: Mapping[str, Any],
    *,
    asked: Asked,
    chosen: RunOptions,
    target: str | None,
    inputs: Sequence[str],
    inputs_file: IO[str] | None,
    run_id: str | None,
    after: Callable[[Any], object] = lambda result: None,
) -> None:
    """Carry out a trial, which `make` makes of the crew. `words` begin the command that goes on with it."""
    of_crew = {**from_file(inputs_file), **pairs(inputs, "--input")}
    runner = Runner(dataclasses.replace(chosen, model=None))  # it is the crew's, and no model of the trial
    with runner.set_up():
        named, _ = target_or_project(target)
        crew = find(named)
        if not isinstance(crew, Crew):
            raise click.UsageError(
                f"{named} is of kind {crew.run_kind}; wanted a Crew: only crews can be tested and trained"
            )
        check_takes(crew, of_crew, None, chosen.model)
        if chosen.model:
            crew = crew.with_model(chosen.model)
        saved = saving(crew, asked.location)
        assert isinstance(saved, Crew)
        try:
            trial = make(saved)
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        again = [*words[:1], *([target] if target else []), *words[1:]]
        again += [word for name in inputs for word in ("--input", name)]
        again += ["--inputs-file", inputs_file.name] if inputs_file else []
        again += ["--model", chosen.model] if chosen.model else []
        again += ["--location", asked.location] if asked.location else []
        after(runner.kickoff(trial, inputs={**given, "inputs": of_crew or None}, run_id=run_id, again=again))
