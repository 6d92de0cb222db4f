"""`crewlite run`, `test` and `train`: kick off a definition of the user's, once or in trials of a crew."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from crewlite import Crew
from crewlite.cli.checkpoint.where import Asked, Command
from crewlite.cli.definitions import checked_inputs, find_with_inputs, of_the_project, saving
from crewlite.cli.options import RunOptions, pairs, run_options
from crewlite.cli.runner import Runner
from crewlite.cli.shell import Again
from crewlite.crew import learned, repeated
from crewlite.errors import ConfigError, NoModel
from crewlite.lazy import lazy
from crewlite.texts.wording import number_of

if TYPE_CHECKING:
    from crewlite.crew.trial import Trial

testing = lazy("crewlite.crew.testing")  # they need the engine
training = lazy("crewlite.crew.training")
_target = click.argument("target", metavar="[MODULE:ATTRIBUTE]", required=False)
_input_option = click.option(
    "--input", "inputs", multiple=True, metavar="NAME=TEXT", help="An input; NAME:=JSON for other than text."
)
_inputs_file = click.option(
    "--inputs-file", type=click.File(encoding="utf-8"), metavar="F.json", help="Inputs; - for stdin."
)
_run_id = click.option("--run-id", metavar="ID", help="Name of the run; the same name goes on with it.")


@click.command()
@_target
@_input_option
@_inputs_file
@click.option("--message", metavar="TEXT", help="What to ask, of an agent.")
@_run_id
@click.option(
    "--operation-id",
    metavar="ID",
    help="Name of this turn of a flow with @persist; the same name again is the same turn.",
)
@click.option("--resume", is_flag=True, help="Go on with its newest unfinished run with these inputs, if there is one.")
@run_options(location="Where to keep it. [default: what it says itself, or ./.checkpoints]")
def run(
    asked: Asked,
    chosen: RunOptions,
    target: str | None,
    inputs: Sequence[str],
    inputs_file: IO[str] | None,
    message: str | None,
    run_id: str | None,
    operation_id: str | None,
    resume: bool,
) -> None:
    """Kick off a crew, an agent or a flow, and print its answer.

    MODULE:ATTRIBUTE, or path/to/file.py:ATTRIBUTE, is a Crew, an Agent, a function that makes one, or a flow: a
    function with @flow, whose inputs are its parameters, or a class, whose inputs set fields of its state. It may also
    be the file of a crew in JSON, such as crew.jsonc, whose inputs hold where none are given. Without it, what `crew`
    in [tool.crewlite] of pyproject.toml names. Only the answer goes to stdout; what happens meanwhile is
    shown on stderr. Each step is saved, so a run that was interrupted, or waits for people, can go on: how is said when
    it ends.
    """
    if operation_id is not None and run_id is not None:
        raise click.UsageError("--operation-id and --run-id both say which turn is meant: pass only one of the two")
    given = _inputs(inputs_file, inputs)
    if resume and "id" not in given:  # the id of a state says which run is meant, if the flow has @persist
        if run_id is not None:
            raise click.UsageError(
                "--resume searches for an unfinished run, but --run-id names one: pass only one of the two"
            )
        if chosen.wait:
            raise click.UsageError(
                "--resume skips a run that another process is running, so there is nothing to --wait for: name the run "
                "with --run-id"
            )
    runner = Runner(chosen)
    with runner.set_up():
        target, to_name = _target_or_project(target)
        definition, usual = find_with_inputs(target)
        given = checked_inputs(definition, usual | given, message, chosen.model, complete=run_id is None)
        definition = saving(definition, asked.location)
        runner.again = Again(asked.location, to_name, chosen.model)
        runner.kickoff(
            definition,
            inputs=given or None,
            message=message,
            run_id=run_id,
            operation_id=operation_id,
            resume=resume,
            target=target,
        )


def _trial(iterations: int) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the target and the options that both trials have."""
    how_often = click.option(
        "-n",
        "--iterations",
        type=click.IntRange(min=1),
        default=iterations,
        show_default=True,
        help="How often it is kicked off.",
    )
    kept = run_options(location="Where to keep it. [default: what the crew says itself, or ./.checkpoints]")
    return lambda function: _target(how_often(_input_option(_inputs_file(_run_id(kept(function))))))


