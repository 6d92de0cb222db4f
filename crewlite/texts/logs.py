"""The loggers of crewlite. What they say holds texts of models, tools and files, so control characters are escaped.

Otherwise such a text could forge a line of a log, or control the terminal that shows it.
"""

from __future__ import annotations

import logging

from crewlite.texts.wording import escaped

_TRACEBACKS = logging.Formatter()


def logger(name: str) -> logging.Logger:
    """Return the logger of this name, each message of which is one printable line.

    Formatters show an error (`exc_info`) as it is; `extra={"traceback": text}` has them show this text instead.
    """
    found = logging.getLogger(name)
    found.addFilter(_escape)  # once: the same filter is not added again
    return found


def _escape(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    if not text.isprintable():
        record.msg, record.args = escaped(text), None
    masked = getattr(record, "traceback", None)
    if traceback := masked or (_TRACEBACKS.formatException(record.exc_info) if record.exc_info else None):
        shown = escaped(traceback, kept="\n")
        record.exc_text = shown if masked or shown != traceback else record.exc_text
    return True
