"""Locations on disk: their paths, whether something exists there, and the error for what cannot be read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from crewlite.errors import StoreError, StoreUnusable

FileId = tuple[int, int]
"""The device and the inode of a file or directory, to notice that it was replaced."""
_FORBIDDEN = "give this user the right to read it, and to enter the directories above it"
_MISPLACED = "look at what is at this path"
NO_LOCKS = "move it to a file system that grants locks, such as that of a local disk"
_REMEDIES = {
    errno.ENOLCK: NO_LOCKS,
    **dict.fromkeys((errno.EACCES, errno.EPERM), _FORBIDDEN),
    **dict.fromkeys((errno.EINVAL, errno.ELOOP, errno.ENOTDIR), _MISPLACED),
}
"""What to do about a file that cannot be read, by the number of an error that another try would meet again."""


def not_read(path: Path | str, error: OSError) -> StoreError:
    """Build the error for a file or directory that the system does not read at the moment. It need not be damaged."""
    remedy = _REMEDIES.get(error.errno or 0, "try again")
    return StoreError(str(path), f"cannot be read now ({error.strerror}); {remedy}")


def exists(location: str | Path) -> bool:
    """Return whether a file or directory exists. Raises StoreError if the system does not let this process look."""
    try:
        os.stat(location)
    except PermissionError as error:
        raise not_read(location, error) from error
    except (OSError, ValueError):
        return False
    return True


def absolute(location: str) -> Path:
    """Return a location as an absolute path. Raises StoreUnusable if the working directory was deleted."""
    try:
        return Path(location).absolute()
    except FileNotFoundError as error:
        gone = "is relative to the working directory, which was deleted: change to another one, or pass a whole path"
        raise StoreUnusable(location, gone) from error


def real_path(location: str) -> str:
    """Return a location without links, to be compared with others; unchanged if the working directory was deleted."""
    try:
        return os.path.realpath(location)
    except FileNotFoundError:  # which the provider says if it matters
        return location


def file_id(path: Path | str) -> FileId | None:
    """Return the file or directory at a path; None if there is none."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
