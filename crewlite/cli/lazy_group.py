"""A group of commands that are imported when they are used, so that `--help` and completion are fast."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from crewlite.cli.exits import told


class LazyGroup(click.Group):
    """A group that knows the place and the line of help of each command before it imports it.

    Args:
        late: For each command name, its place as `module:object`, and its line of help.
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
            command: click.Command = getattr(importlib.import_module(module), name)
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
            if meant := [below] if below else difflib.get_close_matches(args[0], self.late, n=1):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {meant[0]!r}?")
        return super().resolve_command(ctx, args)

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
        """Run the command, with its errors printed as one line."""
        with told():
            return super().invoke(ctx)
