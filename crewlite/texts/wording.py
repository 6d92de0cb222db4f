"""Texts for people: articles and plurals, cut and escaped texts, tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

_SPACES = frozenset(map(chr, (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))
"""Spaces of all languages (Unicode's Zs), but for the usual one."""
_LONG_LINE = 2_000  # characters of a line of an error
_END = 800  # characters that are left at each end of a longer one, so that another error may repeat it as it is


def an(word: str) -> str:
    """Return the word with its article: "an object", "a str", "an LLM"."""
    vowels = "AEFHILMNORSX" if word[:2].isupper() else "aeiouAEIOU"  # capitals are spelt out
    return f"{'an' if word[:1] in vowels else 'a'} {word}"


def what_is(value: object) -> str:
    """Return what a value is, for an error that does not show it: "a str", "an LLM", "the class LLM", or "None".

    >>> what_is(3), what_is(int), what_is(None)
    ('an int', 'the class int', 'None')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else an(type(value).__name__)


def cut(text: str, most: int) -> str:
    """Return a text, or its beginning with an ellipsis: at most so many characters.

    >>> cut("ebb and flow", 4)
    'ebb…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def common_start(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many items at the start of both are equal."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def without_middle(text: str) -> str:
    """Return a text in which long lines are without their middle: what was found there, such as a whole file.

    Only whole words are left out, so of a secret no part is left, which nothing would mask.
    """
    if len(text) <= _LONG_LINE:
        return text
    return "\n".join(_with_gap(line) if len(line) > _LONG_LINE else line for line in text.split("\n"))


def _with_gap(line: str) -> str:
    begin, end = line.rfind(" ", 0, _END) + 1, line.find(" ", len(line) - _END)
    after = line[end:] if end >= 0 else ""
    return f"{line[:begin]}[… {len(line) - begin - len(after):,} characters …]{after}"


def sentence(text: str) -> str:
    """Return a text with a full stop, unless it ends in a mark that ends a sentence.

    >>> sentence("High water"), sentence("Publish?")
    ('High water.', 'Publish?')
    """
    return text if text.endswith((".", "!", "?")) else f"{text}."


def number_of(count: int, one: str, more: str = "") -> str:
    """Return how many things there are: "1 step", "3 steps". `more`: the plural, if it is not formed by an s."""
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


def listed(names: Sequence[str], most: int) -> str:
    """Return names as a list for people, of which no more than `most` are told: "a, b and 3 more"."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as text in columns: the first and the last column left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *numbers, last in rows:
        cells = [number.rjust(width) for number, width in zip(numbers, widths[1:-1], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells, last]).rstrip())
    return "\n".join(lines)


def escaped(text: str, kept: str = "") -> str:
    """Return a text with control characters and invisible marks escaped, but for those in `kept`.

    Such marks change the direction of a text, for example. Spaces of all languages stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _SPACES or c in kept else ascii(c)[1:-1] for c in text)


def escaped_lines(text: str) -> str:
    """Return a text with its control characters escaped, but for the ends of its lines; a tab becomes four spaces."""
    return "\n".join(escaped(line.replace("\t", "    ")) for line in text.splitlines())
