"""The root of all errors of crewlite, and helpers for error messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from crewlite.coming_from.settings import same_here
from crewlite.texts.wording import common_start, without_middle

_SHORT, _LONG = 3, 7
"""The letters from which one, and from which two, typing errors in a word are likely."""
_STEM, _ENDING = 4, 3
"""The letters that words of one stem share at least, and those that may follow."""


class CrewliteError(Exception):
    """The root of the tree. `code` is stable across releases. Of a long line of the message, the middle is left out."""

    code: ClassVar[str] = "crewlite"
    ends_run: bool = False
    """Whether the error ends the run if a tool raises it, as the model cannot correct it. All other errors of tools are
    reported to the model."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_middle(one) if isinstance(one, str) else one for one in args))


def ends_run(error: BaseException) -> bool:
    """Return whether an error that a tool raised is for the author of the program, rather than for the model."""
    return isinstance(error, CrewliteError) and error.ends_run


def meant(name: str, known: Iterable[str]) -> str:
    """Return the hint "did you mean 'x'?" about a misspelt name; "" if no known name is similar."""
    return did_you_mean(next((one for one in nearest(name, known) if _is_slip(name, one)), None))


def meant_setting(name: str, known: Iterable[str]) -> str:
    """Do the same for a setting of a definition, also for one that other frameworks call otherwise."""
    settings = tuple(known)
    return meant(name, settings) or did_you_mean(same_here(name, settings))


def did_you_mean(close: str | None) -> str:
    """Return the hint about a name that may have been meant; "" for None."""
    return f"did you mean {close!r}?" if close else ""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names, sorted by similarity to `name`, the most similar first."""
    import difflib  # only a mistake needs it

    return sorted(known, key=lambda one: -difflib.SequenceMatcher(None, name.lower(), one.lower()).ratio())


def _is_slip(name: str, known: str) -> bool:
    """Return whether two names differ only by typing errors or other endings, compared word by word.

    Names that merely look alike mean different things: `max_rpm` is not `max_iter`, and `system` is not `stream`.
    """
    one, other = name.lower().split("_"), known.lower().split("_")
    if sorted("".join(one)) == sorted("".join(other)):
        return True
    if len(one) == len(other):
        return all(_is_word(mine, its) for mine, its in zip(one, other, strict=True))
    return _has_few_errors("".join(one), "".join(other))


def _is_word(one: str, other: str) -> bool:
    """Return whether two words differ by typing errors, or by their endings alone."""
    if one == other or _has_few_errors(one, other):
        return True
    begin = common_start(one, other)
    return begin >= _STEM and (begin in (len(one), len(other)) or max(len(one), len(other)) - begin <= _ENDING)


def _has_few_errors(one: str, other: str) -> bool:
    """Return whether few typing errors separate two words. These rarely change the first letter."""
    shorter, longer = sorted((len(one), len(other)))
    allowed = 0 if longer < _SHORT else 1 if shorter < _LONG else 2
    return one[:1] == other[:1] and _errors(one, other) <= allowed


def _errors(one: str, other: str) -> int:
    """Return the number of letters that are missing, added, replaced or swapped with the next, between two words."""
    before, row = list[int](), list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        last, before, row = before, row, [at]
        for to, its in enumerate(other, 1):
            best = min(before[to] + 1, row[-1] + 1, before[to - 1] + (letter != its))
            if at > 1 and to > 1 and letter == other[to - 2] and one[at - 2] == its:
                best = min(best, last[to - 2] + 1)
            row.append(best)
    return row[-1]
