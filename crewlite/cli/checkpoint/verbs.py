"""`crewlite checkpoint answer`, `cancel`, `label` and `rewind`: verbs that change a run, and what it does then."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from crewlite import kinds
from crewlite.cli.checkpoint import document
from crewlite.cli.checkpoint.hints import Hints
from crewlite.cli.checkpoint.screen import Screen
from crewlite.cli.checkpoint.where import Asked, options, questions, ref_argument
from crewlite.cli.checkpoint.words import beginning, compact
from crewlite.cli.exits import Failed
from crewlite.cli.options import allow_effects_option, unless_refused
from crewlite.cli.shell import Again, settling_words
from crewlite.errors import AnswerRefused, RefError
from crewlite.ids import short
from crewlite.lazy import lazy
from crewlite.state.format.addresses import is_question

if TYPE_CHECKING:
    from crewlite.state.run_history import RunHistory

error_text = lazy("crewlite.cli.error_text")
recorded = lazy("crewlite.state.verbs.answer")
_NEGATIVE = re.compile(r"-\.?\d")


class _TakesNumbers(click.Command):
    """A command that takes a negative number as a value and not as an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.ignore_unknown_options = any(_NEGATIVE.match(word) for word in args)
        return super().parse_args(ctx, args)


@click.command(cls=_TakesNumbers)
@ref_argument("ref", "REF", required=True)
@click.argument("address", metavar="[ADDRESS]", required=False, shell_complete=questions)
@click.argument("value", metavar="VALUE", required=False)
@click.option("--replace", is_flag=True, help="Take the place of another answer that the run has not used yet.")
@options()
def answer(asked: Asked, ref: str, address: str | None, value: str | None, replace: bool) -> None:
    """Answer a question that a run waits with.

    REF is a run or run/branch, ADDRESS the question's, as show and the run itself tell it; it may be left out if one
    alone waits. VALUE is text; where the question wants something else it is read as JSON, or as yes and no. An answer
    that does not fit is refused, and the question waits. The run goes on with it when it is resumed, here or anywhere.
    """
    with asked.open(ref) as opened:
        run = opened.run()
        hints = Hints(opened, run)
        if address is None or value is None:
            address, value = _the_only_one(hints, address, replace=replace)
        try:
            is_new = opened.history.answer(run, address, recorded.Typed(value), ahead=False, replace=replace)
        except RefError as error:
            raise Failed(_advice(error, hints)) from error
        except AnswerRefused as error:
            raise Failed(error_text.of_answer(error, hints.ref, hints.again)) from error
        run = opened.history.run(f"{run.run_id}/{run.branch}")
        if asked.as_json:
            name = {"run_id": run.run_id, "branch": run.branch, "address": address}
            return opened.answer(**name, status=run.status, waiting=run.waiting)
        said = "is answered" if is_new else "has this answer already"
        return _done(Hints(opened, run), "finished", f"{address} of {run.run_id}/{run.branch} {said}")


@click.command()
@ref_argument("ref", "REF", required=True)
@options()
def cancel(asked: Asked, ref: str) -> None:
    """Stop a run, wherever it is at work.

    REF is a run or run/branch. Whoever is at work on it, here or on another machine, stops within a second. What is
    recorded is kept, and the run goes on when it is resumed. One that waits for people, or was cut, is marked.
    """
    with asked.open(ref) as opened:
        opened.history.cancel(opened.ref or "latest")
        run = opened.run()
        if asked.as_json:
            return opened.answer(run_id=run.run_id, branch=run.branch, status=run.status)
        return _done(Hints(opened, run), run.status, f"{run.run_id}/{run.branch} is cancelled")


