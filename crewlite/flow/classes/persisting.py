"""`@persist`, for people who know it from CrewAI: `checkpoint=True`, with the state's id as the name of the run.

crewlite has one way to keep runs, checkpoints. A later kickoff with the id resumes the run or, if that is finished,
begins with its final state.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from crewlite.definitions.keywords import known_keywords
from crewlite.errors import ConfigError
from crewlite.flow.classes.base import Flow
from crewlite.flow.classes.methods import FlowMethod
from crewlite.lazy import lazy
from crewlite.state.config import CheckpointConfig

providers = lazy("crewlite.state.providers")


@known_keywords("@persist")
def persist(persistence: Any = None, verbose: bool = False) -> Any:
    """Keep the runs of a flow: `@persist()` on its class, or on one of its methods, which means the same.

    A kickoff with `inputs={"id": ...}` then continues the run with that id if it is unfinished. If it has finished, a
    new run begins with its final state.

    Args: persistence: Where: a CheckpointConfig, such as SQLiteFlowPersistence makes. None: as `checkpoint=True`.
    verbose: Has no effect. To show the progress, give the flow verbose=True.

    Raises ConfigError for anything else, and for a class that sets another `checkpoint`.
    """
    if isinstance(persistence, FlowMethod) or (callable(persistence) and not _is_store(persistence)):
        return _marked(persistence, True)  # @persist, without parentheses
    if not isinstance(persistence, CheckpointConfig | None):
        raise ConfigError(
            f"@persist({persistence!r}): wanted a CheckpointConfig, or SQLiteFlowPersistence(path). A store of your "
            f"own is a provider: @persist(CheckpointConfig(provider=...))"
        )
    setting = persistence or True
    return lambda marked: _marked(marked, setting)


@known_keywords("SQLiteFlowPersistence")
def SQLiteFlowPersistence(db_path: str | os.PathLike[str] = "./.checkpoints.db") -> CheckpointConfig:  # noqa: N802 - its name in CrewAI
    """Return the configuration for `@persist` that keeps runs in this SQLite database."""
    return CheckpointConfig(location=db_path, provider=providers.SqliteProvider())


def _is_store(given: Any) -> bool:
    """Return whether CrewAI would take this class or object as a store."""
    return not (isinstance(given, type) and issubclass(given, Flow)) and hasattr(given, "save_state")


def _marked(marked: Any, setting: CheckpointConfig | bool) -> Any:
    if isinstance(marked, type):
        if not issubclass(marked, Flow):
            raise ConfigError(
                f"@persist is on {marked.__name__}; wanted a class of flows, class {marked.__name__}(Flow)"
            )
        marked.keep_runs(setting)
        return marked
    return replace(FlowMethod.of(marked, "@persist", {}), persisted=setting)
