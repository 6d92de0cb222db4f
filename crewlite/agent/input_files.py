"""Files that a model is shown: texts between marks in the prompt, pictures beside it.

A file is part of the question: its digest is. So the record holds no second copy, and a file that has changed since is
told like any other change of what is asked.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crewlite import templates
from crewlite.agent.shape import PROMPTS
from crewlite.errors import ConfigError
from crewlite.llm.base import Message
from crewlite.llm.parts import Part, picture, with_pictures

_LARGEST = 20_000_000  # bytes
_LONGEST = 1_000_000  # characters


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as it was read."""

    name: str
    digest: str | None = None
    """Of what it holds; None if it could not be read."""
    text: str | None = None
    picture: Part | None = None
    problem: str = ""
    """What keeps a model from being shown it."""


def as_files(value: object) -> Mapping[str, str] | None:
    """Names and paths of files, given like this or as a list of paths; None without any. Raises ConfigError."""
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
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"input_files has two files named {twice[0]!r}; give them names: {{'old': ..., 'new': ...}}")
    return dict(zip(names, paths, strict=True))


def read(files: Mapping[str, str] | None) -> tuple[InputFile, ...]:
    """The files as they are now. One that cannot be shown has a problem."""
    return tuple(_read(name, Path(path)) for name, path in (files or {}).items())


def check(files: Sequence[InputFile], where: str) -> None:
    """Raise ConfigError if a file cannot be shown."""
    for file in files:
        if file.problem:
            raise ConfigError(f"{where}: the input file {file.name!r} {file.problem}")


def digests(files: Sequence[InputFile]) -> dict[str, str | None]:
    """What stands for the files in a question."""
    return {file.name: file.digest for file in files}


def shown(files: Sequence[InputFile]) -> str:
    """What a prompt says of files; "" without any."""
    texts = [templates.marked("file", file.text, name=file.name) for file in files if file.text is not None]
    pictures = [file.name for file in files if file.picture]
    return templates.render(PROMPTS, "files.j2", texts=texts, pictures=pictures) if files else ""


def pictures(files: Sequence[InputFile]) -> list[Part]:
    """The pictures among them."""
    return [file.picture for file in files if file.picture]


def showing(messages: list[Message], given: object) -> list[Message]:
    """A conversation whose last message shows files, given as `input_files`. Raises ConfigError."""
    files = read(as_files(given))
    check(files, "The kickoff of an agent")
    if not files:
        return messages
    *before, last = messages
    said: Any = last["content"]
    text = shown(files)
    content = f"{said}\n\n{text}" if isinstance(said, str) else [*said, {"type": "text", "text": text}]
    return [*before, last | {"content": with_pictures(content, pictures(files))}]


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
