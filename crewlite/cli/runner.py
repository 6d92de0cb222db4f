"""A kickoff asked for on the command line: shown on stderr, its answer alone on stdout, and a way on if it stops."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

import click

from crewlite import CheckpointConfig
from crewlite.cli import questions, stream
from crewlite.cli.error_text import said, without_advice
from crewlite.cli.exits import FAILED, INTERRUPTED, USAGE, WAITS, Failed, notice
from crewlite.cli.interrupts import ended_by_signals
from crewlite.cli.kinds import Definition
from crewlite.cli.options import RunOptions
from crewlite.cli.output import Output
from crewlite.cli.shell import Again, shell_line
from crewlite.errors import AnswerRefused, ChangeUnused, ConfigError, CrewliteError, InDoubt, MissingInput, Suspended
from crewlite.flow import FlowFunction
from crewlite.lazy import lazy
from crewlite.runtime.engine import kickoff_here
from crewlite.runtime.request import Progress, Request
from crewlite.state.providers import declares

history = lazy("crewlite.state.history")


class Runner:
    """Where one kickoff takes place. Within `set_up`, whatever prints does so on stderr."""

    def __init__(self, chosen: RunOptions) -> None:
        self.options = chosen
        self.again = Again(model=chosen.model)
        """How the run can be gone on with, as far as is known."""
        self.progress = Progress(how_to_go_on=self._way_on)
        self.output = Output(sys.stdout, chosen.as_json)
        self._unsaved = ""
        """Why there is nothing to go on with."""
        self._instead = ""
        """The command that goes on with a run which the others cannot find."""

    @contextlib.contextmanager
    def set_up(self) -> Iterator[None]:
        """Do the work of a command in the block. Its errors are told in its terms, and decide how it ends."""
        self.output = Output(sys.stdout, self.options.as_json)
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
        except Suspended as waits:
            raise self._waits(waits) from waits
        except (click.ClickException, CrewliteError) as error:
            raise self._failed(error) from error

    def kickoff(
        self,
        definition: Definition,
        *,
        inputs: Mapping[str, Any] | None = None,
        message: str | None = None,
        run_id: str | None = None,
        resume: bool = False,
        source: CheckpointConfig | None = None,
        target: str | None = None,
    ) -> None:
        """Kick off and print the result. `target` is what the definition was found by."""
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
            progress=self.progress,
            verbose=not self.options.as_json,
        )
        try:
            with stream.told(self.output.out) if self.options.as_json else contextlib.nullcontext():
                result = kickoff_here(definition, request)
        except CrewliteError:
            raise
        except Exception as error:  # the border: what a model or a callback of the user raised has ended the run
            raise _Stopped(error) from error
        durability, usage = self.progress.durability, self.progress.usage
        if durability == "degraded":
            notice("Warning: not everything of this run could be saved.")
        about = {"run_id": self.progress.run_id, "usage": usage.model_dump(), "durability": durability}
        if isinstance(definition, FlowFunction):
            self.output.value(result, **about)
        else:
            self.output.answer(result.raw, **about)

    def say(self, text: str) -> None:
        """Tell people something beside the answer."""
        if not self.options.as_json:
            notice(text)

    def _look_ahead(self, definition: Definition, source: CheckpointConfig | None, target: str | None) -> None:
        """See whether and how the run can be gone on with, should it be cut."""
        own, kind = definition.checkpoint, definition.run_kind
        provider = own.provider if isinstance(own, CheckpointConfig) and source is None else None
        if declares(provider, "in_memory"):
            self._unsaved = f"Nothing is left of it: the {kind} keeps its record in memory."
        elif own is False and source is None:
            self._unsaved = f"Nothing was saved: the {kind} has checkpoint=False."
            self.say(f"Nothing of this run will be saved: the {kind} has checkpoint=False.")
        elif target and provider and not declares(provider, "named_by_location"):
            self._instead = target

    def _way_on(self) -> str:
        """How to go on, in words of the command line."""
        progress = self.progress
        if progress.run_id is None:
            return "Nothing was begun."
        if self._unsaved or progress.location is None:
            return self._unsaved or "Nothing was saved."
        return f"To go on: {self._line_on()}"

    def _line_on(self, *words: str) -> str:
        """The command that goes on with the run."""
        if self._instead:
            return shell_line(["crewlite", "run", self._instead, "--run-id", self.progress.run_id or "", *words])
        return self._placed().line("resume", self._ref() or "RUN", *words)

    def _ref(self) -> str | None:
        """The run as the commands know it, once it has begun."""
        run_id, branch = self.progress.run_id, self.progress.branch
        return run_id if branch == "main" or run_id is None else f"{run_id}/{branch}"

    def _placed(self) -> Again:
        return replace(self.again, location=self.progress.location or self.again.location)

    def _failed(self, error: Exception) -> click.ClickException:
        """What ends the command after an error."""
        if isinstance(error, click.ClickException):
            text, code = error.message, "usage" if isinstance(error, click.UsageError) else "failed"
        else:
            text, code = said(error, self._ref(), self._placed()), getattr(error, "code", "failed")
            if isinstance(error, ConfigError) and self.again.model:
                self.again = replace(self.again, model="PROVIDER/MODEL")  # not the same mistake again
            if self.progress.run_id and not isinstance(error, InDoubt | AnswerRefused | ChangeUnused):
                text = without_advice(text).rstrip()
                text = f"{text} {'' if text.endswith('.') else '- '}{self._way_on()}"
                if (answered := self.progress.answered) and not isinstance(error, CrewliteError):
                    again = self._placed().line("fork", self._ref() or "RUN", "--rerun", answered[-1])
                    text = f"{text} - to do a recorded step again: {again}"
        kind = Waits if isinstance(error, InDoubt) else Misses if isinstance(error, MissingInput) else Failed
        failed = kind(text)
        if self.options.as_json:
            self._tell_error(code if isinstance(code, str) else "failed", text)
        return failed

    def _waits(self, suspended: Suspended) -> click.ClickException:
        """What ends the command when the run waits for people: what they are asked, and the lines that answer."""
        found = {"run_id": suspended.run_id, "branch": self.progress.branch, "waiting": suspended.waiting}
        if self.options.as_json:
            stream.Stream(self.output.out).tell({"type": "waiting", **found})
        if self._unsaved:
            return Waits(f"The run waits for an answer, and cannot go on with it. {self._unsaved}")
        lines = [f"{self._ref()} waits for an answer."]
        if self._instead:
            first = next(iter(suspended.waiting))
            lines += [f"{address}: {question}" for address, question in suspended.waiting.items()]
            return Asks([*lines, f"To answer and go on: {self._line_on('--answer', f'{first}=VALUE')}"])
        with history.History(suspended.location) as opened:
            waiting = opened.run(f"{suspended.run_id}/{self.progress.branch}").waiting
        kept = Again(self._placed().location)
        lines += questions.told(waiting, lambda at: kept.line("answer", self._ref() or "RUN", at, "VALUE"))
        both = [word for one in waiting for word in ("--answer", f"{one.address}=VALUE")]
        return Asks([*lines, f"To go on then: {self._line_on()}", f"Or both at once: {self._line_on(*both)}"])

    def _tell_error(self, code: str, text: str) -> None:
        if self.options.as_json:
            stream.Stream(self.output.out).tell({"type": "error", "code": code, "message": text})


class Waits(Failed):
    """The run waits for what only a person can say, such as whether a call in doubt took effect."""

    exit_code = WAITS


class Asks(click.ClickException):
    """The run waits for people. Told line by line, as it is no error."""

    exit_code = WAITS

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the lines on stderr."""
        for line in self.lines:
            notice(line, file)


class Misses(Failed):
    """An input that the crew asks for was not given."""

    exit_code = USAGE


class _Stopped(Exception):
    """A run was ended by an error that is not crewlite's."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why
