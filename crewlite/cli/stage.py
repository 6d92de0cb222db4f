"""A kickoff asked for on the command line: shown on stderr, its answer alone on stdout, and a way on if it stops."""

from __future__ import annotations

import contextlib
import functools
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, TextIO, TypeVar

import click

from crewlite import Agent, CheckpointConfig
from crewlite.cli import stream
from crewlite.cli.definitions import Runnable, on_model
from crewlite.cli.exits import FAILED, INTERRUPTED, USAGE, WAITS, Failed, aside
from crewlite.cli.shell import Again, shell_line
from crewlite.cli.words import said
from crewlite.errors import CrewliteError, InDoubt, MissingInput
from crewlite.events.console import printable, watched
from crewlite.events.live import put_away
from crewlite.lazy import lazy
from crewlite.runtime.kickoff import Progress, followed
from crewlite.state.providers import InMemoryProvider, JsonProvider, SqliteProvider

F = TypeVar("F", bound=Callable[..., Any])
rich = lazy("rich.console")


@dataclass(frozen=True, slots=True)
class Manner:
    """How it is to be done."""

    as_json: bool = False
    model: str | None = None
    answers: Mapping[str, Any] | None = None
    rerun: Sequence[str] = ()


def manner_options(function: F) -> F:
    """Give a command --model, --answer, --rerun and --json; it is called with `manner`."""

    @click.option("--model", metavar="M", help="Ask this model, whatever the agents have of their own.")
    @click.option("--answer", "answers", multiple=True, metavar="ADDRESS=VALUE", help="The result of a call in doubt.")
    @click.option("--rerun", multiple=True, metavar="ADDRESS", help="A call in doubt to make again.")
    @click.option("--json", "as_json", is_flag=True, help="One JSON line per event, then one with the result.")
    @functools.wraps(function)
    def command(model: str | None, answers: Sequence[str], rerun: Sequence[str], as_json: bool, **fields: Any) -> Any:
        manner = Manner(as_json or _outer_json(), model, pairs(answers, "--answer") or None, rerun)
        return function(manner=manner, **fields)

    return command  # type: ignore[return-value]


