"""`crewlite checkpoint resume` and `fork`: continue recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from crewlite import CheckpointConfig, kinds
from crewlite.cli import effects
from crewlite.cli.checkpoint import hints
from crewlite.cli.checkpoint.where import Asked, Opened, ref_argument
from crewlite.cli.definitions import find, of_the_project
from crewlite.cli.exits import Failed
from crewlite.cli.kinds import KINDS, Definition, check_takes, with_types
from crewlite.cli.options import CREW, RunOptions, pairs, run_options
from crewlite.cli.runner import Runner
from crewlite.cli.shell import Again
from crewlite.definition import to_rerun
from crewlite.llm.models import named
from crewlite.runtime.kickoffs.fork import forked_in_memory
from crewlite.runtime.kickoffs.resumption import not_made
from crewlite.state.format.entry import STATE

if TYPE_CHECKING:
    from crewlite.runtime.kickoffs.preview import Preview
    from crewlite.state.run_history import RunHistory

EDIT = (
    "What a finished step is to have come to, read as what it came to before; ADDRESS:=JSON for JSON in any case, "
    "=@FILE for what a file holds."
)
_RERUN = "A finished step to run again, with all that is made from it; or a call in doubt to make again."


@click.command()
@ref_argument("ref", "[REF]")
@click.option("--crew", "target", metavar="MODULE:ATTRIBUTE", help=CREW)
@run_options()
def resume(asked: Asked, chosen: RunOptions, ref: str | None, target: str | None) -> None:
    """Go on with a run where it stopped, and print its answer.

    REF is a run, run/branch or a checkpoint; without it, the newest run. Nothing that is recorded is paid again. Of a
    finished run, the stored answer is printed.
    """
    runner = Runner(chosen)
    with runner.set_up():
        with asked.open(ref) as opened:
            run = opened.history.run(opened.ref or "latest")
            runner.again = Again(opened.location, target, chosen.model)
            if run.status == "finished" and target is None and _answer(runner, run):
                return
            check_runs(run, hints.on(opened, run))
            source = CheckpointConfig(location=opened.location, provider=None, restore_from=exactly(opened, run))
            definition = definition_for(runner, run, source, target)
        check_takes(definition, {}, None, chosen.model)
        runner.say(f"Going on with {title_of(run)}.")
        runner.kickoff(definition, source=source)


@click.command()
@ref_argument("ref", "[REF]")
@click.option("--branch", metavar="NAME", help="Name of the new branch; one is made up if it is left out.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=TEXT", help="An input to change; NAME:=JSON likewise.")
@click.option("--message", metavar="TEXT", help="What to ask next, of an agent.")
@click.option("--edit", "edits", multiple=True, metavar="ADDRESS=TEXT", help=EDIT)
@click.option("--no-run", is_flag=True, help="Only make the branch, and print its name.")
@click.option("--preview", is_flag=True, help="Only say what would run again, and why; no branch is made.")
@click.option("--allow-effects", is_flag=True, help=effects.OPTION)
@click.option("--crew", "target", metavar="MODULE:ATTRIBUTE", help=CREW)
@run_options(rerun=_RERUN)
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
            run = opened.history.run(opened.ref or "latest")
            runner.again = Again(opened.location, target, chosen.model)
            again, doubts = _apart(run, chosen.rerun)
            if only and doubts:
                raise click.UsageError(f"{only}: {doubts[0]} is a call in doubt, which only a run can make again")
            at = exactly(opened, run)
            source = CheckpointConfig(location=opened.location, provider=None, restore_from=at)
            changes: dict[str, Any] = {"branch": branch, "edits": edited, "rerun": again}
            allow = partial(effects.unless_refused, allow_effects=allow_effects)
            if no_run:
                changes["inputs"] = _typed(runner, run, source, target, given)
                own = find(target) if target else None
                made = allow(lambda allowed: _forked(opened, own, source, {**changes, "allow_effects": allowed}))
                how = hints.on(opened, made, runner.again if target else None)
                verb = "open" if made.definition["kind"] == STATE else "run"
                runner.say(f"Made {hints.ref_of(made)}. To {verb} it: {how}")
                return runner.output.branch(made.run_id, made.branch)
            check_runs(run, f"History({opened.location!r}).fork({at!r}); here: --no-run")
            definition = definition_for(
                runner, run, source, target
            )  # first: a run that cannot be kicked off is not forked
            check_takes(definition, given, message, chosen.model)
            given = with_types(definition, given)
            if preview:
                return runner.output.preview(foreseen(definition, chosen.model, source, (edited, again, given)))
            changes["inputs"] = given
            made = allow(lambda allowed: _forked(opened, definition, source, {**changes, "allow_effects": allowed}))
        runner.say(f"Forked {title_of(run)}: {made.run_id}/{made.branch}.")
        runner.options = replace(chosen, rerun=doubts)
        there = source.model_copy(update={"restore_from": f"{made.run_id}/{made.branch}"})
        runner.kickoff(definition.bound_to(None), message=message, source=there)
    return None


def _forked(
    opened: Opened, definition: Definition | None, source: CheckpointConfig, changes: dict[str, Any]
) -> RunHistory:
    """Create a branch. The current definition, if it is at hand, may take inputs that the recorded one did not."""
    if definition is None:
        return opened.history.fork(str(source.restore_from), **changes)
    there = definition.fork(source, **changes).bound_at
    assert isinstance(there, CheckpointConfig)
    return opened.history.run(str(there.restore_from))


def check_runs(run: RunHistory, instead: str) -> None:
    """Raise Failed for a state, which cannot be kicked off."""
    if run.definition["kind"] == STATE:
        raise Failed(f"{title_of(run)} is a saved state, which cannot be kicked off. Use it in Python: {instead}")


def _typed(
    runner: Runner, run: RunHistory, source: CheckpointConfig, target: str | None, given: dict[str, Any]
) -> dict[str, Any]:
    """Return the inputs of a branch that is not run yet, with the types of the definition. A crew takes any text."""
    if not given or kinds.of(run.definition["kind"]) is kinds.CREW:
        return given
    definition = definition_for(runner, run, source, target)
    check_takes(definition, given, None, None)
    return with_types(definition, given)


def foreseen(
    definition: Definition,
    model: str | None,
    source: CheckpointConfig,
    changes: tuple[Any, Any, Any] | None,
) -> Preview:
    """Return what a kickoff of a fork with these edits, reruns and inputs would do; of None, what a resume would do.

    `source` names the place in the run. Raises what the kickoff would raise; it names the run, as the fork is not kept.
    """
    if definition.run_kind.takes_messages:
        raise click.UsageError("a preview is for crews and flows: a fork of an agent always asks its new message")
    whole = definition.with_model(model) if model else definition
    if changes is None:
        return whole.preview(from_checkpoint=source)
    return forked_in_memory(whole, source, *changes).preview()


def _apart(run: RunHistory, rerun: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split `rerun` into finished steps, which the fork invalidates, and calls in doubt, which its kickoff repeats.

    Raises RefError for another attempt at a call than the one that is in doubt.
    """
    cut = {step.address for step in run.steps if step.status != "finished"} if rerun else set()
    doubts = {named: at for named in rerun for at in to_rerun(named).items() if at[0] in cut}
    for address, attempt in doubts.values():
        if attempt != (times := run.unsettled.get(address, 1)):
            raise not_made(address, attempt, times)
    return [named for named in rerun if named not in doubts], list(doubts)


