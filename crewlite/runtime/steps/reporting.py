"""Report the progress of code in a run to its watchers. Reports are not recorded, as the code may run again."""

from __future__ import annotations

import math

from crewlite import durable
from crewlite.errors import ConfigError
from crewlite.lazy import lazy
from crewlite.texts.logs import logger

progress_events = lazy("crewlite.events.types.progress_events")
log = logger("crewlite.progress")


def report(message: str = "", *, done: float | None = None, total: float | None = None) -> None:
    """Report progress from inside a flow, a method, a step or a tool, on any thread. Does not wait.

    ```python
    from crewlite import report

    report("3 of 10 pages", done=3, total=10)
    ```

    Handlers hear a `progress_reported` event, a stream yields it, and the live view shows a line. It is not recorded: a
    step that answers from the record reports nothing, code that runs again reports again. Outside a run, and in a step
    that runs in another process, it is logged instead: at level INFO, by the logger `crewlite.progress`.

    Args:
        message: What to show. It may be left out if `done` is given.
        done: How much is done, in any unit.
        total: How much there is to do, in the same unit.

    Raises ConfigError if there is nothing to report, or an argument has the wrong type.
    """
    if not isinstance(message, str):
        raise ConfigError(f"report: message is {message!r}; wanted a text, such as report('3 of 10 pages')")
    for name, number in (("done", done), ("total", total)):
        if number is not None and not _is_number(number):
            raise ConfigError(f"report: {name} is {number!r}; wanted a number, 0 or more")
    if not message and done is None:
        raise ConfigError("report: there is nothing to report; wanted a message, or done=")
    about = {"message": message, "done": done, "total": total}
    scope, event = durable.scope(), progress_events.ProgressReportedEvent
    if scope.run_id and not scope.hears(event):
        return
    if not scope.tell(event, about):
        log.info("%s", event(**about).text)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
