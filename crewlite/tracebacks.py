"""Tracebacks as users read them: their own calls and code, and which step failed, without crewlite's frames in between.

What stands between the code that asks for a step and the code of that step says nothing about a mistake in either. An
error of crewlite's tree says what to do, so where it was raised is enough. A mistake of crewlite's own, which is an
error that none of the user's code raised, keeps every frame.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType

from crewlite.errors import CrewliteError

_WHERE = "In step "
_OURS = "crewlite"
_STAND_INS = "crewlite.testing"  # models and tools of tests, in the place of the user's
_CARRIERS = {"asyncio", "concurrent", "contextlib", "threading"}  # what crewlite waits with
_LIBRARIES = sys.stdlib_module_names | {"pydantic", "blinker", "sqlite_utils", "jinja2", "jsonschema", "litellm"}


class shortened:  # noqa: N801 - read as a word: with shortened()
    """Leave the frames of crewlite out of an exception that leaves the block, that of the block itself included."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, cls: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if isinstance(error, Exception):
            shorten(error)


def shorten(error: BaseException) -> None:
    """Leave crewlite's frames out of the traceback of an error, and of those that led to it."""
    for one in _with_causes(error):
        one.with_traceback(_short(one))


def name_step(error: BaseException, address: str) -> None:
    """Add the address of the step that failed as a note. The innermost step is told, and once."""
    if address and not any(_is_told(one) for one in _with_causes(error, contexts=False)):
        with contextlib.suppress(AttributeError, TypeError):  # a frozen one, or one whose notes are no list
            error.add_note(f"{_WHERE}{address}")


def text(error: BaseException) -> str:
    """The traceback of an error, as a program would print it."""
    shorten(error)
    return "".join(traceback.format_exception(error))


def _is_told(error: BaseException) -> bool:
    return any(str(note).startswith(_WHERE) for note in getattr(error, "__notes__", ()))


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
    homes = [_home(frame) for frame in frames]
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
    """From which frame on all are kept, as crewlite, or a library that it called, raised the error there."""
    behind_user = len(homes) - homes[::-1].index("user") if "user" in homes else 0
    if _OURS not in homes[behind_user:]:
        return len(homes)
    return len(homes) - 1 - homes[::-1].index(_OURS) if isinstance(error, CrewliteError) else behind_user


def _frames(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next


def _home(tb: TracebackType) -> str:
    """Whose code a frame runs: crewlite, a carrier, a library, or user."""
    module = str(tb.tb_frame.f_globals.get("__name__", ""))
    top = module.partition(".")[0]
    if top == _OURS:
        return "user" if module.startswith(_STAND_INS) else _OURS
    if top in _CARRIERS:
        return "carrier"
    return "library" if top in _LIBRARIES else "user"
