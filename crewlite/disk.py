"""The one door to the disk: every byte that crewlite writes passes here.

A save is whole or not at all: a file is written beside its place, synced, then renamed over it; an append is synced
before anybody hears of it. A watcher hears of each operation just before it happens and may raise, or kill: so tests
can fail or drop any write, and replay the log as a power cut would have left it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from crewlite.forked import in_child
from crewlite.ids import new_id
from crewlite.lazy import lazy

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = lazy("sqlite3")  # only for those who keep runs in a database

try:
    import fcntl
except ImportError:  # Windows has another lock
    fcntl = None  # type: ignore[assignment]
    import msvcrt

PATIENCE = 10.0  # seconds that a database in which others write is waited for
_MANY = 4  # syncs that are worth the threads
_SYNCERS = 8
_LOCK_AT = 2**31 - 2  # on Windows a locked byte cannot be read, so it is one beyond any journal
Verb = Literal["mkdir", "write", "truncate", "fsync", "rename", "fsync_dir", "unlink", "touch", "sql", "commit"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing about to be done to the disk."""

    verb: Verb
    path: str
    data: bytes = b""
    """What is written, or the new name (rename), or the SQL text."""
    offset: int = 0
    """Where it is written, in bytes; the new length (truncate)."""


Watcher = Callable[[Operation], None]
_watchers: tuple[Watcher, ...] = ()
_locking: set[IO[bytes]] = set()
"""Files that this process has locked or is about to lock."""


@contextlib.contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Let `watcher` hear every operation of this process while the block runs."""
    global _watchers
    _watchers = (*_watchers, watcher)
    try:
        yield
    finally:
        _watchers = tuple(w for w in _watchers if w is not watcher)


def announce(verb: Verb, path: Path | str, data: bytes = b"", offset: int = 0) -> None:
    """Announce an operation to the watchers."""
    for watcher in _watchers:
        watcher(Operation(verb, str(path), data, offset))


class SyncBatch:
    """Writes that are synced when the block ends without an error, all at once: a file system joins such requests.

    Until then their files stay locked. Of `append` and `make_directory`; what is written counts only after the block.
    """

    def __init__(self) -> None:
        self._held = contextlib.ExitStack()
        self._open: dict[Path, IO[bytes]] = {}
        self._files: dict[Path, IO[bytes]] = {}
        self._directories: dict[Path, None] = {}

    def __enter__(self) -> SyncBatch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with self._held:
            if kind is None:
                _sync_all(self._files, list(self._directories))

    def hold(self, path: Path, flags: int) -> IO[bytes]:
        """`held`, until the block ends. Held again, a file is not locked again: the lock would wait for itself."""
        if path not in self._open:
            self._open[path] = self._held.enter_context(held(path, flags))
        return self._open[path]

    def make(self, path: Path, mode: int) -> IO[bytes]:
        """A new file at `path`, open until the block ends."""
        return self._held.enter_context(
            open(path, "xb", buffering=0, opener=lambda name, flags: os.open(name, flags, mode))
        )

    def sync(self, file: IO[bytes], path: Path) -> None:
        """Have a file synced at the end."""
        self._files[path] = file

    def sync_directory(self, path: Path) -> None:
        """Have the names in a directory synced at the end."""
        self._directories[path] = None


def make_directory(path: Path, *, mode: int = 0o700, batch: SyncBatch | None = None) -> None:
    """Make `path` and its parents, by default for the owner alone. An existing directory is left as it is."""
    if path.is_dir():
        return
    make_directory(path.parent, mode=mode, batch=batch)
    announce("mkdir", path)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=mode)
    if batch:
        batch.sync_directory(path.parent)
    else:
        _sync_directory(path.parent)


def replace(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Put `data` at `path`, whole or not at all: temporary file, fsync, rename, fsync of the directory.

    What need not be `durable` is not synced: a cut of power may leave what was there, or an empty file.
    """
    replace_all([(path, data)], mode=mode, durable=durable)


