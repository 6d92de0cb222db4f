"""Ears for a fuzzer: what the interpreter is about to do, and what is logged."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Watch:
    """Hears what the interpreter is about to do, and remembers what damaged data must never lead to."""

    def __init__(self, root: Path) -> None:
        self.root, self.on, self.heard = str(root.resolve()), False, list[str]()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "import":
            bad = args[0] not in sys.modules and not args[0].startswith("tzdata")  # where zoneinfo looks for zones
        elif event == "open":
            flags = args[2] if isinstance(args[2], int) else 0
            bad = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)) and self._is_outside(args[0])
        elif event in (
            "os.rename",
            "os.remove",
            "os.rmdir",
            "os.mkdir",
            "os.truncate",
            "sqlite3.connect",
            "os.symlink",
        ):
            bad = self._is_outside(str(args[0]).removeprefix("file://").partition("?")[0])
        else:
            bad = event in (
                "exec",
                "compile",
                "os.system",
                "subprocess.Popen",
                "socket.connect",
                "os.exec",
                "pickle.find_class",
            )
        if bad:
            self.on = False
            self.heard.append(f"{event} {args!r:.200}\n{''.join(traceback.format_stack(limit=12))}")
            self.on = True

    def _is_outside(self, path: object) -> bool:
        if not isinstance(path, str | bytes):
            return False
        return not os.path.realpath(os.path.dirname(os.fsdecode(path))).startswith(self.root)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.on = True
        try:
            yield
        finally:
            self.on = False


class Warned(logging.Handler):
    """Keeps what was logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
