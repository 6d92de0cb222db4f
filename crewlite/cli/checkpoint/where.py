"""Find the location and the ref that the words of a command line mean, open the location, and complete these words.

Completion is fast, and never prints an error.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from crewlite.cli.exits import Failed, notice
from crewlite.cli.shell import DATABASE, DIRECTORY, Again, detected
from crewlite.errors import RefError
from crewlite.ids import SHORT, short
from crewlite.lazy import lazy

if TYPE_CHECKING:
    from crewlite.state.history import History
    from crewlite.state.run_history import RunHistory

_NEWEST = 200  # checkpoints that are completed; a shell must not wait for a large store
_YOUNG = 100_000  # objects between two collections; Python's own limit is 700 to 2,000
Command = Callable[..., Any]
document = lazy("crewlite.cli.checkpoint.document")
history = lazy("crewlite.state.history")
locate = lazy("crewlite.state.reading.locate")


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened location, and the requested ref within it, if there is one."""

    history: History
    location: str
    ref: str | None

    def run(self) -> RunHistory:
        """Return the run that the ref names; without a ref, the newest."""
        return self.history.run(self.ref or "latest")

    def answer(self, **data: object) -> None:
        """Print these data and the location as one JSON document."""
        document.answer({"location": self.location, **data})


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of every command: the location, and whether to print JSON."""

    location: str | None
    as_json: bool

    @contextlib.contextmanager
    def open(self, text: str | None = None) -> Iterator[Opened]:
        """Open the location that `text` names or contains: a location, a ref, or None for the location of the options.

        Raises Failed if no location is found, RefError if the ref names nothing.
        """
        location, ref = self._lead(text)
        with _warnings(), _few_collections(), history.History(location) as opened:
            try:
                yield Opened(opened, location, ref)
            except RefError as error:
                if error.candidates:
                    raise
                raise Failed(f"{error} What there is: {Again(location).line('list')}") from error

    def _lead(self, text: str | None) -> tuple[str, str | None]:
        """Return the location and the ref that a text means."""
        if text is None:
            return location_or_detected(self.location), None
        path, _, part = text.rpartition("#")
        if path and part and os.path.exists(path):
            return path, part
        if locate.means_path(text, self.location or detected(), None):
            if self.location and os.sep not in text:
                raise Failed(
                    f"{self.location} has no run {text!r}. If you mean the file ./{text}, leave out --location"
                )
            return (os.path.dirname(text) or ".", text) if text.endswith(".json") else (text, None)
        if os.path.isdir(text) and (os.sep in text or text.startswith(".") or not self._names_something(text)):
            return text, None
        return location_or_detected(self.location), text

    def _names_something(self, word: str) -> bool:
        """Return whether a word names a run, a branch or a checkpoint. That takes precedence over a directory."""
        try:
            with history.History(location_or_detected(self.location)) as opened:
                runs, checkpoints = opened.runs(), opened.checkpoints()
        except (Failed, RefError):
            return False
        names = {run.run_id for run in runs} | {run.branch for run in runs if run.run_id == runs[0].run_id}
        return word in names or (len(word) >= SHORT and any(word in one.id for one in checkpoints))


def location_or_detected(given: str | None) -> str:
    """Return the given location, else that of this directory. Raises Failed if there is neither."""
    if found := given or detected():
        earlier = f"{found}.db"  # earlier releases added this suffix to a database without one
        return earlier if not os.path.exists(found) and os.path.exists(earlier) else found
    raise Failed(
        f"no checkpoints here: there is neither {DIRECTORY}/ nor {DATABASE} in {os.getcwd()}. Change to the directory "
        f"in which the run was kicked off, or name its store: --location PATH."
    )


def location_of(ctx: click.Context) -> str | None:
    """Return the --location of a command, or of the group that it was called through."""
    location: str | None = _own_or_outer(ctx, "location")
    return location


def options(
    *,
    location: str = "Directory or database. [default: the one of this directory]",
    json: str = "Answer with one JSON document.",
) -> Callable[[Command], Command]:
    """Return a decorator that gives a command --location and --json, with these lines of help, as argument `asked`."""

    def decorate(function: Command) -> Command:
        @click.option("--location", metavar="PATH", help=location)
        @click.option("--json", "as_json", is_flag=True, help=json)
        @functools.wraps(function)
        def command(location: str | None, as_json: bool, **fields: Any) -> Any:
            ctx = click.get_current_context()
            return function(asked=Asked(location_of(ctx), bool(_own_or_outer(ctx, "as_json"))), **fields)

        return command

    return decorate


def ref_argument(name: str, metavar: str, *, required: bool = False) -> Callable[[Command], Command]:
    """Return a decorator for an argument that takes a ref, with completion."""
    return click.argument(name, metavar=metavar, required=required, shell_complete=refs)


def refs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a ref: `shell_complete=refs`."""
    if incomplete.startswith((".", os.sep, "~")):
        return [CompletionItem(incomplete, type="file")]
    return _completed(ctx, incomplete, _refs)


