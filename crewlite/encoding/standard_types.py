"""More types of the standard library as plain data: collections (Counter), numbers (Fraction), addresses, moments."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import date, datetime
from functools import partial
from typing import Any, NamedTuple

from crewlite.encoding.instances import hashed
from crewlite.errors import NotCodable
from crewlite.lazy import lazy

fractions, ipaddress = lazy("fractions"), lazy("ipaddress")
_FACTORIES: dict[str, Any] = {cls.__name__: cls for cls in (bool, dict, float, int, list, set, str, tuple)}

_MOMENTS = datetime, date


class _Form(NamedTuple):
    """How values of one type are recorded, and made again."""

    module: str
    data: Callable[[Any], Any]
    """Returns what a value holds, as the codec can encode it."""
    made: Callable[[Any, Mapping[str, Any]], Any]
    """Makes a value again of what it holds, and of the data of the record."""
    more: Callable[[Any], Mapping[str, Any]] = lambda value: {}
    """Returns what else belongs to a value, as plain JSON."""


def form_of(kind: type) -> _Form | None:
    """Return the form in which values of exactly this type are recorded; None if it is not one of these types."""
    form = FORMS.get(kind.__name__)
    return form if form and form.module == kind.__module__ else None


def moment_of(kind: type) -> type[date] | None:
    """Return datetime or date for a class that a library puts in its place to stop the clock, as freezegun does.

    A plain datetime is an instance of such a class, so it can replace an object of the class.
    """
    return next((plain for plain in _MOMENTS if issubclass(kind, plain) and isinstance(plain.min, kind)), None)


def check(value: object, path: str) -> None:
    """Raise NotCodable for a defaultdict whose factory has no name in a record."""
    factory = value.default_factory if isinstance(value, defaultdict) else None
    if factory is not None and factory not in _FACTORIES.values():
        names = ", ".join(_FACTORIES)
        raise NotCodable(path, value, f"its default_factory is {factory!r:.60}; wanted None or one of {names}")


def _mapping(make: Callable[[Any], Any], held: Any) -> Any:
    """Make a mapping of a dict; return the pairs themselves if a key is unhashable, as plain data of a class may be."""
    return make(held) if isinstance(held, dict) else held


def _address(name: str) -> _Form:
    return _Form("ipaddress", str, lambda text, data: getattr(ipaddress, name)(text))


FORMS: Mapping[str, _Form] = {
    "Counter": _Form("collections", dict, lambda held, data: _mapping(Counter, held)),
    "OrderedDict": _Form(  # as pairs, because its order counts
        "collections", lambda value: [[*pair] for pair in value.items()], lambda held, data: hashed(OrderedDict, held)
    ),
    "defaultdict": _Form(
        "collections",
        dict,
        lambda held, data: _mapping(partial(defaultdict, data["factory"] and _FACTORIES[data["factory"]]), held),
        lambda value: {"factory": value.default_factory and value.default_factory.__name__},
    ),
    "deque": _Form(
        "collections",
        list,
        lambda held, data: deque(held, data["maxlen"]),
        lambda value: {"maxlen": value.maxlen},
    ),
    "Fraction": _Form("fractions", str, lambda text, data: fractions.Fraction(text)),
    "complex": _Form("builtins", lambda value: [value.real, value.imag], lambda held, data: complex(*held)),
    "range": _Form("builtins", lambda value: [value.start, value.stop, value.step], lambda held, data: range(*held)),
    "bytearray": _Form("builtins", bytes, lambda held, data: bytearray() + held),
    **{name: _address(name) for name in ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network")},
}
"""The forms by the name of the type, which is their tag in a record."""
