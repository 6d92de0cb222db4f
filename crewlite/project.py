"""Stands for CrewAI's module of decorators for crews in YAML. Importing a name from it says what to write instead."""

from crewlite.coming_from import missing_import


def __getattr__(name: str) -> None:
    if not name.startswith("__"):
        raise missing_import("crewlite.project", name) or missing_import("crewlite", "project") or ImportError(name)
    raise AttributeError(name)
