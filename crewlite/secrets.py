"""Configuration secrets, and keeping them out of everything that is written or said.

What counts as one: the value of a `SecretStr`; any text found under a secret-sounding name in a definition (fields
of models and tools, headers among them); any environment variable with such a name. Known values are masked in
outcomes, events and error texts. Masking wins over exactness.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from pydantic import BaseModel, SecretBytes, SecretStr

MASK = "[secret]"
_SHORTEST = 6  # anything shorter would mask ordinary words
_DEEPEST = 8  # levels of objects within objects that are looked into
_NAMES = re.compile(
    r"(api_?key|access_?key|private_?key|secret|token|passw(or)?d|passphrase|credential|authori[sz]ation|cookie|bearer)",
    re.IGNORECASE,
)
_COUNTS = re.compile(
    r"(max|min|num|total|prompt|completion|cached|reasoning|input|output)_tokens?|^tokens$|token_(usage|count|limit)",
    re.IGNORECASE,
)
_PLAIN_HEADERS = re.compile(r"accept|content|user-agent|host|connection|cache-control|date", re.IGNORECASE)
_ENVIRONMENT = re.compile(r"(_KEY|_TOKEN|_SECRET|_PASSWORD|_PASSWD|_CREDENTIALS?)$|^(API_?KEY|TOKEN|SECRET|PASSWORD)$")


class Secrets:
    """The secret values one run knows."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = frozenset(values)
        distinct = {
            value for value in self._values if len(value) >= _SHORTEST and value not in MASK
        }  # masks would grow
        longest_first = sorted(distinct, key=lambda value: (-len(value), value))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def knowing(self, *objects: object) -> Secrets:
        """These secrets, and those found in further objects' fields."""
        found = _found(objects)
        return Secrets(self._values | found) if found - self._values else self

    @classmethod
    def of(cls, *objects: object, extra: Iterable[str] = ()) -> Secrets:
        """The secrets found in these objects' fields and in the environment, and the `extra` ones."""
        return cls(
            {os.environ[name] for name in os.environ if _ENVIRONMENT.search(name)} | set(extra) | _found(objects)
        )

    def mask(self, text: str) -> str:
        """`text` with every known secret value replaced."""
        return self._pattern.sub(MASK, text) if self._pattern else text

    def mask_data(self, data: object) -> object:
        """JSON data with every known secret value replaced, keys included."""
        if self._pattern is None:
            return data
        if isinstance(data, str):
            return self._pattern.sub(MASK, data)
        if isinstance(data, list):
            return [self.mask_data(item) for item in data]
        if isinstance(data, dict):
            masked = {self.mask(key): self.mask_data(item) for key, item in data.items()}
            return MASK if masked != data and _is_no_text(data) else masked
        return data


def _is_no_text(data: Mapping[str, object]) -> bool:
    """Whether this stands for a UUID, a number, a time: what is written as text, and could not be read with a mask."""
    tag = data.get("$")
    return isinstance(tag, str) and isinstance(data.get("v"), str) and not tag.lower().endswith("path")


def _found(objects: Iterable[object]) -> set[str]:
    found, seen = set[str](), set[int]()
    for item in objects:
        _collect(item, "", found, seen, 0)
    return found


def _collect(value: object, name: str, found: set[str], seen: set[int], depth: int) -> None:
    if isinstance(value, SecretStr | SecretBytes):
        inner = value.get_secret_value()
        found.add(inner if isinstance(inner, str) else inner.decode(errors="replace"))
    elif isinstance(value, str):
        if _NAMES.search(name) and not _COUNTS.search(name):
            found |= {value, *(word for word in value.split() if len(word) > 8)}  # "Bearer abc...": also without Bearer
    elif depth < _DEEPEST and id(value) not in seen:
        seen.add(id(value))
        for key, item in _parts(value, name):
            _collect(item, key, found, seen, depth + 1)


def _parts(value: object, name: str) -> Iterable[tuple[str, object]]:
    """What an object holds, each part under the name that tells whether it is secret."""
    headers = "header" in name.lower()
    if headers and isinstance(value, list | tuple):
        value = dict(item for item in value if isinstance(item, tuple) and len(item) == 2)
    if isinstance(value, Mapping):
        # any header may authorise, but for the well-known ones; elsewhere a key's own name decides
        known = not headers
        return [(str(k) if known or _PLAIN_HEADERS.match(str(k)) else "authorization", v) for k, v in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        # a list of lists is what an object went through (conversations, rows), not how it was configured
        return [(name, item) for item in value if not isinstance(item, list | tuple)]
    return _fields(value).items()


def _fields(value: object) -> dict[str, object]:
    if isinstance(value, type) or (callable(value) and not isinstance(value, BaseModel)):
        return {}
    fields = dict(getattr(value, "__dict__", {}))
    if isinstance(value, BaseModel) and value.__pydantic_private__:
        fields |= value.__pydantic_private__
    return fields
