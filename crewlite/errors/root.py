"""The root of all errors of crewlite, and helpers for error messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from crewlite.lazy import difflib

_SAME_WORD, _SAME_NAME = 0.65, 0.85
"""The similarity, from 0 to 1, from which a word, or a name, counts as a misspelling of another one."""


class CrewliteError(Exception):
    """The root of the tree. `code` is stable across releases."""

    code: ClassVar[str] = "crewlite"
    ends_run: bool = False
    """Whether the error ends the run if a tool raises it, as the model cannot correct it. All other errors of tools are
    reported to the model."""


def ends_run(error: BaseException) -> bool:
    """Return whether an error that a tool raised is for the author of the program, rather than for the model."""
    return isinstance(error, CrewliteError) and error.ends_run


def text_of(error: BaseException) -> str:
    """Return the text of an error, also if its own `__str__` raises."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - somebody else's __str__ may raise anything
        return f"(its text cannot be read: {type(failure).__name__})"


def an(word: str) -> str:
    """Return the word with its article: "an object", "a str"."""
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"


def meant(name: str, known: Iterable[str]) -> str:
    """Return the hint "did you mean 'x'?" about a misspelt name; "" if no known name is similar."""
    close = next((one for one in nearest(name, known) if _is_slip(name, one)), None)
    return f"did you mean {close!r}?" if close else ""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names, sorted by similarity to `name`, the most similar first."""
    return sorted(known, key=lambda one: -_likeness(name, one))


def _is_slip(name: str, known: str) -> bool:
    """Return whether two names differ only by typing errors or other endings, compared word by word.

    A typing error rarely changes the first letter of a word. Names that merely look alike mean different things:
    `max_rpm` is not `max_iter`, and `callbacks` is not `fallbacks`.
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
