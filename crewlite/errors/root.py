"""What every error of crewlite is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from crewlite.lazy import difflib

_SAME_WORD, _SAME_NAME = 0.65, 0.85
"""How alike two words, or two names, are, from 0 to 1, if one is taken for a misspelling of the other."""


class CrewliteError(Exception):
    """The root of the tree. `code` is stable across releases."""

    code: ClassVar[str] = "crewlite"
    ends_run: bool = False
    """Raised inside a tool, it ends the run: the model cannot mend it. Any other error is told to the model."""


def ends_run(error: BaseException) -> bool:
    """Whether an error that a tool raised is for the author of the program, rather than for the model."""
    return isinstance(error, CrewliteError) and error.ends_run


def text_of(error: BaseException) -> str:
    """What an error says, also if its own `__str__` fails."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - somebody else's __str__ may raise anything
        return f"(its text cannot be read: {type(failure).__name__})"


def an(word: str) -> str:
    """The word with its article: "an object", "a str"."""
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"


def meant(name: str, known: Iterable[str]) -> str:
    """For a message about a misspelt name: "did you mean 'x'?"; empty where none is like it."""
    close = next((one for one in nearest(name, known) if _is_slip(name, one)), None)
    return f"did you mean {close!r}?" if close else ""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names, those that are spelt most like `name` first."""
    return sorted(known, key=lambda one: -_likeness(name, one))


def _is_slip(name: str, known: str) -> bool:
    """Whether one is the other with a slip of the fingers or another ending, word by word.

    A slip rarely changes the first letter of a word. Names that merely look alike mean different things: `max_rpm` is
    no `max_iter`, and `callbacks` are no `fallbacks`.
    """
    one, other = name.lower().split("_"), known.lower().split("_")
    if sorted("".join(one)) == sorted("".join(other)):
        return True
    if len(one) == len(other):
        return all(_is_like(mine, its, _SAME_WORD) for mine, its in zip(one, other, strict=True))
    return _is_like("".join(one), "".join(other), _SAME_NAME)


def _is_like(one: str, other: str, least: float) -> bool:
    return one[:1] == other[:1] and _likeness(one, other) >= least


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one.lower(), other.lower()).ratio()
