"""The `crewlite` command and its group `checkpoint`: which commands there are, and where each is.

Commands are imported when they are used, so that `--help` and completion are fast.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from crewlite import __version__
from crewlite.cli.checkpoint.where import Asked, options
from crewlite.cli.exits import errors_shown, notice, open_closed_streams
from crewlite.lazy import lazy
from crewlite.texts.wording import listed

commands = lazy("crewlite.coming_from.commands")
listing = lazy("crewlite.cli.checkpoint.listing")
view = lazy("crewlite.tui.verbs")
_LISTED = 3  # commands that a message names
_OTHER_NAMES = {
    "tui": "crewlite checkpoint",
    "compare": "crewlite checkpoint diff",
    "flow": "crewlite run",
    "replay": "crewlite checkpoint fork",
}
"""Words that are no commands, with the command that does what they name. The last two are commands of CrewAI."""
_TO_COMPLETE = {
    "bash": 'eval "$(crewlite completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(crewlite completion zsh)"    # in ~/.zshrc',
    "fish": "crewlite completion fish > ~/.config/fish/completions/crewlite.fish",
}


class LazyGroup(click.Group):
    """A group that knows the place and the line of help of each command before it imports it.

    Args:
        late: For each command name, its place as `module:object` below `crewlite.cli`, and its line of help.
    """

    def __init__(self, *args: Any, late: Mapping[str, tuple[str, str]], **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.late = dict(late)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(self.late)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of this name."""
        if cmd_name in self.late and cmd_name not in self.commands:
            module, _, name = self.late[cmd_name][0].partition(":")
            command: click.Command = getattr(importlib.import_module(f"crewlite.cli.{module}"), name)
            if command.add_help_option:  # click caches its own with the names of the context that first needs it
                command.add_help_option = False
                click.help_option("-h", "--help")(command)
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that was called. Raises UsageError, with the most similar name, if there is none."""
        if args[0] not in self.late:
            below = f"{ctx.command_path} {group} {args[0]}" if (group := self._group_with(ctx, args[0])) else ""
            below = below or self._beside_group(ctx, args[0]) or _OTHER_NAMES.get(args[0], "")
            if not below and (instead := commands.COMMANDS.get(args[0])):
                ctx.fail(f"No such command {args[0]!r}: {instead}")
            if meant := [below] if below else difflib.get_close_matches(args[0], self.late, n=1):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {meant[0]!r}?")
        return super().resolve_command(ctx, args)

    def _beside_group(self, ctx: click.Context, name: str) -> str | None:
        """Return the command of this name that the enclosing group has; None if it has none."""
        around = ctx.parent
        is_there = around is not None and isinstance(around.command, LazyGroup) and name in around.command.late
        return f"{around.command_path} {name}" if around and is_there else None

    def _group_with(self, ctx: click.Context, name: str) -> str | None:
        """Return the group in this one that has a command of this name; None if there is none."""
        groups = ((known, self.get_command(ctx, known)) for known in self.late)
        return next((known for known, group in groups if isinstance(group, LazyGroup) and name in group.late), None)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.late[name][1]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the completions of a word, without importing any command."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=self.late[name][1]) for name in names), *options]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, with its errors printed as one line. One about an option names the commands that have it."""
        open_closed_streams()
        with errors_shown():
            try:
                return super().invoke(ctx)
            except click.NoSuchOption as error:
                others = self._with_option(ctx, error.option_name) if error.ctx and error.ctx.parent is ctx else []
                if not others:
                    raise
                message = f"No such option {error.option_name!r}. It is an option of: {listed(others, _LISTED)}"
                raise click.UsageError(message, error.ctx) from error

    def _with_option(self, ctx: click.Context, option: str) -> list[str]:
        """Return the commands of this group that have an option of this name."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        having = (name for name, one in commands.items() if one and any(option in of.opts for of in one.params))
        return [f"{ctx.command_path} {name}" for name in having]


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    late={
        "checkpoint": ("main:checkpoint", "Look at what is recorded, and care for it."),
        "completion": ("main:completion", "Print the script that completes crewlite in a shell."),
        "create": ("create:create", "Write a small project into a new folder NAME."),
        "demo": ("demo:demo", "Run a crew, kill it half way, let it go on: nothing recorded runs again."),
        "export": ("checkpoint.files:export", "Write a whole run to one file: a page, or JSON."),
        "plot": ("plot:plot", "Draw a flow of methods, or one of its runs, as a page of HTML."),
        "test": ("run:test", "Kick off a crew several times, and have a model score each answer."),
        "train": (
            "run:train",
            "Kick off a crew several times, and write down what its agents learn from feedback on their answers.",
        ),
        "run": ("run:run", "Kick off a crew, an agent or a flow, and print its answer."),
    },
)
@click.version_option(__version__, "-V", "--version", prog_name="crewlite")
def main() -> None:
    """Crews of LLM agents whose runs survive being killed."""


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    late={
        "answer": ("checkpoint.verbs:answer", "Answer a question that a run waits with."),
        "cancel": ("checkpoint.verbs:cancel", "Stop a run, wherever it is at work."),
        "delete": ("checkpoint.maintenance:delete_", "Delete a run with all its branches."),
        "diff": ("checkpoint.files:diff", "Compare two runs, branches or checkpoints."),
        "doctor": ("checkpoint.maintenance:doctor", "Find what is not as it was written, and mend it."),
        "explore": ("exploring:explore", "Fork one place into several variants, and compare them."),
        "export": ("checkpoint.files:export", "Write a whole run to one file: a page, or JSON."),
        "fork": ("going_on:fork", "Begin a branch at a checkpoint, run it, and print its answer."),
        "import": ("checkpoint.files:import_", "Bring in a run that export wrote."),
        "info": ("checkpoint.show:info", "Show one checkpoint, and how to go on from it."),
        "label": (
            "checkpoint.verbs:label",
            "Give a place a name, by which every command takes it: run@label:NAME.",
        ),
        "list": ("checkpoint.listing:list_", "List checkpoints, newest first."),
        "preview": (
            "going_on:preview",
            "Say what a resume or a fork would do: which steps answer from the record, which run, and why.",
        ),
        "prune": ("checkpoint.maintenance:prune", "Take away old checkpoints and old finished runs."),
        "resume": ("going_on:resume", "Go on with a run where it stopped, and print its answer."),
        "rewind": (
            "checkpoint.verbs:rewind",
            "Go back to a place: the run continues from there when it is resumed.",
        ),
        "show": ("checkpoint.show:show", "Show one run: its steps, failed attempts, events."),
        "tail": (
            "checkpoint.tail:tail",
            "Follow a run, whichever process is at work on it: its events, as they are recorded.",
        ),
        "tree": ("checkpoint.listing:tree", "Show runs, their forks and checkpoints as a tree."),
    },
)
@options()
@click.pass_context
def checkpoint(ctx: click.Context, asked: Asked) -> None:
    """Look at what is recorded, and care for it.

    Without a command, at a terminal: a view in which to browse the runs kept here, to resume and to fork them.
    Elsewhere the tree of these runs. Here is ./.checkpoints/ or ./.checkpoints.db unless --location says otherwise.
    """
    if ctx.invoked_subcommand is not None:
        return
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not asked.as_json
    if at_terminal and importlib.util.find_spec("textual"):
        with asked.open() as opened:
            location = opened.location
        view.View(location).run()
    else:
        ctx.invoke(listing.tree)
        if at_terminal:
            notice("To browse these runs in a view, resume and fork them: pip install 'crewlite[tui]'")


@click.command(epilog="\b\n" + "\n".join(_TO_COMPLETE.values()))
@click.argument("shell", type=click.Choice(list(_TO_COMPLETE)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes crewlite in a shell."""
    maker = get_completion_class(shell)
    assert maker is not None
    click.echo(maker(ctx.find_root().command, {}, "crewlite", "_CREWLITE_COMPLETE").source())
