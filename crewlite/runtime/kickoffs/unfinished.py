"""Find the run that `kickoff(resume=True)` resumes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Mapping
from typing import Any

from crewlite.codec import encode
from crewlite.errors import JournalCorrupt
from crewlite.runtime.kickoffs.root import Root
from crewlite.secrets import Secrets
from crewlite.state.config import CheckpointConfig
from crewlite.state.journal.lineage import find_lineage
from crewlite.state.providers import exists, open_store, provider_for
from crewlite.state.reading.locate import Located

log = logging.getLogger("crewlite.run")


def newest_unfinished(
    root: Root[Any], inputs: Mapping[str, Any], config: CheckpointConfig, secrets: Secrets, passed: Collection[str]
) -> Located | None:
    """Return the newest run of this definition with these inputs that has no result yet; None if there is none.

    Forks and the run ids in `passed` are skipped. Reads the journals of this definition's runs, newest first, up to
    the one found. A run that cannot be read is skipped with a warning.
    """
    provider = provider_for(config.location, config.provider)
    if not exists(config.location, provider):
        return None
    wanted = secrets.mask_data(encode(dict(inputs), "inputs"))
    with contextlib.closing(open_store(provider, config.location)) as store:
        for info in store.branches():
            if info.identity != root.identity or info.base is not None or info.run_id in passed:
                continue
            try:
                record = find_lineage(store, info.run_id, info.branch).record()
            except JournalCorrupt as error:
                log.warning("resume: run %s cannot be read and is skipped: %s", info.run_id, error)
                continue
            if record.seq and not record.finished and not root.changed(record.run, wanted):
                return Located(provider, config.location, info.run_id, info.branch)
    return None
