"""Kick off from the command line: progress on stderr, only the answer on stdout, and how to resume if the run stops."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from crewlite import CheckpointConfig, errors
from crewlite.cli.definitions import Definition
from crewlite.cli.error_text import said
from crewlite.cli.exits import FAILED, INTERRUPTED, USAGE, WAITS, Failed, ended_by_signals, notice
from crewlite.cli.options import RunOptions
from crewlite.cli.output import Output
from crewlite.cli.shell import Again, shell_line
from crewlite.lazy import lazy
from crewlite.runtime.kickoffs.engine import kickoff_here
from crewlite.runtime.kickoffs.request import Progress, Request
from crewlite.state.providers import declares
from crewlite.texts.resuming import branch_ref, may_have_taken_effect, without_advice

history = lazy("crewlite.state.history")


class Runner:
    """Runs one kickoff for a command. Inside `set_up`, all other output goes to stderr."""

    def __init__(self, chosen: RunOptions) -> None:
        self.options = chosen
        self.again = Again(model=chosen.model)
        """The common part of the commands that resume the run, as far as it is known."""
        self.progress = Progress(how_to_go_on=self._way_on)
        self.output = Output(sys.stdout, chosen.as_json)
        self._unsaved = ""
        """Why the run cannot be resumed; "" if it can."""
        self._instead: Sequence[str] = ()
        """The command that goes on with the run where `crewlite checkpoint resume` cannot; else empty."""

    @contextlib.contextmanager
    def set_up(self) -> Iterator[None]:
        """Do the work of a command in the block, and convert its errors to texts and exit codes of the command line."""
        try:
            with contextlib.redirect_stdout(sys.stderr), ended_by_signals():
                yield
        except click.UsageError:
            raise
        except (KeyboardInterrupt, SystemExit) as end:
            code = end.code if isinstance(end, SystemExit) else INTERRUPTED
            self._tell_error("interrupted", f"Interrupted. {self._way_on()}")
            raise click.exceptions.Exit(code if isinstance(code, int) else FAILED) from end
        except _Stopped as stopped:
            raise self._failed(stopped.why) from stopped.why
        except errors.Suspended as waits:
            raise self._waits(waits) from waits
        except (click.ClickException, errors.CrewliteError) as error:
            raise self._failed(error) from error

    def kickoff(
        self,
        definition: Definition,
        *,
        inputs: Mapping[str, Any] | None = None,
        message: str | None = None,
        run_id: str | None = None,
        operation_id: str | None = None,
        resume: bool = False,
        source: CheckpointConfig | None = None,
        target: str | None = None,
        again: Sequence[str] = (),
    ) -> Any:
        """Kick off, print the result and return it. `target` is the target under which the definition was found.

        `again` is the command that goes on with the run, if `crewlite checkpoint resume` cannot.
        """
        self._instead = again
        if self.options.model:
            definition = definition.with_model(self.options.model)
        self._look_ahead(definition, source, target)
        given = inputs if message is None else {"messages": message}
        request = Request(
            definition.as_inputs(given) if given else None,
            run_id,
            source,
            self.options.answers,
            self.options.rerun,
            resume,
            self.options.auto_approve,
            self.options.wait,
            operation_id=operation_id,
            progress=self.progress,
            verbose=not self.options.as_json,
        )
        try:
            with self.output.events() if self.options.as_json else contextlib.nullcontext():
                result = kickoff_here(definition, request)
        except errors.CrewliteError:
            raise
        except Exception as error:  # the border: an error of the user's model or callback has ended the run
            raise _Stopped(error) from error
        durability, usage = self.progress.durability, self.progress.usage
        if durability == "degraded":
            notice("Warning: not everything of this run could be saved.")
        about = {"run_id": self.progress.run_id, "usage": usage, "durability": durability}
        self.output.result(result, definition.run_kind, **about)
        return result

    def say(self, text: str) -> None:
        """Print a line for people on stderr; nothing with --json."""
        if not self.options.as_json:
            notice(text)

    def _look_ahead(self, definition: Definition, source: CheckpointConfig | None, target: str | None) -> None:
        """Find out whether and how the run could be resumed if it stopped; warn if nothing will be saved."""
        own, kind = definition.checkpoint, definition.run_kind
        provider = own.provider if isinstance(own, CheckpointConfig) and source is None else None
        if declares(provider, "in_memory"):
            self._unsaved = f"The run cannot be resumed: the {kind} keeps its record in memory."
        elif own is False and source is None:
            self._unsaved = f"Nothing was saved: the {kind} has checkpoint=False."
            self.say(f"Nothing of this run will be saved: the {kind} has checkpoint=False.")
        elif target and provider and not declares(provider, "named_by_location"):
            self._instead = ("run", target)

    def _way_on(self, error: Exception | None = None) -> str:
        """Return how to go on with the run, which an error may have ended, or why one cannot."""
        progress = self.progress
        if progress.run_id is None:
            return "Nothing was begun."
        if self._unsaved or progress.location is None:
            return self._unsaved or "Nothing was saved."
        if isinstance(error, errors.MissingInput):  # a run keeps its inputs, so no resume has what is missing
            added = [word for name in error.names for word in ("--input", f"{name}=VALUE")]
            line = None if self._instead else self._placed().line("fork", self._ref() or "RUN", *added)
            return f"To go on with that: {line}" if line else "Begin another run with that."
        if progress.unsettled and not self._instead:
            return self._placed().to_settle(self._ref() or "RUN", progress.unsettled)
        where = "" if sys.stderr.isatty() else f", in {os.getcwd()}"  # for whoever reads it in the log of a timer
        then = " then" if progress.asks_again or isinstance(error, errors.RunMismatch) else ""  # after a change
        return f"To go on{then}{where}: {self._line_on()}"

    def _line_on(self, *words: str) -> str:
        """Return the command that resumes the run."""
        if self._instead:
            return shell_line(["crewlite", *self._instead, "--run-id", self.progress.run_id or "", *words])
        return self._placed().line("resume", self._ref() or "RUN", *words)

    def _ref(self) -> str | None:
        """Return the ref of the run; None before it has begun."""
        run_id, branch = self.progress.run_id, self.progress.branch
        return branch_ref(run_id, branch) if run_id else None

    def _placed(self) -> Again:
        return replace(self.again, location=self.progress.location or self.again.location)

    def _failed(self, error: Exception) -> click.ClickException:
        if isinstance(error, click.ClickException):
            text, code = error.message, "usage" if isinstance(error, click.UsageError) else "failed"
        else:
            at = self.progress.target  # known before the run is resumed
            ref = self._ref() or (branch_ref(at.run_id, at.branch) if at else None)
            text, code = said(error, ref, self._placed()), getattr(error, "code", "failed")
            if isinstance(error, errors.ConfigError) and self.again.model:
                self.again = replace(self.again, model="PROVIDER/MODEL")  # do not advise the wrong model again
            if self.progress.run_id and not isinstance(
                error, errors.InDoubt | errors.AnswerRefused | errors.AnswerMisfit | errors.ChangeUnused
            ):
                text = without_advice(text).rstrip()
                text = f"{text} {'' if text.endswith('.') else '- '}{self._way_on(error)}"
                if self.progress.again and not self._instead:
                    again = self._placed().line("fork", self._ref() or "RUN", *self.progress.again)
                    text += f" - to {'ask' if self.progress.asks_again else 'run a recorded step'} again: {again}"
        self._tell_error(code if isinstance(code, str) else "failed", text)
        if isinstance(error, errors.InDoubt | errors.BudgetExceeded):
            return Failed(text, code=WAITS)
        return Failed(text, code=USAGE if isinstance(error, errors.MissingInput) else FAILED)

    def _waits(self, suspended: errors.Suspended) -> click.ClickException:
        """Build the exception that ends the command when the run waits for people: with questions and commands."""
        found = {"run_id": suspended.run_id, "branch": self.progress.branch, "waiting": suspended.waiting}
        if self.options.as_json:
            self.output.hear({"type": "waiting", **found})
        if self._unsaved:
            return Failed(f"The run waits for an answer, but cannot be resumed with one. {self._unsaved}", code=WAITS)
        lines = [f"{self._ref()} waits for an answer."]
        answers = [word for address in suspended.waiting for word in ("--answer", f"{address}=VALUE")]
        if self._instead:
            lines += [f"{address}: {question}" for address, question in suspended.waiting.items()]
            lines.append(f"To answer and go on: {self._line_on(*answers)}")
        else:
            with history.History(suspended.location) as opened:
                waiting = opened.run(f"{suspended.run_id}/{self.progress.branch}").waiting
            lines += self._placed().questions(self._ref() or "RUN", waiting)
            if doubts := suspended.in_doubt:
                lines.append(
                    f"{may_have_taken_effect(doubts)} {self._placed().to_settle(self._ref() or 'RUN', doubts)}"
                )
            lines += [f"To go on then: {self._line_on()}", f"Or answer and go on at once: {self._line_on(*answers)}"]
        return Failed(*lines, code=WAITS, head="")

    def _tell_error(self, code: str, text: str) -> None:
        if self.options.as_json:
            self.output.hear({"type": "error", "code": code, "message": text})


class _Stopped(Exception):
    """A run was ended by an error that is not crewlite's."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why