@click.command()
@click.option("--eval-llm", metavar="M", help="The model that scores. [default: CREWLITE_MODEL]")
@_trial(3)
def test(eval_llm: str | None, iterations: int, **how: Any) -> None:
    """Kick off a crew several times, and have a model score each answer.

    The table of scores goes to stdout. MODULE:ATTRIBUTE is a Crew, as for `crewlite run`.
    """

    def trial(crew: Crew) -> Any:
        try:
            return testing.trial_of(crew, iterations, eval_llm)
        except NoModel:
            raise click.UsageError(
                "no model scores the answers: --eval-llm M, or the environment's CREWLITE_MODEL"
            ) from None

    words = ["test", "--iterations", str(iterations), *(["--eval-llm", eval_llm] if eval_llm else [])]
    _carried_out(words, trial, {"n_iterations": iterations}, **how)


@click.command()
@click.option("-f", "--filename", metavar="F.json", default=repeated.FILE, show_default=True, help="Where to write it.")
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
    if said and len(said) != iterations:
        found = f"{number_of(len(said), 'time')} for {number_of(iterations, 'iteration')}"
        raise click.UsageError(f"--feedback is given {found}; wanted one for each, or none: then you are asked")
    words = ["train", "--iterations", str(iterations), "--filename", filename]
    words += [word for text in feedback for word in ("--feedback", text)]
    _carried_out(
        words,
        lambda crew: training.trial_of(crew, iterations, filename, said),
        {"n_iterations": iterations, "feedback": said},
        after=lambda result: learned.write(filename, result.agents),
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
    of_crew = _inputs(inputs_file, inputs)
    runner = Runner(dataclasses.replace(chosen, model=None))  # it is the crew's, and no model of the trial
    with runner.set_up():
        named, _ = _target_or_project(target)
        crew, usual = find_with_inputs(named)
        of_crew = usual | of_crew
        if not isinstance(crew, Crew):
            raise click.UsageError(
                f"{named} is of kind {crew.run_kind}; wanted a Crew: only crews can be tested and trained"
            )
        checked_inputs(crew, of_crew, model=chosen.model)
        if chosen.model:
            crew = crew.with_model(chosen.model)
        saved = saving(crew, asked.location)
        assert isinstance(saved, Crew)
        try:
            trial = make(saved)
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        again = [*words[:1], *([target] if target else []), *words[1:]]
        from_stdin = inputs_file is not None and inputs_file.name == "<stdin>"  # what it said, it says only once
        each = [f"{name}:={json.dumps(value)}" for name, value in of_crew.items()] if from_stdin else inputs
        again += [word for one in each for word in ("--input", one)]
        again += ["--inputs-file", inputs_file.name] if inputs_file and not from_stdin else []
        again += ["--model", chosen.model] if chosen.model else []
        again += ["--location", asked.location] if asked.location else []
        after(runner.kickoff(trial, inputs={**given, "inputs": of_crew or None}, run_id=run_id, again=again))


def _target_or_project(target: str | None) -> tuple[str, str | None]:
    """Return the target, else that of the project; and the target that later commands must name, None for none.

    Raises UsageError if there is none.
    """
    project = of_the_project()
    if found := target or project:
        return found, None if found == project else found
    raise click.UsageError(
        "nothing says what to run: wanted MODULE:ATTRIBUTE, or crew in [tool.crewlite] of pyproject.toml"
    )


def _inputs(file: IO[str] | None, words: Sequence[str]) -> dict[str, Any]:
    """Return the inputs in a file, if there is one, and those of the command line. Raises UsageError."""
    given = pairs(words, "--input")
    if file is None:
        return given
    try:
        read = json.load(file)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--inputs-file: {file.name} is no JSON ({error})") from error
    if not isinstance(read, dict):
        raise click.UsageError(
            f'--inputs-file: {file.name} holds {type(read).__name__}; wanted a JSON object, such as {{"topic": "tea"}}'
        )
    return {**read, **given}
