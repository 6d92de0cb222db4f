"""Files that a model is shown: texts between marks in the prompt, pictures beside it.

The digest of a file is part of what a step is asked. So the record holds no second copy, and a file that has changed
is noticed like any other change of what is asked.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crewlite.agent.shape import PROMPTS
from crewlite.errors import ConfigError
from crewlite.llm.base import Message
from crewlite.llm.parts import Part, picture, with_pictures
from crewlite.texts import templates

FILES = "input files"
"""The name under which the files of a crew's kickoff are among its inputs. No placeholder can have it."""
_LARGEST = 20_000_000  # bytes
_LONGEST = 1_000_000  # characters
_LISTED = re.compile(r"(?:\A|\n\n)(?=Files to work with\. What stands between|Attached pictures, in this order: )")
_FILE = re.compile(r'^<file name="([^"\n]*)">\n(.*?)\n</file>$', re.MULTILINE | re.DOTALL)
_PICTURES = re.compile(r"(?:\A|\n)Attached pictures, in this order: ([^\n]*)\Z")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as it was read."""

    name: str
    digest: str | None = None
    """The digest of the content; None if the file could not be read."""
    text: str | None = None
    picture: Part | None = None
    problem: str = ""
    """What keeps a model from being shown it."""


def as_files(value: object) -> Mapping[str, str] | None:
    """Return a mapping of names to paths, from a mapping or a list of paths; None without files. Raises ConfigError."""
    if not value:
        return None
    if isinstance(value, str | os.PathLike) or not isinstance(value, Mapping | list | tuple):
        raise ConfigError(
            f"input_files is {value!r}; wanted names and paths, {{'report': 'data/report.txt'}}, or paths"
        )
    if isinstance(value, Mapping):
        return {str(name): _path(one, str(name)) for name, one in value.items()}
    paths = [_path(one, str(number)) for number, one in enumerate(value)]
    names = [Path(path).name for path in paths]
    if "" in names:
        raise ConfigError(f"input_files has {paths[names.index('')]!r}, which names no file; wanted the path of a file")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"input_files has two files named {twice[0]!r}; give them names: {{'old': ..., 'new': ...}}")
    return dict(zip(names, paths, strict=True))


def read(files: Mapping[str, str] | None) -> tuple[InputFile, ...]:
    """Read the files as they are now. A file that cannot be shown has a `problem`."""
    return tuple(_read(name, Path(path)) for name, path in (files or {}).items())


def check(files: Sequence[InputFile], where: str) -> None:
    """Raise ConfigError if a file cannot be shown."""
    for file in files:
        if file.problem:
            raise ConfigError(f"{where}: the input file {file.name!r} {file.problem}")


def digests(files: Sequence[InputFile]) -> dict[str, str | None]:
    """Return the digests of the files by name, which stand for the files in what a step is asked."""
    return {file.name: file.digest for file in files}


def shown(files: Sequence[InputFile]) -> str:
    """Return the text about the files, of which there is one at least, in a prompt."""
    texts = [templates.marked("file", file.text, name=file.name) for file in files if file.text is not None]
    pictures = [file.name for file in files if file.picture]
    return templates.render(PROMPTS, "files.j2", texts=texts, pictures=pictures)


def pictures(files: Sequence[InputFile]) -> list[Part]:
    """Return the pictures among the files, as parts of a message."""
    return [file.picture for file in files if file.picture]


def showing(messages: list[Message], files: Sequence[InputFile]) -> list[Message]:
    """Return the messages with the files that can be shown added to the last one."""
    files = [file for file in files if not file.problem]
    if not files:
        return messages
    *before, last = messages
    said: Any = last["content"]
    text = shown(files)
    content = f"{said}\n\n{text}" if isinstance(said, str) else [*said, {"type": "text", "text": text}]
    return [*before, last | {"content": with_pictures(content, pictures(files))}]


def files_changed(before: Sequence[Message], now: Sequence[Message], gone: Collection[str]) -> list[str] | None:
    """Return the names of files that differ between two lists of messages; None if their words or file names differ.

    `gone`: the names of further files of the second list, which cannot be read any more.
    """
    around = [[*said[:-1], {**said[-1], "content": None}] for said in (before, now)]
    (words, text, shown), (words_now, text_now, shown_now) = (
        _taken_apart(said[-1]["content"]) for said in (before, now)
    )
    lost = {templates.attribute(name) for name in gone}
    if (
        around[0] != around[1]
        or words != words_now
        or shown.keys() != shown_now.keys() | lost
        or lost & shown_now.keys()
    ):
        return None
    if text != text_now and not (lost and not text_now and "\n" not in text):
        return None
    changed = [name for name, one in shown_now.items() if one != shown[name]]
    return changed if changed or lost else None


def _taken_apart(content: Any) -> tuple[list[Any], str, dict[str, Any]]:
    """Split the content of a message: return its words, the text around the files in it, and the files by name."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    found = ((number, _LISTED.search(str(part.get("text", "")))) for number, part in enumerate(parts))
    at, listed = next(((number, match) for number, match in found if match), (0, None))
    if listed is None:
        return parts, "", {}
    said, text = listed.string[: listed.start()], listed.string[listed.start() :]
    pictured = _PICTURES.search(text)
    names = [templates.attribute(name) for name in pictured[1].split(", ")] if pictured else []
    pictures = parts[at + 1 : at + 1 + len(names)]
    files: dict[str, Any] = {**dict(_FILE.findall(text)), **dict(zip(names, pictures, strict=False))}
    own = [{"type": "text", "text": said}] if said else []
    around = _PICTURES.sub("", _FILE.sub("", text)).strip()
    return [*parts[:at], *own, *parts[at + 1 + len(names) :]], around, files


def _path(value: object, name: str) -> str:
    source = getattr(value, "source", value)  # the file objects of other frameworks
    if not isinstance(source, str | os.PathLike) or not os.fspath(source):
        raise ConfigError(
            f"input_files: {name} is {type(value).__name__} {str(value)[:60]!r}; wanted the path of a file"
        )
    return str(os.fspath(source))


def _read(name: str, path: Path) -> InputFile:
    try:
        if path.stat().st_size > _LARGEST:
            return InputFile(
                name, problem=f"({path}) has more than {_LARGEST:,} bytes; give the agent a tool that reads it"
            )
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # a ValueError is a NUL character
        return InputFile(name, problem=f"cannot be read: {error}")
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    if found := picture(data):
        return InputFile(name, digest, picture=found)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        problem = (
            f"({path}) is neither UTF-8 text nor a PNG, JPEG, GIF or WebP picture; give the agent a tool that reads it"
        )
        return InputFile(name, digest, problem=problem)
    if len(text) > _LONGEST:
        problem = f"({path}) has more than {_LONGEST:,} characters; give the agent a tool that reads it"
        return InputFile(name, digest, problem=problem)
    return InputFile(name, digest, text=text)
