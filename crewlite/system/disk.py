"""Disk access: every byte that crewlite writes passes through this module.

A file is saved all or nothing: written to a temporary file, synced, then renamed over the old one. An append is synced
before it is reported as stored. A watcher is called just before each operation and may raise, or kill the process. So
tests can fail or drop any write, and reproduce the disk as a power failure would have left it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO, Any, Literal

from crewlite.errors import StoreBusy
from crewlite.ids import new_id
from crewlite.lazy import sqlite3
from crewlite.system.file_locks import BINARY, UNBLOCKED, close_locked, take_lock
from crewlite.system.forked import between_forks, lock
from crewlite.system.syncing import sync

PATIENCE = 10.0  # seconds to wait for a database that another connection is writing to
_making = lock()
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY
Verb = Literal["mkdir", "write", "truncate", "fsync", "rename", "fsync_dir", "unlink", "touch", "sql", "commit"]


@dataclass(frozen=True, slots=True)
class Operation:
    """A disk operation that is about to happen."""

    verb: Verb
    path: str
    data: bytes = b""
    """The bytes to write; the new name (rename); the SQL text (sql)."""
    offset: int = 0
    """The offset of the write in bytes; the new length (truncate)."""


Watcher = Callable[[Operation], None]
_watchers: tuple[Watcher, ...] = ()


@contextlib.contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` before every disk operation of this process while the block runs."""
    global _watchers
    _watchers = (*_watchers, watcher)
    try:
        yield
    finally:
        _watchers = tuple(w for w in _watchers if w is not watcher)


def announce(verb: Verb, path: Path | str, data: bytes = b"", offset: int = 0) -> None:
    """Call the watchers before an operation."""
    for watcher in _watchers:
        watcher(Operation(verb, str(path), data, offset))


class SyncBatch:
    """Writes that are synced together when the block ends without an error, as file systems combine such requests.

    Then files are removed and renamed as requested, and their directories synced. The files that the batch holds stay
    locked until the writes are synced, but not during the renames. All is durable only after the block. If the block or
    the sync fails, no file is renamed, and held files are as they were.
    """

    def __init__(self) -> None:
        self._held: dict[Path, FileIO] = {}
        self._ends: dict[Path, int] = {}
        self._temporary: dict[str, FileIO] = {}
        self._files: dict[Path | str, FileIO] = {}
        self._directories: dict[Path | str, None] = {}
        self._renames: list[tuple[str, str, bool]] = []
        self._removals: list[str] = []

    def __enter__(self) -> SyncBatch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with contextlib.ExitStack() as closing:  # each of these is done, also if others fail
            for held in self._held.values():
                closing.callback(close_locked, held)
            if self._temporary or self._ends:
                closing.push(lambda failed, *_: self._give_up(failed or kind) if failed or kind else None)
            for file in self._temporary.values():  # before they are renamed, as Windows cannot rename an open file
                closing.callback(file.close)
            if kind is None:
                _sync_all(self._files, self._directories)
        if kind is None and (self._renames or self._removals):
            self._rename_and_remove()

    def replace(
        self, path: Path | str, data: bytes, *, mode: int = 0o600, durable: bool = True, writer: str = ""
    ) -> None:
        """Write `data` to a temporary file, to be renamed over `path` at the end of the block."""
        directory, name = os.path.split(path)
        unique = f"{writer}{new_id()[-12:]}"[:12]
        temporary = os.path.join(directory, f".{name}.{unique}.tmp")
        self._renames.append((temporary, str(path), durable))
        file = self._temporary[temporary] = FileIO(os.open(temporary, _NEW, mode), "wb")
        _write(file, temporary, data, 0)
        if durable:
            self._files[temporary] = file

    def remove(self, path: str) -> None:
        """Delete a file, if it exists, at the end of the block."""
        self._removals.append(path)

    def hold(self, path: Path, *, create: bool = False) -> FileIO:
        """Open a file and lock it until the block ends. Returns one that the batch holds as it is.

        Whatever replaces the file does so under another lock, which the caller has. Raises StoreBusy as `take_lock`
        does.
        """
        if (file := self._held.get(path)) is None:
            handle = os.open(path, os.O_RDWR | BINARY | (os.O_CREAT if create else 0), 0o600)
            file = self._held[path] = FileIO(handle, "r+b")
            take_lock(file, path)
        return file

    def append(self, path: Path, data: bytes, *, at: int, torn: Callable[[bytes], bool]) -> None:
        """Append `data` to a file, which the batch holds and syncs. It is created if `at` is 0.

        Raises FileExistsError if the file is not as the caller knows it, OSError if it is shorter. `at`: the offset of
        its end, as the caller knows it. `torn` tells whether the bytes after `at`, if `data` does not begin with them,
        are the remains of an unfinished write, which are removed. Otherwise another process wrote them: an error.
        """
        file = self.hold(path, create=at == 0)
        end = file.seek(0, os.SEEK_END)
        if end < at:
            raise OSError(f"{path} is shorter than it was: it now ends at byte {end}")
        if end > at:
            file.seek(at)
            beyond = file.read()
            if not data.startswith(beyond):
                if not torn(beyond):
                    raise FileExistsError(f"{path} goes on beyond byte {at}")
                announce("truncate", path, offset=at)
                file.truncate(at)
            file.seek(at)
        self._ends.setdefault(path, at)
        _write(file, path, data, at)
        self._files[path] = file
        if at == 0:
            self.sync_directory(path.parent)

    def sync(self, path: Path) -> None:
        """Sync a file at the end of the block, which the batch holds until then."""
        self._files[path] = self.hold(path)

    def sync_directory(self, path: Path | str) -> None:
        """Sync the names in a directory at the end of the block."""
        self._directories[path] = None

    def sync_names(self, path: Path, root: Path) -> None:
        """Sync the name of `path`, and of each directory above it below `root`, at the end of the block."""
        while path != root:
            path = path.parent
            self.sync_directory(path)

    def _rename_and_remove(self) -> None:
        directories = {os.path.dirname(path) or os.curdir: None for path in self._removals}
        try:
            for path in self._removals:
                remove(path)
            for temporary, path, durable in self._renames:
                announce("rename", temporary, path.encode())
                os.replace(temporary, path)
                if durable:
                    directories[os.path.dirname(path) or os.curdir] = None
        except BaseException:
            self._give_up(None)
            raise
        if directories:
            _sync_all({}, directories)

    def _give_up(self, failed: type[BaseException] | None) -> None:
        """Delete the temporary files that were not renamed. If writes or the sync `failed`, take appends back too."""
        if failed and issubclass(failed, Exception):  # any other is as final as a kill
            for path, end in self._ends.items():
                with contextlib.suppress(OSError):  # what stays is an unfinished write
                    announce("truncate", path, offset=end)
                    self._held[path].truncate(end)
        for temporary in self._temporary:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def make_directory(path: Path, *, mode: int = 0o700, batch: SyncBatch | None = None, durable: bool = True) -> None:
    """Create `path` and its missing parents, by default accessible to the owner alone. Keep existing directories.

    Without `durable` nothing is synced.
    """
    if path.is_dir():
        return
    make_directory(path.parent, mode=mode, batch=batch, durable=durable)
    announce("mkdir", path)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=mode)
    if durable:
        _sync_directory(path.parent, batch)


