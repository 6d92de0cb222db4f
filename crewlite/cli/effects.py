"""Ask before calls that are declared `effect="once"` are made again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import click

from crewlite.cli.exits import notice
from crewlite.errors import EffectsRepeat

T = TypeVar("T")
OPTION = "Calls with effect='once' may be made again. Without it, a terminal asks."


def unless_refused(act: Callable[[bool], T], *, allow_effects: bool) -> T:
    """Call `act` with `allow_effects`. At a terminal, list what would be repeated, and ask whether to go on.

    Raises EffectsRepeat if it is not to be repeated.
    """
    try:
        return act(allow_effects)
    except EffectsRepeat as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        for effect in error.effects:
            notice(f"may be made again: {effect}")
        if click.confirm("Go on?", err=True):
            return act(True)
        raise