def replace_all(files: Sequence[tuple[Path, bytes]], *, mode: int = 0o600, durable: bool = True) -> None:
    """`replace` for several files, each whole or not at all. What they have in common is synced once."""
    beside = [(path.with_name(f".{path.name}.{new_id()[-12:]}.tmp"), path, data) for path, data in files]
    try:
        with SyncBatch() as batch:
            for temporary, _, data in beside:
                file = batch.make(temporary, mode)
                _write(file, temporary, data, 0)
                if durable:
                    batch.sync(file, temporary)
        for temporary, path, _ in beside:  # closed by now: Windows renames no open file
            announce("rename", temporary, str(path).encode())
            os.replace(temporary, path)
    finally:
        for temporary, _, _ in beside:
            temporary.unlink(missing_ok=True)
    if durable:
        _sync_all({}, list(dict.fromkeys(path.parent for path, _ in files)))


def append(
    path: Path,
    data: bytes,
    *,
    at: int,
    torn: Callable[[bytes], bool],
    mark: tuple[int, bytes] = (0, b""),
    batch: SyncBatch | None = None,
) -> None:
    """Write `data` at offset `at`, the end as the caller knows it, and sync it. At 0 it makes the file.

    Whatever stands beyond `at` is cut if `torn` says that it is the remains of a write that was never finished, and
    kept if `data` begins with it. Raises FileExistsError if it is somebody else's, or if the bytes of `mark` do not
    stand where it says: then the file is another one than the caller knows.
    """
    flags = os.O_RDWR | (os.O_CREAT if at == 0 else 0) | getattr(os, "O_BINARY", 0)
    if batch is None:
        with SyncBatch() as alone:
            append(path, data, at=at, torn=torn, mark=mark, batch=alone)
        return
    file = batch.hold(path, flags)
    file.seek(mark[0])
    if file.read(len(mark[1])) != mark[1]:
        raise FileExistsError(f"{path} was rewritten")
    if file.seek(0, os.SEEK_END) < at:
        raise OSError(f"{path} is shorter than it was: somebody cut it at byte {file.tell()}")
    file.seek(at)
    beyond = file.read()
    if not data.startswith(beyond):
        if not torn(beyond):
            raise FileExistsError(f"{path} goes on beyond byte {at}")
        announce("truncate", path, offset=at)
        file.truncate(at)
    file.seek(at)
    _write(file, path, data, at)
    batch.sync(file, path)
    if at == 0:
        batch.sync_directory(path.parent)


@contextlib.contextmanager
def held(path: Path, flags: int) -> Iterator[IO[bytes]]:
    """The file at `path`, opened and locked against other threads and processes.

    Never one that was replaced or removed while the lock was waited for: that would be written to in vain.
    """
    while True:
        with open(os.open(path, flags, 0o600), "r+b", buffering=0) as file, _locked(file):
            if _is_at(file, path):
                yield file
                return


@contextlib.contextmanager
def locked(paths: Iterable[Path], *, shared: bool = False) -> Iterator[None]:
    """Hold lock files against other threads and processes: all of them, in the order of their names.

    A lock file lies beside what it guards and is never renamed or removed, so what it guards may be, also on Windows.
    It is made if it is not there, in a directory that is made as well, whose parent must exist; a `shared` lock
    changes nothing on disk, and holds nothing where no lock file was ever made.
    """
    with contextlib.ExitStack() as stack:
        for path in sorted(set(paths)):
            flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
            try:
                handle = os.open(path, flags, 0o600)
            except FileNotFoundError:
                if shared:
                    continue
                with contextlib.suppress(FileExistsError):
                    path.parent.mkdir(mode=0o700)
                handle = os.open(path, flags, 0o600)
            file = stack.enter_context(open(handle, "rb" if shared else "r+b", buffering=0))
            stack.enter_context(_locked(file, shared=shared))
        yield


def touch(path: Path, at: float) -> None:
    """Set the time of the last change of `path`, in seconds since the epoch. Not synced: it means little by then."""
    announce("touch", path)
    os.utime(path, (at, at))


