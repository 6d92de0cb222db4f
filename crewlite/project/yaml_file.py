"""A YAML or JSON file of agents, tasks or variants, read with the line of every key, so that errors can name it.

Only plain data is read: texts, numbers, lists and mappings. A file cannot create objects or run code. JSON is read as
YAML, which contains it; comments, and tabs between the parts, are blanked before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crewlite.errors import ConfigError, meant
from crewlite.lazy import lazy
from crewlite.texts.wording import cut

yaml = lazy("yaml")
_TEXT_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


@dataclass(slots=True)
class YamlFile:
    """The content of a file: entries by name, each with keys and values."""

    path: str
    """The path as the user wrote it."""
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[tuple[int, str]] = field(default_factory=list)
    """The mistakes in it, each with its line."""
    broken: bool = False
    """Whether it is not valid YAML, so that it may have more entries than were read."""
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)
    """The lines of entries, by (name,), and of their keys, by (name, key)."""

    def line(self, *place: str) -> int:
        """Return the line of an entry, or of a key in it; for a key that it lacks, the line of the entry."""
        return self.lines.get(place) or self.lines.get(place[:1], 1)


def read(path: str | os.PathLike[str], folder: Path) -> YamlFile:
    """Read a file, relative to a folder. Mistakes in it are collected. Raises ConfigError if it cannot be read."""
    found = YamlFile(os.fspath(path))
    _read(folder, found, _Reading.file)
    return found


def read_one(path: str | os.PathLike[str], name: str, *, flat: str = "", listed: str = "") -> tuple[YamlFile, YamlFile]:
    """Read a file that is one entry, under a name; and, as entries of their own, the items of the list at one key.

    The keys below `flat` count as keys of the entry. Items are named by their `name`, or by their place in the list.
    Mistakes are collected in the first one. Raises ConfigError if it cannot be read.
    """
    found, items = YamlFile(os.fspath(path)), YamlFile(os.fspath(path))
    _read(Path(), found, lambda reading, node: reading.one(node, name, flat, listed, items))
    items.broken = found.broken
    return found, items


def _read(folder: Path, found: YamlFile, into: Callable[[_Reading, Any], None]) -> None:
    """Read the file into `found`, as `into` says for its outermost node."""
    path = folder / found.path
    as_json = found.path.endswith((".json", ".jsonc"))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: no text in UTF-8, or a path that no file can have
        raise ConfigError(f"{cut(str(path), 200)} cannot be read: {error}{_beside(path)}") from None
    if as_json:
        text = _TEXT_OR_COMMENT.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text).replace("\t", " ")
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                into(_Reading(loader, found), node)
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        found.broken = True
        line, character = text.count("\n", 0, error.position) + 1, text[error.position]
        found.problems.append((line, f"invalid YAML: it holds the character {character!r}, which is not allowed"))
    except RecursionError:
        found.broken = True
        found.problems.append((1, "it is nested too deeply to be read"))
    except yaml.YAMLError as error:
        found.broken = True
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        found.problems.append(
            (
                mark.line + 1 if mark else 1,
                f"invalid {'JSON' if as_json else 'YAML'}: {getattr(error, 'problem', None) or error}",
            )
        )


def _beside(path: Path) -> str:
    """Return a hint at the file in the same folder that was meant, such as agents.yaml; "" if there is none."""
    if os.path.exists(path) or not os.path.isdir(path.parent):  # False for what no path can be
        return ""
    hint = meant(path.name, [one.name for one in path.parent.iterdir()])
    return f"; {hint}" if hint else ""


class _Reading:
    """One pass over the nodes of a file. A node with several references is read once."""

    def __init__(self, loader: Any, file: YamlFile) -> None:
        self._loader, self._file = loader, file
        self._values: dict[int, Any] = {}
        self._open: set[int] = set()

    def file(self, node: Any) -> None:
        if not isinstance(node, yaml.MappingNode):
            self._problem(node, "wanted names, each with keys below it")
            return
        for name, line, below in self._pairs(node, ()):
            if isinstance(below, yaml.MappingNode):
                self._file.lines[(name,)] = line
                self._file.entries[name] = {key: self._value(value) for key, _, value in self._pairs(below, (name,))}
            else:
                self._problem(below, f"{name} has no keys below it; wanted `key: value` lines, indented")

    def one(self, node: Any, name: str, flat: str, listed: str, items: YamlFile) -> None:
        """Read a node that is one entry. See read_one."""
        if not isinstance(node, yaml.MappingNode):
            self._problem(node, "wanted an object: {...}")
            return
        self._file.lines[(name,)] = node.start_mark.line + 1
        entry = self._file.entries[name] = {}
        own: dict[str, int] = {}
        for key, _, value in self._pairs(node, (name,), own):
            if flat and key == flat:
                entry |= self._flat(value, flat, name, own)
            elif key == listed and isinstance(value, yaml.SequenceNode):
                _Reading(self._loader, items).items(value, listed)
            else:
                entry[key] = self._value(value)

    def _flat(self, node: Any, flat: str, name: str, own: dict[str, int]) -> dict[str, Any]:
        """Return what stands below a key whose keys count as those of the entry."""
        if isinstance(node, yaml.MappingNode):
            return {key: self._value(value) for key, _, value in self._pairs(node, (name,), own)}
        if (value := self._value(node)) is not None:
            self._problem(node, f"{flat} of {name} is {value!r}; wanted an object")
        return {}

    def items(self, node: Any, listed: str) -> None:
        """Read the items of a list as entries, each under its `name`."""
        for number, item in enumerate(node.value):
            if not isinstance(item, yaml.MappingNode):
                self._problem(item, f"{listed}[{number}] is {self._value(item)!r}; wanted an object")
                continue
            place = f"{listed}[{number}]"
            fields = {key: (line, self._value(value)) for key, line, value in self._pairs(item, (place,))}
            name = str(fields["name"][1]) if fields.get("name", (0, None))[1] else place
            if name in self._file.entries:
                self._problem(item, f"the name {name!r} is repeated; each of {listed} needs a name of its own")
            self._file.entries[name] = {key: value for key, (_, value) in fields.items()}
            self._file.lines[(name,)] = item.start_mark.line + 1
            self._file.lines |= {(name, key): line for key, (line, _) in fields.items()}

    def _pairs(
        self, node: Any, place: tuple[str, ...], own: dict[str, int] | None = None
    ) -> Iterator[tuple[str, int, Any]]:
        """Yield key, line and value; for a repeated key, the last value. `own`: keys of the same entry, with lines."""
        own = {} if own is None else own
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if key.tag.endswith(":merge"):
                continue
            if name in own:
                what = f"{name} of {place[0]}" if place else name
                self._file.problems.append((line, f"{what} is repeated; it was first set in line {own[name]}"))
            own[name] = line
            self._file.lines[(*place, name)] = line
        self._loader.flatten_mapping(node)
        last = {str(key.value): (key, value) for key, value in node.value}
        for name, (key, value) in last.items():
            yield name, key.start_mark.line + 1, value

    def _value(self, node: Any) -> Any:
        if id(node) in self._values:
            return self._values[id(node)]
        if id(node) in self._open:
            self._problem(node, "holds itself")
            return None
        self._open.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            value: Any = [self._value(item) for item in node.value]
        elif isinstance(node, yaml.MappingNode):
            self._loader.flatten_mapping(node)
            value = {str(key.value): self._value(item) for key, item in node.value}
        else:
            value = self._scalar(node)
            if isinstance(value, str):  # JSON writes a character beyond U+FFFF as a pair of escapes
                value = value.strip().encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        self._open.discard(id(node))
        self._values[id(node)] = value
        return value

    def _scalar(self, node: Any) -> Any:
        try:
            return self._loader.construct_object(node)
        except ValueError as error:  # 2026-02-30, or a number of thousands of digits
            self._problem(node, f"{cut(node.value, 40)} is no {node.tag.rpartition(':')[2]}: {error}")
            return node.value

    def _problem(self, node: Any, what: str) -> None:
        self._file.problems.append((node.start_mark.line + 1, what))
