"""A group of commands that load when they are used, so that `--help` and completion answer at once."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from crewlite.cli.exits import told


class LazyGroup(click.Group):
    """A group that knows of each command where it is and what it is for, before it loads it.

    Args:
        late: By name: the home of the command as `module:object`, and its line of help.
    """

    def __init__(self, *args: Any, late: Mapping[str, tuple[str, str]], **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.late = dict(late)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted(self.late)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, loaded."""
        if cmd_name in self.late and cmd_name not in self.commands:
            module, _, name = self.late[cmd_name][0].partition(":")
            command: click.Command = getattr(importlib.import_module(module), name)
            command.add_help_option = False  # click's own depends on where it is first asked for
            self.add_command(click.help_option("-h", "--help")(command), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called. Raises UsageError, with what may have been meant."""
        close = difflib.get_close_matches(args[0], self.late, n=1)
        if close and args[0] not in self.late:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands; loads none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.late[name][1]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What the word may become; loads no command."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=self.late[name][1]) for name in names), *options]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its errors are told."""
        with told():
            return super().invoke(ctx)
