"""Names of tools: people choose any, services for models take few.

`^[a-zA-Z0-9_-]{1,64}$` is what all of them take. A name that fits stays as it is; the safe name of another one depends
on nothing but that name, so a resumed run offers the same.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

_FITS = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_REST = re.compile(r"[^a-zA-Z0-9_-]+")
_LONGEST = 64
_OF_ADDRESSES = re.compile(r"[/#!]")


def safe_name(name: str, otherwise: str = "tool") -> str:
    """Return the name under which a tool is offered to models.

    >>> safe_name("search"), safe_name("Search the web!"), safe_name("Marée à Brest")
    ('search', 'Search_the_web', 'Maree_a_Brest')

    If letters are lost, or the name is too long, it ends with a digest of the full name, so that it stays unique. If no
    character is left, it begins with `otherwise`.

    >>> safe_name("潮汐 tide")
    'tide_2b716e'
    """
    if _FITS.fullmatch(name):
        return name
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    safe = _REST.sub("_", plain).strip("_")
    lost = any(letter.isalnum() and not letter.isascii() for letter in plain)
    if safe and len(safe) <= _LONGEST and not lost:
        return safe
    return _cut(safe or otherwise, name)


def address_name(name: str) -> str:
    r"""Return a name of a tool as addresses hold it: without the characters that have a meaning there.

    A model may request a tool of any name: a long one is cut, and characters that cannot be seen are left out.

    >>> address_name("Search the web"), address_name("a/b#2"), address_name("ls\x1b[2J")
    ('Search the web', 'a_b_2', 'ls[2J')
    """
    seen = "".join(letter for letter in _OF_ADDRESSES.sub("_", name) if letter.isprintable())
    return seen if seen and len(seen) <= _LONGEST else _cut(seen or "tool", name)


def _cut(start: str, name: str) -> str:
    """Return the start of a name with a digest of the full name, so that it stays unique."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=3).hexdigest()
    return f"{start[: _LONGEST - 7]}_{digest}"