def replace(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True, writer: str = "") -> None:
    """Write `data` to the file at `path`, all or nothing: temporary file, fsync, rename, fsync of the directory.

    Without `durable` nothing is synced: a power failure may leave the old file, or an empty one. `writer`: up to 8
    hexadecimal digits for who writes; the temporary file of a write that was killed goes with the writer's next one.
    """
    with SyncBatch() as batch:
        for left in os.listdir(path.parent) if writer else ():
            if left.startswith(f".{path.name}.{writer}") and left.endswith(".tmp"):
                batch.remove(os.path.join(path.parent, left))
        batch.replace(path, data, mode=mode, durable=durable, writer=writer)


def overwrite(path: Path, data: bytes) -> bool:
    """Write `data` over the content of a file, if that is exactly as long. Returns whether it did. Not synced.

    Does nothing to a file that may not be written, or that has other names, such as in a backup made of hard links.

    Much cheaper than `replace`, for which file systems flush the new file even if nobody syncs it. To be read with
    `read_complete`. A power failure may leave the old bytes in some sectors of the disk.
    """
    try:
        file = FileIO(os.open(path, os.O_RDWR | BINARY), "r+b")
    except (FileNotFoundError, PermissionError):
        return False
    try:
        take_lock(file, path)
        found, there = os.fstat(file.fileno()), os.lstat(path)  # it may be a link, or replaced meanwhile
        fits = found.st_size == len(data) and found.st_nlink == 1 and os.path.samestat(found, there)
        if fits:
            file.seek(0)  # the lock may have moved it
            _write(file, path, data, 0)
    except (FileNotFoundError, StoreBusy):  # a stopped reader has the lock
        return False
    else:
        return fits
    finally:
        close_locked(file)


def append(path: Path, data: bytes, *, at: int, torn: Callable[[bytes], bool]) -> None:
    """Append `data` to a file and sync it. See `SyncBatch.append`."""
    with SyncBatch() as batch:
        batch.append(path, data, at=at, torn=torn)


