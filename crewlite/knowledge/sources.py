"""Where knowledge comes from: texts, files, and whatever a subclass of KnowledgeSource loads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from pydantic import ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from crewlite.definitions.definition import Described
from crewlite.definitions.takes import Takes, left_out
from crewlite.errors import ConfigError
from crewlite.lazy import lazy
from crewlite.texts.wording import what_is

if TYPE_CHECKING:
    from crewlite.knowledge.passages import Index, Passage

passages = lazy("crewlite.knowledge.passages")  # only agents with knowledge need it
files = lazy("crewlite.knowledge.files")  # csv and json, which only sources of files need

_of_paths = WeakValueDictionary[tuple[object, ...], "FileKnowledgeSource"]()
_SETTLED = 2
"""Seconds. What is written to a file so shortly after another change may leave its times and size as they are."""


class KnowledgeSource(Described):
    """A source of knowledge. A subclass has `load_content`, which returns its texts.

    It is loaded once, at the latest when an agent or a crew is made of it; what changes later is seen by a new source.
    """

    model_config = ConfigDict(frozen=False)

    chunk_size: int = Field(default=4000, ge=1)
    """The greatest number of characters in a passage."""
    chunk_overlap: int = Field(default=200, ge=0)
    """How many characters of a passage stand also at the beginning of the next one."""
    chunks: list[str] = Field(default_factory=list, repr=False)
    """The texts of the passages that `add` has made."""

    _index: Index | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _moves_on(self) -> KnowledgeSource:
        if self.chunk_overlap >= self.chunk_size:
            raise ConfigError(f"chunk_overlap is {self.chunk_overlap}; wanted less than chunk_size ({self.chunk_size})")
        return self

    def load_content(self) -> Mapping[Any, str] | Sequence[str] | str:
        """Return the texts, by their names if they have names. May read files and ask services."""
        raise ConfigError(f"{type(self).__name__} loads nothing: give it a method load_content that returns its texts")

    def validate_content(self) -> Any:
        """Check the content. Nothing calls it but what a subclass does itself."""

    def add(self) -> None:
        """Cut the texts into `chunks`. A subclass may do so itself."""
        self.chunks.extend(passage.text for passage in self._loaded())

    async def aadd(self) -> None:
        """Do what `add` does."""
        self.add()

    @property
    def index(self) -> Index:
        """The passages, ready to be searched. The first use loads the source."""
        if self._index is None:
            self._index = passages.Index(self._loaded() if type(self).add is KnowledgeSource.add else self._added())
        return self._index

    @property
    def recorded_paths(self) -> list[str] | None:
        """What the record holds of it, from which the source can be made again; None if only the caller has it."""
        return None

    def _loaded(self) -> list[Passage]:
        loaded = self.load_content()
        named = loaded if isinstance(loaded, Mapping) else {"": loaded}
        texts = [(_named(name), text) for name, one in named.items() for text in self._texts(one)]
        return [passages.Passage(name, chunk) for name, text in texts for chunk in self._chunk_text(text)]

    def _texts(self, loaded: object) -> list[str]:
        """Return the texts in what `load_content` returned, or in what it has under one name. Raises ConfigError."""
        found = loaded if isinstance(loaded, Iterable) and not isinstance(loaded, str | bytes | Mapping) else [loaded]
        texts = []
        for text in found:
            if not isinstance(text, str):
                what = f"load_content of {type(self).__name__} returned {what_is(text)}"
                raise ConfigError(f"{what}; wanted a text, a list of texts, or a dict of texts by their names")
            texts.append(text)
        return texts

    def _added(self) -> list[Passage]:
        self.chunks.clear()
        self.add()
        return [passages.Passage(type(self).__name__, chunk) for chunk in self.chunks]

    def _chunk_text(self, text: str) -> list[str]:
        return list(passages.pieces(text, self.chunk_size, self.chunk_overlap))

    def _save_documents(self) -> None:
        """Do nothing: subclasses written for CrewAI call it at the end of `add`."""

    async def _asave_documents(self) -> None:
        """Do nothing, likewise."""


class StringKnowledgeSource(KnowledgeSource):
    """A text that agents know: `StringKnowledgeSource(content="The harbour closes at ten.")`."""

    content: str = Field(repr=False)

    def load_content(self) -> str:
        """Return the text."""
        return self.content


class FileKnowledgeSource(KnowledgeSource):
    """Files that agents know: `FileKnowledgeSource(file_paths=["handbook.md", "prices.csv"])`.

    Plain text, CSV, JSON; PDF, workbooks and documents if the libraries for them are installed. A path that is a text
    is looked for in the folder `knowledge` of the working directory first. The files are read when the source is made.
    Raises KnowledgeMissing (a ConfigError and a FileNotFoundError) and, for a file that cannot be read as text,
    ConfigError.
    """

    file_paths: Takes[str | Path | Sequence[str | Path], tuple[str | Path, ...]] = left_out(())
    file_path: Takes[str | Path | Sequence[str | Path], tuple[str | Path, ...]] = left_out(())
    """The older name of file_paths."""
    content: dict[Path, str] = Field(default_factory=dict, repr=False)
    """The texts of the files."""

    @field_validator("file_paths", "file_path", mode="before")
    @classmethod
    def _is_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str | os.PathLike) else value

    if not TYPE_CHECKING:  # type checkers keep the signature made from the fields

        def __init__(self, *args: Any, **data: Any) -> None:
            super().__init__(*args, **data)
            self.content = dict(self.load_content())  # not while it is validated, which would change its errors

    @property
    def safe_file_paths(self) -> list[Path]:
        """The files, as paths from the working directory."""
        if not (given := (*self.file_paths, *self.file_path)):
            raise ConfigError(f"{type(self).__name__} has no files: file_paths=['handbook.md']")
        return [files.located(path) for path in given]

    def load_content(self) -> Mapping[Path, str]:
        """Return the texts of the files."""
        return self.content or {path: files.text_of(path) for path in self.safe_file_paths}

    @property
    def recorded_paths(self) -> list[str] | None:
        """The paths of the files, if the rest is as usual."""
        usual = type(self) is FileKnowledgeSource and not self.model_fields_set & {"chunk_size", "chunk_overlap"}
        return [str(path) for path in self.content] if usual else None


def as_sources(value: object, info: ValidationInfo) -> object:
    """What was given as sources of knowledge, as loaded sources; a path becomes the source of its file.

    Raises ConfigError, and what a source raises that cannot be loaded.
    """
    field = info.field_name
    if isinstance(value, str | os.PathLike | KnowledgeSource):
        raise ConfigError(f"{field} is one source; wanted a list: {field}=[...]")
    if not isinstance(value, list | tuple):
        return value
    sources = [_as_source(item, f"{field}[{number}]") for number, item in enumerate(value)]
    for source in sources:
        source.index  # noqa: B018 - loads it here, in the caller's thread: runs read no file
    return sources


def _as_source(item: object, where: str) -> KnowledgeSource:
    if isinstance(item, KnowledgeSource):
        return item
    if isinstance(item, str | Path):
        return _of_path(item)
    if isinstance(item, list) and item:  # what a run has recorded
        return FileKnowledgeSource(file_paths=item)
    if isinstance(item, Mapping):  # of a file of a project
        return (StringKnowledgeSource if "content" in item else FileKnowledgeSource)(**item)
    raise ConfigError(f"{where} is {what_is(item)}; wanted a source, such as StringKnowledgeSource, or a path")


def _of_path(given: str | Path) -> KnowledgeSource:
    """Return the source of a file: the same for all agents and crews while one has it and the file is unchanged."""
    path = files.located(given)
    found = os.stat(path)
    key = (given, path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    if (source := _of_paths.get(key)) is None:
        source = FileKnowledgeSource(file_paths=given)
        if time.time() - found.st_mtime > _SETTLED:
            _of_paths[key] = source
    return source


def _named(name: object) -> str:
    """Return the name of a text for a model: of a path that is absolute the last part, as it differs by machine."""
    path = Path(str(name))
    if path.is_absolute():
        return path.name
    return path.relative_to("knowledge").as_posix() if path.parts[:1] == ("knowledge",) else str(name)
