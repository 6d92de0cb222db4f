"""A flow as a page of HTML: one file without scripts that loads nothing, with its graph and what happened in a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crewlite.errors import ConfigError
from crewlite.flow.classes.graph import Graph
from crewlite.flow.classes.plot.happened import Happened, happened
from crewlite.flow.classes.plot.layout import BOX, laid_out
from crewlite.lazy import lazy
from crewlite.pages.rendering import duration, rendered
from crewlite.state.config import CheckpointConfig
from crewlite.state.history import History
from crewlite.state.run_history import RunHistory
from crewlite.system import disk
from crewlite.system.paths import why_no_path
from crewlite.texts.wording import cut

webbrowser = lazy("webbrowser")

_LETTER = 7.8  # pixels of a letter in a box, on average
_NAME = 30  # characters of a name that a box shows
_MARKS = {"finished": "✓", "failed": "✗", "waiting": "?", "interrupted": "…", "at work": "▸", "not reached": "○"}


def written(
    graph: Graph,
    name: str,
    filename: str | os.PathLike[str],
    run_id: Any,
    setting: CheckpointConfig | bool | None,
    *,
    show: bool,
) -> str:
    """Write the page of a flow. Returns its absolute path. `setting`: where the runs of the flow are recorded."""
    if not graph.methods:
        raise ConfigError(f"flow {name!r} has no methods to plot; mark one with @start()")
    path = _path(filename)
    if run_id is None or isinstance(run_id, RunHistory):
        text = page(graph, name, happened(graph, name, run_id) if run_id else None)
    else:
        config = setting if isinstance(setting, CheckpointConfig) else CheckpointConfig()
        with History(config.location, config.provider) as history:
            text = page(graph, name, happened(graph, name, history.run(run_id)))
    try:
        disk.replace(path, text.encode("utf-8", "replace"), mode=0o600, durable=False)
    except OSError as error:
        problem = error.strerror or error
        raise ConfigError(f"plot: {str(path)!r} cannot be written ({problem}); choose another filename") from error
    if show:
        webbrowser.open(path.as_uri())
    return str(path)


def _path(filename: str | os.PathLike[str]) -> Path:
    """Return the absolute path of the page. Raises ConfigError if no file can be there."""
    given = os.fspath(filename) if isinstance(filename, str | os.PathLike) else ""
    if os.path.basename(given) in ("", os.curdir, os.pardir, "~"):
        raise ConfigError(f"plot: filename is {given or filename!r}; wanted the name of a file, such as 'flow.html'")
    if why := why_no_path(given):
        raise ConfigError(f"plot: filename is {given!r}, which {why}; choose another")
    path = Path(given).expanduser().absolute()
    if path.suffix.lower() not in (".html", ".htm"):
        path = path.with_name(f"{path.name}.html")
    if path.is_dir():
        raise ConfigError(f"plot: {str(path)!r} is a directory; choose another filename")
    if not path.parent.is_dir():
        raise ConfigError(f"plot: there is no directory {str(path.parent)!r} for {path.name!r}; make it first")
    return path


def page(graph: Graph, name: str, found: Happened | None) -> str:
    """Return the page of a flow, and of what has happened in a run of it."""
    boxes = [_box(graph, method, found) for method in graph.methods]
    last = max((row for row, _ in graph.places.values()), default=0)
    rows = {method: graph.places.get(method, (last + 1, 0))[0] - 1 for method in graph.methods}
    widths = {box["name"]: box["width"] for box in boxes}
    joined: dict[tuple[str, str], list[str | None]] = {}
    for source, target, label in graph.edges:
        joined.setdefault((source, target), []).append(label)
    texts = [", ".join(filter(None, labels)) for labels in joined.values()]
    badges = {box["name"] for box in boxes if box["badge"]}
    lines = [(*ends, cut(text, _NAME)) for ends, text in zip(joined, texts, strict=True)]
    layout = laid_out(rows, widths, lines, badges)
    taken = [_passed(found, source, labels) for (source, _), labels in joined.items()]
    possible = {ends for ends, labels in joined.items() if None not in labels and graph.labels[ends[0]] is None}
    drawn = zip(layout.lines, texts, taken, strict=True)
    return rendered(
        "page.html.j2",
        "crewlite/flow/classes/plot",
        name=name,
        boxes=boxes,
        layout=layout,
        lines=sorted(drawn, key=lambda line: line[2]),  # lines of the run are drawn above the others
        possible=possible,
        height=BOX,
        found=found,
        marks=_MARKS,
    )


def _box(graph: Graph, method: str, found: Happened | None) -> dict[str, Any]:
    condition = graph.conditions.get(method)
    badge, kind = cut(condition.brief if condition else "", _NAME), graph.shape(method)
    state = found.state(method) if found else None
    short, about = cut(method, _NAME), _about(method, kind, found)
    return {
        "name": method,
        "short": short,
        "shape": kind,
        "state": state,
        "about": about,
        "badge": badge,
        "condition": str(condition or ""),
        "width": round(max(112.0, _LETTER * max(len(short), len(about) * 0.86, len(badge) * 0.8) + 36)),
    }


def _about(method: str, kind: str, found: Happened | None) -> str:
    """Return the line below a method's name in its box: its kind, or what happened to it in the run."""
    if found is None:
        return kind
    state, starts = found.state(method), found.of.get(method, ())
    if state == "failed":
        return cut(f"✗ {next(one.text for one in starts if one.state == state).partition(':')[0]}", _NAME)
    times = f" {len(starts)}x" if len(starts) > 1 else ""
    took = f" {duration(sum(one.seconds for one in starts))}" if state == "finished" else f" {state}"
    return f"{_MARKS[state]}{times}{took}"


def _passed(found: Happened | None, source: str, labels: Sequence[str | None]) -> bool:
    """Return whether a run has gone along a line. `labels`: those of its edges; None if one has no label."""
    if found is None:
        return False
    finished = any(one.state == "finished" for one in found.of.get(source, ()))
    return finished and (None in labels or not found.labels.get(source, set()).isdisjoint(labels))
