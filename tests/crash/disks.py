"""What a disk holds after the power was cut: a model that replays the log of the I/O door."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from crewlite.system.disk import Operation


class Disk:
    """Files as the program sees them, and what of them would be there after a cut.

    Data is safe once its file was synced; a name (of a file made, renamed, removed) once its directory was. On an
    `eager` disk names are safe at once, before the data they stand for.
    """

    def __init__(self, before: dict[str, bytes], *, eager: bool) -> None:
        self.written = {path: bytearray(content) for path, content in before.items()}
        self.synced = dict(before)
        self.names: dict[str, str | None] = {path: path for path in before}
        """What the directories on disk say: a path, and the file it means."""
        self.pending: dict[str, str | None] = {}
        """What they are to say."""
        self.moved: dict[str, str] = {}
        """Directories by their new names, while the disk still knows the old ones."""
        self.fresh = 0
        self.eager = eager

    def apply(self, operation: Operation) -> None:
        """Replay one operation."""
        path, data = operation.path, operation.data
        match operation.verb:
            case "write":
                if self._file(path) is None:
                    self._name(path, self._new(path))
                file = self.written[self._known(path)]
                file[operation.offset : operation.offset + len(data)] = data
            case "truncate":
                del self.written[self._known(path)][operation.offset :]
            case "fsync":
                self.synced[self._known(path)] = bytes(self.written[self._known(path)])
            case "rename":
                self._rename(path, data.decode())
            case "unlink":
                self._name(path, None)
            case "fsync_dir":
                self._settle(path)
            case _:
                pass
        if self.eager:
            for name in {str(Path(name).parent) for name in (*self.pending, *self.moved)}:
                self._settle(name)

    def left(self) -> dict[str, bytes]:
        """Files after the cut."""
        return {name: self.synced.get(file, b"") for name, file in self.names.items() if file is not None}

    def _new(self, path: str) -> str:
        """A file of its own, also where one of that name was before."""
        self.fresh += 1
        file = f"{path}?{self.fresh}"
        self.written[file] = bytearray()
        return file

    def _file(self, path: str) -> str | None:
        """The file that the program finds at a path."""
        return self.pending[path] if path in self.pending else self.names.get(path)

    def _known(self, path: str) -> str:
        file = self._file(path)
        assert file is not None, f"{path} is written to and is not there"
        return file

    def _name(self, path: str, file: str | None) -> None:
        self.pending[path] = file

    def _rename(self, path: str, target: str) -> None:
        if self._file(path) is not None:
            self._name(target, self._file(path))
            self._name(path, None)
            return
        self.moved[target] = path  # a directory: its files are the same files, whatever it is called
        for listed in (self.names, self.pending):
            listed.update({_moved(name, path, target): listed.pop(name) for name in list(listed)})

    def _settle(self, directory: str) -> None:
        for new in [name for name in self.moved if str(Path(name).parent) == directory]:
            del self.moved[new]
        for name in [name for name in self.pending if str(Path(name).parent) == directory]:
            self.names[name] = self.pending.pop(name)

    def at_old_names(self) -> dict[str, bytes]:
        """Files after the cut, in directories whose new names were not yet safe."""
        found = self.left()
        for new, old in reversed(self.moved.items()):
            found = {_moved(name, new, old): content for name, content in found.items()}
        return found


def after_the_cut(log: Sequence[Operation], disk: Path, root: Path, *, eager: bool, before: Path | None = None) -> None:
    """Write to `disk` what is left of `root`, which began as a copy of `before`."""
    files = {}
    if before:
        shutil.copytree(before, disk)
        for path in [path for path in disk.rglob("*") if path.is_file()]:
            files[str(root / path.relative_to(disk))] = path.read_bytes()
    model = Disk(files, eager=eager)
    for operation in log:
        model.apply(operation)
    left = {str(Path(name).relative_to(root)): content for name, content in model.at_old_names().items()}
    disk.mkdir(exist_ok=True)
    for path in [path for path in disk.rglob("*") if path.is_file()]:
        if str(path.relative_to(disk)) not in left:
            path.unlink()
    for name, content in left.items():
        (disk / name).parent.mkdir(parents=True, exist_ok=True)
        if not (disk / name).exists() or (disk / name).read_bytes() != content:
            (disk / name).write_bytes(content)


def _moved(path: str, old: str, new: str) -> str:
    return new + path.removeprefix(old) if path.startswith(f"{old}/") else path
