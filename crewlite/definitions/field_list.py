"""What a field that takes a list has, such as `crew.tasks`: a list that sets its field when it is changed in place.

So `crew.tasks.append(task)` is checked, or refused, as `crew.tasks = [*crew.tasks, task]` is. A list that is in no
field any more is a list like any other.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, Self, SupportsIndex, TypeVar, get_args, get_origin

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from crewlite.errors import ConfigError
from crewlite.texts.wording import what_is

T = TypeVar("T")
_NOWHERE: tuple[Callable[[], None], str] = (lambda: None), ""


class Change:
    """A change of a list in place. A definition takes it as the new value of the field that has the list.

    `is_half`: it only puts an item of the list in another place too, as the first half of a swap does. What comes after
    it, or the kickoff, has the list checked.
    """

    def __init__(self, change: Callable[[list[Any]], Any], *, is_half: bool) -> None:
        self._change, self.is_half, self.returned = change, is_half, None

    def of(self, held: list[T]) -> list[T]:
        """Return a changed copy of the list."""
        items = list(held)
        self.returned = self._change(items)
        return items


class FieldList(list[T]):
    """A list that knows the definition and the field that it is in."""

    __slots__ = ("_place",)
    _place: tuple[weakref.ref[object], str]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        (kind,) = get_args(source) or (Any,)
        items = core_schema.list_schema(handler.generate_schema(kind))
        return core_schema.no_info_after_validator_function(cls, items)

    def found_in(self, definition: object, field: str) -> FieldList[T]:
        """Return the list of this field: this one, or a copy if `model_copy(update=...)` gave it to two definitions."""
        found, noted = getattr(self, "_place", _NOWHERE)
        if found() is definition and noted == field:
            return self
        own = self if self.definition() is None else FieldList(self)
        own._place = weakref.ref(definition), field
        vars(definition)[field] = own
        return own

    def definition(self) -> object | None:
        """Return the definition in which the list was found, if it is still there."""
        found, field = getattr(self, "_place", _NOWHERE)
        definition = found()
        return definition if definition is not None and vars(definition).get(field) is self else None

    def hold(self, items: Iterable[T]) -> None:
        """Have these items in place of its own, in one step. Unlike other changes, this one does not set the field."""
        list.__setitem__(self, slice(None), list(items))

    def __iadd__(self, other: Iterable[Any]) -> Self:  # type: ignore[override]  # the field checks them
        self.extend(other)
        return self

    def __imul__(self, times: SupportsIndex) -> Self:
        self[:] = self * times
        return self

    def __add__(self, other: list[Any] | tuple[Any, ...]) -> list[Any]:
        return list.__add__(self, _as_list(other))

    def __radd__(self, other: list[Any] | tuple[Any, ...]) -> list[Any]:
        made: list[Any] = _as_list(other) + list(self)
        return made

    def __eq__(self, other: object) -> bool:
        return list.__eq__(self, _as_list(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # as of any list

    def __reduce__(self) -> tuple[type[FieldList[T]], tuple[list[T]]]:
        return FieldList, (list(self),)  # a copy is in no field yet


def _as_list(other: Any) -> Any:
    """Return a tuple as a list, because such lists are added to tuples and compared with them; else what is given."""
    return list(other) if isinstance(other, tuple) else other


def _sets_its_field(name: str) -> Callable[..., Any]:
    plain = getattr(list, name)

    @wraps(plain)
    def change(self: FieldList[Any], *args: Any, **options: Any) -> Any:
        definition = self.definition()
        if definition is None:
            return plain(self, *args, **options)
        if name == "extend" and args and isinstance(args[0], str | BaseModel):  # iterates over its letters or fields
            raise ConfigError(
                f"{self._place[1]} is extended by {what_is(args[0])}; wanted a list. append adds one item"
            )
        given = [list(one) if isinstance(one, Iterator) else one for one in args]  # the change may be tried twice
        is_half = name == "__setitem__" and any(args[1] is one for one in self)
        tried = Change(lambda items: plain(items, *given, **options), is_half=is_half)
        setattr(definition, self._place[1], tried)
        return tried.returned

    return change


for _name in ("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "__setitem__", "__delitem__"):
    setattr(FieldList, _name, _sets_its_field(_name))


class ListField:
    """A field of a definition that has such a list: whoever reads it gets a list that knows where it is."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, definition: Any, cls: type | None = None) -> Any:
        try:
            held = definition.__dict__[self._name]
        except (AttributeError, KeyError):  # the class has no such attribute, as of any field of pydantic
            raise AttributeError(self._name) from None
        return held.found_in(definition, self._name) if type(held) is FieldList else held

    def __set__(self, definition: object, value: object) -> None:  # with it, Python asks this class first
        vars(definition)[self._name] = value


def list_fields(fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    """Yield the names of the fields that have such lists."""
    for name, field in fields.items():
        if any((get_origin(kind) or kind) is FieldList for kind in (field.annotation, *get_args(field.annotation))):
            yield name


def apart(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a definition for a copy of it, with lists of its own."""
    return {name: FieldList(value) if isinstance(value, FieldList) else value for name, value in fields.items()}
