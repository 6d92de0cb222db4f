"""Patches of coded values: what was appended to lists, and set or removed in mappings (JSON Patch, RFC 6902).

A list that grows is recorded by what is new in it, so that many appends cost what is appended, not the square of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from crewlite.codec import Json, digest, dumps
from crewlite.state.format.commit import ValueChanges
from crewlite.state.format.delta import PatchOperation, StepChanges, applied

C = TypeVar("C", StepChanges, ValueChanges)


def shortened(before: Mapping[str, Json], changed: ValueChanges) -> ValueChanges:
    """The same changes, of values that are these before, with patches where those are shorter than whole values."""
    by: dict[str, StepChanges] = {}
    for address, step in changed.get("by", {}).items():
        by[address] = _shortened(before, step)
        before = applied(before, step)
    short = _shortened(before, changed)
    return {**short, "by": by} if "by" in changed else short


def _shortened(before: Mapping[str, Json], changed: C) -> C:
    new = changed.get("set", {})
    patches = {name: ops for name, value in new.items() if name in before and (ops := patch(before[name], value))}
    if not patches:
        return changed
    rest = {name: value for name, value in new.items() if name not in patches}
    others = {key: value for key, value in changed.items() if key != "set"} | ({"set": rest} if rest else {})
    return cast(C, {**others, "patch": patches})


def patch(before: Json, after: Json) -> list[PatchOperation]:
    """The operations that lead from one value to the other exactly; none if they would be longer than the value."""
    operations = _operations(before, after, "")
    if operations is None or len(dumps(operations)) >= len(whole := dumps(after)):
        return []
    return operations if dumps(patched(before, operations)) == whole else []  # the order of keys may be another


def patched(value: Json, operations: Sequence[PatchOperation]) -> Json:
    """The value after these operations. What it was stays as it is. Raises LookupError, TypeError or ValueError."""
    root, own = [value], set[int]()

    def opened(container: Any, key: Any) -> Any:
        """What is at a key, as a copy that may be changed."""
        if id(container[key]) not in own:
            container[key] = container[key].copy()
            own.add(id(container[key]))
        return container[key]

    for operation in operations:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target = opened(root, 0)
        for key in way:
            target = opened(target, key)
        if operation["op"] == "remove":
            del target[last]
        elif isinstance(target, dict):
            target[last] = operation["value"]
        elif last == "-":
            target.append(operation["value"])
        else:
            raise ValueError(f"a patch of a list at {operation['path']!r}")
    return root[0]


def _operations(before: Json, after: Json, path: str) -> list[PatchOperation] | None:
    """None where the value is another."""
    if isinstance(before, list) and isinstance(after, list):
        kept = len(before)
        if kept <= len(after) and digest(before) == digest(after[:kept]):
            return [{"op": "add", "path": f"{path}/-", "value": value} for value in after[kept:]]
        return None
    if not (isinstance(before, dict) and isinstance(after, dict)) or "$" in before or "$" in after:
        return None
    gone = [key for key in before if key not in after]
    operations: list[PatchOperation] = [{"op": "remove", "path": f"{path}/{_escaped(key)}"} for key in gone]
    for key, value in after.items():
        at = f"{path}/{_escaped(key)}"
        if key not in before:
            operations.append({"op": "add", "path": at, "value": value})
        elif before[key] is not value and digest(before[key]) != digest(value):
            inner = _operations(before[key], value, at)
            operations += [{"op": "add", "path": at, "value": value}] if inner is None else inner
    return operations


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
