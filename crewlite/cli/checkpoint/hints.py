"""How a run goes on: who is at work on it, what it waits for, which calls are in doubt, and the lines to copy."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crewlite import kinds
from crewlite.cli.checkpoint.screen import Screen
from crewlite.cli.checkpoint.where import Opened
from crewlite.cli.checkpoint.words import beginning, compact
from crewlite.cli.exits import Failed
from crewlite.cli.shell import Again
from crewlite.ids import short
from crewlite.lazy import lazy
from crewlite.state.format.entry import STATE
from crewlite.texts.resuming import branch_ref, call_again, nth_attempt, to_resume

if TYPE_CHECKING:
    from crewlite.state.run_history import RunHistory

definitions = lazy("crewlite.cli.definitions")
rebuild = lazy("crewlite.runtime.kickoffs.rebuild")  # slow to import, and needed for models alone


def status_of_run(run: RunHistory) -> str:
    """Return the status of a run in words; of one at work, the process that runs it."""
    return f"at work ({by})" if (by := run.at_work) else run.status_text


def trial_on(run: RunHistory) -> str:
    """Return what to do to go on with a test or a training."""
    return f"{call_again(run.definition['kind'])} with {to_resume(run.run_id, run.branch)}"


@dataclass(frozen=True, slots=True)
class Hints:
    """The lines to copy for one branch of a run."""

    opened: Opened
    run: RunHistory

    @property
    def ref(self) -> str:
        """The ref that the branch is resumed by."""
        return branch_ref(self.run.run_id, self.run.branch)

    @property
    def recorded(self) -> Again:
        """What commands that do not run the definition have in common."""
        return Again(self.opened.location)

    @property
    def again(self) -> Again:
        """What commands that run the definition have in common; --crew among it, if no record holds all of it."""
        definition = self.run.definition
        flow = kinds.of(definition["kind"]) is kinds.FLOW
        found = not (flow or _has_live(definition)) or _project_names_one()
        return Again(self.opened.location, None if found else f"MODULE:{definition['name'] if flow else 'NAME'}")

    @property
    def finished(self) -> bool:
        """Whether the branch has its result, so that nothing goes on with it."""
        return self.run.status == "finished" and not self.run.as_of

    def tell(self, screen: Screen, head: str = "to go on  ") -> None:
        """Print how the run goes on; `head` stands before the line that resumes it."""
        run = self.run
        if run.abandoned_by:
            screen.line(("to go on from it  ", "dim"), self.again.line("fork", run.ref), whole=True)
            return screen.line(("to go back to it  ", "dim"), self.recorded.line("rewind", run.ref), whole=True)
        if run.as_of:
            screen.line(("to try again from here  ", "dim"), self.fork_at(run.as_of), whole=True)
            return screen.line(("the run as it is now    ", "dim"), self.recorded.line("show", self.ref), whole=True)
        if run.waiting:
            screen.line(("waits for", "bold"))
            for line in self.questions():
                screen.block(line, indent=2)
            screen.line()
        if by := run.at_work:
            return screen.line((head, "dim"), f"it is at work ({by})", whole=True)
        self._answered(screen)
        if run.unsettled:  # whoever resumes the run without a word about them is refused
            return self._doubts(screen)
        return screen.line((head, "dim"), self.on(), whole=True)

    def on(self, again: Again | None = None) -> str:
        """Return the line that goes on with the run; the one that opens it, if it is a state."""
        if kinds.of(self.run.definition["kind"]) is kinds.TRIAL:
            return trial_on(self.run)
        if self.run.definition["kind"] == STATE:
            return f"RuntimeState.open({self.ref!r}, {self.opened.location!r})"
        return (again or self.again).line("resume", self.ref)

    def fork_at(self, checkpoint: str) -> str:
        """Return the line that begins a branch at the checkpoint with this id."""
        if self.run.definition["kind"] == STATE:
            return f"History({self.opened.location!r}).fork({short(checkpoint)!r})"
        return self.again.line("fork", short(checkpoint))

    def questions(self) -> list[str]:
        """Return the questions that the run waits with, each with the line that answers it."""
        return self.recorded.questions(self.ref, self.run.waiting)

    def settling(self, address: str) -> tuple[str, str]:
        """Return the lines that settle the doubt about a call: if it took effect, and if it did not."""
        times = self.run.unsettled[address]
        if kinds.of(self.run.definition["kind"]) is kinds.TRIAL:
            rerun, how = [nth_attempt(address, times)], trial_on(self.run)
            return f"{how}, answers={{{address!r}: RESULT}}", f"{how}, {rerun=}"
        return self.again.settling(self.ref, {address: times})

    def _answered(self, screen: Screen) -> None:
        """Print the answers that the run has not used yet, each with the line that changes it."""
        for one in self.run.unused_answers:
            if one.question is None:
                when = "ahead of its question"
                other = self.again.line("resume", self.ref, "--answer", f"{one.address}=VALUE")
            else:
                when, other = "not used yet", self.recorded.line("answer", self.ref, one.address, "VALUE", "--replace")
            screen.line(("answered", "bold"), f"  {one.address}: {beginning(compact(one.value))}, {when}", whole=True)
            screen.line(("  to change it  ", "dim"), other, whole=True)
            screen.line()

    def _doubts(self, screen: Screen) -> None:
        """Print the calls in doubt, each with the lines that settle the doubt and go on with the run."""
        for address in self.run.unsettled:
            answered, rerun = self.settling(address)
            given = f" with {arguments}" if (arguments := self.run.arguments_of(address)) else ""
            doubt = f"  {address}{given} did not finish: check whether it took effect"
            screen.line(("in doubt", "bold"), doubt, whole=True)
            screen.line(("  if it did      ", "dim"), answered, whole=True)
            screen.line(("  if it did not  ", "dim"), rerun, whole=True)


def _project_names_one() -> bool:
    """Return whether pyproject.toml names a definition; one that cannot be read names none."""
    with contextlib.suppress(Failed):
        return definitions.of_the_project() is not None
    return False


def _has_live(facts: object) -> bool:
    """Return whether a definition has parts that no record holds, such as a model whose key is not set here."""
    if isinstance(facts, dict):
        models = facts.get("models")
        live = any(rebuild.recorded_model(models, field) is None for field in facts.get("live", ()))
        return live or any(map(_has_live, facts.values()))
    return isinstance(facts, list) and any(map(_has_live, facts))