def questions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the address of a question that the run REF waits with: `shell_complete=questions`."""
    ref = ctx.params.get("ref") or "latest"
    return _completed(ctx, incomplete, lambda found: {one.address: one.question for one in found.run(ref).waiting})


def _completed(
    ctx: click.Context, incomplete: str, names: Callable[[History], Mapping[str, str]]
) -> list[CompletionItem]:
    """Return the names that begin like this, of those at the location, each with its line of help."""
    logging.getLogger("crewlite").addHandler(logging.NullHandler())  # else a warning would appear in the typed line
    with contextlib.suppress(Exception):  # an error is printed when the command is run, not while it is typed
        with history.History(location_or_detected(location_of(ctx))) as opened:
            items = _items(names(opened))
        return [item for item in items if item.value.startswith(incomplete)]
    return []


def _refs(opened: History) -> dict[str, str]:
    runs = opened.runs()
    names = {run.run_id: "run" for run in runs}
    names |= {f"{run.run_id}/{run.branch}": "branch" for run in runs if run.branch != "main"}
    found = opened.checkpoints(limit=_NEWEST)
    ids = {short(one.id): f"{one.run_id}/{one.branch} {one.address or one.trigger}" for one in found}
    return {**names, "latest": "the newest run", **ids}


def _items(found: Mapping[str, str]) -> list[CompletionItem]:
    """Return printable values, each with one printable line of help: a shell reads and shows them line by line."""
    seen = {name: "".join(c for c in about.partition("\n")[0] if c.isprintable()) for name, about in found.items()}
    return [CompletionItem(name, help=about) for name, about in seen.items() if name.isprintable()]


def _own_or_outer(ctx: click.Context, name: str) -> Any:
    at: click.Context | None = ctx
    while at is not None:
        if value := at.params.get(name):
            return value
        at = at.parent
    return None


@contextlib.contextmanager
def _few_collections() -> Iterator[None]:
    """Let Python look for garbage less often: a journal becomes a hundred thousand objects, and none is garbage."""
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextlib.contextmanager
def _warnings() -> Iterator[None]:
    """Print warnings about the store in the block, except those about recorded classes that are not loaded here."""
    log, codec = logging.getLogger("crewlite"), logging.getLogger("crewlite.codec")
    before = log.propagate, codec.level
    teller = _Teller(logging.WARNING)
    log.addHandler(teller)
    log.propagate = False
    codec.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.removeHandler(teller)
        log.propagate = before[0]
        codec.setLevel(before[1])


class _Teller(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._told = set[str]()
        """The warnings so far: a command may read a run again, and need not repeat what it has said about it."""

    def emit(self, record: logging.LogRecord) -> None:
        if (text := record.getMessage()) not in self._told:
            self._told.add(text)
            notice(f"Warning: {text}")
