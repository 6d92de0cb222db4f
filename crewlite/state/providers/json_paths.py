"""Where the files of a JSON location are: every run and branch has a path of its own, on every kind of disk.

A name stands for itself where that is safe. Some disks take `A` and `a` for one name, and Windows has names of its own
(`nul`) and ignores a dot at the end. So a capital letter becomes `+` and its small letter, and `+0`, which stands for
nothing, parts a name from what it must not be. No run or branch may have a `+` in its name, so no two ever meet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from crewlite.refs import check_name

_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
_CAPITAL, _ESCAPED = re.compile("[A-Z]"), re.compile(r"\+([0a-z])")


class Paths:
    """The paths of one location. `root` is its directory, `journals` where the directories of runs are."""

    def __init__(self, root: Path) -> None:
        self.root, self.journals = root, root / "journal"

    def run(self, run_id: str) -> Path:
        """The directory of the journals of a run."""
        return _known(self.journals, check_name("run_id", run_id), _directory(run_id), Path.is_dir)

    def journal(self, run_id: str, branch: str) -> Path:
        """The journal of a branch."""
        *above, last = check_name("branch", branch, slashes=True).split("/")
        path = self.run(run_id)
        for part in above:
            path = _known(path, part, _directory(part), Path.is_dir)
        return _known(path, f"{last}.jsonl", f"{_safe(last)}.jsonl", Path.is_file)

    def heads(self, run_id: str) -> Path:
        """The directory of what is known of how long the journals of a run were."""
        return self.root / "heads" / _directory(check_name("run_id", run_id))

    def head(self, run_id: str, branch: str) -> Path:
        """The file that says how long a journal was when its newest checkpoint was made."""
        *above, last = check_name("branch", branch, slashes=True).split("/")
        return self.heads(run_id).joinpath(*map(_directory, above), f"{_safe(last)}.json")

    def lock(self, run_id: str) -> Path:
        """The lock file of a run. Runs share 256 of them, so there never are more, and none has to be removed."""
        return self.journals / "~locks" / blake2b(run_id.encode(errors="surrogatepass"), digest_size=1).hexdigest()

    def run_of(self, directory: Path) -> str:
        """The run whose journals a directory holds."""
        return _name(directory.name)

    def branch_of(self, directory: Path, journal: Path) -> str:
        """The branch of a journal in the directory of a run."""
        return "/".join(map(_name, journal.relative_to(directory).parts)).removesuffix(".jsonl")


def _directory(name: str) -> str:
    """The name of a directory, which is no file's, and does not end with a dot."""
    safe = _safe(name)
    return f"{safe}+0" if ".json" in name or name.endswith(".") else safe


def _safe(name: str) -> str:
    """The name of a file without its suffix."""
    safe = _CAPITAL.sub(lambda found: f"+{found[0].lower()}", name)
    return f"+0{safe}" if safe.partition(".")[0] in _DEVICES or safe == ".gitignore" else safe


def _name(safe: str) -> str:
    return _ESCAPED.sub(lambda found: "" if found[1] == "0" else found[1].upper(), safe)


def _known(directory: Path, name: str, safe: str, is_one: Callable[[Path], bool]) -> Path:
    """The path in a directory of what has this safe name; or its own, if an earlier crewlite gave it that."""
    path = directory / safe
    if safe == name or path.exists():
        return path
    own = directory / name
    return own if is_one(own) and name in os.listdir(directory) else path  # a disk may find another's