@click.command()
@ref_argument("ref", "REF", required=True)
@click.argument("name", metavar="NAME")
@options()
def label(asked: Asked, ref: str, name: str) -> None:
    """Give a place a name, by which every command takes it: run@label:NAME.

    REF is a checkpoint, or a run or branch, which means its newest one. A name is of one place of a run alone. It is
    kept by a new checkpoint at that place, which list and tree show as one with the first. Pruning keeps it.
    """
    with asked.open(ref) as opened:
        made = opened.history.label(opened.ref or "latest", name)
        if asked.as_json:
            return opened.answer(**document.of_checkpoint(made))
        screen, at = Screen(), made.address or made.trigger
        said = f" {short(made.id)} {at} is {made.run_id}/{made.branch}@label:{name}"
        return screen.line(screen.mark("checkpoint"), said, whole=True)


@click.command()
@ref_argument("ref", "REF", required=True)
@click.option("--reason", metavar="TEXT", default="", help="Why, for whoever looks at the run later.")
@allow_effects_option
@options()
def rewind(asked: Asked, ref: str, reason: str, *, allow_effects: bool) -> None:
    """Go back to a place: the run continues from there when it is resumed.

    REF is a checkpoint of the branch that goes back: an id or 8 characters of one, run/branch@task:name, run~1, a
    label; run/branch@abandoned:1 undoes the first rewind. Nothing is erased: what came after stays readable and can be
    forked. To keep the branch as it is, fork the place instead.
    """
    with asked.open(ref) as opened:
        run: RunHistory = unless_refused(
            lambda allow: opened.history.rewind(opened.ref or "latest", reason=reason, allow_effects=allow),
            allow_effects=allow_effects,
        )
        if asked.as_json:
            return opened.answer(**document.of_run(run))
        newest = run.checkpoint()
        at = f" at {short(newest.id)} {newest.address or newest.trigger}" if newest else ""
        left = run.abandoned[-1].ref if run.abandoned else ""
        return _done(Hints(opened, run), run.status, f"{run.run_id}/{run.branch} stands{at} again", left)


def _done(hints: Hints, mark: str, said: str, left_behind: str = "") -> None:
    """Print what was done to a run, and how it goes on. `left_behind`: the ref of what a rewind has abandoned."""
    screen = Screen()
    screen.line(screen.mark(mark), f" {said}", whole=True)
    if left_behind:
        screen.line(("what came after is   ", "dim"), left_behind, whole=True)
    screen.line()
    if hints.finished:
        return screen.line("the run has finished")
    return hints.tell(screen)


def _the_only_one(hints: Hints, value: str | None, *, replace: bool) -> tuple[str, str]:
    """Return the address of the only question to answer, and the answer. Raises UsageError if it is not the only one.

    With `replace`, the questions are those whose answer the run has not used yet.
    """
    run = hints.run
    unused = [one.address for one in run.unused_answers if one.question is not None]
    addresses = unused if replace else [one.address for one in run.waiting]
    if not addresses:
        changed = f"; to change the answer to {unused[0]}, add --replace" if unused else ""
        none = "has no answer that can be replaced" if replace else f"waits for no answer{changed}"
        raise click.UsageError("\n".join([f"{run.run_id}/{run.branch} {none}", *_given_before(run)]))
    if value is None or is_question(value) or len(addresses) > 1:
        of_run = "It can be replaced for" if replace else "The run waits for"
        wanted = f"name the question and the answer: ADDRESS VALUE. {of_run}"
        raise click.UsageError("\n".join([wanted, *(unused if replace else hints.questions())]))
    return addresses[0], value


def _given_before(run: RunHistory) -> list[str]:
    """Return a line for each answer that the run has used, or will use when it goes on."""
    used = {
        step.address: step.value["answer"]
        for step in run.steps
        if kinds.of(step.kind).asks_person and isinstance(step.value, dict) and "answer" in step.value
    }
    unused = {one.address: one.value for one in run.unused_answers}
    return [f"{address} was answered with {beginning(compact(value))}" for address, value in (used | unused).items()]


def _advice(error: RefError, hints: Hints) -> str:
    """Return what to do about an address that is no open question."""
    address = error.ref
    if address not in hints.run.unsettled:
        return f"{error} How it goes on: {Again(hints.opened.location).line('show', hints.ref)}"
    return f"{address} is not a question but a call in doubt. {settling_words(*hints.settling(address))}"
