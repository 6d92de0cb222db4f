"""`crewlite checkpoint resume`, `fork` and `preview`: continue recorded runs, or say what that would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from crewlite import CheckpointConfig, kinds
from crewlite.cli.checkpoint.hints import Hints, trial_on
from crewlite.cli.checkpoint.where import Asked, Opened, options, ref_argument
from crewlite.cli.definitions import KINDS, Definition, checked_inputs, find, of_the_project
from crewlite.cli.exits import Failed
from crewlite.cli.options import (
    RunOptions,
    allow_effects_option,
    crew_option,
    model_option,
    pairs,
    run_options,
    unless_refused,
)
from crewlite.cli.runner import Runner
from crewlite.cli.shell import Again
from crewlite.llm.models import named
from crewlite.refs import to_rerun
from crewlite.runtime.kickoffs.fork import forked_in_memory
from crewlite.runtime.kickoffs.resumption import not_made
from crewlite.state.format.entry import STATE
from crewlite.system.forked import cached_property

if TYPE_CHECKING:
    from crewlite.state.run_history import RunHistory

_input_option = click.option(
    "--input", "inputs", multiple=True, metavar="NAME=TEXT", help="An input to change; NAME:=JSON likewise."
)
_edit_option = click.option(
    "--edit",
    "edits",
    multiple=True,
    metavar="ADDRESS=TEXT",
    help="What a finished step is to have come to, read as what it came to before. ADDRESS.state.NAME=TEXT: a field of "
    "the state, as the step left it. ADDRESS:=JSON for JSON in any case, =@FILE for what a file holds.",
)


class Recorded:
    """A run to go on with, and the place in it that the command names."""

    def __init__(self, runner: Runner, opened: Opened, target: str | None) -> None:
        self._runner, self._opened, self._target = runner, opened, target
        self.run = opened.run()
        self.hints = Hints(opened, self.run)
        runner.again = Again(opened.location, target, runner.options.model)

    @property
    def title(self) -> str:
        """The name of the run with its kind and definition."""
        return f"{self.run.ref} ({self.run.definition['kind']} {self.run.definition['name']})"

    @cached_property
    def at(self) -> str:
        """The ref to continue from: the named checkpoint, or the head of the branch.

        A relative ref, such as `latest`, becomes a fixed one, so that a newer checkpoint does not change its meaning.
        """
        run, ref = self.run, self._opened.ref
        head = f"{run.run_id}/{run.branch}"
        if ref in (None, "latest", run.run_id, run.branch, head):
            return head
        newest = str(ref).startswith(("latest", "@"))
        return self._opened.history.locate(ref)[1] if newest else str(ref)

    @property
    def source(self) -> CheckpointConfig:
        """The setting that restores the run from that place."""
        return CheckpointConfig(location=self._opened.location, provider=None, restore_from=self.at)

    def definition(self, instead: str) -> Definition:
        """Return the run's definition: the one of --crew, else of pyproject.toml, else rebuilt from the record.

        The one of pyproject.toml is used only if its kind and name fit. Raises Failed if that of --crew is of another
        kind, if the run is of a flow that neither names, and for a state, which cannot be kicked off: `instead` is what
        to use in Python.
        """
        runner, recorded = self._runner, (self.run.definition["kind"], self.run.definition["name"])
        if recorded[0] == STATE:
            raise Failed(f"{self.title} is a saved state, which cannot be kicked off. Use it in Python: {instead}")
        if kinds.of(recorded[0]) is kinds.TRIAL:
            raise Failed(f"{self.title} can only be resumed by the call that began it: {trial_on(self.run)}")
        if self._target is not None:
            definition = find(self._target)
            if definition.run_kind is not kinds.of(recorded[0]):
                found = f"{definition.run_kind} {definition.run_name} ({self._target})"
                raise Failed(f"{self.title} is no run of {found}")
            return definition
        other = ""
        if project := of_the_project():
            definition = find(project)
            if (definition.run_kind.name, definition.run_name) == recorded:
                return definition
            other = f"pyproject.toml names {definition.run_kind} {definition.run_name} ({project}), and this run is of "
            other += " ".join(recorded)
        if kinds.of(recorded[0]) is kinds.FLOW:
            raise Failed(
                f"{self.title} is a run of a flow, and no record holds its function or class. Name its place: --crew "
                f"MODULE:{recorded[1]}, or crew in [tool.crewlite] of pyproject.toml.{f' {other}.' if other else ''}"
            )
        if other:
            runner.say(f"{other}, so the definition is rebuilt from the record.")
        model = runner.options.model
        return KINDS[recorded[0]].from_checkpoint(self.source, bind={"llm": named(model)} if model else None)

    def forked(self, definition: Definition | None, *, allow_effects: bool, **changes: Any) -> RunHistory:
        """Create a branch. The current definition, if it is at hand, may take inputs that the recorded one did not."""

        def fork(allowed: bool) -> RunHistory:
            if definition is None:
                return self._opened.history.fork(self.at, **changes, allow_effects=allowed)
            there = definition.fork(self.source, **changes, allow_effects=allowed).bound_at
            assert isinstance(there, CheckpointConfig)
            return self._opened.history.run(str(there.restore_from))

        return unless_refused(fork, allow_effects=allow_effects)

    def preview(self, definition: Definition, changes: tuple[Any, Any, Any] | None) -> None:
        """Print what the kickoff of a fork with these edits, reruns and inputs would do; for None, what a resume would.

        Raises what the kickoff would raise; it names the run, as the fork is not kept.
        """
        if definition.run_kind.takes_messages:
            raise click.UsageError("a preview is for crews and flows: a fork of an agent always asks its new message")
        model = self._runner.options.model
        whole = definition.with_model(model) if model else definition
        if changes is None:
            found = whole.preview(from_checkpoint=self.source)
        else:
            found = forked_in_memory(whole, self.source, *changes).preview()
        self._runner.output.put("preview", str(found), **asdict(found))

    def rerun_apart(self, rerun: Sequence[str]) -> tuple[list[str], list[str]]:
        """Split `rerun` into finished steps, which a fork invalidates, and calls in doubt, which its kickoff repeats.

        Raises RefError for another attempt at a call than the one that is in doubt.
        """
        cut = {step.address for step in self.run.steps if step.status != "finished"} if rerun else set()
        doubts = {named: at for named in rerun for at in to_rerun(named).items() if at[0] in cut}
        for address, attempt in doubts.values():
            if attempt != (times := self.run.unsettled.get(address, 1)):
                raise not_made(address, attempt, times)
        return [named for named in rerun if named not in doubts], list(doubts)


@click.command()
@ref_argument("ref", "[REF]")
@crew_option
@run_options()
def resume(asked: Asked, chosen: RunOptions, ref: str | None, target: str | None) -> None:
    """Go on with a run where it stopped, and print its answer.

    REF is a run, run/branch or a checkpoint; without it, the newest run. Nothing that is recorded is paid again. Of a
    finished run, the stored answer is printed. The run keeps its inputs: to change them, fork it.
    """
    runner = Runner(chosen)
    with runner.set_up():
        with asked.open(ref) as opened:
            recorded = Recorded(runner, opened, target)
            if recorded.run.status == "finished" and target is None and _answer(runner, recorded):
                return
            definition = recorded.definition(recorded.hints.on())
        checked_inputs(definition, {}, model=chosen.model)
        runner.say(f"Going on with {recorded.title}.")
        runner.kickoff(definition, source=recorded.source)


@click.command()
@ref_argument("ref", "[REF]")
@click.option("--branch", metavar="NAME", help="Name of the new branch; one is made up if it is left out.")
@_input_option
@click.option("--message", metavar="TEXT", help="What to ask next, of an agent.")
@_edit_option
@click.option("--no-run", is_flag=True, help="Only make the branch, and print its name.")
@click.option("--preview", is_flag=True, help="Only say what would run again, and why; no branch is made.")
@allow_effects_option
@crew_option
@run_options(rerun="A finished step to run again, with all that is made from it; or a call in doubt to make again.")
def fork(
    asked: Asked,
    chosen: RunOptions,
    ref: str | None,
    branch: str | None,
    inputs: Sequence[str],
    message: str | None,
    edits: Sequence[str],
    no_run: bool,
    preview: bool,
    allow_effects: bool,
    target: str | None,
) -> None:
    """Begin a branch at a checkpoint, run it, and print its answer.

    REF is a checkpoint, or a run or run/branch, which is forked at its head; without it, the newest run. What was
    recorded before is shared and not paid again, except what --input, --edit or --rerun changes and what is made from
    that. The run itself stays as it is.
    """
    given, edited = pairs(inputs, "--input"), pairs(edits, "--edit", of="ADDRESS=TEXT", files=True, typed=True)
    only = "--preview" if preview else "--no-run" if no_run else None
    if preview and no_run:
        raise click.UsageError("--preview makes no branch, and --no-run makes one: pass only one of the two")
    if only and (message or chosen.answers or (no_run and chosen.model)):
        raise click.UsageError(f"{only} runs nothing, so it takes no message, model or answer: leave these out")
    runner = Runner(chosen)
    with runner.set_up():
        with asked.open(ref) as opened:
            recorded = Recorded(runner, opened, target)
            run, at = recorded.run, recorded.at
            again, doubts = recorded.rerun_apart(chosen.rerun)
            if only and doubts:
                raise click.UsageError(
                    f"{only}: {doubts[0]} has not finished, so only a fork that runs can rerun it: leave out {only}"
                )
            instead = f"History({opened.location!r}).fork({at!r}); here: --no-run"
            how: dict[str, Any] = {"branch": branch, "edits": edited, "rerun": again, "allow_effects": allow_effects}
            if no_run:
                kind = run.definition["kind"]
                # A crew takes any text. A state takes no inputs, which the fork itself says.
                if given and kind != STATE and kinds.of(kind) is not kinds.CREW:
                    given = checked_inputs(recorded.definition(instead), given)
                own = find(target) if target else None
                made = recorded.forked(own, inputs=given, **how)
                verb, hints = "open" if made.definition["kind"] == STATE else "run", Hints(opened, made)
                runner.say(f"Made {hints.ref}. To {verb} it: {hints.on(runner.again if target else None)}")
                name = f"{made.run_id}/{made.branch}"
                return runner.output.put("branch", name, run_id=made.run_id, branch=made.branch)
            definition = recorded.definition(instead)  # first: a run that cannot be kicked off is not forked
            given = checked_inputs(definition, given, message, chosen.model)
            if preview:
                return recorded.preview(definition, (edited, again, given))
            made = recorded.forked(definition, inputs=given, **how)
        runner.say(f"Forked {recorded.title}: {made.run_id}/{made.branch}.")
        runner.options = replace(chosen, rerun=doubts)
        there = recorded.source.model_copy(update={"restore_from": f"{made.run_id}/{made.branch}"})
        runner.kickoff(definition.bound_to(None), message=message, source=there)
    return None


@click.command()
@ref_argument("ref", "[REF]")
@_input_option
@_edit_option
@click.option("--rerun", multiple=True, metavar="ADDRESS", help="A finished step to run again.")
@model_option
@crew_option
@options()
def preview(
    asked: Asked,
    ref: str | None,
    inputs: Sequence[str],
    edits: Sequence[str],
    rerun: Sequence[str],
    model: str | None,
    target: str | None,
) -> None:
    """Say what a resume or a fork would do: which steps answer from the record, which run, and why.

    REF is a run or run/branch, for what a resume would do; a checkpoint, or a run with --input, --edit or --rerun, for
    what a fork there would do. No model is asked, no step runs and nothing is written.
    """
    given, edited = pairs(inputs, "--input"), pairs(edits, "--edit", of="ADDRESS=TEXT", files=True, typed=True)
    runner = Runner(RunOptions(asked.as_json, model))
    with runner.set_up():
        with asked.open(ref) as opened:
            recorded = Recorded(runner, opened, target)
            run = recorded.run
            definition = recorded.definition(f"History({opened.location!r})")
            changes = (edited, rerun, checked_inputs(definition, given, model=model))
            forks = any(changes) or recorded.at not in (run.run_id, f"{run.run_id}/{run.branch}")
            recorded.preview(definition, changes if forks else None)
        if not forks and run.unsettled:
            runner.say(runner.again.to_settle(recorded.hints.ref, run.unsettled))


def _answer(runner: Runner, recorded: Recorded) -> bool:
    """Print the stored answer of a finished run. Returns False if it has none to print."""
    run, kind = recorded.run, kinds.of(recorded.run.definition["kind"])
    if run.result is None and kind is not kinds.FLOW:
        return False
    runner.say(
        f"{recorded.title} has finished before; this is its stored answer. To run it with a changed definition: --crew."
    )
    runner.output.result(run.result, kind, run_id=run.run_id, usage=run.usage.model_dump(), durability=None)
    return True
