"""What settings are checked for. Errors begin with `where`, and name the setting."""

from __future__ import annotations

import math
from typing import Any

from crewlite.errors import ConfigError


def whole(where: str, least: int, **given: object) -> None:
    """Raise ConfigError for a setting that is not a whole number of `least` or more."""
    for name, value in given.items():
        if type(value) is not int or value < least:
            raise ConfigError(f"{where}: {name} is {value!r}; wanted a whole number, {least} or more")


def whole_or_none(where: str, least: int, **given: object) -> None:
    """Raise ConfigError for a setting that is neither None nor a whole number of `least` or more."""
    whole(where, least, **{name: value for name, value in given.items() if value is not None})


def seconds(where: str, **given: object) -> None:
    """Raise ConfigError for a setting that is not a number of seconds, 0 or more."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ConfigError(f"{where}: {name} is {value!r}; wanted seconds, 0 or more")


def having(method: str, where: str, given: object, wanted: str) -> Any:
    """Return an object unchanged. Raises ConfigError if it has no such method, or is a class."""
    if isinstance(given, type) or not callable(getattr(given, method, None)):
        raise ConfigError(f"{where} is {given!r}; wanted {wanted}")
    return given
