"""`crewlite checkpoint answer`: a person's answer to a question that a run waits with."""

from __future__ import annotations

import re

import click

from crewlite.cli.checkpoint import document, hints
from crewlite.cli.checkpoint.complete import complete_question
from crewlite.cli.checkpoint.screen import Screen
from crewlite.cli.checkpoint.where import Asked, Opened, location_of, options, ref_argument
from crewlite.cli.exits import Failed
from crewlite.cli.shell import Again, settling_words
from crewlite.errors import AnswerRefused, RefError
from crewlite.lazy import lazy
from crewlite.state.format.addresses import is_question
from crewlite.state.run_history import RunHistory

error_text = lazy("crewlite.cli.error_text")
recorded = lazy("crewlite.state.verbs.answer")
_NEGATIVE = re.compile(r"-\.?\d")


def _addresses(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    return complete_question(location_of(ctx), ctx.params.get("ref"), incomplete)


class _TakesNumbers(click.Command):
    """A command that takes a negative number as a value and not as an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.ignore_unknown_options = any(_NEGATIVE.match(word) for word in args)
        return super().parse_args(ctx, args)


@click.command(cls=_TakesNumbers)
@ref_argument("ref", "REF", required=True)
@click.argument("address", metavar="[ADDRESS]", required=False, shell_complete=_addresses)
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
        run = opened.history.run(opened.ref or "latest")
        if address is None or value is None:
            address, value = _the_only_one(opened, run, address)
        try:
            is_new = opened.history.answer(run, address, recorded.Typed(value), ahead=False, replace=replace)
        except RefError as error:
            raise Failed(_advice(error, opened, run)) from error
        except AnswerRefused as error:
            raise Failed(error_text.of_answer(error, hints.ref_of(run), hints.again(opened, run))) from error
        run = opened.history.run(f"{run.run_id}/{run.branch}")
        if asked.as_json:
            name = {"run_id": run.run_id, "branch": run.branch, "address": address}
            return document.answer({"location": opened.location, **name, "status": run.status, "waiting": run.waiting})
        screen = Screen()
        said = "is answered" if is_new else "has this answer already"
        screen.line(screen.mark("finished"), f" {address} of {run.run_id}/{run.branch} {said}", whole=True)
        screen.line()
        hints.tell(screen, opened, run)
    return None


def _the_only_one(opened: Opened, run: RunHistory, value: str | None) -> tuple[str, str]:
    """Return the address of the only open question, and the answer. Raises UsageError if it is not the only one."""
    if not run.waiting:
        raise click.UsageError(f"{run.run_id}/{run.branch} waits for no answer")
    if value is None or is_question(value) or len(run.waiting) > 1:
        lines = hints.questions_of(opened, run)
        raise click.UsageError(
            "\n".join(["name the question and the answer: ADDRESS VALUE. The run waits for", *lines])
        )
    return run.waiting[0].address, value


def _advice(error: RefError, opened: Opened, run: RunHistory) -> str:
    """Return what to do about an address that is no open question."""
    address = error.ref
    if address not in run.unsettled:
        return f"{error} How it goes on: {Again(opened.location).line('show', hints.ref_of(run))}"
    lines = hints.settling(run, hints.again(opened, run), address)
    return f"{address} is no question but a call in doubt. {settling_words(*lines)}"
