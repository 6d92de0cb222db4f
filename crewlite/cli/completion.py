"""`crewlite completion`: the script that makes a shell complete commands, options and refs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_HOW = {
    "bash": 'eval "$(crewlite completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(crewlite completion zsh)"    # in ~/.zshrc',
    "fish": "crewlite completion fish > ~/.config/fish/completions/crewlite.fish",
}


@click.command(epilog="\b\n" + "\n".join(_HOW.values()))
@click.argument("shell", type=click.Choice(list(_HOW)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes crewlite in a shell."""
    maker = get_completion_class(shell)
    assert maker is not None
    click.echo(maker(ctx.find_root().command, {}, "crewlite", "_CREWLITE_COMPLETE").source())
