"""The paths of the files of a JSON location: every run and branch has a path of its own on every file system.

A safe name is used unchanged. Some file systems do not distinguish `A` from `a`, and Windows reserves names (`nul`) and
ignores a dot at the end of a name. So a capital letter becomes `+` and its small letter, and `+0`, which stands for no
character, is added to a name that is not allowed. Names of runs and branches contain no `+`, so no two paths collide.
"""

from __future__ import annotations

import contextlib
import re
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path

from crewlite.refs import check_name

_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
_MANY = 2048  # paths of the runs that commit side by side
_CAPITAL, _ESCAPED = re.compile("[A-Z]"), re.compile(r"\+([0a-z])")


class Paths:
    """The paths of one location. `root` is its directory, `journals` the directory with those of the runs."""

    def __init__(self, root: Path) -> None:
        self.root, self.journals, self._heads = root, root / "journal", root / "heads"
        self.lock = partial(_lock, self.journals / "~locks")
        """Returns the lock file of a run. All runs share at most 256 lock files, so none needs to be removed."""

    def run(self, run_id: str) -> Path:
        """Return the directory that holds the journals of a run."""
        return _of_run(self.journals, run_id)

    def journal(self, run_id: str, branch: str) -> Path:
        """Return the path of the journal of a branch."""
        return _of_branch(self.journals, run_id, branch, ".jsonl")

    def heads(self, run_id: str) -> Path:
        """Return the directory of the head files of a run."""
        return _of_run(self._heads, run_id)

    def head(self, run_id: str, branch: str) -> Path:
        """Return the path of a branch's head file, which holds the journal's length at its newest checkpoint."""
        return _of_branch(self._heads, run_id, branch, ".json")

    def run_of(self, directory: str) -> str:
        """Return the run_id that belongs to the name of a directory."""
        return _name(directory)

    def branch_of(self, journal: str) -> str:
        """Return the branch that belongs to a journal file, given by its path in the directory of its run."""
        return "/".join(map(_name, journal.split("/"))).removesuffix(".jsonl")


@lru_cache(_MANY)
def _of_branch(runs: Path, run_id: str, branch: str, suffix: str) -> Path:
    *above, last = check_name("branch", branch, slashes=True).split("/")
    return _of_run(runs, run_id).joinpath(*map(_directory, above), f"{_safe(last)}{suffix}")


def _of_run(runs: Path, run_id: str) -> Path:
    return runs / _directory(check_name("run_id", run_id))


@lru_cache(_MANY)
def _lock(locks: Path, run_id: str) -> Path:
    return locks / blake2b(run_id.encode(errors="surrogatepass"), digest_size=1).hexdigest()


def _directory(name: str) -> str:
    """Return the name of the directory for a run or a part of a branch name: it never looks like a file in use."""
    safe = _safe(name)
    return f"{safe}+0" if ".json" in name or name.endswith(".") else safe


def _safe(name: str) -> str:
    """Return the name, escaped so that every file system can store it and keep it apart from others: see the module."""
    safe = _CAPITAL.sub(lambda found: f"+{found[0].lower()}", name)
    return f"+0{safe}" if safe.partition(".")[0] in _DEVICES or safe == ".gitignore" else safe


def _name(safe: str) -> str:
    return _ESCAPED.sub(lambda found: "" if found[1] == "0" else found[1].upper(), safe)


def identity(directory: Path) -> tuple[int, int] | None:
    """Return the device and inode of a directory; None if it does not exist."""
    with contextlib.suppress(OSError):
        found = directory.stat()
        return found.st_dev, found.st_ino
    return None
