"""Texts of models, tools and users as people may see them: a terminal would obey their control characters."""

from __future__ import annotations


def escaped(text: str) -> str:
    """Return a text with its control characters escaped, and marks that change the direction of writing too."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
