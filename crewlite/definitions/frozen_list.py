"""What a field that takes a list has, such as `crew.tasks`: a tuple that says what to write instead of `append`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

T = TypeVar("T")
_OF_LISTS_ONLY = frozenset(dir(list)) - frozenset(dir(tuple))


class FrozenList(tuple[T, ...]):
    """A tuple to which a list can be added, as programs for CrewAI do."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers know that it is missing

        def __getattr__(self, name: str) -> Any:
            if name in _OF_LISTS_ONLY:
                raise AttributeError(
                    f"A field of a definition has no {name!r}, as it is not changed in place. "
                    "Set the field to another list: crew.tasks = [*crew.tasks, task]"
                )
            return self.__getattribute__(name)  # which raises the error with which it was not found

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        (kind,) = get_args(source) or (Any,)
        items = core_schema.tuple_schema([handler.generate_schema(kind)], variadic_item_index=0)
        return core_schema.no_info_after_validator_function(cls, items)

    def __add__(self, other: Iterable[T]) -> FrozenList[T]:  # type: ignore[override]  # a tuple takes tuples only
        return FrozenList((*self, *other))

    def __radd__(self, other: Iterable[T]) -> FrozenList[T]:
        return FrozenList((*other, *self))
