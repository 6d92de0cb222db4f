"""A YAML file of agents, tasks or variants, read with the line of every key, so that errors can name it.

Only plain data is read: texts, numbers, lists and mappings. A file cannot create objects or run code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crewlite.errors import ConfigError, meant
from crewlite.lazy import lazy

yaml = lazy("yaml")


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
    shown = os.fspath(path)
    try:
        text = (folder / shown).read_text(encoding="utf-8-sig")
        if shown.endswith(".json"):  # YAML contains JSON, but for tabs between the parts
            text = text.replace("\t", " ")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{folder / shown} cannot be read: {error}{_beside(folder / shown)}") from None
    found = YamlFile(shown)
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                _Reading(loader, found).file(node)
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        found.broken = True
        line, character = text.count("\n", 0, error.position) + 1, text[error.position]
        found.problems.append((line, f"invalid YAML: it holds the character {character!r}, which is not allowed"))
    except yaml.YAMLError as error:
        found.broken = True
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        found.problems.append(
            (mark.line + 1 if mark else 1, f"invalid YAML: {getattr(error, 'problem', None) or error}")
        )
    return found


def _beside(path: Path) -> str:
    """Return a hint at the file in the same folder that was meant, such as agents.yaml; "" if there is none."""
    if path.exists() or not path.parent.is_dir():
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

    def _pairs(self, node: Any, place: tuple[str, ...]) -> Iterator[tuple[str, int, Any]]:
        """Yield key, line and value; for a repeated key, the last value."""
        own: dict[str, int] = {}
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
            value = self._loader.construct_object(node)
            value = value.strip() if isinstance(value, str) else value
        self._open.discard(id(node))
        self._values[id(node)] = value
        return value

    def _problem(self, node: Any, what: str) -> None:
        self._file.problems.append((node.start_mark.line + 1, what))
