"""Values that are recorded by their names: time zones, and URLs of pydantic (`HttpUrl`, `PostgresDsn`, ...)."""

from __future__ import annotations

import re
from typing import Any
from zoneinfo import ZoneInfo

from crewlite.lazy import lazy

networks = lazy("pydantic.networks")
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,40}(/[A-Za-z0-9_+-]{1,40}){0,3}")


def zone(name: str) -> ZoneInfo:
    """Return the time zone of this name. Checks the name first, as ZoneInfo opens files and imports modules by it."""
    if not _ZONE.fullmatch(name):
        raise ValueError(f"{name!r} is not a time zone")
    return ZoneInfo(name)


def plain_url(value: Any) -> list[str] | None:
    """Return the name of a URL's class and its text; None for anything else."""
    kind = type(value)
    is_url = kind.__module__ == "pydantic.networks" and hasattr(value, "unicode_string")
    return [kind.__name__, str(value)] if is_url else None


def url_of(data: list[str]) -> Any:
    """Return the URL that `plain_url` has made. Raises ValueError for data that it has not made."""
    name, text = data
    kind = getattr(networks, name, None)
    if not isinstance(kind, type) or kind.__module__ != "pydantic.networks" or not hasattr(kind, "unicode_string"):
        raise ValueError(f"{name!r} is no class of URLs")
    return kind(text)
