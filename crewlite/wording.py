"""Words that follow from what they stand before: articles, and the plural."""

from __future__ import annotations


def an(word: str) -> str:
    """Return the word with its article: "an object", "a str", "an LLM"."""
    vowels = "AEFHILMNORSX" if word[:2].isupper() else "aeiouAEIOU"  # capitals are spelt out
    return f"{'an' if word[:1] in vowels else 'a'} {word}"


def cut(text: str, most: int) -> str:
    """Return a text, or its beginning with an ellipsis: at most so many characters.

    >>> cut("ebb and flow", 4)
    'ebb…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def number_of(count: int, one: str, more: str = "") -> str:
    """Return how many things there are: "1 step", "3 steps". `more`: the plural, if it is not formed by an s."""
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"
