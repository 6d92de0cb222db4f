"""Where CrewAI has its decorators for crews out of YAML. There are none here, which is told to who imports one."""

from crewlite.coming_from import missing_import


def __getattr__(name: str) -> None:
    if not name.startswith("__"):
        raise missing_import("crewlite.project", name) or missing_import("crewlite", "project") or ImportError(name)
    raise AttributeError(name)
