"""Which texts can be paths of files. Python raises a raw ValueError for others, at whatever is done with them first."""

from __future__ import annotations

import os
import re

_LONGEST = 255  # bytes of one name


def why_no_path(text: str | os.PathLike[str], most: int = _LONGEST) -> str:
    """Return why no file can have this path, such as "holds a NUL character"; "" if one can.

    `most`: how many bytes a name may have.
    """
    try:
        longest = max(len(os.fsencode(name)) for name in re.split(r"[\\/]", os.fspath(text)))
    except UnicodeEncodeError:
        return "holds characters that no name of a file can have"
    if "\0" in os.fspath(text):
        return "holds a NUL character"
    return f"has a name of {longest} bytes; wanted at most {most}" if longest > most else ""
