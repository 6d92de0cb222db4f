"""Operations on coded values: what one mapping of names to values has to undergo to become another.

A list that grows is told by what was appended, a mapping by its keys that were set or removed, anything else as a
whole. So what changes costs bytes, not what is there; and what two steps did side by side can be put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from crewlite.codec import Json, dumps

Operation = list[Any]
"""`["set", path, value]`, `["remove", path]` or `["append", path, items]`. A path is a name, and keys in its value."""
Path = tuple[str, ...]
ABSENT: Any = object()
"""Stands for no value at all."""
ITEMS = "$items:"
"""How the names begin that hold the items of collections, by their ids. An item is never changed."""
_LENGTHS = {"set": 3, "append": 3, "remove": 2}


def check_operations(found: list[Operation]) -> list[Operation]:
    """Raises ValueError for what is no list of operations."""
    for operation in found:
        verb, path = (operation[0], operation[1]) if len(operation) > 1 else (None, None)
        known = isinstance(verb, str) and _LENGTHS.get(verb) == len(operation)
        if not known or not isinstance(path, list) or not path or not all(isinstance(key, str) for key in path):
            raise ValueError("wanted set, append or remove, with a path")
        if verb == "append" and not isinstance(operation[2], list):
            raise ValueError("wanted a list to append")
    return found


def difference(before: Mapping[str, Json], after: Mapping[str, Json], at: Path = ()) -> list[Operation]:
    """The operations that make `after` of `before`, the order of its keys included."""
    if before is after:
        return []
    kept = _kept(before, after)
    found: list[Operation] = [["remove", [*at, key]] for key in before if key not in kept]
    for key, value in after.items():
        if not at and key.startswith(ITEMS):
            found += _items_changed(before[key] if key in kept else {}, value, key)
        elif key not in kept:
            found.append(["set", [*at, key], value])
        elif before[key] is not value:
            found += _changed(before[key], value, (*at, key))
    return found


def applied(values: Mapping[str, Json], operations: Iterable[Operation]) -> Mapping[str, Json]:
    """The values after these operations. Those that were given stay as they are.

    A container that is missing, or is something else, is made: so an operation says what it changes wherever it comes.
    """
    root: dict[str, Json] | None = None
    own: dict[int, Any] = {}  # what was copied, and may be changed in place
    for verb, path, *rest in operations:
        if root is None:
            root = dict(values)
        target = root
        if verb == "remove" and not _leads_somewhere(root, path):
            continue
        for key in path[:-1]:
            target = _opened(target, key, own, dict)
        if verb == "set":
            target[path[-1]] = rest[0]
        elif verb == "append":
            _opened(target, path[-1], own, list).extend(rest[0])
        else:
            del target[path[-1]]
    return values if root is None else root


def by_name(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    """Operations by the name of the value that they change, in their order."""
    found: dict[str, list[Operation]] = {}
    for operation in operations:
        found.setdefault(operation[1][0], []).append(operation)
    return found


def alike(one: Json, other: Json) -> bool:
    """Whether two coded values are the same to the last detail: `1` and `1.0` differ, and so do orders of keys."""
    if one is other or one is ABSENT or other is ABSENT:
        return one is other
    if isinstance(one, list | dict) and isinstance(other, list | dict) and len(one) != len(other):
        return False
    return type(one) is type(other) and dumps(one) == dumps(other)


def _changed(before: Json, after: Json, at: Path) -> list[Operation]:
    """What has changed of one value."""
    if is_plain(before) and is_plain(after):
        return difference(before, after, at)
    if isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        if alike(before, after[: len(before)]):
            return [["append", [*at], new]] if (new := after[len(before) :]) else []
        return [["set", [*at], after]]
    return [] if alike(before, after) else [["set", [*at], after]]


def _items_changed(before: Mapping[str, Json], after: Mapping[str, Json], name: str) -> list[Operation]:
    """What was added to a collection and removed from it. That looks at no item."""
    keys, were = list(after), list(before)
    if keys[: len(were)] == were:
        return [["set", [name, key], after[key]] for key in keys[len(were) :]]
    kept = _kept(before, after)
    found: list[Operation] = [["remove", [name, key]] for key in were if key not in kept]
    return found + [["set", [name, key], after[key]] for key in keys if key not in kept]


def without_items(values: Mapping[str, Json]) -> dict[str, Json]:
    """The named values, without the collections."""
    return {name: value for name, value in values.items() if not name.startswith(ITEMS)}


def items_in(values: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    """The items of all collections, coded."""
    return {name.removeprefix(ITEMS): items for name, items in values.items() if name.startswith(ITEMS) and items}


def _kept(before: Mapping[str, Json], after: Mapping[str, Json]) -> set[str]:
    """The keys that can stay where they are: removing all others, and setting those of `after`, gives its order."""
    kept, order = set[str](), iter(before)
    for key in after:
        if key not in before or not any(other == key for other in order):
            break
        kept.add(key)
    return kept


def is_plain(value: Json) -> bool:
    """Whether this is a mapping, and no value that JSON has no word for."""
    return isinstance(value, dict) and "$" not in value


def _leads_somewhere(root: dict[str, Json], path: Sequence[str]) -> bool:
    target: Json = root
    for key in path[:-1]:
        target = target.get(key)
        if not is_plain(target):
            return False
    return path[-1] in target


def _opened(target: dict[str, Json], key: str, own: dict[int, Any], kind: type) -> Any:
    """The container at a key, as a copy that may be changed."""
    found = target.get(key)
    if (kind is dict and not is_plain(found)) or (kind is list and not isinstance(found, list)):
        found = kind()
    elif id(found) in own:
        return found
    else:
        found = found.copy()  # type: ignore[union-attr]
    own[id(found)] = target[key] = found
    return found


def beginnings(path: Path) -> Iterator[Path]:
    """All paths that lead a part of the way."""
    return (path[:length] for length in range(1, len(path)))