def rename(path: Path, target: Path, *, batch: SyncBatch | None = None) -> None:
    """Give `path`, whose content is synced, the name `target`. Raises FileExistsError if a directory has it."""
    announce("rename", path, str(target).encode())
    try:
        path.rename(target)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:  # what POSIX may say as well
            raise FileExistsError(f"{target} exists") from error
        raise
    if batch:
        batch.sync_directory(target.parent)
    else:
        _sync_directory(target.parent)


def read_complete(path: Path) -> bytes:
    """What a file that is appended to holds, with no append half done."""
    with path.open("rb") as file, _locked(file, shared=True) if fcntl else contextlib.nullcontext():
        return file.read()


def head(path: Path, size: int) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as file:
        return file.read(size)


def remove(path: Path) -> None:
    """Delete a file; one that is gone already is no error."""
    announce("unlink", path)
    path.unlink(missing_ok=True)


def remove_directory(path: Path) -> None:
    """Delete a directory with all that is in it; what is gone already is no error.

    What a link leads to is somebody else's: only the link goes.
    """
    if path.is_symlink():
        remove(path)
        return
    with contextlib.suppress(FileNotFoundError):  # another process deletes it at the same time
        for inside in path.iterdir():
            if inside.is_dir():
                remove_directory(inside)
            else:
                remove(inside)
        announce("unlink", path)
        path.rmdir()


def connect(path: Path, *, read_only: bool = False, make: bool = False) -> sqlite3.Connection:
    """A SQLite connection in which transactions are explicit and a busy database is waited for: `PATIENCE`.

    A database that is not there is made with `make`, and is sqlite3.OperationalError without.
    """
    if make and not path.exists():
        announce("write", path)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    if not read_only:
        return _open_database(path, "rw")
    db = _open_database(path, "ro")
    try:
        db.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.OperationalError:  # it needs files beside it that cannot be made, so nobody is writing to it either
        db.close()
        return _open_database(path, "ro&immutable=1")
    return db


def _open_database(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)


def execute(db: sqlite3.Connection, path: Path, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
    """Run one statement that writes."""
    if _watchers:
        announce("commit" if sql == "COMMIT" else "sql", path, sql.encode())
    return db.execute(sql, parameters)


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _locked(file: IO[bytes], *, shared: bool = False) -> Iterator[None]:
    """Hold the advisory lock of an open file against other threads and processes."""
    if fcntl:
        _locking.add(file)
        try:
            fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield
        finally:
            _locking.discard(file)
            fcntl.flock(file, fcntl.LOCK_UN)  # closing alone does not: a forked child has the file open as well
        return
    file.seek(_LOCK_AT)
    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined,unused-ignore]
    try:
        yield
    finally:
        file.seek(_LOCK_AT)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined,unused-ignore]


def _write(file: IO[bytes], path: Path, data: bytes, offset: int) -> None:
    announce("write", path, data, offset)
    left = memoryview(data)
    while left:  # an unbuffered write may take only a part
        left = left[file.write(left) :]


def _sync_directory(path: Path) -> None:
    _sync_all({}, [path])


def _sync_all(files: Mapping[Path, IO[bytes]], directories: Sequence[Path]) -> None:
    """Sync files, then directories. Many are synced from several threads, as the disk then does them in one go."""
    if os.name == "nt":  # Windows has no such thing for directories: the rename itself is durable
        directories = ()
    for file in files:
        announce("fsync", file)
    for path in directories:
        announce("fsync_dir", path)
    with contextlib.ExitStack() as opened:
        handles = [open_file.fileno() for open_file in files.values()]
        for path in directories:
            handles.append(os.open(path, os.O_RDONLY))
            opened.callback(os.close, handles[-1])
        if len(handles) < _MANY:
            for handle in handles:
                _sync(handle)
        else:
            with ThreadPoolExecutor(_SYNCERS) as threads:
                list(threads.map(_sync, handles))


def _sync(handle: int) -> None:
    os.fsync(handle)
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves data in the drive's cache
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)


@in_child
def _let_go() -> None:
    """In a forked child: close locked files. A lock lasts until the last process closes the file."""
    for file in _locking:
        file.close()
    _locking.clear()
