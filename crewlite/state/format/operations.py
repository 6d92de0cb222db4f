"""Operations on encoded values: the changes that turn one mapping of names to values into another.

For a list that grows, only the appended items are recorded; for a mapping, only the keys that were set or removed; any
other value is recorded completely. So a commit costs bytes for changes alone, and changes of concurrent steps can be
combined.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from crewlite.encoding.codec import Json

Operation = list[Any]
"""`["set", path, value]`, `["remove", path]` or `["append", path, items]`. A path is a name, then keys in its value."""
Path = tuple[str, ...]
ABSENT: Any = object()
"""Stands for a missing value."""
ITEMS = "$items:"
"""The prefix of names whose values are the items of a collection, by id. An item is never changed."""
_BY_VALUE = 2
"""The version of `marshal` in which equal values have equal bytes, whether or not their parts are shared objects."""
_LENGTHS = {"set": 3, "append": 3, "remove": 2}


def check_operations(found: list[Operation]) -> list[Operation]:
    """Return `found` if it is a list of operations. Raises ValueError otherwise."""
    for operation in found:
        verb, path = (operation[0], operation[1]) if len(operation) > 1 else (None, None)
        known = isinstance(verb, str) and _LENGTHS.get(verb) == len(operation)
        if not known or not isinstance(path, list) or not path or not all(isinstance(key, str) for key in path):
            raise ValueError("wanted set, append or remove, with a path")
        if verb == "append" and not isinstance(operation[2], list):
            raise ValueError("wanted a list to append")
    return found


def difference(before: Mapping[str, Json], after: Mapping[str, Json], at: Path = ()) -> list[Operation]:
    """Return the operations that turn `before` into `after`, including the order of keys."""
    if before is after:
        return []
    kept = before.keys() if list(before) == list(after) else _keys_in_place(before, after)
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
    """Return the values after these operations, without changing `values`.

    A list or mapping on the path that is missing, or of another type, is created, so operations apply to any values.
    """
    root: dict[str, Json] | None = None
    own: dict[int, Any] = {}  # containers that were copied, and may be changed in place
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
    """Group operations by the name of the value that they change, keeping their order."""
    found: dict[str, list[Operation]] = {}
    for operation in operations:
        found.setdefault(operation[1][0], []).append(operation)
    return found


def alike(one: Json, other: Json) -> bool:
    """Return whether two encoded values are equal in every detail: `1` and `1.0` differ, and so do orders of keys."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):  # of which one may be ABSENT
        return False
    if kind in (str, int, bool):
        return bool(one == other)
    if kind in (list, dict) and len(one) != len(other):
        return False
    return bool(one == other) and marshal.dumps(one, _BY_VALUE) == marshal.dumps(other, _BY_VALUE)


def _changed(before: Json, after: Json, at: Path) -> list[Operation]:
    if is_plain(before) and is_plain(after):
        return difference(before, after, at)
    if isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        if alike(before, after[: len(before)]):
            return [["append", [*at], new]] if (new := after[len(before) :]) else []
        return [["set", [*at], after]]
    return [] if alike(before, after) else [["set", [*at], after]]


def _items_changed(before: Mapping[str, Json], after: Mapping[str, Json], name: str) -> list[Operation]:
    """Return the additions to and removals from a collection, without comparing items."""
    keys, were = list(after), list(before)
    if keys[: len(were)] == were:
        return [["set", [name, key], after[key]] for key in keys[len(were) :]]
    kept = _keys_in_place(before, after)
    found: list[Operation] = [["remove", [name, key]] for key in were if key not in kept]
    return found + [["set", [name, key], after[key]] for key in keys if key not in kept]


def items_moved(operations: Iterable[Operation], origin: str, address: str) -> list[Operation]:
    """Return operations of the step `origin` as operations of the step `address`: items that it added get new ids."""
    own = re.compile(re.escape(origin) + r"(?=[/!]|\.\d+$)")
    return [
        [verb, [path[0], own.sub(lambda _: address, path[1], count=1) if own.match(path[1]) else path[1]], *rest]
        if path[0].startswith(ITEMS) and len(path) > 1
        else [verb, path, *rest]
        for verb, path, *rest in operations
    ]


def without_items(values: Mapping[str, Json]) -> dict[str, Json]:
    """Return the values without the collections."""
    return {name: value for name, value in values.items() if not name.startswith(ITEMS)}


def items_in(values: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    """Return the items of all non-empty collections, encoded, by the name of the collection."""
    return {name.removeprefix(ITEMS): items for name, items in values.items() if name.startswith(ITEMS) and items}


def _keys_in_place(before: Mapping[str, Json], after: Mapping[str, Json]) -> set[str]:
    """Return the keys to keep in place: after removing the others and setting those of `after`, the order is right."""
    kept, order = set[str](), iter(before)
    for key in after:
        if key not in before or key not in order:  # this moves `order` on to the key
            break
        kept.add(key)
    return kept


def is_plain(value: Json) -> bool:
    """Return whether this is an encoded mapping, rather than the encoded form of another type."""
    return isinstance(value, dict) and "$" not in value


def _leads_somewhere(root: dict[str, Json], path: Sequence[str]) -> bool:
    target: Json = root
    for key in path[:-1]:
        target = target.get(key)
        if not is_plain(target):
            return False
    return path[-1] in target


def _opened(target: dict[str, Json], key: str, own: dict[int, Any], kind: type) -> Any:
    """Return a container at `key` that may be changed: a copy, made at the first change and kept in `own`."""
    found = target.get(key)
    fits = is_plain(found) if kind is dict else isinstance(found, list)
    if fits and id(found) in own:
        return found
    found = kind(found) if fits else kind()
    own[id(found)] = target[key] = found
    return found


def beginnings(path: Path) -> Iterator[Path]:
    """Yield all proper beginnings of a path, shortest first."""
    return (path[:length] for length in range(1, len(path)))