def touch(path: Path, at: float) -> None:
    """Set the modification time of `path`, in seconds since the epoch. Not synced, as no recovery depends on it."""
    announce("touch", path)
    os.utime(path, (at, at))


def rename(path: Path, target: Path, *, batch: SyncBatch | None = None) -> None:
    """Rename `path`, whose content is synced, to `target`. Raises FileExistsError if that is a non-empty directory."""
    announce("rename", path, str(target).encode())
    try:
        path.rename(target)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:  # POSIX allows it in place of EEXIST
            raise FileExistsError(f"{target} exists") from error
        raise
    _sync_directory(target.parent, batch)


def opened(path: str | Path) -> IO[bytes]:
    """Open a regular file to read. Raises OSError for any other file, such as a pipe, which may stay empty."""
    return open(_handle(path), "rb")


def content(path: str | Path) -> bytes | None:
    """Return the content of a regular file; None if it does not exist. Raises OSError as `opened` does."""
    with contextlib.suppress(FileNotFoundError), opened(path) as file:
        return file.read()
    return None


def _handle(path: str | Path) -> int:
    handle = os.open(path, os.O_RDONLY | BINARY | UNBLOCKED)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def read_complete(path: Path) -> bytes:
    """Return the content of a file that others write to in place, without a write that is in progress.

    Raises StoreBusy if a stopped process is in the middle of one.
    """
    file = FileIO(_handle(path))  # without a buffer, whose lock a forked child might wait for when it closes the file
    try:
        if os.name != "nt":  # where no lock can be shared
            take_lock(file, path, shared=True)
        return file.read()
    finally:
        close_locked(file)


def remove(path: Path | str) -> None:
    """Delete a file, if it exists."""
    announce("unlink", path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_directory(path: Path) -> None:
    """Delete a directory with its content, if it exists. Of a symbolic link, delete only the link."""
    if path.is_symlink():
        remove(path)
        return
    with contextlib.suppress(FileNotFoundError):  # another process deletes it at the same time
        for inside in path.iterdir():
            (remove_directory if inside.is_dir() else remove)(inside)
        announce("unlink", path)
        path.rmdir()


def connect(path: Path, *, read_only: bool = False, make: bool = False) -> sqlite3.Connection:
    """Open a SQLite connection with explicit transactions, which waits `PATIENCE` seconds for a busy database.

    With `make`, creates a missing database; otherwise raises sqlite3.OperationalError for it. Only SQLite may open a
    database file: when a process closes any file descriptor of it, the operating system drops the locks of all its
    connections to it (sqlite.org/howtocorrupt.html, section 2.2). And none may be open during a fork (section 2.6).
    """
    assert between_forks.entered, "a fork could carry the connection into a child"
    with _making:  # no other connection is opened before the descriptor that creates the file is closed
        if make and not path.exists():
            announce("write", path)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        db = _open_database(path, "ro" if read_only else "rw")
    if not read_only:
        return db
    try:
        db.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.OperationalError:  # SQLite cannot create the files beside it, so no other process writes to it
        db.close()
        if size(f"{path}-wal"):  # its newest commits, which an immutable database would be read without
            raise
        return _open_database(path, "ro&immutable=1")
    return db


def size(path: str) -> int:
    """Return the size of a file in bytes; 0 if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.getsize(path)
    return 0


def _open_database(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)


def execute(db: sqlite3.Connection, path: Path, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
    """Execute one statement that writes."""
    if _watchers:
        announce("commit" if sql == "COMMIT" else "sql", path, sql.encode())
    return db.execute(sql, parameters)


def _write(file: FileIO, path: Path | str, data: bytes, offset: int) -> None:
    announce("write", path, data, offset)
    done = file.write(data)
    while done < len(data):  # an unbuffered write may take only a part
        done += file.write(memoryview(data)[done:])


def _sync_directory(path: Path, batch: SyncBatch | None) -> None:
    if batch:
        batch.sync_directory(path)
    else:
        _sync_all({}, [path])


def _sync_all(files: Mapping[Path | str, FileIO], directories: Iterable[Path | str]) -> None:
    for file in files:
        announce("fsync", file)
    handles = [*map(FileIO.fileno, files.values())]
    opened: list[int] = []
    try:
        for path in directories if os.name != "nt" else ():  # Windows cannot: the rename itself is durable there
            announce("fsync_dir", path)
            opened.append(os.open(path, os.O_RDONLY))  # those before an error are closed below
        sync(handles + opened)
    finally:
        for handle in opened:
            os.close(handle)
