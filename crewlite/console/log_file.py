"""The file that `output_log_file` names: a line for each important event of the runs of a crew, or all as JSON."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

from crewlite.cli.output import as_data
from crewlite.console.progress import is_of, line_of
from crewlite.errors import ConfigError
from crewlite.events.base import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.texts.logs import logger
from crewlite.texts.wording import escaped

log = logger("crewlite.run")


@contextlib.contextmanager
def written(path: str, run_id: Callable[[], str | None], address: Callable[[], str]) -> Iterator[None]:
    """Append the events of one kickoff to a file during the block: as JSON lines if its name ends in `.json`.

    Raises ConfigError if the file cannot be opened. A line that cannot be written later is left out, with a warning.
    """
    try:
        file = _File(path, encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise ConfigError(
            f"output_log_file is {path!r}, which cannot be written ({error}); wanted a file that can be written"
        ) from error
    file.setFormatter(logging.Formatter("%(message)s" if path.endswith(".json") else "%(asctime)s %(message)s"))

    def hear(source: object, event: BaseEvent, state: Any) -> None:
        if is_of(run_id, address, event) and (text := _text(path, event, state, address())):
            file.handle(logging.LogRecord("crewlite.run", logging.INFO, "", 0, text, None, None))

    try:
        with event_bus.on(BaseEvent, hear):
            yield
    finally:
        with contextlib.suppress(OSError):  # what could not be written before is flushed again
            file.close()


def _text(path: str, event: BaseEvent, state: Any, base: str) -> str:
    if path.endswith(".json"):
        line = json.dumps(as_data(event), ensure_ascii=False)
        return line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)
    said = line_of(event, state.usage_of(base) if state is not None else None, base)
    return f"{event.run_id} {escaped(' '.join(said[1].split()))}" if said else ""


class _File(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name in the standard library
        """Say once that the file cannot be written; the run goes on without it."""
        self.addFilter(lambda record: False)
        log.warning("output_log_file %s cannot be written any more; the run goes on", self.baseFilename, exc_info=True)
