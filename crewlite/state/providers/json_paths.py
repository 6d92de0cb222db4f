"""The paths of the files of a JSON location: every run and branch has a path of its own on every file system.

A safe name is used unchanged. Some file systems do not distinguish `A` from `a`, and Windows reserves names (`nul`) and
ignores a dot at the end of a name. So a capital letter becomes `+` and its small letter, and `+0`, which stands for no
character, is added to a name that is not allowed. Names of runs and branches contain no `+`, so no two paths collide.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path

from crewlite.refs import check_name

_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
_MANY = 1024  # runs that commit side by side
_CAPITAL, _ESCAPED = re.compile("[A-Z]"), re.compile(r"\+([0a-z])")


class Paths:
    """The paths of one location. `root` is its directory, `journals` the directory with those of the runs."""

    def __init__(self, root: Path) -> None:
        self.root, self.journals = root, root / "journal"
        self.lock = partial(_lock, self.journals / "~locks")
        """Returns the lock file of a run. All runs share at most 256 lock files, so none needs to be removed."""
        self.heads, self.head = partial(_heads, root), partial(_head, root)
        """Return the directory of the head files of a run, and the path of the head file of a branch."""

    def run(self, run_id: str) -> Path:
        """Return the directory that holds the journals of a run."""
        return _known(self.journals, check_name("run_id", run_id), _directory(run_id), Path.is_dir)

    def journal(self, run_id: str, branch: str) -> Path:
        """Return the path of the journal of a branch."""
        *above, last = check_name("branch", branch, slashes=True).split("/")
        path = self.run(run_id)
        for part in above:
            path = _known(path, part, _directory(part), Path.is_dir)
        return _known(path, f"{last}.jsonl", f"{_safe(last)}.jsonl", Path.is_file)

    def run_of(self, directory: str) -> str:
        """Return the run_id that belongs to the name of a directory."""
        return _name(directory)

    def branch_of(self, journal: str) -> str:
        """Return the branch that belongs to a journal file, given by its path in the directory of its run."""
        return "/".join(map(_name, journal.split("/"))).removesuffix(".jsonl")


@lru_cache(_MANY)
def _head(root: Path, run_id: str, branch: str) -> Path:
    *above, last = check_name("branch", branch, slashes=True).split("/")
    return _heads(root, run_id).joinpath(*map(_directory, above), f"{_safe(last)}.json")


def _heads(root: Path, run_id: str) -> Path:
    return root / "heads" / _directory(check_name("run_id", run_id))


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


def _known(directory: Path, name: str, safe: str, is_one: Callable[[Path], bool]) -> Path:
    """Return the path with the safe name; the path with the plain name if an earlier release has created that."""
    path = directory / safe
    if safe == name or path.exists():
        return path
    own = directory / name
    return own if is_one(own) and name in os.listdir(directory) else path  # is_one may ignore case, and find another
