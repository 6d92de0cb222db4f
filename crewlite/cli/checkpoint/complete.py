"""Shell completion of runs, branches, short ids and questions. It is fast, and never prints an error."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping

from click.shell_completion import CompletionItem

from crewlite.cli.locations import location_or_detected
from crewlite.ids import short
from crewlite.lazy import lazy

history = lazy("crewlite.state.history")

_NEWEST = 200  # checkpoints; a shell must not wait for a large store


def complete_ref(location: str | None, incomplete: str) -> list[CompletionItem]:
    """Return the refs that begin like this at a location; None is the location of this directory."""
    if incomplete.startswith((".", os.sep, "~")):
        return [CompletionItem(incomplete, type="file")]
    with contextlib.suppress(Exception):  # an error is printed when the command is run, not while it is typed
        return [item for item in _refs(location) if item.value.startswith(incomplete)]
    return []


def complete_question(location: str | None, ref: str | None, incomplete: str) -> list[CompletionItem]:
    """Return the addresses of the questions that a run waits with."""
    with contextlib.suppress(Exception):  # as above
        logging.getLogger("crewlite").addHandler(logging.NullHandler())
        with history.History(location_or_detected(location)) as opened:
            waiting = opened.run(ref or "latest").waiting
        items = _items({one.address: one.question for one in waiting})
        return [item for item in items if item.value.startswith(incomplete)]
    return []


def _refs(location: str | None) -> list[CompletionItem]:
    logging.getLogger("crewlite").addHandler(logging.NullHandler())  # else a warning would appear in the typed line
    with history.History(location_or_detected(location)) as opened:
        runs = opened.runs()
        found = opened.checkpoints(limit=_NEWEST)
    names = {run.run_id: "run" for run in runs}
    names |= {f"{run.run_id}/{run.branch}": "branch" for run in runs if run.branch != "main"}
    ids = {short(one.id): f"{one.run_id}/{one.branch} {one.address or one.trigger}" for one in found}
    found = {**names, "latest": "the newest run", **ids}
    return _items(found)


def _items(found: Mapping[str, str]) -> list[CompletionItem]:
    """Return printable values, each with one printable line of help: a shell reads and shows them line by line."""
    seen = {name: "".join(c for c in about.partition("\n")[0] if c.isprintable()) for name, about in found.items()}
    return [CompletionItem(name, help=about) for name, about in seen.items() if name.isprintable()]
