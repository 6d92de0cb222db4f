"""Names of CrewAI and others that crewlite lacks, and what to write instead: the errors for who asks for one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from crewlite.coming_from.settings import why_not

PAGE = "docs/crewai.md"
"""The page of the documentation that tells it in full."""
SETTINGS_PAGE = "docs/crewai-names.md"
"""The page with the table of settings."""
VERBS_PAGE = "docs/coming-from.md"
"""The page about other frameworks."""
_PACKAGES = (
    *("crewlite", "crewlite.project", "crewlite.flow", "crewlite.tools", "crewlite.knowledge", "crewlite.state"),
    "crewlite.events",
)
"""Where names of CrewAI are that crewlite has, too."""
_OF_EVERY_RESULT = ("raw", "pydantic", "token_usage", "own_usage", "run_id", "drifted", "durability")
_OF_RESULTS = {
    "Crew": (*_OF_EVERY_RESULT, "json_dict", "tasks_output", "to_dict"),
    "Agent": (*_OF_EVERY_RESULT, "agent_role", "turn", "usage_metrics"),
}
"""Attributes of what a kickoff returns, which is looked for in the definition where a fork was not kicked off."""


class Hinting:
    """An object that says what to write instead of an attribute of CrewAI that it lacks."""

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if not hasattr(kind, name) and (instead := instead_of(kind, name)):
                raise AttributeError(f"{kind.__name__} has no {name!r}: {instead}")
            # the next class's, such as pydantic's; else that which raises the error with which it was not found
            return getattr(super(), "__getattr__", self.__getattribute__)(name)


def missing_import(module: str, name: str) -> ImportError | None:
    """Build the error for a name of another framework that a module of crewlite lacks; None for any other name.

    It is an ImportError, because `from crewlite import ...` replaces the text of an AttributeError.
    """
    if name.startswith("_"):
        return None
    if instead := _names("others").IMPORTS.get(name):
        return ImportError(f"{module} has no {name!r}: {instead} ({VERBS_PAGE})")
    instead = _first(_names().IMPORTS, name, name.startswith)
    if instead is None:
        homes = (one for one in _PACKAGES if one != module and name in importlib.import_module(one).__all__)
        instead = next((f"from {home} import {name}" for home in homes), None)
    return ImportError(f"{module} has no {name!r}: {instead} ({PAGE})") if instead else None


def missing_module(name: str) -> ImportError | None:
    """Build the error for a module of CrewAI that crewlite lacks; None for any other module.

    `from package import name` looks for a module too, so it may also be a name that the package lacks.
    """
    path = name.removeprefix("crewlite.")
    instead = _first(_names().MODULES, path, lambda above: path.startswith(f"{above}."))
    if instead:
        return ModuleNotFoundError(f"There is no module {name!r}: {instead} ({PAGE})", name=name)
    package, _, last = name.rpartition(".")
    return missing_import(package, last)


def _first(texts: Mapping[str, str], name: str, covers: Callable[[str], bool]) -> str | None:
    """Return what the longest of these names says that is `name`, or covers it."""
    return texts.get(name) or next((texts[one] for one in sorted(texts, key=len, reverse=True) if covers(one)), None)


def instead_of(kind: type, attribute: str) -> str | None:
    """Return what to write instead of a method or field of CrewAI or of a result; None for any other attribute."""
    if attribute.startswith("_"):
        return None
    classes = [cls.__name__ for cls in kind.__mro__]
    if any(attribute in _OF_RESULTS.get(name, ()) for name in classes):
        return f"it is of a result: kickoff().{attribute}, and of a fork: fork(ref).kickoff().{attribute} ({PAGE})"
    members = _names().MEMBERS
    instead = next((members[name][attribute] for name in classes if attribute in members.get(name, ())), None)
    if instead:
        return f"{instead} ({PAGE})"
    if "Runnable" in classes and (instead := _names("others").VERBS.get(attribute)):
        return f"{instead} ({VERBS_PAGE})"
    setting = why_not(classes, attribute)
    return f"{setting} ({SETTINGS_PAGE})" if setting else None


def _names(of: str = "names") -> ModuleType:
    """Return the tables, which are imported when a name is first missing: a program that works needs none of them."""
    return importlib.import_module(f"crewlite.coming_from.{of}")