def _answer(runner: Runner, run: RunHistory) -> bool:
    """Print the stored answer of a finished run. Returns False if it has none to print."""
    result, flow = run.result, kinds.of(run.definition["kind"]) is kinds.FLOW
    if result is None and not flow:
        return False
    runner.say(
        f"{title_of(run)} has finished before; this is its stored answer. To run it with a changed definition: --crew."
    )
    about = {"run_id": run.run_id, "usage": run.usage.model_dump(), "durability": None}
    if flow:
        runner.output.value(result, **about)
    else:
        runner.output.answer(str(result), **about)
    return True


def exactly(opened: Opened, run: RunHistory) -> str:
    """Return the ref to continue from: the named checkpoint, or the head of the branch.

    A relative ref, such as `latest`, becomes a fixed one, so that a newer checkpoint does not change its meaning.
    """
    found = f"{run.run_id}/{run.branch}"
    if opened.ref in (None, "latest", run.run_id, run.branch, found):
        return found
    newest = str(opened.ref).startswith(("latest", "@"))
    return opened.history.locate(opened.ref)[1] if newest else str(opened.ref)


def definition_for(runner: Runner, run: RunHistory, source: CheckpointConfig, target: str | None) -> Definition:
    """Return the run's definition: the one named by `target`, else by pyproject.toml, else rebuilt from the record.

    The one of pyproject.toml is used only if its kind and name fit. Raises Failed if `target` is of another kind, or if
    the run is of a flow that neither names.
    """
    recorded = run.definition["kind"], run.definition["name"]
    if kinds.of(recorded[0]) is kinds.TRIAL:
        raise Failed(f"{title_of(run)} can only be resumed by the call that began it: {hints.trial_on(run)}")
    if target is not None:
        definition = find(target)
        if definition.run_kind is not kinds.of(recorded[0]):
            raise Failed(f"{title_of(run)} is no run of {definition.run_kind} {definition.run_name} ({target})")
        return definition
    other = ""
    if project := of_the_project():
        definition = find(project)
        if (definition.run_kind.name, definition.run_name) == recorded:
            return definition
        other = f"pyproject.toml names {definition.run_kind} {definition.run_name} ({project}), and this run is of "
        other += " ".join(recorded)
        runner.again = replace(runner.again, target=None)
    if kinds.of(recorded[0]) is kinds.FLOW:
        raise Failed(
            f"{title_of(run)} is a run of a flow, and no record holds its function or class. Name its place: --crew "
            f"MODULE:{recorded[1]}, or crew in [tool.crewlite] of pyproject.toml.{f' {other}.' if other else ''}"
        )
    if other:
        runner.say(f"{other}, so the definition is rebuilt from the record.")
    model = runner.options.model
    return KINDS[recorded[0]].from_checkpoint(source, bind={"llm": named(model)} if model else None)


def title_of(run: RunHistory) -> str:
    """Return the name of a run with its kind and definition."""
    return f"{run.ref} ({run.definition['kind']} {run.definition['name']})"
