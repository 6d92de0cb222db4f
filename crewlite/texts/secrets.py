"""Secrets of the configuration, and masking them in everything that is stored or shown.

A text counts as a secret if it is declared as one and is plausible as one. Declared: a `SecretStr`, or a text under a
name such as `api_key` (`secret_names.py`), in the fields of a definition, in the environment or in an address there.
Plausible: long and varied enough, and not a plain word, which might also occur in an answer. Known secrets are masked
in outcomes, events and error texts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import typing
from collections import deque
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import FunctionType, MethodType, NoneType, UnionType
from urllib.parse import quote

from pydantic import BaseModel, SecretBytes, SecretStr

from crewlite.concurrency.pacing import Pace
from crewlite.texts.masking import MASK, Masking
from crewlite.texts.secret_names import PARTED, SHORTEST, can_be_secret, declares_secret, may_hold_secret, secrets_under

_DEEPEST = 3  # levels of attributes and items that are searched
_SETTINGS = 64  # entries; a larger dict holds data, not settings
_SECRETS = (SecretStr, SecretBytes)
_NEVER = {NoneType, bool, int, float, FunctionType, MethodType, Pace}
"""Types whose values neither are secrets nor have parts that are searched."""
_SEVERAL = (list, tuple, set, frozenset, deque)
_EMPTY = ()
"""The empty tuple, of which Python makes only one: the value of most fields that may hold several things."""
_PLAIN = (NoneType, bool, int, float)
"""The same, for the type hints of fields, whose values may be of subclasses."""
_PLAIN_HEADERS = re.compile(
    r"accept|content|user-agent|host|connection|cache-control|date|origin|(?:http-)?referr?er|x-title", re.IGNORECASE
)
_SAME_ANYWHERE = re.compile(r"[A-Za-z\d_.~-]*")  # of texts that JSON, Python and addresses write as they are


class Secrets:
    """The secret values that one run knows."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = frozenset(values)
        distinct = {one for one in self._values if len(one) >= SHORTEST and one not in MASK}  # else masks would grow
        written = {form for one in distinct for form in _forms(one)}
        self._longest_first = sorted(written, key=lambda value: (-len(value), value))
        self._pattern = re.compile("|".join(map(re.escape, self._longest_first)))

    def knowing(self, *objects: object, extra: Iterable[str] = ()) -> Secrets:
        """Return these secrets together with those found in the fields of further objects, and the `extra` ones."""
        found = _found(objects) | set(extra)
        return Secrets(self._values | found) if found - self._values else self

    @classmethod
    def of(cls, *objects: object, extra: Iterable[str] = ()) -> Secrets:
        """Return the secrets found in the fields of these objects and in the environment, and the `extra` ones."""
        return cls(_in_environment() | set(extra) | _found(objects))

    def mask(self, text: str) -> str:
        """Return `text` with every known secret value replaced by `MASK`; the same object if it has none."""
        for value in self._longest_first:  # faster than a search for all of them at once
            if value in text:
                return self._pattern.sub(MASK, text)
        return text

    def shown_of_beginning(self, text: str) -> int:
        """Return how many characters of the beginning of a text can be masked and shown before the rest has come.

        Behind them a secret may begin, or be complete and turn out to be the beginning of a longer one.
        """
        longest = len(self._longest_first[0]) if self._longest_first else 0
        begins = range(max(0, len(text) - longest), len(text))
        shown = next((at for at in begins if self._begins_secret(text[at:])), len(text))
        for found in self._pattern.finditer(text) if longest else ():
            if found.start() < shown < found.end():
                return found.start()
        return shown

    def _begins_secret(self, text: str) -> bool:
        return any(value.startswith(text) for value in self._longest_first)

    def mask_data(self, data: typing.Any) -> typing.Any:
        """Return JSON data, or live values, with every known secret value replaced by `MASK`, in keys too.

        Data that hold none are returned as they are, the same object.
        """
        return Masking(self.mask)(data) if self._longest_first else data


def _forms(value: str) -> set[str]:
    """Return a secret as it is, and as JSON, Python and addresses write it inside a text."""
    if _SAME_ANYWHERE.fullmatch(value):
        return {value}
    in_json = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    in_python = {repr(value)[1:-1], repr(f'"{value}')[2:-1]}  # how, depends on the quotes around it
    return {value, *in_json, *in_python, quote(value, safe="")}


def _in_environment() -> set[str]:
    search = _Search()
    for name in _declaring(tuple(os.environ)):  # few values are decoded
        search.look_at(os.environ.get(name, ""), name, depth=0)
    return search.found


@lru_cache(maxsize=1)
def _declaring(variables: tuple[str, ...]) -> list[str]:
    """Return the variables whose values may be secrets, or hold some."""
    return [name for name in variables if may_hold_secret(name)]


def _found(objects: Iterable[object]) -> set[str]:
    search = _Search()
    for item in objects:
        search.look_at(item, "", depth=0)
    return search.found


