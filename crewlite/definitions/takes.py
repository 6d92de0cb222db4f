"""The type of a field that may be given more than it holds, such as functions where it holds tools.

Type checkers know such fields as descriptors: an object may be made with whatever the field takes, and code that reads
the field gets what it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

G = TypeVar("G")
H = TypeVar("H")

if TYPE_CHECKING:

    class Takes(Generic[G, H]):
        """A field that takes a `G` and holds an `H`: `tasks: Takes[Sequence[Task], FieldList[Task]]`."""

        @overload
        def __get__(self, instance: None, owner: type) -> Self: ...
        @overload
        def __get__(self, instance: object, owner: type | None = None) -> H: ...
        def __get__(self, instance: object, owner: type | None = None) -> object: ...
        def __set__(self, instance: object, value: G) -> None: ...

else:

    class Takes:
        """At run time, pydantic sees such a field as one of the type that it holds."""

        def __class_getitem__(cls, types: tuple[Any, Any]) -> Any:
            return types[1]


def left_out(value: object) -> Any:
    """Return the default of such a field, which is a held value, in the form in which type checkers accept it."""
    return value
