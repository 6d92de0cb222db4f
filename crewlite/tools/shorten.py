"""Long results, shown to the model by head and tail, and arguments, of which people see the beginning.

Results are recorded whole. What is left out follows from the text and the limit alone, so a resumed agent reads the
same.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from crewlite.wording import cut

_ARGUMENTS = 120  # characters
_HEAD = 2 / 3  # of the limit; the rest is the tail


def shortened(text: str, limit: int | None, address: str) -> str:
    """`text`, or its head and tail of `limit` characters together, with a line between them that says so.

    >>> head, note, tail = shortened("abcdefghijkl", 6, "task:t/tool:read").splitlines()
    >>> head, tail, note[:60]
    ('abcd', 'kl', '[6 of 12 characters are left out here. The whole is recorded')
    """
    if limit is None or len(text) <= limit:
        return text
    head = round(limit * _HEAD)
    tail = limit - head
    note = (
        f"[{len(text) - limit:,} of {len(text):,} characters are left out here. The whole is recorded at {address}. "
        f"To read more of it, call the tool again with narrower arguments.]"
    )
    return f"{text[:head]}\n{note}\n{text[-tail:]}"


def shown_arguments(arguments: object, mask: Callable[[str], str] = str) -> str:
    """The beginning of the arguments of a call, as JSON. `mask` hides secrets in a text."""
    return cut(mask(json.dumps(arguments, ensure_ascii=False, default=str)), _ARGUMENTS)
