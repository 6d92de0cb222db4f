"""Tracebacks as users read them: their own calls and code, and the failed step, without crewlite's frames in between.

The frames between the code that requests a step and the code of that step do not help to find a mistake in either. A
CrewliteError says what to do, so it keeps only the frame that raised it. Any other error that no code of the user
raised is a mistake in crewlite or a library, and keeps every frame after the user's last one.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType

from crewlite.errors import CrewliteError, add_note, notes_of, text_of

_WHERE = "In step "
RECORDED = "Recorded: "
"""How the note begins that says what is recorded of a run that has failed."""
INTERRUPTED = "Interrupted. "
"""How the advice begins that says how to go on with a run that Ctrl-C, or a cancellation, has ended."""
_OURS = "crewlite"
_STAND_INS = "crewlite.testing"  # models and tools for tests, which count as code of the user
_CARRIERS = {"asyncio", "concurrent", "contextlib", "threading"}  # modules through which crewlite calls other code
_LIBRARIES = sys.stdlib_module_names | {"pydantic", "sqlite_utils", "jinja2", "jsonschema", "litellm"}


class shortened:  # noqa: N801 - read as a word: with shortened()
    """Remove the frames of crewlite, also that of the block itself, from an exception that leaves the block."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, cls: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if isinstance(error, Exception):
            shorten(error)


def shorten(error: BaseException) -> None:
    """Remove crewlite's frames from the traceback of an error, and of its causes and contexts.

    `CREWLITE_TRACEBACK=full` in the environment keeps them.
    """
    if is_full():
        return
    for one in _with_causes(error):
        one.with_traceback(_short(one))


def is_full() -> bool:
    """Return whether the user wants tracebacks with all frames."""
    return os.environ.get("CREWLITE_TRACEBACK") == "full"


def is_of_a_run(error: BaseException) -> bool:
    """Return whether a note says that this error has ended a run, or in which step it was raised."""
    return any(str(note).startswith((_WHERE, RECORDED)) for note in notes_of(error))


def name_step(error: BaseException, address: str) -> None:
    """Add the address of the failed step to an error as a note, unless a step inside has added its own."""
    if address and not any(_is_told(one) for one in _with_causes(error, contexts=False)):
        add_note(error, f"{_WHERE}{address}")


def text(error: BaseException) -> str:
    """Return the shortened traceback of an error, as Python would print it.

    If Python cannot format it, the text says so: from Python 3.15 on, that may import modules, which takes a free file.
    """
    shorten(error)
    try:
        return "".join(traceback.format_exception(error))
    except (ImportError, OSError) as failure:
        return f"{type(error).__qualname__}: {text_of(error)}\n(its traceback cannot be formatted: {failure})\n"


def users_place(frame: FrameType | None) -> str:
    """Return the user's code that runs in a stack of which this is the innermost frame: its file, line and function."""
    while frame is not None and _home(frame) != "user":
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}" if frame else "Other code"


def _is_told(error: BaseException) -> bool:
    return any(str(note).startswith(_WHERE) for note in notes_of(error))


def _with_causes(error: BaseException, *, contexts: bool = True) -> Iterator[BaseException]:
    seen, todo = set[int](), [error]
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        before = (one.__cause__, one.__context__ if contexts else None, *inner)
        todo += [other for other in before if other is not None]


def _short(error: BaseException) -> TracebackType | None:
    frames = list(_frames(error.__traceback__))
    homes = [_home(frame.tb_frame) for frame in frames]
    if _OURS not in homes:
        return error.__traceback__
    whole = _raised_in(homes, error)
    kept, dropping = list[TracebackType](), False
    for at, (frame, home) in enumerate(zip(frames, homes, strict=True)):
        dropping = home == _OURS or (dropping and home == "carrier")
        if not dropping or at >= whole:
            kept.append(frame)
    made: TracebackType | None = None
    for frame in reversed(kept):
        made = TracebackType(made, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return made


def _raised_in(homes: list[str], error: BaseException) -> int:
    """Return the index from which on all frames are kept, as crewlite or a library that it called raised the error.

    Returns the number of frames if code of the user raised it.
    """
    behind_user = len(homes) - homes[::-1].index("user") if "user" in homes else 0
    if _OURS not in homes[behind_user:]:
        return len(homes)
    return len(homes) - 1 - homes[::-1].index(_OURS) if isinstance(error, CrewliteError) else behind_user


def _frames(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next


def _home(frame: FrameType) -> str:
    """Return whose code a frame runs: "crewlite", "carrier", "library" or "user"."""
    module = str(frame.f_globals.get("__name__", ""))
    top = module.partition(".")[0]
    if top == _OURS:
        return "user" if module.startswith(_STAND_INS) else _OURS
    if top in _CARRIERS:
        return "carrier"
    return "library" if top in _LIBRARIES else "user"
