"""How a run goes on: who is at work on it, what it waits for, which calls are in doubt, and the lines to copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite import kinds
from crewlite.cli import questions
from crewlite.cli.checkpoint import document
from crewlite.cli.checkpoint.screen import Screen
from crewlite.cli.checkpoint.where import Opened
from crewlite.cli.shell import Again
from crewlite.ids import short
from crewlite.lazy import lazy
from crewlite.resuming import branch_ref, call_again, nth_attempt, to_resume
from crewlite.state.format.entry import STATE

if TYPE_CHECKING:
    from crewlite.state.reading.checkpoint import Checkpoint
    from crewlite.state.run_history import RunHistory

definitions = lazy("crewlite.cli.definitions")


def tell(screen: Screen, opened: Opened, run: RunHistory, head: str = "to go on  ") -> None:
    """Print how the run goes on; `head` stands before the line that resumes it."""
    if run.abandoned_by:
        kept = Again(opened.location)
        screen.line(("to go on from it  ", "dim"), again(opened, run).line("fork", run.ref), whole=True)
        return screen.line(("to go back to it  ", "dim"), kept.line("rewind", run.ref), whole=True)
    if by := run.at_work:
        return screen.line((head, "dim"), f"it is at work ({by})", whole=True)
    lines = again(opened, run)
    waits(screen, opened, run)
    _answered(screen, opened, run, lines)
    if run.unsettled:  # whoever resumes the run without a word about them is refused
        return _doubts(screen, run, lines)
    return screen.line((head, "dim"), on(opened, run, lines), whole=True)


def status_of_run(run: RunHistory) -> str:
    """The status of a run in words; of one at work, the process that runs it."""
    return f"at work ({by})" if (by := run.at_work) else run.status_text


def on(opened: Opened, run: RunHistory, lines: Again | None = None) -> str:
    """The line that goes on with a run; the one that opens it, if it is a state."""
    if kinds.of(run.definition["kind"]) is kinds.TRIAL:
        return trial_on(run)
    if run.definition["kind"] == STATE:
        return f"RuntimeState.open({ref_of(run)!r}, {opened.location!r})"
    return (lines or again(opened, run)).line("resume", ref_of(run))


def _doubts(screen: Screen, run: RunHistory, lines: Again) -> None:
    """Print the calls in doubt, each with the lines that settle the doubt and go on with the run."""
    for address in run.unsettled:
        answered, rerun = settling(run, lines, address)
        given = f" with {arguments}" if (arguments := run.arguments_of(address)) else ""
        doubt = f"  {address}{given} did not finish: check whether it took effect"
        screen.line(("in doubt", "bold"), doubt, whole=True)
        screen.line(("  if it did      ", "dim"), answered, whole=True)
        screen.line(("  if it did not  ", "dim"), rerun, whole=True)


def settling(run: RunHistory, lines: Again, address: str) -> tuple[str, str]:
    """The lines that settle the doubt about a call: if it took effect, and if it did not."""
    times = run.unsettled[address]
    if kinds.of(run.definition["kind"]) is kinds.TRIAL:
        rerun = [nth_attempt(address, times)]
        return f"{trial_on(run)}, answers={{{address!r}: RESULT}}", f"{trial_on(run)}, {rerun=}"
    return lines.settling(ref_of(run), address, times)


def trial_on(run: RunHistory) -> str:
    """What to do to go on with a test or a training."""
    return f"{call_again(run.definition['kind'])} with {to_resume(run.run_id, run.branch)}"


def fork(opened: Opened, run: RunHistory, checkpoint: Checkpoint) -> str:
    """The line that begins a branch at a checkpoint."""
    if run.definition["kind"] == STATE:
        return f"History({opened.location!r}).fork({short(checkpoint.id)!r})"
    return again(opened, run).line("fork", short(checkpoint.id))


def waits(screen: Screen, opened: Opened, run: RunHistory) -> None:
    """Print the questions that a run waits with, each with the line that answers it; nothing if there are none."""
    if not run.waiting:
        return
    screen.line(("waits for", "bold"))
    for line in questions_of(opened, run):
        screen.block(line, indent=2)
    screen.line()


def _answered(screen: Screen, opened: Opened, run: RunHistory, lines: Again) -> None:
    """Print the answers that the run has not used yet, each with the line that changes it."""
    kept, ref = Again(opened.location), ref_of(run)
    for one in run.unused_answers:
        value = document.beginning(document.compact(one.value))
        if one.question is None:
            when, other = "ahead of its question", lines.line("resume", ref, "--answer", f"{one.address}=VALUE")
        else:
            when, other = "not used yet", kept.line("answer", ref, one.address, "VALUE", "--replace")
        screen.line(("answered", "bold"), f"  {one.address}: {value}, {when}", whole=True)
        screen.line(("  to change it  ", "dim"), other, whole=True)
        screen.line()


def questions_of(opened: Opened, run: RunHistory) -> list[str]:
    """The questions that a run waits with, each with the line that answers it."""
    kept, ref = Again(opened.location), ref_of(run)
    return questions.told(run.waiting, lambda address: kept.line("answer", ref, address, "VALUE"))


def again(opened: Opened, run: RunHistory) -> Again:
    """What the lines for a run have in common; --crew among it, if no record holds all of its definition."""
    name, flow = run.definition["name"], kinds.of(run.definition["kind"]) is kinds.FLOW
    found = not (flow or _has_live(run.definition)) or definitions.of_the_project()
    return Again(opened.location, None if found else f"MODULE:{name if flow else 'NAME'}")


def ref_of(run: RunHistory) -> str:
    """The ref that a branch is resumed by."""
    return branch_ref(run.run_id, run.branch)


def _has_live(facts: object) -> bool:
    """Whether a recorded definition has parts of which only the names are recorded."""
    if isinstance(facts, dict):
        live = facts.get("live", {}).keys() - facts.get("models", {}).keys()
        return bool(live) or any(map(_has_live, facts.values()))
    return isinstance(facts, list) and any(map(_has_live, facts))