class _Search:
    """Looks for secrets in the fields of objects. Containers of data are not searched."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._seen: set[int] = set()

    def look_at(self, value: object, name: str, *, depth: int, declared: bool = False) -> None:
        """Add the secrets of a value under this name. `declared`: its type says that it contains secrets."""
        if isinstance(value, _SECRETS):
            inner = value.get_secret_value()
            self._add(inner if isinstance(inner, str) else inner.decode(errors="replace"))
        elif isinstance(value, str):
            for text in secrets_under(name, value):
                self._add(text)
            self._json(value, name, depth)
        elif name.lower().endswith("headers") and isinstance(value, Mapping | list | tuple):
            self._headers(value)
        elif id(value) not in self._seen and depth <= _DEEPEST:
            self._seen.add(id(value))
            for part, item, known in _parts(value, name, declared):
                kind = type(item)
                if kind not in _NEVER and (may_hold_secret(part) if kind is str else item is not _EMPTY):
                    self.look_at(item, part, depth=depth + 1, declared=known)

    def _headers(self, value: Mapping[object, object] | Iterable[object]) -> None:
        """Add the secrets among headers. Any header can hold one, except well-known plain ones."""
        pairs = value.items() if isinstance(value, Mapping) else value
        for pair in pairs:
            if isinstance(pair, tuple) and len(pair) == 2 and not _PLAIN_HEADERS.match(str(pair[0])):
                text = pair[1].get_secret_value() if isinstance(pair[1], SecretStr) else pair[1]
                if isinstance(text, str) and (declares_secret(str(pair[0])) or any(map(can_be_secret, text.split()))):
                    self._add(text)

    def _json(self, text: str, name: str, depth: int) -> None:
        """Add the secrets in a text that is JSON, such as the credentials of a service account."""
        if text.startswith(("{", "[")):
            with contextlib.suppress(ValueError, RecursionError):
                self.look_at(json.loads(text), name, depth=depth)

    def _add(self, text: str) -> None:
        """Add a text; of "Bearer abc", and of a list of keys, also the parts alone."""
        self.found |= {one for one in (text, *PARTED.split(text)) if can_be_secret(one)}


def _parts(value: object, name: str, declared: bool) -> list[tuple[str, object, bool]]:
    """Return the parts of an object to search: the name, the part, and whether its type declares secrets."""
    if isinstance(value, dict):
        if not (declared or declares_secret(name) or len(value) <= _SETTINGS):
            return []
        of_secrets = may_hold_secret(name) and "credential" not in name.lower()  # api_keys={"openai": ...}
        named = {key: name if of_secrets and not may_hold_secret(str(key)) else str(key) for key in value}
        return [(named[key], item, declared) for key, item in value.items()]
    if isinstance(value, _SEVERAL):
        looked_at = declared or declares_secret(name) or (len(value) <= _SETTINGS and may_hold_secret(name))
        return [(name, item, declared) for item in value] if looked_at else []
    if isinstance(value, BaseModel):
        cls, held = type(value), vars(value)
        searched, fields = _searched(cls)
        parts = [(key, item, known) for key, known, empty in searched if (item := held.get(key)) is not empty]
        if not fields.issuperset(held):
            more = held.keys() - fields
            parts += [(key, held[key], False) for key in more if not hasattr(cls, key)]  # else it is made from fields
        for others in (value.__pydantic_private__, value.__pydantic_extra__, _of_class(cls)):
            parts += [(key, item, False) for key, item in others.items()] if others else []
        return parts
    if isinstance(value, type) or callable(value):
        return []
    return [(key, item, False) for key, item in (_of_class(type(value)) | _attributes(value)).items()]


def _attributes(value: object) -> dict[str, object]:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return dict(getattr(value, "__dict__", {}))


def _of_class(cls: type) -> dict[str, object]:
    """Return the texts among the attributes of a user's class, and of those that it derives from, by secrets' names."""
    found: dict[str, object] = {}
    for one in _users(cls):
        found |= {key: item for key, item in vars(one).items() if isinstance(item, str) and may_hold_secret(key)}
    return found


@lru_cache(maxsize=1024)
def _users(cls: type) -> tuple[type, ...]:
    """Return a class and those that it derives from, the nearest last, without those of crewlite and pydantic."""
    libraries = ("crewlite", "pydantic", "builtins", "abc", "typing")
    return tuple(one for one in reversed(cls.__mro__) if one.__module__.partition(".")[0] not in libraries)


def declared_in(cls: type[BaseModel]) -> list[str]:
    """Return the fields of a class whose types contain secrets: SecretStr, and models with such fields."""
    fields = cls.model_fields.items()
    return [name for name, field in fields if _declares(field.annotation, frozenset({cls}), by_name=False)]


@lru_cache(maxsize=1024)
def _searched(cls: type[BaseModel]) -> tuple[list[tuple[str, bool, object]], frozenset[str]]:
    """Return the fields of a class that are searched, and all its fields.

    Of each field that is searched: whether its type says that it contains secrets, and the value that holds nothing.
    """
    fields = cls.model_fields
    searched = {name: one for name, one in fields.items() if not _is_plain(one.annotation, name)}
    parts = [
        (name, _declares(one.annotation, frozenset({cls})), _EMPTY if one.default is _EMPTY else None)
        for name, one in searched.items()
    ]
    return parts, frozenset(fields)


def _is_plain(hint: object, name: str) -> bool:
    """Return whether values of this type, under this name, neither are secrets nor have parts that are searched."""
    if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
        return all(_is_plain(part, name) for part in typing.get_args(hint))
    return hint in _PLAIN or (hint is str and not may_hold_secret(name)) or typing.get_origin(hint) is typing.Literal


def _declares(annotation: object, seen: frozenset[object], *, by_name: bool = True) -> bool:
    """Return whether a type is one of secrets, or has a field of one. `by_name`: names of fields inside count too."""
    if not isinstance(annotation, type) or typing.get_origin(annotation):
        return any(_declares(part, seen, by_name=by_name) for part in typing.get_args(annotation))
    if issubclass(annotation, SecretStr | SecretBytes):
        return True
    if not issubclass(annotation, BaseModel) or annotation in seen:
        return False
    fields, seen = annotation.model_fields.items(), seen | {annotation}
    return any(
        (by_name and declares_secret(name)) or _declares(one.annotation, seen, by_name=by_name) for name, one in fields
    )
