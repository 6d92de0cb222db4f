"""The options that several commands have in common, and how their values are read."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from crewlite.cli.checkpoint.where import Asked, Command, options
from crewlite.cli.exits import notice, sees_terminal
from crewlite.errors import EffectsRepeat
from crewlite.state.reading.fitting import Typed

crew_option = click.option(
    "--crew",
    "target",
    metavar="MODULE:ATTRIBUTE",
    help="Where its definition is. [default: crew in [tool.crewlite] of pyproject.toml, else what the record holds]",
)
model_option = click.option("--model", metavar="M", help="Ask this model, whatever the agents have of their own.")
allow_effects_option = click.option(
    "--allow-effects",
    is_flag=True,
    help="Calls with effect='once' may be made again. Without it, a terminal asks.",
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The values of these options."""

    as_json: bool = False
    """Whether to print JSON lines."""
    model: str | None = None
    answers: Mapping[str, Any] | None = None
    rerun: Sequence[str] = ()
    auto_approve: bool | None = None
    wait: bool = False


def run_options(*, rerun: str = "A call in doubt to make again.", **more: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command --model, --answer and --rerun, and the options of `options`.

    The command is called with `chosen` and `asked`. The arguments are lines of help.
    """

    def decorate(function: Command) -> Command:
        @model_option
        @click.option(
            "--answer",
            "answers",
            multiple=True,
            metavar="ADDRESS=VALUE",
            help="The answer to a question, or the result of a call in doubt.",
        )
        @click.option("--rerun", multiple=True, metavar="ADDRESS", help=rerun)
        @click.option("--auto-approve", is_flag=True, help="Approve every call of a tool that requires approval.")
        @click.option("--wait", is_flag=True, help="If a process is at work on the run, wait for its result.")
        @options(json="One JSON line per event, then one with the result.", **more)
        @functools.wraps(function)
        def command(
            asked: Asked,
            model: str | None,
            answers: Sequence[str],
            rerun: Sequence[str],
            auto_approve: bool,
            wait: bool,
            **others: Any,
        ) -> Any:
            given = pairs(answers, "--answer", of="ADDRESS=VALUE")
            for at, value in given.items():
                if isinstance(value, str):
                    given[at] = Typed(value)  # converted to the type that the question wants, or the step returns
            chosen = RunOptions(asked.as_json, model, given or None, rerun, auto_approve or None, wait)
            return function(asked=asked, chosen=chosen, **others)

        return command

    return decorate


def unless_refused(act: Callable[[bool], T], *, allow_effects: bool) -> T:
    """Call `act` with `allow_effects`. At a terminal, list the calls that would be repeated, and ask whether to go on.

    Raises EffectsRepeat if they are not to be repeated.
    """
    try:
        return act(allow_effects)
    except EffectsRepeat as error:
        if not sees_terminal():
            raise
        for effect in error.effects:
            notice(f"may be made again: {effect}")
        if click.confirm("Go on?", err=True):
            return act(True)
        raise


def pairs(
    words: Sequence[str], option: str, *, of: str = "name=text", files: bool = False, typed: bool = False
) -> dict[str, Any]:
    """Return the values of `name=text` and `name:=JSON` by name. Raises UsageError, also for a name given twice.

    With `files`, `=@FILE` reads the text from a file. With `typed`, a text is marked to be converted to the type that
    is wanted in its place. `of` is the first form as an error writes it.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip(":"):
            raise click.UsageError(f"{option} {word!r} is not understood; wanted {of} or {of.partition('=')[0]}:=JSON")
        is_json, name = name.endswith(":"), name.removesuffix(":")
        if name in found:
            raise click.UsageError(
                f"{option} names {name} twice; wanted one value for each {of.partition('=')[0].lower()}"
            )
        if files and value.startswith("@"):
            value = _read(value[1:], option, word)
        if not is_json:
            found[name] = Typed(value) if typed else value
            continue
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"{option} {word!r}: the text after := is no JSON ({error})") from error
    return found


def _read(path: str, option: str, word: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(
            f"{option} {word!r}: the file cannot be read ({error}). To pass a text that begins with @, write it as "
            f'JSON: name:="@text"'
        ) from error