def pairs(words: Sequence[str], option: str) -> dict[str, Any]:
    """What `name=text` and `name:=JSON` say. Raises UsageError."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip(":"):
            raise click.UsageError(f"{option} {word!r} is not understood; wanted name=text or name:=JSON")
        if not name.endswith(":"):
            found[name] = value
            continue
        try:
            found[name[:-1]] = json.loads(value)
        except ValueError as error:
            raise click.UsageError(f"{option} {word!r}: what follows := is no JSON ({error})") from error
    return found


class Stage:
    """Where one kickoff takes place. Within `set_up`, whatever prints does so on stderr."""

    def __init__(self, manner: Manner) -> None:
        self.manner = manner
        self.again = Again(model=manner.model)
        """How the run can be gone on with, as far as is known."""
        self.progress = Progress(how_to_go_on=self._way_on)
        self._out: TextIO = sys.stdout
        self._unsaved = ""
        """Why there is nothing to go on with."""
        self._instead = ""
        """The command that goes on with a run which the others cannot find."""

    @contextlib.contextmanager
    def set_up(self) -> Iterator[None]:
        """Do the work of a command in the block. Its errors are told in its terms, and decide how it ends."""
        self._out = sys.stdout
        try:
            with contextlib.redirect_stdout(sys.stderr), _ended_by_signals():
                yield
        except click.UsageError:
            raise
        except (KeyboardInterrupt, SystemExit) as end:
            code = end.code if isinstance(end, SystemExit) else INTERRUPTED
            self._tell_error("interrupted", f"Interrupted. {self._way_on()}")
            raise click.exceptions.Exit(code if isinstance(code, int) else FAILED) from end
        except _Stopped as stopped:
            raise self._failed(stopped.why) from stopped.why
        except (click.ClickException, CrewliteError) as error:
            raise self._failed(error) from error

    def kickoff(
        self,
        definition: Runnable,
        *,
        inputs: Mapping[str, Any] | None = None,
        message: str | None = None,
        run_id: str | None = None,
        source: CheckpointConfig | None = None,
        target: str | None = None,
    ) -> None:
        """Kick off and print the result. `target` is what the definition was found by."""
        if self.manner.model:
            definition = on_model(definition, self.manner.model)
        self._look_ahead(definition, source, target)
        options: dict[str, Any] = {"run_id": run_id, "from_checkpoint": source}
        options |= {"answers": self.manner.answers, "rerun": self.manner.rerun}
        shows = stream.told(self._out) if self.manner.as_json else watched()
        try:
            with shows, followed(self.progress):
                asked = message if isinstance(definition, Agent) else inputs
                result = definition.kickoff(asked, **options)  # type: ignore[arg-type]
        except CrewliteError:
            raise
        except Exception as error:  # the border: what a model or a callback of the user raised has ended the run
            raise _Stopped(error) from error
        if result.durability == "degraded":
            aside("Warning: not everything of this run could be saved.")
        self.answer(result.raw, result.run_id, result.token_usage.model_dump(), result.durability)

    def answer(self, raw: str, run_id: str | None, usage: dict[str, Any], durability: str | None) -> None:
        """Print an answer, as the only thing on stdout."""
        if self.manner.as_json:
            told = {"type": "result", "run_id": run_id, "raw": raw, "usage": usage, "durability": durability}
            return click.echo(json.dumps(told), file=self._out)
        if self._out.isatty():
            console = rich.Console(file=self._out)
            raw = "\n".join(printable(line.replace("\t", "    "), console) for line in raw.split("\n"))
        encoding = getattr(self._out, "encoding", None) or "utf-8"
        return click.echo(raw.encode(encoding, "backslashreplace").decode(encoding), file=self._out)

    def branch(self, run_id: str, branch: str) -> None:
        """Print the name of a branch that was made."""
        told = {"type": "branch", "run_id": run_id, "branch": branch}
        click.echo(json.dumps(told) if self.manner.as_json else f"{run_id}/{branch}", file=self._out)

    def say(self, text: str) -> None:
        """Tell people something beside the answer."""
        if not self.manner.as_json:
            aside(text)

    def _look_ahead(self, definition: Runnable, source: CheckpointConfig | None, target: str | None) -> None:
        """See whether and how the run can be gone on with, should it be cut."""
        own, kind = definition.checkpoint, "agent" if isinstance(definition, Agent) else "crew"
        provider = own.provider if isinstance(own, CheckpointConfig) and source is None else None
        if isinstance(provider, InMemoryProvider):
            self._unsaved = f"Nothing is left of it: the {kind} keeps its record in memory."
        elif own is False and source is None:
            self._unsaved = f"Nothing was saved: the {kind} has checkpoint=False."
            self.say(f"Nothing of this run will be saved: the {kind} has checkpoint=False.")
        elif target and not isinstance(provider, JsonProvider | SqliteProvider | None):
            self._instead = target

    def _way_on(self) -> str:
        """How to go on, in words of the command line."""
        progress = self.progress
        if progress.run_id is None:
            return "Nothing was begun."
        if self._unsaved or progress.location is None:
            return self._unsaved or "Nothing was saved."
        ref = progress.run_id if progress.branch == "main" else f"{progress.run_id}/{progress.branch}"
        if self._instead:
            words = ["crewlite", "run", self._instead, "--run-id", progress.run_id]
            return f"To go on: {shell_line(words)}"
        return f"To go on: {self._placed().line('resume', ref)}"

    def _placed(self) -> Again:
        return Again(self.progress.location or self.again.location, self.again.target, self.again.model)

    def _failed(self, error: Exception) -> click.ClickException:
        """What ends the command after an error."""
        if isinstance(error, click.ClickException):
            text, code = error.message, "usage" if isinstance(error, click.UsageError) else "failed"
        else:
            ref = self.progress.run_id
            if ref and self.progress.branch != "main":
                ref = f"{ref}/{self.progress.branch}"
            text, code = said(error, ref, self._placed()), getattr(error, "code", "failed")
            if self.progress.run_id and not isinstance(error, InDoubt):
                text = f"{text.rstrip()} {'' if text.rstrip().endswith('.') else '- '}{self._way_on()}"
        kind = Waits if isinstance(error, InDoubt) else Misses if isinstance(error, MissingInput) else Failed
        failed = kind(text)
        if self.manner.as_json:
            self._tell_error(code if isinstance(code, str) else "failed", text)
        return failed

    def _tell_error(self, code: str, text: str) -> None:
        if self.manner.as_json:
            stream.Stream(self._out).tell({"type": "error", "code": code, "message": text})


class Waits(Failed):
    """The run waits for somebody to settle a call in doubt."""

    exit_code = WAITS


class Misses(Failed):
    """An input that the crew asks for was not given."""

    exit_code = USAGE


class _Stopped(Exception):
    """A run was ended by an error that is not crewlite's."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


def _outer_json() -> bool:
    """Whether --json was given to the group."""
    parent = click.get_current_context().parent
    return bool(parent and parent.params.get("as_json"))


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the run as Ctrl-C does, with the status that shells give to them.

    Raising SystemExit is all there is to do: whoever waits for a run leaves it in order then. Ctrl-Z stops it as ever.
    """
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name, act in (("SIGTERM", _end), ("SIGHUP", _end), ("SIGTSTP", _stand_still)):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # not if it is to be ignored
                before[number] = signal.signal(number, act)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _stand_still(number: int, frame: FrameType | None) -> None:
    """Ctrl-Z: leave a tidy terminal to the shell."""
    with put_away():
        handler = signal.signal(number, signal.SIG_DFL)  # not always this one: a run may listen
        signal.raise_signal(number)  # returns when the process is continued
        signal.signal(number, handler)
