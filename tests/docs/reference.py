"""The reference of the public API in docs/reference/: a page for each package that users import from.

A page lists the package's public names; mkdocstrings adds what their docstrings say when the site is built. A name that
several packages offer is described once: in the narrowest.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
NARROW = (
    "crewlite.agent",
    "crewlite.crew",
    "crewlite.events",
    "crewlite.flow",
    "crewlite.knowledge",
    "crewlite.llm",
    "crewlite.project",
    "crewlite.recovery",
    "crewlite.state",
    "crewlite.task",
    "crewlite.testing",
    "crewlite.tools",
)
PACKAGES = ("crewlite", *NARROW)
RETURNED = {  # classes that users meet as results and import from nowhere
    "crewlite.state": (
        "crewlite.state.reading.steps.StepView",
        "crewlite.runtime.exploring.exploration.Exploration",
        "crewlite.runtime.exploring.exploration.Row",
    ),
}


def page_of(package: str) -> str:
    """The whole page."""
    home, own = importlib.import_module(package), _described_here(package)
    lines = [f"# {package}", "", _first_sentence(home), "", "| name | |", "|---|---|"]
    for name in sorted(_names(package), key=str.lower):
        shown = f"`{name}`" if name in own else f"[`{name}`]({_home(name, package)}.md)"
        lines.append(f"| {shown} | {_about(getattr(home, name))} |")
    for path in [*(f"{package}.{name}" for name in own), *RETURNED.get(package, ())]:
        lines += ["", f"::: {path}"]
    return "\n".join(lines) + "\n"


def _names(package: str) -> list[str]:
    return [name for name in importlib.import_module(package).__all__ if not name.startswith("__")]


def _described_here(package: str) -> list[str]:
    return [name for name in _names(package) if _home(name, package) == package]


def _home(name: str, package: str) -> str:
    """The package whose page describes a name: the first of the narrow ones that offers the same object."""
    found = getattr(importlib.import_module(package), name)
    for narrow in NARROW:
        if name in _names(narrow) and getattr(importlib.import_module(narrow), name) is found:
            return narrow
    return package


def _about(found: object) -> str:
    """The first sentence of what a class or function says of itself."""
    if inspect.isclass(found) or inspect.isroutine(found) or inspect.ismodule(found):
        return _first_sentence(found)
    return ""


def _first_sentence(found: object) -> str:
    paragraph = (inspect.getdoc(found) or "").split("\n\n", maxsplit=1)[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


def refresh() -> None:
    """Write every page."""
    REFERENCE.mkdir(exist_ok=True)
    for package in PACKAGES:
        (REFERENCE / f"{package}.md").write_text(page_of(package), encoding="utf-8")
