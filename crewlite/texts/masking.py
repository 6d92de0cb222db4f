"""Mask texts inside values: in plain JSON, and in the live values of events.

A value without such a text is returned as the same object. Otherwise the value and everything that contains it are
copied, so that the program keeps its own values.
"""

from __future__ import annotations

import base64
import binascii
import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import Enum
from operator import is_not
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from crewlite.encoding.homes import is_named_tuple
from crewlite.encoding.instances import attributes_of, dataclass_of, plain_url
from crewlite.errors import repr_of, text_of

MASK = "[secret]"
_DEEPEST = 320  # levels; JSON that is recorded has fewer, and recursive functions must stay within Python's stack
_WITHOUT_TEXT = frozenset({type(None), bool, int, float})
_NO_TEXT = (UUID, Decimal)  # types whose values could not be made of a text with a mask


class Masking:
    """Masks all texts within one value. `mask` does it for one text, and returns the same text if there is nothing."""

    __slots__ = ("_around", "_mask")

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._mask, self._around = mask, set[int]()

    def __call__(self, value: Any) -> Any:
        """Return the value masked, in keys too. Of a value that contains itself, the inner one becomes a mask."""
        kind = type(value)
        if kind is str:
            return self._mask(value)
        if kind in _WITHOUT_TEXT:
            return value
        key, around = id(value), self._around
        if key in around or len(around) > _DEEPEST:
            return MASK
        around.add(key)
        if kind is list:
            made: Any = [*map(self, value)]
            made = made if any(map(is_not, made, value)) else value
        else:
            made = self._mapping(value) if kind is dict else self._whole(value, kind)
        around.discard(key)
        return made

    def _mapping(self, value: dict[Any, Any]) -> Any:
        keys, items = [*map(self, value)], [*map(self, value.values())]
        if not (any(map(is_not, keys, value)) or any(map(is_not, items, value.values()))):
            tagged = value.get("$") == "bytes" and isinstance(value.get("v"), str)
            return self._recorded_bytes(value) if tagged else value
        return MASK if _is_no_text(value) else dict(zip(keys, items, strict=True))

    def _recorded_bytes(self, value: dict[Any, Any]) -> dict[Any, Any]:
        """Return bytes as they are recorded, in Base64, with the texts in them masked."""
        try:
            plain = base64.b64decode(value["v"])
        except binascii.Error:  # data of a program that only look like it
            return value
        masked = self._bytes(plain)
        return value if masked is plain else {**value, "v": base64.b64encode(masked).decode()}

    def _bytes(self, value: bytes) -> bytes:
        text = value.decode(errors="surrogateescape")
        return value if (masked := self._mask(text)) is text else masked.encode(errors="surrogateescape")

    def _whole(self, value: Any, kind: type) -> Any:
        """Return a value of a type that JSON does not have."""
        if isinstance(value, Enum | type):
            return value
        if isinstance(value, str | bytes | bytearray | PurePath):
            return self._text(value, kind)
        if isinstance(value, tuple | list | set | frozenset | deque | dict):
            return self._several(value, kind)
        if isinstance(value, BaseModel):
            held, private = self._parts(value.__dict__), self._parts(value.__pydantic_private__)
            extra = self._parts(value.__pydantic_extra__)
            return _with(value, held, extra, private) if held or extra or private else value
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
            parts = {name: getattr(value, name) for name in names} | attributes_of(value)
            return dataclass_of(kind, parts | masked) if (masked := self._parts(parts)) else value
        if isinstance(value, BaseException):
            text = repr_of(value) if isinstance(value, BaseExceptionGroup) else f"{kind.__qualname__}: {text_of(value)}"
            return value if (shown := self._mask(text)) is text else shown
        if isinstance(value, _NO_TEXT) or plain_url(value) or getattr(kind, "recorded_as_text", False):
            text = str(value)
            return value if self._mask(text) is text else MASK
        return value

    def _text(self, value: Any, kind: Any) -> Any:
        if isinstance(value, bytes | bytearray):
            plain = bytes(value)
            made = self._bytes(plain)
            return value if made is plain else bytearray(made) if isinstance(value, bytearray) else made
        text = str(value)
        if (shown := self._mask(text)) == text:
            return value
        return kind(shown) if isinstance(value, PurePath) else shown

    def _several(self, value: Any, kind: Any) -> Any:
        """Return a tuple, a set, or a collection of a class of its own."""
        if isinstance(value, dict):
            made = self._mapping(value)
            return value if made is value else _with_items(value, made)
        items = [*value]
        made = [*map(self, items)]
        if not any(map(is_not, made, items)):
            return value
        if isinstance(value, tuple):
            return kind._make(made) if is_named_tuple(kind) else tuple(made)
        return frozenset(made) if isinstance(value, frozenset) else _filled(value, made)

    def _parts(self, held: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return those of the parts of an object that are masked, by their names."""
        masked = {name: self(item) for name, item in held.items()} if held else {}
        return {name: item for name, item in masked.items() if held and item is not held[name]}


def _is_no_text(data: Mapping[str, object]) -> bool:
    """Return whether this is the encoded form of a UUID, a number or a time, which could not be decoded with a mask."""
    tag = data.get("$")
    return isinstance(tag, str) and isinstance(data.get("v"), str) and not tag.lower().endswith("path")


def _with(model: BaseModel, held: dict[str, Any], extra: dict[str, Any], private: dict[str, Any]) -> BaseModel:
    """Return a copy of a model with other values, which are not validated."""
    made = copy.copy(model)
    made.__dict__.update(held)
    if extra:
        object.__setattr__(made, "__pydantic_extra__", {**(model.__pydantic_extra__ or {}), **extra})
    if private:
        object.__setattr__(made, "__pydantic_private__", {**(model.__pydantic_private__ or {}), **private})
    return made


def _with_items(value: Any, items: Mapping[Any, Any]) -> Any:
    """Return a copy of a dict of a class of its own, with other items in it. The `update` of a Counter would count."""
    made = copy.copy(value)
    made.clear()
    for key, item in items.items():
        made[key] = item
    return made


def _filled(value: Any, items: Iterable[Any]) -> Any:
    """Return a copy of a collection that can be changed, with other items in it."""
    made = copy.copy(value)
    made.clear()
    getattr(made, "extend" if hasattr(made, "extend") else "update")(items)
    return made
