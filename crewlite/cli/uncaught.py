"""An error of a run that ends a script, as it is printed: the user's own frames, what is recorded, and what to do.

These are at most 15 lines. Programs that catch the error get all of it. A program with a `sys.excepthook` of its own
prints it as before, and `CREWLITE_TRACEBACK=full` leaves it to Python.
"""

from __future__ import annotations

import asyncio
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

from crewlite.cli.shell import Again
from crewlite.errors import CrewliteError, Suspended, notes_of, text_of
from crewlite.runtime.kickoffs import left_behind
from crewlite.state.history import History
from crewlite.texts.resuming import branch_ref, in_doubt, to_resume
from crewlite.texts.tracebacks import INTERRUPTED, is_full, is_of_a_run
from crewlite.texts.wording import escaped_lines

_LINES, _TEXT, _NOTES, _CAUSES, _RUNS = 15, 3, 4, 2, 10
"""The lines in all; of the error's text; of its notes; of the errors that led to it; of runs that were cancelled."""
_CUTS = "_crewlite_cuts_a_run"
"""The attribute of an error that has cut a run short, after which how to go on was printed."""
_FOREIGN = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_OURS = str(Path(__file__).parents[1])


def install(cuts: BaseException | None = None) -> None:
    """Print errors of runs that end this program briefly, unless the program prints uncaught errors itself.

    `cuts`: the error that cuts a run short, which may be raised where no code of crewlite runs: in a block that reads
    a stream.
    """
    if cuts is not None:
        setattr(cuts, _CUTS, True)
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print


def _print(cls: type[BaseException], error: BaseException, tb: TracebackType | None) -> None:
    if is_full() or not (lines := brief(error)):
        sys.__excepthook__(cls, error, tb)
    else:
        print(escaped_lines("\n".join(lines)), file=sys.stderr)


def brief(error: BaseException) -> list[str]:
    """Return what to print for an uncaught error; [] for one that is not of a run, which Python prints."""
    if isinstance(error, Suspended):
        return _waits(error)
    if isinstance(error, KeyboardInterrupt):
        return _interrupted(error)
    if not is_of_a_run(error) or isinstance(error, BaseExceptionGroup):
        return []
    ending = [*_cropped(_said(error), _TEXT), *_causes(error)]
    ending += _cropped("\n".join(map(str, notes_of(error))), _NOTES)
    ending.append("(CREWLITE_TRACEBACK=full shows everything.)")
    return ["Traceback (most recent call last):", *_frames(error, _LINES - 1 - len(ending)), *ending]


def _interrupted(error: KeyboardInterrupt) -> list[str]:
    """Return where Ctrl-C has ended a kickoff, and how to go on unless that was said; [] if it has ended no kickoff.

    `asyncio.run` cancels what it runs, so how to go on is said by that cancellation, which comes before the error.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [_where(frame) for frame in frames if _is_own(frame.filename)]
    said = hasattr(error, _CUTS)
    advice = [] if said else _advice(error, error.__context__)
    of_a_run = said or advice or any(frame.filename.startswith(_OURS) for frame in frames)
    return [*advice, *own[-1:], "KeyboardInterrupt"] if of_a_run else []


def _advice(error: BaseException, before: BaseException | None) -> list[str]:
    """Return how to go on, by the notes of Ctrl-C and of the cancellation before it, and by what that has cancelled."""
    by_loop = isinstance(before, asyncio.CancelledError)
    cancelled = left_behind.cancelled() if by_loop else []
    noted = [str(note) for one in (before if by_loop else None, error) if one for note in notes_of(one)]
    notes = [note for note in noted if note.startswith(INTERRUPTED)]
    about_one = any(note.removeprefix(INTERRUPTED) in one for note in notes for one in cancelled)
    if (len(cancelled) > 1 and about_one) or (not notes and cancelled):
        more = [f"and {len(cancelled) - _RUNS} more"] if len(cancelled) > _RUNS else []
        notes = [INTERRUPTED.strip(), *cancelled[:_RUNS], *more]
    return ["", *"\n".join(notes).splitlines()] if notes else []


def _waits(error: Suspended) -> list[str]:
    ref, resume = branch_ref(error.run_id, error.branch), to_resume(error.run_id, error.branch)
    try:
        with History(error.location) as history:
            run = history.run(f"{error.run_id}/{error.branch}")
            waiting, kind = run.waiting, run.definition["kind"]
    except CrewliteError:  # it is kept where only the program itself can read
        return []
    if not waiting:
        return [f"Run {ref!r} has its answers, and is not at work.", f"To go on: kickoff({resume})"]
    given = ", ".join(f"{one.address!r}: ..." for one in waiting)
    doubts = in_doubt(error.in_doubt, resume, kind)
    return [
        f"Run {ref!r} waits for a person, and is no longer at work.",
        *Again(error.location).questions(ref, waiting),
        *([doubts] if doubts else []),
        f"To go on then: kickoff({resume})",
        f"Or answer and go on at once: kickoff({resume}, answers={{{given}}})",
    ]


def _frames(error: BaseException, room: int) -> list[str]:
    """Return the first frame of the user and the last ones, as many as fit, and the frame that raised the error.

    The frame of crewlite that raised an error of its own is left out: the error says what to do.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_own(frame.filename)]
    explained = isinstance(error, CrewliteError) or not frames or frames[-1] in own
    raised = [] if explained else [_where(frames[-1])]
    most = max(1, (room - len(raised)) // 2)
    shown = own if len(own) <= most else [*own[: most > 1], *own[len(own) - most + (most > 1) :]]
    return [line for frame in shown for line in (_where(frame), f"    {frame.line}")] + raised


def _where(frame: traceback.FrameSummary) -> str:
    return f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'


def _is_own(filename: str) -> bool:
    return not filename.startswith((_OURS, *_FOREIGN)) and os.path.isabs(filename)


def _causes(error: BaseException) -> list[str]:
    """Return a line for each error that led to this one."""
    found, seen = list[str](), {id(error)}
    while len(found) < _CAUSES:
        before = error.__context__ if error.__cause__ is None and not error.__suppress_context__ else error.__cause__
        if before is None or id(before) in seen:
            break
        error = before
        seen.add(id(error))
        found += [f"  after {line}" for line in _cropped(_said(error), 1)]
    return found


def _said(error: BaseException) -> str:
    return f"{type(error).__qualname__}: {text_of(error) if isinstance(error, Exception) else error}"


def _cropped(text: str, most: int) -> list[str]:
    lines = text.splitlines()
    return lines if len(lines) <= most else [*lines[: most - 1], f"{lines[most - 1]} ..."]
